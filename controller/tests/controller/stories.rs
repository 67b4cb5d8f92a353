//! A controller and its edges over loopback TCP: real frames, real sockets, edges that come, go and
//! misbehave.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::world::{World, flow};
use calumma_chamelemon::frames::{FrameReader, Holding, Message};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::config::Config;
use calumma_controller::report::EpochReport;
use calumma_controller::server::{Running, start, unix_ns};
use calumma_epoch::EpochClock;
use calumma_sketch::{HashKey, Key, WideKey};
use calumma_wire::{Marking, Outcome, SwitchKind, VERSION};
use tokio::runtime::Runtime;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// For stories in which every edge delivers, however slow the machine.
pub(crate) const PATIENT: &str = "grace_ms = 60000";

/// For stories in which something is missing.
const IMPATIENT: &str = "grace_ms = 1000";

/// A running controller and its reports.
pub(crate) struct Controller {
    runtime: Runtime,
    pub(crate) running: Running,
    reports: mpsc::Receiver<EpochReport>,
}

impl Controller {
    pub(crate) fn start(extra: &str) -> Self {
        let text =
            format!("edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n{extra}");
        let config = Config::parse(&text, "test.toml").unwrap();
        let runtime = Runtime::new().unwrap();
        let (sender, reports) = mpsc::channel();
        let running = runtime.block_on(start(config, vec![Box::new(sender)])).unwrap();
        Self { runtime, running, reports }
    }

    /// The report on `epoch`; earlier ones are passed over.
    pub(crate) fn report(&self, epoch: u64) -> EpochReport {
        loop {
            let report = self.reports.recv_timeout(PATIENCE).expect("a report in time");
            assert!(report.epoch <= epoch, "epoch {epoch} was never reported");
            if report.epoch == epoch {
                return report;
            }
        }
    }

    pub(crate) fn get(&self, path: &str) -> serde_json::Value {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")).1
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, serde_json::Value) {
        self.request(&format!(
            "POST {path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    pub(crate) fn request(&self, request: &str) -> (u16, serde_json::Value) {
        let mut stream = TcpStream::connect(self.running.http().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap())
    }

    /// Stops the controller and gives what it still reported.
    pub(crate) fn stop(self) -> Vec<EpochReport> {
        self.runtime.block_on(self.running.stop()).unwrap();
        self.reports.try_iter().collect()
    }
}

/// An edge's end of the connection.
pub(crate) struct Edge {
    stream: TcpStream,
    reader: FrameReader,
    /// The version of the protocol that it speaks.
    version: u8,
    layout: Layout,
    hash_key: HashKey,
    clock: EpochClock,
    pub(crate) attention: Attention,
}

pub(crate) fn hello(name: &str) -> Message {
    let program = "a test".to_owned();
    Message::Hello {
        edge: name.to_owned(),
        kind: SwitchKind::Software,
        program,
        holding: None,
        marking: Marking::default(),
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

/// The frame of a message in another version of the protocol.
pub(crate) fn encoded_as(message: &Message, version: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    assert!(message.to_wire().encode_as(version, &mut frame));
    frame
}

/// The next message, `None` where the controller closed the connection.
fn read(stream: &mut TcpStream, reader: &mut FrameReader) -> Option<Message> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(message) = reader.next(None).unwrap() {
            return Some(message);
        }
        match stream.read(&mut bytes).expect("an answer in time") {
            0 => return None,
            read => reader.push(&bytes[..read]),
        }
    }
}

impl Edge {
    pub(crate) fn join(controller: &Controller, name: &str) -> Self {
        Self::introduce(controller, hello(name))
    }

    /// Joins as an edge that measures under `attention` already.
    fn join_measuring(controller: &Controller, name: &str, attention: Attention) -> Self {
        Self::introduce(
            controller,
            Message::Hello {
                edge: name.to_owned(),
                kind: SwitchKind::Software,
                program: "a test".to_owned(),
                holding: Some(Holding { attention, effective_epoch: 1 }),
                marking: Marking::default(),
            },
        )
    }

    pub(crate) fn introduce(controller: &Controller, hello: Message) -> Self {
        Self::introduce_as(controller, &hello, VERSION)
    }

    /// The same in another version of the protocol.
    pub(crate) fn introduce_as(controller: &Controller, hello: &Message, version: u8) -> Self {
        let mut stream = connect(controller.running.listen());
        stream.write_all(&encoded_as(hello, version)).unwrap();
        let mut reader = FrameReader::new();
        match read(&mut stream, &mut reader) {
            Some(Message::Welcome {
                layout, hash_key, epoch_length_ns, guards, attention, ..
            }) => {
                let clock = EpochClock::new(epoch_length_ns, guards).unwrap();
                Self { stream, reader, version, layout, hash_key, clock, attention }
            }
            other => panic!("{other:?} instead of a welcome"),
        }
    }

    /// Joins as soon as the controller has noticed that the last connection is gone.
    pub(crate) fn rejoin(controller: &Controller, name: &str) -> Self {
        let gone =
            || controller.running.hub().edges().iter().any(|e| e.edge == name && !e.connected);
        let since = std::time::Instant::now();
        while !gone() {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(2));
        }
        Self::join(controller, name)
    }

    /// The epoch that has just passed.
    pub(crate) fn recent_epoch(&self) -> u64 {
        self.clock.epoch_at(unix_ns()) - 1
    }

    pub(crate) fn world(&self, epoch: u64) -> World {
        World::new(&["e1", "e2"], &self.layout, &self.hash_key, self.attention, epoch)
    }

    /// The same by keys that hold both families.
    pub(crate) fn wide_world(&self, epoch: u64) -> World<WideKey> {
        World::new(&["e1", "e2"], &self.layout, &self.hash_key, self.attention, epoch)
    }

    /// Sends all that the edge at `position` of `world` has measured.
    pub(crate) fn deliver<K: Key>(&mut self, world: &World<K>, position: usize) {
        frames(world, position).iter().for_each(|frame| self.say(frame));
    }

    pub(crate) fn say(&mut self, message: &Message) {
        self.stream.write_all(&encoded_as(message, self.version)).unwrap();
    }

    /// Answers the next probe by a clock that is `ahead_ns` ahead.
    fn answer_probe(&mut self, ahead_ns: u64) {
        loop {
            let message = read(&mut self.stream, &mut self.reader).expect("a probe");
            if let Message::Probe { sent_ns } = message {
                let now_ns = unix_ns() + ahead_ns;
                return self.say(&Message::Echo {
                    sent_ns,
                    received_ns: now_ns,
                    answered_ns: now_ns,
                });
            }
        }
    }

    /// The epoch that the controller says next it has reported.
    fn hear_reported(&mut self) -> u64 {
        loop {
            let message = read(&mut self.stream, &mut self.reader).expect("a notice");
            if let Message::Reported { epoch } = message {
                return epoch;
            }
        }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The version of the controller's last frame.
    pub(crate) fn heard_version(&self) -> u8 {
        self.reader.version()
    }

    /// The next message but probes and notices of what has been reported.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        loop {
            match read(&mut self.stream, &mut self.reader) {
                Some(Message::Probe { .. } | Message::Reported { .. }) => {}
                message => return message,
            }
        }
    }
}

