//! A hash key as text.

use std::fmt;

use serde::Deserialize;

/// A hash key as the file has it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct HashKeyText(String);

impl HashKeyText {
    /// The key's 32 bytes.
    ///
    /// # Errors
    /// What is wrong with the text, without showing it.
    pub(crate) fn parse(&self) -> Result<[u8; 32], String> {
        parse_hash_key(&self.0)
    }
}

impl fmt::Debug for HashKeyText {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKeyText(..)")
    }
}

/// The 32 bytes of a hash key.
///
/// # Errors
/// What is wrong with the text, without showing it.
pub(crate) fn parse_hash_key(text: &str) -> Result<[u8; 32], String> {
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(
            "a key is 64 hexadecimal digits, such as `openssl rand -hex 32` prints".to_owned()
        );
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        *byte = digit(digits[0]) << 4 | digit(digits[1]);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_key_is_read_byte_by_byte() {
        let key = parse_hash_key(&format!("{}\n", "0Aff".repeat(16))).unwrap();
        assert_eq!(key[..4], [0x0A, 0xFF, 0x0A, 0xFF]);
        assert!(parse_hash_key(&"é".repeat(32)).is_err());
    }
}
