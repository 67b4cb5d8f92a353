//! Marks in the IPv6 flow label, for networks that use the whole DSCP and carry IPv6.

use super::signature::Signer;
use super::{Carry, Mark, signed};
use crate::int::header::{Original, Seen, look, tos};
use crate::int::{Domains, MARKER};
use crate::packet::Packet;
use crate::parse::UDP;

/// The whole label: eight bits of fields (`signed`) on top of a signature of twelve, by which a
/// label drawn at random looks marked once in 32,768 times.
///
/// Packets leave the network with the label 0, "not labelled" (RFC 6437). IPv4 has no label, and
/// is not measured. Without a signer no mark is written or believed, and every packet leaves
/// without a label.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowLabel<'a> {
    /// That of the session.
    pub signer: Option<&'a Signer>,
    /// The timestamp bits of epochs in which packets have claims, bit 0 for 0 and bit 1 for 1.
    pub claims: u8,
    /// Whose INT stacks are this switch's.
    pub domains: Domains,
}

/// Where an IPv6 header says what comes next.
const NEXT_HEADER: usize = 6;

const LABEL: u32 = 0xF_FFFF;
const FIELDS_SHIFT: u32 = 12;
const SIGNATURE_MASK: u32 = 0xFFF;

impl FlowLabel<'_> {
    /// The packet's header if it is IPv6.
    #[inline]
    fn header(bytes: &[u8], ip_offset: usize) -> Option<&[u8; 40]> {
        let header = bytes.get(ip_offset..)?.first_chunk()?;
        (header[0] >> 4 == 6).then_some(header)
    }

    #[inline]
    fn set(bytes: &mut [u8], ip_offset: usize, label: u32) {
        if let Some(word) = bytes.get_mut(ip_offset..).and_then(<[u8]>::first_chunk_mut) {
            *word = (u32::from_be_bytes(*word) & !LABEL | label).to_be_bytes();
        }
    }
}

impl FlowLabel<'_> {
    /// The fields of the mark that a packet carries.
    #[inline]
    pub(super) fn read_fields<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<u8> {
        let header = Self::header(packet.bytes(), ip_offset)?;
        let word = u32::from_be_bytes(*header.first_chunk()?);
        let fields = (word >> FIELDS_SHIFT) as u8;
        let (signer, epoch) = (self.signer?, signed::epoch(fields));
        let changed;
        let signed = match self.protocol_behind(packet, ip_offset, header) {
            None => header,
            Some(protocol) => {
                let mut header = *header;
                header[NEXT_HEADER] = protocol;
                changed = header;
                &changed
            }
        };
        let fits = signer.fits_ipv6(epoch, signed, (word & SIGNATURE_MASK) as u16);
        (fits && signed::is_valid(fields, self.claims)).then_some(fields)
    }

    /// What the next header was as the packet was marked, where a UDP header has been put behind
    /// this one since for an INT stack. Behind extension headers, that changes none of what is
    /// signed.
    #[inline]
    fn protocol_behind<P: Packet>(
        self,
        packet: &P,
        ip_offset: usize,
        header: &[u8; 40],
    ) -> Option<u8> {
        let is_udp = header[NEXT_HEADER] == UDP;
        if !is_udp || !self.domains.have_ports() || tos(packet, ip_offset) & MARKER == 0 {
            return None;
        }
        let Seen::Stack(found) = look(packet, ip_offset, self.domains) else { return None };
        match found.header.original {
            Original::Protocol(protocol) => Some(protocol),
            Original::Dscp(_) | Original::Port(_) => None,
        }
    }

    /// The same, and takes the mark out.
    #[inline]
    pub(super) fn take_fields<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<u8> {
        let fields = self.read_fields(packet, ip_offset);
        if fields.is_some() || self.signer.is_none() && self.can_carry(packet, ip_offset) {
            Self::set(packet.bytes_mut(), ip_offset, 0);
        }
        fields
    }
}

