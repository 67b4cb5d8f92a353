//! Recording: what a sink does with each packet.
//!
//! A burst goes through in passes, so that the cache lines of all of its packets are under way at
//! once: the tower of sizes, array by array; the rows that packets will likely be counted in, which
//! are asked for; then each packet. Nearly all have their flow's only row and a path that comes by
//! no switch twice, of which each hop costs an entry of its switch's histogram and a cell.

use super::bounded::Bounded;
use super::flow_word;
use super::met::{Met, MetBurst, UNKNOWN};
use super::pairs::Pairs;
use super::paths::{MOST_HOPS, Path, Ways};
use super::rows::{Cell, Head, Matches};
use super::sink::{Inflated, Share, Sink};
use super::watch::Watch;
use crate::burst::{BURST, Column, ones};
use crate::hash::{HashColumns, Hashes, mixed};
use crate::key::Key;
use crate::simd::{Engine, Isa, Work};
use crate::tower::Rule;

/// Packets that a flow must have had at a switch before one is called inflated.
const SEEN: u64 = 8;

/// A word of each packet's flow, for [what comes later](Sink::record_own_by).
pub type Words = [u64; BURST];

struct RecordBurst<'a, K, W> {
    sink: &'a mut Sink<K>,
    watch: &'a mut W,
    hashes: &'a HashColumns,
    keys: &'a [K],
    met: &'a MetBurst,
    at_us: u32,
}

impl<K: Key, W: Watch> Work for RecordBurst<'_, K, W> {
    type Output = Words;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Words {
        let Self { sink, watch, hashes, keys, met, at_us } = self;
        let packets = keys.len().min(BURST);
        let words: Words = std::array::from_fn(|at| flow_word(&hashes.of(at)));
        if let Some(rows) = &sink.share.rows {
            for &word in &words[..packets] {
                if let Some(row) = rows.likely(word) {
                    rows.prefetch(isa, row);
                }
            }
        }
        let sizes = match sink.shape.rule {
            Rule::Cm => sink.sizes.insert_burst::<true>(packets, hashes),
            rule => {
                let mut sizes = Column::ZERO;
                for (at, size) in sizes.0[..packets].iter_mut().enumerate() {
                    *size = sink.sizes.insert_weight(&hashes.of(at), 1, rule);
                }
                sizes
            }
        };
        sink.share.totals.packets += packets as u64;
        let mut without_row = 0_u32;
        for at in 0..packets {
            let of = (words[at], &keys[at], sizes.0[at]);
            let has_row = sink.record_one(of, met.of(at), at_us, (at, watch));
            without_row |= u32::from(!has_row) << at;
        }
        if without_row != 0 {
            sink.record_in_pairs(isa, without_row, &words, met);
        }
        words
    }
}

impl<K: Key> Sink<K> {
    /// Records the packets of a burst, at most [`BURST`], by the instructions of `engine`: `met` is
    /// what each met. `at_us` is since the window's beginning.
    ///
    /// A packet costs a line of each array of the tower; where it came with INT a line of each
    /// hop's histogram, and its row, or three lines of pair towers a hop. `cargo xtask bench sketch
    /// --only sketchint` prints how long that takes.
    #[inline]
    pub fn record_burst(
        &mut self,
        engine: Engine,
        (hashes, keys): (&HashColumns, &[K]),
        met: &MetBurst,
        at_us: u32,
    ) -> Words {
        self.record_burst_for(engine, (hashes, keys), met, at_us, &mut ())
    }

    /// The same, for `watch` to take note of what is remarkable.
    #[inline]
    pub fn record_burst_for(
        &mut self,
        engine: Engine,
        (hashes, keys): (&HashColumns, &[K]),
        met: &MetBurst,
        at_us: u32,
        watch: &mut impl Watch,
    ) -> Words {
        engine.run(RecordBurst { sink: self, watch, hashes, keys, met, at_us })
    }

