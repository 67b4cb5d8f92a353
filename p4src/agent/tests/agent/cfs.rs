//! Cooperative flow selection between software edges: what the daemon reports of each window is
//! what passed in it, whatever the CPU port loses and whoever controls it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use calumma_bfrt::Options;
use calumma_cfs::frames::{Graded, Holding, Hop, OFFER, Pins, PortHops, ROWS, Setup, Window};
use calumma_interface::{Cable, Plug};
use calumma_sketch::WideKey;
use calumma_sketch::table::Rank;
use calumma_sketchint::frames as sketchint;
use calumma_switch_host::unix_ns;
use calumma_switchd::SYSTEMS;
use calumma_switchd::cfs::Cfs;
use calumma_switchd::collector::Way;
use calumma_switchd::config::Config;
use calumma_switchd::driver::Driver;
use calumma_switchd::system::{System, Target};
use calumma_tna::Program;
use calumma_wire::{Message, Role, SideKind, SystemSetup};

use crate::common::{Numbers, marked, packet};
use crate::daemon::wait_for_epoch;
use crate::hops::{Controller, Epoch};
use crate::rig::{Daemon, Lossy, Model, packets, text};

/// Epochs of a window. The model clears a group of some 45,000 elements in less.
pub(crate) const WINDOW: u64 = 4;
pub(crate) const EPOCH_MS: u64 = 1500;

const ENTRIES: u32 = 256;

/// Packets that come when their epoch is over.
const LATE: u64 = 7;

pub(crate) fn setup() -> Setup {
    Setup { entries: ENTRIES, window_epochs: WINDOW as u16, ..Setup::default() }
}

pub(crate) fn asked(setup: &Setup) -> SystemSetup {
    let setup = setup.encode();
    SystemSetup { system: OFFER.system, version: 1, setup, plan: Vec::new() }
}

/// A switch with the program.
pub(crate) fn model(role: Role) -> Model {
    model_of(role, Target::Tofino)
}

/// One of that chip.
fn model_of(role: Role, target: Target<'_>) -> Model {
    let controller = format!("[cfs]\nentries = {ENTRIES}");
    let defines = Cfs.build((role, target), &controller.parse().unwrap()).unwrap().defines;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cfs.p4");
    Model::named("cfs", &Program::load(program, &defines).unwrap(), None)
}

/// The configuration of its control plane.
fn configuration(model: &Model, controller: &Controller) -> String {
    let config = text(model.address, controller.address()).replace("\"host\"", "\"fabric\"");
    let config = config.replace("[driver]\n", "[driver]\nprogram = \"cfs\"\n");
    config.replace("name =", "role = \"transit\"\nname =")
}

pub(crate) fn started(model: &Model, controller: &Controller, way: Way) -> Daemon {
    let config = configuration(model, controller);
    let config = Config::parse(&config, "the test's configuration").unwrap();
    Daemon::start_with(&SYSTEMS, config, way)
}

/// An IPv6 packet of an epoch.
fn ipv6(epoch: u64) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    let class = 0x60 | (epoch as u8 & 1) << 3;
    bytes.extend_from_slice(&[0x86, 0xDD, class, 0, 0, 0, 0, 8, 17, 64]);
    bytes.resize(14 + 40 + 8, 9);
    bytes
}

/// What came in a window.
#[derive(Default)]
struct Came {
    packets: u64,
    /// Packets and bytes by flow.
    flows: BTreeMap<WideKey, [u64; 2]>,
}

/// Sends packets of an epoch in the middle of it, and before them late ones.
fn draw(model: &mut Model, numbers: &mut Numbers, epoch: u64, came: &mut Came) {
    for number in 0..150 + LATE {
        let packet = packet(numbers);
        let of = if number < LATE { epoch - 1 } else { epoch };
        model.host.send(&marked(&packet, (of as u8 & 1) << 2));
        let bytes = Model::next(&mut model.fabric).len() - packet.ip;
        if of == epoch {
            came.packets += 1;
            let flow = came.flows.entry(packet.key.into()).or_default();
            *flow = [flow[0] + 1, flow[1] + bytes as u64];
        }
    }
}

/// What was reported of a window.
fn window(reported: &Epoch, setup: &Setup) -> Window {
    let [side] = &reported.sides[..] else { panic!("{} sides", reported.sides.len()) };
    assert_eq!((side.side, side.stall_ns), (SideKind::Transit, 0));
    let window = Window::decode(&side.body, setup).unwrap();
    assert_eq!(side.packets, window.totals.packets);
    window
}

#[test]
fn windows_are_right_whoever_controls() {
    windows_are_right(packets, Target::Tofino);
}

/// Nobody says how many columns the program has: it is seen from its registers.
#[test]
fn windows_of_a_program_with_six_columns_are_right() {
    windows_are_right(packets, Target::Tofino2);
}

#[test]
fn windows_are_right_whatever_the_cpu_port_loses() {
    windows_are_right(|port| packets(Lossy::new(port)), Target::Tofino);
}

