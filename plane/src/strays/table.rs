//! Where an lcore keeps strays: fixed memory, taken once.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use calumma_sketch::Key;

use super::{Stray, Strays};
use crate::mark::Hierarchy;

/// Places of the table that one entry may be put in.
const PLACES: usize = 16;

/// What tells entries apart: flow, hierarchy and age.
type Name<K> = (K, Hierarchy, u8);

/// Counts packets by flow, hierarchy and age, exactly, or not at all.
///
/// A hash table of fixed size with open addressing. An entry stays where it is, and may be in few
/// places only, so a flow finds room with its first packet or never: all packets of an entry are
/// counted in it, and those of others in [`Strays::beyond`]. The hash is keyed, so that nobody can
/// choose flows that find none. Recording allocates nothing; [`merge`](Self::merge), which is not
/// for the packet path, loses no entry.
#[derive(Clone)]
pub struct StrayTable<K> {
    /// As many as a power of two; those without packets are free.
    entries: Box<[Stray<K>]>,
    hasher: RandomState,
    beyond: u64,
    /// What was merged and found no room.
    merged: BTreeMap<Name<K>, u64>,
}

impl<K: Key> StrayTable<K> {
    /// A table with room for `entries` entries, which is rounded up to a power of two.
    pub fn new(entries: usize) -> Self {
        let entries = entries.next_power_of_two().max(PLACES);
        Self {
            entries: vec![Self::free(); entries].into(),
            hasher: RandomState::new(),
            beyond: 0,
            merged: BTreeMap::new(),
        }
    }

    fn free() -> Stray<K> {
        let (key, hierarchy) = (K::default(), Hierarchy::default());
        Stray { key, hierarchy, epochs_back: 0, packets: 0 }
    }

    /// Counts packets of a flow that carried `hierarchy` and are `epochs_back` epochs older than
    /// the open epoch of their timestamp bit.
    #[cold]
    pub fn add(&mut self, key: &K, hierarchy: Hierarchy, epochs_back: u8, packets: u32) {
        if packets > 0 && !self.put((*key, hierarchy, epochs_back), packets) {
            self.beyond += u64::from(packets);
        }
    }

    /// As [`add`](Self::add), but counts nothing where there is no room, and says whether there
    /// was.
    #[cold]
    pub fn keep(&mut self, key: &K, hierarchy: Hierarchy, epochs_back: u8, packets: u32) -> bool {
        self.put((*key, hierarchy, epochs_back), packets)
    }

    /// Counts packets in the entry of this name; false where there is no room for it.
    fn put(&mut self, name: Name<K>, packets: u32) -> bool {
        let mask = self.entries.len() - 1;
        let first = self.hasher.hash_one(name) as usize;
        for at in 0..PLACES {
            let entry = &mut self.entries[(first + at) & mask];
            if entry.packets == 0 {
                let (key, hierarchy, epochs_back) = name;
                *entry = Stray { key, hierarchy, epochs_back, packets };
                return true;
            }
            if (entry.key, entry.hierarchy, entry.epochs_back) == name {
                let sum = entry.packets.checked_add(packets);
                entry.packets = sum.unwrap_or(entry.packets);
                return sum.is_some();
            }
        }
        false
    }

    /// Adds what another lcore counted. Allocates where there is no room.
    pub fn merge(&mut self, other: &Self) {
        let strays = other.entries.iter().filter(|stray| stray.packets > 0);
        let strays = strays.map(|of| ((of.key, of.hierarchy, of.epochs_back), of.packets));
        for (name, packets) in strays {
            if !self.put(name, packets) {
                *self.merged.entry(name).or_default() += u64::from(packets);
            }
        }
        for (&name, &packets) in &other.merged {
            *self.merged.entry(name).or_default() += packets;
        }
        self.beyond += other.beyond;
    }

    /// Empties the table, and writes to all of its memory.
    pub fn clear(&mut self) {
        self.entries.fill(Self::free());
        self.beyond = 0;
        self.merged = BTreeMap::new();
    }

