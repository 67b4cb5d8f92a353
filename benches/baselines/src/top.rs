//! The largest flows seen so far: a heap of bounded size whose least entry is on top, and a table
//! that finds an entry by its key. A flow comes in with an estimate and is counted exactly from
//! then on. Nothing is allocated after it was made.

use calumma_sketch::FlowKey;

use crate::WORD;
use crate::hash::Hashed;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    count: u32,
    /// The entry's slot in the table.
    slot: u32,
}

/// A bounded set of flows with counts.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    capacity: usize,
    /// Bytes of an entry on a switch.
    entry: usize,
    heap: Vec<Entry>,
    /// Places in the heap, found by linear probing from where a key's hash points.
    slots: Vec<u32>,
    /// Where each slot's key would like to be.
    homes: Vec<u32>,
}

impl Top {
    pub(crate) fn new(capacity: usize, key: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two().max(2);
        Self {
            capacity,
            entry: key + WORD,
            heap: Vec::with_capacity(capacity),
            slots: vec![NONE; slots],
            homes: vec![0; slots],
        }
    }

    /// Bytes on a switch: a key and a counter an entry.
    pub(crate) fn bytes(&self) -> usize {
        self.capacity * self.entry
    }

    pub(crate) fn entries(&self) -> Vec<(FlowKey, u32)> {
        self.heap.iter().map(|entry| (entry.key, entry.count)).collect()
    }

    /// Counts a packet of a flow that is in; lets another in with the `count` estimated, if that is
    /// larger than the least.
    #[inline]
    pub(crate) fn offer(&mut self, key: &FlowKey, hashed: Hashed, count: u32) {
        let home = self.home(hashed);
        let slot = self.find(key, home);
        let at = self.slots[slot];
        if at != NONE {
            let entry = &mut self.heap[at as usize];
            entry.count = entry.count.saturating_add(1);
            self.settle(at as usize);
        } else if self.heap.len() < self.capacity {
            let at = self.heap.len();
            self.occupy(slot, home, at);
            self.heap.push(Entry { key: *key, count, slot: slot as u32 });
            self.settle(at);
        } else if self.heap.first().is_some_and(|least| count > least.count) {
            self.vacate(self.heap[0].slot as usize);
            // The removal may have moved the run that the new key belongs to.
            let slot = self.find(key, home);
            self.occupy(slot, home, 0);
            self.heap[0] = Entry { key: *key, count, slot: slot as u32 };
            self.settle(0);
        }
    }

    fn home(&self, hashed: Hashed) -> usize {
        hashed.whole() as usize & (self.slots.len() - 1)
    }

    fn find(&self, key: &FlowKey, home: usize) -> usize {
        let mut slot = home;
        while self.slots[slot] != NONE && self.heap[self.slots[slot] as usize].key != *key {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        slot
    }

    fn occupy(&mut self, slot: usize, home: usize, at: usize) {
        self.slots[slot] = at as u32;
        self.homes[slot] = home as u32;
    }

    /// Empties a slot and closes the gap, so that probing needs no tombstones.
    fn vacate(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = gap;
        loop {
            slot = (slot + 1) & mask;
            if self.slots[slot] == NONE {
                break;
            }
            let home = self.homes[slot] as usize;
            if (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(gap) & mask) {
                self.occupy(gap, home, self.slots[slot] as usize);
                self.heap[self.slots[slot] as usize].slot = gap as u32;
                gap = slot;
            }
        }
        self.slots[gap] = NONE;
    }

    /// Moves an entry to where its count belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].count < self.heap[(at - 1) / 2].count {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let below = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            let Some(least) = below.min_by_key(|&child| self.heap[child].count) else { break };
            if self.heap[at].count <= self.heap[least].count {
                break;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a].slot as usize] = a as u32;
        self.slots[self.heap[b].slot as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hash;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::HashMap;

    #[test]
    fn counts_that_only_grow_leave_the_largest_flows() {
        let (mut rng, hash, mut top) = (StdRng::seed_from_u64(1), Hash::new(1), Top::new(50, 4));
        let mut truth = HashMap::<u32, u32>::new();
        for _ in 0..200_000 {
            let flow = (600.0 * rng.random::<f64>().powi(3)) as u32;
            let count = truth.entry(flow).or_default();
            *count += 1;
            let key = FlowKey::from_words(flow, 0, 0, 6);
            top.offer(&key, hash.of(&key), *count);
        }
        let mut kept = top.entries();
        let mut largest: Vec<u32> = truth.values().copied().collect();
        largest.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
        kept.sort_unstable_by_key(|flow| std::cmp::Reverse(flow.1));
        assert_eq!(kept.iter().map(|flow| flow.1).collect::<Vec<_>>(), largest[..50]);
        assert!(kept.iter().all(|(key, count)| truth[&key.src_word()] == *count));
    }
}
