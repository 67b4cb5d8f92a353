//! What one lcore of a sink keeps of a window.

use serde::{Deserialize, Serialize};

use super::bounded::Bounded;
use super::flow_word;
use super::histogram::{BINS, Histogram};
use super::pairs::{PairLevel, Pairs};
use super::paths::{MOST_HOPS, MOST_PATHS, Path, Paths};
use super::rows::{Cell, Head, Rows};
use crate::hash::{Hashes, mixed};
use crate::key::Key;
use crate::tower::{Level, LevelError, Rule, TowerSketch};

/// A latency, or a length of a queue, that a switch can't tell.
const UNKNOWN: u32 = u32::MAX;

/// Packets that a flow must have had at a switch before one is called inflated.
const SEEN: u64 = 8;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// 32-bit words of each of the five arrays of counters of 2, 4, 8, 16 and 32 bits.
    pub tower_words: u32,
    /// Which of a flow's counters a packet raises.
    pub rule: Rule,
    /// Buckets of the narrowest array of the pair towers; the next has half as many, the widest a
    /// quarter.
    pub pair_buckets: u32,
    /// The unit of latencies in pair towers, in nanoseconds.
    pub unit_ns: u32,
    /// Sets of eight rows, a power of two; 0 where there are pair towers alone.
    pub row_sets: u32,
    /// Hops that a row has room for.
    pub hops: u8,
    /// Paths that are distinguished.
    pub paths: u16,
    /// Switches that are distinguished.
    pub nodes: u16,
    /// Large flows whose keys are kept.
    pub keys: u16,
    /// Flows at switches whose inflated latencies are counted.
    pub inflated: u16,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            tower_words: 8192,
            rule: Rule::Cm,
            pair_buckets: 16_384,
            unit_ns: 64,
            row_sets: 1024,
            hops: 6,
            paths: 1024,
            nodes: 64,
            keys: 1024,
            inflated: 1024,
        }
    }
}

/// What can't be built: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct ShapeError {
    /// The field.
    pub field: &'static str,
    /// What it is and must be.
    pub why: String,
}

impl Shape {
    /// Checks that sketches of this shape can be built.
    ///
    /// # Errors
    /// The first field that is out of its range, and the range.
    pub fn check(&self) -> Result<(), ShapeError> {
        let within = |field, value: u32, from: u32, to: u32| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(ShapeError { field, why: format!("{value}: must be {from} to {to}") })
        };
        within("tower_words", self.tower_words, 16, 1 << 22)?;
        within("pair_buckets", self.pair_buckets, 16, 1 << 22)?;
        within("unit_ns", self.unit_ns, 1, 1 << 20)?;
        within("row_sets", self.row_sets, 0, 1 << 18)?;
        if self.row_sets != 0 && !self.row_sets.is_power_of_two() {
            let why = format!("{}: must be 0 or a power of two", self.row_sets);
            return Err(ShapeError { field: "row_sets", why });
        }
        within("hops", self.hops.into(), 1, MOST_HOPS as u32)?;
        within("paths", self.paths.into(), 1, MOST_PATHS as u32)?;
        within("nodes", self.nodes.into(), 1, 4096)?;
        within("keys", self.keys.into(), 1, u16::MAX.into())?;
        within("inflated", self.inflated.into(), 1, u16::MAX.into())
    }

    /// The arrays of the tower of sizes.
    pub fn tower(&self) -> [Level; 5] {
        [2, 4, 8, 16, 32].map(|bits| Level::new(bits, self.tower_words * (32 / bits)))
    }

    /// The arrays of the pair towers.
    pub fn pairs(&self) -> [PairLevel; Pairs::LEVELS] {
        [(24, 8, 1), (28, 16, 2), (32, 32, 4)].map(|(latency_bits, packet_bits, part)| PairLevel {
            latency_bits,
            packet_bits,
            buckets: self.pair_buckets / part,
        })
    }

    /// An empty tower of sizes.
    ///
    /// # Errors
    /// Where the arrays make none, which those of a checked shape do.
    pub fn empty_tower(&self) -> Result<TowerSketch, LevelError> {
        Ok(TowerSketch::new(&self.tower())?.with_insertion(self.rule.insertion()))
    }
}