    /// What it holds.
    pub fn strays(&self) -> Strays<K> {
        let mut merged = self.merged.clone();
        let mut beyond = self.beyond;
        for stray in self.entries.iter().filter(|stray| stray.packets > 0) {
            let name = (stray.key, stray.hierarchy, stray.epochs_back);
            *merged.entry(name).or_default() += u64::from(stray.packets);
        }
        let entries = merged.into_iter().map(|((key, hierarchy, epochs_back), all)| {
            let packets = u32::try_from(all).unwrap_or(u32::MAX);
            beyond += all - u64::from(packets);
            Stray { key, hierarchy, epochs_back, packets }
        });
        Strays { entries: entries.collect(), beyond }
    }
}

impl<K: Key> fmt::Debug for StrayTable<K> {
    /// Prints what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.strays().fmt(f)
    }
}

impl<K: Key> PartialEq for StrayTable<K> {
    /// Whether both counted the same, wherever the entries are.
    fn eq(&self, other: &Self) -> bool {
        self.strays() == other.strays()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_sketch::FlowKey;
    use proptest::prelude::*;

    fn key(flow: u32) -> FlowKey {
        FlowKey::from_words(flow, 1, 2, 17)
    }

    /// Packets of few flows and of many.
    fn packets() -> impl Strategy<Value = Vec<(u32, u8, u8, u32)>> {
        prop::collection::vec((0u32..200, 0u8..4, 0u8..3, 0u32..5), 0..300)
    }

    fn table(packets: &[(u32, u8, u8, u32)]) -> StrayTable<FlowKey> {
        let mut table = StrayTable::new(64);
        for &(flow, hierarchy, back, packets) in packets {
            table.add(&key(flow), Hierarchy::from_bits(hierarchy), back, packets);
        }
        table
    }

    fn exactly(packets: &[(u32, u8, u8, u32)]) -> BTreeMap<Name<FlowKey>, u64> {
        let mut exact = BTreeMap::new();
        for &(flow, hierarchy, back, packets) in packets {
            let name = (key(flow), Hierarchy::from_bits(hierarchy), back);
            *exact.entry(name).or_default() += u64::from(packets);
        }
        exact
    }

    proptest! {
        #[test]
        fn every_entry_is_exact_and_every_other_packet_is_counted(packets in packets()) {
            let strays = table(&packets).strays();
            let exact = exactly(&packets);
            for stray in &strays.entries {
                let name = (stray.key, stray.hierarchy, stray.epochs_back);
                prop_assert_eq!(exact[&name], u64::from(stray.packets));
            }
            prop_assert_eq!(strays.packets(), exact.values().sum::<u64>());
            prop_assert!(strays.entries.is_sorted() && strays.entries.len() <= 64);
        }

        #[test]
        fn tables_that_are_merged_in_any_order_lose_no_entry(
            lcores in prop::collection::vec(packets(), 3),
        ) {
            let tables: Vec<_> = lcores.iter().map(|packets| table(packets)).collect();
            let merged = |order: [usize; 3]| {
                let mut sum = tables[order[0]].clone();
                order[1..].iter().for_each(|&lcore| sum.merge(&tables[lcore]));
                sum
            };
            let mut right = tables[1].clone();
            right.merge(&tables[2]);
            let mut first = tables[0].clone();
            first.merge(&right);
            prop_assert!(first == merged([0, 1, 2]) && first == merged([2, 0, 1]));

            let entries: usize = tables.iter().map(|table| table.strays().entries.len()).sum();
            let strays = first.strays();
            prop_assert!(strays.entries.len() <= entries);
            let of_lcores = tables.iter().map(|table| table.strays().packets()).sum::<u64>();
            prop_assert_eq!(strays.packets(), of_lcores);
            let beyond = tables.iter().map(|table| table.strays().beyond).sum::<u64>();
            prop_assert_eq!(strays.beyond, beyond);

            first.clear();
            prop_assert!(first == StrayTable::new(64), "a cleared one is neutral");
        }
    }

    #[test]
    fn a_count_that_does_not_fit_its_entry_is_counted_beyond() {
        let mut table = StrayTable::new(16);
        table.add(&key(1), Hierarchy::SampledLl, 0, u32::MAX);
        table.add(&key(1), Hierarchy::SampledLl, 0, 2);
        let mut both = table.clone();
        both.merge(&table);
        let [one, two] = [table, both].map(|table| table.strays());
        assert_eq!((one.entries[0].packets, one.beyond), (u32::MAX, 2));
        assert_eq!((two.entries[0].packets, two.packets()), (u32::MAX, 2 * one.packets()));
    }
}
