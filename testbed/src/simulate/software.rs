//! The software switch in the simulation: the live one's worker, systems and frames. Only ports and
//! sockets are missing.

use calumma_controller::report;
use calumma_edge::control::systems::{Finished, SYSTEMS, Systems};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_plane::MarkedRun;
use calumma_sketch::{FlowKey, KeyKind, WideKey};
use calumma_wire::Role;

use super::network::Bytes;

/// A switch of one lcore.
#[derive(Debug)]
pub(super) struct Software {
    worker: Worker,
    /// What it measures with.
    pub(super) systems: Systems,
}

impl Software {
    pub(super) fn new(role: Role) -> Self {
        let (systems, mailboxes) = Systems::new(SYSTEMS, role, 1);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        Self { worker: Worker::new(Policy::default(), Measurement::new(mailbox)), systems }
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        self.worker.next_due_ns()
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(&mut self, shown_ns: u64) -> Vec<Finished> {
        match self.worker.next_due_ns() {
            // It has just been started, and looks out for a session from now on.
            0 => {
                self.worker.tick(shown_ns, true);
            }
            due_ns => self.worker.advance_to(due_ns),
        }
        self.systems.poll()
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
}

/// The key by which edges that measure IPv4 alone know a flow.
fn narrow(keys: KeyKind, key: &WideKey) -> Option<FlowKey> {
    if keys == KeyKind::Ipv4 { report::Flow::from(key).key() } else { None }
}
