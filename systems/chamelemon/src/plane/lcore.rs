//! ChameleMon on an lcore: what it does to a burst, and what it is given to record into.

use std::sync::Arc;

use calumma_epoch::timestamp_bit;
use calumma_plane::counters::Counters;
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{Groups, LcoreSystem, Recorded};
use calumma_plane::{Flows, Hierarchy, Mark, MarkedRun, OfBit, Run, Slots, UNDATED};
use calumma_sketch::{BURST, FlowKey, HashFamily, Key};

use super::attention::Attention;
use super::group::{EgressGroup, IngressGroup};
use super::late::LatePackets;
use super::layout::Layout;

/// The records of an lcore, as they move through the epochs.
type Records<K> = Slots<IngressGroup<K>, EgressGroup<K>, LatePackets<K>>;

/// ChameleMon's half on an lcore.
#[derive(Debug)]
pub(crate) struct OnLcore<K: Key> {
    family: Arc<HashFamily>,
    slots: Records<K>,
    /// Whether flows have their hashes with them.
    shared: bool,
}

impl<K: Key> OnLcore<K> {
    /// No groups yet; `attention` holds from `first_epoch` on.
    pub(crate) fn new(family: Arc<HashFamily>, first_epoch: u64, attention: Attention) -> Self {
        Self { family, slots: Slots::new(first_epoch, 1, attention), shared: false }
    }
}

impl<K: Key> LcoreSystem<K> for OnLcore<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    fn hashes_by(&self) -> Option<&HashFamily> {
        Some(&self.family)
    }

    fn share_hashes(&mut self, shared: bool) {
        self.shared = shared;
    }

    #[inline]
    fn enter(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        let (keys, hashes, hierarchies) = flows.classify();
        let packets = keys.len() as u64;
        if let Some(record) = self.slots.ingress() {
            let hashes = hashes.filter(|_| self.shared);
            record.group.record_hashed(&self.family, keys, hashes, hierarchies);
            record.packets += packets;
            counters.ingress_recorded += packets;
        } else {
            counters.ingress_unrecorded += packets;
        }
    }

    #[inline]
    fn leave(&mut self, flows: &Flows<K>, counters: &mut Counters) {
        let Self { family, slots, shared } = self;
        flows.by_bit(|OfBit { bit, keys, hashes, hierarchies, .. }| {
            let packets = keys.len() as u64;
            if let Some(record) = slots.by_bit(bit) {
                let hashes = hashes.filter(|_| *shared);
                let foreign = record.group.record_hashed(family, keys, hashes, hierarchies);
                record.packets += packets;
                counters.egress_recorded += packets;
                counters.egress_foreign += u64::from(foreign);
            } else {
                let encoded = |&&hierarchy: &&_| hierarchy != Hierarchy::NonSampledLl;
                let late = hierarchies.iter().filter(encoded).count() as u64;
                let all = slots.current().is_some_and(|now| now.group.attention().encodes_all());
                if let Some(record) = slots.late(bit, late) {
                    let age = if flows.are_dated() { 0 } else { UNDATED };
                    record.group.record_burst(keys, hierarchies, age, all);
                    record.packets += packets;
                }
                counters.egress_late += late;
                counters.egress_unrecorded += packets - late;
            }
        });
        for (at, epochs_back) in flows.stale() {
            let Mark { bit, hierarchy, .. } = flows.mark(at);
            let late = u64::from(hierarchy != Hierarchy::NonSampledLl);
            if let Some(record) = slots.outdated(bit, late) {
                record.group.record(&flows.keys()[at], hierarchy, epochs_back, 1);
                record.packets += 1;
            }
            counters.egress_late += late;
            counters.egress_unrecorded += 1 - late;
        }
        if flows.unmarked() > 0 {
            record_unmarked(slots, flows);
        }
    }

    fn enter_run(&mut self, key: &K, packets: u32, counters: &mut Counters) -> Run {
        let total = u64::from(packets);
        if let Some(record) = self.slots.ingress() {
            let run = record.group.record_run(key, &self.family.hash(key), packets);
            record.packets += total;
            counters.ingress_recorded += total;
            run
        } else {
            counters.ingress_unrecorded += total;
            Run::unencoded(packets)
        }
    }

    fn leave_run(&mut self, key: &K, marked: &MarkedRun, counters: &mut Counters) {
        let MarkedRun { bit, run } = *marked;
        let total = u64::from(run.packets());
        if let Some(record) = self.slots.by_bit(bit) {
            let foreign = record.group.record_run(key, &self.family.hash(key), &run);
            record.packets += total;
            counters.egress_recorded += total;
            counters.egress_foreign += u64::from(foreign);
        } else {
            let unencoded = u64::from(run.of(Hierarchy::NonSampledLl));
            let now = self.slots.current();
            let all = now.is_some_and(|now| now.group.attention().encodes_all());
            if let Some(record) = self.slots.late(bit, total - unencoded) {
                record.group.record_run(key, &run, all);
                record.packets += total;
            }
            counters.egress_late += total - unencoded;
            counters.egress_unrecorded += unencoded;
        }
    }
}

