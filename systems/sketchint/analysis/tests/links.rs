//! How long packets were on a link is reported only where every sink delivered, had room for all of
//! its links, and could count all that it had.

use std::sync::Arc;

use calumma_analysis::{ClockOffset, Collected, Delivery, EpochHead, HashKeys, Node, NodeEnd};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::LinkSums;
use calumma_sketch::{FlowKey, HashFamily, HashKey};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::report::LinkReport;
use calumma_sketchint_analysis::{Delivered, Limits, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};

const EPOCH: u64 = 1000;

/// Sinks, which are hops as well.
const SINKS: [(u16, &str); 2] = [(1, "e1"), (2, "e2")];

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).unwrap()
}

/// What a sink delivers to which packets came by these pairs of switches, the second of which has
/// them `apart_ns` later by its clock.
fn side(own: u16, packets: &[[u32; 2]], apart_ns: u64) -> Side {
    let (layout, key) = (Layout::default(), HashKey::from_bytes([9; 32]));
    let (family, claims, clock) = (HashFamily::new(&key), layout.claims(1), clock());
    let setup = SinkSetup { layout, own: Some(own.into()), family, claims, clock, has_times: true };
    let mut record = SinkWindow::<FlowKey, ()>::new(Arc::new(setup), (), 1).unwrap();
    record.begin(&(), EPOCH);
    for nodes in packets {
        let mut stack = Stack::EMPTY;
        for (node, at_ns) in nodes.iter().zip([0, 1000 + apart_ns]) {
            let (ingress_ns, egress_ns) = (at_ns + 9000, at_ns + 10_000);
            let hop = Hop { node: *node, latency_ns: 1000, ingress_ns, egress_ns, ..Hop::UNKNOWN };
            stack.push(hop);
        }
        let keys = [FlowKey::from_words(0x0A01_0002, 0x0A02_0002, 7 << 16 | 53, 17)];
        let leaving = Leaving { keys: &keys, hashes: None, polled_ns: clock.start_of(EPOCH) };
        record.record(&leaving, &[Some(&stack)]);
        record.record_links(&[Some(&stack)], &[None]);
    }
    let window = record.frame(key.id(), 1);
    let (system, epoch, side) = (SystemId::SKETCHINT, EPOCH, SideKind::Egress);
    let (packets, body) = (window.totals.packets, window.encode());
    Side { system, epoch, side, stall_ns: 0, packets, counters: Vec::new(), body }
}

/// What is reported of the link from e1 to e2.
fn reported(sinks: [&[[u32; 2]]; 2], apart_ns: u64) -> LinkReport {
    reported_with(0, sinks.map(Some), apart_ns).unwrap()
}

/// The same where a sink may be missing, and so many packets were late at each.
fn reported_with(late: u64, sinks: [Option<&[[u32; 2]]>; 2], apart_ns: u64) -> Option<LinkReport> {
    let names = SINKS.map(|(id, name)| (id.into(), name.to_owned()));
    let keys = HashKeys::new(HashKey::from_bytes([9; 32]));
    let mut windows = Windows::new(Layout::default(), Limits::default(), keys, names.into());
    let deliver = |((id, name), packets): ((u16, &str), Option<&[[u32; 2]]>)| {
        let node = Arc::new(Node { name: name.to_owned(), role: Role::Edge, id });
        let side = |packets| windows.decode(&node, &side(id, packets, apart_ns)).unwrap();
        let side = packets.map(side);
        let offset = Some(ClockOffset { offset_ns: 0, error_ns: 100 });
        let end =
            NodeEnd { late_packets: side.is_some().then_some(late), offset, ..NodeEnd::default() };
        Delivery { node, sides: vec![(SideKind::Egress, side)], doubts: Vec::new(), end }
    };
    let nodes = SINKS.into_iter().zip(sinks).map(deliver).collect();
    let head = EpochHead { epoch: EPOCH, start_unix_ns: clock().start_of(EPOCH), length_ms: 1000 };
    let collected: Collected<Delivered> = Collected { head, nodes, topology: None };
    let found = windows.analyse(&collected, 20, "on").0;
    found.links.into_iter().find(|link| (&*link.from, &*link.to) == ("e1", "e2"))
}

#[test]
fn no_latency_is_reported_that_a_sink_may_have_had_no_room_for() {
    let few: &[[u32; 2]] = &[[1, 2], [1, 2], [7, 8]];
    let link = reported([few; 2], 1000);
    let latency = link.latency_us.unwrap();
    assert_eq!((latency.packets, latency.mean, link.packets), (4, 1.0, Some(4)));
    // As many others as a sink tells apart, and then the one that the other sink knows as well.
    let others = Layout::default().shape.links().into();
    let many: Vec<[u32; 2]> = (0..others).map(|at: u32| [100 + at, 1000]).chain([[1, 2]]).collect();
    let link = reported([&many, few], 1000);
    assert_eq!((link.latency_us, link.clock_error_us, link.arrival_error_us), (None, None, None));
    assert!(link.at_least >= 3, "{link:?}");
}

#[test]
fn no_latency_is_reported_that_was_cut() {
    let few: &[[u32; 2]] = &[[1, 2], [1, 2]];
    let of = |apart_ns| reported([few; 2], apart_ns).latency_us.map(|of| of.max);
    assert_eq!(of(LinkSums::MOST_NS - 1), Some(4_294_967.295));
    assert_eq!((of(LinkSums::MOST_NS), of(LinkSums::MOST_NS + 1)), (None, None));
}

#[test]
fn without_a_sound_sink_links_have_no_latency_and_no_exact_number() {
    let few: &[[u32; 2]] = &[[1, 2], [1, 2]];
    let link = reported_with(1, [Some(few); 2], 1000).unwrap();
    assert_eq!((link.latency_us, link.packets, link.at_least), (None, None, 4));
    // One that is missing may have sent packets on without a word: there may be no such link.
    assert!(reported_with(0, [Some(few), None], 1000).is_none());
}
