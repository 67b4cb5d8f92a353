//! What connections, collecting and the HTTP API share: who is connected and which attention is
//! planned.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use calumma_epoch::{EpochClock, Timeline};
use calumma_sketch::{Attention, HashKey};
use calumma_wire::{Holding, Marking, Message, Outcome, SwitchKind};
use serde::Serialize;
use tokio::sync::mpsc;
use tracing::{error, info, warn};
use utoipa::ToSchema;

use super::audit::{Audit, By, Entry};
use super::recent::Recent;
use super::unix_ns;
use crate::analyse::{Decoder, Tasks};
use crate::clocks::{self, ClockEstimate, ClockFilter, Deviation, Exchange};
use crate::collect::Taken;
use crate::config::{AttentionSection, Config, ShiftingMode};
use crate::report::{EpochConfig, NetworkState, PlanReport};

/// Time that a message gets to reach an edge before the epoch it is about is armed, as long as
/// nothing is known of the way there.
const LEAD_NS: u64 = 20_000_000;

/// The same beside twice the longest way that was measured: what edges ask for, and a few rounds of
/// their control threads.
const EDGE_LEAD_NS: u64 = 5_000_000;

/// Messages that may wait for an edge.
const MESSAGES_WAITING: usize = 64;

/// An edge as `GET /api/v1/edges` shows it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct EdgeStatus {
    /// The edge's name.
    pub edge: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Its address, when connected last.
    #[schema(value_type = Option<String>, example = "10.0.0.7:51234")]
    pub address: Option<SocketAddr>,
    /// `software` or `tofino`.
    pub kind: Option<&'static str>,
    /// Its program and version.
    pub program: Option<String>,
    /// Where its packets carry their mark: the same at all edges.
    pub carrier: Option<String>,
    /// By which header it measures packets in tunnels: the same at all edges.
    pub tunnels: Option<String>,
    /// Connections since the controller started.
    pub connections: u64,
    /// The last epoch that it spoke of.
    pub last_epoch: Option<u64>,
    /// Its clock's time less the controller's, in milliseconds, once it has been measured.
    pub clock_offset_ms: Option<f64>,
    /// Most that `clock_offset_ms` is wrong.
    pub clock_error_ms: Option<f64>,
    /// Time that a message takes to the edge and back, in milliseconds, without what it waits there.
    pub path_delay_ms: Option<f64>,
    /// What is wrong with its clock; none where it keeps to the clock guard.
    pub clock_problem: Option<String>,
    /// Frames about epochs that were taken in.
    pub frames: u64,
    /// Frames that had come before.
    pub duplicate_frames: u64,
    /// Frames that came after their epoch had been reported.
    pub late_frames: u64,
    /// Frames whose epoch lay too far from the controller's time.
    pub astray_frames: u64,
    /// Why it is connected and does not measure as it should; none where it does.
    pub measuring_problem: Option<String>,
    /// What ended its last connection, or why it was refused.
    pub last_problem: Option<String>,
    /// The switch's own totals, as it sent them last.
    pub counters: BTreeMap<String, u64>,
}

/// An edge's status and the way to it.
#[derive(Debug, Default)]
struct Edge {
    status: EdgeStatus,
    clock: ClockFilter,
    /// Number of the connection under way, and its messages.
    link: Option<(u64, mpsc::Sender<Message>)>,
}

/// The attention of each epoch.
#[derive(Debug)]
struct Plan {
    timeline: Timeline<Attention>,
    /// The last change: its epoch and what holds from then on.
    last: (u64, Attention),
    /// Whether attention was set by hand, and so stays until it is released.
    held: bool,
    /// `[attention]` as the configuration file had it last.
    file: AttentionSection,
    /// Whether an edge has said what it measures by, or an epoch has been reported: until then,
    /// what the configuration asks for is no more than a guess at it.
    known: bool,
    /// Whether what holds was taken over from the edges, and nobody has asked for it yet.
    adopted: bool,
}

/// Why attention changes.
struct Decision<'a> {
    by: By,
    observed_epoch: Option<u64>,
    reasons: &'a [String],
}

/// Attention as `GET /api/v1/attention` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct AttentionStatus {
    /// What is done with plans.
    pub mode: ShiftingMode,
    /// Whether it was set by hand and waits to be released.
    pub held: bool,
    /// The first epoch that it holds for; 0 since the start.
    pub since_epoch: u64,
    /// The network state that it is made for.
    pub state: NetworkState,
    /// The attention itself.
    pub config: EpochConfig,
}

