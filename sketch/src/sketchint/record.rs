//! Recording: what a sink does with each packet.
//!
//! A burst goes through in passes, so that the cache lines of all of its packets are under way at
//! once: the tower of sizes, array by array; the rows that packets will likely be counted in, which
//! are asked for; then each packet. Nearly all have their flow's only row and a path that comes by
//! no switch twice, of which each hop costs an entry of its switch's histogram and a cell.

mod burst;
#[cfg(test)]
mod tests;

use self::burst::{RecordBurst, RecordOwns};
use super::cells::Cells;
use super::flow_word;
use super::inflation::{self, Limits};
use super::met::{Met, UNKNOWN};
use super::nodes::FEW_HOPS;
use super::pairs::Pairs;
use super::paths::{MOST_HOPS, Path};
use super::rows::{Head, Matches, Rows};
use super::sink::{Share, Sink};
use super::watch::Watch;
use crate::burst::BURST;
use crate::hash::{HashColumns, Hashes};
use crate::key::Key;
use crate::simd::{Engine, Isa, Scalar};

/// A word of each packet's flow, for [what comes later](Sink::record_owns).
pub type Words = [u64; BURST];

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
        let mut numbers = [Some(0); BURST];
        let of_flow = share.of_flow(Scalar, word, key);
        let mut of_flows = [Matches::NONE; BURST];
        of_flows[0] = of_flow;
        share.count_paths(&[met], *own, &of_flows, &mut numbers);
        let met = met.map(|met| (numbers[0], met));
        let of = ((word, key, size), of_flow);
        if !self.record_in_row(Scalar, of, met, at_us, (0, &mut ()))
            && let Some((_, met)) = met
        {
            self.record_in_pairs((word, key), &met, at_us);
        }
    }

    /// Adds a packet that found no row to the pair towers.
    #[inline(always)]
    fn record_in_pairs(&mut self, of: (u64, &K), met: &Met<'_>, at_us: u32) {
        if met.len() <= FEW_HOPS {
            self.add_all_to_pairs::<FEW_HOPS>(of, met, at_us);
        } else {
            self.add_all_to_pairs::<MOST_HOPS>(of, met, at_us);
        }
    }

    /// Adds up to `MOST` hops of a packet without a row to their buckets of the pair towers, and
    /// counts those latencies that are inflated by what these had before.
    #[inline(always)]
    fn add_all_to_pairs<const MOST: usize>(
        &mut self,
        (word, key): (u64, &K),
        met: &Met<'_>,
        at_us: u32,
    ) {
        let Self { shape, inflation_percent: percent, pairs, share, .. } = self;
        let Some((nodes, latencies)) = met.places.first_chunk().zip(met.column.first_chunk())
        else {
            return;
        };
        let hops = met.len().min(MOST);
        let units = all_units::<MOST>(latencies, shape.unit_ns);
        let before = pairs.insert_all(pairs.all_places(word, nodes), &units, hops);
        let limit = (shape.unit_ns, *percent);
        if !inflation::may_be_above_pairs(latencies, &before, limit) {
            return;
        }
        for (hop, (&node, &latency)) in met.nodes().iter().zip(met.latencies()).enumerate() {
            let before = before.pair(hop);
            if latency != UNKNOWN
                && inflation::is_above_pair(latency, before, shape.unit_ns, *percent)
            {
                share.note((word, key), (node, latency), false, at_us);
            }
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

    /// Counts a packet in its flow's only row, if it has one, and that is of the path with this
    /// number. Gives the row, and whether the flow is whole.
    #[inline(always)]
    fn count_in_only_row(&mut self, of_flow: Matches, path: u16) -> Option<(usize, bool)> {
        let row = of_flow.only()?;
        let head = self.share.rows.as_mut()?.head_mut(row);
        if head.path != path || head.packets == u32::MAX {
            return None;
        }
        head.packets += 1;
        Some((row, head.is_whole))
    }

    /// Keeps the key of a flow that has had so many packets, if these are many. The packet is in
    /// this row, if in any.
    #[inline(always)]
    fn keep_large<W: Watch>(
        &mut self,
        (word, key, size): (u64, &K, u32),
        row: Option<usize>,
        (at, watch): (usize, &mut W),
    ) {
        if size <= self.key_packets.min(watch.heavy_packets()) {
            return;
        }
        let Share { rows, keys, .. } = &mut self.share;
        let head = match (rows, row) {
            (Some(rows), Some(row)) => Some(rows.head_mut(row)),
            _ => None,
        };
        if size > self.key_packets {
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
    }

    /// Records a packet in a row of its flow, which are `of_flow`. `size` is how many packets the
    /// flow has had by the tower of sizes; what the packet met comes with the path's number, and
    /// `at` is the packet's number for `watch`. Gives whether the packet is in a row.
    #[inline(always)]
    fn record_in_row<W: Watch>(
        &mut self,
        isa: impl Isa,
        ((word, key, size), of_flow): ((u64, &K, u32), Matches),
        met: Option<(Option<u16>, Met<'_>)>,
        at_us: u32,
        (at, watch): (usize, &mut W),
    ) -> bool {
        let Self { shape, own, pairs, share, .. } = self;
        let number = met.map_or(Some(0), |(number, _)| number);
        let hops = met.map_or(0, |(_, met)| met.len());
        let Share { rows, paths, .. } = share;
        let mut row = None;
        if let Some(rows) = rows {
            match number {
                Some(number) if hops <= usize::from(shape.hops) => {
                    row = rows.count((word, key), of_flow, number, |head, cells, row| {
                        let nodes = paths.get(head.path).map_or(&[][..], Path::nodes);
                        spill(head, nodes, (cells, row), *own, (pairs, shape.unit_ns));
                    });
                }
                // A path that has no number, or too many hops.
                _ => rows.refuse(word, key),
            }
        }
        self.keep_large((word, key, size), row, (at, watch));
        let Self { shape, own, inflation_percent, pairs, share, .. } = self;
        let (Some((_, met)), Some(row)) = (met, row) else { return row.is_some() };
        let is_alone = !of_flow.has_other(row);
        if W::NOTES && !is_alone && share.is_new_path(row, of_flow) {
            watch.new_path(at);
        }
        let ways = number.and_then(|number| share.paths.ways(number));
        let is_plain = ways.is_some_and(|ways| ways.is_plain);
        let (own, percent, unit_ns) = (*own, *inflation_percent, shape.unit_ns);
        let limits = Limits { own, percent, at_us, pairs, unit_ns };
        if is_alone && is_plain {
            let is_whole = share.rows.as_ref().is_some_and(|rows| rows.head(row).is_whole);
            let of = (word, key, (row, is_whole));
            share.add_plainly(isa, of, &met, limits, (at, watch));
        } else {
            share.add(key, (word, row), &met, limits, (at, watch));
        }
        true
    }

    /// Records how many waited in the sink's own queue where so many packets came whose latencies
    /// at the sink itself have been [recorded](Self::record_owns), known or not.
    #[inline]
    pub fn record_own_queue(&mut self, queued: u32, packets: u32) {
        self.share.nodes.count_own_queue(queued, packets);
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
        self.share.nodes.count_own(node, latency, 1);
        let of_flow = self.share.of_flow(Scalar, word, key);
        self.record_own_in_row((word, key, of_flow), (node, latency), at_us, watch);
    }

    /// The same of up to [`BURST`] packets, each with its word, key and latency, by the
    /// instructions of `engine`.
    #[inline]
    pub fn record_owns(&mut self, engine: Engine, packets: &[(u64, K, u32)], at_us: u32) {
        engine.run(RecordOwns { sink: self, packets, at_us });
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
            } else {
                let cell = rows.cells().last(row);
                let before = (cell.sum_ns, cell.known.into());
                if limits.are_exceeded(latency, before, (word, node, is_whole)) {
                    let table = (inflated, &mut **of_inflated);
                    inflation::note(table, is_whole, (word, key), (node, latency), at_us);
                    if is_whole {
                        watch.inflated(0, node, latency);
                    }
                }
            }
            if let Some(rows) = &mut share.rows {
                rows.cells_mut().add_to_last(row, latency);
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
    fn of_flow(&self, isa: impl Isa, word: u64, key: &K) -> Matches {
        match &self.rows {
            Some(rows) => rows.of_flow(isa, word, key),
            None => Matches::NONE,
        }
    }

    /// Counts the paths of a burst's packets, and what these say of the switches there; of each the
    /// rows of its flow are known. Gives the paths' numbers, and a bit for each packet whose path
    /// comes by no switch twice.
    #[inline(always)]
    fn count_paths(
        &mut self,
        met: &[Option<Met<'_>>],
        own: Option<u32>,
        of_flows: &[Matches; BURST],
        numbers: &mut [Option<u16>; BURST],
    ) -> u32 {
        let Self { totals, paths, nodes, rows, .. } = self;
        // A packet likely comes by the path of its flow's packets before.
        let mut likely = [0; BURST];
        for ((likely, met), of_flow) in likely.iter_mut().zip(met).zip(of_flows) {
            let Some(met) = met else { continue };
            totals.int_packets += 1;
            totals.partial += u64::from(met.is_partial);
            *likely = match (&*rows, of_flow.first()) {
                (Some(rows), Some(row)) => rows.head(row).path,
                _ => paths.recent(met),
            };
        }
        for ((number, met), &likely) in numbers.iter_mut().zip(met).zip(&likely) {
            if let Some(met) = met {
                *number = paths.number(met, likely, |path| nodes.ways(path, own));
            }
        }
        nodes.count(paths, met, numbers)
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
        isa: impl Isa,
        (word, key, (row, is_whole)): (u64, &K, (usize, bool)),
        met: &Met<'_>,
        limits: Limits<'_>,
        (at, watch): (usize, &mut impl Watch),
    ) {
        let Self { rows: Some(rows), inflated, of_inflated, .. } = self else { return };
        if rows.cells_mut().add_all(isa, row, met, (limits.percent / 100, is_whole)) {
            let others = (!is_whole).then(|| limits.pairs.query_all(word, met));
            for (hop, (&node, &latency)) in met.nodes().iter().zip(met.latencies()).enumerate() {
                if latency == UNKNOWN {
                    continue;
                }
                let before = rows.cells().get(row, hop).before(latency);
                let is_inflated = match &others {
                    Some(others) => limits.are_exceeded_with(latency, before, others.pair(hop)),
                    None => limits.are_exceeded(latency, before, (word, node, true)),
                };
                if is_inflated {
                    let table = (&mut *inflated, &mut **of_inflated);
                    inflation::note(table, is_whole, (word, key), (node, latency), limits.at_us);
                    if is_whole {
                        watch.inflated(at, node, latency);
                    }
                }
            }
        }
        add_by_size(rows, row, met.latencies());
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
        for (&node, &latency) in met.nodes().iter().zip(met.latencies()) {
            self.note_inflation(key, (word, row), (node, latency), limits, (at, watch));
        }
        let Some(rows) = &mut self.rows else { return };
        for (hop, &latency) in met.latencies().iter().enumerate() {
            if latency != UNKNOWN {
                rows.cells_mut().add(row, hop, latency);
            }
        }
        add_by_size(rows, row, met.latencies());
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
        for row in rows.of_flow(Scalar, word, key).iter() {
            let cells = rows.cells();
            let nodes = paths.get(rows.head(row).path).map_or(&[][..], Path::nodes);
            let at_own = Some(cells.last(row)).filter(|_| limits.own == Some(node));
            let there = nodes.iter().zip(cells.of(row)).filter(|(other, _)| **other == node);
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

/// The same of all that are known.
#[inline(always)]
fn all_units<const MOST: usize>(latencies: &[u32; MOST], unit_ns: u32) -> [u32; MOST] {
    let mut all = [0; MOST];
    if !unit_ns.is_power_of_two() {
        for hop in 0..MOST {
            all[hop] = units(known(latencies[hop]), unit_ns);
        }
        return all;
    }
    let (shift, rest) = (unit_ns.trailing_zeros(), unit_ns - 1);
    for hop in 0..MOST {
        let ns = latencies[hop];
        let whole = (ns >> shift) + u32::from(ns & rest != 0);
        all[hop] = if ns == UNKNOWN { 0 } else { whole };
    }
    all
}

/// Puts what a row held into pair towers: its hops', and where the sink is a switch its own cell.
fn spill<K>(
    head: &Head<K>,
    nodes: &[u32],
    (cells, row): (&Cells, usize),
    own: Option<u32>,
    (pairs, unit_ns): (&mut Pairs, u32),
) {
    for (&node, cell) in nodes.iter().zip(cells.of(row)) {
        pairs.insert(head.word, node, units(cell.sum_ns, unit_ns), head.packets);
    }
    let of_sink = own.map(|own| (own, cells.last(row)));
    if let Some((own, cell)) = of_sink.filter(|(_, cell)| cell.known > 0) {
        pairs.insert(head.word, own, units(cell.sum_ns, unit_ns), cell.known);
    }
}
