//! The thread beside the lcores: keeps the conversation with the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it, and at once when the controller
//! says something, so that clocks are compared well. While the controller is away the lcores go on
//! measuring; what they finish in that time is held for it, the newest as far as memory goes.

pub mod collect;
mod reload;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{self, Defects, EgressSide, IngressSide, SwitchSession};
use calumma_sketch::either;
use calumma_switch_host::{
    Conversation, Identity, Measurer, Session, Supervisor, SystemOffer, UNDELIVERED,
};
use calumma_wire::{Marking, Role, Side, SwitchKind, SystemId};
use tracing::error;

pub use calumma_switch_host::unix_ns;

use self::collect::{Collector, EgressRecord, IngressRecord, Part, SessionPlan};
pub use self::reload::Reload;
use crate::forward::counters::SlowCounters;
use crate::live::{Lines, sum};
use crate::status::{self, Board, Named, Recent, Sketches, Status};

/// How often the thread polls.
const TICK: Duration = Duration::from_millis(1);

/// How long a controller is at least given to take what was finished last.
const LEAST_FINISH: Duration = Duration::from_millis(50);

/// How long before an epoch is armed its attention must have arrived, so that every lcore finds it
/// in time.
pub const LEAD_NS: u64 = 2_000_000;

/// How often the lcores are asked what they have counted, and the status is published.
const PUBLISH: Duration = Duration::from_millis(250);

/// Totals of ports that only DPDK knows, by port and name; read once an epoch and for each status.
pub type PortTotals = dyn Fn() -> Vec<(String, Named)> + Send;

/// What the control thread works with.
pub struct Tools {
    /// The edge's name.
    pub name: String,
    /// The controller's address.
    pub controller: String,
    /// The lcores' measurements.
    pub collector: Collector,
    /// What else is said to lcores, and heard from them.
    pub lines: Lines,
    /// What DPDK knows of the ports.
    pub port_totals: Box<PortTotals>,
    /// Where the status is published.
    pub board: Board,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Bytes of what is measured that are held for a controller that is slow or away.
    pub most_held: usize,
    /// How packets are marked and read.
    pub marking: Marking,
    /// What the slow path counts, where packets are forwarded by routes.
    pub slow_path: Option<Arc<SlowCounters>>,
    /// Ticks of the time stamp counter in a second.
    pub tsc_hz: u64,
}

/// The control thread's state.
pub struct Control {
    tools: Tools,
    supervisor: Supervisor,
    conversation: Conversation,
    /// What is measured by; none before the first session.
    session: Option<SwitchSession>,
    recent: Recent,
    /// Epochs finished in which an lcore was late.
    stalled: u64,
    /// When the status was published last.
    published: Instant,
}

impl Control {
    /// Control over a switch.
    pub fn new(tools: Tools) -> Self {
        let identity = Identity {
            node: tools.name.clone(),
            role: Role::Edge,
            kind: SwitchKind::Software,
            program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
            marking: tools.marking.clone(),
        };
        Self {
            supervisor: Supervisor::of_environment(),
            conversation: Conversation::new(identity, tools.controller.clone(), tools.most_held),
            session: None,
            recent: Recent::default(),
            stalled: 0,
            published: Instant::now(),
            tools,
        }
    }

    /// Runs until the lcores are `over`, sends what they finished last, and gives what was heard from
    /// them, and its own totals by name.
    pub fn run(mut self, over: &AtomicBool) -> (Lines, Vec<(String, u64)>) {
        self.supervisor.ready();
        while !over.load(Ordering::Relaxed) {
            self.step();
            self.housekeeping();
            self.conversation.wait(TICK);
        }
        self.supervisor.stopping();
        self.step();
        self.tools.collector.finish();
        let mut totals = self.own_totals();
        // The lcores needed one epoch and the guards, and the switch is to have left within two.
        let epoch_ns = self.conversation.session().map_or(0, |session| session.clock.length_ns());
        let most = Duration::from_nanos(epoch_ns / 2).max(LEAST_FINISH);
        totals.push((UNDELIVERED.to_owned(), self.conversation.finish(most)));
        (self.tools.lines, totals)
    }

    /// What is to be done now and then, and beside the epochs.
    fn housekeeping(&mut self) {
        self.supervisor.alive();
        if self.tools.reload.is_asked() {
            self.supervisor.reloading();
            if let Some(settings) = self.tools.reload.read()
                && !self.tools.lines.set(settings)
            {
                error!("an lcore does not listen and goes by its old settings; restart the edge");
            }
            self.supervisor.ready();
        }
        if self.published.elapsed() >= PUBLISH {
            self.published = Instant::now();
            self.tools.lines.poll();
            self.tools.board.publish(self.status());
        }
    }

    fn status(&self) -> Status {
        let lcores = self.tools.lines.totals();
        let mut counters: Named =
            sum(&lcores, self.tools.tsc_hz).counters.named().into_iter().collect();
        counters.insert(UNDELIVERED.to_owned(), self.conversation.discarded());
        counters.extend(self.own_totals());
        counters.extend(self.of_slow_path());
        let of_lcore = |report: &crate::live::Report| {
            report.counters.named().into_iter().chain(report.profile.named()).collect()
        };
        Status {
            edge: self.tools.name.clone(),
            unix_ns: unix_ns(),
            tsc_hz: self.tools.tsc_hz,
            controller: status::Controller {
                address: self.conversation.address().to_owned(),
                connected: self.conversation.is_connected(),
                held_bytes: self.conversation.held_bytes() as u64,
            },
            counters,
            ports: (self.tools.port_totals)().into_iter().collect(),
            lcores: lcores.iter().map(|report| of_lcore(report)).collect(),
            epochs: self.recent.all().clone(),
            sketches: self.session.as_ref().map(sketches),
        }
    }

