//! What a switch sends to the controller, and what it does at the controller's request.

use std::time::Duration;

use calumma_epoch::EpochClock;
use calumma_trust::TlsFiles;
use calumma_wire::parts::{VERSION as PARTS, in_parts};
use calumma_wire::{
    Domain, Hello, Marking, Message, Offer, Outcome, PathsWanted, Role, Secret, Side, SwitchKind,
    SystemId, SystemSetup, VERSION, Welcome, v5,
};
use tracing::{error, info, warn};

use crate::link::Link;
use crate::totals::Totals;
use crate::transport::{Tcp, Transport};

/// Under this name switches count the frames that were discarded since no controller received them.
pub const UNDELIVERED: &str = "undelivered.frames";

/// What a session measures by: all that the controller's welcome says.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The node's number, never 0; `None` from a controller that gives out none.
    pub node_id: Option<u16>,
    /// Secret of the deployment.
    pub hash_key: Secret,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// The systems to run, each with its setup and the plan of the first epoch.
    pub systems: Vec<SystemSetup>,
    /// Whose packets are measured.
    pub domain: Domain,
    /// By which carrier packets are marked, in the words of [`Marking::carrier`].
    pub carrier: String,
}

impl Session {
    /// The setup of a system; `None` where it is not to run.
    pub fn setup_of(&self, system: SystemId) -> Option<&SystemSetup> {
        self.systems.iter().find(|setup| setup.system == system)
    }

    /// Whether this session can go on as the other: they differ in nothing but the hash key, plans,
    /// their first epoch, and systems that only one of them has. Another carrier is another
    /// session.
    fn goes_on_as(&self, other: &Self) -> bool {
        let known = self.node_id.is_some() && other.node_id.is_some();
        let same = |of: &SystemSetup, new: &SystemSetup| {
            (of.version, &of.setup) == (new.version, &new.setup)
        };
        (!known || self.node_id == other.node_id)
            && self.clock == other.clock
            && self.domain == other.domain
            && self.carrier == other.carrier
            && self
                .systems
                .iter()
                .all(|of| other.setup_of(of.system).is_none_or(|new| same(of, new)))
    }

    /// Whether both run the same systems.
    fn runs_the_same(&self, other: &Self) -> bool {
        let has = |session: &Self, of: &SystemSetup| session.setup_of(of.system).is_some();
        self.systems.iter().all(|of| has(other, of)) && other.systems.iter().all(|of| has(self, of))
    }
}

/// A system that a switch offers to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemOffer {
    /// The system and its versions.
    pub offer: Offer,
    /// Whether its frames are held for a controller that is away; else they are discarded then.
    pub held: bool,
}

/// The part of a switch that measures.
pub trait Measurer {
    /// The systems that it can run.
    fn systems(&self) -> Vec<SystemOffer>;

    /// What it measures by already, in each system's own format.
    fn holding(&self) -> Vec<(SystemId, Vec<u8>)>;

    /// Begins a session; an earlier one ends.
    ///
    /// # Errors
    /// Why the switch can't measure by this session; an earlier one goes on then, until its systems
    /// are [removed](Self::remove).
    fn begin(&mut self, session: &Session) -> Result<(), String>;

    /// Whether it can let systems join and leave a session under way, and go on by another hash
    /// key; else another list of systems or another key is another session.
    fn switches_systems(&self) -> bool {
        false
    }

    /// Goes on by the hash key of `session` from its first epoch on: by it marks are signed, and
    /// those of its systems measure that hash. The others go on as they are. Gives the systems that
    /// can't, and why.
    fn rekey(&mut self, session: &Session) -> Vec<(SystemId, String)> {
        let problem = "this switch can't change its hash key within a session";
        session.systems.iter().map(|of| (of.system, problem.to_owned())).collect()
    }

    /// Lets a system join the session under way, to measure from `session`'s first epoch on.
    ///
    /// # Errors
    /// Why the switch can't run it.
    fn add(&mut self, _session: &Session, _setup: &SystemSetup) -> Result<(), String> {
        Err("systems can't join a session on this switch".to_owned())
    }

    /// Lets a system leave the session under way: it measures no epoch from `end` on.
    fn remove(&mut self, _system: SystemId, _end: u64) {}

    /// Checks a plan of a system of this session.
    ///
    /// # Errors
    /// Why it can't hold on this switch.
    fn check(&self, system: SystemId, plan: &[u8]) -> Result<(), String>;

