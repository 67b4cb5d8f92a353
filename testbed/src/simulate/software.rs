//! The software switch in the simulation: the live one's worker, systems and frames. Only ports and
//! sockets are missing.

use calumma_controller::report;
use calumma_edge::control::paths::Order;
use calumma_edge::control::systems::{Finished, Systems};
use calumma_plane::carrier::Carrier;
use calumma_plane::parse::PlainFlows;
use calumma_plane::probe::{LcoreProbes, ProbeLine};
use calumma_plane::system::{RouteWatch, System};
use calumma_plane::worker::{Departure, Path, Policy, Sent};
use calumma_plane::{Counters, MarkedRun, Measurement, Worker};
use calumma_sketch::{BURST, FlowKey, KeyKind, WideKey};
use calumma_wire::{Message, Role};

use super::network::{Bytes, bytes};
use super::paths::ProbeBytes;
use super::stay::Stay;
use crate::workload::frame;

/// Ports of a switch: for what hosts send, and for all others.
const PORTS: usize = 2;
const FROM_HOSTS: u16 = 0;
const FROM_FABRIC: u16 = 1;

/// A switch of one lcore.
#[derive(Debug)]
pub(super) struct Software {
    worker: Worker,
    /// What it measures with.
    pub(super) systems: Systems,
    /// When its routes change.
    pub(super) routes: RouteWatch,
    /// What its worker finds of probes.
    found: ProbeLine,
    /// Longest IP packet that it sends with a stack.
    pub(super) mtu: u16,
}

impl Software {
    /// A switch of this role that knows these systems, and marks packets by `carrier`, or by the
    /// one of `choices` that the controller says.
    pub(super) fn new(
        known: &'static [&'static dyn System],
        (name, role): (&str, Role),
        (carrier, choices): (Carrier, Vec<(String, Carrier)>),
    ) -> Self {
        let (systems, mailboxes) = Systems::new(known, role, 1);
        let routes = RouteWatch::default();
        let systems = systems.with_carrier(carrier).with_carriers(choices);
        let systems = systems.with_routes(routes.clone()).with_ports(name, PORTS);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        let policy = Policy { carrier, strip: true, ..Policy::default() };
        let mut worker = Worker::new(policy, Measurement::new(mailbox));
        let (probes, found) = LcoreProbes::new();
        worker.probes = probes;
        Self { worker, systems, routes, found, mtu: u16::MAX }
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        self.worker.next_due_ns()
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(&mut self, shown_ns: u64) -> Vec<Finished> {
        match self.worker.next_due_ns() {
            // It has just been started, and looks out for a session from now on.
            0 => {
                self.worker.tick(shown_ns, true);
            }
            due_ns => self.worker.advance_to(due_ns),
        }
        self.systems.poll()
    }

    /// Its clock was set by `by_ns`, and shows `shown_ns`.
    pub(super) fn clock_set(&mut self, by_ns: i64, shown_ns: u64) {
        if self.worker.clock_set(by_ns, shown_ns) {
            self.worker.tick(shown_ns, true);
        }
        // What it has finished before is of a session that is over.
        self.systems.poll();
    }

    /// Does what is due about probes. Gives those of its own that enter the network, and what it
    /// has to say.
    pub(super) fn probe(&mut self, shown_ns: u64) -> (Vec<ProbeBytes>, Option<Message>) {
        let Self { worker, systems, found, .. } = self;
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
        self.worker.advance_to(shown_ns);
        !self.worker.egress(std::slice::from_mut(probe)).is_empty()
    }

    /// Whether it is asked when packets arrive and depart.
    pub(super) fn is_timed(&self) -> bool {
        self.worker.asks_arrivals()
    }

    /// Packets arrive.
    fn arrive(&mut self, stay: Stay) {
        if self.is_timed() {
            self.worker.advance_to(stay.arrived_ns);
        }
    }

    /// Packets of the burst under way are handed to a transmit queue, those that `of` has a bit
    /// for.
    fn depart(&mut self, packets: &mut [Bytes], of: u32, stay: Stay) {
        if self.worker.asks_departures() {
            let departure = Departure { at_ns: stay.departed_ns, mtu: self.mtu };
            self.worker.depart(packets, of, departure);
        }
    }

    /// The same of a packet that a system without stacks does not ask about.
    fn send(&mut self, packet: &mut Bytes, stay: Stay) {
        if self.worker.asks_departures() {
            self.depart(std::slice::from_mut(packet), 1, stay);
            self.worker.sent(Sent { accepted: 1, refused: 0 });
        }
    }

    pub(super) fn ingress(&mut self, packet: &mut Bytes, stay: Stay) {
        self.arrive(stay);
        if self.worker.probes.wants_sample() {
            self.worker.probes.sample(std::slice::from_ref(packet), 0);
        }
        self.worker.received_by(FROM_HOSTS);
        self.worker.ingress(std::slice::from_mut(packet));
        self.send(packet, stay);
    }

    pub(super) fn egress(&mut self, packet: &mut Bytes, stay: Stay) {
        self.arrive(stay);
        self.worker.received_by(FROM_FABRIC);
        self.worker.egress(std::slice::from_mut(packet));
        self.send(packet, stay);
    }

    /// A packet goes to a host with a sink of its own.
    pub(super) fn hand_on(&mut self, packet: &mut Bytes, stay: Stay) {
        self.arrive(stay);
        self.worker.received_by(FROM_FABRIC);
        self.worker.hand_on(std::slice::from_mut(packet));
        self.send(packet, stay);
    }

    /// A packet goes from host to host.
    pub(super) fn cross(&mut self, packet: &mut Bytes, path: Path, stay: Stay) {
        self.arrive(stay);
        self.worker.counters.host_received += 1;
        self.worker.received_by(FROM_HOSTS);
        self.worker.begin();
        self.worker.pass(path, std::slice::from_mut(packet), 1, &PlainFlows::NONE);
        self.send(packet, stay);
    }

    /// A burst of packets passes from fabric to fabric; its transmit queue takes those that are
    /// `accepted`, by position.
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
        self.arrive(stay);
        self.worker.counters.fabric_received += packets.len() as u64;
        self.worker.received_by(FROM_FABRIC);
        self.worker.transit(packets);
        let mut sent = Sent { accepted: 0, refused: 0 };
        for at in 0..packets.len() {
            let queue = if accepted(at) { &mut sent.accepted } else { &mut sent.refused };
            *queue |= 1 << at;
        }
        self.depart(packets, sent.accepted, stay);
        self.worker.sent(sent);
    }

    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        if self.worker.probes.wants_sample() {
            let packet = bytes(&frame(key, 60));
            self.worker.probes.sample(std::slice::from_ref(&packet), 0);
        }
        match self.narrow(key) {
            Some(key) => self.worker.enter_run(&key, packets),
            None => self.worker.enter_run(key, packets),
        }
    }

    pub(super) fn leave_run(&mut self, key: &WideKey, marked: MarkedRun) {
        match self.narrow(key) {
            Some(key) => self.worker.leave_run(&key, marked),
            None => self.worker.leave_run(key, marked),
        }
    }

    /// By which keys it tells flows apart; none where it has no session.
    pub(super) fn keys(&self) -> Option<KeyKind> {
        self.worker.keys()
    }

    /// The key by which a switch that measures IPv4 alone knows a flow.
    fn narrow(&self, key: &WideKey) -> Option<FlowKey> {
        let narrow = self.keys() == Some(KeyKind::Ipv4);
        if narrow { report::Flow::from(key).key() } else { None }
    }

    /// Its totals.
    pub(super) fn counters(&self) -> &Counters {
        &self.worker.counters
    }
}
