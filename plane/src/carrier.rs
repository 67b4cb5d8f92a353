//! The mark: what travels with a packet from its ingress to its egress edge.
//!
//! How it travels is the network's choice, the same at all its edges: in the ToS byte or traffic
//! class ([`Tos`]), in the IPv6 flow label ([`FlowLabel`]), in the IPv4 identification ([`IpId`]),
//! or in a header of its own between Ethernet and IP ([`Shim`]). `docs/contract.md` (Carrier) has
//! the bits.
//!
//! A [`Carrier`] is looked at once a burst; what is done to a packet is compiled for each kind
//! through [`Carry`].

mod flow_label;
mod ip_id;
mod seen;
mod shim;
mod signature;
mod signed;
mod tos;

use calumma_epoch::timestamp_bit;

pub use self::flow_label::FlowLabel;
pub use self::ip_id::{IpId, Numbers};
pub use self::seen::Seen;
pub use self::shim::{Detached, Shim};
pub use self::signature::{SignatureTables, Signer};
pub(crate) use self::signature::{key_stream, product};
pub use self::tos::{PlainTos, SignedTos, Tos};
pub(crate) use self::tos::{StackedTos, set_bits as set_tos_bits, tos_byte};
use crate::mark::Hierarchy;
use crate::packet::Packet;
use crate::parse::Unmeasured;

/// What a packet carries through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Timestamp bit of the epoch it entered in.
    pub bit: usize,
    /// Hierarchy that its ingress edge gave it.
    pub hierarchy: Hierarchy,
    /// Further bits of that epoch's number, of a carrier that has room for them.
    pub epoch: EpochBits,
    /// How far the packet has come, of a carrier that says it.
    pub way: Option<Way>,
}

/// How far a packet has come, as its mark says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Way {
    /// The number of the hop that it comes to: how many switches before have raised it, at most
    /// [`MOST`](Self::MOST), which stands for more as well.
    pub hop: u8,
    /// The hops that it passes in all, as the switch says at which it entered; 0 where that does
    /// not know it.
    pub length: u8,
}

impl Way {
    /// The last hop that has a number of its own.
    pub const MOST: u8 = 16;

    /// This hop number behind one more switch.
    #[inline]
    #[must_use]
    pub fn raised(self) -> Self {
        Self { hop: (self.hop.saturating_add(1)).min(Self::MOST), ..self }
    }
}

impl Mark {
    /// A mark that says no more of the epoch than its timestamp bit.
    #[inline]
    pub fn plain(bit: usize, hierarchy: Hierarchy) -> Self {
        Self { bit, hierarchy, epoch: EpochBits::UNKNOWN, way: None }
    }

    /// The mark of packets that enter in an epoch.
    #[inline]
    pub fn of_epoch(epoch: u64, hierarchy: Hierarchy) -> Self {
        Self { bit: timestamp_bit(epoch), hierarchy, epoch: EpochBits::of(epoch), way: None }
    }

    /// The three bits of a mark that says no more, the timestamp bit on top.
    #[inline]
    pub fn bits(self) -> u8 {
        (self.bit as u8 & 1) << 2 | self.hierarchy.bits()
    }

    /// The mark from its three bits; further bits are ignored.
    #[inline]
    pub fn from_bits(bits: u8) -> Self {
        Self::plain(usize::from(bits >> 2 & 1), Hierarchy::from_bits(bits))
    }
}

/// The two bits of an epoch's number above the timestamp bit, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochBits(u8);

impl EpochBits {
    /// What a carrier says that has no room for them.
    pub const UNKNOWN: Self = Self(0b100);

    /// The bits of an epoch.
    #[inline]
    pub fn of(epoch: u64) -> Self {
        Self((epoch >> 1) as u8 & 0b11)
    }

    /// The two bits.
    #[inline]
    pub fn get(self) -> Option<u8> {
        (self != Self::UNKNOWN).then_some(self.0)
    }
}

/// How the packets of a network carry their marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// In the upper three bits of the ToS byte or traffic class.
    Tos(PlainTos),
    /// In all six bits of the DSCP, the lower three of which tell marked packets from others.
    SignedTos(SignedTos),
    /// In the flow label; IPv6 only.
    FlowLabel,
    /// In the identification of IPv4, and in the flow label of IPv6.
    IpId,
    /// In a header between Ethernet and IP.
    Shim(Shim),
    /// Not known yet, as the controller has still to choose: no packet is marked, and those that
    /// come with a mark keep it.
    Unchosen,
}

