//! What one lcore of a sink keeps of a window.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bounded::Bounded;
use super::claims::Claims;
use super::nodes::Nodes;
use super::pairs::{PairLevel, Pairs};
use super::paths::{MOST_HOPS, MOST_PATHS, Paths};
use super::rows::Rows;
use crate::key::Key;
use crate::tower::{Level, LevelError, Rule, TowerSketch};

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
    /// Sets of eight rows; 0 where there are pair towers alone.
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
    /// Rows whose latencies are counted by size at each hop, at most [`Self::MOST_QUANTILES`].
    pub quantiles: u16,
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
            quantiles: 0,
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
    /// The most [`quantiles`](Self::quantiles).
    pub const MOST_QUANTILES: u16 = 4096;

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
        within("hops", self.hops.into(), 1, MOST_HOPS as u32)?;
        within("paths", self.paths.into(), 1, MOST_PATHS as u32)?;
        within("nodes", self.nodes.into(), 1, 4096)?;
        within("keys", self.keys.into(), 1, u16::MAX.into())?;
        within("inflated", self.inflated.into(), 1, u16::MAX.into())?;
        within("quantiles", self.quantiles.into(), 0, Self::MOST_QUANTILES.into())?;
        if self.quantiles > 0 && self.row_sets == 0 {
            let why = format!("{}: there are no rows that they could be of", self.quantiles);
            return Err(ShapeError { field: "quantiles", why });
        }
        Ok(())
    }

    /// Links that are distinguished, where stacks say how long packets were on them.
    pub fn links(&self) -> u16 {
        self.nodes.saturating_mul(4)
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
    pub(super) nodes: Nodes,
    pub(super) rows: Option<Rows<K>>,
    pub(super) keys: Bounded<K>,
    pub(super) inflated: Bounded<(K, u32)>,
    pub(super) of_inflated: Box<[Inflated]>,
}

/// All that one lcore of a sink keeps of a window; once others' are merged into it, what all do.
#[derive(Clone, Debug)]
pub struct Sink<K> {
    pub(super) shape: Shape,
    /// The sink's own number, where it is a switch.
    pub(super) own: Option<u32>,
    /// Packets above which a flow's key is kept.
    pub(super) key_packets: u32,
    /// Hundredths of the mean above which a latency is inflated.
    pub(super) inflation_percent: u32,
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
        let share = Share {
            totals: Totals::default(),
            paths: Paths::new(shape.paths.into()),
            nodes: Nodes::new(shape.nodes.into()),
            rows: (sets > 0)
                .then(|| Rows::new(sets, hops, own.is_some()).with_quantiles(shape.quantiles)),
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

    /// The same, where flows with claims take rows of those that had fewer than `packets` packets.
    #[must_use]
    pub fn with_claims(mut self, claims: &Arc<Claims>, packets: u32) -> Self {
        let Self { share, .. } = &mut self;
        share.rows = share.rows.take().map(|rows| rows.with_claims(claims.clone(), packets));
        self
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
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

    /// Flows of which rows have more than so many packets, each with its word and these. Takes
    /// memory.
    pub fn large_in_rows(&self, packets: u64) -> Vec<(u64, u64)> {
        let rows = self.shares().filter_map(|share| share.rows.as_ref()).flat_map(Rows::iter);
        let mut all: Vec<(u64, u64)> = rows.map(|(_, of)| (of.word, of.packets.into())).collect();
        all.sort_unstable();
        all.dedup_by(|more, of| {
            let is_same = more.0 == of.0;
            of.1 += if is_same { more.1 } else { 0 };
            is_same
        });
        all.retain(|of| of.1 > packets);
        all
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
        let Share { paths, nodes, rows, keys, inflated, of_inflated, .. } = &self.share;
        let tables = paths.bytes() + nodes.bytes() + keys.bytes() + inflated.bytes();
        let values = size_of_val(&**of_inflated);
        let towers = self.sizes.bytes() + self.pairs.memory();
        tables + values + towers + rows.as_ref().map_or(0, Rows::bytes)
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.sizes.clear();
        self.pairs.clear();
        let Share { totals, paths, nodes, rows, keys, inflated, of_inflated } = &mut self.share;
        *totals = Totals::default();
        paths.clear();
        nodes.clear();
        rows.iter_mut().for_each(Rows::clear);
        keys.clear();
        inflated.clear();
        of_inflated.fill(Inflated::default());
        self.others.clear();
    }
}
