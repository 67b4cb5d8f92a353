//! Edges one release older than the controller, edges of other roles and of other systems.

use calumma_chamelemon::frames::Message;
use calumma_wire::{self as wire, Offer, Outcome, Role, SystemId, v5};
use serde_json::json;

use crate::peer::Peer;
use crate::stories::{Controller, Edge, PATIENT, encoded, hello, lost, refused};

fn framed(message: &wire::Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

#[test]
fn an_edge_that_hashes_by_public_crcs_is_refused_with_the_reason() {
    let controller = Controller::start(PATIENT);
    let mut frame = Vec::new();
    assert!(hello("e1").to_wire().encode_as(v5::VERSION, &mut frame));
    let reason = refused(&controller, &frame);
    assert!(reason.contains("hash by public CRCs"), "{reason}");
    assert!(reason.contains("hash_generators = \"public\""), "{reason}");
}

#[test]
fn an_edge_one_release_older_works_beside_a_new_one() {
    let public = format!("{PATIENT}\nhash_generators = 'public'");
    let controller = Controller::start(&public);
    let mut old = Edge::introduce_as(&controller, &hello("e1"), v5::VERSION);
    assert_eq!(old.received_version(), v5::VERSION);
    let mut new = Edge::join(&controller, "e2");
    assert_ne!(new.received_version(), v5::VERSION);
    let epoch = old.recent_epoch();
    let world = old.deliver_traffic(&mut new, epoch);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));

    let (status, _) = controller.post("/api/v1/attention", r#"{"hl_buckets": 1024}"#);
    assert_eq!(status, 200);
    for edge in [&mut old, &mut new] {
        let Some(Message::Reconfigure { effective_epoch, attention }) = edge.receive() else {
            panic!("a reconfiguration")
        };
        assert_eq!(attention.partition.hl, 1024);
        edge.send(&Message::Applied { effective_epoch, outcome: Outcome::Accepted });
    }
    assert_eq!(old.received_version(), v5::VERSION);
}

#[test]
fn a_node_of_another_role_or_system_is_refused() {
    let controller = Controller::start(PATIENT);
    let wire::Message::Hello(edge) = hello("e1").to_wire() else { unreachable!() };
    let mut transit = edge.clone();
    transit.role = Role::Transit;
    let reason = refused(&controller, &framed(&wire::Message::Hello(transit)));
    assert!(reason.contains("is an edge here, and comes with role = \"transit\""), "{reason}");
    let mut other = edge;
    other.systems[0].system = SystemId::CFS;
    let reason = refused(&controller, &framed(&wire::Message::Hello(other)));
    assert!(reason.contains("does not run version 2 of chamelemon"), "{reason}");
}

/// Which version of a system a node measures by is known once it has come, and not before.
#[test]
fn a_node_whose_version_pins_no_flows_is_named_once_it_has_come() {
    let controller = Controller::start(&format!("{PATIENT}\nsystems = ['cfs']"));
    let join = |name: &str, versions: &[(u8, u8)]| {
        let wire::Message::Hello(mut hello) = hello(name).to_wire() else { unreachable!() };
        let offer = |&(lowest, highest)| Offer { system: SystemId::CFS, lowest, highest };
        hello.systems = versions.iter().map(offer).collect();
        let peer = Peer::connect(controller.running.listen(), wire::VERSION);
        peer.send_bytes(&framed(&wire::Message::Hello(hello)));
        let Some((_, wire::Message::Welcome(welcome))) = peer.next() else { panic!("no welcome") };
        (peer, welcome.systems[0].version)
    };
    let without = || controller.get("/api/v1/cfs/pins")["without"].clone();
    assert_eq!(without(), json!([]));
    // One whose versions do not follow each other.
    let (_e2, version) = join("e2", &[(1, 1), (13, 13)]);
    assert_eq!((version, without()), (13, json!([])));
    let (_e1, version) = join("e1", &[(1, 1)]);
    assert_eq!((version, without()), (1, json!(["e1"])));
}

/// It would record strangers' packets, and edges of this release would not.
#[test]
fn an_edge_that_knows_no_domain_is_refused_where_there_is_one() {
    let controller = Controller::start(&format!("{PATIENT}\n[domain]\nprefixes = ['10.0.0.0/8']"));
    let mut older = Vec::new();
    assert!(hello("e1").to_wire().encode_as(v5::VERSION, &mut older));
    let reason = refused(&controller, &older);
    assert!(reason.contains("[domain] prefixes are set"), "{reason}");
    drop(Edge::join(&controller, "e1"));
}

#[test]
fn frames_of_systems_that_are_not_run_are_skipped() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let system = SystemId(200);
    e1.send_bytes(&framed(&wire::Message::Sealed {
        system,
        epoch,
        late_packets: 9,
        body: Vec::new(),
    }));
    let world = e1.deliver_traffic(&mut e2, epoch);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));
    assert_eq!(encoded(&hello("e1"))[6], wire::VERSION);
}
