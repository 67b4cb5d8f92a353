//! One lcore's measurement as it goes through the epochs.
//!
//! A [`Measurement`] owns the systems' halves on its lcore, and through them their records; nothing is shared with
//! other lcores. Empty records and new plans come in through an inbox, finished records go out
//! through an outbox; both are bounded channels that are touched only when an event is due, and never
//! waited for. A packet pays one comparison a burst ([`Measurement::tick`]).
//!
//! Time is whatever the caller passes in: the system clock on a switch, a capture's timestamps in a
//! replay.

mod warming;

use std::any::Any;

use calumma_epoch::{Due, EpochClock, Event, Guards, Schedule};
use calumma_sketch::{AnyKey, Key, KeyKind, Keyed, either};
use crossbeam_channel::{Receiver, Sender};

use crate::counters::Counters;
use crate::system::{AnyRecord, Groups, LcoreSystem, LcoreSystems};

use self::warming::Warming;

/// How often an idle measurement looks into its inbox.
const IDLE_POLL_NS: u64 = 1_000_000;

/// Longest that the taking of an epoch is put off to empty receive queues first.
const MOST_DRAIN_NS: u64 = 2_000_000;

/// A flip that is late by this share of the guard for packets in flight waits no longer: the rest is theirs.
const LATE_SHARE: u64 = 10;

/// What the control thread sends to a measurement.
#[derive(Debug)]
pub enum ToLcore {
    /// Measure from an epoch on, as a new session; forget what was measured before.
    Begin(Box<Session>),
    /// Stop measuring.
    End,
    /// Empty records for an epoch to come.
    Groups {
        /// Position of their system in the session.
        system: usize,
        /// The records.
        groups: Groups,
    },
    /// A plan that takes effect at an epoch.
    Reconfigure {
        /// Position of its system in the session.
        system: usize,
        /// The epoch.
        epoch: u64,
        /// What holds from then on.
        plan: Box<dyn Any + Send>,
    },
}

/// Which packets of an epoch a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those that entered the network.
    Ingress,
    /// Those recorded by the timestamp bit they carried.
    ByBit,
}

/// What a measurement sends to the control thread.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "sent by an lcore, which must not allocate")]
pub enum FromLcore {
    /// One side of an epoch is finished.
    Side {
        /// Session it belongs to.
        session: u32,
        /// Position of its system in the session.
        system: usize,
        /// Epoch it measured.
        epoch: u64,
        /// Which side.
        side: Side,
        /// What was recorded.
        record: Box<dyn AnyRecord>,
        /// The lcore's totals at this moment.
        counters: Counters,
    },
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// Session it belongs to.
        session: u32,
        /// Position of the system in the session.
        system: usize,
        /// The epoch.
        epoch: u64,
        /// Packets of the epoch that came after it was taken.
        late_packets: u64,
    },
    /// A session is over: its memory, which is not for an lcore to free.
    Over(AnyKey<Sessions>),
}

/// What an lcore measures by, from one `Begin` to the next.
#[derive(Debug)]
pub struct Session {
    /// Number of the session, so that records of an earlier one are told apart.
    pub number: u32,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// The systems that are on, made for the keys that the session measures by.
    pub systems: AnyKey<LcoreSystems>,
}

/// The channels between the control thread and one measurement.
#[derive(Debug)]
pub struct Mailbox {
    /// From the control thread.
    pub inbox: Receiver<ToLcore>,
    /// To the control thread. Where it is full, what is finished is dropped; the controller then
    /// misses it and marks the epoch incomplete.
    pub outbox: Sender<FromLcore>,
}

/// One lcore's measurement. See the [module](self).
#[derive(Debug)]
pub struct Measurement {
    mailbox: Mailbox,
    next_ns: u64,
    active: Option<AnyKey<Sessions>>,
    /// What is left to do about the armed records' memory.
    warming: Option<Warming>,
}

/// Sessions under way, for one kind of key.
#[derive(Debug)]
pub enum Sessions {}

impl Keyed for Sessions {
    type Of<K: Key> = Active<K>;
}

