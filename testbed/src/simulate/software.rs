//! The software switch in the simulation: the live one's worker, collector and frames. Only ports and
//! sockets are missing.

use anyhow::Result;
use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::SwitchSession;
use calumma_controller::report;
use calumma_edge::control::collect::{Collector, Part, SessionPlan};
use calumma_edge::control::{egress_side, ingress_side};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_plane::MarkedRun;
use calumma_sketch::{FlowKey, KeyKind, WideKey};

use super::edge::Finished;
use super::network::Bytes;

/// A switch of one lcore.
#[derive(Debug)]
pub(super) struct Software {
    worker: Worker,
    collector: Collector,
}

impl Software {
    pub(super) fn new() -> Self {
        let (collector, mailboxes) = Collector::new(1);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        Self { worker: Worker::new(Policy::default(), Measurement::new(mailbox)), collector }
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        self.worker.next_due_ns()
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(&mut self, session: Option<&SwitchSession>, shown_ns: u64) -> Vec<Finished> {
        match self.worker.next_due_ns() {
            // It has just been started, and looks out for a session from now on.
            0 => {
                self.worker.tick(shown_ns, true);
            }
            due_ns => self.worker.advance_to(due_ns),
        }
        let parts = self.collector.poll();
        let Some(session) = session else { return Vec::new() };
        parts.into_iter().map(|part| self.finished(session, part)).collect()
    }

    pub(super) fn begin(&mut self, plan: &SessionPlan) -> Result<()> {
        self.collector.begin(plan)
    }

    pub(super) fn attend(&mut self, epoch: u64, attention: Attention) {
        self.collector.reconfigure(epoch, attention).expect("it was validated on arrival");
    }

    pub(super) fn ingress(&mut self, packet: &mut Bytes) {
        self.worker.ingress(std::slice::from_mut(packet));
    }

    pub(super) fn egress(&mut self, packet: &mut Bytes) {
        self.worker.egress(std::slice::from_mut(packet));
    }

    pub(super) fn enter_run(&mut self, keys: KeyKind, key: &WideKey, packets: u32) -> MarkedRun {
        match narrow(keys, key) {
            Some(key) => self.worker.enter_run(&key, packets),
            None => self.worker.enter_run(key, packets),
        }
    }

    pub(super) fn leave_run(&mut self, keys: KeyKind, key: &WideKey, marked: MarkedRun) {
        match narrow(keys, key) {
            Some(key) => self.worker.leave_run(&key, marked),
            None => self.worker.leave_run(key, marked),
        }
    }

    /// A finished part; its groups go back to the worker.
    fn finished(&mut self, session: &SwitchSession, part: Part) -> Finished {
        match part {
            Part::Ingress { epoch, record, mixed_attention, .. } => {
                let (side, _) = ingress_side(session, epoch, &record, mixed_attention);
                self.collector.recycle(record);
                Finished::Side(side)
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let side = egress_side(epoch, &record, mixed_attention);
                self.collector.recycle(record);
                Finished::Side(side)
            }
            Part::Sealed { epoch, late_packets } => Finished::Sealed { epoch, late_packets },
        }
    }
}

/// The key by which edges that measure IPv4 alone know a flow.
fn narrow(keys: KeyKind, key: &WideKey) -> Option<FlowKey> {
    if keys == KeyKind::Ipv4 { report::Flow::from(key).key() } else { None }
}
