//! Counting packets of flows that have an entry, ahead of all others.
//!
//! What is found out of a flow before its first packet is recorded, its rank above all, is the same
//! for the next one that comes alike. Where flows with entries have most of the packets it pays to
//! look for the entry first.

use super::{BoundedTable, Place, Words};
use crate::burst::{BURST, first, ones};
use crate::hash::HashColumns;
use crate::key::Key;
use crate::simd::Isa;
use crate::table::Rank;

impl<K: Key, V: Copy + Default> BoundedTable<K, V> {
    /// Hands packets of flows that have an entry to `count`, each with what was counted of its flow
    /// and the flow's rank; `count` says whether it has counted the packet. Of the packets, at most
    /// [`BURST`], `chosen` has a bit for each that may be handed over. Gives a bit for each that
    /// was counted; the others are to be [recorded](Self::record).
    #[inline(always)]
    pub fn count_known(
        &mut self,
        isa: impl Isa,
        (keys, chosen): (&[K], u32),
        hashes: &HashColumns,
        mut count: impl FnMut(&mut V, Rank, usize) -> bool,
    ) -> u32 {
        let chosen = chosen & first(keys.len());
        let mut places = [Place::default(); BURST];
        for packet in ones(chosen) {
            let words = Words::of(&hashes.of(packet));
            places[packet] = self.index.place(words.home, words.tag);
            self.index.prefetch(isa, places[packet]);
        }
        for packet in ones(chosen) {
            if let Some(slot) = self.index.guess(isa, places[packet]) {
                isa.prefetch(&self.entries, slot as usize);
            }
        }
        let mut counted = 0;
        for packet in ones(chosen) {
            let Self { index, entries, orders, .. } = self;
            let is_it = |slot: u32| {
                entries.get(slot as usize).is_some_and(|entry| entry.key == keys[packet])
            };
            if let Some(slot) = index.find(isa, places[packet], is_it) {
                let at = slot as usize;
                let is_counted = count(&mut entries[at].value, orders[at].rank(), packet);
                counted |= u32::from(is_counted) << packet;
            }
        }
        counted
    }
}
