//! A live fabric: the scenarios of the simulation with real switches, a real controller and the
//! kernel's routers, in network namespaces and in real time.
//!
//! Inner switches are the kernel's routers or real switches behind such (`transit`).
//! Hosts send the scenario's traffic (`sender`); routers lose and double packets (`faults`) and log
//! each that they touch, which gives every epoch a truth that the switches have no part in
//! (`witness`). For systems that count flows at every switch they log all packets besides
//! (`wires`), and for SketchINT captures say what really happened to bytes, ways and times
//! (`oracle`). Links that delay, reorder and overflow are done beside the kernel (`slow`), what it
//! loses beside its log is looked for (`unlogged`). Only what a machine can do in real time is
//! possible: all clocks are one, and packets a second are few.

mod account;
mod applications;
mod collector;
mod disturbed;
mod files;
mod forwarding;
mod frames;
mod kills;
mod mutants;
mod nflog;
mod notices;
mod oracle;
mod sender;
mod slow;
mod starting;
mod switch;
mod systems;
mod transit;
mod unlogged;
mod usage;
pub(crate) mod wires;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::report::{Amendment, EpochReport};
use calumma_epoch::EpochClock;
use calumma_sketchint_analysis::SketchInt;
use calumma_trust::{Authority, Role, Tokens};

use self::applications::Applications;
pub use self::collector::Came;
use self::collector::Collector;
use self::disturbed::Disturbed;
use self::files::Files;
use self::kills::Archived;
use self::mutants::Mutants;
pub use self::notices::Noticed;
use self::notices::Notices;
use self::oracle::Captures;
pub use self::oracle::{Comparison, HopRow, OfFlow, OfHop};
use self::sender::Sender;
use self::slow::SlowLinks;
use self::switch::{Programs, Running};
use self::systems::{OfSystems, Read};
use self::transit::Transit;
use self::usage::Usages;
use self::witness::Witness;
use crate::calumma::{Controller, LOOPBACK, Place, Reports};
use crate::carrier::Carrier;
use crate::fabric::wiring::Wiring;
use crate::fabric::{Namespace, Run, faults, interrupt};
use crate::scenario::{EdgeForwarding, Network, Program, Scenario, Stacks, SystemSummary, Usage};
use crate::simulate::{Entered, Outcome};
use crate::system::{self, SYSTEMS, System, Systems};
use crate::topology::{LinkQuality, Routes, Topology};
use crate::workload::{self, Flow, FlowSet, Traffic};

const CONTROLLER_PORT: u16 = 7620;
const HTTP_PORT: u16 = 7621;

/// How long switches and controller may take until a first epoch is complete.
const START_LIMIT: Duration = Duration::from_secs(40);

/// How long after the last epoch its report may come, beyond the controller's grace.
const LAST_REPORT: Duration = Duration::from_secs(5);

/// More packets a second than this are not asked of a machine: switches, routers, hosts and the
/// controller share its CPUs. Where a switch is a modelled Tofino, it is less.
const MOST_PPS: f64 = 60_000.0;
const MOST_PPS_MODELLED: f64 = 5_000.0;