/// A session under way.
#[derive(Debug)]
pub struct Active<K: Key> {
    session: u32,
    guards: Guards,
    clock: EpochClock,
    schedule: Schedule,
    /// The epoch that packets entering the network are stamped with.
    pub(crate) epoch: u64,
    pub(crate) systems: Vec<Box<dyn LcoreSystem<K>>>,
    /// Whether a system records packets that pass from fabric to fabric.
    pub(crate) transit: bool,
    /// When the lcore first saw that the next event is due, where that has to wait.
    due_since_ns: Option<u64>,
    /// The last epoch that is measured before the switch stops.
    last_epoch: Option<u64>,
}

/// What happened to the epochs before a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Nothing.
    Ordinary,
    /// Nothing, at an instant that was set before, as a flip's is: the control to compare flips with. Long
    /// interruptions are more likely to meet such an instant than any given burst.
    Instant,
    /// Nothing, but a millisecond of the lcore's clock was over: the clock is read, and what the control
    /// thread asks for is done.
    Millisecond,
    /// An epoch was armed, or taken.
    ArmOrTake,
    /// An epoch began.
    Flip,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Ordinary, Self::Instant, Self::Millisecond, Self::ArmOrTake, Self::Flip];

    /// As bursts at such a moment are called in metrics.
    pub fn bursts(self) -> &'static str {
        match self {
            Self::Ordinary => "burst",
            Self::Instant => "burst_at_instant",
            Self::Millisecond => "burst_at_millisecond",
            Self::ArmOrTake => "burst_at_arm_or_take",
            Self::Flip => "burst_at_flip",
        }
    }
}

/// How far a measurement that is about to stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Its last epoch runs, and everything goes on.
    LastEpoch,
    /// That epoch is over: packets on their way may still leave the network, but none may enter it.
    EgressOnly,
    /// All that was measured has been handed over.
    Done,
}

impl Measurement {
    /// A measurement that waits for its session.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, next_ns: 0, active: None, warming: None }
    }

    /// When something is due next, in nanoseconds since the Unix epoch.
    pub fn next_due_ns(&self) -> u64 {
        self.next_ns
    }

    /// By which keys packets are measured; `None` where there is no session.
    #[inline]
    pub fn keys(&self) -> Option<KeyKind> {
        self.active.as_ref().map(AnyKey::kind)
    }

    /// The session under way, if any.
    #[inline]
    pub(crate) fn active(&mut self) -> Option<&mut AnyKey<Sessions>> {
        self.active.as_mut()
    }

    /// Does what is due at `now_ns` (nanoseconds since the Unix epoch; must not run backwards).
    /// `drained` says that the receive queues were found empty since the last call: an epoch is taken
    /// only then, so that packets which arrived in time are recorded in time. Gives what happened to
    /// the epochs.
    #[inline]
    pub fn tick(&mut self, now_ns: u64, drained: bool, counters: &Counters) -> Moment {
        if self.warming.is_some() {
            self.warm_up(now_ns);
        }
        if now_ns < self.next_ns {
            Moment::Ordinary
        } else {
            self.on_due(now_ns, drained, counters)
        }
    }

    /// Fetches some of the armed records' memory: see [`Warming`].
    #[cold]
    fn warm_up(&mut self, now_ns: u64) {
        let (Some(warming), Some(active)) = (&mut self.warming, &mut self.active) else {
            self.warming = None;
            return;
        };
        for line in warming.due(now_ns) {
            either!(active, active => active.make_ready(line));
        }
        if warming.is_done() {
            self.warming = None;
        }
    }

    #[cold]
    fn on_due(&mut self, now_ns: u64, drained: bool, counters: &Counters) -> Moment {
        if let Some(active) = &mut self.active {
            either!(active, active => active.hand_over(&self.mailbox.outbox, counters));
        }
        // The burst of a flip has enough to wait for: the inbox is read before and after.
        let flips = |active: &AnyKey<Sessions>| either!(active, active => matches!(active.schedule.next(), Event::Flip(_)));
        if !self.active.as_ref().is_some_and(flips) {
            self.read_inbox();
        }
        let Some(active) = &mut self.active else {
            self.next_ns = now_ns + IDLE_POLL_NS;
            return Moment::Ordinary;
        };
        let outbox = &self.mailbox.outbox;
        let due = either!(active, active => active.on_due(now_ns, drained, outbox, counters));
        self.next_ns = due.next_ns;
        if due.moment != Moment::Ordinary {
            self.warming = due.armed.map(|(lines, at_ns)| Warming::new(lines, now_ns, at_ns));
        }
        due.moment
    }

    /// Lets the epoch under way be the last one, and says how far it has come. To be asked once a
    /// round until it is [done](Leaving::Done), which takes less than two epochs.
    #[cold]
    pub fn leave(&mut self) -> Leaving {
        let Some(active) = &mut self.active else { return Leaving::Done };
        let outbox = &self.mailbox.outbox;
        let leaving = either!(active, active => active.leave(outbox));
        if leaving == Leaving::Done {
            self.active = None;
        }
        leaving
    }

    fn read_inbox(&mut self) {
        while let Ok(message) = self.mailbox.inbox.try_recv() {
            match message {
                ToLcore::Begin(session) => self.replace(Some(begin(*session))),
                ToLcore::End => self.replace(None),
                ToLcore::Groups { system, groups } => {
                    if let Some(active) = &mut self.active {
                        either!(active, active => active.supply(system, groups));
                    }
                }
                ToLcore::Reconfigure { system, epoch, plan } => {
                    if let Some(active) = &mut self.active {
                        either!(active, active => active.reconfigure(system, epoch, plan));
                    }
                }
            }
        }
    }

    /// Puts another session in the place of the one under way, whose memory goes back.
    fn replace(&mut self, session: Option<AnyKey<Sessions>>) {
        self.warming = None;
        if let Some(before) = std::mem::replace(&mut self.active, session) {
            let _ = self.mailbox.outbox.try_send(FromLcore::Over(before));
        }
    }
}

