//! What is not found, and whether it would have been: superspreaders where tables monitor some
//! flows and others not, loops that nobody watched for, black holes where flows have no count.

mod world;

use calumma_analysis::alert::{AlertLimits, Reading};
use calumma_analysis::{System, SystemReport};
use calumma_cfs::frames::{Entry, Suspects};
use calumma_cfs_analysis::{Cfs, Found, Spread};
use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, KeyKind};
use prometheus::Registry;
use serde_json::{Value, json};

use world::{Network, UNCLAIMED};

const NAMES: [&str; 4] = ["e1", "e2", "e3", "s1"];
const SINGLE: u8 = 1;

/// A flow from host to host.
fn flow(src: u32, dst: u32, port: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + src, 0x0A00_0000 + dst, port << 16 | 53, 17)
}

fn three_edges(section: Value) -> Network {
    Network::of(&NAMES, section)
}

fn source(found: &Found, host: u32) -> Option<&Spread> {
    let address = std::net::Ipv4Addr::from(0x0A00_0000 + host);
    found.superspreaders.iter().find(|it| it.address == address)
}

/// A host with 60 flows to others of its edge, all of which have an entry; of the flows of the edge
/// half have none, and go elsewhere.
#[test]
fn flows_from_host_to_host_of_one_edge_stand_for_no_others() {
    let named = |of_local: u8| {
        let mut network = three_edges(json!({ "superspreader": 80, "hosts": "fixed" }));
        for to in 0..60 {
            let entry = network.count_of(0, &flow(1, 100 + to, 7), 5, (Entry::ENTERED, 64));
            (entry.rank, entry.local) = (Rank::new(of_local, entry.rank.grade()), true);
        }
        for other in 0..60 {
            network.refuse_of(0, &flow(1000 + other, 2000, 7), 5, Entry::ENTERED);
        }
        network.at("e1").limit = Some(Rank::new(UNCLAIMED, 1 << 28));
        source(&network.report().findings, 1).cloned()
    };
    assert_eq!(named(SINGLE), None, "it has 60, which are known");
    // As if they were a sample of all.
    let estimated = named(UNCLAIMED).unwrap().estimate.unwrap();
    assert!((80.0..160.0).contains(&estimated), "{estimated}");
}

/// Where not even these have room, nobody knows how many there are, and of what the others are a
/// sample.
#[test]
fn where_a_table_has_no_room_for_those_there_is_no_estimate() {
    let mut network = three_edges(json!({ "superspreader": 20, "hosts": "fixed" }));
    for to in 0..30 {
        let entry = network.count_of(0, &flow(1, 100 + to, 7), 5, (Entry::ENTERED, 64));
        (entry.rank, entry.local) = (Rank::new(SINGLE, entry.rank.grade()), true);
        network.refuse_of(0, &flow(2, 100 + to, 7), 5, Entry::ENTERED);
    }
    network.at("e1").limit = Some(Rank::new(SINGLE, 1 << 28));
    let found = network.report().findings;
    let spread = source(&found, 1).unwrap();
    assert_eq!((spread.seen, spread.estimate, spread.estimate_high), (30, None, None));
    assert!(spread.certain && spread.low == 30.0 && spread.high.unwrap() > 30.0, "{spread:?}");
    assert_eq!(found.size_distribution, None);
    assert!(!found.superspreaders_complete && !found.superspreaders_likely_complete);
}

