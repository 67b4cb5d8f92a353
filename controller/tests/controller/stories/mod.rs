//! A controller and its edges over loopback TCP: real frames, real sockets, edges that come, go and
//! misbehave.

mod attacks;
mod attacks_http;
mod connections;
mod deliveries;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use crate::peer::Peer;
use crate::world::{World, flow};
use calumma_chamelemon::frames::{Holding, Message};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::config::Config;
use calumma_controller::report::EpochReport;
use calumma_controller::server::{Running, start, unix_ns};
use calumma_epoch::EpochClock;
use calumma_sketch::{HashKey, Key, WideKey};
use calumma_trust::{Role, Tokens};
use calumma_wire::{Marking, Outcome, SwitchKind, VERSION};
use tokio::runtime::Runtime;

pub(crate) use self::attacks::{connect_from, reports_go_on, resident_bytes};
pub(crate) use crate::peer::PATIENCE;

/// For stories in which every edge delivers, however slow the machine.
pub(crate) const PATIENT: &str = "grace_ms = 60000";

/// The same with a secret of their own, for stories whose flows load an encoder so much that by one
/// secret in forty they do not decode. Without it each controller draws one.
pub(crate) const PATIENT_BY_ONE_SECRET: &str = "grace_ms = 60000\n\
    hash_key = '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a'";

/// For stories in which something is missing.
const IMPATIENT: &str = "grace_ms = 1000";

/// The file of the tokens that every controller of this process knows, and one that may change
/// things.
pub(crate) fn tokens() -> (&'static Path, &'static str) {
    static TOKENS: LazyLock<(PathBuf, String)> = LazyLock::new(|| {
        let path = std::env::temp_dir().join(format!("calumma-stories-{}", std::process::id()));
        // Left behind by a process that had this number before.
        let _ = std::fs::remove_file(&path);
        let token = Tokens::add(&path, "ada", Role::Operate).unwrap();
        (path, token)
    });
    let (path, token) = &*TOKENS;
    (path, token)
}

/// A running controller and its reports.
pub(crate) struct Controller {
    pub(crate) runtime: Runtime,
    pub(crate) running: Running,
    reports: mpsc::Receiver<EpochReport>,
}

impl Controller {
    /// Returns once it has noticed that an edge is not connected any more.
    pub(crate) fn wait_until_gone(&self, name: &str) {
        let gone = || self.running.hub().edges().iter().any(|e| e.edge == name && !e.connected);
        let since = std::time::Instant::now();
        while !gone() {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn start(extra: &str) -> Self {
        Self::start_with(&["e1", "e2"], extra)
    }

    /// The same with other edges.
    fn start_with(edges: &[&str], extra: &str) -> Self {
        let (tokens, _) = tokens();
        let text = format!(
            "edges = {edges:?}\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n\
             tokens = {tokens:?}\n{extra}"
        );
        Self::start_by(&text)
    }

    /// By a whole configuration.
    pub(crate) fn start_by(text: &str) -> Self {
        let config = Config::parse(text, "test.toml").unwrap();
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
        self.request(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ))
        .1
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, serde_json::Value) {
        self.request(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            tokens().1,
            body.len()
        ))
    }

    /// The body of an answer, whatever it is.
    pub(crate) fn get_text(&self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = self.answer(&request);
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    pub(crate) fn request(&self, request: &str) -> (u16, serde_json::Value) {
        let answer = self.answer(request);
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap())
    }

    fn answer(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.running.http().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Stops the controller and gives what it still reported.
    pub(crate) fn stop(self) -> Vec<EpochReport> {
        self.runtime.block_on(self.running.stop()).unwrap();
        self.reports.try_iter().collect()
    }
}

/// An edge's end of the connection.
pub(crate) struct Edge {
    peer: Peer,
    /// The version of the controller's last frame.
    received_version: u8,
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
        Self::introduce_at(controller.running.listen(), hello, version)
    }

    /// The same where the controller is reached at another address.
    pub(crate) fn introduce_at(address: SocketAddr, hello: &Message, version: u8) -> Self {
        let peer = Peer::connect(address, version);
        peer.send_bytes(&encoded_as(hello, version));
        let (received_version, welcome) = peer.next().expect("a welcome");
        match Message::read(welcome, None).unwrap() {
            Some(Message::Welcome {
                layout, hash_key, epoch_length_ns, guards, attention, ..
            }) => {
                let clock = EpochClock::new(epoch_length_ns, guards).unwrap();
                Self { peer, received_version, version, layout, hash_key, clock, attention }
            }
            other => panic!("{other:?} instead of a welcome"),
        }
    }

