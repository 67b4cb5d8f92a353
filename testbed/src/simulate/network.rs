//! The network itself: what happens when, and to which switch.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use calumma_analysis::{self as analysis, HashKeys};
use calumma_edge::packet;
use calumma_plane::Counters;

use super::archived::Archived;
use super::control::Wires;
use super::controller::{self, Controller, Outgoing, Reported, Work};
use super::node::{Node, expected, identity, nodes};
use super::paths::ProbeBytes;
use super::truth::Truths;
use super::way::{Fabric, Load};
use super::{BEGIN_NS, Outcome, Setup, SwitchClock, SwitchQuality, SystemOutcome, link};
use crate::queue::Queue;
use crate::topology::{LinkQuality, Routes, Topology};
use crate::workload::{Flow, FlowSet, Traffic};

/// How often the controller compares its clock with a node's; the live one's own.
const PROBE_NS: u64 = 250_000_000;

/// How long a node waits before it tries again to reach the controller; the live one's own.
pub(super) const RETRY_NS: u64 = 250_000_000;

/// Where a made-up packet's IP header begins.
pub(super) const IP_OFFSET: usize = 14;

/// What is to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A node has something to do: of this one, as often started.
    Due(usize, u32),
    /// A node tries to reach the controller.
    Connect(usize, u32),
    /// Bytes reach the controller on this connection of a node.
    ToController(usize, u64, Vec<u8>),
    /// Bytes reach a node on this connection.
    ToNode(usize, u64, Vec<u8>),
    /// The controller notices that this connection of a node has broken.
    Broken(usize, u64),
    /// The controller stops waiting for an epoch.
    Deadline,
    /// The controller sends a node its time, on this connection.
    Probe(usize, u64),
    /// A node's clock is set by so many nanoseconds.
    Step(usize, i64),
    /// Packets go on, or have arrived at their egress edge.
    Load(Box<Load>),
    /// A probe arrives at an edge.
    Arrive(usize, ProbeBytes),
}

/// A packet of the simulation.
pub(super) type Bytes = packet::Frame;

/// Room before a packet for what switches put into it.
const HEADROOM: usize = 256;

/// A packet with these bytes that a host sends.
pub(super) fn bytes(of: &[u8]) -> Bytes {
    Bytes::with_headroom(HEADROOM, of)
}

/// A network, its traffic and its controller.
#[derive(Debug)]
pub struct Simulation {
    pub(super) setup: Setup,
    pub(super) topology: Topology,
    routes: Routes,
    pub(super) fabric: Fabric,
    pub(super) flows: FlowSet,
    /// The edges, then the transits, then hosts' own sinks.
    pub(super) nodes: Vec<Node>,
    /// Number of each node's connection to the controller; 0 where there is none.
    pub(super) connections: Vec<u64>,
    /// What the connections do to frames.
    pub(super) wires: Wires,
    /// Whether the controller can be reached from each node.
    reachable: Vec<bool>,
    last_connection: u64,
    pub(super) controller: Option<Controller>,
    /// Where reports go that the controller keeps.
    pub(super) archived: Option<Box<Archived>>,
    /// The hash keys, which a controller keeps for the one that comes after it.
    keys: HashKeys,
    pub(super) queue: Queue<Event>,
    /// When the next [`Event::Deadline`] comes; all bits set where none does.
    deadline_ns: u64,
    /// The epoch that scenarios call 0.
    pub(super) first_epoch: u64,
    /// Epochs that have passed by true time.
    passed: u64,
    /// The first epoch, counted from 0, that has not been reported, by system.
    reported: BTreeMap<&'static str, u64>,
    pub(super) truth: Truths,
    pub(super) outcomes: Vec<Outcome>,
    others: Vec<SystemOutcome>,
    /// What goes on; empty but for its memory.
    onward: Vec<(u64, Load)>,
    /// Probes that have entered.
    pub(super) probes_sent: u64,
}

