//! What can be wrong with a capture file, said with the place and the remedy.

use std::fmt;
use std::io;

/// Why a capture could not be read further, and where.
#[derive(Debug)]
pub struct CaptureError {
    /// The number of the packet that could not be read, counted from 1 as Wireshark does; 0 for
    /// the file's own header.
    pub packet: u64,
    /// Where the packet, block or header that could not be read begins, in bytes from the start of
    /// the file.
    pub offset: u64,
    /// The reason.
    pub fault: Fault,
}

/// The reason why a capture could not be read.
#[derive(Debug)]
pub enum Fault {
    /// The file ends before the thing it has begun.
    Truncated {
        /// What is cut short.
        part: Part,
        /// How many of its bytes are there.
        have: u64,
        /// How many it needs, as far as known.
        need: u64,
    },
    /// Not a capture file; its first four bytes.
    Foreign([u8; 4]),
    /// Packets of another link type than Ethernet.
    LinkType(u32),
    /// The file says something that cannot be.
    Damaged(String),
    /// The file could not be read at all.
    Io(io::Error),
}

/// The piece of a file that was being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The header of the file.
    FileHeader,
    /// The header before a packet.
    PacketHeader,
    /// The bytes of a packet.
    Packet,
    /// A pcapng block.
    Block,
}

impl CaptureError {
    pub(super) fn new(packet: u64, offset: u64, fault: Fault) -> Self {
        Self { packet, offset, fault }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::FileHeader => "file header",
            Part::PacketHeader => "packet header",
            Part::Packet => "packet",
            Part::Block => "block",
        })
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet, offset, fault } = self;
        match packet {
            0 => write!(f, "capture header at byte {offset}: ")?,
            n => write!(f, "packet {n} at byte {offset}: ")?,
        }
        match fault {
            Fault::Truncated { part: Part::FileHeader, have: 0, .. } => {
                write!(f, "the file is empty; give a pcap or pcapng capture")
            }
            Fault::Truncated { part, have, need } => {
                write!(f, "the file ends after {have} of {need} bytes of a {part}; ")?;
                remedy(f, *packet, *offset)
            }
            Fault::Foreign(magic) => foreign(f, magic),
            Fault::LinkType(link) => {
                write!(
                    f,
                    "the link type is {link}{}, and only Ethernet (1) is read; ",
                    link_name(*link)
                )?;
                write!(f, "capture on an Ethernet interface")
            }
            Fault::Damaged(reason) => {
                write!(f, "{reason}; ")?;
                remedy(f, *packet, *offset)
            }
            Fault::Io(error) => {
                write!(f, "{error}; check that the file exists and can be read")
            }
        }
    }
}

impl std::error::Error for CaptureError {}

fn remedy(f: &mut fmt::Formatter<'_>, packet: u64, offset: u64) -> fmt::Result {
    match packet {
        0 => write!(f, "copy or capture the file again"),
        _ => write!(
            f,
            "copy or capture the file again, or keep what is before: head -c {offset} FILE > INTACT"
        ),
    }
}

fn foreign(f: &mut fmt::Formatter<'_>, magic: &[u8; 4]) -> fmt::Result {
    let unpack = match magic {
        [0x1f, 0x8b, ..] => Some(("gzip", "gunzip")),
        [0x28, 0xb5, 0x2f, 0xfd] => Some(("zstd", "unzstd")),
        [0xfd, b'7', b'z', b'X'] => Some(("xz", "unxz")),
        [0x04, 0x22, 0x4d, 0x18] => Some(("lz4", "unlz4")),
        [b'B', b'Z', b'h', _] => Some(("bzip2", "bunzip2")),
        _ => None,
    };
    if let Some((packer, remedy)) = unpack {
        return write!(f, "the file is compressed with {packer}; unpack it first: {remedy} FILE");
    }
    let [a, b, c, d] = magic;
    write!(
        f,
        "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}, which is neither pcap nor pcapng; \
         convert it first: editcap -F pcap FILE OUT.pcap"
    )
}

fn link_name(link: u32) -> &'static str {
    match link {
        0 => " (BSD loopback)",
        101 | 12 | 14 => " (raw IP)",
        105 | 127 => " (IEEE 802.11)",
        113 => " (Linux cooked, as `tcpdump -i any` writes)",
        276 => " (Linux cooked v2, as `tcpdump -i any` writes)",
        _ => "",
    }
}
