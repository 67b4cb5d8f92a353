//! What a SketchINT sink keeps, held against a model that keeps everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_sketch::sketchint::{
    Cell, Claims, FlowRow, MOST_HOPS, Merged, Met, NodeSums, Pair, PairLevel, Pairs, Path,
    Quarters, Shape, Sink, flow_word,
};
use calumma_sketch::tower::{OVERFLOW, Rule};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Level, TowerSketch};
use proptest::prelude::*;

const OWN: u32 = 900;
const KEY_PACKETS: u32 = 20;
const PERCENT: u32 = 300;

fn family() -> HashFamily {
    HashFamily::new(&HashKey::from_bytes([6; 32]))
}

fn flow(number: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + number, 0x0A01_0001, 0x1000_0050, 6)
}

/// Hops of the longest path.
const LONGEST: usize = 10;

/// The path with this number: 0 none, others of one to three switches or many, the last with a
/// loop.
fn path(number: u8) -> Option<Path> {
    let nodes: &[u32] = match number {
        0 => return None,
        1 => &[1, 2, 3],
        2 => &[1, 4, 3, 11, 12, 13, 14, 15, 16, 17],
        3 => &[1],
        4 => &[5, 4],
        5 => &[5, 6, 3],
        _ => &[1, 2, 1],
    };
    Some(Path::new(nodes.iter().copied(), number == 4))
}

/// A packet: its flow, its path, its latencies there in turns and at the sink, and the lcore that
/// gets it.
#[derive(Clone, Debug)]
struct Packet {
    flow: u32,
    path: u8,
    latencies: [u32; 3],
    own: u32,
    lcore: usize,
}

impl Packet {
    /// The switches that it comes by, with its latency and the length of the queue at each.
    fn hops(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let nodes = path(self.path).map_or(Vec::new(), |path| path.nodes().to_vec());
        let (latencies, flow) = (self.latencies.into_iter().cycle(), self.flow);
        let queued = [7, u32::MAX, 9 + flow].into_iter().cycle();
        nodes.into_iter().zip(latencies.zip(queued)).map(|(node, (ns, queued))| (node, ns, queued))
    }
}

fn latency() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 100..2_000_u32, 2 => 10_000..5_000_000_u32, 1 => Just(u32::MAX)]
}

prop_compose! {
    fn packets(flows: u32, paths: u8)(
        flow in 0..flows,
        again in 0..flows,
        path in 0..paths,
        latencies in [latency(), latency(), latency()],
        own in latency(),
        lcore in 0..3_usize,
    ) -> Packet {
        // Few flows have most of the packets.
        Packet { flow: flow.min(again), path, latencies, own, lcore }
    }
}

fn sink(shape: Shape) -> Sink<FlowKey> {
    Sink::new(shape, Some(OWN), KEY_PACKETS, PERCENT).unwrap()
}

fn record(sink: &mut Sink<FlowKey>, family: &HashFamily, packet: &Packet, at_us: u32) {
    let key = flow(packet.flow);
    let hashes = family.hash(&key);
    // Behind the last hop stands anything.
    let (mut nodes, mut latencies, mut queued) = ([0; MOST_HOPS], [70; MOST_HOPS], [3; MOST_HOPS]);
    for (at, (node, ns, of_queue)) in packet.hops().enumerate() {
        (nodes[at], latencies[at], queued[at]) = (node, ns, of_queue);
    }
    let met = path(packet.path).map(|path| {
        Met::new((&nodes, path.nodes().len()), (&latencies, Some(&queued)), path.is_partial)
    });
    sink.record(&hashes, &key, met, at_us);
    sink.record_own(&hashes, &key, packet.own, at_us);
}

/// All that can be known of a flow.
#[derive(Clone, Debug, Default)]
struct Truth {
    packets: u64,
    by_path: BTreeMap<u8, (u64, [Cell; LONGEST])>,
    own: Cell,
    /// Latencies by size: of each path at its hops, and at the sink itself.
    by_size: BTreeMap<u8, [Quarters; LONGEST]>,
    own_by_size: Quarters,
    at_node: BTreeMap<u32, (u64, Cell)>,
    inflated: BTreeMap<u32, (u32, u32)>,
    of_nodes: BTreeMap<u32, NodeSums>,
}