/// Records the packets without a mark. Each may be of any epoch of which packets may come, and a
/// report minds its own. What one says of its epoch is kept once: with that one, or, where it is
/// over, with the newest that is open.
#[cold]
fn record_unmarked<K: Key>(slots: &mut Records<K>, flows: &Flows<K>) {
    let bit = |back: u8| timestamp_bit(flows.newest().wrapping_sub(back.into()));
    let is_open = [0, 1].map(|back| slots.by_bit(bit(back)).is_some());
    let newest_open = if is_open[0] { 0 } else { 1 };
    for at in flows.each_unmarked() {
        // Of hierarchy 0 none is encoded, so that it can't be missing.
        let said = flows.unproven(at).filter(|(said, _)| *said != Hierarchy::NonSampledLl);
        let said = said.map(|(_, back)| back);
        let own = said.filter(|&back| is_open.get(usize::from(back)).is_some_and(|&open| open));
        let keeper = own.unwrap_or(newest_open);
        for back in 0..2 {
            let Some(record) = slots.by_bit(bit(back)) else { continue };
            let age = said.filter(|_| back == keeper).and_then(|said| said.checked_sub(back));
            record.group.record_unmarked(&flows.keys()[at], age.unwrap_or(UNDATED));
        }
    }
}

/// Empty groups of a layout and an attention that are valid, through which some bursts have gone
/// already.
pub(crate) fn prefaulted<K: Key + From<FlowKey>>(
    family: &HashFamily,
    layout: &Layout,
    attention: Attention,
    first_epoch: u64,
) -> Groups {
    let ingress = IngressGroup::new(layout, attention, first_epoch);
    let egress = EgressGroup::new(layout, attention);
    let (mut ingress, mut egress): (IngressGroup<K>, EgressGroup<K>) =
        (ingress.expect(VALID), egress.expect(VALID));
    prefault_code(family, &mut ingress, &mut egress);
    Groups { ingress: Box::new(Recorded::new(ingress)), by_bit: Box::new(Recorded::new(egress)) }
}

const VALID: &str = "layout and attention were validated";

/// Records a few bursts, so that no lcore waits for the system to map code which has never run: a
/// few tens of microseconds in the first burst of a session.
fn prefault_code<K: Key + From<FlowKey>>(
    family: &HashFamily,
    ingress: &mut IngressGroup<K>,
    egress: &mut EgressGroup<K>,
) {
    let numbered: [K; BURST] = std::array::from_fn(|at| FlowKey::from_bytes([at as u8; 13]).into());
    for keys in [numbered, [numbered[0]; BURST]] {
        let mut hierarchies = [Hierarchy::NonSampledLl; BURST];
        ingress.record_burst(family, &keys, &mut hierarchies);
        egress.record_burst(family, &keys, &[Hierarchy::HhCandidate; BURST]);
    }
}
