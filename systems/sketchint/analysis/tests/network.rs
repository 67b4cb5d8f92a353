//! SketchINT in a whole network: two edges with a transit switch between them, each with its own
//! worker and its own conversation over TCP, and the controller. INT goes on by itself; every
//! packet comes to its host as it was sent, with stacks on its way or without, while a switch
//! begins anew and the controller is restarted; and what is reported of paths and packets is what
//! the test itself counted.

#[path = "../../../hops/analysis/tests/portless/api.rs"]
mod api;
#[path = "../../../hops/analysis/tests/portless/mod.rs"]
mod portless;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_controller::config::Config;
use calumma_controller::output::Output;
use calumma_controller::server::{self, Running};
use calumma_edge::control::unix_ns;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::system::System as SwitchSystem;
use calumma_plane::worker::{Departure, Policy, Sent};
use calumma_sketchint_analysis::SketchInt;
use calumma_sketchint_analysis::report::Found;
use calumma_wire::Role;

use serde_json::{Value, json};

use portless::{PATIENCE, Switch, folder};

static ON_SWITCHES: &[&dyn SwitchSystem] =
    &[&calumma_chamelemon::ChameleMon, &calumma_sketchint::SketchInt];
static IN_CONTROLLER: &[&dyn calumma_analysis::System] =
    &[&calumma_chamelemon_analysis::ChameleMon, &SketchInt];

const EPOCH_MS: u64 = 200;
const WINDOW_EPOCHS: u64 = 2;
const NAMES: [&str; 3] = ["e1", "s1", "e2"];
const ROLES: [Role; 3] = [Role::Edge, Role::Transit, Role::Edge];
const FLOWS: u64 = 20;

/// Flows that reports of the second controller list.
const LISTED: u64 = 3;

/// The first epoch of each window, and the packets of each flow that reached their host in it.
type Windows = BTreeMap<u64, BTreeMap<Flow, u64>>;

/// The first epoch of the window that a packet belongs to which has just been stamped: of the
/// epochs that have its timestamp bit, the one that runs or was the last.
fn window_of(stamped: &Frame) -> u64 {
    let now = unix_ns() / (EPOCH_MS * 1_000_000);
    let bit = u64::from(stamped.bytes()[15] >> 7);
    let epoch = if now & 1 == bit { now } else { now - 1 };
    epoch / WINDOW_EPOCHS * WINDOW_EPOCHS
}

/// A packet of a flow, with right checksums.
fn packet(flow: u64) -> (Flow, Vec<u8>) {
    let (flow, mut frame) = portless::packet(flow);
    let bytes = frame.bytes_mut();
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
    };
    let folded = |sum: u32| !(((sum & 0xFFFF) + (sum >> 16)) as u16);
    let header = folded(words(&bytes[14..34]));
    bytes[24..26].copy_from_slice(&header.to_be_bytes());
    let udp = folded(words(&bytes[26..60]) + 17 + 26);
    bytes[40..42].copy_from_slice(&udp.to_be_bytes());
    (flow, bytes.to_vec())
}

struct Network {
    switches: [Switch; 3],
    address: String,
    sent: u64,
    /// Packets that had a stack between switches.
    carried: u64,
    came: Windows,
}

impl Network {
    fn new(controller: &Running) -> Self {
        let address = controller.listen().to_string();
        let switches = std::array::from_fn(|at| Self::switch(at, &address));
        Self { switches, address, sent: 0, carried: 0, came: Windows::new() }
    }

    fn switch(at: usize, controller: &str) -> Switch {
        let mut switch = Switch::new(ON_SWITCHES, NAMES[at], ROLES[at], controller);
        switch.worker.set_policy(Policy { strip: true, ..Policy::default() });
        switch
    }

    /// A switch begins anew.
    fn restart(&mut self, at: usize) {
        self.switches[at] = Self::switch(at, &self.address);
    }

    /// Packets on their way, each alone.
    fn send(&mut self) {
        for _ in 0..16 {
            self.sent += 1;
            let (flow, bytes) = packet(self.sent % FLOWS);
            let mut frame = Frame::with_headroom(256, &bytes);
            let mut window = 0;
            for at in 0..3 {
                let frame = std::slice::from_mut(&mut frame);
                let worker = &mut self.switches[at].worker;
                match at {
                    0 => {
                        worker.ingress(frame);
                        window = window_of(&frame[0]);
                    }
                    1 => worker.transit(frame),
                    _ => assert!(worker.egress(frame).is_empty()),
                }
                worker.depart(frame, 1, Departure { at_ns: unix_ns(), mtu: 1500 });
                worker.sent(Sent { accepted: 1, refused: 0 });
                if at == 1 {
                    self.carried += u64::from(frame[0].bytes().len() > bytes.len());
                }
            }
            assert_eq!(frame.bytes(), bytes, "as it was sent");
            *self.came.entry(window).or_default().entry(flow).or_default() += 1;
        }
    }

