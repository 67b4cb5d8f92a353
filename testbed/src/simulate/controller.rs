//! The controller in the simulation: nodes are let in, and systems switched on and off, as the live
//! one does it; what a system makes of its frames is the live one's own code ([`Lane`]).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calumma_analysis::{HashKeys, Node, Published};
use calumma_controller::carrier::{Asking, Carriers, Given, Verdict, needs_tos};
use calumma_controller::clocks::{self, ClockFilter, ClockState, Exchange, Faults, gone};
use calumma_controller::paths::Paths;
use calumma_controller::report::EpochReport;
use calumma_controller::steering::noticed_in;
use calumma_plane::secret::secret;
use calumma_sketch::HashKey;
use calumma_wire::{Domain, FrameReader, Hello, Message, Offer, Role, SystemId, Welcome};

use super::Setup;
use super::lane::{Before, Done, Ends, Inbound, Lane, Plan};
use crate::topology::Topology;

/// Time that a message gets to reach a node before the epoch it is about is armed: what the live
/// one gives where it has not measured how far the nodes are.
const LEAD_NS: u64 = 20_000_000;

/// Virtual time between the last side of an epoch and the plan that is made from it. What it really
/// takes is measured, but must not change what happens.
const RESPONSE_NS: u64 = 10_000_000;

/// Epochs beyond the next that can be changed at which systems are switched, as the live one has
/// it.
const SWITCHING_EPOCHS: u64 = 2;

/// Epochs that a hash key holds at least, as the live one has it.
const LEAST_EPOCHS: u64 = 16;

/// What the controller has done.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Epochs that ChameleMon has reported.
    pub(super) reports: Vec<Reported>,
    /// What other systems have reported; of one that sums over windows, the epochs before the
    /// number beside it.
    pub(super) others: Vec<(u64, Published)>,
    pub(super) messages: Vec<Outgoing>,
}

/// What it has to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// When.
    pub(super) at_ns: u64,
    /// To the node at this position.
    pub(super) node: usize,
    pub(super) frame: Vec<u8>,
}

/// An epoch that ChameleMon has reported, and what it cost.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) report: EpochReport,
    /// Bytes of all its frames.
    pub(super) frame_bytes: u64,
    /// From its last side to the plan, by this machine's clock.
    pub(super) response: Duration,
}

/// A node, and what it has said on its last connection.
#[derive(Debug)]
struct Peer {
    node: Arc<Node>,
    /// What kind of switch it is, once it has said so.
    kind: Option<&'static str>,
    /// Whether it measured when it first connected.
    measured_before: Option<bool>,
    reader: FrameReader,
    /// What it can run.
    offers: Vec<Offer>,
    /// What it was sent to run: systems and versions.
    runs: Vec<(SystemId, u8)>,
    /// The first epoch that it does not know to be reported.
    unreported: u64,
    clock: ClockFilter,
    /// The carrier that the controller named.
    carrier: Option<String>,
    /// True time at which its connection was set up, while it stands.
    connected_ns: Option<u64>,
    /// The same of when the last one ended.
    gone_ns: Option<u64>,
}

impl Peer {
    fn new(node: Arc<Node>) -> Self {
        let reader = FrameReader::new();
        Self {
            node,
            kind: None,
            measured_before: None,
            reader,
            offers: Vec::new(),
            runs: Vec::new(),
            unreported: 0,
            clock: ClockFilter::default(),
            carrier: None,
            connected_ns: None,
            gone_ns: None,
        }
    }

    /// Whether it is connected and has been sent what it is to run.
    fn is_welcomed(&self) -> bool {
        self.connected_ns.is_some() && !self.offers.is_empty()
    }

    /// The lanes of what it is to run, with versions.
    fn wanted<'a>(&self, lanes: &'a [Lane]) -> Vec<(&'a Lane, u8)> {
        let on = lanes.iter().filter(|lane| lane.is_on());
        let version = |lane: &Lane| lane.version_of(self.node.role, &self.offers);
        on.filter_map(|lane| Some((lane, version(lane)?))).collect()
    }
}

/// A controller that runs.
#[derive(Debug)]
pub(super) struct Controller {
    setup: Setup,
    topology: Topology,
    /// Edges first.
    peers: Vec<Peer>,
    /// Those that are about to end among them.
    lanes: Vec<Lane>,
    plan: Plan,
    /// What the live one keeps on its disk: copies share it.
    keys: HashKeys,
    carriers: Carriers,
    /// Nodes that wait for the choice of a carrier, with their hellos.
    waiting: Vec<(usize, Hello)>,
    paths: Paths,
    faults: Faults,
    /// The first epoch that the archive has not kept, where there is one.
    acknowledged: Option<u64>,
    /// What was published before its epoch was over, and when.
    pub(super) notices: Vec<(u64, Published)>,
}

