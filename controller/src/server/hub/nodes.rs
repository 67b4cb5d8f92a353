//! Which nodes are connected, how far their clocks are off, and what they are sent.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use calumma_analysis::{ClockOffset, Node};
use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::{self, Holding};
use calumma_wire::{Marking, Message, Offer, Outcome, Role, SwitchKind, SystemId, v5};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::counters::{Totals, set_aside};
use super::paths::knows_probes;
use super::switching::{Before, Wanted, runs_chamelemon};
use super::{Hub, LEAD_NS, NODE_LEAD_NS, lock};
use crate::alert::{WatchedNode, WatchedNodes};
use crate::api::{EdgeStatus, NodeStatus, UnexpectedNode};
use crate::carrier::Verdict;
use crate::chamelemon::attention::reconfigure;
use crate::chamelemon::is_chamelemon;
use crate::clocks::{self, ClockFilter, ClockState, Exchange, Faults};
use crate::collect::Receipt;
use crate::server::lane::Lane;
use crate::server::{steady_ns, unix_ns};

/// Messages that may wait for a node.
const MESSAGES_WAITING: usize = 64;

/// How long an unexpected node is shown after its last attempt.
const UNEXPECTED_NS: u64 = 120_000_000_000;

/// Epochs by which a node's distance delays plans at most.
const LEAD_EPOCHS: u64 = 8;

/// An expected node.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) node: Arc<Node>,
    pub(super) state: Mutex<State>,
}

/// A node's status and the way to it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) status: EdgeStatus,
    clock: ClockFilter,
    pub(super) link: Option<Link>,
    /// Whether it measured when it first connected.
    measured_before: bool,
    /// What its totals were at the end of the connections before, since it last began anew.
    pub(super) totals_before: Totals,
    /// When its own end closed the last connection, in nanoseconds since the Unix epoch, if it did.
    pub(super) closed_ns: Option<u64>,
}

impl State {
    /// How far the node's clock was from the system's in all of the time since `since_unix_ns`.
    fn offset_since(&self, since_unix_ns: u64) -> Option<ClockOffset> {
        let (steady_ns, unix_ns) = (steady_ns(), unix_ns());
        let since_ns = steady_ns.saturating_sub(unix_ns.saturating_sub(since_unix_ns));
        let mut offset = self.clock.offset_since(since_ns, steady_ns)?;
        let set_by_ns = steady_ns.wrapping_sub(unix_ns).cast_signed();
        offset.offset_ns = offset.offset_ns.saturating_add(set_by_ns);
        Some(offset)
    }

    /// What there is to say of the node's clock, as compared with the system's now.
    fn clock(&self) -> ClockState {
        let (steady_ns, unix_ns) = (steady_ns(), unix_ns());
        let connected_ns = self.link.as_ref().map(|link| link.since_ns);
        let mut state = self.clock.state(steady_ns, connected_ns);
        if let Some(estimate) = &mut state.estimate {
            let set_by_ns = steady_ns.wrapping_sub(unix_ns).cast_signed();
            estimate.offset_ns = estimate.offset_ns.saturating_add(set_by_ns);
        }
        state
    }
}

/// The connection under way.
#[derive(Debug)]
pub(super) struct Link {
    /// Its number.
    pub(super) connection: u64,
    /// When it was set up, by [`steady_ns`].
    since_ns: u64,
    pub(super) messages: mpsc::Sender<Message>,
    /// The version of the protocol that the node speaks.
    pub(super) version: u8,
    /// What the node can run.
    pub(super) offers: Vec<Offer>,
    /// What it runs, with the versions of the bodies.
    pub(super) runs: Vec<(SystemId, u8)>,
    /// The carrier that welcomes name to it.
    pub(super) named: Option<String>,
    /// The first epoch of which the node has not been sent that it is reported.
    pub(super) unreported: u64,
}

impl Link {
    /// The version in which the node, whose role this is, can run a system.
    pub(super) fn version_of(&self, lane: &Lane, role: Role) -> Option<u8> {
        lane.version_of(&self.offers).filter(|_| lane.system.roles().contains(&role))
    }

    /// Sends the node called `name` a message that it can't do without.
    pub(super) fn send(&self, name: &str, message: Message) {
        if self.messages.try_send(message).is_err() {
            warn!(node = name, "its message queue is full; its epochs will be incomplete");
        }
    }
}

impl Entry {
    /// One that has not connected yet.
    pub(super) fn expected(node: Arc<Node>) -> Self {
        let status = EdgeStatus { edge: node.name.clone(), ..EdgeStatus::default() };
        Self { node, state: Mutex::new(State { status, ..State::default() }) }
    }
}

