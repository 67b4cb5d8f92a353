//! The hardware switch in the simulation: a system's P4 program on the model of a Tofino, its
//! tables filled and its registers read by the description that the live control plane runs it by.
//! What its driver and the collection packets do takes no time here; live fabrics have both.

mod entries;
mod measurer;
mod noticing;
mod registers;

use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use calumma_chamelemon::Layout;
use calumma_edge::carrier::{Mark, PlainTos};
use calumma_edge::packet::Packet;
use calumma_epoch::{EpochClock, Event, Schedule, Timeline, timestamp_bit};
use calumma_plane::MarkedRun;
use calumma_sketch::WideKey;
use calumma_switch_host as host;
use calumma_switchd::notices::{self, Received};
use calumma_switchd::system::{
    Closed, EpochEntries, Plan, Setup, System, Target, side_at_flip, side_at_take,
};
use calumma_switchd::tables::TableEntry;
use calumma_tna::{Entry, Program, Switch};
use calumma_wire::{Role, Side, SideKind, SystemId, SystemSetup};

use self::entries::{add, modelled};
use self::noticing::Noticing;
use super::network::{Bytes, IP_OFFSET, bytes};
use super::stay::{Stay, SwitchQuality};
use super::systems::Systems;
use crate::calumma::p4;
use crate::workload::frame;

/// Its ports: at an edge one for all hosts and one for the fabric, else two for the fabric.
const FIRST: u16 = 1;
const SECOND: u16 = 2;

/// The port of hosts whose packets for the others cross no other switch.
const LOCAL: u16 = 3;

/// Of packets of runs, nobody says when.
const AT_ONCE: Stay = Stay { arrived_ns: 0, departed_ns: 0 };

/// How often it looks out for a session when it has none.
const IDLE_NS: u64 = 1_000_000;

/// What a switch has finished.
pub(super) enum Finished {
    /// A side of an epoch.
    Side(Side),
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// The system.
        system: SystemId,
        /// The epoch.
        epoch: u64,
        /// Packets that came too late, and what else the system says of them.
        late: (u64, Vec<u8>),
    },
    /// What is reported before the window that begins with the epoch is over.
    Notice {
        /// The system.
        system: SystemId,
        /// The epoch.
        epoch: u64,
        /// What its controller reads.
        body: Vec<u8>,
    },
}

/// A modelled switch.
#[derive(Debug)]
pub(super) struct Tofino {
    role: Role,
    /// The system whose program it has; without one it forwards and records nothing.
    system: Option<&'static dyn System>,
    /// What programs are built for.
    layout: Layout,
    systems: Systems,
    session: Option<Box<Session>>,
    /// What follows once that has finished its last epochs.
    next: Option<Box<Session>>,
    idle_until_ns: u64,
    /// By how much the clock was set that has ended the session, in nanoseconds.
    clock_set: Option<i64>,
    /// Longest IP packet that it sends with a stack.
    mtu: u16,
}

/// Where a program that makes packets longer has what fits each port; and where those that ask at
/// ingress have the ports that lead to hosts.
const LIMITS: &str = "Egress.push.mtus";
const SINKS: &str = "Ingress.sink.ports";
const LEAVES: &str = "Ingress.leaves.ports";

