//! Windows that the real records of sinks made, and every number of the reports on them held
//! against what the test itself counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calumma_analysis::{
    Collected, Delivery, EpochHead, Flow, HashKeys, Node, NodeEnd, SystemReport,
};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::Shape;
use calumma_sketch::{FlowKey, HashFamily, HashKey};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::report::{
    Change, FlowReport, Found, Heavy, Packets, PathReport, SinkReport,
};
use calumma_sketchint_analysis::{Delivered, FlowInWindow, Limits, TABLES, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};
use proptest::prelude::*;

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
            _ => None,
        }
    }
}

/// Node ids, by the position of their names, plus one.
const PATHS: [&[u32]; 5] = [&[], &[1, 3], &[1, 4], &[1, 3, 5], &[1, 3, 1]];

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

fn truth(sink: &'static str, own: u32, packets: &[Packet], all: &mut Counted) {
    for packet in packets {
        let of = all.entry((sink, packet.flow)).or_default();
        of.packets += 1;
        let stack = packet.stack();
        if let Some(stack) = stack {
            *of.by_path.entry(stack).or_default() += 1;
        }
        let said = stack.map_or(&[][..], |stack| stack.0);
        of.named.extend(said.iter().copied().chain([own]));
        let path = PATHS[packet.path];
        let came: BTreeSet<u32> = path.iter().copied().chain([own]).collect();
        came.iter().for_each(|node| of.at_node.entry(*node).or_default().packets += 1);
        let hops = said.iter().copied().zip(packet.latencies).chain([(own, packet.own)]);
        for (node, latency) in hops.filter(|hop| hop.1 != u32::MAX) {
            of.at_node.entry(node).or_default().latencies.push(latency);
        }
    }
}

struct Network {
    windows: Windows,
    layout: Layout,
    family: HashFamily,
    hash_key: u64,
    lcores: usize,
    window: u64,
    late: u64,
}

impl Network {
    fn new(layout: Layout, lcores: usize) -> Self {
        let key = HashKey::from_bytes([9; 32]);
        let names = (1..).zip(NAMES).map(|(id, name)| (id, name.to_owned()));
        let limits = Limits { flows: 10_000, ..Limits::default() };
        let windows = Windows::new(layout, limits, HashKeys::new(key), names.collect());
        let (family, hash_key) = (HashFamily::new(&key), key.id());
        Self { windows, layout, family, hash_key, lcores, window: 1000, late: 0 }
    }

