//! CFS in a whole network: two edges with a transit switch between them, each with its own worker
//! and its own conversation over TCP, and the controller. Packets are lost on both links, which the
//! test itself counts; what the controller reports of every hop, what it says was lost where, and
//! what it keeps must say the same.

#[path = "../../../hops/analysis/tests/portless/mod.rs"]
mod portless;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_cfs_analysis::Found;
use calumma_controller::config::Config;
use calumma_controller::output::Output;
use calumma_controller::server::{self, Running};
use calumma_edge::control::unix_ns;
use calumma_plane::packet::Packet;
use calumma_plane::system::System as SwitchSystem;
use calumma_wire::Role;

use portless::{LEN, PATIENCE, Switch, folder, packet};

static ON_SWITCHES: &[&dyn SwitchSystem] = &[&calumma_chamelemon::ChameleMon, &calumma_cfs::Cfs];
static IN_CONTROLLER: &[&dyn calumma_analysis::System] =
    &[&calumma_chamelemon_analysis::ChameleMon, &calumma_cfs_analysis::Cfs];

const EPOCH_MS: u64 = 200;

/// Packets by node and flow.
type Counts = BTreeMap<(&'static str, Flow), u64>;

/// Two edges and a transit switch between them.
struct Network {
    switches: [Switch; 3],
    sent: u64,
    /// What came to each switch, as the one knows who carried it.
    came: Counts,
}

const NAMES: [&str; 3] = ["e1", "s1", "e2"];

impl Network {
    fn new(controller: &Running) -> Self {
        let address = controller.listen().to_string();
        let roles = [Role::Edge, Role::Transit, Role::Edge];
        let switches =
            std::array::from_fn(|at| Switch::new(ON_SWITCHES, NAMES[at], roles[at], &address));
        Self { switches, sent: 0, came: Counts::new() }
    }

    /// A burst of packets on its way. Every seventh is lost before s1, every eleventh behind it.
    fn send(&mut self) {
        for _ in 0..16 {
            self.sent += 1;
            let n = self.sent;
            let (flow, mut frame) = packet(n % 20);
            for (at, lost_behind) in [Some(7), Some(11), None].into_iter().enumerate() {
                let frame = std::slice::from_mut(&mut frame);
                match at {
                    0 => drop(self.switches[at].worker.ingress(frame)),
                    1 => self.switches[at].worker.transit(frame),
                    _ => drop(self.switches[at].worker.egress(frame)),
                }
                *self.came.entry((NAMES[at], flow)).or_default() += 1;
                if lost_behind.is_some_and(|every| n.is_multiple_of(every)) {
                    break;
                }
                // It is routed.
                frame[0].bytes_mut()[22] -= 1;
            }
        }
    }

    /// Lets the network run, with packets if there are to be any, until `done`.
    fn run(&mut self, packets: bool, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            self.switches.iter_mut().for_each(Switch::step);
            if packets {
                self.send();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// All reports, as they were published.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<SystemReport<Found>>>>);

impl Output for Reports {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        if let Some(report) = report.as_type::<SystemReport<Found>>() {
            self.0.lock().unwrap().push(report.clone());
        }
    }
}

impl Reports {
    fn all(&self) -> Vec<SystemReport<Found>> {
        self.0.lock().unwrap().clone()
    }
}

fn config(folder: &Path) -> Config {
    let folder = folder.display();
    let text = format!(
        "listen = '127.0.0.1:0'\nedges = ['e1', 'e2']\ntransits = ['s1']\n\
         systems = ['chamelemon', 'cfs']\nstate_dir = '{folder}/state'\ngrace_ms = 5000\n\
         [epoch]\nlength_ms = {EPOCH_MS}\nflight_guard_us = 60000\n\
         [archive]\ndir = '{folder}/archive'\n\
         [cfs]\nentries = 256\nwindow_epochs = 2\n"
    );
    Config::parse_for(IN_CONTROLLER, &text, "a test").unwrap()
}

#[test]
fn every_hop_of_every_flow_is_counted_exactly_and_reported() {
    let folder = folder("cfs-network");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    let started = server::start_with(IN_CONTROLLER, config(&folder), outputs);
    let controller = runtime.block_on(started).unwrap();
    let mut network = Network::new(&controller);

    network.run(false, "a first window", || reports.all().iter().any(|of| of.complete));
    let until = Instant::now() + Duration::from_millis(8 * EPOCH_MS);
    network.run(true, "time", || Instant::now() >= until);
    let last = unix_ns() / (EPOCH_MS * 1_000_000) + 1;
    let is_reported = || reports.all().iter().any(|of| of.head.epoch > last);
    network.run(false, "a report of the last packets", is_reported);

    let (mut counted, mut lost) = (Counts::new(), BTreeMap::new());
    for report in reports.all() {
        assert_eq!(report.findings.flows_total_error, Some(0.0), "{report:?}");
        for flow in &report.findings.flows {
            assert!(flow.exact && flow.at == "e1", "{flow:?}");
            for (place, hop) in flow.hops.iter().enumerate() {
                assert_eq!((hop.hop, hop.bytes), (Some(place as u8), LEN * hop.packets));
                assert!(hop.exact && hop.looped == 0, "{hop:?}");
                *counted.entry((NAMES[place], flow.flow)).or_default() += hop.packets;
                assert_eq!(hop.node, NAMES[place]);
            }
        }
        for loss in &report.findings.losses {
            *lost.entry(loss.flow).or_insert(0) += loss.lost;
        }
    }
    assert_eq!(counted, network.came);
    let entered = counted.iter().filter(|((node, _), _)| *node == "e1");
    for (&(_, flow), &packets) in entered {
        let left = counted[&("e2", flow)];
        assert_eq!(lost[&flow], packets - left, "{flow}");
    }
    assert!(lost.values().sum::<u64>() > 100, "{lost:?}");

    runtime.block_on(controller.stop()).unwrap();
    for table in ["cfs_flows", "cfs_nodes", "cfs_losses"] {
        assert!(folder.join("archive").join(table).is_dir(), "{table}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
