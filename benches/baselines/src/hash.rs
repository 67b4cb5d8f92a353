//! Hashing 13-byte keys: two multiplications whose halves are folded together, and one more for
//! each further index. Seeded, and good enough for structured keys; no defence against an attacker.

use calumma_sketch::FlowKey;

const ODD: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A seeded hash function of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash {
    seed: u64,
}

/// A key's hash, of which any number of words can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashed(u64);

impl Hash {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: fold(seed ^ ODD[1], ODD[0]) }
    }

    #[inline]
    pub(crate) fn of(self, key: &FlowKey) -> Hashed {
        self.of_words(u128::from_ne_bytes(*key.padded()))
    }

    /// The hash of any 16 bytes.
    #[inline]
    pub(crate) fn of_words(self, words: u128) -> Hashed {
        let once = fold(words as u64 ^ self.seed, (words >> 64) as u64 ^ ODD[2]);
        Hashed(fold(once ^ ODD[0], self.seed | 1))
    }
}

impl Hashed {
    /// Word number `number`; its bits are independent of those of other numbers.
    #[inline]
    pub(crate) fn word(self, number: u64) -> u64 {
        fold(self.0 ^ ODD[1].wrapping_mul(number + 1), ODD[0])
    }

    /// An index below `len` by word number `number`: the multiplication's upper half, which is as
    /// even as a remainder and cheaper.
    #[inline]
    pub(crate) fn index(self, number: u64, len: usize) -> usize {
        (((self.word(number) >> 32) * len as u64) >> 32) as usize
    }

    /// The hash itself.
    #[inline]
    pub(crate) fn whole(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_keys_fall_evenly_by_every_word() {
        let hash = Hash::new(5);
        for number in 0..4 {
            let mut hits = [0_u32; 64];
            for flow in 0..64_000 {
                let key = FlowKey::from_words(0x0A00_0000 + flow, 0x0A01_0001, 80, 6);
                hits[hash.of(&key).index(number, 64)] += 1;
            }
            // A thousand each, five standard deviations either way.
            assert!(hits.iter().all(|hits| (840..1160).contains(hits)), "{hits:?}");
        }
    }
}
