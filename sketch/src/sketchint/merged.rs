//! What the lcores of a sink recorded in a window, put together.
//!
//! A flow is on one lcore where queues are chosen by its hash; else its rows add up, and it is
//! exact only if no lcore keeps packets of it anywhere but in rows.

use std::collections::BTreeMap;

use super::cells::Cell;
use super::histogram::Histogram;
use super::nodes::Node;
use super::paths::Path;
use super::quarters::Quarters;
use super::sink::{Inflated, Share, Sink, Totals};
use crate::key::Key;

/// A path and the packets that came by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCount {
    /// The path.
    pub path: Path,
    /// Its packets.
    pub packets: u64,
}

/// A switch, over all packets that say anything of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSums {
    /// Its number.
    pub node: u32,
    /// Packets, each as often as it came by.
    pub packets: u64,
    /// The sum of the latencies that are known, in nanoseconds.
    pub sum_ns: u64,
    /// The least of them; `u32::MAX` where none is known.
    pub min_ns: u32,
    /// The longest.
    pub max_ns: u32,
    /// All of them.
    pub latencies: Histogram,
    /// Packets that the length of the queue is known of.
    pub queued: u64,
    /// The sum of these lengths.
    pub queue_sum: u64,
    /// The longest.
    pub queue_max: u32,
}

impl NodeSums {
    /// Of a switch that no packet says anything of.
    pub fn none(node: u32) -> Self {
        let Node { packets, sum_ns, min_ns, max_ns, queued, queue_sum, queue_max } = Node::NONE;
        let latencies = Histogram::default();
        Self { node, packets, sum_ns, min_ns, max_ns, latencies, queued, queue_sum, queue_max }
    }

    /// Adds what an lcore has of the same switch, and its histogram's bins.
    fn merge(&mut self, other: &Node, bins: &[u32]) {
        self.packets += other.packets;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.latencies.merge_bins(bins);
        self.queued += other.queued;
        self.queue_sum += other.queue_sum;
        self.queue_max = self.queue_max.max(other.queue_max);
    }
}

/// A flow's packets on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow<K> {
    /// The flow.
    pub key: K,
    /// The number of its path in the list, from 1 on; 0 for packets without INT.
    pub path: u32,
    /// Its packets.
    pub packets: u64,
    /// Whether all packets of the flow are in its rows.
    pub is_exact: bool,
    /// Whether its inflated latencies were counted by its own mean: it is exact, and one lcore saw
    /// all of it.
    pub has_inflation: bool,
    /// What they met at each hop.
    pub hops: Vec<Cell>,
    /// What packets of the flow met at the sink itself, all of its paths' in one row.
    pub own: Cell,
    /// Latencies at each hop by size, and behind them those at the sink itself; nothing where none
    /// were counted. Of packets before its row had room for them, and of lcores that had none,
    /// there is nothing in it.
    pub quarters: Vec<Quarters>,
}

impl<K> FlowRow<K> {
    /// Adds what another one of the same flow and path has.
    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.own.merge(&other.own);
        self.hops.iter_mut().zip(&other.hops).for_each(|(mine, theirs)| mine.merge(theirs));
        if self.quarters.is_empty() {
            self.quarters.clone_from(&other.quarters);
        } else {
            let both = self.quarters.iter_mut().zip(&other.quarters);
            both.for_each(|(mine, theirs)| mine.merge(theirs));
        }
    }

    /// Takes from it what it has of the sink itself, latencies by size only where some are.
    fn take_own(&mut self) -> (Cell, Option<Quarters>) {
        let of_sink = self.quarters.last_mut().map(std::mem::take);
        (std::mem::take(&mut self.own), of_sink.filter(|of| of.count() > 0))
    }
}

/// Inflated latencies of a flow at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflation<K> {
    /// The flow.
    pub key: K,
    /// The switch.
    pub node: u32,
    /// How many there were.
    pub count: u32,
    /// The longest.
    pub max_ns: u32,
    /// When the last one came, in microseconds since the window began.
    pub last_us: u32,
}

impl<K> Inflation<K> {
    /// Adds what another lcore has of the same flow and switch.
    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.last_us = self.last_us.max(other.last_us);
    }
}

/// All but the towers, which are added up already. Every list is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged<K> {
    /// Sums over all packets.
    pub totals: Totals,
    /// The paths.
    pub paths: Vec<PathCount>,
    /// The switches.
    pub nodes: Vec<NodeSums>,
    /// The rows, by flow and path.
    pub rows: Vec<FlowRow<K>>,
    /// Large flows, and some that may be.
    pub keys: Vec<K>,
    /// Inflated latencies: of flows that [have them counted](FlowRow::has_inflation), and by
    /// estimates of others.
    pub inflated: Vec<Inflation<K>>,
}

