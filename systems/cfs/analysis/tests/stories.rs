//! Windows as switches deliver them, and what is reported of them.

mod world;

use calumma_analysis::alert::{AlertLimits, Reading};
use calumma_analysis::{EpochHead, Flow, Notice, Report, System, SystemReport};
use calumma_cfs::frames::{self, Entry, Suspect, Suspects};
use calumma_cfs_analysis::{Cfs, Exact, Found, Guarded, LoopsNoticed};
use calumma_sketch::FlowKey;
use calumma_sketch::table::Rank;
use calumma_wire::{Side, SideKind};
use serde_json::json;

use world::{EPOCHS, Network, count_of, key, lost};

const LIMITS: AlertLimits = AlertLimits { loss_share: 0.01, incomplete_share: 0.05 };

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

/// Collectors get what is exact, with times to live where these are known.
#[test]
fn the_times_to_live_of_a_flow_are_those_of_all_its_packets_or_not_known() {
    let mut network = Network::new(json!({}));
    network.count("e1", 1, 10);
    let with = |entry: &mut Entry, differences: u64| {
        (entry.differences, entry.looped) = (differences, 5);
    };
    with(network.count("e1", 2, 10), 1 << 3 | 1 << 1);
    with(network.count("e1", 3, 10), 1 << 3 | 1);
    network.count("e1", 4, 10).exact = false;
    let report = network.report();
    let counted = report.findings.counted().iter();
    let ttls: Vec<_> = counted.map(|it| (it.exact, it.ttls)).collect();
    let known = [(true, Some([64, 64])), (true, Some([61, 64]))];
    assert_eq!(ttls, [known[0], known[1], (true, None), (false, None)]);
    let exact = report.findings.nodes.iter().map(|node| (&*node.node, node.exact.flows));
    assert_eq!(exact.collect::<Vec<_>>(), [("e1", 3), ("e2", 0), ("s1", 0), ("s2", 0)]);
    let Exact { packets, bytes, .. } = report.findings.nodes[0].exact;
    assert_eq!((packets, bytes), (30, 3000));
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

    network.late[at] = Some(0);
    network.doubts[at] = vec!["it was late before".to_owned()];
    let report = network.report();
    assert_eq!(report.incomplete_because, ["e2: it was late before"]);
    assert_eq!(count_of(&report, 2), Some(("e2", 5, false)));
    assert_eq!((lost(&report), report.findings.coverage), (Vec::new(), None));
    network.doubts[at].clear();

    // What entered was there in time.
    let e1 = network.position("e1");
    network.late[e1] = Some(1);
    assert_eq!(count_of(&network.report(), 1), Some(("e1", 100, true)));
    network.late[e1] = Some(0);

    // Packets of any flow may have entered at an edge that is missing, if hosts are behind several.
    network.late[at] = None;
    let report = network.report();
    assert_eq!(report.missing_nodes, ["e2"]);
    assert_eq!(count_of(&report, 1), Some(("e1", 100, false)));
    assert!(report.findings.flows[0].hops[0].exact);
    assert_eq!(count_of(&report, 2), None);
    let mut fixed = Network::new(json!({ "hosts": "fixed" }));
    fixed.count("e1", 1, 100);
    fixed.late[at] = None;
    assert_eq!(count_of(&fixed.report(), 1), Some(("e1", 100, true)));

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
    assert_eq!((found.flow, found.length, found.packets), (Flow::from(&key(1)), 2, Some(9)));
    assert_eq!(found.nodes, ["s1", "s2"]);
    assert!(found.certain);
    assert_eq!(found.ttls[..3], [63, 61, 59]);
    let [change] = &report.findings.path_changes[..] else { panic!() };
    assert_eq!((&*change.node, &change.shorter_by[..], change.packets), ("e2", &[2][..], Some(4)));
    assert_eq!(count_of(&report, 1), Some(("s1", 9, false)));
}

/// Hops from the first time to live to the last, in turns of two.
fn turns(number: u32) -> u64 {
    (1..number).fold(0, |bits, turn| bits | 1 << (2 * turn))
}