/// Sums over the packets of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All packets for hosts.
    pub packets: u64,
    /// Those that came with INT.
    pub int_packets: u64,
    /// Those of them whose stack may lack switches.
    pub partial: u64,
    /// Those of them whose path was not distinguished: there were too many paths.
    pub paths_full: u64,
    /// Packets that found no row.
    pub rows_refused: u64,
    /// Rows that had to leave.
    pub rows_evicted: u64,
    /// Hops at switches that were not distinguished: there were too many.
    pub nodes_full: u64,
    /// Packets of large flows whose key found no room.
    pub keys_full: u64,
    /// Inflated latencies that were not counted: there was no room.
    pub inflated_full: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.int_packets += other.int_packets;
        self.partial += other.partial;
        self.paths_full += other.paths_full;
        self.rows_refused += other.rows_refused;
        self.rows_evicted += other.rows_evicted;
        self.nodes_full += other.nodes_full;
        self.keys_full += other.keys_full;
        self.inflated_full += other.inflated_full;
    }
}

/// What a packet met on its way.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// The switches that it came by.
    pub path: &'a Path,
    /// Its latency at each, in nanoseconds; `u32::MAX` where the switch can't tell.
    pub latencies: &'a [u32],
    /// How many waited in each one's queue, in the switch's own unit; likewise.
    pub queued: &'a [u32],
}

/// What is known of a switch over all packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) packets: u64,
    pub(super) sum_ns: u64,
    pub(super) min_ns: u32,
    pub(super) max_ns: u32,
    pub(super) latencies: Histogram,
    pub(super) queued: u64,
    pub(super) queue_sum: u64,
    pub(super) queue_max: u32,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            packets: 0,
            sum_ns: 0,
            min_ns: u32::MAX,
            max_ns: 0,
            latencies: Histogram::default(),
            queued: 0,
            queue_sum: 0,
            queue_max: 0,
        }
    }

    #[inline(always)]
    fn add(&mut self, latency: u32, queued: u32) {
        self.packets += 1;
        if latency != UNKNOWN {
            self.sum_ns += u64::from(latency);
            self.min_ns = self.min_ns.min(latency);
            self.max_ns = self.max_ns.max(latency);
            self.latencies.add(latency);
        }
        if queued != UNKNOWN {
            self.queued += 1;
            self.queue_sum += u64::from(queued);
            self.queue_max = self.queue_max.max(queued);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.latencies.merge(&other.latencies);
        self.queued += other.queued;
        self.queue_sum += other.queue_sum;
        self.queue_max = self.queue_max.max(other.queue_max);
    }

    fn clear(&mut self) {
        self.latencies.clear();
        (self.packets, self.sum_ns, self.min_ns, self.max_ns) = (0, 0, u32::MAX, 0);
        (self.queued, self.queue_sum, self.queue_max) = (0, 0, 0);
    }
}

/// Inflated latencies of a flow at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inflated {
    pub(super) count: u32,
    pub(super) max_ns: u32,
    pub(super) last_us: u32,
}

/// The part of it that is not simply added up between lcores.
#[derive(Clone, Debug)]
pub(super) struct Share<K> {
    pub(super) totals: Totals,
    pub(super) paths: Paths,
    pub(super) nodes: Bounded<u32>,
    pub(super) of_nodes: Box<[Node]>,
    pub(super) rows: Option<Rows<K>>,
    pub(super) keys: Bounded<K>,
    pub(super) inflated: Bounded<(K, u32)>,
    pub(super) of_inflated: Box<[Inflated]>,
}

/// All that one lcore of a sink keeps of a window; once others' are merged into it, what all do.
#[derive(Clone, Debug)]
pub struct Sink<K> {
    shape: Shape,
    /// The sink's own number, where it is a switch.
    own: Option<u32>,
    /// Packets above which a flow's key is kept.
    key_packets: u32,
    /// Hundredths of the mean above which a latency is inflated.
    inflation_percent: u32,
    pub(super) sizes: TowerSketch,
    pub(super) pairs: Pairs,
    pub(super) share: Share<K>,
    pub(super) others: Vec<Share<K>>,
}

