//! A switch that was admitted and sends what no switch can have counted. Its window is refused, or
//! it is in the report: the analysis goes on, and what others sent of their flows is as it was.

mod world;

use std::ops::Range;

use calumma_analysis::Flow;
use calumma_cfs::frames::{Entry, OFFER, Residual, Setup, Suspect, Suspects, Uncounted};
use calumma_sketch::residual::Counts;
use calumma_sketch::residual::Residual as _;
use calumma_sketch::table::{Rank, Refused};
use calumma_sketch::{AnyKey, WideKey};
use calumma_wire::SideKind;
use proptest::prelude::*;
use serde_json::json;

use world::{Network, UNCLAIMED, key};

/// Flows that the hostile switch may speak of.
const SPOKEN_OF: Range<u32> = 0..8;

/// Flows that there are.
const FLOWS: Range<u32> = 4..12;

/// What one switch says of a flow.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    flow: u32,
    packets: u64,
    bytes: u64,
    ttl: u8,
    differences: u64,
    sides: u8,
    exact: bool,
    in_table: bool,
}

/// Of eight flows fewer than 2^48: the controller refuses sides of more packets.
fn packets() -> impl Strategy<Value = u64> {
    const MOST: u64 = 1 << 44;
    prop_oneof![1..4_u64, Just(i32::MAX as u64), Just(1 << 32), Just(MOST), 1..MOST]
}

/// Any number, mostly one whose sums do not fit.
fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(u64::MAX), Just(1 << 63), any::<u64>()]
}

prop_compose! {
    fn claimed()(
        flow in SPOKEN_OF,
        packets in packets(),
        bytes in bytes(),
        ttl: u8,
        differences in prop_oneof![Just(0), Just(0x5554), any::<u64>()],
        sides in 1..8_u8,
        exact: bool,
        in_table: bool,
    ) -> Claimed {
        Claimed { flow, packets, bytes, ttl, differences, sides, exact, in_table }
    }
}

/// Lets a switch send that, and returns whether its window can be read.
fn lie(network: &mut Network, node: &str, setup: &Setup, claimed: &[Claimed]) -> bool {
    let at = network.position(node);
    let family = network.keys.newest().family.clone();
    let buckets = setup.residual.unwrap();
    let mut residual = Residual::new(setup, buckets, node.starts_with('e'));
    let mut refused = Refused::from_words(&[0; 8 * Refused::LEAST_WORDS]).unwrap();
    let mut suspects = Suspects { flows: Vec::new(), missed: u64::MAX };
    for of in claimed {
        let key = key(of.flow);
        let Claimed { packets, bytes, ttl, differences, sides, exact, .. } = *of;
        let wide = WideKey::from(key);
        if differences != 0 {
            suspects.flows.push(Suspect { key: wide, ttl, differences });
        }
        if !of.in_table || network.windows[at].entries.iter().any(|entry| entry.key == wide) {
            let hashes = family.hash(&key);
            residual.part(sides, packets).insert(&key, &hashes, Counts { packets, bytes });
            refused.insert(&hashes);
            continue;
        }
        let entry = network.count_of(at, &key, 0, (sides, ttl));
        let looped = packets.saturating_sub(1);
        let differs = looped >= u64::from(differences.count_ones()) && differences != 0;
        (entry.packets, entry.bytes, entry.exact) = (packets, bytes, exact);
        (entry.looped, entry.differences) = if differs { (looped, differences) } else { (0, 0) };
        (entry.first_us, entry.last_us) = (3, u32::MAX);
        assert_eq!(entry.rank, Rank::new(UNCLAIMED, entry.rank.grade()));
    }
    suspects.flows.sort_by_key(|of| of.key);
    suspects.flows.dedup_by_key(|of| of.key);
    let window = &mut network.windows[at];
    let out = residual.packets();
    let counted = out + window.entries.iter().map(|entry| entry.packets).sum::<u64>();
    (window.totals.packets, window.totals.refused_packets) = (counted, out);
    window.totals.refused = u64::from(out > 0);
    (window.totals.claimed_in, window.totals.memory) = (u64::MAX, u64::MAX);
    let refused = if residual.is_known_by_tables() { vec![refused] } else { Vec::new() };
    window.uncounted = Some(Uncounted { flows: AnyKey::Ipv4(residual), refused });
    window.suspects = Some(suspects);
    let side = match node {
        "s1" => SideKind::Transit,
        _ => SideKind::Egress,
    };
    network.decode(at, network.side(at, side)).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_a_switch_sends_there_is_a_report(
        windows in prop::collection::vec(prop::collection::vec(claimed(), 0..8), 1..4),
        liar in prop::sample::select(vec!["e2", "s1"]),
        residual in prop::sample::select(vec!["fermat", "flowradar"]),
    ) {
        let mut network = Network::new(json!({ "residual": residual, "hosts": "fixed" }));
        let setup = network.analysis.setup(&network.nodes[0], OFFER.highest);
        let setup = Setup::decode(&setup.setup).unwrap();
        for claims in windows {
            for node in ["e1", "e2", "s1", "s2"].into_iter().filter(|of| *of != liar) {
                prop_assert!(lie(&mut network, node, &setup, &[]));
            }
            let packets = |flow: u32| 10 + u64::from(flow);
            FLOWS.for_each(|flow| {
                network.count("e1", flow, packets(flow));
            });
            if !lie(&mut network, liar, &setup, &claims) {
                let liar = network.position(liar);
                network.late[liar] = None;
            }
            let found = network.report().findings;
            for flow in FLOWS {
                let named = Flow::from(&WideKey::from(key(flow)));
                let of = found.flows.iter().find(|of| of.flow == named).unwrap();
                let hop = of.hops.iter().find(|hop| hop.node == "e1").unwrap();
                prop_assert_eq!((hop.packets, hop.exact), (packets(flow), true));
                prop_assert!(SPOKEN_OF.contains(&flow) || of.exact && of.packets == hop.packets);
            }
            network.begin();
        }
    }
}

/// What enters at a transit switch it has made itself, and its number may be beyond those of all
/// edges, or there is no edge.
#[test]
fn a_transit_switch_behind_all_edges_may_have_what_enters() {
    let names: Vec<String> = ["e1".to_owned(), "e2".to_owned()]
        .into_iter()
        .chain((0..64).map(|number| format!("s{number}")))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut network = Network::of(&names, json!({}));
    network.count_of(65, &key(1), 100, (Entry::ENTERED, 64));
    network.count_of(1, &key(1), 90, (Entry::LEFT, 62));
    let report = network.report();
    let lost: Vec<u64> = report.findings.losses.iter().map(|of| of.lost).collect();
    assert_eq!(lost, [10]);

    let mut network = Network::of(&["s1", "s2", "e1"], json!({ "hosts": "fixed" }));
    network.late[2] = None;
    network.count_of(0, &key(1), 100, (Entry::ENTERED, 64));
    network.count_of(1, &key(1), 90, (Entry::PASSED, 63));
    let report = network.report();
    assert_eq!((report.missing_nodes.len(), report.findings.losses.len()), (1, 0));
}
