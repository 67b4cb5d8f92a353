//! A node in the simulation: a switch of either kind under a clock of its own, and the conversation
//! with the controller that live switches have, over a pipe.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use calumma_edge::control::systems::What;
use calumma_plane::worker::Path;
use calumma_plane::{Counters, MarkedRun};
use calumma_sketch::{KeyKind, WideKey};
use calumma_switch_host::{Conversation, Identity, MOST_HELD, Pipe};
use calumma_wire::{Message, Role, SwitchKind};

use super::Setup;
use super::clock::SwitchClock;
use super::network::Bytes;
use super::paths::ProbeBytes;
use super::software::Software;
use super::stay::{Had, Service, Stay, SwitchQuality};
use super::tofino::{Finished, Tofino};
use crate::calumma::p4;
use crate::topology::Topology;

/// A switch: an edge, or a transit.
pub(super) struct Node {
    pub(super) clock: SwitchClock,
    switch: Switch,
    service: Service,
    conversation: Conversation<Pipe>,
    /// True time at which its switch has something to do next.
    pub(super) due_ns: u64,
    /// Counts the times it was started: what was due for an earlier one is void.
    pub(super) start: u32,
    /// Probes of its own that have entered the network.
    probes: Vec<ProbeBytes>,
}

#[derive(Debug)]
enum Switch {
    Software(Box<Software>),
    Tofino(Box<Tofino>),
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("clock", &self.clock).field("switch", &self.switch).finish()
    }
}

impl Node {
    /// A node of `setup`'s network that has just been started, for the `start`th time after the
    /// first. A software switch runs what runs in its role, a Tofino what its program is for.
    pub(super) fn new(
        (name, role, kind): (String, Role, SwitchKind),
        setup: &Setup,
        clock: SwitchClock,
        start: u32,
    ) -> Self {
        let systems = &setup.systems;
        let switch = match kind {
            SwitchKind::Software => {
                let carrier = (setup.carrier.of_switches(), setup.carrier.choices());
                let of = (&*name, role);
                Switch::Software(Box::new(Software::new(
                    systems.on_switches,
                    of,
                    carrier,
                    setup.lcores,
                )))
            }
            SwitchKind::Tofino => {
                let system = p4::loaded(&systems.on_tofinos, role, &systems.on);
                let (layout, systems) = (setup.layout.clone(), systems.clone());
                Switch::Tofino(Box::new(Tofino::new(role, system, layout, systems)))
            }
        };
        let identity = Identity {
            node: name,
            role,
            kind,
            program: concat!("calumma-testbed ", env!("CARGO_PKG_VERSION")).to_owned(),
            marking: setup.carrier.marking(),
        };
        let conversation = Conversation::over(Pipe::new(), identity, MOST_HELD);
        let service = Service::default();
        Self { clock, switch, service, conversation, due_ns: 0, start, probes: Vec::new() }
    }

    /// Sets its clock, which the switch notices at once.
    pub(super) fn set_clock(&mut self, clock: SwitchClock, now_ns: u64) {
        let (before_ns, shown_ns) = (self.clock.at(now_ns), clock.at(now_ns));
        let by_ns = shown_ns.wrapping_sub(before_ns).cast_signed();
        self.clock = clock;
        match &mut self.switch {
            Switch::Software(software) => software.clock_set(by_ns, shown_ns),
            Switch::Tofino(tofino) => tofino.clock_set(by_ns),
        }
        self.converse(now_ns);
    }

