//! The network itself: what happens when, and to which switch.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use calumma_chamelemon::Run;
use calumma_edge::carrier::{Mark, PlainTos};
use calumma_edge::packet::{self, Packet};
use calumma_plane::{Counters, MarkedRun};

use super::controller::{Controller, Reported};
use super::edge::Edge;
use super::numbers::Numbers;
use super::truth::{Account, FlowTruth, Truths};
use super::way::{Fabric, Load};
use super::{BEGIN_NS, Detail, Outcome, Setup, SwitchClock, link};
use crate::queue::Queue;
use crate::topology::{Point, Routes, Segment, Topology};
use crate::workload::pcap::packets_of;
use crate::workload::{Flow, FlowSet, Frame, Traffic, frame};

/// Time that a frame takes between a switch and the controller.
const FRAME_NS: u64 = 500_000;

/// How long an edge waits before it tries again to reach the controller; the live one's own.
const RETRY_NS: u64 = 250_000_000;

/// Where a made-up packet's IP header begins.
pub(super) const IP_OFFSET: usize = 14;

/// What is to happen.
#[derive(Debug)]
enum Event {
    /// A switch has something to do: of this edge, as often started.
    Due(usize, u32),
    /// An inner software switch has.
    TransitDue(usize),
    /// An edge tries to reach the controller.
    Connect(usize, u32),
    /// Bytes reach the controller on this connection of an edge.
    ToController(usize, u64, Vec<u8>),
    /// Bytes reach an edge on this connection.
    ToEdge(usize, u64, Vec<u8>),
    /// The controller stops waiting for an epoch.
    Deadline,
    /// Packets go on, or have arrived at their egress edge.
    Load(Box<Load>),
}

/// What a flow has sent.
struct Sent {
    /// The flow, by position.
    at: usize,
    epoch: u64,
    now_ns: u64,
    /// Number of the first of the packets.
    first: u32,
    run: MarkedRun,
    bytes: Option<Bytes>,
    account: Account,
}

/// A packet of the simulation.
pub(super) type Bytes = packet::Frame<Frame>;

/// A network, its traffic and its controller.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    topology: Topology,
    routes: Routes,
    fabric: Fabric,
    flows: FlowSet,
    edges: Vec<Edge>,
    /// Number of each edge's connection to the controller; 0 where there is none.
    connections: Vec<u64>,
    last_connection: u64,
    controller: Option<Controller>,
    queue: Queue<Event>,
    /// When the controller stops waiting for the epoch that is next.
    deadline_ns: u64,
    /// The epoch that scenarios call 0.
    first_epoch: u64,
    /// Epochs that have passed by true time.
    passed: u64,
    /// The first epoch, counted from 0, that has not been reported.
    reported: u64,
    truth: Truths,
    outcomes: Vec<Outcome>,
    /// What goes on; empty but for its memory.
    onward: Vec<(u64, Load)>,
}

impl Simulation {
    /// A network without traffic whose edges are about to measure their first epoch. `clocks` gives
    /// each edge's clock, and after them those of the inner switches that are software.
    ///
    /// # Errors
    /// When layout or attention are invalid, or packets would wait for too long.
    pub fn new(setup: Setup, topology: Topology, clocks: Vec<SwitchClock>) -> Result<Self> {
        let edges = topology.edges().len();
        let switches = edges + topology.transits().count();
        ensure!(clocks.len() == switches, "{switches} switches, but {} clocks", clocks.len());
        setup.layout.validate()?;
        setup.attention.validate(&setup.layout)?;
        link::check(&topology, &setup)?;
        let routes = Routes::new(&topology);
        let first_epoch = setup.clock.epoch_at(BEGIN_NS);
        let fabric = Fabric::new(&topology, &clocks[edges..]);
        let named = topology.edges().iter().zip(topology.kinds()).zip(clocks);
        let mut simulation = Self {
            flows: FlowSet::new(setup.seed, Vec::new(), &topology, &routes)?,
            edges: named.map(|((name, &kind), clock)| Edge::new(name, kind, clock, 0)).collect(),
            connections: vec![0; edges],
            last_connection: 0,
            controller: Some(Controller::new(&setup, topology.edges())?),
            queue: Queue::new(),
            deadline_ns: 0,
            first_epoch,
            passed: 0,
            reported: 0,
            truth: Truths::default(),
            outcomes: Vec::new(),
            onward: Vec::new(),
            fabric,
            setup,
            topology,
            routes,
        };
        // The longest that a session takes to begin: a lead of 21 ms, and two epochs.
        let begin = simulation.setup.clock.start_of(first_epoch - 4) - 40_000_000;
        for edge in 0..edges {
            simulation.queue.push(begin, Event::Due(edge, 0));
            simulation.queue.push(begin, Event::Connect(edge, 0));
        }
        for switch in simulation.topology.transits() {
            simulation.queue.push(begin, Event::TransitDue(switch));
        }
        simulation.advance_to(simulation.now_ns())?;
        simulation.outcomes.clear();
        Ok(simulation)
    }

