//! A further system beside ChameleMon, on edges and transit switches: real sockets, nodes that are
//! missing or misbehave, an analysis that is slow, and systems switched while epochs come.

mod late;
mod panels;
mod tally;
mod topology;
mod totals;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{PoisonError, mpsc};
use std::time::Instant;

use calumma_analysis::Report;
use calumma_chamelemon::frames::{self, Message as OfChameleMon};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::Config;
use calumma_controller::output::Output;
use calumma_controller::server::{Running, start_with, unix_ns};
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;
use calumma_wire::{
    Hello, Marking, Message, Offer, Role, Side, SideKind, SwitchKind, SystemId, VERSION, Welcome,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::tally::{GATE, SYSTEMS};
use crate::peer::Peer;
use crate::stories::{PATIENCE, PATIENT, traffic};
use crate::world::World;

const TALLY: SystemId = tally::ID;

const TALLY_OFFER: Offer = Offer { system: TALLY, lowest: 2, highest: 3 };

/// Two edges and a transit switch; both systems may be chosen.
const NODES: &str = "edges = ['e1', 'e2']\ntransits = ['s1']\n";

const BOTH: &str = "systems = ['chamelemon', 'tally']\n";

/// Sends each report's JSON by its system's name.
struct Lines(HashMap<&'static str, mpsc::Sender<Value>>);

impl Output for Lines {
    fn report(&mut self, report: &dyn Report, json: &str) {
        let _ = self.0[report.system()].send(serde_json::from_str(json).unwrap());
    }
}

struct Controller {
    runtime: Runtime,
    running: Running,
    reports: HashMap<&'static str, mpsc::Receiver<Value>>,
}

fn config(text: &str) -> Config {
    let text = format!("listen = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n{NODES}{text}");
    Config::parse_for(SYSTEMS, &text, "test.toml").unwrap()
}

impl Controller {
    fn start(text: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let (mut senders, mut reports) = (HashMap::new(), HashMap::new());
        for system in SYSTEMS.iter().map(|system| system.name()) {
            let (sender, receiver) = mpsc::channel();
            senders.insert(system, sender);
            reports.insert(system, receiver);
        }
        let outputs: Vec<Box<dyn Output>> = vec![Box::new(Lines(senders))];
        let running = runtime.block_on(start_with(SYSTEMS, config(text), outputs)).unwrap();
        Self { runtime, running, reports }
    }

    /// The next report of a system.
    fn next(&self, system: &str) -> Value {
        self.reports[system].recv_timeout(PATIENCE).expect("a report in time")
    }

    /// A system's report on `epoch`; earlier ones are passed over.
    fn report(&self, system: &str, epoch: u64) -> Value {
        loop {
            let report = self.next(system);
            assert!(report["epoch"].as_u64().unwrap() <= epoch, "{epoch} was never reported");
            if report["epoch"] == epoch {
                return report;
            }
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.running.http().unwrap()).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn get_json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn stop(self) {
        self.runtime.block_on(self.running.stop()).unwrap();
    }
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// A node's end of a connection.
struct FakeNode {
    role: Role,
    peer: Peer,
}

fn hello(name: &str, role: Role, systems: &[Offer]) -> Message {
    Message::Hello(Box::new(Hello {
        node: name.to_owned(),
        role,
        kind: SwitchKind::Software,
        program: "a test".to_owned(),
        marking: Marking::default(),
        systems: systems.to_vec(),
        holding: Vec::new(),
    }))
}

impl FakeNode {
    fn introduce(controller: &Controller, name: &str, role: Role, systems: &[Offer]) -> Self {
        let mut node = Self { role, peer: Peer::connect(controller.running.listen(), VERSION) };
        node.send(&hello(name, role, systems));
        node
    }

    /// Joins as a node that can run both systems.
    fn join(controller: &Controller, name: &str) -> (Self, Welcome) {
        let role = if name.starts_with('s') { Role::Transit } else { Role::Edge };
        let mut node = Self::introduce(controller, name, role, &[frames::OFFER, TALLY_OFFER]);
        let welcome = node.receive_welcome();
        (node, welcome)
    }

    fn send(&mut self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.peer.send_bytes(&frame);
    }

    /// The next message that is no probe.
    fn receive(&mut self) -> Message {
        self.peer.next().expect("the connection stands").1
    }

    fn receive_welcome(&mut self) -> Welcome {
        loop {
            match self.receive() {
                Message::Welcome(welcome) => return *welcome,
                Message::Reported { .. } => {}
                other => panic!("{other:?} instead of a welcome"),
            }
        }
    }

    fn receive_refusal(&mut self) -> String {
        loop {
            match self.receive() {
                Message::Refused { reason } => return reason,
                Message::Welcome(_) | Message::Reported { .. } => {}
                other => panic!("{other:?} instead of a refusal"),
            }
        }
    }

    fn send_side(&mut self, epoch: u64, side: SideKind, body: Vec<u8>) {
        let (system, counters) = (TALLY, Vec::new());
        let side = Side { system, epoch, side, stall_ns: 0, packets: 0, counters, body };
        self.send(&Message::Side(Box::new(side)));
    }

    /// Delivers an epoch of tally: `packets` on each side.
    fn tally(&mut self, epoch: u64, packets: u64) {
        let sides: &[SideKind] = match self.role {
            Role::Edge => &[SideKind::Ingress, SideKind::Egress],
            _ => &[SideKind::Transit],
        };
        for &side in sides {
            self.send_side(epoch, side, packets.to_le_bytes().to_vec());
        }
        self.send(&Message::Sealed { system: TALLY, epoch, late_packets: 0, body: Vec::new() });
    }

    /// Delivers what the edge at `position` of `world` has measured.
    fn chamelemon(&mut self, world: &World, position: usize) {
        let input = world.inputs().swap_remove(position);
        self.send(&OfChameleMon::Ingress(input.ingress.unwrap()).to_wire());
        self.send(&OfChameleMon::Egress(input.egress.unwrap()).to_wire());
        self.send(
            &OfChameleMon::Sealed { epoch: world.epoch, late_packets: 0, late: Vec::new() }
                .to_wire(),
        );
    }
}

/// All three nodes, and what they measure by.
struct Network {
    edges: [FakeNode; 2],
    transit: FakeNode,
    clock: EpochClock,
    layout: Layout,
    hash_key: HashKey,
    attention: Attention,
}

impl Network {
    fn join(controller: &Controller) -> Self {
        let (e1, welcome) = FakeNode::join(controller, "e1");
        let (e2, _) = FakeNode::join(controller, "e2");
        let (transit, _) = FakeNode::join(controller, "s1");
        let clock = EpochClock::new(welcome.epoch_length_ns, welcome.guards).unwrap();
        let welcome = OfChameleMon::read(Message::Welcome(Box::new(welcome)), None).unwrap();
        let Some(OfChameleMon::Welcome { layout, hash_key, attention, .. }) = welcome else {
            panic!("{welcome:?}")
        };
        Self { edges: [e1, e2], transit, clock, layout, hash_key, attention }
    }

    /// The epoch that has just passed.
    fn recent_epoch(&self) -> u64 {
        self.clock.epoch_at(unix_ns()) - 1
    }

    /// Delivers ChameleMon's epoch, which is then reported with every lost packet.
    fn chamelemon(&mut self, controller: &Controller, epoch: u64) {
        let mut world =
            World::new(&["e1", "e2"], &self.layout, &self.hash_key, self.attention, epoch);
        traffic(&mut world);
        self.edges.iter_mut().zip(0..).for_each(|(edge, at)| edge.chamelemon(&world, at));
        let report = controller.report("chamelemon", epoch);
        assert_eq!(report["complete"], true, "{}", report["incomplete_because"]);
        assert_eq!(report["loss"].as_array().unwrap().len(), world.lost.len());
        assert_eq!(report["system"], Value::Null, "as it always was");
    }

    fn tally(&mut self, epoch: u64, packets: [u64; 3]) {
        let nodes = self.edges.iter_mut().chain([&mut self.transit]);
        nodes.zip(packets).for_each(|(node, packets)| node.tally(epoch, packets));
    }
}

#[test]
fn every_node_is_counted_and_a_missing_transit_is_missing_in_its_own_system_alone() {
    let controller = Controller::start(&format!("{BOTH}grace_ms = 1000"));
    let mut network = Network::join(&controller);
    let epoch = network.recent_epoch() - 1;
    network.tally(epoch, [3, 4, 5]);
    let report = controller.report("tally", epoch);
    assert_eq!((&report["system"], &report["complete"]), (&json!("tally"), &json!(true)));
    assert_eq!(report["start_unix_ns"], network.clock.start_of(epoch));
    let counts = json!([
        {"node": "e1", "id": 1, "packets": 6},
        {"node": "e2", "id": 2, "packets": 8},
        {"node": "s1", "id": 3, "packets": 5},
    ]);
    assert_eq!(report["counts"], counts);
    assert_eq!(controller.get_json("/api/v1/tally/epochs?last=1"), json!([report]));
    assert_eq!(controller.get_json("/api/v1/tally/windows?last=1"), json!([report]));
    assert_eq!(controller.get_json(&format!("/api/v1/tally/epochs/{epoch}")), report);
    assert_eq!(controller.get("/api/v1/tally/epochs/1").0, 404);
    let (status, problem) = controller.get("/api/v1/sixth/epochs");
    assert_eq!(status, 404);
    assert!(problem.contains("chamelemon") && problem.contains("tally"), "{problem}");
    let metrics = controller.get("/metrics").1;
    assert!(metrics.contains("calumma_tally_packets_total{node=\"s1\"} 5"), "{metrics}");

    // The one that follows: behind a gap, counts would be in doubt.
    let epoch = epoch + 1;
    network.edges.iter_mut().for_each(|edge| edge.tally(epoch, 1));
    network.chamelemon(&controller, epoch);
    let report = controller.report("tally", epoch);
    assert_eq!((&report["complete"], &report["missing_nodes"]), (&json!(false), &json!(["s1"])));
    let reason = "s1: no transit side and no seal came in time";
    // It is connected, and may stand still with packets that it will pass on.
    let because = report["incomplete_because"].as_array().unwrap();
    let of_edge = |of: &Value| of.as_str().unwrap().contains("may have been held up");
    assert!(because.len() == 3 && because[..2].iter().all(of_edge), "{because:?}");
    assert_eq!(because[2], reason);
    assert_eq!(report["counts"][2]["packets"], Value::Null);

    let nodes = controller.get_json("/api/v1/nodes");
    let shown: Vec<_> = nodes.as_array().unwrap().iter().map(|node| &node["systems"]).collect();
    assert_eq!(shown, [&json!(["chamelemon", "tally"]), shown[0], &json!(["tally"])]);
    assert_eq!((&nodes[2]["role"], &nodes[2]["id"]), (&json!("transit"), &json!(3)));
    assert_eq!(controller.get_json("/api/v1/edges").as_array().unwrap().len(), 2);

    // Once its own end has closed the connection, it does not.
    let Network { mut edges, transit, clock, .. } = network;
    drop(transit);
    wait_until("it is gone", || controller.get_json("/api/v1/nodes")[2]["connected"] == false);
    let first = clock.epoch_at(unix_ns()) + 1;
    wait_until("epochs are over", || clock.epoch_at(unix_ns()) > first + 2);
    for epoch in first..first + 3 {
        edges.iter_mut().for_each(|edge| edge.tally(epoch, 1));
    }
    let report = controller.report("tally", first + 2);
    assert_eq!(report["incomplete_because"], json!([reason]));
    controller.stop();
}

#[test]
fn an_analysis_that_is_slow_delays_no_other_systems_reports() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}\n[tally]\ngated = true"));
    let mut network = Network::join(&controller);
    let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = network.recent_epoch() - 3;
    network.tally(first, [1; 3]);
    network.chamelemon(&controller, first);
    let nodes = || controller.get_json("/api/v1/nodes");
    let of = |node: &Value, name: &str| node[name].as_u64().unwrap();
    wait_until("its epoch is being analysed", || {
        let frames: u64 = nodes().as_array().unwrap().iter().map(|node| of(node, "frames")).sum();
        frames >= 8 + 6
    });
    // Far more than its queue takes, none of them twice.
    for epoch in first - 1000..first {
        let late = Message::Sealed { system: TALLY, epoch, late_packets: 0, body: Vec::new() };
        network.edges.iter_mut().for_each(|edge| edge.send(&late));
    }
    network.chamelemon(&controller, first + 1);
    let dropped = || controller.get_json("/api/v1/systems")[1]["dropped_frames"].as_u64().unwrap();
    wait_until("frames are dropped and counted", || dropped() > 0);
    network.chamelemon(&controller, first + 2);
    assert!(controller.reports["tally"].try_recv().is_err());
    drop(gate);
    assert_eq!(controller.next("tally")["epoch"], first);
    // What waited is taken first: as long as the queue is full, an epoch's frames are dropped, too.
    wait_until("its queue is empty", || {
        let nodes = nodes();
        let late: u64 = (0..2).map(|at| of(&nodes[at], "late_frames")).sum();
        late + dropped() >= 2000
    });
    network.tally(first + 1, [1; 3]);
    assert_eq!(controller.report("tally", first + 1)["complete"], true);
    controller.stop();
}

#[test]
fn other_prefixes_hold_from_one_epoch_on_at_all_nodes_and_for_those_that_join_later() {
    let controller = Controller::start(PATIENT);
    let mut network = Network::join(&controller);
    let domain = "[domain]\nprefixes = ['10.0.0.0/8']";
    controller.running.reload(&config(&format!("{PATIENT}\n{domain}")));
    let welcomes = [0, 1].map(|at| network.edges[at].receive_welcome());
    let prefixes = |welcome: &Welcome| welcome.domain.prefixes().len();
    assert_eq!(welcomes.each_ref().map(prefixes), [1, 1]);
    assert_eq!(welcomes[0].effective_epoch, welcomes[1].effective_epoch);
    assert!(welcomes[0].effective_epoch > network.recent_epoch());
    assert_eq!(prefixes(&network.transit.receive_welcome()), 1);
    // The same once more changes nothing; none at all is measured by as before.
    controller.running.reload(&config(&format!("{PATIENT}\n{domain}")));
    controller.running.reload(&config(PATIENT));
    assert_eq!(prefixes(&network.edges[0].receive_welcome()), 0);
    controller.stop();
}

#[test]
fn systems_are_switched_on_and_off_while_epochs_come() {
    let controller = Controller::start(PATIENT);
    let mut network = Network::join(&controller);
    let ids =
        |welcome: &Welcome| welcome.systems.iter().map(|setup| setup.system).collect::<Vec<_>>();
    let before = network.recent_epoch();
    network.chamelemon(&controller, before);

    controller.running.reload(&config(&format!("{BOTH}{PATIENT}\n[tally]\nword = 7")));
    let welcomes = [0, 1].map(|at| network.edges[at].receive_welcome());
    let on = welcomes[0].effective_epoch;
    assert_eq!(welcomes.each_ref().map(ids), [(); 2].map(|()| vec![frames::ID, TALLY]));
    let transit = network.transit.receive_welcome();
    assert_eq!((ids(&transit), transit.effective_epoch), (vec![TALLY], on));
    assert_eq!((transit.node_id, transit.systems[0].version), (Some(3), 2));
    assert!(on > before + 1);
    wait_until("the first epoch with both", || network.recent_epoch() > on);
    network.tally(on - 1, [9; 3]);
    network.tally(on, [1; 3]);
    (before + 1..=on).for_each(|epoch| network.chamelemon(&controller, epoch));
    assert_eq!(controller.next("tally")["epoch"], on, "nothing of an epoch before");

    controller.running.reload(&config(PATIENT));
    let off = network.edges[0].receive_welcome();
    assert_eq!(ids(&off), [frames::ID]);
    assert_eq!(ids(&network.edges[1].receive_welcome()), [frames::ID]);
    let transit = network.transit.receive_welcome();
    let off = off.effective_epoch;
    assert_eq!((ids(&transit), transit.effective_epoch), (vec![], off));
    wait_until("the first epoch without it", || network.recent_epoch() > off + 1);
    (on + 1..=off).for_each(|epoch| network.tally(epoch, [epoch; 3]));
    (on + 1..=off).for_each(|epoch| network.chamelemon(&controller, epoch));
    for epoch in on + 1..off {
        let report = controller.next("tally");
        assert_eq!((&report["epoch"], &report["complete"]), (&json!(epoch), &json!(true)));
    }
    let tally = || controller.get_json("/api/v1/systems")[1].clone();
    assert_eq!((&tally()["system"], &tally()["on"]), (&json!("tally"), &json!(false)));
    network.chamelemon(&controller, off + 1);
    assert!(controller.reports["tally"].try_recv().is_err(), "nothing of it after its end");
    controller.stop();
}

#[test]
fn a_node_holds_an_epoch_until_all_of_its_systems_have_reported_it() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}\n[shifting]\nmode = 'static'"));
    let mut network = Network::join(&controller);
    let first = network.recent_epoch() - 1;
    network.chamelemon(&controller, first);
    network.chamelemon(&controller, first + 1);
    let attention =
        calumma_controller::config::AttentionSection { hl_buckets: 1024, ..Default::default() };
    controller.running.hub().change_attention(&attention, unix_ns()).unwrap();
    let edge = &mut network.edges[0];
    let fence = edge.receive();
    assert!(matches!(fence, Message::Reconfigure { .. }), "{fence:?} before tally reported");
    network.tally(first, [1; 3]);
    assert_eq!(network.edges[0].receive(), Message::Reported { epoch: first });
    assert_eq!(network.transit.receive(), Message::Reported { epoch: first });
    controller.stop();
}

