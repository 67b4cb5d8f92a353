//! Reading and writing the numbers and texts that bodies are made of.

use crate::error::{DecodeError, Problem};

/// A frame or body that is being read, field after field.
#[derive(Debug)]
pub struct Body<'a> {
    frame: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Body<'a> {
    /// The whole frame `bytes`, read from byte `at` on.
    pub fn new(frame: &'static str, bytes: &'a [u8], at: usize) -> Self {
        Self { frame, bytes, at }
    }

    /// Bytes from the start of the frame to the next field.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// An error at the next field.
    pub fn error(&self, problem: Problem) -> DecodeError {
        self.error_at(self.at, problem)
    }

    /// An error at `offset` bytes from the start of the frame.
    pub fn error_at(&self, offset: usize, problem: Problem) -> DecodeError {
        DecodeError { offset, frame: self.frame, problem }
    }

    /// An error about the value of `field`, which began at `offset`.
    pub fn wrong(&self, offset: usize, field: &'static str, why: impl ToString) -> DecodeError {
        self.error_at(offset, Problem::Value { field, why: why.to_string() })
    }

    /// The next `needed` bytes.
    ///
    /// # Errors
    /// Where fewer are left.
    pub fn bytes(&mut self, field: &'static str, needed: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.at..];
        let Some(bytes) = rest.get(..needed) else {
            return Err(self.error(Problem::Short { field, needed, left: rest.len() }));
        };
        self.at += needed;
        Ok(bytes)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// Where fewer are left.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    /// 32 bytes.
    ///
    /// # Errors
    /// Where fewer bytes are left.
    pub fn key(&mut self, field: &'static str) -> Result<[u8; 32], DecodeError> {
        self.array(field)
    }

    /// A byte.
    ///
    /// # Errors
    /// Where fewer bytes are left.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// Where fewer bytes are left.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// Where fewer bytes are left.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// Where fewer bytes are left.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// Where it is neither.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        let offset = self.at;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(offset, field, format_args!("{other} is neither 0 nor 1"))),
        }
    }

    /// Opaque bytes behind their 32-bit length.
    ///
    /// # Errors
    /// Where fewer are left.
    pub fn blob(&mut self, field: &'static str) -> Result<Vec<u8>, DecodeError> {
        let length = self.u32(field)? as usize;
        Ok(self.bytes(field, length)?.to_vec())
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// A text of at most `most` bytes behind its 16-bit length. It goes into logs and onto
    /// terminals: in place of control characters it has question marks.
    ///
    /// # Errors
    /// Where it is longer or no UTF-8.
    pub fn text(&mut self, field: &'static str, most: usize) -> Result<String, DecodeError> {
        let offset = self.at;
        let length = usize::from(self.u16(field)?);
        if length > most {
            let why = format_args!("{length} bytes, at most {most} are allowed");
            return Err(self.wrong(offset, field, why));
        }
        let bytes = self.bytes(field, length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.replace(char::is_control, "?")),
            Err(error) => Err(self.wrong(offset, field, error)),
        }
    }

    /// Makes sure that nothing follows the last field.
    ///
    /// # Errors
    /// Where something does.
    pub fn end(self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(self.error(Problem::LeftOver(left))),
        }
    }
}

/// Appends a text, cut to `most` bytes, behind its 16-bit length.
pub fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_u16(out, end as u16);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

/// Appends a byte.
pub fn put_u8(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

/// Appends two bytes, little-endian.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends four bytes, little-endian.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends eight bytes, little-endian.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends opaque bytes behind their 32-bit length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}
