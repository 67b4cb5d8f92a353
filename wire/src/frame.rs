//! The header of frames, and taking frames out of a stream of bytes.

use crate::error::{DecodeError, Problem};
use crate::message::Message;
use crate::parts::{Parts, is_part};
use crate::v5;

/// What every frame begins with after its length.
pub const MAGIC: u16 = 0xCA1A;

/// The version of the protocol that this crate speaks. Header, `Hello` up to the node's name and
/// `Refused` are the same in every version, so that peers of different versions can say so.
pub const VERSION: u8 = 6;

/// The oldest version that this crate understands and can write: that of the release before.
pub const OLDEST_VERSION: u8 = v5::VERSION;

/// Bytes before the body: length, magic, version, kind.
pub const HEADER_BYTES: usize = 8;

/// Bytes of the length field, which the length doesn't count.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The longest frame, its length field included. Some two hundred times what a switch of the
/// paper's sizes sends.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The longest message, as the bytes of its frame; one that is longer than a frame may be comes in
/// [parts](crate::parts).
pub const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The longest frame to a node, its length field included. 4096 hosts in
/// [`PathsWanted`](crate::PathsWanted) take 80 KiB, and setups of systems a few KiB each.
pub const MAX_TO_NODE_BYTES: usize = 256 << 10;

/// Takes frames out of a stream of bytes, however it is cut into pieces.
///
/// Memory grows with the bytes that have come, never with the length that a frame claims. An error
/// is final: where the next frame would begin is not known any more, so close the connection.
#[derive(Debug)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// Bytes that have been read as frames.
    read: usize,
    limit: usize,
    /// Version of the last frame, and its bytes.
    version: u8,
    frame_bytes: usize,
    /// Parts of a message, until all have come.
    parts: Option<Parts>,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    /// A reader that takes frames of up to [`MAX_FRAME_BYTES`].
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            read: 0,
            limit: MAX_FRAME_BYTES,
            version: VERSION,
            frame_bytes: 0,
            parts: None,
        }
    }

    /// Has it take frames of up to another length, for as long as the peer is not known: 4 KiB hold
    /// any frame without sketches or counters. Below the longest of all it takes no parts.
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit: limit.min(MAX_FRAME_BYTES), ..self }
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, `None` where bytes of it are still to come.
    ///
    /// # Errors
    /// When the bytes are no frame; see [`DecodeError`].
    pub fn next_message(&mut self) -> Result<Option<Message>, DecodeError> {
        loop {
            let rest = &self.bytes[self.read..];
            let Some(length) = frame_length(rest, self.limit)? else { return Ok(None) };
            let Some(frame) = rest.get(..length) else { return Ok(None) };
            let ((version, message), length_in_all) = if is_part(frame) && self.takes_parts() {
                let whole = Parts::take(&mut self.parts, frame)?;
                let Some(whole) = whole else {
                    self.read += length;
                    continue;
                };
                (Message::decode_versioned(&whole)?, whole.len())
            } else {
                (Message::decode_versioned(frame)?, length)
            };
            self.version = version;
            self.frame_bytes = length_in_all;
            self.read += length;
            return Ok(Some(message));
        }
    }

    fn takes_parts(&self) -> bool {
        self.limit >= MAX_FRAME_BYTES
    }

    /// The protocol version of the last message.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Bytes of the last message's frame, as long as it would be in one.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Whether a frame has begun that is not complete yet, or parts of a message are to come.
    pub fn is_within_frame(&self) -> bool {
        self.read < self.bytes.len() || self.parts.is_some()
    }
}

/// Bytes of the frame that `bytes` begin with, its length field included; `None` where too few have
/// come to tell. Checks the length against `limit` and, as soon as it is there, the magic, so that
/// a stranger is found out at once.
fn frame_length(bytes: &[u8], limit: usize) -> Result<Option<usize>, DecodeError> {
    let Some(length) = bytes.first_chunk() else { return Ok(None) };
    let length = (u32::from_le_bytes(*length) as usize).saturating_add(LENGTH_BYTES);
    let wrong = |offset, problem| Err(DecodeError { offset, frame: "a frame", problem });
    if length > limit {
        return wrong(0, Problem::TooLong { length, limit });
    }
    if let Some([low, high]) = bytes[LENGTH_BYTES..].first_chunk() {
        let magic = u16::from_le_bytes([*low, *high]);
        if magic != MAGIC {
            return wrong(LENGTH_BYTES, Problem::Magic(magic));
        }
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stranger may claim the longest frame on each of thousands of connections.
    #[test]
    fn memory_grows_with_bytes_that_have_come_and_not_with_what_is_claimed() {
        let mut reader = FrameReader::new();
        let claimed = (MAX_FRAME_BYTES - LENGTH_BYTES) as u32;
        let header = [&claimed.to_le_bytes()[..], &MAGIC.to_le_bytes()[..]].concat();
        for byte in header.into_iter().chain([0; 100]) {
            reader.push(&[byte]);
            assert!(reader.next_message().unwrap().is_none());
        }
        assert!(reader.bytes.capacity() < 1024, "{}", reader.bytes.capacity());
    }
}
