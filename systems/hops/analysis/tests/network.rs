//! `hops` in a whole network: two edges with a transit switch between them, each with its own
//! worker and its own conversation over TCP, and the controller. Packets are lost on both links,
//! which the test itself counts; what the controller reports, where it says that packets were lost,
//! and what it keeps must say the same.

mod portless;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_controller::config::Config;
use calumma_controller::output::Output;
use calumma_controller::report::EpochReport;
use calumma_controller::server::{self, Running};
use calumma_edge::control::unix_ns;
use calumma_hops_analysis::Found;
use calumma_plane::packet::Packet;
use calumma_plane::system::System as SwitchSystem;
use calumma_plane::worker::Sent;
use calumma_topology::Place;
use calumma_wire::Role;

use portless::{PATIENCE, Switch, folder, packet};

static ON_SWITCHES: &[&dyn SwitchSystem] = &[&calumma_chamelemon::ChameleMon, &calumma_hops::Hops];
static IN_CONTROLLER: &[&dyn calumma_analysis::System] =
    &[&calumma_chamelemon_analysis::ChameleMon, &calumma_hops_analysis::Hops];

const EPOCH_MS: u64 = 200;

/// Packets by flow.
type Counts = BTreeMap<Flow, u64>;

/// What has happened to packets, as the one knows who carried them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Truth {
    entered: Counts,
    passed: Counts,
    refused: Counts,
    left: Counts,
}

/// Two edges, a transit switch between them, and what is between those.
struct Network {
    e1: Switch,
    s1: Switch,
    e2: Switch,
    sent: u64,
    truth: Truth,
}

impl Network {
    fn new(controller: &Running) -> Self {
        let address = controller.listen().to_string();
        let [e1, s1, e2] = [("e1", Role::Edge), ("s1", Role::Transit), ("e2", Role::Edge)]
            .map(|(name, role)| Switch::new(ON_SWITCHES, name, role, &address));
        Self { e1, s1, e2, sent: 0, truth: Truth::default() }
    }

    fn step(&mut self) {
        [&mut self.e1, &mut self.s1, &mut self.e2].into_iter().for_each(Switch::step);
    }

    /// A burst of packets on its way. Every seventh is lost before s1, every eleventh behind it,
    /// and s1's transmit queue refuses every thirteenth.
    fn send(&mut self) {
        for _ in 0..16 {
            self.sent += 1;
            let n = self.sent;
            let (flow, mut frame) = packet(n % 20);
            let plain = frame.clone();
            self.e1.worker.ingress(std::slice::from_mut(&mut frame));
            *self.truth.entered.entry(flow).or_default() += 1;
            if n.is_multiple_of(7) {
                continue;
            }
            self.s1.worker.transit(std::slice::from_mut(&mut frame));
            *self.truth.passed.entry(flow).or_default() += 1;
            if n.is_multiple_of(13) {
                self.s1.worker.sent(Sent { accepted: 0, refused: 1 });
                *self.truth.refused.entry(flow).or_default() += 1;
                continue;
            }
            self.s1.worker.sent(Sent { accepted: 1, refused: 0 });
            if n.is_multiple_of(11) {
                continue;
            }
            self.e2.worker.egress(std::slice::from_mut(&mut frame));
            *self.truth.left.entry(flow).or_default() += 1;
            assert_eq!(frame.bytes(), plain.bytes());
        }
    }

    /// Lets the network run, with packets if there are to be any, until `done`.
    fn run(&mut self, packets: bool, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            self.step();
            if packets {
                self.send();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Lets it run for so many epochs.
    fn run_for(&mut self, packets: bool, epochs: u64) {
        let until = Instant::now() + Duration::from_millis(epochs * EPOCH_MS);
        self.run(packets, "time", || Instant::now() >= until);
    }
}

/// All reports, as they were published.
#[derive(Clone, Default)]
struct Reports {
    of_chamelemon: Arc<Mutex<Vec<EpochReport>>>,
    of_hops: Arc<Mutex<Vec<SystemReport<Found>>>>,
}

impl Output for Reports {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        if let Some(report) = report.as_type::<EpochReport>() {
            self.of_chamelemon.lock().unwrap().push(report.clone());
        } else if let Some(report) = report.as_type::<SystemReport<Found>>() {
            self.of_hops.lock().unwrap().push(report.clone());
        }
    }
}

impl Reports {
    fn hops(&self) -> Vec<SystemReport<Found>> {
        self.of_hops.lock().unwrap().clone()
    }

