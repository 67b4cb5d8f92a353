//! A node in the simulation: a switch of either kind under a clock of its own, and the conversation
//! with the controller that live switches have, over a pipe.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use calumma_chamelemon::frames::{self, SessionPlan, SwitchSession};
use calumma_edge::control::LEAD_NS;
use calumma_edge::control::systems::What;
use calumma_plane::system::System;
use calumma_plane::{Counters, MarkedRun};
use calumma_sketch::{KeyKind, WideKey};
use calumma_switch_host::{
    Conversation, Identity, MOST_HELD, Measurer, Pipe, Session, SystemOffer,
};
use calumma_wire::{Marking, Offer, Role, Side, SwitchKind, SystemId};

use super::clock::SwitchClock;
use super::network::Bytes;
use super::software::Software;
use super::tofino::Tofino;
use crate::topology::{EdgeKind, Topology};

/// A switch: an edge, or a transit.
pub(super) struct Node {
    pub(super) clock: SwitchClock,
    switch: Switch,
    conversation: Conversation<Pipe>,
    /// True time at which its switch has something to do next.
    pub(super) due_ns: u64,
    /// Counts the times it was started: what was due for an earlier one is void.
    pub(super) start: u32,
}

#[derive(Debug)]
enum Switch {
    Software(Box<Software>),
    Tofino(Box<Hardware>),
}

/// A Tofino switch, and what it measures by; nothing before the first session.
#[derive(Debug)]
struct Hardware {
    switch: Tofino,
    session: Option<SwitchSession>,
    /// By how much the clock was set that has ended the session, in nanoseconds.
    clock_set: Option<i64>,
}

impl Hardware {
    /// The clock was set: where that is beyond the guard, the session is over.
    fn clock_set(&mut self, by_ns: i64) {
        let guard_ns = self.session.as_ref().map(|session| session.plan().clock.guards().clock_ns);
        if guard_ns.is_some_and(|guard_ns| by_ns.unsigned_abs() > guard_ns) {
            self.switch.end();
            self.clock_set = Some(by_ns);
        }
    }
}

/// What a Tofino switch has finished.
pub(super) enum Finished {
    /// A side of an epoch.
    Side(Side),
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// The epoch.
        epoch: u64,
        /// Packets that came too late.
        late_packets: u64,
    },
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("clock", &self.clock).field("switch", &self.switch).finish()
    }
}