    fn sink(&self, own: u32, packets: &[Packet]) -> Side {
        let epoch = self.window * EPOCHS;
        let setup = SinkSetup {
            layout: self.layout,
            own: Some(own),
            family: self.family.clone(),
            clock: clock(),
        };
        let setup = Arc::new(setup);
        let mut lcores: Vec<SinkWindow<FlowKey, ()>> = (0..self.lcores)
            .map(|_| SinkWindow::new(setup.clone(), (), self.lcores).unwrap())
            .collect();
        lcores.iter_mut().for_each(|lcore| lcore.begin(&(), epoch));
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
        let window = record.frame(self.hash_key, self.lcores);
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
            let side = self.windows.decode(&node, &self.sink(id, packets)).unwrap();
            Delivery {
                node: Arc::new(node),
                sides: vec![(SideKind::Egress, Some(side))],
                end: NodeEnd { late_packets: Some(self.late), ..NodeEnd::default() },
            }
        };
        let epoch = self.window * EPOCHS;
        let head = EpochHead { epoch, start_unix_ns: clock().start_of(epoch), length_ms: 1000 };
        let nodes = vec![deliver("e2", 2, packets[0]), deliver("e3", 6, packets[1])];
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

fn check(
    (found, asked): (&Found, &[FlowReport]),
    before: Option<&Counted>,
    now: &Counted,
) -> Result<(), TestCaseError> {
    let flow_of: BTreeMap<Flow, u32> = (0..200).map(|at| (Flow::from(&key(at)), at)).collect();
    let sink_of = |name: &str| if name == "e2" { "e2" } else { "e3" };
    let get = |counted: &Counted, sink: &str, flow: &Flow| {
        counted.get(&(sink_of(sink), flow_of[flow])).cloned().unwrap_or_default()
    };
    let all: u64 = now.values().map(|of| of.packets).sum();
    prop_assert_eq!(found.coverage.sinks.packets, all);
    prop_assert_eq!(
        found.coverage.sinks.int_packets,
        now.values().map(Truth::with_int).sum::<u64>()
    );

    for ((sink, flow), truth) in now {
        let flow = Flow::from(&key(*flow));
        let is_told = asked.iter().any(|of| of.sink == *sink && of.flow == flow);
        prop_assert!(is_told || truth.packets == 0, "{} at {}", flow, sink);
    }
    for of in found.flows.iter().chain(asked) {
        let truth = get(now, &of.sink, &of.flow);
        prop_assert!(of.packets.allows(truth.packets), "{:?} {:?}", of, truth);
        prop_assert!(of.int_packets.is_none_or(|packets| packets == truth.with_int()));
        for path in &of.paths {
            let packets = truth.by(path, &of.sink);
            prop_assert!(packets > 0, "{:?}", path);
            prop_assert!(path.at_least <= packets);
            prop_assert!(path.packets.is_none_or(|reported| reported == packets));
        }
        for hop in &of.hops {
            let node = node_of(&hop.node);
            let at = truth.at_node.get(&node).cloned().unwrap_or_default();
            prop_assert!(hop.packets.allows(at.packets), "{:?} {:?}", hop, at);
            if !at.latencies.is_empty() {
                let mean = mean(&at.latencies);
                let (low, high) = (hop.mean_min_us, hop.mean_max_us);
                prop_assert!(
                    low.is_none_or(|low| low <= mean * (1.0 + 1e-9)),
                    "{:?} {}",
                    hop,
                    mean
                );
                prop_assert!(
                    high.is_none_or(|high| high >= mean * (1.0 - 1e-9)),
                    "{:?} {}",
                    hop,
                    mean
                );
                prop_assert!(hop.mean_us.is_none_or(|reported| near(reported, mean)));
                let max = f64::from(*at.latencies.iter().max().unwrap()) / 1000.0;
                prop_assert!(hop.max_us.is_none_or(|reported| near(reported, max)));
                let quantiles = [
                    (50, (hop.p50_us, hop.p50_min_us, hop.p50_max_us)),
                    (99, (hop.p99_us, hop.p99_min_us, hop.p99_max_us)),
                ];
                for (percent, (exactly, low, high)) in quantiles {
                    let mut sorted = at.latencies.clone();
                    sorted.sort_unstable();
                    let rank = (percent * sorted.len()).div_ceil(100);
                    let truth = f64::from(sorted[rank - 1]) / 1000.0;
                    prop_assert_eq!(low.is_some() && high.is_some(), hop.max_us.is_some());
                    prop_assert!(low.is_none_or(|low| low <= truth), "{} {:?}", truth, hop);
                    prop_assert!(high.is_none_or(|high| high >= truth), "{} {:?}", truth, hop);
                    prop_assert!(exactly.is_none_or(|of| of == truth), "{} {:?}", truth, hop);
                    // One is the maximum, and of two latencies both are known by their sum.
                    let is_known = percent == 99 || sorted.len() < 3;
                    let is_known = is_known && sorted.len() < 100 && low.is_some();
                    prop_assert!(exactly.is_some() || !is_known, "{} {:?}", truth, hop);
                }
            }
        }
        if of.exact {
            prop_assert_eq!(of.packets.packets, Some(truth.packets));
            prop_assert_eq!(of.paths.len(), truth.by_path.len());
            prop_assert_eq!(of.hops.len(), truth.named.len());
            let says_all = truth.by_path.keys().all(|path| !path.1);
            if truth.with_int() == truth.packets && says_all {
                prop_assert!(of.hops.iter().all(|hop| hop.packets.packets.is_some()), "{:?}", of);
            }
            let known = of.hops.iter().filter(|hop| hop.mean_us.is_some()).count();
            let has_known = truth.at_node.values().filter(|at| !at.latencies.is_empty());
            prop_assert_eq!(known, has_known.count());
        }
    }
    for sink in &found.sinks {
        check_sink(sink, now)?;
        let heavy = |listed: &[Heavy], flow: Flow, packets: u64, is_complete: bool| {
            let of = listed.iter().find(|of| of.flow == flow && of.sink == sink.edge);
            let is_missing = of.is_none() && is_complete && packets > HEAVY.into();
            let is_right =
                |of: &Heavy| of.packets.allows(packets) && (!of.certain || packets > HEAVY.into());
            !is_missing && of.is_none_or(is_right)
        };
        let changed = |listed: &[Change], flow: Flow, (old, new): (u64, u64), is_complete: bool| {
            let of = listed.iter().find(|of| of.flow == flow && of.sink == sink.edge);
            let by = old.abs_diff(new);
            let is_missing = of.is_none() && is_complete && by > CHANGE.into();
            let is_right = |of: &Change| {
                let are_bounds = of.before.allows(old) && of.after.allows(new);
                are_bounds && of.change.allows(by) && (!of.certain || by > CHANGE.into())
            };
            !is_missing && of.is_none_or(is_right)
        };
        let complete = sink.heavy_hitters_complete;
        prop_assert_eq!(sink.heavy_changes.is_some(), before.is_some());
        for (&flow, &number) in &flow_of {
            let truth = get(now, &sink.edge, &flow);
            prop_assert!(heavy(&sink.heavy_hitters, flow, truth.packets, complete), "{}", number);
            for node in &found.nodes {
                let packets = truth.at(node.id);
                let complete = node.heavy_hitters_complete;
                prop_assert!(heavy(&node.heavy_hitters, flow, packets, complete), "{}", number);
            }
            let Some(before) = before else { continue };
            let old = get(before, &sink.edge, &flow);
            // Where the table of keys was full, before or now, a change may be missing.
            let listed = sink.heavy_changes.as_deref().unwrap();
            let packets = (old.packets, truth.packets);
            prop_assert!(changed(listed, flow, packets, false), "{} {:?}", number, packets);
            for node in &found.nodes {
                let packets = (old.at(node.id), truth.at(node.id));
                let listed = node.heavy_changes.as_deref().unwrap();
                prop_assert!(changed(listed, flow, packets, false), "{} {:?}", number, packets);
            }
        }
    }
    let mut links: BTreeMap<[String; 2], u64> = BTreeMap::new();
    for ((sink, _), of) in now {
        let whole = of.by_path.iter().filter(|(path, _)| !path.1);
        for (path, packets) in whole {
            for link in names(path.0, sink).windows(2) {
                *links.entry([link[0].clone(), link[1].clone()]).or_default() += packets;
            }
        }
    }
    for link in &found.links {
        let packets = links[&[link.from.clone(), link.to.clone()]];
        prop_assert!(link.at_least <= packets, "{:?} {}", link, packets);
        prop_assert!(link.packets.is_none_or(|of| of == packets), "{:?} {}", link, packets);
    }
    if found.links.iter().all(|link| link.packets.is_some()) && !found.links.is_empty() {
        prop_assert_eq!(found.links.len(), links.len());
    }
    for node in &found.nodes {
        let at = now.values().filter_map(|of| of.at_node.get(&node.id));
        let mut latencies: Vec<u32> = at.flat_map(|of| of.latencies.clone()).collect();
        latencies.sort_unstable();
        let it = &node.latency_us;
        if latencies.is_empty() || node.packets.is_none() {
            prop_assert_eq!((it.mean, it.p99), (None, None));
            continue;
        }
        prop_assert!(near(it.mean.unwrap(), mean(&latencies)));
        let us = |ns: u32| f64::from(ns) / 1000.0;
        prop_assert!(near(it.min.unwrap(), us(latencies[0])));
        prop_assert!(near(it.max.unwrap(), us(latencies[latencies.len() - 1])));
        for (q, reported) in [(0.5, it.p50), (0.9, it.p90), (0.99, it.p99)] {
            let rank = (q * latencies.len() as f64).ceil() as usize;
            let truth = us(latencies[rank.max(1) - 1]);
            prop_assert!((reported.unwrap() - truth).abs() <= it.error * truth + 1e-9);
        }
    }
    for change in &found.path_changes {
        let paths = |counted: Option<&Counted>| -> BTreeSet<Vec<String>> {
            let of = counted.map(|of| get(of, &change.sink, &change.flow)).unwrap_or_default();
            of.by_path.keys().map(|path| names(path.0, &change.sink)).collect()
        };
        let (old, new) = (paths(before), paths(Some(now)));
        let of = before.map(|of| get(of, &change.sink, &change.flow)).unwrap_or_default();
        let is_whole = of.with_int() == of.packets && of.by_path.keys().all(|path| !path.1);
        prop_assert!(change.before.is_empty() || is_whole, "{:?} {:?}", change, of);
        prop_assert!(change.after.iter().all(|path| new.contains(path)));
        prop_assert!(change.before.iter().all(|path| old.contains(path)));
        let is_new = change.after.iter().any(|path| !old.contains(path));
        prop_assert!(is_new || change.after.len() > 1, "{:?} {:?}", change, old);
    }
    for of in &found.loops {
        prop_assert_eq!(&of.path, &names(PATHS[4], &of.sink));
        let through = now.iter().filter(|((sink, _), _)| *sink == of.sink);
        let packets: u64 = through.filter_map(|(_, of)| of.by_path.get(&(PATHS[4], false))).sum();
        prop_assert!(
            of.at_least <= packets && of.packets.is_none_or(|reported| reported == packets)
        );
    }
    Ok(())
}

fn check_sink(sink: &SinkReport, now: &Counted) -> Result<(), TestCaseError> {
    let flows: Vec<u64> =
        now.iter().filter(|((of, _), _)| *of == sink.edge).map(|(_, of)| of.packets).collect();
    let all: u64 = flows.iter().sum();
    prop_assert_eq!(sink.coverage.packets, all);
    if sink.cardinality_error == Some(0.0) {
        prop_assert_eq!(sink.cardinality, Some(flows.len() as f64));
    }
    if all > 0 {
        let share = |packets: u64| packets as f64 / all as f64;
        let entropy: f64 = flows.iter().map(|&of| -share(of) * share(of).log2()).sum();
        let (low, high) = (sink.entropy_min.unwrap(), sink.entropy_max.unwrap());
        prop_assert!(low <= entropy + 1e-9 && entropy <= high + 1e-9, "{low} {entropy} {high}");
        prop_assert!(sink.entropy.is_none_or(|reported| (low..=high).contains(&reported)));
    }
    let bins = sink.size_distribution.as_ref().unwrap();
    for bin in bins {
        let here = flows.iter().filter(|&&of| (bin.from..=bin.to).contains(&of)).count() as u64;
        prop_assert!(bin.at_least <= here && here <= bin.at_most, "{:?} {}", bin, here);
        if bin.at_least == bin.at_most {
            prop_assert_eq!(bin.flows, Some(here as f64));
        }
    }
    for path in &sink.paths {
        let of_sink = now.iter().filter(|((of, _), _)| *of == sink.edge);
        let packets: u64 = of_sink.map(|(_, of)| of.by(path, &sink.edge)).sum();
        prop_assert!(path.at_least <= packets, "{:?} {}", path, packets);
        prop_assert!(
            path.packets.is_none_or(|reported| reported == packets),
            "{:?} {}",
            path,
            packets
        );
    }
    let is_listed = |of: u64| bins.iter().any(|bin| (bin.from..=bin.to).contains(&of));
    prop_assert!(flows.iter().all(|&of| is_listed(of)));
    Ok(())
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
    for [e2, e3] in traffic {
        let mut now = Counted::new();
        truth("e2", 2, e2, &mut now);
        truth("e3", 6, e3, &mut now);
        let report = network.report([e2, e3]);
        prop_assert!(report.complete);
        check((&report.findings, &network.ask()), before.as_ref(), &now)?;
        let line = serde_json::to_string(&report).unwrap();
        let read = SystemReport::<Found>::read(&line).unwrap();
        let mut read = read.as_type::<SystemReport<Found>>().unwrap().clone();
        read.findings.fill();
        prop_assert_eq!(&read, &report);
        before = Some(now);
        reports.push(report.findings);
    }
    Ok(reports)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn with_room_for_all_every_number_is_exact(traffic in traffic(30), lcores in 1..3_usize) {
        let shape = Shape { tower_words: 512, row_sets: 64, ..Shape::default() };
        let reports = play(&traffic, &mut Network::new(layout(shape), lcores))?;
        for found in &reports {
            for sink in found.sinks.iter().filter(|sink| sink.rows_refused == 0) {
                prop_assert_eq!(sink.flows, sink.flows_exact);
                prop_assert_eq!(sink.cardinality_error, Some(0.0));
                prop_assert_eq!(sink.entropy_min, sink.entropy_max);
                let flows = found.flows.iter().filter(|of| of.sink == sink.edge);
                prop_assert!(flows.clone().all(|of| of.exact));
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
    ) {
        let shape = Shape {
            tower_words: 32, pair_buckets: 64, row_sets, hops, paths, nodes, keys, inflated: 2,
            ..Shape::default()
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
    assert_eq!((&*inflated.node, inflated.count, inflated.max_us), ("s1", 1, 60.0));
    assert_eq!(inflated.flow, Flow::from(&key(1)));
    assert_eq!(inflated.last_unix_ns, clock().start_of(1000 * EPOCHS) + 40_000);
    let at: Vec<_> = found.nodes.iter().map(|node| (&*node.node, node.inflated)).collect();
    assert_eq!(at, [("e1", Some(0)), ("e2", Some(0)), ("s1", Some(1))]);
}

#[test]
fn where_packets_came_late_nothing_is_exact() {
    let mut network = Network::new(layout(Shape::default()), 1);
    network.late = 1;
    let report = network.report([&packets_of(1, 1, 50), &[]]);
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
    says(&Side { side: SideKind::Transit, ..side() }, "where none are expected");
    says(&Side { side: SideKind::Ingress, ..side() }, "byte 8 of what a source did");
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
