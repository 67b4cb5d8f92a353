//! A session under way on an lcore: the epochs' events, passed on to every system that is on.
//!
//! Systems come and go while packets are recorded. One that joins waits for its first epoch; one
//! that leaves has its last epoch finished, and sealed an epoch later, before its half goes back to
//! the control thread. Nothing here allocates or frees.

mod hashes;
mod int;

use std::any::Any;

use calumma_epoch::{Due, EpochClock, Event, Guards, Schedule, timestamp_bit};
use calumma_sketch::{AnyKey, HashColumns, Key, Keyed};
use calumma_wire::Domain;

use self::hashes::share_hashes;
use super::drain::most_drain_ns;
use super::{FromLcore, Leaving, MOST_SYSTEMS, Moment, NewSystem, Side};
use crate::arrival::BurstArrival;
use crate::carrier::{Detached, Signer, Way};
use crate::counters::Counters;
use crate::flows::{Arrivals, Flows, IpColumns, Stacks};
use crate::int::Insertion;
use crate::packet::Packet;
use crate::parse::detail::ip_fields;
use crate::slots::{AnySlots, Seal};
use crate::sync::Sender;
use crate::system::{AnyRecord, Groups, LcoreHalf, LcoreSystem};
use crate::worker::Sent;

/// A flip that is late by this share of the guard for packets in flight waits no longer: the rest
/// is theirs.
const LATE_SHARE: u64 = 10;

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
    /// The newest epoch that packets may carry: the last one armed.
    pub(crate) newest: u64,
    /// What signs marks, in the epochs up to that.
    pub(crate) signer: Signer,
    /// Whose packets are measured.
    domain: Domain,
    pub(crate) systems: Systems<K>,
    /// Whether a system records packets that pass from fabric to fabric.
    pub(crate) transit: bool,
    /// Whether a system records what transmit queues do.
    asks_sent: bool,
    /// Whether a system records when packets arrived.
    pub(crate) asks_arrivals: bool,
    /// What packets are given that are chosen for it, where a system inserts.
    pub(crate) insertion: Option<Insertion>,
    /// Whether a system reads INT stacks.
    asks_stacks: bool,
    /// Whether a system keeps the first bytes of packets that leave.
    pub(crate) asks_fronts: bool,
    /// Whether a system asks when packets are transmitted, or inserts.
    pub(crate) asks_departures: bool,
    /// The timestamp bits of which packets have claims, bit 0 for 0 and bit 1 for 1.
    pub(crate) claims: u8,
    /// What a system that goes by hops of marks has packets say of their ways.
    pub(crate) hops: Option<u8>,
    /// Whether a system records what IP headers say.
    asks_ip: bool,
    /// Whether a system tells packets of a flow apart.
    asks_digests: bool,
    /// When the burst under way arrived, where that is asked for and known.
    pub(crate) arrival: Option<BurstArrival>,
    /// The port that received it.
    pub(crate) port: u16,
    /// The first of the systems that hash by the same functions, where there are several.
    hashing: Option<usize>,
    /// When the lcore first saw that the next event is due, where that has to wait.
    due_since_ns: Option<u64>,
    /// The last epoch that is measured before the switch stops.
    last_epoch: Option<u64>,
}

/// The systems of sessions, for one kind of key.
#[derive(Debug)]
pub enum SessionSystems {}

impl Keyed for SessionSystems {
    type Of<K: Key> = Systems<K>;
}

/// A session's systems on an lcore. There is room for all that there may be, so that none has to be
/// made.
#[derive(Debug)]
pub struct Systems<K: Key> {
    /// Those that the epochs' events are passed on to, and the packets.
    pub(crate) recording: Vec<Running<K>>,
    /// Those that wait for their first epoch.
    waiting: Vec<Running<K>>,
    /// What has been recorded of the burst under way, where a system records what transmit queues
    /// do. On the heap, since sessions are moved.
    recorded: Box<Flows<K>>,
    /// Room for the arrivals of a burst.
    arrivals: Option<Box<Arrivals>>,
    /// Room for the hashes of a burst.
    hashes: Option<Box<HashColumns>>,
    /// Room for what the IP headers of a burst say.
    ip: Option<Box<IpColumns>>,
    /// Room for the INT stacks of a burst.
    stacks: Option<Box<Stacks>>,
}

