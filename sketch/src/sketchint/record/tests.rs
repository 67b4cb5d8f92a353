//! A burst is recorded as its packets are, one by one.

use proptest::prelude::*;

use super::super::{Merged, Shape};
use super::*;
use crate::tower::Rule;
use crate::{FlowKey, HashFamily, HashKey};

/// A flow's number, hops with node, latency and queue, and the latency at the sink.
type Packet = (u32, Option<Vec<(u32, u32, u32)>>, Option<u32>);

fn packet() -> impl Strategy<Value = Packet> {
    let latency = prop_oneof![9 => 0..5_000_u32, 1 => any::<u32>(), 1 => Just(UNKNOWN)];
    let hop = (0..9_u32, latency.clone(), prop_oneof![Just(UNKNOWN), 0..90_u32]);
    let flow = prop_oneof![0..6_u32, 0..90_u32];
    let hops = prop::collection::vec(hop, 0..MOST_HOPS + 3);
    // Most packets of a flow come by one path, without loops.
    let usual = prop::collection::vec((latency.clone(), prop_oneof![Just(UNKNOWN), 0..90_u32]), 10);
    let way =
        (flow, prop::option::of(prop_oneof![1 => hops.prop_map(Ok), 4 => usual.prop_map(Err)]));
    let way = way.prop_map(|(flow, way)| {
        let usual = |met: Vec<(u32, u32)>| {
            let hops = (flow..).zip(met).take(flow as usize % 10);
            hops.map(|(node, (ns, queued))| (node % 13, ns, queued)).collect()
        };
        (flow, way.map(|way| way.unwrap_or_else(usual)))
    });
    (way, prop::option::of(latency)).prop_map(|((flow, hops), own)| (flow, hops, own))
}

/// Whether a packet comes by its flow's usual path, or has none.
fn is_usual((flow, hops, _): &Packet) -> bool {
    let Some(hops) = hops else { return true };
    let nodes = hops.iter().map(|hop| hop.0);
    nodes.eq((*flow..).map(|node| node % 13).take(*flow as usize % 10))
}

/// Packets of these flows by a path of one switch, in bursts and one by one.
fn record_alike(shape: Shape, bursts: &[Vec<u32>]) {
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let (mut nodes, latencies) = ([0; MOST_HOPS], [700; MOST_HOPS]);
    nodes[0] = 4;
    let met = Some(Met::new((&nodes, 1), (&latencies, None), false));
    for engine in Engine::available() {
        let mut sink = Sink::new(shape, None, 9, 150).unwrap();
        let mut one_by_one = sink.clone();
        for flows in bursts {
            let key = |&flow: &u32| FlowKey::from_words(flow, 1, 2, 6);
            let keys: Vec<FlowKey> = flows.iter().map(key).collect();
            let mut hashes = HashColumns::default();
            family.hash_columns(&keys, &mut hashes);
            for (at, key) in keys.iter().enumerate() {
                one_by_one.record(&hashes.of(at), key, met, 0);
            }
            sink.record_burst(engine, (&hashes, &keys), &vec![met; keys.len()], 0);
        }
        assert_eq!(Merged::of(&sink), Merged::of(&one_by_one), "{}", engine.name());
        assert_eq!(sink.pairs(), one_by_one.pairs(), "{}", engine.name());
    }
}

#[test]
fn a_row_takes_the_room_of_another_with_its_eighth_packet_within_a_burst() {
    let shape = Shape { row_sets: 1, quantiles: 1, ..Shape::default() };
    record_alike(shape, &[vec![1, 2, 2, 2, 2, 2, 2, 2, 2, 2]]);
}

#[test]
fn a_row_that_has_to_leave_has_what_came_before_in_its_burst() {
    let shape = Shape { row_sets: 1, ..Shape::default() };
    record_alike(shape, &[(0..8).collect(), (0..8).chain([8; 20]).collect()]);
}

/// How many packets said how long the queue of node 3 was, the sum, and the longest.
fn queue_of_three(sink: &Sink<FlowKey>) -> Option<(u64, u64, u32)> {
    let nodes = Merged::of(sink).nodes;
    let of = nodes.iter().find(|of| of.node == 3)?;
    assert!(of.queued <= of.packets);
    Some((of.queued, of.queue_sum, of.queue_max))
}

