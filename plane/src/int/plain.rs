//! Stacks in the packets that nearly all are: Ethernet without VLAN tags, IPv4 without options, TCP
//! or UDP, of one piece, whose DSCP alone marks them; where each hop is two words, node id and
//! latency. Whatever is to be looked at stands at a known place, and a stack is put in, extended
//! and taken out by a few loads and stores.
//!
//! Everything here leaves a packet that is any other as it was, and says so: [`push`],
//! [`strip`] and [`look`] see to it header by header, and say why something can't be done. On plain
//! packets both do the same to the byte.
//!
//! [`push`]: super::push
//! [`strip`]: super::strip::strip
//! [`look`]: super::header::look

#[cfg(test)]
mod tests;

use super::header::{
    ETHERNET, HEADER_WORDS, HEADERS, Header, MOST_LEN, MOST_WORDS, Original, SHIM,
};
use super::{Domains, Hop, Insertion, Instructions, MARKER, Stack};
use crate::checksum::folded;
use crate::packet::Packet;

/// Bytes before the stack: those of Ethernet, IPv4 and UDP, or of TCP without options.
const BEHIND_UDP: usize = ETHERNET + 20 + 8;
const BEHIND_TCP: usize = ETHERNET + 20 + 20;

/// Where fields are.
const TOS: usize = ETHERNET + 1;
const TOTAL_LEN: usize = ETHERNET + 2;
const FRAGMENT: usize = ETHERNET + 6;
const PROTOCOL: usize = ETHERNET + 9;
const IP_CHECKSUM: usize = ETHERNET + 10;
const L4: usize = ETHERNET + 20;
const UDP_LEN: usize = L4 + 4;
const DATA_OFFSET: usize = L4 + 12;

/// Bytes and words of a hop.
const HOP: usize = 8;
const HOP_WORDS: usize = HOP / 4;

/// Of the first eight bytes of shim and header: what is the same in all that are plain, and where
/// it stands. Left out are length, DSCP, the flags and the hops that remain.
const FIRST: u64 = 0x1000_0000_2000_0200;
const FIRST_MASK: u64 = 0xFF00_FF03_F1FF_FF00;

/// The flag of a packet that the sink is to drop, among the same bytes.
const DISCARD: u64 = 0x0000_0000_0800_0000;

/// Whether a packet got a stack with the source's own hop, which begins with the header of
/// `insertion`: see [`push::source`](super::push::source).
#[inline]
pub fn source<P: Packet>(
    packet: &mut P,
    (insertion, hop): (&Insertion, &Hop),
    dscp: u8,
    mtu: usize,
) -> bool {
    match protocol(packet) {
        // To a port of the network's.
        UDP if insertion.udp_port.is_some() => false,
        UDP => source_behind::<BEHIND_UDP, P>(packet, (insertion, hop), dscp, mtu),
        TCP => source_behind::<BEHIND_TCP, P>(packet, (insertion, hop), dscp, mtu),
        _ => false,
    }
}

/// Whether a packet had the [`MARKER`] and a stack of these domains, and got a switch's own hop
/// onto it: see [`push::transit`](super::push::transit).
#[inline]
pub fn transit<P: Packet>(packet: &mut P, domains: Domains, hop: &Hop, mtu: usize) -> bool {
    match protocol(packet) {
        UDP => transit_behind::<BEHIND_UDP, P>(packet, domains, hop, mtu),
        TCP => transit_behind::<BEHIND_TCP, P>(packet, domains, hop, mtu),
        _ => false,
    }
}

/// Whether a packet had a stack of these domains, for a host, and lost it: see
/// [`strip`](super::strip::strip). The stack is read to where `room` says, once its header is
/// known.
#[inline]
pub fn strip<'a, P: Packet>(
    packet: &mut P,
    domains: Domains,
    room: impl FnOnce(&Header) -> Option<&'a mut Stack>,
) -> bool {
    match protocol(packet) {
        UDP => strip_behind::<BEHIND_UDP, P>(packet, domains, room),
        TCP => strip_behind::<BEHIND_TCP, P>(packet, domains, room),
        _ => false,
    }
}

