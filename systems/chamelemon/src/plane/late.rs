//! Packets that came when no epoch with their timestamp bit was open, or whose marks say that they
//! are of an older one.

use calumma_plane::{Hierarchy, Record, Run, StrayTable, UNDATED};
use calumma_sketch::{FlowKey, Key};

use super::layout::Layout;
use crate::frames::Late;

/// Late packets of one epoch by flow, and those of hierarchy 0 as a number.
#[derive(Clone, Debug, PartialEq)]
pub struct LatePackets<K: Key = FlowKey> {
    strays: StrayTable<K>,
    unencoded: u64,
}

impl<K: Key> LatePackets<K> {
    /// None yet, and room for as many flows as switches of `layout` have.
    pub fn new(layout: &Layout) -> Self {
        Self { strays: StrayTable::new(layout.stray_entries()), unencoded: 0 }
    }

    /// Records a burst under the hierarchies that the packets carry: of the epoch that was open
    /// last, or [`UNDATED`].
    #[cold]
    pub(super) fn record_burst(&mut self, keys: &[K], hierarchies: &[Hierarchy], age: u8) {
        for (key, &hierarchy) in keys.iter().zip(hierarchies) {
            self.record(key, hierarchy, age, 1);
        }
    }

    /// Records a run of undated packets.
    pub(super) fn record_run(&mut self, key: &K, run: &Run) {
        for (hierarchy, packets) in run.by_hierarchy() {
            self.record(key, hierarchy, UNDATED, packets);
        }
    }

    /// Records packets of one flow, which are `epochs_back` epochs older than the epoch.
    pub(super) fn record(&mut self, key: &K, hierarchy: Hierarchy, epochs_back: u8, packets: u32) {
        if hierarchy == Hierarchy::NonSampledLl {
            self.unencoded += u64::from(packets);
        } else {
            self.strays.add(key, hierarchy, epochs_back, packets);
        }
    }

    /// What is sent of them, where there are `late_packets` in all that sketches would have held.
    /// Packets of an lcore that had no memory for them are among these alone.
    pub fn late(&self, late_packets: u64) -> Late<K> {
        let mut strays = self.strays.strays();
        strays.beyond += late_packets.saturating_sub(strays.packets());
        Late { unencoded: self.unencoded, strays }
    }
}

impl<K: Key> Record for LatePackets<K> {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, other: &Self) {
        self.strays.merge(&other.strays);
        self.unencoded += other.unencoded;
    }

    fn clear(&mut self) {
        self.strays.clear();
        self.unencoded = 0;
    }
}