#[test]
fn a_sinks_own_queue_is_counted_beside_what_stacks_say_of_it() {
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let key = FlowKey::from_words(1, 1, 2, 6);
    let mut hashes = HashColumns::default();
    family.hash_columns(&[key], &mut hashes);
    let of_flow = hashes.of(0);
    let empty = Sink::new(Shape { nodes: 1, ..Shape::default() }, Some(3), 9, 150).unwrap();
    let mut sink = empty.clone();
    // Of packets that nothing else is known of there would be more than packets.
    sink.record_own_queue(50, 4);
    assert_eq!(queue_of_three(&sink), None);
    let (mut nodes, latencies, mut queued) = ([0; MOST_HOPS], [700; MOST_HOPS], [0; MOST_HOPS]);
    (nodes[0], queued[0]) = (3, 5);
    let met = Met::new((&nodes, 1), (&latencies, Some(&queued)), false);
    sink.record(&of_flow, &key, Some(met), 0);
    for latency in [300, UNKNOWN, 200] {
        sink.record_own(&of_flow, &key, latency, 0);
    }
    sink.record_own_queue(7, 2);
    sink.record_own_queue(UNKNOWN, 1);
    sink.record_own_queue(90, 0);
    assert_eq!(queue_of_three(&sink), Some((3, 19, 7)));

    let mut other = empty.clone();
    other.record_own(&of_flow, &key, 100, 0);
    other.record_own_queue(8, 1);
    sink.merge(&other);
    assert_eq!(queue_of_three(&sink), Some((4, 27, 8)));
    sink.clear();
    sink.record_own_queue(9, 1);
    assert_eq!(queue_of_three(&sink), None);

    // Where another switch has the only place.
    let mut full = empty;
    nodes[0] = 4;
    let met = Met::new((&nodes, 1), (&latencies, Some(&queued)), false);
    full.record(&of_flow, &key, Some(met), 0);
    full.record_own(&of_flow, &key, 100, 0);
    full.record_own_queue(8, 1);
    let nodes = Merged::of(&full).nodes;
    let of_four: Vec<_> = nodes.iter().map(|of| (of.node, of.queued, of.queue_sum)).collect();
    assert_eq!(of_four, [(4, 1, 5)]);
}

proptest! {
    /// By whatever instructions, and whatever finds no room.
    #[test]
    fn a_burst_is_recorded_like_its_packets_one_by_one(
        bursts in prop::collection::vec(prop::collection::vec(packet(), 0..=BURST), 1..12),
        (sets, hops, rule) in (0..3_u32, 1..7_u8, 0..3_usize),
        (paths, nodes, keys, inflated) in (1..40_u16, 1..12_u16, 1..9_u16, 1..5_u16),
        (own, key_packets, unit_ns) in (prop::option::of(Just(3_u32)), 0..30_u32, 1..100_u32),
        (quantiles, keeps_its_path) in (0..9_u16, any::<bool>()),
    ) {
        let mut bursts = bursts;
        if keeps_its_path {
            bursts.iter_mut().for_each(|packets| packets.retain(is_usual));
        }
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
            let columns = |behind: u32, of: fn(&(u32, u32, u32)) -> u32| {
                let columns = packets.iter().map(|(_, hops, _)| {
                    let mut column = [behind; MOST_HOPS];
                    for (place, hop) in column.iter_mut().zip(hops.iter().flatten()) {
                        *place = of(hop);
                    }
                    column
                });
                columns.collect::<Vec<_>>()
            };
            let [nodes, latencies, queued] =
                [columns(0, |hop| hop.0), columns(9_000, |hop| hop.1), columns(7, |hop| hop.2)];
            let of_packet = |(at, (_, hops, _)): (usize, &Packet)| {
                let len = hops.as_ref()?.len();
                let is_partial = at % 9 == 0 || len > MOST_HOPS;
                let columns = (&latencies[at], Some(&queued[at]).filter(|_| at % 4 > 0));
                Some(Met::new((&nodes[at], len), columns, is_partial))
            };
            let met: Vec<Option<Met<'_>>> = packets.iter().enumerate().map(of_packet).collect();
            for (at, key) in keys.iter().enumerate() {
                one_by_one.record(&hashes.of(at), key, met[at], at_us);
            }
            for (at, (_, _, latency)) in packets.iter().enumerate() {
                if let Some(latency) = *latency {
                    one_by_one.record_own(&hashes.of(at), &keys[at], latency, at_us);
                    one_by_one.record_own_queue(3 * at_us, 1);
                }
            }
            for (engine, sink) in &mut sinks {
                let words = sink.record_burst(*engine, (&hashes, &keys), &met, at_us);
                let owns: Vec<(u64, FlowKey, u32)> = (0..packets.len())
                    .filter_map(|at| Some((words[at], keys[at], packets[at].2?)))
                    .collect();
                sink.record_owns(*engine, &owns, at_us);
                sink.record_own_queue(3 * at_us, owns.len() as u32);
            }
        }
        for (engine, sink) in &sinks {
            prop_assert_eq!(Merged::of(sink), Merged::of(&one_by_one), "{:?}", engine);
            prop_assert_eq!((sink.pairs(), sink.sizes()), (one_by_one.pairs(), one_by_one.sizes()));
        }
    }
}