impl Controller {
    /// # Errors
    /// When the planner's bounds don't fit the layout, a system is unknown, or its section wrong.
    pub(super) fn new(
        setup: &Setup,
        topology: &Topology,
        nodes: &[Arc<Node>],
        keys: &HashKeys,
        now_ns: u64,
    ) -> Result<Self> {
        let edges = nodes.iter().filter(|node| node.role == Role::Edge).map(|node| node.id);
        let expected = edges.clone().count();
        let mut controller = Self {
            peers: nodes.iter().cloned().map(Peer::new).collect(),
            lanes: Vec::new(),
            plan: Plan::new(setup.attention),
            keys: keys.clone(),
            carriers: Carriers::new(expected, nodes.len(), None),
            waiting: Vec::new(),
            paths: Paths::new(setup.clock, setup.probes, edges),
            faults: Faults::new(setup.clock, nodes.len()),
            acknowledged: None,
            notices: Vec::new(),
            setup: setup.clone(),
            topology: topology.clone(),
        };
        let lanes = setup.systems.on.iter().map(|name| controller.lane(name, (0, now_ns)));
        controller.lanes = lanes.collect::<Result<_>>()?;
        Ok(controller)
    }

    /// The lane of a system that runs from an epoch on, and is started at a time.
    fn lane(&self, name: &str, since: (u64, u64)) -> Result<Lane> {
        let mut known = self.setup.systems.in_controller.iter();
        let system = *known
            .find(|system| system.name() == name)
            .with_context(|| format!("no system is called {name:?}"))?;
        let nodes: Vec<Arc<Node>> = self.peers.iter().map(|peer| peer.node.clone()).collect();
        Lane::new(system, &self.setup, &self.topology, (&nodes, &self.keys), since)
    }

    /// Forgets what a node had begun to send on its last connection, but for its kind, its past and
    /// what was learned of its clock.
    pub(super) fn connected(&mut self, node: usize, now_ns: u64) {
        self.waiting.retain(|(of, _)| *of != node);
        let peer = &mut self.peers[node];
        let clock = std::mem::take(&mut peer.clock);
        *peer = Peer {
            kind: peer.kind,
            measured_before: peer.measured_before,
            clock,
            connected_ns: Some(now_ns),
            gone_ns: peer.gone_ns,
            ..Peer::new(peer.node.clone())
        };
    }

    /// A node's connection has broken.
    pub(super) fn disconnected(&mut self, node: usize, now_ns: u64) {
        (self.peers[node].connected_ns, self.peers[node].gone_ns) = (None, Some(now_ns));
        self.waiting.retain(|(of, _)| *of != node);
        let steering = self.lanes.iter_mut().filter_map(|lane| lane.steering.as_mut());
        steering.for_each(|steering| steering.left(node, now_ns));
        self.paths.disconnected(node, self.setup.clock.epoch_at(now_ns));
    }