fn begin(session: Session) -> AnyKey<Sessions> {
    let Session { number, clock, first_epoch, systems } = session;
    match systems {
        AnyKey::Ipv4(systems) => AnyKey::Ipv4(Active::new(number, clock, first_epoch, systems)),
        AnyKey::Dual(systems) => AnyKey::Dual(Active::new(number, clock, first_epoch, systems)),
    }
}

/// What [`Active::on_due`] has done.
struct Done {
    moment: Moment,
    /// When something is due next.
    next_ns: u64,
    /// Where records are armed: their cache lines, and when they come into use.
    armed: Option<(usize, u64)>,
}

impl<K: Key> Active<K> {
    fn new(
        session: u32,
        clock: EpochClock,
        first_epoch: u64,
        systems: Vec<Box<dyn LcoreSystem<K>>>,
    ) -> Self {
        Self {
            session,
            guards: clock.guards(),
            clock,
            schedule: Schedule::starting_with(clock, first_epoch),
            epoch: first_epoch.saturating_sub(1),
            transit: systems.iter().any(|system| system.wants_transit()),
            systems,
            due_since_ns: None,
            last_epoch: None,
        }
    }

    fn supply(&mut self, system: usize, groups: Groups) {
        if let Some(system) = self.systems.get_mut(system) {
            system.slots().supply(groups);
        }
    }

    fn reconfigure(&mut self, system: usize, epoch: u64, plan: Box<dyn Any + Send>) {
        if let Some(system) = self.systems.get_mut(system) {
            system.slots().reconfigure(epoch, plan);
        }
    }

    fn make_ready(&mut self, line: usize) {
        for system in &mut self.systems {
            system.slots().make_ready(line);
        }
    }

    /// Every event that is due and may happen now.
    fn on_due(
        &mut self,
        now_ns: u64,
        drained: bool,
        outbox: &Sender<FromLcore>,
        counters: &Counters,
    ) -> Done {
        let mut moment = Moment::Ordinary;
        while self.may_go_on(now_ns, drained) {
            let Some(due) = self.schedule.due(now_ns) else { break };
            // An lcore that was off its CPU has several events at once to see to.
            self.hand_over(outbox, counters);
            self.step(due, now_ns, outbox, counters);
            let flipped = matches!(due.event, Event::Flip(_));
            moment = moment.max(if flipped { Moment::Flip } else { Moment::ArmOrTake });
        }
        let lines = self.systems.iter_mut().map(|system| system.slots().armed_lines()).max();
        let lines = lines.filter(|&lines| lines > 0);
        // What has been flipped out of is handed over before the next burst.
        let waiting = self.systems.iter_mut().any(|system| system.slots().has_flipped());
        Done {
            moment,
            next_ns: if waiting { now_ns } else { self.schedule.next_at_ns() },
            armed: lines.map(|lines| (lines, self.schedule.next_at_ns())),
        }
    }

