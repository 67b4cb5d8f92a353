//! Windows as switches deliver them, and what is reported of them.

use std::sync::Arc;

use calumma_analysis::{
    AnyAnalysis, Collected, Deployment, EpochHead, Flow, HashKeys, Node, NodeEnd, Report, System,
    SystemReport,
};
use calumma_analysis::{Delivery, run::AnySide};
use calumma_cfs::frames::{Entry, Setup, Totals, Window, salt};
use calumma_cfs_analysis::{Cfs, Found};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, HashKey, HyperLogLog, KeyKind, WideKey};
use calumma_topology::Place;
use calumma_wire::{Role, Side, SideKind, SystemId};
use serde_json::json;

const EPOCHS: u64 = 20;
const UNCLAIMED: u8 = 2;

/// Two edges with two transit switches between them, and their controller.
struct Network {
    keys: HashKeys,
    nodes: Vec<Arc<Node>>,
    analysis: Box<dyn AnyAnalysis>,
    /// What each node kept in the window.
    windows: Vec<Window>,
    late: Vec<Option<u64>>,
    window: u64,
}

fn key(flow: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0002, 0x0A01_0000 + flow, 7 << 16 | 53, 17)
}

fn setup() -> Setup {
    Setup { entries: 256, hll_bits: 8, filter_bits: 256 * 64, ..Setup::default() }
}

impl Network {
    fn new(section: serde_json::Value) -> Self {
        let keys = HashKeys::new(HashKey::from_bytes([9; 32]));
        let roles =
            [("e1", Role::Edge), ("e2", Role::Edge), ("s1", Role::Transit), ("s2", Role::Transit)];
        let node = |(at, (name, role)): (usize, (&str, Role))| {
            Arc::new(Node { name: name.to_owned(), role, id: at as u16 + 1 })
        };
        let nodes: Vec<_> = roles.into_iter().enumerate().map(node).collect();
        let mut of_section = json!({ "entries": 256, "hll_bits": 8 });
        let more = section.as_object().cloned().unwrap_or_default();
        of_section.as_object_mut().unwrap().extend(more);
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let deployment = Deployment {
            section: &of_section,
            hash_keys: &keys,
            clock,
            nodes: &nodes,
            id: std::num::NonZeroU16::MIN,
        };
        let analysis = Cfs.start(&deployment).unwrap().unwrap();
        let mut network =
            Self { keys, nodes, analysis, windows: Vec::new(), late: Vec::new(), window: 1000 };
        network.begin();
        network
    }

    /// The next window, in which nothing has passed.
    fn begin(&mut self) {
        self.window += 1;
        let empty = Window {
            keys: KeyKind::Ipv4,
            hash_key: self.keys.newest().id,
            routes_changed: false,
            limit: None,
            theta: None,
            totals: Totals::default(),
            flows: HyperLogLog::new(8),
            entries: Vec::new(),
            uncounted: None,
        };
        self.windows = vec![empty; self.nodes.len()];
        self.late = vec![Some(0); self.nodes.len()];
    }

    fn position(&self, node: &str) -> usize {
        self.nodes.iter().position(|of| of.name == node).unwrap()
    }

    fn at(&mut self, node: &str) -> &mut Window {
        let at = self.position(node);
        &mut self.windows[at]
    }

    /// Lets a node count so many packets of a flow.
    fn count(&mut self, node: &str, flow: u32, packets: u64) -> &mut Entry {
        let at = self.position(node);
        let (sides, ttl) = match node {
            "e1" => (Entry::ENTERED, 64),
            "e2" => (Entry::LEFT, 62),
            _ => (Entry::PASSED, 63),
        };
        let hashes = self.keys.newest().family.hash(&key(flow));
        let family = self.keys.newest().family.clone();
        let seeds = (setup().seed(self.window), salt(self.nodes[at].id));
        let grade = setup().grade_of(&family, &hashes, seeds, ttl);
        let window = &mut self.windows[at];
        window.flows.insert(&hashes);
        window.totals.packets += packets;
        window.totals.admitted += 1;
        window.entries.push(Entry {
            key: WideKey::from(key(flow)),
            packets,
            bytes: 100 * packets,
            rank: Rank::new(UNCLAIMED, grade),
            ttl,
            differences: 0,
            looped: 0,
            first_us: 0,
            last_us: 10,
            sides,
            exact: true,
        });
        window.entries.last_mut().unwrap()
    }

    /// Lets a node see packets of a flow that its table has no room for.
    fn refuse(&mut self, node: &str, flow: u32, packets: u64) {
        let hashes = self.keys.newest().family.hash(&key(flow));
        let window = self.at(node);
        window.flows.insert(&hashes);
        window.totals.packets += packets;
        window.totals.refused_packets += packets;
        window.totals.refused += 1;
    }

