//! SketchINT between software edges: what the daemon says of itself step by step, and what the
//! switch makes of packets that software sources have put stacks into.

use std::num::NonZeroU16;
use std::path::Path;

use calumma_interface::Plug;
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::strip::{Goes, read, strip};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack, push};
use calumma_plane::packet::{Frame, Packet as _};
use calumma_sketchint::frames::{Holding, OFFER, Plan, Setup, Step};
use calumma_switch_host::unix_ns;
use calumma_switchd::config::Config;
use calumma_switchd::{SYSTEMS, collector::Way};
use calumma_tna::Program;
use calumma_wire::{Message, Role, SideKind, SystemSetup};

use crate::common::{Numbers, checksum};
use crate::daemon::wait_for_epoch;
use crate::hops::Controller;
use crate::rig::{Daemon, Model, text};

pub(crate) const DOMAIN: NonZeroU16 = NonZeroU16::new(0xBEEF).unwrap();
const WINDOW: u16 = 2;
const EPOCH_MS: u64 = 200;

fn setup(instructions: Instructions) -> Setup {
    Setup { domain: DOMAIN, instructions, window_epochs: WINDOW, ..Setup::default() }
}

fn asked(setup: &Setup, step: Step) -> SystemSetup {
    let plan = Plan::of(step).encode();
    SystemSetup { system: OFFER.system, version: OFFER.highest, setup: setup.encode(), plan }
}

/// The switch and its daemon.
fn started(controller: &Controller) -> (Model, Daemon) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sketchint.p4");
    let model = Model::named("sketchint", &Program::load(program, &[]).unwrap(), None);
    let config = text(model.address, controller.address()).replace("\"host\"", "\"fabric\"");
    let config = config.replace("[driver]\n", "[driver]\nprogram = \"sketchint\"\n");
    let config = config.replace("name =", "role = \"transit\"\nname =");
    // Two links of different lengths.
    let config = config.replacen("peer = 2\n", "peer = 2\nmtu = 90\n", 1);
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let daemon = Daemon::start_with(&SYSTEMS, config, Way::Registers);
    (model, daemon)
}

/// Where the IP header of packets begins.
pub(crate) const IP: usize = 14;

/// A TCP or UDP packet as a host sends it; its transport checksum is any.
pub(crate) fn sent(numbers: &mut Numbers) -> Vec<u8> {
    let is_tcp = numbers.below(2) == 0;
    let (l4, payload) = (if is_tcp { 20 } else { 8 }, numbers.below(40) as usize);
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[8, 0, 0x45, 0x88]);
    bytes.extend_from_slice(&(20 + l4 as u16 + payload as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 1, 0x40, 0, 64, if is_tcp { 6 } else { 17 }, 0, 0]);
    bytes.extend_from_slice(&[10, 0, 0, numbers.below(200) as u8, 10, 1, 0, 1]);
    let sum = checksum(&bytes[IP..]);
    bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    let mut transport = vec![numbers.below(200) as u8; l4];
    if is_tcp {
        transport[12] = 0x50;
    } else {
        transport[4..6].copy_from_slice(&(l4 as u16 + payload as u16).to_be_bytes());
    }
    bytes.extend(transport);
    bytes.resize(bytes.len() + payload, 0x55);
    bytes
}

/// A packet as a software source sends it on.
pub(crate) fn with_stack(bytes: &[u8]) -> Vec<u8> {
    with_hop(bytes, 700)
}

/// The same of one that the source had for so long.
pub(crate) fn with_hop(bytes: &[u8], latency_ns: u32) -> Vec<u8> {
    let (node, instructions) = (NonZeroU16::new(1).unwrap(), Instructions::DEFAULT);
    let insertion = Insertion { domain: DOMAIN, node, instructions, hops: 6, udp_port: None };
    let hop = Hop { node: 1, latency_ns, ..Hop::UNKNOWN };
    let mut packet = Frame::with_headroom(64, bytes);
    let dscp = if bytes[IP] >> 4 == 6 { 0 } else { bytes[IP + 1] >> 2 };
    push::source(&mut packet, IP, (&insertion, &hop), dscp, 1500).unwrap();
    packet.bytes().to_vec()
}