#[test]
fn a_loop_of_a_flow_without_an_entry_is_named_by_what_nodes_suspect() {
    let mut network = Network::new(json!({}));
    let suspect = |flow, ttl, differences| Suspect { key: key(flow).into(), ttl, differences };
    let looped = network.count_of(3, &key(1), 35, (Entry::PASSED, 62));
    (looped.differences, looped.looped) = (turns(31), 30);
    // Of these, the last may be a host's doing: five times to live, or not down to the end.
    let flows = vec![
        suspect(1, 63, turns(32)),
        suspect(2, 63, turns(32)),
        suspect(3, 9, turns(5)),
        suspect(4, 63, turns(20)),
    ];
    network.at("s1").suspects = Some(Suspects { flows, missed: 7 });
    let report = network.report();
    let loops: Vec<_> = report.findings.loops.iter().collect();
    let [one, other] = &loops[..] else { panic!("{loops:?}") };
    assert_eq!(
        (one.flow, &one.nodes[..]),
        (Flow::from(&key(1)), &["s1".to_owned(), "s2".into()][..])
    );
    assert_eq!((other.flow, &other.nodes[..]), (Flow::from(&key(2)), &["s1".to_owned()][..]));
    for of in loops {
        assert_eq!((of.length, of.packets, of.certain, of.ttls.len()), (2, None, true, 32));
    }
    let guards: Vec<_> = report.findings.nodes.iter().map(|node| node.guard).collect();
    let guard = |suspects, missed| Some(Guarded { suspects, missed });
    assert_eq!(guards, [guard(0, 0), guard(0, 0), guard(4, 7), guard(0, 0)]);
    assert_eq!(
        alert(&report, "cfs_loop"),
        Some((
            Reading::Proven,
            "packets go round, 2 hops a turn, by s1, s2: 10.0.0.2:7 > 10.1.0.1:53 udp".to_owned()
        ))
    );
}

#[test]
fn a_loop_is_published_at_once_and_once_a_window_however_many_nodes_report_it() {
    let mut network = Network::new(json!({}));
    let epoch = network.window * EPOCHS;
    let suspect = |flow, ttl| Suspect { key: key(flow).into(), ttl, differences: turns(31) };
    let mut report = |node: usize, version, epoch, flows: &[(u32, u8)]| {
        let flows = flows.iter().map(|&(flow, ttl)| suspect(flow, ttl)).collect();
        let body = frames::Notice { flows }.encode();
        let head = EpochHead { epoch: 1001 * EPOCHS + 7, start_unix_ns: 9, length_ms: 50 };
        let of = Notice { epoch, version, body: &body };
        network.analysis.notice(&network.nodes[node], head, of)
    };
    let first = report(2, 3, epoch, &[(1, 62), (2, 61)]).unwrap().expect("both are new");
    let noticed: &LoopsNoticed = first.report.as_type().unwrap();
    assert_eq!((noticed.head.epoch, noticed.window), (1001 * EPOCHS + 7, 1001));
    let [one, other] = &noticed.loops[..] else { panic!("{noticed:?}") };
    assert_eq!((one.flow, one.length, one.ttls[0]), (Flow::from(&key(1)), 2, 62));
    assert_eq!((&one.nodes[..], one.certain, one.packets), (&["s1".to_owned()][..], true, None));
    assert_eq!(other.flow, Flow::from(&key(2)));
    let read: LoopsNoticed = serde_json::from_str(&first.json).unwrap();
    assert_eq!((&read, &*read.system), (noticed, "cfs"));

    // Alerts don't wait for other epochs that are as bad.
    let mut rules = Cfs.alert_rules(&LIMITS, &[]);
    let [fact] = &rules.read(&*first.report).unwrap()[..] else { panic!() };
    assert_eq!((fact.alert, fact.reading), ("cfs_loop", Reading::Proven));
    let words = "packets go round, 2 hops a turn, by s1: 10.0.0.2:7 > 10.1.0.1:53 udp";
    assert_eq!(rules.text(fact, &*first.report, false), words);

    assert!(report(3, 3, epoch, &[(1, 61)]).unwrap().is_none(), "s2 sees them, too");
    let third = report(3, 3, epoch, &[(1, 61), (3, 61)]).unwrap().expect("one is new");
    assert_eq!(third.report.as_type::<LoopsNoticed>().unwrap().loops.len(), 1);
    assert!(report(3, 3, epoch + EPOCHS, &[(1, 61)]).unwrap().is_some(), "it still goes round");
    assert!(report(3, 3, epoch - 2 * EPOCHS, &[(4, 61)]).unwrap().is_none(), "long over");

    assert!(report(3, 2, epoch, &[(5, 61)]).unwrap_err().contains("version 2"));
    let host = report(3, 3, epoch, &[(5, 91)]).unwrap_err();
    assert!(host.contains("those of no loop"), "{host}");
}

