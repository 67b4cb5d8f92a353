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
    let carrier = IpId::new(Some(&signer), &numbers);
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

/// Whatever else leaves in between, to others or to the same host.
#[test]
fn datagrams_that_may_become_fragments_leave_with_numbers_that_rise() {
    let (signer, numbers) = (signer(), Numbers::new());
    let carrier = IpId::new(Some(&signer), &numbers);
    let leave = |word: u16, host: u8| {
        let mut bytes = datagram(word, 17);
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
            numbers.next(&header, true);
            let after = numbers.counters.iter().map(Cell::get);
            before.into_iter().zip(after).position(|(before, after)| before != after)
        };
        counter(one) == counter(other)
    };
    let other = (3..).find(|&host| !shared(2, host)).unwrap();
    let mut before = leave(0, 2);
    for _ in 0..=u16::MAX {
        leave(0, other);
        assert_eq!(leave(0x4000, 2), 0);
        let number = leave(0, 2);
        assert_eq!(number, before.wrapping_add(1));
        before = number;
    }
}

#[test]
fn fragments_and_authenticated_packets_carry_none_and_stay_as_they_are() {
    let (signer, numbers) = (signer(), Numbers::new());
    for signer in [None, Some(&signer)] {
        let carrier = IpId::new(signer, &numbers);
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
    let carrier = IpId::new(Some(&signer), &numbers);
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

/// The datagram with another total length, in bytes, and the right checksum.
fn of_length(bytes: &[u8], length: u16) -> Frame {
    let mut bytes = bytes.to_vec();
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    bytes[24..26].fill(0);
    let right = checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&right.to_be_bytes());
    Frame::new(bytes)
}

#[test]
fn what_a_link_of_the_fabric_may_cut_carries_none_and_stays_as_it_is() {
    let (signer, numbers) = (signer(), Numbers::new());
    let carrier = IpId::new(Some(&signer), &numbers);
    let mark = dated_marks().nth(9).unwrap();
    for (word, length, mtu, carries) in [
        (0, 1280, 1280, true),
        (0, 1281, 1280, false),
        (0, 1281, 1281, true),
        (0, u16::MAX, u16::MAX, true),
        (0, u16::MAX, u16::MAX - 1, false),
        (0, 0x8000, 0x7FFF, false),
        (0, 0x7FFF, 0x8000, true),
        (0x4000, 1281, 1280, true),
        (0x4000, u16::MAX, 68, true),
        // The bit that is reserved.
        (0x8000, 1281, 1280, false),
    ] {
        let carrier = IpId { fabric_mtu: mtu, ..carrier };
        let before = of_length(&datagram(word, 17), length);
        let mut frame = before.clone();
        assert_eq!(carrier.can_carry(&frame, 14), carries, "{word:x} {length} {mtu}");
        carrier.write(&mut frame, 14, mark);
        assert_eq!(frame != before, carries);
        let why = if word & 0x4000 == 0 && length > mtu {
            Unmeasured::AboveFabricMtu
        } else {
            Unmeasured::NoCarrier
        };
        assert_eq!(carrier.why_not(&frame, 14), why);
        assert_eq!(carrier.take(&mut frame, 14), carries.then_some(mark));
        // No host gets a mark where nobody knows what the fabric takes.
        let keyless = IpId { signer: None, fabric_mtu: u16::MAX, ..carrier };
        assert_eq!(keyless.take(&mut frame, 14), None);
        assert_ne!(identification(&frame), 0x1234);
    }
}

/// A host's identification is one by chance. One that was marked has lost its DF on the way:
/// what it says is no mark, and what it may have been is not lost for certain.
#[test]
fn a_long_datagram_says_what_it_was_marked_with_and_no_host_s_does() {
    let (signer, numbers) = (signer(), Numbers::new());
    let carrier = IpId::new(Some(&signer), &numbers);
    let long = of_length(&datagram(0x4000, 6), 1500);
    for mark in dated_marks() {
        let mut frame = long.clone();
        carrier.write(&mut frame, 14, mark);
        frame.bytes_mut()[20] = 0;
        let before = frame.clone();
        assert_eq!((carrier.take(&mut frame, 14), &frame), (None, &before));
        assert_eq!(carrier.unproven(&frame, 14), Some(mark));
        assert!(carrier.may_have_carried(&frame, 14) && !carrier.can_carry(&frame, 14));
        // With a claim of an epoch that had some.
        frame.bytes_mut()[18] ^= signed::CLAIM;
        assert_eq!(carrier.unproven(&frame, 14), Some(mark));
        assert!(carrier.may_have_carried(&frame, 14));
        frame.bytes_mut()[19] ^= 1;
        assert_eq!(carrier.unproven(&frame, 14), None);
        assert!(!carrier.may_have_carried(&frame, 14));
    }
}

/// A fragment keeps the identification of the others.
#[test]
fn a_claim_changes_the_identification_of_whole_datagrams() {
    let (signer, numbers) = (signer(), Numbers::new());
    let carrier = IpId { claims: 0b11, ..IpId::new(Some(&signer), &numbers) };
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
    let carrier = IpId::new(Some(&signer), &numbers);
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
    let label = FlowLabel { signer: Some(&signer), claims: 0, domains: Domains::ANY };
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
    let keyed = IpId::new(Some(&signer), &numbers);
    let keyless = IpId::new(None, &numbers);
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
    let carrier = IpId::new(Some(&signer), &numbers);
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