    fn side(&self, at: usize, side: SideKind) -> Side {
        let mut window = self.windows[at].clone();
        window.entries.sort_by_key(|entry| entry.key);
        let (packets, body) = match side {
            SideKind::Ingress => (0, Vec::new()),
            _ => (window.totals.packets, window.encode()),
        };
        let (epoch, system) = (self.window * EPOCHS, SystemId::CFS);
        Side { system, epoch, side, stall_ns: 0, packets, counters: Vec::new(), body }
    }

    fn decode(&self, at: usize, side: Side) -> Result<AnySide, String> {
        self.analysis.decode(&self.nodes[at], 1, side)
    }

    /// The report on the window, in which the nodes that are sealed deliver.
    fn report(&mut self) -> SystemReport<Found> {
        let kinds = |role| match role {
            Role::Edge => &[SideKind::Ingress, SideKind::Egress][..],
            _ => &[SideKind::Transit],
        };
        let delivery = |(at, node): (usize, &Arc<Node>)| {
            let is_there = self.late[at].is_some();
            let side = |&kind: &SideKind| {
                (kind, is_there.then(|| self.decode(at, self.side(at, kind)).unwrap()))
            };
            Delivery {
                node: node.clone(),
                sides: kinds(node.role).iter().map(side).collect(),
                end: NodeEnd { late_packets: self.late[at], ..NodeEnd::default() },
            }
        };
        let head = EpochHead { epoch: self.window * EPOCHS, start_unix_ns: 0, length_ms: 1000 };
        let nodes = self.nodes.iter().enumerate().map(delivery).collect();
        let published = self.analysis.analyse(Collected { head, nodes, topology: None }).unwrap();
        let read = Cfs.read(&published.json).expect("a line of cfs");
        let read: &SystemReport<Found> = read.as_type().unwrap();
        let report: &SystemReport<Found> = published.report.as_type().unwrap();
        assert_eq!(serde_json::to_string(read).unwrap(), published.json);
        report.clone()
    }
}

/// A flow's count in a report: where, packets, and whether they are all.
fn count_of(report: &SystemReport<Found>, flow: u32) -> Option<(&str, u64, bool)> {
    let flow = Flow::from(&key(flow));
    let count = report.findings.flows.iter().find(|count| count.flow == flow)?;
    Some((&count.at, count.packets, count.exact))
}

fn lost(report: &SystemReport<Found>) -> Vec<(Flow, String, String, u64)> {
    let losses = report.findings.losses.iter();
    losses
        .map(|loss| {
            let Place { from, to } = loss.place.clone();
            (loss.flow, from, to, loss.lost)
        })
        .collect()
}

#[test]
fn a_flows_count_is_that_of_one_node_and_losses_are_between_two() {
    let mut network = Network::new(json!({}));
    for (node, packets) in [("e1", 100), ("s1", 97), ("e2", 93)] {
        network.count(node, 1, packets);
    }
    network.count("e1", 2, 50);
    network.count("s2", 2, 50);
    network.refuse("e2", 2, 50);
    network.count("s2", 3, 20);
    network.refuse("e1", 3, 25);
    network.count("e2", 4, 10);
    let report = network.report();
    assert!(report.complete, "{:?}", report.incomplete_because);
    assert_eq!(count_of(&report, 1), Some(("e1", 100, true)));
    assert_eq!(count_of(&report, 2), Some(("e1", 50, true)));
    assert_eq!(count_of(&report, 3), Some(("s2", 20, true)));
    assert_eq!(count_of(&report, 4), Some(("e2", 10, true)));
    let flow = Flow::from(&key(1));
    let between = |from: &str, to: &str, lost| (flow, from.to_owned(), to.to_owned(), lost);
    assert_eq!(lost(&report), [between("e1:in", "s1:in", 3), between("s1:in", "e2:in", 4)]);
    let first = &report.findings.flows[0];
    let hops: Vec<_> = first.hops.iter().map(|hop| (&*hop.node, hop.hop, hop.packets)).collect();
    assert_eq!(hops, [("e1", Some(0), 100), ("s1", Some(1), 97), ("e2", Some(2), 93)]);
    assert_eq!((report.findings.monitored, report.findings.window), (4, 1001));
}

#[test]
fn a_transit_node_is_believed_only_where_nothing_can_have_passed_elsewhere() {
    let exact = |change: &dyn Fn(&mut Network)| {
        let mut network = Network::new(json!({}));
        network.count("s1", 1, 20);
        network.refuse("e1", 1, 20);
        change(&mut network);
        let report = network.report();
        let hop = &report.findings.flows[0].hops[0];
        assert!(hop.exact, "{hop:?} counted all that it received");
        count_of(&report, 1).unwrap().2
    };
    assert!(exact(&|_| ()));
    assert!(!exact(&|network| network.at("e2").routes_changed = true));
    assert!(!exact(&|network| network.late[3] = None));
    // Half of it passed the other one.
    assert!(!exact(&|network| {
        network.count("s2", 1, 20);
    }));

    let mut sprayed = Network::new(json!({ "paths": "sprayed" }));
    sprayed.count("s1", 1, 20);
    sprayed.count("e1", 2, 20);
    let report = sprayed.report();
    assert_eq!(count_of(&report, 1), Some(("s1", 20, false)));
    assert_eq!(count_of(&report, 2), Some(("e1", 20, true)));
}

