//! The bytes of a stack, and which packets have one.
//!
//! Behind the fixed part of TCP's header (20 bytes) or UDP's (8) stand, in words of 32 bits:
//!
//! ```text
//! | Type 1: 4 | NPT 0: 2 | 0: 2 | Length: 8 | 0: 8 | original DSCP: 6 | 0: 2 |     shim
//! | Ver 2: 4 | D: 1 | E: 1 | M: 1 | 0: 12 | Hop ML: 5 | Remaining Hop Count: 8 |   metadata header
//! | Instruction Bitmap: 16 | Domain Specific ID: 16 |
//! | DS Instruction 0: 16 | DS Flags 0: 16 |
//! | the last hop, Hop ML words | the hop before | ... | the source's own |         metadata stack
//! ```
//!
//! Length counts words without the shim's own (INT-MD v2.1, sections 5.6 to 5.8).
//!
//! Where a network has a [UDP port](super::Insertion::udp_port) for it, packets of UDP go there,
//! and packets of protocols that have no place for a stack have it behind a UDP header of its own
//! that goes there. Their shims say what that took the place of, and not the DSCP:
//!
//! ```text
//! | Type 1: 4 | NPT 1: 2 | 0: 2 | Length: 8 | original port: 16 |
//! | Type 1: 4 | NPT 2: 2 | 0: 2 | Length: 8 | 0: 8 | original protocol: 8 |
//! ```

use super::{Domains, Hop, Insertion, Instructions, MARKER, Stack, UNKNOWN};
use crate::packet::Packet;
use crate::parse::detail::detail;
use crate::parse::{TYPE_IPV4, TYPE_IPV6, UDP, ether_type, has_ports};
use crate::tag::L4Place;
use crate::tag::before::UDP_HEADER;
use crate::{Carrier, carrier};

/// Bytes of shim and metadata header.
pub const HEADERS: usize = SHIM + 12;

/// Bytes of the shim.
pub(super) const SHIM: usize = 4;

/// Words of the metadata header, which Length counts.
pub(super) const HEADER_WORDS: usize = 3;

/// Most words that Length says.
pub(super) const MOST_WORDS: usize = 255;

/// Most bytes of an IP packet.
pub(super) const MOST_LEN: usize = u16::MAX as usize;

/// Most words of a hop: each of the 16 bits one, three of them two.
pub(super) const MOST_HOP_WORDS: usize = 19;

/// The shim's first byte: Type 1 (INT-MD), and the NPT.
const BY_DSCP: u8 = 0x10;
const BY_PORT: u8 = 0x14;
const BY_PROTOCOL: u8 = 0x18;

/// The header's first byte: version 2, and no flags.
const VERSION: u8 = 0x20;

/// Of the header's first byte: the packet is to be dropped at the sink.
const DISCARD: u8 = 0b1000;

/// Of the header's first byte: a switch found that no hops remain.
pub(super) const HOPS_EXCEEDED: u8 = 0b0100;

/// Of the header's first byte: a switch found no room for its hop.
pub(super) const MTU_EXCEEDED: u8 = 0b0010;

/// What the shim says of the packet as its host has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// Its DSCP: nothing but that marks the packet (NPT 0).
    Dscp(u8),
    /// The UDP port that it went to (NPT 1).
    Port(u16),
    /// Its IP protocol: the UDP header before the shim is not the host's (NPT 2).
    Protocol(u8),
}

/// What shim and metadata header say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet came with from its host.
    pub original: Original,
    /// Words of metadata header and stack.
    pub words: u8,
    /// The first byte of the metadata header: version and flags.
    pub(super) flags: u8,
    /// Hops that may still be pushed.
    pub remaining: u8,
    /// What each hop says.
    pub instructions: Instructions,
    /// Whose stack it is.
    pub domain: u16,
}

impl Header {
    /// Its bytes.
    pub(super) fn write(&self) -> [u8; HEADERS] {
        let [high, low] = self.instructions.bits().to_be_bytes();
        let [domain, number] = self.domain.to_be_bytes();
        let hop_words = self.instructions.words() as u8;
        let (kind, original) = match self.original {
            Original::Dscp(dscp) => (BY_DSCP, u16::from(dscp << 2)),
            Original::Port(port) => (BY_PORT, port),
            Original::Protocol(protocol) => (BY_PROTOCOL, protocol.into()),
        };
        let [first, second] = original.to_be_bytes();
        [
            kind,
            self.words,
            first,
            second,
            self.flags,
            0,
            hop_words,
            self.remaining,
            high,
            low,
            domain,
            number,
            0,
            0,
            0,
            0,
        ]
    }

