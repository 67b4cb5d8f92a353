//! Sampled NetFlow (Cisco; analysed by Duffield, Lund and Thorup, "Estimating flow distributions
//! from sampled flow statistics", SIGCOMM 2003): one packet of N, drawn at random, is looked up in
//! a cache of flows, and counts N times.

use std::collections::HashMap;

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::{Insert, Memory, Query, Tracked, WORD};

/// Sampled packets by flow.
#[derive(Clone, Debug)]
pub struct SampledNetFlow {
    hash: Hash,
    /// Packets of which one is drawn.
    of: u32,
    /// Packets seen, by which the next is drawn.
    seen: u64,
    capacity: usize,
    /// Bytes of an entry.
    entry: usize,
    flows: HashMap<FlowKey, u32>,
}

impl SampledNetFlow {
    /// An empty cache that fills at most `memory` and is given one packet of `of`.
    pub fn new(memory: impl Into<Memory>, of: u32, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let entry = key + WORD;
        let capacity = (bytes / entry).max(1);
        let flows = HashMap::with_capacity(capacity);
        Self { hash: Hash::new(seed), of: of.max(1), seen: 0, capacity, entry, flows }
    }
}

impl Insert for SampledNetFlow {
    /// A cache that is full takes no other flow before it is exported.
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        self.seen += 1;
        if self.hash.of_words(self.seen.into()).index(0, self.of as usize) != 0 {
            return;
        }
        if let Some(packets) = self.flows.get_mut(key) {
            *packets += 1;
        } else if self.flows.len() < self.capacity {
            self.flows.insert(*key, 1);
        }
    }

    fn bytes(&self) -> usize {
        self.capacity * self.entry
    }
}

impl Query for SampledNetFlow {
    fn query(&self, key: &FlowKey) -> u32 {
        self.flows.get(key).map_or(0, |packets| packets.saturating_mul(self.of))
    }
}

impl Tracked for SampledNetFlow {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.flows.iter().map(|(&key, &n)| (key, n.saturating_mul(self.of))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> FlowKey {
        FlowKey::from_words(number, 1, 2, 6)
    }

    #[test]
    fn large_flows_are_told_by_their_samples_and_small_ones_mostly_missed() {
        let mut cache = SampledNetFlow::new(10_000 * 17, 100, 3);
        for round in 0..1_000 {
            // 100 flows of 1,000 packets each, and 50,000 of one packet.
            (0..100).for_each(|it| cache.insert(&flow(it)));
            (0..50).for_each(|it| cache.insert(&flow(1_000 + 50 * round + it)));
        }
        let sum: u32 = (0..100).map(|it| cache.query(&flow(it))).sum();
        assert!((sum as f64 / 100_000.0 - 1.0).abs() < 0.1, "{sum} of 100,000 packets");
        let small = cache.tracked().iter().filter(|it| it.0 >= flow(1_000)).count();
        assert!((400..600).contains(&small), "{small} of 50,000, one in a hundred");
        assert_eq!(cache.query(&flow(7_000_000)), 0);
    }

    #[test]
    fn where_every_packet_is_drawn_counts_are_exact_as_far_as_there_is_room() {
        let mut cache = SampledNetFlow::new(2 * 17, 1, 3);
        [1, 2, 1, 3, 1, 3].iter().for_each(|&it| cache.insert(&flow(it)));
        assert_eq!([1, 2, 3].map(|it| cache.query(&flow(it))), [3, 1, 0]);
        assert_eq!(cache.bytes(), 34);
    }
}
