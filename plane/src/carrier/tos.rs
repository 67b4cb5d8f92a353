//! Marks in the IPv4 ToS byte or the IPv6 traffic class.
//!
//! The ECN field is never touched, and the IPv4 header checksum follows incrementally (RFC 1624).

use super::{Carry, Mark, update_checksum};
use crate::int::header::{Seen, look};
use crate::int::{Domains, MARKER, plain};
use crate::packet::Packet;

/// Bits 7-5 are the mark: bit 7 the timestamp bit, bits 6-5 the hierarchy.
///
/// Three bits that a packet always has can't tell whether an edge wrote them, so every packet from
/// the network counts as marked. `SIGNED`, bits 4-2 are 011 in every marked packet: its DSCP is
/// then one of those for local use (xxxx11, RFC 2474 section 6), which no standard one is, and a
/// packet with another DSCP is not marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tos<const SIGNED: bool> {
    /// The DSCP (0 to 63) that packets are given back at egress: its upper three bits or,
    /// `SIGNED`, all of it.
    pub dscp: u8,
}

/// The carrier that all switches know.
pub type PlainTos = Tos<false>;

/// The carrier that tells marked packets from others.
pub type SignedTos = Tos<true>;

/// The same in a network that puts INT stacks into packets. A packet with one has bit 4 set as
/// well, and with all three bits set it is marked only if it has a stack of one of these domains:
/// an edge marked it before the source put that in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackedTos {
    pub(crate) tos: SignedTos,
    pub(crate) domains: Domains,
}

const MARK_SHIFT: u32 = 5;
const SIGNATURE_MASK: u8 = 0b0001_1100;
const SIGNATURE: u8 = 0b0000_1100;

/// That of a packet with an INT stack.
const STACKED: u8 = SIGNATURE | MARKER;

/// The bit of a claim, of a byte without a signature.
const CLAIM: u8 = 0b0000_1000;

impl<const SIGNED: bool> Tos<SIGNED> {
    /// The bits of the byte that are ours.
    const MASK: u8 = 0b1110_0000 | if SIGNED { SIGNATURE_MASK } else { 0 };

    /// Writes the mark into the packet whose IP header begins at `ip_offset`; without a whole
    /// header there, nothing happens.
    #[inline]
    pub fn write(self, bytes: &mut [u8], ip_offset: usize, mark: Mark) {
        let signature = if SIGNED { SIGNATURE } else { 0 };
        if let Some(header) = header(bytes, ip_offset) {
            Self::set(header, mark.bits() << MARK_SHIFT | signature);
        }
    }

    /// Reads the mark of the packet whose IP header begins at `ip_offset`.
    #[inline]
    pub fn read(self, bytes: &[u8], ip_offset: usize) -> Option<Mark> {
        Self::mark(u16::from_be_bytes(*bytes.get(ip_offset..)?.first_chunk()?))
    }

    /// Takes the mark out and gives it: its bits become the configured DSCP's. Without a valid mark
    /// nothing changes.
    #[inline]
    pub fn take(self, bytes: &mut [u8], ip_offset: usize) -> Option<Mark> {
        let header = header(bytes, ip_offset)?;
        let mark = Self::mark(u16::from_be_bytes([header[0], header[1]]))?;
        Self::set(header, self.dscp << 2 & Self::MASK);
        Some(mark)
    }

    /// Whether the configured DSCP has the bit of a claim set: what packets that had one are given
    /// back at egress.
    #[inline]
    pub fn gives_claim_bit(self) -> bool {
        self.dscp << 2 & CLAIM != 0
    }

    /// The mark in an IP header that begins with these 16 bits.
    #[inline]
    fn mark(word: u16) -> Option<Mark> {
        let tos = byte_of(word);
        let valid = !SIGNED || tos & SIGNATURE_MASK == SIGNATURE;
        valid.then(|| Mark::from_bits(tos >> MARK_SHIFT))
    }

    #[inline]
    fn set(header: &mut [u8; 20], bits: u8) {
        set_masked(header, Self::MASK, bits);
    }
}

