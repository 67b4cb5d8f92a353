//! Who connects, by which clock and attention, and what an edge that misbehaves can do.

use super::*;

#[test]
fn strangers_doubles_and_other_versions_are_refused_with_a_reason() {
    let controller = Controller::start(PATIENT);
    let _e1 = Edge::join(&controller, "e1");
    let refusal = |bytes: &[u8]| refused(&controller, bytes);
    let frame = |message: Message| encoded(&message);
    let unknown = refusal(&frame(hello("e9")));
    assert!(unknown.contains("no edge is called \"e9\""), "{unknown}");
    assert!(!unknown.contains("e1") && !unknown.contains("e2"), "strangers learn names: {unknown}");
    let double = refusal(&frame(hello("e1")));
    assert!(double.contains("already connected from 127.0.0.1:"), "{double}");
    let mut version = frame(hello("e2"));
    version[6] = 9;
    let version = refusal(&version);
    assert!(version.contains("version 9") && version.contains("same release"), "{version}");
    let browser = refusal(b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n");
    assert!(browser.contains("is the peer a Calumma program?"), "{browser}");
    let early = refusal(&frame(Message::Sealed { epoch: 1, late_packets: 0, late: Vec::new() }));
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
    let asked = e1.clock.epoch_at(unix_ns());
    let (status, answer) = post(body);
    assert_eq!(status, 200);
    let effective = answer["effective_epoch"].as_u64().unwrap();
    assert!(effective > asked);
    for edge in [&mut e1, &mut e2] {
        let Some(Message::Reconfigure { effective_epoch, attention }) = edge.receive() else {
            panic!("a reconfiguration")
        };
        assert_eq!((effective_epoch, attention.partition.hl), (effective, 1024));
    }
    e1.send(&Message::Applied { effective_epoch: effective, outcome: Outcome::Accepted });
    let outcome = Outcome::TooLate { earliest: effective + 5 };
    e2.send(&Message::Applied { effective_epoch: effective, outcome });
    let Some(Message::Reconfigure { effective_epoch, attention }) = e2.receive() else {
        panic!("a second chance")
    };
    assert_eq!((effective_epoch, attention.partition.hl), (effective + 6, 1024));

    assert_eq!(post(body).1["effective_epoch"], serde_json::Value::Null, "it holds already");
    let (status, answer) = post(r#"{"hl_buckets": 4000}"#);
    assert_eq!(status, 422);
    assert!(answer["error"].as_str().unwrap().contains("the downstream encoder has 3072"));

    drop(e1);
    let mut e1 = Edge::rejoin(&controller, "e1");
    // It begins with what holds now; where that is still to come, with the change behind it.
    if e1.attention.partition.hl != 1024 {
        let Some(Message::Reconfigure { effective_epoch, attention }) = e1.receive() else {
            panic!("the change that is to come")
        };
        assert_eq!((effective_epoch, attention.partition.hl), (effective, 1024));
    }
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
    assert_eq!(e1.receive(), None, "edges see the connection close");
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
    e2.set_clock(4_000_000);
    let since = std::time::Instant::now();
    let is_ahead = |problem: String| problem.contains("ahead of e1's");
    while !status(1).clock_problem.is_some_and(is_ahead) {
        assert!(since.elapsed() < PATIENCE, "{:?}", status(1));
        std::thread::sleep(Duration::from_millis(2));
    }
    let (offset, error) = (status(1).clock_offset_ms.unwrap(), status(1).clock_error_ms.unwrap());
    assert!((offset - 4.0).abs() <= error, "{offset} +- {error}");
    assert!(status(1).path_delay_ms.unwrap() > 0.0);

    let epoch = e1.recent_epoch();
    e1.deliver_traffic(&mut e2, epoch);
    let report = controller.report(epoch);
    assert!(!report.complete && report.loss.is_empty() && report.missing_edges.is_empty());
    let [reason] = report.incomplete_because.as_slice() else { panic!("{report:?}") };
    assert!(
        reason.starts_with("e2: its clock is ") && reason.contains("ahead of e1's"),
        "{reason}"
    );
    assert_eq!(controller.get("/api/v1/edges")[0]["clock_problem"], serde_json::Value::Null);
}

/// What an edge measures may come long after its clock is right again.
#[test]
fn a_clock_that_was_wrong_in_an_epoch_spoils_it_however_late_it_is_reported() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let wait_until = |is_wrong: bool| {
        let problem = || controller.running.hub().edges()[1].clock_problem.clone();
        let since = std::time::Instant::now();
        while problem().is_some() != is_wrong {
            assert!(since.elapsed() < PATIENCE, "{:?}", problem());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait_until(false);
    e2.set_clock(4_000_000);
    wait_until(true);
    let epoch = e1.next_epoch();
    e2.set_clock(0);
    wait_until(false);
    e1.deliver_traffic(&mut e2, epoch);
    let report = controller.report(epoch);
    let [reason] = report.incomplete_because.as_slice() else { panic!("{report:?}") };
    assert!(reason.starts_with("e2: its clock "), "{reason}");
    assert!(report.loss.is_empty());
}

#[test]
fn a_controller_that_starts_anew_takes_in_what_edges_held_and_changes_nothing_unasked() {
    let controller = Controller::start(&format!("{PATIENT}\n[shifting]\nmode = 'static'"));
    let layout = Layout::default();
    let held = Attention::healthy(&layout, 768);
    let mut e1 = Edge::join_measuring(&controller, "e1", held);
    let mut e2 = Edge::join_measuring(&controller, "e2", held);
    assert_eq!((e1.attention, e2.attention), (held, held), "what they measure by already");
    let connected = e1.recent_epoch();
    let first = connected - 40;
    let worlds: Vec<World> = (first..first + 5)
        .map(|epoch| {
            let mut world = e1.world(epoch);
            traffic(&mut world);
            world
        })
        .collect();
    worlds.iter().for_each(|world| e1.deliver(world, 0));
    worlds.iter().for_each(|world| e2.deliver(world, 1));
    let (before, known) = worlds.split_at(2);
    for world in before {
        let report = controller.report(world.epoch);
        assert_eq!((report.complete, &report.loss[..]), (false, &[][..]));
        let because = &report.incomplete_because;
        assert!(because[0].contains("e1: it measured before"), "{because:?}");
    }
    for world in known {
        let report = controller.report(world.epoch);
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(lost(&report), world.lost);
    }
    // Once an epoch has been reported, the state of the switches is known, and what the
    // configuration asks for is put in force.
    assert_eq!(e1.receive_reported(), first);
    let Some(Message::Reconfigure { effective_epoch, attention }) = e1.receive() else {
        panic!("the configuration's attention")
    };
    assert!(effective_epoch > connected);
    assert_eq!(attention, Attention::healthy(&layout, 512));
    assert_eq!([0, 1, 2].map(|of| e2.receive_reported() - of), [first; 3]);
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
        ("an egress side: packets without a mark needs", |world| {
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
        e2.send_bytes(&spoil(&world));
        let Some(Message::Refused { reason }) = e2.receive() else { panic!("a reason: {problem}") };
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
    let epoch = e1.settled_epoch(&mut e2);
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e2.send(&Message::Sealed { epoch: epoch + 1_000_000, late_packets: 0, late: Vec::new() });
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    assert_eq!((report.complete, lost(&report)), (true, world.lost));
    assert_eq!(controller.running.hub().edges()[1].out_of_window_frames, 1);
}

/// A clock that is set shows with the next probe, though the controller knew it better before.
#[test]
fn an_edge_whose_clock_is_set_is_named_though_it_agrees_with_the_others_again() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let epoch = e1.recent_epoch();
    let mut world = e1.world(epoch);
    traffic(&mut world);
    e1.deliver(&world, 0);
    e2.set_clock(7_000_000_000);
    e2.set_clock(0);
    e2.deliver(&world, 1);
    let report = controller.report(epoch);
    let [reason] = report.incomplete_because.as_slice() else { panic!("{report:?}") };
    assert!(reason.starts_with("e2: its clock was set back by "), "{reason}");
}

/// Times that nobody asked for are no reason for anything.
#[test]
fn answers_to_probes_that_are_not_out_say_nothing() {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    e1.set_clock(0);
    let now_ns = unix_ns();
    for sent_ns in [0, 1, now_ns - 3_600_000_000_000, now_ns] {
        let (received_ns, answered_ns) = (now_ns + 5_000_000_000, now_ns + 5_000_000_000);
        e1.send(&Message::Echo { sent_ns, received_ns, answered_ns });
    }
    e1.set_clock(0);
    let status = controller.running.hub().edges()[0].clone();
    assert!(status.clock_offset_ms.unwrap().abs() < 100.0, "{status:?}");
    assert!(status.path_delay_ms.unwrap() < 10_000.0, "{status:?}");
    assert_eq!(status.clock_problem, None);
}

/// An edge whose host has gone does not keep its name, though nobody has closed the connection.
#[test]
fn an_edge_that_says_nothing_for_long_makes_room() {
    let controller = Controller::start(IMPATIENT);
    let mut silent = TcpStream::connect(controller.running.listen()).unwrap();
    silent.write_all(&encoded(&hello("e1"))).unwrap();
    let since = std::time::Instant::now();
    while !controller.running.hub().edges()[0].connected {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    let _e1 = Edge::rejoin(&controller, "e1");
}