/// A system of a session on an lcore.
#[derive(Debug)]
pub(crate) struct Running<K: Key> {
    number: usize,
    /// The first epoch that it measures.
    first: u64,
    /// The first epoch that it does not measure any more.
    end: u64,
    /// The first epoch of which packets and seal are its own to see to, as far as it can: the same
    /// system's half before it sees to those of earlier ones.
    from: u64,
    /// Whether packets that enter are its own to see to.
    pub(crate) enters: bool,
    /// The timestamp bits of which packets are, bit 0 for 0 and bit 1 for 1.
    pub(crate) bits: u8,
    pub(crate) half: Box<dyn LcoreSystem<K>>,
}

impl<K: Key> Running<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        self.half.slots()
    }

    /// Whether packets of an epoch are its own to see to, though it may not measure that.
    fn sees_to(&self, epoch: u64) -> bool {
        (self.from..self.end).contains(&epoch)
    }

    /// Notes which epoch packets enter, and which is the newest that they may carry.
    fn turn_to(&mut self, entering: u64, newest: u64) {
        let bit = |epoch| u8::from(self.sees_to(epoch)) << timestamp_bit(epoch);
        self.bits = bit(newest) | bit(newest.saturating_sub(1));
        self.enters = self.sees_to(entering);
    }

    /// The timestamp bits of which packets have claims, for this system.
    fn claims(&self, newest: u64) -> u8 {
        let bit = |epoch| u8::from((self.first..self.end).contains(&epoch)) << timestamp_bit(epoch);
        let has = self.half.has_claims();
        if has { bit(newest) | bit(newest.saturating_sub(1)) } else { 0 }
    }
}

impl<K: Key> Systems<K> {
    pub(super) fn new() -> Self {
        let [recording, waiting] = [(); 2].map(|()| Vec::with_capacity(MOST_SYSTEMS));
        let recorded = Box::new(Flows::with_arrivals());
        let (arrivals, hashes) = (Some(Box::default()), Some(Box::default()));
        let (ip, stacks) = (Some(Box::default()), Some(Box::default()));
        Self { recording, waiting, recorded, arrivals, hashes, ip, stacks }
    }

    fn find(&mut self, number: usize) -> Option<&mut Running<K>> {
        let mut all = self.recording.iter_mut().chain(&mut self.waiting);
        all.find(|system| system.number == number)
    }
}

/// Adds a system to the session; one that is made for other keys than the session's, or for which
/// there is no room, is dropped.
pub(super) fn add(active: &mut AnyKey<Sessions>, new: NewSystem) {
    let NewSystem { system, first_epoch, half, after } = new;
    let first = (first_epoch, after);
    match (active, half) {
        (AnyKey::Ipv4(active), AnyKey::Ipv4(half)) => active.add(system, first, half),
        (AnyKey::Dual(active), AnyKey::Dual(half)) => active.add(system, first, half),
        _ => {}
    }
}

/// The message that an epoch of a system is sealed.
fn sealed(session: u32, system: usize, seal: Seal) -> FromLcore {
    let Seal { epoch, late_packets, late } = seal;
    FromLcore::Sealed { session, system, epoch, late_packets, late }
}

/// What [`Active::on_due`] has done.
pub(super) struct Done {
    pub(super) moment: Moment,
    /// When something is due next.
    pub(super) next_ns: u64,
    /// Where records are armed: their cache lines, and when they come into use.
    pub(super) armed: Option<(usize, u64)>,
}

impl<K: Key> Active<K> {
    pub(super) fn new(
        session: u32,
        (clock, first_epoch, signer): (EpochClock, u64, Signer),
        domain: Domain,
        systems: Systems<K>,
    ) -> Self {
        Self {
            session,
            guards: clock.guards(),
            clock,
            schedule: Schedule::starting_with(clock, first_epoch),
            epoch: first_epoch.saturating_sub(1),
            newest: first_epoch.saturating_sub(1),
            signer,
            domain,
            transit: false,
            asks_sent: false,
            asks_arrivals: false,
            asks_ip: false,
            asks_digests: false,
            insertion: None,
            asks_stacks: false,
            asks_fronts: false,
            asks_departures: false,
            claims: 0,
            hops: None,
            arrival: None,
            port: 0,
            hashing: None,
            systems,
            due_since_ns: None,
            last_epoch: None,
        }
    }

