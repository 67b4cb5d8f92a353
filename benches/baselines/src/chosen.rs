//! Exact counts of the flows of smallest rank, by a hash map and something that finds the largest
//! rank. Both count right only where a flow's rank never changes.

use std::collections::{BinaryHeap, HashMap};

use calumma_sketch::FlowKey;
use foldhash::fast::RandomState;

/// Counts the packets of flows of smallest rank.
pub trait Choose {
    /// Counts one packet of `key`, whose rank is this one. Flows of one rank are as good as each
    /// other.
    fn record(&mut self, key: &FlowKey, rank: u64);

    /// Flows that are counted, with their packets.
    fn chosen(&mut self) -> HashMap<FlowKey, u64>;

    /// Forgets all flows.
    fn clear(&mut self);
}

/// Packets and rank by flow.
type Flows = HashMap<FlowKey, (u64, u64), RandomState>;

fn flows(most: usize) -> Flows {
    HashMap::with_capacity_and_hasher(most, RandomState::default())
}

fn packets(flows: &Flows) -> HashMap<FlowKey, u64> {
    flows.iter().map(|(key, &(packets, _))| (*key, packets)).collect()
}

/// A map and a heap of all its ranks, as the program published with the paper on cooperative flow
/// selection has it.
#[derive(Clone, Debug)]
pub struct HeapMap {
    flows: Flows,
    ranks: BinaryHeap<(u64, FlowKey)>,
    entries: usize,
}

impl HeapMap {
    /// A table for so many flows.
    pub fn new(entries: usize) -> Self {
        Self { flows: flows(entries + 1), ranks: BinaryHeap::with_capacity(entries + 1), entries }
    }
}

impl Choose for HeapMap {
    fn record(&mut self, key: &FlowKey, rank: u64) {
        if let Some((packets, _)) = self.flows.get_mut(key) {
            *packets += 1;
            return;
        }
        let full = self.ranks.len() >= self.entries;
        if full && self.ranks.peek().is_some_and(|&(worst, _)| rank >= worst) {
            return;
        }
        self.flows.insert(*key, (1, rank));
        self.ranks.push((rank, *key));
        if full && let Some((_, gone)) = self.ranks.pop() {
            self.flows.remove(&gone);
        }
    }

    fn chosen(&mut self) -> HashMap<FlowKey, u64> {
        packets(&self.flows)
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.ranks.clear();
    }
}

/// A map with a quarter more flows than wanted, of which a quickselect finds and removes the worst
/// whenever it is full: q-MAX (Ben Basat and others, IMC 2019) without spreading the selection over
/// packets.
#[derive(Clone, Debug)]
pub struct QMaxMap {
    flows: Flows,
    ranks: Vec<(u64, FlowKey)>,
    entries: usize,
    limit: u64,
}

impl QMaxMap {
    /// A table for so many flows.
    pub fn new(entries: usize) -> Self {
        let most = entries + entries.div_ceil(4);
        Self { flows: flows(most), ranks: Vec::with_capacity(most), entries, limit: u64::MAX }
    }

    fn select(&mut self) {
        if self.ranks.len() <= self.entries {
            return;
        }
        let (_, &mut (limit, _), worse) = self.ranks.select_nth_unstable(self.entries);
        self.limit = limit;
        for (_, gone) in worse {
            self.flows.remove(gone);
        }
        self.flows.remove(&self.ranks[self.entries].1);
        self.ranks.truncate(self.entries);
    }
}

impl Choose for QMaxMap {
    fn record(&mut self, key: &FlowKey, rank: u64) {
        if let Some((packets, _)) = self.flows.get_mut(key) {
            *packets += 1;
        } else if rank < self.limit {
            self.flows.insert(*key, (1, rank));
            self.ranks.push((rank, *key));
            if self.ranks.len() == self.ranks.capacity() {
                self.select();
            }
        }
    }

    fn chosen(&mut self) -> HashMap<FlowKey, u64> {
        self.select();
        packets(&self.flows)
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.ranks.clear();
        self.limit = u64::MAX;
    }
}

/// Counts the flows that come first, whatever their rank: what a hash map alone takes.
#[derive(Clone, Debug)]
pub struct FirstComeMap {
    flows: Flows,
    entries: usize,
}

impl FirstComeMap {
    /// A map for so many flows.
    pub fn new(entries: usize) -> Self {
        Self { flows: flows(entries), entries }
    }
}

impl Choose for FirstComeMap {
    fn record(&mut self, key: &FlowKey, rank: u64) {
        if let Some((packets, _)) = self.flows.get_mut(key) {
            *packets += 1;
        } else if self.flows.len() < self.entries {
            self.flows.insert(*key, (1, rank));
        }
    }

    fn chosen(&mut self) -> HashMap<FlowKey, u64> {
        packets(&self.flows)
    }

    fn clear(&mut self) {
        self.flows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn rank(flow: u32) -> u64 {
        u64::from(flow.wrapping_mul(0x9E37_79B9))
    }

    #[test]
    fn the_flows_of_smallest_rank_are_counted_exactly() {
        let key = |flow: u32| FlowKey::from_words(flow, 1, 2, 6);
        let mut rng = StdRng::seed_from_u64(1);
        let packets: Vec<u32> = (0..50_000).map(|_| rng.random_range(0..5_000)).collect();
        let mut ranks: Vec<u64> = packets.iter().map(|&flow| rank(flow)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut truth = HashMap::new();
        for &flow in packets.iter().filter(|&&flow| rank(flow) < ranks[1_000]) {
            *truth.entry(key(flow)).or_insert(0) += 1;
        }
        for table in [&mut HeapMap::new(1_000) as &mut dyn Choose, &mut QMaxMap::new(1_000)] {
            for _window in 0..2 {
                packets.iter().for_each(|&flow| table.record(&key(flow), rank(flow)));
                assert_eq!(table.chosen(), truth);
                table.clear();
            }
        }
    }

    #[test]
    fn the_flows_that_come_first_are_counted_whatever_their_rank() {
        let key = |flow: u32| FlowKey::from_words(flow, 1, 2, 6);
        let mut map = FirstComeMap::new(2);
        for _window in 0..2 {
            [3, 1, 2, 1, 3, 1].iter().for_each(|&flow| map.record(&key(flow), rank(flow)));
            assert_eq!(map.chosen(), HashMap::from([(key(3), 2), (key(1), 3)]));
            map.clear();
        }
    }
}
