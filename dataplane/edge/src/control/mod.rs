//! The thread beside the lcores: keeps the connection to the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it, and at once when the controller
//! says something, so that clocks are compared well. While the controller is away the lcores go on
//! measuring; what they finish in that time is held for it, the newest as far as memory goes.

pub mod collect;
mod link;
mod queue;
mod reload;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use calumma_epoch::EpochClock;
use calumma_sketch::{AnyKey, Attention, HashFamily, IngressGroup, Key};
use calumma_wire::{
    Defects, Holding, Message, Outcome, SideHead, SwitchKind, encode_egress, encode_ingress,
};
use tracing::{error, info, warn};

use self::collect::{Collector, Part, SessionPlan};
use self::link::Link;
pub use self::reload::Reload;
use crate::counters::Counters;
use crate::live::{Lines, sum};
use crate::measure::IngressRecord;
use crate::process::Supervisor;
use crate::status::{self, Board, Named, Recent, Sketches, Status};

/// How often the thread looks after everything.
const TICK: Duration = Duration::from_millis(1);

/// How long a controller is at least given to take what was finished last.
const LEAST_FINISH: Duration = Duration::from_millis(50);

/// How long before an epoch is armed its attention must have arrived, so that every lcore finds it
/// in time.
const LEAD_NS: u64 = 2_000_000;

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

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
    /// Ticks of the time stamp counter in a second.
    pub tsc_hz: u64,
}

/// The control thread's state.
pub struct Control {
    tools: Tools,
    supervisor: Supervisor,
    link: Link,
    session: Option<Session>,
    recent: Recent,
    /// Epochs finished in which an lcore was late.
    stalled: u64,
    /// When the status was published last.
    published: Instant,
    /// The totals that this controller was told last.
    told: HashMap<String, u64>,
}

/// What is measured by at present.
struct Session {
    plan: SessionPlan,
    family: HashFamily,
    /// The attention accepted last.
    holding: Holding,
}

impl Control {
    /// Control over a switch.
    pub fn new(tools: Tools) -> Self {
        Self {
            supervisor: Supervisor::of_environment(),
            link: Link::new(tools.controller.clone()),
            session: None,
            recent: Recent::default(),
            stalled: 0,
            published: Instant::now(),
            told: HashMap::new(),
            tools,
        }
    }

    /// Runs until the lcores are `over`, sends what they finished last, and gives what was heard from
    /// them.
    pub fn run(mut self, over: &AtomicBool) -> Lines {
        self.supervisor.ready();
        while !over.load(Ordering::Relaxed) {
            self.step(unix_ns());
            self.look_around();
            self.link.wait(TICK);
        }
        self.supervisor.stopping();
        self.step(unix_ns());
        // The lcores needed one epoch and the guards, and the switch is to have left within two.
        let epoch_ns = self.session.as_ref().map_or(0, |session| session.plan.clock.length_ns());
        self.link.finish(Duration::from_nanos(epoch_ns / 2).max(LEAST_FINISH));
        self.tools.lines
    }

    /// What is to be done now and then, and beside the epochs.
    fn look_around(&mut self) {
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
        counters.extend(self.own_totals());
        let of_lcore = |report: &crate::live::Report| {
            report.counters.named().into_iter().chain(report.profile.named()).collect()
        };
        Status {
            edge: self.tools.name.clone(),
            unix_ns: unix_ns(),
            tsc_hz: self.tools.tsc_hz,
            controller: status::Controller {
                address: self.link.address().to_owned(),
                connected: self.link.is_connected(),
                held_bytes: self.link.queue.held_bytes() as u64,
            },
            counters,
            ports: (self.tools.port_totals)().into_iter().collect(),
            lcores: lcores.iter().map(|report| of_lcore(report)).collect(),
            epochs: self.recent.all().clone(),
            sketches: self.session.as_ref().map(Session::sketches),
        }
    }