/// What is measured, and by which switch.
struct Session {
    id: SystemId,
    setup: Arc<dyn Setup>,
    role: Role,
    switch: Switch,
    /// Whether the program makes packets longer, where that fits a port.
    limits: bool,
    /// Whether it asks where packets of hosts go.
    asks_ends: bool,
    clock: EpochClock,
    schedule: Schedule,
    first_epoch: u64,
    /// The first epoch that is not to be reported any more.
    end: u64,
    /// Whether all epochs before that are finished.
    is_over: bool,
    plans: Timeline<Plan>,
    /// The plan accepted last, and the epoch from which it holds.
    holding: (Plan, u64),
    groups: [Group; 2],
    noticing: Noticing,
    /// The program's counter of packets that entered, by timestamp bit, and what it had counted as
    /// the last epoch of each ended.
    entered: (Option<&'static str>, [u64; 2]),
    /// Packets that have left, as they were counted when a group was closed last.
    left: [u64; KINDS],
    /// By parity: what is recorded together, in one group of registers.
    windows: [Window; 2],
}

/// What is known of a window, which is one epoch or several.
#[derive(Clone, Default)]
struct Window {
    /// Its first epoch, where packets have been recorded since then.
    first: Option<u64>,
    /// The plan of the first epoch.
    plan: Option<Plan>,
    /// What tables hold for all of it.
    entries: Vec<TableEntry>,
    late_packets: u64,
    unrecorded: u64,
    foreign_packets: u64,
}

/// Of packets that leave the program counts those of which nothing is to be recorded, those that
/// are recorded, and those that could not be.
const KINDS: usize = 3;

/// What packets of a timestamp bit are recorded by.
#[derive(Default)]
struct Group {
    /// The plan of the epoch under way, and all that the tables hold for it.
    measured: Option<(Plan, EpochEntries)>,
    /// The last epoch, and how many packets could not be recorded when it was closed.
    closed: Option<(u64, u64)>,
    /// How many packets could not be recorded when the group was opened.
    opened: Option<u64>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = f.debug_struct("Session");
        session.field("id", &self.id).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Tofino {
    /// A switch of that role with the program of a system.
    pub(super) fn new(
        role: Role,
        system: Option<&'static dyn System>,
        layout: Layout,
        systems: Systems,
    ) -> Self {
        let (session, next, clock_set) = (None, None, None);
        let mtu = SwitchQuality::default().mtu;
        Self { role, system, layout, systems, session, next, idle_until_ns: 0, clock_set, mtu }
    }

    /// Whether its program notes when packets arrive and depart.
    pub(super) fn is_timed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.limits)
    }

    /// Sets the longest IP packet that it sends with a stack.
    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        for session in self.session.iter_mut().chain(&mut self.next) {
            session.limit(mtu);
        }
    }

    /// Whether its tables are filled.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        match &self.session {
            Some(session) => session.schedule.next_at_ns(),
            None => self.idle_until_ns,
        }
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(&mut self, shown_ns: u64) -> Result<Vec<Finished>> {
        let Some(session) = &mut self.session else {
            self.idle_until_ns = shown_ns + IDLE_NS;
            return Ok(Vec::new());
        };
        let mut finished = session.step(shown_ns)?;
        finished.extend(session.notice(shown_ns));
        if session.is_over
            && let Some(next) = self.next.take()
        {
            **session = *next;
            session.follow(shown_ns)?;
        }
        Ok(finished)
    }

    /// The clock was set: where that is beyond the guard, the session is over, and packets pass as
    /// they are.
    pub(super) fn clock_set(&mut self, by_ns: i64) {
        let guard_ns = self.session.as_ref().map(|session| session.clock.guards().clock_ns);
        if guard_ns.is_some_and(|guard_ns| by_ns.unsigned_abs() > guard_ns) {
            (self.session, self.next) = (None, None);
            self.idle_until_ns = 0;
            self.clock_set = Some(by_ns);
        }
    }

    pub(super) fn ingress(&mut self, packet: &mut Bytes, stay: Stay) {
        self.pass(FIRST, packet, stay);
    }

    pub(super) fn egress(&mut self, packet: &mut Bytes, stay: Stay) {
        self.pass(SECOND, packet, stay);
    }

    /// A packet goes from host to host, of this edge.
    pub(super) fn cross(&mut self, packet: &mut Bytes, stay: Stay) {
        if self.session.as_ref().is_some_and(|session| session.asks_ends) {
            return self.pass(LOCAL, packet, stay);
        }
        self.ingress(packet, stay);
        self.egress(packet, stay);
    }

    /// A packet passes from fabric to fabric; one that is not `accepted` finds a full queue.
    pub(super) fn transit(&mut self, packet: &mut Bytes, stay: Stay, accepted: bool) {
        match &mut self.session {
            Some(session) if !accepted => {
                session.switch.offer(FIRST, packet.bytes());
                session.switch.run_ingress();
                session.switch.discard_waiting();
            }
            _ => self.pass(FIRST, packet, stay),
        }
    }

    /// What a run stands for goes through the switch packet by packet.
    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        let mut bit = 0;
        let mut hierarchy = || {
            let mut packet = bytes(&frame(key, 60));
            self.ingress(&mut packet, AT_ONCE);
            let mark = mark_of(&packet);
            bit = mark.bit;
            mark.hierarchy
        };
        let run = (0..packets).map(|_| hierarchy()).collect();
        MarkedRun { bit, run }
    }

    pub(super) fn leave_run(&mut self, key: &WideKey, MarkedRun { bit, run }: MarkedRun) {
        for (hierarchy, packets) in run.by_hierarchy() {
            for _ in 0..packets {
                let mut packet = bytes(&frame(key, 60));
                let mark = Mark::plain(bit, hierarchy);
                PlainTos::default().write(packet.bytes_mut(), IP_OFFSET, mark);
                self.egress(&mut packet, AT_ONCE);
            }
        }
    }

    /// A packet goes in through a port, and out through the other one.
    fn pass(&mut self, port: u16, packet: &mut Bytes, stay: Stay) {
        let Some(session) = &mut self.session else { return };
        let Session { switch, noticing, .. } = &mut **session;
        switch.set_time(stay.arrived_ns);
        switch.offer(port, packet.bytes());
        switch.run_ingress();
        switch.set_time(stay.departed_ns);
        noticing.run(switch, |sent| {
            let longer = sent.len().saturating_sub(packet.bytes().len());
            if longer > 0 {
                packet.prepend(longer);
            }
            let shorter = packet.bytes().len().saturating_sub(sent.len());
            if shorter > 0 {
                packet.adj(shorter);
            }
            packet.bytes_mut().copy_from_slice(sent);
        });
    }

    /// What measures by a session from its first epoch on.
    fn start(&self, session: &host::Session, asked: &SystemSetup) -> Result<Box<Session>, String> {
        if !session.domain.is_everything() {
            return Err("a Tofino measures all packets".to_owned());
        }
        let system = self.system.filter(|system| system.id() == asked.system);
        let system = system.ok_or_else(|| format!("no program of {} is loaded", asked.system))?;
        let setup = system.setup((self.role, Target::Tofino), session, asked)?;
        let Systems { on, sections, .. } = &self.systems;
        let program = p4::configuration(&self.layout, on, sections)
            .and_then(|controller| p4::program((system, self.role), &controller))
            .map_err(|problem| format!("{problem:#}"))?;
        let started = Session::new(self.role, &program, setup, session, asked);
        let mut started = started.map_err(|problem| format!("{problem:#}"))?;
        started.limit(self.mtu);
        Ok(Box::new(started))
    }

    /// What runs by the session that the controller knows of.
    fn of_session(&self, system: SystemId) -> Option<&Session> {
        let all = self.next.iter().chain(&self.session).map(|session| &**session);
        all.filter(|session| session.end == u64::MAX).find(|session| session.id == system)
    }
}

