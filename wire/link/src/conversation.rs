//! What a switch says to the controller and does at its word.

use std::collections::HashMap;
use std::time::Duration;

use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::EpochClock;
use calumma_sketch::{FermatSketch, HashFamily, HashKey, Key, TowerSketch};
use calumma_wire::{
    Defects, Holding, Marking, Message, Outcome, SideHead, SwitchKind, encode_egress,
    encode_ingress,
};
use tracing::{error, info, warn};

use crate::link::Link;
use crate::unix_ns;

/// Under this name switches count the frames that were given up since no controller took them.
pub const UNDELIVERED: &str = "undelivered.frames";

/// What a session measures by: all that the controller's welcome says.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Memory of the sketches.
    pub layout: Layout,
    /// Secret of the deployment.
    pub hash_key: HashKey,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// The attention that holds from it on.
    pub attention: Attention,
}

/// The part of a switch that measures.
pub trait Measurer {
    /// What keeps it from measuring by a plan.
    type Error: std::fmt::Display;

    /// Begins a session; an earlier one ends.
    ///
    /// # Errors
    /// When the switch can't measure by this plan; an earlier session goes on then.
    fn begin(&mut self, plan: &SessionPlan) -> Result<(), Self::Error>;

    /// Lets `attention` hold from `epoch` on. It has been checked, and comes
    /// [`lead_ns`](Self::lead_ns) ahead of the epoch's arming.
    fn attend(&mut self, epoch: u64, attention: Attention);

    /// How long before an epoch is armed its attention must be known, in nanoseconds.
    fn lead_ns(&self) -> u64;

    /// How long it takes from a plan to measuring, in nanoseconds.
    fn setup_ns(&self) -> u64;
}

/// Who a switch is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The edge's name, by which the controller expects it.
    pub edge: String,
    /// What kind of switch it is.
    pub kind: SwitchKind,
    /// Its program and version.
    pub program: String,
    /// How it marks and reads packets.
    pub marking: Marking,
}

/// The ingress side of an epoch, to be told to the controller.
#[derive(Clone, Copy, Debug)]
pub struct IngressSide<'a, K: Key> {
    /// The epoch.
    pub epoch: u64,
    /// The attention that it was measured under.
    pub attention: &'a Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that were recorded.
    pub packets: u64,
    /// The flow classifier.
    pub classifier: &'a TowerSketch,
    /// The upstream flow encoder.
    pub upstream: &'a FermatSketch<K>,
}

/// The egress side of an epoch, to be told to the controller.
#[derive(Clone, Copy, Debug)]
pub struct EgressSide<'a, K: Key> {
    /// The epoch.
    pub epoch: u64,
    /// The attention that it was measured under.
    pub attention: &'a Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that were recorded.
    pub packets: u64,
    /// The downstream flow encoder.
    pub downstream: &'a FermatSketch<K>,
}

/// What an ingress side took to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Told {
    /// Bytes of its frame.
    pub bytes: usize,
    /// Flows that stand in it for the HH encoder's buckets; `None` where it does not decode.
    pub hh_flows: Option<usize>,
}

/// The conversation of one switch with whichever controller there is.
pub struct Conversation {
    identity: Identity,
    link: Link,
    session: Option<Session>,
    /// The totals that this controller was told last.
    told: HashMap<String, u64>,
}

/// What is measured by at present.
struct Session {
    plan: SessionPlan,
    family: HashFamily,
    /// The attention accepted last.
    holding: Holding,
}

impl Conversation {
    /// A conversation with the controller at `address` (host and port), not connected yet. Of what is
    /// measured, the newest `most_held` bytes are held for a controller that is slow or away.
    pub fn new(identity: Identity, address: String, most_held: usize) -> Self {
        let link = Link::new(address, most_held);
        Self { identity, link, session: None, told: HashMap::new() }
    }

    /// Connects where it is due, hears what the controller says and answers.
    pub fn step(&mut self, now_ns: u64, measurer: &mut impl Measurer) {
        if self.link.connect_if_due() {
            info!(controller = self.link.address(), "connected");
            self.told.clear();
            let Identity { edge, kind, program, marking } = self.identity.clone();
            let holding = self.session.as_ref().map(|session| session.holding);
            self.link.send(&Message::Hello { edge, kind, program, holding, marking });
        }
        match self.link.receive() {
            Ok(messages) => {
                messages.into_iter().for_each(|message| self.hear(message, now_ns, measurer));
            }
            Err(problem) => {
                warn!(
                    controller = self.link.address(),
                    "{problem}; measuring goes on, trying again"
                );
            }
        }
        // The answers, before there is work to do that the controller's clock would see.
        self.link.flush();
    }