/// What an edge says of itself when it connects.
#[derive(Debug)]
pub(super) struct Introduction {
    pub(super) kind: SwitchKind,
    pub(super) program: String,
    pub(super) holding: Option<Holding>,
    pub(super) marking: Marking,
    pub(super) address: SocketAddr,
}

/// An edge that has been let in.
#[derive(Debug)]
pub(super) struct Admission {
    /// Position among the expected edges.
    pub(super) edge: usize,
    /// Number of the connection.
    pub(super) connection: u64,
    /// Messages for the edge, the welcome first.
    pub(super) messages: mpsc::Receiver<Message>,
}

/// The shared state. Locks are taken in the order of the fields and held for moments only.
#[derive(Debug)]
pub struct Hub {
    config: Config,
    clock: EpochClock,
    hash_key: HashKey,
    decoder: Decoder,
    /// Time that a message gets to reach every edge, in nanoseconds.
    lead_ns: AtomicU64,
    plan: Mutex<Plan>,
    audit: Option<Audit>,
    tasks: Mutex<Tasks>,
    edges: Mutex<Vec<Edge>>,
    recent: Recent,
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

/// A lock whose data is never left half changed, so that a panic elsewhere does no harm.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(super) fn new(config: Config, hash_key: HashKey, decoder: Decoder) -> anyhow::Result<Self> {
        let attention = config.planned_attention()?;
        let edge = |name: &String| Edge {
            status: EdgeStatus { edge: name.clone(), ..EdgeStatus::default() },
            ..Edge::default()
        };
        Ok(Self {
            clock: config.clock()?,
            hash_key,
            recent: Recent::new(config.history, decoder.family().clone()),
            decoder,
            lead_ns: AtomicU64::new(LEAD_NS),
            plan: Mutex::new(Plan {
                timeline: Timeline::new(attention),
                last: (0, attention),
                held: false,
                file: config.attention,
                known: false,
                adopted: false,
            }),
            audit: config.shifting.audit.as_deref().map(Audit::open).transpose()?,
            tasks: Mutex::new(config.tasks),
            edges: Mutex::new(config.edges.iter().map(edge).collect()),
            config,
        })
    }

    /// The configuration that the controller was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The deployment's epochs.
    pub fn clock(&self) -> EpochClock {
        self.clock
    }

    /// What decodes the epochs' encoders.
    pub(super) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

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
    pub(super) fn exchanged(&self, edge: usize, exchange: Exchange) {
        let mut edges = lock(&self.edges);
        edges[edge].clock.take(exchange);
        let clocks = edges.iter().filter_map(|edge| edge.clock.estimate(exchange.heard_ns));
        let slowest_ns = clocks.map(|clock| clock.delay_ns).max().unwrap_or(LEAD_NS);
        let lead_ns = EDGE_LEAD_NS.saturating_add(slowest_ns.saturating_mul(2));
        self.lead_ns.store(lead_ns, Ordering::Relaxed);
    }

    /// For each edge, in words, by how much more than the clock guard its clock differs from another
    /// edge's.
    pub(super) fn clock_problems(&self, now_ns: u64) -> Vec<Option<String>> {
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

    pub(super) fn tasks(&self) -> Tasks {
        *lock(&self.tasks)
    }

    pub(super) fn set_tasks(&self, tasks: Tasks) {
        *lock(&self.tasks) = tasks;
    }

    /// The first epoch that a message sent at `now_ns` can change on every switch.
    pub(super) fn earliest_epoch(&self, now_ns: u64) -> u64 {
        // An epoch is armed before it begins, by the clock guard.
        let lead_ns = self.clock.guards().clock_ns + self.lead_ns.load(Ordering::Relaxed);
        self.clock.epoch_at(now_ns.saturating_add(lead_ns)) + 1
    }

    /// Lets an edge in that introduced itself.
    ///
    /// # Errors
    /// Why it is refused, for the edge's operator.
    pub(super) fn admit(
        &self,
        name: &str,
        introduction: Introduction,
        now_ns: u64,
    ) -> Result<Admission, String> {
        let Introduction { kind, program, holding, marking, address } = introduction;
        // Plan before edges, as everywhere: a change of attention either is in the welcome or finds
        // the edge connected.
        let mut plan = lock(&self.plan);
        let mut edges = lock(&self.edges);
        let Some(position) = edges.iter().position(|edge| edge.status.edge == name) else {
            return Err(format!(
                "no edge is called {name:?} here; the controller's configuration expects {:?}",
                self.config.edges
            ));
        };
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
        let welcome = Message::Welcome {
            layout: self.config.layout.clone(),
            hash_key: self.hash_key,
            epoch_length_ns: self.clock.length_ns(),
            guards: self.clock.guards(),
            attention: *plan.timeline.at(effective_epoch),
            effective_epoch,
        };
        let (last_epoch, last) = plan.last;
        let pending = (last_epoch > effective_epoch)
            .then_some(Message::Reconfigure { effective_epoch: last_epoch, attention: last });
        for message in [Some(welcome), pending].into_iter().flatten() {
            // There is room: the channel is new.
            let _ = sender.try_send(message);
        }
        *link = Some((connection, sender));
        Ok(Admission { edge: position, connection, messages })
    }

    /// Takes over what the first edge that measures already holds, as a controller that has just
    /// started: what the switches do changes only by decision.
    fn adopt(&self, plan: &mut Plan, edges: &[Edge], holding: &Holding, now_ns: u64) {
        let attention = holding.attention;
        if std::mem::replace(&mut plan.known, true)
            || attention == plan.last.1
            || attention.validate(&self.config.layout).is_err()
        {
            return;
        }
        plan.timeline = Timeline::new(attention);
        plan.last = (holding.effective_epoch, attention);
        plan.adopted = true;
        info!("the edges measure already; their attention is taken over");
        // Edges that came before, and measured nothing yet, follow.
        self.tell(edges, self.earliest_epoch(now_ns), attention);
    }

    /// Sends a change of attention to every edge that is connected.
    fn tell(&self, edges: &[Edge], effective_epoch: u64, attention: Attention) {
        for Edge { status, link, .. } in edges {
            if let Some((_, link)) = link
                && link.try_send(Message::Reconfigure { effective_epoch, attention }).is_err()
            {
                warn!(edge = status.edge, "takes no messages; its epochs will be incomplete");
            }
        }
    }

    /// Notes that a connection has ended, and why.
    pub(super) fn dismiss(&self, edge: usize, connection: u64, problem: Option<String>) {
        let mut edges = lock(&self.edges);
        let Edge { status, link, clock } = &mut edges[edge];
        if link.as_ref().is_some_and(|(number, _)| *number == connection) {
            *link = None;
            clock.clear();
            status.connected = false;
            status.last_problem = problem;
        }
    }

    /// Notes what a frame about an epoch says of its edge.
    pub(super) fn heard(&self, edge: usize, message: &mut Message) {
        let mut edges = lock(&self.edges);
        let status = &mut edges[edge].status;
        let (epoch, counters) = match message {
            Message::Ingress(side) => (side.epoch, std::mem::take(&mut side.counters)),
            Message::Egress(side) => (side.epoch, std::mem::take(&mut side.counters)),
            Message::Sealed { epoch, .. } => (*epoch, Vec::new()),
            _ => return,
        };
        status.last_epoch = Some(epoch);
        for (name, value) in counters {
            status.counters.insert(name, value);
        }
    }

    /// Notes what became of a frame.
    pub(super) fn taken(&self, edge: usize, taken: Taken) {
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

    /// Sets attention by hand: it holds as soon as every switch can follow, and is not shifted before it
    /// is [released](Self::release). Gives the first epoch in which it holds; `None` where it does
    /// already.
    ///
    /// # Errors
    /// What doesn't fit the switches' memory.
    pub fn change_attention(
        &self,
        wanted: &AttentionSection,
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        let attention = wanted.on(&self.config.layout)?;
        let mut plan = lock(&self.plan);
        plan.held = self.config.shifting.plans();
        if plan.last.1 == attention {
            return Ok(None);
        }
        let decision = Decision { by: By::Operator, observed_epoch: None, reasons: &[] };
        self.apply(&mut plan, attention, &decision, now_ns).map(Some)
    }

    /// Takes over `[attention]` of a configuration file that was read again, as set by hand, where it
    /// differs from what the file said before.
    ///
    /// # Errors
    /// What doesn't fit the switches' memory.
    pub(super) fn reload_attention(
        &self,
        file: &AttentionSection,
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        if lock(&self.plan).file == *file {
            return Ok(None);
        }
        let changed = self.change_attention(file, now_ns)?;
        lock(&self.plan).file = *file;
        Ok(changed)
    }

    /// Lets attention that was set by hand be shifted again.
    pub fn release(&self) {
        lock(&self.plan).held = false;
    }

    /// The attention of the epochs to come, and the first of them that it holds for.
    pub(super) fn standing(&self) -> (u64, Attention) {
        lock(&self.plan).last
    }

    /// What `GET /api/v1/attention` shows.
    pub fn attention(&self) -> AttentionStatus {
        let plan = lock(&self.plan);
        let (since_epoch, attention) = plan.last;
        let mode = self.config.shifting.mode;
        let (state, config) = ((&attention).into(), (&attention).into());
        AttentionStatus { mode, held: plan.held, since_epoch, state, config }
    }

    /// Lets the planner's attention hold as soon as every switch can follow, and gives the first epoch
    /// in which it does; `None` where it is not the planner's to change.
    ///
    /// # Errors
    /// When the timeline has no place for it.
    pub(super) fn shift(
        &self,
        observed_epoch: u64,
        attention: Attention,
        reasons: &[String],
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        let mut plan = lock(&self.plan);
        if plan.held || self.config.shifting.mode != ShiftingMode::Shift {
            return Ok(None);
        }
        let observed_epoch = Some(observed_epoch);
        let decision = Decision { by: By::Planner, observed_epoch, reasons };
        self.apply(&mut plan, attention, &decision, now_ns).map(Some)
    }

    /// Notes in the audit log what the planner would have done.
    pub(super) fn note_not_applied(&self, observed_epoch: u64, report: &PlanReport, now_ns: u64) {
        let (_, from) = self.standing();
        if let Some(audit) = &self.audit {
            audit.append(&Entry {
                unix_ns: now_ns,
                by: By::PlannerNotApplied,
                observed_epoch: Some(observed_epoch),
                effective_epoch: report.effective_epoch,
                state: report.state,
                from: (&from).into(),
                to: report.config,
                reasons: &report.reasons,
            });
        }
    }

    fn apply(
        &self,
        plan: &mut Plan,
        attention: Attention,
        decision: &Decision<'_>,
        now_ns: u64,
    ) -> Result<u64, String> {
        let mut epoch = self.earliest_epoch(now_ns);
        if let Err(too_late) = plan.timeline.change(epoch, attention) {
            epoch = too_late.earliest;
            plan.timeline.change(epoch, attention).map_err(|error| error.to_string())?;
        }
        let (_, from) = std::mem::replace(&mut plan.last, (epoch, attention));
        plan.known = true;
        plan.adopted = false;
        self.tell(&lock(&self.edges), epoch, attention);
        if let Some(audit) = &self.audit {
            audit.append(&Entry {
                unix_ns: now_ns,
                by: decision.by,
                observed_epoch: decision.observed_epoch,
                effective_epoch: epoch,
                state: (&attention).into(),
                from: (&from).into(),
                to: (&attention).into(),
                reasons: decision.reasons,
            });
        }
        Ok(epoch)
    }

    /// What was planned for `epoch`, which is now being reported.
    pub(super) fn planned(&self, epoch: u64) -> Attention {
        lock(&self.plan).timeline.freeze(epoch)
    }

    /// Hears what became of a reconfiguration. An edge that was too late gets another chance.
    pub(super) fn applied(&self, edge: usize, effective_epoch: u64, outcome: Outcome) {
        let attention = lock(&self.plan).last.1;
        let mut edges = lock(&self.edges);
        let Edge { status, link, .. } = &mut edges[edge];
        let name = &status.edge;
        match outcome {
            Outcome::Accepted => info!(edge = name, effective_epoch, "attention accepted"),
            Outcome::TooLate { earliest } => {
                // One more epoch, so that the answer is not too late again.
                let effective_epoch = earliest + 1;
                warn!(edge = name, effective_epoch, "attention came too late; sent again");
                if let Some((_, link)) = link {
                    let _ = link.try_send(Message::Reconfigure { effective_epoch, attention });
                }
            }
            Outcome::Invalid { reason } => {
                error!(edge = name, effective_epoch, "not accepted: {reason}");
                status.measuring_problem = Some(reason);
            }
        }
    }

    /// Tells the edges that an epoch has been reported, so that they need not hold it. Once one has,
    /// what the edges do is known, and what the configuration asks for may hold.
    pub(super) fn reported(&self, epoch: u64, now_ns: u64) {
        for Edge { link, .. } in lock(&self.edges).iter() {
            if let Some((_, link)) = link {
                // An edge that takes no messages holds the epoch a while longer.
                let _ = link.try_send(Message::Reported { epoch });
            }
        }
        let adopted = {
            let mut plan = lock(&self.plan);
            plan.known = true;
            std::mem::take(&mut plan.adopted)
        };
        // Where attention is shifted, what the configuration asks for is no more than a start.
        if adopted && !self.config.shifting.plans() {
            match self.change_attention(&self.config.attention, now_ns) {
                Ok(Some(epoch)) => info!(epoch, "the configuration's attention sent to the edges"),
                Ok(None) => {}
                Err(problem) => error!("[attention]: {problem}"),
            }
        }
    }

    /// What is remembered of the latest epochs.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }
}
