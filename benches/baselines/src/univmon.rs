//! UnivMon (Liu and others, SIGCOMM 2016): 14 levels, each a Count sketch with its largest flows,
//! over substreams of half the flows of the level before. Statistics are sums over the flows kept,
//! put together from the last level to the first. A flow's size is what its last level has of it,
//! where the fewest others disturb it.

use std::collections::HashMap;

use calumma_sketch::FlowKey;

use crate::count_heap::CountSketch;
use crate::hash::{Hash, Hashed};
use crate::top::Top;
use crate::{Cardinality, Entropy, Insert, Memory, Query, Tracked, WORD};

/// Levels.
const LEVELS: usize = 14;

/// Rows of a level's Count sketch.
const ROWS: usize = 5;

/// Flows that a level keeps, where memory allows.
const HEAVY: usize = 1000;

/// The word of a hash whose bits say how deep a flow goes; the rows of the sketches use the first.
const DEPTH_WORD: u64 = 63;

#[derive(Clone, Debug)]
struct Level {
    sketch: CountSketch<ROWS>,
    top: Top,
}

/// Levels of Count sketches over ever sparser samples of the flows.
#[derive(Clone, Debug)]
pub struct UnivMon {
    hash: Hash,
    levels: Vec<Level>,
    packets: u64,
}

impl UnivMon {
    /// An empty sketch that fills at most `memory`. The flows kept take at most 56 % of it, which
    /// is what 1000 of them a level are of 200 KB with keys of four bytes.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let fitting = bytes * 14 / 25 / LEVELS / (key + WORD);
        let top = Top::new(HEAVY.min(fitting).max(1), key);
        let sketch = CountSketch::new((bytes / LEVELS).saturating_sub(top.bytes()));
        let level = Level { sketch, top };
        Self { hash: Hash::new(seed), levels: vec![level; LEVELS], packets: 0 }
    }

    /// The last level that a flow belongs to: one more with each leading one of a hash word.
    #[inline]
    fn depth(hashed: Hashed) -> usize {
        (hashed.word(DEPTH_WORD).leading_ones() as usize).min(LEVELS - 1)
    }

    /// The sum of `g` over all flows' sizes, estimated by the recursion of the paper's algorithm 2.
    fn sum(&self, g: impl Fn(f64) -> f64) -> f64 {
        let mut below = 0.0;
        for (depth, level) in self.levels.iter().enumerate().rev() {
            let last = depth == LEVELS - 1;
            let weigh = |(key, count): (FlowKey, u32)| {
                let deeper = !last && Self::depth(self.hash.of(&key)) > depth;
                let sign = if deeper { -1.0 } else { 1.0 };
                if count == 0 { 0.0 } else { sign * g(count.into()) }
            };
            let here: f64 = level.top.entries().into_iter().map(weigh).sum();
            below = if last { here } else { 2.0 * below + here };
        }
        below
    }
}

impl Insert for UnivMon {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let hashed = self.hash.of(key);
        self.packets += 1;
        for level in &mut self.levels[..=Self::depth(hashed)] {
            let size = level.sketch.insert(hashed);
            level.top.offer(key, hashed, size);
        }
    }

    fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.sketch.bytes() + level.top.bytes()).sum()
    }
}

impl Query for UnivMon {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        let hashed = self.hash.of(key);
        self.levels[Self::depth(hashed)].sketch.query(hashed)
    }
}

impl Tracked for UnivMon {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        // Each flow as its last level has it; a level above may keep it where that one does not.
        let mut flows: HashMap<FlowKey, u32> = HashMap::new();
        for level in &self.levels {
            flows.extend(level.top.entries());
        }
        flows.into_iter().collect()
    }
}

impl Cardinality for UnivMon {
    fn cardinality(&self) -> f64 {
        self.sum(|_| 1.0).max(0.0)
    }
}

impl Entropy for UnivMon {
    fn entropy(&self) -> f64 {
        let packets = self.packets.max(1) as f64;
        packets.log2() - self.sum(|size| size * size.log2()) / packets
    }
}
