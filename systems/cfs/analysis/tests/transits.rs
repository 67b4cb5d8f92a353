//! What transit switches counted, which see a part of a flow, see packets again, or are not on its
//! way any more: what may be said of the flow by that.

mod world;

use calumma_cfs::frames::Entry;
use calumma_sketch::FlowKey;
use calumma_sketch::table::Rank;
use serde_json::json;

use world::{Network, count_of, key, lost};

/// Three packets went by s2; then routes changed, and the fourth waited at s1 for the address of
/// its next hop.
#[test]
fn what_waited_at_a_transit_switch_has_not_left_there() {
    for e1_refuses in [false, true] {
        let mut network = Network::new(json!({ "hosts": "fixed" }));
        if e1_refuses {
            network.refuse("e1", 1, 4);
        } else {
            network.count("e1", 1, 4);
        }
        network.count("s1", 1, 1).sides = Entry::LEFT;
        network.refuse("s2", 1, 3);
        network.refuse("e2", 1, 4);
        network.at("e1").routes_changed = true;
        network.at("s1").routes_changed = true;
        let report = network.report();
        assert_eq!(lost(&report), []);
        let count = if e1_refuses { ("s1", 1, false) } else { ("e1", 4, true) };
        assert_eq!(count_of(&report, 1), Some(count));
    }

    // As long as routes stay, all of a flow comes by that switch, whether it waits or not.
    for sides in [Entry::LEFT, Entry::PASSED | Entry::LEFT] {
        let mut network = Network::new(json!({}));
        network.refuse("e1", 1, 20);
        network.count("s1", 1, 20).sides = sides;
        network.count("e2", 1, 17);
        let report = network.report();
        assert_eq!(count_of(&report, 1), Some(("e2", 17, true)));
        let between = [("s1:in".to_owned(), "e2:in".to_owned(), 3)];
        let places = lost(&report).into_iter().map(|(_, from, to, lost)| (from, to, lost));
        assert_eq!(places.collect::<Vec<_>>(), between);
    }
}

/// A host pings a transit switch, which answers.
#[test]
fn a_transit_switch_is_no_hosts_home() {
    let [ping, answer] = [(0x0A00_0002, 0x0A09_0001), (0x0A09_0001, 0x0A00_0002)]
        .map(|(src, dst)| FlowKey::from_words(src, dst, 0, 1));
    for hosts in ["any", "fixed"] {
        let mut network = Network::new(json!({ "hosts": hosts }));
        for _ in 0..2 {
            network.count_of(0, &ping, 30, (Entry::ENTERED, 64));
            network.count_of(2, &ping, 30, (Entry::LEFT, 63));
            network.count_of(2, &answer, 30, (Entry::ENTERED, 64));
            network.count_of(0, &answer, 30, (Entry::LEFT, 63));
            let report = network.report();
            assert_eq!((lost(&report), report.findings.black_holes.len()), (vec![], 0));
            network.begin();
        }
    }
}