#[test]
fn a_transit_pushes_its_hop_and_follows_the_steps_of_its_network() {
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let (mut model, _daemon) = started(&controller);
    let hello = controller.accept();
    let offered: Vec<_> = hello.systems.iter().map(|offer| offer.system).collect();
    let cfs = calumma_cfs::frames::OFFER.system;
    let of_transits = vec![OFFER.system, cfs, cfs];
    assert_eq!((hello.role, offered), (Role::Transit, of_transits));
    assert!(hello.holding.is_empty());

    let setup = setup(Instructions::DEFAULT);
    controller.welcome(vec![asked(&setup, Step::Sinks)]);
    controller.listen_until("a window is reported", |it| {
        it.epochs.values().any(|of| of.late_packets.is_some())
    });
    let clock = controller.clock;
    let epoch = (clock.epoch_at(unix_ns()) + 4).next_multiple_of(WINDOW.into());
    let plan = Plan::of(Step::Transits);
    let (system, bytes) = (OFFER.system, plan.encode());
    controller.send(&Message::Reconfigure { system, effective_epoch: epoch, plan: bytes });
    controller.listen_until("the step is accepted", |it| it.accepted == [epoch]);

    // By the longer link, every stack gets the switch's hop, and is the sender's packet beneath.
    let (mut numbers, mut pushed) = (Numbers(3), 0);
    while pushed < 40 {
        let sent = sent(&mut numbers);
        model.host.send(&with_stack(&sent));
        let passed = Model::next(&mut model.fabric);
        let mut passed = Frame::new(passed);
        let Seen::Stack(found) = look(&passed, IP, Domains::ANY) else {
            panic!("{:?}", passed.bytes());
        };
        let mut stack = Stack::EMPTY;
        read(&passed, &found, &mut stack);
        let nodes: Vec<u32> = stack.hops().map(|hop| hop.node).collect();
        assert_eq!(nodes, [1, 2], "the source, then this switch");
        assert!(!stack.is_partial && stack.latencies()[1] < 2_000_000_000);
        assert!(strip(&mut passed, IP, &found, Goes::ToHost));
        assert_eq!(passed.bytes(), sent, "as it was sent");
        pushed += 1;
    }
    // By the shorter one the longest do not fit, and their stacks say so.
    let mut refused = 0;
    while refused < 10 {
        let bytes = with_stack(&sent(&mut numbers));
        model.fabric.send(&bytes);
        let passed = Frame::new(Model::next(&mut model.host));
        let Seen::Stack(found) = look(&passed, IP, Domains::ANY) else { panic!() };
        let fits = bytes.len() - IP + 8 <= 90;
        assert_eq!(found.header.is_partial(), !fits);
        assert_eq!(passed.bytes().len(), bytes.len() + if fits { 8 } else { 0 });
        (refused, pushed) = (refused + u64::from(!fits), pushed + u64::from(fits));
    }

    wait_for_epoch(&clock, epoch + 2 * u64::from(WINDOW));
    let last = epoch + u64::from(WINDOW);
    controller.listen_until("a later window is reported", |it| it.is_sealed(last));
    for (epoch, reported) in &controller.epochs {
        assert_eq!(epoch % u64::from(WINDOW), 0, "windows, by their first epochs");
        assert!(reported.sides.len() <= 1);
        for side in &reported.sides {
            assert_eq!((side.side, side.packets, side.body.len()), (SideKind::Transit, 0, 0));
            assert_eq!(reported.late_packets.unwrap_or(0), 0);
        }
    }
    // What has not changed is not sent again.
    let total = |name: &str| {
        let sides = controller.epochs.values().rev().flat_map(|of| &of.sides);
        let mut totals = sides.flat_map(|side| &side.counters);
        totals.find(|of| of.0 == name).unwrap().1
    };
    assert_eq!(total("sketchint.pushed"), pushed);
    assert_eq!(total("sketchint.mtu_exceeded"), refused);
    assert_eq!(total("sketchint.hops_exceeded") + total("sketchint.foreign"), 0);

    // A controller that comes anew learns what it does.
    controller.hang_up();
    let hello = controller.accept();
    let [(of, bytes)] = &hello.holding[..] else { panic!("{:?}", hello.holding) };
    let holding = Holding { setup: setup.encode(), epoch, plan };
    assert_eq!((*of, Holding::decode(bytes)), (OFFER.system, Ok(holding)));
}

#[test]
fn what_a_tofino_can_not_say_of_itself_is_declined_with_the_remedy() {
    let queue = Instructions::new(Instructions::DEFAULT.bits() | Instructions::QUEUE).unwrap();
    let udp_port = NonZeroU16::new(41_000);
    for (setup, words) in [
        (setup(queue), "instructions = [\"node-id\", \"latency\"]"),
        (
            Setup { udp_port, ..setup(Instructions::DEFAULT) },
            "leave [sketchint] udp_port = 41000 out",
        ),
    ] {
        let mut controller = Controller::of(OFFER.system, EPOCH_MS);
        let (_model, _daemon) = started(&controller);
        controller.accept();
        controller.welcome(vec![asked(&setup, Step::Sinks)]);
        controller.listen_until("it is declined", |it| !it.declined.is_empty());
        let (system, reason) = &controller.declined[0];
        assert_eq!(*system, OFFER.system);
        assert!(reason.contains(words), "{reason}");
    }
}