/// A node's hello.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    /// The version of the protocol that it speaks.
    pub(crate) version: u8,
    pub(crate) role: Role,
    pub(crate) kind: SwitchKind,
    pub(crate) program: String,
    pub(crate) offers: Vec<Offer>,
    pub(crate) holding: Option<Holding>,
    /// What it measures by already, in each system's own format.
    pub(crate) held: Vec<(SystemId, Vec<u8>)>,
    pub(crate) marking: Marking,
    pub(crate) address: SocketAddr,
}

/// What becomes of a node that introduced itself and is not refused.
#[derive(Debug)]
pub(crate) enum Entrance {
    /// It is let in.
    Admitted(Admission),
    /// It may ask again in a moment: a carrier is chosen when these nodes have come.
    Waits(Vec<String>),
}

/// A node that has been let in.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Position among the expected nodes.
    pub(crate) node: usize,
    /// Number of the connection.
    pub(crate) connection: u64,
    /// Messages for the node, the welcome first.
    pub(crate) messages: mpsc::Receiver<Message>,
    /// Whether it knows probes: see [`knows_probes`].
    pub(crate) probes: (bool, u64),
}

impl Hub {
    /// The node at a position.
    pub(crate) fn node(&self, position: usize) -> &Node {
        &self.nodes[position].node
    }

    fn edge_entries(&self) -> &[Entry] {
        &self.nodes[..self.config.edges.len()]
    }

    /// Every expected edge.
    pub fn edges(&self) -> Vec<EdgeStatus> {
        let problems = self.clock_problems(self.edge_entries());
        let ms = |ns: f64| (ns / 1e3).round() / 1e3;
        let status = |(entry, problem): (&Entry, Option<String>)| {
            let state = lock(&entry.state);
            let clock = state.clock().estimate.filter(|_| state.link.is_some());
            EdgeStatus {
                clock_offset_ms: clock.map(|clock| ms(clock.offset_ns as f64)),
                clock_error_ms: clock.map(|clock| ms(clock.error_ns as f64)),
                path_delay_ms: clock.map(|clock| ms(clock.delay_ns as f64)),
                clock_problem: problem,
                ..state.status.clone()
            }
        };
        self.edge_entries().iter().zip(problems).map(status).collect()
    }

