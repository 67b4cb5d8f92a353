//! What a switch between edges says of a window.
//!
//! ```text
//! error of arrivals (8)
//! ```

use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u64};

/// What a switch between edges says of a window in which stacks say when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The most by which the arrival of a packet of the window may be wrong, in nanoseconds.
    pub arrival_error_ns: u64,
}

impl Passed {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.arrival_error_ns);
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("what passed a switch", bytes, 0);
        let passed = Self { arrival_error_ns: body.u64("error of arrivals")? };
        body.end()?;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_whole_or_refused() {
        let passed = Passed { arrival_error_ns: 0x0102_0304 };
        assert_eq!(passed.encode(), [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(Passed::decode(&passed.encode()), Ok(passed));
        for bytes in [&[0; 7][..], &[0; 9]] {
            let refused = Passed::decode(bytes).unwrap_err().to_string();
            assert!(refused.contains("of what passed a switch"), "{refused}");
        }
    }
}
