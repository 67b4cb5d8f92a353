//! What goes wrong around the daemon has a clear error, or is got over.

use std::time::Instant;

use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::Message;
use calumma_interface::Plug;
use calumma_sketch::{Arithmetic, KeyKind};
use calumma_switch_host::unix_ns;
use calumma_switchd::collector::Way;
use calumma_wire::Outcome;

use crate::rig::{Controller, Daemon, EPOCH_MS, LIMIT, Model, config, layout, packets};

fn problem(daemon: Daemon) -> String {
    format!("{:#}", daemon.end().unwrap_err())
}

#[test]
fn without_the_right_driver_the_daemon_ends_with_a_remedy() {
    let layout = layout(Arithmetic::Prime);
    let controller = Controller::new(&layout, EPOCH_MS);
    // Nobody listens where the test has hung up.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reason = problem(Daemon::start(config(nowhere, controller.address()), Way::Registers));
    assert!(reason.contains(&nowhere.to_string()) && reason.contains("bf_switchd"), "{reason}");

    let model = Model::start(&crate::rig::program(&layout, 8), None);
    let mut other = config(model.address, controller.address());
    other.driver.program = "switch".to_owned();
    let reason = problem(Daemon::start(other, Way::Registers));
    assert!(reason.contains("runs edge, not the program `switch`"), "{reason}");
}

#[test]
fn a_table_that_is_full_is_named() {
    let layout = layout(Arithmetic::Prime);
    let controller = Controller::new(&layout, EPOCH_MS);
    let model = Model::start(&crate::rig::program(&layout, 1), None);
    let config = config(model.address, controller.address());
    let reason = problem(Daemon::start(config, Way::Registers));
    assert!(
        reason.contains("port_pair") && reason.contains("is full: it has 1 entries"),
        "{reason}"
    );
}

#[test]
fn two_daemons_cant_have_one_switch() {
    let layout = layout(Arithmetic::Prime);
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let mut model = Model::start(&crate::rig::program(&layout, 8), None);
    let first = config(model.address, controller.address());
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start(first.clone(), way);
    controller.welcome();
    let reason = problem(Daemon::start(first.clone(), Way::Registers));
    assert!(reason.contains("does not take client 1"), "{reason}");
    let mut second = first;
    second.driver.client = 2;
    let reason = problem(Daemon::start(second, Way::Registers));
    assert!(reason.contains("another client is bound"), "{reason}");
}

/// The reason that the controller gets for what keeps the switch from measuring.
fn declined(controller: &mut Controller) -> String {
    let declines = |message: &Message| {
        matches!(message, Message::Applied { outcome: Outcome::Invalid { .. }, .. })
    };
    match controller.receive(declines) {
        Message::Applied { outcome: Outcome::Invalid { reason }, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_built_for_another_layout_is_declined() {
    let built = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&built, 8), None);
    let mut larger = built.clone();
    larger.downstream_buckets = 400;
    let mut controller = Controller::new(&larger, EPOCH_MS);
    let _daemon = Daemon::start(config(model.address, controller.address()), Way::Registers);
    controller.welcome();
    let reason = declined(&mut controller);
    assert!(reason.contains("holds 768 elements in Egress.downstream.array0"), "{reason}");
    assert!(reason.contains("calumma-switchd contract"), "{reason}");
}

#[test]
fn a_driver_that_comes_back_with_another_program_is_declined() {
    let built = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&built, 8), None);
    let address = model.address;
    let mut controller = Controller::new(&built, EPOCH_MS);
    let _daemon = Daemon::start(config(address, controller.address()), Way::Registers);
    controller.welcome();
    sealed(&mut controller);
    drop(model);
    let wrapping = layout(Arithmetic::Wrapping);
    let _model = Model::start(&crate::rig::program(&wrapping, 8), Some(address));
    // Connected in vain at first, perhaps.
    let end = Instant::now() + LIMIT;
    loop {
        let reason = declined(&mut controller);
        if reason.contains("not this release's edge.p4 with Prime arithmetic") {
            break;
        }
        assert!(Instant::now() < end, "{reason}");
    }
}

