//! One lcore's sketches as they rotate through the epochs.
//!
//! A [`Measurement`] owns its groups; nothing is shared with other lcores. Empty groups and new
//! attention come in through an inbox, finished groups go out through an outbox; both are bounded
//! channels that are touched only when an event is due, and never waited for. A packet pays one
//! comparison a burst ([`Measurement::tick`]).
//!
//! Time is whatever the caller passes in: the system clock on a switch, a capture's timestamps in a
//! replay.

mod warming;

use std::sync::Arc;

use calumma_chamelemon::{AnyGroup, Attention, EgressGroups, IngressGroups};
use calumma_epoch::{Due, EpochClock, Event, Finished, Guards, Rotation, Schedule, Timeline};
use calumma_sketch::{AnyKey, HashFamily, KeyKind};
use crossbeam_channel::{Receiver, Sender};

use crate::counters::Counters;

use self::warming::Warming;

/// How often an idle measurement looks into its inbox.
const IDLE_POLL_NS: u64 = 1_000_000;

/// Longest that the taking of an egress group is put off to empty receive queues first.
const MOST_DRAIN_NS: u64 = 2_000_000;

/// A flip that is late by this share of the guard for packets in flight waits no longer: the rest is theirs.
const LATE_SHARE: u64 = 10;

/// An ingress group and what else is known of its epoch.
///
/// An lcore reads it for every packet and writes to it with every burst, while another lcore does so with
/// the record that the allocator put beside it: they share no cache line, nor a pair of lines, which CPUs
/// fetch together.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub struct IngressRecord {
    /// Flow classifier and upstream flow encoder, for keys of the session's kind.
    pub group: AnyKey<IngressGroups>,
    /// Packets recorded.
    pub packets: u64,
    /// By how much the flip out of this epoch came late, where that exceeds the guard for packets
    /// in flight; else 0. Packets may then have been on their way longer than the egress edges
    /// waited for them.
    pub stall_ns: u64,
}

/// An egress group and what else is known of its epoch; on cache lines of its own, as an [`IngressRecord`] is.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub struct EgressRecord {
    /// Downstream flow encoder, for keys of the session's kind.
    pub group: AnyKey<EgressGroups>,
    /// Packets recorded, those that carry no encoding included.
    pub packets: u64,
    /// Packets that carried a hierarchy which has no buckets in this epoch.
    pub foreign_packets: u64,
    /// By how much the taking of this group came too late to tell its packets from those of the
    /// next epoch with the same bit; else 0.
    pub stall_ns: u64,
}

/// What the control thread says to a measurement.
#[derive(Debug)]
pub enum ToWorker {
    /// Measure from an epoch on, as a new session; forget what was measured before.
    Begin(Box<Session>),
    /// Stop measuring.
    End,
    /// Empty groups for an epoch to come.
    Groups(Box<IngressRecord>, Box<EgressRecord>),
    /// Attention that takes effect at an epoch.
    Attend {
        /// The epoch.
        epoch: u64,
        /// What holds from then on.
        attention: Attention,
    },
}

/// What a measurement says to the control thread.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "sent by an lcore, which must not allocate")]
pub enum FromWorker {
    /// An ingress group is finished.
    Ingress {
        /// Session it belongs to.
        session: u32,
        /// Epoch it measured.
        epoch: u64,
        /// The group.
        record: Box<IngressRecord>,
        /// The lcore's totals at this moment.
        counters: Counters,
    },
    /// An egress group is finished.
    Egress {
        /// Session it belongs to.
        session: u32,
        /// Epoch it measured.
        epoch: u64,
        /// The group.
        record: Box<EgressRecord>,
    },
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// Session it belongs to.
        session: u32,
        /// The epoch.
        epoch: u64,
        /// Packets of the epoch that came after its egress group was taken.
        late_packets: u64,
    },
}

