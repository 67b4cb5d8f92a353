//! The heavy part of Elastic's hardware version: four stages of buckets in which flows vote to
//! stay.

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};
use crate::{Memory, WORD};

/// Stages.
pub(crate) const STAGES: usize = 4;

/// Buckets of a stage, where memory allows.
const BUCKETS: usize = 3072;

/// A flow gives way when all votes in its bucket are this many times its own.
const LAMBDA: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    key: FlowKey,
    /// Packets of the flow; 0 in an empty bucket.
    own: u32,
    /// Packets of all flows since the bucket's flow came.
    all: u32,
    /// Whether packets of the flow may have gone past all stages. One bit of a counter on a
    /// switch.
    beyond: bool,
}

/// What the heavy part knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heavy {
    pub(crate) key: FlowKey,
    /// Its packets here.
    pub(crate) packets: u32,
    /// Whether the light part may have more of it.
    pub(crate) beyond: bool,
}

/// Stages of buckets.
#[derive(Clone, Debug)]
pub(crate) struct HeavyPart {
    hash: Hash,
    width: usize,
    /// Bytes of a bucket on a switch.
    entry: usize,
    buckets: Vec<Bucket>,
}

impl HeavyPart {
    /// A heavy part for a sketch of `memory` in all: it fills at most 73 % of them, which is what
    /// the recommended buckets are of 200 KB with keys of four bytes.
    pub(crate) fn new(Memory { bytes, key }: Memory, seed: u64) -> Self {
        let entry = key + 2 * WORD;
        let fitting = bytes * 73 / 100 / STAGES / entry;
        let width = BUCKETS.min(fitting).max(1);
        let buckets = vec![Bucket::default(); width * STAGES];
        Self { hash: Hash::new(!seed), width, entry, buckets }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buckets.len() * self.entry
    }

    /// Counts a packet, and gives the flow and the packets that found no place here.
    #[inline]
    pub(crate) fn insert(&mut self, key: &FlowKey) -> Option<(FlowKey, u32)> {
        let mut carried = Bucket { key: *key, own: 1, all: 1, beyond: false };
        let mut hashed = self.hash.of(key);
        for stage in 0..STAGES {
            let at = self.place(hashed, stage);
            let bucket = &mut self.buckets[at];
            if bucket.own == 0 {
                // A bucket never empties: no packet of the flow can have come past it before.
                *bucket = carried;
                return None;
            }
            bucket.all = bucket.all.saturating_add(carried.own);
            if bucket.key == carried.key {
                bucket.own = bucket.own.saturating_add(carried.own);
                bucket.beyond |= carried.beyond;
                return None;
            }
            if u64::from(bucket.all) >= LAMBDA * u64::from(bucket.own) {
                let newcomer = Bucket { all: carried.own, beyond: true, ..carried };
                carried = std::mem::replace(bucket, newcomer);
                carried.all = carried.own;
                hashed = self.hash.of(&carried.key);
            }
        }
        Some((carried.key, carried.own))
    }

    /// What all stages have of a flow; without packets where they have nothing.
    #[inline]
    pub(crate) fn query(&self, key: &FlowKey) -> Heavy {
        let hashed = self.hash.of(key);
        let mut found = Heavy { key: *key, packets: 0, beyond: false };
        for stage in 0..STAGES {
            let bucket = &self.buckets[self.place(hashed, stage)];
            if bucket.key == *key {
                found.packets += bucket.own;
                found.beyond |= bucket.beyond;
            }
        }
        found.beyond |= found.packets == 0;
        found
    }

    /// The flows that have a bucket, each once.
    pub(crate) fn flows(&self) -> Vec<Heavy> {
        let filled = self.buckets.iter().filter(|bucket| bucket.own > 0);
        let mut keys: Vec<FlowKey> = filled.map(|bucket| bucket.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.iter().map(|key| self.query(key)).collect()
    }

    #[inline]
    fn place(&self, hashed: Hashed, stage: usize) -> usize {
        stage * self.width + hashed.index(stage as u64, self.width)
    }
}