/// Sets those of the byte's bits that are in `mask`.
#[inline]
fn set_masked(header: &mut [u8; 20], mask: u8, bits: u8) {
    let before = u16::from_be_bytes([header[0], header[1]]);
    if is_ipv6(before) {
        let after = before & !(u16::from(mask) << 4) | u16::from(bits) << 4;
        header[..2].copy_from_slice(&after.to_be_bytes());
        return;
    }
    let tos = header[1] & !mask | bits;
    if tos == header[1] {
        return;
    }
    update_checksum(header, 0, [header[0], tos]);
}

/// Sets those bits of the ToS byte or traffic class that are in `mask`, in the IP header that
/// begins at `ip_offset`; without one there, nothing happens.
#[inline]
pub(crate) fn set_bits(bytes: &mut [u8], ip_offset: usize, mask: u8, bits: u8) {
    if let Some(header) = header(bytes, ip_offset) {
        set_masked(header, mask, bits);
    }
}

/// The ToS byte or traffic class of the IP header that begins at `ip_offset`; 0 without one there.
#[inline(always)]
pub(crate) fn tos_byte(bytes: &[u8], ip_offset: usize) -> u8 {
    let word = bytes.get(ip_offset..).and_then(|header| header.first_chunk());
    word.map_or(0, |word| byte_of(u16::from_be_bytes(*word)))
}

/// The byte in an IP header that begins with these 16 bits.
#[inline]
fn byte_of(word: u16) -> u8 {
    if is_ipv6(word) { (word >> 4) as u8 } else { word as u8 }
}

/// What an IPv4 header is at least, and half of an IPv6 header.
#[inline]
fn header(bytes: &mut [u8], ip_offset: usize) -> Option<&mut [u8; 20]> {
    bytes.get_mut(ip_offset..)?.first_chunk_mut()
}

/// Whether an IP header that begins with these 16 bits is IPv6.
#[inline]
fn is_ipv6(word: u16) -> bool {
    word >> 12 == 6
}

impl<const SIGNED: bool> Carry for Tos<SIGNED> {
    #[inline]
    fn can_carry<P: Packet>(self, _packet: &P, _ip_offset: usize) -> bool {
        true
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        Tos::write(self, packet.bytes_mut(), ip_offset, mark);
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        Tos::read(self, packet.bytes(), ip_offset)
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        Tos::take(self, packet.bytes_mut(), ip_offset)
    }

    #[inline]
    fn claim<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        let header = packet.bytes().get(ip_offset..).and_then(|header| header.first_chunk());
        let byte = header.map_or(0, |word| byte_of(u16::from_be_bytes(*word)));
        !SIGNED && byte & CLAIM != 0
    }

    #[inline]
    fn set_claim<P: Packet>(self, packet: &mut P, ip_offset: usize, claimed: bool) {
        if let Some(header) = header(packet.bytes_mut(), ip_offset)
            && !SIGNED
        {
            set_masked(header, CLAIM, if claimed { CLAIM } else { 0 });
        }
    }
}

impl StackedTos {
    /// Whether a packet has a stack of the domains that are known, if any are. One whose stack is
    /// damaged or in fragments was marked too.
    #[inline(never)]
    fn has_stack<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        let Self { domains, .. } = self;
        domains != Domains::ANY
            && (plain::has_stack(packet, domains)
                || look(packet, ip_offset, domains) != Seen::Foreign)
    }
}

impl Carry for StackedTos {
    #[inline]
    fn can_carry<P: Packet>(self, _packet: &P, _ip_offset: usize) -> bool {
        true
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        Carry::write(self.tos, packet, ip_offset, mark);
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        let byte = tos_byte(packet.bytes(), ip_offset);
        let is_valid = match byte & SIGNATURE_MASK {
            SIGNATURE => true,
            STACKED => self.has_stack(packet, ip_offset),
            _ => false,
        };
        is_valid.then(|| Mark::from_bits(byte >> MARK_SHIFT))
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        let mark = Carry::read(self, packet, ip_offset)?;
        set_bits(packet.bytes_mut(), ip_offset, SignedTos::MASK, self.tos.dscp << 2);
        Some(mark)
    }