/// What all lcores of a switch measure by, from one `Begin` to the next.
#[derive(Clone, Debug)]
pub struct Session {
    /// Number of the session, so that groups of an earlier one are told apart.
    pub number: u32,
    /// By which keys packets are measured.
    pub keys: KeyKind,
    /// Hash functions of the deployment.
    pub family: Arc<HashFamily>,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// The attention that holds from it on.
    pub attention: Attention,
}

/// The channels between the control thread and one measurement.
#[derive(Debug)]
pub struct Mailbox {
    /// From the control thread.
    pub inbox: Receiver<ToWorker>,
    /// To the control thread. Where it is full, what is finished is dropped; the controller then
    /// misses it and marks the epoch incomplete.
    pub outbox: Sender<FromWorker>,
}

/// One lcore's measurement. See the [module](self).
#[derive(Debug)]
pub struct Measurement {
    mailbox: Mailbox,
    next_ns: u64,
    active: Option<Active>,
    /// What is left to do about the armed groups' memory.
    warming: Option<Warming>,
}

/// A session under way.
#[derive(Debug)]
pub(crate) struct Active {
    session: u32,
    keys: KeyKind,
    pub(crate) family: Arc<HashFamily>,
    guards: Guards,
    clock: EpochClock,
    schedule: Schedule,
    timeline: Timeline<Attention>,
    pub(crate) rotation: Rotation<Box<IngressRecord>, Box<EgressRecord>>,
    spare: Vec<(Box<IngressRecord>, Box<EgressRecord>)>,
    /// The ingress group of the epoch before, until it is handed over.
    flipped: Option<Finished<Box<IngressRecord>>>,
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
    /// Nothing, at an instant of the lcore's clock that was set before, as that of a flip is. Whatever takes
    /// the CPU away is the likelier just before such an instant, the longer it lasts: what a flip adds shows
    /// beside these.
    Instant,
    /// Nothing, but a millisecond of the lcore's clock was over: the clock is read, and what the control
    /// thread asks for is done.
    Millisecond,
    /// An epoch was armed, or an egress group taken.
    ArmOrTake,
    /// An epoch began.
    Flip,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Ordinary, Self::Instant, Self::Millisecond, Self::ArmOrTake, Self::Flip];

    /// As bursts at such a moment are called among figures.
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
    /// Its last epoch runs, and all goes on as ever.
    LastEpoch,
    /// That epoch is over: packets on their way may still leave the network, but none may enter it.
    EgressOnly,
    /// All that was measured has been handed over.
    Done,
}

/// Most spare groups that a measurement keeps.
const MOST_SPARE: usize = 8;

