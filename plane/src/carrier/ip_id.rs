//! Marks in the IPv4 identification, for networks that use or re-mark the DSCP.
//!
//! The identification of a datagram that is not and may not be fragmented means nothing (RFC 6864),
//! and nothing on the way looks at it. In IPv6 the flow label carries the same mark.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::flow_label::FlowLabel;
use super::signature::Signer;
use super::{Carry, Mark, signed, update_checksum};
use crate::packet::Packet;

/// All sixteen bits: eight bits of fields (`signed`) on top of a signature of eight. An
/// identification drawn at random looks marked once in 2,048 times.
///
/// Packets leave the network with the identification 0 where they may not be fragmented, and with a
/// fresh number else. Fragments carry no mark, as all of a datagram's must keep one identification;
/// nor do packets with an authentication header, which covers it (RFC 4302). A packet that became
/// fragments after it was marked is read, unchanged, by the first of them. Without a signer no mark
/// is written or believed, and every identification is replaced at egress.
#[derive(Clone, Copy, Debug)]
pub struct IpId<'a> {
    /// That of the session.
    pub signer: Option<&'a Signer>,
    /// That of the lcore.
    pub numbers: &'a Numbers,
    /// As [`FlowLabel::claims`].
    pub claims: u8,
}

const AUTHENTICATION_HEADER: u8 = 51;

/// Of bytes 6 and 7: no fragmentation, more fragments, and where a fragment lies.
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1FFF;

/// How a datagram stands to fragmentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Datagram {
    /// It is whole and stays so.
    Atomic,
    /// It is whole and may become fragments.
    Whole,
    /// It is the first of several.
    FirstFragment,
    /// Another fragment, or covered by an authentication header.
    Untouchable,
}

impl Datagram {
    #[inline(always)]
    fn of(header: &[u8; 20]) -> Self {
        let word = u16::from_be_bytes([header[6], header[7]]);
        if word & OFFSET != 0 || header[9] == AUTHENTICATION_HEADER {
            Self::Untouchable
        } else if word & MORE_FRAGMENTS != 0 {
            Self::FirstFragment
        } else if word & DONT_FRAGMENT != 0 {
            Self::Atomic
        } else {
            Self::Whole
        }
    }
}

impl<'a> IpId<'a> {
    fn label(self) -> FlowLabel<'a> {
        FlowLabel { signer: self.signer, claims: self.claims }
    }

    /// The packet's IPv4 header and what it is; `None` where it is IPv6.
    #[inline(always)]
    fn header(bytes: &[u8], ip_offset: usize) -> Option<(&[u8; 20], Datagram)> {
        let header = bytes.get(ip_offset..)?.first_chunk()?;
        (header[0] >> 4 == 4).then(|| (header, Datagram::of(header)))
    }

    /// Writes the identification, and what the checksum is then.
    #[inline(always)]
    fn set(bytes: &mut [u8], ip_offset: usize, identification: u16) {
        let header = bytes.get_mut(ip_offset..).and_then(<[u8]>::first_chunk_mut::<20>);
        if let Some(header) = header {
            update_checksum(header, 4, identification.to_be_bytes());
        }
    }

    /// The mark that a header carries.
    #[inline(always)]
    fn mark(self, header: &[u8; 20]) -> Option<Mark> {
        let [fields, signature] = [header[4], header[5]];
        let (signer, epoch) = (self.signer?, signed::epoch(fields));
        if !signer.fits_ipv4(epoch, header, signature) {
            return None;
        }
        signed::mark(fields, self.claims)
    }
}