    /// Its number.
    pub(super) fn session(&self) -> u32 {
        self.session
    }

    pub(super) fn guards(&self) -> Guards {
        self.guards
    }

    /// Whether it has recorded nothing yet, and begins when one does that was begun by a clock just
    /// set to `now_ns`.
    pub(super) fn begins_after_step(&self, now_ns: u64) -> bool {
        let begins = self.clock.first_after_step(now_ns);
        self.systems.recording.is_empty() && self.next_armed().abs_diff(begins) <= 1
    }

    /// What is due next, whether now or not.
    pub(super) fn next_event(&self) -> Event {
        self.schedule.next()
    }

    /// The next epoch that is to be armed.
    fn next_armed(&self) -> u64 {
        match self.schedule.next() {
            Event::Arm(epoch) => epoch,
            Event::Flip(epoch) => epoch + 1,
            Event::Take(epoch) => epoch + 2,
        }
    }

    fn add(
        &mut self,
        number: usize,
        (first_epoch, after): (u64, Option<usize>),
        mut half: Box<dyn LcoreSystem<K>>,
    ) {
        let first = first_epoch.max(self.next_armed());
        let before = after.and_then(|number| self.systems.find(number));
        let from = before.map_or(0, |before| {
            before.end = before.end.min(first);
            before.end
        });
        if self.systems.recording.len() + self.systems.waiting.len() < MOST_SYSTEMS {
            half.slots().start(first, from);
            let (end, enters, bits) = (u64::MAX, true, 0b11);
            let new = Running { number, first, end, from, enters, bits, half };
            self.systems.waiting.push(new);
        }
    }

    /// Lets a system measure no epoch from `end` on, or from the first on that is not armed yet.
    pub(super) fn remove(&mut self, system: usize, end: u64) {
        let end = end.max(self.next_armed());
        if let Some(system) = self.systems.find(system) {
            system.end = end;
        }
    }

    /// Gives records back that are for a system which has left.
    pub(super) fn supply(&mut self, system: usize, groups: Groups) -> Option<Groups> {
        let Some(system) = self.systems.find(system) else { return Some(groups) };
        system.slots().supply(groups);
        None
    }

    /// The same.
    pub(super) fn supply_late(
        &mut self,
        system: usize,
        late: Box<dyn AnyRecord>,
    ) -> Option<Box<dyn AnyRecord>> {
        let Some(system) = self.systems.find(system) else { return Some(late) };
        system.slots().supply_late(late);
        None
    }

    pub(super) fn reconfigure(&mut self, system: usize, epoch: u64, plan: Box<dyn Any + Send>) {
        if let Some(system) = self.systems.find(system) {
            system.slots().reconfigure(epoch, plan);
        }
    }

    pub(super) fn make_ready(&mut self, line: usize) {
        for system in &mut self.systems.recording {
            system.slots().make_ready(line);
        }
    }

