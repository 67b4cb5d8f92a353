//! The hash key changes: what nodes are sent, what the disk has, and what is read by which key.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::Message;
use calumma_controller::api::KeyChangeBy;
use calumma_sketch::HashKey;
use calumma_wire::{VERSION, v5};
use serde_json::json;

use crate::peer::Peer;
use crate::stories::{
    Controller, Edge, PATIENCE, PATIENT, encoded, frames, hello, lost, tokens, traffic,
};

/// A state directory of a test's own.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn config(&self) -> String {
        format!("{PATIENT}\nstate_dir = {:?}", self.0)
    }

    fn key(&self) -> String {
        std::fs::read_to_string(self.0.join("hash_key")).unwrap()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The key that an edge is sent, and from which epoch on it holds.
fn receive_key(edge: &mut Edge) -> (HashKey, u64) {
    match edge.receive() {
        Some(Message::Welcome { hash_key, effective_epoch, .. }) => (hash_key, effective_epoch),
        other => panic!("{other:?} instead of a welcome"),
    }
}

fn wait_until_over(edge: &Edge, epoch: u64) {
    let since = Instant::now();
    while edge.recent_epoch() < epoch {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn rotate(controller: &Controller) -> (u16, serde_json::Value) {
    controller.post("/api/v1/hash-key/rotate", "")
}

#[test]
fn all_edges_get_another_key_for_the_same_epoch_once_the_disk_has_it() {
    let state = State::new("rotate");
    let controller = Controller::start(&state.config());
    let mut edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let old = edges[0].hash_key();
    assert_eq!(
        controller.get("/api/v1/hash-key"),
        json!({
            "since_epoch": 0, "changes": {"operator": 0, "start": 0, "suspicion": 0}, "last": null,
            "stays": null,
        })
    );

    let rotate_key = || {
        Command::new(env!("CARGO_BIN_EXE_calumma"))
            .args(["--controller", &controller.running.http().unwrap().to_string(), "rotate-key"])
            .env("CALUMMA_TOKEN", crate::stories::tokens().1)
            .output()
            .unwrap()
    };
    let mut said = rotate_key();
    // A disk that others keep busy may take longer than the change can wait.
    while String::from_utf8_lossy(&said.stderr).contains("too slow to keep a hash key in time") {
        said = rotate_key();
    }
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let sent: Vec<_> = edges.iter_mut().map(receive_key).collect();
    let (new, from) = sent[0];
    assert_eq!(sent[1], (new, from));
    assert_ne!(new, old);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains(&format!("from epoch {from} on")), "{said}");
    let hex: String = new.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(state.key().trim(), hex);

    // Another one at once is refused.
    let (status, answer) = rotate(&controller);
    assert_eq!(status, 409, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains(&format!("epoch {from} already")));

    // Each epoch is read by its own key, and one of the other key is not.
    wait_until_over(&edges[0], from + 1);
    for (epoch, key) in [(from - 1, old), (from, new)] {
        edges.iter_mut().for_each(|edge| edge.set_hash_key(key));
        let mut world = edges[0].world(epoch);
        traffic(&mut world);
        for (position, edge) in edges.iter_mut().enumerate() {
            edge.deliver(&world, position);
        }
        let report = controller.report(epoch);
        assert_eq!((report.complete, lost(&report)), (true, world.lost), "epoch {epoch}");
    }
    let mut world = edges[0].world(from + 1);
    traffic(&mut world);
    edges[0].deliver(&world, 0);
    for message in frames(&world, 1) {
        edges[1].send(&match message {
            Message::Egress(mut side) => {
                side.key = Some(old.id());
                Message::Egress(side)
            }
            other => other,
        });
    }
    let report = controller.report(from + 1);
    assert!(!report.complete && report.loss.is_empty());
    assert_eq!(report.missing_edges, ["e2"]);
    let because = &report.incomplete_because;
    assert!(because.len() == 1 && because[0].contains("another key"), "{because:?}");

    let status = controller.get("/api/v1/hash-key");
    assert_eq!((&status["since_epoch"], &status["changes"]["operator"]), (&json!(from), &json!(1)));
    let last = &status["last"];
    assert_eq!((&last["by"], &last["effective_epoch"]), (&json!("operator"), &json!(from)));
    controller.stop();

    // The next one goes on by it.
    let controller = Controller::start(&state.config());
    assert_eq!(Edge::join(&controller, "e1").hash_key(), new);
}

#[test]
fn a_controller_that_is_to_changes_the_key_at_its_start_once_all_are_there() {
    let state = State::new("rotate-start");
    let kept = {
        let controller = Controller::start(&state.config());
        let key = Edge::join(&controller, "e1").hash_key();
        controller.stop();
        key
    };
    let at_start = format!("{}\n[key_rotation]\nat_start = true", state.config());
    let controller = Controller::start(&at_start);
    let mut e1 = Edge::join(&controller, "e1");
    // Edges that measure already go on by the key that they know.
    assert_eq!(e1.hash_key(), kept);
    let mut e2 = Edge::join(&controller, "e2");
    let (new, from) = receive_key(&mut e1);
    assert_eq!(receive_key(&mut e2), (new, from));
    assert_ne!(new, kept);
    assert!(from > e1.recent_epoch());
    controller.stop();
    // Not again a moment later: whoever can have it restarted can't have keys changed at will.
    let controller = Controller::start(&at_start);
    let _edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let since = Instant::now();
    let status = loop {
        let status = controller.get("/api/v1/hash-key");
        if !status["stays"].is_null() {
            break status;
        }
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    };
    let stays = status["stays"].as_str().unwrap();
    assert!(stays.contains("changed a short time ago"), "{stays}");
    assert_eq!((&status["changes"]["start"], &status["since_epoch"]), (&json!(0), &json!(from)));
}

#[test]
fn a_key_stays_where_it_is_configured_or_a_switch_can_not_follow() {
    let configured = format!("{PATIENT}\nhash_key = '{}'", "07".repeat(32));
    let controller = Controller::start(&configured);
    let (status, answer) = rotate(&controller);
    assert_eq!(status, 409);
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("hash_key is set") && error.contains("set state_dir"), "{error}");
    controller.stop();

    let public = format!("{PATIENT}\nhash_generators = 'public'");
    let controller = Controller::start(&public);
    let mut new = Edge::join(&controller, "e2");
    let old = Edge::introduce_as(&controller, &hello("e1"), v5::VERSION);
    let (status, answer) = rotate(&controller);
    assert_eq!(status, 409);
    let error = answer["error"].as_str().unwrap();
    assert!(error.starts_with("e1 speaks version 5") && error.contains("update"), "{error}");
    // Without it, it is changed.
    drop(old);
    let since = Instant::now();
    while rotate(&controller).0 != 200 {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(receive_key(&mut new).0.has_public_generators());
}

/// A disk that stands still: the key is read from a pipe, which says nothing for a while.
#[test]
fn nodes_that_wait_for_a_slow_disk_hold_up_none_that_are_there() {
    let state = State::new("stalled");
    let names: Vec<String> = (1..10).map(|at| format!("e{at}")).collect();
    let controller = Controller::start_by(&format!(
        "edges = {names:?}\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\ntokens = {:?}\n{}",
        tokens().0,
        state.config()
    ));
    let e1 = Edge::join(&controller, "e1");
    let (path, key) = (state.0.join("hash_key"), state.key());
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let hub = controller.running.hub().clone();
    let rotating = std::thread::spawn(move || hub.rotate_key(KeyChangeBy::Operator, "a test"));
    // It can be opened once it is read.
    let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();

    let coming: Vec<Peer> = names[1..]
        .iter()
        .map(|name| {
            let peer = Peer::connect(controller.running.listen(), VERSION);
            peer.send_bytes(&encoded(&hello(name)));
            peer
        })
        .collect();
    // Probes come, and come again when they have been answered.
    (0..8).for_each(|_| e1.set_clock(0));
    assert!(controller.running.hub().edges().iter().filter(|edge| edge.connected).count() == 1);

    pipe.write_all(key.as_bytes()).unwrap();
    drop(pipe);
    let rotated = rotating.join().unwrap();
    assert!(rotated.is_ok() || rotated.unwrap_err().contains("too slow"));
    for peer in &coming {
        assert!(peer.next().is_some(), "a welcome");
    }
}