    /// Records a packet, as [`record_burst`](Self::record_burst) does.
    #[inline]
    pub fn record(&mut self, hashes: &Hashes, key: &K, met: Option<Met<'_>>, at_us: u32) {
        self.share.totals.packets += 1;
        let size = self.sizes.insert_weight(hashes, 1, self.shape.rule);
        let word = flow_word(hashes);
        if !self.record_one((word, key, size), met, at_us, (0, &mut ()))
            && let Some(met) = met
        {
            for (&node, &latency) in met.path.nodes().iter().zip(met.latencies) {
                let latency = units(known(latency), self.shape.unit_ns);
                self.pairs.insert(word, node, latency, 1);
            }
        }
    }

    /// Adds the packets that found no row to the pair towers, whose lines are asked for first.
    #[inline(always)]
    fn record_in_pairs(&mut self, isa: impl Isa, which: u32, words: &Words, met: &MetBurst) {
        let mut places = [[[0; Pairs::LEVELS]; MOST_HOPS]; BURST];
        for (at, met) in ones(which).filter_map(|at| Some((at, met.of(at)?))) {
            for (&node, places) in met.path.nodes().iter().zip(&mut places[at]) {
                *places = self.pairs.places(words[at], node);
                self.pairs.prefetch(isa, *places);
            }
        }
        for (at, met) in ones(which).filter_map(|at| Some((at, met.of(at)?))) {
            for (&latency, &places) in met.latencies.iter().zip(&places[at]) {
                let latency = units(known(latency), self.shape.unit_ns);
                self.pairs.insert_at(places, latency, 1);
            }
        }
    }

    /// All but towers. `size` is how many packets the flow has had by that of sizes, `at` the
    /// packet's number for `watch`. Gives whether the packet is in a row.
    #[inline(always)]
    fn record_one<W: Watch>(
        &mut self,
        (word, key, size): (u64, &K, u32),
        met: Option<Met<'_>>,
        at_us: u32,
        (at, watch): (usize, &mut W),
    ) -> bool {
        let Self { shape, own, key_packets, inflation_percent, pairs, share, .. } = self;
        let number = match &met {
            None => Some(0),
            Some(met) => share.count_path(met, *own),
        };
        let hops = met.map_or(0, |met| met.path.nodes().len());
        let Share { rows, paths, keys, .. } = share;
        let of_flow = rows.as_ref().map(|rows| rows.of_flow(word, key));
        let row = rows.as_mut().zip(of_flow).and_then(|(rows, of_flow)| match number {
            Some(number) if hops <= usize::from(shape.hops) => {
                rows.count((word, key), of_flow, number, |head, cells| {
                    let nodes = paths.get(head.path).map_or(&[][..], Path::nodes);
                    spill(head, nodes, cells, *own, (pairs, shape.unit_ns));
                })
            }
            // A path that has no number, or too many hops.
            _ => {
                rows.refuse(word, key);
                None
            }
        });
        let head = row.and_then(|row| Some(rows.as_mut()?.head_mut(row)));
        if size > *key_packets {
            match head {
                Some(head) if head.is_kept => {}
                Some(head) => head.is_kept = keys.place(word, key).is_some(),
                None => drop(keys.place(word, key)),
            }
        }
        if W::NOTES
            && size > watch.heavy_packets()
            && let Some(number) = keys.find(word, key)
        {
            watch.heavy(at, number);
        }
        let (Some(met), Some(row)) = (met, row) else { return row.is_some() };
        let is_alone = of_flow.is_none_or(|of_flow| of_flow.iter().all(|other| other == row));
        if W::NOTES && !is_alone && share.is_new_path(row, of_flow) {
            watch.new_path(at);
        }
        let ways = number.and_then(|number| share.paths.ways(number));
        let is_plain = ways.is_some_and(|ways| ways.is_plain);
        if is_alone && is_plain {
            let limits = (*inflation_percent, at_us);
            share.add_plainly((word, key, row), &met, limits, (at, watch));
        } else {
            let limits = (*own, *inflation_percent, at_us);
            share.add(key, (word, row), &met, limits, (at, watch));
        }
        true
    }

