//! `p4src/cfs.p4` at an edge, filled and read by its description, beside a software edge: the same
//! packets leave both with the same bytes, and where tables have room for all flows, both say the
//! same of each window.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use calumma_cfs::frames::{Entry as Counted, OFFER, Pins, ROWS, Setup as Words, Window};
use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::{ID, encode_setup};
use calumma_epoch::EpochClock;
use calumma_plane::carrier::Tos;
use calumma_plane::measure::Side;
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::{Frame, Packet as _};
use calumma_plane::parse::PlainFlows;
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, System as _};
use calumma_plane::worker::{Path, Policy};
use calumma_plane::{Carrier, LcoreMerger, Measurement, Part, Worker};
use calumma_sketch::table::Rank;
use calumma_sketch::{KeyKind, WideKey};
use calumma_switch_host::Session;
use calumma_switchd::cfs::Cfs;
use calumma_switchd::system::{System, Target};
use calumma_tna::{Entry, Program};
use calumma_wire::{Role, SideKind, SystemSetup};

use crate::common::{CHIPS, FABRIC, HOST, Numbers, Packet, checksum, packet, transit};

const LOCAL: u16 = 3;
const THROUGH: u16 = 4;

const FIRST_EPOCH: u64 = 8;
const WINDOW: u64 = 4;

/// What packets for hosts are given back, bit of the claim included.
const DSCP: u8 = 0b10_1010;

/// The ways that packets go, and the ports by which they come to the modelled switch.
const WAYS: [(Path, u16, u16); 4] = [
    (Path::Enter, HOST, FABRIC),
    (Path::Leave, FABRIC, HOST),
    (Path::Cross, LOCAL, HOST),
    (Path::Transit, THROUGH, FABRIC),
];

fn words() -> Words {
    Words { entries: 3 << 13, window_epochs: WINDOW as u16, ..Words::default() }
}

/// The modelled edge.
fn modelled() -> transit::Transit {
    modelled_by(words(), Target::Tofino)
}

/// One of that chip that measures by these words.
fn modelled_by(words: Words, target: Target<'_>) -> transit::Transit {
    let path = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../cfs.p4");
    let controller = format!("[cfs]\nentries = {}", words.entries);
    let defines = Cfs.build((Role::Edge, target), &controller.parse().unwrap()).unwrap().defines;
    let program = Program::load(path, &defines).unwrap();
    let mut session = transit::session(OFFER.system, words.encode(), FIRST_EPOCH);
    session.systems[0].version = ROWS;
    let setup = Cfs.setup((Role::Edge, target), &session, &session.systems[0]).unwrap();
    let mut edge = transit::Transit::new(&program, setup);
    for (_, port, to) in WAYS {
        let send = Entry::new("send").exact("ingress_port", port).arg("port", to);
        if edge.switch.add_entry("port_pair", &send).is_err() {
            edge.switch.modify_entry("port_pair", &send).unwrap();
        }
    }
    for port in [HOST, LOCAL] {
        let host = Entry::new("host").exact("ingress_port", port);
        edge.switch.add_entry("Ingress.host_ports", &host).unwrap();
        let host = Entry::new("host").exact("egress_port", port).arg("dscp", DSCP >> 3);
        edge.switch.add_entry("Egress.host_ports", &host).unwrap();
        let host = Entry::new("host").exact("port", port).arg("claim", DSCP >> 1 & 1);
        edge.switch.add_entry("Ingress.leaves.ports", &host).unwrap();
    }
    edge
}

/// The software edge in virtual time.
struct Software {
    worker: Worker,
    merger: LcoreMerger,
    clock: EpochClock,
    words: Words,
    windows: Vec<(u64, Window)>,
    late: u64,
}

impl Software {
    fn new() -> Self {
        Self::by(words(), Vec::new())
    }