impl Simulation {
    /// A network without traffic whose edges are about to measure their first epoch. `clocks` gives
    /// each edge's clock, and after them those of the transits and of hosts' own sinks.
    ///
    /// # Errors
    /// When layout or attention are invalid, or packets would wait for too long.
    pub fn new(setup: Setup, topology: Topology, clocks: Vec<SwitchClock>) -> Result<Self> {
        Self::at(BEGIN_NS, setup, topology, clocks)
    }

    /// The same at the time `begin_ns`, the epoch of which is the first.
    pub(super) fn at(
        begin_ns: u64,
        setup: Setup,
        topology: Topology,
        clocks: Vec<SwitchClock>,
    ) -> Result<Self> {
        let switches = nodes(&topology);
        ensure!(clocks.len() == switches, "{switches} switches, but {} clocks", clocks.len());
        setup.layout.validate()?;
        setup.attention.validate(&setup.layout)?;
        setup.check_switches(&topology)?;
        link::check(&topology, &setup)?;
        let routes = Routes::new(&topology);
        let first_epoch = setup.clock.epoch_at(begin_ns);
        let nodes = clocks.into_iter().enumerate();
        let nodes = nodes.map(|(at, clock)| Node::new(identity(&topology, at), &setup, clock, 0));
        let nodes = nodes.collect();
        let keys = HashKeys::new(setup.hash_key);
        let mut simulation = Self {
            flows: FlowSet::new(setup.seed, Vec::new(), &topology, &routes)?,
            nodes,
            connections: vec![0; switches],
            wires: Wires::new(switches),
            reachable: vec![true; switches],
            last_connection: 0,
            controller: Some(Controller::new(
                &setup,
                &topology,
                &expected(&topology),
                &keys,
                begin_ns,
            )?),
            archived: None,
            keys,
            queue: Queue::new(),
            deadline_ns: u64::MAX,
            first_epoch,
            passed: 0,
            reported: BTreeMap::new(),
            truth: Truths::default(),
            outcomes: Vec::new(),
            others: Vec::new(),
            onward: Vec::new(),
            probes_sent: 0,
            fabric: Fabric::new(&topology),
            setup,
            topology,
            routes,
        };
        // The longest that a session takes to begin: a lead of 21 ms, and two epochs.
        let begin = simulation.setup.clock.start_of(first_epoch - 4) - 40_000_000;
        for node in 0..switches {
            simulation.queue.push(begin, Event::Due(node, 0));
            simulation.queue.push(begin, Event::Connect(node, 0));
        }
        simulation.set_switches(simulation.setup.switches.clone());
        simulation.advance_to(simulation.now_ns())?;
        simulation.outcomes.clear();
        simulation.others.clear();
        Ok(simulation)
    }

    /// True time.
    pub(super) fn now_ns(&self) -> u64 {
        self.setup.clock.start_of(self.first_epoch + self.passed)
    }

    /// Position among the nodes, which are the edges and then the transits, of the switch of this
    /// name; none where it is no such switch.
    pub fn node(&self, name: &str) -> Option<usize> {
        (0..self.nodes.len()).find(|&node| identity(&self.topology, node).0 == name)
    }

    /// Names of the edges.
    pub fn edges(&self) -> &[String] {
        self.topology.edges()
    }

    /// The totals of an inner switch, by position, where it is software.
    pub fn counters(&self, switch: usize) -> Option<Counters> {
        self.nodes[self.fabric.transit(switch)?].counters()
    }

    /// What a link does to packets.
    pub(super) fn quality(&self, link: usize) -> LinkQuality {
        self.topology.links()[link].quality
    }

    /// Flows that send at present.
    pub fn flows(&self) -> &[Flow] {
        self.flows.flows()
    }

    /// Epochs that have passed; reports count from 0 as well.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Lets other traffic flow from now on.
    ///
    /// # Errors
    /// When it can't flow on this topology, or the layout's keys can't tell its flows.
    pub fn set_traffic(&mut self, kinds: Vec<Traffic>) -> Result<()> {
        kinds.iter().try_for_each(|kind| self.setup.check_traffic(kind))?;
        self.flows = FlowSet::new(self.setup.seed, kinds, &self.topology, &self.routes)?;
        Ok(())
    }

