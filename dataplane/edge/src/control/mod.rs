//! The thread beside the lcores: keeps the conversation with the controller, begins and ends
//! measurement, hands plans to the lcores and finished records to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it, and at once when the
//! controller says something, so that clocks are compared well. While the controller is away the
//! lcores go on measuring; what they finish in that time is held for it, the newest as far as
//! memory goes.

pub mod links;
pub mod paths;
mod reload;
pub mod systems;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use calumma_switch_host::{Conversation, Identity, Supervisor, TlsFiles, UNDELIVERED};
use calumma_wire::{Marking, Role, SideKind, SwitchKind};
use tracing::error;

pub use calumma_switch_host::unix_ns;

use self::links::Links;
pub use self::reload::Reload;
use self::systems::{Finished, Systems, What};
use crate::counters::Counters;
use crate::forward::counters::SlowCounters;
use crate::live::{Lines, sum};
use crate::status::{self, Board, Named, Recent, Status, SystemStatus};

/// How often the thread polls.
const TICK: Duration = Duration::from_millis(1);

/// How long a controller is at least given to take what was finished last.
const LEAST_FINISH: Duration = Duration::from_millis(50);

/// How long before an epoch is armed its plans must have arrived, so that every lcore finds it
/// in time.
pub const LEAD_NS: u64 = 2_000_000;

/// How often the lcores are asked what they have counted, and the status is published.
const PUBLISH: Duration = Duration::from_millis(250);

/// Totals of ports that only DPDK knows, by port and name; read once an epoch and for each status.
pub type PortTotals = dyn Fn() -> Vec<(String, Named)> + Send;

/// What the control thread works with.
pub struct Tools {
    /// The switch's name.
    pub name: String,
    /// What it does in the network.
    pub role: Role,
    /// The controller's address.
    pub controller: String,
    /// What it is called by, where that is TLS.
    pub tls: Option<TlsFiles>,
    /// The systems that measure.
    pub systems: Systems,
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
    /// How much of their links the ports use.
    pub links: Links,
    /// Ticks of the time stamp counter in a second.
    pub tsc_hz: u64,
}