    /// True time.
    fn now_ns(&self) -> u64 {
        self.setup.clock.start_of(self.first_epoch + self.passed)
    }

    /// Names of the edges.
    pub fn edges(&self) -> &[String] {
        self.topology.edges()
    }

    /// The totals of an inner switch, by position, where it is software.
    pub fn counters(&self, switch: usize) -> Option<&Counters> {
        self.fabric.counters(switch)
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
        kinds.iter().try_for_each(|kind| kind.check_keys(self.setup.layout.keys))?;
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
        self.routes = Routes::new(&self.topology);
        self.fabric.set_links(&self.topology);
        self.flows.reroute(&self.routes);
        Ok(())
    }

    /// Sets a switch's clock: its offset, its drift, or both.
    pub fn set_clock(&mut self, edge: usize, offset_ns: Option<f64>, drift: Option<f64>) {
        let now_ns = self.now_ns();
        let edge_clock = &mut self.edges[edge].clock;
        *edge_clock = edge_clock.changed(now_ns, offset_ns, drift);
        self.schedule(edge, now_ns);
    }

    /// Starts an edge anew: it loses what it measured.
    pub fn restart(&mut self, edge: usize) {
        let now_ns = self.now_ns();
        let start = self.edges[edge].start + 1;
        let clock = self.edges[edge].clock;
        let (name, kind) = (&self.topology.edges()[edge], self.topology.kinds()[edge]);
        self.edges[edge] = Edge::new(name, kind, clock, start);
        self.connections[edge] = 0;
        self.schedule(edge, now_ns);
        self.queue.push(now_ns, Event::Connect(edge, start));
    }

    /// Stops the controller, or starts one that knows nothing of the one before.
    ///
    /// # Errors
    /// None but those of [`new`](Self::new).
    pub fn set_controller(&mut self, runs: bool) -> Result<()> {
        if !runs {
            self.controller = None;
            self.connections.fill(0);
            let now_ns = self.now_ns();
            for edge in &mut self.edges {
                edge.cut_off(now_ns);
                // Tried again below.
                edge.take_retry();
            }
            for edge in 0..self.edges.len() {
                let start = self.edges[edge].start;
                self.queue.push(now_ns + RETRY_NS, Event::Connect(edge, start));
            }
        } else if self.controller.is_none() {
            self.controller = Some(Controller::new(&self.setup, self.topology.edges())?);
        }
        Ok(())
    }

    /// Lets an epoch pass, and gives what was reported meanwhile: in the order of epochs, which
    /// count from 0.
    ///
    /// # Errors
    /// When a frame can't be read or a configuration can't hold; neither ever happens.
    pub fn run_epoch(&mut self) -> Result<Vec<Outcome>> {
        let epoch = self.passed;
        self.flows.renew(epoch, &self.topology, &self.routes)?;
        match self.setup.detail {
            Detail::Runs => self.send_runs(epoch)?,
            Detail::Packets { spread } => self.send_packets(epoch, spread)?,
        }
        self.passed += 1;
        self.advance_to(self.now_ns())?;
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
        let mut outcomes = Vec::new();
        for _ in 0..epochs {
            outcomes.extend(self.run_epoch()?);
            if outcomes.last().is_some_and(|outcome: &Outcome| outcome.report.epoch + 1 >= last) {
                break;
            }
        }
        outcomes.retain(|outcome| outcome.report.epoch < last);
        Ok(outcomes)
    }

