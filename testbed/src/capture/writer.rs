//! Writes a capture as little-endian pcap with nanosecond timestamps.

use std::io::{self, Write};

use super::{LINKTYPE_ETHERNET, MAX_PACKET};

/// Writes an Ethernet capture, packet by packet. Give a buffered writer, and flush it at the end.
#[derive(Debug)]
pub struct PcapWriter<W> {
    writer: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    pub fn new(mut writer: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_3c4d_u32.to_le_bytes());
        header.extend(2_u16.to_le_bytes());
        header.extend(4_u16.to_le_bytes());
        header.extend([0; 8]);
        header.extend(MAX_PACKET.to_le_bytes());
        header.extend(LINKTYPE_ETHERNET.to_le_bytes());
        writer.write_all(&header)?;
        Ok(Self { writer })
    }

    /// Writes one packet: its time in nanoseconds since 1970 (before 2106), its length on the wire,
    /// and what was captured of it.
    pub fn write(&mut self, timestamp_ns: u64, original_len: u32, bytes: &[u8]) -> io::Result<()> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let Ok(seconds) = u32::try_from(timestamp_ns / 1_000_000_000) else {
            return refuse("pcap holds no times after 2106");
        };
        if bytes.len() > MAX_PACKET as usize {
            return refuse("the packet is larger than 262144 bytes, the most a capture holds");
        }
        let mut header = [0; 16];
        header[..4].copy_from_slice(&seconds.to_le_bytes());
        header[4..8].copy_from_slice(&((timestamp_ns % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&original_len.to_le_bytes());
        self.writer.write_all(&header)?;
        self.writer.write_all(bytes)
    }

    /// Flushes and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}