impl Carrier {
    /// Whether there is room for a claim: where a signature has all other bits of the DSCP, there
    /// is none.
    pub fn carries_claims(self) -> bool {
        !matches!(self, Self::SignedTos(_))
    }

    /// Whether marks say how far packets have come ([`Mark::way`]).
    pub fn carries_hops(self) -> bool {
        matches!(self, Self::Shim(shim) if shim.hops)
    }

    /// Whether packets can have the bit that says that they carry an INT stack
    /// ([`int::MARKER`](crate::int::MARKER)): where the identification carries marks, the whole ToS
    /// byte is the host's.
    pub fn carries_stacks(self) -> bool {
        self != Self::IpId
    }

    /// Whether marks are known in a session only: they are signed by the deployment's secret, or
    /// the session says where they are.
    #[inline]
    pub fn needs_session(self) -> bool {
        matches!(self, Self::FlowLabel | Self::IpId | Self::Unchosen)
    }
}

impl Default for Carrier {
    fn default() -> Self {
        Self::Tos(PlainTos::default())
    }
}

/// Writes two bytes into an IPv4 header, at an even place, and keeps its checksum as right as it
/// was (RFC 1624).
#[inline(always)]
fn update_checksum(header: &mut [u8; 20], at: usize, bytes: [u8; 2]) {
    // The sum is the same in any byte order (RFC 1071), so the machine's own will do.
    let word = |header: &[u8; 20], at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let before = word(header, at);
    header[at..at + 2].copy_from_slice(&bytes);
    let after = u16::from_ne_bytes(bytes);
    let sum = u32::from(!word(header, 10)) + u32::from(!before) + u32::from(after);
    // Both halves added, and in the upper one what they carry.
    let sum = sum.wrapping_add(sum.rotate_right(16)) >> 16;
    header[10..12].copy_from_slice(&(!(sum as u16)).to_ne_bytes());
}

/// What a kind of carrier does to packets.
pub trait Carry: Copy {
    /// Whether a packet whose IP header begins at `ip_offset` can be marked. One that can't is not
    /// measured.
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool;

    /// A bit for each of the packets at these places of a burst, positions and where their IP
    /// headers begin, that [can](Self::can_carry) be marked.
    #[inline]
    fn can_carry_all<P: Packet>(self, packets: &[P], places: &[(u16, u16)]) -> u32 {
        let mut without = 0;
        for (number, &(at, ip_offset)) in places.iter().enumerate() {
            // Nearly all can.
            if !self.can_carry(&packets[usize::from(at)], usize::from(ip_offset)) {
                without |= 1 << number;
            }
        }
        !without
    }

    /// As what a packet counts that can't be marked.
    fn why_not<P: Packet>(self, _packet: &P, _ip_offset: usize) -> Unmeasured {
        Unmeasured::NoCarrier
    }