    /// Records a packet's latency at the sink itself, which must have been recorded before; of a
    /// sink that is no switch nothing.
    #[inline]
    pub fn record_own(&mut self, hashes: &Hashes, key: &K, latency: u32, at_us: u32) {
        self.record_own_by(flow_word(hashes), key, latency, at_us);
    }

    /// The same of a flow of this word: see [`record_burst`](Self::record_burst).
    #[inline]
    pub fn record_own_by(&mut self, word: u64, key: &K, latency: u32, at_us: u32) {
        self.record_own_for((word, key), latency, at_us, &mut ());
    }

    /// The same, for `watch` to take note of it where it is inflated.
    #[inline]
    pub fn record_own_for(
        &mut self,
        (word, key): (u64, &K),
        latency: u32,
        at_us: u32,
        watch: &mut impl Watch,
    ) {
        let Self { shape, own, pairs, share, .. } = self;
        let Some(node) = *own else { return };
        share.note_own(node, latency);
        let of_flow = share.rows.as_ref().map(|rows| rows.of_flow(word, key));
        if let Some((row, of_flow)) = of_flow.and_then(|of| Some((of.first()?, of))) {
            // The row has the packet, whatever is known of its latency.
            if latency == UNKNOWN {
                return;
            }
            let Share { rows: Some(rows), paths, inflated, of_inflated, .. } = share else {
                return;
            };
            let head = *rows.head(row);
            let is_plain = head.path == 0 || paths.ways(head.path).is_some_and(|it| it.is_plain);
            if of_flow.len() > 1 || !is_plain {
                let limits = (Some(node), self.inflation_percent, at_us);
                share.note_inflation(key, (word, row), (node, latency), limits, (0, watch));
                let cells = share.rows.as_mut().map(|rows| rows.cells_mut(row));
                if let Some(cell) = cells.and_then(|cells| cells.last_mut()) {
                    cell.add(latency);
                }
            } else if let Some(cell) = rows.cells_mut(row).last_mut() {
                if head.is_whole && is_inflated(latency, cell, self.inflation_percent) {
                    note(inflated, of_inflated, (word, key), (node, latency), at_us);
                    watch.inflated(0, node, latency);
                }
                cell.add(latency);
            }
            return;
        }
        if let Some(rows) = &mut share.rows {
            rows.refuse(word, key);
        }
        pairs.insert(word, node, units(known(latency), shape.unit_ns), 1);
    }
}

impl<K: Key> Share<K> {
    /// Counts a packet's path, and what it says of the switches on it. Gives the path's number.
    #[inline(always)]
    fn count_path(&mut self, met: &Met<'_>, own: Option<u32>) -> Option<u16> {
        let Self { totals, paths, nodes, of_nodes, .. } = self;
        totals.int_packets += 1;
        totals.partial += u64::from(met.path.is_partial);
        let number = paths.count(met.path, |path| ways(path, nodes, own));
        let hops = met.latencies.iter().zip(met.queued);
        let Some(ways) = number.and_then(|number| paths.ways(number)) else {
            for (&node, (&latency, &queued)) in met.path.nodes().iter().zip(hops) {
                let at = nodes.place(mixed(node.into()), &node);
                if let Some(of) = at.and_then(|at| of_nodes.get_mut(at)) {
                    of.add(latency, queued);
                }
            }
            return None;
        };
        if ways.unknown > 0 {
            nodes.refuse(ways.unknown.into());
        }
        for (&node, (&latency, &queued)) in ways.nodes.iter().zip(hops) {
            if let Some(of) = of_nodes.get_mut(usize::from(node)) {
                of.add(latency, queued);
            }
        }
        number
    }

    #[inline(always)]
    fn note_own(&mut self, node: u32, latency: u32) {
        let Self { nodes, of_nodes, own_node, .. } = self;
        *own_node = own_node.or_else(|| nodes.place(mixed(node.into()), &node));
        if let Some(of) = own_node.and_then(|at| of_nodes.get_mut(at)) {
            of.add(latency, UNKNOWN);
        }
    }

