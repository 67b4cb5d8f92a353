//! Putting stacks and hops into packets.

use std::num::NonZeroU16;

use super::header::{
    ETHERNET, Found, HEADERS, HOPS_EXCEEDED, Header, MOST_BEFORE, MOST_HOP_WORDS, MOST_LEN,
    MOST_WORDS, MTU_EXCEEDED, Original, SHIM, set_marker, write_hop,
};
use super::port::{self, UDP_HEADER};
use super::{Hop, Insertion};
use crate::packet::Packet;
use crate::parse::detail::{Detail, detail};
use crate::tag::{self, L4Place, TagError, before};

/// Why a packet that a source would have put a stack into goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NotCarried {
    /// A fragment.
    Fragment,
    /// Of a protocol that has no place for a stack, or headers that can't be read.
    Protocol,
    /// A tunnel's, where packets are measured by what is inside: the stack would hide that.
    Tunnel,
    /// No room before it in memory.
    Headroom,
    /// In several pieces in memory.
    Segments,
    /// A checksum field that no sender writes, so that the packet could leave with another.
    Checksum,
    /// Longer than the port takes.
    Mtu,
    /// Waited in the slow path, so that nobody knows for how long it was in the switch.
    SlowPath,
    /// Not among the share of packets that carries stacks.
    Share,
    /// Not on the watch list.
    Watch,
}

impl NotCarried {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Fragment,
        Self::Protocol,
        Self::Tunnel,
        Self::Headroom,
        Self::Segments,
        Self::Checksum,
        Self::Mtu,
        Self::SlowPath,
        Self::Share,
        Self::Watch,
    ];

    /// The reason's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fragment => "fragment",
            Self::Protocol => "protocol",
            Self::Tunnel => "tunnel",
            Self::Headroom => "headroom",
            Self::Segments => "segments",
            Self::Checksum => "checksum",
            Self::Mtu => "mtu",
            Self::SlowPath => "slow_path",
            Self::Share => "share",
            Self::Watch => "watch",
        }
    }
}

impl From<TagError> for NotCarried {
    fn from(why: TagError) -> Self {
        match why {
            TagError::Fragment => Self::Fragment,
            TagError::Protocol | TagError::OddLength | TagError::Short => Self::Protocol,
            TagError::TooLong => Self::Mtu,
            TagError::Headroom => Self::Headroom,
            TagError::Checksum => Self::Checksum,
        }
    }
}

/// What became of a switch's own hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the stack.
    Hop,
    /// There was no room for it: the M bit is set.
    NoRoom,
    /// No hops remained: the E bit is set.
    NoHops,
    /// Nothing could be changed in the packet, not even that could be said.
    Nothing,
}

/// Where a stack is to stand in a packet, and what its shim is to say.
#[derive(Debug)]
pub(crate) struct Standing {
    of: Detail,
    original: Original,
    place: L4Place,
}

impl Standing {
    /// In a packet whose IP header begins at `ip_offset`, and which is or was so long on the wire.
    ///
    /// # Errors
    /// Why there is no place for one.
    #[inline]
    pub(crate) fn of(
        bytes: &[u8],
        (ip_offset, wire_len): (usize, usize),
        udp_port: Option<NonZeroU16>,
        dscp: u8,
    ) -> Result<Self, NotCarried> {
        let of = detail(bytes, ip_offset, wire_len).ok_or(NotCarried::Protocol)?;
        let ipv6 = bytes.get(ip_offset).is_some_and(|first| first >> 4 == 6);
        let original = port::original(bytes, (ip_offset, &of), udp_port, dscp);
        let place = match original {
            Original::Protocol(_) => L4Place::behind_own_header(ip_offset, ipv6, &of)?,
            Original::Dscp(_) | Original::Port(_) => {
                L4Place::behind_fixed_header(ip_offset, ipv6, &of)?
            }
        };
        if place.offset() > MOST_BEFORE {
            return Err(NotCarried::Protocol);
        }
        Ok(Self { of, original, place })
    }

    /// Whether it is to stand behind a UDP header that is put in with it.
    #[inline]
    pub(crate) fn has_own_header(&self) -> bool {
        matches!(self.original, Original::Protocol(_))
    }
}

