//! Packets that came when no epoch with their timestamp bit was open, or whose marks say that they
//! are of an older one.

use calumma_plane::{Hierarchy, MOST_STRAYS, Record, Run, StrayTable, UNDATED};
use calumma_sketch::{FlowKey, Key};

use super::layout::Layout;
use crate::frames::Late;

/// Late packets of one epoch by flow, and those of hierarchy 0 as a number. Where all packets are
/// encoded none of this deployment carries that, and its strangers are kept by flow as well.
#[derive(Clone, Debug, PartialEq)]
pub struct LatePackets<K: Key = FlowKey> {
    strays: StrayTable<K>,
    unencoded: u64,
    /// Of hierarchy 0, where none carries it.
    strangers: StrayTable<K>,
}

impl<K: Key> LatePackets<K> {
    /// None yet, and room for as many flows as switches of `layout` have.
    pub fn new(layout: &Layout) -> Self {
        let entries = layout.stray_entries();
        let (strays, strangers) = (StrayTable::new(entries), StrayTable::new(entries));
        Self { strays, unencoded: 0, strangers }
    }

    /// Records a burst under the hierarchies that the packets carry: of the epoch that was open
    /// last, or [`UNDATED`]. `all` is whether all packets are encoded now.
    #[cold]
    pub(super) fn record_burst(
        &mut self,
        keys: &[K],
        hierarchies: &[Hierarchy],
        age: u8,
        all: bool,
    ) {
        for (key, &hierarchy) in keys.iter().zip(hierarchies) {
            self.record_as(key, hierarchy, age, 1, all);
        }
    }

    /// Records a run of undated packets; `all` as for a burst.
    pub(super) fn record_run(&mut self, key: &K, run: &Run, all: bool) {
        for (hierarchy, packets) in run.by_hierarchy() {
            self.record_as(key, hierarchy, UNDATED, packets, all);
        }
    }

    /// Records packets of one flow, which are `epochs_back` epochs older than the epoch.
    pub(super) fn record(&mut self, key: &K, hierarchy: Hierarchy, epochs_back: u8, packets: u32) {
        self.record_as(key, hierarchy, epochs_back, packets, false);
    }

    fn record_as(&mut self, key: &K, hierarchy: Hierarchy, age: u8, packets: u32, all: bool) {
        if hierarchy != Hierarchy::NonSampledLl {
            self.strays.add(key, hierarchy, age, packets);
        } else if all && age == UNDATED {
            self.strangers.add(key, hierarchy, age, packets);
        } else {
            self.unencoded += u64::from(packets);
        }
    }

    /// What is sent of them, where there are `late_packets` in all that sketches would have held.
    /// Packets of an lcore that had no memory for them are among these alone.
    pub fn late(&self, late_packets: u64) -> Late<K> {
        let mut strays = self.strays.strays();
        strays.beyond += late_packets.saturating_sub(strays.packets());
        let mut strangers = self.strangers.strays();
        // What can't be sent is as what found no room: it must not seem to be late.
        let room = MOST_STRAYS.saturating_sub(strays.entries.len());
        let sent = strangers.entries.drain(..room.min(strangers.entries.len()));
        strays.entries.extend(sent);
        strays.entries.sort();
        Late { unencoded: self.unencoded + strangers.packets(), strays }
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
        self.strangers.merge(&other.strangers);
    }

    fn clear(&mut self) {
        self.strays.clear();
        self.unencoded = 0;
        self.strangers.clear();
    }
}