    /// Receives the bytes of a node, and gives the answers to it.
    ///
    /// # Errors
    /// When the bytes are no frame, or none that such a node may send; they always are.
    pub(super) fn receive(
        &mut self,
        node: usize,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<Vec<Vec<u8>>> {
        let mut answers = Vec::new();
        self.peers[node].reader.push(bytes);
        let name = self.peers[node].node.name.clone();
        while let Some(message) =
            self.peers[node].reader.next_message().with_context(|| format!("a frame of {name}"))?
        {
            match message {
                Message::Hello(hello) => answers.extend(self.enter(node, *hello, now_ns)?),
                message @ (Message::Side(_) | Message::Sealed { .. } | Message::Notice { .. }) => {
                    let taken = self.take(node, message, now_ns);
                    taken.with_context(|| format!("a frame of {name}"))?;
                }
                Message::Echo { sent_ns, received_ns, answered_ns } => {
                    let exchange =
                        Exchange { sent_ns, received_ns, answered_ns, returned_ns: now_ns };
                    self.peers[node].clock.take(exchange);
                }
                Message::PathsSeen(seen) => {
                    self.paths.take(node, *seen, self.setup.clock.epoch_at(now_ns));
                }
                // What comes of ChameleMon's shows in later frames.
                Message::Applied { system, effective_epoch, outcome } => {
                    let lane = self.lanes.iter_mut().find(|lane| lane.id() == system);
                    if let Some(steering) = lane.and_then(|lane| lane.steering.as_mut()) {
                        let again = steering.answered(node, effective_epoch, &outcome, now_ns);
                        answers.extend(again.iter().map(encoded));
                    }
                }
                other => bail!("a {} frame of {name}", other.name()),
            }
        }
        Ok(answers)
    }

    /// What a node is sent that introduces itself; nothing as long as it waits for the choice of a
    /// carrier.
    ///
    /// # Errors
    /// When it does not offer the carrier of the network.
    fn enter(&mut self, node: usize, hello: Hello, now_ns: u64) -> Result<Vec<Vec<u8>>> {
        let Self { carriers, peers, setup, .. } = self;
        let name_of = |at: usize| peers[at].node.name.clone();
        let needs_tos = needs_tos(&setup.systems.in_controller, &setup.systems.on);
        let given = Given { in_force: None, needs_tos, name_of: &name_of };
        let measures = !hello.holding.is_empty();
        let asking = Asking { position: node, marking: &hello.marking, measures };
        let carrier = match carriers.verdict(asking, given, now_ns) {
            Verdict::By(carrier) => carrier,
            Verdict::Wait(_) => {
                self.waiting.push((node, hello));
                return Ok(Vec::new());
            }
            Verdict::Unfit(problem) => bail!("{}: {problem}", name_of(node)),
        };
        let able = hello.systems.iter().any(|of| of.system == SystemId::PROBES);
        // Paths are judged as where marks are in the ToS byte.
        self.paths.connected(node, self.setup.clock.epoch_at(now_ns), able, 2);
        let peer = &mut self.peers[node];
        peer.kind = Some(hello.kind.name());
        peer.measured_before.get_or_insert(measures);
        (peer.offers, peer.carrier) = (hello.systems, Some(carrier));
        let effective_epoch = self.earliest_epoch(now_ns);
        Ok(self.welcome(node, &Before::Hello(&hello.holding), effective_epoch))
    }

    fn take(&mut self, at: usize, message: Message, received_ns: u64) -> Result<()> {
        let system = match &message {
            Message::Side(side) => side.system,
            Message::Sealed { system, .. } | Message::Notice { system, .. } => *system,
            _ => return Ok(()),
        };
        let Peer { node, reader, offers, .. } = &self.peers[at];
        let (role, bytes) = (node.role, reader.frame_bytes() as u64);
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id() == system) else {
            return Ok(());
        };
        let version = lane.version_of(role, offers).context("it does not run that system")?;
        let noticed =
            lane.take(Inbound { node: at, role, version, message, bytes, received_ns })?;
        self.notices.extend(noticed.map(|published| (received_ns, published)));
        Ok(())
    }

    /// What a node is sent that is to run from `effective_epoch` on what runs here.
    fn welcome(&mut self, node: usize, before: &Before<'_>, effective_epoch: u64) -> Vec<Vec<u8>> {
        let Self { setup, peers, lanes, plan, keys, .. } = self;
        let peer = &mut peers[node];
        let (mut systems, mut has_plan) = (Vec::new(), false);
        peer.runs.clear();
        for lane in lanes.iter_mut().filter(|lane| lane.is_on()) {
            let Some(version) = lane.version_of(peer.node.role, &peer.offers) else { continue };
            has_plan |= lane.plans();
            peer.runs.push((lane.id(), version));
            systems.push(lane.setup((node, version), plan, effective_epoch, before));
        }
        let welcome = Message::Welcome(Box::new(Welcome {
            node_id: Some(peer.node.id),
            hash_key: secret(&keys.at(effective_epoch).key),
            epoch_length_ns: setup.clock.length_ns(),
            guards: setup.clock.guards(),
            effective_epoch,
            systems,
            domain: Domain::default(),
            carrier: peer.carrier.clone(),
        }));
        let pending = plan.change_after(effective_epoch).filter(|_| has_plan);
        let mut frames: Vec<_> = [welcome].iter().chain(&pending).map(encoded).collect();
        let key_from = self.keys.newest().from_epoch;
        if key_from > effective_epoch {
            let runs = self.peers[node].runs.clone();
            frames.extend(self.welcome(node, &Before::Runs(&runs), key_from));
        }
        frames
    }