impl Session {
    fn new(
        role: Role,
        program: &Program,
        setup: Arc<dyn Setup>,
        host::Session { clock, first_epoch, .. }: &host::Session,
        asked: &SystemSetup,
    ) -> Result<Self> {
        let mut switch = Switch::new(program);
        let limits = switch.clear_table(LIMITS).is_ok();
        for entry in setup.fixed() {
            add(&mut switch, &entry)?;
        }
        for (port, peer) in [(FIRST, SECOND), (SECOND, FIRST)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", peer);
            switch.add_entry("port_pair", &send)?;
        }
        let mut asks_ends = false;
        if role == Role::Edge {
            let host = Entry::new("host").exact("ingress_port", FIRST);
            switch.add_entry("Ingress.host_ports", &host)?;
            let host = Entry::new("host").exact("egress_port", FIRST).arg("dscp", 0u8);
            switch.add_entry("Egress.host_ports", &host)?;
            let sink = Entry::new("sink").exact("port", FIRST);
            let leaves = Entry::new("host").exact("port", FIRST).arg("claim", 0u8);
            for (table, host) in [(SINKS, sink), (LEAVES, leaves)] {
                if switch.clear_table(table).is_ok() {
                    switch.add_entry(table, &host)?;
                    asks_ends = true;
                }
            }
            let send = Entry::new("send").exact("ingress_port", LOCAL).arg("port", FIRST);
            switch.add_entry("port_pair", &send)?;
            let host = Entry::new("host").exact("ingress_port", LOCAL);
            switch.add_entry("Ingress.host_ports", &host)?;
        }
        let needs = setup.needs();
        let noticing = Noticing::new(&mut switch, needs.notices);
        let plan = Plan::from(&*asked.plan);
        let mut session = Self {
            id: asked.system,
            setup,
            role,
            switch,
            limits,
            asks_ends,
            clock: *clock,
            schedule: Schedule::starting_with(*clock, *first_epoch),
            first_epoch: *first_epoch,
            end: u64::MAX,
            is_over: false,
            plans: Timeline::new(plan.clone()),
            holding: (plan, *first_epoch),
            groups: Default::default(),
            noticing,
            entered: (needs.entered, [0; 2]),
            left: [0; KINDS],
            windows: Default::default(),
        };
        // Not with the first epoch's: packets that enter before it are not taken for its own.
        session.stamp_with(*first_epoch - 1)?;
        Ok(session)
    }