    /// Lets a plan hold from `epoch` on. It has been [checked](Self::check), and comes
    /// [`lead_ns`](Self::lead_ns) ahead of the epoch's arming.
    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]);

    /// Plans by which systems go on though no controller has accepted them, of a switch that has
    /// had none for `alone_ns`: each is held like a plan of the controller's.
    fn alone(&self, _alone_ns: u64) -> Vec<(SystemId, Vec<u8>)> {
        Vec::new()
    }

    /// What the controller wants to know of paths, of a switch that offers
    /// [`SystemId::PROBES`]; `None` once it is gone.
    fn want_paths(&mut self, _wanted: Option<PathsWanted>) {}

    /// By how many nanoseconds the clock was set that is measured by, negative where it was set
    /// back, where that was more than the clock guard; once. Nothing is measured from then on,
    /// until a session [begins](Self::begin).
    fn take_clock_set(&mut self) -> Option<i64>;

    /// How long before an epoch is armed its plans must be known, in nanoseconds.
    fn lead_ns(&self) -> u64;

    /// How long it takes from a session's begin to measuring, in nanoseconds.
    fn setup_ns(&self) -> u64;
}

/// Who a switch is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node's name, by which the controller expects it.
    pub node: String,
    /// What it does in the network.
    pub role: Role,
    /// What kind of switch it is.
    pub kind: SwitchKind,
    /// Its program and version.
    pub program: String,
    /// How it marks and reads packets: where it leaves the carrier to the controller, by that which
    /// it takes where nobody chooses.
    pub marking: Marking,
}

/// The conversation of one switch with whichever controller there is.
pub struct Conversation<T = Tcp> {
    identity: Identity,
    link: Link<T>,
    offers: Vec<SystemOffer>,
    session: Option<Active>,
    /// Whether the controller has welcomed this switch on this connection.
    welcomed: bool,
    /// The totals that this controller knows.
    totals: Totals,
    /// The time of the last step, and for how long no controller has been there then.
    alone: (u64, u64),
}

/// The session under way.
struct Active {
    session: Session,
    /// The plan accepted last, of each system.
    plans: Vec<(SystemId, Vec<u8>)>,
}

impl Conversation {
    /// A conversation with the controller at `address` (host and port), by TLS where there are
    /// files for it, not connected yet. Of what is measured, the newest `most_held` bytes are held
    /// for a controller that is slow or away.
    pub fn new(
        identity: Identity,
        address: String,
        tls: Option<TlsFiles>,
        most_held: usize,
    ) -> Self {
        Self::over(Tcp::new(address, tls), identity, most_held)
    }
}

impl<T: Transport> Conversation<T> {
    /// The same over another transport.
    pub fn over(transport: T, identity: Identity, most_held: usize) -> Self {
        let link = Link::new(transport, most_held);
        let (offers, session, totals, alone) = Default::default();
        Self { identity, link, offers, session, welcomed: false, totals, alone }
    }