/// A fabric whose epochs pass in real time.
pub struct Live {
    // Dropped in this order: programs end before their network goes, and that before the run.
    applications: Applications,
    mutants: Option<Mutants>,
    edges: Vec<Option<Running>>,
    transits: Vec<Transit>,
    /// Hosts' own sinks: the edge and number of the host of each.
    sinks: Vec<(usize, usize, Running)>,
    controller: Option<(Controller, Reports<Read>)>,
    witness: Option<Witness>,
    captures: Option<Captures>,
    /// What the controller publishes at once, where wires are watched.
    notices: Option<Notices>,
    collector: Option<Collector>,
    /// When links or routes were changed, in nanoseconds since the Unix epoch.
    rerouted_ns: Vec<u64>,
    slow: Option<SlowLinks>,
    /// What the kernel's queues of each link let through, in megabits a second.
    queues: BTreeMap<usize, f64>,
    sender: Sender,
    wiring: Wiring,
    run: Run,
    /// The folder of the authority by whose certificates switches and controller speak TLS.
    pki: PathBuf,
    /// By which the controller lets something be changed.
    token: String,
    programs: PathBuf,
    /// The measurement systems that can run, those of Tofinos, and names of those that do at first.
    systems: Systems,
    on_tofinos: Vec<&'static dyn calumma_switchd::system::System>,
    at_first: Vec<String>,
    /// What the controller is configured with, and how often it was started.
    sections: toml::Table,
    starts: u32,
    clock: EpochClock,
    carrier: Carrier,
    /// More of each edge's configuration.
    of_edges: String,
    forwarding: EdgeForwarding,
    grace: Duration,
    seed: u64,
    spread: f64,
    topology: Topology,
    routes: Routes,
    flows: FlowSet,
    /// Whether routers log what comes to switches.
    wires_are_watched: bool,
    /// Epochs of the scenario that have passed, and the last real one. Where the machine was busy
    /// with a change, the next epoch of the scenario is a later one than the next.
    passed: u64,
    last_epoch: u64,
    /// The scenario's number of each real epoch that is not reported, and what was sent in it.
    entered: BTreeMap<u64, (u64, Entered)>,
    /// Reports on epochs that are not settled.
    pending: Vec<EpochReport>,
    of_systems: OfSystems,
    /// What packets links and routers within the network have put in the place of others, by flow.
    disturbed: Disturbed,
    /// Packets that hosts had sent before the first epoch.
    sent_before: u64,
    /// What edges had sent hosts before any of these sent: addresses of theirs, where they route.
    announced: u64,
    /// Packets that entered by the reports so far; none once one was not complete or did not come.
    counted: Option<u64>,
    /// The epoch that is to be reported next.
    next_report: u64,
    /// Amendments by reports on epochs that are none of the scenario's, in its numbers.
    amendments: Vec<Amendment>,
    /// Edges that were started anew: what came in the meantime, none of them received.
    restarted: BTreeSet<usize>,
    /// What was counted beside the log before the scenario began.
    before: unlogged::Before,
    /// What the log may not know, as found at the end.
    doubts: Vec<String>,
    /// What programs hold of memory and descriptors.
    usages: Usages,
    /// What has to be in the controller's archive, where it has one.
    archived: Option<Archived>,
    /// By the edges of two hosts and family, the MTU that the first one's kernel has found their
    /// path to have, where edges send hosts any.
    path_mtus: Option<BTreeMap<(usize, usize, u8), u16>>,
    /// What each switch has counted, by its name and that of the counter.
    totals: BTreeMap<String, BTreeMap<String, u64>>,
    /// Packets that each transit has received, likewise.
    transited: BTreeMap<String, u64>,
    /// What SketchINT reported beside what was captured, once all is finished.
    compared: Option<Comparison>,
    /// What became of its stacks, likewise.
    stacks: Option<Stacks>,
}

impl Live {
    /// Builds the scenario's network, starts its switches and its controller, and waits until they
    /// measure. `testbed` is the calumma-testbed program, beside which those of the edge and the
    /// controller lie.
    ///
    /// # Errors
    /// When the scenario asks for what no live fabric can do, or a program does not come up.
    pub fn start(scenario: &Scenario, testbed: &Path) -> Result<Self> {
        Self::start_with(SYSTEMS, scenario, testbed)
    }