/// Rows, and lcores' tables, are full one by one: of one that has no room for such flows, no limit
/// of the whole table says so.
#[test]
fn where_a_part_of_the_table_may_have_no_room_for_those_there_is_no_estimate() {
    let estimated = |has_rows: bool, local: u8, limit: Option<Rank>, refused: u32| {
        let mut network = three_edges(json!({ "superspreader": 20, "hosts": "fixed" }));
        network.rows = if has_rows { vec![0] } else { Vec::new() };
        for to in 0..30 {
            let entry = network.count_of(0, &flow(1, 100 + to, 7), 5, (Entry::ENTERED, 64));
            (entry.rank, entry.local) = (Rank::new(local, entry.rank.grade()), true);
        }
        for to in 0..refused {
            network.refuse_of(0, &flow(2, 100 + to, 7), 5, Entry::ENTERED);
        }
        network.at("e1").limit = limit;
        let found = network.report().findings;
        let spread = source(&found, 1).unwrap();
        assert!(spread.certain && spread.low >= 30.0, "{spread:?}");
        let nothing = found.size_distribution.is_none() && !found.superspreaders_likely_complete;
        assert!(spread.estimate.is_some() || nothing, "{found:?}");
        spread.estimate.is_some()
    };
    let unclaimed = Some(Rank::new(UNCLAIMED, 1 << 28));
    for limit in [None, unclaimed] {
        assert!(!estimated(true, SINGLE, limit, 30), "{limit:?}");
        assert!(estimated(true, UNCLAIMED, limit, 30), "as nobody has any: {limit:?}");
    }
    assert!(estimated(true, SINGLE, None, 0));
    assert!(!estimated(false, SINGLE, None, 30) && estimated(false, SINGLE, unclaimed, 30));
}

/// All flows from e1 to e2 are counted there, and none of those to e3 anywhere.
#[test]
fn a_source_whose_flows_all_have_a_count_is_no_superspreader_for_certain() {
    for hosts in ["any", "fixed"] {
        let mut network = three_edges(json!({ "superspreader": 80, "hosts": hosts }));
        for to in 0..60 {
            let counted = flow(1, 100 + to, 7);
            network.refuse_of(0, &counted, 5, Entry::ENTERED);
            network.count_of(1, &counted, 5, (Entry::LEFT, 62));
            for (at, side) in [(0, Entry::ENTERED), (2, Entry::LEFT)] {
                network.refuse_of(at, &flow(2, 1000 + to, 7), 5, side);
                network.refuse_of(at, &flow(2, 1100 + to, 7), 5, side);
            }
        }
        let found = network.report().findings;
        let spread = source(&found, 1).unwrap_or_else(|| panic!("{:?}", found.superspreaders));
        assert!(!spread.certain && spread.low == 60.0, "{spread:?}");
        assert!(spread.estimate_low.unwrap() > 80.0, "as if a third were monitored: {spread:?}");
        assert!((150.0..300.0).contains(&spread.high.unwrap()), "{spread:?}");
        assert!(!found.superspreaders_complete, "host 2 may have as many");
    }
}

/// Leaves the flows of an edge their entries that have grades up to this one.
fn choose(network: &mut Network, at: usize, grade: u32) {
    let window = &mut network.windows[at];
    let limit = Rank::new(UNCLAIMED, grade);
    let refused = window.entries.iter().filter(|entry| entry.rank > limit);
    let packets: u64 = refused.clone().map(|entry| entry.packets).sum();
    let flows = refused.count() as u64;
    window.entries.retain(|entry| entry.rank <= limit);
    window.totals.admitted -= flows;
    window.totals.refused += flows;
    window.totals.refused_packets += packets;
    window.limit = Some(limit);
}

/// What the edge's own table chose by hashes is drawn from all flows of the source, however few of
/// them anybody monitors.
#[test]
fn a_scan_is_certain_by_what_its_edge_chose() {
    for (grade, flows_each, least) in [(1_u32 << 28, 1, 500), (1 << 27, 1, 250), (1 << 27, 3, 250)]
    {
        let (mut certain, mut wrong) = (0, 0);
        for seed in 0..40 {
            let mut network = three_edges(json!({ "superspreader": least }));
            for to in 0..1000 {
                for port in 0..flows_each {
                    let of = flow(1, 2000 + to, 1000 * seed + port);
                    network.count_of(0, &of, 1, (Entry::ENTERED, 64));
                }
            }
            choose(&mut network, 0, grade);
            let found = network.report().findings;
            let spread = source(&found, 1).unwrap_or_else(|| panic!("{:?}", found.nodes[0]));
            certain += u32::from(spread.certain);
            let range = spread.low..=spread.high.unwrap();
            wrong += u32::from(!range.contains(&1000.0));
        }
        assert!(certain >= 30 && wrong <= 3, "{grade}: {certain} certain, {wrong} wrong of 40");
    }
}

