//! Hops that ports say, in a network whose edges are bumps in the wire, which take nothing off
//! times to live, and whose switch between them routes.

#[path = "../../tests/common/mod.rs"]
mod common;
mod played;

use std::collections::BTreeMap;

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs_analysis::{Found, KeptIn};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;
use calumma_wire::Role;
use serde_json::json;

use common::{EPOCH_NS, FIRST_EPOCH, clock, flow, frame};
use played::Played;

const NAMES: [&str; 3] = ["e1", "s1", "e2"];
const ROLES: [Role; 3] = [Role::Edge, Role::Transit, Role::Edge];

/// Packets of so many flows, one after the other, go from `e1` by `s1` to `e2`. `way` says of each
/// by which ports it comes, and behind which switch it is lost, if any.
fn played(
    flows: u32,
    packets: u32,
    way: impl Fn(u32) -> ([usize; 3], Option<usize>),
) -> SystemReport<Found> {
    let nodes: [_; 3] = std::array::from_fn(|at| (NAMES[at], ROLES[at]));
    // The switch in the middle has a port for each leaf, and one for another tier.
    let section = json!({ "entries": 256, "hll_bits": 8, "window_epochs": 2, "hop": "port",
        "hops": { "e1": [0, 4], "s1": [1, 1, 3], "e2": [0, 2] }, "flows_listed": 1000 });
    let mut network = Played::new(&nodes, &section, KeyKind::Dual, 1);
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..packets {
        let (number, at_ns) = (n % flows, start + u64::from(n) * EPOCH_NS / 500);
        let mut packet: Frame = frame(&flow(number, KeyKind::Dual), 64, 20);
        let (ports, lost_behind) = way(n);
        for (at, path) in [Path::Enter, Path::Transit, Path::Leave].into_iter().enumerate() {
            let switch = &mut network.switches[at];
            switch.advance_to(at_ns);
            switch.received_by(0, ports[at]);
            switch.pass_all(0, path, std::slice::from_mut(&mut packet));
            if lost_behind == Some(at) {
                break;
            }
            // Only s1 takes one off the time to live.
            if at == 1 {
                let ip = &mut packet.bytes_mut()[14..];
                let at = if ip[0] >> 4 == 4 { 8 } else { 7 };
                ip[at] -= 1;
            }
        }
    }
    let report = network.report();
    assert!(report.complete, "{:?}", report.incomplete_because);
    report
}

#[test]
fn hops_are_those_of_ports_and_flows_by_two_of_them_are_counted_exactly() {
    const FLOWS: u32 = 200;
    // Later packets of every seventh flow come to s1 by another tier.
    let by_other = |n: u32| (n % FLOWS).is_multiple_of(7) && n >= FLOWS;
    let found =
        played(FLOWS, 3 * FLOWS, |n| ([0, if by_other(n) { 2 } else { 0 }, 1], None)).findings;
    assert_eq!((found.flows.len(), found.monitored_exactly), (200, 200));
    for flow in &found.flows {
        assert_eq!(
            (flow.packets, flow.exact, &*flow.at, flow.from),
            (3, true, "e1", KeptIn::Table)
        );
        let hops: Vec<_> = flow.hops.iter().map(|hop| (&*hop.node, hop.hop, hop.exact)).collect();
        let wanted = [("e1", Some(0), true), ("s1", Some(1), true), ("e2", Some(2), true)];
        assert_eq!(hops, wanted);
    }
    assert!(found.losses.is_empty() && found.loops.is_empty() && found.path_changes.is_empty());
}

#[test]
fn losses_are_named_between_an_edge_and_a_switch_that_count_the_same_time_to_live() {
    const FLOWS: u32 = 40;
    let lost_behind = |n: u32| match n {
        _ if n.is_multiple_of(7) => Some(0),
        _ if n.is_multiple_of(11) => Some(1),
        _ => None,
    };
    let packets = 12 * FLOWS;
    let found = played(FLOWS, packets, |n| ([0, 0, 1], lost_behind(n))).findings;
    let mut lost: BTreeMap<(Flow, String), u64> = BTreeMap::new();
    for n in 0..packets {
        if let Some(at) = lost_behind(n) {
            let place = format!("{}:in {}:in", NAMES[at], NAMES[at + 1]);
            *lost.entry((Flow::from(&flow(n % FLOWS, KeyKind::Dual)), place)).or_default() += 1;
        }
    }
    let named = found.losses.iter().map(|loss| {
        let place = format!("{} {}", loss.place.from, loss.place.to);
        ((loss.flow, place), loss.lost)
    });
    assert_eq!(named.collect::<BTreeMap<_, _>>(), lost);
}
