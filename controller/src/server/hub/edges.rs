//! Who is connected, how far its clock is off, and what it is told.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::{self, Holding};
use calumma_wire::{Marking, Message, Role, Secret, SwitchKind, Welcome};
use tokio::sync::mpsc;
use tracing::warn;

use super::{EDGE_LEAD_NS, Hub, LEAD_NS, lock};
use crate::api::EdgeStatus;
use crate::clocks::{self, ClockEstimate, ClockFilter, Deviation, Exchange};
use crate::collect::Taken;
use crate::server::unix_ns;

/// Messages that may wait for an edge.
const MESSAGES_WAITING: usize = 64;

/// An edge's status and the way to it.
#[derive(Debug, Default)]
pub(super) struct Edge {
    pub(super) status: EdgeStatus,
    clock: ClockFilter,
    /// Number of the connection under way, and its messages.
    pub(super) link: Option<(u64, mpsc::Sender<Message>)>,
}

impl Edge {
    /// One that has not connected yet.
    pub(super) fn expected(name: &str) -> Self {
        let status = EdgeStatus { edge: name.to_owned(), ..EdgeStatus::default() };
        Self { status, ..Self::default() }
    }
}

/// What an edge says of itself when it connects.
#[derive(Debug)]
pub(in crate::server) struct Introduction {
    pub(in crate::server) role: Role,
    pub(in crate::server) kind: SwitchKind,
    pub(in crate::server) program: String,
    pub(in crate::server) holding: Option<Holding>,
    pub(in crate::server) marking: Marking,
    pub(in crate::server) address: SocketAddr,
}

/// An edge that has been let in.
#[derive(Debug)]
pub(in crate::server) struct Admission {
    /// Position among the expected edges.
    pub(in crate::server) edge: usize,
    /// Number of the connection.
    pub(in crate::server) connection: u64,
    /// Messages for the edge, the welcome first.
    pub(in crate::server) messages: mpsc::Receiver<Message>,
}

/// Why the edge at `position` can't be let in: another one marks packets otherwise, or reads them
/// otherwise, and everything between the two would seem lost.
fn mismatch(edges: &[Edge], position: usize, marking: &Marking) -> Option<String> {
    let Marking { carrier, tunnels } = marking;
    let others =
        edges.iter().enumerate().filter(|(at, edge)| *at != position && edge.link.is_some());
    others.map(|(_, edge)| &edge.status).find_map(|other| {
        let (theirs, name) = (other.carrier.as_ref()?, &other.edge);
        if theirs != carrier {
            return Some(format!(
                "its packets carry their mark by {carrier:?}, those of {name} by {theirs:?}: give all \
                 edges the same [carrier]"
            ));
        }
        let theirs = other.tunnels.as_ref()?;
        (theirs != tunnels).then(|| {
            format!(
                "it measures packets in tunnels by their {tunnels} header, {name} by the {theirs} one: \
                 give all edges the same [measure] tunnels"
            )
        })
    })
}

/// The message that lets `attention` hold from `effective_epoch` on.
pub(super) fn reconfigure(effective_epoch: u64, attention: &Attention) -> Message {
    Message::Reconfigure {
        system: frames::ID,
        effective_epoch,
        plan: frames::encode_plan(attention),
    }
}

impl Hub {
    /// Every expected edge.
    pub fn edges(&self) -> Vec<EdgeStatus> {
        let now_ns = unix_ns();
        let problems = self.clock_problems(now_ns);
        let edges = lock(&self.edges);
        let ms = |ns: f64| (ns / 1e3).round() / 1e3;
        let status = |(edge, problem): (&Edge, Option<String>)| {
            let clock = edge.clock.estimate(now_ns);
            EdgeStatus {
                clock_offset_ms: clock.map(|clock| ms(clock.offset_ns as f64)),
                clock_error_ms: clock.map(|clock| ms(clock.error_ns as f64)),
                path_delay_ms: clock.map(|clock| ms(clock.delay_ns as f64)),
                clock_problem: problem,
                ..edge.status.clone()
            }
        };
        edges.iter().zip(problems).map(status).collect()
    }

    /// Takes in an exchange of times with an edge.
    pub(in crate::server) fn exchanged(&self, edge: usize, exchange: Exchange) {
        let mut edges = lock(&self.edges);
        let clock = &mut edges[edge].clock;
        clock.take(exchange);
        let delay_ns = clock.estimate(exchange.heard_ns).map(|clock| clock.delay_ns);
        let mut delays = lock(&self.delays);
        delays.set(edge, delay_ns);
        let slowest_ns = delays.longest_ns().unwrap_or(LEAD_NS);
        let lead_ns = EDGE_LEAD_NS.saturating_add(slowest_ns.saturating_mul(2));
        self.lead_ns.store(lead_ns, Ordering::Relaxed);
    }

    /// For each edge, in words, by how much more than the clock guard its clock differs from another
    /// edge's.
    pub(in crate::server) fn clock_problems(&self, now_ns: u64) -> Vec<Option<String>> {
        let mut edges = lock(&self.edges);
        let clocks: Vec<Option<ClockEstimate>> =
            edges.iter().map(|edge| edge.clock.estimate(now_ns)).collect();
        let guard_ns = self.clock.guards().clock_ns;
        let deviations = clocks::deviations(&clocks, guard_ns);
        let name = |at: usize| self.config.edges[at].as_str();
        let in_words = |Deviation { from, by_ns }: Deviation| {
            let (by_ms, way) =
                (by_ns.unsigned_abs() as f64 / 1e6, if by_ns > 0 { "ahead of" } else { "behind" });
            let guard_ms = guard_ns as f64 / 1e6;
            format!(
                "its clock is {by_ms:.2} ms {way} {}'s, more than the clock guard of {guard_ms} ms: \
                 see `chronyc tracking` on both, or raise clock_guard_us",
                name(from)
            )
        };
        let problems: Vec<_> = deviations.into_iter().map(|found| found.map(in_words)).collect();
        for (edge, problem) in edges.iter_mut().zip(&problems) {
            if edge.status.clock_problem.is_none()
                && let Some(problem) = problem
            {
                warn!(edge = edge.status.edge, "{problem}");
            }
            edge.status.clock_problem.clone_from(problem);
        }
        problems
    }