    /// A header of a packet without any hop yet.
    pub(super) fn new(original: Original, insertion: &Insertion) -> Self {
        let Insertion { instructions, hops, domain, .. } = *insertion;
        let (words, domain) = (HEADER_WORDS as u8, domain.get());
        Self { original, words, flags: VERSION, remaining: hops, instructions, domain }
    }

    /// Whether the sink is to drop the packet.
    #[inline]
    pub fn is_discarded(&self) -> bool {
        self.flags & DISCARD != 0
    }

    /// Whether a switch could not push.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.flags & (HOPS_EXCEEDED | MTU_EXCEEDED) != 0
    }

    /// Whether a switch did not push since the packet would have been too long.
    #[inline]
    pub fn mtu_exceeded(&self) -> bool {
        self.flags & MTU_EXCEEDED != 0
    }

    /// Whether a switch did not push since no hops remained.
    #[inline]
    pub fn hops_exceeded(&self) -> bool {
        self.flags & HOPS_EXCEEDED != 0
    }

    /// Bytes of shim, metadata header and stack.
    #[inline]
    pub fn size(&self) -> usize {
        SHIM + usize::from(self.words) * 4
    }

    /// Reads what begins `bytes`; `None` where these are no shim and metadata header of this
    /// version and of a domain among `domains`. Lengths are not looked at.
    #[inline]
    fn read(bytes: &[u8], domains: Domains) -> Option<Self> {
        let bytes: &[u8; HEADERS] = bytes.first_chunk()?;
        let [kind, words, first, second, flags, middle, hop_words, remaining, ..] = *bytes;
        let original = match kind {
            BY_DSCP if first == 0 && second & 0b11 == 0 => Original::Dscp(second >> 2),
            BY_PORT => Original::Port(u16::from_be_bytes([first, second])),
            BY_PROTOCOL if first == 0 => Original::Protocol(second),
            _ => return None,
        };
        let domain = u16::from_be_bytes([bytes[10], bytes[11]]);
        let is_one = flags & 0xF1 == VERSION
            && middle == 0
            && hop_words & 0b1110_0000 == 0
            && bytes[12..] == [0; 4]
            && domains.has(domain)
            && (kind == BY_DSCP || domains.mark_by_port(domain));
        let instructions = Instructions::from_header(u16::from_be_bytes([bytes[8], bytes[9]]));
        is_one.then_some(Self { original, words, flags, remaining, instructions, domain })
    }

    /// Whether the packet may say what the shim says of it: one that a port marks is of UDP, and
    /// goes to that port of its network's. `to` is where a packet of UDP goes.
    #[inline]
    fn agrees(&self, to: Option<u16>, domains: Domains) -> bool {
        let is_port = |to| domains.has_port(self.domain, to);
        matches!(self.original, Original::Dscp(_)) || to.is_some_and(is_port)
    }

    /// Whether its lengths agree, and end within `room` bytes.
    #[inline]
    fn fits(&self, hop_words: u8, room: usize) -> bool {
        let per_hop = self.instructions.words();
        let stack = usize::from(self.words).checked_sub(HEADER_WORDS);
        per_hop > 0
            && usize::from(hop_words) == per_hop
            && stack.is_some_and(|stack| stack.is_multiple_of(per_hop))
            && self.size() <= room
    }
}

/// A stack in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What its header says.
    pub header: Header,
    /// Where it is.
    pub(super) place: L4Place,
}

impl Found {
    /// Bytes by which the packet is longer for it: its own, and those of a UDP header that is not
    /// the host's.
    pub fn added(&self) -> usize {
        let is_wrapped = matches!(self.header.original, Original::Protocol(_));
        self.header.size() + if is_wrapped { UDP_HEADER } else { 0 }
    }

