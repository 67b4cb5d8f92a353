//! Between the lcores' measurements and the controller: takes what the lcores finish, merges it
//! into one switch's records, and hands cleared ones back.
//!
//! No I/O and no clock: the control thread drives it on a switch, a replay drives it in virtual
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;

use calumma_epoch::EpochClock;
use calumma_sketch::{KeyKind, either};
use calumma_wire::{Domain, Secret};

use crate::carrier::Carrier;
use crate::counters::Counters;
use crate::measure::{FromLcore, MOST_SYSTEMS, Mailbox, NewSystem, Session, Side, ToLcore};
use crate::sync::{Receiver, Sender, bounded};
use crate::system::{AnyRecord, Groups, SwitchSystem};

/// Pairs of records each lcore has of a system: two in use, one on its way, one to spare.
const GROUPS: usize = 4;

/// Messages a mailbox holds each way: all systems' records and a few epochs' worth of everything
/// else.
const MAILBOX: usize = 16 * MOST_SYSTEMS;

/// Windows of its system after which one that an lcore did not finish is discarded.
const MOST_PENDING: u64 = 4;

/// What a switch has finished, its lcores merged.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, and none is kept")]
pub enum Part {
    /// One side of an epoch.
    Side {
        /// Its system's number in the session.
        system: usize,
        /// The epoch.
        epoch: u64,
        /// Which packets were recorded.
        side: Side,
        /// What was recorded; give it back by [`LcoreMerger::recycle`].
        record: Box<dyn AnyRecord>,
        /// Whether the lcores measured under different plans, so that the sum means nothing.
        mixed_plan: bool,
        /// The switch's totals.
        counters: Counters,
    },
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// The system's number in the session.
        system: usize,
        /// The epoch.
        epoch: u64,
        /// Packets that came after it was taken.
        late_packets: u64,
        /// What is known of them, where it is more than their number; give it back by
        /// [`LcoreMerger::recycle_late`].
        late: Option<Box<dyn AnyRecord>>,
    },
}

/// Packets that lcores have recorded and handed over, but that no frame contains: another lcore did
/// not finish the epoch, or the session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Packets that entered.
    pub ingress: u64,
    /// Packets that left.
    pub egress: u64,
}

impl AddAssign for Discarded {
    fn add_assign(&mut self, other: Self) {
        self.ingress += other.ingress;
        self.egress += other.egress;
    }
}

/// The other ends of all lcores' mailboxes.
#[derive(Debug)]
pub struct LcoreMerger {
    lcores: Vec<Lcore>,
    session: u32,
    keys: KeyKind,
    /// By number; numbers are not used again within a session.
    systems: BTreeMap<usize, System>,
    /// Whose packets the sessions to come measure.
    domain: Domain,
    /// How packets carry their marks in sessions to come, where these say it.
    carrier: Option<Carrier>,
    next_number: usize,
    /// By epoch and system.
    pending: BTreeMap<(u64, usize), Pending>,
    discarded: Discarded,
    /// By how much the clock was set that ended the session, in nanoseconds.
    clock_set: Option<i64>,
}

/// A system of the session.
#[derive(Debug)]
struct System {
    of: Box<dyn SwitchSystem>,
    /// The first epoch that it measures.
    first_epoch: u64,
    /// Epochs of a window.
    window: u64,
    /// Lcores that it has left.
    left: usize,
    free_ingress: Vec<Box<dyn AnyRecord>>,
    free_by_bit: Vec<Box<dyn AnyRecord>>,
    free_late: Vec<Box<dyn AnyRecord>>,
}

#[derive(Debug)]
struct Lcore {
    to: Sender<ToLcore>,
    from: Receiver<FromLcore>,
    /// Pairs of records it was given and has not yet finished, by system.
    pairs: BTreeMap<usize, usize>,
    /// The same of records for late packets.
    lates: BTreeMap<usize, usize>,
    counters: Counters,
    /// Messages that its mailbox, being full, did not take yet: it has not run for many epochs.
    backlog: VecDeque<ToLcore>,
}

