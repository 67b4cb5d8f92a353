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
    let said = problem(Daemon::start(config(nowhere, controller.address()), Way::Registers));
    assert!(said.contains(&nowhere.to_string()) && said.contains("bf_switchd"), "{said}");

    let model = Model::start(&crate::rig::program(&layout, 8), None);
    let mut other = config(model.address, controller.address());
    other.driver.program = "switch".to_owned();
    let said = problem(Daemon::start(other, Way::Registers));
    assert!(said.contains("runs edge, not the program `switch`"), "{said}");
}

#[test]
fn a_table_that_is_full_is_named() {
    let layout = layout(Arithmetic::Prime);
    let controller = Controller::new(&layout, EPOCH_MS);
    let model = Model::start(&crate::rig::program(&layout, 1), None);
    let config = config(model.address, controller.address());
    let said = problem(Daemon::start(config, Way::Registers));
    assert!(said.contains("port_pair") && said.contains("is full: it has 1 entries"), "{said}");
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
    let said = problem(Daemon::start(first.clone(), Way::Registers));
    assert!(said.contains("does not take client 1"), "{said}");
    let mut second = first;
    second.driver.client = 2;
    let said = problem(Daemon::start(second, Way::Registers));
    assert!(said.contains("another client is bound"), "{said}");
}

/// What the controller is told that keeps the switch from measuring.
fn declined(controller: &mut Controller) -> String {
    let declines = |message: &Message| {
        matches!(message, Message::Applied { outcome: Outcome::Invalid { .. }, .. })
    };
    match controller.hear(declines) {
        Message::Applied { outcome: Outcome::Invalid { reason }, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_built_for_another_layout_is_told_to_the_controller() {
    let built = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&built, 8), None);
    let mut larger = built.clone();
    larger.downstream_buckets = 400;
    let mut controller = Controller::new(&larger, EPOCH_MS);
    let _daemon = Daemon::start(config(model.address, controller.address()), Way::Registers);
    controller.welcome();
    let said = declined(&mut controller);
    assert!(said.contains("holds 768 elements in Egress.downstream.array0"), "{said}");
    assert!(said.contains("calumma-switchd contract"), "{said}");
}

#[test]
fn a_driver_that_comes_back_with_another_program_is_told_to_the_controller() {
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
        let said = declined(&mut controller);
        if said.contains("not this release's edge.p4 with Prime arithmetic") {
            break;
        }
        assert!(Instant::now() < end, "{said}");
    }
}

#[test]
fn a_driver_that_says_nothing_keeps_nobody_waiting() {
    let layout = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&layout, 8), None);
    let address = model.address;
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let _daemon = Daemon::start(config(address, controller.address()), Way::Registers);
    controller.welcome();
    drop(model);
    // It takes connections and does not answer.
    let _silent = std::net::TcpListener::bind(address).unwrap();
    let silent = ["Timeout expired", "has said nothing", "no driver answers"];
    let end = Instant::now() + LIMIT;
    loop {
        // A call that was under way as it went has broken off, perhaps.
        let said = declined(&mut controller);
        if silent.iter().any(|words| said.contains(words)) {
            break;
        }
        assert!(Instant::now() < end, "{said}");
    }
    for sent_ns in 0..20 {
        controller.say(&Message::Probe { sent_ns });
        let echo = |message: &Message| matches!(message, Message::Echo { sent_ns: of, .. } if *of == sent_ns);
        let Message::Echo { received_ns, .. } = controller.hear(echo) else { unreachable!() };
        assert!(unix_ns() - received_ns < 1_000_000_000, "heard at once, and answered at once");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn keys_that_no_hardware_edge_measures_by_are_told_to_the_controller() {
    let model = Model::start(&crate::rig::program(&layout(Arithmetic::Prime), 8), None);
    let wide = Layout { keys: KeyKind::Dual, ..layout(Arithmetic::Prime) };
    let mut controller = Controller::new(&wide, EPOCH_MS);
    let _daemon = Daemon::start(config(model.address, controller.address()), Way::Registers);
    controller.welcome();
    let said = declined(&mut controller);
    assert!(said.contains("a Tofino edge measures IPv4 only"), "{said}");
}

/// The next epoch that is sealed.
fn sealed(controller: &mut Controller) -> u64 {
    match controller.hear(|message| matches!(message, Message::Sealed { .. })) {
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
    controller.say(&Message::Reported { epoch: last });
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
        let heard = controller.hear(|message| matches!(message, Message::Ingress(_)));
        let Message::Ingress(side) = heard else { panic!("{heard:?}") };
        let received = side.counters.iter().find(|(name, _)| name == "received.host");
        if side.epoch > before + 1 && received.is_some_and(|(_, total)| *total > 0) {
            break;
        }
        assert!(Instant::now() < end, "the switch is measured with again");
    }
    assert_eq!(Model::next(&mut model.fabric), [2; 60]);
}
