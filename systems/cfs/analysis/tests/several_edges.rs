//! Hosts behind several edges: packets of a flow that an edge has not counted may have come by it,
//! so what another edge lacks need not be lost.

mod world;

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs::frames::{Entry, Residual, Setup, Uncounted};
use calumma_cfs_analysis::Found;
use calumma_sketch::residual::{Counts, Residual as _};
use calumma_sketch::table::{BoundedTable, Capacity};
use calumma_sketch::{FlowKey, Key};
use serde_json::json;

use world::Network;

const HOST: u32 = 0x0A01_0001;

/// A flow to the host from one behind `e1`.
fn to_host(flow: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0002, HOST, flow << 16 | 53, 17)
}

fn three_edges(section: serde_json::Value) -> Network {
    Network::of(&["e1", "e2", "e3"], section)
}

impl Network {
    /// Lets so many packets of a flow enter at `e1`, and others leave at `e2`.
    fn leave_at_e2(&mut self, flow: u32, entered: u64, left: u64) {
        self.count_of(0, &to_host(flow), entered, (Entry::ENTERED, 64));
        self.count_of(1, &to_host(flow), left, (Entry::LEFT, 63));
    }
}

fn lost(report: &SystemReport<Found>, flow: u32) -> u64 {
    let losses = report.findings.losses.iter().filter(|of| of.flow == Flow::from(&to_host(flow)));
    losses.map(|loss| loss.lost).sum()
}

fn exact_at(report: &SystemReport<Found>, key: &FlowKey) -> bool {
    let flow = Flow::from(key);
    report.findings.flows.iter().any(|count| count.flow == flow && count.exact)
}

#[test]
fn what_may_have_left_at_another_edge_is_not_lost() {
    let mut network = three_edges(json!({}));
    network.leave_at_e2(1, 100, 60);
    network.refuse_of(2, &to_host(1), 40, Entry::LEFT);
    network.count_of(2, &to_host(2), 5, (Entry::LEFT, 63));
    let report = network.report();
    assert_eq!(lost(&report, 1), 0, "40 left at e3, which has no count of them");
    assert!(exact_at(&report, &to_host(1)), "all of it entered at e1");
    assert!(exact_at(&report, &to_host(2)), "e2 has a count of all that left there");

    // Where the other edge has a count of all that it saw, what it has not seen is lost.
    network.begin();
    network.leave_at_e2(1, 100, 60);
    network.count_of(2, &to_host(2), 5, (Entry::LEFT, 63));
    assert_eq!(lost(&network.report(), 1), 40);

    // What has not left at e2 may have gone to a host of e1.
    network.begin();
    network.leave_at_e2(1, 100, 60);
    network.windows[0].entries[0].local = true;
    let report = network.report();
    assert_eq!((lost(&report, 1), exact_at(&report, &to_host(1))), (0, true));
}

/// Without filters nobody knows of an edge with a full table what it has not seen; an operator may.
#[test]
fn only_an_operator_knows_what_an_edge_without_filters_has_not_seen() {
    let of = |hosts: &str, older: Vec<usize>| {
        let mut network = three_edges(json!({ "hosts": hosts }));
        network.older = older;
        network.leave_at_e2(1, 100, 60);
        network.count_of(1, &to_host(2), 9, (Entry::LEFT, 63));
        network.refuse_of(2, &to_host(3), 40, Entry::LEFT);
        let report = network.report();
        let exact = [1, 2].map(|flow| exact_at(&report, &to_host(flow)));
        (lost(&report, 1), exact)
    };
    assert_eq!(of("any", vec![]), (40, [true; 2]));
    assert_eq!(of("any", vec![2]), (0, [false; 2]), "e3 may have seen any flow");
    assert_eq!(of("any", vec![0]), (0, [true; 2]), "40 may have gone to a host of e1");
    assert_eq!(of("fixed", vec![0, 1, 2]), (40, [true; 2]));
}

