//! SketchINT on an edge, by the real protocols: packets from hosts get stacks in the epochs that
//! the controller says, what is said of each window is what passed in it, and without a controller
//! the source stops.

use std::time::Duration;

use calumma_interface::Plug;
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::{Domains, Stack, strip};
use calumma_plane::packet::Frame;
use calumma_sketch::sketchint::Shape;
use calumma_sketchint::frames::{Entered, Holding, Layout, OFFER, Plan, Setup, Step, Window};
use calumma_switch_host::unix_ns;
use calumma_switchd::SYSTEMS;
use calumma_switchd::config::Config;
use calumma_switchd::sketchint::SketchInt;
use calumma_wire::{Message, Role, SideKind, SystemSetup};

use crate::common::{Numbers, checksum};
use crate::daemon::wait_for_epoch;
use crate::hops::Controller;
use crate::rig::{Daemon, Model, built, packets, text};
use crate::sketchint::{DOMAIN, IP, sent, with_stack};

pub(crate) const WINDOW: u16 = 2;
pub(crate) const EPOCH_MS: u64 = 800;
/// The model hands out a small group in a fraction of an epoch.
const SIZES: &str = "[sketchint]\ntower_words = 64\npair_buckets = 64";

pub(crate) fn setup() -> Setup {
    let shape = Shape { tower_words: 64, pair_buckets: 64, row_sets: 0, ..Shape::default() };
    let layout = Layout { shape, heavy_packets: 5, heavy_change_packets: 5, ..Layout::default() };
    let (domain, window_epochs, orphan_seconds) = (DOMAIN, WINDOW, 2);
    Setup { domain, window_epochs, orphan_seconds, layout, ..Setup::default() }
}

pub(crate) fn asked(step: Step) -> SystemSetup {
    let (setup, plan) = (setup().encode(), Plan::of(step).encode());
    SystemSetup { system: OFFER.system, version: OFFER.highest, setup, plan }
}

/// The switch and its daemon.
pub(crate) fn started(controller: &Controller) -> (Model, Daemon) {
    let mut model = Model::named("sketchint", &built(&SketchInt, Role::Edge, SIZES), None);
    let config = text(model.address, controller.address());
    let config = config.replace("[driver]\n", "[driver]\nprogram = \"sketchint\"\n");
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let way = packets(model.cpu.take().unwrap());
    let daemon = Daemon::start_with(&SYSTEMS, config, way);
    (model, daemon)
}

/// Sends a packet of a host, and gives what goes into the network.
fn enter(model: &mut Model, bytes: &[u8]) -> Vec<u8> {
    model.host.send(bytes);
    Model::next(&mut model.fabric)
}

/// What the stack of a packet says, if it has one.
fn stack_of(bytes: &[u8]) -> Option<Stack> {
    let packet = Frame::new(bytes.to_vec());
    let Seen::Stack(found) = look(&packet, IP, Domains::ANY) else { return None };
    let mut stack = Stack::EMPTY;
    strip::read(&packet, &found, &mut stack);
    Some(stack)
}

