//! Packets that no sketch holds, by flow: they came late, carried a mark that fits nothing, or
//! none.
//!
//! [`Strays`] is what is sent of them. Whoever subtracts what left the network from what entered it
//! adds them again, flow by flow, so that a stranger's packets spoil nobody else's losses. An lcore
//! keeps them in a [`StrayTable`].

mod table;

use calumma_sketch::{Key, Keyed};

use crate::mark::Hierarchy;

pub use self::table::StrayTable;

/// Most entries that are sent of one table in an epoch; the packets of others are only counted.
pub const MOST_STRAYS: usize = 4096;

/// Age of packets whose mark does not tell which of the epochs with its timestamp bit they are of.
pub const UNDATED: u8 = u8::MAX;

/// Packets of one flow that no sketch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stray<K> {
    /// The flow.
    pub key: K,
    /// The hierarchy that they carried; 0 where they carried no mark.
    pub hierarchy: Hierarchy,
    /// By how many epochs they are older than the one of their timestamp bit that is or was open
    /// last; [`UNDATED`] where none is open and their carrier says no more than the bit. Of packets
    /// without a valid mark, what nothing proves: by how many they say to be older, 0 to 7, or
    /// [`UNDATED`].
    pub epochs_back: u8,
    /// How many they are, at least 1.
    pub packets: u32,
}

/// Packets that no sketch holds, by flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strays<K> {
    /// Ascending by flow, hierarchy and age; no two have all three in common.
    pub entries: Vec<Stray<K>>,
    /// Packets of flows for which there was no room.
    pub beyond: u64,
}

impl<K> Default for Strays<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), beyond: 0 }
    }
}

impl<K: Key> Strays<K> {
    /// All packets, whether their flows are known or not.
    pub fn packets(&self) -> u64 {
        self.beyond + self.entries.iter().map(|stray| u64::from(stray.packets)).sum::<u64>()
    }

    /// Keeps the first [`MOST_STRAYS`] entries, and counts the packets of the others.
    pub fn cut(&mut self) {
        let rest = self.entries.drain(MOST_STRAYS.min(self.entries.len())..);
        self.beyond += rest.map(|stray| u64::from(stray.packets)).sum::<u64>();
    }
}

/// [`Strays`] of any kind of key.
#[derive(Debug)]
pub enum AnyStrays {}

impl Keyed for AnyStrays {
    type Of<K: Key> = Strays<K>;
}
