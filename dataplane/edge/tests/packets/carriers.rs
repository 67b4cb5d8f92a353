//! Packets through an ingress and an egress edge with every carrier: they come out as they went in,
//! both edges measure the same, and what no edge has marked is never encoded.

use std::fs;
use std::path::Path;

use crate::captured::captured;
use crate::passage::{CARRIERS, Edge, Passage, cut, whole};
use calumma_edge::carrier::{
    Carrier, Carry, FlowLabel, IpId, Mark, Numbers, SignedTos, Signer, Tos, Way,
};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::tunnel::{Inside, Tunnels};
use calumma_edge::parse::{Malformed, Unmeasured};
use calumma_edge::worker::{DropMask, Policy, Treatment, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::{Hierarchy, LcoreMerger};
use calumma_sketch::{BURST, KeyKind};
use calumma_wire::Secret;
use proptest::prelude::*;
use serde_json::{Value, json};

/// An Ethernet frame with an IPv4/UDP packet between these hosts and ports, with the right
/// checksum.
fn udp(tos: u8, hosts: [u8; 2], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let [high, low] = ((28 + payload.len()) as u16).to_be_bytes();
    frame.extend_from_slice(&[8, 0, 0x45, tos, high, low, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&[10, 0, 0, hosts[0], 10, 0, 0, hosts[1]]);
    let sum = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = sum.sum::<u32>();
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// An Ethernet frame with an IPv6 packet.
fn ipv6(first_word: u32, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend_from_slice(&[0x86, 0xDD]);
    frame.extend_from_slice(&first_word.to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[protocol, 64]);
    frame.extend_from_slice(&[0xFD; 32]);
    frame.extend_from_slice(payload);
    frame
}

/// The same IPv4 packet with other fragmentation bits and another protocol.
fn fragmented(frame: &[u8], word: u16, protocol: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let before = u32::from(u16::from_be_bytes([frame[24], frame[25]]));
    let changed = u32::from(word) + u32::from(protocol) - u32::from(frame[23]);
    let sum = u32::from(!(before as u16)) + changed;
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    frame[20..22].copy_from_slice(&word.to_be_bytes());
    frame[23] = protocol;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn vxlan(inner: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 0, 42, 0], inner].concat()
}

/// One packet of each kind that is treated in a way of its own.
fn kinds() -> Vec<Vec<u8>> {
    let plain = udp(0xB8, [1, 2], [40_000, 5_201], b"payload");
    let in_vxlan = vxlan(&plain);
    let outer_header = [&[0x9C, 0x40, 0x12, 0xB5, 0, 0, 0, 0], &in_vxlan[..]].concat();
    let mut arp = plain.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    vec![
        plain.clone(),
        fragmented(&plain, 0x4000, 17),
        fragmented(&plain, 0x2000, 17),
        fragmented(&plain, 0x0005, 17),
        fragmented(&plain, 0x4000, 51),
        tagged(&plain, [0x81, 0, 0, 7]),
        tagged(&tagged(&plain, [0x81, 0, 0, 7]), [0x88, 0xA8, 0, 9]),
        udp(0x03, [3, 4], [1, 4789], &in_vxlan),
        udp(0x03, [3, 4], [1, 4789], &vxlan(&ipv6(0x6000_0000, 58, &[128, 0, 0, 0]))),
        udp(0x03, [3, 4], [1, 4789], &vxlan(&arp)),
        udp(0x03, [3, 4], [1, 4789], &vxlan(&plain[..30])),
        udp(0x03, [3, 4], [1, 6081], &[&[0, 0, 0x65, 0x58, 0, 0, 42, 0], &plain[..]].concat()),
        ipv6(0x6B81_2345, 17, &[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0]),
        ipv6(0x6B81_2345, 17, &outer_header),
        ipv6(0x6B83_CA1A, 44, &[17, 0, 8, 0, 0, 0, 0, 7, 1, 2, 3, 4]),
        arp,
        plain[..30].to_vec(),
        Vec::new(),
    ]
}

fn frames(packets: &[Vec<u8>]) -> Vec<Frame> {
    packets.iter().map(|bytes| whole(bytes)).collect()
}

#[test]
fn packets_of_every_kind_leave_the_network_as_they_entered_it() {
    for (name, carrier) in CARRIERS {
        for tunnels in [Tunnels::Outer, Tunnels::Inner] {
            let mut passage = Passage::new(carrier, tunnels);
            passage.pass(&frames(&kinds()));
            let counters = &passage.entry.worker.counters;
            let inside = match tunnels {
                Tunnels::Outer => [0; 3],
                Tunnels::Inner => [4, 1, 1],
            };
            assert_eq!(counters.tunnelled, inside, "{name}: by {:?}", Inside::ALL);
            // Of IPv6 packets only the one with IPv4 inside can be measured, of IPv4 packets only
            // the one with IPv6 inside can't.
            let (ipv4, inner_ipv4) = match tunnels {
                Tunnels::Outer => (12, 0),
                Tunnels::Inner => (11, 1),
            };
            let without = match carrier {
                Carrier::FlowLabel => ipv4,
                Carrier::IpId => 3,
                _ => 0,
            };
            let recorded = inner_ipv4 + ipv4 - without;
            assert_eq!(counters.ingress_recorded, recorded, "{name}, {tunnels:?}");
            let no_carrier = counters.unmeasured[Unmeasured::NoCarrier as usize];
            assert_eq!(no_carrier, without, "{name}, {tunnels:?}");
        }
    }
}

#[test]
fn what_no_edge_has_marked_is_counted_and_neither_encoded_nor_changed() {
    for (name, carrier) in CARRIERS {
        if let Carrier::Tos(_) = carrier {
            continue; // Its three bits can't tell.
        }
        let mut exit = Edge::new(Policy { carrier, ..Policy::default() });
        let packets = [udp(0xB8, [1, 2], [1, 2], &[]), udp(0, [1, 2], [1, 2], &[])];
        let mut arrived = frames(&packets);
        assert_eq!(exit.worker.egress(&mut arrived), DropMask::default());
        for (frame, packet) in arrived.iter().zip(&packets) {
            assert_eq!(frame.bytes(), packet, "{name}");
        }
        let counters = &exit.worker.counters;
        assert_eq!(counters.egress_recorded, 0, "{name}");
        // In IPv4 there is no flow label that could have said it.
        let no_carrier = counters.unmeasured[Unmeasured::NoCarrier as usize];
        let wanted = if carrier == Carrier::FlowLabel { (0, 2) } else { (2, 0) };
        assert_eq!((counters.egress_unmarked, no_carrier), wanted, "{name}");
    }
}

/// What can carry no mark enters without one: no flow has left there without its mark.
#[test]
fn what_can_carry_no_mark_is_not_measured_before_a_hosts_own_sink_either() {
    let packets =
        [udp(0, [1, 2], [1, 2], &[]), ipv6(0x6000_0000, 17, &[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0])];
    for (name, carrier) in CARRIERS {
        for unmeasured in [Treatment::Forward, Treatment::Drop] {
            let policy = Policy { carrier, unmeasured, ..Policy::default() };
            let [mut entry, mut exit] = [(); 2].map(|()| Edge::by_keys(policy, KeyKind::Dual));
            let mut arrived = frames(&packets);
            let drops = entry.worker.ingress(&mut arrived);
            let sent: Vec<_> = arrived.iter().map(|frame| frame.bytes().to_vec()).collect();
            assert_eq!(exit.worker.hand_on(&mut arrived), drops, "{name}");
            for (frame, sent) in arrived.iter().zip(&sent) {
                assert_eq!(frame.bytes(), sent, "{name}: it goes on as it came");
            }
            let (entered, left) = (&entry.worker.counters, &exit.worker.counters);
            assert_eq!((left.egress_recorded, left.egress_unmarked), (entered.ingress_recorded, 0));
            assert_eq!(left.unmeasured, entered.unmeasured, "{name}");
            let without = u64::from(carrier == Carrier::FlowLabel);
            assert_eq!(left.unmeasured[Unmeasured::NoCarrier as usize], without, "{name}");
        }
    }
}

/// A restarted edge forwards before its controller has said what is measured, or by which secret.
#[test]
fn an_edge_without_a_session_hands_no_marks_to_hosts() {
    let packets = [
        fragmented(&udp(0, [1, 2], [1, 2], &[]), 0x4000, 17),
        ipv6(0x6000_0000, 17, &[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0]),
    ];
    for (name, carrier) in CARRIERS {
        let policy = Policy { carrier, ..Policy::default() };
        let mut entry = Edge::by_keys(policy, KeyKind::Dual);
        let mut arrived = frames(&packets);
        entry.worker.ingress(&mut arrived);
        let carried = if carrier == Carrier::FlowLabel { 1 } else { 2 };
        assert_eq!(entry.worker.counters.ingress_recorded, carried, "{name}");
        assert_ne!(arrived[1].bytes(), packets[1], "{name}");

        let (_merger, mut mailboxes) = LcoreMerger::new(1);
        let mut exit = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        exit.egress(&mut arrived);
        for (frame, packet) in arrived.iter().zip(&packets) {
            let mut wanted = packet.clone();
            if let Carrier::Tos(tos) = carrier {
                // What the mark has covered.
                restore_class(&mut wanted, 0xE0, tos.dscp);
            } else if let Carrier::SignedTos(tos) = carrier {
                restore_class(&mut wanted, 0xFC, tos.dscp);
            }
            assert_eq!(frame.bytes()[14..24], wanted[14..24], "{name}");
        }
        let counters = exit.counters;
        assert_eq!((counters.egress_recorded, counters.egress_unmarked), (0, 0), "{name}");
        assert_eq!(counters.egress_unrecorded, carried, "{name}");
    }
}

/// A switch that leaves its carrier to the controller: before the first session nothing is done to
/// packets, then it is the session's.
#[test]
fn a_session_brings_its_carrier_and_no_packet_is_changed_before() {
    const SECRET: Secret = Secret { key: [7; 32], generators: calumma_wire::Generators::Secret };
    let packet = fragmented(&udp(0xE3, [1, 2], [1, 2], &[]), 0x4000, 17);
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let policy = Policy { carrier: Carrier::Unchosen, ..Policy::default() };
    let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    for pass in [Worker::ingress, Worker::egress] {
        let mut arrived = frames(std::slice::from_ref(&packet));
        pass(&mut worker, &mut arrived);
        assert_eq!(arrived[0].bytes(), packet);
    }
    let counters = worker.counters;
    assert_eq!((counters.ingress_unrecorded, counters.egress_unrecorded), (1, 1));

    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    let mut epoch = 11;
    for carrier in [Carrier::IpId, Carrier::Tos(Tos { dscp: 0x38 }), Carrier::IpId] {
        merger.set_carrier(Some(carrier));
        merger.begin(clock, epoch, SECRET, KeyKind::Ipv4, Vec::new());
        worker.advance_to(clock.start_of(epoch) + 25_000_000);
        let mut arrived = frames(std::slice::from_ref(&packet));
        worker.ingress(&mut arrived);
        let signer = Signer::new(SECRET, epoch);
        let numbers = Numbers::new();
        let by_id = IpId::new(Some(&signer), &numbers);
        let wanted = Mark::of_epoch(epoch, Hierarchy::NonSampledLl);
        let bytes = arrived[0].bytes();
        if carrier == Carrier::IpId {
            assert_eq!((by_id.read(&arrived[0], 14), bytes[15]), (Some(wanted), packet[15]));
        } else {
            assert_eq!((bytes[15] >> 5, &bytes[18..20]), (wanted.bits(), &packet[18..20]));
        }
        worker.egress(&mut arrived);
        assert_eq!(arrived[0].bytes(), packet, "{carrier:?}");
        epoch += 5;
    }
    // The settings may be read again meanwhile.
    worker.set_policy(policy);
    let mut arrived = frames(std::slice::from_ref(&packet));
    worker.ingress(&mut arrived);
    assert_ne!(arrived[0].bytes()[18..20], packet[18..20]);
}

/// Gives a packet's traffic class these bits of a DSCP.
fn restore_class(packet: &mut [u8], mask: u8, dscp: u8) {
    let word = u16::from_be_bytes([packet[14], packet[15]]);
    let (mask, class) = (u16::from(mask), u16::from(dscp << 2));
    let shift = if word >> 12 == 6 { 4 } else { 0 };
    let word = word & !(mask << shift) | (class & mask) << shift;
    packet[14..16].copy_from_slice(&word.to_be_bytes());
}

/// Of what the last session measured, the next one's marks are: IPv6 is not marked where keys are
/// those of IPv4, so nothing is taken out of it.
#[test]
fn where_keys_are_of_ipv4_a_switch_without_a_session_leaves_ipv6_alone() {
    let (name, carrier) = CARRIERS[0];
    let policy = Policy { carrier, keys: Some(KeyKind::Ipv4), ..Policy::default() };
    let (_merger, mut mailboxes) = LcoreMerger::new(1);
    let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    let packet = ipv6(0x6B81_2345, 17, &[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0]);
    for pass in [Worker::ingress, Worker::egress] {
        let mut arrived = frames(std::slice::from_ref(&packet));
        pass(&mut worker, &mut arrived);
        assert_eq!(arrived[0].bytes(), packet, "{name}");
    }
}

#[test]
fn a_shim_that_no_edge_has_made_is_dropped_at_the_networks_border() {
    let [.., (_, carrier)] = CARRIERS;
    let policy = Policy { carrier, ..Policy::default() };
    let packet = udp(0, [1, 2], [1, 2], &[]);
    let shim = |mark: u8| tagged(&packet, [0x88, 0xB5, 0xCA, mark]);
    // Of epoch 10: t 0, hh 2, ee 1, version 2.
    let (right, other_version) = (shim(0x4A), shim(0x48));

    let mut entry = Edge::new(policy);
    let drops = entry.worker.ingress(&mut frames(&[right.clone(), packet.clone()]));
    assert_eq!(drops, DropMask(0b01), "a host's, however right");
    assert_eq!(entry.worker.counters.dropped_unmeasured, 1);

    let mut exit = Edge::new(policy);
    let mut arrived =
        frames(&[right.clone(), other_version, tagged(&right, [0x88, 0xB5, 0xCA, 0x4A])]);
    let drops = exit.worker.egress(&mut arrived);
    assert_eq!(drops, DropMask(0b110), "one of another version, and one in another");
    assert_eq!(arrived[0].bytes(), packet);
    let foreign = exit.worker.counters.unmeasured[Unmeasured::ForeignShim as usize];
    assert_eq!((exit.worker.counters.egress_recorded, foreign), (1, 2));
}

#[test]
fn a_marked_packet_that_broke_on_its_way_loses_its_shim_all_the_same() {
    let [.., (_, carrier)] = CARRIERS;
    let mut exit = Edge::new(Policy { carrier, ..Policy::default() });
    let cut = &udp(0, [1, 2], [1, 2], &[0xAB; 9])[..40];
    let mut arrived = frames(&[tagged(cut, [0x88, 0xB5, 0xCA, 0xC1])]);
    exit.worker.egress(&mut arrived);
    assert_eq!(arrived[0].bytes(), cut);
    let counters = &exit.worker.counters;
    assert_eq!(counters.malformed[Malformed::Ipv4TotalLength as usize], 1);
    assert_eq!(counters.egress_recorded, 0);
}

/// A small generator, so that a failure names its packet by a number.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Changes up to four bytes, most of them where headers lie, and sometimes the length.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len().min(64));
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ 1 << random.below(8),
                1 => [0, 0xFF, 0x81, 0x88, 0xB5, 0xDD, 0x60, 0x45][random.below(8)],
                _ => random.below(256) as u8,
            };
        }
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len() + 1));
    }
}

