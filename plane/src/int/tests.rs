//! What is put into packets is taken out of them, whatever they are and whatever happens on the
//! way.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::header::{HEADERS, Original, Seen, could_be_taken, ip_offset, look, tos};
use super::push::{self, NotCarried, Pushed};
use super::strip::{Goes, read, strip};
use super::{Domains, Hop, Insertion, Instructions, MARKER, MOST_HOPS, Stack, UNKNOWN};
use crate::arrival::Arrival;
use crate::carrier::{Carrier, Carry, PlainTos, Shim, set_tos_bits};
use crate::mark::Hierarchy;
use crate::packet::{Frame, Packet};
use crate::parse::ipv6::tests::packet as ipv6_packet;
use crate::parse::tests::checksum;
use crate::{Mark, carrier};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ETHERNET: usize = 14;

/// An insertion of a domain that no random bytes are likely to have.
pub(super) fn insertion(instructions: Instructions, hops: u8) -> Insertion {
    let [domain, node] = [0xC4A1, 7].map(|number| NonZeroU16::new(number).unwrap());
    Insertion { domain, node, instructions, hops, udp_port: None }
}

pub(super) fn ours() -> Domains {
    let mut domains = Domains::default();
    domains.learn(NonZeroU16::new(0xC4A1).unwrap(), None);
    domains
}

/// The transport header and payload of a packet.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) protocol: u8,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn segments() -> impl Strategy<Value = Segment> {
    let payload = || prop::collection::vec(any::<u8>(), 0..80);
    let tcp = (0usize..=10, payload(), any::<[u8; 12]>()).prop_map(|(options, payload, first)| {
        let mut bytes = first.to_vec();
        bytes.extend([(5 + options as u8) << 4, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.resize(20 + 4 * options, 1);
        bytes.extend(payload);
        Segment { protocol: TCP, bytes }
    });
    // Bytes may follow the datagram that UDP's own length says.
    let udp = (payload(), any::<[u8; 4]>(), 0usize..3).prop_map(|(payload, ports, more)| {
        let mut bytes = ports.to_vec();
        bytes.extend((8 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes.resize(bytes.len() + more, 0x5A);
        Segment { protocol: UDP, bytes }
    });
    prop_oneof![tcp, udp]
}

/// What is done about the transport checksum of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sum {
    Right,
    None,
    Any(u16),
}

pub(super) fn sums() -> impl Strategy<Value = Sum> {
    prop_oneof![
        4 => Just(Sum::Right),
        1 => Just(Sum::None),
        1 => any::<u16>().prop_map(Sum::Any),
        1 => Just(Sum::Any(u16::MAX)),
    ]
}

/// A frame: VLAN tags, family, IP options or extension headers, padding behind the packet.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) tags: usize,
    pub(super) ipv6: bool,
    pub(super) more: usize,
    pub(super) tos: u8,
    pub(super) padding: usize,
}

pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    (0usize..3, any::<bool>(), 0usize..4, any::<u8>(), 0usize..20)
        .prop_map(|(tags, ipv6, more, tos, padding)| Shape { tags, ipv6, more, tos, padding })
}

/// The frame, and where its IP header begins.
pub(super) fn frame(shape: &Shape, segment: &Segment, sum: Sum) -> (Vec<u8>, usize) {
    let Shape { tags, ipv6, more, tos, padding } = *shape;
    let untagged = if ipv6 {
        let extension: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
        let extensions = vec![(60, extension); more];
        let mut frame = ipv6_packet(&extensions, segment.protocol, &segment.bytes);
        frame[14] = 0x60 | tos >> 4;
        frame[15] = tos << 4 | 3;
        frame
    } else {
        let header_len = 20 + 4 * more;
        let total = (header_len + segment.bytes.len()) as u16;
        let [high, low] = total.to_be_bytes();
        let first = 0x45 + more as u8;
        let mut ip = vec![first, tos, high, low, 0, 1, 0x40, 0, 64, segment.protocol, 0, 0];
        ip.extend([10, 1, 0, 2, 10, 2, 0, 2]);
        ip.resize(header_len, 1);
        let right = checksum(&ip);
        ip[10..12].copy_from_slice(&right.to_be_bytes());
        let mut frame = vec![2; 12];
        frame.extend([8, 0]);
        frame.extend(ip);
        frame.extend(&segment.bytes);
        frame
    };
    let mut frame = untagged[..12].to_vec();
    for tag in 0..tags {
        frame.extend(if tag + 1 < tags { [0x88, 0xA8, 0, 9] } else { [0x81, 0, 0, 5] });
    }
    frame.extend(&untagged[12..]);
    let ip = ETHERNET + 4 * tags;
    let l4 = frame.len() - segment.bytes.len();
    let at = l4 + if segment.protocol == UDP { 6 } else { 16 };
    frame[at..at + 2].fill(0);
    let right = match l4_sum(&frame, ip, l4) {
        0 if segment.protocol == UDP => u16::MAX,
        right => right,
    };
    let written = match sum {
        Sum::Right => right,
        Sum::None => 0,
        Sum::Any(other) => other,
    };
    frame[at..at + 2].copy_from_slice(&written.to_be_bytes());
    frame.resize(frame.len() + padding, 0);
    (frame, ip)
}