    /// Changes the hash key, from the next epoch on that all nodes can follow. Gives that epoch,
    /// and what is to be sent; `None` where it was changed a moment ago.
    pub(super) fn rotate(&mut self, key: HashKey, now_ns: u64) -> Option<(u64, Vec<Outgoing>)> {
        let from = self.keys.newest().from_epoch;
        if from > 0 && self.setup.clock.epoch_at(now_ns) < from + LEAST_EPOCHS {
            return None;
        }
        let epoch = self.earliest_epoch(now_ns) + SWITCHING_EPOCHS;
        self.keys.change(epoch, key);
        let connected = (0..self.peers.len()).filter(|&at| self.peers[at].is_welcomed());
        let mut messages = Vec::new();
        for node in connected.collect::<Vec<_>>() {
            let runs = self.peers[node].runs.clone();
            let welcome = self.welcome(node, &Before::Runs(&runs), epoch);
            messages.extend(welcome.into_iter().map(|frame| Outgoing {
                at_ns: now_ns,
                node,
                frame,
            }));
        }
        Some((epoch, messages))
    }

    /// Lets exactly the systems of these names run, from the next epoch on that all nodes can
    /// follow. Gives that epoch, and what is to be sent.
    ///
    /// # Errors
    /// When one is unknown, or still reports its last epochs; then nothing is switched.
    pub(super) fn switch(&mut self, names: &[String], now_ns: u64) -> Result<(u64, Vec<Outgoing>)> {
        let earliest = self.earliest_epoch(now_ns) + SWITCHING_EPOCHS;
        let epoch = earliest.max(self.keys.newest().from_epoch);
        let mut on = Vec::new();
        for name in names {
            match self.lanes.iter().find(|lane| lane.system.name() == name) {
                Some(lane) if lane.is_on() => {}
                Some(_) => bail!("{name} still reports its last epochs"),
                None => on.push(self.lane(name, (epoch, now_ns))?),
            }
        }
        let off =
            |lane: &&mut Lane| lane.is_on() && !names.iter().any(|name| name == lane.system.name());
        self.lanes.iter_mut().filter(off).for_each(|lane| lane.end_at(epoch));
        self.lanes.extend(on);
        let mut messages = Vec::new();
        for node in 0..self.peers.len() {
            let peer = &self.peers[node];
            let wanted = peer.wanted(&self.lanes);
            if !wanted.iter().map(|(lane, version)| (lane.id(), *version)).eq(peer.runs.clone()) {
                let runs = peer.runs.clone();
                let welcome = self.welcome(node, &Before::Runs(&runs), epoch);
                let outgoing = |frame| Outgoing { at_ns: now_ns, node, frame };
                messages.extend(welcome.into_iter().map(outgoing));
            }
        }
        Ok((epoch, messages))
    }

    /// The first epoch that a message sent at `now_ns` can change on every switch.
    fn earliest_epoch(&self, now_ns: u64) -> u64 {
        // An epoch is armed before it begins, by the clock guard.
        let lead = self.setup.clock.guards().clock_ns + LEAD_NS;
        self.setup.clock.epoch_at(now_ns + lead) + 1
    }

