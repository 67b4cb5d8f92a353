//! Inflated latencies on an edge, and stacks by which it kept keys: from packets to windows, by the
//! model and by the real protocols.

use std::time::{Duration, Instant};

use calumma_interface::Plug;
use calumma_plane::parse::{Parsed, parse};
use calumma_sketch::WideKey;
use calumma_sketch::sketchint::{Inflation, Path};
use calumma_sketchint::frames::{NO_TIME, OFFER, PathSeen, Plan, STACKS_SINCE, Step, Window};
use calumma_switch_host::unix_ns;
use calumma_switchd::notices::{BUDGET, FRONT, Inbox, Streams};
use calumma_tna::MirrorSession;
use calumma_wire::SideKind;

use crate::common::transit::Transit;
use crate::common::{FABRIC, HOST, Numbers, add, checksum};
use crate::daemon::wait_for_epoch;
use crate::hops::Controller;
use crate::sketchint::{IP, sent, with_hop};
use crate::sketchint_edge::{EPOCH_MS, WINDOW, asked, setup, stamped, started};
use crate::sketchint_windows::{OWN, edge, edge_of, sent6, words};

const CPU: u16 = 64;
const SESSION: u16 = 2;
const STREAMS: Streams =
    Streams { control: "Egress.notices", count: 2, has_register: false, most: BUDGET };
/// The first switch of stacks.
const SOURCE: u32 = 1;
/// As the switch has a window of which no notice came.
const PLACES: u64 = 6;

fn flow(bytes: &[u8]) -> WideKey {
    match parse(bytes, bytes.len()) {
        Parsed::Flow { key, .. } => key.into(),
        Parsed::Flow6 { key, .. } => WideKey::from_bytes(key),
        _ => panic!("{bytes:02x?}"),
    }
}