    /// What this thread counts.
    fn own_totals(&self) -> [(String, u64); 2] {
        [
            ("undelivered.frames".to_owned(), self.link.queue.given_up()),
            ("epochs.stalled".to_owned(), self.stalled),
        ]
    }

    fn step(&mut self, now_ns: u64) {
        if self.link.connect_if_due() {
            info!(controller = self.link.address(), "connected");
            self.told.clear();
            self.link.send(&Message::Hello {
                edge: self.tools.name.clone(),
                kind: SwitchKind::Software,
                program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
                holding: self.session.as_ref().map(|session| session.holding),
            });
        }
        match self.link.receive() {
            Ok(messages) => messages.into_iter().for_each(|message| self.hear(message, now_ns)),
            Err(problem) => {
                warn!(
                    controller = self.link.address(),
                    "{problem}; measuring goes on, trying again"
                );
            }
        }
        // The answers, before there is work to do that the controller's clock would see.
        self.link.flush();
        for part in self.tools.collector.poll() {
            self.deliver(part);
        }
        self.link.flush();
    }

    fn hear(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Welcome {
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => {
                let clock = match EpochClock::new(epoch_length_ns, guards) {
                    Ok(clock) => clock,
                    Err(problem) => {
                        return error!("the controller's epochs can't be kept: {problem}");
                    }
                };
                let same = self.session.as_ref().is_some_and(|Session { plan, .. }| {
                    plan.layout == layout && plan.hash_key == hash_key && plan.clock == clock
                });
                self.link.queue.open();
                if same {
                    info!("the controller is back; measuring goes on");
                    self.reconfigure(effective_epoch, attention, now_ns);
                    return;
                }
                self.link.queue.give_up();
                let first_epoch = effective_epoch.max(clock.epoch_at(now_ns) + 2);
                let family = HashFamily::new(&hash_key);
                let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
                match self.tools.collector.begin(&plan) {
                    Ok(()) => {
                        info!(first_epoch, epoch_ms = epoch_length_ns / 1_000_000, "measuring");
                        let holding = Holding { attention, effective_epoch: first_epoch };
                        self.session = Some(Session { plan, family, holding });
                    }
                    Err(problem) => error!("the controller's layout can't be built: {problem}"),
                }
            }
            Message::Probe { sent_ns } => {
                let answered_ns = unix_ns();
                self.link.send(&Message::Echo { sent_ns, received_ns: now_ns, answered_ns });
            }
            Message::Reported { epoch } => self.link.queue.reported(epoch),
            Message::Reconfigure { effective_epoch, attention } => {
                self.reconfigure(effective_epoch, attention, now_ns);
            }
            Message::Refused { reason } => {
                error!(controller = self.link.address(), "refused by the controller: {reason}");
                self.link.back_off();
            }
            other => warn!("the controller sent a {} frame, which no edge expects", other.name()),
        }
    }