    fn send_runs(&mut self, epoch: u64) -> Result<()> {
        let (begin, length_ns) = (self.now_ns(), self.setup.clock.length_ns());
        for at in 0..self.flows.flows().len() {
            let flow = &self.flows.flows()[at];
            let now_ns = begin + (flow.start * length_ns as f64) as u64;
            self.advance_to(now_ns)?;

            let flow = &self.flows.flows()[at];
            let from = flow.edges[0];
            let run = self.edges[from].enter_run(self.setup.layout.keys, &flow.key, flow.packets);
            let measured_in = self.epoch_shown(from, now_ns);
            let truth = FlowTruth::new(flow.key, from).on_way(flow.way.clone(), true);
            let account = self.truth.open(measured_in, truth);
            self.send(Sent { at, epoch, now_ns, first: 0, run, bytes: None, account });
        }
        Ok(())
    }

    fn send_packets(&mut self, epoch: u64, spread: f64) -> Result<()> {
        let (begin, length_ns) = (self.now_ns(), self.setup.clock.length_ns());
        let packets = packets_of(self.flows.flows(), length_ns, spread);
        // A flow may send in two epochs by its edge's clock.
        let mut accounts: HashMap<(u32, u64), Account> = HashMap::new();
        for (at_ns, at, number) in packets {
            let now_ns = begin + at_ns;
            self.advance_to(now_ns)?;

            let flow = &self.flows.flows()[at as usize];
            let from = flow.edges[0];
            let mut packet = Bytes::new(frame(&flow.key, 60));
            self.edges[from].ingress(&mut packet);
            let Mark { bit, hierarchy } = mark_of(&packet);
            let run = MarkedRun { bit, run: Run::single(hierarchy) };
            let measured_in = self.epoch_shown(from, now_ns);
            let account = *accounts.entry((at, measured_in)).or_insert_with(|| {
                let truth = FlowTruth::new(flow.key, from).on_way(flow.way.clone(), number == 0);
                self.truth.open(measured_in, truth)
            });
            let (at, bytes) = (at as usize, Some(packet));
            self.send(Sent { at, epoch, now_ns, first: number, run, bytes, account });
        }
        Ok(())
    }

    /// Sends what has entered on its way.
    fn send(&mut self, sent: Sent) {
        let Sent { at, epoch, now_ns, first, run, bytes, account } = sent;
        let flow = &self.flows.flows()[at];
        let from = flow.edges[0];
        let packets = run.run.packets();
        self.truth.passed(account, Point::In(from), packets);
        if let Some(truth) = self.truth.flow(account) {
            truth.packets += packets;
            if flow.way.is_none() {
                let all = Numbers::within(first..first + packets);
                truth.lose_on(Segment::inside(from), &run.run, &all);
            }
        }
        let Some(way) = &flow.way else { return };
        let mut load = Load::new(flow, way, flow.fate(epoch), (first, run), account);
        load.bytes = bytes;
        self.pass(load, now_ns);
    }

    /// Lets packets pass the fabric, as far as they get now.
    fn pass(&mut self, load: Load, now_ns: u64) {
        let mut onward = std::mem::take(&mut self.onward);
        self.fabric.pass(load, (now_ns, now_ns), &mut self.truth, &mut onward);
        for (at_ns, load) in onward.drain(..) {
            if load.has_arrived() && at_ns < self.edges[load.egress()].due_ns {
                // Nothing happens at the egress edge until then.
                self.deliver(load);
            } else {
                self.queue.push(at_ns, Event::Load(Box::new(load)));
            }
        }
        self.onward = onward;
    }

    /// Lets packets leave the network at their egress edge.
    fn deliver(&mut self, mut load: Load) {
        load.deliver(&mut self.truth);
        let edge = &mut self.edges[load.egress()];
        match &mut load.bytes {
            Some(packet) => edge.egress(packet),
            None => edge.leave_run(self.setup.layout.keys, &load.key, load.marked()),
        }
    }

    /// The epoch that an edge's clock shows.
    fn epoch_shown(&self, edge: usize, now_ns: u64) -> u64 {
        self.setup.clock.epoch_at(self.edges[edge].clock.at(now_ns))
    }