#[test]
fn a_node_that_sends_what_it_does_not_run_or_nobody_can_read_is_cut_off_alone() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}"));
    let mut network = Network::join(&controller);
    let epoch = network.recent_epoch();
    // What a side of tally holds is 8 bytes.
    network.transit.send_side(epoch, SideKind::Transit, vec![0; 3]);
    assert_eq!(network.transit.receive_refusal(), "tally: 3 bytes instead of 8");
    let status = || controller.get_json("/api/v1/nodes")[2].clone();
    wait_until("it is gone", || status()["connected"] == false);
    assert_eq!(status()["last_problem"], "tally: 3 bytes instead of 8");

    let only = [TALLY_OFFER];
    let mut transit = FakeNode::introduce(&controller, "s1", Role::Transit, &only);
    transit.receive_welcome();
    transit.send(&Message::Sealed { system: frames::ID, epoch, late_packets: 0, body: Vec::new() });
    let refusal = transit.receive_refusal();
    assert_eq!(refusal, "a frame of chamelemon, which this transit does not run");
    wait_until("it is gone again", || status()["connected"] == false);
    let (mut transit, _) = FakeNode::join(&controller, "s1");
    transit.send_side(epoch, SideKind::Ingress, vec![0; 8]);
    let refusal = transit.receive_refusal();
    assert_eq!(refusal, "a side of tally (ingress) that no transit has");

    network.chamelemon(&controller, epoch);
    wait_until("it is gone at last", || status()["connected"] == false);
    (network.transit, _) = FakeNode::join(&controller, "s1");
    network.tally(epoch, [1; 3]);
    assert_eq!(controller.report("tally", epoch)["complete"], true);
    controller.stop();
}

