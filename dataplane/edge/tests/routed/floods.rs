//! A host floods the slow path: hosts elsewhere, and neighbours that are known, notice nothing.

use calumma_edge::forward::slow::frames::read_arp;
use calumma_edge::forward::thread::most_parked;
use calumma_edge::switch::mbufs;

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

    /// Sends to as many new addresses as are asked for at a time.
    fn ask_all(&mut self) {
        for _ in 0..UNKNOWN * WAITING / OTHER_RING {
            self.ask(OTHER_RING / WAITING);
            self.edge.slow_path_alone();
        }
    }

    /// Answers for the last addresses that were asked for: half of them, and then the others.
    fn answer_all(&mut self) {
        for half in 0..UNKNOWN / LINK_RING {
            let first = self.asked - UNKNOWN + half * LINK_RING;
            self.send(|port| {
                let says = |number| {
                    let address = Self::address(port, number);
                    neighbour_advertisement(station(port as u8), &address, mac(port), None)
                };
                (first..first + LINK_RING).map(says).collect()
            });
            self.edge.slow_path_alone();
        }
    }
}

#[test]
fn all_that_hosts_can_park_leaves_mbufs_for_the_packets_of_others() {
    const DESCRIPTORS: usize = 4 * (512 + 512);
    let less = ["host", "fabric"].map(|role| {
        let port = format!("role = \"{role}\" }}");
        let less = format!("role = \"{role}\", rx_descriptors = 512, tx_descriptors = 512 }}");
        (port, less)
    });
    let less: Vec<_> = less.iter().map(|(port, less)| (port.as_str(), less.as_str())).collect();
    let mut edge = Edge::with_mbufs("parked", &less, |config| mbufs(config, 1));
    edge.acquaint();
    let in_descriptors = edge.hold(DESCRIPTORS);
    let mut parkers = Parkers { edge, asked: 1, no_mbuf: 0 };

    // Within the ten milliseconds in which lcores get new neighbours once, again and again.
    for _ in 0..3 {
        parkers.ask_all();
        parkers.answer_all();
    }
    // They have them, and take nothing back.
    for _ in 0..20 {
        parkers.edge.slow_path_alone();
    }
    for _ in 0..2 {
        parkers.ask_all();
        parkers.answer_all();
    }
    parkers.ask_all();
    parkers.ask(OTHER_RING / WAITING);
    parkers.send(|port| {
        let says = |_| neighbour_advertisement(station(9), "fd00:1::9", mac(port), None);
        (0..LINK_RING).map(says).collect()
    });
    let parked = parkers.edge.in_use() - DESCRIPTORS;
    // Half of the ring to the lcores is full of questions, which are no received packets.
    let least = 2 * (2 * UNKNOWN * WAITING + LINK_RING + OTHER_RING) + 1024;
    println!("{parked} packets are parked, of at most {}", most_parked(4, 1));
    assert!((least..=most_parked(4, 1)).contains(&parked), "{parked} are parked, not {least}");

    let Parkers { mut edge, mut no_mbuf, .. } = parkers;
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
    assert_eq!(no_mbuf, 0, "packets that came had no mbuf");
    assert!(edge.total("dropped.returns_full") > 0, "that was not all");

    drop(in_descriptors);
    for _ in 0..8 {
        edge.slow_path(1.0);
    }
    assert_eq!((edge.total("slow_path.waiting"), edge.in_use()), (0, 0));
    edge.stop();
}
