//! pcapng: sections of typed blocks. Packets come in Enhanced, Simple and (from old writers) Packet
//! Blocks; each names an interface, whose description says the link type and the unit of the
//! timestamps.

use std::io::Read;

use super::error::{Fault, Part};
use super::source::Source;
use super::{Header, LINKTYPE_ETHERNET, MAX_PACKET};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The largest interface description taken; real ones are below a kilobyte.
const MAX_DESCRIPTION: u32 = 1 << 20;

/// The current section: its byte order and its interfaces so far.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    last_timestamp_ns: u64,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let half = [bytes[at], bytes[at + 1]];
        match self {
            Order::Little => u16::from_le_bytes(half),
            Order::Big => u16::from_be_bytes(half),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Order::Little => u32::from_le_bytes(word),
            Order::Big => u32::from_be_bytes(word),
        }
    }

    fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Order::Little => i64::from_le_bytes(bytes),
            Order::Big => i64::from_be_bytes(bytes),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u32,
    /// Most bytes captured of a packet; 0 for no limit.
    snap_len: u32,
    /// if_tsresol: the unit is 10^-n seconds, or 2^-n with the top bit set.
    resolution: u8,
    /// if_tsoffset: seconds to add.
    offset_s: i64,
}

impl Interface {
    fn nanoseconds(&self, ticks: u64) -> Result<u64, Fault> {
        let ticks = i128::from(ticks);
        let power = u32::from(self.resolution & 0x7f);
        let ns = if self.resolution & 0x80 != 0 {
            (ticks * 1_000_000_000) >> power
        } else if power <= 9 {
            ticks * 10_i128.pow(9 - power)
        } else {
            10_i128.checked_pow(power - 9).map_or(0, |unit| ticks / unit)
        };
        u64::try_from(ns + i128::from(self.offset_s) * 1_000_000_000)
            .map_err(|_| Fault::Damaged("the packet's time is outside 1970 to 2554".into()))
    }
}

/// The length of a block, checked, and what is left of its body.
struct Block {
    total: u32,
    left: u32,
}

impl Block {
    fn new(total: u32) -> Result<Self, Fault> {
        if total < 12 || !total.is_multiple_of(4) {
            return Err(Fault::Damaged(format!(
                "a block claims a length of {total} bytes, which is not a multiple of 4 from 12 on"
            )));
        }
        Ok(Self { total, left: total - 12 })
    }

    /// Takes `len` bytes off the body; `what` they hold is said if the block has not as many.
    fn take(&mut self, len: u32, what: &str) -> Result<(), Fault> {
        let Some(left) = self.left.checked_sub(len) else {
            return Err(Fault::Damaged(format!(
                "a block of {} bytes has no room for {len} bytes of {what}",
                self.total
            )));
        };
        self.left = left;
        Ok(())
    }
}

impl Pcapng {
    /// Reads the first Section Header Block behind its type.
    pub(super) fn open<R: Read>(source: &mut Source<R>) -> Result<Self, Fault> {
        let mut pcapng =
            Self { order: Order::Little, interfaces: Vec::new(), last_timestamp_ns: 0 };
        let total = source.array::<4>()?;
        pcapng.section(source, total)?;
        Ok(pcapng)
    }

    /// Reads the next packet's bytes into `buffer`, through as many other blocks as lie before it.
    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Header>, Fault> {
        loop {
            source.begin(Part::Block);
            let Some(head) = source.array_or_end::<8>()? else {
                return Ok(None);
            };
            let kind = self.order.u32(&head, 0);
            if kind == SECTION_HEADER {
                self.section(source, [head[4], head[5], head[6], head[7]])?;
                continue;
            }
            let mut block = Block::new(self.order.u32(&head, 4))?;
            let header = match kind {
                INTERFACE_DESCRIPTION => {
                    self.interface(source, &mut block, buffer)?;
                    None
                }
                ENHANCED_PACKET | PACKET => Some(self.packet(kind, source, &mut block, buffer)?),
                SIMPLE_PACKET => Some(self.simple_packet(source, &mut block, buffer)?),
                _ => None,
            };
            self.end(source, &block)?;
            if let Some(header) = header {
                self.last_timestamp_ns = header.timestamp_ns;
                return Ok(Some(header));
            }
        }
    }

    /// A Section Header Block behind its type and length: sets the byte order, forgets the
    /// interfaces.
    fn section<R: Read>(&mut self, source: &mut Source<R>, total: [u8; 4]) -> Result<(), Fault> {
        let magic = source.array::<4>()?;
        self.order = match magic {
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [a, b, c, d] => {
                return Err(Fault::Damaged(format!(
                    "a section header's byte-order magic is {a:02x} {b:02x} {c:02x} {d:02x}"
                )));
            }
        };
        let mut block = Block::new(self.order.u32(&total, 0))?;
        block.take(16, "section header")?;
        let rest = source.array::<12>()?;
        let major = self.order.u16(&rest, 0);
        if major != 1 {
            return Err(Fault::Damaged(format!("pcapng version {major} is not known, only 1 is")));
        }
        self.interfaces.clear();
        self.end(source, &block)
    }