    /// Whether a row has its first packet, of a whole path, and its flow others of another.
    #[inline(never)]
    fn is_new_path(&self, row: usize, of_flow: Option<Matches>) -> bool {
        let Some((rows, of_flow)) = self.rows.as_ref().zip(of_flow) else { return false };
        let is_whole = |row: usize| {
            let path = self.paths.get(rows.head(row).path);
            path.is_some_and(|path| !path.is_partial)
        };
        let is_first = rows.head(row).packets == 1 && is_whole(row);
        is_first && of_flow.iter().any(|other| other != row && is_whole(other))
    }

    /// Adds a packet's latencies to its flow's only row, whose path comes by no switch twice.
    #[inline(always)]
    fn add_plainly(
        &mut self,
        (word, key, row): (u64, &K, usize),
        met: &Met<'_>,
        (percent, at_us): (u32, u32),
        (at, watch): (usize, &mut impl Watch),
    ) {
        let Self { rows: Some(rows), inflated, of_inflated, .. } = self else { return };
        let is_whole = rows.head(row).is_whole;
        let cells = rows.cells_mut(row).iter_mut();
        for ((cell, &latency), &node) in cells.zip(met.latencies).zip(met.path.nodes()) {
            if latency == UNKNOWN {
                continue;
            }
            if is_whole && is_inflated(latency, cell, percent) {
                note(inflated, of_inflated, (word, key), (node, latency), at_us);
                watch.inflated(at, node, latency);
            }
            cell.add(latency);
        }
    }

    /// Adds a packet's latencies to its row.
    #[inline(never)]
    fn add(
        &mut self,
        key: &K,
        (word, row): (u64, usize),
        met: &Met<'_>,
        limits: (Option<u32>, u32, u32),
        (at, watch): (usize, &mut impl Watch),
    ) {
        for (&node, &latency) in met.path.nodes().iter().zip(met.latencies) {
            self.note_inflation(key, (word, row), (node, latency), limits, (at, watch));
        }
        let Some(rows) = &mut self.rows else { return };
        for (cell, &latency) in rows.cells_mut(row).iter_mut().zip(met.latencies) {
            if latency != UNKNOWN {
                cell.add(latency);
            }
        }
    }

    /// Counts a latency at a switch if it is inflated: above so many hundredths of the mean of the
    /// flow's packets before it, of which there are enough. Of flows that are not whole, nobody
    /// knows.
    fn note_inflation(
        &mut self,
        key: &K,
        (word, row): (u64, usize),
        (node, latency): (u32, u32),
        (own, percent, at_us): (Option<u32>, u32, u32),
        (at, watch): (usize, &mut impl Watch),
    ) {
        let Self { rows: Some(rows), paths, inflated, of_inflated, .. } = self else { return };
        if latency == UNKNOWN || !rows.head(row).is_whole {
            return;
        }
        let (mut sum, mut seen) = (0_u64, 0_u64);
        for row in rows.of_flow(word, key).iter() {
            let cells = rows.cells(row);
            let nodes = paths.get(rows.head(row).path).map_or(&[][..], Path::nodes);
            let at_own = cells.last().filter(|_| own == Some(node));
            let there = nodes.iter().zip(cells).filter(|(other, _)| **other == node);
            for cell in there.map(|(_, cell)| cell).chain(at_own) {
                sum += cell.sum_ns;
                seen += u64::from(cell.known);
            }
        }
        if is_above(latency, (sum, seen), percent) {
            note(inflated, of_inflated, (word, key), (node, latency), at_us);
            watch.inflated(at, node, latency);
        }
    }
}

/// What there is to find out of a path.
#[inline(never)]
fn ways(path: &Path, nodes: &mut Bounded<u32>, own: Option<u32>) -> Ways {
    let mut ways = Ways { nodes: [u16::MAX; MOST_HOPS], unknown: 0, is_plain: true };
    for (at, (&node, place)) in path.nodes().iter().zip(&mut ways.nodes).enumerate() {
        let hash = mixed(node.into());
        let known = nodes.find(hash, &node);
        match known.or_else(|| if nodes.is_full() { None } else { nodes.place(hash, &node) }) {
            Some(number) => *place = number as u16,
            // It is counted with each packet.
            None => ways.unknown += 1,
        }
        ways.is_plain &= own != Some(node) && !path.nodes()[..at].contains(&node);
    }
    ways
}

