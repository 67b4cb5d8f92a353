//! Routers put INT stacks into packets just before they send them, and take them out of all that
//! goes to hosts: packets, errors about them, and what goes on where no stack fits.

use std::time::Duration;

use calumma_edge::carrier::Carrier;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::worker::{Policy, Worker};
use calumma_plane::checksum::checksum;
use calumma_plane::int::around::{Came, Queued};
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack, push, strip};

use crate::edge::{Edge, F0, F1, H0, mac};
use crate::frames::{Udp, body, neighbour_advertisement, station};
use crate::inserter::{Node, insertion};
use crate::traffic::icmp;

/// When packets are sent that arrived 700 ns before.
pub(crate) fn sent_ns() -> u64 {
    Node::middle_ns(500_000) + 700
}

/// A router of this number that measures, and its worker as it was.
fn router(name: &str, node: u16) -> (Edge, Node) {
    router_with(name, node, &[])
}

/// The same with changes to its configuration.
fn router_with(name: &str, node: u16, changes: &[(&str, &str)]) -> (Edge, Node) {
    router_of(name, insertion(node, 6), changes)
}

/// The same that puts this into packets.
pub(crate) fn router_of(
    name: &str,
    insertion: Insertion,
    changes: &[(&str, &str)],
) -> (Edge, Node) {
    let mut edge = Edge::new(name, changes);
    edge.acquaint();
    let policy = Policy { strip: true, ..Policy::default() };
    let mut node = Node::in_epoch(policy, insertion, 500_000);
    node.worker.counters = edge.worker.counters;
    std::mem::swap(&mut edge.worker, &mut node.worker);
    (edge, node)
}

fn ip_offset(frame: &[u8]) -> usize {
    frame.len() - body(frame).len()
}

/// The frame with a stack that the switch of number 9 has begun, and the DSCP that hosts use most.
fn with_stack(frame: &[u8]) -> Vec<u8> {
    let mut packet = Frame::with_headroom(64, frame);
    let hop = Hop { node: 9, latency_ns: 5, ..Hop::UNKNOWN };
    push::source(&mut packet, ip_offset(frame), (&insertion(9, 6), &hop), 0, 9000).unwrap();
    packet.bytes().to_vec()
}

/// The stack in a frame, which is taken out.
pub(crate) fn taken(frame: &[u8]) -> (Option<Stack>, Vec<u8>) {
    let (mut packet, ip) = (Frame::new(frame.to_vec()), ip_offset(frame));
    let marked = calumma_plane::int::header::tos(&packet, ip) & 0x10 != 0;
    let Seen::Stack(found) = look(&packet, ip, Domains::ANY) else { return (None, frame.to_vec()) };
    assert!(marked);
    let mut stack = Stack::EMPTY;
    strip::read(&packet, &found, &mut stack);
    assert!(strip::strip(&mut packet, ip, &found, strip::Goes::ToHost));
    (Some(stack), packet.bytes().to_vec())
}

/// What of a packet's IP header no router changes, and all behind it.
pub(crate) fn lasting(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[8] = 0;
        packet[10..12].fill(0);
    } else {
        packet[7] = 0;
    }
    packet
}

fn hops(stack: &Stack) -> Vec<(u32, u32)> {
    stack.hops().map(|hop| (hop.node, hop.latency_ns)).collect()
}