impl Node {
    /// A node that has just been started, for the `start`th time after the first. Where it is a
    /// software switch, it runs those of `known` that run in its role.
    pub(super) fn new(
        (name, role, kind): (&str, Role, SwitchKind),
        known: &'static [&'static dyn System],
        clock: SwitchClock,
        start: u32,
    ) -> Self {
        let switch = match kind {
            SwitchKind::Software => Switch::Software(Box::new(Software::new(known, role))),
            SwitchKind::Tofino => Switch::Tofino(Box::new(Hardware {
                switch: Tofino::new(),
                session: None,
                clock_set: None,
            })),
        };
        let identity = Identity {
            node: name.to_owned(),
            role,
            kind,
            program: concat!("calumma-testbed ", env!("CARGO_PKG_VERSION")).to_owned(),
            marking: Marking::default(),
        };
        let conversation = Conversation::over(Pipe::new(), identity, MOST_HELD);
        Self { clock, switch, conversation, due_ns: 0, start }
    }

    /// Sets its clock, which the switch notices at once.
    pub(super) fn set_clock(&mut self, clock: SwitchClock, now_ns: u64) {
        let (before_ns, shown_ns) = (self.clock.at(now_ns), clock.at(now_ns));
        let by_ns = shown_ns.wrapping_sub(before_ns).cast_signed();
        self.clock = clock;
        match &mut self.switch {
            Switch::Software(software) => software.clock_set(by_ns, shown_ns),
            Switch::Tofino(hardware) => hardware.clock_set(by_ns),
        }
        self.converse(now_ns);
    }

    /// A connection to the controller is set up.
    pub(super) fn connect(&mut self, now_ns: u64) {
        self.conversation.transport_mut().connect();
        self.converse(now_ns);
    }

    /// The connection to the controller has broken.
    pub(super) fn cut_off(&mut self, now_ns: u64) {
        self.conversation.transport_mut().disconnect();
        self.converse(now_ns);
    }

    /// Receives bytes from the controller.
    pub(super) fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        self.conversation.transport_mut().deliver(bytes);
        self.converse(now_ns);
    }

    fn converse(&mut self, now_ns: u64) {
        let shown_ns = self.clock.at(now_ns);
        self.conversation.transport_mut().set_now(shown_ns);
        match &mut self.switch {
            Switch::Software(software) => {
                self.conversation.step(shown_ns, &mut software.systems);
            }
            Switch::Tofino(hardware) => self.conversation.step(shown_ns, &mut **hardware),
        }
    }

    /// What it has sent to the controller, frame by frame.
    pub(super) fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.conversation.transport_mut().take_sent()
    }

    /// After how long it tries to connect again, where it has closed the connection.
    pub(super) fn take_retry(&mut self) -> Option<Duration> {
        self.conversation.transport_mut().take_retry()
    }

    /// What its clock shows when its switch has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        match &self.switch {
            Switch::Software(switch) => switch.next_due_ns(),
            Switch::Tofino(hardware) => hardware.switch.next_due_ns(),
        }
    }

    /// Does what is due at true time `now_ns`, one event after the other, so that groups come back
    /// in time for the next one, and sends what is finished.
    ///
    /// # Errors
    /// When the P4 program refuses an entry, which it never does.
    pub(super) fn run_until(&mut self, now_ns: u64) -> Result<()> {
        let shown_ns = self.clock.at(now_ns);
        while self.next_due_ns() <= shown_ns {
            match &mut self.switch {
                Switch::Software(software) => {
                    for finished in software.step(shown_ns) {
                        let system = finished.system.offer().system;
                        match finished.what {
                            // Nobody looks at a simulated switch's totals.
                            What::Side { side, .. } => self.conversation.side(side),
                            What::Sealed { epoch, late_packets, body } => {
                                self.conversation.sealed(system, epoch, (late_packets, body))
                            }
                        };
                    }
                }
                Switch::Tofino(hardware) => {
                    let Hardware { switch, session, .. } = &mut **hardware;
                    for finished in switch.step(session.as_ref(), shown_ns)? {
                        match finished {
                            Finished::Side(side) => self.conversation.side(side),
                            Finished::Sealed { epoch, late_packets } => {
                                let seal = (late_packets, Vec::new());
                                self.conversation.sealed(frames::ID, epoch, seal)
                            }
                        };
                    }
                }
            }
        }
        self.conversation.flush();
        Ok(())
    }

    /// A packet enters the network here, and gets its mark.
    pub(super) fn ingress(&mut self, packet: &mut Bytes) {
        match &mut self.switch {
            Switch::Software(switch) => switch.ingress(packet),
            Switch::Tofino(hardware) => hardware.switch.ingress(packet),
        }
    }

    /// A packet leaves the network here.
    pub(super) fn egress(&mut self, packet: &mut Bytes) {
        match &mut self.switch {
            Switch::Software(switch) => switch.egress(packet),
            Switch::Tofino(hardware) => hardware.switch.egress(packet),
        }
    }

    /// A burst of packets passes from fabric to fabric; those that are `accepted`, by position, go
    /// on.
    pub(super) fn pass(&mut self, packets: &mut [Bytes], accepted: impl Fn(usize) -> bool) {
        match &mut self.switch {
            Switch::Software(switch) => switch.pass(packets, accepted),
            // No system runs on a Tofino between other switches, and topologies have none there.
            Switch::Tofino(_) => {}
        }
    }

    /// Packets of a flow enter the network here, back to back.
    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        match &mut self.switch {
            Switch::Software(switch) => switch.enter_run(key, packets),
            Switch::Tofino(hardware) => hardware.switch.enter_run(key, packets),
        }
    }

    /// What is left of a run leaves the network here.
    pub(super) fn leave_run(&mut self, key: &WideKey, marked: MarkedRun) {
        match &mut self.switch {
            Switch::Software(switch) => switch.leave_run(key, marked),
            Switch::Tofino(hardware) => hardware.switch.leave_run(key, marked),
        }
    }

    /// Whether it takes the marks out of packets of a flow: without a session, an edge does not
    /// know whether those of IPv6 are marked.
    pub(super) fn takes_marks_of(&self, key: &WideKey) -> bool {
        let is_ipv4 = key.src().to_ipv4_mapped().is_some();
        let measures_ipv6 = match &self.switch {
            Switch::Software(switch) => switch.keys() == Some(KeyKind::Dual),
            Switch::Tofino(_) => false,
        };
        is_ipv4 || measures_ipv6
    }

    /// Its totals, where it is a software switch.
    pub(super) fn counters(&self) -> Option<&Counters> {
        match &self.switch {
            Switch::Software(switch) => Some(switch.counters()),
            Switch::Tofino(_) => None,
        }
    }
}