    /// The routes change by which it forwards packets. A Tofino's systems don't ask.
    pub(super) fn routes_changed(&self, now_ns: u64) {
        if let Switch::Software(software) = &self.switch {
            software.routes.changed(self.clock.at(now_ns));
        }
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
            Switch::Tofino(tofino) => self.conversation.step(shown_ns, &mut **tofino),
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
            Switch::Tofino(tofino) => tofino.next_due_ns(),
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
                Switch::Tofino(tofino) => {
                    for finished in tofino.step(shown_ns)? {
                        match finished {
                            Finished::Side(side) => drop(self.conversation.side(side)),
                            Finished::Sealed { system, epoch, late } => {
                                self.conversation.sealed(system, epoch, late);
                            }
                            Finished::Notice { system, epoch, body } => {
                                self.conversation.tell(&Message::Notice { system, epoch, body });
                            }
                        }
                    }
                }
            }
        }
        if let Switch::Software(software) = &mut self.switch {
            let (probes, message) = software.probe(shown_ns);
            self.probes.extend(probes);
            let messages = message.into_iter().chain(software.notices(shown_ns));
            messages.for_each(|message| self.conversation.tell(&message));
        }
        self.conversation.flush();
        Ok(())
    }

    /// Probes of its own that have entered the network since this was asked last.
    pub(super) fn take_probes(&mut self) -> Vec<ProbeBytes> {
        std::mem::take(&mut self.probes)
    }

    /// A probe arrives from the fabric. Gives whether it is taken out.
    pub(super) fn take_probe(&mut self, probe: &mut ProbeBytes, now_ns: u64) -> bool {
        let shown_ns = self.clock.at(now_ns);
        match &mut self.switch {
            Switch::Software(software) => software.take_probe(probe, shown_ns),
            Switch::Tofino(_) => false,
        }
    }

    /// Changes what it does to packets.
    pub(super) fn set_quality(&mut self, quality: SwitchQuality) {
        self.service.set(quality);
        match &mut self.switch {
            Switch::Software(software) => software.mtu = quality.mtu,
            Switch::Tofino(tofino) => tofino.set_mtu(quality.mtu),
        }
    }

    pub(super) fn quality(&self) -> SwitchQuality {
        self.service.quality()
    }

    /// Whether its systems ask when packets arrive and depart, so that these have to come in order.
    pub(super) fn is_timed(&self) -> bool {
        match &self.switch {
            Switch::Software(switch) => switch.is_timed(),
            Switch::Tofino(tofino) => tofino.is_timed(),
        }
    }

    /// A packet arrives at true time `now_ns`. Gives when it departs, how long the switch has it
    /// by its own clock, and both instants by that.
    fn stay(&mut self, now_ns: u64) -> (u64, u32, Stay) {
        if let Switch::Software(switch) = &mut self.switch {
            switch.waiting = self.service.waiting(now_ns);
        }
        // Where nobody asks, packets may come here out of order, and stay for no time at all.
        let Stay { arrived_ns, departed_ns } = match self.is_timed() {
            true => self.service.serve(now_ns),
            false => Stay { arrived_ns: now_ns, departed_ns: now_ns },
        };
        let [arrived, departed] = [arrived_ns, departed_ns].map(|ns| self.clock.at(ns));
        let latency_ns = u32::try_from(departed.saturating_sub(arrived)).unwrap_or(u32::MAX - 1);
        (departed_ns, latency_ns, Stay { arrived_ns: arrived, departed_ns: departed })
    }

    /// What it knows of the packet that it has had last, for so long by its own clock.
    fn had(&self, latency_ns: u32) -> Had {
        let queued = match &self.switch {
            Switch::Software(switch) => switch.queued,
            Switch::Tofino(_) => None,
        };
        Had { latency_ns, queued }
    }

    /// A packet enters the network here, and gets its mark. Gives when it goes on, and what
    /// the switch knows of it.
    pub(super) fn ingress(&mut self, packet: &mut Bytes, now_ns: u64) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        match &mut self.switch {
            Switch::Software(switch) => switch.ingress(packet, stay),
            Switch::Tofino(tofino) => tofino.ingress(packet, stay),
        }
        (departed_ns, self.had(latency_ns))
    }

    /// A packet goes from host to host, of this edge. Gives the same.
    pub(super) fn cross(&mut self, packet: &mut Bytes, now_ns: u64) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        match &mut self.switch {
            Switch::Software(switch) => switch.cross(packet, Path::Cross, stay),
            Switch::Tofino(tofino) => tofino.cross(packet, stay),
        }
        (departed_ns, self.had(latency_ns))
    }

    /// A packet goes from host to host of this edge, where the other one has a sink of its own, as
    /// only of software switches. Gives the same.
    pub(super) fn cross_on(&mut self, packet: &mut Bytes, now_ns: u64) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        if let Switch::Software(switch) = &mut self.switch {
            switch.cross(packet, Path::CrossOn, stay);
        }
        (departed_ns, self.had(latency_ns))
    }

    /// A packet leaves the network here for a host with a sink of its own, where this is a software
    /// switch. Gives the same.
    pub(super) fn hand_on(&mut self, packet: &mut Bytes, now_ns: u64) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        if let Switch::Software(switch) = &mut self.switch {
            switch.hand_on(packet, stay);
        }
        (departed_ns, self.had(latency_ns))
    }

    /// A packet leaves the network here. Gives the same.
    pub(super) fn egress(&mut self, packet: &mut Bytes, now_ns: u64) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        match &mut self.switch {
            Switch::Software(switch) => switch.egress(packet, stay),
            Switch::Tofino(tofino) => tofino.egress(packet, stay),
        }
        (departed_ns, self.had(latency_ns))
    }

    /// A burst of packets passes from fabric to fabric; those that are `accepted`, by position, go
    /// on. Gives the same.
    pub(super) fn pass(
        &mut self,
        packets: &mut [Bytes],
        now_ns: u64,
        accepted: impl Fn(usize) -> bool,
    ) -> (u64, Had) {
        let (departed_ns, latency_ns, stay) = self.stay(now_ns);
        match &mut self.switch {
            Switch::Software(switch) => switch.pass(packets, stay, accepted),
            Switch::Tofino(tofino) => {
                let packets = packets.iter_mut().enumerate();
                packets.for_each(|(at, packet)| tofino.transit(packet, stay, accepted(at)));
            }
        }
        (departed_ns, self.had(latency_ns))
    }

    /// Packets of a flow enter the network here, back to back.
    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        match &mut self.switch {
            Switch::Software(switch) => switch.enter_run(key, packets),
            Switch::Tofino(tofino) => tofino.enter_run(key, packets),
        }
    }

    /// What is left of a run leaves the network here.
    pub(super) fn leave_run(&mut self, key: &WideKey, marked: MarkedRun) {
        match &mut self.switch {
            Switch::Software(switch) => switch.leave_run(key, marked),
            Switch::Tofino(tofino) => tofino.leave_run(key, marked),
        }
    }

    /// Whether it takes the marks out of packets of a flow: without a session, a software edge does
    /// not know whether those of IPv6 are marked, and a modelled Tofino has no tables.
    pub(super) fn takes_marks_of(&self, key: &WideKey) -> bool {
        let is_ipv4 = key.src().to_ipv4_mapped().is_some();
        let measures_ipv6 = match &self.switch {
            Switch::Software(switch) => switch.keys() == Some(KeyKind::Dual),
            Switch::Tofino(switch) => return is_ipv4 && switch.has_session(),
        };
        is_ipv4 || measures_ipv6
    }

    /// Its totals, where it is a software switch.
    pub(super) fn counters(&self) -> Option<Counters> {
        match &self.switch {
            Switch::Software(switch) => Some(switch.counters()),
            Switch::Tofino(_) => None,
        }
    }
}

