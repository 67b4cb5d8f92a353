//! What edges must do alike beside what the controller tells them, and what an edge can't do at
//! all.

use calumma_chamelemon::frames::Message;
use calumma_wire::{Marking, Outcome, VERSION, v5};
use serde_json::{Value, json};

use crate::peer::Peer;
use crate::stories::{Controller, Edge, PATIENCE, PATIENT, encoded, frames, hello, refused};

fn marking_as(edge: &str, as_edge: Marking) -> Message {
    match hello(edge) {
        Message::Hello { edge, kind, program, holding, .. } => {
            Message::Hello { edge, kind, program, holding, marking: as_edge }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_edge_that_marks_or_reads_packets_otherwise_is_refused_and_told_where_to_look() {
    let controller = Controller::start(PATIENT);
    let _e1 = Edge::join(&controller, "e1");
    let shim = Marking { carrier: "shim 0x88b5".to_owned(), ..Marking::default() };
    let inner = Marking { tunnels: "inner".to_owned(), ..Marking::default() };
    for (marking, words) in [
        (shim, ["\"shim 0x88b5\", those of e1 by \"tos\"", "the same [carrier]"]),
        (inner, ["by their inner header, e1 by the outer one", "[measure] tunnels"]),
    ] {
        let reason = refused(&controller, &encoded(&marking_as("e2", marking)));
        assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
        let edges = controller.get("/api/v1/edges");
        assert_eq!(
            (&edges[1]["connected"], &edges[1]["last_problem"]),
            (&false.into(), &reason.into())
        );
    }
    Edge::join(&controller, "e2");
    let edges = controller.get("/api/v1/edges");
    assert_eq!((&edges[0]["carrier"], &edges[0]["tunnels"]), (&"tos".into(), &"outer".into()));
}

#[test]
fn edges_that_all_mark_in_another_way_are_welcome() {
    let controller = Controller::start(PATIENT);
    let shim = Marking {
        carrier: "shim 0x88b5".to_owned(),
        tunnels: "inner".to_owned(),
        ..Marking::default()
    };
    let join = |edge| Edge::introduce(&controller, marking_as(edge, shim.clone()));
    let edges = [join("e1"), join("e2")];
    assert_eq!(edges[0].attention, edges[1].attention);
}

/// The same file in another release: its marks have other bits.
#[test]
fn an_edge_of_a_release_with_other_marks_is_refused() {
    let controller = Controller::start(PATIENT);
    let by = |carrier: &str| Marking { carrier: carrier.to_owned(), ..Marking::default() };
    let _e1 = Edge::introduce(&controller, marking_as("e1", by("flow-label v2")));
    let reason = refused(&controller, &encoded(&marking_as("e2", by("flow-label"))));
    assert!(reason.contains("those of e1 by \"flow-label v2\""), "{reason}");
    assert!(reason.contains("programs of one release"), "{reason}");
}

/// Edges of the release before know no marks that are signed, and a Tofino only those that its
/// program was compiled for.
#[test]
fn an_edge_that_signs_no_marks_is_not_let_into_a_network_that_does() {
    let controller = Controller::start(PATIENT);
    let by = |carrier: &str| Marking { carrier: carrier.to_owned(), ..Marking::default() };
    let _e1 = Edge::introduce(&controller, marking_as("e1", by("ip-id")));
    let reason = refused(&controller, &encoded(&hello("e2")));
    assert!(reason.contains("by \"tos\", those of e1 by \"ip-id\""), "{reason}");
    assert!(reason.contains("a Tofino knows \"tos\" and \"ip-id\" only"), "{reason}");
    Edge::introduce(&controller, marking_as("e2", by("ip-id")));
}

/// One that leaves the carrier to the controller.
fn auto() -> Marking {
    Marking { offers: vec!["tos".to_owned(), "ip-id".to_owned()], ..Marking::default() }
}

/// Comes as an edge that waits for the choice.
fn come(controller: &Controller, name: &str) -> Peer {
    let peer = Peer::connect(controller.running.listen(), VERSION);
    peer.send_bytes(&encoded(&marking_as(name, auto())));
    peer
}

/// The carrier that the welcome names.
fn named(peer: &Peer) -> Option<String> {
    match peer.next() {
        Some((_, calumma_wire::Message::Welcome(welcome))) => welcome.carrier,
        other => panic!("{other:?} instead of a welcome"),
    }
}

#[test]
fn the_identification_is_chosen_when_all_edges_have_offered_it_and_stays() {
    let folder = std::env::temp_dir().join(format!("calumma-carrier-{}", std::process::id()));
    let settings = format!("{PATIENT}\nstate_dir = {folder:?}");
    let controller = Controller::start(&settings);
    let e1 = come(&controller, "e1");
    let since = std::time::Instant::now();
    while controller.get("/api/v1/carrier")["offers"]["e1"].is_null() {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = controller.get("/api/v1/carrier");
    assert_eq!((&status["chosen"], &status["missing"]), (&Value::Null, &json!(["e2"])));
    assert_eq!(controller.get("/api/v1/edges")[0]["connected"], false, "it waits");
    let e2 = come(&controller, "e2");
    for peer in [&e1, &e2] {
        assert_eq!(named(peer).as_deref(), Some("ip-id"));
    }
    let status = controller.get("/api/v1/carrier");
    assert_eq!(
        (&status["in_force"], &status["chosen"]["carrier"]),
        (&"ip-id".into(), &"ip-id".into())
    );
    assert_eq!(controller.get("/api/v1/edges")[1]["carrier"], "ip-id");
    let metrics = controller.get_text("/metrics");
    let line = "calumma_carrier{by=\"controller\",carrier=\"ip-id\"} 1";
    assert!(metrics.contains(line), "{metrics}");

    // Another controller goes on by it, and waits for nobody; a file that says otherwise does not
    // go with it, until most do.
    drop((e1, e2));
    controller.stop();
    let controller = Controller::start(&settings);
    let reason = refused(&controller, &encoded(&hello("e2")));
    assert!(reason.contains("by \"ip-id\" here, and it offers \"tos\""), "{reason}");
    assert!(reason.contains("leave [carrier] kind out of its file"), "{reason}");
    let e1 = come(&controller, "e1");
    assert_eq!(named(&e1).as_deref(), Some("ip-id"));
    let reason = refused(&controller, &encoded(&hello("e2")));
    assert!(reason.contains("those of e1 by \"ip-id\""), "{reason}");

    // An operator has another one chosen: all come again, and what they offer must allow it.
    let (status, problem) = controller.post("/api/v1/carrier", r#"{"carrier": "ip-id"}"#);
    assert_eq!(
        (status, &problem["error"]),
        (409, &json!("e2 does not offer \"ip-id\", but \"tos\""))
    );
    let (status, now) = controller.post("/api/v1/carrier", r#"{"carrier": "tos"}"#);
    assert_eq!((status, &now["chosen"]["carrier"]), (200, &json!("tos")));
    let reason = loop {
        match e1.next() {
            Some((_, calumma_wire::Message::Refused { reason })) => break reason,
            Some(_) => {}
            None => panic!("no reason"),
        }
    };
    assert!(reason.contains("by \"tos\" from now on"), "{reason}");
    controller.wait_until_gone("e1");
    let e1 = come(&controller, "e1");
    assert_eq!(named(&e1).as_deref(), Some("tos"));
    Edge::join(&controller, "e2");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// With what to do about them.
#[test]
fn packets_that_a_link_may_cut_are_shown_by_edge() {
    for (settings, mtu, remedy) in [
        ("", 1280, "more than 1280 bytes are not measured: set [domain] fabric_mtu = 1500 if no"),
        ("[domain]\nfabric_mtu = 1500", 1500, "fabric_mtu to the smallest MTU"),
    ] {
        let controller = Controller::start(&format!("{PATIENT}\n{settings}"));
        let mut e1 = Edge::join(&controller, "e1");
        let status = controller.get("/api/v1/carrier");
        let shown = (&status["fabric_mtu"], &status["above_fabric_mtu"], &status["remedy"]);
        assert_eq!(shown, (&json!(mtu), &json!({}), &Value::Null));
        let epoch = e1.recent_epoch();
        let [Message::Ingress(mut side), ..] = frames(&e1.world(epoch), 0) else {
            panic!("a side")
        };
        side.counters = vec![("unmeasured.above_fabric_mtu".to_owned(), 7)];
        e1.send(&Message::Ingress(side));
        let since = std::time::Instant::now();
        let status = loop {
            let status = controller.get("/api/v1/carrier");
            if status["above_fabric_mtu"] == json!({"e1": 7}) {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let said = status["remedy"].as_str().unwrap_or_default();
        assert!(said.contains(remedy), "{said}");
    }
}

/// One that is a release older says what it always had. What was chosen so stays when it is
/// upgraded, until an operator has the choice made anew.
#[test]
fn edges_that_have_a_carrier_in_their_files_are_followed() {
    let controller = Controller::start(&format!("{PATIENT}\nhash_generators = 'public'"));
    let old = Edge::introduce_as(&controller, &hello("e1"), v5::VERSION);
    let e2 = come(&controller, "e2");
    assert_eq!(named(&e2).as_deref(), Some("tos"));
    let status = controller.get("/api/v1/carrier");
    assert_eq!(status["offers"], json!({"e1": ["tos"], "e2": ["tos", "ip-id"]}));
    drop(old);
    controller.wait_until_gone("e1");
    let e1 = come(&controller, "e1");
    assert_eq!(named(&e1).as_deref(), Some("tos"));
    let (status, now) = controller.post("/api/v1/carrier", r#"{"carrier": "auto"}"#);
    assert_eq!((status, &now["chosen"]["carrier"]), (200, &json!("ip-id")));
}

#[test]
fn an_edge_that_can_not_measure_by_the_layout_says_so_and_is_shown_with_its_reason() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let reason =
        "it can't measure by this layout: keys = \"dual\": a Tofino edge measures IPv4 only";
    let outcome = Outcome::Invalid { reason: reason.to_owned() };
    e1.send(&Message::Applied { effective_epoch: 7, outcome });
    let since = std::time::Instant::now();
    while controller.get("/api/v1/edges")[0]["measuring_problem"] != reason {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(e1);
    let _again = Edge::rejoin(&controller, "e1");
    assert!(controller.get("/api/v1/edges")[0]["measuring_problem"].is_null());
}