    /// The same where the programs know other measurement systems than the product's.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(systems: Systems, scenario: &Scenario, testbed: &Path) -> Result<Self> {
        system::check(systems, &scenario.systems)?;
        let topology = scenario.topology()?;
        let clock = scenario.live_clock()?;
        slow::check_all(&topology, clock)?;
        let modelled = (0..topology.switches()).any(|at| topology.is_tofino(at));
        let plain = topology.transits().next().is_none() && !modelled;
        ensure!(
            plain || scenario.carrier.is_tos() || scenario.carrier == Carrier::Shim,
            "carrier: a live fabric with transits or Tofinos has marks in the ToS byte or in shims"
        );
        ensure!(
            !modelled || scenario.carrier == Carrier::Tos,
            "carrier: Tofinos know no signature in the ToS byte"
        );
        frames::check(scenario, &topology)?;
        let run = Run::begin()?;
        let pki = run.directory().join("pki");
        Authority::init(&pki, &[], 1)?;
        let token = Tokens::add(&run.directory().join("tokens"), "testbed", Role::Operate)?;
        let wiring = Wiring::create(&run, &topology, scenario.edges)?;
        transit::attach_all(&wiring, &topology)?;
        let mut ever = scenario.systems_ever();
        let wires_are_watched =
            ever.any(|name| system::find(systems, name).is_ok_and(System::reads_wires));
        if scenario.carrier == Carrier::Shim {
            frames::attach_all(&wiring, &topology, wires_are_watched)?;
        } else {
            wiring.routers().iter().try_for_each(faults::install)?;
            if wires_are_watched {
                transit::watch_wires(&wiring, &topology)?;
            }
        }
        for host in wiring.hosts().iter().flatten() {
            faults::install_sink(host)?;
        }
        if let Some(mtu) = scenario.host_mtu {
            wiring.set_host_mtu(mtu)?;
        }
        let is_int = |name: &str| name == system::name(&SketchInt);
        let captured = scenario.systems_ever().any(is_int);
        let captures = captured.then(|| Captures::start(&wiring, &topology, &run)).transpose()?;
        let routes = Routes::new(&topology);
        let mut live = Self {
            applications: Applications::default(),
            mutants: None,
            edges: topology.edges().iter().map(|_| None).collect(),
            transits: Vec::new(),
            sinks: Vec::new(),
            controller: None,
            witness: Some(Witness::start(&wiring, clock, scenario.carrier, scenario.mutants > 0)?),
            captures,
            notices: None,
            collector: None,
            rerouted_ns: Vec::new(),
            slow: None,
            queues: BTreeMap::new(),
            sender: Sender::new(&wiring)?,
            flows: FlowSet::new(scenario.seed, Vec::new(), &topology, &routes)?,
            wires_are_watched,
            wiring,
            run,
            pki,
            token,
            programs: testbed.to_owned(),
            systems,
            on_tofinos: system::on_tofinos(systems),
            at_first: scenario.systems.clone(),
            sections: scenario.controller_sections(&clock),
            starts: 0,
            clock,
            carrier: scenario.carrier,
            of_edges: scenario.edge_sections(),
            forwarding: scenario.edges,
            grace: Duration::from_millis(scenario.grace_ms),
            seed: scenario.seed,
            spread: scenario.spread,
            topology,
            routes,
            passed: 0,
            last_epoch: 0,
            entered: BTreeMap::new(),
            pending: Vec::new(),
            of_systems: OfSystems::default(),
            disturbed: Disturbed::default(),
            sent_before: 0,
            announced: 0,
            counted: scenario.systems.iter().any(|name| name == NAME).then_some(0),
            next_report: 0,
            amendments: Vec::new(),
            before: unlogged::Before::now()?,
            restarted: BTreeSet::new(),
            doubts: Vec::new(),
            usages: Usages::default(),
            archived: scenario.archive.then(Archived::default),
            path_mtus: scenario.pmtu.then(BTreeMap::new),
            totals: BTreeMap::new(),
            transited: BTreeMap::new(),
            compared: None,
            stacks: None,
        };
        let collects = scenario.reports.is_some().then(|| Collector::start(live.wiring.switches()));
        live.collector = collects.transpose()?;
        live.set_faults()?;
        live.start_controller()?;
        (0..live.edges.len()).try_for_each(|edge| live.start_edge(edge))?;
        live.start_sinks()?;
        live.start_transits()?;
        live.wait_until_measuring()?;
        if live.wires_are_watched {
            live.notices = Some(Notices::start(live.wiring.switches(), &live.token)?);
        }
        live.announced = live.wiring.moved_by_hosts()?.0;
        let time = live.clock.length_ns() * scenario.epochs;
        live.applications = Applications::start(
            &scenario.application,
            &live.topology,
            &live.wiring,
            Duration::from_nanos(time),
            &live.run,
            testbed,
        )?;
        if scenario.mutants > 0 {
            live.mutants = Some(Mutants::start(&live.wiring, scenario.mutants, scenario.seed)?);
        }
        live.sent_before = live.wiring.moved_by_hosts()?.1;
        live.last_epoch = live.clock.epoch_at(unix_ns()?) + 1;
        live.next_report = live.last_epoch;
        Ok(live)
    }

    /// Writes what systems other than ChameleMon report to a folder, with what wires say.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn write_to(&mut self, folder: &Path) -> Result<()> {
        self.of_systems.files = Some(Files::new(folder)?);
        Ok(())
    }

    /// What the controller has published before epochs were over, where a system counts flows at
    /// every switch.
    pub fn noticed(&self) -> Vec<Noticed> {
        self.notices.as_ref().map_or(Vec::new(), Notices::come)
    }

    /// When links or routes were changed, in nanoseconds since the Unix epoch: each time once all
    /// switches were asked to go by it.
    pub fn rerouted_ns(&self) -> &[u64] {
        &self.rerouted_ns
    }

    /// Where edges run.
    fn place(&self) -> Place<'_> {
        self.place_in(self.wiring.switches(), LOOPBACK)
    }

    /// A namespace in which programs find the controller at that address.
    fn place_in<'a>(&'a self, namespace: &'a Namespace, controller: &'a str) -> Place<'a> {
        let controller = (controller, CONTROLLER_PORT);
        let (run, testbed, pki) = (&self.run, &*self.programs, Some(&*self.pki));
        Place { run, namespace, testbed, controller, pki, first: true }
    }

    /// Where the controller runs, which listens to transits as well.
    fn place_of_controller(&self) -> Place<'_> {
        self.place_in(self.wiring.switches(), "0.0.0.0")
    }

    /// What Tofinos have their programs from.
    fn programs(&self) -> Programs<'_> {
        let (known, on) = (&self.on_tofinos, &self.at_first);
        Programs { known, on, controller: &self.sections }
    }

    fn wait_until_measuring(&mut self) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        let mut has_begun = !self.at_first.iter().any(|system| system == NAME);
        loop {
            interrupt::check()?;
            self.check_running()?;
            has_begun |= self.take_reports().iter().any(|report| report.complete);
            if has_begun && self.others_measure() {
                return Ok(());
            }
            ensure!(Instant::now() < end, "waited {START_LIMIT:?} for a first complete epoch");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn check_running(&mut self) -> Result<()> {
        self.slow.iter_mut().try_for_each(SlowLinks::check_running)?;
        self.controller.iter_mut().try_for_each(|(controller, _)| controller.check_running())?;
        self.transits.iter_mut().try_for_each(Transit::check_running)?;
        self.sinks.iter_mut().try_for_each(|(_, _, sink)| sink.check_running())?;
        self.edges.iter_mut().flatten().try_for_each(Running::check_running)
    }

    /// ChameleMon's reports that have come; those of others are put aside.
    fn take_reports(&mut self) -> Vec<EpochReport> {
        let read = self.controller.as_ref().map(|(_, reports)| reports.take());
        self.sort(read.unwrap_or_default())
    }

    /// Makes routers do to packets what the links' qualities say: whoever receives from a link does
    /// it.
    fn set_faults(&mut self) -> Result<()> {
        let mut faults: Vec<BTreeMap<String, LinkQuality>> =
            vec![BTreeMap::new(); self.wiring.routers().len()];
        for link in self.topology.links() {
            let [a, b] = link.ends;
            faults[a].insert(self.wiring.interface(b).to_owned(), link.quality);
            faults[b].insert(self.wiring.interface(a).to_owned(), link.quality);
        }
        let slow = faults.iter().flat_map(BTreeMap::values).any(faults::is_slow);
        if slow && self.slow.is_none() {
            self.slow = Some(SlowLinks::start(self.wiring.routers(), self.seed)?);
        }
        self.slow.iter().for_each(|slow| slow.set(&faults));
        for (at, link) in self.topology.links().iter().enumerate() {
            let mbit = link.quality.tbf_mbit;
            if self.queues.insert(at, mbit).unwrap_or(0.0) == mbit {
                continue;
            }
            let [a, b] = link.ends;
            for (router, neighbour) in [(a, b), (b, a)] {
                let interface = self.wiring.interface(neighbour);
                faults::set_tbf(&self.wiring.routers()[router], interface, mbit)?;
            }
        }
        let set = match self.carrier {
            Carrier::Shim => crate::fabric::frames::set,
            _ => faults::set,
        };
        let mut routers = self.wiring.routers().iter().zip(&faults);
        routers.try_for_each(|(router, faults)| set(router, faults))
    }
}

