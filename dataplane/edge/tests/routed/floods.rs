//! A host floods the slow path: hosts elsewhere, and neighbours that are known, notice nothing.

use calumma_edge::forward::slow::frames::read_arp;

use crate::edge::{Edge, F0, H0, H1, Sent, mac};
use crate::frames::{Udp, arp_reply, arp_request, body, ether_type, station};

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