/// The checksum over pseudo-header and transport segment, made anew: 0 where that in the frame is
/// right.
fn l4_sum(frame: &[u8], ip: usize, l4: usize) -> u16 {
    let is_ipv6 = frame[ip] >> 4 == 6;
    let (addresses, protocol, end) = if is_ipv6 {
        let len = usize::from(u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]));
        // The last header's number is that of the segment: extensions say it before.
        let protocol = if l4 == ip + 40 { frame[ip + 6] } else { frame[l4 - 8] };
        (&frame[ip + 8..ip + 40], protocol, ip + 40 + len)
    } else {
        let len = usize::from(u16::from_be_bytes([frame[ip + 2], frame[ip + 3]]));
        (&frame[ip + 12..ip + 20], frame[ip + 9], ip + len)
    };
    let end = if protocol == UDP {
        l4 + usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]))
    } else {
        end
    };
    let segment = &frame[l4..end];
    let mut covered = addresses.to_vec();
    covered.extend([0, protocol]);
    covered.extend((segment.len() as u16).to_be_bytes());
    covered.extend(segment);
    if !covered.len().is_multiple_of(2) {
        covered.push(0);
    }
    checksum(&covered)
}

/// Bitmaps that a source may ask for.
fn instructions() -> impl Strategy<Value = Instructions> {
    let optional = [
        Instructions::PORTS,
        Instructions::QUEUE,
        Instructions::INGRESS,
        Instructions::EGRESS,
        Instructions::INTERFACES,
        Instructions::UTILISATION,
        Instructions::BUFFER,
    ];
    prop::sample::subsequence(optional.to_vec(), 0..=optional.len()).prop_map(|bits| {
        let bits = bits.into_iter().fold(Instructions::DEFAULT.bits(), |all, bit| all | bit);
        Instructions::new(bits).unwrap()
    })
}

pub(super) fn hops() -> impl Strategy<Value = Vec<Hop>> {
    let around = any::<(u32, [u32; 2], u32)>();
    let hop = (any::<u32>(), any::<u32>(), 0u32..0xFF_FFFF, any::<[u64; 2]>(), around).prop_map(
        |(node, latency_ns, queued, [ingress_ns, egress_ns], (ports, interfaces, utilisation))| {
            Hop { node, latency_ns, ports, queued, ingress_ns, egress_ns, interfaces, utilisation }
        },
    );
    prop::collection::vec(hop, 1..=MOST_HOPS)
}

/// What stacks keep of a hop that says no more than it is asked for.
fn as_asked(hop: Hop, of: Instructions) -> Hop {
    let asked = |bit: u16| of.bits() & bit != 0;
    Hop {
        ports: UNKNOWN,
        interfaces: [UNKNOWN; 2],
        utilisation: UNKNOWN,
        queued: if asked(Instructions::QUEUE) { hop.queued } else { UNKNOWN },
        ingress_ns: if asked(Instructions::INGRESS) { hop.ingress_ns } else { u64::MAX },
        egress_ns: if asked(Instructions::EGRESS) { hop.egress_ns } else { u64::MAX },
        ..hop
    }
}

fn found(packet: &Frame, ip: usize) -> super::header::Found {
    match look(packet, ip, ours()) {
        Seen::Stack(found) => found,
        other => panic!("{other:?}"),
    }
}

/// Whether the checksums of a packet are as right as they were in another.
fn as_right(before: &[u8], after: &[u8], ip: usize, l4: usize) {
    if before[ip] >> 4 == 4 {
        let len = usize::from(before[ip] & 0xF) * 4;
        assert_eq!(checksum(&before[ip..ip + len]), checksum(&after[ip..ip + len]));
    }
    if l4_sum(before, ip, l4) == 0 {
        assert_eq!(l4_sum(after, ip, l4), 0);
    }
}