fn frames<K: Key>(world: &World<K>, position: usize) -> [Message; 3] {
    let input = world.inputs().swap_remove(position);
    [
        Message::Ingress(input.ingress.unwrap()),
        Message::Egress(input.egress.unwrap()),
        Message::Sealed { epoch: world.epoch, late_packets: 0 },
    ]
}

pub(crate) fn lost<K: Key>(report: &EpochReport) -> BTreeMap<K, u64> {
    report.loss.iter().map(|loss| (loss.flow.key().unwrap(), loss.lost)).collect()
}

/// What the controller says to whoever begins with these bytes.
pub(crate) fn refused(controller: &Controller, bytes: &[u8]) -> String {
    let mut stream = connect(controller.running.listen());
    stream.write_all(bytes).unwrap();
    match read(&mut stream, &mut FrameReader::new()) {
        Some(Message::Refused { reason }) => reason,
        other => panic!("{other:?} instead of a refusal"),
    }
}

/// 200 flows of which every seventh loses its second packet.
pub(crate) fn traffic(world: &mut World) {
    for n in 0..200 {
        world.send((0, 1), flow(n), 3 + u64::from(n), |position| n % 7 == 0 && position == 1);
        world.send((1, 0), flow(1000 + n), 2, |_| false);
    }
}