impl<K: Key> Merged<K> {
    /// What was recorded. Takes memory for all of it.
    pub fn of(sink: &Sink<K>) -> Self {
        let shares: Vec<&Share<K>> = sink.shares().collect();
        let mut totals = Totals::default();
        let mut paths: BTreeMap<Path, u64> = BTreeMap::new();
        let mut nodes: BTreeMap<u32, NodeSums> = BTreeMap::new();
        let mut keys: Vec<K> = Vec::new();
        for share in &shares {
            totals.add(&share.totals());
            share.paths.iter().for_each(|(path, of)| {
                *paths.entry(*path).or_default() += of.packets;
            });
            share.nodes.all(&share.paths).iter().for_each(|(node, of, bins)| {
                nodes.entry(*node).or_insert_with(|| NodeSums::none(*node)).merge(of, bins);
            });
            keys.extend(share.keys.iter());
        }
        keys.sort_unstable();
        keys.dedup();
        let paths: Vec<PathCount> =
            paths.into_iter().map(|(path, packets)| PathCount { path, packets }).collect();
        let rows = rows(&shares, &paths);
        let mut inflated: Vec<Inflation<K>> = Vec::new();
        for share in &shares {
            let all = share.inflated.iter().zip(&share.of_inflated);
            inflated.extend(all.map(|(&(key, node), of)| {
                let Inflated { count, max_ns, last_us } = *of;
                Inflation { key, node, count, max_ns, last_us }
            }));
        }
        inflated.sort_unstable_by_key(|of| (of.key, of.node));
        // Lcores may have had packets of one flow.
        inflated.dedup_by(|more, of| {
            let is_same = (more.key, more.node) == (of.key, of.node);
            if is_same {
                of.merge(more);
            }
            is_same
        });
        let nodes = nodes.into_values().collect();
        Self { totals, nodes, paths, rows, keys, inflated }
    }
}

/// The rows of all lcores, those of one flow and path added up.
fn rows<K: Key>(shares: &[&Share<K>], paths: &[PathCount]) -> Vec<FlowRow<K>> {
    let mut all: Vec<(FlowRow<K>, u64, usize)> = Vec::new();
    for (lcore, share) in shares.iter().enumerate() {
        let Some(table) = &share.rows else { continue };
        for (at, head) in table.iter() {
            let path = share.paths.get(head.path);
            let number =
                path.map_or(0, |path| paths.partition_point(|other| other.path < *path) as u32 + 1);
            let hops = path.map_or(0, |path| path.nodes().len());
            let hops = table.cells().of(at).take(hops).collect();
            let (key, packets, is_exact) = (head.key, head.packets.into(), head.is_whole);
            let row = FlowRow {
                key,
                path: number,
                packets,
                is_exact,
                has_inflation: is_exact,
                hops,
                own: table.own(at),
                quarters: in_places(table.quarters(at), path),
            };
            all.push((row, head.word, lcore));
        }
    }
    all.sort_unstable_by_key(|(row, _, lcore)| (row.key, row.path, *lcore));
    let mut rows: Vec<FlowRow<K>> = Vec::with_capacity(all.len());
    for of_flow in all.chunk_by_mut(|one, other| one.0.key == other.0.key) {
        let word = of_flow[0].1;
        let has_rows = |lcore| of_flow.iter().any(|of| of.2 == lcore);
        let elsewhere = |(lcore, share): (usize, &&Share<K>)| {
            let refused = share.rows.as_ref().is_none_or(|rows| rows.may_have_refused(word));
            refused && !has_rows(lcore)
        };
        let others = shares.iter().enumerate().any(elsewhere);
        let is_exact = !others && of_flow.iter().all(|of| of.0.is_exact);
        let has_inflation = is_exact && of_flow.iter().all(|of| of.2 == of_flow[0].2);
        let from = rows.len();
        for (row, _, _) in of_flow {
            (row.is_exact, row.has_inflation) = (is_exact, has_inflation);
            match rows[from..].last_mut() {
                Some(last) if last.path == row.path => last.merge(row),
                _ => rows.push(row.clone()),
            }
        }
        // All that the flow met at the sink itself stands in its first row.
        let (mut own, mut by_size) = (Cell::default(), None::<Quarters>);
        for row in &mut rows[from..] {
            let (cell, quarters) = row.take_own();
            own.merge(&cell);
            match (&mut by_size, quarters) {
                (Some(all), Some(more)) => all.merge(&more),
                (none, more) => *none = none.take().or(more),
            }
        }
        if let Some(first) = rows.get_mut(from) {
            first.own = own;
            if let Some(by_size) = by_size {
                first.quarters.resize(first.hops.len() + 1, Quarters::EMPTY);
                first.quarters[first.hops.len()] = by_size;
            }
        }
        for row in &mut rows[from..] {
            if row.quarters.iter().all(|of| *of == Quarters::EMPTY) {
                row.quarters.clear();
            }
        }
    }
    rows
}

/// A row's latencies by size at the switches of its path, and at the sink itself.
fn in_places(quarters: &[Quarters], path: Option<&Path>) -> Vec<Quarters> {
    let Some((own, hops)) = quarters.split_last() else { return Vec::new() };
    let hops = hops.iter().take(path.map_or(0, |path| path.nodes().len()));
    hops.chain([own]).cloned().collect()
}

impl<K: Key> Share<K> {
    /// Its totals, with what its tables have refused.
    fn totals(&self) -> Totals {
        Totals {
            paths_full: self.paths.refused(),
            rows_refused: self.rows.as_ref().map_or(0, |rows| rows.refused()),
            rows_evicted: self.rows.as_ref().map_or(0, |rows| rows.evicted()),
            nodes_full: self.nodes.refused(),
            keys_full: self.keys.refused(),
            inflated_full: self.inflated.refused(),
            ..self.totals
        }
    }
}