#[test]
fn real_packets_and_mutants_of_them_leave_the_network_as_they_entered_it() {
    let mut packets: Vec<(Vec<u8>, usize)> =
        kinds().into_iter().map(|bytes| (bytes.clone(), bytes.len())).collect();
    // Without it, made packets only.
    if let Some(path) = calumma_testenv::capture("mixed-captures.pcap") {
        packets.extend(captured(&path, usize::MAX));
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut passages: Vec<Passage> = CARRIERS
        .into_iter()
        .flat_map(|(_, carrier)| {
            [Tunnels::Outer, Tunnels::Inner].map(|tunnels| Passage::new(carrier, tunnels))
        })
        .collect();
    let mutants = 1_000_000 / packets.len();
    let mut burst = Vec::with_capacity(BURST);
    for (bytes, wire_len) in &packets {
        for mutant in 0..=mutants {
            let mut bytes = bytes.clone();
            if mutant > 0 {
                mutate(&mut bytes, &mut random);
            }
            burst.push(cut(&bytes, *wire_len));
            if burst.len() == BURST {
                passages.iter_mut().for_each(|passage| passage.pass(&burst));
                burst.clear();
            }
        }
    }
    for passage in &passages[..2] {
        let counters = &passage.entry.worker.counters;
        assert!(counters.ingress_recorded > 100_000);
        assert!(counters.malformed.iter().filter(|kind| **kind > 0).count() >= 8, "{counters:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_leave_the_network_as_they_entered_it(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..BURST),
        ether_type in prop::sample::select(vec![0x0800_u16, 0x86DD, 0x8100, 0x88B5]),
        first in prop::sample::select(vec![0x45_u8, 0x46, 0x60, 0xCA]),
    ) {
        let mut packets = packets;
        for bytes in packets.iter_mut().filter(|bytes| bytes.len() > 20) {
            bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
            bytes[14] = first;
            bytes[16..18].copy_from_slice(&[0, 20]);
        }
        for (_, carrier) in CARRIERS {
            Passage::new(carrier, Tunnels::Inner).pass(&frames(&packets));
        }
    }
}

/// The golden packets are marked under this key, in epochs 1004 and 1005.
fn golden_secret() -> [u8; 32] {
    std::array::from_fn(|at| at as u8)
}

/// A block of RFC 8439's key stream, as 64-bit words.
fn chacha20(key: [u8; 32], nonce: [u32; 3], counter: u32) -> [u64; 8] {
    let mut state = [0; 16];
    state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646E, 0x7962_2D32, 0x6B20_6574]);
    for (word, bytes) in state[4..12].iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    state[12] = counter;
    state[13..].copy_from_slice(&nonce);
    let mut block: [u32; 16] = state;
    for _ in 0..10 {
        let columns = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
        let diagonals = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];
        for [a, b, c, d] in columns.into_iter().chain(diagonals) {
            for (sum, of, turned, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]
            {
                block[sum] = block[sum].wrapping_add(block[of]);
                block[turned] = (block[turned] ^ block[sum]).rotate_left(by);
            }
        }
    }
    let word = |at: usize| u64::from(block[at].wrapping_add(state[at]));
    std::array::from_fn(|at| word(2 * at) | word(2 * at + 1) << 32)
}