    /// One that measures by these words, and a plan.
    fn by(words: Words, plan: Vec<u8>) -> Self {
        let mut session = transit::session(OFFER.system, words.encode(), FIRST_EPOCH);
        (session.systems[0].version, session.systems[0].plan) = (OFFER.highest, plan);
        let (hash_key, clock) = (session.hash_key, session.clock);
        let context = SessionContext {
            role: Role::Edge,
            node_id: session.node_id,
            hash_key,
            clock,
            first_epoch: FIRST_EPOCH,
            lcores: 1,
            ports: None,
            routes: RouteWatch::default(),
            outlets: Outlets::default(),
            carries_claims: true,
            carries_hops: false,
            carries_stacks: true,
        };
        let half = calumma_cfs::Cfs.begin(&context, &session.systems[0]).unwrap();
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, FIRST_EPOCH, hash_key, KeyKind::Dual, vec![half]);
        let policy = Policy { carrier: Carrier::Tos(Tos { dscp: DSCP }), ..Policy::default() };
        let worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        Self { worker, merger, clock, words, windows: Vec::new(), late: 0 }
    }

    /// Lets time run, event by event, so that records come back in time.
    fn advance_to(&mut self, now_ns: u64) {
        loop {
            let due_ns = self.worker.next_due_ns();
            self.worker.advance_to(due_ns.min(now_ns));
            for part in self.merger.poll() {
                let (system, epoch, side, record, mixed_plan) = match part {
                    Part::Side { system, epoch, side, record, mixed_plan, .. } => {
                        (system, epoch, side, record, mixed_plan)
                    }
                    Part::Sealed { late_packets, .. } => {
                        self.late += late_packets;
                        continue;
                    }
                };
                if side == Side::ByBit {
                    let half = self.merger.system(system).unwrap();
                    let side = SideKind::Egress;
                    let finished = FinishedSide { epoch, side, record: &*record, mixed_plan };
                    let (frame, _) = half.side(finished).unwrap();
                    let window = Window::decode(&frame.body, &self.words).unwrap();
                    self.windows.push((epoch, window));
                }
                self.merger.recycle(system, side, record);
            }
            if due_ns > now_ns {
                return;
            }
        }
    }

    fn pass(&mut self, path: Path, bytes: &[u8]) -> Vec<u8> {
        let mut frame = Frame::new(bytes.to_vec());
        self.worker.begin();
        let passed = self.worker.pass(path, std::slice::from_mut(&mut frame), 1, &PlainFlows::NONE);
        assert!(passed.is_empty());
        frame.bytes().to_vec()
    }
}

/// The packet with that ToS byte, its checksum right.
fn with_tos(packet: &Packet, tos: u8) -> Vec<u8> {
    let (mut bytes, ip) = (packet.bytes.clone(), packet.ip);
    bytes[ip + 1] = tos;
    bytes[ip + 10..ip + 12].fill(0);
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = checksum(&bytes[ip..ip + header]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A packet of IPv6 with that traffic class.
fn ipv6(class: u8) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60 | class >> 4, class << 4, 0, 0, 0, 8, 17, 64]);
    bytes.resize(14 + 40 + 8, 9);
    bytes
}

/// What both kinds of switch say of a flow: a Tofino does not know when its packets came.
fn counted(window: &Window) -> Vec<Counted> {
    let of_ipv4 = |entry: &&Counted| entry.key.src().to_ipv4_mapped().is_some();
    let timeless = |entry: &Counted| Counted { first_us: 0, last_us: 0, ..*entry };
    window.entries.iter().filter(of_ipv4).map(timeless).collect()
}

#[test]
fn an_edge_says_what_a_software_edge_says() {
    an_edge_says_the_same(Target::Tofino);
}

#[test]
fn so_does_one_of_six_columns() {
    an_edge_says_the_same(Target::Tofino2);
}

