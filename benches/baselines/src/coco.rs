//! CocoSketch (Zhang and others, SIGCOMM 2021), hardware version with one hash function: a bucket
//! counts all its packets and changes its key with the chance of one in that many. A flow that was
//! not kept has at most as many packets as its bucket: without that bound, a flow of which both
//! epochs had many packets, but only one kept the key, would pass for a change.

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::{Insert, Memory, Query, Tracked, WORD};

/// One array of keys and counts.
#[derive(Clone, Debug)]
pub struct CocoSketch {
    hash: Hash,
    /// Bytes of a bucket on a switch.
    entry: usize,
    buckets: Vec<(FlowKey, u32)>,
    /// State of a generator of random numbers (xorshift64).
    random: u64,
}

impl CocoSketch {
    /// An empty sketch that fills at most `memory`.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let entry = key + WORD;
        let buckets = vec![(FlowKey::default(), 0); (bytes / entry).max(1)];
        Self { hash: Hash::new(seed), entry, buckets, random: seed | 1 }
    }

    #[inline]
    fn draw(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }
}

impl Insert for CocoSketch {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let drawn = self.draw();
        let at = self.hash.of(key).index(0, self.buckets.len());
        let bucket = &mut self.buckets[at];
        bucket.1 = bucket.1.saturating_add(1);
        // drawn / 2^32 < 1 / count
        if u64::from(drawn) * u64::from(bucket.1) < 1 << 32 {
            bucket.0 = *key;
        }
    }

    fn bytes(&self) -> usize {
        self.buckets.len() * self.entry
    }
}

impl Query for CocoSketch {
    /// All packets of the flow's bucket: never below the truth. The unbiased estimate is that of
    /// [`Tracked`], under which a flow not kept has no packets.
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        self.buckets[self.hash.of(key).index(0, self.buckets.len())].1
    }
}

impl Tracked for CocoSketch {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.buckets.iter().copied().filter(|bucket| bucket.1 > 0).collect()
    }
}
