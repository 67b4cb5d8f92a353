//! What reports say of queues: what packets met at the switches that pushed, and what sinks say of
//! their own, which push nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery, EpochHead, HashKeys, Node, NodeEnd};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::around::Queued;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::{FlowKey, HashFamily, HashKey};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::report::Queue;
use calumma_sketchint_analysis::{Delivered, Limits, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};

const EPOCH: u64 = 1000;

/// By node id, from 1.
const NAMES: [&str; 4] = ["e1", "e2", "s1", "e3"];

/// A packet: switches that pushed, each with its queue, and the sink's own queue.
type Packet = (&'static [(u32, u32)], Option<Queued>);

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).unwrap()
}

/// What the sink of this number delivers of these packets.
fn side(own: u32, packets: &[Packet]) -> Side {
    let (layout, key) = (Layout::default(), HashKey::from_bytes([9; 32]));
    let (family, claims, clock) = (HashFamily::new(&key), layout.claims(1), clock());
    let setup = SinkSetup { layout, own: Some(own), family, claims, clock, has_times: false };
    let mut record = SinkWindow::<FlowKey, ()>::new(Arc::new(setup), (), 1).unwrap();
    record.begin(&(), EPOCH);
    for &(hops, queued) in packets {
        let mut stack = Stack::EMPTY;
        for &(node, queued) in hops {
            stack.push(Hop { node, latency_ns: 700, queued, ..Hop::UNKNOWN });
        }
        let keys = [FlowKey::from_words(0x0A01_0002, 0x0A02_0002, 7 << 16 | 53, 17)];
        let leaving = Leaving { keys: &keys, hashes: None, polled_ns: clock.start_of(EPOCH) };
        record.record(&leaving, &[Some(&stack)]);
        record.record_own(&leaving, &[300]);
        if let Some(queued) = queued {
            record.record_own_queue(queued, 1);
        }
    }
    let window = record.frame(key.id(), 1);
    let (system, epoch, side) = (SystemId::SKETCHINT, EPOCH, SideKind::Egress);
    let (packets, body) = (window.totals.packets, window.encode());
    Side { system, epoch, side, stall_ns: 0, packets, counters: Vec::new(), body }
}

/// The queues that the report on what e2 and e3 delivered has, by switch.
fn reported(sinks: [&[Packet]; 2]) -> BTreeMap<String, Option<Queue>> {
    let names = (1..).zip(NAMES).map(|(id, name)| (id, name.to_owned())).collect();
    let keys = HashKeys::new(HashKey::from_bytes([9; 32]));
    let mut windows = Windows::new(Layout::default(), Limits::default(), keys, names);
    let deliver = |(id, packets): (u16, &[Packet])| {
        let name = NAMES[usize::from(id) - 1].to_owned();
        let node = Arc::new(Node { name, role: Role::Edge, id });
        let side = windows.decode(&node, &side(id.into(), packets)).unwrap();
        let (sides, doubts) = (vec![(SideKind::Egress, Some(side))], Vec::new());
        let kind = Some("software");
        let end = NodeEnd { late_packets: Some(0), kind, ..NodeEnd::default() };
        Delivery { node, sides, doubts, end }
    };
    let nodes = [2, 4].into_iter().zip(sinks).map(deliver).collect();
    let start_unix_ns = clock().start_of(EPOCH);
    let head = EpochHead { epoch: EPOCH, start_unix_ns, length_ms: 1000 };
    let collected: Collected<Delivered> = Collected { head, nodes, topology: None };
    let (found, problems) = windows.analyse(&collected, 20, "on");
    assert!(problems.is_empty(), "{problems:?}");
    found.nodes.into_iter().map(|of| (of.node, of.queue)).collect()
}

fn queue(unit: Option<&str>, at_least: bool, packets: u64, mean: f64, max: u32) -> Option<Queue> {
    Some(Queue { unit: unit.map(str::to_owned), at_least, packets, mean, max })
}

#[test]
fn a_switchs_queue_is_what_it_pushed_and_what_it_says_as_a_sink() {
    let asked = |packets| Some(Queued::of_poll(Some(packets), 1, true));
    let full = Some(Queued::of_poll(None, 32, false));
    let to_e2: &[Packet] = &[
        (&[(1, 2), (3, 9)], asked(40)),
        (&[(1, 4), (3, u32::MAX)], asked(60)),
        // It came back from the slow path.
        (&[(1, 6)], None),
    ];
    // By e2 to e3, which looks at what its polls find.
    let to_e3: &[Packet] = &[(&[(2, 8)], full), (&[(2, 0)], full)];
    let queues = reported([to_e2, to_e3]);
    let wanted = [
        ("e1", queue(None, false, 3, 4.0, 6)),
        ("e2", queue(Some("packets"), false, 4, 27.0, 60)),
        ("e3", queue(Some("packets"), true, 2, 32.0, 32)),
        ("s1", queue(None, false, 1, 9.0, 9)),
    ];
    let wanted = wanted.map(|(name, queue)| (name.to_owned(), queue));
    assert_eq!(queues, BTreeMap::from(wanted));

    // A sink that has looked at no queue.
    let without: &[Packet] = &[(&[(1, 2)], None)];
    let queues = reported([without, &[]]);
    assert_eq!((queues["e1"].is_some(), &queues["e2"]), (true, &None));
}
