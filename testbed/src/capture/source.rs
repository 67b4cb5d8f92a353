//! A reader that knows how far it is in the file and what it is reading, so that an error can say
//! so.

use std::io::{self, Read};

use super::error::{CaptureError, Fault, Part};

/// The file, its position, and where the thing being read began.
#[derive(Debug)]
pub(super) struct Source<R> {
    reader: R,
    position: u64,
    /// Where the packet or block being read begins.
    start: u64,
    part: Part,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, position: 0, start: 0, part: Part::FileHeader }
    }

    /// Marks this place as the beginning of a header, packet or block: errors name it.
    pub(super) fn begin(&mut self, part: Part) {
        self.start = self.position;
        self.part = part;
    }

    /// Goes on, within the thing begun, to another part of it.
    pub(super) fn enter(&mut self, part: Part) {
        self.part = part;
    }

    pub(super) fn error(&self, packet: u64, fault: Fault) -> CaptureError {
        CaptureError::new(packet, self.start, fault)
    }

    /// Reads `N` bytes; a file that ends before is truncated.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        let have = self.fill(&mut bytes)?;
        if have < N { Err(self.truncated(have as u64, N as u64)) } else { Ok(bytes) }
    }

    /// Reads `N` bytes, or none at all if the file ends exactly here.
    pub(super) fn array_or_end<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            have if have < N => Err(self.truncated(have as u64, N as u64)),
            _ => Ok(Some(bytes)),
        }
    }

    /// Replaces what is in `buffer` by the next `len` bytes. The buffer grows with what is really
    /// there, so a length that lies costs nothing.
    pub(super) fn fill_buffer(&mut self, buffer: &mut Vec<u8>, len: u32) -> Result<(), Fault> {
        buffer.clear();
        let have = self.reader.by_ref().take(u64::from(len)).read_to_end(buffer);
        let have = have.map_err(Fault::Io)? as u64;
        self.position += have;
        if have < u64::from(len) { Err(self.truncated(have, u64::from(len))) } else { Ok(()) }
    }

    /// Passes over `len` bytes.
    pub(super) fn skip(&mut self, len: u64) -> Result<(), Fault> {
        let have = io::copy(&mut self.reader.by_ref().take(len), &mut io::sink());
        let have = have.map_err(Fault::Io)?;
        self.position += have;
        if have < len { Err(self.truncated(have, len)) } else { Ok(()) }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, Fault> {
        let mut have = 0;
        while have < bytes.len() {
            match self.reader.read(&mut bytes[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::Io(e)),
            }
        }
        self.position += have as u64;
        Ok(have)
    }

    /// The file ended `have` bytes into a piece of `need`: said in bytes of the whole part where
    /// more of it came before.
    fn truncated(&self, have: u64, need: u64) -> Fault {
        let before = match self.part {
            Part::Packet => 0,
            _ => self.position - have - self.start,
        };
        Fault::Truncated { part: self.part, have: before + have, need: before + need }
    }
}