fn an_edge_says_the_same(target: Target<'_>) {
    let (mut edge, mut software) = (modelled_by(words(), target), Software::new());
    let mut numbers = Numbers(17);
    software.advance_to(software.clock.start_of(FIRST_EPOCH - 1));
    let mut of_ipv6 = 0;
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 2 * WINDOW {
        software.advance_to(software.clock.start_of(epoch) + 10_000_000);
        edge.open(epoch, true);
        let bit = (epoch & 1) as u8;
        let value = [("value", u128::from(bit))];
        edge.switch.set_default_action("timestamp", "set_timestamp", &value).unwrap();
        for _ in 0..2000 {
            let packet = packet(&mut numbers);
            let flow = packet.key.src_word() & 0xFFF;
            if !flow.is_multiple_of(4) {
                continue;
            }
            let (path, port, to) = WAYS[flow as usize / 4 % 4];
            let rest = numbers.below(32) as u8;
            // Flows are claimed or not, all their packets.
            let claim = if flow.is_multiple_of(3) { 8 } else { 0 };
            let bytes = match path {
                Path::Leave | Path::Transit => with_tos(&packet, bit << 7 | rest & !8 | claim),
                _ => with_tos(&packet, (numbers.below(8) as u8) << 5 | rest),
            };
            let wanted = software.pass(path, &bytes);
            let sent = edge.switch.inject(port, &bytes);
            assert_eq!(sent, [(to, wanted)], "{path:?} of {}", packet.key);
        }
        if epoch >= FIRST_EPOCH + WINDOW {
            for (path, port, to) in WAYS {
                let came = path == Path::Leave || path == Path::Transit;
                let class = if came { bit << 7 | 8 } else { 0xFF };
                let wanted = software.pass(path, &ipv6(class));
                let mut sent = edge.switch.inject(port, &ipv6(class));
                if path == Path::Enter {
                    // It has no entry that would claim it.
                    sent[0].1[15] |= 0x80;
                }
                assert_eq!(sent, [(to, wanted)], "{path:?}");
                of_ipv6 += 1;
            }
        }
        edge.open(epoch, false);
    }
    software.advance_to(software.clock.start_of(FIRST_EPOCH + 2 * WINDOW + 2));
    let taken = edge.switch.read_counter("Ingress.taken", 0).unwrap().packets;
    assert!(taken > 0);
    assert_eq!(taken, software.worker.counters.claim_bits);
    assert_eq!(software.windows.len(), 2);
    let kinds = [Counted::ENTERED, Counted::LEFT, Counted::PASSED];
    for (number, (epoch, wanted)) in software.windows.iter().enumerate() {
        let of_ingress = edge.side_of(SideKind::Ingress, *epoch).unwrap();
        assert!(of_ingress.body.is_empty() && of_ingress.packets == 0);
        let side = edge.side_of(SideKind::Egress, *epoch).unwrap();
        let window = Window::decode(&side.body, &words()).unwrap();
        assert_eq!(side.packets, window.totals.packets);
        assert_eq!(counted(&window), counted(wanted));
        for sides in kinds {
            assert!(window.entries.iter().any(|entry| entry.sides == sides));
        }
        assert!(
            window.entries.iter().any(|entry| entry.rank.class() == 1),
            "one of this edge alone"
        );
        assert!(window.entries.iter().all(|entry| entry.exact));
        assert_eq!(window.totals.packets, wanted.totals.packets);
        assert_eq!(window.totals.refused_packets, if number == 0 { 0 } else { of_ipv6 });
        assert_eq!(window.totals.refused, 0, "packets are no flows");
        if number == 0 {
            assert_eq!(window.flows, wanted.flows);
            assert_eq!(window.totals.claimed_in, wanted.totals.claimed_in);
            assert_eq!(window.totals.claimed_out, wanted.totals.claimed_out);
            assert!(window.totals.claimed_in > 0 && window.totals.claimed_out > 0);
        }
    }
}

/// Of flows that are pinned both have the same entries, however many there are for each place, in
/// the windows that a plan is for.
#[test]
fn an_edge_pins_what_a_software_edge_pins() {
    CHIPS.into_iter().for_each(an_edge_pins_the_same);
}