/// Adds what a packet says of a switch.
fn note(of: &mut NodeSums, ns: u32, queued: u32) {
    of.packets += 1;
    if ns != u32::MAX {
        of.sum_ns += u64::from(ns);
        (of.min_ns, of.max_ns) = (of.min_ns.min(ns), of.max_ns.max(ns));
        of.latencies.add(ns);
    }
    if queued != u32::MAX {
        of.queued += 1;
        of.queue_sum += u64::from(queued);
        of.queue_max = of.queue_max.max(queued);
    }
}

fn count(cell: &mut Cell, ns: u32) {
    if ns != u32::MAX {
        cell.merge(&Cell { sum_ns: ns.into(), max_ns: ns, known: 1 });
    }
}

impl Truth {
    fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        let before = self.at_node.clone();
        for (node, ns, queued) in packet.hops().chain([(OWN, packet.own, u32::MAX)]) {
            let of = self.of_nodes.entry(node).or_insert_with(|| NodeSums::none(node));
            note(of, ns, queued);
        }
        let hops: Vec<(u32, u32)> = packet.hops().map(|(node, ns, _)| (node, ns)).collect();
        for (node, ns) in hops.iter().copied().chain([(OWN, packet.own)]) {
            let (_, cell) = before.get(&node).copied().unwrap_or_default();
            let is_enough = cell.known >= 8 && ns != u32::MAX;
            if is_enough && ns as f64 > 3.0 * cell.sum_ns as f64 / f64::from(cell.known) {
                let (number, most) = self.inflated.entry(node).or_default();
                *number += 1;
                *most = ns.max(*most);
            }
            let (packets, cell) = self.at_node.entry(node).or_default();
            *packets += 1;
            count(cell, ns);
        }
        let (number, cells) = self.by_path.entry(packet.path).or_default();
        *number += 1;
        for (cell, (_, ns)) in cells.iter_mut().zip(&hops) {
            count(cell, *ns);
        }
        count(&mut self.own, packet.own);
        let by_size = self.by_size.entry(packet.path).or_default().iter_mut();
        let by_size = by_size.zip(hops).map(|(of, (_, ns))| (of, ns));
        for (of, ns) in by_size.chain([(&mut self.own_by_size, packet.own)]) {
            if ns != u32::MAX {
                of.add(ns);
            }
        }
    }
}

/// Holds latencies of a flow by size against the truth: they are of its packets, and of all where
/// there was room for all rows.
fn check_by_size(
    rows: &[&FlowRow<FlowKey>],
    path_of: impl Fn(u32) -> u8,
    truth: &Truth,
    has_all: bool,
) -> Result<(), TestCaseError> {
    for (at, row) in rows.iter().enumerate() {
        let number = path_of(row.path);
        let hops = row.hops.len();
        let nothing = vec![Quarters::EMPTY; hops + 1];
        let found = if row.quarters.is_empty() { &nothing } else { &row.quarters };
        prop_assert_eq!(found.len(), hops + 1);
        prop_assert!(row.quarters.is_empty() || nothing != *found);
        let mut expected = truth.by_size[&number][..hops].to_vec();
        expected.push(if at == 0 { truth.own_by_size.clone() } else { Quarters::EMPTY });
        for (found, expected) in found.iter().zip(&expected) {
            let bins = || found.bins().iter().zip(expected.bins());
            prop_assert!(bins().all(|(found, expected)| found <= expected));
            prop_assert!(!has_all || found == expected);
        }
        // No more than its cells have.
        for (found, cell) in found.iter().zip(row.hops.iter().chain([&row.own])) {
            prop_assert!(found.count() <= cell.known.into());
            prop_assert!(found.longest().is_none_or(|ns| ns <= cell.max_ns));
        }
    }
    Ok(())
}

/// The lcores' sinks in some order, merged.
fn merged(sinks: &[Sink<FlowKey>], order: &[usize]) -> Sink<FlowKey> {
    let mut all = sinks[order[0]].clone();
    order[1..].iter().for_each(|&at| all.merge(&sinks[at]));
    all
}