/// A transit switch has all packets of a flow if they entered at one edge, and left at another.
#[test]
fn a_transit_count_is_of_what_came_from_one_edge_and_went_to_one() {
    let of = |hosts: &str, sides: [u8; 3]| {
        let mut network = Network::of(&["e1", "e2", "e3", "s1"], json!({ "hosts": hosts }));
        network.count_of(3, &to_host(1), 50, (Entry::PASSED, 63));
        for (edge, sides) in sides.into_iter().enumerate().filter(|(_, sides)| *sides > 0) {
            network.refuse_of(edge, &to_host(1), 50, sides);
        }
        exact_at(&network.report(), &to_host(1))
    };
    const BOTH: u8 = Entry::ENTERED | Entry::LEFT;
    assert!(of("any", [Entry::ENTERED, Entry::LEFT, 0]));
    for sides in [
        [Entry::ENTERED, Entry::ENTERED, Entry::LEFT],
        [Entry::ENTERED, Entry::LEFT, Entry::LEFT],
        // Some went to a host of the same edge.
        [BOTH, 0, 0],
    ] {
        assert!(!of("any", sides), "{sides:?}");
        assert!(of("fixed", sides), "an operator knows better than filters");
    }
}

/// An operator who says that hosts are fixed may be wrong; what shows it counts.
#[test]
fn a_host_that_has_moved_is_behind_both_edges_for_64_windows() {
    let mut network = three_edges(json!({ "hosts": "fixed" }));
    network.leave_at_e2(1, 100, 100);
    network.report();
    network.begin();
    network.count_of(2, &to_host(1), 100, (Entry::LEFT, 63));
    network.report();
    for window in 1..=66 {
        network.begin();
        network.count_of(0, &to_host(1), 100, (Entry::ENTERED, 64));
        network.count_of(2, &to_host(1), 90, (Entry::LEFT, 63));
        let other = FlowKey::from_words(1, 2, 3, 17);
        network.refuse_of(1, &other, 10, Entry::LEFT);
        let named = if window <= 64 { 0 } else { 10 };
        assert_eq!(lost(&network.report(), 1), named, "{window} windows after it moved");
    }
}

#[test]
fn a_flow_that_may_have_entered_elsewhere_has_no_exact_count() {
    let mut network = three_edges(json!({}));
    let from_host = |flow: u32| FlowKey::from_words(HOST, 0x0A00_0002, flow << 16 | 53, 17);
    network.count_of(1, &from_host(1), 50, (Entry::ENTERED, 64));
    network.count_of(2, &from_host(2), 50, (Entry::ENTERED, 64));
    assert!(exact_at(&network.report(), &from_host(1)), "each edge counted all that it saw");
    network.refuse_of(2, &from_host(1), 7, Entry::ENTERED);
    let report = network.report();
    assert!(!exact_at(&report, &from_host(1)));
    assert!(exact_at(&report, &from_host(2)), "e2 refused nothing");
}

/// An edge that sends its residual also sends which flows are in it.
#[test]
fn filters_tell_flows_that_left_elsewhere_from_flows_that_did_not() {
    let section = json!({ "residual": "fermat", "alpha": 0.99 });
    let named = |is_known_behind_both: bool, of_e3: u32| {
        let mut network = three_edges(section.clone());
        let setup = Setup::decode(&network.analysis.setup(&network.nodes[2], 1).setup).unwrap();
        let capacity = Capacity { entries: 256, filter_bits: setup.filter_bits as usize };
        let buckets = setup.residual.unwrap();
        network.leave_at_e2(1, 100, 60);
        if is_known_behind_both {
            network.count_of(2, &to_host(2), 5, (Entry::LEFT, 63));
        }
        // More flows than can be told apart.
        let no_flow = BoundedTable::<FlowKey, u64>::new(capacity).refused();
        let (mut flows, mut refused) = (Residual::new(&setup, buckets, true), no_flow.clone());
        for flow in of_e3..of_e3 + 8 * buckets {
            let hashes = network.keys.newest().family.hash(&to_host(flow));
            let counts = Counts { packets: 1, bytes: 100 };
            flows.part(Entry::LEFT, 1).insert(&to_host(flow), &hashes, counts);
            refused.insert(&hashes);
            network.refuse_of(2, &to_host(flow), 1, Entry::LEFT);
        }
        let uncounted =
            |flows, of| Some(Uncounted { flows: FlowKey::any(flows), refused: vec![of] });
        for at in 0..2 {
            let empty = Residual::new(&setup, buckets, true);
            network.windows[at].uncounted = uncounted(empty, no_flow.clone());
        }
        network.windows[2].uncounted = uncounted(flows, refused);
        lost(&network.report(), 1)
    };
    for is_known_behind_both in [false, true] {
        assert_eq!(named(is_known_behind_both, 1), 0, "the flow is among those of e3");
        assert_eq!(named(is_known_behind_both, 3), 40, "e3 has not seen the flow");
    }
}