    fn claim<P: Packet>(self, _packet: &P, _ip_offset: usize) -> bool {
        false
    }

    fn set_claim<P: Packet>(self, _packet: &mut P, _ip_offset: usize, _claimed: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tests::{marks, through};
    use crate::mark::Hierarchy;
    use crate::packet::Frame;
    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::{checksum, udp};
    use proptest::prelude::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_the_checksum_stays_right() {
        for mark in marks() {
            let mut frame = Frame::new(udp(0, 0).to_vec());
            let seen = through(PlainTos::default(), &mut frame, 14, mark, |bytes| {
                assert_eq!(bytes[15], mark.bits() << 5 | 0x03, "the rest is untouched");
                assert_eq!(checksum(&bytes[14..34]), 0);
            });
            assert_eq!(seen, Some(mark));
            assert_eq!(frame, Frame::new(udp(0, 0).to_vec()));
        }
    }

    #[test]
    fn the_traffic_class_carries_it_in_ipv6() {
        let before = ipv6_packet(&[], 17, &[0; 8]);
        for mark in marks() {
            let mut frame = Frame::new(before.to_vec());
            let seen = through(SignedTos::default(), &mut frame, 14, mark, |bytes| {
                let traffic_class = bytes[14] << 4 | bytes[15] >> 4;
                assert_eq!(traffic_class, mark.bits() << 5 | 0b011 << 2);
                assert_eq!(bytes[14] >> 4, 6);
                assert_eq!(bytes[15] & 0xF, 0, "the flow label is untouched");
            });
            assert_eq!(seen, Some(mark));
            assert_eq!(frame.bytes(), before);
        }
    }

    #[test]
    fn egress_gives_the_configured_dscp_back() {
        let mark = Mark::from_bits(0b100 | Hierarchy::HhCandidate.bits());
        let mut plain = Frame::new(udp(0, 0).to_vec());
        through(PlainTos { dscp: 46 }, &mut plain, 14, mark, |_| ());
        assert_eq!(plain.bytes()[15], 0b1010_0000 | 0x03);
        assert_eq!(checksum(&plain.bytes()[14..34]), 0);
        let mut signed = Frame::new(udp(0, 0).to_vec());
        through(SignedTos { dscp: 46 }, &mut signed, 14, mark, |_| ());
        assert_eq!(signed.bytes()[15], 46 << 2 | 0x03);
        assert_eq!(checksum(&signed.bytes()[14..34]), 0);
    }

    #[test]
    fn packets_of_every_standard_dscp_are_seen_to_be_unmarked() {
        let class_selectors = (0..8).map(|class| class << 3);
        let assured = (1..5).flat_map(|class| (1..4).map(move |drop| class << 3 | drop << 1));
        for dscp in class_selectors.chain(assured).chain([46, 44, 1]) {
            let mut frame = Frame::new(udp(0, 0).to_vec());
            frame.bytes_mut()[15] = dscp << 2;
            let before = frame.clone();
            assert_eq!(Carry::take(SignedTos { dscp: 5 }, &mut frame, 14), None, "DSCP {dscp}");
            assert_eq!(frame, before);
        }
    }

    proptest! {
        #[test]
        fn marking_and_restoring_leaves_the_packet_as_it_came(
            tos in 0u8..32, header: [u8; 18], bits in 0u8..8,
        ) {
            let mut bytes = vec![0; 14];
            bytes.extend_from_slice(&[0x45, tos]);
            bytes.extend_from_slice(&header);
            bytes[24..26].fill(0);
            let right = checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&right.to_be_bytes());
            let before = Frame::new(bytes.to_vec());
            let mut frame = before.clone();
            through(PlainTos::default(), &mut frame, 14, Mark::from_bits(bits), |_| ());
            prop_assert_eq!(&frame, &before);
            through(SignedTos { dscp: tos >> 2 }, &mut frame, 14, Mark::from_bits(bits), |_| ());
            prop_assert_eq!(&frame, &before);
        }
    }
}
