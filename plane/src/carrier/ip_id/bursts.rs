//! What is done to the identifications of a burst, compiled for each instruction set.

use calumma_sketch::simd::{Isa, Work};

use super::{IpId, Latest, is_markable};
use crate::carrier::signature::Signer;
use crate::carrier::{Carry, Mark, Seen, signed, update_checksum};
use crate::mark::Hierarchy;
use crate::packet::Packet;

/// Marks a burst.
pub(super) struct Write<'a, 'b, P> {
    pub(super) by: IpId<'a>,
    pub(super) signer: &'a Signer,
    pub(super) packets: &'b mut [P],
    pub(super) places: &'b [(u16, u16)],
    pub(super) stamp: Mark,
    pub(super) hierarchies: &'b [Hierarchy],
}

impl<P: Packet> Work for Write<'_, '_, P> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let Self { by, signer, packets, places, stamp, hierarchies } = self;
        let signing = signer.ipv4(signed::epoch(signed::fields(stamp)));
        for (&(at, ip_offset), &hierarchy) in places.iter().zip(hierarchies) {
            let (packet, ip_offset) = (&mut packets[usize::from(at)], usize::from(ip_offset));
            let mark = Mark { hierarchy, ..stamp };
            let bytes = packet.bytes_mut().get_mut(ip_offset..);
            match bytes.and_then(<[u8]>::first_chunk_mut::<20>) {
                Some(header) if header[0] >> 4 == 4 => {
                    debug_assert!(is_markable(header, by.fabric_mtu));
                    let signature = signing.sign(header, isa);
                    update_checksum(header, 4, [signed::fields(mark), signature]);
                }
                _ => by.label().write(packet, ip_offset, mark),
            }
        }
    }
}

/// Reads the marks of a burst.
pub(super) struct Read<'a, 'b, P> {
    pub(super) by: IpId<'a>,
    pub(super) packets: &'b [P],
    pub(super) places: &'b [(u16, u16)],
}

impl<P: Packet> Work for Read<'_, '_, P> {
    type Output = Seen;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Seen {
        let (mut seen, mut signing) = (Seen::default(), Latest::new(self.by.signer));
        for (number, &(at, ip_offset)) in self.places.iter().enumerate() {
            let (packet, ip_offset) = (&self.packets[usize::from(at)], usize::from(ip_offset));
            let fields = self.by.read_by(packet, ip_offset, (&mut signing, isa));
            seen.note_signed(number, fields, || self.by.unproven(packet, ip_offset));
        }
        seen
    }
}

/// Takes the marks out of a burst.
pub(super) struct Take<'a, 'b, P> {
    pub(super) by: IpId<'a>,
    pub(super) packets: &'b mut [P],
    pub(super) places: &'b [(u16, u16)],
}

impl<P: Packet> Work for Take<'_, '_, P> {
    type Output = Seen;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Seen {
        let (mut seen, mut signing) = (Seen::default(), Latest::new(self.by.signer));
        for (number, &(at, ip_offset)) in self.places.iter().enumerate() {
            let (packet, ip_offset) = (&mut self.packets[usize::from(at)], usize::from(ip_offset));
            let fields = self.by.take_by(packet, ip_offset, (&mut signing, isa));
            seen.note_signed(number, fields, || self.by.unproven(packet, ip_offset));
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::Numbers;
    use crate::packet::Frame;
    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::{checksum, udp};
    use calumma_sketch::{BURST, Engine};
    use calumma_wire::Secret;

    /// A packet from a host of its own. Those that leave with a fresh number could not be compared,
    /// so none may be cut.
    fn frame(number: u8) -> Frame {
        if number % 8 == 3 {
            let mut bytes = ipv6_packet(&[], 6, &[0; 20]).to_vec();
            bytes[23] ^= number;
            return Frame::new(bytes);
        }
        let mut bytes = udp(0, 8);
        bytes[20..22].copy_from_slice(if number % 8 == 5 { &[0x20, 0] } else { &[0x40, 0] });
        bytes[23] = if number % 16 == 6 { 51 } else { number };
        (bytes[27], bytes[31]) = (number.wrapping_mul(37), number);
        bytes[24..26].fill(0);
        let right = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&right.to_be_bytes());
        Frame::new(bytes)
    }

    /// In two epochs of two secrets, with strangers and packets of another epoch among them.
    fn is_done_as_one_by_one(signer: &Signer) {
        let numbers = Numbers::new();
        let frames: Vec<Frame> = (0..BURST as u8).map(frame).collect();
        let places: Vec<(u16, u16)> = (0..BURST as u16).map(|at| (at, 14)).rev().collect();
        let hierarchies: Vec<_> = (0..BURST as u8).map(Hierarchy::from_bits).collect();
        for (signer, claims, epoch) in
            [(Some(signer), 0, 103), (Some(signer), 0b11, 104), (None, 0, 104)]
        {
            let by = IpId { claims, ..IpId::new(signer, &numbers) };
            let stamp = Mark::of_epoch(epoch, Hierarchy::NonSampledLl);
            let (mut burst, mut singly) = (frames.clone(), frames.clone());
            let can_carry = by.can_carry_all(&burst, &places);
            let (mut markable, mut of_these) = (Vec::new(), Vec::new());
            for (number, (&(at, _), &hierarchy)) in places.iter().zip(&hierarchies).enumerate() {
                let frame = &mut singly[usize::from(at)];
                assert_eq!(can_carry >> number & 1 == 1, by.can_carry(frame, 14));
                if by.can_carry(frame, 14) {
                    markable.push((at, 14));
                    of_these.push(hierarchy);
                }
                by.write(frame, 14, Mark { hierarchy, ..stamp });
            }
            by.write_all(&mut burst, &markable, stamp, &of_these);
            assert_eq!(burst, singly);
            let marked = burst.iter().zip(&frames).filter(|(marked, before)| marked != before);
            assert_eq!(marked.count(), if signer.is_some() { 26 } else { 0 });
            by.write(&mut burst[0], 14, Mark::of_epoch(207 - epoch, Hierarchy::HlCandidate));
            burst[1].bytes_mut()[19] ^= 1;
            burst[2].bytes_mut()[20] = 0x20;
            let mut singly = burst.clone();
            let read = by.read_all(&burst, &places);
            let taken = by.take_all(&mut burst, &places);
            let mut one_by_one = Seen::default();
            for (number, &(at, _)) in places.iter().enumerate() {
                let frame = &mut singly[usize::from(at)];
                let mark = by.take(frame, 14);
                let unproven = if mark.is_none() { by.unproven(frame, 14) } else { None };
                one_by_one.note(number, mark, unproven);
            }
            assert_eq!(read.valid().count_ones(), if signer.is_some() { 25 } else { 0 });
            assert_eq!((taken, read), (one_by_one, one_by_one));
            assert_eq!(burst, singly);
        }
    }

    #[test]
    fn a_burst_is_marked_and_read_as_its_packets_are_one_by_one_by_every_engine() {
        for engine in Engine::available() {
            let mut signer = Signer::new(Secret::new([9; 32]), 103).with_engine(engine);
            signer.follow(104, Secret::new([8; 32]));
            signer.begin(104);
            is_done_as_one_by_one(&signer);
        }
    }
}