    /// Begins a burst.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.asks_sent {
            self.systems.recorded.clear();
        }
    }

    /// The longest packets that no link of the fabric cuts, in bytes of IPv4's total length.
    pub(crate) fn fabric_mtu(&self) -> u16 {
        self.domain.fabric_mtu()
    }

    /// Leaves the packets of hosts outside the domain out, and gives how many they are.
    #[inline]
    pub(crate) fn leave_out_strangers(&self, flows: &mut Flows<K>) -> u64 {
        if self.domain.is_everything() { 0 } else { self.find_strangers(flows) }
    }

    #[inline(never)]
    fn find_strangers(&self, flows: &mut Flows<K>) -> u64 {
        let within = flows.keys().iter().map(|key| self.domain.contains(key.addresses()));
        let bits = within.enumerate();
        let within = bits.fold(0, |bits, (at, within)| bits | u32::from(within) << at);
        let before = flows.len();
        flows.retain(within);
        (before - flows.len()) as u64
    }

    /// Adds what systems ask for: when the packets arrived, what their IP headers and the marks
    /// that were taken out say, and hashes that several use. The TTLs of the packets at the
    /// positions in `lowered` are one less than received. `now_ns` is when the round of polls
    /// began.
    #[inline]
    pub(crate) fn add_details<P: Packet>(
        &mut self,
        packets: &[P],
        (lowered, now_ns): (u32, u64),
        detached: Option<&Detached>,
        flows: &mut Flows<K>,
    ) {
        let entering = Way { hop: 0, length: self.hops.unwrap_or(0) };
        let Systems { recording, hashes, .. } = &mut self.systems;
        if let Some(system) = self.hashing.and_then(|at| recording.get(at))
            && let Some(by) = system.half.hashes_by()
        {
            flows.hash(by, hashes.take());
        }
        if self.asks_arrivals
            && let Some(arrival) = &self.arrival
        {
            let stamp = |at: usize| packets.get(at).and_then(Packet::stamp);
            flows.lend(self.systems.arrivals.take(), arrival, stamp);
        }
        flows.found((now_ns, self.port), self.systems.ip.take());
        if self.asks_ip {
            flows.read_ip(|at, ip_offset| {
                let bytes = packets.get(at).map_or(&[][..], Packet::bytes);
                let mut fields = ip_fields(bytes, ip_offset);
                fields.ttl = fields.ttl.saturating_add((lowered >> at) as u8 & 1);
                fields.way = detached.map_or(entering, |of| of.way(at));
                fields
            });
        }
    }

    /// Keeps what has been recorded of the burst until it is known what was sent of it.
    #[inline]
    pub(crate) fn keep_for_sent(&mut self, flows: &mut Flows<K>) {
        if self.asks_sent {
            self.systems.recorded.append(flows);
        }
        if let Some(hashes) = flows.take_hashes() {
            self.systems.hashes = Some(hashes);
        }
        if let Some(arrivals) = flows.give_back() {
            self.systems.arrivals = Some(arrivals);
        }
        if let Some(ip) = flows.take_ip() {
            self.systems.ip = Some(ip);
        }
        if let Some(stacks) = flows.take_stacks() {
            self.systems.stacks = Some(stacks);
        }
    }

    /// Tells systems what a transmit queue did with packets of the burst, by their positions.
    #[inline]
    pub(crate) fn sent(&mut self, sent: Sent, counters: &mut Counters) {
        if self.asks_sent {
            self.tell_sent(sent, counters);
        }
    }

    #[inline(never)]
    fn tell_sent(&mut self, sent: Sent, counters: &mut Counters) {
        let Systems { recording, recorded, .. } = &mut self.systems;
        let [accepted, refused] =
            [sent.accepted, sent.refused].map(|positions| recorded.at_positions(positions));
        if accepted | refused != 0 {
            for system in recording {
                system.half.sent(recorded, Sent { accepted, refused }, counters);
            }
        }
    }

    /// Every event that is due and may happen now.
    pub(super) fn on_due(
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
        let recording = &mut self.systems.recording;
        let lines = recording.iter_mut().map(|system| system.slots().armed_lines()).max();
        let lines = lines.filter(|&lines| lines > 0);
        // What has been flipped out of is handed over before the next burst.
        let waiting = recording.iter_mut().any(|system| system.slots().has_flipped());
        Done {
            moment,
            next_ns: if waiting { now_ns } else { self.schedule.next_at_ns() },
            armed: lines.map(|lines| (lines, self.schedule.next_at_ns())),
        }
    }

    /// Whether the next event may happen now, if it is due: a flip waits for one burst, and taking
    /// for empty queues, though not for long.
    fn may_go_on(&mut self, now_ns: u64, drained: bool) -> bool {
        let due_ns = self.schedule.next_at_ns();
        if now_ns < due_ns {
            return true;
        }
        let may = match (self.schedule.next(), self.due_since_ns) {
            (Event::Arm(_), _) => true,
            // If the lcore was interrupted, the burst that finds the flip due is the first one
            // after it: its packets have waited and its memory is cold, so it is not
            // made to pay for the flip as well.
            (Event::Flip(_), since) => {
                since.is_some() || now_ns - due_ns > self.guards.flight_ns / LATE_SHARE
            }
            // The queues must be seen empty after the taking fell due, not before: the lcore may
            // have been off its CPU in between.
            (Event::Take(_), Some(since)) => {
                drained || now_ns - since >= most_drain_ns(&self.clock)
            }
            (Event::Take(_), None) => false,
        };
        self.due_since_ns = if may { None } else { self.due_since_ns.or(Some(now_ns)) };
        may
    }

    /// Hands over the ingress records that the last flip left behind.
    pub(super) fn hand_over(&mut self, outbox: &Sender<FromLcore>, counters: &Counters) {
        let (session, side) = (self.session, Side::Ingress);
        for of in &mut self.systems.recording {
            let system = of.number;
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
            Event::Arm(epoch) => self.arm(epoch, outbox),
            Event::Flip(epoch) => {
                let stall_ns = if late_ns > self.guards.flight_ns { late_ns } else { 0 };
                self.epoch = epoch;
                for system in &mut self.systems.recording {
                    system.slots().flip(epoch, stall_ns);
                    system.turn_to(epoch, self.newest);
                }
                self.find_insertion();
            }
            Event::Take(epoch) => {
                let too_late = now_ns >= self.clock.arm_time(epoch + 2);
                let stall_ns = if too_late { late_ns } else { 0 };
                let side = Side::ByBit;
                for of in &mut self.systems.recording {
                    let system = of.number;
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

    /// Arms `epoch`: systems whose first one it is begin to record, and those that have left are
    /// given back.
    fn arm(&mut self, epoch: u64, outbox: &Sender<FromLcore>) {
        let session = self.session;
        self.newest = epoch;
        self.signer.begin(epoch);
        let Systems { recording, waiting, .. } = &mut self.systems;
        let before = recording.len();
        recording.extend(waiting.extract_if(.., |system| system.first <= epoch));
        let mut changed = recording.len() != before;
        for of in recording.iter_mut() {
            let slots = of.half.slots();
            let closed = if epoch < of.end { slots.arm(epoch) } else { slots.close(epoch) };
            if let Some(seal) = closed {
                let _ = outbox.try_send(sealed(session, of.number, seal));
            }
        }
        for Running { number: system, half, .. } in
            recording.extract_if(.., |system| epoch > system.end)
        {
            let half = K::any::<LcoreHalf>(half);
            let _ = outbox.try_send(FromLcore::Removed { session, system, half });
            changed = true;
        }
        for system in recording.iter_mut() {
            system.turn_to(self.epoch, epoch);
        }
        self.claims = recording.iter().fold(0, |bits, system| bits | system.claims(epoch));
        if changed {
            self.transit = recording.iter().any(|system| system.half.wants_transit());
            self.asks_sent = recording.iter().any(|system| system.half.wants_sent());
            self.hashing = share_hashes(recording);
            self.asks_arrivals = recording.iter().any(|system| system.half.wants_arrivals());
            self.hops = recording.iter().find_map(|system| system.half.marks_hops());
            self.asks_ip = recording.iter().any(|system| system.half.wants_ip());
            self.asks_digests = recording.iter().any(|system| system.half.wants_digests());
            self.asks_stacks = recording.iter().any(|system| system.half.wants_stacks());
            self.asks_fronts = recording.iter().any(|system| system.half.wants_fronts());
        }
        self.find_insertion();
    }

    pub(super) fn leave(&mut self, outbox: &Sender<FromLcore>) -> Leaving {
        let running = self.epoch;
        let last = *self.last_epoch.get_or_insert(running);
        let recording = self.systems.recording.iter_mut().any(|of| of.slots().is_recording());
        if last == running && recording {
            return Leaving::LastEpoch;
        }
        // Where the last one is not measured, the one before it may still have to be taken.
        let last = match self.schedule.next() {
            Event::Take(epoch) if epoch <= last => return Leaving::EgressOnly,
            Event::Arm(epoch) => last.min(epoch.saturating_sub(2)),
            _ => last,
        };
        // Nothing is received any more, so nothing can come late.
        for of in &mut self.systems.recording {
            let closed = of.slots().close(last + 2);
            if let Some(seal) = closed.filter(|seal| seal.epoch == last) {
                let _ = outbox.try_send(sealed(self.session, of.number, seal));
            }
        }
        Leaving::Done
    }
}