const LIMITS: AlertLimits = AlertLimits { loss_share: 0.01, incomplete_share: 0.05 };

/// An alert's reading, and the gauge beside it.
fn reading(report: &SystemReport<Found>, alert: &str, gauge: &str) -> (Reading, f64) {
    let facts = Cfs.alert_rules(&LIMITS, &[]).read(report).unwrap();
    let registry = Registry::new();
    let metrics = Cfs.metrics(&registry, &[]).unwrap();
    metrics.record(report);
    let all = registry.gather();
    let of = all.iter().find(|of| of.name() == format!("calumma_{gauge}")).unwrap();
    let value = of.get_metric()[0].get_gauge().get_value();
    (facts.iter().find(|fact| fact.alert == alert).unwrap().reading, value)
}

fn is_unknown((reading, gauge): (Reading, f64)) -> bool {
    assert_eq!(reading == Reading::Unknown, gauge.is_nan());
    assert!(reading == Reading::Unknown || (reading == Reading::Good && gauge == 0.0));
    reading == Reading::Unknown
}

#[test]
fn a_loop_that_nobody_watched_for_is_not_said_to_be_none() {
    let unknown = |section: Value, change: &dyn Fn(&mut Network)| {
        let mut network = three_edges(section);
        network.count_of(0, &flow(1, 2, 3), 5, (Entry::ENTERED, 64));
        change(&mut network);
        let report = network.report();
        let is_unknown = is_unknown(reading(&report, "cfs_loop", "cfs_loops"));
        assert_eq!(is_unknown, !(report.complete && report.findings.loops_watched));
        is_unknown
    };
    let refuse = |network: &mut Network| {
        network.refuse_of(3, &flow(1, 2, 3), 5, Entry::PASSED);
    };
    assert!(!unknown(json!({ "guard": false }), &|_| ()));
    assert!(unknown(json!({ "guard": false }), &refuse));
    assert!(!unknown(json!({}), &refuse), "the guard watches");
    assert!(unknown(json!({}), &|network| {
        refuse(network);
        network.windows[3].suspects = Some(Suspects { flows: Vec::new(), missed: 1 });
    }));
    assert!(unknown(json!({}), &|network| network.windows[3].totals.unmarked = 1));
    // Entries in rows have no times to live, so that only the guard watches.
    let rows = |suspects: Option<Suspects>| {
        move |network: &mut Network| {
            network.rows = vec![3];
            network.count_of(3, &flow(1, 2, 3), 5, (Entry::PASSED, 63));
            network.windows[3].suspects = suspects.clone();
        }
    };
    assert!(!unknown(json!({}), &rows(None)), "it watches, and has no suspect");
    assert!(unknown(json!({}), &rows(Some(Suspects { flows: Vec::new(), missed: 1 }))));
    assert!(unknown(json!({ "guard": false }), &rows(None)));
    // Lcores that saw unlike times to live first do not have all that it came with.
    assert!(unknown(json!({}), &|network| {
        let entry = network.count_of(3, &flow(1, 2, 3), 5, (Entry::PASSED, 63));
        (entry.differences, entry.looped, entry.exact) = (1 << 2 | 1 << 5, 2, false);
    }));
}

