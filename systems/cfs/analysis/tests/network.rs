//! CFS in a whole network: two edges with a transit switch between them, each with its own worker
//! and its own conversation over TCP, and the controller. Packets are lost on both links, which the
//! test itself counts; what the controller reports of every hop, what it says was lost where, and
//! what it keeps must say the same.

#[path = "../../../hops/analysis/tests/portless/api.rs"]
mod api;
#[path = "../../../hops/analysis/tests/portless/mod.rs"]
mod portless;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_cfs_analysis::{Found, LoopsNoticed, NodeReport};
use calumma_controller::config::Config;
use calumma_controller::output::Output;
use calumma_controller::server::{self, Running};
use calumma_edge::control::unix_ns;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::system::System as SwitchSystem;
use calumma_trust::Tokens;
use calumma_wire::Role;

use api::{get, post};
use portless::{LEN, PATIENCE, Switch, folder, packet};

static ON_SWITCHES: &[&dyn SwitchSystem] = &[&calumma_chamelemon::ChameleMon, &calumma_cfs::Cfs];
static IN_CONTROLLER: &[&dyn calumma_analysis::System] =
    &[&calumma_chamelemon_analysis::ChameleMon, &calumma_cfs_analysis::Cfs];

const EPOCH_MS: u64 = 200;
const WINDOW_EPOCHS: u64 = 2;