fn check(packets: &[Packet], shape: Shape, lcores: usize) -> Result<(), TestCaseError> {
    let family = family();
    // One flow in four has a claim.
    let claims = Arc::new(Claims::new(shape.row_sets as usize, lcores));
    claims.renew((0..60).step_by(4).map(|of| (flow_word(&family.hash(&flow(of))), 1)));
    let mut sinks = vec![sink(shape).with_claims(&claims, 5); lcores];
    let mut truth: BTreeMap<u32, Truth> = BTreeMap::new();
    for (at, packet) in packets.iter().enumerate() {
        record(&mut sinks[packet.lcore % lcores], &family, packet, at as u32);
        truth.entry(packet.flow).or_default().add(packet);
    }
    let order: Vec<usize> = (0..lcores).collect();
    let reversed: Vec<usize> = (0..lcores).rev().collect();
    let all = merged(&sinks, &order);
    let found = Merged::of(&all);
    prop_assert_eq!(&found, &Merged::of(&merged(&sinks, &reversed)));
    prop_assert_eq!(found.totals.packets, packets.len() as u64);
    prop_assert_eq!(all.packets(), packets.len() as u64);
    let with_int = packets.iter().filter(|packet| packet.path > 0).count() as u64;
    prop_assert_eq!(found.totals.int_packets, with_int);
    let on_paths: u64 = found.paths.iter().map(|path| path.packets).sum();
    prop_assert_eq!(on_paths + found.totals.paths_full, with_int);

    for (&number, truth) in &truth {
        let key = flow(number);
        let hashes = family.hash(&key);
        let word = flow_word(&hashes);
        prop_assert!(u64::from(all.sizes().query(&hashes)) >= truth.packets);
        let rows: Vec<_> = found.rows.iter().filter(|row| row.key == key).collect();
        let in_rows: u64 = rows.iter().map(|row| row.packets).sum();
        prop_assert!(in_rows <= truth.packets);
        let is_exact = !rows.is_empty() && rows.iter().all(|row| row.is_exact);
        for row in &rows {
            let of = row.path.checked_sub(1).map(|at| found.paths[at as usize].path);
            let number = (0..7).find(|&number| path(number) == of).unwrap();
            let (packets, cells) = truth.by_path[&number];
            if is_exact {
                prop_assert_eq!(row.packets, packets);
                prop_assert_eq!(&row.hops[..], &cells[..row.hops.len()]);
            }
            prop_assert!(row.packets <= packets);
        }
        if is_exact {
            prop_assert_eq!(in_rows, truth.packets);
            prop_assert_eq!(rows[0].own, truth.own);
        }
        let path_of = |row: u32| {
            let of = row.checked_sub(1).map(|at| found.paths[at as usize].path);
            (0..7).find(|&number| path(number) == of).unwrap()
        };
        let has_all = is_exact && shape.quantiles >= 100;
        check_by_size(&rows, path_of, truth, has_all)?;
        prop_assert!(shape.quantiles > 0 || rows.iter().all(|row| row.quarters.is_empty()));
        // At every switch the rows have no more than the truth, and with the pair towers no less.
        for (&node, &(packets, cell)) in &truth.at_node {
            let mut in_rows = (0_u64, Cell::default());
            for row in &rows {
                let nodes = row.path.checked_sub(1).map(|at| found.paths[at as usize].path);
                let hops = nodes.iter().flat_map(|path| path.nodes().to_vec()).zip(&row.hops);
                for (_, cell) in hops.filter(|hop| hop.0 == node) {
                    in_rows.0 += row.packets;
                    in_rows.1.merge(cell);
                }
                if node == OWN {
                    in_rows.0 += u64::from(row.own.known);
                    in_rows.1.merge(&row.own);
                }
            }
            let Pair { latency, packets: others } = all.pairs().query(word, node);
            prop_assert!(in_rows.0 <= packets && in_rows.1.sum_ns <= cell.sum_ns);
            if let Some(others) = others {
                // A row counts a packet at the sink itself where its latency there is known.
                let least = if node == OWN { cell.known.into() } else { packets };
                prop_assert!(in_rows.0 + u64::from(others) >= least);
            }
            if let Some(latency) = latency {
                let most = in_rows.1.sum_ns + u64::from(latency) * u64::from(shape.unit_ns);
                prop_assert!(most >= cell.sum_ns, "{} {:?} {:?}", node, most, cell);
            }
            if rows.first().is_some_and(|row| row.has_inflation) && found.totals.inflated_full == 0
            {
                let counted = found.inflated.iter().find(|of| of.key == key && of.node == node);
                let counted = counted.map(|of| (of.count, of.max_ns));
                prop_assert_eq!(counted, truth.inflated.get(&node).copied(), "{} {}", number, node);
            }
        }
        if truth.packets > u64::from(KEY_PACKETS) && lcores == 1 && found.totals.keys_full == 0 {
            prop_assert!(found.keys.contains(&key));
        }
    }
    // Whoever inflated latencies are counted of, by an estimate or not, has had them.
    prop_assert!(found.inflated.is_sorted_by(|a, b| (a.key, a.node) < (b.key, b.node)));
    for of in &found.inflated {
        let truth = truth.iter().find(|(number, _)| flow(**number) == of.key);
        let (_, cell) = truth.unwrap().1.at_node[&of.node];
        prop_assert!((1..=cell.known).contains(&of.count) && of.max_ns <= cell.max_ns, "{:?}", of);
    }
    // What is known of a switch is exact as long as it was distinguished.
    let mut nodes: BTreeMap<u32, NodeSums> = BTreeMap::new();
    for of in truth.values().flat_map(|truth| truth.of_nodes.values()) {
        let sum = nodes.entry(of.node).or_insert_with(|| NodeSums::none(of.node));
        sum.packets += of.packets;
        sum.sum_ns += of.sum_ns;
        (sum.min_ns, sum.max_ns) = (sum.min_ns.min(of.min_ns), sum.max_ns.max(of.max_ns));
        sum.latencies.merge(&of.latencies);
        sum.queued += of.queued;
        sum.queue_sum += of.queue_sum;
        sum.queue_max = sum.queue_max.max(of.queue_max);
    }
    if lcores == 1 || found.totals.nodes_full == 0 {
        for of in &found.nodes {
            prop_assert_eq!(Some(of.clone()), nodes.remove(&of.node));
        }
        prop_assert_eq!(nodes.values().map(|of| of.packets).sum::<u64>(), found.totals.nodes_full);
    }
    // A cleared one is as good as new.
    let mut again = merged(&sinks, &order);
    again.clear();
    let empty = sink(shape);
    prop_assert_eq!(Merged::of(&again), Merged::of(&empty));
    prop_assert_eq!(again.sizes(), empty.sizes());
    prop_assert_eq!(again.pairs(), empty.pairs());
    Ok(())
}