/// The control thread's state.
pub struct Control {
    tools: Tools,
    supervisor: Supervisor,
    conversation: Conversation,
    /// The epochs finished last, by system.
    recent: BTreeMap<&'static str, Recent>,
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
            role: tools.role,
            kind: SwitchKind::Software,
            program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
            marking: tools.marking.clone(),
        };
        Self {
            supervisor: Supervisor::of_environment(),
            conversation: Conversation::new(
                identity,
                tools.controller.clone(),
                tools.tls.clone(),
                tools.most_held,
            ),
            recent: BTreeMap::new(),
            stalled: 0,
            published: Instant::now(),
            tools,
        }
    }

    /// Runs until the lcores are `over`, sends what they finished last, and gives what was received
    /// from them, and its own totals by name.
    pub fn run(mut self, over: &AtomicBool) -> (Lines, Vec<(String, u64)>) {
        self.supervisor.ready();
        while !over.load(Ordering::Relaxed) {
            self.step();
            self.housekeeping();
            self.conversation.wait(TICK);
        }
        self.supervisor.stopping();
        self.step();
        let of_systems: Vec<_> = self.of_systems().collect();
        self.tools.systems.finish();
        let mut totals = self.own_totals();
        totals.extend(of_systems);
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
            self.tools.systems.set_fabric_mtu(self.tools.reload.fabric_mtu());
            self.conversation.transport_mut().set_tls(self.tools.reload.tls());
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
        counters.extend(self.of_systems());
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
            gauges: self.gauges(),
            ports: (self.tools.port_totals)().into_iter().collect(),
            lcores: lcores.iter().map(|report| of_lcore(report)).collect(),
            epoch_ms: self.conversation.session().map(|of| of.clock.length_ns() / 1_000_000),
            systems: self.systems(),
        }
    }

    /// The systems that run, and those that ran.
    fn systems(&self) -> BTreeMap<String, SystemStatus> {
        let of = |(name, recent): (&&str, &Recent)| {
            let status = SystemStatus { epochs: recent.all().clone(), gauges: BTreeMap::new() };
            ((*name).to_owned(), status)
        };
        let mut systems: BTreeMap<_, _> = self.recent.iter().map(of).collect();
        for (system, half) in self.tools.systems.halves() {
            let gauges = half.gauges().into_iter().map(|(name, value)| (name.to_owned(), value));
            systems.entry(system.name().to_owned()).or_default().gauges = gauges.collect();
        }
        systems
    }

    /// What this thread counts.
    fn own_totals(&self) -> Vec<(String, u64)> {
        let discarded = self.tools.systems.discarded();
        let totals = [
            ("epochs.stalled", self.stalled),
            ("discarded.ingress", discarded.ingress),
            ("discarded.egress", discarded.egress),
        ];
        let totals = totals.into_iter().map(|(name, total)| (name.to_owned(), total));
        totals.chain(self.tools.systems.reported()).collect()
    }

    /// What the slow path has at present.
    fn gauges(&self) -> Named {
        let slow_path = self.tools.slow_path.iter();
        let gauges = slow_path.flat_map(|slow_path| slow_path.gauges());
        gauges.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What the slow path counts.
    fn of_slow_path(&self) -> impl Iterator<Item = (String, u64)> {
        self.tools.slow_path.iter().flat_map(|slow_path| slow_path.named())
    }

    fn step(&mut self) {
        self.conversation.step(unix_ns(), &mut self.tools.systems);
        for finished in self.tools.systems.poll() {
            self.deliver(finished);
        }
        for notice in self.tools.systems.notices(unix_ns()) {
            self.conversation.tell(&notice);
        }
        self.probe(unix_ns());
        let are_asked = self.tools.systems.ask_utilisation();
        self.tools.links.measure(are_asked);
        self.conversation.flush();
    }

    /// Sends the probes that are due, and says what has come of others.
    fn probe(&mut self, now_ns: u64) {
        let Tools { systems, lines, .. } = &mut self.tools;
        let paths = &mut systems.paths;
        if let Some(key) = paths.take_key() {
            lines.set_probe_key(&key);
        }
        if paths.wants_samples(now_ns) {
            lines.sample();
        }
        for (lcore, found) in lines.found() {
            paths.found(lcore, found, now_ns);
        }
        paths.due(now_ns).into_iter().for_each(|order| lines.send_probe(order));
        if let Some(message) = paths.message(now_ns) {
            self.conversation.tell(&message);
        }
    }

    fn deliver(&mut self, Finished { system, what }: Finished) {
        match what {
            What::Side { side, notes, counters } => {
                let (epoch, kind) = (side.epoch, side.side);
                let (packets, stall_ns) = (side.packets, side.stall_ns);
                // Once an epoch: with the side that every node of its role sends.
                let bytes = if kind == SideKind::Egress {
                    self.conversation.side(side)
                } else {
                    self.conversation.side_with_totals(side, self.totals(&counters))
                };
                self.stalled += u64::from(stall_ns > 0);
                let recent = self.recent.entry(system.name()).or_default().of(epoch);
                recent.packets.insert(kind.name().to_owned(), packets);
                recent.stall_ns = recent.stall_ns.max(stall_ns);
                recent.frame_bytes += bytes as u64;
                recent.notes.extend(notes.into_iter().map(|(name, of)| (name.to_owned(), of)));
            }
            What::Sealed { epoch, late_packets, body } => {
                let system_id = system.offer().system;
                let bytes = self.conversation.sealed(system_id, epoch, (late_packets, body));
                let recent = self.recent.entry(system.name()).or_default().of(epoch);
                recent.late_packets = Some(late_packets);
                recent.frame_bytes += bytes as u64;
            }
        }
    }

    /// The totals of the systems that run.
    fn of_systems(&self) -> impl Iterator<Item = (String, u64)> {
        let halves = self.tools.systems.halves();
        halves.flat_map(|(_, half)| half.counters()).map(|(name, total)| (name.to_owned(), total))
    }

    /// All of the switch's totals, given those of its lcores.
    fn totals(&self, counters: &Counters) -> Vec<(String, u64)> {
        let mut totals = counters.named();
        for (port, named) in (self.tools.port_totals)() {
            let of_port = |(name, n)| (format!("port.{port}.{name}"), n);
            totals.extend(named.into_iter().map(of_port));
        }
        totals.extend(self.own_totals());
        totals.extend(self.of_slow_path());
        totals.extend(self.of_systems());
        totals
    }
}