fn an_edge_pins_the_same(target: Target<'_>) {
    let words = Words { entries: 256, claim: false, ..words() };
    // Of flows that come, and one of IPv6.
    let pins = |seed: u64| -> Pins {
        let mut numbers = Numbers(seed);
        let drawn = (0..200).map(|_| packet(&mut numbers).key);
        let that_come = drawn.filter(|key| (key.src_word() & 0xFFF).is_multiple_of(4));
        let of_ipv6 = WideKey::v6([1; 16].into(), [2; 16].into(), 7, 80, 6);
        let flows = that_come.map(WideKey::from).take(24).chain([of_ipv6]);
        Pins { flows: flows.collect::<BTreeSet<_>>().into_iter().collect() }
    };
    let pins = [pins(3), pins(4)];
    let [first, second] = pins.each_ref().map(Pins::encode);
    let (mut edge, mut software) = (modelled_by(words, target), Software::by(words, first.clone()));
    edge.plan(FIRST_EPOCH, &first);
    let mut numbers = Numbers(29);
    software.advance_to(software.clock.start_of(FIRST_EPOCH - 1));
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 2 * WINDOW {
        software.advance_to(software.clock.start_of(epoch) + 10_000_000);
        if epoch == FIRST_EPOCH + 1 {
            // What is for the next window does nothing in this one.
            software.merger.reconfigure(0, FIRST_EPOCH + WINDOW, &second).unwrap();
            edge.plan(FIRST_EPOCH + WINDOW, &second);
        }
        edge.open(epoch, true);
        let bit = (epoch & 1) as u8;
        let value = [("value", u128::from(bit))];
        edge.switch.set_default_action("timestamp", "set_timestamp", &value).unwrap();
        for _ in 0..2000 {
            let packet = packet(&mut numbers);
            let flow = packet.key.src_word() & 0xFFF;
            if !flow.is_multiple_of(4) {
                continue;
            }
            let (path, port, to) = WAYS[flow as usize / 4 % 4];
            let bytes = with_tos(&packet, bit << 7);
            let wanted = software.pass(path, &bytes);
            let sent = edge.switch.inject(port, &bytes);
            assert_eq!(sent, [(to, wanted)], "{path:?} of {}", packet.key);
        }
        edge.open(epoch, false);
    }
    software.advance_to(software.clock.start_of(FIRST_EPOCH + 2 * WINDOW + 2));
    assert_eq!(software.windows.len(), 2);
    let pinned = |window: &Window| -> Vec<Counted> {
        counted(window).into_iter().filter(|entry| entry.rank.class() == 0).collect()
    };
    for (at, (epoch, wanted)) in software.windows.iter().enumerate() {
        let side = edge.side_of(SideKind::Egress, *epoch).unwrap();
        let window = Window::decode(&side.body, &words).unwrap();
        let entries = pinned(&window);
        assert_eq!(entries, pinned(wanted));
        assert!(entries.len() > 15 && entries.iter().all(|entry| entry.exact));
        assert!(entries.iter().all(|entry| pins[at].flows.contains(&entry.key)));
        assert!(window.totals.refused > 100, "{:?}", window.totals);
        let without = ("cfs.pins_ipv6".to_owned(), at as u64 + 1);
        assert!(side.counters.contains(&without), "{:?}", side.counters);
    }
}

/// Entries that say otherwise than the plan of their window are not what was recorded by it.
#[test]
fn entries_that_are_pinned_by_no_plan_are_refused() {
    let mut edge = modelled();
    let packet = packet(&mut Numbers(9));
    let plan = Pins { flows: [packet.key.into()].into() }.encode();
    edge.plan(FIRST_EPOCH, &plan);
    edge.open(FIRST_EPOCH, true);
    edge.switch.inject(HOST, &with_tos(&packet, 0));
    let side = edge.side_of(SideKind::Egress, FIRST_EPOCH).unwrap();
    let window = Window::decode(&side.body, &words()).unwrap();
    assert_eq!(window.entries[0].rank, Rank::new(0, 0));
    edge.plan(FIRST_EPOCH, &[]);
    let refused = edge.side_of(SideKind::Egress, FIRST_EPOCH).unwrap_err();
    assert!(refused.contains("with standing 0x3"), "{refused}");
}