/// What is added to the signatures of an epoch.
fn pad(epoch: u32) -> u64 {
    chacha20(golden_secret(), [1, epoch, 0], 0)[0]
}

/// The signature of an IPv4 packet, by its addresses and protocol, bit by bit.
fn ipv4_signature(epoch: u32, source: u32, destination: u32, protocol: u8) -> u8 {
    let [source_by, others_by, ..] = chacha20(golden_secret(), [5, 0, 0], 0);
    let others = u64::from(destination) << 8 | u64::from(protocol);
    let mut sum = pad(epoch);
    for (number, factor) in [(u64::from(source), source_by), (others, others_by)] {
        for bit in (0..64).filter(|bit| number >> bit & 1 == 1) {
            sum ^= factor << bit;
        }
    }
    (sum >> 56) as u8
}

/// The sum of an IPv6 packet's signature: of its addresses, word by word, and its next header.
fn ipv6_sum(epoch: u32, source: &[u32; 4], destination: &[u32; 4], protocol: u8) -> u64 {
    let factors = [0, 1].map(|counter| chacha20(golden_secret(), [2, 0, 0], counter));
    let m = |at: usize| factors.as_flattened()[at];
    let pairs = source.iter().zip(destination).enumerate();
    let sum = pairs.fold(pad(epoch), |sum, (at, (&source, &destination))| {
        let source = m(2 * at).wrapping_add(source.into());
        let destination = m(2 * at + 1).wrapping_add(destination.into());
        sum.wrapping_add(source.wrapping_mul(destination))
    });
    sum.wrapping_add(m(8).wrapping_mul(protocol.into()))
}