#[test]
fn two_edges_deliver_epochs_and_every_lost_packet_is_named() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    assert_eq!((e1.hash_key, &e1.layout), (e2.hash_key, &e2.layout));
    let first = e1.recent_epoch() - 2;
    for epoch in first..first + 3 {
        let mut world = e1.world(epoch);
        traffic(&mut world);
        e2.deliver(&world, 1);
        e1.deliver(&world, 0);
        let report = controller.report(epoch);
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(lost(&report), world.lost);
        assert_eq!(report.edges[0].heavy_changes_since, (epoch > first).then(|| epoch - 1));
    }

    let reports = controller.get("/api/v1/epochs?last=2");
    assert_eq!(reports.as_array().unwrap().len(), 2);
    assert_eq!(reports[1]["epoch"], first + 2);
    assert_eq!(reports[1]["loss"].as_array().unwrap().len(), 29);
    let edges = controller.get("/api/v1/edges");
    assert_eq!((&edges[0]["edge"], &edges[0]["connected"]), (&"e1".into(), &true.into()));
    assert_eq!(edges[0]["frames"], 9);
    let sizes =
        controller.get("/api/v1/flows?src=10.1.0.2&dst=10.2.0.0&sport=7&dport=5201&proto=6");
    assert_eq!((&sizes[0]["edge"], &sizes[0]["size"]), (&"e1".into(), &10.into()));
    let health = controller.get("/healthz");
    assert_eq!(health["edges"], serde_json::json!([2, 2]));
}

#[test]
fn an_edge_that_is_missing_makes_epochs_incomplete_until_it_is_there() {
    let controller = Controller::start(IMPATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    let report = controller.report(epoch);
    assert!(!report.complete && report.loss.is_empty());
    assert_eq!(report.missing_edges, ["e2"]);
    assert_eq!(report.incomplete_because, ["e2: nothing came in time"]);

    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e2.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(report.complete);
    assert_eq!(lost(&report), world.lost);
}

#[test]
fn what_comes_late_changes_no_report() {
    let controller = Controller::start(IMPATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    let [ingress, egress, seal] = frames(&world, 1);
    e2.say(&ingress);
    let report = controller.report(epoch);
    assert_eq!(report.incomplete_because, ["e2: no egress side and no seal came in time"]);
    e2.say(&egress);
    e2.say(&seal);

    let epoch = e2.recent_epoch();
    let world = e1.world(epoch);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    assert!(controller.report(epoch).complete);
    let status = &controller.running.hub().edges()[1];
    assert_eq!((status.late_frames, status.connected), (2, true));
}

#[test]
fn frames_sent_twice_count_once() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    for frame in &frames(&world, 0) {
        e1.say(frame);
        e1.say(frame);
    }
    std::thread::sleep(Duration::from_millis(50));
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));
    assert_eq!(controller.running.hub().edges()[0].duplicate_frames, 3);
}

#[test]
fn an_edge_that_reconnects_within_an_epoch_loses_nothing_it_still_sends() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    let [ingress, egress, seal] = frames(&world, 0);
    e1.say(&ingress);
    drop(e1);
    let mut e1 = Edge::rejoin(&controller, "e1");
    e1.say(&egress);
    e1.say(&seal);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));
    assert_eq!(controller.running.hub().edges()[0].connections, 2);
}

#[test]
fn an_edge_that_sends_rubbish_is_cut_off_and_the_others_go_on() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let mut rubbish = encoded(&Message::Sealed { epoch: 1, late_packets: 0 });
    rubbish[7] = 0x77;
    e2.stream.write_all(&rubbish).unwrap();
    let Some(Message::Refused { reason }) = e2.hear() else { panic!("a reason") };
    assert_eq!(reason, "byte 7 of a frame: there is no frame of kind 0x77");
    assert_eq!(e2.hear(), None, "the connection is closed");

    let mut e2 = Edge::rejoin(&controller, "e2");
    assert_eq!(controller.running.hub().edges()[1].last_problem.as_ref(), Some(&reason));
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    assert_eq!(lost(&controller.report(epoch)), world.lost);
}

#[test]
fn strangers_doubles_and_other_versions_are_refused_with_a_reason() {
    let controller = Controller::start(PATIENT);
    let _e1 = Edge::join(&controller, "e1");
    let refusal = |bytes: &[u8]| refused(&controller, bytes);
    let frame = |message: Message| encoded(&message);
    let unknown = refusal(&frame(hello("e9")));
    assert!(unknown.contains("no edge is called \"e9\"") && unknown.contains("\"e1\", \"e2\""));
    let double = refusal(&frame(hello("e1")));
    assert!(double.contains("already connected from 127.0.0.1:"), "{double}");
    let mut version = frame(hello("e2"));
    version[6] = 9;
    let version = refusal(&version);
    assert!(version.contains("version 9") && version.contains("same release"), "{version}");
    let browser = refusal(b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n");
    assert!(browser.contains("is the peer a Calumma program?"), "{browser}");
    let early = refusal(&frame(Message::Sealed { epoch: 1, late_packets: 0 }));
    assert!(early.contains("a sealed frame came before hello"), "{early}");
}

#[test]
fn edges_under_different_attention_make_an_epoch_incomplete() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let world = e1.world(epoch);
    e1.deliver(&world, 0);
    e2.attention = Attention::healthy(&e2.layout, 1024);
    let world = e2.world(epoch);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(!report.complete && report.missing_edges.is_empty());
    assert!(report.incomplete_because[0].contains("hh/hl/ll 3072/1024/0"), "{report:?}");
}

