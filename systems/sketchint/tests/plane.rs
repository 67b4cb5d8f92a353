//! SketchINT on switches, in virtual time: two edges with a switch between them. Each packet comes
//! to its host as it was sent, and what its sink keeps is what the test itself knows of its way.

#[path = "plane/by_port.rs"]
mod by_port;
#[path = "plane/conservation.rs"]
mod conservation;
#[path = "plane/own.rs"]
mod own;
#[path = "plane/reports.rs"]
mod reports;
#[path = "plane/unmarked.rs"]
mod unmarked;

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use calumma_epoch::{EpochClock, Guards};
use calumma_plane::arrival::{Arrival, Polls};
use calumma_plane::int::Instructions;
use calumma_plane::int::means::Means;
use calumma_plane::int::push::NotCarried;
use calumma_plane::measure::Side;
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::parse::PlainFlows;
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, System};
use calumma_plane::worker::{Departure, Path, Policy, Sent, first};
use calumma_plane::{LcoreMerger, Measurement, Part, Worker};
use calumma_sketch::sketchint::{Cell, LinkSums};
use calumma_sketch::{Key, KeyKind, WideKey};
use calumma_sketchint::SketchInt;
use calumma_sketchint::frames::{
    Entered, OFFER, Passed, Plan, Setup, Step, WatchList, WatchRule, Window,
};
use calumma_wire::{Role, Secret, SideKind, SystemSetup};

const FIRST_EPOCH: u64 = 100;
const EPOCH_NS: u64 = 50_000_000;
const WINDOW: u64 = 4;

/// How long packets are in each switch: the source, the one between, the sink.
const STAYS_NS: [u64; 3] = [5_000, 7_000, 3_000];

fn setup() -> Setup {
    let domain = NonZeroU16::new(0xCA10).unwrap();
    Setup { domain, window_epochs: WINDOW as u16, ..Setup::default() }
}

fn session(role: Role, node: u16) -> SessionContext {
    SessionContext {
        role,
        node_id: Some(node),
        hash_key: Secret::new([1; 32]),
        clock: EpochClock::new(EPOCH_NS, Guards::default()).unwrap(),
        first_epoch: FIRST_EPOCH,
        lcores: 1,
        ports: None,
        routes: RouteWatch::default(),
        outlets: Outlets::default(),
        carries_claims: true,
        carries_hops: false,
        carries_stacks: true,
    }
}

fn system_setup(setup: &Setup, step: Step) -> SystemSetup {
    let (system, version) = (OFFER.system, OFFER.highest);
    SystemSetup { system, version, setup: setup.encode(), plan: Plan::of(step).encode() }
}

struct Switch {
    worker: Worker,
    merger: LcoreMerger,
    setup: Setup,
    /// By first epoch.
    windows: BTreeMap<u64, Window>,
    /// What became of packets from hosts, likewise.
    entered: BTreeMap<u64, Entered>,
    /// What a switch between edges says of windows, likewise.
    passed: BTreeMap<u64, Passed>,
    /// How many packets came after their epoch was over, by epoch, where any did.
    late: BTreeMap<u64, u64>,
    mtu: u16,
    /// For how long packets may have waited when they are found.
    waited_ns: u64,
    role: Role,
}

impl Switch {
    fn new(role: Role, node: u16, setup: Setup, step: Step) -> Self {
        Self::in_session(session(role, node), setup, step)
    }

    fn in_session(context: SessionContext, setup: Setup, step: Step) -> Self {
        let (mut merger, mailboxes) = LcoreMerger::new(1);
        let role = context.role;
        let half = SketchInt.begin(&context, &system_setup(&setup, step)).unwrap();
        merger.begin(context.clock, FIRST_EPOCH, context.hash_key, KeyKind::Dual, vec![half]);
        let policy = Policy { strip: true, ..Policy::default() };
        let [mailbox] = mailboxes.try_into().unwrap();
        let worker = Worker::new(policy, Measurement::new(mailbox));
        Self {
            worker,
            merger,
            setup,
            windows: BTreeMap::new(),
            entered: BTreeMap::new(),
            passed: BTreeMap::new(),
            late: BTreeMap::new(),
            mtu: 1500,
            waited_ns: 0,
            role,
        }
    }