    /// Lets everything happen that is to happen up to `now_ns`.
    fn advance_to(&mut self, now_ns: u64) -> Result<()> {
        while let Some((at_ns, event)) = self.queue.pop_before(now_ns + 1) {
            self.handle(event, at_ns)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event, now_ns: u64) -> Result<()> {
        match event {
            Event::Due(edge, start) => {
                let switch = &mut self.edges[edge];
                // What was due before a restart, or before the clock was set, is due no more.
                if switch.start == start && switch.due_ns <= now_ns {
                    switch.run_until(now_ns)?;
                    self.carry(edge, now_ns);
                    self.schedule(edge, now_ns);
                }
            }
            Event::TransitDue(switch) => {
                if let Some(due_ns) = self.fabric.run_until(switch, now_ns) {
                    self.queue.push(due_ns, Event::TransitDue(switch));
                }
            }
            Event::Connect(edge, start) if self.edges[edge].start == start => {
                if self.controller.is_none() {
                    self.queue.push(now_ns + RETRY_NS, Event::Connect(edge, start));
                } else if self.connections[edge] == 0 {
                    self.last_connection += 1;
                    self.connections[edge] = self.last_connection;
                    self.controller.iter_mut().for_each(|controller| controller.connected(edge));
                    self.edges[edge].connect(now_ns);
                    self.carry(edge, now_ns);
                }
            }
            Event::ToController(edge, connection, bytes) => {
                if let Some(controller) = &mut self.controller
                    && self.connections[edge] == connection
                {
                    for answer in controller.receive(edge, &bytes, now_ns)? {
                        let answer = Event::ToEdge(edge, connection, answer);
                        self.queue.push(now_ns + FRAME_NS, answer);
                    }
                    self.report(now_ns);
                }
            }
            Event::ToEdge(edge, connection, bytes)
                if connection > 0 && self.connections[edge] == connection =>
            {
                self.edges[edge].receive(&bytes, now_ns);
                self.carry(edge, now_ns);
            }
            Event::Deadline => self.report(now_ns),
            Event::Load(load) if load.has_arrived() => self.deliver(*load),
            Event::Load(load) => self.pass(*load, now_ns),
            Event::Connect(..) | Event::ToEdge(..) => {}
        }
        Ok(())
    }

    /// Carries to the controller what an edge has sent, and lets it connect again where it wants
    /// to.
    fn carry(&mut self, edge: usize, now_ns: u64) {
        let connection = self.connections[edge];
        for bytes in self.edges[edge].take_sent() {
            let event = Event::ToController(edge, connection, bytes);
            self.queue.push(now_ns + FRAME_NS, event);
        }
        if let Some(retry) = self.edges[edge].take_retry() {
            self.connections[edge] = 0;
            let connect = Event::Connect(edge, self.edges[edge].start);
            self.queue.push(now_ns + retry.as_nanos() as u64, connect);
        }
    }

    /// Puts into the queue when an edge's worker has something to do next.
    fn schedule(&mut self, edge: usize, now_ns: u64) {
        let of = &mut self.edges[edge];
        of.due_ns = of.clock.when(of.next_due_ns(), now_ns);
        self.queue.push(of.due_ns, Event::Due(edge, of.start));
    }

    /// Lets the controller report what it can.
    fn report(&mut self, now_ns: u64) {
        let Some(controller) = &mut self.controller else { return };
        let work = controller.work(now_ns);
        for Reported { mut report, frame_bytes, response } in work.reports {
            let truth = self.truth.take(report.epoch);
            let Some(epoch) = report.epoch.checked_sub(self.first_epoch) else { continue };
            // A controller that comes after another one may report epochs again that edges still
            // hold.
            if epoch < self.reported {
                continue;
            }
            self.reported = epoch + 1;
            report.epoch = epoch;
            if let Some(plan) = &mut report.plan {
                plan.effective_epoch = plan.effective_epoch.saturating_sub(self.first_epoch);
            }
            self.outcomes.push(Outcome { report, truth, frame_bytes: Some(frame_bytes), response });
        }
        let reported = work.reported.into_iter().map(|frame| (now_ns, frame));
        for (at_ns, frame) in reported.chain(work.reconfigure) {
            for (edge, &connection) in self.connections.iter().enumerate() {
                let event = Event::ToEdge(edge, connection, frame.clone());
                self.queue.push(at_ns + FRAME_NS, event);
            }
        }
        if let Some(deadline_ns) = controller.next_deadline()
            && deadline_ns > now_ns.max(self.deadline_ns)
        {
            self.deadline_ns = deadline_ns;
            self.queue.push(deadline_ns, Event::Deadline);
        }
    }
}

/// The mark that a packet carries.
pub(super) fn mark_of(packet: &Bytes) -> Mark {
    // Its header is whole.
    PlainTos::default().read(packet.bytes(), IP_OFFSET).unwrap_or(Mark::from_bits(0))
}