#[test]
fn stacks_that_ask_say_by_which_ports_and_interfaces_packets_came_and_went() {
    let asked = Instructions::PORTS
        | Instructions::QUEUE
        | Instructions::INTERFACES
        | Instructions::UTILISATION;
    let instructions = Instructions::new(Instructions::DEFAULT.bits() | asked).unwrap();
    let insertion = Insertion { instructions, ..insertion(1, 6) };
    let (mut edge, _node) = router_of("int ports", insertion, &[]);
    edge.now_ns = sent_ns();
    assert_eq!(edge.worker.asks_around(), asked);
    edge.exits.set_utilisation(F0, Some(1_234));
    // To a port without a VLAN, and to one with.
    let cases = [
        ("10.1.0.2", "10.2.0.1", 28, [20 << 16 | 22, 9, 0, 2, 1_234]),
        ("fd00:1::2", "fd00:2::1", 48, [20 << 16 | 23, 9, 0, 3, u32::MAX]),
    ];
    for (from, to, headers, [ports, queued, ingress, egress, utilisation]) in cases {
        edge.worker.came(Some(Came::by(20, Some(Queued::of_poll(Some(9), 1, true)))));
        let sent = edge.receive(H0, &[Udp::new(from, to).frame(H0)]);
        let [(_, frame)] = &sent[..] else { panic!("{} frames", sent.len()) };
        let (hop, _) = body(frame)[headers + 16..headers + 16 + 28].as_chunks::<4>();
        let hop: Vec<u32> = hop.iter().map(|word| u32::from_be_bytes(*word)).collect();
        assert_eq!(hop, [1, ports, 700, queued, ingress, egress, utilisation]);
    }
    // What the switch itself, or its slow path, sends came by no port.
    edge.slow_path(0.0);
    edge.worker.came(Some(Came::by(20, None)));
    edge.receive(H0, &[Udp::new("10.1.0.2", "10.1.1.9").frame(H0)]);
    assert!(!edge.slow_path(0.0).is_empty(), "nobody is asked for");
    assert!(edge.worker.came_mut().is_none());
    edge.stop();
}

#[test]
fn what_hosts_send_gets_a_stack_as_long_as_the_port_it_leaves_by_allows() {
    let (mut edge, _node) = router("int source", 1);
    edge.now_ns = sent_ns();
    // The interface takes 1,400 bytes, and 28 of them are headers: a stack has 24, its header 16.
    let cases = [
        (30, Some(1)),
        (1400 - 28 - 24, Some(1)),
        (1400 - 28 - 23, Some(0)),
        (1400 - 28 - 16, Some(0)),
        (1400 - 28 - 15, None),
        (1400 - 28, None),
    ];
    for (payload, wanted) in cases {
        let packet = Udp { payload, ..Udp::new("10.1.0.2", "10.2.0.1") };
        let sent = edge.receive(H0, &[packet.frame(H0)]);
        let [(F0, frame)] = &sent[..] else { panic!("{payload}: {} frames", sent.len()) };
        assert!(body(frame).len() <= 1400);
        let (stack, plain) = taken(frame);
        assert_eq!(stack.map(|stack| stack.len()), wanted, "{payload}");
        if let Some(stack) = stack {
            assert_eq!(stack.is_partial, wanted == Some(0));
            assert_eq!(lasting(body(&plain)), lasting(&packet.packet()));
            assert!(stack.hops().all(|hop| (hop.node, hop.latency_ns) == (1, 700)));
        }
    }
    // From host to host on one switch there is none, and behind a tag there is.
    let local = edge.receive(H0, &[Udp::new("10.1.0.2", "10.1.1.2").frame(H0)]);
    assert_eq!(taken(&local[0].1).0, None);
    let tagged = edge.receive(H0, &[Udp::new("fd00:1::2", "fd00:2::1").frame(H0)]);
    assert_eq!((tagged[0].0, tagged[0].1[12..14].to_vec()), (F1, vec![0x81, 0]));
    let (stack, plain) = taken(&tagged[0].1);
    assert_eq!(hops(&stack.unwrap()), [(1, 700)]);
    let wanted = Udp::new("fd00:1::2", "fd00:2::1").packet();
    assert_eq!(lasting(body(&plain)), lasting(&wanted));
    assert_eq!(edge.total("sketchint.inserted"), 5);
    assert_eq!(edge.total("sketchint.mtu_exceeded"), 2);
    assert_eq!(edge.total("sketchint.not_carried.mtu"), 2);
    edge.slow_path(0.0);
    edge.stop();
}

