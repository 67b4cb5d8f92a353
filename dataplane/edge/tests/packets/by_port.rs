//! Networks in which a UDP port marks packets with a stack, through whole switches: hosts receive
//! what was sent, and every switch measures packets by the flow that they were sent in.

use std::num::NonZeroU16;

use calumma_edge::carrier::{Carrier, SignedTos};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::PlainFlows;
use calumma_edge::worker::{Departure, DropMask, Path, Worker, first};
use calumma_plane::LcoreMerger;
use calumma_plane::int::Insertion;
use calumma_plane::int::push::NotCarried;
use serde_json::Value;

use crate::inserter::{Node, insertion};
use crate::int::{
    CARRIERS, GOLDEN, MTU, Network, bytes, frames, hex, ip_offset, policy, udp, udp_port,
};

const PORT: Option<NonZeroU16> = NonZeroU16::new(41_000);

const TCP: u8 = 6;

/// A host's packet, and why it goes without a stack where one fits.
fn hosts() -> Vec<(Vec<u8>, Option<String>)> {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    let of_hosts = cases.iter().filter(|case| case["steps"][0]["do"] == "source");
    let sent = of_hosts.filter(|case| udp_port(case).is_some()).map(|case| {
        let why = case["steps"][0]["not_carried"].as_str();
        (bytes(&case["before"]), why.filter(|why| *why != "mtu").map(str::to_owned))
    });
    sent.collect()
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet[ip_offset(packet)] >> 4 == 6
}