    /// Begins only now, since another one was still busy on this switch.
    fn follow(&mut self, shown_ns: u64) -> Result<()> {
        self.first_epoch = self.first_epoch.max(self.clock.epoch_at(shown_ns) + 2);
        self.schedule = Schedule::starting_with(self.clock, self.first_epoch);
        self.stamp_with(self.first_epoch - 1)
    }

    /// Sets the longest IP packet that may leave with a stack.
    fn limit(&mut self, mtu: u16) {
        if !self.limits || self.switch.clear_table(LIMITS).is_err() {
            return;
        }
        for port in [FIRST, SECOND] {
            let limit = Entry::new("limit").exact("port", port).arg("mtu", mtu);
            // It has room for all ports.
            let _ = self.switch.add_entry(LIMITS, &limit);
        }
    }

    /// Stamps with the timestamp bit of an epoch.
    fn stamp_with(&mut self, epoch: u64) -> Result<()> {
        let value = [("value", u128::from(epoch & 1))];
        self.switch.set_default_action("Ingress.timestamp", "set_timestamp", &value)?;
        Ok(())
    }

    fn step(&mut self, shown_ns: u64) -> Result<Vec<Finished>> {
        let finished = match self.schedule.due(shown_ns).map(|due| due.event) {
            Some(Event::Arm(epoch)) => self.arm(epoch)?,
            Some(Event::Flip(epoch)) => self.flip(epoch)?,
            Some(Event::Take(epoch)) if epoch >= self.first_epoch => return self.take(epoch),
            _ => None,
        };
        Ok(finished.into_iter().collect())
    }

    /// Fills the tables of an epoch; packets of the last one with its timestamp bit are no longer
    /// late. The first epoch that is not reported is opened all the same, or its packets would
    /// seem to be late ones.
    fn arm(&mut self, epoch: u64) -> Result<Option<Finished>> {
        let bit = timestamp_bit(epoch);
        let [.., unrecorded] = self.count()?;
        let (first, parity) = (self.first(epoch), self.parity(epoch));
        let begins = (epoch == first).then_some(parity);
        let next = self.noticing.next(&self.switch)?;
        let notices = self.noticing.arm(bit, begins, &next);
        let closed = self.groups[bit].closed.take();
        let sealed =
            closed.and_then(|(epoch, before)| self.seal(epoch, unrecorded - before, &notices));
        self.noticing.allow(&mut self.switch, &next)?;
        if begins.is_some() {
            let next = Window { first: Some(epoch), ..Window::default() };
            let Window { entries, .. } = mem::replace(&mut self.windows[parity], next);
            for entry in &entries {
                self.switch.delete_entry(&entry.table, &modelled(entry))?;
            }
        }
        if epoch <= self.end && self.windows[parity].first == Some(first) {
            let of_window = self.windows[parity].plan.clone().filter(|_| self.setup.is_ahead());
            let plan = match of_window {
                Some(plan) => plan,
                None => {
                    let plan = self.plans.freeze(epoch);
                    let entries = self.setup.of_window(epoch, &plan).map_err(anyhow::Error::msg)?;
                    for entry in &entries {
                        add(&mut self.switch, entry)?;
                    }
                    self.windows[parity].entries = entries;
                    plan
                }
            };
            self.windows[parity].plan = Some(plan.clone());
            let entries = self.setup.epoch(epoch, &plan).map_err(anyhow::Error::msg)?;
            for entry in entries.rest.iter().chain(&entries.gate) {
                add(&mut self.switch, entry)?;
            }
            self.groups[bit].measured = Some((plan, entries));
        }
        let group = &mut self.groups[bit];
        group.opened = group.measured.is_some().then_some(unrecorded);
        self.is_over = epoch > self.end && self.groups.iter().all(|group| group.closed.is_none());
        Ok(sealed)
    }

    /// No packet of an epoch can be recorded any more, and so many came late.
    fn seal(&mut self, epoch: u64, late_packets: u64, notices: &[Received]) -> Option<Finished> {
        let (first, parity) = (self.first(epoch), self.parity(epoch));
        let window = &mut self.windows[parity];
        window.late_packets += late_packets;
        let (system, late_packets) = (self.id, window.late_packets);
        let is_over = self.is_last(epoch) && first + self.setup.window() <= self.end;
        let late = self.setup.seal(first, late_packets, notices);
        is_over.then_some(Finished::Sealed { system, epoch: first, late })
    }