    /// Ports and protocol by which the packet is measured in which the stack was found: those that
    /// its host has sent it with. `None` where these are what its headers say.
    #[inline]
    pub fn original_flow<P: Packet>(&self, packet: &P) -> Option<(u32, u8)> {
        let word = |at: usize| {
            let word = packet.bytes().get(at..)?.first_chunk();
            word.copied().map(u32::from_be_bytes)
        };
        match self.header.original {
            Original::Dscp(_) => None,
            Original::Port(port) => {
                let ports = word(self.place.transport())?;
                Some((ports & 0xFFFF_0000 | u32::from(port), UDP))
            }
            Original::Protocol(protocol) if has_ports(protocol) => {
                Some((word(self.place.offset() + self.header.size())?, protocol))
            }
            Original::Protocol(protocol) => Some((0, protocol)),
        }
    }
}

/// What a packet with the [`MARKER`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It has a stack.
    Stack(Found),
    /// It has none that is this network's: not to be changed.
    Foreign,
    /// What stands there is this network's, and can't be taken out: its lengths disagree, or the
    /// headers before it are damaged. Not to be changed, and not for a host.
    Malformed,
    /// The first fragment of a packet that had one. Its stack can't be taken out, and what its
    /// fragments are put together to is not what was sent.
    Fragment,
}

/// Where the IP header of a packet begins, which may be behind a mark's shim.
#[inline]
pub fn ip_offset(bytes: &[u8], carrier: Carrier) -> Option<usize> {
    let (found, end) = ether_type(bytes).ok()?;
    match (found, carrier) {
        (TYPE_IPV4 | TYPE_IPV6, _) => Some(end),
        (_, Carrier::Shim(shim)) if found == shim.ether_type => {
            let (behind, end) = carrier::Shim::ether_type_behind(bytes, end)?;
            matches!(behind, TYPE_IPV4 | TYPE_IPV6).then_some(end)
        }
        _ => None,
    }
}

/// The ToS byte or traffic class of the IP header that begins at `ip_offset`; 0 where there is
/// none.
#[inline(always)]
pub fn tos<P: Packet>(packet: &P, ip_offset: usize) -> u8 {
    carrier::tos_byte(packet.bytes(), ip_offset)
}

/// Looks for a stack of these domains in a packet that has the [`MARKER`] and whose IP header
/// begins at `ip_offset`.
pub fn look<P: Packet>(packet: &P, ip_offset: usize, domains: Domains) -> Seen {
    let bytes = packet.bytes();
    let Some(detail) = detail(bytes, ip_offset, packet.wire_len()) else {
        return elsewhere(bytes, ip_offset, domains);
    };
    let is_ipv6 = bytes.get(ip_offset).is_some_and(|first| first >> 4 == 6);
    let l4 = usize::from(detail.l4_offset);
    let (fixed, end, to) = match detail.protocol {
        6 => (20, ip_offset + usize::from(detail.total_len), None),
        17 => {
            let word = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
            (8, l4 + usize::from(word(l4 + 4).unwrap_or(0)), word(l4 + 2))
        }
        _ => return elsewhere(bytes, ip_offset, domains),
    };
    let standing = bytes.get(l4 + fixed..).unwrap_or_default();
    let Some(header) = Header::read(standing, domains) else { return Seen::Foreign };
    if detail.is_fragment {
        let is_first = !is_ipv6 && bytes[ip_offset + 6] & 0x1F == 0 && bytes[ip_offset + 7] == 0;
        return if is_first { Seen::Fragment } else { Seen::Foreign };
    }
    let room = end.min(bytes.len()).saturating_sub(l4 + fixed);
    if !header.fits(standing[6], room) || !header.agrees(to, domains) {
        return Seen::Malformed;
    }
    match L4Place::behind_fixed_header(ip_offset, is_ipv6, &detail) {
        Ok(place) => Seen::Stack(Found { header, place }),
        Err(_) => Seen::Malformed,
    }
}

/// Looks for shim and header of these domains in a packet that has none where its headers say, or
/// whose headers can't be read: all of them are of whole words. It has been damaged on its way, as
/// no source puts a stack there.
#[cold]
fn elsewhere(bytes: &[u8], ip_offset: usize, domains: Domains) -> Seen {
    let end = bytes.len().min(ETHERNET + MOST_BEFORE + HEADERS);
    let headers = bytes.get(ip_offset..end).unwrap_or_default();
    let mut places = (IPV4..headers.len()).step_by(4);
    let is_there = places.any(|at| Header::read(&headers[at..], domains).is_some());
    if is_there { Seen::Malformed } else { Seen::Foreign }
}