#[test]
fn what_is_missing_or_late_makes_only_that_nodes_counts_uncertain() {
    let mut network = Network::new(json!({}));
    network.count("e1", 1, 100);
    network.count("e2", 1, 93);
    network.count("e2", 2, 5);
    let at = network.position("e2");
    network.late[at] = Some(3);
    let report = network.report();
    let why = "e2: 3 packets came too late to be recorded";
    assert_eq!(report.incomplete_because, [why]);
    assert_eq!(count_of(&report, 1), Some(("e1", 100, true)));
    assert_eq!(count_of(&report, 2), Some(("e2", 5, false)));
    assert_eq!(lost(&report), []);
    assert_eq!((report.findings.flows_total, report.findings.coverage), (None, None));

    // What entered was there in time.
    let e1 = network.position("e1");
    network.late[e1] = Some(1);
    assert_eq!(count_of(&network.report(), 1), Some(("e1", 100, true)));
    network.late[e1] = Some(0);

    network.late[at] = None;
    let report = network.report();
    assert_eq!(report.missing_nodes, ["e2"]);
    assert_eq!(count_of(&report, 1), Some(("e1", 100, true)));
    assert_eq!(count_of(&report, 2), None);

    network.late[at] = Some(0);
    network.at("e2").totals.unmarked = 1;
    let report = network.report();
    assert!(report.complete);
    assert_eq!(count_of(&report, 1), Some(("e1", 100, true)));
    assert_eq!(count_of(&report, 2), Some(("e2", 5, false)));
    assert_eq!(lost(&report), []);
}

#[test]
fn a_flow_that_comes_back_or_enters_twice_has_no_exact_count() {
    let mut network = Network::new(json!({}));
    network.count("e1", 1, 100).sides |= Entry::PASSED;
    network.count("e1", 2, 100);
    network.count("e2", 2, 100).sides = Entry::ENTERED;
    network.count("e1", 3, 100);
    network.count("e2", 3, 101);
    network.count("e1", 4, 100).exact = false;
    let report = network.report();
    for (flow, exact) in [(1, false), (2, false), (3, true), (4, false)] {
        assert_eq!(count_of(&report, flow), Some(("e1", 100, exact)), "{flow}");
    }
    assert_eq!(lost(&report), []);
}

#[test]
fn packets_that_go_round_are_a_loop_and_a_changed_way_is_none() {
    let mut network = Network::new(json!({}));
    let looped = network.count("s1", 1, 40);
    looped.differences = (1..=31).fold(0, |bits, turn| bits | 1 << (2 * turn));
    looped.looped = 31;
    let other = network.count("s2", 1, 39);
    other.differences = (1..=31).fold(0, |bits, turn| bits | 1 << (2 * turn));
    other.looped = 31;
    let moved = network.count("e2", 2, 10);
    (moved.differences, moved.looped) = (1 << 2, 4);
    let report = network.report();
    let [found] = &report.findings.loops[..] else { panic!("{:?}", report.findings.loops) };
    assert_eq!((found.flow, found.length, found.packets), (Flow::from(&key(1)), 2, 9));
    assert_eq!(found.nodes, ["s1", "s2"]);
    assert!(found.certain);
    assert_eq!(found.ttls[..3], [63, 61, 59]);
    let [change] = &report.findings.path_changes[..] else { panic!() };
    assert_eq!((&*change.node, &change.shorter_by[..], change.packets), ("e2", &[2][..], 4));
    assert_eq!(count_of(&report, 1), Some(("s1", 40, false)));
}

