//! What edges deliver, in whatever order, late, twice or not at all.

use super::*;

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
    let epoch = e1.settled_epoch(&mut e2);
    let world = e1.deliver_traffic(&mut e2, epoch);
    let report = controller.report(epoch);
    assert!(report.complete, "{:?}", report.incomplete_because);
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
    e2.send(&ingress);
    let report = controller.report(epoch);
    assert_eq!(report.incomplete_because, ["e2: no egress side and no seal came in time"]);
    e2.send(&egress);
    e2.send(&seal);

    let epoch = e1.settled_epoch(&mut e2);
    let world = e1.world(epoch);
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    assert_eq!(controller.report(epoch).incomplete_because, [""; 0]);
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
        e1.send(frame);
        e1.send(frame);
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
    e1.send(&ingress);
    drop(e1);
    let mut e1 = Edge::rejoin(&controller, "e1");
    e1.send(&egress);
    e1.send(&seal);
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
    let mut rubbish = encoded(&Message::Sealed { epoch: 1, late_packets: 0, late: Vec::new() });
    rubbish[7] = 0x77;
    e2.send_bytes(&rubbish);
    let Some(Message::Refused { reason }) = e2.receive() else { panic!("a reason") };
    assert_eq!(reason, "byte 7 of a frame: there is no frame of kind 0x77");
    assert_eq!(e2.receive(), None, "the connection is closed");

    let mut e2 = Edge::rejoin(&controller, "e2");
    assert_eq!(controller.running.hub().edges()[1].last_problem.as_ref(), Some(&reason));
    let epoch = e1.recent_epoch();
    let world = e1.deliver_traffic(&mut e2, epoch);
    assert_eq!(lost(&controller.report(epoch)), world.lost);
}