#[test]
fn roles_and_systems_are_negotiated_and_refusals_say_why() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}"));
    let refusal = |name: &str, role, offers: &[Offer]| {
        FakeNode::introduce(&controller, name, role, offers).receive_refusal()
    };
    let wrong = refusal("s1", Role::Edge, &[frames::OFFER, TALLY_OFFER]);
    assert!(wrong.contains("\"s1\" is a transit here, and comes with role = \"edge\""), "{wrong}");
    let unknown = refusal("s9", Role::Transit, &[TALLY_OFFER]);
    assert!(unknown.contains("no transit is called \"s9\""), "{unknown}");
    assert!(!unknown.contains("s1"), "strangers learn names: {unknown}");
    let newer = Offer { system: TALLY, lowest: 3, highest: 4 };
    let newer = refusal("s1", Role::Transit, &[newer]);
    assert!(newer.contains("does not run version 2 of tally"), "{newer}");

    // An edge without one of the systems joins for the other.
    let mut e1 = FakeNode::introduce(&controller, "e1", Role::Edge, &[frames::OFFER]);
    let welcome = e1.receive_welcome();
    assert_eq!(welcome.systems.iter().map(|setup| setup.system).collect::<Vec<_>>(), [frames::ID]);
    let status = &controller.get_json("/api/v1/nodes")[0];
    assert_eq!(status["measuring_problem"], "it does not run version 2 of tally");
    controller.stop();
}