fn windows_are_right(way: impl Fn(Cable) -> Way, target: Target<'_>) {
    let mut model = model_of(Role::Transit, target);
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let way = way(model.cpu.take().unwrap());
    let daemon = started(&model, &controller, way);
    let hello = controller.accept();
    let offered: Vec<_> = hello.systems.iter().map(|offer| offer.system).collect();
    let all = vec![sketchint::OFFER.system, OFFER.system, OFFER.system];
    assert_eq!((hello.role, offered), (Role::Transit, all));
    controller.welcome(vec![asked(&setup())]);
    // The second one of the session.
    let clock = controller.clock;
    let first = (clock.epoch_at(unix_ns()) + 4).next_multiple_of(WINDOW) + WINDOW;
    while clock.epoch_at(unix_ns()) + 1 < first {
        controller.listen();
    }
    let mut numbers = Numbers(11);
    let mut came: BTreeMap<u64, Came> = BTreeMap::new();
    for epoch in first..first + 2 * WINDOW {
        wait_for_epoch(&clock, epoch);
        // The last packets of the epoch before are long due, those of the next epoch not yet.
        std::thread::sleep(Duration::from_millis(EPOCH_MS / 2 - 200));
        let of = came.entry(epoch - epoch % WINDOW).or_default();
        draw(&mut model, &mut numbers, epoch, of);
        model.host.send(&ipv6(epoch));
        Model::next(&mut model.fabric);
        of.packets += 1;
        if epoch == first {
            // In the midst of a window.
            controller.hang_up();
            controller.accept();
            controller.welcome(vec![asked(&setup())]);
        }
        if epoch == first + WINDOW {
            daemon.reload(&configuration(&model, &controller));
        }
        controller.listen();
    }
    controller.listen_until("both are sealed", |it| it.is_sealed(first + WINDOW));
    let mut recorded = 0;
    for (epoch, Came { packets, flows }) in came {
        let reported = &controller.epochs[&epoch];
        let late = if epoch == first { WINDOW } else { WINDOW - 1 } * LATE;
        assert_eq!(reported.late_packets, Some(late), "window {epoch}");
        let window = window(reported, &setup());
        assert_eq!(window.totals.packets, packets, "window {epoch}");
        assert_eq!(window.routes_changed, epoch != first, "the daemon routed anew");
        assert!(window.entries.len() > 60, "{} of {}", window.entries.len(), flows.len());
        for entry in &window.entries {
            assert!(entry.exact, "packets came one after the other");
            assert_eq!([entry.packets, entry.bytes], flows[&entry.key], "{}", entry.key);
        }
        assert!(window.totals.refused > 0, "{:?}", window.totals);
        recorded += packets;
    }
    // The sums over all windows come along.
    let sides = controller.epochs.values().rev().flat_map(|of| &of.sides);
    let mut totals = sides.flat_map(|side| &side.counters);
    let sum = totals.find(|(name, _)| name == "cfs.recorded").expect("a sum").1;
    assert_eq!(sum, recorded);
}

/// Flows of which some come in every window.
fn pins(seed: u64) -> Pins {
    let mut numbers = Numbers(seed);
    let flows: BTreeSet<WideKey> = (0..60).map(|_| packet(&mut numbers).key.into()).collect();
    Pins { flows: flows.into_iter().collect() }
}

