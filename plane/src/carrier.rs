//! The mark: three bits that travel with a packet from its ingress to its egress edge.
//!
//! How they travel is the network's choice, the same at all its edges: in the ToS byte or traffic
//! class ([`Tos`]), in the IPv6 flow label ([`FlowLabel`]), or in a header of their own between
//! Ethernet and IP ([`Shim`]). `docs/contract.md` (Carrier) has the bits.
//!
//! A [`Carrier`] is looked at once a burst; what is done to a packet is compiled for each kind
//! through [`Carry`].

mod flow_label;
mod shim;
mod tos;

pub use self::flow_label::FlowLabel;
pub use self::shim::Shim;
pub use self::tos::{PlainTos, SignedTos, Tos};
use crate::mark::Hierarchy;
use crate::packet::Packet;

/// What a packet carries through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Timestamp bit of the epoch it entered in.
    pub bit: usize,
    /// Hierarchy that its ingress edge gave it.
    pub hierarchy: Hierarchy,
}

impl Mark {
    /// The three bits, the timestamp bit on top.
    #[inline]
    pub fn bits(self) -> u8 {
        (self.bit as u8 & 1) << 2 | self.hierarchy.bits()
    }

    /// The mark from its three bits; further bits are ignored.
    #[inline]
    pub fn from_bits(bits: u8) -> Self {
        Self { bit: usize::from(bits >> 2 & 1), hierarchy: Hierarchy::from_bits(bits) }
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
    FlowLabel(FlowLabel),
    /// In a header between Ethernet and IP.
    Shim(Shim),
}

impl Default for Carrier {
    fn default() -> Self {
        Self::Tos(PlainTos::default())
    }
}

/// What a kind of carrier does to packets.
pub trait Carry: Copy {
    /// Whether a packet whose IP header begins at `ip_offset` can be marked. One that can't is not
    /// measured.
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool;

    /// Marks a packet that [can carry](Self::can_carry) it.
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark);

    /// Reads the mark of a packet, and leaves it there.
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark>;

    /// Takes the mark out of a packet and gives it. A packet without a valid mark stays as it is.
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark>;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::packet::Frame;

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

    #[test]
    fn a_mark_is_its_three_bits() {
        for bits in 0..8 {
            assert_eq!(Mark::from_bits(bits).bits(), bits);
        }
        let mark = Mark { bit: 1, hierarchy: Hierarchy::SampledLl };
        assert_eq!(mark.bits(), 0b101);
    }
}
