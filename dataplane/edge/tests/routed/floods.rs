//! A host floods the slow path: hosts elsewhere, and neighbours that are known, notice nothing.

use std::net::{IpAddr, Ipv4Addr};

use calumma_edge::forward::config::Target;
use calumma_edge::forward::slow::frames::read_arp;
use calumma_edge::forward::thread::most_parked;
use calumma_edge::pools;
use ipnet::IpNet;

use crate::edge::{Edge, F0, H0, H1, Sent, mac};
use crate::frames::{
    Udp, arp_reply, arp_request, body, ether_type, neighbour_advertisement, station,
};

/// Packets that the flooding host sends between two looks of the slow path into its rings.
const FLOOD: usize = 700;

/// The answers of the host behind h1 to those of the edge's questions that are about it.
fn answers(sent: &[Sent]) -> Vec<Vec<u8>> {
    let asks = |(port, frame): &&Sent| {
        let said = (ether_type(frame) == 0x0806).then(|| read_arp(body(frame))).flatten();
        *port == H1 && said.is_some_and(|said| said.asks && said.about.to_string() == "10.1.1.2")
    };
    let answer = |_| arp_reply(station(H1 as u8), "10.1.1.2", mac(H1), None);
    sent.iter().filter(asks).map(answer).collect()
}

/// Lets the host behind h0 send `flood` again and again, longer than neighbours are believed, and
/// checks that packets to and from the host behind h1 go on.
fn survives(name: &str, flood: impl Fn(usize) -> Vec<u8>) -> Edge {
    let mut edge = Edge::new(name, &[]);
    edge.acquaint();
    let mut sent_so_far = 0;
    let mut questions = 0;
    for _ in 0..320 {
        let frames: Vec<_> = (sent_so_far..sent_so_far + FLOOD).map(&flood).collect();
        sent_so_far += FLOOD;
        let mut sent = edge.receive(H0, &frames);
        sent.extend(edge.slow_path(0.2));
        edge.receive(H0, &frames);
        let answers = answers(&sent);
        questions += answers.len();
        edge.receive(H1, &answers);

        let to_host = edge.receive(F0, &[Udp::new("10.2.0.9", "10.1.1.2").frame(F0)]);
        assert_eq!(to_host.len(), 1, "{name}: nothing goes to the other host");
        assert_eq!(to_host[0].0, H1);
    }
    edge.slow_path(0.0);
    assert!(questions > 0, "{name}: longer than a neighbour is believed");
    edge
}

#[test]
fn packets_that_get_icmp_errors_cost_other_hosts_nothing() {
    let expired = Udp { ttl: 1, ..Udp::new("10.1.0.2", "10.2.0.9") }.frame(H0);
    let edge = survives("expired", |_| expired.clone());
    assert!(edge.total("icmp_errors.withheld") > 0);
    edge.stop();
}

#[test]
fn packets_to_addresses_that_nobody_has_cost_other_hosts_nothing() {
    let to = |n: usize| format!("10.1.0.{}", 3 + n % 250);
    let mut edge = survives("nobody", |n| Udp::new("10.1.0.2", &to(n)).frame(H0));
    assert!(edge.total("dropped.neighbour_queue_full") > 0);
    // Nor do they keep hosts elsewhere from finding one that is not known yet.
    let sent = edge.exchange(H1, &[Udp::new("10.1.1.2", "10.1.1.77").frame(H1)]);
    let asks = |(port, frame): &Sent| {
        let said = (ether_type(frame) == 0x0806).then(|| read_arp(body(frame))).flatten();
        *port == H1 && said.is_some_and(|said| said.about.to_string() == "10.1.1.77")
    };
    assert!(sent.iter().any(asks), "{sent:?}");
    edge.stop();
}

#[test]
fn forged_questions_cost_other_hosts_nothing() {
    let from = |n: usize| format!("10.1.0.{}", 3 + n % 250);
    let edge = survives("forged", |n| arp_request(station(n as u8), &from(n), "10.1.0.1"));
    assert!(edge.total("dropped.slow_path_full") > 0);
    edge.stop();
}

/// Addresses that one port's packets ask for at a time, and how many packets wait for each.
const UNKNOWN: usize = 256;
const WAITING: usize = 4;

/// Tasks of neighbour discovery, and others, that the rings of one port hold.
const LINK_RING: usize = 128;
const OTHER_RING: usize = 256;