impl Lcore {
    /// Sends a message to the lcore, after those that wait already.
    fn send(&mut self, message: ToLcore) {
        self.backlog.push_back(message);
        self.flush();
    }

    /// The same for a message that makes those which wait void.
    fn supersede(&mut self, message: ToLcore) {
        self.backlog.clear();
        self.send(message);
    }

    fn flush(&mut self) {
        while let Some(message) = self.backlog.pop_front() {
            if let Err(refused) = self.to.try_send(message) {
                self.backlog.push_front(refused.into_inner());
                return;
            }
        }
    }
}

/// An epoch of which some lcores' shares are still to come.
#[derive(Debug, Default)]
struct Pending {
    ingress: Share,
    by_bit: Share,
    sealed: usize,
    late_packets: u64,
    late: Share,
}

impl Pending {
    /// Packets in the shares that are there.
    fn recorded(&self) -> Discarded {
        let packets = |share: &Share| share.sum.as_ref().map_or(0, |record| record.packets());
        Discarded { ingress: packets(&self.ingress), egress: packets(&self.by_bit) }
    }
}

/// The sum of the lcores' records that have come so far.
#[derive(Debug, Default)]
struct Share {
    sum: Option<Box<dyn AnyRecord>>,
    lcores: usize,
    mixed_plan: bool,
}

impl Share {
    /// Adds an lcore's record; gives it back where it is not kept as the sum.
    fn add(&mut self, record: Box<dyn AnyRecord>) -> Option<Box<dyn AnyRecord>> {
        self.lcores += 1;
        match &mut self.sum {
            None => {
                self.sum = Some(record);
                None
            }
            Some(sum) => {
                self.mixed_plan |= !sum.same_plan(&*record);
                sum.merge(&*record);
                Some(record)
            }
        }
    }
}

impl LcoreMerger {
    /// A merger for `lcores` lcores, and their mailboxes.
    pub fn new(lcores: usize) -> (Self, Vec<Mailbox>) {
        let (lcores, mailboxes) = (0..lcores)
            .map(|_| {
                let (to, inbox) = bounded(MAILBOX);
                let (outbox, from) = bounded(MAILBOX);
                let lcore = Lcore {
                    to,
                    from,
                    pairs: BTreeMap::new(),
                    lates: BTreeMap::new(),
                    counters: Counters::default(),
                    backlog: VecDeque::new(),
                };
                (lcore, Mailbox { inbox, outbox })
            })
            .unzip();
        let merger = Self {
            lcores,
            session: 0,
            keys: KeyKind::Ipv4,
            systems: BTreeMap::new(),
            domain: Domain::default(),
            carrier: None,
            next_number: 0,
            pending: BTreeMap::new(),
            discarded: Discarded::default(),
            clock_set: None,
        };
        (merger, mailboxes)
    }

    /// Begins a session on all lcores, from `first_epoch` on and for packets told apart by `keys`:
    /// hands out the systems' halves and empty records. The systems are numbered from 0 on in
    /// their order. Marks are signed by the deployment's secret. An earlier session ends.
    pub fn begin(
        &mut self,
        clock: EpochClock,
        first_epoch: u64,
        secret: Secret,
        keys: KeyKind,
        systems: Vec<Box<dyn SwitchSystem>>,
    ) {
        self.finish();
        self.session += 1;
        self.clock_set = None;
        self.keys = keys;
        self.systems.clear();
        self.next_number = 0;
        for lcore in &mut self.lcores {
            lcore.pairs.clear();
            lcore.lates.clear();
            let session = Session::new(self.session, clock, first_epoch, secret, keys)
                .within(self.domain.clone())
                .marked_by(self.carrier);
            lcore.supersede(ToLcore::Begin(Box::new(session)));
        }
        systems.into_iter().for_each(|of| drop(self.add(first_epoch, of)));
    }

    /// How many lcores it merges.
    pub fn lcores(&self) -> usize {
        self.lcores.len()
    }

    /// Lets the sessions that begin from here on measure the packets within a domain.
    pub fn set_domain(&mut self, domain: Domain) {
        self.domain = domain;
    }