#[test]
fn a_hop_says_between_when_it_was_met_and_never_more_than_it_can() {
    let node = NonZeroU16::new(9).unwrap();
    let arrival = Arrival { earliest_ns: 1_000, latest_ns: 2_000 };
    let hop = Hop::met(node, Some(arrival), 4_500);
    assert_eq!((hop.node, hop.latency_ns, hop.ingress_ns, hop.egress_ns), (9, 3_000, 1_500, 4_500));
    let never_empty = Arrival { earliest_ns: 0, latest_ns: 2_000 };
    for nobody_knows in [None, Some(never_empty)] {
        let hop = Hop::met(node, nobody_knows, 4_500);
        assert_eq!((hop.latency_ns, hop.ingress_ns), (UNKNOWN, u64::MAX));
    }
    let long = Hop::met(node, Some(Arrival::at(1)), 1 + u64::from(UNKNOWN));
    assert_eq!(long.latency_ns, UNKNOWN - 1);
    // A clock that was set back in between.
    assert_eq!(Hop::met(node, Some(Arrival::at(5)), 4).latency_ns, 0);
}

#[test]
fn only_bitmaps_that_this_release_knows_are_asked_for() {
    assert_eq!(Instructions::DEFAULT.words(), 2);
    assert_eq!(Instructions::new(0xFF80).map(Instructions::words), Some(12));
    for bits in [0, Instructions::NODE, 0xA001, 0xA040, 0x5F80] {
        assert_eq!(Instructions::new(bits), None, "{bits:04x}");
    }
}

#[test]
fn a_switch_that_was_told_no_domain_takes_any_and_one_that_was_keeps_the_one_before() {
    let [a, b, c] = [1, 2, 3].map(|number| NonZeroU16::new(number).unwrap());
    let mut domains = Domains::default();
    assert!(domains.has(1) && domains.has(u16::MAX) && !domains.has(0));
    domains.learn(a, None);
    domains.learn(b, None);
    domains.learn(b, None);
    assert_eq!([1, 2, 3, 0].map(|domain| domains.has(domain)), [true, true, false, false]);
    domains.learn(c, None);
    assert_eq!([1, 2, 3].map(|domain| domains.has(domain)), [false, true, true]);
}

#[test]
fn what_can_have_no_stack_says_why_and_stays() {
    let shape = Shape { tags: 0, ipv6: false, more: 0, tos: 0, padding: 0 };
    let segment = Segment { protocol: UDP, bytes: [0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4].to_vec() };
    let (bytes, ip) = frame(&shape, &segment, Sum::Right);
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    let whole = |bytes: &[u8]| Frame::with_headroom(128, bytes);
    let mut header_sum = with(24, 0xFF);
    header_sum[25] = 0xFF;
    let cases = [
        (whole(&with(20, 0x20)), 1500, NotCarried::Fragment),
        (whole(&with(21, 0x07)), 1500, NotCarried::Fragment),
        (whole(&with(23, 1)), 1500, NotCarried::Protocol),
        (whole(&with(39, 99)), 1500, NotCarried::Protocol),
        (Frame::with_headroom(23, &bytes), 1500, NotCarried::Headroom),
        (Frame::with_headroom(128, &bytes[..44]).cut_from(46), 1500, NotCarried::Segments),
        (whole(&header_sum), 1500, NotCarried::Checksum),
        (whole(&bytes), 32 + 15, NotCarried::Mtu),
    ];
    for (mut frame, mtu, why) in cases {
        let before = frame.clone();
        let insertion = insertion(Instructions::DEFAULT, 6);
        let hop = Hop::UNKNOWN;
        assert_eq!(push::source(&mut frame, ip, (&insertion, &hop), 0, mtu), Err(why));
        assert_eq!(frame, before);
    }
}

