//! Packets through an ingress and an egress edge with every carrier: they come out as they went in,
//! both edges measure the same, and what no edge has marked is never encoded.

use std::fs;
use std::path::Path;

use crate::passage::{CARRIERS, Edge, Passage, cut, whole};
use calumma_edge::carrier::{Carrier, Carry, Mark, SignedTos};
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::tunnel::{Inside, Tunnels};
use calumma_edge::parse::{Malformed, Unmeasured};
use calumma_edge::worker::{DropMask, Policy};
use calumma_sketch::BURST;
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
                Tunnels::Outer => (8, 0),
                Tunnels::Inner => (7, 1),
            };
            let flow_label = matches!(carrier, Carrier::FlowLabel(_));
            let recorded = inner_ipv4 + if flow_label { 0 } else { ipv4 };
            assert_eq!(counters.ingress_recorded, recorded, "{name}, {tunnels:?}");
            let no_carrier = counters.unmeasured[Unmeasured::NoCarrier as usize];
            assert_eq!(no_carrier, if flow_label { ipv4 } else { 0 }, "{name}, {tunnels:?}");
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
        assert_eq!((counters.egress_unmarked, counters.egress_recorded), (2, 0), "{name}");
    }
}

#[test]
fn a_shim_that_no_edge_has_made_is_dropped_at_the_networks_border() {
    let [.., (_, carrier)] = CARRIERS;
    let policy = Policy { carrier, ..Policy::default() };
    let packet = udp(0, [1, 2], [1, 2], &[]);
    let shim = |mark: u8| tagged(&packet, [0x88, 0xB5, 0xCA, mark]);
    let (right, other_version) = (shim(0x41), shim(0x42));

    let mut entry = Edge::new(policy);
    let drops = entry.worker.ingress(&mut frames(&[right.clone(), packet.clone()]));
    assert_eq!(drops, DropMask(0b01), "a host's, however right");
    assert_eq!(entry.worker.counters.dropped_unmeasured, 1);

    let mut exit = Edge::new(policy);
    let mut arrived =
        frames(&[right.clone(), other_version, tagged(&right, [0x88, 0xB5, 0xCA, 0x41])]);
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

/// Packets in a capture file, at most `most` of them: bytes and length on the wire.
fn capture(path: &Path, most: usize) -> Vec<(Vec<u8>, usize)> {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut packets = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() && packets.len() < most {
        let (len, wire_len) = (word(at + 8), word(at + 12));
        packets.push((bytes[at + 16..at + 16 + len].to_vec(), wire_len));
        at += 16 + len;
    }
    packets
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
        packets.extend(capture(&path, usize::MAX));
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

/// The bits of every carrier as `docs/contract.md` gives them, computed from that page alone: what
/// a packet of each family looks like once it is marked.
fn vectors() -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let marks: Vec<Value> = (0..8_u8)
        .map(|mark| {
            let plain = 0xAB & 0x1F | mark << 5;
            let signed = 0xAB & 0x03 | 0b011 << 2 | mark << 5;
            let of_class = |class: u8| 0x6001_2345 | u32::from(class) << 20;
            let label = u32::from(mark) << 17 | 0x1_CA1A;
            json!({
                "timestamp bit": mark >> 2,
                "hierarchy": mark & 3,
                "ToS byte of ab": format!("{plain:02x}"),
                "ToS byte of ab, with a signature": format!("{signed:02x}"),
                "first word of IPv6 of 6ab12345": format!("{:08x}", of_class(plain)),
                "the same, with a signature": format!("{:08x}", of_class(signed)),
                "the same, by its flow label": format!("{:08x}", 0x6AB0_0000 | label),
                "shim before IPv4": hex(&[0x88, 0xB5, 0xCA, mark << 5 | 1, 8, 0]),
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

    fn marked(carrier: impl Carry, packet: &[u8], bits: u8) -> String {
        let mut frame = whole(packet);
        carrier.write(&mut frame, 14, Mark::from_bits(bits));
        frame.bytes()[12..18].iter().map(|byte| format!("{byte:02x}")).collect()
    }
    let [(_, Carrier::Tos(tos)), _, (_, Carrier::FlowLabel(label)), (_, Carrier::Shim(shim))] =
        CARRIERS
    else {
        panic!("one of each kind");
    };
    let signed = SignedTos::default();
    let ipv4 = udp(0xAB, [1, 2], [1, 2], &[]);
    let ipv6 = ipv6(0x6AB1_2345, 59, &[]);
    for (bits, vector) in vectors().as_array().unwrap().iter().enumerate() {
        let bits = bits as u8;
        for (name, from, seen) in [
            ("ToS byte of ab", 6..8, marked(tos, &ipv4, bits)),
            ("ToS byte of ab, with a signature", 6..8, marked(signed, &ipv4, bits)),
            ("first word of IPv6 of 6ab12345", 4..12, marked(tos, &ipv6, bits)),
            ("the same, with a signature", 4..12, marked(signed, &ipv6, bits)),
            ("the same, by its flow label", 4..12, marked(label, &ipv6, bits)),
            ("shim before IPv4", 0..12, marked(shim, &ipv4, bits)),
        ] {
            assert_eq!(vector[name], seen[from], "{name}");
        }
    }
}
