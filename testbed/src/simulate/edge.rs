//! An edge in the simulation: a switch of either kind under a clock of its own, and its conversation
//! with the controller.

use anyhow::Result;
use calumma_chamelemon::Attention;
use calumma_edge::control::collect::SessionPlan;
use calumma_epoch::EpochClock;
use calumma_plane::MarkedRun;
use calumma_sketch::{KeyKind, WideKey};
use calumma_wire::{Defects, Marking, Message, Outcome, SideHead, SwitchKind};

use super::clock::SwitchClock;
use super::network::Bytes;
use super::software::Software;
use super::tofino::Tofino;
use crate::topology::EdgeKind;

/// How long before an epoch is armed its attention must have arrived; the live software switch's own.
const LEAD_NS: u64 = 2_000_000;

/// An edge switch.
#[derive(Debug)]
pub(super) struct Edge {
    name: String,
    pub(super) clock: SwitchClock,
    switch: Switch,
    plan: Option<SessionPlan>,
    /// Whether the controller has welcomed it on the connection that stands.
    welcome: bool,
    /// True time at which its switch has something to do next.
    pub(super) due_ns: u64,
    /// Counts the times it was started: what was due for an earlier one is void.
    pub(super) start: u32,
}

#[derive(Debug)]
enum Switch {
    Software(Box<Software>),
    Tofino(Tofino),
}

impl Edge {
    pub(super) fn new(name: &str, kind: EdgeKind, clock: SwitchClock, start: u32) -> Self {
        let switch = match kind {
            EdgeKind::Software => Switch::Software(Box::new(Software::new())),
            EdgeKind::Tofino => Switch::Tofino(Tofino::new()),
        };
        let name = name.to_owned();
        Self { name, clock, switch, plan: None, welcome: false, due_ns: 0, start }
    }

    /// What it says first on a new connection.
    pub(super) fn hello(&mut self) -> Vec<u8> {
        self.welcome = false;
        let kind = match &self.switch {
            Switch::Software(_) => SwitchKind::Software,
            Switch::Tofino(_) => SwitchKind::Tofino,
        };
        let hello = Message::Hello {
            edge: self.name.clone(),
            kind,
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

    /// What its clock shows when its switch has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        match &self.switch {
            Switch::Software(switch) => switch.next_due_ns(),
            Switch::Tofino(switch) => switch.next_due_ns(),
        }
    }

    /// Does what is due at true time `now_ns`, one event after the other, so that groups come back in
    /// time for the next one. Gives the frames for the controller, where there is one to hear them.
    ///
    /// # Errors
    /// When the P4 program refuses an entry, which it never does.
    pub(super) fn run_until(&mut self, now_ns: u64) -> Result<Vec<Vec<u8>>> {
        let shown_ns = self.clock.at(now_ns);
        let mut frames = Vec::new();
        while self.next_due_ns() <= shown_ns {
            frames.extend(match &mut self.switch {
                Switch::Software(switch) => switch.step(shown_ns),
                Switch::Tofino(switch) => switch.step(shown_ns)?,
            });
        }
        frames.retain(|_| self.welcome);
        Ok(frames)
    }

    /// A packet enters the network here, and gets its mark.
    pub(super) fn ingress(&mut self, packet: &mut Bytes) {
        match &mut self.switch {
            Switch::Software(switch) => switch.ingress(packet),
            Switch::Tofino(switch) => switch.ingress(packet),
        }
    }

    /// A packet leaves the network here.
    pub(super) fn egress(&mut self, packet: &mut Bytes) {
        match &mut self.switch {
            Switch::Software(switch) => switch.egress(packet),
            Switch::Tofino(switch) => switch.egress(packet),
        }
    }

    /// Packets of a flow enter the network here, back to back; by these keys it measures.
    pub(super) fn enter_run(&mut self, keys: KeyKind, key: &WideKey, packets: u32) -> MarkedRun {
        match &mut self.switch {
            Switch::Software(switch) => switch.enter_run(keys, key, packets),
            Switch::Tofino(switch) => switch.enter_run(key, packets),
        }
    }

    /// What is left of a run leaves the network here.
    pub(super) fn leave_run(&mut self, keys: KeyKind, key: &WideKey, marked: MarkedRun) {
        match &mut self.switch {
            Switch::Software(switch) => switch.leave_run(keys, key, marked),
            Switch::Tofino(switch) => switch.leave_run(key, marked),
        }
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
                match &mut self.switch {
                    Switch::Software(switch) => switch.begin(&plan)?,
                    Switch::Tofino(switch) => switch.begin(&plan)?,
                }
                self.plan = Some(plan);
                Ok(None)
            }
            Message::Reconfigure { effective_epoch, attention } => {
                Ok(self.reconfigure(effective_epoch, attention, now_ns))
            }
            _ => Ok(None),
        }
    }

    fn reconfigure(&mut self, epoch: u64, attention: Attention, now_ns: u64) -> Option<Vec<u8>> {
        let plan = self.plan.as_ref()?;
        let lead = plan.clock.guards().clock_ns + LEAD_NS;
        let earliest = plan.clock.epoch_at(self.clock.at(now_ns) + lead) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            match &mut self.switch {
                Switch::Software(switch) => switch.attend(epoch, attention),
                Switch::Tofino(switch) => switch.attend(epoch, attention),
            }
            Outcome::Accepted
        };
        Some(encoded(&Message::Applied { effective_epoch: epoch, outcome }))
    }
}

/// What the frame of either side begins with. Nobody looks at a simulated switch's totals.
pub(super) fn side_head<'a>(
    epoch: u64,
    attention: &'a Attention,
    defects: &'a Defects,
    packets: u64,
) -> SideHead<'a> {
    SideHead { epoch, attention, defects, packets, counters: &[] }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}