/// Six hops of two words and the header are 64 bytes.
#[test]
fn hosts_are_sent_the_mtu_that_leaves_room_and_their_packets_go_on() {
    let advertise = "[sketchint]\npmtu = \"advertise\"\n\n[forwarding]\n";
    let (mut edge, _node) = router_with("int pmtu", 1, &[("[forwarding]\n", advertise)]);
    edge.now_ns = sent_ns();
    // What it announces by itself.
    edge.slow_path(0.0);
    let v4 = |payload| Udp { payload, ..Udp::new("10.1.0.2", "10.2.0.1") };
    let v6 = |payload| Udp { payload, ..Udp::new("fd00:1::2", "fd00:2::1") };
    let cases = [
        (v4(1400 - 28), Some(1336)),
        (v4(1336 - 27), Some(1336)),
        (v4(1336 - 28), None),
        // Behind a VLAN tag.
        (v6(1500 - 4 - 48), Some(1432)),
        (v6(1432 - 48), None),
    ];
    let mut advised = 0;
    for (packet, wanted) in cases {
        // More than between two errors.
        std::thread::sleep(Duration::from_millis(10));
        let short = Udp::new(packet.from, packet.to);
        let on = edge.receive(H0, &[packet.frame(H0), short.frame(H0)]);
        assert_eq!(on.len(), 2, "{wanted:?}");
        assert_eq!(lasting(body(&taken(&on[0].1).1)), lasting(&packet.packet()));
        let mut sent = edge.slow_path(0.0);
        sent.retain(|(port, _)| *port == H0);
        let errors: Vec<_> = sent.iter().map(|(_, frame)| icmp(frame)).collect();
        let is_v4 = packet.to.starts_with("10.");
        let error = |mtu| if is_v4 { (3, 4, mtu) } else { (2, 0, mtu) };
        assert_eq!(errors, wanted.map(error).into_iter().collect::<Vec<_>>());
        if let [(_, frame)] = &sent[..] {
            let (headers, quoted) = (if is_v4 { 28 } else { 48 }, packet.packet());
            let quote = &body(frame)[headers..];
            assert!(lasting(&quoted).starts_with(&lasting(quote)) && quote.len() > 500);
        }
        advised += u64::from(wanted.is_some());
        assert_eq!(edge.total("sketchint.mtu_advised"), advised);
    }
    // A host is not sent one for each of its packets.
    std::thread::sleep(Duration::from_millis(10));
    let burst = vec![v4(1400 - 28).frame(H0); dpdk::BURST];
    let sent = edge.exchange(H0, &burst);
    assert_eq!(sent.iter().filter(|(port, _)| *port == H0).count(), 1);
    assert_eq!(edge.total("dropped.too_big"), 0);
    // Copies of packets are no others' mbufs: only lcores take from their pool.
    let made = edge.hold_made();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(edge.exchange(H0, &[v4(1400 - 28).frame(H0)]).len(), 1);
    assert_eq!(edge.total("sketchint.mtu_advised"), advised + 2);
    assert_eq!(edge.total("dropped.returns_full"), 1, "there was none to write the error to");
    drop(made);
    edge.stop();

    // Nobody asked for it.
    let (mut edge, _node) = router("int no pmtu", 1);
    edge.now_ns = sent_ns();
    edge.slow_path(0.0);
    let sent = edge.exchange(H0, &[v4(1400 - 28).frame(H0)]);
    assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [F0]);
    edge.stop();
}

#[test]
fn what_passes_gets_a_hop_and_what_leaves_loses_its_stack() {
    let (mut edge, node) = router("int transit", 2);
    edge.now_ns = sent_ns();
    let passing = Udp::new("fd00:9::77", "fd00:2::1");
    let sent = edge.receive(F0, &[with_stack(&passing.frame(F0)), passing.frame(F0)]);
    let (stack, plain) = taken(&sent[0].1);
    assert_eq!((sent[0].0, hops(&stack.unwrap())), (F1, vec![(9, 5), (2, 700)]));
    assert_eq!(lasting(body(&plain)), lasting(&passing.packet()));
    assert_eq!(taken(&sent[1].1).0, None, "who has none gets none");
    for leaving in [Udp::new("10.2.0.1", "10.1.0.2"), Udp::new("fd00:2::1", "fd00:1::2")] {
        let port = if leaving.to.contains(':') { F1 } else { F0 };
        let sent = edge.receive(port, &[with_stack(&leaving.frame(port))]);
        assert_eq!((sent.len(), sent[0].0), (1, H0));
        assert_eq!(lasting(body(&sent[0].1)), lasting(&leaving.packet()));
        let shown = node.shown().stacks;
        assert_eq!(hops(&shown[0].unwrap()), [(9, 5)]);
    }
    assert_eq!((edge.total("sketchint.pushed"), edge.total("sketchint.stripped")), (1, 2));
    edge.slow_path(0.0);
    edge.stop();
}