    /// What carries it.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.link.transport
    }

    /// Connects where it is due, receives what the controller has sent and answers.
    pub fn step(&mut self, now_ns: u64, measurer: &mut impl Measurer) {
        if let Some(by_ns) = measurer.take_clock_set() {
            self.begin_anew(by_ns, now_ns, measurer);
        }
        if self.link.connect_if_due() {
            info!(controller = self.address(), "connected");
            self.totals.clear();
            self.welcomed = false;
            self.offers = measurer.systems();
            let hello = self.hello(measurer);
            self.link.send(&hello);
        }
        match self.link.receive() {
            Ok(messages) => {
                for (version, message) in messages {
                    self.on_message(version, message, now_ns, measurer);
                }
            }
            Err(problem) => {
                measurer.want_paths(None);
                warn!(controller = self.address(), "{problem}; measuring goes on, trying again");
            }
        }
        // The answers, before there is work to do that the controller's clock would see.
        self.link.flush();
        self.go_on_alone(now_ns, measurer);
    }

    /// Lets systems go on by plans of their own where no controller has been there for long. Steps
    /// by which the clock was set back don't count.
    fn go_on_alone(&mut self, now_ns: u64, measurer: &mut impl Measurer) {
        let (last_ns, alone_ns) = self.alone;
        if self.is_connected() && self.welcomed {
            self.alone = (now_ns, 0);
            return;
        }
        let passed_ns = if last_ns == 0 { 0 } else { now_ns.saturating_sub(last_ns) };
        self.alone = (now_ns, alone_ns.saturating_add(passed_ns));
        let Some(Active { session, plans }) = &mut self.session else { return };
        for (system, plan) in measurer.alone(self.alone.1) {
            let accepted = plans.iter_mut().find(|(id, _)| *id == system);
            let Some((_, accepted)) = accepted.filter(|(_, accepted)| *accepted != plan) else {
                continue;
            };
            let ahead_ns = session.clock.guards().clock_ns + measurer.lead_ns();
            let epoch = session.clock.epoch_at(now_ns + ahead_ns) + 1;
            warn!(epoch, "no controller for long: {system} goes on by a plan of its own");
            measurer.reconfigure(system, epoch, &plan);
            *accepted = plan;
        }
    }

    fn hello(&self, measurer: &impl Measurer) -> Message {
        let Identity { node, role, kind, program, mut marking } = self.identity.clone();
        if let Some(Active { session, .. }) = &self.session {
            marking.carrier.clone_from(&session.carrier);
        }
        let systems = measurer.systems().iter().map(|of| of.offer).collect();
        let holding = measurer.holding();
        Message::Hello(Box::new(Hello { node, role, kind, program, marking, systems, holding }))
    }

    /// Begins the session anew, since the clock was set that it was measured by. What it has
    /// measured before is of another time, and discarded as far as it is held.
    fn begin_anew(&mut self, by_ns: i64, now_ns: u64, measurer: &mut impl Measurer) {
        let Some(Active { session, plans }) = &mut self.session else { return };
        self.link.queue.discard();
        session.first_epoch = session.clock.first_after_step(now_ns + measurer.setup_ns());
        for of in &mut session.systems {
            if let Some((_, plan)) = plans.iter().find(|(system, _)| *system == of.system) {
                of.plan.clone_from(plan);
            }
        }
        let first_epoch = session.first_epoch;
        let (way, by_ms) =
            (if by_ns < 0 { "back" } else { "ahead" }, by_ns.unsigned_abs() as f64 / 1e6);
        warn!(first_epoch, "the clock was set {way} by {by_ms:.1} ms; measuring begins anew");
        if let Err(problem) = measurer.begin(session) {
            let problem = format!("can't measure since the clock was set: {problem}");
            error!("{problem}");
            let systems: Vec<_> = session.systems.iter().map(|of| of.system).collect();
            systems.into_iter().for_each(|of| self.decline(of, first_epoch, &problem));
        }
    }

    fn on_message(
        &mut self,
        version: u8,
        message: Message,
        now_ns: u64,
        measurer: &mut impl Measurer,
    ) {
        match message {
            Message::Welcome(welcome) => self.on_welcome(*welcome, now_ns, measurer),
            Message::Probe { sent_ns } => {
                let answered_ns = self.link.transport.now_ns();
                self.link.send(&Message::Echo { sent_ns, received_ns: now_ns, answered_ns });
            }
            Message::Reported { epoch } => self.link.queue.reported(epoch),
            Message::PathsWanted(wanted) => measurer.want_paths(Some(*wanted)),
            Message::Reconfigure { system, effective_epoch, plan } => {
                self.reconfigure(system, effective_epoch, &plan, now_ns, measurer);
            }
            Message::Refused { reason } => {
                let older = version == v5::VERSION && self.link.version() == VERSION;
                if older && self.hello(measurer).encode_as(v5::VERSION, &mut Vec::new()) {
                    info!(
                        controller = self.address(),
                        "the controller is a release older; trying protocol version {version}"
                    );
                    return self.link.fall_back();
                }
                error!(controller = self.address(), "refused by the controller: {reason}");
                self.link.back_off();
            }
            other => warn!("the controller sent a {} frame, which no node expects", other.name()),
        }
    }

    fn on_welcome(&mut self, welcome: Welcome, now_ns: u64, measurer: &mut impl Measurer) {
        let Welcome { node_id, hash_key, epoch_length_ns, guards, .. } = welcome;
        let Welcome { effective_epoch, mut systems, domain, carrier, .. } = welcome;
        let is_parts = |of: &mut SystemSetup| of.system == SystemId::PARTS;
        let parts = systems.extract_if(.., is_parts).next();
        self.link.queue.take_parts(parts.is_some_and(|of| of.version == PARTS));
        let own = &self.identity.marking;
        let carrier = carrier.unwrap_or_else(|| own.carrier.clone());
        if !own.can(&carrier) {
            let problem =
                format!("packets are to be marked by {carrier:?}, which is not done here");
            return self.cannot(&systems, effective_epoch, &problem, now_ns, measurer);
        }
        let clock = match EpochClock::new(epoch_length_ns, guards) {
            Ok(clock) => clock,
            Err(problem) => return error!("the controller's epochs can't be kept: {problem}"),
        };
        let offers = |of: &SystemSetup| {
            let mut all = self.offers.iter().map(|of| of.offer).filter(|it| it.system == of.system);
            all.any(|it| (it.lowest..=it.highest).contains(&of.version))
        };
        let (systems, others): (Vec<_>, Vec<_>) = systems.into_iter().partition(offers);
        for of in others {
            let problem = format!("version {} of {} is not run here", of.version, of.system);
            self.decline(of.system, effective_epoch, &problem);
        }
        let ready_ns = now_ns + measurer.setup_ns();
        let first_epoch = effective_epoch.max(clock.epoch_at(ready_ns) + 2);
        let session = Session { node_id, hash_key, clock, first_epoch, systems, domain, carrier };
        self.link.queue.open();
        // Another key on the same connection is the next one. One that this switch comes back to
        // may have been changed while it was away: what it holds may be of no use.
        let is_first = !std::mem::replace(&mut self.welcomed, true);
        if let Some(Active { session: active, .. }) = &self.session {
            let same_key = active.hash_key == session.hash_key;
            if active.goes_on_as(&session)
                && (same_key || !is_first)
                && (same_key && active.runs_the_same(&session) || measurer.switches_systems())
            {
                return self.go_on(session, effective_epoch, now_ns, measurer);
            }
        }
        self.link.queue.discard();
        match measurer.begin(&session) {
            Ok(()) => {
                let epoch_ms = epoch_length_ns / 1_000_000;
                info!(first_epoch, epoch_ms, carrier = session.carrier, "measuring");
                let plan = |of: &SystemSetup| (of.system, of.plan.clone());
                let plans = session.systems.iter().map(plan).collect();
                self.session = Some(Active { session, plans });
            }
            Err(problem) => {
                let problem = format!("can't measure by the controller's setup: {problem}");
                self.cannot(&session.systems, effective_epoch, &problem, now_ns, measurer);
            }
        }
    }

    /// Declines all of a session that this switch can't measure by. The session before is over with
    /// it: the controller would take what is measured by that one for what it has asked for.
    fn cannot(
        &mut self,
        systems: &[SystemSetup],
        epoch: u64,
        problem: &str,
        now_ns: u64,
        measurer: &mut impl Measurer,
    ) {
        error!(controller = self.address(), "{problem}");
        if let Some(Active { session, .. }) = self.session.take() {
            self.link.queue.discard();
            let ahead_ns = session.clock.guards().clock_ns + measurer.lead_ns();
            let end = session.clock.epoch_at(now_ns + ahead_ns) + 1;
            session.systems.iter().for_each(|of| measurer.remove(of.system, end));
        }
        systems.iter().for_each(|of| self.decline(of.system, epoch, &problem));
    }

    /// Goes on with the session under way as `new`: systems leave and join it, others get their
    /// plans, or begin anew by another hash key.
    fn go_on(&mut self, new: Session, epoch: u64, now_ns: u64, measurer: &mut impl Measurer) {
        let Some(Active { session, plans }) = &mut self.session else { return };
        let ahead_ns = new.clock.guards().clock_ns + measurer.lead_ns();
        let switched = epoch.max(new.clock.epoch_at(now_ns + ahead_ns) + 1);
        let mut problems = Vec::new();
        session.node_id = new.node_id.or(session.node_id);
        session.systems.retain(|of| {
            let stays = new.setup_of(of.system).is_some();
            if !stays {
                info!(epoch = switched, "{} is switched off", of.system);
                measurer.remove(of.system, switched);
                plans.retain(|(id, _)| *id != of.system);
            }
            stays
        });
        let from = Session { first_epoch: switched, node_id: session.node_id, ..new };
        if from.hash_key != session.hash_key {
            info!(epoch = switched, "the hash key changes");
            session.hash_key = from.hash_key;
            let kept = from.systems.iter().filter(|of| session.setup_of(of.system).is_some());
            let kept = kept.cloned().collect();
            problems.extend(measurer.rekey(&Session { systems: kept, ..from.clone() }));
        }
        let mut known = Vec::new();
        for of in &from.systems {
            if session.setup_of(of.system).is_some() {
                known.push(of);
                continue;
            }
            match measurer.add(&from, of) {
                Ok(()) => {
                    info!(epoch = switched, "{} is switched on", of.system);
                    session.systems.push(of.clone());
                    plans.push((of.system, of.plan.clone()));
                }
                Err(problem) => problems.push((of.system, problem)),
            }
        }
        for of in known {
            self.reconfigure(of.system, epoch, &of.plan, now_ns, measurer);
        }
        for (system, problem) in problems {
            error!(controller = self.address(), "{system}: {problem}");
            self.decline(system, switched, &problem);
        }
    }

    fn reconfigure(
        &mut self,
        system: SystemId,
        effective_epoch: u64,
        plan: &[u8],
        now_ns: u64,
        measurer: &mut impl Measurer,
    ) {
        let Some(Active { session, plans }) = &mut self.session else { return };
        let Some((_, accepted)) = plans.iter_mut().find(|(id, _)| *id == system) else {
            return self.decline(system, effective_epoch, &format!("{system} is not run here"));
        };
        if accepted == plan {
            return;
        }
        let ahead_ns = session.clock.guards().clock_ns + measurer.lead_ns();
        let earliest = session.clock.epoch_at(now_ns + ahead_ns) + 1;
        let outcome = if let Err(reason) = measurer.check(system, plan) {
            Outcome::Invalid { reason }
        } else if effective_epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            measurer.reconfigure(system, effective_epoch, plan);
            *accepted = plan.to_vec();
            Outcome::Accepted
        };
        self.link.send(&Message::Applied { system, effective_epoch, outcome });
    }

    /// Tells the controller what keeps this switch from running a system as it should from `epoch`
    /// on.
    pub fn decline(&mut self, system: SystemId, epoch: u64, problem: &impl std::fmt::Display) {
        let outcome = Outcome::Invalid { reason: problem.to_string() };
        self.link.send(&Message::Applied { system, effective_epoch: epoch, outcome });
    }

    /// The controller's address, host and port.
    pub fn address(&self) -> &str {
        self.link.transport.address()
    }

    /// Whether a connection to the controller stands.
    pub fn is_connected(&self) -> bool {
        self.link.transport.is_connected()
    }

    /// Bytes of frames that are held for the controller.
    pub fn held_bytes(&self) -> usize {
        self.link.queue.held_bytes()
    }

    /// Frames discarded for lack of memory, or since a new session began.
    pub fn discarded(&self) -> u64 {
        self.link.queue.discarded()
    }

    /// What is measured by; `None` before the first session, and after one that this switch can't
    /// measure by.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref().map(|active| &active.session)
    }

    /// Sends a side of an epoch; gives the bytes it takes. Does nothing without a session.
    pub fn side(&mut self, side: Side) -> usize {
        if self.session.is_none() {
            return 0;
        }
        let (system, epoch) = (side.system, side.epoch);
        self.queue(system, epoch, &Message::Side(Box::new(side)))
    }

    /// The same with those of the switch's totals that changed, or that were in a frame which was
    /// discarded: an idle switch has none to send.
    pub fn side_with_totals(&mut self, mut side: Side, mut totals: Vec<(String, u64)>) -> usize {
        if self.session.is_none() {
            return 0;
        }
        totals.push((UNDELIVERED.to_owned(), self.discarded()));
        side.counters = self.totals.unknown(totals, self.link.queue.discarded());
        self.side(side)
    }

    /// Sends that no packet of the epoch can be recorded any more, how many came too late, and what
    /// else the system knows of these; gives the bytes it takes. Does nothing without a session.
    pub fn sealed(
        &mut self,
        system: SystemId,
        epoch: u64,
        (late_packets, body): (u64, Vec<u8>),
    ) -> usize {
        if self.session.is_none() {
            return 0;
        }
        self.queue(system, epoch, &Message::Sealed { system, epoch, late_packets, body })
    }

    fn queue(&mut self, system: SystemId, epoch: u64, message: &Message) -> usize {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let bytes = frame.len();
        let Some(frame) = in_parts(frame) else {
            error!("what {system} has of epoch {epoch} takes {bytes} bytes, which is too many");
            self.link.queue.drop_one();
            return 0;
        };
        let of = self.offers.iter().find(|of| of.offer.system == system);
        if of.is_none_or(|of| of.held) {
            self.link.queue.hold(epoch, frame);
        } else {
            self.link.queue.pass(frame);
        }
        bytes
    }

    /// Sends a message that is no part of an epoch; without a connection, it is dropped.
    pub fn tell(&mut self, message: &Message) {
        self.link.send(message);
    }

    /// Sends as much as the connection takes.
    pub fn flush(&mut self) {
        self.link.flush();
    }

    /// Waits until the controller sends something, for `most` at the longest.
    pub fn wait(&self, most: Duration) {
        self.link.transport.wait(most);
    }

    /// Sends what is still waiting, for `most` and never more than a second. Gives how many frames
    /// about epochs no controller received, [`discarded`](Self::discarded) ones included.
    pub fn finish(self, most: Duration) -> u64 {
        self.link.finish(most)
    }
}
