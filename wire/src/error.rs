//! What is wrong with a frame, and where.

use crate::frame::{MAGIC, OLDEST_VERSION, VERSION};

/// A frame or a body that can't be read: which kind it is, at which byte the trouble begins, and
/// what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of {frame}: {problem}")]
pub struct DecodeError {
    /// Bytes from the start of the frame (its length field) or body to what can't be read.
    pub offset: usize,
    /// The kind of the frame with its article, as far as it is known.
    pub frame: &'static str,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The frame ends within a field.
    #[error("{field} needs {needed} bytes, the frame has {left} left")]
    Short {
        /// The field.
        field: &'static str,
        /// Bytes it needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// The frame goes on after its last field.
    #[error("{0} bytes are left over after the last field")]
    LeftOver(usize),
    /// A length beyond what is allowed at this point of the conversation.
    #[error(
        "a length of {length} bytes, at most {limit} are accepted here; is the peer a Calumma program?"
    )]
    TooLong {
        /// The length that the frame gives.
        length: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// Something else than a Calumma program talks.
    #[error("{0:#06x} instead of {MAGIC:#06x}; is the peer a Calumma program?")]
    Magic(u16),
    /// A program of another protocol version talks.
    #[error(
        "the peer speaks version {0} of the protocol, this program versions {OLDEST_VERSION} to \
         {VERSION}: run the same release on both, or two that follow each other"
    )]
    Version(u8),
    /// A kind of frame that this version doesn't have.
    #[error("there is no frame of kind {0:#04x}")]
    Kind(u8),
    /// A field holds something that it can't.
    #[error("{field}: {why}")]
    Value {
        /// The field.
        field: &'static str,
        /// What it holds and why that can't be.
        why: String,
    },
}
