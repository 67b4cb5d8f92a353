//! Windows that the real records of sinks made, and every number of the reports on them held
//! against what the test itself counted.

mod away;
mod bounds;
mod check;
mod hostile;
mod share;
mod tofino;
mod twice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calumma_analysis::{
    Collected, Delivery, EpochHead, Flow, HashKeys, Node, NodeEnd, SystemReport,
};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::means::Means;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::{Claims, Inflation, Shape};
use calumma_sketch::{FlowKey, HashFamily, HashKey, WideKey};
use calumma_sketchint::frames::{Entered, Layout, PathSeen};
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::report::{By, Change, FlowReport, Found, Packets, PathReport};
use calumma_sketchint_analysis::{Delivered, FlowInWindow, Limits, TABLES, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};
use proptest::prelude::*;

use check::check;

const EPOCHS: u64 = 20;
const HEAVY: u32 = 30;
const CHANGE: u32 = 20;
const NAMES: [&str; 6] = ["e1", "e2", "s1", "s2", "s3", "e3"];

/// A packet for a host behind a sink: its flow, its path and its latencies there, and the lcore.
#[derive(Clone, Debug)]
struct Packet {
    flow: u32,
    path: usize,
    latencies: [u32; 3],
    own: u32,
    lcore: usize,
    says: Says,
}

/// What a packet's stack says of its path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    All,
    /// Its first switch, and that there may have been others.
    First,
    /// Its first switch alone: the others sent it on without a word.
    FirstAlone,
    /// It has none.
    Nothing,
}

impl Packet {
    /// The switches that its stack names, and whether it may lack some; `None` where it has none.
    fn stack(&self) -> Option<(&'static [u32], bool)> {
        let path = PATHS[self.path];
        match self.says {
            Says::All if self.path > 0 => Some((path, false)),
            Says::First if self.path > 0 => Some((&path[..1], true)),
            Says::FirstAlone if self.path > 0 => Some((&path[..1], false)),
            _ => None,
        }
    }
}

/// Node ids, by the position of their names, plus one.
const PATHS: [&[u32]; 6] = [&[], &[1, 3], &[1, 4], &[1, 3, 5], &[1, 3, 1], &[2, 3]];

prop_compose! {
    fn packets(flows: u32)(
        [one, two, three] in [0..flows, 0..flows, 0..flows],
        path in 0..PATHS.len(),
        single in prop::bool::weighted(0.9),
        latencies in prop::array::uniform3(prop_oneof![9 => 100..9_000_u32, 1 => Just(u32::MAX)]),
        own in 10..500_u32,
        lcore in 0..2_usize,
        says in prop_oneof![
            18 => Just(Says::All), 1 => Just(Says::First), 1 => Just(Says::Nothing)
        ],
    ) -> Packet {
        let flow = one.min(two).min(three);
        let path = if single { flow as usize % 4 } else { path };
        Packet { flow, path, latencies, own, lcore, says }
    }
}

fn key(flow: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0002, 0x0A01_0000 + flow, 7 << 16 | 53, 17)
}

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).unwrap()
}

#[derive(Clone, Debug, Default, PartialEq)]
struct AtNode {
    packets: u64,
    /// How often stacks, or the sink itself, name it.
    said: u64,
    latencies: Vec<u32>,
}

/// What a flow had at a sink in a window.
#[derive(Clone, Debug, Default)]
struct Truth {
    packets: u64,
    /// By the switches that stacks name, and whether they may lack some.
    by_path: BTreeMap<(&'static [u32], bool), u64>,
    /// By all switches that packets came by, whether they say so or not.
    at_node: BTreeMap<u32, AtNode>,
    /// Those that stacks name, and the sink.
    named: BTreeSet<u32>,
    /// How long all switches together had each packet; `None` where its stack does not say it.
    in_switches: Vec<Option<u64>>,
}

impl Truth {
    fn at(&self, node: u32) -> u64 {
        self.at_node.get(&node).map_or(0, |of| of.packets)
    }

    fn with_int(&self) -> u64 {
        self.by_path.values().sum()
    }