    fn chamelemon(&self) -> Vec<EpochReport> {
        self.of_chamelemon.lock().unwrap().clone()
    }

    /// All packets that `hops` reports of a node's side.
    fn counted(&self, node: &str, side: &str) -> Counts {
        let mut counted = Counts::new();
        for report in self.hops() {
            for count in &report.findings.counts {
                if (&*count.node, &*count.side) == (node, side) {
                    assert!(count.at_most.is_none_or(|most| most == count.packets));
                    *counted.entry(count.flow).or_default() += count.packets;
                }
            }
        }
        counted
    }

    /// All packets that `hops` reports as refused on a node's side.
    fn refused(&self, node: &str, side: &str) -> Counts {
        let mut refused = Counts::new();
        for report in self.hops() {
            let counts = report.findings.counts.iter().filter(|count| count.refused > 0);
            for count in counts.filter(|count| (&*count.node, &*count.side) == (node, side)) {
                *refused.entry(count.flow).or_default() += count.refused;
            }
        }
        refused
    }

    /// All packets that `hops` reports as lost in a place, by flow.
    fn lost(&self, from: &str, to: &str) -> Counts {
        let place = Place { from: from.to_owned(), to: to.to_owned() };
        let mut lost = Counts::new();
        for SystemReport { findings, .. } in self.hops() {
            let flows = findings.losses.iter().flatten();
            for at in flows.filter(|at| at.places.as_deref() == Some(std::slice::from_ref(&place)))
            {
                assert_eq!(at.lost, Some(at.at_least), "nothing made it uncertain");
                *lost.entry(at.flow).or_default() += at.at_least;
            }
        }
        let totals = self.hops().into_iter().flat_map(|of| of.findings.lost_at.unwrap_or_default());
        let here = totals.filter(|at| at.place == place).map(|at| at.lost.unwrap());
        assert_eq!(here.sum::<u64>(), lost.values().sum::<u64>(), "flows add up");
        lost
    }