#[test]
fn where_only_the_header_fits_the_stack_says_that_a_hop_is_missing() {
    let shape = Shape { tags: 1, ipv6: true, more: 1, tos: 0xB8, padding: 0 };
    let segment =
        Segment { protocol: TCP, bytes: [&[0; 12][..], &[0x50, 2, 0, 0, 0, 0, 0, 0]].concat() };
    let (bytes, ip) = frame(&shape, &segment, Sum::Right);
    // A VLAN tag and the packet, as long as the port takes.
    let len = bytes.len() - ETHERNET;
    let insertion = insertion(Instructions::DEFAULT, 6);
    let mut packet = Frame::with_headroom(128, &bytes);
    let mut push = |mtu| push::source(&mut packet, ip, (&insertion, &Hop::UNKNOWN), 46, mtu);
    assert_eq!(push(len + HEADERS - 1), Err(NotCarried::Mtu));
    assert_eq!(push(len + HEADERS + 7), Ok(Pushed::NoRoom));
    let mut stack = Stack::EMPTY;
    let seen = found(&packet, ip);
    read(&packet, &seen, &mut stack);
    assert!(stack.is_partial && stack.is_empty());
    // The next switch has more room.
    assert_eq!(push::transit(&mut packet, &seen, &Hop::UNKNOWN, len + HEADERS + 8), Pushed::Hop);
    let seen = found(&packet, ip);
    assert_eq!((seen.header.remaining, seen.header.is_partial()), (5, true));
    assert!(strip(&mut packet, ip, &seen, Goes::ToHost));
    assert_eq!(packet.bytes(), bytes);
}