#[test]
fn black_holes_and_superspreaders_that_nobody_can_know_are_not_said_to_be_none() {
    let unknown = |change: &dyn Fn(&mut Network)| {
        let mut network = three_edges(json!({ "superspreader": 100 }));
        for number in 0..50 {
            network.count_of(0, &flow(number, 900, number), 5, (Entry::ENTERED, 64));
            network.count_of(1, &flow(number, 900, number), 5, (Entry::LEFT, 62));
        }
        change(&mut network);
        let report = network.report();
        let holes = is_unknown(reading(&report, "cfs_black_hole", "cfs_black_holes"));
        assert_eq!(holes, !(report.complete && report.findings.black_holes_known));
        let of = reading(&report, "cfs_superspreader", "cfs_superspreaders");
        let found = &report.findings;
        assert!(!found.superspreaders_complete || !is_unknown(of));
        (holes, is_unknown(of), found.superspreaders_complete)
    };
    assert_eq!(unknown(&|_| ()), (false, false, true));
    // One more flow may be of any source, and is not another hundred.
    let one = unknown(&|network| network.refuse_of(0, &flow(1, 2, 3), 5, Entry::ENTERED));
    assert_eq!(one, (true, false, true));
    let many = unknown(&|network| {
        for number in 0..3000 {
            network.refuse_of(0, &flow(1, 1000 + number, 3), 1, Entry::ENTERED);
        }
    });
    assert_eq!(many, (true, true, false));
    let without_edge = unknown(&|network| network.windows[2].totals.unmarked = 1);
    assert!(without_edge.0);
    assert!(unknown(&|network| network.windows[0].routes_changed = true).0);
    // Lcores that saw unlike times to live first do not say whether they have all of a flow.
    let inexact = unknown(&|network| {
        network.count_of(0, &flow(1, 900, 77), 30, (Entry::ENTERED, 64)).exact = false;
    });
    assert_eq!(inexact, (true, false, true));
    assert_eq!(unknown(&|network| network.late[2] = Some(1)), (true, true, false));
}

/// Victims are pinned in the next window: what takes all of them stays a black hole.
#[test]
fn a_black_hole_takes_flows_that_are_pinned() {
    for hosts in ["any", "fixed"] {
        let mut network = Network::new(json!({ "hosts": hosts }));
        network.count_of(1, &flow(9, 1, 7), 5, (Entry::ENTERED, 64));
        network.count_of(0, &flow(9, 1, 7), 5, (Entry::LEFT, 62));
        for node in [(0, Entry::ENTERED, 64), (2, Entry::PASSED, 63)] {
            let entry = network.count_of(node.0, &flow(1, 9, 7), 30, (node.1, node.2));
            entry.rank = Rank::new(0, 0);
        }
        let found = network.report().findings;
        let [hole] = &found.black_holes[..] else { panic!("{:?}", found.losses) };
        assert_eq!((&*hole.place.from, hole.packets), ("s1:in", 30));
    }
}

/// A Tofino's rows have no flows of IPv6, whose packets it counts all the same.
#[test]
fn flows_that_are_in_no_register_make_their_number_unknown() {
    let refused = |has_rows: bool, flows: u64, packets: u64| {
        let mut network = three_edges(json!({}));
        network.rows = if has_rows { vec![0] } else { Vec::new() };
        network.windows.iter_mut().for_each(|window| window.keys = KeyKind::Dual);
        network.count_of(0, &flow(1, 2, 3), 5, (Entry::ENTERED, 64));
        let totals = &mut network.at("e1").totals;
        (totals.packets, totals.refused_packets, totals.refused) = (packets + 5, packets, flows);
        let found = network.report().findings;
        assert_eq!(found.flows_total.is_some(), found.coverage.is_some());
        found
    };
    let found = |has_rows: bool, flows: u64| {
        let found = refused(has_rows, flows, 40);
        (found.flows_total.is_some(), found.loops_watched, found.superspreaders_complete)
    };
    assert_eq!(found(true, 0), (false, false, false));
    assert_eq!(found(true, 9), (true, false, true), "of IPv4, as far as anybody knows");
    assert_eq!(found(false, 9), (true, true, true));
    // Each of the others may be a flow of IPv6, and all of one host.
    let many = refused(true, 9, 5000);
    assert!(many.flows_total.is_some() && !many.superspreaders_complete, "{many:?}");
    assert!(!many.superspreaders_likely_complete);
    let most = |found: &Found| found.size_distribution.as_ref().map(|sizes| sizes[0].high);
    let [few, many] = [refused(true, 9, 40), many].map(|found| most(&found).unwrap());
    assert!(few >= 31.0 && many >= 4991.0, "{few}, {many}");
    assert!(refused(false, 9, 5000).superspreaders_complete);
}