/// The tables of several lcores, which saw a flow come with unlike times to live first, have all of
/// its packets, and don't know how many came with which.
#[test]
fn lcores_that_saw_unlike_times_to_live_first_know_no_others() {
    let mut network = three_edges(json!({ "residual": "fermat" }));
    let setup = Setup::decode(&network.analysis.setup(&network.nodes[0], 1).setup).unwrap();
    let capacity = Capacity { entries: 256, filter_bits: setup.filter_bits as usize };
    let no_flow = BoundedTable::<FlowKey, u64>::new(capacity).refused();
    for window in &mut network.windows {
        let flows = FlowKey::any(Residual::new(&setup, setup.residual.unwrap(), true));
        window.uncounted = Some(Uncounted { flows, refused: vec![no_flow.clone()] });
    }
    let entry = network.count_of(0, &to_host(1), 50, (Entry::ENTERED, 64));
    (entry.differences, entry.looped, entry.exact) = (1 << 2, 20, false);
    network.count_of(0, &to_host(2), 50, (Entry::ENTERED, 64));
    let found = network.report().findings;
    let of = |flow: u32| {
        let named = Flow::from(&to_host(flow));
        let counted = found.counted().iter().find(|it| it.flow == named).unwrap();
        let hop = &found.flows.iter().find(|it| it.flow == named).unwrap().hops[0];
        (counted.exact, counted.ttls, hop.exact, hop.looped)
    };
    assert_eq!(of(1), (true, None, true, None));
    assert_eq!(of(2), (true, Some([64, 64]), true, Some(0)));
    assert_eq!(found.path_changes, []);
}

/// Without a residual their tables alone say what came: with which times to live, and not how many
/// packets with each.
#[test]
fn lcores_that_saw_unlike_times_to_live_first_count_no_others() {
    let mut network = three_edges(json!({}));
    for (flow, exact) in [(1, false), (2, true)] {
        let moved = network.count_of(0, &to_host(flow), 50, (Entry::ENTERED, 64));
        (moved.differences, moved.looped, moved.exact) = (1 << 2, 20, exact);
        let looped = network.count_of(1, &to_host(flow + 2), 40, (Entry::PASSED, 63));
        looped.differences = (1..=31).fold(0, |bits, turn| bits | 1 << (2 * turn));
        (looped.looped, looped.exact) = (31, exact);
    }
    let found = network.report().findings;
    let looped = |flow: u32| {
        let named = Flow::from(&to_host(flow));
        found.flows.iter().find(|it| it.flow == named).unwrap().hops[0].looped
    };
    assert_eq!([1, 2, 3, 4].map(looped), [None, Some(20), None, Some(31)]);
    let of = |flow: u32| Flow::from(&to_host(flow));
    let changes = found.path_changes.iter().map(|it| (it.flow, it.packets));
    assert_eq!(changes.collect::<Vec<_>>(), [(of(1), None), (of(2), Some(20))]);
    let loops = found.loops.iter().map(|it| (it.flow, it.packets, it.certain));
    assert_eq!(loops.collect::<Vec<_>>(), [(of(3), None, true), (of(4), Some(9), true)]);
}
