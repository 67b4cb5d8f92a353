//! Latency and packets of a flow at a switch in a count-min sketch: what the SketchINT paper
//! measures its towers beside (section VI-D).

use crate::hash::Hash;
use crate::{Memory, WORD};

/// Rows, as for the paper's CM.
const ROWS: usize = 3;

/// Three rows of buckets with a sum of latencies and a number of packets, of 32 bits each.
#[derive(Clone, Debug)]
pub struct LatencyCountMin {
    hash: Hash,
    width: usize,
    buckets: Vec<[u32; 2]>,
}

impl LatencyCountMin {
    /// An empty sketch that fills at most `memory`; it keeps no keys.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let width = (memory.into().bytes / (2 * WORD) / ROWS).max(1);
        Self { hash: Hash::new(seed), width, buckets: vec![[0; 2]; width * ROWS] }
    }

    fn places(&self, flow: u64, node: u32) -> [usize; ROWS] {
        let hashed = self.hash.of_words(u128::from(node) << 64 | u128::from(flow));
        std::array::from_fn(|row| row * self.width + hashed.index(row as u64, self.width))
    }

    /// Adds a packet of a flow, by a word of it, and its latency at a switch in the user's units.
    pub fn insert(&mut self, flow: u64, node: u32, latency: u32) {
        for at in self.places(flow, node) {
            let [sum, packets] = &mut self.buckets[at];
            *sum = sum.saturating_add(latency);
            *packets = packets.saturating_add(1);
        }
    }

    /// Packets of a flow at a switch and the sum of their latencies, neither below the truth.
    pub fn query(&self, flow: u64, node: u32) -> [u32; 2] {
        let buckets = self.places(flow, node).map(|at| self.buckets[at]);
        let [sum, packets] = [0, 1].map(|of| buckets.iter().map(|bucket| bucket[of]).min());
        [packets.unwrap_or(0), sum.unwrap_or(0)]
    }

    /// Bytes that it fills.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * 2 * WORD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_right_with_room_and_never_below_the_truth_without() {
        for (bytes, has_room) in [(1 << 20, true), (2_000, false)] {
            let mut sketch = LatencyCountMin::new(bytes, 7);
            assert!(sketch.bytes() <= bytes);
            let mut truth: HashMap<(u64, u32), [u32; 2]> = HashMap::new();
            for at in 0..3_000_u32 {
                let (flow, node, latency) = (u64::from(at % 97), at % 5, at % 13);
                sketch.insert(flow, node, latency);
                let of = truth.entry((flow, node)).or_default();
                *of = [of[0] + 1, of[1] + latency];
            }
            let right = |(&(flow, node), of): (&(u64, u32), &[u32; 2])| {
                let answer = sketch.query(flow, node);
                assert!(answer[0] >= of[0] && answer[1] >= of[1]);
                answer == *of
            };
            assert_eq!(truth.iter().all(right), has_room);
        }
    }
}
