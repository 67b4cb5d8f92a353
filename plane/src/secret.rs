//! The secret of a deployment, as a session has it and as hash functions are made of it.

use calumma_sketch::HashKey;
use calumma_wire::{Generators, Secret};

/// The key of the hash functions by which a session measures.
pub fn hash_key(secret: &Secret) -> HashKey {
    match secret.generators {
        Generators::Secret => HashKey::from_bytes(secret.key),
        Generators::Public => HashKey::with_public_generators(secret.key),
    }
}

/// The opposite.
pub fn secret(hash_key: &HashKey) -> Secret {
    let public = hash_key.has_public_generators();
    let generators = if public { Generators::Public } else { Generators::Secret };
    Secret { key: *hash_key.as_bytes(), generators }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_back_as_it_went() {
        for generators in [Generators::Secret, Generators::Public] {
            let secret = Secret { key: [7; 32], generators };
            assert_eq!(self::secret(&hash_key(&secret)), secret);
        }
    }
}
