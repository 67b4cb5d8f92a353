//! A sink that was admitted and sends what no sink can have kept: bytes of a real window are
//! changed. It is refused, or there is a report, also on the windows after it.

use std::sync::Arc;

use calumma_analysis::{Collected, Delivery, EpochHead, Node, NodeEnd};
use calumma_sketch::sketchint::Shape;
use calumma_wire::{Role, SideKind};
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