    /// The packets that came with a stack of a path as a report writes it.
    fn by(&self, path: &PathReport, sink: &str) -> u64 {
        let of = self
            .by_path
            .iter()
            .find(|(of, _)| names(of.0, sink) == path.path && of.1 == path.partial);
        of.map_or(0, |of| *of.1)
    }
}

/// By sink and flow.
type Counted = BTreeMap<(&'static str, u32), Truth>;

/// `misses_s1` where no stack is known to have all switches.
fn truth((sink, own): (&'static str, u32), packets: &[Packet], misses_s1: bool, all: &mut Counted) {
    for packet in packets {
        let of = all.entry((sink, packet.flow)).or_default();
        of.packets += 1;
        let stack = packet.stack().map(|(nodes, is_partial)| (nodes, is_partial || misses_s1));
        if let Some(stack) = stack {
            *of.by_path.entry(stack).or_default() += 1;
        }
        let said = stack.map_or(&[][..], |stack| stack.0);
        of.named.extend(said.iter().copied().chain([own]));
        let path = PATHS[packet.path];
        let came: BTreeSet<u32> = path.iter().copied().chain([own]).collect();
        came.iter().for_each(|node| of.at_node.entry(*node).or_default().packets += 1);
        let hops = said.iter().copied().zip(packet.latencies).chain([(own, packet.own)]);
        let is_whole = stack.is_some_and(|stack| !stack.1);
        let is_known = is_whole && hops.clone().all(|hop| hop.1 != u32::MAX);
        let sum = hops.clone().map(|hop| u64::from(hop.1)).sum();
        of.in_switches.push(is_known.then_some(sum));
        for (node, latency) in hops {
            let at = of.at_node.entry(node).or_default();
            at.said += 1;
            at.latencies.extend(Some(latency).filter(|&ns| ns != u32::MAX));
        }
    }
}

struct Network {
    windows: Windows,
    layout: Layout,
    claims: Arc<Claims>,
    family: HashFamily,
    hash_key: u64,
    lcores: usize,
    window: u64,
    late: u64,
    /// Whether nothing comes of e3 but what it did as a source.
    misses_e3: bool,
    /// Whether nothing comes of s1.
    misses_s1: bool,
    /// Why what they count is in doubt.
    doubts: Vec<String>,
    /// What became of packets that entered, all at e2.
    entered: Option<Entered>,
    /// Whether e2 is a Tofino.
    tofino: bool,
    /// What that says of inflated latencies, and how many more there may be.
    inflated: (Vec<Inflation<WideKey>>, u64),
    /// What it has of stacks of large flows.
    seen: Vec<PathSeen>,
    /// Packets of IPv6 that it can't tell the flow of.
    unclassified: u64,
}

impl Network {
    fn new(layout: Layout, lcores: usize) -> Self {
        Self::with_share(layout, lcores, 1.0)
    }

    fn with_share(layout: Layout, lcores: usize, share: f64) -> Self {
        let key = HashKey::from_bytes([9; 32]);
        let names = (1..).zip(NAMES).map(|(id, name)| (id, name.to_owned()));
        let limits = Limits { flows: 10_000, share, ..Limits::default() };
        let windows = Windows::new(layout, limits, HashKeys::new(key), names.collect());
        let (family, hash_key) = (HashFamily::new(&key), key.id());
        let (entered, tofino) = (None, false);
        Self {
            windows,
            layout,
            claims: layout.claims(lcores),
            family,
            hash_key,
            lcores,
            window: 1000,
            late: 0,
            misses_e3: false,
            misses_s1: false,
            doubts: Vec::new(),
            entered,
            tofino,
            inflated: (Vec::new(), 0),
            seen: Vec::new(),
            unclassified: 0,
        }
    }

    fn sink(&self, own: u32, packets: &[Packet]) -> Side {
        let epoch = self.window * EPOCHS;
        let setup = SinkSetup {
            layout: self.layout,
            own: Some(own),
            family: self.family.clone(),
            claims: self.claims.clone(),
            clock: clock(),
            has_times: false,
        };
        let setup = Arc::new(setup);
        let mut lcores: Vec<SinkWindow<FlowKey, ()>> = (0..self.lcores)
            .map(|_| SinkWindow::new(setup.clone(), (), self.lcores).unwrap())
            .collect();
        lcores.iter_mut().for_each(|lcore| lcore.begin(&(), epoch));
        lcores[0].note_means(Means::new(Means::POLL, u64::from(own) * 1000).unwrap());
        for (at, packet) in packets.iter().enumerate() {
            let mut stack = Stack::EMPTY;
            let said = packet.stack();
            for (&node, latency_ns) in said.iter().flat_map(|said| said.0).zip(packet.latencies) {
                stack.push(Hop { node, latency_ns, ..Hop::UNKNOWN });
            }
            stack.is_partial = said.is_some_and(|said| said.1);
            let stack = said.is_some().then_some(&stack);
            let keys = [key(packet.flow)];
            let polled_ns = clock().start_of(epoch) + 1000 * at as u64;
            let leaving = Leaving { keys: &keys, hashes: None, polled_ns };
            let lcore = &mut lcores[packet.lcore % self.lcores];
            lcore.record(&leaving, &[stack]);
            lcore.record_own(&leaving, &[packet.own]);
        }
        let mut lcores = lcores.into_iter();
        let mut record = lcores.next().unwrap();
        lcores.for_each(|lcore| record.merge(&lcore));
        let mut window = record.frame(self.hash_key, self.lcores);
        if self.tofino && own == 2 {
            tofino::keeps(&mut window, self.unclassified);
            (window.inflated, window.totals.inflated_full) = self.inflated.clone();
            window.seen.clone_from(&self.seen);
        }
        Side {
            system: SystemId::SKETCHINT,
            epoch,
            side: SideKind::Egress,
            stall_ns: 0,
            packets: window.totals.packets,
            counters: Vec::new(),
            body: window.encode(),
        }
    }

    /// The report on the next window, in which these packets came to e2 and e3.
    fn report(&mut self, packets: [&[Packet]; 2]) -> SystemReport<Found> {
        let deliver = |name: &str, id: u32, packets: &[Packet]| {
            let node = Node { name: name.to_owned(), role: Role::Edge, id: id as u16 };
            let kind = Some(if self.tofino && id == 2 { "tofino" } else { "software" });
            let sink = self.sink(id, packets);
            let side = self.windows.decode(&node, &sink).unwrap();
            let mut sides = vec![(SideKind::Egress, Some(side))];
            if let Some(entered) = self.entered {
                let entered = if id == 2 { entered } else { Entered::default() };
                let (side, body) = (SideKind::Ingress, entered.encode());
                let source = Side { side, body, packets: 0, ..sink };
                let source = self.windows.decode(&node, &source).unwrap();
                sides.push((SideKind::Ingress, Some(source)));
            }
            Delivery {
                node: Arc::new(node),
                sides,
                doubts: self.doubts.clone(),
                end: NodeEnd { late_packets: Some(self.late), kind, ..NodeEnd::default() },
            }
        };
        let epoch = self.window * EPOCHS;
        let head = EpochHead { epoch, start_unix_ns: clock().start_of(epoch), length_ms: 1000 };
        let mut nodes = vec![deliver("e2", 2, packets[0]), deliver("e3", 6, packets[1])];
        if self.misses_e3 {
            nodes[1].sides[0].1 = None;
            nodes[1].end.late_packets = None;
        }
        nodes.push(away::s1(self));
        let collected: Collected<Delivered> = Collected { head, nodes, topology: None };
        let (found, problems) = self.windows.analyse(&collected, EPOCHS, "on");
        assert!(problems.is_empty(), "{problems:?}");
        self.window += 1;
        let report = SystemReport::new(&collected, found);
        self.windows.remember(&report);
        report
    }

    /// What is known of all flows in the last window, whether it lists them or not.
    fn ask(&self) -> Vec<FlowReport> {
        let remembered = self.windows.remembered();
        let of = |flow: u32| {
            let reported = remembered.flow(&Flow::from(&key(flow)), 1).unwrap();
            let reported: Vec<FlowInWindow> =
                reported.iter().map(|window| serde_json::from_str(window).unwrap()).collect();
            assert_eq!(reported[0].head.epoch, (self.window - 1) * EPOCHS);
            reported.into_iter().flat_map(|window| window.flows).collect::<Vec<_>>()
        };
        (0..200).flat_map(of).collect()
    }
}

fn layout(shape: Shape) -> Layout {
    Layout { shape, heavy_packets: HEAVY, heavy_change_packets: CHANGE, ..Layout::default() }
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + one.abs())
}

fn node_of(name: &str) -> u32 {
    NAMES.iter().position(|it| *it == name).unwrap() as u32 + 1
}

fn names(path: &[u32], sink: &str) -> Vec<String> {
    let on_way = path.iter().map(|&node| NAMES[node as usize - 1]);
    on_way.chain([sink]).map(str::to_owned).collect()
}

fn mean(of: &[u32]) -> f64 {
    of.iter().map(|&ns| f64::from(ns)).sum::<f64>() / of.len() as f64 / 1000.0
}

/// Two windows of packets for two sinks.
fn traffic(flows: u32) -> impl Strategy<Value = [[Vec<Packet>; 2]; 2]> {
    let sink = move || prop::collection::vec(packets(flows), 0..500);
    ((sink(), sink()), (sink(), sink())).prop_map(|((a, b), (c, d))| [[a, b], [c, d]])
}

fn play(
    traffic: &[[Vec<Packet>; 2]; 2],
    network: &mut Network,
) -> Result<Vec<Found>, TestCaseError> {
    let mut before: Option<Counted> = None;
    let mut reports = Vec::new();
    for window in traffic {
        let (found, now) = play_window(window, network, before.as_ref())?;
        before = Some(now);
        reports.push(found);
    }
    Ok(reports)
}

/// What is reported of a window, and what is true.
fn play_window(
    [e2, e3]: &[Vec<Packet>; 2],
    network: &mut Network,
    before: Option<&Counted>,
) -> Result<(Found, Counted), TestCaseError> {
    let mut now = Counted::new();
    truth(("e2", 2), e2, network.misses_s1, &mut now);
    truth(("e3", 6), e3, network.misses_s1, &mut now);
    let report = network.report([e2, e3]);
    prop_assert_eq!(report.complete, !network.misses_s1);
    check((&report.findings, &network.ask()), before, &now)?;
    let line = serde_json::to_string(&report).unwrap();
    let read = SystemReport::<Found>::read(&line).unwrap();
    let mut read = read.as_type::<SystemReport<Found>>().unwrap().clone();
    read.findings.fill();
    prop_assert_eq!(&read, &report);
    Ok((report.findings, now))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn with_room_for_all_every_number_is_exact(
        traffic in traffic(30),
        lcores in 1..3_usize,
        quantiles in prop::sample::select(vec![0_u16, 3, 1000]),
    ) {
        let shape = Shape { tower_words: 512, row_sets: 64, quantiles, ..Shape::default() };
        let reports = play(&traffic, &mut Network::new(layout(shape), lcores))?;
        for found in &reports {
            for sink in found.sinks.iter().filter(|sink| sink.rows_refused + sink.rows_evicted == 0) {
                prop_assert_eq!(sink.flows, sink.flows_exact);
                prop_assert_eq!(sink.cardinality_error, Some(0.0));
                prop_assert_eq!(sink.entropy_min, sink.entropy_max);
                let flows = found.flows.iter().filter(|of| of.sink == sink.edge);
                prop_assert!(flows.clone().all(|of| of.exact));
                if quantiles == 1000 {
                    flows.clone().flat_map(|of| &of.hops).try_for_each(check::are_near)?;
                }
                prop_assert_eq!(flows.count() as u64, sink.flows);
                let says_all = found.coverage.sinks.int_packets == found.coverage.sinks.packets
                    && found.coverage.sinks.partial == 0;
                let at_nodes = found.nodes.iter().flat_map(|node| &node.heavy_hitters);
                let at_nodes = at_nodes.filter(|of| says_all && of.sink == sink.edge);
                let heavy = sink.heavy_hitters.iter().chain(at_nodes);
                prop_assert!(heavy.clone().all(|of| of.certain && of.packets.packets.is_some()));
            }
        }
    }

    #[test]
    fn without_room_all_bounds_hold(
        traffic in traffic(150),
        lcores in 1..3_usize,
        row_sets in prop::sample::select(vec![0_u32, 1, 2]),
        (hops, paths, nodes, keys) in (1..4_u8, 1..6_u16, 1..8_u16, 1..9_u16),
        quantiles in 0..9_u16,
    ) {
        let quantiles = if row_sets == 0 { 0 } else { quantiles };
        let shape = Shape {
            tower_words: 32, pair_buckets: 64, row_sets, hops, paths, nodes, keys, inflated: 2,
            quantiles, ..Shape::default()
        };
        play(&traffic, &mut Network::new(layout(shape), lcores))?;
    }
}

/// So many packets of a flow by a path.
fn packets_of(flow: u32, path: usize, packets: usize) -> Vec<Packet> {
    let latencies = [1000, 2000, 3000];
    let packet = Packet { flow, path, latencies, own: 100, lcore: 0, says: Says::All };
    vec![packet; packets]
}

#[test]
fn changes_are_reported_once_and_by_switch() {
    let mut network = Network::new(layout(Shape::default()), 1);
    let before = [packets_of(1, 1, 50), packets_of(2, 1, 10)].concat();
    let after = [packets_of(1, 2, 50), packets_of(2, 1, 90), packets_of(3, 3, 25)].concat();
    let first = network.report([&before, &[]]).findings;
    assert!(first.path_changes.is_empty() && first.sinks[0].heavy_changes.is_none());
    let second = network.report([&after, &[]]).findings;
    let [change] = &second.path_changes[..] else { panic!("{:?}", second.path_changes) };
    let by = |switch: &str| vec![["e1", switch, "e2"].map(str::to_owned).to_vec()];
    assert_eq!((&change.before, &change.after), (&by("s1"), &by("s2")));
    assert_eq!(change.flow, Flow::from(&key(1)));
    // Flow 1 has as many packets as before, but at other switches.
    let sizes = |changes: &[Change]| -> BTreeMap<Flow, u64> {
        changes.iter().map(|of| (of.flow, of.change.packets.unwrap())).collect()
    };
    let flows = |of: &[(u32, u64)]| -> BTreeMap<Flow, u64> {
        of.iter().map(|&(flow, by)| (Flow::from(&key(flow)), by)).collect()
    };
    let at_sink = second.sinks[0].heavy_changes.as_deref().unwrap();
    assert_eq!(sizes(at_sink), flows(&[(2, 80), (3, 25)]));
    let at = |name: &str| {
        let node = second.nodes.iter().find(|node| node.node == name).unwrap();
        sizes(node.heavy_changes.as_deref().unwrap())
    };
    assert_eq!(at("s1"), flows(&[(1, 50), (2, 80), (3, 25)]));
    assert_eq!(at("s2"), flows(&[(1, 50)]));
    // The window after the next has none to compare with.
    network.window += 1;
    let third = network.report([&before, &[]]).findings;
    assert!(third.path_changes.is_empty() && third.sinks[0].heavy_changes.is_none());
}

#[test]
fn a_flow_that_waits_is_named_with_its_switch() {
    let mut network = Network::new(layout(Shape::default()), 1);
    let mut packets = packets_of(1, 1, 20);
    packets.extend(packets_of(2, 1, 20));
    packets.push(Packet { latencies: [1000, 60_000, 0], ..packets[0].clone() });
    let found = network.report([&packets, &[]]).findings;
    let [inflated] = &found.inflated[..] else { panic!("{:?}", found.inflated) };
    assert_eq!((&*inflated.node, inflated.count, inflated.max_us), ("s1", Some(1), 60.0));
    assert_eq!(inflated.flow, Flow::from(&key(1)));
    assert_eq!(inflated.last_unix_ns, Some(clock().start_of(1000 * EPOCHS) + 40_000));
    assert_eq!((inflated.by, inflated.at_least, inflated.at_most), (By::Rows, 1, Some(1)));
    let at: Vec<_> = found.nodes.iter().map(|node| (&*node.node, node.inflated)).collect();
    assert_eq!(at, [("e1", Some(0)), ("e2", Some(0)), ("s1", Some(1))]);
}

#[test]
fn a_flow_without_a_row_that_waits_is_named_by_an_estimate() {
    let mut network = Network::new(layout(Shape { row_sets: 1, ..Shape::default() }), 1);
    let mut packets: Vec<Packet> = (1..9).flat_map(|flow| packets_of(flow, 1, 50)).collect();
    packets.extend(packets_of(9, 1, 20));
    let waits = |flow| Packet { flow, latencies: [1000, 60_000, 0], ..packets[0].clone() };
    let waiting = [waits(9), waits(1)];
    packets.extend(waiting);
    let found = network.report([&packets, &[]]).findings;
    let of = |by: By| {
        let all = found.inflated.iter().filter(move |of| of.by == by);
        all.map(|of| (of.flow, &*of.node, of.count)).collect::<Vec<_>>()
    };
    assert_eq!(of(By::Rows), [(Flow::from(&key(1)), "s1", Some(1))]);
    assert_eq!(of(By::Towers), [(Flow::from(&key(9)), "s1", Some(1))]);
    let s1 = found.nodes.iter().find(|node| node.node == "s1").unwrap();
    assert_eq!((s1.inflated, s1.inflated_at_least), (None, 1));
}

#[test]
fn where_packets_came_late_nothing_is_exact() {
    let late = |network: &mut Network| network.late = 1;
    let doubtful = |network: &mut Network| network.doubts = vec!["it was late".to_owned()];
    for change in [late, doubtful] {
        let mut network = Network::new(layout(Shape::default()), 1);
        change(&mut network);
        nothing_is_exact(&network.report([&packets_of(1, 1, 50), &[]]));
    }
}

fn nothing_is_exact(report: &SystemReport<Found>) {
    assert!(!report.complete);
    let [flow] = &report.findings.flows[..] else { panic!("{:?}", report.findings.flows) };
    let unknown = Packets { packets: None, at_least: 50, at_most: None };
    assert_eq!((flow.packets, flow.exact, flow.int_packets), (unknown, false, None));
    assert!(flow.hops.iter().all(|hop| hop.mean_us.is_none() && hop.packets.at_most.is_none()));
    let sink = &report.findings.sinks[0];
    assert_eq!((sink.sound, sink.cardinality, sink.entropy), (false, None, None));
    assert_eq!(sink.size_distribution, None);
    assert!(sink.heavy_hitters[0].certain && !sink.heavy_hitters_complete);
}

#[test]
fn windows_of_another_node_key_or_size_are_refused() {
    let network = Network::new(layout(Shape::default()), 1);
    let node = Node { name: "e2".to_owned(), role: Role::Edge, id: 2 };
    let side = || network.sink(2, &packets_of(1, 1, 5));
    let says = |side: &Side, words: &str| {
        let refused = network.windows.decode(&node, side).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    };
    assert!(network.windows.decode(&node, &side()).is_ok());
    says(&network.sink(3, &[]), "a window of node 3 from node 2");
    says(&Side { packets: 6, ..side() }, "a window of 5 packets on a side of 6");
    let mut keyed = side();
    keyed.body[1] ^= 1;
    says(&keyed, "hashed by another key");
    says(&Side { side: SideKind::Transit, ..side() }, "of what passed a switch");
    says(&Side { side: SideKind::Ingress, ..side() }, "byte 24 of what a source did");
    let mut cut = side();
    says(&Side { body: Vec::new(), ..side() }, "byte 0 of a window of sketchint");
    cut.body.truncate(90);
    says(&cut, "byte ");
}

#[test]
fn the_archive_has_a_row_for_each_flow_hop_and_path() {
    let mut network = Network::new(layout(Shape::default()), 1);
    let packets = [packets_of(1, 1, 50), packets_of(2, 3, 3), packets_of(2, 4, 3)].concat();
    let report = network.report([&packets, &packets_of(4, 0, 2)]);
    let rows: Vec<_> = TABLES
        .iter()
        .map(|table| (table.name(), table.batch(&[&report]).unwrap().num_rows()))
        .collect();
    let expected = [
        ("sketchint_windows", 2),
        ("sketchint_not_carried", 0),
        ("sketchint_nodes", 5),
        ("sketchint_links", 6),
        ("sketchint_flows", 3),
        ("sketchint_hops", 8),
        ("sketchint_paths", 3),
        ("sketchint_path_changes", 1),
        ("sketchint_inflated", 0),
    ];
    assert_eq!(rows, expected);
    let hops = TABLES.iter().find(|table| table.name() == "sketchint_hops").unwrap();
    let hops = hops.batch(&[&report]).unwrap();
    assert_eq!(hops.column_by_name("src").unwrap().null_count(), 0);
}