/// Packets by node and flow.
type Counts = BTreeMap<(&'static str, Flow), u64>;

/// The first epoch of each window, and what was counted in it.
type Windows = BTreeMap<u64, Counts>;

/// Two edges and a transit switch between them.
struct Network {
    switches: [Switch; 3],
    sent: u64,
    /// What came to each switch, as the one knows who carried it.
    came: Windows,
}

const NAMES: [&str; 3] = ["e1", "s1", "e2"];

/// The first epoch of the window that a packet belongs to which has just been stamped: of the
/// epochs that have its timestamp bit, the one that runs or was the last.
fn window_of(stamped: &Frame) -> u64 {
    let now = unix_ns() / (EPOCH_MS * 1_000_000);
    let bit = u64::from(stamped.bytes()[15] >> 7);
    let epoch = if now & 1 == bit { now } else { now - 1 };
    epoch / WINDOW_EPOCHS * WINDOW_EPOCHS
}

impl Network {
    fn new(controller: &Running) -> Self {
        let address = controller.listen().to_string();
        let roles = [Role::Edge, Role::Transit, Role::Edge];
        let switches =
            std::array::from_fn(|at| Switch::new(ON_SWITCHES, NAMES[at], roles[at], &address));
        Self { switches, sent: 0, came: Windows::new() }
    }

    /// A burst of packets on its way. Every seventh is lost before s1, every eleventh behind it.
    fn send(&mut self) {
        for _ in 0..16 {
            self.sent += 1;
            let n = self.sent;
            let (flow, mut frame) = packet(n % 20);
            let mut window = 0;
            for (at, lost_behind) in [Some(7), Some(11), None].into_iter().enumerate() {
                let frame = std::slice::from_mut(&mut frame);
                match at {
                    0 => {
                        self.switches[at].worker.ingress(frame);
                        window = window_of(&frame[0]);
                    }
                    1 => self.switches[at].worker.transit(frame),
                    _ => drop(self.switches[at].worker.egress(frame)),
                }
                let came = self.came.entry(window).or_default();
                *came.entry((NAMES[at], flow)).or_default() += 1;
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

fn config(folder: &Path, residual: &str, [epoch_ms, guard_us, window_epochs]: [u64; 3]) -> Config {
    let folder = folder.display();
    let text = format!(
        "listen = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\nedges = ['e1', 'e2']\ntransits = ['s1']\n\
         systems = ['chamelemon', 'cfs']\nstate_dir = '{folder}/state'\ngrace_ms = 5000\n\
         [epoch]\nlength_ms = {epoch_ms}\nflight_guard_us = {guard_us}\n\
         [archive]\ndir = '{folder}/archive'\n\
         [cfs]\nentries = 256\nresidual = '{residual}'\npin = []\nwindow_epochs = {window_epochs}\n"
    );
    Config::parse_for(IN_CONTROLLER, &text, "a test").unwrap()
}

/// The HTTP API answers with what was reported.
fn check_answers(controller: &Running, reports: &[SystemReport<Found>]) {
    let report = reports.iter().rfind(|of| of.findings.flows.len() > 1).unwrap();
    let of_window = |answer: serde_json::Value| {
        let windows = answer.as_array().unwrap();
        let same = |of: &&serde_json::Value| of["epoch"] == report.head.epoch;
        windows.iter().find(same).unwrap().clone()
    };
    let flows = |query: &str| {
        let answer = get(controller, &format!("/api/v1/cfs/flows?last=1000{query}"));
        of_window(answer)["flows"].clone()
    };
    let all = serde_json::to_value(&report.findings.flows).unwrap();
    assert_eq!(flows(""), all);
    assert_eq!(flows("&limit=1").as_array().unwrap()[..], all.as_array().unwrap()[..1]);
    let Flow { src, dst, sport, dport, proto } = report.findings.flows[1].flow;
    let one = format!("&src={src}&dst={dst}&sport={sport}&dport={dport}&proto={proto}");
    assert_eq!(flows(&one).as_array().unwrap()[..], all.as_array().unwrap()[1..2]);
    assert_eq!(flows("&proto=250"), serde_json::json!([]));
    for (path, field) in [("superspreaders", "superspreaders"), ("loops", "loops")] {
        let of = of_window(get(controller, &format!("/api/v1/cfs/{path}?last=1000")));
        assert_eq!(
            (&of[field], &of["complete"]),
            (&serde_json::json!([]), &report.complete.into())
        );
    }
    let of = of_window(get(controller, "/api/v1/cfs/losses?last=1000"));
    let findings = &report.findings;
    assert_eq!(of["losses"], serde_json::to_value(&findings.losses).unwrap());
    assert_eq!(of["black_holes"], serde_json::to_value(&findings.black_holes).unwrap());
    // Beside routes of its own it has those of every system.
    let windows = of_window(get(controller, "/api/v1/cfs/windows?last=1000"));
    assert_eq!(windows, serde_json::to_value(report).unwrap());
}

#[test]
fn every_hop_of_every_flow_is_counted_exactly_and_reported() {
    check_every_hop("fermat");
}

#[test]
fn every_hop_is_counted_exactly_beside_a_flow_radar() {
    check_every_hop("flowradar");
}

fn check_every_hop(residual: &str) {
    let folder = folder(&format!("cfs-network-{residual}"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    let mut config = config(&folder, residual, [EPOCH_MS, 60_000, WINDOW_EPOCHS]);
    let read_again = self::config(&folder, residual, [EPOCH_MS, 60_000, 2 * WINDOW_EPOCHS]);
    std::fs::create_dir_all(&folder).unwrap();
    let tokens = folder.join("tokens");
    let token = Tokens::add(&tokens, "ada", calumma_trust::Role::Operate).unwrap();
    config.tokens = Some(tokens);
    let started = server::start_with(IN_CONTROLLER, config, outputs);
    let controller = runtime.block_on(started).unwrap();
    let mut network = Network::new(&controller);

    network.run(false, "a first window", || reports.all().iter().any(|of| of.complete));
    // The window in which the switches began is incomplete, and so is one in which they were held
    // up.
    let judged = |came: &Windows| {
        let complete = |of: &&SystemReport<Found>| of.complete && came.contains_key(&of.head.epoch);
        reports.all().iter().filter(complete).count()
    };
    let begun = Instant::now();
    while judged(&network.came) < 4 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", reports.all());
        let until = Instant::now() + Duration::from_millis(8 * EPOCH_MS);
        network.run(true, "time", || Instant::now() >= until);
        let last = unix_ns() / (EPOCH_MS * 1_000_000) + 1;
        let is_reported = || reports.all().iter().any(|of| of.head.epoch > last);
        network.run(false, "a report of the last packets", is_reported);
    }

    for report in reports.all().iter().filter(|of| of.complete) {
        let came = network.came.remove(&report.head.epoch).unwrap_or_default();
        assert_eq!(report.findings.flows_total_error, Some(0.0), "{report:?}");
        let mut counted = Counts::new();
        for flow in &report.findings.flows {
            assert!(flow.exact && flow.at == "e1", "{flow:?}");
            for (place, hop) in flow.hops.iter().enumerate() {
                assert_eq!((hop.hop, hop.bytes), (Some(place as u8), LEN * hop.packets));
                assert!(hop.exact && hop.looped == Some(0), "{hop:?}");
                assert_eq!(hop.node, NAMES[place]);
                assert_eq!(counted.insert((NAMES[place], flow.flow), hop.packets), None);
            }
        }
        assert_eq!(counted, came);
        // Between nodes that saw a flow, and to where it should have left, all is lost that the
        // next one lacks.
        let flows: BTreeSet<Flow> = came.keys().map(|(_, flow)| *flow).collect();
        let packets = |node, flow| came.get(&(node, flow)).copied().unwrap_or(0);
        let mut pairs = BTreeMap::new();
        for flow in flows {
            let is_seen = |node: &&'static str| packets(*node, flow) > 0 || *node == "e2";
            let way: Vec<&'static str> = NAMES.into_iter().filter(is_seen).collect();
            for pair in way.windows(2) {
                let lost = packets(pair[0], flow) - packets(pair[1], flow);
                if lost > 0 {
                    pairs.insert((pair[0], pair[1], flow), lost);
                }
            }
        }
        let lost = report.findings.losses.iter().map(|loss| {
            let node = |point: &str| NAMES.into_iter().find(|name| *point == format!("{name}:in"));
            let from = node(&loss.place.from).unwrap();
            // Nothing came to the only edge that there is.
            let to =
                if loss.place.to == "destination" { "e2" } else { node(&loss.place.to).unwrap() };
            ((from, to, loss.flow), loss.lost)
        });
        assert_eq!(lost.collect::<BTreeMap<_, _>>(), pairs);
    }

    check_answers(&controller, &reports.all());
    // What an operator pins comes first at every switch from a window to come on.
    let flow = packet(3).0;
    let pinned =
        post(&controller, &token, "/api/v1/cfs/pins", &serde_json::json!({ "flows": [flow] }));
    assert_eq!((&pinned["most"], &pinned["without"]), (&64.into(), &serde_json::json!([])));
    let known = reports.all().len();
    let everywhere = || {
        let all = reports.all();
        let complete = all.iter().skip(known).filter(|of| of.complete);
        complete.map(|of| &of.findings).any(|of| of.nodes.iter().all(|node| node.pinned > 0))
    };
    network.run(true, "a window in which a flow is pinned everywhere", everywhere);
    let pins = get(&controller, "/api/v1/cfs/pins");
    let is_there = |list: &str| {
        let flows: Vec<Flow> = serde_json::from_value(pins[list].clone()).unwrap();
        flows.contains(&flow)
    };
    assert!(is_there("wanted") && is_there("sent"));
    if residual == "fermat" {
        check_share(&controller, &token, &mut network, &reports);
    } else {
        // Its cells are all empty: every flow has an entry.
        let (all, of_entries) = (reports.all(), get(&controller, "/api/v1/cfs/config"));
        let nodes = all.iter().filter(|of| of.complete).flat_map(|of| &of.findings.nodes);
        let decoded = |node: &NodeReport| node.residual.as_ref().map(|of| of.decode.clone());
        assert!(nodes.clone().all(|node| decoded(node).as_deref() == Some("complete")));
        // Of 256 entries of 60 bytes and 3 * 16 cells of 48.
        assert_eq!(of_entries["alpha"], nodes.last().unwrap().alpha.unwrap());
    }
    check_settings(&controller, &token, &mut network, &reports, &read_again);
    runtime.block_on(controller.stop()).unwrap();
    for table in ["cfs_flows", "cfs_nodes", "cfs_losses"] {
        assert!(folder.join("archive").join(table).is_dir(), "{table}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// An operator gives tables another share of the memory while they count.
fn check_share(controller: &Running, token: &str, network: &mut Network, reports: &Reports) {
    let path = "/api/v1/cfs/config";
    let before = get(controller, path);
    let own = before["alpha"].as_f64().unwrap();
    assert!((0.88..0.9).contains(&own) && before["sent"]["alpha"] == before["alpha"], "{before}");
    let share = post(controller, token, path, &serde_json::json!({ "alpha": 0.75 }));
    assert_eq!((&share["alpha"], &share["without"]), (&0.75.into(), &serde_json::json!([])));
    let divided = |alpha: f64| {
        let all = reports.all().into_iter().filter(|of| of.complete);
        all.map(|of| of.findings).find(|of| of.alpha == Some(alpha))
    };
    network.run(true, "a window of that share", || divided(0.75).is_some());
    for node in divided(0.75).unwrap().nodes {
        // Of 256 entries of 60 bytes and 3 * 16 buckets of 40.
        let residual = node.residual.unwrap();
        assert_eq!((node.entries, residual.buckets, node.alpha), (216, 3 * 36, Some(0.75)));
        assert_eq!(residual.decode, "complete");
    }
    assert_eq!(get(controller, path)["sent"]["alpha"], 0.75);
    // Residuals decode by that: it stays.
    let share = post(controller, token, path, &serde_json::json!({ "alpha": "auto" }));
    assert_eq!(share["alpha"], "auto");
    let complete = || reports.all().into_iter().filter(|of| of.complete).count();
    let known = complete();
    network.run(true, "more windows", || complete() >= known + 3);
    let last = reports.all().into_iter().rfind(|of| of.complete).unwrap();
    assert_eq!(last.findings.alpha, Some(0.75));
}

/// An operator has flows graded otherwise while switches count, and then lets the file say it again
/// by SIGHUP. Controller and switches agree in every window: the controller refuses entries that
/// are graded by another rule than their window says.
fn check_settings(
    controller: &Running,
    token: &str,
    network: &mut Network,
    reports: &Reports,
    read_again: &Config,
) {
    let path = "/api/v1/cfs/config";
    let wanted = serde_json::json!({ "grade": "greedy", "heavy_packets": 3 });
    let changed = post(controller, token, path, &wanted);
    assert_eq!((&changed["grade"], &changed["heavy_packets"]), (&"greedy".into(), &3.into()));
    assert_eq!((&changed["claim"], &changed["pins"]), (&false.into(), &64.into()));
    let complete = || reports.all().into_iter().filter(|of| of.complete).count();
    network.run(true, "that is sent", || get(controller, path)["sent"]["grade"] == "greedy");
    let known = complete();
    network.run(true, "more windows", || complete() >= known + 4);
    // The window's length waits, and what the file does not say goes back to its default.
    controller.reload(read_again);
    let after = get(controller, path);
    assert_eq!((&after["grade"], &after["heavy_packets"]), (&"fold".into(), &10_000.into()));
    network.run(true, "that is sent", || get(controller, path)["sent"]["grade"] == "fold");
    let known = complete();
    network.run(true, "more windows", || complete() >= known + 4);
    let of = |packets: u64| {
        let all = reports.all().into_iter().filter(|of| of.complete);
        all.filter(move |of| of.findings.thresholds.heavy_packets == packets).count()
    };
    assert!(of(3) >= 4 && of(10_000) >= 4, "{} and {}", of(3), of(10_000));
}

/// Reads the notices among the events, each with the time when it came.
fn notices(controller: &Running) -> mpsc::Receiver<(Instant, LoopsNoticed)> {
    let mut stream = TcpStream::connect(controller.http().unwrap()).unwrap();
    stream.write_all(b"GET /api/v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    // From the end of the answer's head on, no notice is missed.
    assert!(lines.next().is_some_and(|status| status.contains(" 200 ")));
    assert!(lines.any(|line| line.is_empty()), "the head ends");
    let (to, found) = mpsc::channel();
    std::thread::spawn(move || {
        let mut is_notice = false;
        for line in lines {
            if let Some(data) = line.strip_prefix("data: ").filter(|_| is_notice) {
                let noticed = serde_json::from_str(data).expect("a notice of cfs");
                if to.send((Instant::now(), noticed)).is_err() {
                    return;
                }
            }
            is_notice = line == "event: notice" || is_notice && !line.is_empty();
        }
    });
    found
}

#[test]
fn readers_of_events_know_a_loop_within_200_ms_of_its_third_time_to_live() {
    let folder = folder("cfs-loop");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    // Windows of two seconds, which no loop waits for.
    let started =
        server::start_with(IN_CONTROLLER, config(&folder, "fermat", [50, 15_000, 40]), outputs);
    let controller = runtime.block_on(started).unwrap();
    let mut network = Network::new(&controller);
    network.run(false, "a first window", || reports.all().iter().any(|of| of.complete));
    let events = notices(&controller);

    let mut took = Vec::new();
    // The machine may stand still.
    for number in 100..110 {
        let (flow, mut frame) = packet(number);
        network.switches[0].worker.ingress(std::slice::from_mut(&mut frame));
        let mut third = Instant::now();
        for (visit, ttl) in (1..64).rev().step_by(2).enumerate() {
            frame.bytes_mut()[22] = ttl;
            network.switches[1].worker.transit(std::slice::from_mut(&mut frame));
            if visit == 2 {
                third = Instant::now();
            }
        }
        let mut noticed = None;
        network.run(false, "a notice", || {
            noticed = events.try_recv().ok();
            noticed.is_some()
        });
        let (at, noticed) = noticed.expect("it came");
        let [it] = &noticed.loops[..] else { panic!("{noticed:?}") };
        assert_eq!((it.flow, it.length, it.certain), (flow, 2, true));
        assert_eq!((&it.nodes[..], it.ttls.len()), (&["s1".to_owned()][..], 32));
        took.push(at - third);
        if at - third < Duration::from_millis(200) {
            break;
        }
    }
    eprintln!("loops were reported after {took:?}");
    assert!(took.last() < Some(&Duration::from_millis(200)), "{took:?}");
    runtime.block_on(controller.stop()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