/// What comes when its window is over is counted as late by both, also where it goes no further.
#[test]
fn an_edge_counts_late_packets_as_a_software_edge_does() {
    const NOWHERE: u16 = 9;
    let (mut edge, mut software) = (modelled(), Software::new());
    software.advance_to(software.clock.start_of(FIRST_EPOCH) + 1);
    // Behind the end of the first epoch's group, and before it is armed for another one.
    software.advance_to(software.clock.start_of(FIRST_EPOCH + 2) - 5_000_000);
    edge.open(FIRST_EPOCH + 1, true);
    let ways = [
        (Path::Leave, FABRIC, Some(HOST)),
        (Path::Transit, THROUGH, Some(FABRIC)),
        // A software edge records as passed on what has no route.
        (Path::Transit, NOWHERE, None),
    ];
    let mut numbers = Numbers(31);
    let (mut late, mut recorded) = (0, 0);
    for number in 0..300 {
        let (path, port, to) = ways[number % 3];
        let packet = packet(&mut numbers);
        let epoch = FIRST_EPOCH + u64::from(numbers.below(4) == 0);
        let bit = (epoch & 1) as u8;
        let bytes = if number % 5 == 0 { ipv6(bit << 7) } else { with_tos(&packet, bit << 7) };
        let sent = edge.switch.inject(port, &bytes);
        software.pass(path, &bytes);
        assert_eq!(sent.first().map(|(to, _)| *to), to);
        *if epoch == FIRST_EPOCH { &mut late } else { &mut recorded } += 1;
    }
    software.advance_to(software.clock.start_of(FIRST_EPOCH + 3 * WINDOW));
    assert!(late > 100 && recorded > 10);
    assert_eq!(software.late, late);
    let counted = edge.switch.read_counter("Ingress.late", 0).unwrap().packets;
    assert_eq!(counted, late);
    let side = edge.side_of(SideKind::Egress, FIRST_EPOCH).unwrap();
    assert_eq!((side.packets, software.windows[0].1.totals.packets), (recorded, recorded));
}

/// What came on another side as well has no exact count, and may have come on any.
#[test]
fn a_flow_on_two_sides_is_on_any() {
    let mut edge = modelled();
    edge.open(FIRST_EPOCH, true);
    let packets = [(); 5].map(|()| packet(&mut Numbers(9)));
    edge.switch.inject(HOST, &with_tos(&packets[0], 0));
    let entry = |edge: &transit::Transit| {
        let side = edge.side_of(SideKind::Egress, FIRST_EPOCH).unwrap();
        let window = Window::decode(&side.body, &words()).unwrap();
        let [entry] = window.entries[..] else { panic!("{} entries", window.entries.len()) };
        entry
    };
    let first = entry(&edge);
    assert_eq!((first.key, first.sides), (WideKey::from(packets[0].key), Counted::ENTERED));
    assert!(first.exact);
    edge.switch.inject(FABRIC, &with_tos(&packets[0], 0));
    let both = entry(&edge);
    let all = Counted::ENTERED | Counted::PASSED | Counted::LEFT;
    assert_eq!((both.packets, both.sides, both.exact), (2, all, false));
}

/// In a network whose edges measure IPv4 alone, nothing is done to IPv6.
#[test]
fn ipv6_passes_as_it_is_where_edges_measure_ipv4() {
    let mut session = transit::session(OFFER.system, words().encode(), FIRST_EPOCH);
    let names = |session: &Session| {
        let of = Cfs.setup((Role::Edge, Target::Tofino), session, &session.systems[0]).unwrap();
        let fixed = of.fixed();
        let on_miss = fixed
            .iter()
            .filter(|entry| ["Ingress.families", "Egress.sinks"].contains(&&*entry.table));
        let names: Vec<&str> = on_miss.map(|entry| entry.action).collect();
        (names, of.epoch(FIRST_EPOCH, &[]).unwrap().gate.len())
    };
    assert_eq!(names(&session), (vec!["both", "take_back_both"], 2));
    let layout = Layout { keys: KeyKind::Ipv4, ..Layout::default() };
    let (system, setup, plan) = (ID, encode_setup(&layout), Vec::new());
    session.systems.push(SystemSetup { system, version: 1, setup, plan });
    assert_eq!(names(&session), (vec!["ipv4_alone", "take_back"], 1));
}