impl Network for Live {
    fn set_traffic(&mut self, kinds: Vec<Traffic>) -> Result<()> {
        ensure!(
            kinds.iter().all(|kind| kind.chosen.is_none()),
            "chosen: hosts of a live fabric have addresses of their own"
        );
        ensure!(
            kinds.iter().all(|kind| kind.suits_live()),
            "ttl: at least {} in a live fabric, and no ttl_each",
            workload::LEAST_TTL
        );
        ensure!(
            !self.wires_are_watched || kinds.iter().all(|kind| kind.local_share == Some(0.0)),
            "local_share: 0 where a system counts flows at every switch; other flows come to their \
             edge twice"
        );
        frames::check_traffic(self.carrier, &kinds)?;
        self.flows = FlowSet::new(self.seed, kinds, &self.topology, &self.routes)?;
        let length_ns = self.clock.length_ns();
        let sent = |flow: &Flow| f64::from(flow.packets_in(self.passed, length_ns));
        let packets: f64 = self.flows.flows().iter().map(sent).sum();
        let pps = packets * 1e9 / length_ns as f64;
        let modelled = (0..self.topology.switches()).any(|at| self.topology.is_tofino(at));
        let most = if modelled { MOST_PPS_MODELLED } else { MOST_PPS };
        ensure!(
            pps <= most,
            "{pps:.0} packets a second; this live fabric carries {most:.0}: make epochs longer \
             (--epoch-ms) or flows fewer"
        );
        Ok(())
    }