#[inline(always)]
fn is_inflated(latency: u32, cell: &Cell, percent: u32) -> bool {
    is_above(latency, (cell.sum_ns, cell.known.into()), percent)
}

/// Whether a latency is above so many hundredths of the mean of those seen, if these are enough.
#[inline(always)]
fn is_above(latency: u32, (sum, seen): (u64, u64), percent: u32) -> bool {
    // latency > percent / 100 * sum / seen.
    let beyond = u128::from(latency) * u128::from(seen * 100);
    seen >= SEEN && beyond > u128::from(percent) * u128::from(sum)
}

/// Counts an inflated latency.
#[cold]
#[inline(never)]
fn note<K: Key>(
    inflated: &mut Bounded<(K, u32)>,
    of_inflated: &mut [Inflated],
    (word, key): (u64, &K),
    (node, latency): (u32, u32),
    at_us: u32,
) {
    let at = inflated.place(word ^ mixed(node.into()), &(*key, node));
    if let Some(of) = at.and_then(|at| of_inflated.get_mut(at)) {
        of.count = of.count.saturating_add(1);
        of.max_ns = of.max_ns.max(latency);
        of.last_us = of.last_us.max(at_us);
    }
}

/// What is not known adds nothing.
#[inline(always)]
fn known(latency: u32) -> u64 {
    if latency == UNKNOWN { 0 } else { latency.into() }
}

/// In units, no less than the truth.
#[inline(always)]
fn units(ns: u64, unit_ns: u32) -> u32 {
    let units = match unit_ns.is_power_of_two() {
        // No division with the usual unit.
        true => ns.saturating_add(u64::from(unit_ns) - 1) >> unit_ns.trailing_zeros(),
        false => ns.div_ceil(unit_ns.max(1).into()),
    };
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Puts what a row held into pair towers.
fn spill<K>(
    head: &Head<K>,
    nodes: &[u32],
    cells: &[Cell],
    own: Option<u32>,
    (pairs, unit_ns): (&mut Pairs, u32),
) {
    let (own_cell, of_hops) = cells.split_last().unwrap_or((&NOTHING, &[]));
    for (&node, cell) in nodes.iter().zip(of_hops) {
        pairs.insert(head.word, node, units(cell.sum_ns, unit_ns), head.packets);
    }
    if let Some(own) = own.filter(|_| own_cell.known > 0) {
        pairs.insert(head.word, own, units(own_cell.sum_ns, unit_ns), own_cell.known);
    }
}

static NOTHING: Cell = Cell { sum_ns: 0, max_ns: 0, known: 0 };

#[cfg(test)]
mod tests {
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
            };
            let mut one_by_one = Sink::new(shape, own, key_packets, 150).unwrap();
            let mut sinks: Vec<(Engine, Sink<FlowKey>)> =
                Engine::available().map(|engine| (engine, one_by_one.clone())).collect();
            let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
            for (at_us, packets) in (0..).zip(&bursts) {
                let key = |packet: &Packet| FlowKey::from_words(packet.0, 1, 2, 6);
                let keys: Vec<FlowKey> = packets.iter().map(key).collect();
                let (mut hashes, mut met) = (HashColumns::default(), MetBurst::default());
                family.hash_columns(&keys, &mut hashes);
                for (at, (_, hops, _)) in packets.iter().enumerate() {
                    let of_hops = hops.iter().flatten().map(|hop| (hop.1, hop.2));
                    let (latencies, queued): (Vec<u32>, Vec<u32>) = of_hops.unzip();
                    let (latencies, queued) = (&latencies[..], &queued[..]);
                    let nodes = hops.iter().flatten().map(|hop| hop.0);
                    let path = Path::new(nodes, at % 9 == 0);
                    let of_packet = hops.as_ref().map(|hops| {
                        met.set(at, hops.iter().copied(), at % 9 == 0);
                        Met { path: &path, latencies, queued }
                    });
                    one_by_one.record(&hashes.of(at), &keys[at], of_packet, at_us);
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
}