proptest! {
    #[test]
    fn with_room_for_all_everything_is_exact(
        packets in prop::collection::vec(packets(12, 5), 1..600),
        lcores in 1..4_usize,
    ) {
        let shape = Shape { tower_words: 256, row_sets: 16, quantiles: 100, hops: 10, ..Shape::default() };
        check(&packets, shape, lcores)?;
        let family = family();
        let mut all = sink(shape);
        packets.iter().for_each(|packet| record(&mut all, &family, packet, 0));
        let found = Merged::of(&all);
        let never_full = found.totals.rows_refused == 0 && found.totals.rows_evicted == 0;
        // A flow whose packets all found a full set has no row that could say so.
        let in_rows: u64 = found.rows.iter().map(|row| row.packets).sum();
        prop_assert_eq!(never_full, in_rows == packets.len() as u64);
        prop_assert!(!never_full || found.rows.iter().all(|row| row.is_exact));
    }

    #[test]
    fn without_room_nothing_is_wrong(
        packets in prop::collection::vec(packets(60, 7), 1..800),
        lcores in 1..4_usize,
        rule in prop::sample::select(vec![Rule::Cm, Rule::Cu, Rule::Acu]),
        row_sets in 0..4_u32,
        (hops, paths, nodes, keys, inflated) in (1..11_u8, 1..6_u16, 1..18_u16, 1..6_u16, 1..6_u16),
        quantiles in 0..6_u16,
    ) {
        let quantiles = if row_sets == 0 { 0 } else { quantiles };
        let shape = Shape {
            tower_words: 16, pair_buckets: 64, rule, row_sets, hops, paths, nodes, keys, inflated,
            quantiles, ..Shape::default()
        };
        check(&packets, shape, lcores)?;
    }

    #[test]
    fn towers_of_five_arrays_never_lie_below_the_truth(
        weights in prop::collection::vec((0..40_u32, 1..3_000_u32, any::<bool>()), 0..600),
        rule in prop::sample::select(vec![Rule::Cm, Rule::Cu, Rule::Acu]),
    ) {
        let family = family();
        let levels = [2, 4, 8, 16, 32].map(|bits| Level::new(bits, 4 * 32 / bits));
        let empty = TowerSketch::new(&levels).unwrap().with_insertion(rule.insertion());
        let (mut one, mut replicas) = (empty.clone(), [empty.clone(), empty]);
        let mut truth: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, weight, first) in weights {
            let hashes = family.hash(&flow(number));
            let sum = truth.entry(number).or_default();
            *sum += weight;
            prop_assert!(one.insert_weight(&hashes, weight, rule) >= *sum);
            replicas[usize::from(first)].insert_weight(&hashes, weight, rule);
        }
        let [mut merged, other] = replicas;
        merged.merge(&other);
        for (number, sum) in truth {
            let hashes = family.hash(&flow(number));
            prop_assert!(one.query(&hashes) >= sum);
            prop_assert!(merged.query(&hashes) >= sum);
        }
        if rule == Rule::Cm {
            prop_assert_eq!(merged, one);
        }
    }
}

