//! Whatever comes in, every packet is sent, dropped for one reason, or taken by the switch itself.

use proptest::prelude::*;

use crate::edge::{Edge, F0, F1, H0, H1, mac};
use crate::frames::{Udp, arp_request, ethernet, neighbour_solicitation, station};

/// Addresses of every kind: hosts that are known and not, networks behind one and several next
/// hops, the switch's own, nowhere, groups.
const V4: [&str; 10] = [
    "10.1.0.2",
    "10.1.0.7",
    "10.1.1.2",
    "10.2.0.1",
    "10.3.0.1",
    "10.9.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "10.66.0.1",
    "127.0.0.1",
];
const V6: [&str; 8] = [
    "fd00:1::2",
    "fd00:1::7",
    "fd00:1:1::2",
    "fd00:2::1",
    "fd00:9::1",
    "2001:db8::1",
    "ff02::1",
    "fe80::1",
];

#[derive(Clone, Debug)]
enum Step {
    Receive(usize, Vec<Vec<u8>>),
    SlowPath(f64),
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let v4 = (0..10_usize, 0..10_usize).prop_map(|(from, to)| (V4[from], V4[to]));
    let v6 = (0..8_usize, 0..8_usize).prop_map(|(from, to)| (V6[from], V6[to]));
    let sizes = prop_oneof![Just(30_usize), Just(1370), Just(1470), Just(1600)];
    let addresses = prop_oneof![2 => v4, 1 => v6];
    (addresses, 0u16..64, prop_oneof![4 => Just(64u8), 1 => 0u8..3], sizes).prop_map(
        |((from, to), port, ttl, payload)| {
            Udp { from, to, ports: (port, 9), ttl, payload }.packet()
        },
    )
}

fn frame(port: usize) -> impl Strategy<Value = Vec<u8>> {
    let vlan = prop_oneof![
        8 => Just((port == F1).then_some(100)),
        1 => prop_oneof![Just(None), Just(Some(100)), Just(Some(0)), Just(Some(7))],
    ];
    let host = station(port as u8);
    let framed = (packet(), vlan).prop_map(move |(packet, vlan)| {
        let ether_type = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86DD };
        ethernet(mac(port), host, vlan, ether_type, &packet)
    });
    let framed = framed.boxed();
    let damaged = (framed.clone(), any::<prop::sample::Index>(), any::<u8>(), 0usize..60).prop_map(
        |(mut frame, at, byte, cut)| {
            let at = at.index(frame.len().min(80));
            frame[at] = byte;
            frame.truncate(frame.len() - cut.min(frame.len() - 1));
            frame
        },
    );
    let asked = (0..10_usize, 0..10_usize)
        .prop_map(move |(from, about)| arp_request(host, V4[from], V4[about]));
    let solicited = (0..8_usize, 0..8_usize)
        .prop_map(move |(from, about)| neighbour_solicitation(host, V6[from], V6[about]));
    let noise = prop::collection::vec(any::<u8>(), 1..120);
    prop_oneof![8 => framed, 4 => damaged, 1 => asked, 1 => solicited, 1 => noise]
}

fn step() -> impl Strategy<Value = Step> {
    let port = prop_oneof![Just(H0), Just(H1), Just(F0), Just(F1)];
    let receive = port.prop_flat_map(|port| {
        prop::collection::vec(frame(port), 1..40)
            .prop_map(move |frames| Step::Receive(port, frames))
    });
    prop_oneof![3 => receive, 1 => (0.0..1.2_f64).prop_map(Step::SlowPath)]
}

#[test]
fn every_packet_is_accounted_for_whatever_comes_in() {
    // One edge for all cases: what one leaves behind is part of the next one's world.
    let neighbours: String =
        [("10.9.0.2", 2), ("10.9.1.2", 3), ("fd00:9:1::2", 3), ("10.1.0.2", 0), ("fd00:1::2", 0)]
            .map(|(address, port)| {
                let mac = station(port);
                format!("[[forwarding.neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\n")
            })
            .concat();
    let discard = "discard = true\n";
    let mut edge = Edge::new("conserved", &[(discard, &format!("{discard}{neighbours}"))]);
    edge.acquaint();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let edge_cell = std::cell::RefCell::new(edge);
    runner
        .run(&prop::collection::vec(step(), 1..12), |steps| {
            let mut edge = edge_cell.borrow_mut();
            for step in steps {
                match step {
                    Step::Receive(port, frames) => {
                        for (out, _) in edge.receive(port, &frames) {
                            prop_assert!(out <= F1);
                        }
                    }
                    Step::SlowPath(seconds) => {
                        edge.slow_path(seconds);
                    }
                }
            }
            edge.slow_path(0.0);
            edge.check_conservation();
            Ok(())
        })
        .unwrap();
    let edge = edge_cell.into_inner();
    // The cases have been of every kind.
    for kind in ["no_interface", "other_station", "unknown", "multicast", "header", "martian"] {
        assert!(edge.total(&format!("dropped.{kind}")) > 0, "{kind}");
    }
    for kind in ["ttl_expired", "no_route", "discard", "too_big", "neighbour_unresolved"] {
        assert!(edge.total(&format!("dropped.{kind}")) > 0, "{kind}");
    }
    assert!(edge.worker.counters.transmitted > 1000);
    edge.stop();
}
