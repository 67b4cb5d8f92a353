//! What is not routed and goes to a port all the same: it enters and leaves the network like all
//! else.

use crate::edge::{Edge, F0, F1, H0, H1};
use crate::frames::{Udp, station};
use crate::measured::{LENGTH_NS, Recorded, TOS, flow, plan};

const CARRIERS: [&str; 4] = [
    TOS,
    "carrier = { kind = \"shim\" }",
    "carrier = { kind = \"shim\", hops = true }",
    "carrier = { kind = \"tos\", signature = true }",
];

const GROUP: &str = "239.1.2.3";

/// A packet to a group, from the station behind a port.
fn to_group(port: usize) -> Vec<u8> {
    let mut frame = Udp::new("10.1.0.2", GROUP).frame(port);
    frame[..12].copy_from_slice(&[[1, 0, 0x5E, 1, 2, 3], station(port as u8).0].concat());
    frame
}

/// An edge that lets multicast pass to this port.
fn edge(name: &str, carrier: &str, port: &str, more: &[(&str, &str)]) -> Edge {
    let mode = format!("mode = \"routed\"\nmulticast = \"{port}\"");
    let own = [(TOS, carrier), ("mode = \"routed\"", mode.as_str())];
    let changes = [&own[..], more].concat();
    Edge::new(name, &changes)
}

/// An edge between port pairs marks what it sends, to groups as well.
#[test]
fn multicast_that_another_edge_has_marked_leaves_the_network_at_a_host() {
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        let mut pairs = Edge::new(&format!("pairs{number}"), &[(TOS, carrier)]);
        let mut far = edge(&format!("group{number}"), carrier, "h0", &[]);
        let plan = plan(pairs.now_ns);
        let start = plan.clock.start_of(plan.first_epoch);
        for edge in [&mut pairs, &mut far] {
            edge.begin(&plan);
            edge.advance_to(start + 1);
        }
        for packet in 0..40 {
            let mut sent = pairs.pool.alloc_with(&to_group(H0)).unwrap();
            assert!(pairs.worker.ingress(std::slice::from_mut(&mut sent)).is_empty());
            let marked = sent.data().to_vec();
            assert_ne!(marked, to_group(H0), "{carrier}");
            if packet >= 3 {
                assert_eq!(far.receive(F0, &[marked]), [(H0, to_group(H0))], "{carrier}");
            }
        }
        let (mut entered, mut left) = (Recorded::default(), Recorded::default());
        entered.add(&plan, pairs.advance_to(start + 4 * LENGTH_NS));
        left.add(&plan, far.advance_to(start + 4 * LENGTH_NS));
        let of = flow("10.1.0.2", GROUP);
        assert_eq!(entered.entered, [(of, 40)].into(), "{carrier}");
        assert_eq!(left.left, [(of, 37)].into(), "{carrier}");
        assert!(left.entered.is_empty());
        assert_eq!(far.total("routed.passed"), 37);
        far.slow_path(0.0);
        far.stop();
    }
}

#[test]
fn what_passes_to_a_port_is_measured_by_where_it_comes_from_and_goes_to() {
    let sink = "name = \"h0\", role = \"host\", host_sink = true";
    let sink = &[("name = \"h0\", role = \"host\"", sink)][..];
    let none = &[][..];
    // Whether the packet enters, leaves, and has a mark when it comes and when it goes.
    let cases = [
        (H0, "f0", F0, none, (1, 0), (false, true)),
        (H0, "h1", H1, none, (1, 1), (false, false)),
        (F0, "h0", H0, none, (0, 1), (true, false)),
        (F0, "h0", H0, sink, (0, 1), (true, true)),
        (F0, "f1", F1, none, (0, 0), (true, true)),
    ];
    for (number, (from, port, to, more, (enters, leaves), marks)) in cases.into_iter().enumerate() {
        let mut edge = edge(&format!("way{number}"), TOS, port, more);
        let plan = plan(edge.now_ns);
        let start = plan.clock.start_of(plan.first_epoch);
        edge.begin(&plan);
        edge.advance_to(start + 1);
        let mut pairs = Edge::new(&format!("marks{number}"), &[]);
        pairs.begin(&plan);
        pairs.advance_to(start + 1);
        let plain = to_group(from);
        let mut packet = pairs.pool.alloc_with(&plain).unwrap();
        assert!(pairs.worker.ingress(std::slice::from_mut(&mut packet)).is_empty());
        let marked = packet.data().to_vec();
        let of = |is_marked: bool| if is_marked { marked.clone() } else { plain.clone() };
        assert_eq!(edge.receive(from, &[of(marks.0)]), [(to, of(marks.1))], "{number}");
        assert_eq!(edge.total("routed.local"), u64::from((from, to) == (H0, H1)), "{number}");
        let mut recorded = Recorded::default();
        recorded.add(&plan, edge.advance_to(start + 4 * LENGTH_NS));
        let sum = |of: std::collections::BTreeMap<_, i64>| of.into_values().sum::<i64>();
        assert_eq!((sum(recorded.entered), sum(recorded.left)), (enters, leaves), "{number}");
        edge.slow_path(0.0);
        edge.stop();
    }
}