    /// Decodes the epochs that are measured at `now_ns` and plans from them; reports those that are
    /// over or whose time is up.
    ///
    /// # Errors
    /// When a report can't be written as JSON.
    pub(super) fn work(&mut self, now_ns: u64) -> Result<Work> {
        let mut work = Work::default();
        for (node, hello) in std::mem::take(&mut self.waiting) {
            let welcome = self.enter(node, hello, now_ns)?;
            let outgoing = |frame| Outgoing { at_ns: now_ns, node, frame };
            work.messages.extend(welcome.into_iter().map(outgoing));
        }
        let planned_ns = now_ns + RESPONSE_NS;
        let key_from = self.keys.newest().from_epoch;
        let earliest_epoch = self.earliest_epoch(planned_ns).max(key_from);
        let mut change = None;
        if self.faults.is_due(now_ns) {
            let clocks = clocks_of(&self.peers, now_ns);
            let name = |at: usize| self.peers[at].node.name.as_str();
            let wrong = clocks::wrong(&clocks, self.setup.clock.guards().clock_ns, name);
            self.faults.note(now_ns, &clocks, &wrong);
        }
        let Self { setup, peers, lanes, plan, paths, faults, .. } = self;
        let ends = Ends {
            clock: setup.clock,
            problems: &|epoch| {
                let of_paths = paths.problems(epoch, |at| &peers[at].node.name);
                with_paths(clock_problems(peers, setup, now_ns), of_paths)
            },
            problems_around: &|window| {
                let of_paths = paths.problems_around(window, |at| &peers[at].node.name);
                let of_clock =
                    |(at, now): (usize, Option<String>)| now.or_else(|| faults.of(at, window));
                let of_clocks = clock_problems(peers, setup, now_ns).into_iter().enumerate();
                with_paths(of_clocks.map(of_clock).collect(), of_paths)
            },
            offset: &|node, since_ns| peers[node].clock.offset_since(since_ns, now_ns),
            kind: &|node| peers[node].kind,
            measured_before: &|node| peers[node].measured_before == Some(true),
            is_gone: &|node, time_ns| {
                let Peer { connected_ns, gone_ns, .. } = peers[node];
                gone_ns.is_some_and(|at_ns| gone(at_ns, connected_ns.is_none(), time_ns))
            },
            unprobed: &|epoch| paths.unprobed(epoch),
        };
        for lane in lanes {
            while let Some(done) = lane.step(now_ns, plan, earliest_epoch, &ends) {
                match done {
                    Done::Change(message) => change = Some((lane.id(), message)),
                    Done::Other { next, report } => work.others.push((next, report?)),
                    Done::ChameleMon { report, frame_bytes, response } => {
                        let report = *report;
                        work.reports.push(Reported { report, frame_bytes, response });
                    }
                }
            }
        }
        let earliest = self.earliest_epoch(now_ns).max(key_from);
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_on()) {
            let earliest = earliest.max(lane.first_epoch);
            let Some(steering) = &mut lane.steering else { continue };
            if steering.wants_noticed() {
                let reports = work.reports.iter().map(|reported| &reported.report);
                reports.for_each(|report| steering.notice(&noticed_in(report)));
            }
            for (node, message) in steering.step(earliest, now_ns) {
                work.messages.push(Outgoing { at_ns: now_ns, node, frame: encoded(&message) });
            }
        }
        self.lanes.retain(|lane| !lane.has_ended(now_ns));
        for (node, wanted) in self.paths.messages() {
            let frame = encoded(&Message::PathsWanted(Box::new(wanted)));
            work.messages.push(Outgoing { at_ns: now_ns, node, frame });
        }
        for (at, peer) in self.peers.iter_mut().enumerate() {
            let runs = |lane: &&Lane| lane.version_of(peer.node.role, &peer.offers).is_some();
            let unreported = self.lanes.iter().filter(runs).map(|lane| lane.unreported).min();
            // What is archived outlives this controller, and nothing else does.
            let kept = |unreported: u64| unreported.min(self.acknowledged.unwrap_or(u64::MAX));
            let unreported = unreported.map(kept);
            if let Some(unreported) = unreported.filter(|&epoch| epoch > peer.unreported) {
                peer.unreported = unreported;
                let reported = Message::Reported { epoch: unreported - 1 };
                let frame = encoded(&reported);
                work.messages.push(Outgoing { at_ns: now_ns, node: at, frame });
            }
            if let Some((system, message)) = &change
                && peer.runs.iter().any(|(runs, _)| runs == system)
            {
                let frame = encoded(message);
                work.messages.push(Outgoing { at_ns: planned_ns, node: at, frame });
            }
        }
        Ok(work)
    }

    /// From now on nodes hold what they have sent until it is archived.
    pub(super) fn keep_archive(&mut self) {
        self.acknowledged.get_or_insert(0);
    }

    /// Every epoch before `next` that was reported is in the archive.
    pub(super) fn acknowledge(&mut self, next: u64) {
        self.acknowledged = self.acknowledged.max(Some(next));
    }

    /// The first epoch that one of the systems has not reported; all bits set where none runs.
    pub(super) fn unreported(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.unreported).min().unwrap_or(u64::MAX)
    }

    /// The epochs of a window of each system that runs; 1 of one that has none.
    pub(super) fn windows(&self) -> impl Iterator<Item = u64> {
        self.lanes.iter().map(|lane| lane.window)
    }

    /// When it gives up waiting for the next epoch.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.lanes.iter().filter_map(Lane::next_deadline).min()
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

/// What there is to say of each node's clock now.
fn clocks_of(peers: &[Peer], now_ns: u64) -> Vec<ClockState> {
    peers.iter().map(|peer| peer.clock.state(now_ns, peer.connected_ns)).collect()
}

/// What is wrong with each node's clock now.
fn clock_problems(peers: &[Peer], setup: &Setup, now_ns: u64) -> Vec<Option<String>> {
    let name = |at: usize| peers[at].node.name.as_str();
    clocks::problems(&clocks_of(peers, now_ns), setup.clock.guards().clock_ns, name)
}

/// What is wrong with each node: its clock, or the paths to it.
fn with_paths(
    mut problems: Vec<Option<String>>,
    of_paths: Vec<Option<String>>,
) -> Vec<Option<String>> {
    for (problem, of_path) in problems.iter_mut().zip(of_paths) {
        *problem = problem.take().or(of_path);
    }
    problems
}

/// A probe of a node's clock.
pub(super) fn probe(now_ns: u64) -> Vec<u8> {
    encoded(&Message::Probe { sent_ns: now_ns })
}
