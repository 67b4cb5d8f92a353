//! DUS-HH (Ben Basat and others, "Network-wide routing-oblivious heavy hitters", ANCS 2018): every
//! node keeps the packets of smallest hash that it sees. A packet has the same hash everywhere, so
//! whatever nodes it passed, the packets of smallest hash among all of theirs are an even sample of
//! the network's packets, each once.

use std::collections::{BinaryHeap, HashMap};

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::{Memory, Tracked};

/// Bytes of a packet's hash.
const HASH: usize = 8;

/// A bounded sample of packets.
#[derive(Clone, Debug)]
pub struct DusHh {
    hash: Hash,
    capacity: usize,
    /// Bytes of a packet in it.
    entry: usize,
    /// Hashes of packets and their flows, the largest hash on top.
    sample: BinaryHeap<(u64, FlowKey)>,
}

impl DusHh {
    /// An empty sample that fills at most `memory`. Those of one network have the same seed.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let entry = key + HASH;
        let capacity = (bytes / entry).max(2);
        let sample = BinaryHeap::with_capacity(capacity + 1);
        Self { hash: Hash::new(seed), capacity, entry, sample }
    }

    /// Shows it packet number `number` of a flow, or whatever tells the flow's packets apart.
    #[inline]
    pub fn insert(&mut self, key: &FlowKey, number: u64) {
        let hash = self.hash.of(key).word(number);
        self.offer(hash, key);
    }

    #[inline]
    fn offer(&mut self, hash: u64, key: &FlowKey) {
        let is_full = self.sample.len() == self.capacity;
        if is_full && self.sample.peek().is_some_and(|&(largest, _)| hash >= largest) {
            return;
        }
        self.sample.push((hash, *key));
        if is_full {
            self.sample.pop();
        }
    }

    /// Adds the sample of another node. Packets that passed both count once.
    pub fn merge(&mut self, other: &Self) {
        let here: std::collections::HashSet<u64> =
            self.sample.iter().map(|&(hash, _)| hash).collect();
        for (hash, key) in other.sample.iter().filter(|(hash, _)| !here.contains(hash)) {
            self.offer(*hash, key);
        }
    }

    /// Packets that each packet of the sample stands for: one where it holds all.
    pub fn each(&self) -> f64 {
        match self.sample.peek() {
            // With the k-th smallest of n even hashes at v, n is about (k - 1) / v.
            Some(&(largest, _)) if self.sample.len() == self.capacity => {
                let below = largest as f64 / 2_f64.powi(64);
                ((self.capacity - 1) as f64 / below / self.capacity as f64).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// Flows of which the sample has a packet.
    pub fn flows(&self) -> usize {
        let flows: std::collections::HashSet<&FlowKey> =
            self.sample.iter().map(|it| &it.1).collect();
        flows.len()
    }

    /// Memory that it fills, in bytes.
    pub fn bytes(&self) -> usize {
        self.capacity * self.entry
    }
}

impl Tracked for DusHh {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        let mut packets: HashMap<FlowKey, u32> = HashMap::new();
        self.sample.iter().for_each(|&(_, key)| *packets.entry(key).or_default() += 1);
        let each = self.each();
        packets.into_iter().map(|(key, n)| (key, (f64::from(n) * each).round() as u32)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> FlowKey {
        FlowKey::from_words(number, 1, 2, 6)
    }

    /// Room for so many packets.
    fn sample(packets: usize) -> DusHh {
        DusHh::new(packets * 21, 7)
    }

    #[test]
    fn the_packets_of_smallest_hash_are_kept_once_wherever_they_passed() {
        // Three packets with hashes by hand: all pass two nodes, of which each has room for two.
        let (mut one, mut other) = (sample(2), sample(2));
        for node in [&mut one, &mut other] {
            for (hash, it) in [(3 << 62, 1), (1 << 62, 2), (2 << 62, 3)] {
                node.offer(hash, &flow(it));
            }
        }
        one.merge(&other);
        let mut kept = one.sample.clone().into_sorted_vec();
        kept.sort_unstable();
        assert_eq!(kept, [(1 << 62, flow(2)), (2 << 62, flow(3))]);
        // The second smallest lies at a half: two packets, one for each of the sample.
        assert_eq!((one.each(), one.flows(), one.bytes()), (1.0, 2, 42));
    }

    #[test]
    fn flows_are_told_by_their_share_of_the_sample() {
        let mut all = sample(1_000);
        for packet in 0..100_000_u32 {
            // A fifth of the packets is of one flow; nodes see the packets in halves that overlap.
            let key = if packet % 5 == 0 { flow(0) } else { flow(packet) };
            all.insert(&key, packet.into());
        }
        let mut parts = [sample(1_000), sample(1_000)];
        for packet in 0..100_000_u32 {
            let key = if packet % 5 == 0 { flow(0) } else { flow(packet) };
            if packet < 60_000 {
                parts[0].insert(&key, packet.into());
            }
            if packet >= 40_000 {
                parts[1].insert(&key, packet.into());
            }
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        let (mut a, mut b) = (merged.sample.into_vec(), all.sample.clone().into_vec());
        a.sort_unstable();
        b.sort_unstable();
        assert_eq!(a, b, "a sample of all packets, as if one node had seen them");
        assert!((all.each() / 100.0 - 1.0).abs() < 0.15, "{}", all.each());
        let (_, heavy) = all.tracked().into_iter().max_by_key(|it| it.1).unwrap();
        assert!((15_000..25_000).contains(&heavy), "{heavy} for 20,000 packets");
    }
}