#[test]
fn a_driver_that_does_not_answer_blocks_nothing() {
    let layout = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&layout, 8), None);
    let address = model.address;
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let _daemon = Daemon::start(config(address, controller.address()), Way::Registers);
    controller.welcome();
    drop(model);
    // It takes connections and does not answer.
    let _silent = std::net::TcpListener::bind(address).unwrap();
    let silent = ["Timeout expired", "has not answered", "no driver answers"];
    let end = Instant::now() + LIMIT;
    loop {
        // A call that was under way as it went has broken off, perhaps.
        let reason = declined(&mut controller);
        if silent.iter().any(|words| reason.contains(words)) {
            break;
        }
        assert!(Instant::now() < end, "{reason}");
    }
    for sent_ns in 0..20 {
        controller.send(&Message::Probe { sent_ns });
        let echo = |message: &Message| matches!(message, Message::Echo { sent_ns: of, .. } if *of == sent_ns);
        let Message::Echo { received_ns, .. } = controller.receive(echo) else { unreachable!() };
        assert!(unix_ns() - received_ns < 1_000_000_000, "received at once, and answered at once");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn keys_that_no_hardware_edge_measures_by_are_declined() {
    let model = Model::start(&crate::rig::program(&layout(Arithmetic::Prime), 8), None);
    let wide = Layout { keys: KeyKind::Dual, ..layout(Arithmetic::Prime) };
    let mut controller = Controller::new(&wide, EPOCH_MS);
    let _daemon = Daemon::start(config(model.address, controller.address()), Way::Registers);
    controller.welcome();
    let reason = declined(&mut controller);
    assert!(reason.contains("a Tofino edge measures IPv4 only"), "{reason}");
}

/// The next epoch that is sealed.
fn sealed(controller: &mut Controller) -> u64 {
    match controller.receive(|message| matches!(message, Message::Sealed { .. })) {
        Message::Sealed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_controller_misses_the_next_one_gets() {
    let layout = layout(Arithmetic::Prime);
    let mut model = Model::start(&crate::rig::program(&layout, 8), None);
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start(config(model.address, controller.address()), way);
    controller.welcome();
    let last = sealed(&mut controller);
    controller.send(&Message::Reported { epoch: last });
    controller.vanish();
    // Two epochs go by without a controller.
    std::thread::sleep(std::time::Duration::from_nanos(2 * controller.clock.length_ns()));
    let hello = controller.welcome();
    let Message::Hello { holding: Some(holding), .. } = hello else { panic!("{hello:?}") };
    assert_eq!(holding.attention, crate::rig::attention());
    for epoch in last + 1..last + 4 {
        assert_eq!(sealed(&mut controller), epoch, "none is left out");
    }
}

#[test]
fn a_driver_that_comes_back_is_measured_with_again() {
    let layout = layout(Arithmetic::Prime);
    let program = crate::rig::program(&layout, 8);
    let model = Model::start(&program, None);
    let address = model.address;
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let _daemon = Daemon::start(config(address, controller.address()), Way::Registers);
    controller.welcome();
    let before = sealed(&mut controller);

    drop(model);
    let mut model = Model::start(&program, Some(address));
    let end = Instant::now() + LIMIT;
    loop {
        // Forwarded again, and in the end measured again.
        model.host.send(&[2; 60]);
        let received = controller.receive(|message| matches!(message, Message::Ingress(_)));
        let Message::Ingress(side) = received else { panic!("{received:?}") };
        let received = side.counters.iter().find(|(name, _)| name == "received.host");
        if side.epoch > before + 1 && received.is_some_and(|(_, total)| *total > 0) {
            break;
        }
        assert!(Instant::now() < end, "the switch is measured with again");
    }
    assert_eq!(Model::next(&mut model.fabric), [2; 60]);
}