    fn advance_to(&mut self, now_ns: u64) {
        loop {
            let due_ns = self.worker.next_due_ns();
            self.worker.advance_to(due_ns.min(now_ns));
            for part in self.merger.poll() {
                if let Part::Sealed { epoch, late_packets: late @ 1.., .. } = part {
                    self.late.insert(epoch, late);
                }
                let Part::Side { system, epoch, side, record, mixed_plan, .. } = part else {
                    continue;
                };
                if side == Side::Ingress {
                    let side = SideKind::Ingress;
                    let finished = FinishedSide { epoch, side, record: &*record, mixed_plan };
                    let frame = self.merger.system(system).unwrap().side(finished).unwrap().0;
                    if !frame.body.is_empty() {
                        self.entered.insert(epoch, Entered::decode(&frame.body).unwrap());
                    }
                } else if side == Side::ByBit {
                    let side = match self.role {
                        Role::Edge => SideKind::Egress,
                        Role::Transit => SideKind::Transit,
                        Role::Host => SideKind::Host,
                    };
                    let finished = FinishedSide { epoch, side, record: &*record, mixed_plan };
                    let frame = self.merger.system(system).unwrap().side(finished).unwrap().0;
                    if self.role == Role::Transit {
                        self.passed.insert(epoch, Passed::decode(&frame.body).unwrap());
                    } else {
                        let window = Window::decode(&frame.body, &self.setup.layout).unwrap();
                        assert_eq!(window.totals.packets, frame.packets);
                        self.windows.insert(epoch, window);
                    }
                }
                self.merger.recycle(system, side, record);
            }
            if due_ns > now_ns {
                return;
            }
        }
    }

    /// Packets pass at `now_ns`, and stay for so long.
    fn pass<P: Packet>(&mut self, path: Path, frames: &mut [P], now_ns: u64, stay_ns: u64) {
        self.advance_to(now_ns);
        let of = first(frames.len());
        if self.waited_ns > 0 {
            let arrival = Arrival { earliest_ns: now_ns - self.waited_ns, latest_ns: now_ns };
            let last = frames.last().and_then(Packet::stamp);
            self.worker.arrived(Some(Polls::default().stamped(arrival, last)));
        }
        self.worker.begin();
        assert!(self.worker.pass(path, frames, of, &PlainFlows::NONE).is_empty());
        let departure = Departure { at_ns: now_ns + stay_ns, mtu: self.mtu };
        self.worker.depart(frames, of, departure);
        self.worker.sent(Sent { accepted: of, refused: 0 });
    }
}

/// Two edges, nodes 1 and 2, and node 3 between them.
struct Network([Switch; 3]);

impl Network {
    fn new(setup: Setup, step: Step) -> Self {
        let of = [(Role::Edge, 1), (Role::Transit, 3), (Role::Edge, 2)];
        Self(of.map(|(role, node)| Switch::new(role, node, setup, step)))
    }

    /// Packets go from edge to edge, each of which comes as it was sent. Gives whether they carried
    /// stacks on their way.
    fn send(&mut self, now_ns: u64, packets: &[Vec<u8>]) -> Vec<bool> {
        let mut frames: Vec<Frame> =
            packets.iter().map(|bytes| Frame::with_headroom(256, bytes)).collect();
        let paths = [Path::Enter, Path::Transit, Path::Leave];
        let mut carried = Vec::new();
        let setup = self.0[0].setup;
        for (at, (switch, path)) in self.0.iter_mut().zip(paths).enumerate() {
            switch.pass(path, &mut frames, now_ns + 100_000 * at as u64, STAYS_NS[at]);
            let longer = |(frame, bytes): (&Frame, &Vec<u8>)| frame.bytes().len() - bytes.len();
            let longer: Vec<usize> = frames.iter().zip(packets).map(longer).collect();
            if at < 2 {
                // 16 bytes of headers, and as many for each hop as it says words.
                let hops = 1 + usize::from(at > 0 && switch.mtu == 1500 && setup.hops > 1);
                let all = 16 + 4 * setup.instructions.words() * hops;
                // And a UDP header before what has no place for them.
                let own = all + if setup.udp_port.is_some() { 8 } else { 0 };
                assert!(longer.iter().all(|more| [0, all, own].contains(more)), "{longer:?}");
                carried = longer.iter().map(|&more| more > 0).collect();
            }
        }
        for (frame, sent) in frames.iter().zip(packets) {
            assert_eq!(frame.bytes(), sent);
        }
        carried
    }