impl Carry for IpId<'_> {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        match Self::header(packet.bytes(), ip_offset) {
            Some((_, datagram)) => matches!(datagram, Datagram::Atomic | Datagram::Whole),
            None => self.label().can_carry(packet, ip_offset),
        }
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        let Some(signer) = self.signer else { return };
        match Self::header(packet.bytes(), ip_offset) {
            Some((header, Datagram::Atomic | Datagram::Whole)) => {
                let fields = signed::fields(mark);
                let signature = signer.ipv4(signed::epoch(fields), header);
                let identification = u16::from_be_bytes([fields, signature]);
                Self::set(packet.bytes_mut(), ip_offset, identification);
            }
            Some(_) => {}
            None => self.label().write(packet, ip_offset, mark),
        }
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        match Self::header(packet.bytes(), ip_offset) {
            Some((_, Datagram::Untouchable)) => None,
            Some((header, _)) => self.mark(header),
            None => self.label().read(packet, ip_offset),
        }
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        let Some((header, datagram)) = Self::header(packet.bytes(), ip_offset) else {
            return self.label().take(packet, ip_offset);
        };
        if datagram == Datagram::Untouchable {
            return None;
        }
        let mark = self.mark(header);
        if mark.is_some() || self.signer.is_none() {
            match datagram {
                Datagram::Atomic => Self::set(packet.bytes_mut(), ip_offset, 0),
                Datagram::Whole => {
                    let number = self.numbers.next(header);
                    Self::set(packet.bytes_mut(), ip_offset, number);
                }
                Datagram::FirstFragment | Datagram::Untouchable => {}
            }
        }
        mark
    }

    #[inline]
    fn unproven<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        match Self::header(packet.bytes(), ip_offset) {
            Some((_, Datagram::Untouchable)) => None,
            Some((header, _)) => self.signer.and_then(|_| signed::unproven(header[4])),
            None => self.label().unproven(packet, ip_offset),
        }
    }

    #[inline]
    fn claim<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        match Self::header(packet.bytes(), ip_offset) {
            Some((header, _)) => header[4] & signed::CLAIM != 0,
            None => self.label().claim(packet, ip_offset),
        }
    }

    #[inline]
    fn set_claim<P: Packet>(self, packet: &mut P, ip_offset: usize, claimed: bool) {
        let Some((header, datagram)) = Self::header(packet.bytes(), ip_offset) else {
            return self.label().set_claim(packet, ip_offset, claimed);
        };
        if datagram == Datagram::FirstFragment {
            // It keeps the identification of the others.
            return;
        }
        let bit = if claimed { signed::CLAIM } else { 0 };
        let fields = header[4] & !signed::CLAIM | bit;
        let identification = u16::from_be_bytes([fields, header[5]]);
        Self::set(packet.bytes_mut(), ip_offset, identification);
    }
}

/// Fresh identifications, one lcore's: of packets between two addresses each is the one before
/// plus 1, from where nobody outside can know (RFC 7739). Receivers that merge TCP segments ask for
/// that where the packets may become fragments.
#[derive(Debug)]
pub struct Numbers {
    counters: Box<[Cell<u16>; COUNTERS]>,
    key: u64,
}

/// Pairs of addresses share a counter where their hashes agree.
const COUNTERS: usize = 256;

impl Numbers {
    /// Numbers that begin anywhere.
    pub fn new() -> Self {
        let drawn = || RandomState::new().build_hasher().finish();
        let counters = Box::new(std::array::from_fn(|_| Cell::new(drawn() as u16)));
        Self { counters, key: drawn() }
    }

    /// The next one of a packet with this header.
    #[inline]
    fn next(&self, header: &[u8; 20]) -> u16 {
        let [.., a, b, c, d, e, f, g, h] = *header;
        let addresses = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let hash = (addresses ^ self.key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = (hash ^ hash >> 32).wrapping_mul(self.key | 1);
        let counter = &self.counters[(hash >> 56) as usize % COUNTERS];
        let number = counter.get().wrapping_add(1);
        counter.set(number);
        // Not the same for all that share the counter.
        number.wrapping_add((hash >> 40) as u16)
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tests::{dated_marks, signer, through};
    use crate::packet::Frame;
    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::{checksum, udp};

    /// A packet whose fragmentation word and protocol are these, with the right checksum.
    fn datagram(fragmentation: u16, protocol: u8) -> Vec<u8> {
        let mut bytes = udp(0, 8);
        bytes[18..20].copy_from_slice(&[0x12, 0x34]);
        bytes[20..22].copy_from_slice(&fragmentation.to_be_bytes());
        bytes[23] = protocol;
        bytes[24..26].fill(0);
        let right = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&right.to_be_bytes());
        bytes
    }

    fn identification(frame: &Frame) -> u16 {
        u16::from_be_bytes([frame.bytes()[18], frame.bytes()[19]])
    }

    #[test]
    fn a_mark_is_the_identification_and_an_atomic_datagram_leaves_with_none() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        let before = datagram(0x4000, 6);
        for mark in dated_marks() {
            let mut frame = Frame::new(before.clone());
            let seen = through(carrier, &mut frame, 14, mark, |bytes| {
                assert_eq!(bytes[18], signed::fields(mark));
                assert_eq!(checksum(&bytes[14..34]), 0);
                assert_eq!((&bytes[..18], &bytes[26..]), (&before[..18], &before[26..]));
            });
            assert_eq!(seen, Some(mark));
            assert_eq!(identification(&frame), 0);
            assert_eq!(checksum(&frame.bytes()[14..34]), 0);
            assert_eq!(frame.bytes()[26..], before[26..]);
        }
    }