    /// Gives the links the qualities that `topology`, the same otherwise, has now.
    ///
    /// # Errors
    /// When packets would wait for too long.
    pub fn set_links(&mut self, topology: &Topology) -> Result<()> {
        link::check(topology, &self.setup)?;
        self.topology = topology.clone();
        let routes = Routes::new(&self.topology);
        if routes != self.routes {
            let now_ns = self.now_ns();
            self.nodes.iter_mut().for_each(|node| node.routes_changed(now_ns));
        }
        self.routes = routes;
        self.fabric.set_links(&self.topology);
        self.flows.reroute(&self.routes);
        Ok(())
    }

    /// What switches do to packets from now on, by position.
    pub fn set_switches(&mut self, switches: Vec<SwitchQuality>) {
        for (node, of) in self.nodes.iter_mut().enumerate() {
            let at = self.topology.position(&identity(&self.topology, node).0);
            of.set_quality(at.and_then(|at| switches.get(at).copied()).unwrap_or_default());
        }
        self.setup.switches = switches;
    }

    /// Sets a node's clock: its offset, its drift, or both.
    pub fn set_clock(&mut self, node: usize, offset_ns: Option<f64>, drift: Option<f64>) {
        let now_ns = self.now_ns();
        let clock = self.nodes[node].clock.changed(now_ns, offset_ns, drift);
        self.change_clock(node, clock, now_ns);
    }

    /// Lets a node's clock be set by `by_ns` when `after_ns` have passed since the epoch's
    /// beginning by true time.
    pub fn step_clock(&mut self, node: usize, after_ns: u64, by_ns: i64) {
        self.queue.push(self.now_ns() + after_ns, Event::Step(node, by_ns));
    }

    fn change_clock(&mut self, node: usize, clock: SwitchClock, now_ns: u64) {
        let (before_ns, shown_ns) = (self.nodes[node].clock.at(now_ns), clock.at(now_ns));
        if before_ns.saturating_sub(shown_ns) > self.setup.clock.guards().clock_ns {
            // Packets that entered by a clock that was ahead are of no epoch that is still to come.
            self.truth.forget_at(node, self.setup.clock.epoch_at(shown_ns) + 1);
        }
        self.nodes[node].set_clock(clock, now_ns);
        self.carry(node, now_ns);
        self.schedule(node, now_ns);
    }

    /// Starts a node anew: it loses what it measured.
    pub fn restart(&mut self, node: usize) {
        let now_ns = self.now_ns();
        let Node { clock, start, .. } = self.nodes[node];
        let identity = identity(&self.topology, node);
        let quality = self.nodes[node].quality();
        self.nodes[node] = Node::new(identity, &self.setup, clock, start + 1);
        self.nodes[node].set_quality(quality);
        self.unplug(node);
        self.controller.iter_mut().for_each(|of| of.disconnected(node, now_ns));
        self.schedule(node, now_ns);
        self.queue.push(now_ns, Event::Connect(node, start + 1));
    }

    /// Says whether a node can reach the controller. One that can't goes on measuring, and tries
    /// again and again.
    pub fn set_reachable(&mut self, node: usize, reachable: bool) {
        self.reachable[node] = reachable;
        if !reachable {
            self.disconnect(node);
        }
    }

    /// A node's connection breaks, if it has one.
    fn disconnect(&mut self, node: usize) {
        let now_ns = self.now_ns();
        if !self.unplug(node) {
            return;
        }
        self.controller.iter_mut().for_each(|of| of.disconnected(node, now_ns));
        let of = &mut self.nodes[node];
        of.cut_off(now_ns);
        // Tried again below.
        of.take_retry();
        self.queue.push(now_ns + RETRY_NS, Event::Connect(node, of.start));
    }