/// A packet whose ToS byte has other bits in `mask`, with the header's checksum.
fn with_tos(packet: &[u8], mask: u8, bits: u8) -> Vec<u8> {
    let (mut packet, ip) = (packet.to_vec(), ip_offset(packet));
    if is_ipv6(&packet) {
        let word = u16::from_be_bytes([packet[ip], packet[ip + 1]]);
        let word = word & !(u16::from(mask) << 4) | u16::from(bits) << 4;
        packet[ip..ip + 2].copy_from_slice(&word.to_be_bytes());
        return packet;
    }
    packet[ip + 1] = packet[ip + 1] & !mask | bits;
    packet[ip + 10..ip + 12].fill(0);
    let len = usize::from(packet[ip] & 0xF) * 4;
    let sum = calumma_plane::checksum::checksum(&packet[ip..ip + len]);
    packet[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// What a host receives of a packet: its ToS byte is as the carrier leaves it, without the bit of
/// stacks, where no stack says it.
fn received(carrier: Carrier, packet: &[u8]) -> Vec<u8> {
    let ip = ip_offset(packet);
    let mut packet = match carrier {
        _ if !is_ipv6(packet) && packet[ip + 9] == TCP && carrier != Carrier::FlowLabel => {
            packet.to_vec()
        }
        Carrier::Tos(tos) => with_tos(packet, 0xF0, tos.dscp << 2 & 0xE0),
        Carrier::SignedTos(tos) => with_tos(packet, 0xFC, tos.dscp << 2),
        _ => with_tos(packet, 0x10, 0),
    };
    if carrier == Carrier::FlowLabel && is_ipv6(&packet) {
        packet[ip + 1] &= 0xF0;
        packet[ip + 2..ip + 4].fill(0);
    }
    packet
}

#[test]
fn hosts_receive_what_was_sent_and_all_switches_see_the_flows_that_were() {
    for carrier in CARRIERS {
        let mut network = Network::marking(carrier, 6, PORT);
        let sent = hosts();
        let packets = sent.iter().map(|(packet, _)| packet.clone()).collect::<Vec<_>>();
        let mut packets = frames(&packets);
        network.pass(&mut packets, MTU);
        let measured: Vec<_> =
            sent.iter().filter(|of| carrier != Carrier::FlowLabel || is_ipv6(&of.0)).collect();
        let carried = measured.iter().filter(|of| of.1.is_none()).count() as u64;
        let [source, passed, left] = [0, 1, 2].map(|node| network.counters(node));
        let found = [source.inserted, passed.pushed, left.stripped];
        assert_eq!((found, carried > 0), ([carried; 3], true), "{carrier:?}");
        assert_eq!([passed.foreign, left.foreign, left.malformed, left.unstripped], [0; 4]);
        for why in [NotCarried::Protocol, NotCarried::Fragment] {
            let of = |of: &&&(_, Option<String>)| of.1.as_deref() == Some(why.name());
            let without = measured.iter().filter(of).count() as u64;
            assert_eq!(source.not_carried[why as usize], without, "{carrier:?}");
        }
        let [entered, passed, left] = [0, 1, 2].map(|node| network.nodes[node].shown());
        assert_eq!(entered.flows.len(), measured.len());
        assert_eq!(entered.flows, passed.flows, "{carrier:?}");
        assert_eq!(entered.flows, left.flows, "{carrier:?}");
        let stacks: Vec<_> = left.stacks.iter().flatten().collect();
        assert_eq!(stacks.len() as u64, carried);
        for stack in stacks {
            let hops: Vec<_> = stack.hops().map(|hop| (hop.node, hop.latency_ns)).collect();
            assert_eq!(hops, [(1, 100), (2, 200)]);
        }
        assert_eq!(network.nodes[2].worker.counters.egress_unmarked, 0, "{carrier:?}");
        for (packet, (sent, _)) in packets.iter().zip(&sent) {
            assert_eq!(hex(packet.bytes()), hex(&received(carrier, sent)), "{carrier:?}");
        }
    }
}

/// The packets that a source of this carrier's network puts stacks into.
fn stacked(carrier: Carrier) -> (Vec<Vec<u8>>, Vec<Frame>) {
    let sent = hosts().into_iter().filter(|(_, why)| why.is_none()).map(|(packet, _)| packet);
    let has_place = |packet: &Vec<u8>| carrier != Carrier::FlowLabel || is_ipv6(packet);
    let sent: Vec<_> = sent.filter(has_place).collect();
    let marking = Insertion { udp_port: PORT, ..insertion(1, 6) };
    let mut source = Node::new(policy(carrier), marking);
    let mut packets = frames(&sent);
    source.worker.ingress(&mut packets);
    let departure = Departure { at_ns: Node::now_ns(), mtu: MTU };
    source.worker.depart(&mut packets, first(sent.len()), departure);
    assert_eq!(source.worker.counters.int.inserted, sent.len() as u64);
    (sent, packets)
}

/// A signature's DSCP is given whole, and may have the bit of stacks.
#[test]
fn stacks_are_taken_out_without_a_session_and_on_the_way() {
    let other = Carrier::SignedTos(SignedTos { dscp: 46 });
    for carrier in CARRIERS.into_iter().chain([other]) {
        let (sent, packets) = stacked(carrier);
        let all = first(sent.len());
        let (_merger, mut mailboxes) = LcoreMerger::new(1);
        let mut idle = Worker::new(policy(carrier), Measurement::new(mailboxes.remove(0)));
        let mut within =
            Node::new(policy(carrier), Insertion { udp_port: PORT, ..insertion(3, 6) });
        for worker in [&mut idle, &mut within.worker] {
            let mut packets = packets.clone();
            worker.begin();
            let drops = worker.pass(Path::Leave, &mut packets, all, &PlainFlows::NONE);
            assert_eq!(
                (drops, worker.counters.int.stripped),
                (DropMask::default(), sent.len() as u64)
            );
            for (packet, sent) in packets.iter().zip(&sent) {
                assert_eq!(hex(packet.bytes()), hex(&received(carrier, sent)), "{carrier:?}");
            }
        }

        let mut on_way = packets.clone();
        let mut router =
            Node::new(policy(carrier), Insertion { udp_port: PORT, ..insertion(2, 6) });
        assert_eq!(router.worker.take_out(&mut on_way, all).taken, all);
        let mut sink = Node::new(policy(carrier), Insertion { udp_port: PORT, ..insertion(3, 6) });
        sink.worker.egress(&mut on_way);
        let counters = sink.worker.counters;
        assert_eq!((counters.egress_unmarked, counters.int.stripped), (0, 0), "{carrier:?}");
        for (packet, sent) in on_way.iter().zip(&sent) {
            let ip = ip_offset(sent);
            assert_eq!(hex(&packet.bytes()[ip + 20..]), hex(&sent[ip + 20..]), "{carrier:?}");
        }
    }
}

/// Where sessions know the flows of IPv4 alone, these are restored as well.
#[test]
fn switches_that_measure_ipv4_see_the_flows_that_were_sent() {
    let [carrier, ..] = CARRIERS;
    let sent = hosts().into_iter().filter(|(packet, why)| why.is_none() && !is_ipv6(packet));
    let sent: Vec<_> = sent.map(|(packet, _)| packet).collect();
    let marking = |node| Insertion { udp_port: PORT, ..insertion(node, 6) };
    let nodes = [1, 2, 3].map(|node| Node::of_ipv4(policy(carrier), marking(node)));
    let mut network = Network { nodes };
    network.pass(&mut frames(&sent), MTU);
    let flows = network.nodes.each_ref().map(|node| node.shown().flows);
    assert_eq!((flows[0].len(), network.counters(2).stripped), (sent.len(), sent.len() as u64));
    assert_eq!(flows, [0, 0, 0].map(|at: usize| flows[at].clone()));
}

/// The switch before a host with a sink of its own, and that sink.
#[test]
fn sinks_of_hosts_see_the_flows_that_were_sent() {
    for carrier in CARRIERS {
        let (sent, _) = stacked(carrier);
        let all = first(sent.len());
        let mut network = Network::marking(carrier, 6, PORT);
        let mut packets = frames(&sent);
        let paths = [Path::Enter, Path::HandOn, Path::Leave];
        for (node, path) in network.nodes.iter_mut().zip(paths) {
            node.worker.begin();
            node.worker.pass(path, &mut packets, all, &PlainFlows::NONE);
            let departure = Departure { at_ns: Node::now_ns(), mtu: MTU };
            node.worker.depart(&mut packets, all, departure);
            assert_eq!(node.worker.counters.egress_unmarked, 0, "{path:?} of {carrier:?}");
        }
        let flows = network.nodes.each_ref().map(|node| node.shown().flows);
        assert_eq!((flows[0].len(), network.counters(1).pushed), (sent.len(), sent.len() as u64));
        assert_eq!(flows, [0, 0, 0].map(|at: usize| flows[at].clone()), "{carrier:?}");
        for (packet, sent) in packets.iter().zip(&sent) {
            assert_eq!(hex(packet.bytes()), hex(&received(carrier, sent)), "{carrier:?}");
        }
    }
}

/// They have a stack that bit 4 alone marks, and come to switches that know the port by then.
#[test]
fn packets_from_before_there_was_a_port_are_measured_as_they_were_sent() {
    for carrier in CARRIERS {
        // Without the extension header, what comes next is part of the signature.
        let (over_ipv6, _) = stacked(Carrier::FlowLabel);
        let mut over_ipv6 = over_ipv6.into_iter().find(|packet| packet[58] == 17).unwrap();
        (over_ipv6[18 + 5], over_ipv6[18 + 6]) = (over_ipv6[18 + 5] - 8, 17);
        over_ipv6.drain(58..66);
        let mut sent = vec![over_ipv6, udp(0xB8, b"payload")];
        sent.truncate(if carrier == Carrier::FlowLabel { 1 } else { 2 });
        let before = Node::new(policy(carrier), insertion(1, 6));
        let [known, sink] = [2, 3].map(|node| {
            Node::new(policy(carrier), Insertion { udp_port: PORT, ..insertion(node, 6) })
        });
        let mut network = Network { nodes: [before, known, sink] };
        network.pass(&mut frames(&sent), MTU);
        let [_, passed, left] = network.nodes.each_ref().map(|node| node.shown().flows);
        assert_eq!((passed.len(), &passed), (sent.len(), &left), "{carrier:?}");
        assert!(passed.iter().all(|of| *of == ((40_000, 5201), 17)), "{carrier:?}: {passed:?}");
        assert_eq!(network.counters(2).stripped, sent.len() as u64);
        assert_eq!(network.nodes[2].worker.counters.egress_unmarked, 0, "{carrier:?}");
    }
}

/// A host that knows port and domain sends what looks like a stack. Where the bit of stacks is
/// cleared, neither its flow nor its mark's signature is what its payload says.
#[test]
fn what_a_host_forges_is_its_payload() {
    for carrier in CARRIERS.into_iter().filter(|carrier| !matches!(carrier, Carrier::Shim(_))) {
        let (_, forged) = stacked(carrier);
        let forged: Vec<_> = forged.iter().map(|packet| packet.bytes().to_vec()).collect();
        let (all, number) = (first(forged.len()), forged.len() as u64);
        let marking = |node| Insertion { udp_port: PORT, ..insertion(node, 6) };
        let mut entered = Node::new(policy(carrier), marking(1));
        entered.worker.ingress(&mut frames(&forged));
        let flows = entered.shown().flows;
        let is_forged = |of: &((u16, u16), u8)| of.1 == TCP || (of.0.1, of.1) == (41_000, 17);
        assert!(flows.len() == forged.len() && flows.iter().all(is_forged), "{flows:?}");

        let (_merger, mut mailboxes) = LcoreMerger::new(1);
        let without = Worker::new(policy(carrier), Measurement::new(mailboxes.remove(0)));
        let [within, short] = [(); 2].map(|()| Node::new(policy(carrier), marking(1)));
        // One that puts nothing in, and one whose port takes no stacks.
        let entries = [(without, MTU, 0), (within.worker, MTU, number), (short.worker, 60, 0)];
        for (mut entry, mtu, inserts) in entries {
            let mut packets = frames(&forged);
            entry.ingress(&mut packets);
            entry.depart(&mut packets, all, Departure { at_ns: Node::now_ns(), mtu });
            assert_eq!(entry.counters.int.dscp_cleared, number);
            let mut exit = Node::new(policy(carrier), marking(3));
            exit.worker.egress(&mut packets);
            assert_eq!(exit.worker.counters.int.stripped, inserts);
            assert_eq!(exit.shown().flows, flows, "{carrier:?}");
            if entry.keys().is_some() {
                assert_eq!(exit.worker.counters.egress_unmarked, 0, "{carrier:?}");
            }
            for (packet, forged) in packets.iter().zip(&forged) {
                let ip = ip_offset(forged);
                assert_eq!(hex(&packet.bytes()[ip + 20..]), hex(&forged[ip + 20..]));
            }
        }
    }
    // Without bit 4 what goes to the port is measured as what it is.
    let [carrier, ..] = CARRIERS;
    let marking = Insertion { udp_port: PORT, ..insertion(3, 6) };
    let mut exit = Node::new(policy(carrier), marking);
    let mut to_port = udp(0, b"payload");
    to_port[36..38].copy_from_slice(&41_000_u16.to_be_bytes());
    let mut packets = frames(&[to_port]);
    exit.worker.egress(&mut packets);
    assert_eq!(exit.shown().flows, [((40_000, 41_000), 17)]);
}

/// The port that a packet goes to is damaged on its way: no host receives the stack.
#[test]
fn a_stack_behind_another_port_reaches_no_host() {
    let [carrier, ..] = CARRIERS;
    let (_, mut packets) = stacked(carrier);
    packets.retain(|packet| !is_ipv6(packet.bytes()) && packet.bytes()[14..15] == [0x45]);
    packets.retain(|packet| packet.bytes()[23] == 17);
    assert!(packets.len() > 3);
    packets.iter_mut().for_each(|packet| packet.bytes_mut()[37] ^= 1);
    let mut sink = Node::new(policy(carrier), Insertion { udp_port: PORT, ..insertion(3, 6) });
    let drops = sink.worker.egress(&mut packets);
    assert_eq!(drops, DropMask(first(packets.len())));
    assert_eq!(sink.worker.counters.int.unstripped, packets.len() as u64);
}