    fn reconfigure(&mut self, epoch: u64, step: Step) {
        for switch in &mut self.0 {
            switch.merger.reconfigure(0, epoch, &Plan::of(step).encode()).unwrap();
        }
    }
}

fn ones_complement(words: impl Iterator<Item = u16>) -> u16 {
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
}

/// A packet of a flow of this number, with a payload of so many bytes, and right checksums.
fn packet(flow: u16, protocol: u8, payload: usize) -> Vec<u8> {
    let l4_header = if protocol == 6 { 20 } else { 8 };
    let l4_len = l4_header + payload;
    let mut bytes = vec![0; 34 + l4_len];
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(20 + l4_len as u16).to_be_bytes());
    (bytes[22], bytes[23]) = (64, protocol);
    bytes[26..30].copy_from_slice(&[10, 1, 0, 2]);
    bytes[30..34].copy_from_slice(&[10, 2, 0, 2]);
    let header = ones_complement(words(&bytes[14..34]));
    bytes[24..26].copy_from_slice(&header.to_be_bytes());
    bytes[34..36].copy_from_slice(&(5000 + flow).to_be_bytes());
    bytes[36..38].copy_from_slice(&80_u16.to_be_bytes());
    for (at, byte) in bytes[34 + l4_header..].iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31).wrapping_add(flow as u8);
    }
    let at = if protocol == 6 {
        bytes[46] = 0x50;
        50
    } else {
        bytes[38..40].copy_from_slice(&(l4_len as u16).to_be_bytes());
        40
    };
    let pseudo = [u16::from(protocol), l4_len as u16];
    let sum = ones_complement(words(&bytes[26..]).chain(pseudo));
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Some flows' packets: of TCP, UDP, and of a protocol that has no place for a stack.
fn burst(round: u64) -> Vec<Vec<u8>> {
    (0..10_u16)
        .map(|flow| match flow {
            0..5 => packet(flow, 17, 20 + round as usize % 7),
            5..9 => packet(flow, 6, 40),
            _ => packet(flow, 89, 30),
        })
        .collect()
}

/// The middle of an epoch.
fn middle(epoch: u64) -> u64 {
    epoch * EPOCH_NS + EPOCH_NS / 2
}

#[test]
fn what_sinks_keep_is_what_packets_met() {
    let mut network = Network::new(setup(), Step::Sources);
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 3 * WINDOW {
        let carried = network.send(middle(epoch), &burst(epoch));
        assert_eq!(carried.iter().filter(|carried| **carried).count(), 9, "{carried:?}");
        assert!(!carried[9], "no place for it");
    }
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 4 * WINDOW)));
    assert!(network.0[1].windows.is_empty());
    let windows = &network.0[2].windows;
    for epoch in [FIRST_EPOCH, FIRST_EPOCH + WINDOW, FIRST_EPOCH + 2 * WINDOW] {
        let window = &windows[&epoch];
        assert_eq!(window.own, Some(2));
        let (all, with) = (10 * WINDOW, 9 * WINDOW);
        assert_eq!((window.totals.packets, window.totals.int_packets), (all, with));
        assert_eq!((window.totals.partial, window.unmarked), (0, 0));
        let [path] = &window.paths[..] else { panic!("{:?}", window.paths) };
        assert_eq!(
            (path.path.nodes(), path.path.is_partial, path.packets),
            (&[1, 3][..], false, with)
        );
        let rows: Vec<_> = window.rows.iter().filter(|row| row.path > 0).collect();
        assert_eq!(rows.len(), 9);
        let cell = |ns: u64| Cell { sum_ns: WINDOW * ns, max_ns: ns as u32, known: WINDOW as u32 };
        for row in rows {
            assert!(row.is_exact && row.packets == WINDOW, "{row:?}");
            assert_eq!(row.hops, [cell(STAYS_NS[0]), cell(STAYS_NS[1])], "{:?}", row.key.ports());
            assert_eq!(row.own, cell(STAYS_NS[2]));
        }
    }
}