    /// Stops the controller, or starts one that knows nothing of the one before.
    ///
    /// # Errors
    /// None but those of [`new`](Self::new).
    pub fn set_controller(&mut self, runs: bool) -> Result<()> {
        if !runs {
            self.controller = None;
            (0..self.nodes.len()).for_each(|node| self.disconnect(node));
        } else if self.controller.is_none() {
            let nodes = expected(&self.topology);
            let Self { setup, topology, keys, .. } = &*self;
            let now_ns = self.now_ns();
            self.controller = Some(Controller::new(setup, topology, &nodes, keys, now_ns)?);
        }
        Ok(())
    }

    /// Lets exactly the systems of these names run, from the next epoch on that all nodes can
    /// follow. Gives that epoch, counted from 0; where the controller is away, the next one will
    /// begin with them.
    ///
    /// # Errors
    /// When one is unknown, or has just been switched off and still reports its last epochs; then
    /// nothing is switched.
    pub fn switch(&mut self, names: &[&str]) -> Result<Option<u64>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let now_ns = self.now_ns();
        let mut from = None;
        if let Some(controller) = &mut self.controller {
            let (epoch, messages) = controller.switch(&names, now_ns)?;
            from = Some(epoch - self.first_epoch);
            messages.into_iter().for_each(|message| self.tell(message));
        }
        self.setup.systems.on = names;
        self.report(now_ns)?;
        Ok(from)
    }

    /// What systems other than ChameleMon have reported since this was asked last: of each system
    /// in the order of epochs.
    pub fn take_reports(&mut self) -> Vec<SystemOutcome> {
        std::mem::take(&mut self.others)
    }

    /// Lets an epoch pass, and gives what ChameleMon reported meanwhile: in the order of epochs,
    /// which count from 0.
    ///
    /// # Errors
    /// When a frame can't be read or a configuration can't hold; neither ever happens.
    pub fn run_epoch(&mut self) -> Result<Vec<Outcome>> {
        let epoch = self.passed;
        self.flows.renew(epoch, &self.topology, &self.routes)?;
        self.send_epoch(epoch)?;
        self.passed += 1;
        self.advance_to(self.now_ns())?;
        self.look_after_archive()?;
        Ok(std::mem::take(&mut self.outcomes))
    }

    /// Lets time pass without traffic until every epoch so far has been reported.
    ///
    /// # Errors
    /// As [`run_epoch`](Self::run_epoch).
    pub fn finish(&mut self) -> Result<Vec<Outcome>> {
        self.set_traffic(Vec::new())?;
        let last = self.passed;
        let wait_ns = 3 * self.setup.clock.length_ns() + self.setup.grace_ns;
        let epochs = wait_ns.div_ceil(self.setup.clock.length_ns());
        let mut outcomes: Vec<Outcome> = Vec::new();
        for _ in 0..epochs {
            outcomes.extend(self.run_epoch()?);
            let unreported = self.controller.as_ref().map_or(0, Controller::unreported);
            if unreported >= self.first_epoch + last {
                break;
            }
        }
        outcomes.retain(|outcome| outcome.report.epoch < last);
        Ok(outcomes)
    }

    /// Lets packets pass the fabric, as far as they get now.
    pub(super) fn pass(&mut self, load: Load, (at_ns, now_ns): (u64, u64)) -> Result<()> {
        let mut onward = std::mem::take(&mut self.onward);
        let Self { fabric, nodes, truth, .. } = self;
        fabric.pass(load, (at_ns, now_ns), nodes, truth, &mut onward);
        for (at_ns, load) in onward.drain(..) {
            let edge = &self.nodes[load.egress()];
            let is_at_rest = |node: &Node| at_ns < node.due_ns && !node.is_timed();
            if load.has_arrived() && is_at_rest(edge) && self.sink_of(&load).is_none() {
                // Nothing happens at the egress edge until then.
                self.deliver(load, at_ns)?;
            } else {
                self.queue.push(at_ns, Event::Load(Box::new(load)));
            }
        }
        self.onward = onward;
        Ok(())
    }

    /// Lets packets leave the network at their egress edge.
    ///
    /// # Errors
    /// When one leaves with other bytes than it entered with.
    fn deliver(&mut self, mut load: Load, now_ns: u64) -> Result<()> {
        load.deliver(&mut self.truth);
        let sink = self.sink_of(&load);
        let edge = &mut self.nodes[load.egress()];
        match load.bytes.take() {
            Some(mut packet) => {
                if let Some(sink) = sink {
                    if !load.has_crossed {
                        load.hand_on(edge, &mut packet, now_ns);
                    }
                    load.arrive_at_host(&mut self.truth);
                    self.nodes[sink].egress(&mut packet, now_ns);
                } else if !load.has_crossed {
                    let had = edge.egress(&mut packet, now_ns).1;
                    load.arrive(&mut self.truth, (now_ns, had));
                }
                let last = sink.unwrap_or(load.egress());
                let knows = self.nodes[last].takes_marks_of(&load.key);
                let is_whole = !knows || load.is_whole(&packet, self.setup.carrier);
                ensure!(is_whole, "a packet of {:?} leaves with other bytes", load.key);
            }
            None => edge.leave_run(&load.key, load.marked()),
        }
        Ok(())
    }

    /// The epoch that an edge's clock shows.
    pub(super) fn epoch_shown(&self, edge: usize, now_ns: u64) -> u64 {
        self.setup.clock.epoch_at(self.nodes[edge].clock.at(now_ns))
    }

    /// Lets everything happen that is to happen up to `now_ns`.
    pub(super) fn advance_to(&mut self, now_ns: u64) -> Result<()> {
        while let Some((at_ns, event)) = self.queue.pop_before(now_ns + 1) {
            self.handle(event, at_ns)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event, now_ns: u64) -> Result<()> {
        match event {
            Event::Due(node, start) => {
                let switch = &mut self.nodes[node];
                // What was due before a restart, or before the clock was set, is due no more.
                if switch.start == start && switch.due_ns <= now_ns {
                    switch.run_until(now_ns)?;
                    for mut probe in self.nodes[node].take_probes() {
                        if let Some((edge, at_ns)) = self.travel(&mut probe, now_ns) {
                            self.queue.push(at_ns, Event::Arrive(edge, probe));
                        }
                    }
                    self.carry(node, now_ns);
                    self.schedule(node, now_ns);
                }
            }
            Event::Connect(node, start) if self.nodes[node].start == start => {
                if self.controller.is_none() || !self.reachable[node] {
                    self.queue.push(now_ns + RETRY_NS, Event::Connect(node, start));
                } else if self.connections[node] == 0 {
                    self.last_connection += 1;
                    self.connections[node] = self.last_connection;
                    self.controller.iter_mut().for_each(|of| of.connected(node, now_ns));
                    self.nodes[node].connect(now_ns);
                    self.carry(node, now_ns);
                    self.queue.push(now_ns, Event::Probe(node, self.last_connection));
                }
            }
            Event::ToController(node, connection, bytes) => {
                if let Some(controller) = &mut self.controller
                    && self.connections[node] == connection
                {
                    for frame in controller.receive(node, &bytes, now_ns)? {
                        self.tell(Outgoing { at_ns: now_ns, node, frame });
                    }
                    self.report(now_ns)?;
                }
            }
            Event::ToNode(node, connection, bytes) if self.reaches(node, connection) => {
                self.nodes[node].receive(&bytes, now_ns);
                self.carry(node, now_ns);
            }
            Event::Broken(node, connection) => self.notice(node, connection, now_ns),
            Event::Deadline => {
                if now_ns >= self.deadline_ns {
                    self.deadline_ns = u64::MAX;
                }
                self.report(now_ns)?;
            }
            Event::Probe(node, connection) => {
                if self.controller.is_some() && self.connections[node] == connection {
                    self.tell(Outgoing { at_ns: now_ns, node, frame: controller::probe(now_ns) });
                    self.queue.push(now_ns + PROBE_NS, Event::Probe(node, connection));
                }
            }
            Event::Step(node, by_ns) => {
                let clock = self.nodes[node].clock;
                let offset_ns = clock.ahead(now_ns) + by_ns as f64;
                self.change_clock(node, clock.changed(now_ns, Some(offset_ns), None), now_ns);
            }
            Event::Load(load) if load.has_arrived() => self.deliver(*load, now_ns)?,
            Event::Load(load) => self.pass(*load, (now_ns, now_ns))?,
            Event::Arrive(edge, probe) => self.arrive(edge, probe, now_ns)?,
            Event::Connect(..) | Event::ToNode(..) => {}
        }
        Ok(())
    }

    /// Puts into the queue when a node has something to do next.
    fn schedule(&mut self, node: usize, now_ns: u64) {
        let of = &mut self.nodes[node];
        of.due_ns = of.clock.when(of.next_due_ns(), now_ns);
        self.queue.push(of.due_ns, Event::Due(node, of.start));
    }

    /// Lets the controller report what it can.
    fn report(&mut self, now_ns: u64) -> Result<()> {
        let Some(controller) = &mut self.controller else { return Ok(()) };
        let Work { reports, others, messages } = controller.work(now_ns)?;
        let (unreported, deadline_ns) = (controller.unreported(), controller.next_deadline());
        if let Some(archived) = &mut self.archived {
            let acknowledged = archived.keep(&reports, now_ns)?;
            acknowledged.into_iter().for_each(|next| controller.acknowledge(next));
            if archived.is_dead() {
                // Nodes do not notice at once.
                self.controller = None;
            }
        }
        for (next, published) in others {
            let epoch = published.report.head().epoch;
            if let Some(at) = self.is_news(published.report.system(), epoch, next) {
                let truth = (epoch..next).map(|epoch| self.truth.of(epoch)).collect();
                let analysis::Published { report, json } = published;
                self.others.push(SystemOutcome { epoch: at, report, json, truth });
            }
        }
        for Reported { mut report, frame_bytes, response } in reports {
            let of = report.epoch;
            let Some(epoch) = self.is_news("chamelemon", of, of + 1) else { continue };
            report.epoch = epoch;
            if let Some(plan) = &mut report.plan {
                plan.effective_epoch = plan.effective_epoch.saturating_sub(self.first_epoch);
            }
            report.amendments.retain(|amendment| amendment.epoch >= self.first_epoch);
            for amendment in &mut report.amendments {
                amendment.epoch -= self.first_epoch;
            }
            for edge in &mut report.edges {
                let since = &mut edge.heavy_changes_since;
                *since = since.map(|epoch| epoch.saturating_sub(self.first_epoch));
            }
            // Others may still report that epoch.
            let truth = self.truth.reported(of, of >= unreported, self.setup.tasks);
            self.outcomes.push(Outcome { report, truth, frame_bytes: Some(frame_bytes), response });
        }
        if unreported < u64::MAX {
            self.truth.forget_before(unreported);
        }
        messages.into_iter().for_each(|message| self.tell(message));
        if let Some(deadline_ns) = deadline_ns
            && (now_ns + 1..self.deadline_ns).contains(&deadline_ns)
        {
            self.deadline_ns = deadline_ns;
            self.queue.push(deadline_ns, Event::Deadline);
        }
        Ok(())
    }

    /// The number, counted from 0, of an epoch that a system reports, or of a window's first one;
    /// `next` is the first one after it. None where it is from before the beginning, or what
    /// happened in it is forgotten since all that ran had reported it: nodes may hold it for a
    /// controller that comes later.
    fn is_news(&mut self, system: &'static str, epoch: u64, next: u64) -> Option<u64> {
        let epoch = epoch.checked_sub(self.first_epoch)?;
        let reported = self.reported.entry(system).or_default();
        if epoch < *reported || !self.truth.remembers(epoch + self.first_epoch) {
            return None;
        }
        *reported = next - self.first_epoch;
        Some(epoch)
    }
}