/// What an alert reads off a report, and its words.
fn alert(report: &SystemReport<Found>, name: &str) -> Option<(Reading, String)> {
    let mut rules = Cfs.alert_rules(&LIMITS, &[]);
    let facts = rules.read(report)?;
    let fact = facts.iter().find(|fact| fact.alert == name)?;
    Some((fact.reading, rules.text(fact, report, false)))
}

#[test]
fn a_black_hole_has_an_alert_and_a_row_in_the_archive() {
    let mut network = Network::new(json!({}));
    network.count_of(1, &back(1), 5, (Entry::ENTERED, 64));
    network.count_of(0, &back(1), 5, (Entry::LEFT, 62));
    for (node, packets) in [("e1", 30), ("s1", 28)] {
        network.count(node, 1, packets);
    }
    let report = network.report();
    let words =
        "nothing goes on from s1:in to destination, last behind e2: 28 packets lost, flows: 1";
    assert_eq!(alert(&report, "cfs_black_hole"), Some((Reading::Bad, words.to_owned())));
    assert_eq!(rows(&report, "cfs_black_holes"), 1);
    network.begin();
    let (reading, _) = alert(&network.report(), "cfs_black_hole").unwrap();
    assert_eq!(reading, Reading::Good);
    // An edge that is missing may have had what did not come.
    network.begin();
    network.late[1] = None;
    let (reading, _) = alert(&network.report(), "cfs_black_hole").unwrap();
    assert_eq!(reading, Reading::Unknown);
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
    assert!((0.35..0.5).contains(&low) && (0.5..0.7).contains(&high), "{low} to {high}");
    assert!((found.flows_total.unwrap() - 80.0).abs() <= found.flows_total_error.unwrap());
    assert_eq!(found.entropy, None);
    let [spread] = &found.superspreaders[..] else { panic!("{:?}", found.superspreaders) };
    assert!(spread.low <= 80.0 && spread.high.unwrap() >= 80.0, "{spread:?}");
}