#[test]
fn stamps_say_how_long_packets_were_between_switches() {
    let times = Instructions::NODE | Instructions::LATENCY | Instructions::INGRESS;
    let instructions = Instructions::new(times | Instructions::EGRESS).unwrap();
    let mut network = Network::new(Setup { instructions, ..setup() }, Step::Sources);
    (network.0[1].waited_ns, network.0[2].waited_ns) = (3_001, 8_000);
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 2 * WINDOW {
        network.send(middle(epoch), &burst(epoch));
    }
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 3 * WINDOW)));
    let [_, between, sink] = &network.0;
    for epoch in [FIRST_EPOCH, FIRST_EPOCH + WINDOW] {
        let window = &sink.windows[&epoch];
        // Each switch finds packets 100 us after the one before, in the middle of when they may
        // have come.
        let link = |from: u32, to: u32, ns: i64| {
            let packets = 9 * WINDOW;
            LinkSums { from, to, packets, sum_ns: packets as i64 * ns, min_ns: ns, max_ns: ns }
        };
        let stay = |at: usize| STAYS_NS[at] as i64;
        let first = link(1, 3, 100_000 - stay(0) - 1_501);
        let second = link(3, 2, 100_000 - stay(1) - 4_000);
        assert_eq!(window.links, [first, second]);
        assert_eq!((window.arrival_error_ns, window.links_full), (4_000, 0));
        let means = Means::new(Means::POLL, 1_501);
        assert_eq!(between.passed[&epoch], Passed { arrival_error_ns: 1_501, means });
    }
}

#[test]
fn links_of_packets_that_pass_a_switch_late_are_not_measured() {
    let times = Instructions::NODE | Instructions::LATENCY | Instructions::INGRESS;
    let instructions = Instructions::new(times | Instructions::EGRESS).unwrap();
    for role in [Role::Transit, Role::Edge] {
        let setup = Setup { instructions, ..setup() };
        let mut source = Switch::new(Role::Edge, 1, setup, Step::Sources);
        let mut between = Switch::new(role, 3, setup, Step::Sources);
        between.waited_ns = 3_001;
        let mut frames: Vec<Frame> =
            burst(0).iter().map(|bytes| Frame::with_headroom(256, bytes)).collect();
        source.pass(Path::Enter, &mut frames, middle(FIRST_EPOCH), STAYS_NS[0]);
        // Its timestamp bit is nobody's by then, and how far its stamp is off is in no window.
        between.pass(Path::Transit, &mut frames, middle(FIRST_EPOCH + 1), STAYS_NS[1]);
        between.advance_to(middle(FIRST_EPOCH + 2 * WINDOW));
        assert_eq!(between.late, BTreeMap::from([(FIRST_EPOCH, 10)]), "{role:?}");
    }
}