    /// Whether a packet from the network without a valid mark may have entered with one. One that
    /// may not is not measured.
    fn may_have_carried<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        self.can_carry(packet, ip_offset)
    }

    /// Marks a packet that [can carry](Self::can_carry) it.
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark);

    /// Reads the mark of a packet, and leaves it there.
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark>;

    /// Takes the mark out of a packet and gives it. A packet without a valid mark stays as it is.
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark>;

    /// Marks the packets at these places of a burst, positions and where their IP headers begin,
    /// which can be marked: each with `stamp` and its own hierarchy.
    #[inline]
    fn write_all<P: Packet>(
        self,
        packets: &mut [P],
        places: &[(u16, u16)],
        stamp: Mark,
        hierarchies: &[Hierarchy],
    ) {
        for (&(at, ip_offset), &hierarchy) in places.iter().zip(hierarchies) {
            let mark = Mark { hierarchy, ..stamp };
            self.write(&mut packets[usize::from(at)], usize::from(ip_offset), mark);
        }
    }

    /// Reads the mark of each of them, or what it says without one that is
    /// [valid](Self::unproven).
    #[inline]
    fn read_all<P: Packet>(self, packets: &[P], places: &[(u16, u16)]) -> Seen {
        let mut seen = Seen::default();
        for (number, &(at, ip_offset)) in places.iter().enumerate() {
            let (packet, ip_offset) = (&packets[usize::from(at)], usize::from(ip_offset));
            let mark = self.read(packet, ip_offset);
            seen.note(number, mark, self.unproven_without(mark, packet, ip_offset));
        }
        seen
    }

    /// The same, and [takes](Self::take) them out.
    #[inline]
    fn take_all<P: Packet>(self, packets: &mut [P], places: &[(u16, u16)]) -> Seen {
        let mut seen = Seen::default();
        for (number, &(at, ip_offset)) in places.iter().enumerate() {
            let (packet, ip_offset) = (&mut packets[usize::from(at)], usize::from(ip_offset));
            let mark = self.take(packet, ip_offset);
            seen.note(number, mark, self.unproven_without(mark, packet, ip_offset));
        }
        seen
    }

    /// What a packet says that has no valid mark.
    #[inline(always)]
    fn unproven_without<P: Packet>(
        self,
        mark: Option<Mark>,
        packet: &P,
        ip_offset: usize,
    ) -> Option<Mark> {
        if mark.is_some() { None } else { self.unproven(packet, ip_offset) }
    }

    /// What a packet without a valid mark says of the one that it may have entered with: of a
    /// signed mark, whose fields stay as they are where the signature does not fit any more. No
    /// other carrier has any.
    fn unproven<P: Packet>(self, _packet: &P, _ip_offset: usize) -> Option<Mark> {
        None
    }

    /// Whether a marked packet has the bit set that carries a claim, where packets have claims.
    fn claim<P: Packet>(self, packet: &P, ip_offset: usize) -> bool;

    /// Sets that bit of a marked packet, or clears it.
    fn set_claim<P: Packet>(self, packet: &mut P, ip_offset: usize, claimed: bool);
}

/// What is done to packets while the carrier is [not known](Carrier::Unchosen): nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmarked;

impl Carry for Unmarked {
    fn can_carry<P: Packet>(self, _packet: &P, _ip_offset: usize) -> bool {
        true
    }

    fn write<P: Packet>(self, _packet: &mut P, _ip_offset: usize, _mark: Mark) {}

    fn read<P: Packet>(self, _packet: &P, _ip_offset: usize) -> Option<Mark> {
        None
    }

    fn take<P: Packet>(self, _packet: &mut P, _ip_offset: usize) -> Option<Mark> {
        None
    }

    fn claim<P: Packet>(self, _packet: &P, _ip_offset: usize) -> bool {
        false
    }

    fn set_claim<P: Packet>(self, _packet: &mut P, _ip_offset: usize, _claimed: bool) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::packet::Frame;
    use calumma_wire::Secret;

    /// Marks a frame, hands the marked bytes to `look`, and takes the mark out again.
    pub(crate) fn through<C: Carry>(
        carrier: C,
        frame: &mut Frame,
        ip_offset: usize,
        mark: Mark,
        look: impl FnOnce(&[u8]),
    ) -> Option<Mark> {
        assert!(carrier.can_carry(frame, ip_offset));
        carrier.write(frame, ip_offset, mark);
        look(frame.bytes());
        let read = carrier.read(frame, ip_offset);
        let taken = carrier.take(frame, ip_offset);
        assert_eq!(read, taken);
        taken
    }

    pub(crate) fn marks() -> impl Iterator<Item = Mark> {
        (0..8).map(Mark::from_bits)
    }

    /// Those that have all bits of the epoch.
    pub(crate) fn dated_marks() -> impl Iterator<Item = Mark> {
        let of_epoch = |epoch| (0..4).map(move |bits| (epoch, Hierarchy::from_bits(bits)));
        (96..104).flat_map(of_epoch).map(|(epoch, hierarchy)| Mark::of_epoch(epoch, hierarchy))
    }

    pub(crate) fn signer() -> Signer {
        Signer::new(Secret::new([9; 32]), 103)
    }

    #[test]
    fn a_mark_is_its_three_bits() {
        for bits in 0..8 {
            assert_eq!(Mark::from_bits(bits).bits(), bits);
        }
        let mark = Mark::of_epoch(7, Hierarchy::SampledLl);
        assert_eq!((mark.bits(), mark.epoch.get()), (0b101, Some(3)));
        assert_eq!(Mark::from_bits(0b101).epoch.get(), None);
    }
}