#[test]
fn where_tables_hold_all_flows_everything_is_exact() {
    let mut network = Network::new(json!({ "superspreader": 30, "heavy_packets": 40 }));
    for flow in 1..=40 {
        network.count("e1", flow, flow.into());
    }
    let report = network.report();
    let found = &report.findings;
    assert_eq!((found.flows_total, found.flows_total_error), (Some(40.0), Some(0.0)));
    assert_eq!((found.coverage, found.coverage_low), (Some(1.0), Some(1.0)));
    let [spread] = &found.superspreaders[..] else { panic!("{:?}", found.superspreaders) };
    assert_eq!((spread.address.to_string(), spread.low), ("10.0.0.2".to_owned(), 40.0));
    assert!(spread.certain && spread.estimate == Some(40.0) && spread.high == Some(40.0));
    assert!(found.flooded.is_empty());
    let [hitter] = &found.heavy_hitters[..] else { panic!("{:?}", found.heavy_hitters) };
    assert_eq!((hitter.packets, hitter.exact), (40, true));
    let sizes: Vec<_> =
        found.size_distribution.iter().flatten().map(|bin| (bin.flows, bin.error)).collect();
    assert_eq!(sizes, [(1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (8.0, 0.0), (16.0, 0.0), (9.0, 0.0)]);
    assert!(found.entropy.is_some());

    // And where they don't, there are bounds.
    network.begin();
    for flow in 1..=40 {
        network.count("e1", flow, 1);
    }
    (41..=80).for_each(|flow| network.refuse("e1", flow, 1));
    let report = network.report();
    let found = &report.findings;
    let (low, high) = (found.coverage_low.unwrap(), found.coverage_high.unwrap());
    assert!((0.4..0.5).contains(&low) && (0.5..0.65).contains(&high), "{low} to {high}");
    assert!((found.flows_total.unwrap() - 80.0).abs() <= found.flows_total_error.unwrap());
    assert_eq!(found.entropy, None);
    let [spread] = &found.superspreaders[..] else { panic!("{:?}", found.superspreaders) };
    assert!(spread.low <= 80.0 && spread.high.unwrap() >= 80.0, "{spread:?}");
}

#[test]
fn a_change_needs_two_counts_or_a_table_that_had_all() {
    let mut network = Network::new(json!({ "heavy_change_packets": 50 }));
    network.count("e1", 1, 100);
    network.count("e1", 2, 100);
    network.count("e2", 3, 100);
    assert!(network.report().findings.heavy_changes.is_empty());
    network.begin();
    network.count("e1", 1, 30);
    network.count("e1", 2, 90);
    network.count("e2", 4, 60);
    network.count("e1", 5, 70);
    network.refuse("e2", 9, 1);
    let report = network.report();
    let changes = report.findings.heavy_changes.iter();
    let changes: Vec<_> = changes.map(|it| (it.flow, it.before, it.packets)).collect();
    let flow = |number| Flow::from(&key(number));
    // Of flow 3 nobody knows: e2 may have refused it. Flow 4 was not there before.
    let expected = [(flow(1), 100, 30), (flow(5), 0, 70), (flow(4), 0, 60)];
    assert_eq!(changes.len(), 3);
    assert!(expected.iter().all(|change| changes.contains(change)), "{changes:?}");
}

#[test]
fn what_a_node_cant_have_counted_is_refused() {
    let mut network = Network::new(json!({}));
    network.count("e1", 1, 10);
    let side = |network: &Network, kind| network.side(0, kind);
    let refused = |network: &Network, side| network.decode(0, side).err().unwrap();
    let good = side(&network, SideKind::Egress);
    assert!(network.decode(0, good.clone()).is_ok());
    let more = Side { packets: 11, ..good.clone() };
    assert_eq!(refused(&network, more), "a window of 10 packets on a side of 11");
    let ingress = Side { side: SideKind::Ingress, ..good.clone() };
    assert!(refused(&network, ingress).starts_with("an ingress side of "));
    // The seed of another window makes other grades.
    let later = Side { epoch: good.epoch + EPOCHS, ..good };
    let said = refused(&network, later);
    assert!(said.contains("10.0.0.2") && said.contains(": a grade of 0x"), "{said}");
    network.at("e1").entries[0].ttl = 63;
    let said = refused(&network, side(&network, SideKind::Egress));
    assert!(said.starts_with("entry 0, ") && said.ends_with(" is its"), "{said}");
    network.at("e1").entries[0].ttl = 64;
    network.at("e1").hash_key ^= 1;
    let said = refused(&network, side(&network, SideKind::Egress));
    assert!(said.ends_with("is hashed by another key"), "{said}");
}

#[test]
fn the_archive_has_every_flow_and_a_report_the_largest() {
    let mut network = Network::new(json!({ "flows_listed": 3 }));
    for flow in 1..=10 {
        network.count("e1", flow, flow.into());
    }
    network.count("e2", 10, 4);
    let report = network.report();
    let packets: Vec<u64> = report.findings.flows.iter().map(|it| it.packets).collect();
    assert_eq!(packets, [10, 9, 8]);
    let rows = |name: &str| {
        let table = Cfs.tables().iter().find(|table| table.name() == name).unwrap();
        table.batch(&[&report as &dyn Report]).unwrap().num_rows()
    };
    assert_eq!((rows("cfs_flows"), rows("cfs_nodes"), rows("cfs_losses")), (10, 4, 1));
    assert_eq!((rows("cfs_superspreaders"), rows("cfs_loops")), (0, 0));
}
