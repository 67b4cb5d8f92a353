//! INT stacks: byte by byte as the golden file has them, and through whole switches. Whatever a
//! host sends and whoever puts a stack into it, another host receives the bytes that were sent.

use std::num::NonZeroU16;

use calumma_edge::carrier::{Carrier, Mark, PlainTos, Shim, SignedTos};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::PlainFlows;
use calumma_edge::parse::tunnel::Tunnels;
use calumma_edge::worker::{Departure, DropMask, Path, Policy, Sent, Worker, first};
use calumma_plane::LcoreMerger;
use calumma_plane::int::header::{Seen, look, set_marker};
use calumma_plane::int::push::{self, NotCarried};
use calumma_plane::int::strip::{Goes, read, strip};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack};
use proptest::prelude::*;
use serde_json::Value;

use crate::inserter::{Node, insertion};

/// Written from the specification's layout (INT_v2_1, sections 5.6 to 5.8), not by this code:
/// packets before, behind the source, behind each switch, behind the sink; and what a sink takes
/// packets for.
pub(crate) const GOLDEN: &str = include_str!("../golden/int.json");

pub(crate) fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap().as_bytes();
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn number<T: TryFrom<u64>>(of: &Value, name: &str) -> Option<T> {
    T::try_from(of.get(name)?.as_u64()?).ok()
}

/// The UDP port that marks packets in a case, if one does.
pub(crate) fn udp_port(case: &Value) -> Option<NonZeroU16> {
    number(case, "udp_port").and_then(NonZeroU16::new)
}

fn domains(case: &Value) -> Domains {
    let mut domains = Domains::default();
    domains.learn(NonZeroU16::new(0xC4A1).unwrap(), udp_port(case));
    domains
}

/// Where the IP header of a frame begins.
pub(crate) fn ip_offset(frame: &[u8]) -> usize {
    calumma_plane::int::header::ip_offset(frame, Carrier::default()).unwrap()
}