impl Measurement {
    /// A measurement that waits for its session.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, next_ns: 0, active: None, warming: None }
    }

    /// When something is due next, in nanoseconds since the Unix epoch.
    pub fn next_due_ns(&self) -> u64 {
        self.next_ns
    }

    /// By which keys packets are measured: IPv4 ones where there is no session.
    #[inline]
    pub(crate) fn keys(&self) -> KeyKind {
        self.active.as_ref().map_or(KeyKind::Ipv4, |active| active.keys)
    }

    /// The session under way, if any.
    #[inline]
    pub(crate) fn active(&mut self) -> Option<&mut Active> {
        self.active.as_mut()
    }

    /// Does what is due at `now_ns` (nanoseconds since the Unix epoch; must not run backwards).
    /// `drained` says that the receive queues were found empty since the last call: an egress group
    /// is taken only then, so that packets which arrived in time are recorded in time. Gives what
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

    /// Fetches some of the armed groups' memory: see [`Warming`].
    #[cold]
    fn warm_up(&mut self, now_ns: u64) {
        let armed = self.active.as_mut().and_then(|active| active.rotation.armed());
        let (Some(warming), Some((ingress, egress))) = (&mut self.warming, armed) else {
            self.warming = None;
            return;
        };
        // Both at once: the sides are of like size, and a line too many costs nothing.
        for line in warming.due(now_ns) {
            ingress.group.make_ready(line);
            egress.group.make_ready(line);
        }
        if warming.is_done() {
            self.warming = None;
        }
    }

    #[cold]
    fn on_due(&mut self, now_ns: u64, drained: bool, counters: &Counters) -> Moment {
        if let Some(active) = &mut self.active {
            active.hand_over(&self.mailbox.outbox, counters);
        }
        // The burst of a flip has enough to wait for: what is said to the measurement is read before
        // and after.
        let flips = |active: &Active| matches!(active.schedule.next(), Event::Flip(_));
        if !self.active.as_ref().is_some_and(flips) {
            self.read_inbox();
        }
        let Some(active) = &mut self.active else {
            self.next_ns = now_ns + IDLE_POLL_NS;
            return Moment::Ordinary;
        };
        let mut happened = Moment::Ordinary;
        while active.may_go_on(now_ns, drained) {
            match active.schedule.due(now_ns) {
                Some(due) => {
                    // An lcore that was off its CPU has several events at once to see to.
                    active.hand_over(&self.mailbox.outbox, counters);
                    active.step(due, now_ns, &self.mailbox.outbox);
                    self.warming = active.rotation.armed().map(|(ingress, egress)| {
                        let lines = ingress.group.lines().max(egress.group.lines());
                        Warming::new(lines, now_ns, active.schedule.next_at_ns())
                    });
                    let flipped = matches!(due.event, Event::Flip(_));
                    let moment = if flipped { Moment::Flip } else { Moment::ArmOrTake };
                    happened = happened.max(moment);
                }
                None => break,
            }
        }
        // What has been flipped out of is handed over before the next burst.
        let waiting = active.flipped.is_some();
        self.next_ns = if waiting { now_ns } else { active.schedule.next_at_ns() };
        happened
    }

    /// Lets the epoch under way be the last one, and says how far it has come. To be asked once a
    /// round until it is [done](Leaving::Done), which takes less than two epochs.
    #[cold]
    pub fn leave(&mut self) -> Leaving {
        let Some(active) = &mut self.active else { return Leaving::Done };
        let running = active.rotation.epoch();
        let last = *active.last_epoch.get_or_insert(running);
        if last == running && active.rotation.ingress().is_some() {
            return Leaving::LastEpoch;
        }
        if active.schedule.next() == Event::Take(last) {
            return Leaving::EgressOnly;
        }
        // Nothing is received any more, so nothing can come late.
        let (closed, _) = active.rotation.arm(last + 2, None);
        if let Some((epoch, late_packets)) = closed.filter(|&(epoch, _)| epoch == last) {
            let session = active.session;
            let sealed = FromWorker::Sealed { session, epoch, late_packets };
            let _ = self.mailbox.outbox.try_send(sealed);
        }
        self.active = None;
        Leaving::Done
    }

    fn read_inbox(&mut self) {
        while let Ok(message) = self.mailbox.inbox.try_recv() {
            match (message, &mut self.active) {
                (ToWorker::Begin(session), _) => self.active = Some(Active::new(*session)),
                (ToWorker::End, _) => self.active = None,
                (ToWorker::Groups(ingress, egress), Some(active)) => {
                    if active.spare.len() < MOST_SPARE {
                        active.spare.push((ingress, egress));
                    }
                }
                (ToWorker::Attend { epoch, attention }, Some(active)) => {
                    // Frozen already: this epoch keeps what it has, and its groups say what that
                    // was, so a disagreement is seen by whoever merges them.
                    let _ = active.timeline.change(epoch, attention);
                }
                (ToWorker::Groups(..) | ToWorker::Attend { .. }, None) => {}
            }
        }
    }
}