#[test]
fn packets_without_a_stack_or_a_hop_are_in_the_window_that_they_entered_in() {
    let mut network = Network::new(setup(), Step::Sources);
    // No room for a header in packets of TCP, none for the second hop in those of UDP.
    (network.0[0].mtu, network.0[1].mtu) = (90, 79);
    let short = FIRST_EPOCH + WINDOW;
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 3 * WINDOW {
        if epoch == short + WINDOW {
            network.0.iter_mut().for_each(|of| of.mtu = 1500);
        }
        network.send(middle(epoch), &burst(epoch));
    }
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 4 * WINDOW)));
    let [source, _, sink] = &network.0;
    let went_without = |inserted: u64, reasons: &[(NotCarried, u64)]| {
        let mut of = Entered { inserted: inserted * WINDOW, ..Entered::default() };
        reasons.iter().for_each(|&(why, packets)| of.not_carried[why as usize] = packets * WINDOW);
        of
    };
    let expected = went_without(5, &[(NotCarried::Mtu, 4), (NotCarried::Protocol, 1)]);
    assert_eq!([&source.entered[&FIRST_EPOCH], &source.entered[&short]], [&expected; 2]);
    assert_eq!(source.entered[&(short + WINDOW)], went_without(9, &[(NotCarried::Protocol, 1)]));
    assert!(sink.entered.values().all(|of| *of == Entered::default()));
    let exceeded = |of: &Window| (of.totals.partial, of.mtu_exceeded, of.hops_exceeded);
    assert_eq!(exceeded(&sink.windows[&short]), (5 * WINDOW, 5 * WINDOW, 0));
    assert_eq!(exceeded(&sink.windows[&(short + WINDOW)]), (0, 0, 0));

    let mut network = Network::new(Setup { hops: 1, ..setup() }, Step::Sources);
    network.send(middle(FIRST_EPOCH), &burst(FIRST_EPOCH));
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 2 * WINDOW)));
    assert_eq!(exceeded(&network.0[2].windows[&FIRST_EPOCH]), (9, 0, 9));
}

#[test]
fn sources_begin_with_their_window_and_stop_at_once_where_no_controller_is() {
    let mut network = Network::new(setup(), Step::Transits);
    let carried = |network: &mut Network, epoch| {
        let carried = network.send(middle(epoch), &burst(epoch));
        carried.iter().filter(|carried| **carried).count()
    };
    assert_eq!(carried(&mut network, FIRST_EPOCH), 0);
    let on = FIRST_EPOCH + WINDOW;
    network.reconfigure(on, Step::Sources);
    assert_eq!(carried(&mut network, on - 1), 0);
    assert_eq!(carried(&mut network, on), 9);
    let half = network.0[0].merger.system(0).unwrap();
    assert_eq!(half.alone(59_999_999_999), None);
    assert_eq!(carried(&mut network, on + 1), 9);
    let half = network.0[0].merger.system(0).unwrap();
    let plan = half.alone(60_000_000_000).unwrap();
    assert_eq!(Plan::decode(&plan), Ok(Plan::of(Step::Transits)));
    assert_eq!(carried(&mut network, on + 2), 0, "within the window");
    network.reconfigure(on + WINDOW, Step::Transits);
    assert_eq!(carried(&mut network, on + 3), 0);
    assert_eq!(carried(&mut network, on + WINDOW), 0);
    network.reconfigure(on + 2 * WINDOW, Step::Sources);
    assert_eq!(carried(&mut network, on + 2 * WINDOW - 1), 0);
    assert_eq!(carried(&mut network, on + 2 * WINDOW), 9);
}

#[test]
fn a_share_of_packets_is_drawn_each_on_its_own() {
    let setup = Setup { share: 1 << 30, ..setup() };
    let mut network = Network::new(setup, Step::Sources);
    let mut of_flows = [(0_u64, 0_u64, 0_u64); 9];
    let (mut before, mut sent) = (vec![false; 10], 0);
    for epoch in FIRST_EPOCH..FIRST_EPOCH + WINDOW {
        for round in 0..200 {
            // A flow's packets are all alike.
            let carried = network.send(middle(epoch) + 100_000 * round, &burst(0));
            assert!(!carried[9], "no place for it");
            for ((drawn, again, quiet), at) in of_flows.iter_mut().zip(0..) {
                *drawn += u64::from(carried[at]);
                *again += u64::from(carried[at] && before[at]);
                *quiet += u64::from(!carried[at] && !before[at]);
            }
            (before, sent) = (carried, sent + 1);
        }
    }
    // Of 800 packets 200, give or take 12; of two in succession 1/16 both, and 9/16 neither.
    for (drawn, again, quiet) in of_flows {
        assert!((140..=260).contains(&drawn), "{of_flows:?}");
        assert!((20..=90).contains(&again) && (350..=550).contains(&quiet), "{of_flows:?}");
    }
    let all: u64 = of_flows.iter().map(|of| of.0).sum();
    assert!((1650..=1950).contains(&all), "a quarter of 7200: {all}");
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 2 * WINDOW)));
    let mut source = Entered { inserted: all, placeless: sent, ..Entered::default() };
    source.not_carried[NotCarried::Share as usize] = 9 * sent - all;
    source.not_carried[NotCarried::Protocol as usize] = sent;
    assert_eq!(network.0[0].entered[&FIRST_EPOCH], source);
    assert_eq!(source.unfit(), 0);
    let totals = network.0[2].windows[&FIRST_EPOCH].totals;
    assert_eq!((totals.packets, totals.int_packets), (10 * sent, all));
}

