//! One edge switch of one lcore, without ports and clock.

use std::collections::BTreeMap;

use anyhow::Result;
use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::frames::{Defects, EgressSide, Ingress, IngressSide};
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_controller::analyse::EdgeInput;
use calumma_edge::measure::Measurement;
use calumma_edge::packet::Frame;
use calumma_edge::worker::{Policy, Worker};
use calumma_sketch::either;

#[derive(Debug)]
pub(super) struct Edge {
    name: &'static str,
    worker: Worker,
    collector: LcoreGroups,
    epochs: BTreeMap<u64, EdgeInput>,
}

impl Edge {
    pub(super) fn new(name: &'static str) -> Self {
        let (collector, mailboxes) = LcoreGroups::new(1);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        let worker = Worker::new(Policy::default(), Measurement::new(mailbox));
        Self { name, worker, collector, epochs: BTreeMap::new() }
    }

    /// Measures anew, from the plan's first epoch on.
    pub(super) fn begin(&mut self, plan: &SessionPlan) -> Result<()> {
        self.epochs.clear();
        self.collector.begin(plan)?;
        // Idle workers look for a session once a millisecond: let that moment come.
        self.worker.advance_to(self.worker.next_due_ns());
        Ok(())
    }

    /// Sends a packet into the network. Gives whether it was recorded.
    pub(super) fn enter(&mut self, frame: &mut Frame) -> bool {
        let before = self.worker.counters.ingress_recorded;
        self.worker.ingress(std::slice::from_mut(frame));
        self.worker.counters.ingress_recorded > before
    }

    /// Lets a packet out of the network.
    pub(super) fn leave(&mut self, frame: &mut Frame) {
        self.worker.egress(std::slice::from_mut(frame));
    }

    /// Lets time run, one event after the other, so that groups come back in time for the next one.
    pub(super) fn advance_to(&mut self, now_ns: u64) {
        while self.worker.next_due_ns() <= now_ns {
            self.worker.advance_to(self.worker.next_due_ns());
            for part in self.collector.poll() {
                self.keep(part);
            }
        }
    }

    fn keep(&mut self, part: Part) {
        match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                let defects =
                    Defects { stall_ns: record.stall_ns, mixed_attention, ..Defects::default() };
                let ingress = either!(&record.group, group => {
                    IngressSide::of_group(epoch, group, record.packets, defects).to_ingress()
                });
                let ingress = Ingress { counters: counters.named(), ..ingress };
                self.epoch(epoch).ingress = Some(Box::new(ingress));
                self.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let defects = Defects {
                    stall_ns: record.stall_ns,
                    foreign_packets: record.foreign_packets,
                    mixed_attention,
                };
                let egress = either!(&record.group, group => {
                    EgressSide::of_group(epoch, group, record.packets, defects).to_egress()
                });
                self.epoch(epoch).egress = Some(Box::new(egress));
                self.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets, late } => {
                let of = self.epoch(epoch);
                of.late_packets = Some(late_packets);
                of.late = Some(late);
            }
        }
    }

    fn epoch(&mut self, epoch: u64) -> &mut EdgeInput {
        self.epochs.entry(epoch).or_insert_with(|| EdgeInput::nothing(self.name))
    }

    /// Whether all of an epoch is there.
    pub(super) fn is_whole(&self, epoch: u64) -> bool {
        self.epochs.get(&epoch).is_some_and(EdgeInput::is_whole)
    }

    /// An epoch's measurement.
    pub(super) fn take(&mut self, epoch: u64) -> EdgeInput {
        let later = self.epochs.split_off(&(epoch + 1));
        let mut until = std::mem::replace(&mut self.epochs, later);
        until.remove(&epoch).unwrap_or_else(|| EdgeInput::nothing(self.name))
    }
}