#[test]
fn what_waits_for_a_next_hop_in_the_network_passes_without_its_stack() {
    let (mut edge, node) = router("int waits", 2);
    edge.now_ns = sent_ns();
    let passing = Udp::new("fd00:2::1", "fd00:9:1::77");
    // With a mark: the other timestamp bit, and a hierarchy.
    let mut frame = with_stack(&passing.frame(F0));
    frame[14] |= 0x0C;
    let marked = |packet: &[u8]| [&[packet[0] | 0x0C], &packet[1..]].concat();
    assert!(edge.receive(F0, &[frame]).is_empty());
    edge.slow_path(0.0);
    assert!(node.shown().stacks.iter().all(Option::is_none), "no sink has read it");
    let answer = neighbour_advertisement(station(77), "fd00:9:1::77", mac(F1), Some(100));
    let sent = edge.exchange(F1, &[answer]);
    let [(F1, frame)] = &sent[..] else { panic!("{} frames", sent.len()) };
    assert_eq!(lasting(body(frame)), lasting(&marked(&passing.packet())));
    assert_eq!((edge.total("sketchint.taken_out"), edge.total("sketchint.stripped")), (1, 0));
    edge.stop();
}

#[test]
fn no_stack_makes_a_packet_too_long_and_none_is_quoted() {
    let (mut edge, _node) = router("int quotes", 2);
    // As long as the next link takes, and longer with its stack; and too long without.
    let fits = Udp { payload: 1400 - 28, ..Udp::new("10.3.0.9", "10.2.0.1") };
    let sent = edge.receive(F1, &[with_stack(&fits.frame(F1))]);
    assert_eq!((sent.len(), sent[0].0), (1, F0));
    assert_eq!(lasting(body(&sent[0].1)), lasting(&fits.packet()));
    assert_eq!(edge.total("sketchint.taken_out"), 1);
    let cases = [
        Udp { payload: 1400 - 27, ..Udp::new("10.3.0.9", "10.2.0.1") },
        Udp { ttl: 1, ..Udp::new("10.3.0.9", "10.2.0.1") },
        Udp::new("10.3.0.9", "192.0.2.1"),
        Udp::new("10.3.0.9", "10.9.1.1"),
    ];
    for about in &cases {
        let plain = edge.exchange(F1, &[about.frame(F1)]);
        let stacked = edge.exchange(F1, &[with_stack(&about.frame(F1))]);
        assert_eq!((plain.len(), stacked.len()), (1, 1), "{}", about.to);
        let [plain, stacked] = [&plain[0].1, &stacked[0].1].map(|frame| body(frame));
        let icmp = |packet: &[u8]| packet[20..].to_vec();
        assert_eq!(taken(&stacked_frame(stacked)).0, None);
        assert_eq!(icmp(plain), icmp(stacked), "{} quotes what was sent", about.to);
        // A stack that says to be longer than its packet can't be taken out, and a first fragment
        // has it where it is: no error quotes them.
        let unstripped = edge.total("sketchint.unstripped");
        let mut damaged = with_stack(&about.frame(F1));
        let ip = ip_offset(&damaged);
        damaged[ip + 20 + 8 + 1] = 250;
        assert_eq!(edge.exchange(F1, &[damaged]).len(), 0, "{}", about.to);
        let mut fragment = with_stack(&about.frame(F1));
        fragment[ip + 6] |= 0x20;
        fragment[ip + 10..ip + 12].fill(0);
        let sum = checksum(&fragment[ip..ip + 20]).to_be_bytes();
        fragment[ip + 10..ip + 12].copy_from_slice(&sum);
        assert_eq!(edge.exchange(F1, &[fragment]).len(), 0, "{}", about.to);
        assert_eq!(edge.total("sketchint.unstripped"), unstripped + 2, "{}", about.to);
    }
    edge.stop();
}