    fn hear(&mut self, message: Message, now_ns: u64, measurer: &mut impl Measurer) {
        match message {
            Message::Welcome {
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => {
                let clock = match EpochClock::new(epoch_length_ns, guards) {
                    Ok(clock) => clock,
                    Err(problem) => {
                        return error!("the controller's epochs can't be kept: {problem}");
                    }
                };
                let same = self.session.as_ref().is_some_and(|Session { plan, .. }| {
                    plan.layout == layout && plan.hash_key == hash_key && plan.clock == clock
                });
                self.link.queue.open();
                if same {
                    info!("the controller is back; measuring goes on");
                    self.reconfigure(effective_epoch, attention, now_ns, measurer);
                    return;
                }
                self.link.queue.give_up();
                let ready_ns = now_ns + measurer.setup_ns();
                let first_epoch = effective_epoch.max(clock.epoch_at(ready_ns) + 2);
                let family = HashFamily::new(&hash_key);
                let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
                match measurer.begin(&plan) {
                    Ok(()) => {
                        info!(first_epoch, epoch_ms = epoch_length_ns / 1_000_000, "measuring");
                        let holding = Holding { attention, effective_epoch: first_epoch };
                        self.session = Some(Session { plan, family, holding });
                    }
                    Err(problem) => {
                        let problem =
                            format!("can't measure by the controller's layout: {problem}");
                        error!(controller = self.link.address(), "{problem}");
                        self.decline(effective_epoch, &problem);
                    }
                }
            }
            Message::Probe { sent_ns } => {
                let answered_ns = unix_ns();
                self.link.send(&Message::Echo { sent_ns, received_ns: now_ns, answered_ns });
            }
            Message::Reported { epoch } => self.link.queue.reported(epoch),
            Message::Reconfigure { effective_epoch, attention } => {
                self.reconfigure(effective_epoch, attention, now_ns, measurer);
            }
            Message::Refused { reason } => {
                error!(controller = self.link.address(), "refused by the controller: {reason}");
                self.link.back_off();
            }
            other => warn!("the controller sent a {} frame, which no edge expects", other.name()),
        }
    }

    fn reconfigure(
        &mut self,
        effective_epoch: u64,
        attention: Attention,
        now_ns: u64,
        measurer: &mut impl Measurer,
    ) {
        let Some(Session { plan, holding, .. }) = &mut self.session else { return };
        if attention == holding.attention {
            return;
        }
        let ahead_ns = plan.clock.guards().clock_ns + measurer.lead_ns();
        let earliest = plan.clock.epoch_at(now_ns + ahead_ns) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if effective_epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            measurer.attend(effective_epoch, attention);
            *holding = Holding { attention, effective_epoch };
            Outcome::Accepted
        };
        self.link.send(&Message::Applied { effective_epoch, outcome });
    }

    /// Tells the controller what keeps this switch from measuring as it should from `epoch` on.
    pub fn decline(&mut self, epoch: u64, problem: &impl std::fmt::Display) {
        let outcome = Outcome::Invalid { reason: problem.to_string() };
        self.link.send(&Message::Applied { effective_epoch: epoch, outcome });
    }

    /// The controller's address, host and port.
    pub fn address(&self) -> &str {
        self.link.address()
    }

    /// Whether a connection to the controller stands.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Bytes of frames that are held for the controller.
    pub fn held_bytes(&self) -> usize {
        self.link.queue.held_bytes()
    }

    /// Frames given up for lack of memory, or since a new session began.
    pub fn given_up(&self) -> u64 {
        self.link.queue.given_up()
    }

    /// What is measured by, and the attention accepted last; `None` before the first session.
    pub fn session(&self) -> Option<(&SessionPlan, Holding)> {
        self.session.as_ref().map(|session| (&session.plan, session.holding))
    }

    /// Tells the ingress side of an epoch, with those of the switch's totals that changed: an idle
    /// switch has nothing to tell. Does nothing before the first session.
    pub fn ingress<K: Key>(
        &mut self,
        side: &IngressSide<K>,
        mut totals: Vec<(String, u64)>,
    ) -> Told {
        let Some(Session { family, .. }) = &self.session else { return Told::default() };
        totals.push((UNDELIVERED.to_owned(), self.given_up()));
        totals.retain(|(name, total)| self.told.insert(name.clone(), *total) != Some(*total));
        let head = SideHead {
            epoch: side.epoch,
            attention: side.attention,
            defects: &side.defects,
            packets: side.packets,
            counters: &totals,
        };
        let flows = if side.defects.mixed_attention { None } else { hh_flows(side, family) };
        let mut frame = Vec::new();
        encode_ingress(&mut frame, &head, side.classifier, side.upstream, flows.as_deref());
        Told { bytes: self.hold(side.epoch, frame), hh_flows: flows.map(|flows| flows.len()) }
    }

    /// Tells the egress side of an epoch; gives the bytes it takes.
    pub fn egress<K: Key>(&mut self, side: &EgressSide<K>) -> usize {
        let head = SideHead {
            epoch: side.epoch,
            attention: side.attention,
            defects: &side.defects,
            packets: side.packets,
            counters: &[],
        };
        let mut frame = Vec::new();
        encode_egress(&mut frame, &head, side.downstream);
        self.hold(side.epoch, frame)
    }

    /// Tells that no packet of the epoch can be recorded any more, and how many came too late; gives
    /// the bytes it takes.
    pub fn sealed(&mut self, epoch: u64, late_packets: u64) -> usize {
        let mut frame = Vec::new();
        Message::Sealed { epoch, late_packets }.encode(&mut frame);
        self.hold(epoch, frame)
    }

    fn hold(&mut self, epoch: u64, frame: Vec<u8>) -> usize {
        let bytes = frame.len();
        self.link.queue.hold(epoch, frame);
        bytes
    }

    /// Sends as much as the connection takes.
    pub fn flush(&mut self) {
        self.link.flush();
    }

    /// Waits until the controller says something, for `most` at the longest.
    pub fn wait(&self, most: Duration) {
        self.link.wait(most);
    }

    /// Sends what is still waiting, for `most` and never more than a second. Gives how many frames about
    /// epochs no controller took, as [`given_up`](Self::given_up) and since.
    pub fn finish(self, most: Duration) -> u64 {
        self.link.finish(most)
    }
}

/// All that the HH encoder holds, where it decodes. Flows take half the bytes of its buckets, and
/// every edge that decodes its own saves the controller from decoding all of them.
fn hh_flows<K: Key>(side: &IngressSide<K>, family: &HashFamily) -> Option<Vec<(K, i64)>> {
    let decoded = side.upstream.part(&side.attention.partition.hh_part()).decode(family);
    let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
    let complete = decoded.is_complete() && decoded.flows().iter().all(countable);
    complete.then(|| decoded.flows().to_vec())
}