    /// Whatever else leaves in between.
    #[test]
    fn datagrams_that_may_become_fragments_leave_with_numbers_that_rise() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        let leave = |host: u8| {
            let mut bytes = datagram(0, 17);
            bytes[29] = host;
            bytes[24..26].fill(0);
            let right = checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&right.to_be_bytes());
            let mut frame = Frame::new(bytes);
            carrier.write(&mut frame, 14, Mark::from_bits(5));
            assert!(carrier.take(&mut frame, 14).is_some());
            assert_eq!(checksum(&frame.bytes()[14..34]), 0);
            identification(&frame)
        };
        let shared = |one: u8, other: u8| {
            let counter = |host: u8| {
                let mut header = *datagram(0, 17)[14..].first_chunk::<20>().unwrap();
                header[15] = host;
                let before: Vec<u16> = numbers.counters.iter().map(Cell::get).collect();
                numbers.next(&header);
                let after = numbers.counters.iter().map(Cell::get);
                before.into_iter().zip(after).position(|(before, after)| before != after)
            };
            counter(one) == counter(other)
        };
        let other = (3..).find(|&host| !shared(2, host)).unwrap();
        let mut before = leave(2);
        for _ in 0..=u16::MAX {
            leave(other);
            let number = leave(2);
            assert_eq!(number, before.wrapping_add(1));
            before = number;
        }
    }

    #[test]
    fn fragments_and_authenticated_packets_carry_none_and_stay_as_they_are() {
        let (signer, numbers) = (signer(), Numbers::new());
        for signer in [None, Some(&signer)] {
            let carrier = IpId { signer, numbers: &numbers, claims: 0 };
            for (word, protocol) in [(0x2000, 17), (0x2001, 17), (0x0001, 17), (0x4000, 51)] {
                let before = Frame::new(datagram(word, protocol));
                let mut frame = before.clone();
                assert!(!carrier.can_carry(&frame, 14), "{word:x} {protocol}");
                carrier.write(&mut frame, 14, Mark::from_bits(7));
                assert_eq!(carrier.take(&mut frame, 14), None);
                assert_eq!(frame, before);
            }
        }
    }

    #[test]
    fn a_packet_cut_into_fragments_on_its_way_is_read_by_the_first() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        let mut marked = Frame::new(datagram(0, 17));
        let mark = dated_marks().nth(9).unwrap();
        carrier.write(&mut marked, 14, mark);
        for (word, seen) in [(0x2000_u16, Some(mark)), (0x2001, None), (0x0001, None)] {
            let mut frame = marked.clone();
            frame.bytes_mut()[20..22].copy_from_slice(&word.to_be_bytes());
            let before = frame.clone();
            assert_eq!(carrier.take(&mut frame, 14), seen);
            assert_eq!(frame, before, "all fragments keep one identification");
        }
    }

    /// A fragment keeps the identification of the others.
    #[test]
    fn a_claim_changes_the_identification_of_whole_datagrams() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0b11 };
        for (word, changes) in [(0x4000_u16, true), (0, true), (0x2000, false)] {
            let mut frame = Frame::new(datagram(0x4000, 6));
            let mark = dated_marks().nth(9).unwrap();
            carrier.write(&mut frame, 14, mark);
            frame.bytes_mut()[20..22].copy_from_slice(&word.to_be_bytes());
            frame.bytes_mut()[24..26].fill(0);
            let right = checksum(&frame.bytes()[14..34]);
            frame.bytes_mut()[24..26].copy_from_slice(&right.to_be_bytes());
            let before = frame.clone();
            carrier.set_claim(&mut frame, 14, true);
            assert_eq!((carrier.claim(&frame, 14), frame != before), (changes, changes));
            assert_eq!(checksum(&frame.bytes()[14..34]), 0);
            assert_eq!(carrier.read(&frame, 14), Some(mark));
        }
    }

    /// Translated, with a claim or without.
    #[test]
    fn what_a_mark_says_can_be_read_where_its_signature_does_not_fit() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        for (mark, claimed) in dated_marks().flat_map(|mark| [(mark, false), (mark, true)]) {
            let mut frame = Frame::new(datagram(0x4000, 6));
            carrier.write(&mut frame, 14, mark);
            carrier.set_claim(&mut frame, 14, claimed);
            frame.bytes_mut()[33] ^= 1;
            let before = frame.clone();
            assert_eq!((carrier.take(&mut frame, 14), &frame), (None, &before));
            assert_eq!(carrier.unproven(&frame, 14), Some(mark));
            let keyless = IpId { signer: None, ..carrier };
            assert_eq!(keyless.unproven(&frame, 14), None);
            frame.bytes_mut()[18] |= 0b100;
            assert_eq!(carrier.unproven(&frame, 14), None, "no mark has this bit");
            frame.bytes_mut()[18] &= !0b100;
            frame.bytes_mut()[21] = 1;
            assert_eq!(carrier.unproven(&frame, 14), None, "not one that was marked");
        }
        let label = FlowLabel { signer: Some(&signer), claims: 0 };
        for mark in dated_marks() {
            let mut frame = Frame::new(ipv6_packet(&[], 6, &[0; 20]).to_vec());
            label.write(&mut frame, 14, mark);
            frame.bytes_mut()[14 + 39] ^= 1;
            assert_eq!(label.read(&frame, 14), None);
            assert_eq!([carrier.unproven(&frame, 14), label.unproven(&frame, 14)], [Some(mark); 2]);
            assert_eq!(FlowLabel::default().unproven(&frame, 14), None);
        }
    }

    #[test]
    fn without_a_session_no_mark_is_written_or_believed_and_none_reaches_a_host() {
        let (signer, numbers) = (signer(), Numbers::new());
        let keyed = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        let keyless = IpId { signer: None, numbers: &numbers, claims: 0 };
        let mark = dated_marks().nth(5).unwrap();
        let mut frame = Frame::new(datagram(0x4000, 6));
        let before = frame.clone();
        keyless.write(&mut frame, 14, mark);
        assert_eq!(frame, before);
        keyed.write(&mut frame, 14, mark);
        assert_eq!(keyless.take(&mut frame, 14), None);
        assert_eq!((identification(&frame), checksum(&frame.bytes()[14..34])), (0, 0));
        let mut frame = Frame::new(ipv6_packet(&[], 6, &[0; 20]).to_vec());
        keyed.write(&mut frame, 14, mark);
        assert_eq!(keyless.take(&mut frame, 14), None);
        assert_eq!(frame.bytes(), &ipv6_packet(&[], 6, &[0; 20])[..]);
    }

    /// Of all identifications that a router may draw for its own packets, 32 look marked, and 4
    /// like those of the epoch to come.
    #[test]
    fn a_stranger_hits_a_mark_once_in_2048_times_and_is_left_alone_else() {
        let (signer, numbers) = (signer(), Numbers::new());
        let carrier = IpId { signer: Some(&signer), numbers: &numbers, claims: 0 };
        let mut hits = 0;
        for number in 0..=u16::MAX {
            let mut frame = Frame::new(datagram(0x4000, 1));
            frame.bytes_mut()[18..20].copy_from_slice(&number.to_be_bytes());
            let before = frame.clone();
            if carrier.take(&mut frame, 14).is_some() {
                hits += 1;
            } else {
                assert_eq!(frame, before);
            }
        }
        assert_eq!(hits, 36);
    }
}