#[test]
fn a_nodes_number_is_the_same_after_a_restart_whatever_was_added() {
    let folder = std::env::temp_dir().join(format!("calumma-systems-{}", std::process::id()));
    let text = format!("{BOTH}state_dir = {:?}", folder.join("state"));
    let ids = |text: &str| {
        let controller = Controller::start(text);
        let id = |name| FakeNode::join(&controller, name).1.node_id.unwrap();
        let ids = ["e1", "e2", "s1"].map(id);
        controller.stop();
        ids
    };
    let first = ids(&text);
    assert!(!first.contains(&0));
    let more = format!("hosts = ['h1']\n{text}");
    assert_eq!(ids(&more), first);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn mistakes_about_systems_are_named_with_the_remedy() {
    let problem = |text: &str| Config::parse_for(SYSTEMS, text, "c.toml").unwrap_err().to_string();
    let unknown = problem("edges = ['e1']\nsystems = ['taly']");
    assert!(
        unknown.contains("there is no \"taly\"; known are [\"chamelemon\", \"tally\", \"hops\"]")
    );
    let twice = problem("edges = ['e1']\ntransits = ['e1']");
    assert!(twice.contains("transits: \"e1\" is named twice"), "{twice}");
    let typo = problem("edges = ['e1']\n[tally]\nword = 7\n[tasks]\nheavy = 7");
    assert!(typo.contains("line 5") && typo.contains("unknown field `heavy`"), "{typo}");
    let product = Config::parse("edges = ['e1']\n[tally]\nword = 7", "c.toml").unwrap_err();
    let product = product.to_string();
    assert!(product.contains("line 2") && product.contains("tally"), "{product}");

    let config = config(&format!("{BOTH}[tally]\nwrd = 7"));
    let runtime = Runtime::new().unwrap();
    let problem = runtime.block_on(start_with(SYSTEMS, config, Vec::new())).unwrap_err();
    let problem = format!("{problem:#}");
    assert!(problem.starts_with("[tally]: unknown field `wrd`"), "{problem}");
}
