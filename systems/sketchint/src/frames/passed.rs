//! What a switch between edges says of a window.
//!
//! ```text
//! error of arrivals (8)
//! from version 7 on: means (1)  error of arrivals in stacks (8)
//! ```

use calumma_plane::int::means::Means;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u64};

use super::means::{put_means, read_means};

/// What a switch between edges says of a window; up to version 6 of one in which stacks say when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Where stacks say when: the most by which the arrival of a packet of the window may be wrong,
    /// in nanoseconds.
    pub arrival_error_ns: u64,
    /// By what means it knows what it has put into stacks of the window, and maybe some of a
    /// neighbouring one; `None` where it does not say.
    pub means: Option<Means>,
}

impl Passed {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.arrival_error_ns);
        self.means.iter().for_each(|&means| put_means(&mut out, means));
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("what passed a switch", bytes, 0);
        let arrival_error_ns = body.u64("error of arrivals")?;
        let means = if body.left() > 0 { Some(read_means(&mut body)?) } else { None };
        let passed = Self { arrival_error_ns, means };
        body.end()?;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_whole_or_refused() {
        let older = Passed { arrival_error_ns: 0x0102_0304, means: None };
        assert_eq!(older.encode(), [4, 3, 2, 1, 0, 0, 0, 0]);
        let means = Means::new(Means::DEVICE | Means::POLL, 0x0506);
        let passed = Passed { means, ..older };
        assert_eq!(passed.encode(), [4, 3, 2, 1, 0, 0, 0, 0, 3, 6, 5, 0, 0, 0, 0, 0, 0]);
        for passed in [older, passed] {
            assert_eq!(Passed::decode(&passed.encode()), Ok(passed));
        }
        for bytes in [&[0; 7][..], &[0; 9], &[0; 16], &[0; 18]] {
            let refused = Passed::decode(bytes).unwrap_err().to_string();
            assert!(refused.contains("of what passed a switch"), "{refused}");
        }
        let refused = Passed::decode(&[0x80; 17]).unwrap_err().to_string();
        assert!(refused.starts_with("byte 8 of what passed a switch: means: "), "{refused}");
    }
}
