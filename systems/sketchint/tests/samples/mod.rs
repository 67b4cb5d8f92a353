//! Windows that real records made.

use std::sync::Arc;

use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::arrival::Arrival;
use calumma_plane::int::means::Means;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::Shape;
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key, WideKey};
use calumma_sketchint::frames::{Layout, Window};
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};

pub(crate) const OWN: u32 = 9;

/// Small, so that much finds no room.
pub(crate) fn layout() -> Layout {
    let shape = Shape {
        tower_words: 64,
        pair_buckets: 64,
        row_sets: 16,
        hops: 4,
        paths: 8,
        nodes: 6,
        keys: 4,
        inflated: 4,
        ..Shape::default()
    };
    Layout { shape, heavy_packets: 60, heavy_change_packets: 40, ..Layout::default() }
}

/// The same, where latencies of some flows are counted by size.
pub(crate) fn by_size() -> Layout {
    Layout { shape: Shape { quantiles: 5, ..layout().shape }, ..layout() }
}

pub(crate) fn hash_key() -> HashKey {
    HashKey::from_bytes([8; 32])
}

pub(crate) fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).unwrap()
}

pub(crate) fn record<K: Key>(layout: Layout, own: Option<u32>) -> SinkWindow<K, ()> {
    let (family, has_times) = (HashFamily::new(&hash_key()), true);
    let (claims, clock) = (layout.claims(1), clock());
    let setup = Arc::new(SinkSetup { layout, own, family, claims, clock, has_times });
    let mut record = SinkWindow::new(setup, (), 1).unwrap();
    record.begin(&(), 1000);
    record
}

/// A stack of hops at these nodes with these latencies.
pub(crate) fn stack(hops: &[(u32, u32)], is_partial: bool) -> Stack {
    let mut stack = Stack::EMPTY;
    // Some clocks are behind.
    let mut ingress_ns = clock().start_of(1000);
    hops.iter().for_each(|&(node, latency_ns)| {
        let egress_ns = ingress_ns + u64::from(latency_ns.min(1 << 20));
        let queued = node + 3;
        stack.push(Hop { node, latency_ns, queued, ingress_ns, egress_ns, ..Hop::UNKNOWN });
        ingress_ns = egress_ns + 900 - 500 * u64::from(node);
    });
    stack.is_partial = is_partial;
    stack
}

/// A window of a few hundred packets of flows by `key`.
pub(crate) fn window<K: Key>(layout: Layout, key: impl Fn(u32) -> K, own: Option<u32>) -> Window {
    let mut record = record::<K>(layout, own);
    for packet in 0..900_u32 {
        let flow = packet % 40 % (packet % 7 + 1);
        let latency = 1000 + packet * 7919 % 4000;
        let stack = match packet % 5 {
            0 => None,
            1 => Some(stack(&[(1, latency), (2, u32::MAX), (3, latency / 2)], false)),
            2 => Some(stack(&[(1, latency), (4, 70_000)], true)),
            _ => Some(stack(
                &[(1, latency * (1 + u32::from(packet % 50 == 43) * 60)), (2, 10)],
                false,
            )),
        };
        let keys = [key(flow + packet / 300 * 20)];
        let polled_ns = clock().start_of(1000) + u64::from(packet) * 50_000;
        let leaving = Leaving { keys: &keys, hashes: None, polled_ns };
        record.record(&leaving, &[stack.as_ref()]);
        let earliest_ns = clock().start_of(1000) + 9_000;
        let arrival = Arrival { earliest_ns, latest_ns: earliest_ns + u64::from(packet) };
        record.record_links(&[stack.as_ref()], &[Some(arrival)]);
        record.record_own(&leaving, &[latency / 3]);
    }
    record.note_unmarked(3);
    record.note_means(Means::new(Means::POLL | Means::QUEUE_FOUND, 4_500).unwrap());
    (0..5).for_each(|packet| record.note_exceeded((packet < 3, packet > 3)));
    Window { unclassified: 4, ..record.frame(hash_key().id(), 1) }
}

pub(crate) fn ipv4() -> Window {
    ipv4_of(layout())
}

pub(crate) fn ipv4_of(layout: Layout) -> Window {
    let key = |flow| FlowKey::from_words(0x0A00_0000 + flow, 0x0A01_0002, 7 << 16 | 53, 17);
    window(layout, key, Some(OWN))
}

pub(crate) fn dual() -> Window {
    dual_of(layout())
}

pub(crate) fn dual_of(layout: Layout) -> Window {
    let address = |last: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let key = |flow: u32| match flow % 2 {
        0 => WideKey::v6(address(flow as u16), address(2), 7, 53, 6),
        _ => WideKey::v4([10, 0, 0, flow as u8].into(), [10, 1, 0, 2].into(), 7, 53, 6),
    };
    window(layout, key, None)
}