/// What a Tofino offers: it records nothing beside the sketches.
const OFFER: Offer = Offer { highest: frames::OLDEST_VERSION, ..frames::OFFER };

impl Measurer for Hardware {
    fn systems(&self) -> Vec<SystemOffer> {
        vec![SystemOffer { offer: OFFER, held: true }]
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let holding = self.session.iter().map(|session| session.holding().encode());
        holding.map(|holding| (frames::ID, holding)).collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let setup = session.setup_of(frames::ID).ok_or("nothing else runs on this switch")?;
        let Session { hash_key, clock, first_epoch, .. } = session;
        let plan = SessionPlan::decode(setup, hash_key, *clock, *first_epoch)?;
        self.switch.begin(&plan).map_err(|problem| format!("{problem:#}"))?;
        self.session = Some(SwitchSession::new(plan));
        Ok(())
    }

    fn check(&self, _: SystemId, plan: &[u8]) -> Result<(), String> {
        let session = self.session.as_ref().ok_or("it is not measuring")?;
        session.check(plan).map(drop)
    }

    fn reconfigure(&mut self, _: SystemId, epoch: u64, plan: &[u8]) {
        let Some(session) = &mut self.session else { return };
        let Ok(attention) = session.check(plan) else { return };
        self.switch.attend(epoch, attention);
        session.accept(epoch, attention);
    }

    fn take_clock_set(&mut self) -> Option<i64> {
        self.clock_set.take()
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}

/// Name, role and kind of the node at position `node`.
pub(super) fn identity(topology: &Topology, node: usize) -> (&str, Role, SwitchKind) {
    match (topology.edges().get(node), topology.kinds().get(node)) {
        (Some(name), Some(EdgeKind::Software)) => (name, Role::Edge, SwitchKind::Software),
        (Some(name), _) => (name, Role::Edge, SwitchKind::Tofino),
        (None, _) => {
            let switch = topology.transits().nth(node - topology.edges().len());
            let name = switch.map_or("", |switch| &topology.names()[switch]);
            (name, Role::Transit, SwitchKind::Software)
        }
    }
}

/// The nodes that the controller expects.
pub(super) fn expected(topology: &Topology) -> Vec<Arc<calumma_analysis::Node>> {
    let nodes = topology.edges().len() + topology.transits().count();
    let node = |at: usize| {
        let (name, role, _) = identity(topology, at);
        let id = u16::try_from(at + 1).unwrap_or(u16::MAX);
        Arc::new(calumma_analysis::Node { name: name.to_owned(), role, id })
    };
    (0..nodes).map(node).collect()
}