#[test]
fn new_attention_reaches_every_edge_with_the_same_epoch_and_a_late_one_is_told_again() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let body = r#"{"hl_buckets": 1024}"#;
    let post = |body: &str| controller.post("/api/v1/attention", body);
    let (status, answer) = post(body);
    assert_eq!(status, 200);
    let effective = answer["effective_epoch"].as_u64().unwrap();
    assert!(effective > e1.clock.epoch_at(unix_ns()));
    for edge in [&mut e1, &mut e2] {
        let Some(Message::Reconfigure { effective_epoch, attention }) = edge.hear() else {
            panic!("a reconfiguration")
        };
        assert_eq!((effective_epoch, attention.partition.hl), (effective, 1024));
    }
    e1.say(&Message::Applied { effective_epoch: effective, outcome: Outcome::Accepted });
    let outcome = Outcome::TooLate { earliest: effective + 5 };
    e2.say(&Message::Applied { effective_epoch: effective, outcome });
    let Some(Message::Reconfigure { effective_epoch, attention }) = e2.hear() else {
        panic!("a second chance")
    };
    assert_eq!((effective_epoch, attention.partition.hl), (effective + 6, 1024));

    assert_eq!(post(body).1["effective_epoch"], serde_json::Value::Null, "it holds already");
    let (status, answer) = post(r#"{"hl_buckets": 4000}"#);
    assert_eq!(status, 422);
    assert!(answer["error"].as_str().unwrap().contains("the downstream encoder has 3072"));

    drop(e1);
    let e1 = Edge::rejoin(&controller, "e1");
    assert_eq!(e1.attention.partition.hl, 1024, "a new connection begins with what holds now");
}

#[test]
fn a_controller_that_stops_reports_what_is_pending_first() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let epoch = e1.recent_epoch();
    let world = e1.world(epoch);
    e1.deliver(&world, 0);
    while controller.running.hub().edges()[0].frames < 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let reports = controller.stop();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].epoch, reports[0].complete), (epoch, false));
    assert_eq!(reports[0].missing_edges, ["e2"]);
    assert_eq!(e1.hear(), None, "edges see the connection close");
}

#[test]
fn an_epoch_at_the_papers_full_load_comes_through_whole() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    // Two thirds of the HH encoders' 3 x 3584 buckets and of the HL encoder's 3 x 512.
    for n in 0..7000 {
        world.send((0, 1), flow(n), 20, |position| n % 14 == 0 && position < 5);
        world.send((1, 0), flow(100_000 + n), 20, |position| n % 14 == 0 && position == 19);
    }
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(report.complete, "{:?}", report.incomplete_because);
    assert_eq!(lost(&report), world.lost);
    assert_eq!(report.edges[0].cardinality, Some(7000.0));
}

#[test]
fn an_edge_whose_clock_is_beyond_the_guard_is_named_and_its_epochs_are_incomplete() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let status = |at: usize| controller.running.hub().edges()[at].clone();
    for _ in 0..4 {
        e1.answer_probe(0);
        e2.answer_probe(4_000_000);
    }
    let since = std::time::Instant::now();
    while status(1).clock_problem.is_none() {
        assert!(since.elapsed() < PATIENCE, "{:?}", status(1));
        e1.answer_probe(0);
        e2.answer_probe(4_000_000);
    }
    let (offset, error) = (status(1).clock_offset_ms.unwrap(), status(1).clock_error_ms.unwrap());
    assert!((offset - 4.0).abs() <= error, "{offset} +- {error}");
    assert!(status(1).path_delay_ms.unwrap() > 0.0);

    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(!report.complete && report.loss.is_empty() && report.missing_edges.is_empty());
    let [reason] = report.incomplete_because.as_slice() else { panic!("{report:?}") };
    assert!(
        reason.starts_with("e2: its clock is ") && reason.contains("ahead of e1's"),
        "{reason}"
    );
    assert_eq!(controller.get("/api/v1/edges")[0]["clock_problem"], serde_json::Value::Null);
}

