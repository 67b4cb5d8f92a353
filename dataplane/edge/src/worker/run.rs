//! Runs of packets through a [`Worker`]: what a simulation uses where it can't afford every packet.
//!
//! Sketches, marks and counters are those that the same packets would have left one after another;
//! only headers are not there to be parsed or written to.

use calumma_chamelemon::{Hierarchy, Run};
use calumma_epoch::timestamp_bit;
use calumma_sketch::Key;

use super::Worker;
use crate::measure::Active;

/// A run on its way through the network, with the marks that its packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkedRun {
    /// Timestamp bit of the epoch that the packets entered in.
    pub bit: usize,
    /// The packets, by hierarchy.
    pub run: Run,
}

impl Worker {
    /// `packets` packets of one flow enter the network back to back: records them and gives their
    /// marks. Keys of another kind than the session's go unrecorded.
    pub fn enter_run<K: Key>(&mut self, key: &K, packets: u32) -> MarkedRun {
        let total = u64::from(packets);
        self.counters.host_received += total;
        let mut bit = 0;
        if let Some(Active { family, rotation, .. }) = self.measurement.active() {
            bit = timestamp_bit(rotation.epoch());
            if let Some(record) = rotation.ingress()
                && let Some(group) = record.group.get_mut::<K>()
            {
                let run = group.record_run(key, &family.hash(key), packets);
                record.packets += total;
                self.counters.ingress_recorded += total;
                return MarkedRun { bit, run };
            }
        }
        self.counters.ingress_unrecorded += total;
        MarkedRun { bit, run: Run::unencoded(packets) }
    }

    /// What is left of a run leaves the network: records it by the marks it carries.
    pub fn leave_run<K: Key>(&mut self, key: &K, MarkedRun { bit, run }: MarkedRun) {
        let total = u64::from(run.packets());
        self.counters.fabric_received += total;
        let Some(Active { family, rotation, .. }) = self.measurement.active() else {
            self.counters.egress_unrecorded += total;
            return;
        };
        if let Some(record) = rotation.egress(bit)
            && let Some(group) = record.group.get_mut::<K>()
        {
            let foreign = group.record_run(key, &family.hash(key), &run);
            record.packets += total;
            record.foreign_packets += u64::from(foreign);
            self.counters.egress_recorded += total;
        } else {
            let unencoded = u64::from(run.of(Hierarchy::NonSampledLl));
            rotation.late(bit, total - unencoded);
            self.counters.egress_late += total - unencoded;
            self.counters.egress_unrecorded += unencoded;
        }
    }
}