/// The bits of every carrier as `docs/contract.md` gives them, computed from that page alone: what
/// a packet of each family looks like once it is marked.
fn vectors() -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let marks: Vec<Value> = (0..8_u8)
        .map(|mark| {
            let plain = 0xAB & 0x1F | mark << 5;
            let signed = 0xAB & 0x03 | 0b011 << 2 | mark << 5;
            let of_class = |class: u8| 0x6001_2345 | u32::from(class) << 20;
            let (bit, hierarchy) = (mark >> 2, mark & 3);
            let epoch = 1004 + u32::from(bit);
            let fields = (epoch as u8 & 7) << 5 | hierarchy << 3;
            let of_ipv4 = ipv4_signature(epoch, 0x0A00_0001, 0x0A00_0002, 17);
            let of_ipv6 = ipv6_sum(epoch, &[0xFDFD_FDFD; 4], &[0xFDFD_FDFD; 4], 59) >> 52;
            let label = u32::from(fields) << 12 | of_ipv6 as u32;
            let shim = mark << 5 | (epoch as u8 >> 1 & 3) << 3 | 2;
            let [unclaimed, claimed] = [plain & !0x08, plain | 0x08];
            json!({
                "epoch": epoch,
                "timestamp bit": bit,
                "hierarchy": hierarchy,
                "ToS byte of ab": format!("{plain:02x}"),
                "ToS byte of ab, with a signature": format!("{signed:02x}"),
                "first word of IPv6 of 6ab12345": format!("{:08x}", of_class(plain)),
                "the same, with a signature": format!("{:08x}", of_class(signed)),
                "the same, by its flow label": format!("{:08x}", 0x6AB0_0000 | label),
                "IPv4 identification": hex(&[fields, of_ipv4]),
                "shim before IPv4": hex(&[0x88, 0xB5, 0xCA, shim, 8, 0]),
                "the same, at hop 1 of 3": hex(&[0x88, 0xB5, 0xCA, shim | 1, 1, 3, 8, 0]),
                "ToS byte of ab, not claimed": format!("{unclaimed:02x}"),
                "ToS byte of ab, claimed": format!("{claimed:02x}"),
                "first word of IPv6 of 6ab12345, claimed": format!("{:08x}", of_class(claimed)),
                "its flow label, claimed": format!("{:08x}", 0x6AB0_2000 | label),
                "IPv4 identification, claimed": hex(&[fields | 2, of_ipv4]),
                "shim before IPv4, claimed": hex(&[0x88, 0xB5, 0xCA, shim | 4, 8, 0]),
            })
        })
        .collect();
    json!(marks)
}

