//! The software switch in the simulation: the live one's workers, systems and frames. Only ports
//! and sockets are missing.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Result, ensure};
use calumma_controller::report;
use calumma_edge::control::paths::Order;
use calumma_edge::control::systems::{Finished, Systems};
use calumma_plane::carrier::Carrier;
use calumma_plane::int::Instructions;
use calumma_plane::int::around::{Came, Queued};
use calumma_plane::packet::Packet;
use calumma_plane::parse::{Parsed, PlainFlows, parse};
use calumma_plane::probe::{LcoreProbes, ProbeLine};
use calumma_plane::system::{RouteWatch, System};
use calumma_plane::worker::{Departure, Path, Policy, Sent};
use calumma_plane::{Counters, MarkedRun, Measurement, Worker};
use calumma_sketch::{BURST, FlowKey, KeyKind, WideKey};
use calumma_wire::{Message, Role};
use serde::Deserialize;

use super::network::{Bytes, bytes};
use super::paths::ProbeBytes;
use super::stay::Stay;
use crate::workload::frame;

/// Ports of a switch: for what hosts send, and for all others.
const PORTS: usize = 2;
const FROM_HOSTS: u16 = 0;
const FROM_FABRIC: u16 = 1;

/// The lcores of software switches, and which of them a packet comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lcores {
    /// How many there are, 1 to [`Self::MOST`].
    pub count: usize,
    /// Whether ports spread packets by their flows (receive side scaling), or one after the other
    /// whatever flow they are of.
    pub rss: bool,
}

impl Default for Lcores {
    fn default() -> Self {
        Self { count: 1, rss: true }
    }
}

impl Lcores {
    /// Most lcores of a switch.
    pub const MOST: usize = 8;

    /// # Errors
    /// Where there are none, or too many.
    pub(crate) fn check(self) -> Result<()> {
        let Self { count, .. } = self;
        ensure!((1..=Self::MOST).contains(&count), "lcores.count = {count}: 1 to {}", Self::MOST);
        Ok(())
    }
}

/// A switch of one lcore or several.
#[derive(Debug)]
pub(super) struct Software {
    /// That of each lcore. The first has all that is about probes.
    workers: Vec<Worker>,
    /// Whether packets come to lcores by their flows.
    rss: bool,
    /// The lcore that the next packet comes to otherwise.
    turn: usize,
    /// What it measures with.
    pub(super) systems: Systems,
    /// When its routes change.
    pub(super) routes: RouteWatch,
    /// What its worker finds of probes.
    found: ProbeLine,
    /// Longest IP packet that it sends with a stack.
    pub(super) mtu: u16,
    /// Packets that are in its receive queue when the next one comes.
    pub(super) waiting: u32,
    /// The same of the last one, where stacks ask for it.
    pub(super) queued: Option<u32>,
}