    fn set_links(&mut self, topology: &Topology) -> Result<()> {
        slow::check_all(topology, self.clock)?;
        frames::check_links(self.carrier, topology)?;
        self.topology = topology.clone();
        self.routes = Routes::new(topology);
        self.flows.reroute(&self.routes);
        self.wiring.set_routes(topology)?;
        for transit in &self.transits {
            let controller = Wiring::controller_of(transit.at());
            let place = self.place_in(&self.wiring.transits()[&transit.at()], &controller);
            transit.set_routes((place, self.carrier), &self.wiring, topology, self.programs())?;
        }
        self.rerouted_ns.push(unix_ns()?);
        self.set_faults()
    }

    fn set_clock(&mut self, _: usize, _: Option<f64>, _: Option<f64>) -> Result<()> {
        bail!("all clocks of a live fabric are this machine's: play this scenario simulated")
    }

    fn restart(&mut self, edge: usize) -> Result<()> {
        if let Some(switch) = self.edges[edge].take() {
            switch.stop()?;
        }
        self.restarted.insert(edge);
        self.start_edge(edge)
    }

    fn set_systems(&mut self, systems: &[String]) -> Result<()> {
        system::check(self.systems, systems)?;
        self.sections.insert("systems".to_owned(), systems.to_vec().into());
        if let Some((controller, _)) = &self.controller {
            controller.reload(
                self.place_of_controller(),
                self.topology.edges(),
                self.sections(),
            )?;
        }
        Ok(())
    }

    fn freeze(&mut self, program: Program, time: Duration) -> Result<()> {
        self.freeze_program(program, time)
    }

    fn kill(&mut self, program: Program) -> Result<()> {
        self.kill_program(program)
    }

    fn rotate_key(&mut self) -> Result<()> {
        let mut command = self.place_of_controller().command("calumma")?;
        command.args(["--controller", &http_address(), "rotate-key"]);
        command.env("CALUMMA_TOKEN", &self.token);
        let output = command.output().context("calumma rotate-key")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "calumma rotate-key: {message}");
        Ok(())
    }

    fn set_controller(&mut self, runs: bool) -> Result<()> {
        if runs == self.controller.is_some() {
            return Ok(());
        }
        if runs { self.start_controller() } else { self.end_controller(Controller::stop) }
    }

    fn run_epoch(&mut self) -> Result<Vec<Outcome>> {
        let number = self.passed;
        self.flows.renew(number, &self.topology, &self.routes)?;
        // An epoch of which an eighth has passed is too late to be this one.
        let late_ns = self.clock.length_ns() / 8;
        let still = self.clock.epoch_at(unix_ns()?.saturating_sub(late_ns)) + 1;
        let epoch = still.max(self.last_epoch + 1);
        self.last_epoch = epoch;
        let (begin_ns, length_ns) = (self.clock.start_of(epoch), self.clock.length_ns());
        let flows = self.flows.flows();
        self.disturbed.add(flows, &self.topology, number, length_ns);
        let entered = self.sender.send_epoch(flows, number, begin_ns, length_ns, self.spread)?;
        self.entered.insert(epoch, (number, entered));
        self.of_systems.numbers.insert(epoch, number);
        self.passed += 1;
        self.check_running()?;
        self.look_at_usage()?;
        self.outcomes()
    }

    fn finish(&mut self) -> Result<Vec<Outcome>> {
        let end = Instant::now() + self.grace + LAST_REPORT;
        let mut outcomes: Vec<Outcome> = Vec::new();
        // Packets that were sent late are counted in the epoch after the last.
        while self.controller.is_some() && Instant::now() < end && !self.all_reported() {
            interrupt::sleep(Duration::from_millis(50))?;
            self.check_running()?;
            outcomes.extend(self.outcomes()?);
        }
        self.account()?;
        Ok(outcomes)
    }

    fn of_systems(&self) -> &[SystemSummary] {
        &self.of_systems.reported
    }

    fn doubts(&self) -> &[String] {
        &self.doubts
    }

    fn usage(&self) -> &[Usage] {
        &self.usages.found
    }

    fn stacks(&self) -> Option<Stacks> {
        self.stacks.clone()
    }
}

/// Where the controller answers requests.
fn http_address() -> String {
    format!("{LOOPBACK}:{HTTP_PORT}")
}

/// The system's time in nanoseconds since the Unix epoch.
fn unix_ns() -> Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(now.context("the system's clock is before 1970")?.as_nanos() as u64)
}
