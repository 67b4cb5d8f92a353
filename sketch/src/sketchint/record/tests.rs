//! A burst is recorded as its packets are, one by one.

use proptest::prelude::*;

use super::super::{Merged, Shape};
use super::*;
use crate::{FlowKey, HashFamily, HashKey};

/// A flow's number, hops with node, latency and queue, and the latency at the sink.
type Packet = (u32, Option<Vec<(u32, u32, u32)>>, Option<u32>);

fn packet() -> impl Strategy<Value = Packet> {
    let latency = prop_oneof![9 => 0..5_000_u32, 1 => any::<u32>(), 1 => Just(UNKNOWN)];
    let hop = (0..9_u32, latency.clone(), prop_oneof![Just(UNKNOWN), 0..90_u32]);
    let flow = prop_oneof![0..6_u32, 0..90_u32];
    let hops = prop::collection::vec(hop, 0..MOST_HOPS + 3);
    (flow, prop::option::of(hops), prop::option::of(latency))
}

proptest! {
    /// By whatever instructions, and whatever finds no room.
    #[test]
    fn a_burst_is_recorded_like_its_packets_one_by_one(
        bursts in prop::collection::vec(prop::collection::vec(packet(), 0..=BURST), 1..12),
        (sets, hops, rule) in (0..3_u32, 1..7_u8, 0..3_usize),
        (paths, nodes, keys, inflated) in (1..40_u16, 1..12_u16, 1..9_u16, 1..5_u16),
        (own, key_packets, unit_ns) in (prop::option::of(Just(3_u32)), 0..30_u32, 1..100_u32),
        quantiles in 0..9_u16,
    ) {
        let shape = Shape {
            tower_words: 64,
            rule: [Rule::Cm, Rule::Cu, Rule::Acu][rule],
            pair_buckets: 64,
            unit_ns,
            row_sets: sets,
            hops,
            paths,
            nodes,
            keys,
            inflated,
            quantiles: if sets == 0 { 0 } else { quantiles },
        };
        let mut one_by_one = Sink::new(shape, own, key_packets, 150).unwrap();
        let mut sinks: Vec<(Engine, Sink<FlowKey>)> =
            Engine::available().map(|engine| (engine, one_by_one.clone())).collect();
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for (at_us, packets) in (0..).zip(&bursts) {
            let key = |packet: &Packet| FlowKey::from_words(packet.0, 1, 2, 6);
            let keys: Vec<FlowKey> = packets.iter().map(key).collect();
            let mut hashes = HashColumns::default();
            family.hash_columns(&keys, &mut hashes);
            let columns = |of: fn(&(u32, u32, u32)) -> u32| {
                let columns = packets.iter().map(|(_, hops, _)| {
                    let mut column = [0; MOST_HOPS];
                    for (place, hop) in column.iter_mut().zip(hops.iter().flatten()) {
                        *place = of(hop);
                    }
                    column
                });
                columns.collect::<Vec<_>>()
            };
            let [nodes, latencies, queued] =
                [columns(|hop| hop.0), columns(|hop| hop.1), columns(|hop| hop.2)];
            let of_packet = |(at, (_, hops, _)): (usize, &Packet)| {
                let len = hops.as_ref()?.len();
                let is_partial = at % 9 == 0 || len > MOST_HOPS;
                let len = len.min(MOST_HOPS);
                let columns = (&latencies[at][..len], &queued[at][..len]);
                Some(Met::new(&nodes[at], columns, is_partial))
            };
            let met: Vec<Option<Met<'_>>> = packets.iter().enumerate().map(of_packet).collect();
            for (at, key) in keys.iter().enumerate() {
                one_by_one.record(&hashes.of(at), key, met[at], at_us);
            }
            for (at, (_, _, latency)) in packets.iter().enumerate() {
                if let Some(latency) = *latency {
                    one_by_one.record_own(&hashes.of(at), &keys[at], latency, at_us);
                }
            }
            for (engine, sink) in &mut sinks {
                let words = sink.record_burst(*engine, (&hashes, &keys), &met, at_us);
                for (at, (_, _, latency)) in packets.iter().enumerate() {
                    if let Some(latency) = *latency {
                        sink.record_own_by(words[at], &keys[at], latency, at_us);
                    }
                }
            }
        }
        for (engine, sink) in &sinks {
            prop_assert_eq!(Merged::of(sink), Merged::of(&one_by_one), "{:?}", engine);
            prop_assert_eq!((sink.pairs(), sink.sizes()), (one_by_one.pairs(), one_by_one.sizes()));
        }
    }
}