    /// Every expected node.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let lanes = self.lanes();
        let problems = self.clock_problems(&self.nodes);
        let of_edges = self.clock_problems(self.edge_entries()).into_iter().map(Some);
        let problems = of_edges.chain(std::iter::repeat(None)).zip(problems);
        let problems = problems.map(|(of_edge, of_any)| of_edge.unwrap_or(of_any));
        let status = |(entry, clock_problem): (&Entry, Option<String>)| {
            let state = lock(&entry.state);
            let runs = state.link.as_ref().map_or(&[][..], |link| &link.runs);
            let name = |id: SystemId| lanes.iter().find(|l| l.id() == id).map(|l| l.system.name());
            NodeStatus {
                node: entry.node.name.clone(),
                role: entry.node.role.name(),
                id: entry.node.id,
                connected: state.status.connected,
                address: state.status.address,
                kind: state.status.kind,
                program: state.status.program.clone(),
                systems: runs.iter().filter_map(|(system, _)| name(*system)).collect(),
                connections: state.status.connections,
                last_epoch: state.status.last_epoch,
                frames: state.status.frames,
                duplicate_frames: state.status.duplicate_frames,
                late_frames: state.status.late_frames,
                out_of_window_frames: state.status.out_of_window_frames,
                counters: state.status.counters.clone(),
                clock_problem,
                measuring_problem: state.status.measuring_problem.clone(),
                last_problem: state.status.last_problem.clone(),
            }
        };
        self.nodes.iter().zip(problems).map(status).collect()
    }

    /// What runs, and how the nodes stand that no system's own alerts watch: ChameleMon's are about
    /// every edge.
    pub(crate) fn watched_nodes(&self) -> WatchedNodes {
        let now_ns = unix_ns();
        let lanes = self.lanes();
        let chamelemon = lanes.iter().any(|lane| is_chamelemon(lane.id()) && lane.is_on());
        let watched =
            self.nodes.iter().filter(|entry| entry.node.role != Role::Edge || !chamelemon);
        let nodes = watched.map(|entry| {
            let state = lock(&entry.state);
            WatchedNode {
                name: entry.node.name.clone(),
                role: entry.node.role.name(),
                connected: state.status.connected,
                problem: state.status.last_problem.clone(),
            }
        });
        let edges = self.nodes.iter().filter(|entry| entry.node.role == Role::Edge);
        let away = edges.filter(|entry| !lock(&entry.state).status.connected);
        WatchedNodes {
            epoch: self.clock.epoch_at(now_ns),
            unix_ns: now_ns,
            systems: lanes.iter().map(|lane| lane.system.name()).collect(),
            nodes: nodes.collect(),
            edges_away: away.map(|entry| entry.node.name.clone()).collect(),
            probing: self.is_probing(),
            paths: self.paths(),
        }
    }

    /// Unexpected nodes that tried to connect within the last minutes.
    pub(crate) fn unexpected_nodes(&self) -> Vec<UnexpectedNode> {
        self.unexpected.since(unix_ns().saturating_sub(UNEXPECTED_NS))
    }

    /// Takes in an exchange of times with a node, of which the controller's are by [`steady_ns`].
    pub(in crate::server) fn exchanged(&self, node: usize, exchange: Exchange) {
        for (among, faults) in
            [(&self.nodes[..], &self.faults), (self.edge_entries(), &self.faults_of_edges)]
        {
            if lock(faults).is_due(unix_ns()) {
                self.look_at_clocks(among, faults);
            }
        }
        let entry = &self.nodes[node];
        let mut state = lock(&entry.state);
        state.clock.take(exchange);
        // Attention waits for no other nodes than those it is for.
        if entry.node.role != Role::Edge {
            return;
        }
        let delay_ns = state.clock.estimate(exchange.returned_ns).map(|clock| clock.delay_ns);
        let mut delays = lock(&self.delays);
        delays.set(node, delay_ns);
        let slowest_ns = delays.longest_ns().unwrap_or(LEAD_NS);
        let lead_ns = NODE_LEAD_NS.saturating_add(slowest_ns.saturating_mul(2));
        // A node that is further away gets its plans too late, and no one else does.
        let lead_ns = lead_ns.min(LEAD_EPOCHS * self.clock.length_ns());
        self.lead_ns.store(lead_ns, Ordering::Relaxed);
    }

    /// For each edge, in words, what is wrong with its clock now, or was in an epoch: by how much
    /// more than the clock guard it differs from another edge's, or was set, or that it is not
    /// known. What other nodes' clocks show changes nothing here.
    pub(super) fn clock_problems_of_edges(&self, epoch: u64) -> Vec<Option<String>> {
        let problems = self.look_at_clocks(self.edge_entries(), &self.faults_of_edges);
        self.note_clock_problems(0, &problems);
        or_then(problems, &self.faults_of_edges, &(epoch..epoch + 1))
    }

    /// For each node, the same among all of them, now or in a window of these epochs.
    pub(super) fn clock_problems_of_all(&self, window: &Range<u64>) -> Vec<Option<String>> {
        let problems = self.look_at_clocks(&self.nodes, &self.faults);
        let edges = self.config.edges.len();
        self.note_clock_problems(edges, &problems[edges..]);
        or_then(problems, &self.faults, window)
    }

    /// What is wrong now with the clocks of these nodes, as compared with each other. It is
    /// remembered for epochs that are not reported yet.
    fn look_at_clocks(&self, among: &[Entry], faults: &Mutex<Faults>) -> Vec<Option<String>> {
        let (clocks, guard_ns) = (self.clocks(among), self.clock.guards().clock_ns);
        let name = |at: usize| among[at].node.name.as_str();
        lock(faults).note(unix_ns(), &clocks, &clocks::wrong(&clocks, guard_ns, name));
        clocks::problems(&clocks, guard_ns, name)
    }

    fn clocks(&self, among: &[Entry]) -> Vec<ClockState> {
        among.iter().map(|entry| lock(&entry.state).clock()).collect()
    }

    /// How far the clock of the node at a position was from the controller's in all of the time
    /// since `since_unix_ns`, by the controller's clock as it is now; `None` where that is not
    /// known.
    pub(in crate::server) fn clock_offset(
        &self,
        node: usize,
        since_unix_ns: u64,
    ) -> Option<ClockOffset> {
        lock(&self.nodes[node].state).offset_since(since_unix_ns)
    }

    /// What kind of switch the node at a position is; `None` where none has connected.
    pub(in crate::server) fn kind(&self, node: usize) -> Option<&'static str> {
        lock(&self.nodes[node].state).status.kind
    }

    /// Whether the node at a position measured when it first connected.
    pub(crate) fn measured_before(&self, node: usize) -> bool {
        lock(&self.nodes[node].state).measured_before
    }

    fn note_clock_problems(&self, from: usize, problems: &[Option<String>]) {
        for (entry, problem) in self.nodes[from..].iter().zip(problems) {
            let status = &mut lock(&entry.state).status;
            if status.clock_problem.is_none()
                && let Some(problem) = problem
            {
                warn!(node = entry.node.name, "{problem}");
            }
            status.clock_problem.clone_from(problem);
        }
    }

    fn clock_problems(&self, among: &[Entry]) -> Vec<Option<String>> {
        clocks::problems(&self.clocks(among), self.clock.guards().clock_ns, |at| {
            &among[at].node.name
        })
    }

    /// Lets a node in that introduced itself.
    ///
    /// # Errors
    /// Why it is refused, for the node's operator.
    pub(in crate::server) fn admit(
        &self,
        name: &str,
        introduction: Introduction,
        now_ns: u64,
    ) -> Result<Entrance, String> {
        let Introduction { version, role, kind, program, offers, .. } = introduction;
        let Introduction { holding, held, marking, address, .. } = introduction;
        let Some(&position) = self.positions.get(name) else {
            self.unexpected.note(name, role, address, now_ns);
            let (role, expected) = (role.name(), self.config.nodes_of(role));
            // The log may say what strangers must not know.
            info!(%address, "no {role} is called {name:?}; expected are {expected:?}");
            return Err(format!(
                "no {role} is called {name:?} here: correct the node's `name`, or add it to `{role}s` \
                 in the controller's configuration"
            ));
        };
        let entry = &self.nodes[position];
        let refuse = |problem: String| {
            lock(&entry.state).status.last_problem = Some(problem.clone());
            Err(problem)
        };
        let expected = entry.node.role;
        if role != expected {
            let article = if expected == Role::Edge { "an" } else { "a" };
            let (is, comes) = (expected.name(), role.name());
            return refuse(format!(
                "{name:?} is {article} {is} here, and comes with role = {comes:?}: set role = {is:?} \
                 at the node"
            ));
        }
        let _alone = lock(&self.admissions);
        let key_from = self.keys().newest().from_epoch;
        if version == v5::VERSION && key_from > self.clock.epoch_at(now_ns) {
            return refuse(format!(
                "the hash key changes in epoch {key_from}, and version {version} of the protocol has \
                 no words for that: it may come back then"
            ));
        }
        let wanted = Wanted::new(&self.lanes(), role, &offers);
        if wanted.runs.is_empty()
            && let Some(lacking) = wanted.lacking.first()
        {
            return refuse(format!(
                "{name:?} does not run {lacking}, which this controller measures by"
            ));
        }
        // The plan until the node is connected: a change of attention either is in the welcome or
        // finds the node connected.
        let mut plan = self.chamelemon.plan();
        let mut marked = lock(&self.marked);
        let measures = !held.is_empty();
        let name_of = |position: usize| self.nodes[position].node.name.as_str();
        let marking = match self.carrier_for(&marked, position, (&marking, measures), now_ns) {
            Verdict::By(carrier) => {
                Marking { carrier, tunnels: marking.tunnels, offers: Vec::new() }
            }
            Verdict::Wait(missing) => {
                return Ok(Entrance::Waits(
                    missing.into_iter().map(|at| name_of(at).into()).collect(),
                ));
            }
            Verdict::Unfit(problem) => return refuse(problem),
        };
        let votes = role == Role::Edge;
        if let Some(mismatch) = marked.mismatch((position, votes), &marking, now_ns, name_of) {
            drop(marked);
            self.outvote(&mismatch.outvoted);
            return refuse(mismatch.problem);
        }
        if let Some(holding) = holding
            && lock(&entry.state).link.is_none()
        {
            self.adopt(&mut plan, &holding, now_ns);
        }
        let mut state = lock(&entry.state);
        let State { status, link, measured_before, totals_before, .. } = &mut *state;
        if link.is_some() {
            let other = status.address.map_or("elsewhere".to_owned(), |at| at.to_string());
            let role = role.name();
            return Err(format!(
                "{role} {name:?} is already connected from {other}: give each {role} its own name"
            ));
        }
        if role == Role::Edge {
            marked.insert(position, marking.clone());
            self.carrier_connected(&marking.carrier);
        }
        lock(&self.delays).set(position, None);
        // Counters of the previous connection may have names this switch lacks.
        set_aside(&mut status.counters, totals_before);
        if !measures {
            // It has begun anew, maybe at 0, and holds nothing that it could send again.
            totals_before.clear();
        }
        status.connected = true;
        status.address = Some(address);
        status.kind = Some(kind.name());
        status.program = Some(program);
        // Version 5 has no words for it, and no choice.
        let named = (version != v5::VERSION).then(|| marking.carrier.clone());
        let probes = knows_probes(&offers, &marking.carrier);
        status.carrier = Some(marking.carrier);
        status.tunnels = Some(marking.tunnels);
        status.measuring_problem = wanted.problem();
        *measured_before |= measures && status.connections == 0;
        status.connections += 1;
        let connection = status.connections;

        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let effective_epoch = self.earliest_epoch(now_ns);
        wanted.note_lacking(position);
        let of = (&wanted, &Before::Hello(&held));
        for message in self.welcome(&plan, (position, named.as_deref()), of, effective_epoch) {
            // There is room: the channel is new.
            let _ = sender.try_send(message);
        }
        let runs = wanted.systems();
        let since_ns = steady_ns();
        let unreported = 0;
        let new = Link {
            connection,
            since_ns,
            messages: sender,
            version,
            offers,
            runs,
            named,
            unreported,
        };
        *link = Some(new);
        Ok(Entrance::Admitted(Admission { node: position, connection, messages, probes }))
    }

    /// Disconnects edges that mark packets otherwise than most.
    fn outvote(&self, edges: &[usize]) {
        for &edge in edges {
            let Entry { node, state } = &self.nodes[edge];
            let reason = "most edges mark packets or read tunnels otherwise: give all the same";
            warn!(node = node.name, "disconnected: {reason}");
            if let Some(link) = &lock(state).link {
                let reason = reason.to_owned();
                // Where the queue is full, the connection is about to end by that.
                let _ = link.messages.try_send(Message::Refused { reason });
            }
        }
    }

    /// Sends a change of attention to every edge that is connected and runs ChameleMon.
    pub(crate) fn send_attention(&self, effective_epoch: u64, attention: &Attention) {
        for entry in self.edge_entries() {
            let state = lock(&entry.state);
            if let Some(link) = state.link.as_ref().filter(|link| runs_chamelemon(link)) {
                link.send(&entry.node.name, reconfigure(effective_epoch, attention));
            }
        }
    }

    /// Notes what became of a reconfiguration, and sends `again` where it was too late.
    pub(crate) fn note_outcome(&self, node: usize, outcome: Outcome, again: Option<Message>) {
        let mut state = lock(&self.nodes[node].state);
        if let Outcome::Invalid { reason } = outcome {
            state.status.measuring_problem = Some(reason);
        }
        if let (Some(link), Some(message)) = (&state.link, again) {
            let _ = link.messages.try_send(message);
        }
    }

    /// The version in which the node can run a system that is or was to run on it, and whether it
    /// runs one system at most; `None` where it can't.
    pub(in crate::server) fn runs(&self, node: usize, lane: &Lane) -> Option<(u8, bool)> {
        let Entry { node, state } = &self.nodes[node];
        let state = lock(state);
        let link = state.link.as_ref()?;
        let version = link.version_of(lane, node.role)?;
        Some((version, link.runs.len() <= 1))
    }

    /// Notes what became of a frame.
    pub(crate) fn note_frame(&self, node: usize, epoch: u64, receipt: Receipt) {
        let status = &mut lock(&self.nodes[node].state).status;
        status.last_epoch = Some(epoch);
        match receipt {
            Receipt::Accepted => status.frames += 1,
            Receipt::Duplicate => status.duplicate_frames += 1,
            Receipt::Late => status.late_frames += 1,
            Receipt::OutOfWindow => {
                status.out_of_window_frames += 1;
                if status.out_of_window_frames.is_power_of_two() {
                    let node = &status.edge;
                    warn!(node, epoch, "sends epochs far from the controller's time: check clocks");
                }
            }
        }
    }
}

/// What is wrong with each node's clock now, or was in a window of these epochs.
fn or_then(
    now: Vec<Option<String>>,
    faults: &Mutex<Faults>,
    window: &Range<u64>,
) -> Vec<Option<String>> {
    let faults = lock(faults);
    let of_node = |(at, now): (usize, Option<String>)| now.or_else(|| faults.of(at, window));
    now.into_iter().enumerate().map(of_node).collect()
}

impl Introduction {
    /// What an edge holds of ChameleMon, out of all that it holds.
    ///
    /// # Errors
    /// What can't be read.
    pub(in crate::server) fn holding(
        held: &[(SystemId, Vec<u8>)],
    ) -> Result<Option<Holding>, String> {
        let holding = held.iter().find(|(system, _)| *system == frames::ID);
        let holding = holding.map(|(_, bytes)| Holding::decode(bytes)).transpose();
        holding.map_err(|error| error.to_string())
    }
}