/// Packets that the ring back to the lcores holds.
const RETURNS: usize = 2048;

/// Hosts on the two host ports that have an edge keep their packets.
struct Parkers {
    edge: Edge,
    /// Addresses on each port that were sent to so far.
    asked: usize,
    /// Frames that no mbuf was there for.
    no_mbuf: usize,
}

impl Parkers {
    fn address(port: usize, number: usize) -> String {
        format!("fd00:1{}::1:{number:x}", if port == H0 { "" } else { ":1" })
    }

    fn send(&mut self, of: impl Fn(usize) -> Vec<Vec<u8>>) {
        for port in [H0, H1] {
            self.no_mbuf += self.edge.receive_what_has_room(port, &of(port)).1;
        }
    }

    /// Sends to so many new addresses, as much to each as waits for it.
    fn ask(&mut self, addresses: usize) {
        let new = self.asked..self.asked + addresses;
        self.asked = new.end;
        self.send(|port| {
            let from = Self::address(port, 0);
            let to = |number| Udp::new(&from, &Self::address(port, number)).frame(port);
            new.clone().map(to).flat_map(|frame| std::iter::repeat_n(frame, WAITING)).collect()
        });
    }

    /// Sends to so many new addresses, as fast as the slow path takes that in.
    fn ask_in_turn(&mut self, addresses: usize) {
        for _ in 0..addresses / (OTHER_RING / WAITING) {
            self.ask(OTHER_RING / WAITING);
            self.slow_path_alone();
        }
    }

    /// Answers for the last so many addresses that were asked for.
    fn answer(&mut self, addresses: usize) {
        for first in (self.asked - addresses..self.asked).step_by(LINK_RING) {
            self.send(|port| {
                let says = |number| {
                    let address = Self::address(port, number);
                    neighbour_advertisement(station(port as u8), &address, mac(port), None)
                };
                (first..first + LINK_RING).map(says).collect()
            });
            self.slow_path_alone();
        }
    }

    /// Fills the rings of neighbour discovery with what nobody has asked for.
    fn say_nothing_new(&mut self) {
        self.send(|port| {
            let says = |_| neighbour_advertisement(station(9), "fd00:1::9", mac(port), None);
            (0..LINK_RING).map(says).collect()
        });
    }

    /// Lets the slow path work, that frees nothing: it may be kept from its CPU in the middle of
    /// that.
    fn slow_path_alone(&mut self) {
        for _ in 0..2 {
            let in_use = self.edge.in_use();
            self.edge.slow_path_alone();
            assert_eq!(self.edge.in_use(), in_use, "only lcores free what they have received");
        }
    }
}

/// What the edge's file has in place of its own ports, which have fewer descriptors.
const LESS: [(&str, &str); 2] = [
    ("role = \"host\" }", "role = \"host\", rx_descriptors = 512, tx_descriptors = 512 }"),
    ("role = \"fabric\" }", "role = \"fabric\", rx_descriptors = 512, tx_descriptors = 512 }"),
];
const DESCRIPTORS: usize = 4 * (512 + 512);

/// Lets packets go from and to the host behind h1; gives how many there was no mbuf for.
fn go_on(edge: &mut Edge) -> usize {
    let mut no_mbuf = 0;
    for n in 0..100 {
        let from_host = Udp { ports: (n, 80), ..Udp::new("10.1.1.2", "10.2.0.9") }.frame(H1);
        let to_host = Udp { ports: (80, n), ..Udp::new("10.2.0.9", "10.1.1.2") }.frame(F0);
        for (port, frame, to) in [(H1, from_host, F0), (F0, to_host, H1)] {
            let (sent, without) = edge.receive_what_has_room(port, &vec![frame; dpdk::BURST]);
            let sent = sent.into_iter().filter(|(port, _)| *port == to).count();
            assert_eq!(sent + without, dpdk::BURST);
            no_mbuf += without;
        }
    }
    no_mbuf
}

