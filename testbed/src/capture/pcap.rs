//! Classic pcap: a 24-byte file header, then packets, each behind a 16-byte header.

use std::io::Read;

use super::error::{Fault, Part};
use super::source::Source;
use super::{Header, LINKTYPE_ETHERNET, MAX_PACKET};

/// The file header's say on how to read the packets.
#[derive(Debug)]
pub(super) struct Pcap {
    little_endian: bool,
    /// Nanoseconds in a unit of the timestamps' second word: 1000 or 1.
    unit_ns: u64,
}

impl Pcap {
    /// Reads the file header behind its magic number.
    pub(super) fn open<R: Read>(
        source: &mut Source<R>,
        little_endian: bool,
        unit_ns: u64,
    ) -> Result<Self, Fault> {
        let pcap = Self { little_endian, unit_ns };
        let header = source.array::<20>()?;
        let version = pcap.word(&header, 0);
        let major = if little_endian { version & 0xffff } else { version >> 16 };
        if major != 2 {
            return Err(Fault::Damaged(format!("pcap version {major} is not known, only 2 is")));
        }
        // The upper bits say whether a frame check sequence follows each packet.
        let link = pcap.word(&header, 16) & 0x03ff_ffff;
        if link != LINKTYPE_ETHERNET {
            return Err(Fault::LinkType(link));
        }
        Ok(pcap)
    }

    /// Reads the next packet's bytes into `buffer`.
    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Header>, Fault> {
        source.begin(Part::PacketHeader);
        let Some(header) = source.array_or_end::<16>()? else {
            return Ok(None);
        };
        let seconds = u64::from(self.word(&header, 0));
        let fraction = u64::from(self.word(&header, 4));
        let captured = self.word(&header, 8);
        if captured > MAX_PACKET {
            return Err(Fault::Damaged(format!(
                "the packet claims {captured} captured bytes, more than the {MAX_PACKET} any capture holds"
            )));
        }
        source.enter(Part::Packet);
        source.fill_buffer(buffer, captured)?;
        Ok(Some(Header {
            timestamp_ns: seconds * 1_000_000_000 + fraction * self.unit_ns,
            original_len: self.word(&header, 12),
        }))
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.little_endian { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    }
}
