//! Packet captures: read one of any size packet by packet, and write one.
//!
//! [`Capture`] reads pcap (microseconds or nanoseconds, either byte order) and pcapng (several
//! sections and interfaces, any time resolution, blocks it doesn't know skipped) as a stream: one
//! buffer, reused, holds one packet at a time. [`PcapWriter`] writes nanosecond pcap.
//!
//! Only Ethernet captures are taken. What the packets hold is not looked at here.
//!
//! A file that ends in the middle of a packet or is damaged gives every packet before that place,
//! then one [`CaptureError`] that names the packet, the byte offset, the reason and a remedy.
//!
//! ```
//! use calumma_testbed::capture::{Capture, PcapWriter};
//!
//! let mut file = Vec::new();
//! PcapWriter::new(&mut file)?.write(1_000_000_123, 60, &[0; 60])?;
//!
//! let mut capture = Capture::new(&file[..])?;
//! while let Some(record) = capture.next_record()? {
//!     assert_eq!(record.timestamp_ns, 1_000_000_123);
//!     assert_eq!(record.bytes.len(), 60);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod pcap;
mod pcapng;
mod source;
mod writer;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub use error::{CaptureError, Fault, Part};
pub use writer::PcapWriter;

use pcap::Pcap;
use pcapng::Pcapng;
use source::Source;

/// The largest packet taken from a file, in bytes (libpcap's own limit for Ethernet). A larger
/// length is a damaged file.
pub const MAX_PACKET: u32 = 262_144;

/// The link type of Ethernet, in pcap and pcapng alike.
const LINKTYPE_ETHERNET: u32 = 1;

/// One captured packet, borrowed from the reader's buffer until the next one is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the packet was captured, in nanoseconds since 1970. A pcapng Simple Packet Block
    /// carries no time; its packet gets the time of the one before it (0 for the first).
    pub timestamp_ns: u64,
    /// Length of the packet on the wire in bytes, at least `bytes.len()`.
    pub original_len: u32,
    /// What was captured of the packet, from the Ethernet header on.
    pub bytes: &'a [u8],
}

/// The file format found by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// A capture being read.
#[derive(Debug)]
pub struct Capture<R> {
    source: Source<R>,
    reader: Reader,
    buffer: Vec<u8>,
    packets: u64,
    finished: bool,
}

#[derive(Debug)]
enum Reader {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// What a format reader learned of a packet whose bytes are in the buffer.
struct Header {
    timestamp_ns: u64,
    original_len: u32,
}

impl Capture<BufReader<File>> {
    /// Opens a capture file.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = File::open(path).map_err(|e| CaptureError::new(0, 0, Fault::Io(e)))?;
        Self::new(BufReader::with_capacity(1 << 20, file))
    }
}

impl<R: Read> Capture<R> {
    /// Reads the header of a capture. Many small reads follow, so give a buffered reader.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut source = Source::new(reader);
        let reader = detect(&mut source).map_err(|fault| source.error(0, fault))?;
        Ok(Self { source, reader, buffer: Vec::new(), packets: 0, finished: false })
    }

    /// The next packet, or `None` at the end of the file. After an error there is nothing more to
    /// read: `None`.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        if self.finished {
            return Ok(None);
        }
        let header = match &mut self.reader {
            Reader::Pcap(pcap) => pcap.next(&mut self.source, &mut self.buffer),
            Reader::Pcapng(pcapng) => pcapng.next(&mut self.source, &mut self.buffer),
        };
        match header {
            Ok(Some(Header { timestamp_ns, original_len })) => {
                self.packets += 1;
                let bytes = &self.buffer[..];
                let original_len = original_len.max(bytes.len() as u32);
                Ok(Some(Record { timestamp_ns, original_len, bytes }))
            }
            Ok(None) => {
                self.finished = true;
                Ok(None)
            }
            Err(fault) => {
                self.finished = true;
                Err(self.source.error(self.packets + 1, fault))
            }
        }
    }

    /// Packets given so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        match self.reader {
            Reader::Pcap(_) => Format::Pcap,
            Reader::Pcapng(_) => Format::Pcapng,
        }
    }
}

/// Tells the format by the first four bytes and reads the rest of its header.
fn detect<R: Read>(source: &mut Source<R>) -> Result<Reader, Fault> {
    source.begin(Part::FileHeader);
    let magic = source.array::<4>()?;
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0xa1, 0xb2, 0xc3, 0xd4] => {
            Ok(Reader::Pcap(Pcap::open(source, magic[0] == 0xd4, 1_000)?))
        }
        [0x4d, 0x3c, 0xb2, 0xa1] | [0xa1, 0xb2, 0x3c, 0x4d] => {
            Ok(Reader::Pcap(Pcap::open(source, magic[0] == 0x4d, 1)?))
        }
        [0x0a, 0x0d, 0x0d, 0x0a] => Ok(Reader::Pcapng(Pcapng::open(source)?)),
        _ => Err(Fault::Foreign(magic)),
    }
}