#[test]
fn a_controller_that_starts_anew_takes_in_what_edges_held_and_changes_nothing_unasked() {
    let controller = Controller::start(&format!("{PATIENT}\n[shifting]\nmode = 'static'"));
    let layout = Layout::default();
    let held = Attention::healthy(&layout, 768);
    let mut e1 = Edge::join_measuring(&controller, "e1", held);
    let mut e2 = Edge::join_measuring(&controller, "e2", held);
    assert_eq!((e1.attention, e2.attention), (held, held), "what they measure by already");
    let first = e1.recent_epoch() - 40;
    let worlds: Vec<World> = (first..first + 3)
        .map(|epoch| {
            let mut world = e1.world(epoch);
            traffic(&mut world);
            world
        })
        .collect();
    worlds.iter().for_each(|world| e1.deliver(world, 0));
    worlds.iter().for_each(|world| e2.deliver(world, 1));
    for world in &worlds {
        let report = controller.report(world.epoch);
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(lost(&report), world.lost);
    }
    // Once an epoch has been reported, the state of the switches is known, and what the
    // configuration asks for is put in force.
    assert_eq!(e1.hear_reported(), first);
    let Some(Message::Reconfigure { effective_epoch, attention }) = e1.hear() else {
        panic!("the configuration's attention")
    };
    assert!(effective_epoch > e1.clock.epoch_at(unix_ns()));
    assert_eq!(attention, Attention::healthy(&layout, 512));
    assert_eq!([(); 3].map(|()| e2.hear_reported()), [first, first + 1, first + 2]);
}

#[test]
fn reports_say_when_each_step_was_done() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let world = e1.world(epoch);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let timing = controller.report(epoch).timing.unwrap();
    assert!(timing.ingress_ms > 0.0 && timing.egress_ms >= timing.ingress_ms, "{timing:?}");
    assert!(timing.planned_ms > timing.egress_ms && timing.published_ms > timing.planned_ms);
}

#[test]
fn whatever_an_edge_sends_costs_its_own_epoch_and_no_other_edge() {
    let controller = Controller::start(IMPATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    type Spoil = fn(&World) -> Vec<u8>;
    let cases: [(&str, Spoil); 6] = [
        ("byte 6 of a frame: the peer speaks version 9", |world| {
            let mut bytes = encoded(&frames(world, 1)[0]);
            bytes[6] = 9;
            bytes
        }),
        ("an ingress side: attention: hh + hl + ll = 2048 buckets", |world| {
            let layout =
                Layout { upstream_buckets: 2048, downstream_buckets: 1024, ..Layout::default() };
            let attention = Attention::healthy(&layout, 512);
            let edges = ["e1", "e2"];
            let foreign: World =
                World::new(&edges, &layout, &HashKey::from_bytes([3; 32]), attention, world.epoch);
            encoded(&frames(&foreign, 1)[0])
        }),
        ("bytes are left over after the last field", |world| {
            let mut bytes = encoded(&frames(world, 1)[1]);
            bytes.push(0);
            let length = bytes.len() as u32 - 4;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes
        }),
        ("an egress side: downstream encoder needs", |world| {
            let mut bytes = encoded(&frames(world, 1)[1]);
            bytes.truncate(bytes.len() - 3);
            let length = bytes.len() as u32 - 4;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes
        }),
        ("a length of 4294967299 bytes", |_| u32::MAX.to_le_bytes().repeat(2)),
        ("a reported frame, which no controller expects", |world| {
            encoded(&Message::Reported { epoch: world.epoch })
        }),
    ];
    // None hangs up when it's refused, and each comes back all the same.
    let mut refused = Vec::new();
    for (problem, spoil) in cases {
        let mut e2 = Edge::join(&controller, "e2");
        let epoch = e1.recent_epoch();
        let mut world = e1.world(epoch);
        traffic(&mut world);
        e1.deliver(&world, 0);
        e2.stream.write_all(&spoil(&world)).unwrap();
        let Some(Message::Refused { reason }) = e2.hear() else { panic!("a reason: {problem}") };
        assert!(reason.contains(problem), "{reason} for {problem}");
        let status = controller.running.hub().edges();
        assert_eq!((status[1].connected, status[1].last_problem.as_ref()), (false, Some(&reason)));
        assert!(status[0].connected && status[0].last_problem.is_none());
        refused.push(e2);
        let report = controller.report(epoch);
        assert_eq!(report.missing_edges, ["e2"], "{problem}");
        assert_eq!(report.edges[0].packets_in, Some(world.sent[0].values().sum()));
    }

    // Frames that can be read, but of an epoch that nobody can have measured.
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e2.say(&Message::Sealed { epoch: epoch + 1_000_000, late_packets: 0 });
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));
    assert_eq!(controller.running.hub().edges()[1].astray_frames, 1);
}
