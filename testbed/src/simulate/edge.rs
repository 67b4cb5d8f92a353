//! An edge switch in the simulation: the live switch's worker, collector and frames, under a clock of
//! its own. Only ports and sockets are missing.

use anyhow::Result;
use calumma_edge::control::collect::{Collector, Part, SessionPlan};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::EpochClock;
use calumma_sketch::{AnyKey, Attention, IngressGroup, Key};
use calumma_wire::{
    Defects, Marking, Message, Outcome, SideHead, SwitchKind, encode_egress, encode_ingress,
};

use super::clock::SwitchClock;

/// How long before an epoch is armed its attention must have arrived; the live switch's own.
const LEAD_NS: u64 = 2_000_000;

/// An edge switch of one lcore.
#[derive(Debug)]
pub(super) struct Edge {
    name: String,
    pub(super) clock: SwitchClock,
    pub(super) worker: Worker,
    collector: Collector,
    plan: Option<SessionPlan>,
    /// Whether the controller has welcomed it on the connection that stands.
    welcome: bool,
    /// True time at which its worker has something to do next.
    pub(super) due_ns: u64,
    /// Counts the times it was started: what was due for an earlier one is void.
    pub(super) start: u32,
}

impl Edge {
    pub(super) fn new(name: &str, clock: SwitchClock, start: u32) -> Self {
        let (collector, mailboxes) = Collector::new(1);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        let worker = Worker::new(Policy::default(), Measurement::new(mailbox));
        let name = name.to_owned();
        Self { name, clock, worker, collector, plan: None, welcome: false, due_ns: 0, start }
    }

    /// What it says first on a new connection.
    pub(super) fn hello(&mut self) -> Vec<u8> {
        self.welcome = false;
        let hello = Message::Hello {
            edge: self.name.clone(),
            kind: SwitchKind::Software,
            program: concat!("calumma-testbed ", env!("CARGO_PKG_VERSION")).to_owned(),
            holding: None,
            marking: Marking::default(),
        };
        encoded(&hello)
    }

    /// The connection to the controller has broken.
    pub(super) fn cut_off(&mut self) {
        self.welcome = false;
    }

    /// Does what is due at true time `now_ns`, one event after the other, so that groups come back in
    /// time for the next one. Gives the frames for the controller.
    pub(super) fn run_until(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let shown_ns = self.clock.at(now_ns);
        let mut frames = Vec::new();
        while self.worker.next_due_ns() <= shown_ns {
            match self.worker.next_due_ns() {
                // It has just been started, and looks out for a session from now on.
                0 => {
                    self.worker.tick(shown_ns, true);
                }
                due_ns => self.worker.advance_to(due_ns),
            }
            for part in self.collector.poll() {
                frames.extend(self.frame(part));
            }
        }
        frames
    }

    /// Hears a message of the controller, and gives the answer.
    ///
    /// # Errors
    /// When the controller's layout or attention is invalid.
    pub(super) fn hear(&mut self, message: Message, now_ns: u64) -> Result<Option<Vec<u8>>> {
        match message {
            Message::Welcome {
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => {
                self.welcome = true;
                let clock = EpochClock::new(epoch_length_ns, guards)?;
                let same = self.plan.as_ref().is_some_and(|plan| {
                    plan.layout == layout && plan.hash_key == hash_key && plan.clock == clock
                });
                if same {
                    return Ok(self.reconfigure(effective_epoch, attention, now_ns));
                }
                let shown_ns = self.clock.at(now_ns);
                let first_epoch = effective_epoch.max(clock.epoch_at(shown_ns) + 2);
                let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
                self.collector.begin(&plan)?;
                self.plan = Some(plan);
                Ok(None)
            }
            Message::Reconfigure { effective_epoch, attention } => {
                Ok(self.reconfigure(effective_epoch, attention, now_ns))
            }
            _ => Ok(None),
        }
    }

    fn reconfigure(&self, epoch: u64, attention: Attention, now_ns: u64) -> Option<Vec<u8>> {
        let plan = self.plan.as_ref()?;
        let lead = plan.clock.guards().clock_ns + LEAD_NS;
        let earliest = plan.clock.epoch_at(self.clock.at(now_ns) + lead) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            self.collector.attend(epoch, attention);
            Outcome::Accepted
        };
        Some(encoded(&Message::Applied { effective_epoch: epoch, outcome }))
    }

    /// A finished part as a frame, where there is a controller to hear it.
    fn frame(&mut self, part: Part) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        match part {
            Part::Ingress { epoch, record, mixed_attention, .. } => {
                let defects =
                    Defects { stall_ns: record.stall_ns, mixed_attention, ..Defects::default() };
                let head = SideHead {
                    epoch,
                    attention: record.group.attention(),
                    defects: &defects,
                    packets: record.packets,
                    counters: &[],
                };
                match &record.group {
                    AnyKey::Ipv4(group) => encode_group(&mut frame, &head, group),
                    AnyKey::Dual(group) => encode_group(&mut frame, &head, group),
                }
                self.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let defects = Defects {
                    stall_ns: record.stall_ns,
                    foreign_packets: record.foreign_packets,
                    mixed_attention,
                };
                let head = SideHead {
                    epoch,
                    attention: record.group.attention(),
                    defects: &defects,
                    packets: record.packets,
                    counters: &[],
                };
                match &record.group {
                    AnyKey::Ipv4(group) => encode_egress(&mut frame, &head, group.downstream()),
                    AnyKey::Dual(group) => encode_egress(&mut frame, &head, group.downstream()),
                }
                self.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets } => {
                Message::Sealed { epoch, late_packets }.encode(&mut frame);
            }
        }
        self.welcome.then_some(frame)
    }
}

fn encode_group<K: Key>(frame: &mut Vec<u8>, head: &SideHead, group: &IngressGroup<K>) {
    encode_ingress(frame, head, group.classifier(), group.upstream(), None);
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}