#[test]
fn packets_that_enter_while_none_get_stacks_are_counted() {
    let mut network = Network::new(Setup { share: 1 << 31, ..setup() }, Step::Transits);
    network.send(middle(FIRST_EPOCH), &burst(0));
    network.reconfigure(FIRST_EPOCH + WINDOW, Step::Sources);
    network.send(middle(FIRST_EPOCH + WINDOW), &burst(0));
    network.0[0].merger.system(0).unwrap().alone(60_000_000_000);
    network.send(middle(FIRST_EPOCH + WINDOW + 1), &burst(0));
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 3 * WINDOW)));
    let entered = &network.0[0].entered;
    assert_eq!(entered[&FIRST_EPOCH], Entered { idle: 10, ..Entered::default() });
    let second = entered[&(FIRST_EPOCH + WINDOW)];
    let drawn_from = second.inserted + second.not_carried.iter().sum::<u64>();
    assert_eq!((second.idle, drawn_from), (10, 10), "it stopped within the window");
}

#[test]
fn flows_that_are_attended_carry_stacks_whatever_the_share() {
    let only_tcp = WatchRule { proto: Some(6), ..WatchRule::default() };
    let watch = WatchList::new(&[only_tcp]).unwrap();
    let mut network = Network::new(Setup { share: 0, watch, ..setup() }, Step::Sources);
    let key = |flow: u16, proto| {
        WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 5000 + flow, 80, proto)
    };
    // One of UDP, which is not on the watch list, two of TCP, and one that nobody sends.
    let mut attended = [key(3, 17), key(6, 6), key(8, 6), key(77, 6)];
    attended.sort_unstable();
    let plan = Plan { attended: attended.into(), ..Plan::of(Step::Sources) };
    let from = FIRST_EPOCH + WINDOW;
    network.0[0].merger.reconfigure(0, from, &plan.encode()).unwrap();
    network.0[0].merger.reconfigure(0, from + WINDOW, &Plan::of(Step::Sources).encode()).unwrap();
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 3 * WINDOW {
        let carried = network.send(middle(epoch), &burst(epoch));
        let is_in = (from..from + WINDOW).contains(&epoch);
        let expected: Vec<bool> = (0..10).map(|flow| is_in && (flow == 6 || flow == 8)).collect();
        assert_eq!(carried, expected, "{epoch}");
    }
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 4 * WINDOW)));
    let rows = &network.0[2].windows[&from].rows;
    let with_int: Vec<_> = rows.iter().filter(|row| row.path > 0).collect();
    assert_eq!(with_int.len(), 2);
    assert!(with_int.iter().all(|row| row.packets == WINDOW && row.is_exact));
    assert_eq!(network.0[0].entered[&from].inserted, 2 * WINDOW);
}

#[test]
fn only_flows_on_the_watch_list_carry_stacks() {
    let of_port = WatchRule { sport: Some(5003), ..WatchRule::default() };
    let tcp = WatchRule {
        dst: Some("10.2.0.0/16".parse().unwrap()),
        proto: Some(6),
        ..WatchRule::default()
    };
    let others = WatchRule { src: Some("10.3.0.0/16".parse().unwrap()), ..WatchRule::default() };
    let watch = WatchList::new(&[of_port, tcp, others]).unwrap();
    let mut network = Network::new(Setup { watch, ..setup() }, Step::Sources);
    for epoch in FIRST_EPOCH..FIRST_EPOCH + WINDOW {
        let carried = network.send(middle(epoch), &burst(epoch));
        let expected: Vec<bool> = (0..10).map(|flow| flow == 3 || (5..9).contains(&flow)).collect();
        assert_eq!(carried, expected);
    }
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 2 * WINDOW)));
    // What is recorded of packets is the same for those that carry none.
    let window = &network.0[2].windows[&FIRST_EPOCH];
    let (all, with) = (10 * WINDOW, 5 * WINDOW);
    assert_eq!((window.totals.packets, window.totals.int_packets), (all, with));
    let mut source = Entered { inserted: with, ..Entered::default() };
    source.not_carried[NotCarried::Watch as usize] = 5 * WINDOW;
    assert_eq!(network.0[0].entered[&FIRST_EPOCH], source);
}

