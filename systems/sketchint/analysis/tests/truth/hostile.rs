//! A sink that was admitted and sends what no sink can have kept: bytes of a real window are
//! changed. It is refused, or there is a report, also on the windows after it.

use std::sync::Arc;

use calumma_analysis::{Collected, Delivery, EpochHead, Node, NodeEnd};
use calumma_sketch::sketchint::{LinkSums, Shape};
use calumma_sketchint::frames::Window;
use calumma_wire::{Role, Side, SideKind};
use proptest::prelude::*;

use super::{EPOCHS, Network, Packet, clock, layout, packets};

/// Where in a window, in parts of 2^16 of it, and what is written there.
type Change = (u16, u8);

fn change() -> impl Strategy<Value = Change> {
    (any::<u16>(), prop_oneof![Just(0xFF), Just(0x80), any::<u8>()])
}

impl Network {
    /// Whether the next window of e2 is read once that is changed in it; it is reported then.
    fn report_changed(&mut self, packets: &[Packet], changes: &[Change]) -> bool {
        let node = Node { name: "e2".to_owned(), role: Role::Edge, id: 2 };
        let mut sink = self.sink(2, packets);
        for (at, byte) in changes {
            let at = (sink.body.len() * usize::from(*at)) >> 16;
            sink.body[at] = *byte;
        }
        let epoch = self.window * EPOCHS;
        self.window += 1;
        let Ok(side) = self.windows.decode(&node, &sink) else { return false };
        let delivery = Delivery {
            node: Arc::new(node),
            sides: vec![(SideKind::Egress, Some(side))],
            doubts: Vec::new(),
            end: NodeEnd { late_packets: Some(0), ..NodeEnd::default() },
        };
        let head = EpochHead { epoch, start_unix_ns: clock().start_of(epoch), length_ms: 1000 };
        let collected = Collected { head, nodes: vec![delivery], topology: None };
        let (found, _) = self.windows.analyse(&collected, EPOCHS, "on");
        assert!(serde_json::to_string(&found).is_ok());
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_a_sink_sends_there_is_a_report(
        packets in prop::collection::vec(packets(30), 1..200),
        changes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..20),
    ) {
        let shape = Shape { tower_words: 64, row_sets: 4, ..Shape::default() };
        let mut network = Network::new(layout(shape), 1);
        for changes in &changes {
            network.report_changed(&packets, changes);
        }
        prop_assert!(network.report_changed(&packets, &[]));
    }
}

/// Packets of two sinks are added up: no sum of what they say is a small number.
#[test]
fn sinks_that_say_too_much_make_no_small_sums() {
    const ALL: u64 = 1 << 63;
    let shape = Shape { tower_words: 64, row_sets: 4, ..Shape::default() };
    let mut network = Network::new(layout(shape), 1);
    let packet =
        Packet { flow: 1, path: 1, latencies: [9; 3], own: 9, lcore: 0, says: super::Says::All };
    let deliver = |(name, id): (&str, u16), unmarked: u64| {
        let side = network.sink(id.into(), std::slice::from_ref(&packet));
        let mut window = Window::decode(&side.body, &network.layout).unwrap();
        for packets in [&mut window.totals.packets, &mut window.totals.int_packets] {
            *packets = ALL;
        }
        window.paths[0].packets = ALL;
        window.unclassified = u64::MAX;
        window.unmarked = unmarked;
        for node in &mut window.nodes {
            (node.packets, node.queued, node.queue_sum) = (ALL, ALL, 0);
        }
        window.links =
            vec![LinkSums { from: 1, to: 3, packets: ALL, sum_ns: 0, min_ns: 0, max_ns: 0 }];
        let side = Side { packets: ALL, body: window.encode(), ..side };
        let node = Node { name: name.to_owned(), role: Role::Edge, id };
        let side = network.windows.decode(&node, &side).unwrap();
        let end = NodeEnd { late_packets: Some(0), ..NodeEnd::default() };
        let sides = vec![(SideKind::Egress, Some(side))];
        Delivery { node: Arc::new(node), sides, doubts: Vec::new(), end }
    };
    let nodes = |unmarked| [("e2", 2), ("e3", 6)].map(|of| deliver(of, unmarked)).into();
    // A sink is not sound that had packets without marks.
    let both = [(nodes(0), true), (nodes(ALL), false)];
    for (nodes, are_sound) in both {
        let epoch = network.window * EPOCHS;
        let head = EpochHead { epoch, start_unix_ns: clock().start_of(epoch), length_ms: 1000 };
        let collected = Collected { head, nodes, topology: None };
        let (found, _) = network.windows.analyse(&collected, EPOCHS, "on");
        let of = found.coverage.sinks;
        let unmarked = if are_sound { 0 } else { u64::MAX };
        assert_eq!((of.packets, of.int_packets, of.unmarked), (u64::MAX, u64::MAX, unmarked));
        let at_s1 = found.nodes.iter().find(|node| node.node == "s1").unwrap();
        let queued = at_s1.queue.as_ref().map(|queue| queue.packets);
        assert_eq!((at_s1.at_least, queued), (u64::MAX, are_sound.then_some(u64::MAX)));
        let link = found.links.iter().find(|link| link.to == "s1").unwrap();
        assert_eq!(link.at_least, u64::MAX);
        let mut many = found.flows.iter().flat_map(|flow| &flow.hops).map(|hop| hop.packets);
        assert!(many.all(|of| of.at_most.is_none_or(|most| most >= of.at_least)));
    }
}