    /// Lets packets carry their marks so in the sessions that begin from here on; `None` leaves it
    /// to the policies of workers.
    pub fn set_carrier(&mut self, carrier: Option<Carrier>) {
        self.carrier = carrier;
    }

    /// Lets a system join the session and measure from `first_epoch` on; gives its number. It must
    /// be one for the session's keys.
    ///
    /// # Errors
    /// Where there are as many systems as there may be.
    pub fn add(&mut self, first_epoch: u64, of: Box<dyn SwitchSystem>) -> Result<usize, String> {
        self.add_after(None, first_epoch, of)
    }

    /// Lets a system of the session measure by another half from `epoch` on; gives the new number.
    /// The half before it ends there, if it was not [removed](Self::remove) from an earlier epoch
    /// on. What it has measured still comes under its own number; an lcore that learns of both late
    /// seals each epoch by one of the two.
    ///
    /// # Errors
    /// As [`add`](Self::add); then nothing changes.
    pub fn succeed(
        &mut self,
        system: usize,
        epoch: u64,
        of: Box<dyn SwitchSystem>,
    ) -> Result<usize, String> {
        self.add_after(Some(system), epoch, of)
    }

    /// Lets marks be signed by another secret from `epoch` on.
    pub fn sign(&mut self, epoch: u64, secret: Secret) {
        self.lcores.iter_mut().for_each(|lcore| lcore.send(ToLcore::Sign { epoch, secret }));
    }

    fn add_after(
        &mut self,
        after: Option<usize>,
        first_epoch: u64,
        of: Box<dyn SwitchSystem>,
    ) -> Result<usize, String> {
        if self.systems.len() == MOST_SYSTEMS {
            return Err(format!("a switch runs {MOST_SYSTEMS} systems at most"));
        }
        let system = self.next_number;
        self.next_number += 1;
        let groups = of.groups(self.keys);
        let (mut free_ingress, mut free_by_bit): (Vec<_>, Vec<_>) = (0..GROUPS * self.lcores.len())
            .map(|_| groups.copy())
            .map(|Groups { ingress, by_bit }| (ingress, by_bit))
            .unzip();
        // Emptied, which also writes to each once, so that no lcore pays for the first touch of a
        // page.
        let late = of.late_record(self.keys).into_iter();
        let mut free_late: Vec<_> = late
            .flat_map(|late| (0..GROUPS * self.lcores.len()).map(move |_| late.copy()))
            .collect();
        let free = free_ingress.iter_mut().chain(&mut free_by_bit).chain(&mut free_late);
        free.for_each(|record| record.clear());
        let mut window = 1;
        for lcore in &mut self.lcores {
            lcore.pairs.insert(system, 0);
            lcore.lates.insert(system, 0);
            let mut half = of.on_lcore(self.keys);
            window = either!(&mut half, half => half.slots().window());
            lcore.send(ToLcore::Add(NewSystem { system, first_epoch, half, after }));
        }
        let left = 0;
        let added = System { of, first_epoch, window, left, free_ingress, free_by_bit, free_late };
        self.systems.insert(system, added);
        self.hand_out(system);
        self.hand_out_late(system);
        Ok(system)
    }

    /// Lets a system leave the session: it measures no epoch from `end` on. What it has measured
    /// before still comes.
    pub fn remove(&mut self, system: usize, end: u64) {
        self.lcores.iter_mut().for_each(|lcore| lcore.send(ToLcore::Remove { system, end }));
    }

    /// By which keys the session tells packets apart.
    pub fn keys(&self) -> KeyKind {
        self.keys
    }

    /// A system of the session by its number, until all lcores have let it go.
    pub fn system(&self, system: usize) -> Option<&dyn SwitchSystem> {
        self.systems.get(&system).map(|system| &*system.of)
    }

    /// Ends the session: the lcores forward without measuring.
    pub fn end(&mut self) {
        self.session += 1;
        self.lcores.iter_mut().for_each(|lcore| lcore.supersede(ToLcore::End));
    }

    /// By how many nanoseconds the clock was set, where that has ended the session on an lcore and
    /// another one must begin; once.
    pub fn take_clock_set(&mut self) -> Option<i64> {
        self.clock_set.take()
    }