/// A plan holds for whole windows, from the one on that it is for, and entries of windows that are
/// over are removed.
#[test]
fn flows_are_pinned_from_the_window_on_that_a_plan_is_for() {
    let mut model = model(Role::Transit);
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let way = packets(model.cpu.take().unwrap());
    let daemon = started(&model, &controller, way);
    controller.accept();
    let asked = SystemSetup { version: ROWS, ..asked(&setup()) };
    controller.welcome(vec![asked.clone()]);
    let clock = controller.clock;
    let first = (clock.epoch_at(unix_ns()) + 4).next_multiple_of(WINDOW) + WINDOW;
    let second = first + WINDOW;
    let by_window = [(first, pins(1)), (second, pins(2))];
    let pin = |controller: &mut Controller, effective_epoch: u64, pins: &Pins| {
        let (system, plan) = (OFFER.system, pins.encode());
        controller.send(&Message::Reconfigure { system, effective_epoch, plan });
    };
    while clock.epoch_at(unix_ns()) < first - WINDOW {
        controller.listen();
    }
    pin(&mut controller, first, &by_window[0].1);
    controller.listen_until("it is accepted", |it| it.accepted == [first]);
    let mut numbers = Numbers(11);
    let mut came: BTreeMap<u64, Came> = BTreeMap::new();
    for epoch in first..first + 2 * WINDOW {
        wait_for_epoch(&clock, epoch);
        std::thread::sleep(Duration::from_millis(EPOCH_MS / 2 - 200));
        let of = came.entry(epoch - epoch % WINDOW).or_default();
        draw(&mut model, &mut numbers, epoch, of);
        if epoch == first + 1 {
            // For the window under way, and then for the next one.
            pin(&mut controller, first, &by_window[1].1);
            controller.listen_until("it is too late", |it| it.late == [first]);
            pin(&mut controller, second, &by_window[1].1);
            controller.listen_until("it is accepted", |it| it.accepted == [first, second]);
        }
        if epoch == second {
            // Who comes gets to know by which plan it measures.
            controller.hang_up();
            let hello = controller.accept();
            let of_cfs = hello.holding.iter().find(|(system, _)| *system == OFFER.system);
            let held = Holding::decode(&of_cfs.unwrap().1).unwrap();
            assert_eq!((held.setup, held.epoch), (setup().encode(), second));
            assert_eq!(held.plan, by_window[1].1.encode());
            controller.welcome(vec![SystemSetup { plan: held.plan, ..asked.clone() }]);
        }
        controller.listen();
    }
    controller.listen_until("both are sealed", |it| it.is_sealed(second));
    for (epoch, Pins { flows }) in &by_window {
        let window = window(&controller.epochs[epoch], &setup());
        let came = &came[epoch].flows;
        let pinned = window.entries.iter().filter(|entry| entry.rank == Rank::new(0, 0));
        let pinned: Vec<_> = pinned.collect();
        let that_came = flows.iter().filter(|flow| came.contains_key(*flow));
        assert!(pinned.iter().map(|entry| &entry.key).eq(that_came), "window {epoch}");
        assert!(pinned.len() > 10 && window.totals.refused > 0, "{} pinned", pinned.len());
        for entry in pinned {
            assert!(entry.exact);
            assert_eq!([entry.packets, entry.bytes], came[&entry.key], "{}", entry.key);
        }
    }
    drop(daemon);
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let (address, program) = (model.address.to_string(), "cfs".to_owned());
    let options = Options { address, device: 0, client: 7, program };
    let driver = Driver::connect(&runtime, &options).unwrap();
    let entries = driver.entries("Ingress.pins").unwrap();
    assert_eq!(entries.len(), 2 * by_window[1].1.flows.len(), "those of the plan, in both groups");
    let table = driver.info().table("Ingress.pins").unwrap();
    assert!(table.size >= 4 * u64::from(Pins::MOST), "half of it is never used");
}

#[test]
fn what_a_tofino_can_not_do_is_declined_with_the_remedy() {
    let model = model(Role::Transit);
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let _daemon = started(&model, &controller, Way::Registers);
    controller.accept();
    let wanted = [
        (Setup { residual: Some(1024), ..setup() }, "set [cfs] residual = \"none\""),
        (Setup { hop: Hop::Port(PortHops::NONE), ..setup() }, "set [cfs] hop = \"ttl\""),
        (Setup { hop: Hop::Mark { length: 0 }, ..setup() }, "hop = \"mark\": a Tofino numbers"),
        (Setup { grade: Graded::Greedy, ..setup() }, "grade = \"greedy\": a Tofino grades by"),
        (Setup { hll_bits: 10, ..setup() }, "hll_bits = 10"),
        (Setup { entries: 100_000, ..setup() }, "build cfs.p4 with -DROW_BITS"),
    ];
    for (setup, reason) in wanted {
        controller.declined.clear();
        controller.welcome(vec![asked(&setup)]);
        controller.listen_until("it is declined", |it| !it.declined.is_empty());
        let [(system, declined)] = &controller.declined[..] else { panic!() };
        assert_eq!(*system, OFFER.system);
        assert!(declined.contains(reason), "{declined}");
    }
    // Pins are a plan, and there is none.
    controller.declined.clear();
    controller.welcome(vec![asked(&setup())]);
    let (system, plan) = (OFFER.system, vec![1, 2, 3]);
    let effective_epoch = controller.clock.epoch_at(unix_ns()) + 8;
    controller.send(&Message::Reconfigure { system, effective_epoch, plan });
    controller.listen_until("pins are declined", |it| !it.declined.is_empty());
    assert!(controller.declined[0].1.contains("nothing to plan"), "{:?}", controller.declined);
}

#[test]
fn of_two_systems_between_edges_the_one_whose_program_is_loaded_is_run() {
    let model = model(Role::Transit);
    let mut controller = Controller::of(OFFER.system, 800);
    let _daemon = started(&model, &controller, Way::Registers);
    controller.accept();
    let (system, version) = (sketchint::OFFER.system, sketchint::OFFER.highest);
    let of_sketchint = sketchint::Setup::default().encode();
    let plan = sketchint::Plan::of(sketchint::Step::Sinks).encode();
    let other = SystemSetup { system, version, setup: of_sketchint, plan };
    controller.welcome(vec![other, asked(&setup())]);
    controller.listen_until("a window is reported", |it| !it.epochs.is_empty());
    let [(declined, reason)] = &controller.declined[..] else {
        panic!("{:?}", controller.declined)
    };
    assert_eq!(*declined, system);
    assert!(
        reason.contains("cfs.p4 is loaded") && reason.contains("load sketchint.p4"),
        "{reason}"
    );
}
