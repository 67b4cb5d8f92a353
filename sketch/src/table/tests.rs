//! The table against a sorted list of all flows, packet by packet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::bounded::Record;
use super::order::Order;
use super::*;
use crate::memory::Arena;
use crate::{Engine, FlowKey, HashFamily, HashKey, Key, WideKey};

fn family() -> HashFamily {
    HashFamily::new(&HashKey::from_bytes([9; 32]))
}

/// Counts packets by flow, and those without an entry.
#[derive(Debug, Default, PartialEq)]
struct Packets {
    refused: u64,
    evicted: u64,
    evicted_flows: u64,
}

impl<K> Sink<K, u64> for Packets {
    fn count(&mut self, value: &mut u64, packets: std::ops::Range<usize>) {
        *value += packets.len() as u64;
    }

    fn refuse(&mut self, packets: std::ops::Range<usize>) {
        self.refused += packets.len() as u64;
    }

    fn evict(&mut self, _: &K, _: Rank, value: &u64) {
        self.evicted += value;
        self.evicted_flows += 1;
    }
}

/// What the table must have: of all flows that it was free to take, those of smallest order.
struct Model<K> {
    wanted: usize,
    chosen: BTreeMap<(Order, K), u64>,
    orders: HashMap<K, Order>,
    out: BTreeSet<K>,
    packets: HashMap<K, u64>,
}

impl<K: Key> Model<K> {
    fn new(wanted: usize) -> Self {
        Self {
            wanted,
            chosen: BTreeMap::new(),
            orders: HashMap::new(),
            out: BTreeSet::new(),
            packets: HashMap::new(),
        }
    }

    /// `kept_out`: the filter takes the flow for one that was refused.
    fn packet(&mut self, key: K, order: Order, kept_out: bool) {
        *self.packets.entry(key).or_insert(0) += 1;
        if self.out.contains(&key) {
            return;
        }
        if let Some(order) = self.orders.get(&key) {
            *self.chosen.get_mut(&(*order, key)).unwrap() += 1;
            return;
        }
        if kept_out {
            self.out.insert(key);
            return;
        }
        self.orders.insert(key, order);
        self.chosen.insert((order, key), 1);
        if self.chosen.len() > self.wanted {
            let ((_, gone), _) = self.chosen.pop_last().unwrap();
            self.orders.remove(&gone);
            self.out.insert(gone);
        }
    }
}

/// The wanted flows among those with an entry, the first ones first.
fn chosen<K: Key>(table: &BoundedTable<K, u64>, family: &HashFamily) -> Vec<(Order, K, u64)> {
    let order = |key: &K, rank| Order::new(rank, &Words::of(&family.hash(key)));
    let mut flows: Vec<_> = table.iter().map(|(k, rank, &n)| (order(k, rank), *k, n)).collect();
    flows.sort_unstable();
    flows.truncate(table.capacity().entries as usize);
    flows
}

fn key<K: Key>(flow: u32) -> K {
    K::from_word_fn(|word| flow.wrapping_mul(word as u32 * 2 + 1), 6)
}

/// A stream over a few hundred flows, some of which change their rank on their way.
fn stream() -> impl Strategy<Value = Vec<(u32, Rank)>> {
    let packet = (0_u32..500, 0_u8..6, 0_u32..3, prop::bool::weighted(0.1)).prop_map(
        |(flow, class, change, crowd)| {
            // Few grades for some, so that the hash decides.
            let grade = (flow / 3).wrapping_mul(0x9E37_79B9) >> if crowd { 30 } else { 0 };
            let moved = if flow % 5 == 0 { change << 29 } else { 0 };
            (flow, Rank::new(if flow % 7 == 0 { class % 4 } else { 2 }, grade ^ moved))
        },
    );
    prop::collection::vec(packet, 0..1200)
}

/// What [`BoundedTable::split`] gives first, in order; the rest must be what is left.
fn split<K: Key>(table: &BoundedTable<K, u64>) -> Vec<(K, Rank, u64)> {
    let (kept, others) = table.split();
    assert_eq!(kept.len() + others.len(), table.len());
    let mut flows: Vec<_> = kept.iter().map(|flow| (*flow.key, flow.rank, *flow.value)).collect();
    flows.sort_unstable();
    let is_kept = |key: &K| flows.binary_search_by_key(key, |&(key, ..)| key).is_ok();
    assert!(others.iter().all(|flow| !is_kept(flow.key)));
    flows
}

/// The flows of a table that is finished, in order.
fn finished<K: Key>(table: &BoundedTable<K, u64>) -> Vec<(K, Rank, u64)> {
    let mut flows: Vec<_> = table.iter().map(|(key, rank, value)| (*key, rank, *value)).collect();
    flows.sort_unstable();
    flows
}