#[test]
fn a_zero_checksum_that_a_router_wrote_as_all_ones_keeps_no_hop_out() {
    let shape = Shape { tags: 0, ipv6: false, more: 0, tos: 0, padding: 0 };
    let segment =
        Segment { protocol: TCP, bytes: [&[0; 12][..], &[0x50, 2, 0, 0, 0, 0, 0, 0]].concat() };
    let (bytes, ip) = frame(&shape, &segment, Sum::Right);
    let mut packet = Frame::with_headroom(128, &bytes);
    let asked = insertion(Instructions::DEFAULT, 6);
    push::source(&mut packet, ip, (&asked, &Hop::UNKNOWN), 0, 1500).unwrap();
    // By as much as the identification grows, the checksum falls.
    let header = packet.bytes_mut();
    let word = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let sum = word(ip + 4) + word(ip + 10);
    let identification = ((sum & 0xFFFF) + (sum >> 16)) as u16;
    header[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
    header[ip + 10..ip + 12].fill(0xFF);
    assert_eq!(checksum(&header[ip..ip + 20]), 0);
    let seen = found(&packet, ip);
    assert_eq!(push::transit(&mut packet, &seen, &Hop::UNKNOWN, 1500), Pushed::Hop);
    assert_eq!(checksum(&packet.bytes()[ip..ip + 20]), 0);
    let seen = found(&packet, ip);
    assert!(strip(&mut packet, ip, &seen, Goes::ToHost));
    let (came, sent) = (&packet.bytes()[ip..], &bytes[ip..]);
    assert_eq!((checksum(&came[..20]), &came[20..]), (0, &sent[20..]));
}

#[test]
fn what_is_not_exactly_a_stack_of_this_network_is_foreign_or_malformed() {
    let shape = Shape { tags: 0, ipv6: false, more: 0, tos: 0, padding: 0 };
    let segment = Segment { protocol: UDP, bytes: [0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4].to_vec() };
    let (bytes, ip) = frame(&shape, &segment, Sum::None);
    let mut packet = Frame::with_headroom(128, &bytes);
    let asked = insertion(Instructions::DEFAULT, 6);
    push::source(&mut packet, ip, (&asked, &Hop::UNKNOWN), 0, 1500).unwrap();
    let pushed = packet.bytes().to_vec();
    let stack = ip + 28;
    let seen = |at: usize, byte: u8| {
        let mut bytes = pushed.clone();
        bytes[at] = byte;
        match look(&Frame::new(bytes), ip, ours()) {
            Seen::Stack(_) => "stack",
            Seen::Foreign => "foreign",
            Seen::Malformed => "malformed",
            Seen::Fragment => "fragment",
        }
    };
    assert_eq!(seen(0, 2), "stack");
    let foreign = [
        (0, 0x20),
        (0, 0x14),
        (0, 0x11),
        (2, 1),
        (3, 1),
        (4, 0x10),
        (4, 0x21),
        (5, 1),
        (6, 0x22),
        (10, 0),
        (11, 0),
        (12, 1),
        (15, 1),
    ];
    for (at, byte) in foreign {
        assert_eq!(seen(stack + at, byte), "foreign", "byte {at} {byte:02x}");
    }
    // Length below the header, not a multiple of the hop's, beyond the datagram; Hop ML that is
    // not the bitmap's, and bitmaps that are not Hop ML's.
    for (at, byte) in [(1, 2), (1, 4), (1, 7), (6, 1), (6, 0), (8, 0xE0), (8, 0)] {
        assert_eq!(seen(stack + at, byte), "malformed", "byte {at} {byte:02x}");
    }
    for byte in [0x28, 0x24, 0x22] {
        assert_eq!(seen(stack + 4, byte), "stack", "flags {byte:02x}");
    }
    assert_eq!(seen(ip + 6, 0x20), "fragment");
    assert_eq!(seen(ip + 7, 5), "foreign", "a later fragment");
    // Headers that were damaged on the way: the stack is still there, and can't be taken out.
    let damaged = [(0, 0x44), (2, 0xFF), (3, 24), (9, 132), (9, 1), (24, 0xFF), (25, 7)];
    for (at, byte) in damaged {
        assert_eq!(seen(ip + at, byte), "malformed", "IP byte {at} {byte:02x}");
    }
    assert_eq!(look(&Frame::new(bytes), ip, ours()), Seen::Foreign, "a packet without a stack");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever packet takes a stack, and whatever switches push: a sink reads what they have
    /// pushed, and the packet goes on with the bytes it came with. In between, its checksums are as
    /// right as they were.
    #[test]
    fn stripping_undoes_pushing(
        (shape, segment, sum) in (shapes(), segments(), sums()),
        asked in instructions(),
        hops in hops(),
        most in 1u8..=16,
        mtu in 100usize..600,
        mark in prop::option::of(0u8..8),
        (ecn, others) in (0u8..4, 0u8..4),
    ) {
        let (before, ip) = frame(&shape, &segment, sum);
        let l4 = before.len() - segment.bytes.len() - shape.padding;
        let mut packet = Frame::with_headroom(1024, &before);
        let asked = insertion(asked, most);
        let dscp = shape.tos >> 2;
        // As a source does: the mark is written first, and the host's marker goes.
        set_tos_bits(packet.bytes_mut(), ip, MARKER, 0);
        if let Some(bits) = mark {
            PlainTos::default().write(packet.bytes_mut(), ip, Mark::from_bits(bits));
        }
        let marked = packet.clone();
        let len = before.len() - ETHERNET;
        let mut pushed = match push::source(&mut packet, ip, (&asked, &hops[0]), dscp, mtu) {
            Err(why) => {
                prop_assert_eq!(&packet, &marked, "{:?}", why);
                let fits = len + HEADERS <= mtu;
                let wanted = if fits { NotCarried::Checksum } else { NotCarried::Mtu };
                prop_assert_eq!(why, wanted);
                return Ok(());
            }
            Ok(Pushed::Hop) => vec![hops[0]],
            Ok(other) => {
                prop_assert_eq!(other, Pushed::NoRoom);
                Vec::new()
            }
        };
        let mut missing = pushed.is_empty();
        for hop in &hops[1..] {
            as_right(&before, packet.bytes(), ip, l4);
            let seen = found(&packet, ip);
            prop_assert_eq!(seen.header.original, Original::Dscp(dscp));
            match push::transit(&mut packet, &seen, hop, mtu) {
                Pushed::Hop => pushed.push(*hop),
                Pushed::NoHops => {
                    prop_assert_eq!(seen.header.remaining, 0);
                    missing = true;
                }
                other => {
                    prop_assert_eq!(other, Pushed::NoRoom);
                    missing = true;
                }
            }
            prop_assert!(packet.bytes().len() - ETHERNET <= mtu.max(len));
        }
        prop_assert!(pushed.len() <= usize::from(most));
        as_right(&before, packet.bytes(), ip, l4);
        // Congestion is marked, and other systems have used the bits that are not the mark's.
        set_tos_bits(packet.bytes_mut(), ip, 0b1111, others << 2 | ecn);
        prop_assert!(tos(&packet, ip) & MARKER != 0);
        let seen = found(&packet, ip);
        let mut stack = Stack::EMPTY;
        read(&packet, &seen, &mut stack);
        let wanted: Vec<Hop> =
            pushed.into_iter().map(|hop| as_asked(hop, asked.instructions)).collect();
        prop_assert_eq!(stack.hops().collect::<Vec<_>>(), wanted);
        prop_assert_eq!(stack.is_partial, missing);
        prop_assert!(could_be_taken(&packet, ip));
        prop_assert!(strip(&mut packet, ip, &seen, Goes::ToHost));
        let mut wanted = Frame::new(before);
        set_tos_bits(wanted.bytes_mut(), ip, 0b11, ecn);
        prop_assert_eq!(packet.bytes(), wanted.bytes());
    }

    /// A stack that is taken out on the way leaves the mark, and the marker is gone.
    #[test]
    fn a_stack_that_is_taken_out_on_the_way_leaves_the_mark(
        shape in shapes(), segment in segments(), bits in 0u8..8,
    ) {
        let (before, ip) = frame(&shape, &segment, Sum::Right);
        let mut packet = Frame::with_headroom(128, &before);
        set_tos_bits(packet.bytes_mut(), ip, MARKER, 0);
        PlainTos::default().write(packet.bytes_mut(), ip, Mark::from_bits(bits));
        let marked = packet.clone();
        let asked = insertion(Instructions::DEFAULT, 3);
        if push::source(&mut packet, ip, (&asked, &Hop::UNKNOWN), shape.tos >> 2, 9000).is_ok() {
            let seen = found(&packet, ip);
            prop_assert!(strip(&mut packet, ip, &seen, Goes::On));
        }
        prop_assert_eq!(packet.bytes(), marked.bytes());
    }

    /// Behind a mark's shim, the headers are found all the same.
    #[test]
    fn a_shim_before_the_headers_hides_nothing(
        shape in shapes(), segment in segments(), bits in 0u8..8,
    ) {
        let (before, ip) = frame(&shape, &segment, Sum::Right);
        let shim = Shim::default();
        let mut packet = Frame::with_headroom(128, &before);
        prop_assert_eq!(ip_offset(packet.bytes(), Carrier::default()), Some(ip));
        let mark = Mark::of_epoch(u64::from(bits), Hierarchy::from_bits(bits));
        Carry::write(shim, &mut packet, ip, mark);
        let behind = ip_offset(packet.bytes(), Carrier::Shim(shim));
        prop_assert_eq!(behind, Some(ip + 4));
        prop_assert_eq!(ip_offset(packet.bytes(), Carrier::default()), None);
        let asked = insertion(Instructions::DEFAULT, 3);
        let dscp = carrier::tos_byte(&before, ip) >> 2;
        if push::source(&mut packet, ip + 4, (&asked, &Hop::UNKNOWN), dscp, 9000).is_ok() {
            let seen = found(&packet, ip + 4);
            prop_assert!(strip(&mut packet, ip + 4, &seen, Goes::ToHost));
        }
        prop_assert_eq!(Carry::take(shim, &mut packet, ip), Some(mark));
        prop_assert_eq!(packet.bytes(), &before[..]);
    }

    /// Whatever the bytes: nothing panics, and what is found can be extended and taken out.
    #[test]
    fn arbitrary_bytes_never_panic(
        (shape, segment, sum) in (shapes(), segments(), sums()),
        changes in prop::collection::vec((0usize..140, any::<u8>()), 0..6),
        cut in 0usize..140,
        more in 0usize..40,
        mtu in 0usize..300,
        with_stack: bool,
    ) {
        let (before, ip) = frame(&shape, &segment, sum);
        let mut packet = Frame::with_headroom(128, &before);
        let asked = insertion(Instructions::DEFAULT, 2);
        if with_stack {
            let _ = push::source(&mut packet, ip, (&asked, &Hop::UNKNOWN), 0, 9000);
        }
        let mut bytes = packet.bytes().to_vec();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 4));
        let mut packet = Frame::with_headroom(64, &bytes).cut_from(bytes.len() + more);
        let _ = push::source(&mut packet.clone(), ip, (&asked, &Hop::UNKNOWN), 0, mtu);
        for domains in [Domains::ANY, ours()] {
            let Seen::Stack(seen) = look(&packet, ip, domains) else { continue };
            let before = packet.clone();
            let mut stack = Stack::EMPTY;
            read(&packet, &seen, &mut stack);
            prop_assert!(stack.len() <= MOST_HOPS);
            if push::transit(&mut packet, &seen, &Hop::UNKNOWN, mtu) == Pushed::Nothing {
                prop_assert_eq!(packet.bytes(), before.bytes());
            }
            if let Seen::Stack(seen) = look(&packet, ip, domains) {
                strip(&mut packet, ip, &seen, Goes::ToHost);
            }
            packet = before;
        }
    }
}
