//! The software switch in the simulation: the live one's worker, collector and frames. Only ports and
//! sockets are missing.

use anyhow::Result;
use calumma_chamelemon::{AnyGroup, Attention, IngressGroup};
use calumma_controller::report;
use calumma_edge::control::collect::{Collector, Part, SessionPlan};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_plane::MarkedRun;
use calumma_sketch::{FlowKey, Key, KeyKind, WideKey, either};
use calumma_wire::{Defects, Message, SideHead, encode_egress, encode_ingress};

use super::edge::side_head;
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

    /// Does what is due first; its clock shows `shown_ns`. Gives the frames for the controller.
    pub(super) fn step(&mut self, shown_ns: u64) -> Vec<Vec<u8>> {
        match self.worker.next_due_ns() {
            // It has just been started, and looks out for a session from now on.
            0 => {
                self.worker.tick(shown_ns, true);
            }
            due_ns => self.worker.advance_to(due_ns),
        }
        self.collector.poll().into_iter().map(|part| self.frame(part)).collect()
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

    /// A finished part as a frame; its groups go back to the worker.
    fn frame(&mut self, part: Part) -> Vec<u8> {
        let mut frame = Vec::new();
        match part {
            Part::Ingress { epoch, record, mixed_attention, .. } => {
                let defects =
                    Defects { stall_ns: record.stall_ns, mixed_attention, ..Defects::default() };
                let head = side_head(epoch, record.group.attention(), &defects, record.packets);
                either!(&record.group, group => encode_group(&mut frame, &head, group));
                self.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let defects = Defects {
                    stall_ns: record.stall_ns,
                    foreign_packets: record.foreign_packets,
                    mixed_attention,
                };
                let head = side_head(epoch, record.group.attention(), &defects, record.packets);
                either!(&record.group, group => encode_egress(&mut frame, &head, group.downstream()));
                self.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets } => {
                Message::Sealed { epoch, late_packets }.encode(&mut frame);
            }
        }
        frame
    }
}

fn encode_group<K: Key>(frame: &mut Vec<u8>, head: &SideHead, group: &IngressGroup<K>) {
    encode_ingress(frame, head, group.classifier(), group.upstream(), None);
}

/// The key by which edges that measure IPv4 alone know a flow.
fn narrow(keys: KeyKind, key: &WideKey) -> Option<FlowKey> {
    if keys == KeyKind::Ipv4 { report::Flow::from(key).key() } else { None }
}