impl Active {
    fn new(session: Session) -> Self {
        let Session { number, keys, family, clock, first_epoch, attention } = session;
        Self {
            session: number,
            keys,
            family,
            guards: clock.guards(),
            clock,
            schedule: Schedule::starting_with(clock, first_epoch),
            timeline: Timeline::new(attention),
            rotation: Rotation::new(first_epoch.saturating_sub(1)),
            spare: Vec::with_capacity(MOST_SPARE),
            flipped: None,
            due_since_ns: None,
            last_epoch: None,
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
            // The first burst after a set instant is likely to come after something that took the CPU away,
            // the likelier the longer that took: memory is far away, and packets wait.
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

    /// Hands over the ingress group that the last flip left behind.
    fn hand_over(&mut self, outbox: &Sender<FromWorker>, counters: &Counters) {
        if let Some(Finished { epoch, group: record }) = self.flipped.take() {
            let (session, counters) = (self.session, *counters);
            let _ = outbox.try_send(FromWorker::Ingress { session, epoch, record, counters });
        }
    }

    fn step(&mut self, due: Due, now_ns: u64, outbox: &Sender<FromWorker>) {
        let session = self.session;
        match due.event {
            Event::Arm(epoch) => {
                let attention = self.timeline.freeze(epoch);
                let groups = self.spare.pop().map(|(mut ingress, mut egress)| {
                    ingress.group.begin(attention, epoch);
                    egress.group.begin(attention, epoch);
                    (ingress, egress)
                });
                let (closed, unfinished) = self.rotation.arm(epoch, groups);
                debug_assert!(unfinished.is_none(), "taking comes before arming");
                if let Some((epoch, late_packets)) = closed {
                    let _ = outbox.try_send(FromWorker::Sealed { session, epoch, late_packets });
                }
            }
            Event::Flip(epoch) => {
                if let Some(mut finished) = self.rotation.flip(epoch) {
                    let late_ns = now_ns - due.at_ns;
                    let stalled = late_ns > self.guards.flight_ns;
                    finished.group.stall_ns = if stalled { late_ns } else { 0 };
                    self.flipped = Some(finished);
                }
            }
            Event::Take(epoch) => {
                let too_late = now_ns >= self.clock.arm_time(epoch + 2);
                if let Some(Finished { epoch, group: mut record }) = self.rotation.take(epoch) {
                    record.stall_ns = if too_late { now_ns - due.at_ns } else { 0 };
                    let _ = outbox.try_send(FromWorker::Egress { session, epoch, record });
                } else if !too_late {
                    self.rotation.none_late(epoch);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use calumma_chamelemon::Layout;
    use calumma_epoch::Guards;
    use calumma_sketch::HashKey;

    use super::*;
    use crate::control::collect::{Collector, SessionPlan};

    #[test]
    fn a_flip_waits_for_one_burst_unless_the_lcore_was_away_for_long() {
        let layout = Layout::default();
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let plan = SessionPlan {
            attention: Attention::healthy(&layout, 1024),
            layout,
            hash_key: HashKey::from_bytes([3; 32]),
            clock,
            first_epoch: 100,
        };
        let (mut collector, mut mailboxes) = Collector::new(1);
        collector.begin(&plan).unwrap();
        let mut measurement = Measurement::new(mailboxes.remove(0));
        let mut tick = |now_ns| measurement.tick(now_ns, true, &Counters::default());

        let (first, second) = (clock.start_of(100), clock.start_of(101));
        tick(clock.arm_time(100) - 1);
        assert_eq!(tick(clock.arm_time(100)), Moment::ArmOrTake);
        let around = [first - 1, first, first + 2_000, first + 4_000].map(&mut tick);
        assert_eq!(around, [Moment::Ordinary, Moment::Ordinary, Moment::Flip, Moment::Ordinary]);

        // The epoch before is taken out, the next one armed.
        let between = [clock.arm_time(101) - 2, clock.arm_time(101) - 1, clock.arm_time(101)];
        assert_eq!(between.map(&mut tick)[1..], [Moment::ArmOrTake; 2]);
        let late_ns = Guards::default().flight_ns / LATE_SHARE + 1;
        assert_eq!(tick(second + late_ns), Moment::Flip);
    }
}