#[test]
fn by_cu_fewer_counters_rise_than_by_acu_and_by_cm_all() {
    let family = family();
    let levels = [2, 4, 8, 16, 32].map(|bits| Level::new(bits, 16 * 32 / bits));
    let total = |rule: Rule| -> u64 {
        let mut tower = TowerSketch::new(&levels).unwrap().with_insertion(rule.insertion());
        for packet in 0..40_000_u32 {
            let hashes = family.hash(&flow(packet % 97 * (packet % 5)));
            tower.insert_weight(&hashes, 1, rule);
        }
        (0..388).map(|number| u64::from(tower.query(&family.hash(&flow(number))))).sum()
    };
    let [cm, cu, acu] = [Rule::Cm, Rule::Cu, Rule::Acu].map(total);
    assert!(40_000 <= cu && cu < acu && acu < cm, "{cu} {acu} {cm}");
}

#[test]
fn a_tower_that_is_full_says_nothing() {
    let family = family();
    let hashes = family.hash(&flow(1));
    for rule in [Rule::Cm, Rule::Cu, Rule::Acu] {
        let levels = [Level::new(2, 4), Level::new(4, 4)];
        let mut tower = TowerSketch::new(&levels).unwrap().with_insertion(rule.insertion());
        assert_eq!(tower.insert_weight(&hashes, 14, rule), 14);
        assert_eq!(tower.insert_weight(&hashes, 1, rule), OVERFLOW);
        assert_eq!(tower.query(&hashes), OVERFLOW);
    }
}

#[test]
fn pair_towers_that_are_full_say_nothing() {
    let level = |latency_bits, packet_bits| PairLevel { latency_bits, packet_bits, buckets: 16 };
    let mut pairs = Pairs::new([level(4, 2), level(6, 3), level(8, 3)]);
    pairs.insert(77, 1, 14, 2);
    assert_eq!(pairs.query(77, 1), Pair { latency: Some(14), packets: Some(2) });
    pairs.insert(77, 1, 1, 1);
    // The narrowest are full, others answer.
    assert_eq!(pairs.query(77, 1), Pair { latency: Some(15), packets: Some(3) });
    pairs.insert(77, 1, 300, 5);
    assert_eq!(pairs.query(77, 1), Pair { latency: None, packets: None });
    assert!(!pairs.is_empty());
    let mut other = Pairs::new([level(4, 2), level(6, 3), level(8, 3)]);
    assert!(other.is_empty());
    other.merge(&pairs);
    assert_eq!(other, pairs);
    let buckets = [[0, 0], [0, 4]].repeat(8);
    assert_eq!(other.set_buckets(0, &buckets), Err((1, 1)));
    assert_eq!(other.set_buckets(1, &buckets), Ok(()));
    assert_eq!(other.buckets(1), buckets);
}

#[test]
fn large_flows_keep_their_rows() {
    let family = family();
    let shape = Shape { row_sets: 4, tower_words: 1024, ..Shape::default() };
    let mut sink = sink(shape);
    let packet = |flow, own| Packet { flow, path: 1, latencies: [500; 3], own, lcore: 0 };
    // Mice come first and fill all sets.
    (100..400).for_each(|mouse| record(&mut sink, &family, &packet(mouse, 100), 0));
    for round in 0..300 {
        (0..8).for_each(|large| record(&mut sink, &family, &packet(large, 100), round));
        record(&mut sink, &family, &packet(1000 + round, 100), round);
    }
    let found = Merged::of(&sink);
    for large in 0..8 {
        let row = found.rows.iter().find(|row| row.key == flow(large)).unwrap();
        assert!(row.packets > 250 && !row.is_exact, "{row:?}");
    }
}