#[test]
fn a_sink_reads_stacks_that_would_not_fit_the_link_to_the_host() {
    let (mut edge, node) = router("int full size", 2);
    edge.now_ns = sent_ns();
    let v4 = |payload| Udp { payload, ..Udp::new("10.3.0.9", "10.1.0.2") };
    let v6 = Udp { payload: 1500 - 48, ..Udp::new("fd00:2::1", "fd00:1::2") };
    // As long as the link to the host takes, and longer with a stack; among others in one burst.
    let short = v4(40);
    for (port, full) in [(F0, v4(1500 - 28)), (F1, v4(1500 - 28)), (F1, v6)] {
        let before = edge.total("sketchint.stripped");
        let frames = [with_stack(&short.frame(port)), with_stack(&full.frame(port))];
        let sent = edge.receive(port, &[&frames[..], &[short.frame(port)]].concat());
        let wanted = [&short, &full, &short].map(|packet| (H0, lasting(&packet.packet())));
        let sent: Vec<_> = sent.iter().map(|(port, frame)| (*port, lasting(body(frame)))).collect();
        assert_eq!(sent, wanted);
        assert_eq!(edge.total("sketchint.stripped"), before + 2);
        let stacks = node.shown().stacks;
        let read: Vec<_> = stacks.iter().map(|stack| stack.as_ref().map(hops)).collect();
        let with = Some(vec![(9, 5)]);
        assert_eq!(read, [with.clone(), with, None], "by port {port}");
    }
    assert_eq!(edge.total("sketchint.taken_out"), 0);
    // What waits for its host's address is read as well.
    let waits = Udp { to: "10.1.0.77", ..v4(1500 - 28) };
    let stripped = edge.total("sketchint.stripped");
    assert_eq!(edge.receive(F0, &[with_stack(&waits.frame(F0))]).len(), 0);
    assert_eq!(edge.total("sketchint.stripped"), stripped + 1);
    assert_eq!(hops(&node.shown().stacks[0].unwrap()), [(9, 5)]);
    edge.slow_path(0.0);
    // And what is too long without its stack is refused without it.
    let long = edge.exchange(F0, &[with_stack(&v4(1500 - 27).frame(F0))]);
    assert_eq!(icmp(&long[0].1), (3, 4, 1500));
    assert_eq!(edge.total("sketchint.taken_out"), 1);
    edge.stop();
}

#[test]
fn a_host_with_a_sink_of_its_own_gets_stacks_that_fit_its_link() {
    let sink = "name = \"h0\", role = \"host\", host_sink = true";
    let changes = [("name = \"h0\", role = \"host\"", sink)];
    let (mut edge, node) = router_with("int host sink", 2, &changes);
    edge.now_ns = sent_ns();
    // With its stack, and the switch's hop on it, the first fits; the second does not.
    for (payload, wanted) in [(1500 - 28 - 32, Some(vec![(9, 5), (2, 700)])), (1500 - 28, None)] {
        let packet = Udp { payload, ..Udp::new("10.3.0.9", "10.1.0.2") };
        let sent = edge.receive(F0, &[with_stack(&packet.frame(F0))]);
        let [(H0, frame)] = &sent[..] else { panic!("{payload}: {} frames", sent.len()) };
        let (stack, plain) = taken(frame);
        assert_eq!(stack.as_ref().map(hops), wanted);
        assert_eq!(lasting(body(&plain)).len(), packet.packet().len());
    }
    assert_eq!((edge.total("sketchint.stripped"), edge.total("sketchint.taken_out")), (0, 1));
    assert!(node.shown().stacks.iter().all(Option::is_none));
    edge.stop();
}

/// An Ethernet frame with an IPv4 packet.
fn stacked_frame(packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &[8, 0], packet].concat()
}

#[test]
fn a_worker_without_a_session_strips_in_front_of_hosts() {
    let mut edge = Edge::new("int restarted", &[]);
    edge.acquaint();
    assert_eq!(edge.worker.keys(), None);
    assert!(matches!(Carrier::default(), Carrier::Tos(_)) && Worker::strips(&edge.worker));
    let leaving = Udp::new("10.2.0.1", "10.1.0.2");
    let sent = edge.receive(F0, &[with_stack(&leaving.frame(F0))]);
    assert_eq!((sent[0].0, lasting(body(&sent[0].1))), (H0, lasting(&leaving.packet())));
    assert_eq!(edge.total("sketchint.stripped"), 1);
    edge.stop();
}