/// The packet with the timestamp bit of an epoch.
pub(crate) fn stamped(mut bytes: Vec<u8>, epoch: u64) -> Vec<u8> {
    bytes[IP + 1] = bytes[IP + 1] & 0x1F | (epoch as u8 & 1) << 7;
    bytes[IP + 10..IP + 12].fill(0);
    let sum = checksum(&bytes[IP..IP + 20]);
    bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Changes the plan from the next window but one on, and gives its first epoch.
fn change(controller: &mut Controller, step: Step) -> u64 {
    let window = u64::from(WINDOW);
    let epoch = (controller.clock.epoch_at(unix_ns()) + 1 + window).next_multiple_of(window);
    let (system, plan) = (OFFER.system, Plan::of(step).encode());
    controller.send(&Message::Reconfigure { system, effective_epoch: epoch, plan });
    controller.listen_until("the step is accepted", |it| it.accepted.contains(&epoch));
    epoch
}

#[test]
fn an_edge_puts_stacks_in_and_takes_them_out_as_the_controller_says() {
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let (mut model, _daemon) = started(&controller);
    let hello = controller.accept();
    assert_eq!(hello.role, Role::Edge);
    assert!(hello.systems.iter().any(|offer| offer.system == OFFER.system));
    let mut numbers = Numbers(3);

    // Stacks are taken out before there is a session, of any domain.
    let bytes = sent(&mut numbers);
    model.fabric.send(&with_stack(&bytes));
    assert_eq!(Model::next(&mut model.host), bytes);
    assert!(stack_of(&enter(&mut model, &bytes)).is_none());

    controller.welcome(vec![asked(Step::Sinks)]);
    controller.listen_until("a window is reported", |it| {
        it.epochs.values().any(|of| of.late_packets.is_some())
    });
    let from = change(&mut controller, Step::Sources);
    let clock = controller.clock;
    let (mut entered, mut left) = ([0_u64; 2], [0_u64; 2]);
    let window = u64::from(WINDOW);
    for epoch in from - 1..from + window {
        wait_for_epoch(&clock, epoch);
        std::thread::sleep(Duration::from_millis(EPOCH_MS / 2 - 150));
        for _ in 0..30 {
            let bytes = sent(&mut numbers);
            let went = enter(&mut model, &bytes);
            let stack = stack_of(&went);
            assert_eq!(stack.is_some(), epoch >= from, "{epoch}, from {from}");
            assert_eq!(went[IP + 1] >> 5, (epoch as u8 & 1) << 2);
            let nodes: Vec<u32> = stack.iter().flat_map(Stack::hops).map(|hop| hop.node).collect();
            assert!(nodes.is_empty() == (epoch < from) && nodes.iter().all(|node| *node == 2));
            entered[usize::from(epoch >= from)] += 1;
            // Every other one comes back with the stack of another source.
            let has_stack = numbers.below(2) == 0;
            let came = if has_stack { with_stack(&bytes) } else { bytes.clone() };
            model.fabric.send(&stamped(came, epoch));
            let leaves = Model::next(&mut model.host);
            assert_eq!(leaves.len(), bytes.len());
            // The whole DSCP of its host, or what the port has.
            assert_eq!(leaves[IP + 1], if has_stack { 0x88 } else { 0xA8 });
            if epoch >= from {
                left[usize::from(has_stack)] += 1;
            }
        }
        controller.listen();
    }
    controller.listen_until("the window is reported", |it| it.is_sealed(from));
    let reported = &controller.epochs[&from];
    assert_eq!(reported.late_packets, Some(0));
    let side = |kind: SideKind| reported.sides.iter().find(|side| side.side == kind).unwrap();
    let source = Entered::decode(&side(SideKind::Ingress).body).unwrap();
    assert_eq!(source, Entered { inserted: entered[1], ..Entered::default() });
    let sink = Window::decode(&side(SideKind::Egress).body, &setup().layout).unwrap();
    assert_eq!((sink.totals.packets, sink.totals.int_packets), (left[0] + left[1], left[1]));
    assert_eq!((sink.own, sink.totals.partial), (Some(2), 0));
    // In the window before, packets went without.
    let before = &controller.epochs[&(from - window)];
    let source = before.sides.iter().find(|side| side.side == SideKind::Ingress).unwrap();
    let source = Entered::decode(&source.body).unwrap();
    assert_eq!(source, Entered { idle: entered[0], ..Entered::default() });
    let total = |name: &str| {
        let sides = controller.epochs.values().rev().flat_map(|of| &of.sides);
        let mut totals = sides.flat_map(|side| &side.counters);
        totals.find(|of| of.0 == name).unwrap().1
    };
    assert_eq!((total("sketchint.inserted"), total("sketchint.pushed")), (entered[1], entered[1]));
    assert!(total("sketchint.stripped") > left[1]);

    // Without a controller it stops, in the middle of a window.
    controller.hang_up();
    let mut waited = 0;
    while stack_of(&enter(&mut model, &sent(&mut numbers))).is_some() {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
        assert!(waited < 120, "it stops");
    }
    assert!(waited > 20, "it goes on for {waited} turns");
    // It has said hello when it still went on.
    controller.accept();
    controller.hang_up();
    let hello = controller.accept();
    let [(_, bytes)] = &hello.holding[..] else { panic!("{:?}", hello.holding) };
    assert_eq!(Holding::decode(bytes).unwrap().plan, Plan::of(Step::Transits));
    // And begins again once a plan says so.
    controller.welcome(vec![asked(Step::Transits)]);
    assert!(stack_of(&enter(&mut model, &sent(&mut numbers))).is_none());
    let from = change(&mut controller, Step::Sources);
    wait_for_epoch(&clock, from);
    std::thread::sleep(Duration::from_millis(100));
    assert!(stack_of(&enter(&mut model, &sent(&mut numbers))).is_some());
}

#[test]
fn a_program_of_other_sizes_is_declined_with_the_remedy() {
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let (_model, _daemon) = started(&controller);
    controller.accept();
    let shape = Shape { tower_words: 128, ..setup().layout.shape };
    let larger = Setup { layout: Layout { shape, ..setup().layout }, ..setup() };
    let asked = SystemSetup { setup: larger.encode(), ..asked(Step::Sinks) };
    controller.welcome(vec![asked]);
    controller.listen_until("it is declined", |it| !it.declined.is_empty());
    let (_, reason) = &controller.declined[0];
    assert!(
        reason.contains("holds 512 elements in Egress.sizes.level8.counters")
            && reason.contains("contract --system sketchint --role edge"),
        "{reason}"
    );
}
