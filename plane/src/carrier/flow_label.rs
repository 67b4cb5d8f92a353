//! Marks in the IPv6 flow label, for networks that use the whole DSCP and carry IPv6.

use super::{Carry, Mark};
use crate::packet::Packet;

/// The whole label: bits 19-17 are the mark, bits 16-0 a fixed pattern that tells marked packets
/// from others; a label drawn at random looks marked once in 131,072 times.
///
/// Packets leave the network with the label 0, "not labelled" (RFC 6437). IPv4 has no label, and
/// is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowLabel;

const LABEL: u32 = 0xF_FFFF;
const MARK_SHIFT: u32 = 17;
const SIGNATURE_MASK: u32 = 0x1_FFFF;
const SIGNATURE: u32 = 0x1_CA1A;

impl FlowLabel {
    /// The packet's first IP header word if it is IPv6.
    #[inline]
    fn word(bytes: &[u8], ip_offset: usize) -> Option<u32> {
        let word = u32::from_be_bytes(*bytes.get(ip_offset..)?.first_chunk()?);
        (word >> 28 == 6).then_some(word)
    }

    #[inline]
    fn set(bytes: &mut [u8], ip_offset: usize, label: u32) {
        if let Some(word) = Self::word(bytes, ip_offset) {
            let word = word & !LABEL | label;
            bytes[ip_offset..ip_offset + 4].copy_from_slice(&word.to_be_bytes());
        }
    }
}

impl Carry for FlowLabel {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        Self::word(packet.bytes(), ip_offset).is_some()
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        let label = u32::from(mark.bits()) << MARK_SHIFT | SIGNATURE;
        Self::set(packet.bytes_mut(), ip_offset, label);
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        let word = Self::word(packet.bytes(), ip_offset)?;
        let marked = word & SIGNATURE_MASK == SIGNATURE;
        marked.then(|| Mark::from_bits((word >> MARK_SHIFT) as u8))
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        let mark = self.read(packet, ip_offset)?;
        Self::set(packet.bytes_mut(), ip_offset, 0);
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tests::{marks, through};
    use crate::packet::Frame;
    use crate::parse::ipv6::tests::packet;
    use crate::parse::tests::udp;

    #[test]
    fn a_mark_is_the_label_and_nothing_else_changes() {
        let mut before = packet(&[], 6, &[0; 20]);
        before[14..16].copy_from_slice(&[0x6B, 0x80]);
        for mark in marks() {
            let mut frame = Frame::new(before.to_vec());
            let seen = through(FlowLabel, &mut frame, 14, mark, |bytes| {
                assert_eq!(bytes[14..16], [0x6B, 0x80 | mark.bits() << 1 | 1]);
                assert_eq!(bytes[16..18], [0xCA, 0x1A]);
            });
            assert_eq!(seen, Some(mark));
            assert_eq!(frame.bytes(), before);
        }
    }

    #[test]
    fn another_label_is_no_mark_and_stays() {
        for label in [0, 0x12345, 0x1_CA1B, 0xF_FFFF_u32] {
            let mut bytes = packet(&[], 6, &[0; 20]);
            bytes[14..18].copy_from_slice(&(0x6000_0000 | label).to_be_bytes());
            let mut frame = Frame::new(bytes.to_vec());
            assert_eq!(FlowLabel.take(&mut frame, 14), None, "{label:x}");
            assert_eq!(frame.bytes(), bytes);
        }
    }

    #[test]
    fn ipv4_carries_nothing() {
        let mut frame = Frame::new(udp(0, 0).to_vec());
        assert!(!FlowLabel.can_carry(&frame, 14));
        FlowLabel.write(&mut frame, 14, Mark::from_bits(7));
        assert_eq!(frame.bytes(), udp(0, 0));
        assert_eq!(FlowLabel.take(&mut frame, 14), None);
    }
}
