//! Heavy hitters and heavy changes where tables have not counted all: what is listed is so for
//! certain, numbers have bounds that hold, and where others may be missing the report says so.

mod world;

use std::collections::BTreeMap;

use calumma_analysis::Flow;
use calumma_cfs::frames::Entry;
use calumma_cfs_analysis::{Found, HeavyChange};
use calumma_sketch::FlowKey;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use world::{Network, count_of, key};

fn heavy(change: u64) -> Network {
    Network::new(json!({ "heavy_change_packets": change, "heavy_packets": change }))
}

/// Changes by flow: before and in this window, each at least and at most.
fn changes(found: &Found) -> Vec<(Flow, [u64; 2], [Option<u64>; 2])> {
    let of =
        |it: &HeavyChange| (it.flow, [it.before, it.packets], [it.before_high, it.packets_high]);
    found.heavy_changes.iter().map(of).collect()
}

#[test]
fn without_a_window_before_nothing_is_compared() {
    let mut network = heavy(50);
    let flags = |found: &Found| (found.heavy_changes_since, found.heavy_changes_complete);
    assert_eq!(flags(&network.report().findings), (None, false));
    let epoch = network.report().head.epoch;
    network.begin();
    assert_eq!(flags(&network.report().findings), (Some(epoch), true));
    // A window between them had no report.
    network.begin();
    network.begin();
    assert_eq!(flags(&network.report().findings), (None, false));
}

/// Of one of several lcores' tables, which another one's has refused, packets are some only.
#[test]
fn counts_that_are_not_exact_make_changes_between_bounds() {
    let mut network = heavy(50);
    network.count("e1", 1, 10);
    network.count("e1", 2, 10);
    network.report();
    network.begin();
    for (flow, packets) in [(1, 100), (2, 40)] {
        network.count("e1", flow, packets).exact = false;
    }
    network.refuse("e1", 3, 30);
    let found = network.report().findings;
    let flow = Flow::from(&key(1));
    assert_eq!(changes(&found), [(flow, [10, 100], [Some(10), Some(130)])]);
    assert!(!found.heavy_changes_complete, "flow 2 may have 70");
    assert!(!found.heavy_hitters_complete, "and be heavy");
    // The other way round, where a window is missing an edge.
    network.begin();
    network.count("e1", 1, 20);
    let at = network.position("e2");
    network.late[at] = None;
    let found = network.report().findings;
    assert_eq!((changes(&found), found.heavy_changes_complete), (vec![], false));
    assert!(found.heavy_changes_since.is_some() && !found.heavy_hitters_complete);
}

#[test]
fn what_entered_and_what_left_are_no_two_counts_of_the_same() {
    let mut network = heavy(50);
    // All of it left, but for what was lost: 60 that e1 has refused.
    network.refuse("e1", 1, 160);
    network.count("e2", 1, 100);
    assert!(network.report().findings.flows[0].exact);
    network.begin();
    network.count("e1", 1, 160);
    network.count("e1", 9, 49);
    let found = network.report().findings;
    assert_eq!((changes(&found), found.heavy_changes_complete), (vec![], false));
    assert!(found.heavy_hitters_complete, "e1 has an entry of each");
    network.begin();
    network.count("e2", 1, 300);
    network.refuse("e1", 1, 20);
    let found = network.report().findings;
    let flow = Flow::from(&key(1));
    assert_eq!(changes(&found), [(flow, [160, 300], [Some(160), Some(320)])]);
    assert!(found.heavy_changes_complete && found.heavy_hitters_complete, "{found:?}");
    // As many without a count may be of a flow that nobody has seen.
    network.begin();
    network.count("e2", 1, 300);
    network.refuse("e1", 7, 50);
    let found = network.report().findings;
    assert!(!found.heavy_changes_complete && !found.heavy_hitters_complete);
}

/// All counts add up to what e1 refused, so nothing is without a count. Of a flow that e2 has fewer
/// packets of than a heavy one has, the switch between had as many.
#[test]
fn what_was_lost_before_an_exact_count_entered_all_the_same() {
    for passed in [120, 130] {
        let mut network = heavy(125);
        network.refuse("e1", 1, passed);
        network.count("s1", 1, passed);
        network.count("e2", 1, 120);
        // Another one, of the same source.
        network.refuse("e1", 2, 20);
        network.count("e2", 2, 20);
        let report = network.report();
        assert_eq!(count_of(&report, 1), Some(("e2", 120, true)), "it is the flow's");
        let found = &report.findings;
        assert_eq!(found.flows_total_error, Some(0.0), "all are counted");
        assert_eq!((found.heavy_hitters.len(), found.heavy_hitters_complete), (0, passed < 125));
        let [prefix] = &found.heavy_prefixes[..] else { panic!("{found:?}") };
        assert_eq!((prefix.packets, prefix.rest), (140, 140));
        assert!(prefix.packets_high >= Some(passed + 20) && prefix.rest_high >= Some(passed + 20));
        // It is one of 64 to 127 packets, or of more.
        let sizes = found.size_distribution.as_ref().unwrap();
        assert_eq!((sizes[6].from, sizes[6].low), (64, f64::from(u8::from(passed < 128))));
    }
}