    fn reconfigure(&mut self, effective_epoch: u64, attention: Attention, now_ns: u64) {
        let Some(Session { plan, holding, .. }) = &mut self.session else { return };
        if attention == holding.attention {
            return;
        }
        let earliest = plan.clock.epoch_at(now_ns + plan.clock.guards().clock_ns + LEAD_NS) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if effective_epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            self.tools.collector.attend(effective_epoch, attention);
            *holding = Holding { attention, effective_epoch };
            Outcome::Accepted
        };
        self.link.send(&Message::Applied { effective_epoch, outcome });
    }

    fn deliver(&mut self, part: Part) {
        if self.session.is_none() {
            return;
        }
        let mut frame = Vec::new();
        let epoch = match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                self.encode_ingress(&mut frame, epoch, &record, mixed_attention, &counters);
                self.stalled += u64::from(record.stall_ns > 0);
                self.tools.collector.recycle(record);
                epoch
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let head = SideHead {
                    epoch,
                    attention: record.group.attention(),
                    defects: &Defects {
                        stall_ns: record.stall_ns,
                        foreign_packets: record.foreign_packets,
                        mixed_attention,
                    },
                    packets: record.packets,
                    counters: &[],
                };
                match &record.group {
                    AnyKey::Ipv4(group) => encode_egress(&mut frame, &head, group.downstream()),
                    AnyKey::Dual(group) => encode_egress(&mut frame, &head, group.downstream()),
                }
                let told = self.recent.of(epoch);
                told.egress_packets = record.packets;
                told.foreign_packets = record.foreign_packets;
                told.stall_ns = told.stall_ns.max(record.stall_ns);
                self.stalled += u64::from(record.stall_ns > 0);
                self.tools.collector.recycle(record);
                epoch
            }
            Part::Sealed { epoch, late_packets } => {
                Message::Sealed { epoch, late_packets }.encode(&mut frame);
                self.recent.of(epoch).late_packets = Some(late_packets);
                epoch
            }
        };
        self.recent.of(epoch).frame_bytes += frame.len() as u64;
        self.link.queue.hold(epoch, frame);
    }

    fn encode_ingress(
        &mut self,
        frame: &mut Vec<u8>,
        epoch: u64,
        record: &IngressRecord,
        mixed_attention: bool,
        counters: &Counters,
    ) {
        let mut totals = counters.named();
        for (port, named) in (self.tools.port_totals)() {
            totals.extend(named.into_iter().map(|(name, n)| (format!("port.{port}.{name}"), n)));
        }
        totals.extend(self.own_totals());
        // Only those that changed; an idle switch has nothing to tell.
        totals.retain(|(name, total)| self.told.insert(name.clone(), *total) != Some(*total));
        let stall_ns = record.stall_ns;
        let head = SideHead {
            epoch,
            attention: record.group.attention(),
            defects: &Defects { stall_ns, mixed_attention, ..Defects::default() },
            packets: record.packets,
            counters: &totals,
        };
        let family = self.session.as_ref().map(|session| &session.family);
        let family = family.filter(|_| !mixed_attention);
        let hh_flows = match &record.group {
            AnyKey::Ipv4(group) => encode_group(frame, &head, group, family),
            AnyKey::Dual(group) => encode_group(frame, &head, group, family),
        };
        let told = self.recent.of(epoch);
        told.ingress_packets = record.packets;
        told.stall_ns = told.stall_ns.max(stall_ns);
        told.hh_flows = hh_flows.map(|flows| flows as u64);
    }
}

impl Session {
    fn sketches(&self) -> Sketches {
        let layout = &self.plan.layout;
        let bucket = layout.bucket_words() * 4;
        Sketches {
            epoch_ms: self.plan.clock.length_ns() / 1_000_000,
            classifier_bytes: layout.classifier.iter().map(|level| level.bytes() as u64).sum(),
            upstream_bytes: (layout.upstream_shape().total_buckets() * bucket) as u64,
            downstream_bytes: (layout.downstream_shape().total_buckets() * bucket) as u64,
            attention: self.holding.attention,
            effective_epoch: self.holding.effective_epoch,
        }
    }
}

/// Encodes an ingress group, its HH encoder decoded by `family` where there is one; gives the number
/// of flows that came out.
fn encode_group<K: Key>(
    frame: &mut Vec<u8>,
    head: &SideHead,
    group: &IngressGroup<K>,
    family: Option<&HashFamily>,
) -> Option<usize> {
    let flows = family.and_then(|family| hh_flows(group, family));
    encode_ingress(frame, head, group.classifier(), group.upstream(), flows.as_deref());
    flows.map(|flows| flows.len())
}

/// All that the HH encoder holds, where it decodes. Flows take half the bytes of its buckets, and
/// every edge that decodes its own saves the controller from decoding all of them.
fn hh_flows<K: Key>(group: &IngressGroup<K>, family: &HashFamily) -> Option<Vec<(K, i64)>> {
    let decoded = group.upstream().part(&group.attention().partition.hh_part()).decode(family);
    let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
    let complete = decoded.is_complete() && decoded.flows().iter().all(countable);
    complete.then(|| decoded.flows().to_vec())
}