impl<K: Key> Sink<K> {
    /// An empty one of this shape. Keys of flows of more than `key_packets` packets are kept. A
    /// latency is inflated above so many hundredths of the mean before it. It takes its memory now.
    ///
    /// # Errors
    /// What can't be built.
    pub fn new(
        shape: Shape,
        own: Option<u32>,
        key_packets: u32,
        inflation_percent: u32,
    ) -> Result<Self, ShapeError> {
        shape.check()?;
        let hops = usize::from(shape.hops).min(MOST_HOPS);
        let sets = shape.row_sets as usize;
        let nodes = usize::from(shape.nodes);
        let share = Share {
            totals: Totals::default(),
            paths: Paths::new(shape.paths.into()),
            nodes: Bounded::new(nodes),
            of_nodes: vec![Node::new(); nodes].into_boxed_slice(),
            rows: (sets > 0).then(|| Rows::new(sets, hops)),
            keys: Bounded::new(shape.keys.into()),
            inflated: Bounded::new(shape.inflated.into()),
            of_inflated: vec![Inflated::default(); shape.inflated.into()].into_boxed_slice(),
        };
        let wrong = |why: LevelError| ShapeError { field: "tower_words", why: why.to_string() };
        Ok(Self {
            shape,
            own,
            key_packets,
            inflation_percent,
            sizes: shape.empty_tower().map_err(wrong)?,
            pairs: Pairs::new(shape.pairs()),
            share,
            others: Vec::new(),
        })
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Records a packet: a line of each array of the tower; where it came with INT a line of each
    /// hop's histogram, and its row, or three lines of pair towers a hop. `at_us` is since the
    /// window's beginning.
    #[inline]
    pub fn record(&mut self, hashes: &Hashes, key: &K, met: Option<Met<'_>>, at_us: u32) {
        let Self { shape, own, sizes, pairs, share, .. } = self;
        share.totals.packets += 1;
        let word = flow_word(hashes);
        if sizes.insert_weight(hashes, 1, shape.rule) > self.key_packets {
            share.keys.place(word, key);
        }
        let number = match &met {
            None => Some(0),
            Some(met) => {
                share.totals.int_packets += 1;
                share.totals.partial += u64::from(met.path.is_partial);
                share.note_nodes(met);
                share.paths.count(met.path)
            }
        };
        let hops = met.map_or(0, |met| met.path.nodes().len());
        let Share { rows, paths, .. } = share;
        let row = rows.as_mut().and_then(|rows| match number {
            Some(number) if hops <= usize::from(shape.hops) => {
                rows.count(word, key, number, |head, cells| {
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
        let Some(met) = met else { return };
        match row {
            Some(row) => {
                let limits = (*own, self.inflation_percent);
                for (&node, &latency) in met.path.nodes().iter().zip(met.latencies) {
                    share.note_inflation(key, (word, row), (node, latency), limits, at_us);
                }
                let Some(rows) = share.rows.as_mut() else { return };
                for (cell, &latency) in rows.cells_mut(row).iter_mut().zip(met.latencies) {
                    if latency != UNKNOWN {
                        cell.add(latency);
                    }
                }
            }
            None => {
                for (&node, &latency) in met.path.nodes().iter().zip(met.latencies) {
                    pairs.insert(word, node, units(known(latency), shape.unit_ns), 1);
                }
            }
        }
    }

    /// Records a packet's latency at the sink itself, which must have been recorded before; of a
    /// sink that is no switch nothing.
    #[inline]
    pub fn record_own(&mut self, hashes: &Hashes, key: &K, latency: u32, at_us: u32) {
        let Self { shape, own, pairs, share, .. } = self;
        let Some(node) = *own else { return };
        let word = flow_word(hashes);
        share.note_node(node, latency, UNKNOWN);
        let row = share.rows.as_ref().and_then(|rows| rows.of_flow(word, *key).next());
        if let Some(row) = row {
            // The row has the packet, whatever is known of its latency.
            if latency == UNKNOWN {
                return;
            }
            let limits = (Some(node), self.inflation_percent);
            share.note_inflation(key, (word, row), (node, latency), limits, at_us);
            let cells = share.rows.as_mut().map(|rows| rows.cells_mut(row));
            if let Some(cell) = cells.and_then(|cells| cells.last_mut()) {
                cell.add(latency);
            }
            return;
        }
        if let Some(rows) = &mut share.rows {
            rows.refuse(word, key);
        }
        pairs.insert(word, node, units(known(latency), shape.unit_ns), 1);
    }

    /// Adds what another lcore recorded in the same window. Takes memory, until it is cleared.
    pub fn merge(&mut self, other: &Self) {
        self.sizes.merge(&other.sizes);
        self.pairs.merge(&other.pairs);
        self.others.push(other.share.clone());
        self.others.extend_from_slice(&other.others);
    }

    /// The sink's own number, where it is a switch.
    pub fn own(&self) -> Option<u32> {
        self.own
    }

    /// Packets recorded, of all lcores.
    pub fn packets(&self) -> u64 {
        self.shares().map(|share| share.totals.packets).sum()
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = &Share<K>> {
        std::iter::once(&self.share).chain(&self.others)
    }

    /// How many packets each flow had at most.
    pub fn sizes(&self) -> &TowerSketch {
        &self.sizes
    }

    /// What each flow met at each switch without a row, at most.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Bytes of memory that one lcore takes.
    pub fn bytes(&self) -> usize {
        let Share { paths, nodes, of_nodes, rows, keys, inflated, of_inflated, .. } = &self.share;
        let tables = paths.bytes() + nodes.bytes() + keys.bytes() + inflated.bytes();
        let of_node = size_of::<Node>() + 4 * BINS;
        let values = of_nodes.len() * of_node + size_of_val(&**of_inflated);
        let towers = self.sizes.bytes() + self.pairs.memory();
        tables + values + towers + rows.as_ref().map_or(0, Rows::bytes)
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.sizes.clear();
        self.pairs.clear();
        let Share { totals, paths, nodes, of_nodes, rows, keys, inflated, of_inflated } =
            &mut self.share;
        *totals = Totals::default();
        paths.clear();
        nodes.clear();
        of_nodes.iter_mut().for_each(Node::clear);
        rows.iter_mut().for_each(Rows::clear);
        keys.clear();
        inflated.clear();
        of_inflated.fill(Inflated::default());
        self.others.clear();
    }
}

impl<K: Key> Share<K> {
    #[inline]
    fn note_nodes(&mut self, met: &Met<'_>) {
        let hops = met.path.nodes().iter().zip(met.latencies).zip(met.queued);
        hops.for_each(|((&node, &latency), &queued)| self.note_node(node, latency, queued));
    }

    #[inline]
    fn note_node(&mut self, node: u32, latency: u32, queued: u32) {
        let at = self.nodes.place(mixed(node.into()), &node);
        if let Some(of) = at.and_then(|at| self.of_nodes.get_mut(at)) {
            of.add(latency, queued);
        }
    }

    /// Counts a latency at a switch if it is inflated: above so many hundredths of the mean of the
    /// flow's packets before it, of which there are enough. Of flows that are not whole, nobody
    /// knows.
    #[inline]
    fn note_inflation(
        &mut self,
        key: &K,
        (word, row): (u64, usize),
        (node, latency): (u32, u32),
        (own, percent): (Option<u32>, u32),
        at_us: u32,
    ) {
        let Self { rows: Some(rows), paths, inflated, of_inflated, .. } = self else { return };
        if latency == UNKNOWN || !rows.head(row).is_whole {
            return;
        }
        let (mut sum, mut seen) = (0_u64, 0_u64);
        for row in rows.of_flow(word, *key) {
            let cells = rows.cells(row);
            let nodes = paths.get(rows.head(row).path).map_or(&[][..], Path::nodes);
            let at_own = cells.last().filter(|_| own == Some(node));
            let there = nodes.iter().zip(cells).filter(|(other, _)| **other == node);
            for cell in there.map(|(_, cell)| cell).chain(at_own) {
                sum += cell.sum_ns;
                seen += u64::from(cell.known);
            }
        }
        // latency > percent / 100 * sum / seen.
        let beyond = u128::from(latency) * u128::from(seen) * 100;
        if seen < SEEN || beyond <= u128::from(percent) * u128::from(sum) {
            return;
        }
        let at = inflated.place(word ^ mixed(node.into()), &(*key, node));
        if let Some(of) = at.and_then(|at| of_inflated.get_mut(at)) {
            of.count = of.count.saturating_add(1);
            of.max_ns = of.max_ns.max(latency);
            of.last_us = of.last_us.max(at_us);
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
    u32::try_from(ns.div_ceil(unit_ns.max(1).into())).unwrap_or(u32::MAX)
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