fn play(case: &Value) {
    let name = case["name"].as_str().unwrap();
    let before = bytes(&case["before"]);
    let ip = ip_offset(&before);
    let mut packet = Frame::with_headroom(256, &before);
    for step in case["steps"].as_array().unwrap() {
        let hop = Hop {
            node: number(step, "node").unwrap_or_default(),
            latency_ns: number(step, "latency_ns").unwrap_or_default(),
            queued: number(step, "queued").unwrap_or(u32::MAX),
            ingress_ns: number(step, "ingress_ns").unwrap_or(u64::MAX),
            egress_ns: number(step, "egress_ns").unwrap_or(u64::MAX),
            ports: number(step, "ports").unwrap_or(u32::MAX),
            interfaces: ["ingress_interface", "egress_interface"]
                .map(|of| number(step, of).unwrap_or(u32::MAX)),
            utilisation: number(step, "utilisation").unwrap_or(u32::MAX),
        };
        let mtu = number(step, "mtu").unwrap_or_default();
        match step["do"].as_str().unwrap() {
            "source" => {
                let dscp = calumma_plane::int::header::tos(&packet, ip) >> 2;
                set_marker(&mut packet, ip, false);
                let mark = Mark::from_bits(number(case, "mark").unwrap());
                if case["signature"] == true {
                    SignedTos::default().write(packet.bytes_mut(), ip, mark);
                } else {
                    PlainTos::default().write(packet.bytes_mut(), ip, mark);
                }
                let instructions = number(case, "instructions").and_then(Instructions::new);
                let insertion = Insertion {
                    instructions: instructions.unwrap(),
                    udp_port: udp_port(case),
                    ..insertion(1, number(case, "hops").unwrap())
                };
                let pushed = push::source(&mut packet, ip, (&insertion, &hop), dscp, mtu);
                let why = pushed.err().map(NotCarried::name);
                assert_eq!(why, step.get("not_carried").and_then(Value::as_str), "{name}");
            }
            "transit" => {
                let Seen::Stack(found) = look(&packet, ip, domains(case)) else { panic!("{name}") };
                push::transit(&mut packet, &found, &hop, mtu);
            }
            "strip" => {
                let Seen::Stack(found) = look(&packet, ip, domains(case)) else { panic!("{name}") };
                let mut stack = Stack::EMPTY;
                read(&packet, &found, &mut stack);
                let hops = stack.hops().map(|hop| (hop.node, hop.latency_ns));
                let wanted = step["hops"].as_array().unwrap().iter().map(|hop| {
                    let word = |at: usize| hop[at].as_u64().unwrap() as u32;
                    (word(0), word(1))
                });
                assert!(hops.eq(wanted), "{name}: {stack:?}");
                assert_eq!(Some(stack.is_partial), step["partial"].as_bool(), "{name}");
                assert!(strip(&mut packet, ip, &found, Goes::ToHost), "{name}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(hex(packet.bytes()), step["after"].as_str().unwrap(), "{name}: {}", step["do"]);
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn packets_are_byte_by_byte_what_the_specification_says() {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(cases.len(), 67);
    for case in &cases {
        let Some(wanted) = case.get("seen").and_then(Value::as_str) else {
            play(case);
            continue;
        };
        let packet = Frame::new(bytes(&case["before"]));
        let seen = match look(&packet, ip_offset(packet.bytes()), domains(case)) {
            Seen::Stack(found) if found.header.is_discarded() => "discard",
            Seen::Stack(_) => "stack",
            Seen::Foreign => "foreign",
            Seen::Malformed => "malformed",
            Seen::Fragment => "fragment",
        };
        assert_eq!(seen, wanted, "{}", case["name"]);
    }
}

pub(crate) const CARRIERS: [Carrier; 4] = [
    Carrier::Tos(PlainTos { dscp: 8 }),
    Carrier::FlowLabel,
    Carrier::Shim(Shim { ether_type: Shim::LOCAL_EXPERIMENT, hops: false }),
    Carrier::SignedTos(SignedTos { dscp: 8 }),
];

/// What a port takes that is long enough for all.
pub(crate) const MTU: u16 = 1600;

pub(crate) fn policy(carrier: Carrier) -> Policy {
    Policy { carrier, strip: true, ..Policy::default() }
}

/// A source, a switch behind it and a sink.
pub(crate) struct Network {
    pub(crate) nodes: [Node; 3],
}

impl Network {
    fn new(carrier: Carrier, hops: u8) -> Self {
        Self::marking(carrier, hops, None)
    }

    /// The same where a UDP port marks packets.
    pub(crate) fn marking(carrier: Carrier, hops: u8, udp_port: Option<NonZeroU16>) -> Self {
        let insertion = |node| Insertion { udp_port, ..insertion(node, hops) };
        Self { nodes: [1, 2, 3].map(|node| Node::new(policy(carrier), insertion(node))) }
    }

    /// Lets packets pass that nobody drops, each switch 100 ns after the one before, and ports of
    /// that MTU.
    pub(crate) fn pass(&mut self, packets: &mut [Frame], mtu: u16) {
        let all = first(packets.len());
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let worker = &mut node.worker;
            worker.begin();
            let path = [Path::Enter, Path::Transit, Path::Leave][at];
            assert_eq!(worker.pass(path, packets, all, &PlainFlows::NONE), DropMask::default());
            let at_ns = Node::now_ns() + 100 * (at as u64 + 1);
            if worker.asks_departures() {
                worker.depart(packets, all, Departure { at_ns, mtu });
            }
            worker.sent(Sent { accepted: all, refused: 0 });
        }
    }

    pub(crate) fn counters(&self, node: usize) -> calumma_plane::counters::int::IntCounters {
        self.nodes[node].worker.counters.int
    }
}

/// A UDP packet of IPv4 with right checksums; `tos` and payload are the host's.
pub(crate) fn udp(tos: u8, payload: &[u8]) -> Vec<u8> {
    let golden: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    let case = golden.iter().find(|case| case["name"] == "UDP over IPv4").unwrap();
    let mut frame = bytes(&case["before"])[..42].to_vec();
    frame.extend(payload);
    frame[15] = tos;
    frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    frame[38..40].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame[40..42].fill(0);
    frame[24..26].fill(0);
    let sum = calumma_plane::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub(crate) fn frames(packets: &[Vec<u8>]) -> Vec<Frame> {
    packets.iter().map(|packet| Frame::with_headroom(128, packet)).collect()
}

/// The hosts' packets of the golden file, where no port marks packets.
fn hosts() -> Vec<Vec<u8>> {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    let of_hosts = cases.iter().filter(|case| case["steps"][0]["do"] == "source");
    let of_hosts = of_hosts.filter(|case| udp_port(case).is_none());
    of_hosts.map(|case| bytes(&case["before"])).collect()
}

#[test]
fn a_sink_is_shown_what_switches_have_met_and_hosts_receive_what_was_sent() {
    for carrier in CARRIERS {
        let mut network = Network::new(carrier, 6);
        let sent = hosts();
        let mut packets = frames(&sent);
        network.pass(&mut packets, MTU);
        let [_, transit, sink] = &network.nodes;
        assert_eq!(transit.shown().stacks.len(), 0);
        let shown = sink.shown();
        let [source, passed, left] = [0, 1, 2].map(|node| network.counters(node));
        // Fragments carry none; nor does IPv4 where there is no place for its mark.
        let fragments = source.not_carried[NotCarried::Fragment as usize];
        let measured = if carrier == Carrier::FlowLabel { 3 } else { sent.len() as u64 };
        assert_eq!(source.inserted + fragments, measured, "{carrier:?}");
        assert_eq!(fragments, if carrier == Carrier::FlowLabel { 0 } else { 2 });
        assert_eq!((passed.pushed, left.stripped), (source.inserted, source.inserted));
        assert_eq!([passed.foreign, left.foreign, left.malformed, left.unstripped], [0; 4]);
        let stacks: Vec<Stack> = shown.stacks.into_iter().flatten().collect();
        assert_eq!(stacks.len() as u64, source.inserted);
        for stack in stacks {
            let hops: Vec<_> = stack.hops().map(|hop| (hop.node, hop.latency_ns)).collect();
            assert_eq!(hops, [(1, 100), (2, 200)]);
            assert!(!stack.is_partial);
        }
        assert_eq!(shown.departures, [Some(Node::now_ns() + 300)]);
        for (packet, sent) in packets.iter().zip(&sent) {
            let (mut received, mut sent) = (packet.bytes().to_vec(), sent.clone());
            if !carries_stack(carrier, &sent) && !matches!(carrier, Carrier::Shim(_)) {
                // Its ToS byte is as the carrier leaves it, without the bit of stacks.
                // A signature has all of the DSCP.
                let keep = if matches!(carrier, Carrier::SignedTos(_)) { 0x03 } else { 0x0F };
                clear_class(&mut received, keep);
                clear_class(&mut sent, keep);
            } else if !carries_stack(carrier, &sent) {
                clear_bit(&mut sent);
            } else if carrier == Carrier::FlowLabel {
                let ip = ip_offset(&sent);
                sent[ip + 1] &= 0xF0;
                sent[ip + 2..ip + 4].fill(0);
            }
            assert_eq!(hex(&received), hex(&sent), "{carrier:?}");
        }
    }
}

fn carries_stack(carrier: Carrier, packet: &[u8]) -> bool {
    let ip = ip_offset(packet);
    let is_ipv6 = packet[ip] >> 4 == 6;
    let is_fragment = !is_ipv6 && (packet[ip + 6] & 0x3F, packet[ip + 7]) != (0, 0);
    !is_fragment && (is_ipv6 || carrier != Carrier::FlowLabel)
}

/// Clears what marks and stacks are known by, but for the bits to `keep`, and the header's
/// checksum.
fn clear_class(packet: &mut [u8], keep: u8) {
    let ip = ip_offset(packet);
    packet[ip + 1] &= keep;
    packet[ip + 10..ip + 12].fill(0);
}

/// Clears the bit of stacks of an IPv4 packet, with the header's checksum.
fn clear_bit(packet: &mut [u8]) {
    let ip = ip_offset(packet);
    packet[ip + 1] &= !0x10;
    packet[ip + 10..ip + 12].fill(0);
    let sum = calumma_plane::checksum::checksum(&packet[ip..ip + 20]);
    packet[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
}

/// A packet with a stack, as the source sends it.
fn stacked(carrier: Carrier) -> Frame {
    let mut source = Node::new(policy(carrier), insertion(1, 6));
    let mut packets = frames(&[udp(0xB8, b"payload")]);
    source.worker.ingress(&mut packets);
    source.worker.depart(&mut packets, 1, Departure { at_ns: Node::now_ns(), mtu: MTU });
    assert_eq!(source.worker.counters.int.inserted, 1);
    packets.remove(0)
}

#[test]
fn stacks_are_taken_out_without_a_session_and_where_packets_are_flooded() {
    for carrier in CARRIERS.into_iter().filter(|carrier| *carrier != Carrier::FlowLabel) {
        let (_merger, mut mailboxes) = LcoreMerger::new(1);
        let mut worker = Worker::new(policy(carrier), Measurement::new(mailboxes.remove(0)));
        for path in [Path::Leave, Path::Flooded] {
            let mut packets = [stacked(carrier)];
            worker.begin();
            worker.pass(path, &mut packets, 1, &PlainFlows::NONE);
            assert_eq!(hex(packets[0].bytes()), hex(&udp(0xB8, b"payload")), "{carrier:?}");
        }
        assert_eq!(worker.counters.int.stripped, 2);
        // Nobody asks when they depart.
        assert!(!worker.asks_departures());
    }
}

#[test]
fn a_signed_mark_with_the_bit_of_stacks_is_valid_beside_a_stack_alone() {
    let carrier = CARRIERS[3];
    let mut sink = Node::new(policy(carrier), insertion(3, 6));
    let marked = stacked(carrier).bytes().to_vec();
    assert_eq!(marked[15] & 0x1C, 0x1C);
    let mut of_others = marked.clone();
    of_others[52..54].copy_from_slice(&0x1234_u16.to_be_bytes());
    let sent = [udp(marked[15], b"payload"), of_others, marked];
    let mut packets = frames(&sent);
    sink.worker.egress(&mut packets);
    let counters = sink.worker.counters;
    assert_eq!((counters.egress_unmarked, counters.int.foreign, counters.int.stripped), (2, 2, 1));
    assert_eq!(hex(packets[0].bytes()), hex(&sent[0]));
    assert_eq!(hex(packets[1].bytes()), hex(&sent[1]));
    assert_eq!(hex(packets[2].bytes()), hex(&udp(0xB8, b"payload")));
}

#[test]
fn what_a_host_forges_is_its_payload() {
    let [carrier, ..] = CARRIERS;
    let forged = stacked(carrier).bytes().to_vec();
    let (_merger, mut mailboxes) = LcoreMerger::new(1);
    let without = Worker::new(policy(carrier), Measurement::new(mailboxes.remove(0)));
    let within = Node::new(policy(carrier), insertion(1, 6));
    for (mut entry, inserts) in [(without, false), (within.worker, true)] {
        let mut exit = Node::new(policy(carrier), insertion(3, 6));
        let plain = udp(0xB8, b"payload");
        let mut packets = frames(&[forged.clone(), plain.clone()]);
        entry.ingress(&mut packets);
        if inserts {
            entry.depart(&mut packets, 0b11, Departure { at_ns: Node::now_ns(), mtu: MTU });
        }
        // Where stacks are put in, nothing else may have the bit.
        assert_eq!(entry.counters.int.dscp_cleared, if inserts { 2 } else { 1 });
        exit.worker.egress(&mut packets);
        assert_eq!(exit.worker.counters.int.stripped, if inserts { 2 } else { 0 });
        assert_eq!(hex(&packets[0].bytes()[34..]), hex(&forged[34..]), "{inserts}");
        assert_eq!(hex(&packets[1].bytes()[34..]), hex(&plain[34..]), "{inserts}");
    }
}

#[test]
fn packets_that_waited_in_the_slow_path_begin_no_stack() {
    let [carrier, ..] = CARRIERS;
    let mut source = Node::new(policy(carrier), insertion(1, 6));
    let mut packets = frames(&[udp(0, b"payload")]);
    source.worker.begin();
    source.worker.have_waited();
    source.worker.pass(Path::Enter, &mut packets, 1, &PlainFlows::NONE);
    source.worker.depart(&mut packets, 1, Departure { at_ns: Node::now_ns(), mtu: MTU });
    let counters = source.worker.counters.int;
    assert_eq!(counters.inserted, 0);
    assert_eq!(counters.not_carried[NotCarried::SlowPath as usize], 1);
    // One with a stack gets a hop, whose latency nobody knows.
    let mut packets = [stacked(carrier)];
    let mut transit = Node::new(policy(carrier), insertion(2, 6));
    transit.worker.begin();
    transit.worker.have_waited();
    transit.worker.pass(Path::Transit, &mut packets, 1, &PlainFlows::NONE);
    transit.worker.depart(&mut packets, 1, Departure { at_ns: Node::now_ns(), mtu: MTU });
    let mut sink = Node::new(policy(carrier), insertion(3, 6));
    sink.worker.egress(&mut packets);
    let stack = sink.shown().stacks.remove(0).unwrap();
    assert_eq!((stack.nodes()[1], stack.latencies()[1]), (2, u32::MAX));
}

#[test]
fn a_tunnel_whose_inside_is_measured_carries_no_stack() {
    let [carrier, ..] = CARRIERS;
    let inner = udp(0, b"payload");
    let mut tunnelled = udp(0, &[&[8, 0, 0, 0, 0, 0, 42, 0], &inner[..]].concat());
    tunnelled[36..38].copy_from_slice(&4789_u16.to_be_bytes());
    for (tunnels, inserted) in [(Tunnels::Outer, 1), (Tunnels::Inner, 0)] {
        let mut source = Node::new(Policy { tunnels, ..policy(carrier) }, insertion(1, 6));
        let mut packets = frames(&[tunnelled.clone()]);
        source.worker.ingress(&mut packets);
        source.worker.depart(&mut packets, 1, Departure { at_ns: Node::now_ns(), mtu: MTU });
        let counters = source.worker.counters.int;
        assert_eq!(counters.inserted, inserted);
        assert_eq!(counters.not_carried[NotCarried::Tunnel as usize], 1 - inserted);
    }
}

#[test]
fn a_packet_that_is_to_be_discarded_or_was_fragmented_reaches_no_host() {
    let [carrier, ..] = CARRIERS;
    let whole = stacked(carrier).bytes().to_vec();
    let (mut discard, mut fragment) = (whole.clone(), whole.clone());
    discard[14 + 28 + 4] |= 0x08;
    fragment[14 + 6] = 0x20;
    let mut sink = Node::new(policy(carrier), insertion(3, 6));
    let mut packets = frames(&[discard, whole, fragment]);
    assert_eq!(sink.worker.egress(&mut packets), DropMask(0b101));
    let counters = sink.worker.counters;
    assert_eq!((counters.int.discarded, counters.int.unstripped, counters.int.stripped), (1, 1, 1));
    assert_eq!(counters.dropped(), 2);
    let shown = sink.shown().stacks;
    assert_eq!(shown.len(), 1, "what is dropped has not left");
    assert!(shown[0].is_some());
}

#[test]
fn a_stack_that_is_taken_out_on_the_way_leaves_the_mark() {
    for carrier in [CARRIERS[0], CARRIERS[2]] {
        let mut packets = [stacked(carrier)];
        let mut router = Node::new(policy(carrier), insertion(2, 6));
        assert_eq!(router.worker.take_out(&mut packets, 1).taken, 1);
        assert_eq!(router.worker.take_out(&mut packets, 1).taken, 0);
        assert_eq!(router.worker.counters.int.taken_out, 1);
        let mut sink = Node::new(policy(carrier), insertion(3, 6));
        sink.worker.egress(&mut packets);
        assert_eq!(sink.shown().stacks, [None]);
        let counters = sink.worker.counters;
        assert_eq!((counters.egress_unmarked, counters.int.stripped), (0, 0));
        assert_eq!(hex(&packets[0].bytes()[34..]), hex(&udp(0, b"payload")[34..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any payload and ToS byte, any MTU, room for any number of hops: what leaves is what entered,
    /// but for the ToS byte of packets that went without.
    #[test]
    fn hosts_receive_what_was_sent(
        sent in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..90)), 1..=32),
        mtu in 60u16..200,
        hops in 1u8..=3,
    ) {
        let mut network = Network::new(CARRIERS[0], hops);
        let sent: Vec<_> = sent.into_iter().map(|(tos, payload)| udp(tos, &payload)).collect();
        let mut packets = frames(&sent);
        network.pass(&mut packets, mtu);
        let stacks = network.nodes[2].shown().stacks;
        prop_assert_eq!(stacks.len(), sent.len());
        for ((packet, sent), stack) in packets.iter().zip(&sent).zip(&stacks) {
            if stack.is_some() {
                prop_assert_eq!(packet.bytes(), &sent[..]);
            } else {
                prop_assert_eq!(packet.bytes()[15], 8 << 2 | sent[15] & 0x0F);
                prop_assert_eq!(&packet.bytes()[26..], &sent[26..]);
                prop_assert_eq!(calumma_plane::checksum::checksum(&packet.bytes()[14..34]), 0);
            }
        }
        let [source, _, sink] = [0, 1, 2].map(|node| network.counters(node));
        prop_assert_eq!(source.inserted, sink.stripped);
        prop_assert_eq!(source.inserted, stacks.iter().flatten().count() as u64);
        let without: u64 = source.not_carried.iter().sum();
        prop_assert_eq!(source.inserted + without, sent.len() as u64);
    }
}

/// Packets that a link damaged so that nobody can take their stacks out reach no host; what hosts
/// send themselves and looks the same does.
#[test]
fn a_stack_that_can_not_be_taken_out_reaches_no_host() {
    // The total length, beyond the packet; UDP's length, too short; Length of half a hop.
    for (at, byte) in [(16, 0x7F), (39, 7), (14 + 28 + 1, 6)] {
        let mut network = Network::new(CARRIERS[0], 6);
        let mut packets = frames(&[udp(0, &[7; 64])]);
        for (node, path) in [(0, Path::Enter), (1, Path::Transit)] {
            let worker = &mut network.nodes[node].worker;
            worker.begin();
            worker.pass(path, &mut packets, 1, &PlainFlows::NONE);
            let departure = Departure { at_ns: Node::now_ns() + 100, mtu: MTU };
            worker.depart(&mut packets, 1, departure);
        }
        assert_eq!(network.counters(1).pushed, 1);
        packets[0].bytes_mut()[at] = byte;
        let damaged = packets[0].bytes().to_vec();
        let sink = &mut network.nodes[2].worker;
        sink.begin();
        let drops = sink.pass(Path::Leave, &mut packets, 1, &PlainFlows::NONE);
        assert_eq!(drops, DropMask(1), "byte {at}");
        let counters = network.counters(2);
        assert_eq!((counters.malformed, counters.unstripped, counters.stripped), (1, 1, 0));

        let mut of_host = frames(std::slice::from_ref(&damaged));
        network.pass(&mut of_host, MTU);
        assert_eq!(network.counters(0).dscp_cleared, 1, "byte {at}");
        assert_eq!(of_host[0].bytes()[16..24], damaged[16..24]);
        assert_eq!(of_host[0].bytes()[26..], damaged[26..]);
    }
}

/// Marks and stacks stay in at the edge, which pushes its hop, and the host's own sink takes them
/// out, without a session too.
#[test]
fn a_host_with_a_sink_of_its_own_receives_what_was_sent() {
    for carrier in CARRIERS {
        let without_mark = Policy { tunnels: Tunnels::Outer, ..policy(carrier) };
        for (path, hops) in [(Path::HandOn, vec![1, 3]), (Path::CrossOn, vec![3])] {
            let mut edge = Node::new(policy(carrier), insertion(3, 6));
            let mut host = Node::new(policy(carrier), insertion(4, 6));
            let (_merger, mut mailboxes) = LcoreMerger::new(1);
            let mut idle = Worker::new(without_mark, Measurement::new(mailboxes.remove(0)));
            let sent = hosts().into_iter().find(|sent| carries_stack(carrier, sent)).unwrap();
            let mut packet = if path == Path::CrossOn {
                frames(std::slice::from_ref(&sent)).remove(0)
            } else {
                let mut source = Node::new(policy(carrier), insertion(1, 6));
                let mut packets = frames(std::slice::from_ref(&sent));
                source.worker.ingress(&mut packets);
                let departure = Departure { at_ns: Node::now_ns() + 100, mtu: MTU };
                source.worker.depart(&mut packets, 1, departure);
                packets.remove(0)
            };
            let packets = std::slice::from_mut(&mut packet);
            edge.worker.begin();
            assert!(edge.worker.pass(path, packets, 1, &PlainFlows::NONE).is_empty());
            let departure = Departure { at_ns: Node::now_ns() + 200, mtu: MTU };
            edge.worker.depart(packets, 1, departure);
            let counters = edge.worker.counters;
            assert_eq!((counters.int.stripped, counters.int.pushed), (0, 1), "{carrier:?}");
            let shim = if matches!(carrier, Carrier::Shim(_)) { 4 } else { 0 };
            let longer = packets[0].bytes().len() - sent.len();
            assert_eq!(longer, 16 + 8 * hops.len() + shim, "{carrier:?} {path:?}");

            let mut copy = [Frame::new(packets[0].bytes().to_vec())];
            idle.egress(&mut copy);
            host.worker.egress(packets);
            assert_eq!(host.worker.counters.egress_unmarked, 0, "{carrier:?} {path:?}");
            let stack = host.shown().stacks.remove(0).unwrap();
            let nodes: Vec<u32> = stack.hops().map(|hop| hop.node).collect();
            assert_eq!(nodes, hops, "{carrier:?}");
            let mut expected = sent;
            if carrier == Carrier::FlowLabel {
                let ip = ip_offset(&expected);
                expected[ip + 1] &= 0xF0;
                expected[ip + 2..ip + 4].fill(0);
            }
            assert_eq!(hex(packets[0].bytes()), hex(&expected), "{carrier:?} {path:?}");
            if carrier != Carrier::FlowLabel {
                assert_eq!(hex(copy[0].bytes()), hex(&expected), "{carrier:?} {path:?}");
            }
        }
    }
}

#[test]
fn an_end_host_sends_as_without_a_sink() {
    let [carrier, ..] = CARRIERS;
    let mut host = Node::new(policy(carrier), insertion(4, 6));
    let sent = frames(&[stacked(carrier).bytes().to_vec(), udp(0xFC, b"payload")]);
    host.worker.pass_by(sent.len());
    assert!(!host.worker.asks_departures() || host.worker.counters.int.inserted == 0);
    host.worker.sent(Sent { accepted: 0b11, refused: 0 });
    let counters = host.worker.counters;
    assert_eq!((counters.host_received, counters.transmitted), (2, 2));
    assert_eq!((counters.int.dscp_cleared, counters.ingress_unrecorded), (0, 0));
}

/// What an edge makes itself for a host with a sink of its own says when.
#[test]
fn what_a_switch_makes_for_a_hosts_sink_is_marked() {
    let [carrier, ..] = CARRIERS;
    for epoch in [10, 11] {
        let mut edge = Node::in_epoch(policy(carrier), insertion(3, 6), epoch);
        let mut packets = frames(&[udp(0, b"payload"), vec![0; 60]]);
        edge.worker.stamp(&mut packets, 0b11);
        assert_eq!(packets[0].bytes()[15] >> 7, (epoch & 1) as u8);
        assert_eq!(packets[1].bytes(), [0; 60]);
        assert_eq!(edge.worker.counters.ingress_unrecorded, 0);
    }
}