    /// The first epoch of an epoch's window.
    fn first(&self, epoch: u64) -> u64 {
        epoch - epoch % self.setup.window()
    }

    fn is_last(&self, epoch: u64) -> bool {
        self.first(epoch + 1) == epoch + 1
    }

    /// Which group of the registers an epoch is recorded in.
    fn parity(&self, epoch: u64) -> usize {
        ((epoch / self.setup.window()) & 1) as usize
    }

    /// Stamps with the next epoch's bit, and reads what has entered in the one that ends.
    fn flip(&mut self, epoch: u64) -> Result<Option<Finished>> {
        self.stamp_with(epoch)?;
        let epoch = epoch - 1;
        let entered = self.entered_since(timestamp_bit(epoch))?;
        let side = side_at_flip(self.role).filter(|_| !self.setup.ingress_at_take());
        let Some(side) = side else { return Ok(None) };
        let Some((plan, _)) = &self.groups[timestamp_bit(epoch)].measured else {
            // What entered before the first epoch is of none.
            let (sources, parity) = (self.setup.sources(side), self.parity(epoch));
            registers::clear(&mut self.switch, sources, parity)?;
            return Ok(None);
        };
        if epoch >= self.end {
            return Ok(None);
        }
        let closed = Closed { entered, ..Closed::in_time(epoch, side, plan.clone()) };
        self.side(closed, Vec::new()).map(Some)
    }

    /// Empties the tables of an epoch; where a window ends with it, reads its last sides and clears
    /// its registers.
    fn take(&mut self, epoch: u64) -> Result<Vec<Finished>> {
        let bit = timestamp_bit(epoch);
        // While both groups are open, no packet comes late: one that is not recorded is foreign.
        let opened = self.groups[timestamp_bit(epoch + 1)].opened;
        let group = mem::take(&mut self.groups[bit]);
        let Some((plan, entries)) = group.measured else { return Ok(Vec::new()) };
        for entry in entries.gate.iter().chain(&entries.rest) {
            self.switch.delete_entry(&entry.table, &modelled(entry))?;
        }
        let left = self.count()?;
        let before = mem::replace(&mut self.left, left);
        let next = self.noticing.next(&self.switch)?;
        if epoch < self.end {
            self.groups[bit].closed = Some((epoch, left[2]));
        }
        let (first, parity) = (self.first(epoch), self.parity(epoch));
        let window = &mut self.windows[parity];
        window.foreign_packets += opened.map_or(0, |opened| left[2] - opened);
        window.unrecorded += left[0] - before[0];
        let Window { unrecorded, foreign_packets, .. } = *window;
        let numbers = self.noticing.take(bit, parity, &next);
        if !self.is_last(epoch) {
            return Ok(Vec::new());
        }
        let mut finished = Vec::new();
        if epoch < self.end {
            let closed = Closed::in_time(first, side_at_take(self.role), plan);
            let closed = Closed { unrecorded, foreign_packets, ..closed };
            if self.setup.ingress_at_take() {
                let ingress = Closed { side: SideKind::Ingress, ..closed.clone() };
                finished.push(self.side(ingress, Vec::new())?);
            }
            finished.push(self.side(closed, numbers)?);
        }
        registers::clear(&mut self.switch, &self.setup.needs().sources, parity)?;
        Ok(finished)
    }

    /// The notices of events with these numbers are of it.
    fn side(&mut self, mut closed: Closed, numbers: Vec<Range<u32>>) -> Result<Finished> {
        let sources = self.setup.sources(closed.side);
        let words = registers::words(&self.switch, sources, self.parity(closed.epoch))?;
        let events = notices::of_side(&*self.setup, &closed, &words, numbers);
        closed.notices = self.noticing.of(&events);
        self.setup.side(&closed, &words).map(Finished::Side).map_err(anyhow::Error::msg)
    }

    /// Packets that have left so far.
    fn count(&self) -> Result<[u64; KINDS]> {
        let mut counts = [0; KINDS];
        for (kind, count) in counts.iter_mut().enumerate() {
            *count = self.switch.read_counter("Egress.packets", kind)?.packets;
        }
        // Some programs count late ones as they come.
        if let Ok(late) = self.switch.read_counter("Ingress.late", 0) {
            counts[2] += late.packets;
        }
        Ok(counts)
    }
}

/// The mark that a packet carries.
fn mark_of(packet: &Bytes) -> Mark {
    // Its header is whole.
    PlainTos::default().read(packet.bytes(), IP_OFFSET).unwrap_or(Mark::from_bits(0))
}