fn after_every_packet<K: Key>(
    packets: &[(u32, Rank)],
    entries: u32,
    filter_bits: usize,
) -> Result<(), TestCaseError> {
    let family = family();
    let mut table = BoundedTable::<K, u64>::without_memory(filter_bits);
    let sizes = [entries, entries.div_ceil(2), 2 * entries, entries];
    let mut arena = Arena::new(BoundedTable::<K, u64>::lines(2 * entries) + 4);
    let mut sink = Packets::default();
    for entries in sizes {
        table.lie_in(&mut arena, entries);
        // What lies behind it is another's in the next window.
        let mut behind = arena.zeros::<u32>(64);
        prop_assert_eq!(&*behind, &[0; 64][..]);
        behind.fill(u32::MAX);
        let mut model = Model::new(entries as usize);
        for (at, &(flow, rank)) in packets.iter().enumerate() {
            let key = key::<K>(flow);
            let order = Order::new(rank, &Words::of(&family.hash(&key)));
            model.packet(key, order, table.kept_out(&family, &key));
            table.record_burst(&family, &[key], &[rank], &mut sink);

            let wanted: Vec<_> = model.chosen.iter().map(|(&(o, k), &n)| (o, k, n)).collect();
            prop_assert_eq!(&chosen(&table, &family), &wanted, "after packet {}", at);
            for (key, _, counted) in table.iter() {
                prop_assert_eq!(*counted, model.packets[key]);
                prop_assert_eq!(table.get(&family, key), Some(counted));
            }
            let counted: u64 = table.iter().map(|(_, _, packets)| packets).sum();
            prop_assert_eq!(counted + sink.refused + sink.evicted, at as u64 + 1);
        }
        prop_assert_eq!(table.turnover().crowded, 0);
        let is_known = |key| table.get(&family, key).is_some() || table.kept_out(&family, key);
        prop_assert!(model.packets.keys().all(is_known));
        let other = key::<K>(9_999);
        let split = split(&table);
        table.finish(&family, &mut sink);
        prop_assert_eq!(split, finished(&table));
        prop_assert_eq!(table.len(), model.chosen.len());
        prop_assert!(
            chosen(&table, &family).iter().map(|f| f.1).eq(model.chosen.keys().map(|k| k.1))
        );
        table.give_back();
        prop_assert!(table.is_empty() && table.limit().is_none());
        prop_assert!(!table.kept_out(&family, &other) && table.split().0.is_empty());
        drop(behind);
        arena.reset();
        sink = Packets::default();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn after_every_packet_the_chosen_flows_are_the_smallest_and_their_counts_exact(
        packets in stream(), entries in prop::sample::select(vec![1_u32, 5, 40, 100]),
        filter in prop::sample::select(vec![256_usize, 4096, 1 << 16]),
    ) {
        after_every_packet::<FlowKey>(&packets, entries, filter)?;
    }

    #[test]
    fn so_it_is_with_wide_keys(packets in stream(), entries in 1_u32..60) {
        after_every_packet::<WideKey>(&packets, entries, 1 << 16)?;
    }

    #[test]
    fn flows_that_agree_in_their_hashes_are_counted_right_or_not_at_all(
        packets in prop::collection::vec((0_u32..300, 0_u32..4), 1..1500),
        homes in 1_u32..4, tags in 1_u32..3, ties in 1_u32..3,
    ) {
        let mut table = BoundedTable::<FlowKey, u64>::new(Capacity { entries: 100, filter_bits: 1 << 16 });
        let mut sink = Packets::default();
        let mut truth: HashMap<FlowKey, u64> = HashMap::new();
        for burst in packets.chunks(7) {
            let keys: Vec<FlowKey> = burst.iter().map(|&(flow, _)| key(flow)).collect();
            let ranks: Vec<Rank> = burst.iter().map(|&(_, grade)| Rank::new(1, grade)).collect();
            keys.iter().for_each(|key| *truth.entry(*key).or_insert(0) += 1);
            let words = |packet: usize| {
                let (flow, _) = burst[packet];
                Words { home: (flow % homes) << 30, tag: flow % tags, tie: (flow % ties) << 31 }
            };
            let record = Record { table: &mut table, keys: &keys, ranks: &ranks, words, sink: &mut sink };
            Engine::detect().run(record);
            for (key, _, counted) in table.iter() {
                prop_assert_eq!(*counted, truth[key]);
            }
        }
        let split = split(&table);
        table.finish(&family(), &mut sink);
        prop_assert_eq!(split, finished(&table));
        prop_assert!(table.len() <= 100);
        let counted: u64 = table.iter().map(|(key, _, n)| { assert_eq!(*n, truth[key]); n }).sum();
        prop_assert_eq!(counted + sink.refused + sink.evicted, packets.len() as u64);
        let turnover = table.turnover();
        prop_assert_eq!(turnover.admitted - turnover.evicted, table.len() as u64);
        prop_assert_eq!(turnover.evicted, sink.evicted_flows);
    }

    #[test]
    fn every_engine_and_every_split_into_bursts_keeps_the_same_flows(
        packets in stream(), pieces in 1_usize..80,
    ) {
        let run = |engine: Engine, piece: usize| {
            let family = family().with_engine(engine);
            let mut table = BoundedTable::<FlowKey, u64>::new(Capacity { entries: 60, filter_bits: 1 << 16 });
            let mut sink = Packets::default();
            for burst in packets.chunks(piece) {
                let (flows, ranks): (Vec<u32>, Vec<Rank>) = burst.iter().copied().unzip();
                let keys: Vec<FlowKey> = flows.into_iter().map(key).collect();
                table.record_burst(&family, &keys, &ranks, &mut sink);
            }
            table.finish(&family, &mut sink);
            let entries: Vec<_> = table.iter().map(|(k, rank, &n)| (*k, rank, n)).collect();
            (entries, sink, table.turnover())
        };
        let plain = run(Engine::Scalar, 1);
        for engine in Engine::available() {
            prop_assert_eq!(&run(engine, pieces).0, &run(Engine::Scalar, pieces).0);
            prop_assert_eq!(run(engine, 1), run(Engine::Scalar, 1));
        }
        let chosen = |mut flows: Vec<(FlowKey, Rank, u64)>| { flows.sort_unstable(); flows };
        prop_assert_eq!(chosen(run(Engine::detect(), pieces).0), chosen(plain.0));
    }
}

#[test]
fn a_full_table_stays_within_its_slots_whatever_order_flows_come_in() {
    let family = family();
    let grade = |order: &str, flow: u32| match order {
        "falling" => u32::MAX - flow,
        "rising" => flow,
        "all the same" => 5,
        _ => flow.wrapping_mul(0x9E37_79B9),
    };
    for name in ["falling", "rising", "all the same", "at random"] {
        for entries in [256, 3_000] {
            let mut table =
                BoundedTable::<FlowKey, u64>::new(Capacity { entries, filter_bits: 1 << 20 });
            let mut sink = Packets::default();
            for flow in 0..40_000 {
                let rank = Rank::new(2, grade(name, flow));
                table.record_burst(&family, &[key(flow)], &[rank], &mut sink);
            }
            assert_eq!(table.turnover().crowded, 0, "{name}, {entries}");
            table.finish(&family, &mut sink);
            assert_eq!(table.len(), entries as usize, "{name}");
        }
    }
}

#[test]
fn an_admission_evicts_no_more_than_a_few_entries() {
    let family = family();
    let mut table =
        BoundedTable::<FlowKey, u64>::new(Capacity { entries: 5_000, filter_bits: 1 << 20 });
    let (mut sink, mut before, mut most) = (Packets::default(), 0, 0);
    for flow in 0..100_000 {
        let rank = Rank::new(2, u32::MAX - flow);
        table.record_burst(&family, &[key(flow)], &[rank], &mut sink);
        most = most.max(sink.evicted_flows - before);
        before = sink.evicted_flows;
    }
    assert!(before > 90_000, "{before} evicted");
    assert!((1..=6).contains(&most), "{most} at once");
}

#[test]
fn a_day_of_windows_leaves_nothing_behind() {
    let family = family();
    let mut table =
        BoundedTable::<FlowKey, u64>::new(Capacity { entries: 500, filter_bits: 1 << 16 });
    let mut rng = StdRng::seed_from_u64(3);
    let mut first = None;
    for window in 0..300 {
        let mut sink = Packets::default();
        for flow in 0..3_000_u32 {
            let rank = Rank::new(2, flow.wrapping_mul(0x9E37_79B9) ^ window);
            let key = FlowKey::from_words(flow, window, rng.random_range(0..4), 17);
            table.record_burst(&family, &[key], &[rank], &mut sink);
        }
        table.finish(&family, &mut sink);
        assert_eq!((table.len(), table.turnover().crowded), (500, 0), "window {window}");
        table.clear();
        first.get_or_insert_with(|| table.bytes());
        assert_eq!(first, Some(table.bytes()));
    }
}

#[test]
fn few_flows_are_mistaken_for_refused_ones_in_all_windows_but_one_of_sudden_load() {
    let family = family();
    let capacity = Capacity { entries: 1_000, filter_bits: 1 << 20 };
    let mut table = BoundedTable::<FlowKey, u64>::new(capacity);
    for (window, flows) in [30_000, 30_000, 10, 30_000, 30_000, 30_000_u32].into_iter().enumerate()
    {
        table.clear();
        let mut sink = Packets::default();
        for flow in 0..flows {
            let rank = Rank::new(2, flow.wrapping_mul(0x9E37_79B9));
            table.record_burst(&family, &[key(flow)], &[rank], &mut sink);
        }
        let wrong = (100_000..150_000).filter(|&flow| table.kept_out(&family, &key(flow)));
        let wrong = wrong.count();
        assert!(window == 3 || wrong <= 500, "{wrong} of 50,000 in window {window}");
    }
}

#[test]
fn an_entry_takes_no_more_than_a_cache_line_with_all_that_finds_it() {
    let entries = 100_000;
    let table = BoundedTable::<FlowKey, [u64; 2]>::new(Capacity { entries, filter_bits: 256 });
    assert!(table.bytes_of_entries() <= 64 * entries as usize, "{}", table.bytes_of_entries());
    let wide = BoundedTable::<WideKey, [u64; 2]>::new(Capacity { entries, filter_bits: 256 });
    assert!(wide.bytes_of_entries() <= 96 * entries as usize, "{}", wide.bytes_of_entries());
}