/// Name, role and kind of the node at position `node`: edges, transits, and hosts' own sinks.
pub(super) fn identity(topology: &Topology, node: usize) -> (String, Role, SwitchKind) {
    let edges = topology.edges().len();
    let sinks = edges + topology.transits().count();
    if let Some(sink) = node.checked_sub(sinks) {
        let name = topology.host_sinks().nth(sink).map(|(_, _, name)| name);
        return (name.unwrap_or_default(), Role::Host, SwitchKind::Software);
    }
    let (at, role) = match node.checked_sub(edges).map(|inner| topology.transits().nth(inner)) {
        None => (node, Role::Edge),
        Some(transit) => (transit.unwrap_or(node), Role::Transit),
    };
    let kind = if topology.is_tofino(at) { SwitchKind::Tofino } else { SwitchKind::Software };
    (topology.names()[at].clone(), role, kind)
}

/// How many nodes there are.
pub(super) fn nodes(topology: &Topology) -> usize {
    topology.sinks() + topology.transits().count()
}

/// The nodes that the controller expects.
pub(super) fn expected(topology: &Topology) -> Vec<Arc<calumma_analysis::Node>> {
    let node = |at: usize| {
        let (name, role, _) = identity(topology, at);
        let id = u16::try_from(at + 1).unwrap_or(u16::MAX);
        Arc::new(calumma_analysis::Node { name, role, id })
    };
    (0..nodes(topology)).map(node).collect()
}
