//! Recording: what a sink does with each packet.
//!
//! A burst goes through in passes, so that the cache lines of all of its packets are under way at
//! once: the tower of sizes, array by array; the rows that packets will likely be counted in, which
//! are asked for; then each packet. Nearly all have their flow's only row and a path that comes by
//! no switch twice, of which each hop costs an entry of its switch's histogram and a cell.

#[cfg(test)]
mod tests;

use super::bounded::Bounded;
use super::flow_word;
use super::inflation::{self, Limits};
use super::met::{Met, UNKNOWN};
use super::pairs::Pairs;
use super::paths::{MOST_HOPS, Path, Ways};
use super::rows::{Cell, Head, Matches, Rows};
use super::sink::{Share, Sink};
use super::watch::Watch;
use crate::burst::{BURST, Column};
use crate::hash::{HashColumns, Hashes, mixed};
use crate::key::Key;
use crate::simd::{Engine, Isa, Work};
use crate::tower::Rule;

/// A word of each packet's flow, for [what comes later](Sink::record_owns).
pub type Words = [u64; BURST];

struct RecordBurst<'a, K, W> {
    sink: &'a mut Sink<K>,
    watch: &'a mut W,
    hashes: &'a HashColumns,
    keys: &'a [K],
    met: &'a [Option<Met<'a>>],
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
        let (own, share) = (sink.own, &mut sink.share);
        share.totals.packets += packets as u64;
        let mut numbers = [Some(0); BURST];
        for (number, met) in numbers.iter_mut().zip(met) {
            if let Some(met) = met {
                *number = share.count_path(met, own);
            }
        }
        for (&number, met) in numbers.iter().zip(met) {
            if let Some(met) = met {
                share.count_nodes(number, met);
            }
        }
        let mut of_flows = [Matches::NONE; BURST];
        let mut changes = 0;
        if let Some(rows) = &share.rows {
            changes = rows.changes();
            for (of_flow, (&word, key)) in of_flows.iter_mut().zip(words.iter().zip(keys)) {
                *of_flow = rows.of_flow(word, key);
            }
        }
        let mut places = [[[0; Pairs::LEVELS]; MOST_HOPS]; BURST];
        for (at, places) in places[..packets].iter_mut().enumerate() {
            if of_flows[at].len() == 0
                && let Some(met) = of_packet(met, at)
            {
                sink.pairs.prefetch(isa, words[at], met.nodes(), places);
            }
        }
        for at in 0..packets {
            let of = (words[at], &keys[at], sizes.0[at]);
            let met = of_packet(met, at).map(|met| (numbers[at], met));
            // Rows that came or went have changed those of others as well.
            let of_flow = match &sink.share.rows {
                Some(rows) if rows.changes() != changes => rows.of_flow(of.0, of.1),
                _ => of_flows[at],
            };
            let has_row = sink.record_in_row((of, of_flow), met, at_us, (at, watch));
            if !has_row && let Some((_, met)) = met {
                let places = (of_flows[at].len() == 0).then_some(&places[at]);
                sink.record_in_pairs((words[at], &keys[at]), &met, places, at_us);
            }
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
        met: &[Option<Met<'_>>],
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
        met: &[Option<Met<'_>>],
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
        let Self { own, share, .. } = self;
        let met = met.map(|met| (share.count_path(&met, *own), met));
        if let Some((number, met)) = &met {
            share.count_nodes(*number, met);
        }
        let of_flow = share.of_flow(word, key);
        if !self.record_in_row(((word, key, size), of_flow), met, at_us, (0, &mut ()))
            && let Some((_, met)) = met
        {
            self.record_in_pairs((word, key), &met, None, at_us);
        }
    }

    /// Adds a packet that found no row to the pair towers, to these buckets where they are at hand.
    #[inline(always)]
    fn record_in_pairs(
        &mut self,
        (word, key): (u64, &K),
        met: &Met<'_>,
        places: Option<&[[u32; Pairs::LEVELS]; MOST_HOPS]>,
        at_us: u32,
    ) {
        for (hop, (&node, &latency)) in met.nodes().iter().zip(met.latencies).enumerate() {
            let places = places.map_or_else(|| self.pairs.places(word, node), |of| of[hop]);
            self.add_to_pairs((word, key), (node, latency), places, at_us);
        }
    }

    /// Adds a packet without a row to its buckets of the pair towers, and counts its latency if it
    /// is inflated by what these had before.
    #[inline(always)]
    fn add_to_pairs(
        &mut self,
        (word, key): (u64, &K),
        (node, latency): (u32, u32),
        places: [u32; Pairs::LEVELS],
        at_us: u32,
    ) {
        let Self { shape, inflation_percent, pairs, share, .. } = self;
        if latency != UNKNOWN {
            let before = pairs.query_at(places);
            if inflation::is_above_pair(latency, before, shape.unit_ns, *inflation_percent) {
                share.note((word, key), (node, latency), false, at_us);
            }
        }
        pairs.insert_at(places, units(known(latency), shape.unit_ns), 1);
    }

    /// Records a packet in a row of its flow, which are `of_flow`. `size` is how many packets the
    /// flow has had by the tower of sizes; what the packet met comes with the path's number, and
    /// `at` is the packet's number for `watch`. Gives whether the packet is in a row.
    #[inline(always)]
    fn record_in_row<W: Watch>(
        &mut self,
        ((word, key, size), of_flow): ((u64, &K, u32), Matches),
        met: Option<(Option<u16>, Met<'_>)>,
        at_us: u32,
        (at, watch): (usize, &mut W),
    ) -> bool {
        let Self { shape, own, key_packets, inflation_percent, pairs, share, .. } = self;
        let number = met.map_or(Some(0), |(number, _)| number);
        let hops = met.map_or(0, |(_, met)| met.nodes().len());
        let Share { rows, paths, keys, .. } = share;
        let row = rows.as_mut().and_then(|rows| match number {
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
        let (Some((_, met)), Some(row)) = (met, row) else { return row.is_some() };
        let is_alone = of_flow.iter().all(|other| other == row);
        if W::NOTES && !is_alone && share.is_new_path(row, of_flow) {
            watch.new_path(at);
        }
        let ways = number.and_then(|number| share.paths.ways(number));
        let is_plain = ways.is_some_and(|ways| ways.is_plain);
        let (own, percent, unit_ns) = (*own, *inflation_percent, shape.unit_ns);
        let limits = Limits { own, percent, at_us, pairs, unit_ns };
        if is_alone && is_plain {
            share.add_plainly((word, key, row), &met, limits, (at, watch));
        } else {
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
        let Some(node) = self.own else { return };
        let of_flow = self.share.of_flow(word, key);
        self.record_own_in_row((word, key, of_flow), (node, latency), at_us, watch);
    }

    /// The same of up to [`BURST`] packets: each one's word, key and latency.
    #[inline]
    pub fn record_owns(&mut self, packets: &[(u64, K, u32)], at_us: u32) {
        let Some(node) = self.own else { return };
        // No row comes or goes in between.
        let mut of_flows = [Matches::NONE; BURST];
        for (of_flow, (word, key, _)) in of_flows.iter_mut().zip(packets) {
            *of_flow = self.share.of_flow(*word, key);
        }
        for (of_flow, &(word, ref key, latency)) in of_flows.into_iter().zip(packets) {
            self.record_own_in_row((word, key, of_flow), (node, latency), at_us, &mut ());
        }
    }

    #[inline(always)]
    fn record_own_in_row(
        &mut self,
        (word, key, of_flow): (u64, &K, Matches),
        (node, latency): (u32, u32),
        at_us: u32,
        watch: &mut impl Watch,
    ) {
        let Self { shape, inflation_percent: percent, pairs, share, .. } = self;
        share.note_own(node, latency);
        if let Some(row) = of_flow.first() {
            // The row has the packet, whatever is known of its latency.
            if latency == UNKNOWN {
                return;
            }
            let own = Some(node);
            let limits = Limits { own, percent: *percent, at_us, pairs, unit_ns: shape.unit_ns };
            let Share { rows: Some(rows), paths, inflated, of_inflated, .. } = share else {
                return;
            };
            let Head { path, is_whole, .. } = *rows.head(row);
            let is_plain = path == 0 || paths.ways(path).is_some_and(|it| it.is_plain);
            if of_flow.len() > 1 || !is_plain {
                share.note_inflation(key, (word, row), (node, latency), limits, (0, watch));
                let cells = share.rows.as_mut().map(|rows| rows.cells_mut(row));
                if let Some(cell) = cells.and_then(|cells| cells.last_mut()) {
                    cell.add(latency);
                }
                let quarters = share.rows.as_mut().and_then(|rows| rows.quarters_mut(row));
                if let Some(own) = quarters.and_then(|quarters| quarters.last_mut()) {
                    own.add(latency);
                }
            } else if let Some(cell) = rows.cells_mut(row).last_mut() {
                let before = (cell.sum_ns, cell.known.into());
                if limits.are_exceeded(latency, before, (word, node, is_whole)) {
                    let table = (inflated, &mut **of_inflated);
                    inflation::note(table, is_whole, (word, key), (node, latency), at_us);
                    if is_whole {
                        watch.inflated(0, node, latency);
                    }
                }
                cell.add(latency);
                if let Some(own) = rows.quarters_mut(row).and_then(|of| of.last_mut()) {
                    own.add(latency);
                }
            }
            return;
        }
        if let Some(rows) = &mut share.rows {
            rows.refuse(word, key);
        }
        let places = self.pairs.places(word, node);
        self.add_to_pairs((word, key), (node, latency), places, at_us);
    }
}

impl<K: Key> Share<K> {
    /// The rows of a flow.
    #[inline(always)]
    fn of_flow(&self, word: u64, key: &K) -> Matches {
        self.rows.as_ref().map_or(Matches::NONE, |rows| rows.of_flow(word, key))
    }

    /// Counts a packet's path. Gives the path's number.
    #[inline(always)]
    fn count_path(&mut self, met: &Met<'_>, own: Option<u32>) -> Option<u16> {
        let Self { totals, paths, nodes, .. } = self;
        totals.int_packets += 1;
        totals.partial += u64::from(met.is_partial);
        paths.count(met, |path| ways(path, nodes, own))
    }

    /// Counts what a packet says of the switches that it came by, on the path with this number.
    #[inline(always)]
    fn count_nodes(&mut self, number: Option<u16>, met: &Met<'_>) {
        let Self { paths, nodes, of_nodes, .. } = self;
        let hops = met.latencies.iter().zip(met.queued);
        let Some(ways) = number.and_then(|number| paths.ways(number)) else {
            for (&node, (&latency, &queued)) in met.nodes().iter().zip(hops) {
                let at = nodes.place(mixed(node.into()), &node);
                if let Some(of) = at.and_then(|at| of_nodes.get_mut(at)) {
                    of.add(latency, queued);
                }
            }
            return;
        };
        if ways.unknown > 0 {
            nodes.refuse(ways.unknown.into());
        }
        for (&node, (&latency, &queued)) in ways.nodes.iter().zip(hops) {
            if let Some(of) = of_nodes.get_mut(usize::from(node)) {
                of.add(latency, queued);
            }
        }
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
    fn is_new_path(&self, row: usize, of_flow: Matches) -> bool {
        let Some(rows) = &self.rows else { return false };
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
        limits: Limits<'_>,
        (at, watch): (usize, &mut impl Watch),
    ) {
        let Self { rows: Some(rows), inflated, of_inflated, .. } = self else { return };
        let is_whole = rows.head(row).is_whole;
        let cells = rows.cells_mut(row).iter_mut();
        for ((cell, &latency), &node) in cells.zip(met.latencies).zip(met.nodes()) {
            if latency == UNKNOWN {
                continue;
            }
            let before = (cell.sum_ns, cell.known.into());
            if limits.are_exceeded(latency, before, (word, node, is_whole)) {
                let table = (&mut *inflated, &mut **of_inflated);
                inflation::note(table, is_whole, (word, key), (node, latency), limits.at_us);
                if is_whole {
                    watch.inflated(at, node, latency);
                }
            }
            cell.add(latency);
        }
        add_by_size(rows, row, met.latencies);
    }

    /// Adds a packet's latencies to its row.
    #[inline(never)]
    fn add(
        &mut self,
        key: &K,
        (word, row): (u64, usize),
        met: &Met<'_>,
        limits: Limits<'_>,
        (at, watch): (usize, &mut impl Watch),
    ) {
        for (&node, &latency) in met.nodes().iter().zip(met.latencies) {
            self.note_inflation(key, (word, row), (node, latency), limits, (at, watch));
        }
        let Some(rows) = &mut self.rows else { return };
        for (cell, &latency) in rows.cells_mut(row).iter_mut().zip(met.latencies) {
            if latency != UNKNOWN {
                cell.add(latency);
            }
        }
        add_by_size(rows, row, met.latencies);
    }

    /// Counts an inflated latency. Estimates leave half of the room to flows whose packets are all
    /// in rows, where there are rows.
    fn note(&mut self, of: (u64, &K), at: (u32, u32), is_whole: bool, at_us: u32) {
        let may_fill = is_whole || self.rows.is_none();
        let table = (&mut self.inflated, &mut *self.of_inflated);
        inflation::note(table, may_fill, of, at, at_us);
    }

    /// Counts a latency at a switch if it is inflated, by all of the flow's rows.
    fn note_inflation(
        &mut self,
        key: &K,
        (word, row): (u64, usize),
        (node, latency): (u32, u32),
        limits: Limits<'_>,
        (at, watch): (usize, &mut impl Watch),
    ) {
        let Self { rows: Some(rows), paths, .. } = self else { return };
        if latency == UNKNOWN {
            return;
        }
        let is_whole = rows.head(row).is_whole;
        let (mut sum, mut seen) = (0_u64, 0_u64);
        for row in rows.of_flow(word, key).iter() {
            let cells = rows.cells(row);
            let nodes = paths.get(rows.head(row).path).map_or(&[][..], Path::nodes);
            let at_own = cells.last().filter(|_| limits.own == Some(node));
            let there = nodes.iter().zip(cells).filter(|(other, _)| **other == node);
            for cell in there.map(|(_, cell)| cell).chain(at_own) {
                sum += cell.sum_ns;
                seen += u64::from(cell.known);
            }
        }
        if limits.are_exceeded(latency, (sum, seen), (word, node, is_whole)) {
            self.note((word, key), (node, latency), is_whole, limits.at_us);
            if is_whole {
                watch.inflated(at, node, latency);
            }
        }
    }
}

/// What a packet of the burst met; `None` where it came without INT.
#[inline(always)]
fn of_packet<'a>(met: &[Option<Met<'a>>], at: usize) -> Option<Met<'a>> {
    met.get(at).copied().flatten()
}

/// Counts a packet's latencies by size, hop by hop, where its row has room for that.
#[inline(always)]
fn add_by_size<K: Key>(rows: &mut Rows<K>, row: usize, latencies: &[u32]) {
    let Some(quarters) = rows.quarters_mut(row) else { return };
    for (of, &latency) in quarters.iter_mut().zip(latencies) {
        if latency != UNKNOWN {
            of.add(latency);
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

/// Puts what a row held into pair towers: its hops', and where the sink is a switch its own cell.
fn spill<K>(
    head: &Head<K>,
    nodes: &[u32],
    cells: &[Cell],
    own: Option<u32>,
    (pairs, unit_ns): (&mut Pairs, u32),
) {
    for (&node, cell) in nodes.iter().zip(cells) {
        pairs.insert(head.word, node, units(cell.sum_ns, unit_ns), head.packets);
    }
    if let Some((own, cell)) = own.zip(cells.last().filter(|cell| cell.known > 0)) {
        pairs.insert(head.word, own, units(cell.sum_ns, unit_ns), cell.known);
    }
}