/// A host that has moved may have sent to another edge in the window before.
#[test]
fn a_flow_of_a_host_behind_two_edges_has_not_come_from_nothing() {
    let from = |number: u32| FlowKey::from_words(0x0A00_0007, 0x0A01_0001, number << 16 | 53, 17);
    let listed = |moves: bool| {
        let mut network = Network::of(
            &["e1", "e2", "e3", "s1"],
            json!({ "hosts": "fixed", "heavy_change_packets": 50 }),
        );
        if moves {
            network.count_of(1, &from(1), 5, (Entry::ENTERED, 64));
            network.report();
            network.begin();
        }
        // e2 has refused some of the flow, or it had none.
        network.refuse_of(1, &from(9), 500, Entry::ENTERED);
        network.report();
        network.begin();
        network.count_of(0, &from(9), 90, (Entry::ENTERED, 64));
        let found = network.report().findings;
        changes(&found).iter().map(|(_, packets, _)| *packets).collect::<Vec<_>>()
    };
    assert_eq!(listed(false), [[0, 90]]);
    assert_eq!(listed(true), [[0; 2]; 0]);
}

const NAMES: [&str; 4] = ["e1", "e2", "e3", "s1"];
const LEAST: u64 = 40;

/// Lets flows pass that lose packets, as nodes that count some of them see it. Gives what entered
/// of each.
fn pass(network: &mut Network, rng: &mut StdRng) -> BTreeMap<Flow, u64> {
    let refused = [0.0, 0.02, 0.4][rng.random_range(0..3)];
    let inexact = [0.0, 0.1][rng.random_range(0..2)];
    let mut entered = BTreeMap::new();
    for number in 0..30_u32 {
        let (from, to) = (number as usize % 3, (number as usize + 1) % 3);
        let address = |edge: usize| 0x0A00_0002 + ((edge as u32) << 16);
        let key = FlowKey::from_words(address(from), address(to), number << 16 | 53, 17);
        if rng.random_bool(0.2) {
            continue;
        }
        let most = [5, 60, 150][rng.random_range(0..3)];
        let size: u64 = rng.random_range(1..most);
        let passed = rng.random_range(0..=size);
        let left = rng.random_range(0..=passed);
        for (at, packets, side, ttl) in [
            (from, size, Entry::ENTERED, 64),
            (3, passed, Entry::PASSED, 63),
            (to, left, Entry::LEFT, 62),
        ] {
            if packets == 0 {
                continue;
            }
            if rng.random_bool(refused) {
                network.refuse_of(at, &key, packets, side);
            } else if packets > 1 && rng.random_bool(inexact) {
                // One lcore has some of them, another one has refused the others.
                let some = rng.random_range(1..packets);
                network.count_of(at, &key, some, (side, ttl)).exact = false;
                network.refuse_of(at, &key, packets - some, side);
            } else {
                network.count_of(at, &key, packets, (side, ttl));
            }
        }
        entered.insert(Flow::from(&key), size);
    }
    entered
}

/// What is said of heavy flows in drawn networks is so.
#[test]
fn flows_that_are_missing_are_not_said_to_be_none() {
    let (mut all, mut uncertain, mut complete) = (0, 0, [0; 2]);
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let hosts = ["any", "fixed"][seed as usize % 2];
        let mut network = Network::of(
            &NAMES,
            json!({ "heavy_change_packets": LEAST, "heavy_packets": LEAST, "hosts": hosts }),
        );
        let before = pass(&mut network, &mut rng);
        network.report();
        network.begin();
        let now = pass(&mut network, &mut rng);
        let found = network.report().findings;
        let entered = |of: &BTreeMap<Flow, u64>, flow: &Flow| of.get(flow).copied().unwrap_or(0);
        for (flow, [before_low, low], [before_high, high]) in changes(&found) {
            all += 1;
            // Exact counts of one node are what came there.
            if (before_high, high) == (Some(before_low), Some(low)) {
                continue;
            }
            uncertain += 1;
            for (low, high, there) in [
                (before_low, before_high, entered(&before, &flow)),
                (low, high, entered(&now, &flow)),
            ] {
                let is_within = low <= there && high.is_none_or(|high| there <= high);
                assert!(is_within, "{seed}: {flow} {low} to {high:?}, {there} entered");
            }
            let by = entered(&before, &flow).abs_diff(entered(&now, &flow));
            assert!(by >= LEAST, "{seed}: {flow} changed by {by}");
        }
        let is_listed = |flow: &Flow| found.heavy_changes.iter().any(|it| it.flow == *flow);
        if found.heavy_changes_complete {
            complete[0] += 1;
            for flow in before.keys().chain(now.keys()) {
                let by = entered(&before, flow).abs_diff(entered(&now, flow));
                assert!(by < LEAST || is_listed(flow), "{seed}: {flow} changed by {by}");
            }
        }
        if found.heavy_hitters_complete {
            complete[1] += 1;
            for (flow, packets) in &now {
                let is_listed = found.heavy_hitters.iter().any(|it| it.flow == *flow);
                assert_eq!(is_listed, *packets >= LEAST, "{seed}: {flow} has {packets}");
            }
        }
        let mut hosts: BTreeMap<_, u64> = BTreeMap::new();
        now.iter().for_each(|(flow, packets)| *hosts.entry(flow.src).or_default() += packets);
        for (host, packets) in hosts {
            let prefix = format!("{host}/32");
            let named = found.heavy_prefixes.iter().find(|it| it.prefix == prefix);
            let is_settled = found.heavy_prefixes_complete || named.is_some();
            assert!(!is_settled || named.is_some() == (packets >= LEAST), "{seed}: {prefix}");
            let high = named.and_then(|it| it.packets_high);
            assert!(high.is_none_or(|high| packets <= high), "{seed}: {named:?}, {packets}");
        }
    }
    assert!(
        all > 1000 && uncertain > 100 && complete.iter().all(|of| *of > 50),
        "{all}, {uncertain}, {complete:?}"
    );
}