#[test]
fn an_edge_that_can_be_no_sink_says_why() {
    let setup = system_setup(&setup(), Step::Off);
    let context = SessionContext { carries_stacks: false, ..session(Role::Edge, 1) };
    let problem = SketchInt.begin(&context, &setup).map(drop).unwrap_err();
    assert!(problem.contains("strip = false"), "{problem}");
    let context = SessionContext { node_id: None, ..session(Role::Edge, 1) };
    assert!(SketchInt.begin(&context, &setup).map(drop).unwrap_err().contains("no number"));
}

/// Packets go by the edge to a host that is the sink itself, from afar and from a host of the same
/// edge.
#[test]
fn a_host_that_is_a_sink_keeps_what_packets_met_and_its_edge_nothing() {
    let mut setup = setup();
    setup.share = u32::MAX;
    let [mut e1, mut s1, mut e2, mut host] =
        [(Role::Edge, 1), (Role::Transit, 3), (Role::Edge, 2), (Role::Host, 4)]
            .map(|(role, node)| Switch::new(role, node, setup, Step::Sources));
    let pair = [packet(1, 17, 40), packet(2, 6, 40)];
    let frames = || pair.each_ref().map(|bytes| Frame::with_headroom(256, bytes));
    for epoch in FIRST_EPOCH..FIRST_EPOCH + 2 * WINDOW {
        let (now_ns, mut from_afar, mut local) = (middle(epoch), frames(), frames());
        e1.pass(Path::Enter, &mut from_afar, now_ns, STAYS_NS[0]);
        s1.pass(Path::Transit, &mut from_afar, now_ns + 100_000, STAYS_NS[1]);
        e2.pass(Path::HandOn, &mut from_afar, now_ns + 200_000, STAYS_NS[2]);
        e2.pass(Path::CrossOn, &mut local, now_ns + 300_000, STAYS_NS[2]);
        for (frames, hops) in [(&mut from_afar, 3), (&mut local, 1)] {
            let longer = |at: usize| frames[at].bytes().len() - pair[at].len();
            assert_eq!([0, 1].map(longer), [16 + 8 * hops; 2]);
            host.pass(Path::Leave, frames, now_ns + 400_000, 0);
            assert_eq!([0, 1].map(|at| frames[at].bytes()), [0, 1].map(|at| &pair[at][..]));
        }
    }
    for switch in [&mut e2, &mut host] {
        switch.advance_to(middle(FIRST_EPOCH + 4 * WINDOW));
    }
    for epoch in [FIRST_EPOCH, FIRST_EPOCH + WINDOW] {
        assert_eq!(e2.windows[&epoch].totals.packets, 0);
        assert_eq!(e2.entered[&epoch].inserted, 2 * WINDOW);
        let window = &host.windows[&epoch];
        assert_eq!((window.own, window.totals.packets), (None, 4 * WINDOW));
        assert_eq!((window.totals.int_packets, window.unmarked), (4 * WINDOW, 0));
        let paths = window.paths.iter().map(|of| (of.path.nodes().to_vec(), of.packets));
        let paths: BTreeMap<Vec<u32>, u64> = paths.collect();
        let came = [(vec![2], 2 * WINDOW), (vec![1, 3, 2], 2 * WINDOW)];
        assert_eq!(paths, BTreeMap::from(came));
        let of_edge = window.nodes.iter().find(|of| of.node == 2).unwrap();
        let stayed = 4 * WINDOW * STAYS_NS[2];
        assert_eq!((of_edge.packets, of_edge.sum_ns), (4 * WINDOW, stayed));
    }
}