impl Software {
    /// A switch of this role that knows these systems, and marks packets by `carrier`, or by the
    /// one of `choices` that the controller says.
    pub(super) fn new(
        known: &'static [&'static dyn System],
        (name, role): (&str, Role),
        (carrier, choices): (Carrier, Vec<(String, Carrier)>),
        Lcores { count, rss }: Lcores,
    ) -> Self {
        let (systems, mailboxes) = Systems::new(known, role, count);
        let routes = RouteWatch::default();
        let systems = systems.with_carrier(carrier).with_carriers(choices);
        let systems = systems.with_routes(routes.clone()).with_ports(name, PORTS);
        let policy = Policy { carrier, strip: true, ..Policy::default() };
        let worker = |mailbox| Worker::new(policy, Measurement::new(mailbox));
        let mut workers: Vec<Worker> = mailboxes.into_iter().map(worker).collect();
        let (probes, found) = LcoreProbes::new();
        workers[0].probes = probes;
        let (mtu, waiting, queued) = (u16::MAX, 1, None);
        Self { workers, rss, turn: 0, systems, routes, found, mtu, waiting, queued }
    }

    /// The lcore that a packet comes to.
    fn lcore_of(&mut self, packet: &Bytes) -> usize {
        let lcores = self.workers.len();
        if lcores == 1 {
            return 0;
        }
        if !self.rss {
            self.turn = (self.turn + 1) % lcores;
            return self.turn;
        }
        // As with ports, what is no plain IP comes to the first.
        let mut hash = DefaultHasher::new();
        match parse(packet.bytes(), packet.wire_len()) {
            Parsed::Flow { key, .. } => key.hash(&mut hash),
            Parsed::Flow6 { key, .. } => key.hash(&mut hash),
            _ => return 0,
        }
        (hash.finish() % lcores as u64) as usize
    }

    /// What its clock shows when an lcore has something to do next, and which one that is.
    fn next_due(&self) -> (u64, usize) {
        let due = self.workers.iter().map(Worker::next_due_ns).zip(0..);
        due.min().expect("a switch has an lcore")
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        self.next_due().0
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(&mut self, shown_ns: u64) -> Vec<Finished> {
        let (due_ns, lcore) = self.next_due();
        let worker = &mut self.workers[lcore];
        match due_ns {
            // It has just been started, and looks out for a session from now on.
            0 => {
                worker.tick(shown_ns, true);
            }
            due_ns => worker.advance_to(due_ns),
        }
        self.systems.poll()
    }

    /// Its clock was set by `by_ns`, and shows `shown_ns`.
    pub(super) fn clock_set(&mut self, by_ns: i64, shown_ns: u64) {
        for worker in &mut self.workers {
            if worker.clock_set(by_ns, shown_ns) {
                worker.tick(shown_ns, true);
            }
        }
        // What it has finished before is of a session that is over.
        self.systems.poll();
    }

    /// Does what is due about probes. Gives those of its own that enter the network, and what it
    /// has to say.
    pub(super) fn probe(&mut self, shown_ns: u64) -> (Vec<ProbeBytes>, Option<Message>) {
        let Self { workers, systems, found, .. } = self;
        let worker = &mut workers[0];
        let paths = &mut systems.paths;
        if let Some(key) = paths.take_key() {
            worker.probes.set_key(Some(key));
        }
        if paths.wants_samples(shown_ns) {
            worker.probes.want_sample();
        }
        found.found().for_each(|found| paths.found(0, found, shown_ns));
        let mut probes = Vec::new();
        for Order { frame, len, mark, .. } in paths.due(shown_ns) {
            let mut packet = ProbeBytes::new(frame[..len].to_vec());
            worker.probes.send(mark);
            let drops = worker.ingress(std::slice::from_mut(&mut packet));
            worker.probes.sent();
            probes.extend(drops.is_empty().then_some(packet));
        }
        (probes, paths.message(shown_ns))
    }

    /// What systems report before their epochs are over.
    pub(super) fn notices(&self, shown_ns: u64) -> impl Iterator<Item = Message> {
        self.systems.notices(shown_ns)
    }

    /// A probe arrives from the fabric. Gives whether it is taken out.
    pub(super) fn take_probe(&mut self, probe: &mut ProbeBytes, shown_ns: u64) -> bool {
        self.workers[0].advance_to(shown_ns);
        !self.workers[0].egress(std::slice::from_mut(probe)).is_empty()
    }

    /// Whether it is asked when packets arrive and depart.
    pub(super) fn is_timed(&self) -> bool {
        self.workers[0].asks_arrivals()
    }

    /// A packet arrives at a port. Gives the lcore that it comes to.
    fn arrive(&mut self, packet: &Bytes, port: u16, stay: Stay) -> usize {
        let lcore = self.lcore_of(packet);
        let is_timed = self.is_timed();
        let worker = &mut self.workers[lcore];
        if is_timed {
            worker.advance_to(stay.arrived_ns);
        }
        worker.received_by(port);
        let asks = worker.asks_around() & Instructions::QUEUE != 0;
        self.queued = asks.then_some(self.waiting);
        if let Some(waiting) = self.queued {
            let queued = Queued::of_poll(Some(waiting), 1, true);
            worker.came(Some(Came::by(port, Some(queued))));
        }
        lcore
    }

    /// A packet is handed to a transmit queue, which takes it.
    fn send(&mut self, lcore: usize, packet: &mut Bytes, stay: Stay) {
        let worker = &mut self.workers[lcore];
        if worker.asks_departures() {
            let departure = Departure { at_ns: stay.departed_ns, mtu: self.mtu };
            worker.depart(std::slice::from_mut(packet), 1, departure);
            worker.sent(Sent { accepted: 1, refused: 0 });
        }
    }

    pub(super) fn ingress(&mut self, packet: &mut Bytes, stay: Stay) {
        let lcore = self.arrive(packet, FROM_HOSTS, stay);
        let worker = &mut self.workers[lcore];
        if worker.probes.wants_sample() {
            worker.probes.sample(std::slice::from_ref(packet), 0);
        }
        worker.ingress(std::slice::from_mut(packet));
        self.send(lcore, packet, stay);
    }

    pub(super) fn egress(&mut self, packet: &mut Bytes, stay: Stay) {
        let lcore = self.arrive(packet, FROM_FABRIC, stay);
        self.workers[lcore].egress(std::slice::from_mut(packet));
        self.send(lcore, packet, stay);
    }

    /// A packet goes to a host with a sink of its own.
    pub(super) fn hand_on(&mut self, packet: &mut Bytes, stay: Stay) {
        let lcore = self.arrive(packet, FROM_FABRIC, stay);
        self.workers[lcore].hand_on(std::slice::from_mut(packet));
        self.send(lcore, packet, stay);
    }

    /// A packet goes from host to host.
    pub(super) fn cross(&mut self, packet: &mut Bytes, path: Path, stay: Stay) {
        let lcore = self.arrive(packet, FROM_HOSTS, stay);
        let worker = &mut self.workers[lcore];
        worker.counters.host_received += 1;
        worker.begin();
        worker.pass(path, std::slice::from_mut(packet), 1, &PlainFlows::NONE);
        self.send(lcore, packet, stay);
    }

    /// A burst of packets passes from fabric to fabric; its transmit queue takes those that are
    /// `accepted`, by position. With several lcores each is a burst of its own.
    ///
    /// # Panics
    /// When there are more than [`BURST`].
    pub(super) fn pass(
        &mut self,
        packets: &mut [Bytes],
        stay: Stay,
        accepted: impl Fn(usize) -> bool,
    ) {
        assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
        let of_burst = if self.workers.len() == 1 { packets.len().max(1) } else { 1 };
        for (number, burst) in packets.chunks_mut(of_burst).enumerate() {
            let lcore = self.arrive(&burst[0], FROM_FABRIC, stay);
            let worker = &mut self.workers[lcore];
            worker.counters.fabric_received += burst.len() as u64;
            worker.transit(burst);
            let mut sent = Sent { accepted: 0, refused: 0 };
            for at in 0..burst.len() {
                let is_accepted = accepted(number * of_burst + at);
                let queue = if is_accepted { &mut sent.accepted } else { &mut sent.refused };
                *queue |= 1 << at;
            }
            if worker.asks_departures() {
                let departure = Departure { at_ns: stay.departed_ns, mtu: self.mtu };
                worker.depart(burst, sent.accepted, departure);
            }
            worker.sent(sent);
        }
    }

    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        let narrow = self.narrow(key);
        let worker = &mut self.workers[0];
        if worker.probes.wants_sample() {
            let packet = bytes(&frame(key, 60));
            worker.probes.sample(std::slice::from_ref(&packet), 0);
        }
        match narrow {
            Some(key) => worker.enter_run(&key, packets),
            None => worker.enter_run(key, packets),
        }
    }

    pub(super) fn leave_run(&mut self, key: &WideKey, marked: MarkedRun) {
        match self.narrow(key) {
            Some(key) => self.workers[0].leave_run(&key, marked),
            None => self.workers[0].leave_run(key, marked),
        }
    }

    /// By which keys it tells flows apart; none where it has no session.
    pub(super) fn keys(&self) -> Option<KeyKind> {
        self.workers[0].keys()
    }

    /// The key by which a switch that measures IPv4 alone knows a flow.
    fn narrow(&self, key: &WideKey) -> Option<FlowKey> {
        let narrow = self.keys() == Some(KeyKind::Ipv4);
        if narrow { report::Flow::from(key).key() } else { None }
    }

    /// Its totals, over all lcores.
    pub(super) fn counters(&self) -> Counters {
        let mut all = Counters::default();
        self.workers.iter().for_each(|worker| all += &worker.counters);
        all
    }
}