    /// Lets the network run with packets until `done`.
    fn run(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            self.switches.iter_mut().for_each(Switch::step);
            self.send();
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

    /// Windows in which INT was on, and all came.
    fn complete(&self) -> usize {
        self.all().iter().filter(|of| of.complete).count()
    }
}

fn config(folder: &Path, listen: &str, flows_limit: u64, more: &str) -> Config {
    let folder = folder.display();
    let text = format!(
        "listen = '{listen}'\nhttp = '127.0.0.1:0'\nedges = ['e1', 'e2']\ntransits = ['s1']\n\
         systems = ['chamelemon', 'sketchint']\nstate_dir = '{folder}/state'\ngrace_ms = 5000\n\
         [epoch]\nlength_ms = {EPOCH_MS}\nflight_guard_us = 60000\n\
         [sketchint]\nwindow_epochs = {WINDOW_EPOCHS}\norphan_seconds = 3600\n\
         flows_limit = {flows_limit}\n{more}\n"
    );
    Config::parse_for(IN_CONTROLLER, &text, "a test").unwrap()
}

/// What the HTTP API says of a window, `null` where it knows nothing of it any more.
fn of_epoch(answer: &Value, epoch: u64) -> Value {
    let mut windows = answer.as_array().unwrap().iter();
    windows.find(|of| of["epoch"] == epoch).cloned().unwrap_or_default()
}

/// The flows of a window are answered for one by one, each with what was counted; `false` if the
/// window was forgotten before all were asked for, as only the latest eight are remembered.
fn check_flows(controller: &Running, report: &SystemReport<Found>, came: &Windows) -> bool {
    let (epoch, listed) = (report.head.epoch, &report.findings.flows);
    let ask = |Flow { src, dst, sport, dport, proto }: Flow| {
        let of = format!("src={src}&dst={dst}&sport={sport}&dport={dport}&proto={proto}");
        of_epoch(&api::get(controller, &format!("/api/v1/sketchint/flows?{of}&last=8")), epoch)
    };
    assert_eq!(listed.len() as u64, LISTED);
    let never = Flow { proto: 250, ..listed[0].flow };
    let first = [ask(listed[0].flow), ask(never)];
    let all: Vec<Value> = came[&epoch].keys().map(|&flow| ask(flow)).collect();
    if first.iter().chain(&all).any(Value::is_null) {
        return false;
    }
    assert_eq!(first.map(|answer| answer["flows"].clone()), [json!([listed[0]]), json!([])]);
    for (answer, packets) in all.iter().zip(came[&epoch].values()) {
        assert_eq!((&answer["complete"], &answer["flows"][1]), (&json!(true), &Value::Null));
        let of = &answer["flows"][0];
        assert_eq!((&of["sink"], &of["packets"]), (&json!("e2"), &json!(packets)));
        assert_eq!(of["paths"][0]["path"], json!(NAMES));
        assert_eq!(of["hops"].as_array().unwrap().len(), 3);
    }
    true
}

/// The HTTP API answers with what was reported.
fn check_answers(controller: &Running, report: &SystemReport<Found>) {
    let (epoch, found) = (report.head.epoch, &report.findings);
    let nodes = of_epoch(&api::get(controller, "/api/v1/sketchint/nodes?last=1000"), epoch);
    assert_eq!(nodes["nodes"], serde_json::to_value(&found.nodes).unwrap());
    let head = [&nodes["window"], &nodes["state"], &nodes["complete"]];
    assert_eq!(head, [&json!(found.window), &json!("on"), &json!(true)]);
    let links = of_epoch(&api::get(controller, "/api/v1/sketchint/links?last=1000"), epoch);
    assert_eq!(links["links"], serde_json::to_value(&found.links).unwrap());
    assert_eq!(links["window"], json!(found.window));
    let paths = of_epoch(&api::get(controller, "/api/v1/sketchint/paths?last=1000"), epoch);
    assert_eq!(paths["path_changes"], serde_json::to_value(&found.path_changes).unwrap());
    let of_e2 = paths["sinks"].as_array().unwrap().iter().find(|sink| sink["edge"] == "e2");
    assert_eq!(of_e2.unwrap()["paths"][0]["path"], json!(NAMES));
    let windows = of_epoch(&api::get(controller, "/api/v1/sketchint/windows?last=1000"), epoch);
    assert_eq!(windows, serde_json::to_value(report).unwrap());

    let suspects = of_epoch(&api::get(controller, "/api/v1/sketchint/suspects?last=1000"), epoch);
    assert_eq!((&suspects["victims"], &suspects["suspects"]), (&json!(0), &json!([])));
}

#[test]
fn every_packet_comes_as_it_was_sent_and_every_path_is_reported() {
    let folder = folder("sketchint-network");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reports = Reports::default();
    let start = |listen: &str, flows_limit: u64| {
        let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
        let started =
            server::start_with(IN_CONTROLLER, config(&folder, listen, flows_limit, ""), outputs);
        runtime.block_on(started).unwrap()
    };
    let controller = start("127.0.0.1:0", FLOWS);
    let mut network = Network::new(&controller);
    network.run("complete windows with INT", |_| reports.complete() >= 3);
    assert!(network.carried > 0);

    // A sink that begins anew: sources stop until it has said that it takes stacks out.
    let known = reports.all().len();
    network.restart(2);
    let is_noted = |of: &SystemReport<Found>| of.findings.state != "on";
    network.run("a window without INT", |_| reports.all()[known..].iter().any(is_noted));
    let (known, carried) = (reports.complete(), network.carried);
    // Reports that waited for the one that lacks the sink come with it.
    network.run("complete windows again", |network| {
        reports.complete() >= known + 2 && network.carried > carried
    });

    // A controller that is restarted goes on with what the switches do.
    runtime.block_on(controller.stop()).unwrap();
    let carried = network.carried;
    let until = Instant::now() + Duration::from_millis(4 * EPOCH_MS);
    network.run("time without a controller", |_| Instant::now() >= until);
    assert!(network.carried > carried, "all go on as they are");
    let before = reports.all().len();
    let last_of_first = reports.all()[before - 1].head.epoch;
    let controller = start(&network.address, LISTED);
    network.run("complete windows of another", |_| {
        reports.all()[before..].iter().filter(|of| of.complete).count() >= 2
    });

    let mut asked = 0;
    network.run("a window whose flows are all answered for", |network| {
        let all = reports.all();
        let latest = all.iter().rfind(|of| of.complete).unwrap();
        let is_new = latest.head.epoch > asked;
        asked = latest.head.epoch;
        is_new && check_flows(&controller, latest, &network.came)
    });
    let asked = reports.all().into_iter().find(|of| of.head.epoch == asked).unwrap();
    check_answers(&controller, &asked);
    let complete = reports.all().into_iter().filter(|of| of.complete);
    let mut checked = 0;
    for report in complete {
        let Some(came) = network.came.get(&report.head.epoch) else { continue };
        assert_eq!(report.findings.state, "on");
        let covered = &report.findings.coverage;
        let coverage = covered.sinks;
        // All packets came, so that sources put stacks into as many.
        assert_eq!(covered.inserted, Some(coverage.packets));
        assert_eq!(covered.not_carried, Some(BTreeMap::new()));
        let sources = report.findings.sources.iter();
        let by_source: u64 = sources.clone().map(|of| of.inserted).sum();
        assert!(sources.clone().all(|of| of.sound && of.idle == 0), "{:?}", report.findings);
        assert_eq!((sources.len(), by_source), (2, coverage.packets));
        let links: Vec<_> = report.findings.links.iter().map(|it| (&*it.from, &*it.to)).collect();
        assert_eq!(links, [("e1", "s1"), ("s1", "e2")]);
        assert!(report.findings.links.iter().all(|it| it.packets == Some(coverage.packets)));
        assert_eq!(coverage.packets, came.values().sum::<u64>());
        assert_eq!((coverage.int_packets, coverage.partial), (coverage.packets, 0));
        let mut counted = BTreeMap::new();
        for flow in &report.findings.flows {
            let exactly = flow.packets.packets.unwrap();
            assert!(flow.exact && flow.sink == "e2" && flow.int_packets == Some(exactly));
            let [path] = &flow.paths[..] else { panic!("{flow:?}") };
            assert_eq!(path.path, ["e1", "s1", "e2"]);
            assert_eq!((path.partial, path.packets), (false, Some(exactly)));
            assert_eq!(counted.insert(flow.flow, exactly), None);
        }
        let of_counted: BTreeMap<Flow, u64> = counted.keys().map(|it| (*it, came[it])).collect();
        assert_eq!(counted, of_counted);
        let is_short = report.head.epoch > last_of_first;
        assert_eq!(counted.len(), if is_short { LISTED as usize } else { came.len() });
        checked += 1;
    }
    assert!(checked >= 5, "{checked}");
    runtime.block_on(controller.stop()).unwrap();

    // Nothing is drawn any more, but the flows that ChameleMon names carry INT all the same.
    let outputs: Vec<Box<dyn Output>> = vec![Box::new(reports.clone())];
    let more = "share = 0.0\nattention = true\n[tasks]\nheavy_hitter = 2";
    let config = config(&folder, &network.address, FLOWS, more);
    let started = server::start_with(IN_CONTROLLER, config, outputs);
    let controller = runtime.block_on(started).unwrap();
    let before = reports.all().len();
    let attended = || {
        let all = reports.all();
        let mut new = all.into_iter().skip(before).filter(|of| of.complete);
        new.find(|of| of.findings.coverage.sinks.int_packets > 0)
    };
    network.run("a window with flows that are attended", |_| attended().is_some());
    let report = attended().unwrap();
    assert_eq!(report.findings.config.share, 0.0);
    for flow in &report.findings.flows {
        let packets = flow.packets.packets.unwrap();
        let is_whole = flow.int_packets == Some(packets);
        assert!(is_whole || flow.int_packets == Some(0), "{flow:?}");
        assert!(flow.hops.iter().all(|hop| hop.estimate.is_none()));
    }
    runtime.block_on(controller.stop()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