/// Flows that have an inflated latency at switch 2, of a sink with room for so many: ten packets
/// each, then one that waits, those without rows first. The first eight have 50 packets before, and
/// the only set of rows.
fn that_wait(row_sets: u32, inflated: u16) -> Vec<u32> {
    let family = family();
    let shape = Shape { row_sets, inflated, ..Shape::default() };
    let mut sink = sink(shape);
    let packet = |flow, ns| Packet { flow, path: 1, latencies: [500, ns, 500], own: 100, lcore: 0 };
    let mut record = |flow, ns| record(&mut sink, &family, &packet(flow, ns), 0);
    (0..400).for_each(|round| record(round % 8, 500));
    (0..200).for_each(|round| record(round % 20, 400 + round / 20 * 20));
    // Three times the mean of those before is more than that, and less than this.
    for ns in [1400, 2500] {
        (0..20).rev().for_each(|flow| record(flow, ns));
    }
    let found = Merged::of(&sink).inflated;
    assert!(found.iter().all(|of| (of.node, of.count, of.max_ns) == (2, 1, 2500)), "{found:?}");
    (0..20).filter(|&number| found.iter().any(|of| of.key == flow(number))).collect()
}

#[test]
fn latencies_of_flows_without_rows_are_inflated_by_an_estimate() {
    for row_sets in [0, 1] {
        assert!(that_wait(row_sets, 64).into_iter().eq(0..20));
    }
    // Estimates leave half of the room to flows whose packets are all in rows.
    assert!(that_wait(1, 16).into_iter().eq((0..8).chain(12..20)));
    assert!(that_wait(0, 16).into_iter().eq(4..20));
}

#[test]
fn a_flow_that_has_just_got_a_row_has_inflated_latencies_by_what_it_had_before() {
    let family = family();
    let mut sink = sink(Shape { row_sets: 1, ..Shape::default() });
    let packet = |flow, ns| Packet { flow, path: 1, latencies: [500, ns, 500], own: 100, lcore: 0 };
    let mut record = |flow, ns| record(&mut sink, &family, &packet(flow, ns), 0);
    (0..8).for_each(|flow| record(flow, 500));
    (0..10).for_each(|_| record(8, 500));
    record(8, 2500);
    let found = Merged::of(&sink);
    let row = found.rows.iter().find(|row| row.key == flow(8)).unwrap();
    assert!(row.packets < 8 && !row.is_exact, "{row:?}");
    let of: Vec<_> = found.inflated.iter().map(|of| (of.key, of.node, of.max_ns)).collect();
    assert_eq!(of, [(flow(8), 2, 2500)]);
}

/// Packets in the rows of one set, by flow: two small flows come between and behind mice of 20
/// packets and of one. A claim is one against flows of fewer than `packets`.
fn beside_mice(claims: &Arc<Claims>, packets: u32) -> BTreeMap<FlowKey, u64> {
    let family = family();
    let shape = Shape { row_sets: 1, tower_words: 1024, ..Shape::default() };
    let mut sink = sink(shape).with_claims(claims, packets);
    let packet = |flow| Packet { flow, path: 1, latencies: [500; 3], own: 100, lcore: 0 };
    let mut record = |flow| record(&mut sink, &family, &packet(flow), 0);
    (0..160).for_each(|round| record(100 + round % 8));
    (0..6).for_each(|round| record(1 + round % 2));
    (0..596).for_each(|mouse| record(1000 + mouse));
    (0..6).for_each(|round| record(1 + round % 2));
    Merged::of(&sink).rows.iter().map(|row| (row.key, row.packets)).collect()
}

#[test]
fn flows_with_claims_have_rows_while_they_are_small() {
    let claims = Arc::new(Claims::new(1, 1));
    let small = |packets| {
        let rows = beside_mice(&claims, packets);
        [1, 2].map(|of| rows.get(&flow(of)).copied())
    };
    assert_eq!(small(100), [None; 2]);
    claims.renew([(flow_word(&family().hash(&flow(2))), 5000)]);
    assert_eq!(small(100), [None, Some(6)]);
    // Against the first mice it has none.
    assert_eq!(small(10), [None, Some(3)]);
}

#[test]
fn shapes_that_can_not_be_built_are_named() {
    let says = |shape: Shape, words: &str| {
        assert_eq!(shape.check().unwrap_err().to_string(), words);
        assert!(Sink::<FlowKey>::new(shape, None, 1, 500).is_err());
    };
    let shape = Shape::default();
    says(Shape { tower_words: 15, ..shape }, "tower_words: 15: must be 16 to 4194304");
    says(Shape { row_sets: 1 << 20, ..shape }, "row_sets: 1048576: must be 0 to 262144");
    says(Shape { hops: 17, ..shape }, "hops: 17: must be 1 to 16");
    says(Shape { nodes: 0, ..shape }, "nodes: 0: must be 1 to 4096");
    says(Shape { unit_ns: 0, ..shape }, "unit_ns: 0: must be 1 to 1048576");
}