/// Packets go round between two switches, by the times to live of a turn of two hops; edges have no
/// room for the flow.
#[test]
fn a_packet_that_comes_again_and_again_counts_once() {
    let turns = |number: u32| (1..number).fold(0_u64, |bits, turn| bits | 1 << (2 * turn));
    // Sides, packets that looped, and whether lcores are sure of that: what the flow had at least.
    let cases = [
        ((2, Entry::PASSED, 31, true), (9, 180)),
        ((0, Entry::ENTERED | Entry::PASSED, 31, true), (9, 180)),
        ((2, Entry::PASSED, 31, false), (1, 20)),
        ((2, Entry::PASSED, 0, false), (1, 20)),
        ((2, Entry::PASSED, 0, true), (40, 4000)),
        // From hosts every packet comes once, and to hosts as well.
        ((0, Entry::ENTERED, 31, false), (40, 4000)),
        ((1, Entry::LEFT, 31, false), (40, 4000)),
    ];
    for ((at, sides, looped, exact), (packets, bytes)) in cases {
        let mut network = Network::new(json!({ "heavy_packets": 30, "paths": "sprayed" }));
        (0..2).filter(|edge| *edge != at).for_each(|edge| {
            network.refuse_of(edge, &key(1), 9, [Entry::ENTERED, Entry::LEFT][edge]);
        });
        let entry = network.count_of(at, &key(1), 40, (sides, 63));
        (entry.looped, entry.exact) = (looped, exact);
        entry.differences = if looped > 0 { turns(32) } else { 0 };
        let found = network.report().findings;
        let [flow] = &found.flows[..] else { panic!("{:?}", found.flows) };
        let case = format!("{sides} {looped} {exact}");
        assert_eq!((flow.packets, flow.bytes, flow.exact), (packets, bytes, false), "{case}");
        assert_eq!((flow.hops[0].packets, flow.hops[0].bytes), (40, 4000), "{case}");
        let counted = &found.counted()[0];
        assert_eq!((counted.packets, counted.bytes), (packets, bytes), "{case}");
        let once = exact.then_some(9);
        assert!(found.loops.iter().all(|it| it.packets == once), "{case}");
        let heavy = packets >= 30;
        assert_eq!(found.heavy_hitters.len(), usize::from(heavy), "{case}");
        assert_eq!(!found.heavy_prefixes.is_empty(), heavy, "{case}");
    }
}

/// Edges have no room for the flow. It goes by s1 in one window, and by s2 in another, which has
/// none for it either.
#[test]
fn a_flow_that_took_another_way_has_not_changed() {
    for ways in [["s1", "s2"], ["s2", "s1"]] {
        let mut network = Network::new(json!({ "hosts": "fixed" }));
        for way in ways {
            network.begin();
            network.refuse("e1", 1, 20_000);
            network.refuse("e2", 1, 20_000);
            if way == "s1" {
                network.count("s1", 1, 20_000);
            } else {
                network.refuse("s2", 1, 20_000);
                network.at("e1").routes_changed = true;
            }
            assert_eq!(network.report().findings.heavy_changes, [], "{ways:?}");
        }
    }
}

/// Where all ways stay, a flow that does not come by its switch any more has stopped; a host that
/// was seen behind another edge may have gone on there.
#[test]
fn a_flow_that_stopped_has_changed() {
    let of = |routes_changed: bool, node: &str, has_moved: bool| {
        let mut network = Network::new(json!({ "hosts": "fixed" }));
        network.refuse("e1", 1, 20_000);
        if node == "s1" {
            network.refuse("e2", 1, 20_000);
        }
        network.count(node, 1, 20_000);
        network.report();
        network.begin();
        network.at("e1").routes_changed = routes_changed;
        // Others have no entry of all flows, and so many packets may be of this one.
        network.refuse("e1", 2, 15_000);
        if has_moved {
            let to_host = FlowKey::from_words(7, 0x0A01_0001, 7 << 16 | 53, 17);
            network.count_of(0, &to_host, 5, (Entry::LEFT, 62));
        }
        let changes = network.report().findings.heavy_changes;
        changes.iter().map(|it| (it.before, it.packets)).collect::<Vec<_>>()
    };
    let stopped = [(20_000, 0)];
    assert_eq!(of(false, "s1", false), stopped);
    assert_eq!(of(true, "s1", false), []);
    assert_eq!(of(true, "e2", false), stopped);
    assert_eq!(of(false, "e2", true), []);
}

/// Flows that take several ways have no exact counts at transit switches, and those that are pinned
/// stand for no others.
#[test]
fn sizes_are_not_known_where_only_pinned_flows_have_one() {
    let mut network = Network::new(json!({ "paths": "sprayed" }));
    (1..=40).for_each(|flow| {
        network.count("s1", flow, 10);
        network.refuse("e1", flow, 20);
    });
    network.count("e1", 41, 7).rank = Rank::new(0, 0);
    let found = network.report().findings;
    assert_eq!((found.monitored, found.monitored_exactly), (41, 1));
    assert!(found.coverage.is_some());
    assert_eq!((found.size_distribution, found.entropy), (None, None));
    // One of the others has a size.
    network.count("e1", 42, 9);
    assert!(network.report().findings.size_distribution.is_some());
}