    /// Joins as soon as the controller has noticed that the last connection is gone.
    pub(crate) fn rejoin(controller: &Controller, name: &str) -> Self {
        controller.wait_until_gone(name);
        Self::join(controller, name)
    }

    /// The key that it hashes by.
    pub(crate) fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// Hashes by another key from here on.
    pub(crate) fn set_hash_key(&mut self, hash_key: HashKey) {
        self.hash_key = hash_key;
    }

    /// The epoch that has just passed.
    pub(crate) fn recent_epoch(&self) -> u64 {
        self.clock.epoch_at(unix_ns()) - 1
    }

    /// The epoch that runs now, once it has passed: one that nothing has been reported of.
    pub(crate) fn next_epoch(&self) -> u64 {
        let running = self.clock.epoch_at(unix_ns());
        self.wait_until_over(running);
        running
    }

    /// Returns once `epoch` has passed: what is delivered of a later one is out of window.
    pub(crate) fn wait_until_over(&self, epoch: u64) {
        while self.recent_epoch() < epoch {
            std::thread::sleep(Duration::from_millis(2));
        }
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
        frames(world, position).iter().for_each(|frame| self.send(frame));
    }

    /// Measures an epoch of [`traffic`] with the other edge, and delivers it; gives what there was
    /// of it.
    pub(crate) fn deliver_traffic(&mut self, other: &mut Self, epoch: u64) -> World {
        let mut world = self.world(epoch);
        traffic(&mut world);
        self.deliver(&world, 0);
        other.deliver(&world, 1);
        world
    }

    pub(crate) fn send(&mut self, message: &Message) {
        self.send_bytes(&encoded_as(message, self.version));
    }

    /// The epoch after two in which both edges deliver everything: they leave nothing to it.
    pub(crate) fn settled_epoch(&mut self, other: &mut Self) -> u64 {
        let first = self.recent_epoch() - 2;
        for epoch in first..first + 2 {
            let world = self.world(epoch);
            self.deliver(&world, 0);
            other.deliver(&world, 1);
        }
        first + 2
    }

    /// Lets its clock be ahead, and waits until the controller knows.
    pub(crate) fn set_clock(&self, ahead_ns: u64) {
        self.peer.set_clock(ahead_ns);
    }

    /// The next message but probes; `None` where the controller closed the connection.
    fn next(&mut self) -> Option<Message> {
        loop {
            let (version, message) = self.peer.next()?;
            self.received_version = version;
            if let Some(message) = Message::read(message, None).unwrap() {
                return Some(message);
            }
        }
    }

    /// The epoch that the controller says next it has reported.
    fn receive_reported(&mut self) -> u64 {
        loop {
            if let Message::Reported { epoch } = self.next().expect("a notice") {
                return epoch;
            }
        }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.peer.send_bytes(bytes);
    }

    /// The version of the controller's last frame.
    pub(crate) fn received_version(&self) -> u8 {
        self.received_version
    }

    /// The next message but probes and notices of what has been reported.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        loop {
            match self.next() {
                Some(Message::Reported { .. }) => {}
                message => return message,
            }
        }
    }
}

pub(crate) fn frames<K: Key>(world: &World<K>, position: usize) -> [Message; 3] {
    let input = world.inputs().swap_remove(position);
    [
        Message::Ingress(input.ingress.unwrap()),
        Message::Egress(input.egress.unwrap()),
        Message::Sealed { epoch: world.epoch, late_packets: 0, late: Vec::new() },
    ]
}

pub(crate) fn lost<K: Key>(report: &EpochReport) -> BTreeMap<K, u64> {
    report.loss.iter().map(|loss| (loss.flow.key().unwrap(), loss.lost)).collect()
}

/// What the controller says to whoever begins with these bytes.
pub(crate) fn refused(controller: &Controller, bytes: &[u8]) -> String {
    let peer = Peer::connect(controller.running.listen(), VERSION);
    peer.send_bytes(bytes);
    match peer.next() {
        Some((_, calumma_wire::Message::Refused { reason })) => reason,
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