    /// What this thread counts.
    fn own_totals(&self) -> Vec<(String, u64)> {
        let discarded = self.tools.collector.discarded();
        let totals = [
            ("epochs.stalled", self.stalled),
            ("discarded.ingress", discarded.ingress),
            ("discarded.egress", discarded.egress),
        ];
        totals.map(|(name, total)| (name.to_owned(), total)).into()
    }

    /// What the slow path counts.
    fn of_slow_path(&self) -> impl Iterator<Item = (String, u64)> {
        self.tools.slow_path.iter().flat_map(|slow_path| slow_path.named())
    }

    fn step(&mut self) {
        let Tools { collector, .. } = &mut self.tools;
        let mut measurer = ChameleMonMeasurer { collector, session: &mut self.session };
        self.conversation.step(unix_ns(), &mut measurer);
        for part in self.tools.collector.poll() {
            self.deliver(part);
        }
        self.conversation.flush();
    }

    fn deliver(&mut self, part: Part) {
        let Some(session) = &self.session else { return };
        match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                let mut totals = counters.named();
                for (port, named) in (self.tools.port_totals)() {
                    let of_port = |(name, n)| (format!("port.{port}.{name}"), n);
                    totals.extend(named.into_iter().map(of_port));
                }
                totals.extend(self.own_totals());
                totals.extend(self.of_slow_path());
                let (side, hh_flows) = ingress_side(session, epoch, &record, mixed_attention);
                let bytes = self.conversation.side_with_totals(side, totals);
                let recent = self.recent.of(epoch);
                recent.ingress_packets = record.packets;
                recent.stall_ns = recent.stall_ns.max(record.stall_ns);
                recent.hh_flows = hh_flows.map(|flows| flows as u64);
                recent.frame_bytes += bytes as u64;
                self.stalled += u64::from(record.stall_ns > 0);
                self.tools.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let bytes = self.conversation.side(egress_side(epoch, &record, mixed_attention));
                let recent = self.recent.of(epoch);
                recent.egress_packets = record.packets;
                recent.foreign_packets = record.foreign_packets;
                recent.stall_ns = recent.stall_ns.max(record.stall_ns);
                recent.frame_bytes += bytes as u64;
                self.stalled += u64::from(record.stall_ns > 0);
                self.tools.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets } => {
                let bytes = self.conversation.sealed(frames::ID, epoch, late_packets);
                let recent = self.recent.of(epoch);
                recent.late_packets = Some(late_packets);
                recent.frame_bytes += bytes as u64;
            }
        }
    }
}

/// The frame of what was recorded on the ingress side, and the flows that stand in it for the HH
/// encoder's buckets.
pub fn ingress_side(
    session: &SwitchSession,
    epoch: u64,
    record: &IngressRecord,
    mixed_attention: bool,
) -> (Side, Option<usize>) {
    let defects = Defects { stall_ns: record.stall_ns, mixed_attention, ..Defects::default() };
    either!(&record.group, group => {
        session.ingress(&IngressSide::of_group(epoch, group, record.packets, defects))
    })
}

/// The frame of what was recorded on the egress side.
pub fn egress_side(epoch: u64, record: &EgressRecord, mixed_attention: bool) -> Side {
    let defects = Defects {
        stall_ns: record.stall_ns,
        foreign_packets: record.foreign_packets,
        mixed_attention,
    };
    either!(&record.group, group => {
        EgressSide::of_group(epoch, group, record.packets, defects).to_wire()
    })
}

fn sketches(session: &SwitchSession) -> Sketches {
    let (plan, holding) = (session.plan(), session.holding());
    let layout = &plan.layout;
    let bucket = layout.bucket_words() * 4;
    Sketches {
        epoch_ms: plan.clock.length_ns() / 1_000_000,
        classifier_bytes: layout.classifier.iter().map(|level| level.bytes() as u64).sum(),
        upstream_bytes: (layout.upstream_shape().total_buckets() * bucket) as u64,
        downstream_bytes: (layout.downstream_shape().total_buckets() * bucket) as u64,
        attention: holding.attention,
        effective_epoch: holding.effective_epoch,
    }
}

/// ChameleMon on the lcores, as the controller sets it up.
pub struct ChameleMonMeasurer<'a> {
    /// What is to be handed to the lcores.
    pub collector: &'a mut Collector,
    /// What is measured by; none before the first session.
    pub session: &'a mut Option<SwitchSession>,
}

impl Measurer for ChameleMonMeasurer<'_> {
    fn systems(&self) -> Vec<SystemOffer> {
        vec![SystemOffer { offer: frames::OFFER, held: true }]
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let holding = self.session.iter().map(|session| session.holding().encode());
        holding.map(|holding| (frames::ID, holding)).collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let Some(setup) = session.setup_of(frames::ID) else {
            self.collector.end();
            *self.session = None;
            return Ok(());
        };
        let Session { hash_key, clock, first_epoch, .. } = session;
        let plan = SessionPlan::decode(setup, hash_key.0, *clock, *first_epoch)?;
        self.collector.begin(&plan).map_err(|problem| format!("{problem:#}"))?;
        *self.session = Some(SwitchSession::new(plan));
        Ok(())
    }

    fn check(&self, _: SystemId, plan: &[u8]) -> Result<(), String> {
        let session = self.session.as_ref().ok_or("it is not measuring")?;
        session.check(plan).map(drop)
    }

    fn reconfigure(&mut self, _: SystemId, epoch: u64, plan: &[u8]) {
        if let Some(session) = self.session
            && let Ok(attention) = session.check(plan)
        {
            if let Err(problem) = self.collector.reconfigure(epoch, attention) {
                error!(epoch, "attention was accepted and can't hold: {problem}");
            }
            session.accept(epoch, attention);
        }
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}