    /// Passes over what is left of a block and checks that it closes with its length.
    fn end<R: Read>(&self, source: &mut Source<R>, block: &Block) -> Result<(), Fault> {
        source.enter(Part::Block);
        source.skip(u64::from(block.left))?;
        let again = self.order.u32(&source.array::<4>()?, 0);
        if again != block.total {
            return Err(Fault::Damaged(format!(
                "a block begins with a length of {} bytes and closes with {again}",
                block.total
            )));
        }
        Ok(())
    }

    fn interface<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        block.take(8, "interface description")?;
        let fixed = source.array::<8>()?;
        let mut interface = Interface {
            link: u32::from(self.order.u16(&fixed, 0)),
            snap_len: self.order.u32(&fixed, 4),
            resolution: 6,
            offset_s: 0,
        };
        let options = block.left;
        if options > MAX_DESCRIPTION {
            return Err(Fault::Damaged(format!("an interface description of {options} bytes")));
        }
        block.take(options, "options")?;
        source.fill_buffer(buffer, options)?;
        self.options(buffer, &mut interface)?;
        self.interfaces.push(interface);
        Ok(())
    }

    fn options(&self, mut bytes: &[u8], interface: &mut Interface) -> Result<(), Fault> {
        while bytes.len() >= 4 {
            let code = self.order.u16(bytes, 0);
            let len = usize::from(self.order.u16(bytes, 2));
            if code == 0 {
                break;
            }
            let Some(value) = bytes.get(4..4 + len) else {
                return Err(Fault::Damaged(format!(
                    "option {code} of an interface claims {len} bytes, and fewer are there"
                )));
            };
            match (code, value) {
                (9, &[resolution]) => interface.resolution = resolution,
                (14, &[a, b, c, d, e, f, g, h]) => {
                    interface.offset_s = self.order.i64([a, b, c, d, e, f, g, h]);
                }
                _ => {}
            }
            bytes = bytes.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    /// An Enhanced Packet Block, or a Packet Block, whose interface number is a half word before a
    /// drop count.
    fn packet<R: Read>(
        &self,
        kind: u32,
        source: &mut Source<R>,
        block: &mut Block,
        buffer: &mut Vec<u8>,
    ) -> Result<Header, Fault> {
        block.take(20, "packet header")?;
        let fixed = source.array::<20>()?;
        let number = match kind {
            PACKET => u32::from(self.order.u16(&fixed, 0)),
            _ => self.order.u32(&fixed, 0),
        };
        let interface = self.ethernet(number)?;
        let ticks =
            u64::from(self.order.u32(&fixed, 4)) << 32 | u64::from(self.order.u32(&fixed, 8));
        let timestamp_ns = interface.nanoseconds(ticks)?;
        take_packet(source, block, buffer, self.order.u32(&fixed, 12))?;
        Ok(Header { timestamp_ns, original_len: self.order.u32(&fixed, 16) })
    }

    fn simple_packet<R: Read>(
        &self,
        source: &mut Source<R>,
        block: &mut Block,
        buffer: &mut Vec<u8>,
    ) -> Result<Header, Fault> {
        block.take(4, "packet header")?;
        let original_len = self.order.u32(&source.array::<4>()?, 0);
        let captured = match self.ethernet(0)?.snap_len {
            0 => original_len,
            limit => original_len.min(limit),
        };
        take_packet(source, block, buffer, captured)?;
        Ok(Header { timestamp_ns: self.last_timestamp_ns, original_len })
    }

    fn ethernet(&self, number: u32) -> Result<Interface, Fault> {
        match self.interfaces.get(number as usize) {
            Some(interface) if interface.link == LINKTYPE_ETHERNET => Ok(*interface),
            Some(interface) => Err(Fault::LinkType(interface.link)),
            None => Err(Fault::Damaged(format!(
                "the packet names interface {number}, and the section has described {}",
                self.interfaces.len()
            ))),
        }
    }
}

fn take_packet<R: Read>(
    source: &mut Source<R>,
    block: &mut Block,
    buffer: &mut Vec<u8>,
    captured: u32,
) -> Result<(), Fault> {
    if captured > MAX_PACKET {
        return Err(Fault::Damaged(format!(
            "the packet claims {captured} captured bytes, more than the {MAX_PACKET} any capture holds"
        )));
    }
    block.take(captured, "packet")?;
    source.enter(Part::Packet);
    source.fill_buffer(buffer, captured)
}