/// Puts a stack with the source's own hop into a packet whose IP header begins at `ip_offset`, and
/// sets its marker. `dscp` is what the host has sent it with; `mtu` bytes may follow the Ethernet
/// header afterwards.
///
/// Where there is room for the header and not for the hop, the stack has none, and the M bit says
/// so.
///
/// # Errors
/// Why the packet can have none; it stays as it was.
#[inline]
pub fn source<P: Packet>(
    packet: &mut P,
    ip_offset: usize,
    (insertion, hop): (&Insertion, &Hop),
    dscp: u8,
    mtu: usize,
) -> Result<Pushed, NotCarried> {
    let (bytes, wire_len) = (packet.bytes(), packet.wire_len());
    if bytes.len() < wire_len {
        return Err(NotCarried::Segments);
    }
    let standing = Standing::of(bytes, (ip_offset, wire_len), insertion.udp_port, dscp)?;
    let Standing { of, original, place } = standing;
    let is_wrapped = standing.has_own_header();
    // What a frame has behind its packet stays, and takes room as well.
    let len = wire_len - ETHERNET + if is_wrapped { UDP_HEADER } else { 0 };
    let Insertion { instructions, hops, udp_port, .. } = *insertion;
    let hop_words = instructions.words();
    let mut tag = [0; HEADERS + 4 * MOST_HOP_WORDS];
    let mut header = Header::new(original, insertion);
    let whole = HEADERS + 4 * hop_words;
    let (tag_len, pushed) = if hops > 0 && len + whole <= mtu.min(MOST_LEN) {
        header.words += hop_words as u8;
        header.remaining -= 1;
        let mut words = [[0; 4]; MOST_HOP_WORDS];
        write_hop(hop, instructions, &mut words);
        tag[HEADERS..].copy_from_slice(words.as_flattened());
        (whole, Pushed::Hop)
    } else if len + HEADERS <= mtu.min(MOST_LEN) {
        header.flags |= MTU_EXCEEDED;
        (HEADERS, Pushed::NoRoom)
    } else {
        return Err(NotCarried::Mtu);
    };
    tag[..HEADERS].copy_from_slice(&header.write());
    let to = udp_port.map_or(0, NonZeroU16::get);
    if is_wrapped {
        let from = port::source_port(packet.bytes(), ip_offset, &of);
        before::wrap(packet, &place, ([from, to], &tag[..tag_len]), MOST_LEN)?;
    } else {
        tag::push(packet, &place, &tag[..tag_len], MOST_LEN)?;
        if let Original::Port(_) = original {
            before::redirect(packet, &place, to)?;
        }
    }
    set_marker(packet, ip_offset, true);
    Ok(pushed)
}

/// Puts a switch's own hop onto the stack that was found in a packet; `mtu` bytes may follow the
/// Ethernet header afterwards.
#[inline]
pub fn transit<P: Packet>(packet: &mut P, found: &Found, hop: &Hop, mtu: usize) -> Pushed {
    let Found { header, place } = found;
    let hop_words = header.instructions.words();
    let words = usize::from(header.words) + hop_words;
    if header.remaining == 0 || words > MOST_WORDS {
        return flag(packet, found, HOPS_EXCEEDED, Pushed::NoHops);
    }
    let no_room = |packet: &mut P| flag(packet, found, MTU_EXCEEDED, Pushed::NoRoom);
    if packet.wire_len() + 4 * hop_words > ETHERNET + mtu {
        return no_room(packet);
    }
    let mut standing = [[0; 4]; MOST_HOP_WORDS];
    write_hop(hop, header.instructions, &mut standing);
    let standing = &standing.as_flattened()[..4 * hop_words];
    match tag::extend(packet, &place.further(HEADERS), standing, MOST_LEN) {
        Ok(()) => {
            // Lengths of the packet that the place was made of are not looked at here.
            let header = Header { words: words as u8, remaining: header.remaining - 1, ..*header };
            let bytes = header.write();
            let written = tag::rewrite(packet, place, 0, &bytes[..SHIM + 4]);
            if written.is_ok() { Pushed::Hop } else { Pushed::Nothing }
        }
        Err(_) => no_room(packet),
    }
}

#[cold]
fn flag<P: Packet>(packet: &mut P, found: &Found, bit: u8, pushed: Pushed) -> Pushed {
    let flags = [found.header.flags | bit, 0];
    let written = tag::rewrite(packet, &found.place, SHIM, &flags);
    if written.is_ok() { pushed } else { Pushed::Nothing }
}
