//! A sink that keeps no paths and tells no switches apart, and none of the narrowest counters: what
//! is known of them is said to be unknown, and what the others say has bounds that hold.

use calumma_analysis::Flow;
use calumma_sketch::sketchint::{Inflation, NodeSums, Path, Shape};
use calumma_sketch::{KeyKind, TowerSketch, WideKey};
use calumma_sketchint::frames::{NO_TIME, PathSeen, Window};
use calumma_sketchint_analysis::FlowInWindow;
use calumma_sketchint_analysis::report::{By, FlowReport};
use proptest::prelude::*;

use super::{Network, key, layout, names, packets_of, play, traffic};

/// Leaves of a window what a Tofino keeps of one.
pub(crate) fn keeps(window: &mut Window, unclassified: u64) {
    if unclassified > 0 {
        (window.keys, window.unclassified) = (KeyKind::Dual, unclassified);
    }
    // Of itself it knows how many packets came by, and not how long it had them.
    let itself = window.nodes.iter().find(|of| Some(of.node) == window.own);
    let itself = itself.map(|of| NodeSums { packets: of.packets, ..NodeSums::none(of.node) });
    let all: u64 = window.nodes.iter().map(|of| of.packets).sum();
    window.totals.nodes_full = all - itself.as_ref().map_or(0, |of| of.packets);
    window.nodes = itself.into_iter().collect();
    window.totals.paths_full = window.totals.int_packets;
    window.paths.clear();
    let levels: Vec<_> = window.sizes.levels().collect();
    let mut bytes = Vec::new();
    window.sizes.write_to(&mut bytes);
    bytes[..levels[0].bytes() + levels[1].bytes()].fill(u8::MAX);
    window.sizes = TowerSketch::from_bytes(&levels, &bytes).unwrap();
}