    /// Lets a plan hold from `epoch` on, on all lcores.
    ///
    /// # Errors
    /// Why the plan can't hold; nothing changes then.
    pub fn reconfigure(&mut self, system: usize, epoch: u64, plan: &[u8]) -> Result<(), String> {
        let Some(System { of, .. }) = self.systems.get_mut(&system) else {
            return Err(format!("the session has no system number {system}"));
        };
        let plans: Result<Vec<_>, _> = self.lcores.iter().map(|_| of.plan(plan)).collect();
        for (lcore, plan) in self.lcores.iter_mut().zip(plans?) {
            lcore.send(ToLcore::Reconfigure { system, epoch, plan });
        }
        of.accept(epoch, plan);
        Ok(())
    }

    /// Takes what the lcores have finished since the last call, and gives what is now finished on
    /// all of them.
    pub fn poll(&mut self) -> Vec<Part> {
        // What came last time may have been of a system that left with it.
        let lcores = &mut self.lcores;
        let gone = self.systems.extract_if(.., |_, system| system.left == lcores.len());
        let gone: Vec<usize> = gone.map(|(number, _)| number).collect();
        for system in gone {
            for lcore in lcores.iter_mut() {
                lcore.pairs.remove(&system);
                lcore.lates.remove(&system);
            }
        }
        let mut parts = Vec::new();
        for at in 0..self.lcores.len() {
            self.lcores[at].flush();
            while let Ok(message) = self.lcores[at].from.try_recv() {
                parts.extend(self.on_message(at, message));
            }
        }
        self.discard_old();
        parts
    }

    /// Discards what some lcores did not finish for long. Windows of some systems are longer than
    /// those of others, and named by their first epochs: each goes by its own.
    fn discard_old(&mut self) {
        let newest: BTreeMap<usize, u64> =
            self.pending.keys().map(|&(epoch, system)| (system, epoch)).collect();
        let systems = &self.systems;
        let is_old = |epoch: u64, system: usize| {
            let kept = systems.get(&system).map(|of| MOST_PENDING * of.window);
            kept.is_none_or(|kept| epoch.saturating_add(kept) < newest[&system])
        };
        let old = self.pending.extract_if(.., |&(epoch, system), _| is_old(epoch, system));
        for ((_, system), pending) in old.collect::<Vec<_>>() {
            self.discard(system, pending);
        }
    }

    fn on_message(&mut self, at: usize, message: FromLcore) -> Option<Part> {
        let (current, lcores) = (self.session, self.lcores.len());
        match message {
            FromLcore::Side { session, system, epoch, side, record, counters }
                if session == current =>
            {
                let lcore = &mut self.lcores[at];
                lcore.counters = counters;
                if side == Side::ByBit
                    && let Some(pairs) = lcore.pairs.get_mut(&system)
                {
                    *pairs = pairs.saturating_sub(1);
                }
                let pending = self.pending.entry((epoch, system)).or_default();
                let share = match side {
                    Side::Ingress => &mut pending.ingress,
                    Side::ByBit => &mut pending.by_bit,
                };
                let merged = share.add(record);
                let mixed_plan = share.mixed_plan;
                let sum = if share.lcores == lcores { share.sum.take() } else { None };
                merged.into_iter().for_each(|record| self.recycle(system, side, record));
                let counters = self.counters();
                sum.map(|record| Part::Side { system, epoch, side, record, mixed_plan, counters })
            }
            FromLcore::Sealed { session, system, epoch, late_packets, late }
                if session == current =>
            {
                if late.is_some()
                    && let Some(lates) = self.lcores[at].lates.get_mut(&system)
                {
                    *lates = lates.saturating_sub(1);
                }
                let pending = self.pending.entry((epoch, system)).or_default();
                pending.sealed += 1;
                pending.late_packets += late_packets;
                let merged = late.and_then(|late| pending.late.add(late));
                let is_last = pending.sealed == lcores;
                merged.into_iter().for_each(|late| self.recycle_late(system, late));
                if !is_last {
                    return None;
                }
                let mut pending = self.pending.remove(&(epoch, system))?;
                let (late_packets, late) = (pending.late_packets, pending.late.sum.take());
                self.discard(system, pending);
                // An epoch that ended before the system was on has nothing to seal.
                let first = self.systems.get(&system).map_or(0, |of| of.first_epoch);
                if epoch + 1 < first && late_packets == 0 {
                    late.into_iter().for_each(|late| self.recycle_late(system, late));
                    return None;
                }
                Some(Part::Sealed { system, epoch, late_packets, late })
            }
            // Of an earlier session, whose records may have been of other sizes.
            FromLcore::Side { side: Side::Ingress, record, .. } => {
                self.discarded.ingress += record.packets();
                None
            }
            FromLcore::Side { side: Side::ByBit, record, .. } => {
                self.discarded.egress += record.packets();
                None
            }
            FromLcore::ClockSet { session, by_ns } if session == current => {
                self.clock_set = Some(by_ns);
                None
            }
            FromLcore::Removed { session, system, .. } if session == current => {
                self.systems.entry(system).and_modify(|of| of.left += 1);
                None
            }
            FromLcore::Sealed { .. }
            | FromLcore::Removed { .. }
            | FromLcore::ClockSet { .. }
            | FromLcore::Over(_)
            | FromLcore::Unused(_) => None,
        }
    }