#[test]
fn registers_of_unlike_releases_are_not_merged() {
    let mut network = Network::new(json!({}));
    let mut total = |older: &[usize]| {
        network.begin();
        network.older = older.to_vec();
        for node in ["e1", "e2"] {
            (1..=60).for_each(|flow| network.refuse(node, flow, 1));
        }
        network.report().findings.flows_total
    };
    assert!(total(&[]).is_some() && total(&[0, 1]).is_some());
    assert_eq!(total(&[0]), None, "a flow may be in them twice");
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
    // Of flow 3 e2 may have refused a packet, and no more. Flow 4 was not there before.
    let expected = [(flow(1), 100, 30), (flow(3), 100, 0), (flow(5), 0, 70), (flow(4), 0, 60)];
    assert_eq!(changes.len(), 4);
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

/// Rows that a report has in a table of the archive.
fn rows(report: &SystemReport<Found>, name: &str) -> usize {
    let table = Cfs.tables().iter().find(|table| table.name() == name).unwrap();
    table.batch(&[report as &dyn Report]).unwrap().num_rows()
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
    let rows = |name: &str| rows(&report, name);
    assert_eq!((rows("cfs_flows"), rows("cfs_nodes"), rows("cfs_losses")), (10, 4, 1));
    assert_eq!((rows("cfs_superspreaders"), rows("cfs_loops")), (0, 0));
}

/// A flow back to the host that all others come from.
fn back(flow: u32) -> FlowKey {
    FlowKey::from_words(0x0A01_0000 + flow, 0x0A00_0002, 53 << 16 | 7, 17)
}

#[test]
fn of_a_flow_that_came_nowhere_all_is_lost_where_every_edge_says_so() {
    let lost_all = |change: &dyn Fn(&mut Network)| {
        let mut network = Network::new(json!({ "hosts": "fixed" }));
        // The flow's destination is a host behind e2.
        network.count_of(1, &back(1), 5, (Entry::ENTERED, 64));
        network.count_of(0, &back(1), 5, (Entry::LEFT, 62));
        for (node, packets) in [("e1", 30), ("s1", 28)] {
            network.count(node, 1, packets);
        }
        change(&mut network);
        let report = network.report();
        let holes = report.findings.black_holes.iter();
        let holes: Vec<_> =
            holes.map(|it| (it.place.from.clone(), it.place.to.clone(), it.packets)).collect();
        let from_here = lost(&report).into_iter().filter(|loss| loss.0 == Flow::from(&key(1)));
        let losses: Vec<_> = from_here.map(|(_, from, to, lost)| (from, to, lost)).collect();
        (losses, holes)
    };
    let place = |from: &str, to: &str, lost| (from.to_owned(), to.to_owned(), lost);
    let (losses, holes) = lost_all(&|_| ());
    assert_eq!(losses, [place("e1:in", "s1:in", 2), place("s1:in", "e2:in", 28)]);
    assert_eq!(holes, [place("s1:in", "e2:in", 28)]);

    // Another flow came through, or the table of s1 may lack one that did.
    let (losses, holes) = lost_all(&|network| {
        for (node, packets) in [("e1", 9), ("s1", 9), ("e2", 9)] {
            network.count(node, 2, packets);
        }
    });
    assert_eq!((losses.len(), holes), (2, vec![]));
    let (losses, holes) = lost_all(&|network| network.refuse("s1", 3, 1));
    assert_eq!((losses.len(), holes), (2, vec![]));

    // What may have left, or have been a different flow, is not lost.
    let doubts: [&dyn Fn(&mut Network); 7] = [
        &|network| network.refuse("e2", 1, 28),
        &|network| network.refuse("e1", 9, 28),
        &|network| network.late[1] = None,
        &|network| network.late[1] = Some(1),
        &|network| network.at("e2").totals.unmarked = 1,
        &|network| network.at("e1").routes_changed = true,
        // It entered under another name.
        &|network| {
            network.count("e2", 4, 28);
        },
    ];
    for (number, doubt) in doubts.iter().enumerate() {
        let (losses, holes) = lost_all(doubt);
        assert!(losses.iter().all(|loss| loss.1 != "e2:in"), "{number}: {losses:?}");
        assert_eq!(holes, [], "{number}");
    }
    // Errors that a router sends are no such name.
    let errors = FlowKey::from_words(0x6440_0001, 0x0A00_0002, 0, 1);
    let (losses, _) = lost_all(&|network| {
        network.count_of(0, &errors, 3, (Entry::LEFT, 63));
    });
    assert_eq!(losses.len(), 2);
}

#[test]
fn hosts_of_windows_before_are_known_and_others_are_not() {
    let mut network = Network::new(json!({}));
    network.count("e1", 1, 30);
    assert_eq!(lost(&network.report()), [], "nobody knows where it was to go");
    network.begin();
    network.count_of(1, &back(1), 5, (Entry::ENTERED, 64));
    network.report();
    network.begin();
    network.count("e1", 1, 30);
    assert_eq!(lost(&network.report()).len(), 1);
    // It is behind e1 as well.
    network.begin();
    network.count_of(0, &back(1), 5, (Entry::ENTERED, 64));
    network.count_of(1, &back(1), 5, (Entry::ENTERED, 64));
    network.count("e1", 1, 30);
    assert!(lost(&network.report()).iter().all(|loss| loss.0 != Flow::from(&key(1))));
}

#[test]
fn prefixes_are_heavy_without_those_within_that_are_and_have_bounds() {
    let from = |src: u32, number: u32| FlowKey::from_words(src, 0x0A01_0001, number << 16 | 53, 17);
    // (source, packets): one host of 60, one of 30 and two of 20 beside it, and others of the /8.
    let hosts = [
        (0x0A02_0301, 60),
        (0x0A02_0302, 30),
        (0x0A02_0401, 20),
        (0x0A02_0402, 20),
        (0x0A03_0001, 49),
        (0x0B00_0001, 40),
        (0x0B63_0001, 9),
    ];
    let mut network = Network::new(json!({ "heavy_packets": 50 }));
    for (number, (src, packets)) in hosts.into_iter().enumerate() {
        network.count_of(0, &from(src, number as u32), packets - 7, (Entry::ENTERED, 64));
        network.count_of(0, &from(src, 99), 7, (Entry::ENTERED, 64));
    }
    let found = |network: &mut Network| {
        let prefixes = network.report().findings.heavy_prefixes;
        let of = prefixes.into_iter();
        of.map(|it| (it.prefix, it.packets, it.packets_high, it.rest, it.rest_high))
            .collect::<Vec<_>>()
    };
    let of = |prefix: &str, packets, more: u64, rest| {
        (prefix.to_owned(), packets, Some(packets + more), rest, Some(rest + more))
    };
    let exact = |more| {
        // The /24 of the first host has 30 beside it, the /16 70, and 49 are left for the /8.
        [of("10.2.3.1/32", 60, more, 60), of("10.2.0.0/16", 130, more, 70)]
    };
    assert_eq!(found(&mut network), exact(0));
    // What has no count may be of any of them.
    network.refuse_of(0, &from(0x0A03_0002, 5), 11, Entry::ENTERED);
    network.refuse_of(1, &from(0x0A03_0003, 5), 3, Entry::ENTERED);
    assert_eq!(found(&mut network), exact(14));
    network.late[0] = None;
    network.late[1] = None;
    assert_eq!(found(&mut network), []);
    network.late[0] = Some(0);
    let [first, ..] = &found(&mut network)[..] else { panic!() };
    assert_eq!((first.1, first.2, first.4), (60, None, None));
    // A flow that entered at two edges has the sum of both at most.
    network.begin();
    network.count_of(0, &from(0x0A02_0301, 1), 60, (Entry::ENTERED, 64));
    network.count_of(1, &from(0x0A02_0301, 1), 50, (Entry::ENTERED, 64));
    assert_eq!(found(&mut network), [of("10.2.3.1/32", 60, 50, 60)]);
}

/// One source with 400 destinations: of its large flows all are pinned, of the others a quarter has
/// entries by hash.
#[test]
fn flows_that_are_pinned_stand_for_no_others() {
    let mut network = Network::new(json!({ "superspreader": 100 }));
    (0..40).for_each(|flow| network.count("e1", flow, 600).rank = Rank::new(0, 0));
    for flow in 40..130 {
        network.count("e1", flow, 1);
    }
    (130..400).for_each(|flow| network.refuse("e1", flow, 1));
    let found = network.report().findings;
    let e1 = found.nodes.iter().find(|node| node.node == "e1").unwrap();
    assert_eq!((found.monitored, e1.pinned), (130, 40));
    let sizes = found.size_distribution.unwrap();
    for (size, truth, most) in [(1, 360.0, 120.0), (600, 40.0, 1e-9)] {
        let bin = sizes.iter().find(|bin| (bin.from..=bin.to).contains(&size)).unwrap();
        let off = (bin.flows - truth).abs();
        assert!(off <= bin.error && off < most, "{bin:?}, but {truth}");
        assert!((bin.low..=bin.high).contains(&truth), "{bin:?}, but {truth}");
    }
    let [source] = &found.superspreaders[..] else { panic!("{:?}", found.superspreaders) };
    let (estimate, high) = (source.estimate.unwrap(), source.high.unwrap());
    assert!(
        (source.low..=high).contains(&400.0) && (300.0..500.0).contains(&estimate),
        "{source:?}"
    );
}