fn shape(tower_words: u32) -> Shape {
    Shape { tower_words, pair_buckets: 64, row_sets: 0, keys: 1024, ..Shape::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bounds_hold_of_what_a_tofino_says(traffic in traffic(150), tower_words in 16..200_u32) {
        let mut network = Network::new(layout(shape(tower_words)), 1);
        network.tofino = true;
        for found in play(&traffic, &mut network)? {
            let sink = &found.sinks[0];
            // Of packets without a stack it keeps where they were: there.
            let is_unknown = sink.coverage.int_packets > 0;
            for node in &found.nodes {
                prop_assert_eq!(node.packets.is_none(), is_unknown);
                prop_assert!(node.latency_sinks.iter().all(|sink| sink == "e3"));
                prop_assert!(node.id != 2 || node.at_least >= sink.coverage.packets);
                prop_assert_eq!(node.kind.as_deref() == Some("tofino"), node.id == 2);
            }
            prop_assert!(sink.heavy_hitters_complete);
        }
    }
}

#[test]
fn what_a_tofino_does_not_keep_is_null() {
    let mut network = Network::new(layout(shape(256)), 1);
    network.tofino = true;
    let packets = [packets_of(1, 1, 50), packets_of(2, 2, 40)].concat();
    network.report([&packets, &[]]);
    let packets = [packets_of(1, 1, 10), packets].concat();
    let found = network.report([&packets, &packets_of(3, 3, 5)]).findings;
    let sink = &found.sinks[0];
    assert_eq!((sink.coverage.packets, sink.coverage.int_packets), (100, 100));
    assert_eq!((sink.paths_full, sink.paths.len()), (100, 0));
    assert_eq!(sink.entropy, None);
    assert!(sink.entropy_min <= sink.entropy_max && sink.entropy_min.is_some());
    assert!((sink.cardinality.unwrap() - 2.0).abs() < 0.1, "by the other arrays");
    assert!(sink.heavy_hitters_complete && sink.heavy_hitters.len() == 2);
    assert!(
        sink.size_distribution
            .iter()
            .flatten()
            .all(|bin| { bin.flows.is_none() || bin.at_least == bin.at_most })
    );
    // The flow came by e1, s1 and e2, and bounds say how often at most.
    let flow = found.flows.iter().find(|of| of.flow == Flow::from(&key(1))).unwrap();
    assert!(!flow.exact && flow.paths.is_empty() && flow.int_packets.is_none());
    assert_eq!(flow.packets.at_most, Some(60));
    let hops: Vec<(&str, Option<u64>)> =
        flow.hops.iter().map(|hop| (&*hop.node, hop.packets.at_most)).collect();
    assert_eq!(hops, [("e1", Some(60)), ("e2", Some(60)), ("s1", Some(60))]);
    assert!(flow.hops.iter().all(|hop| hop.mean_us.is_none() && hop.mean_min_us.is_none()));
    // All but the Tofino itself may have had any of its packets' 200 hops, of latencies that only
    // the other sink knows.
    let bounds = found.nodes.iter().map(|of| (&*of.node, of.packets, (of.at_least, of.at_most)));
    let least = [("e1", 5), ("e2", 100), ("s1", 5), ("s2", 0), ("s3", 5), ("e3", 5)];
    assert!(bounds.eq(least.map(|(node, least)| (node, None, (least, Some(least + 200))))));
    let e2 = found.nodes.iter().find(|node| node.node == "e2").unwrap();
    assert_eq!((e2.latency_us.mean, e2.latency_sinks.len()), (None, 0));
    assert_eq!((e2.stamp.as_deref(), e2.stamp_error_us), (Some("device"), None));
    // Its heavy hitters may be others as well.
    let s1 = found.nodes.iter().find(|node| node.node == "s1").unwrap();
    assert_eq!((s1.latency_us.mean, &s1.latency_sinks), (Some(2.0), &vec!["e3".to_owned()]));
    assert_eq!(s1.inflated, None);
    assert!(!s1.heavy_hitters_complete);
    let [heavy] = &s1.heavy_hitters[..] else { panic!("{:?}", s1.heavy_hitters) };
    assert_eq!((heavy.flow, heavy.packets.at_most), (Flow::from(&key(1)), Some(60)));
    let [change] = s1.heavy_changes.as_deref().unwrap() else { panic!("{s1:?}") };
    assert!(change.flow == Flow::from(&key(1)) && change.change.allows(10));
}

#[test]
fn packets_of_unknown_flows_may_be_of_any_of_their_family() {
    let mut network = Network::new(layout(shape(256)), 1);
    (network.tofino, network.unclassified) = (true, 7);
    let found = network.report([&packets_of(1, 1, 50), &[]]).findings;
    let sink = &found.sinks[0];
    assert_eq!((found.coverage.sinks.unclassified, sink.coverage.unclassified), (7, 7));
    assert_eq!((sink.coverage.packets, sink.sound), (50, true));
    assert_eq!((sink.cardinality, sink.entropy_min, sink.entropy_max), (None, None, None));
    assert!(sink.size_distribution.is_none() && !sink.heavy_hitters_complete);
    let asked = |key: WideKey| -> Vec<FlowReport> {
        let windows = network.windows.remembered().flow(&Flow::from(&key), 1).unwrap();
        let windows = windows.iter().map(|it| serde_json::from_str::<FlowInWindow>(it).unwrap());
        let flows = windows.flat_map(|window| window.flows);
        flows.filter(|flow| flow.sink == "e2").collect()
    };
    let address = |last: u16| std::net::Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
    let flows = asked(WideKey::v6(address(1), address(2), 7, 53, 17));
    let [flow] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((flow.packets.at_least, flow.packets.at_most), (0, Some(7)));
    assert!(flow.hops.iter().all(|hop| hop.packets.at_most == Some(7)), "{:?}", flow.hops);
    assert!(asked(key(150).into()).is_empty());
}

#[test]
fn inflated_latencies_by_towers_have_bounds_where_notices_were_lost() {
    let of = |flow, node, count| Inflation {
        key: key(flow).into(),
        node,
        count,
        max_ns: 1_000 * count,
        last_us: NO_TIME,
    };
    let mut network = Network::new(layout(shape(256)), 1);
    network.tofino = true;
    for (lost, wanted) in [(0, [Some(3), Some(7)]), (12, [None, None])] {
        network.inflated = (vec![of(1, 2, 3), of(1, 3, 7)], lost);
        let found = network.report([&packets_of(1, 1, 50), &packets_of(3, 3, 5)]).findings;
        let [longest, other] = &found.inflated[..] else { panic!("{:?}", found.inflated) };
        assert_eq!((&*longest.node, &*other.node, longest.by), ("s1", "e2", By::Towers));
        assert_eq!([other.count, longest.count], wanted);
        assert_eq!((other.at_least, other.at_most), (3, Some(3 + lost)));
        assert_eq!((longest.at_least, longest.at_most), (7, Some(7 + lost)));
        assert_eq!((longest.max_us, longest.last_unix_ns), (7.0, None));
        // Nothing of that is certain of the switches.
        let certain = found.nodes.iter().map(|node| (node.inflated, node.inflated_at_least));
        assert!(certain.clone().all(|of| of == (None, 0)), "{:?}", certain.collect::<Vec<_>>());
    }
}

#[test]
fn the_stack_of_one_packet_is_a_path_of_which_no_more_is_known() {
    let seen = |flow, nodes: &[u32], is_partial| PathSeen {
        key: key(flow).into(),
        path: Path::new(nodes.iter().copied(), is_partial),
    };
    let mut network = Network::new(layout(shape(256)), 1);
    network.tofino = true;
    network.seen = vec![seen(1, &[1, 3], false), seen(2, &[1], true)];
    let packets = [packets_of(1, 1, 50), packets_of(1, 2, 9), packets_of(2, 2, 40)].concat();
    let found = network.report([&packets, &packets_of(3, 3, 5)]).findings;
    let [one, two] = [1, 2].map(|number| {
        let flow = Flow::from(&key(number));
        found.flows.iter().find(|of| of.flow == flow).unwrap()
    });
    let [path] = &one.paths[..] else { panic!("{one:?}") };
    assert_eq!((&path.path[..], path.partial), (&names(&[1, 3], "e2")[..], false));
    assert_eq!((path.packets, path.at_least, path.once), (None, 1, true));
    let [path] = &two.paths[..] else { panic!("{two:?}") };
    assert_eq!((path.path.len(), path.partial, path.once), (2, true, true));
    // So it came by these switches, and by others for all that is known.
    for (flow, node, at_least) in [(one, "s1", 1), (one, "s2", 0), (two, "e1", 1), (two, "s2", 0)] {
        let hop = flow.hops.iter().find(|hop| hop.node == node).unwrap();
        assert_eq!(hop.packets.at_least, at_least, "{hop:?}");
        assert!(hop.packets.at_most > Some(1) && hop.packets.packets.is_none(), "{hop:?}");
    }
}