#[test]
fn all_that_hosts_can_park_leaves_mbufs_for_the_packets_of_others() {
    let mut edge = Edge::with_mbufs("parked", &LESS, |config| pools::to_receive(config, 1));
    edge.acquaint();
    let in_descriptors = edge.hold(DESCRIPTORS);
    let mut parkers = Parkers { edge, asked: 1, no_mbuf: 0 };

    // More find their neighbours than are kept of those, and lcores take nothing back.
    parkers.ask_in_turn(UNKNOWN);
    parkers.answer(UNKNOWN);
    parkers.ask_in_turn(LINK_RING);
    parkers.answer(LINK_RING);
    // As many wait as may, all are in hand that the slow path takes, and the rings are full.
    parkers.ask_in_turn(UNKNOWN);
    for _ in 0..30 {
        parkers.say_nothing_new();
        parkers.slow_path_alone();
    }
    parkers.ask(OTHER_RING / WAITING);
    parkers.say_nothing_new();
    let parked = parkers.edge.in_use() - DESCRIPTORS;
    // Half of the ring to the lcores is full of questions, which are no received packets.
    let rings = LINK_RING + OTHER_RING;
    let least = 2 * (2 * UNKNOWN * WAITING + rings) + 5 * rings * 9 / 10 + RETURNS / 2;
    println!("{parked} packets are parked, of at most {}", most_parked(4, 1));
    assert!((least..=most_parked(4, 1)).contains(&parked), "{parked} are parked, not {least}");

    let Parkers { mut edge, no_mbuf, .. } = parkers;
    assert_eq!(no_mbuf + go_on(&mut edge), 0, "packets that came had no mbuf");
    assert!(edge.total("dropped.returns_full") > 0, "that was not all");

    drop(in_descriptors);
    for _ in 0..8 {
        edge.slow_path(1.0);
    }
    assert_eq!((edge.total("slow_path.waiting"), edge.in_use()), (0, 0));
    edge.stop();
}

/// Next hops of routes that never answer.
const HOPS: usize = 6000;

/// Where a route by one of them leads, or the address of the next hop itself.
fn hop(network: u8, number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, network, 1 + (number / 250) as u8, 1 + (number % 250) as u8)
}

#[test]
fn packets_for_however_many_silent_next_hops_leave_mbufs_for_the_packets_of_others() {
    let route = "[[forwarding.route]]\nto = \"10.66.0.0/16\"";
    let network =
        "[[forwarding.interface]]\nport = \"f1\"\nvlan = 200\naddresses = [\"10.16.0.1/16\"]\n\n";
    let with_network = [network, route].concat();
    let changes = [&LESS[..], &[(route, &with_network)]].concat();
    let mut edge = Edge::with_mbufs("hops", &changes, |config| pools::to_receive(config, 1));
    edge.acquaint();
    let mut plan = edge.plan();
    let on = plan.interfaces.iter().position(|interface| interface.vlan == Some(200)).unwrap();
    plan.routes.extend((0..HOPS).map(|number| {
        let via = Target::Via(vec![(on as u16, hop(16, number).into())]);
        (IpNet::from(IpAddr::from(hop(64, number))), via)
    }));
    edge.routes.apply(plan).unwrap();
    edge.slow_path(0.0);
    let in_descriptors = edge.hold(DESCRIPTORS);

    let (mut sent, mut no_mbuf) = (0, 0);
    for hops in (0..HOPS).collect::<Vec<_>>().chunks(2 * OTHER_RING / WAITING) {
        for (port, hops) in [H0, H1].into_iter().zip(hops.chunks(OTHER_RING / WAITING)) {
            let from = format!("10.1.{port}.2");
            let to = |&number: &usize| Udp::new(&from, &hop(64, number).to_string()).frame(port);
            let frames = hops.iter().map(to).flat_map(|frame| std::iter::repeat_n(frame, WAITING));
            let frames: Vec<_> = frames.collect();
            sent += frames.len();
            no_mbuf += edge.receive_what_has_room(port, &frames).1;
        }
        edge.slow_path_alone();
        edge.take_back();
    }
    let may_wait = 2 * UNKNOWN * WAITING;
    println!("{} of {sent} packets are parked", edge.in_use() - DESCRIPTORS);
    assert_eq!(no_mbuf + go_on(&mut edge), 0, "packets that came had no mbuf");
    assert_eq!(edge.in_use() - DESCRIPTORS, may_wait);
    assert_eq!(edge.total("slow_path.waiting"), may_wait as u64);
    assert_eq!(edge.total("dropped.neighbour_queue_full"), (sent - may_wait) as u64);

    drop(in_descriptors);
    for _ in 0..8 {
        edge.slow_path(1.0);
    }
    assert_eq!((edge.total("slow_path.waiting"), edge.in_use()), (0, 0));
    edge.stop();
}