    /// Whether the next event may happen now, if it is due: a flip waits for one burst, and taking for empty
    /// queues, though not for long.
    fn may_go_on(&mut self, now_ns: u64, drained: bool) -> bool {
        let due_ns = self.schedule.next_at_ns();
        if now_ns < due_ns {
            return true;
        }
        let may = match (self.schedule.next(), self.due_since_ns) {
            (Event::Arm(_), _) => true,
            // If the lcore was interrupted, the burst that finds the flip due is the first one after it: its
            // packets have waited and its memory is cold, so it is not made to pay for the flip as well.
            (Event::Flip(_), since) => {
                since.is_some() || now_ns - due_ns > self.guards.flight_ns / LATE_SHARE
            }
            // The queues must be seen empty after the taking fell due, not before: the lcore may have
            // been off its CPU in between.
            (Event::Take(_), Some(since)) => drained || now_ns - since >= MOST_DRAIN_NS,
            (Event::Take(_), None) => false,
        };
        self.due_since_ns = if may { None } else { self.due_since_ns.or(Some(now_ns)) };
        may
    }

    /// Hands over the ingress records that the last flip left behind.
    fn hand_over(&mut self, outbox: &Sender<FromLcore>, counters: &Counters) {
        let (session, side) = (self.session, Side::Ingress);
        for (system, of) in self.systems.iter_mut().enumerate() {
            if let Some((epoch, record)) = of.slots().flipped() {
                let counters = *counters;
                let finished = FromLcore::Side { session, system, epoch, side, record, counters };
                let _ = outbox.try_send(finished);
            }
        }
    }

    fn step(&mut self, due: Due, now_ns: u64, outbox: &Sender<FromLcore>, counters: &Counters) {
        let session = self.session;
        let late_ns = now_ns - due.at_ns;
        match due.event {
            Event::Arm(epoch) => {
                for (system, of) in self.systems.iter_mut().enumerate() {
                    if let Some((epoch, late_packets)) = of.slots().arm(epoch) {
                        let sealed = FromLcore::Sealed { session, system, epoch, late_packets };
                        let _ = outbox.try_send(sealed);
                    }
                }
            }
            Event::Flip(epoch) => {
                let stall_ns = if late_ns > self.guards.flight_ns { late_ns } else { 0 };
                for system in &mut self.systems {
                    system.slots().flip(epoch, stall_ns);
                }
                self.epoch = epoch;
            }
            Event::Take(epoch) => {
                let too_late = now_ns >= self.clock.arm_time(epoch + 2);
                let stall_ns = if too_late { late_ns } else { 0 };
                let side = Side::ByBit;
                for (system, of) in self.systems.iter_mut().enumerate() {
                    if let Some((epoch, record)) = of.slots().take(epoch, stall_ns) {
                        let counters = *counters;
                        let finished =
                            FromLcore::Side { session, system, epoch, side, record, counters };
                        let _ = outbox.try_send(finished);
                    }
                }
            }
        }
    }

    fn leave(&mut self, outbox: &Sender<FromLcore>) -> Leaving {
        let running = self.epoch;
        let last = *self.last_epoch.get_or_insert(running);
        let recording = self.systems.iter_mut().any(|system| system.slots().is_recording());
        if last == running && recording {
            return Leaving::LastEpoch;
        }
        if self.schedule.next() == Event::Take(last) {
            return Leaving::EgressOnly;
        }
        // Nothing is received any more, so nothing can come late.
        let session = self.session;
        for (system, of) in self.systems.iter_mut().enumerate() {
            let closed = of.slots().close(last + 2);
            if let Some((epoch, late_packets)) = closed.filter(|&(epoch, _)| epoch == last) {
                let sealed = FromLcore::Sealed { session, system, epoch, late_packets };
                let _ = outbox.try_send(sealed);
            }
        }
        Leaving::Done
    }
}
