//! Messages that are longer than a frame may be: their frames are cut into parts, which come whole
//! or not at all.
//!
//! ```text
//!  part frame
//!  8       12       16
//!  ├────────┼────────┼────── ─ ─
//!  │ number │ number │ bytes
//!  │ of it  │ of all │
//!  └────────┴────────┴────── ─ ─
//! ```
//!
//! Parts are numbered from 0. What they hold, one behind the other, is the message's frame as it
//! would be if it were not too long: its length field, magic, version, kind and fields. They go out
//! in order on one connection; frames of other messages may stand between them, parts of another
//! message may not. Only a node sends them, and only to a controller that has said in its
//! [`Welcome`](crate::Welcome) that it takes them ([`SystemId::PARTS`](crate::SystemId::PARTS)).

use crate::body::{Body, put_u32};
use crate::error::DecodeError;
use crate::frame::{self, HEADER_BYTES, LENGTH_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES};
use crate::message::{frame as put_frame, kind};

/// The version in which parts are offered.
pub const VERSION: u8 = 1;

/// Bytes of a message that a part of it has at most: an answer to the controller never waits for
/// more than that.
pub const PART_BYTES: usize = 1 << 20;

/// The frame of a message as it goes out: as it is, or cut into the frames of its parts, one behind
/// the other, where it is longer than [`MAX_FRAME_BYTES`]; `None` where it is longer than
/// [`MAX_MESSAGE_BYTES`], which nobody takes.
pub fn in_parts(whole: Vec<u8>) -> Option<Vec<u8>> {
    if whole.len() <= MAX_FRAME_BYTES {
        return Some(whole);
    }
    (whole.len() <= MAX_MESSAGE_BYTES).then(|| cut(&whole, PART_BYTES))
}

/// The frames of the parts, each of so many bytes of the message at most, one behind the other.
pub fn cut(whole: &[u8], most: usize) -> Vec<u8> {
    let parts = whole.chunks(most.max(1));
    let number = parts.len();
    let mut out = Vec::with_capacity(whole.len() + number * (HEADER_BYTES + 8));
    for (at, part) in (0_u32..).zip(parts) {
        put_frame(&mut out, frame::VERSION, kind::PART, |out| {
            put_u32(out, at);
            put_u32(out, number as u32);
            out.extend_from_slice(part);
        });
    }
    out
}

/// Whether these bytes begin with the frame of a part.
pub fn is_part(bytes: &[u8]) -> bool {
    let header = bytes.get(LENGTH_BYTES + 2..HEADER_BYTES);
    header == Some(&[frame::VERSION, kind::PART][..])
}

/// Bytes of the first of these frames.
pub fn first_frame(frames: &[u8]) -> usize {
    let length = frames.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    length.saturating_add(LENGTH_BYTES).min(frames.len())
}

/// Parts that have come, of a message of which others are still to come.
#[derive(Debug)]
pub(crate) struct Parts {
    bytes: Vec<u8>,
    come: u32,
    all: u32,
}

impl Parts {
    /// Takes the frame of the next part. Gives the whole message's frame once it is the last.
    ///
    /// # Errors
    /// Where it is no part, or not the one that is next.
    pub(crate) fn take(
        parts: &mut Option<Self>,
        frame: &[u8],
    ) -> Result<Option<Vec<u8>>, DecodeError> {
        const NUMBER: &str = "number of a part";
        let mut body = Body::new("a part frame", frame, HEADER_BYTES);
        let (number, all) = (body.u32(NUMBER)?, body.u32("number of parts")?);
        let expected = parts.as_ref().map_or((0, all), |parts| (parts.come, parts.all));
        if (number, all) != expected || number >= all {
            let (next, of) = expected;
            let why = format_args!("{number} of {all}, where {next} of {of} was to come");
            return Err(body.wrong(HEADER_BYTES, NUMBER, why));
        }
        let new = || Self { bytes: Vec::new(), come: 0, all };
        let of = parts.get_or_insert_with(new);
        let bytes = body.rest();
        if of.bytes.len() + bytes.len() > MAX_MESSAGE_BYTES {
            let why = format_args!("the message has more than {MAX_MESSAGE_BYTES} bytes");
            return Err(body.wrong(HEADER_BYTES + 8, "bytes", why));
        }
        of.bytes.extend_from_slice(bytes);
        of.come += 1;
        let is_whole = of.come == of.all;
        Ok(parts.take_if(|_| is_whole).map(|whole| whole.bytes))
    }
}