/// What the switch says to its CPU of a packet that the source and it had for so long, in an epoch
/// of timestamp bit 0.
fn pass(edge: &mut Transit, bytes: &[u8], [source_ns, own_ns]: [u32; 2]) -> Option<Vec<u8>> {
    let mut bytes = with_hop(bytes, source_ns);
    if bytes[IP] >> 4 == 6 {
        bytes[IP] &= 0xF1;
    } else {
        bytes[IP + 1] &= 0x1F;
        bytes[IP + 10..IP + 12].fill(0);
        let sum = checksum(&bytes[IP..IP + 20]);
        bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let mut left = Vec::new();
    edge.switch.set_time(5_000);
    edge.switch.offer(FABRIC, &bytes);
    edge.switch.run_ingress();
    edge.switch.set_time(5_000 + u64::from(own_ns));
    edge.switch.run(4, |port, bytes| left.push((port, bytes.to_vec())));
    assert!(left.iter().any(|(port, _)| *port == HOST));
    left.into_iter().find(|(port, _)| *port == CPU).map(|(_, notice)| notice)
}

/// The same window by window: each has its own notices, of those that came latencies are counted,
/// and of others it is said how many there may be.
#[test]
fn a_window_has_the_latencies_of_its_notices_and_bounds_for_the_others() {
    let mut edge = edge();
    edge.switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
    for entry in STREAMS.allow(&[0, 0], SESSION) {
        add(&mut edge.switch, &entry);
    }
    let (mut numbers, mut inbox) = (Numbers(2), Inbox::default());
    let mut flows = [sent(&mut numbers), sent6(&mut numbers, false)];
    flows.sort_by_key(|bytes| flow(bytes));
    let plan = Plan::of(Step::Sources).encode();
    for (first, lost) in [(8, 0), (12, 2), (16, 1)] {
        edge.open_by(&plan, first, true);
        let mut notices = Vec::new();
        for bytes in &flows {
            for _ in 0..9 {
                assert_eq!(pass(&mut edge, bytes, [700, 900]), None);
            }
            notices.extend(pass(&mut edge, bytes, [8_000, 1_000]));
            notices.extend(pass(&mut edge, bytes, [900, 30_000]));
            notices.extend(pass(&mut edge, bytes, [90_000, 90_000]));
        }
        edge.open_by(&plan, first, false);
        assert_eq!(notices.len(), 6, "in the window from {first} on");
        // The first ones, of the first flow, are lost on their way.
        notices.drain(..lost).for_each(drop);
        notices.iter().for_each(|notice| assert!(inbox.take(notice)));
        let side = edge.side_with(SideKind::Egress, first, &inbox).unwrap();
        let window = Window::decode(&side.body, &words().layout).unwrap();
        let inflation = |bytes: &[u8], node, count, max_ns| Inflation {
            key: flow(bytes),
            node,
            count,
            max_ns,
            last_us: NO_TIME,
        };
        let (own, [first_flow, second_flow]) = (u32::from(OWN), &flows);
        let wanted = [
            inflation(first_flow, SOURCE, 2 - lost.min(1) as u32, 90_000),
            inflation(first_flow, own, 2 - (lost / 2) as u32, 90_000),
            inflation(second_flow, SOURCE, 2, 90_000),
            inflation(second_flow, own, 2, 90_000),
        ];
        assert_eq!(window.inflated, wanted);
        assert_eq!(window.totals.inflated_full, lost as u64 * PLACES);
        // Without any, all may be anybody's.
        let side = edge.side_of(SideKind::Egress, first).unwrap();
        let window = Window::decode(&side.body, &words().layout).unwrap();
        assert_eq!((window.inflated.len(), window.totals.inflated_full), (0, 6 * PLACES));
        // The group's next window begins with nothing in it.
        let registers: Vec<(String, usize)> = edge
            .switch
            .program()
            .registers()
            .iter()
            .map(|register| (register.name.clone(), register.size))
            .collect();
        for (name, size) in registers {
            let lanes = edge.switch.read_register_lanes(&name).unwrap().len();
            (0..size).for_each(|at| {
                edge.switch.write_register(&name, at, &[0, 0][..lanes]).unwrap();
            });
        }
    }
}

/// Of a flow of IPv4 the stack of the packet that made it large, where its notice came and the
/// controller can read it; of IPv6 no keys are kept.
#[test]
fn a_window_has_the_stack_by_which_a_key_was_kept() {
    for (version, is_lost) in [(OFFER.highest, false), (OFFER.highest, true), (5, false)] {
        let mut edge = edge_of(version);
        edge.switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
        for entry in STREAMS.allow(&[0, 0], SESSION) {
            add(&mut edge.switch, &entry);
        }
        let (mut numbers, mut inbox) = (Numbers(2), Inbox::default());
        let flows = [sent(&mut numbers), sent6(&mut numbers, false)];
        let (first, plan) = (8, Plan::of(Step::Sources).encode());
        edge.open_by(&plan, first, true);
        for packets in 0..30 {
            let [notice, of_ipv6] =
                flows.each_ref().map(|bytes| pass(&mut edge, bytes, [700, 900]));
            assert_eq!(of_ipv6, None);
            assert_eq!(notice.is_some(), packets == words().layout.key_packets(1), "{packets}");
            if let Some(notice) = notice.filter(|_| !is_lost) {
                assert!(inbox.take(&notice));
            }
        }
        edge.open_by(&plan, first, false);
        let side = edge.side_with(SideKind::Egress, first, &inbox).unwrap();
        let window = Window::decode(&side.body, &words().layout).unwrap();
        let key = flow(&flows[0]);
        assert_eq!(window.large, [key]);
        let seen = PathSeen { key, path: Path::new([SOURCE], false) };
        let is_there = version >= STACKS_SINCE && !is_lost;
        assert_eq!(window.seen, is_there.then_some(seen).into_iter().collect::<Vec<_>>());
        // What it is not said of is no inflated latency.
        assert_eq!((window.inflated.len(), window.totals.inflated_full), (0, 0));
    }
}

#[test]
fn a_report_names_the_flow_and_the_switch() {
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let (mut model, _daemon) = started(&controller);
    controller.accept();
    controller.welcome(vec![asked(Step::Sinks)]);
    controller.listen_until("a window is reported", |it| {
        it.epochs.values().any(|of| of.late_packets.is_some())
    });
    let (clock, window) = (controller.clock, u64::from(WINDOW));
    let (bytes, end) = (sent(&mut Numbers(4)), Instant::now() + Duration::from_secs(60));
    loop {
        let epoch = (clock.epoch_at(unix_ns()) + 1).next_multiple_of(window);
        wait_for_epoch(&clock, epoch);
        std::thread::sleep(Duration::from_millis(EPOCH_MS / 4));
        for latency_ns in [[700; 12].as_slice(), &[50_000, 60_000]].concat() {
            model.fabric.send(&stamped(with_hop(&bytes, latency_ns), epoch));
            assert_eq!(crate::rig::Model::next(&mut model.host).len(), bytes.len());
        }
        controller.listen_until("the window is reported", |it| it.is_sealed(epoch));
        let sides = &controller.epochs[&epoch].sides;
        let side = sides.iter().find(|side| side.side == SideKind::Egress).unwrap();
        let found = Window::decode(&side.body, &setup().layout).unwrap();
        let of_source = found.inflated.iter().find(|of| of.node == SOURCE);
        if let Some(of) = of_source.filter(|of| of.count == 2) {
            assert_eq!((of.key, of.max_ns), (flow(&bytes), 60_000));
            assert_eq!(found.totals.inflated_full, 0);
            break;
        }
        // On a machine that is busy, some came in another window.
        assert!(Instant::now() < end, "{:?}", (found.totals, found.inflated));
    }
}