    /// Lets an edge in that introduced itself.
    ///
    /// # Errors
    /// Why it is refused, for the edge's operator.
    pub(in crate::server) fn admit(
        &self,
        name: &str,
        introduction: Introduction,
        now_ns: u64,
    ) -> Result<Admission, String> {
        let Introduction { role, kind, program, holding, marking, address } = introduction;
        // Plan before edges, as everywhere: a change of attention either is in the welcome or finds
        // the edge connected.
        let mut plan = lock(&self.plan);
        let mut edges = lock(&self.edges);
        let Some(&position) = self.positions.get(name) else {
            return Err(format!(
                "no edge is called {name:?} here; the controller's configuration expects {:?}",
                self.config.edges
            ));
        };
        if role != Role::Edge {
            let problem = format!(
                "{name:?} is an edge here, and comes with role = {:?}: set role = \"edge\" at the node",
                role.name()
            );
            edges[position].status.last_problem = Some(problem.clone());
            return Err(problem);
        }
        if let Some(problem) = mismatch(&edges, position, &marking) {
            edges[position].status.last_problem = Some(problem.clone());
            return Err(problem);
        }
        if edges[position].link.is_none()
            && let Some(holding) = holding
        {
            self.adopt(&mut plan, &edges, &holding, now_ns);
        }
        let Edge { status, link, clock } = &mut edges[position];
        if link.is_some() {
            let other = status.address.map_or("elsewhere".to_owned(), |at| at.to_string());
            return Err(format!(
                "edge {name:?} is already connected from {other}: give each edge its own name"
            ));
        }
        clock.clear();
        lock(&self.delays).set(position, None);
        status.connected = true;
        status.address = Some(address);
        status.kind = Some(kind.name());
        status.program = Some(program);
        status.carrier = Some(marking.carrier);
        status.tunnels = Some(marking.tunnels);
        status.measuring_problem = None;
        status.connections += 1;
        let connection = status.connections;

        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let effective_epoch = self.earliest_epoch(now_ns);
        let attention = plan.timeline.at(effective_epoch);
        let welcome = Message::Welcome(Box::new(Welcome {
            node_id: None,
            hash_key: Secret(*self.hash_key.as_bytes()),
            epoch_length_ns: self.clock.length_ns(),
            guards: self.clock.guards(),
            effective_epoch,
            systems: vec![frames::setup(&self.config.layout, attention)],
        }));
        let (last_epoch, last) = plan.last;
        let pending = (last_epoch > effective_epoch).then(|| reconfigure(last_epoch, &last));
        for message in [Some(welcome), pending].into_iter().flatten() {
            // There is room: the channel is new.
            let _ = sender.try_send(message);
        }
        *link = Some((connection, sender));
        Ok(Admission { edge: position, connection, messages })
    }

    /// Sends a change of attention to every edge that is connected.
    pub(super) fn tell(&self, edges: &[Edge], effective_epoch: u64, attention: Attention) {
        for Edge { status, link, .. } in edges {
            if let Some((_, link)) = link
                && link.try_send(reconfigure(effective_epoch, &attention)).is_err()
            {
                warn!(edge = status.edge, "takes no messages; its epochs will be incomplete");
            }
        }
    }

    /// Notes that a connection has ended, and why.
    pub(in crate::server) fn dismiss(&self, edge: usize, connection: u64, problem: Option<String>) {
        let mut edges = lock(&self.edges);
        let Edge { status, link, clock } = &mut edges[edge];
        if link.as_ref().is_some_and(|(number, _)| *number == connection) {
            *link = None;
            clock.clear();
            lock(&self.delays).set(edge, None);
            status.connected = false;
            status.last_problem = problem;
        }
    }

    /// Notes what a frame about an epoch says of its edge.
    pub(in crate::server) fn received(&self, edge: usize, message: &mut frames::Message) {
        let mut edges = lock(&self.edges);
        let status = &mut edges[edge].status;
        let (epoch, counters) = match message {
            frames::Message::Ingress(side) => (side.epoch, std::mem::take(&mut side.counters)),
            frames::Message::Egress(side) => (side.epoch, std::mem::take(&mut side.counters)),
            frames::Message::Sealed { epoch, .. } => (*epoch, Vec::new()),
            _ => return,
        };
        status.last_epoch = Some(epoch);
        for (name, value) in counters {
            status.counters.insert(name, value);
        }
    }

    /// Notes what became of a frame.
    pub(in crate::server) fn taken(&self, edge: usize, taken: Taken) {
        let mut edges = lock(&self.edges);
        let status = &mut edges[edge].status;
        match taken {
            Taken::Kept => status.frames += 1,
            Taken::Duplicate => status.duplicate_frames += 1,
            Taken::Late => status.late_frames += 1,
            Taken::Astray => {
                status.astray_frames += 1;
                if status.astray_frames.is_power_of_two() {
                    let (edge, epoch) = (&status.edge, status.last_epoch.unwrap_or(0));
                    warn!(edge, epoch, "sends epochs far from the controller's time: check clocks");
                }
            }
        }
    }
}