/// Bytes of an IPv4 header without options.
const IPV4: usize = 20;

/// Most bytes before a stack where one is put in. Headers that are put in before it on its way
/// leave it where it can be taken out.
pub(super) const MOST_BEFORE: usize = 240;

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = 14;

/// Whether a packet that came from a host would be taken for one with a stack at some sink.
#[cold]
pub fn could_be_taken<P: Packet>(packet: &P, ip_offset: usize) -> bool {
    !matches!(look(packet, ip_offset, Domains::ANY), Seen::Foreign)
}

/// Sets the [`MARKER`] of the packet whose IP header begins at `ip_offset`, or clears it.
#[inline]
pub fn set_marker<P: Packet>(packet: &mut P, ip_offset: usize, set: bool) {
    carrier::set_tos_bits(packet.bytes_mut(), ip_offset, MARKER, if set { MARKER } else { 0 });
}

/// Writes what a hop says of itself to the front of `words`.
#[inline]
pub(super) fn write_hop(hop: &Hop, of: Instructions, words: &mut [[u8; 4]; MOST_HOP_WORDS]) {
    let mut at = 0;
    let mut put = |word: u32| {
        if let Some(place) = words.get_mut(at) {
            *place = word.to_be_bytes();
        }
        at += 1;
    };
    let mut bits = of.bits();
    while bits != 0 {
        let bit = 0x8000 >> bits.leading_zeros();
        bits &= !bit;
        match bit {
            Instructions::NODE => put(hop.node),
            Instructions::LATENCY => put(hop.latency_ns),
            // Of 24 bits, in queue 0.
            Instructions::QUEUE if hop.queued == UNKNOWN => put(UNKNOWN),
            Instructions::QUEUE => put(hop.queued.min(0xFF_FFFF)),
            Instructions::INGRESS | Instructions::EGRESS => {
                let ns = if bit == Instructions::INGRESS { hop.ingress_ns } else { hop.egress_ns };
                put((ns >> 32) as u32);
                put(ns as u32);
            }
            Instructions::PORTS => put(hop.ports),
            Instructions::INTERFACES => {
                put(hop.interfaces[0]);
                put(hop.interfaces[1]);
            }
            Instructions::UTILISATION => put(hop.utilisation),
            _ => put(UNKNOWN),
        }
    }
}

/// What a hop of these bytes says of itself.
#[inline]
fn read_hop(words: &[[u8; 4]], of: Instructions) -> Hop {
    let mut hop = Hop::UNKNOWN;
    let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
    let mut next = || words.next().unwrap_or(UNKNOWN);
    let mut bits = of.bits();
    while bits != 0 {
        let bit = 0x8000 >> bits.leading_zeros();
        bits &= !bit;
        match bit {
            Instructions::NODE => hop.node = next(),
            Instructions::LATENCY => hop.latency_ns = next(),
            Instructions::QUEUE => {
                let word = next();
                hop.queued = if word == UNKNOWN { UNKNOWN } else { word & 0xFF_FFFF };
            }
            Instructions::INGRESS => hop.ingress_ns = u64::from(next()) << 32 | u64::from(next()),
            Instructions::EGRESS => hop.egress_ns = u64::from(next()) << 32 | u64::from(next()),
            Instructions::PORTS => hop.ports = next(),
            Instructions::INTERFACES => hop.interfaces = [next(), next()],
            Instructions::UTILISATION => hop.utilisation = next(),
            _ => {
                next();
            }
        }
    }
    hop
}

/// Reads the hops of a stack, from the source on.
#[inline]
pub(super) fn read_stack(bytes: &[u8], header: &Header, stack: &mut Stack) {
    stack.clear();
    stack.is_partial = header.is_partial();
    let words = bytes.get(HEADERS..header.size()).unwrap_or_default().as_chunks::<4>().0;
    let per_hop = header.instructions.words().max(1);
    for words in words.rchunks_exact(per_hop) {
        stack.push(read_hop(words, header.instructions));
    }
}