#[test]
fn the_golden_vectors_are_those_of_the_page_and_what_the_carriers_write() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/carrier.json");
    let text = serde_json::to_string_pretty(&vectors()).unwrap() + "\n";
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        fs::write(&golden, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(golden).unwrap(), text);

    fn marked(carrier: impl Carry, packet: &[u8], mark: Mark) -> String {
        claimed(carrier, packet, mark, None)
    }

    /// The same where packets have claims.
    fn claimed(carrier: impl Carry, packet: &[u8], mark: Mark, claim: Option<bool>) -> String {
        let mut frame = whole(packet);
        carrier.write(&mut frame, 14, mark);
        if let Some(claim) = claim {
            carrier.set_claim(&mut frame, 14, claim);
            assert_eq!(carrier.claim(&frame, 14), claim);
            let read = carrier.read(&frame, 14).map(Mark::bits);
            assert_eq!(read, Some(mark.bits()), "claims change no mark");
        }
        frame.bytes()[12..20].iter().map(|byte| format!("{byte:02x}")).collect()
    }
    let [(_, Carrier::Tos(tos)), _, _, _, (_, Carrier::Shim(hops)), (_, Carrier::Shim(shim))] =
        CARRIERS
    else {
        panic!("one of each kind");
    };
    let signed = SignedTos::default();
    let (signer, numbers) = (Signer::new(Secret::new(golden_secret()), 1005), Numbers::new());
    let label = FlowLabel { signer: Some(&signer), claims: 0b11, ..FlowLabel::default() };
    let identification = IpId { claims: 0b11, ..IpId::new(Some(&signer), &numbers) };
    let ipv4 = udp(0xAB, [1, 2], [1, 2], &[]);
    let ipv6 = ipv6(0x6AB1_2345, 59, &[]);
    let yes = Some(true);
    for (bits, vector) in vectors().as_array().unwrap().iter().enumerate() {
        let hierarchy = Hierarchy::from_bits(bits as u8);
        let mark = Mark::of_epoch(vector["epoch"].as_u64().unwrap(), hierarchy);
        let at_hop = Mark { way: Some(Way { hop: 1, length: 3 }), ..mark };
        for (name, from, seen) in [
            ("ToS byte of ab", 6..8, marked(tos, &ipv4, mark)),
            ("ToS byte of ab, with a signature", 6..8, marked(signed, &ipv4, mark)),
            ("first word of IPv6 of 6ab12345", 4..12, marked(tos, &ipv6, mark)),
            ("the same, with a signature", 4..12, marked(signed, &ipv6, mark)),
            ("the same, by its flow label", 4..12, marked(label, &ipv6, mark)),
            ("the same, by its flow label", 4..12, marked(identification, &ipv6, mark)),
            ("IPv4 identification", 12..16, marked(identification, &ipv4, mark)),
            ("shim before IPv4", 0..12, marked(shim, &ipv4, mark)),
            ("the same, at hop 1 of 3", 0..16, marked(hops, &ipv4, at_hop)),
            ("ToS byte of ab, not claimed", 6..8, claimed(tos, &ipv4, mark, Some(false))),
            ("ToS byte of ab, claimed", 6..8, claimed(tos, &ipv4, mark, yes)),
            ("first word of IPv6 of 6ab12345, claimed", 4..12, claimed(tos, &ipv6, mark, yes)),
            ("its flow label, claimed", 4..12, claimed(label, &ipv6, mark, yes)),
            ("its flow label, claimed", 4..12, claimed(identification, &ipv6, mark, yes)),
            ("IPv4 identification, claimed", 12..16, claimed(identification, &ipv4, mark, yes)),
            ("shim before IPv4, claimed", 0..12, claimed(shim, &ipv4, mark, yes)),
        ] {
            assert_eq!(vector[name], seen[from], "{name}");
        }
    }
}