impl Carry for FlowLabel<'_> {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        Self::header(packet.bytes(), ip_offset).is_some()
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        if let Some(signer) = self.signer
            && let Some(header) = Self::header(packet.bytes(), ip_offset)
        {
            let fields = signed::fields(mark);
            let signature = u32::from(signer.ipv6(signed::epoch(fields), header));
            Self::set(packet.bytes_mut(), ip_offset, u32::from(fields) << FIELDS_SHIFT | signature);
        }
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        self.read_fields(packet, ip_offset).map(signed::said)
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        self.take_fields(packet, ip_offset).map(signed::said)
    }

    #[inline]
    fn unproven<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        let header = Self::header(packet.bytes(), ip_offset)?;
        let word = u32::from_be_bytes(*header.first_chunk()?);
        self.signer.and_then(|_| signed::unproven((word >> FIELDS_SHIFT) as u8))
    }

    #[inline]
    fn claim<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        let header = Self::header(packet.bytes(), ip_offset);
        header.is_some_and(|header| header[2] >> 4 & signed::CLAIM != 0)
    }

    #[inline]
    fn set_claim<P: Packet>(self, packet: &mut P, ip_offset: usize, claimed: bool) {
        const CLAIM: u8 = signed::CLAIM << 4;
        if Self::header(packet.bytes(), ip_offset).is_some()
            && let Some(byte) = packet.bytes_mut().get_mut(ip_offset + 2)
        {
            *byte = *byte & !CLAIM | if claimed { CLAIM } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tests::{dated_marks, signer, through};
    use crate::packet::Frame;
    use crate::parse::ipv6::tests::packet;
    use crate::parse::tests::udp;

    #[test]
    fn a_mark_is_the_label_and_nothing_else_changes() {
        let mut before = packet(&[], 6, &[0; 20]);
        before[14..16].copy_from_slice(&[0x6B, 0x80]);
        let signer = signer();
        for mark in dated_marks() {
            let mut frame = Frame::new(before.to_vec());
            let seen = through(
                FlowLabel { signer: Some(&signer), claims: 0, domains: Domains::ANY },
                &mut frame,
                14,
                mark,
                |bytes| {
                    assert_eq!(bytes[14], 0x6B);
                    let fields = (bytes[15] << 4, bytes[16] >> 4);
                    assert_eq!(fields.0 | fields.1, signed::fields(mark));
                    assert_eq!(bytes[15] >> 4, 8);
                    assert_eq!(bytes[18..], before[18..]);
                },
            );
            assert_eq!(seen, Some(mark));
            assert_eq!(frame.bytes(), before);
        }
    }

    #[test]
    fn a_claim_is_part_of_a_mark_in_epochs_that_have_claims_and_no_others() {
        let signer = signer();
        for (mark, claims) in dated_marks().zip([0b00, 0b01, 0b10, 0b11].into_iter().cycle()) {
            let label = FlowLabel { signer: Some(&signer), claims, domains: Domains::ANY };
            let mut frame = Frame::new(packet(&[], 6, &[0; 20]).to_vec());
            label.write(&mut frame, 14, mark);
            let unclaimed = frame.clone();
            label.set_claim(&mut frame, 14, true);
            assert!(label.claim(&frame, 14) && !label.claim(&unclaimed, 14));
            let has = claims >> mark.bit & 1 == 1;
            assert_eq!(label.read(&frame, 14), has.then_some(mark));
            label.set_claim(&mut frame, 14, false);
            assert_eq!(frame, unclaimed);
        }
    }

    #[test]
    fn another_label_is_no_mark_and_stays() {
        let signer = signer();
        let label = FlowLabel { signer: Some(&signer), claims: 0, domains: Domains::ANY };
        let mut marked = Frame::new(packet(&[], 6, &[0; 20]).to_vec());
        label.write(&mut marked, 14, dated_marks().next().unwrap());
        for changed in [0x0000_0001, 0x0000_0800, 0x0000_4000, 0x0002_0000, 0x0008_0000_u32] {
            let mut bytes = marked.bytes().to_vec();
            for (byte, changed) in bytes[14..18].iter_mut().zip(changed.to_be_bytes()) {
                *byte ^= changed;
            }
            let mut frame = Frame::new(bytes.clone());
            assert_eq!(label.take(&mut frame, 14), None, "{changed:x}");
            assert_eq!(frame.bytes(), bytes);
        }
    }

    #[test]
    fn without_a_session_no_mark_is_written_or_believed_and_none_reaches_a_host() {
        let signer = signer();
        let mut frame = Frame::new(packet(&[], 6, &[0; 20]).to_vec());
        let before = frame.clone();
        FlowLabel::default().write(&mut frame, 14, dated_marks().next().unwrap());
        assert_eq!(frame, before);
        FlowLabel { signer: Some(&signer), claims: 0, domains: Domains::ANY }.write(
            &mut frame,
            14,
            dated_marks().next().unwrap(),
        );
        assert_ne!(frame, before);
        assert_eq!(FlowLabel::default().take(&mut frame, 14), None);
        assert_eq!(frame, before);
    }

    #[test]
    fn ipv4_carries_nothing() {
        let signer = signer();
        for signer in [None, Some(&signer)] {
            let label = FlowLabel { signer, claims: 0, domains: Domains::ANY };
            let mut frame = Frame::new(udp(0, 0).to_vec());
            assert!(!label.can_carry(&frame, 14));
            label.write(&mut frame, 14, Mark::from_bits(7));
            assert_eq!(label.take(&mut frame, 14), None);
            assert_eq!(frame.bytes(), udp(0, 0));
        }
    }
}