/// Whether a packet is plain and has a stack of these domains.
#[inline]
pub fn has_stack<P: Packet>(packet: &P, domains: Domains) -> bool {
    match protocol(packet) {
        UDP => Standing::<BEHIND_UDP>::of(packet, domains).is_some(),
        TCP => Standing::<BEHIND_TCP>::of(packet, domains).is_some(),
        _ => false,
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The protocol of a packet whose headers are plain as far as that.
#[inline(always)]
fn protocol<P: Packet>(packet: &P) -> u8 {
    let Some(headers) = packet.bytes().first_chunk::<BEHIND_UDP>() else { return 0 };
    let fragment = word(headers, FRAGMENT) & 0x3FFF;
    let is_plain = headers[12..15] == [8, 0, 0x45] && fragment == 0;
    if is_plain { headers[PROTOCOL] } else { 0 }
}

/// What the headers say of a plain packet that has `BEFORE` bytes of them before its stack.
#[derive(Clone, Copy)]
struct Plain<const BEFORE: usize> {
    tos: u8,
    total_len: u16,
    ip_checksum: u16,
    /// UDP's own length.
    udp_len: u16,
    l4_checksum: u16,
    /// Where the segment ends, in bytes from the packet's start.
    end: usize,
}

impl<const BEFORE: usize> Plain<BEFORE> {
    const IS_UDP: bool = BEFORE == BEHIND_UDP;

    const CHECKSUM: usize = if Self::IS_UDP { L4 + 6 } else { L4 + 16 };

    /// Of a packet whose headers are plain as far as [`protocol`] looks.
    #[inline(always)]
    fn of<P: Packet>(packet: &P) -> Option<Self> {
        let headers = packet.bytes().first_chunk::<BEFORE>()?;
        let total_len = word(headers, TOTAL_LEN);
        let behind_ip = usize::from(total_len).checked_sub(20)?;
        let (udp_len, segment, header_len) = if Self::IS_UDP {
            let len = word(headers, UDP_LEN);
            (len, usize::from(len), 8..=behind_ip)
        } else {
            (0, behind_ip, 20..=behind_ip)
        };
        let len = if Self::IS_UDP { segment } else { usize::from(headers[DATA_OFFSET] >> 4) * 4 };
        let fits =
            header_len.contains(&len) && ETHERNET + usize::from(total_len) <= packet.wire_len();
        fits.then_some(Self {
            tos: headers[TOS],
            total_len,
            ip_checksum: word(headers, IP_CHECKSUM),
            udp_len,
            l4_checksum: word(headers, Self::CHECKSUM),
            end: L4 + segment,
        })
    }

    /// Whether a checksum is all ones, by which what comes out could differ from what went in: see
    /// [`tag::push`](crate::tag::push).
    #[inline(always)]
    fn has_odd_checksum(&self) -> bool {
        self.ip_checksum == u16::MAX || (!Self::IS_UDP && self.l4_checksum == u16::MAX)
    }

    /// Writes the fields that follow a change of the lengths, and the ToS byte. `stack` is by how
    /// much the ones' complement sum over the stack grows.
    #[inline(always)]
    fn write(&self, packet: &mut [u8], tos: u8, changed: impl Fn(u16) -> u16, stack: u64) {
        let Some(headers) = packet.first_chunk_mut::<BEFORE>() else { return };
        let total_len = changed(self.total_len);
        let grown = u64::from(total_len) + u64::from(!self.total_len);
        let of_tos = u64::from(tos) + u64::from(!u16::from(self.tos));
        headers[TOS] = tos;
        put(headers, TOTAL_LEN, total_len);
        put(headers, IP_CHECKSUM, !folded(u64::from(!self.ip_checksum) + grown + of_tos));
        // The pseudo-header has the segment's length, and UDP's header once more.
        let mut covered = grown + stack;
        if Self::IS_UDP {
            put(headers, UDP_LEN, changed(self.udp_len));
            covered += grown;
            if self.l4_checksum == 0 {
                return put(headers, Self::CHECKSUM, 0);
            }
        }
        let sum = !folded(u64::from(!self.l4_checksum) + covered);
        put(headers, Self::CHECKSUM, if Self::IS_UDP && sum == 0 { u16::MAX } else { sum });
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// The halves of eight bytes, added.
#[inline(always)]
fn halves(eight: u64) -> u64 {
    (eight >> 32) + (eight & 0xFFFF_FFFF)
}

/// A hop as it stands in a stack.
#[inline(always)]
fn words_of(hop: &Hop) -> u64 {
    u64::from(hop.node) << 32 | u64::from(hop.latency_ns)
}

#[inline(always)]
fn source_behind<const BEFORE: usize, P: Packet>(
    packet: &mut P,
    (insertion, hop): (&Insertion, &Hop),
    dscp: u8,
    mtu: usize,
) -> bool {
    const ADDED: usize = HEADERS + HOP;
    const WORDS: u64 = (HEADER_WORDS + HOP_WORDS) as u64;
    let Some(plain) = Plain::<BEFORE>::of(packet) else { return false };
    let wire_len = packet.wire_len();
    let is_whole = packet.bytes().len() >= wire_len;
    let fits = wire_len - ETHERNET + ADDED <= mtu.min(MOST_LEN) && insertion.hops > 0;
    let is_asked = insertion.instructions == Instructions::DEFAULT;
    let can = is_whole && fits && is_asked && !plain.has_odd_checksum();
    if !can || !packet.prepend(ADDED) {
        return false;
    }
    let dscp = u64::from(dscp << 2);
    let first = FIRST | WORDS << 48 | dscp << 32 | u64::from(insertion.hops - 1);
    let bits = u64::from(insertion.instructions.bits());
    let second = bits << 48 | u64::from(insertion.domain.get()) << 32;
    let stack = [first, second, words_of(hop)];
    let bytes = packet.bytes_mut();
    bytes.copy_within(ADDED..ADDED + BEFORE, 0);
    let standing = stack.map(u64::to_be_bytes);
    bytes[BEFORE..BEFORE + ADDED].copy_from_slice(standing.as_flattened());
    let sum = stack.iter().map(|&eight| halves(eight)).sum();
    plain.write(bytes, plain.tos | MARKER, |len| len + ADDED as u16, sum);
    true
}

/// A stack that is in a plain packet.
struct Standing<const BEFORE: usize> {
    plain: Plain<BEFORE>,
    /// Its first eight bytes, and the next.
    first: u64,
    second: u64,
}

impl<const BEFORE: usize> Standing<BEFORE> {
    #[inline(always)]
    fn of<P: Packet>(packet: &P, domains: Domains) -> Option<Self> {
        let plain = Plain::of(packet)?;
        let bytes = packet.bytes();
        let headers: &[u8; HEADERS] = bytes.get(BEFORE..)?.first_chunk()?;
        let (eights, _) = headers.as_chunks::<8>();
        let [first, second] = [0, 1].map(|at| u64::from_be_bytes(eights[at]));
        let found = Self { plain, first, second };
        let is_asked = second >> 48 == u64::from(Instructions::DEFAULT.bits());
        let is_one = first & FIRST_MASK == FIRST && is_asked && second as u32 == 0;
        let of_hops = found.words().checked_sub(HEADER_WORDS)?;
        let fits = of_hops.is_multiple_of(HOP_WORDS)
            && BEFORE + found.size() <= plain.end.min(bytes.len());
        (is_one && fits && domains.has(found.domain())).then_some(found)
    }

    #[inline(always)]
    fn words(&self) -> usize {
        usize::from((self.first >> 48) as u8)
    }

    #[inline(always)]
    fn size(&self) -> usize {
        SHIM + self.words() * 4
    }

    #[inline(always)]
    fn remaining(&self) -> u8 {
        self.first as u8
    }

    #[inline(always)]
    fn domain(&self) -> u16 {
        (self.second >> 32) as u16
    }

    #[inline(always)]
    fn dscp(&self) -> u8 {
        (self.first >> 34) as u8 & 0x3F
    }

    #[inline(always)]
    fn header(&self) -> Header {
        Header {
            original: Original::Dscp(self.dscp()),
            words: self.words() as u8,
            flags: (self.first >> 24) as u8,
            remaining: self.remaining(),
            instructions: Instructions::DEFAULT,
            domain: self.domain(),
        }
    }
}

#[inline(always)]
fn transit_behind<const BEFORE: usize, P: Packet>(
    packet: &mut P,
    domains: Domains,
    hop: &Hop,
    mtu: usize,
) -> bool {
    if packet.bytes().get(TOS).is_none_or(|tos| tos & MARKER == 0) {
        return false;
    }
    let Some(found) = Standing::<BEFORE>::of(packet, domains) else { return false };
    let plain = found.plain;
    let fits = packet.wire_len() + HOP <= ETHERNET + mtu
        && usize::from(plain.total_len) + HOP <= MOST_LEN
        && found.words() + HOP_WORDS <= MOST_WORDS;
    if !fits || found.remaining() == 0 || !packet.prepend(HOP) {
        return false;
    }
    let before = BEFORE + HEADERS;
    let bytes = packet.bytes_mut();
    bytes.copy_within(HOP..HOP + before, 0);
    let pushed = words_of(hop);
    // Length grows by two, and the hops that remain are one less: in all, one more.
    let first = found.first + ((HOP_WORDS as u64) << 48) - 1;
    bytes[BEFORE..BEFORE + 8].copy_from_slice(&first.to_be_bytes());
    bytes[before..before + HOP].copy_from_slice(&pushed.to_be_bytes());
    plain.write(bytes, plain.tos, |len| len + HOP as u16, halves(pushed) + HOP_WORDS as u64 - 1);
    true
}

#[inline(always)]
fn strip_behind<'a, const BEFORE: usize, P: Packet>(
    packet: &mut P,
    domains: Domains,
    room: impl FnOnce(&Header) -> Option<&'a mut Stack>,
) -> bool {
    let Some(found) = Standing::<BEFORE>::of(packet, domains) else { return false };
    if found.first & DISCARD != 0 {
        return false;
    }
    let (plain, header, size, dscp) = (found.plain, found.header(), found.size(), found.dscp());
    let bytes = packet.bytes();
    let Some(headers) = bytes.first_chunk::<BEFORE>().copied() else { return false };
    let hops = bytes.get(BEFORE + HEADERS..BEFORE + size).unwrap_or_default().as_chunks().0;
    let of_hops = match room(&header) {
        Some(stack) => {
            let sum = stack.read_short(hops);
            stack.is_partial |= header.is_partial();
            sum
        }
        None => hops.iter().map(|hop| halves(u64::from_be_bytes(*hop))).sum(),
    };
    let sum = halves(found.first) + halves(found.second) + of_hops;
    if !packet.adj(size) {
        return false;
    }
    let bytes = packet.bytes_mut();
    let Some(before) = bytes.first_chunk_mut::<BEFORE>() else { return false };
    *before = headers;
    let tos = plain.tos & 0b11 | dscp << 2;
    plain.write(bytes, tos, |len| len - size as u16, u64::from(!folded(sum)));
    true
}
