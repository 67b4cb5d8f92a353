//! One lcore's measurement as it goes through the epochs.
//!
//! A [`Measurement`] owns the systems' halves on its lcore, and through them their records; nothing
//! is shared with other lcores. Empty records and new plans come in through an inbox, finished
//! records go out through an outbox; both are bounded channels that are touched only when an event
//! is due, and never waited for. A packet pays one comparison a burst ([`Measurement::tick`]).
//!
//! Time is whatever the caller passes in: the system clock on a switch, a capture's timestamps in a
//! replay.

mod active;
mod drain;
mod warming;

use std::any::Any;

use calumma_epoch::{EpochClock, Event, Guards};
use calumma_sketch::{AnyKey, KeyKind, either};
use calumma_wire::{Domain, Secret};

use crate::carrier::{Carrier, Signer};
use crate::counters::Counters;
use crate::sync::{Receiver, Sender};
use crate::system::{AnyRecord, Groups, LcoreHalf};

pub use self::active::{Active, SessionSystems, Sessions, Systems};
use self::warming::Warming;

/// How often an idle measurement looks into its inbox.
const IDLE_POLL_NS: u64 = 1_000_000;

/// What the control thread sends to a measurement.
#[derive(Debug)]
pub enum ToLcore {
    /// Measure from an epoch on, as a new session; forget what was measured before.
    Begin(Box<Session>),
    /// Stop measuring.
    End,
    /// A system joins the session.
    Add(NewSystem),
    /// A system leaves the session once it has measured the epoch before this one.
    Remove {
        /// Its number in the session.
        system: usize,
        /// The first epoch that it does not measure.
        end: u64,
    },
    /// Marks are signed by another secret.
    Sign {
        /// The first epoch of which they are.
        epoch: u64,
        /// The secret.
        secret: Secret,
    },
    /// Empty records for an epoch to come.
    Groups {
        /// Their system's number in the session.
        system: usize,
        /// The records.
        groups: Groups,
    },
    /// An empty record for late packets.
    Late {
        /// Its system's number in the session.
        system: usize,
        /// The record.
        record: Box<dyn AnyRecord>,
    },
    /// A plan that takes effect at an epoch.
    Reconfigure {
        /// Its system's number in the session.
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
pub enum FromLcore {
    /// One side of an epoch is finished.
    Side {
        /// Session it belongs to.
        session: u32,
        /// Its system's number in the session.
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
        /// The system's number in the session.
        system: usize,
        /// The epoch.
        epoch: u64,
        /// Packets of the epoch that came after it was taken.
        late_packets: u64,
        /// What is known of them, where it is more than their number.
        late: Option<Box<dyn AnyRecord>>,
    },
    /// A system has left the session: its half, whose memory is not for an lcore to free.
    Removed {
        /// Session it belongs to.
        session: u32,
        /// The system's number in the session.
        system: usize,
        /// Its half on this lcore.
        half: AnyKey<LcoreHalf>,
    },
    /// The clock was set, and the session ended by that: another one must begin.
    ClockSet {
        /// The session.
        session: u32,
        /// By how much, in nanoseconds; negative where it was set back.
        by_ns: i64,
    },
    /// A session is over: its memory, which is not for an lcore to free.
    Over(AnyKey<Sessions>),
    /// What was for a system that had left, or for a session that was over: the same of that.
    Unused(ToLcore),
}

/// A system that joins a session.
#[derive(Debug)]
pub struct NewSystem {
    /// Its number in the session.
    pub system: usize,
    /// The first epoch that it measures.
    pub first_epoch: u64,
    /// Its half on this lcore, made for the session's keys.
    pub half: AnyKey<LcoreHalf>,
    /// The number of the half that the same system had before, where it may still be there. That
    /// ends where this one begins, if not before, and sees to all packets of epochs before its end
    /// and to their seals.
    pub after: Option<usize>,
}

/// Most systems that a session has at once, those included that are about to leave it.
pub const MOST_SYSTEMS: usize = 16;

/// What an lcore measures by, from one `Begin` to the next.
#[derive(Debug)]
pub struct Session {
    /// Number of the session, so that records of an earlier one are told apart.
    pub number: u32,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// What signs marks.
    pub signer: Signer,
    /// Whose packets are measured.
    pub domain: Domain,
    /// How packets carry their marks from here on; `None` where it is as the worker's policy has
    /// it.
    pub carrier: Option<Carrier>,
    /// By which keys packets are measured, and room for the systems to come.
    pub systems: AnyKey<SessionSystems>,
}

impl Session {
    /// A session without systems: those are [added](ToLcore::Add).
    pub fn new(
        number: u32,
        clock: EpochClock,
        first_epoch: u64,
        secret: Secret,
        keys: KeyKind,
    ) -> Self {
        let systems = match keys {
            KeyKind::Ipv4 => AnyKey::Ipv4(Systems::new()),
            KeyKind::Dual => AnyKey::Dual(Systems::new()),
        };
        let signer = Signer::new(secret, first_epoch.saturating_sub(1));
        let domain = Domain::default();
        Self { number, clock, first_epoch, signer, domain, carrier: None, systems }
    }

    /// Limits it to packets within a domain.
    #[must_use]
    pub fn within(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }

    /// Says by which carrier packets carry their marks.
    #[must_use]
    pub fn marked_by(self, carrier: Option<Carrier>) -> Self {
        Self { carrier, ..self }
    }
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
    /// By which keys the last session measured, or this one.
    keys: Option<KeyKind>,
    /// How packets carry their marks in the last session, or this one, where it says so.
    carrier: Option<Carrier>,
    /// What is left to do about the armed records' memory.
    warming: Option<Warming>,
    /// The session that was ended since the clock was set, and by how much that was, until the
    /// control thread knows.
    ended: Option<(u32, i64)>,
}

/// What happened to the epochs before a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Nothing.
    Ordinary,
    /// Nothing, at an instant that was set before, as a flip's is: the control to compare flips
    /// with. Long interruptions are more likely to meet such an instant than any given burst.
    Instant,
    /// Nothing, but a millisecond of the lcore's clock was over: the clock is read, and what the
    /// control thread asks for is done.
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
        let (active, keys, carrier, warming, ended) = Default::default();
        Self { mailbox, next_ns: 0, active, keys, carrier, warming, ended }
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

    /// By which keys the session measures or, where there is none, the last one did.
    #[inline]
    pub(crate) fn last_keys(&self) -> Option<KeyKind> {
        self.keys
    }

    /// How packets carry their marks in the session or, where there is none, did in the last one;
    /// `None` where that is not for a session to say.
    #[inline]
    pub(crate) fn carrier(&self) -> Option<Carrier> {
        self.carrier
    }

    /// Whether a system records when packets arrived.
    #[inline]
    pub fn asks_arrivals(&self) -> bool {
        self.active.as_ref().is_some_and(|any| either!(any, active => active.asks_arrivals))
    }

    /// What INT stacks say of the switch's ports and queues.
    #[inline]
    pub(crate) fn asks_around(&self) -> u16 {
        self.active.as_ref().map_or(0, |any| either!(any, active => active.asks_around()))
    }

    /// The session under way, if any.
    #[inline]
    pub(crate) fn active(&mut self) -> Option<&mut AnyKey<Sessions>> {
        self.active.as_mut()
    }

    /// Does what is due at `now_ns` (nanoseconds since the Unix epoch; must not run backwards but
    /// where the [clock was set](Self::clock_set)).
    /// `drained` says that the receive queues were found empty since the last call: an epoch is
    /// taken only then, so that packets which arrived in time are recorded in time. Gives what
    /// happened to the epochs.
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

    /// The clock that ticks are given by was set by `by_ns` nanoseconds, and shows `now_ns`.
    ///
    /// Where that is more than the clock guard, gives true, and time may run backwards once. What
    /// was measured since the last epoch's end is of no known time then: nothing of it is handed
    /// over, so that its epochs are incomplete, and the control thread begins another session. One
    /// that it has begun by the new time already stays.
    #[inline]
    pub fn clock_set(&mut self, by_ns: i64, now_ns: u64) -> bool {
        let guard_ns = match &self.active {
            Some(active) => either!(active, active => active.guards().clock_ns),
            None => Guards::default().clock_ns,
        };
        let is_step = by_ns.unsigned_abs() > guard_ns;
        if is_step {
            self.on_step(by_ns, now_ns);
        }
        is_step
    }

    #[cold]
    fn on_step(&mut self, by_ns: i64, now_ns: u64) {
        self.next_ns = now_ns;
        if let Some(active) = &self.active {
            let (session, begins_anew) =
                either!(active, active => (active.session(), active.begins_after_step(now_ns)));
            if !begins_anew {
                self.replace(None);
                self.ended = Some((session, by_ns));
            }
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
        let flips = |active: &AnyKey<Sessions>| either!(active, active => matches!(active.next_event(), Event::Flip(_)));
        if !self.active.as_ref().is_some_and(flips) {
            self.read_inbox();
        }
        let Some(active) = &mut self.active else {
            self.say_ended();
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

    /// Says that the clock was set, once there is room for that.
    fn say_ended(&mut self) {
        if let Some((session, by_ns)) = self.ended
            && self.mailbox.outbox.try_send(FromLcore::ClockSet { session, by_ns }).is_ok()
        {
            self.ended = None;
        }
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
            if let Some(unused) = self.receive(message) {
                let _ = self.mailbox.outbox.try_send(FromLcore::Unused(unused));
            }
        }
    }

    /// Does what a message says; gives it back where its session is over, or its system has left.
    fn receive(&mut self, message: ToLcore) -> Option<ToLcore> {
        let message = match message {
            ToLcore::Begin(session) => {
                self.carrier = session.carrier;
                self.replace(Some(begin(*session)));
                return None;
            }
            ToLcore::End => {
                self.replace(None);
                return None;
            }
            message => message,
        };
        let Some(active) = &mut self.active else { return Some(message) };
        match message {
            ToLcore::Add(new) => active::add(active, new),
            ToLcore::Remove { system, end } => {
                either!(active, active => active.remove(system, end))
            }
            ToLcore::Sign { epoch, secret } => {
                either!(active, active => active.signer.follow(epoch, secret));
            }
            ToLcore::Groups { system, groups } => {
                let unused = either!(active, active => active.supply(system, groups));
                return unused.map(|groups| ToLcore::Groups { system, groups });
            }
            ToLcore::Late { system, record } => {
                let unused = either!(active, active => active.supply_late(system, record));
                return unused.map(|record| ToLcore::Late { system, record });
            }
            ToLcore::Reconfigure { system, epoch, plan } => {
                either!(active, active => active.reconfigure(system, epoch, plan));
            }
            ToLcore::Begin(_) | ToLcore::End => {}
        }
        None
    }

    /// Puts another session in the place of the one under way, whose memory goes back.
    fn replace(&mut self, session: Option<AnyKey<Sessions>>) {
        self.warming = None;
        self.keys = session.as_ref().map(AnyKey::kind).or(self.keys);
        if let Some(before) = std::mem::replace(&mut self.active, session) {
            let _ = self.mailbox.outbox.try_send(FromLcore::Over(before));
        }
    }
}

fn begin(session: Session) -> AnyKey<Sessions> {
    let Session { number, clock, first_epoch, signer, domain, systems, .. } = session;
    let epochs = (clock, first_epoch, signer);
    match systems {
        AnyKey::Ipv4(systems) => AnyKey::Ipv4(Active::new(number, epochs, domain, systems)),
        AnyKey::Dual(systems) => AnyKey::Dual(Active::new(number, epochs, domain, systems)),
    }
}