    /// Reuses the records in which some lcores have recorded an epoch that others did not finish.
    fn discard(&mut self, system: usize, pending: Pending) {
        self.discarded += pending.recorded();
        let shares = [(Side::Ingress, pending.ingress), (Side::ByBit, pending.by_bit)];
        for (side, share) in shares {
            share.sum.into_iter().for_each(|record| self.recycle(system, side, record));
        }
        pending.late.sum.into_iter().for_each(|late| self.recycle_late(system, late));
    }

    /// Discards the epochs of which shares are still to come: the session is over.
    pub fn finish(&mut self) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.discarded += pending.recorded();
        }
    }

    /// What was discarded so far.
    pub fn discarded(&self) -> Discarded {
        self.discarded
    }

    /// The switch's totals as of the last finished records.
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        self.lcores.iter().for_each(|lcore| total += &lcore.counters);
        total
    }

    /// Clears a record that has been read, and reuses it.
    pub fn recycle(&mut self, system: usize, side: Side, mut record: Box<dyn AnyRecord>) {
        let Some(of) = self.systems.get_mut(&system) else { return };
        record.clear();
        match side {
            Side::Ingress => of.free_ingress.push(record),
            Side::ByBit => of.free_by_bit.push(record),
        }
        self.hand_out(system);
    }

    /// Clears what was known of late packets, and reuses it.
    pub fn recycle_late(&mut self, system: usize, mut late: Box<dyn AnyRecord>) {
        let Some(of) = self.systems.get_mut(&system) else { return };
        late.clear();
        of.free_late.push(late);
        self.hand_out_late(system);
    }

    /// Gives records for late packets to the lcores that have the fewest.
    fn hand_out_late(&mut self, system: usize) {
        let Some(of) = self.systems.get_mut(&system) else { return };
        let lates = |lcore: &Lcore| lcore.lates.get(&system).copied();
        while let Some(lcore) = self.lcores.iter_mut().min_by_key(|lcore| lates(lcore))
            && let Some(given) = lcore.lates.get_mut(&system)
            && let Some(record) = of.free_late.pop()
        {
            *given += 1;
            lcore.send(ToLcore::Late { system, record });
        }
    }

    /// Gives pairs of records to the lcores that have the fewest.
    fn hand_out(&mut self, system: usize) {
        let Some(of) = self.systems.get_mut(&system) else { return };
        let pairs = |lcore: &Lcore| lcore.pairs.get(&system).copied();
        while let Some(lcore) = self.lcores.iter_mut().min_by_key(|lcore| pairs(lcore))
            && let Some(given) = lcore.pairs.get_mut(&system)
            && !of.free_ingress.is_empty()
            && let Some(by_bit) = of.free_by_bit.pop()
            && let Some(ingress) = of.free_ingress.pop()
        {
            *given += 1;
            lcore.send(ToLcore::Groups { system, groups: Groups { ingress, by_bit } });
        }
    }
}