    fn truth(&self) -> Truth {
        Truth {
            entered: self.counted("e1", "ingress"),
            passed: self.counted("s1", "transit"),
            refused: self.refused("s1", "transit"),
            left: self.counted("e2", "egress"),
        }
    }
}

fn config(folder: &Path, systems: &str) -> Config {
    let folder = folder.display();
    let text = format!(
        "listen = '127.0.0.1:0'\nedges = ['e1', 'e2']\ntransits = ['s1']\nsystems = [{systems}]\n\
         state_dir = '{folder}/state'\ngrace_ms = 5000\n\
         [probes]\nenabled = false\n\
         [epoch]\nlength_ms = {EPOCH_MS}\nflight_guard_us = 60000\n\
         [archive]\ndir = '{folder}/archive'\n\
         [hops]\nflows = 100\n\
         [topology]\nedge = [{{ name = 'e1' }}, {{ name = 'e2' }}]\nswitch = [{{ name = 's1' }}]\n\
         link = [{{ between = ['e1', 's1'] }}, {{ between = ['s1', 'e2'] }}]\n"
    );
    Config::parse_for(IN_CONTROLLER, &text, "a test").unwrap()
}

/// What is in `before` and not in `after`.
fn difference(before: &Counts, after: &Counts) -> Counts {
    let lost = before.iter().map(|(flow, n)| (*flow, n - after.get(flow).copied().unwrap_or(0)));
    lost.filter(|(_, lost)| *lost > 0).collect()
}

/// The losses between e1 and e2 that ChameleMon reports, by epoch and flow.
fn losses(reports: &Reports) -> BTreeMap<(u64, Flow), u64> {
    let reports = reports.chamelemon();
    let all = reports
        .iter()
        .flat_map(|report| report.loss.iter().map(|loss| ((report.epoch, loss.flow), loss.lost)));
    all.collect()
}

/// The losses between e1 and e2 that the tables of `hops` show, by epoch and flow.
fn missing(reports: &Reports) -> BTreeMap<(u64, Flow), u64> {
    let mut missing: BTreeMap<(u64, Flow), u64> = BTreeMap::new();
    for report in reports.hops() {
        let of = |node: &str, side: &str| -> Counts {
            let counts = report.findings.counts.iter();
            let of_side = counts.filter(|count| (&*count.node, &*count.side) == (node, side));
            of_side.map(|count| (count.flow, count.packets)).collect()
        };
        let left = of("e2", "egress");
        for (flow, entered) in of("e1", "ingress") {
            let lost = entered - left.get(&flow).copied().unwrap_or_default();
            if lost > 0 {
                missing.insert((report.head.epoch, flow), lost);
            }
        }
    }
    missing
}

#[test]
fn every_switch_counts_what_passes_it_and_the_controller_reports_it() {
    let folder = folder("hops-network");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    let config = config(&folder, "'chamelemon', 'hops'");
    let started = server::start_with(IN_CONTROLLER, config, outputs);
    let controller = runtime.block_on(started).unwrap();
    let mut network = Network::new(&controller);

    network.run(false, "a first epoch", || reports.hops().iter().any(|of| of.complete));
    network.run_for(true, 8);
    let last = unix_ns() / (EPOCH_MS * 1_000_000) + 1;
    let reported = || {
        reports.hops().iter().any(|report| report.head.epoch > last)
            && reports.chamelemon().iter().any(|report| report.epoch > last)
    };
    network.run(false, "reports of the last packets", reported);

    assert!(network.truth.entered.len() == 20 && network.truth.left.len() == 20);
    assert_eq!(reports.truth(), network.truth);
    let Truth { entered, passed, refused, left } = &network.truth;
    assert_eq!(reports.lost("e1:in", "s1:in"), difference(entered, passed));
    assert_eq!(reports.lost("s1:in", "s1:out"), *refused);
    let sent = difference(passed, refused);
    assert_eq!(reports.lost("s1:in", "e2:in"), difference(&sent, left));
    let losses = losses(&reports);
    let measured = reports.hops();
    let first = measured.first().unwrap().head.epoch;
    let of_those: BTreeMap<_, _> =
        losses.into_iter().filter(|((epoch, _), _)| *epoch >= first && *epoch <= last).collect();
    assert_eq!(of_those, missing(&reports), "both systems saw the same packets");
    assert!(of_those.len() > 20);

    runtime.block_on(controller.stop()).unwrap();
    let files = walk(&folder.join("archive"));
    assert!(files.iter().any(|file| file.contains("hops_counts")), "{files:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_system_is_switched_on_and_off_while_packets_flow() {
    let folder = folder("hops-switching");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    let alone = || config(&folder, "'chamelemon'");
    let started = server::start_with(IN_CONTROLLER, alone(), outputs);
    let controller = runtime.block_on(started).unwrap();
    let mut network = Network::new(&controller);
    network.run(false, "a first epoch", || reports.chamelemon().iter().any(|of| of.complete));
    let before = reports.chamelemon().last().unwrap().epoch;

    for round in 1..=2 {
        let known = reports.hops().len();
        {
            let _in_runtime = runtime.enter();
            controller.reload(&config(&folder, "'chamelemon', 'hops'"));
        }
        network.run(true, "hops on", || {
            reports.hops()[known..].iter().filter(|of| of.complete).count() >= 4
        });
        {
            let _in_runtime = runtime.enter();
            controller.reload(&alone());
        }
        // Its last epoch is reported, and then no further one.
        network.run_for(true, 6);
        let ended = reports.hops().len();
        network.run_for(true, 4);
        assert_eq!(reports.hops().len(), ended, "round {round}");
    }
    let last = reports.chamelemon().last().unwrap().epoch;
    network.run(false, "ChameleMon's reports", || {
        reports.chamelemon().last().is_some_and(|report| report.epoch >= last + 3)
    });

    // ChameleMon missed nothing for it: each epoch whole, and every loss there.
    for report in reports.chamelemon().iter().filter(|of| of.epoch > before) {
        assert!(report.complete, "{:?} in epoch {}", report.incomplete_because, report.epoch);
    }
    let lost: u64 = losses(&reports).values().sum();
    let Truth { entered, left, .. } = &network.truth;
    assert_eq!(lost, entered.values().sum::<u64>() - left.values().sum::<u64>());
    // And what both saw, both saw alike.
    let losses = losses(&reports);
    let complete: Vec<u64> =
        reports.hops().iter().filter(|of| of.complete).map(|of| of.head.epoch).collect();
    let of_hops = missing(&reports).into_iter().filter(|((epoch, _), _)| complete.contains(epoch));
    let of_chamelemon = losses.into_iter().filter(|((epoch, _), _)| complete.contains(epoch));
    assert_eq!(of_hops.collect::<BTreeMap<_, _>>(), of_chamelemon.collect());
    runtime.block_on(controller.stop()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Names of all files below `folder`.
fn walk(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else {
            files.push(path.display().to_string());
        }
    }
    files
}
