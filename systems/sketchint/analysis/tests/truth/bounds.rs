//! What is known of switches where packets were longer there than stacks can say, and where a sink
//! is missing.

use calumma_sketch::sketchint::Shape;
use calumma_sketchint_analysis::report::{HopReport, NodeReport};

use super::{Network, layout, near, packets_of};

/// As long as a stack can say, in nanoseconds, or longer.
const LONGEST: u32 = u32::MAX - 1;

#[test]
fn latencies_that_stacks_cut_are_known_from_below_alone() {
    let shape = Shape { tower_words: 512, row_sets: 64, quantiles: 1000, ..Shape::default() };
    let mut network = Network::new(layout(shape), 1);
    let mut packets = packets_of(1, 1, 40);
    packets[30..].iter_mut().for_each(|packet| packet.latencies[1] = LONGEST);
    let found = network.report([&packets, &[]]).findings;
    let [flow] = &found.flows[..] else { panic!("one flow") };
    let at = |name: &str| flow.hops.iter().find(|hop| hop.node == name).unwrap();
    let s1 = at("s1");
    let mean = (30.0 * 2000.0 + 10.0 * f64::from(LONGEST)) / 40.0 / 1000.0;
    assert!(near(s1.mean_min_us.unwrap(), mean), "{s1:?}");
    let unknown = [s1.mean_us, s1.mean_max_us, s1.max_us, s1.p90_us, s1.p90_max_us, s1.p99_max_us];
    assert_eq!(unknown, [None; 6]);
    assert!(s1.p50_min_us <= Some(2.0) && s1.p50_max_us >= Some(2.0), "{s1:?}");
    assert!(s1.p90_min_us > Some(2.0) && s1.p90_min_us <= Some(4_294_967.294), "{s1:?}");
    assert_eq!((s1.latencies, s1.inflated), (Some(40), None));
    assert_eq!((flow.in_switches_us, flow.delays_at(s1)), (None, None));
    let HopReport { mean_us, max_us, p99_max_us, .. } = *at("e1");
    assert_eq!([mean_us, max_us, p99_max_us], [Some(1.0); 3]);

    let node = |name: &str| found.nodes.iter().find(|node| node.node == name).unwrap();
    let of = &node("s1").latency_us;
    assert_eq!((of.mean, of.min, of.p90, of.p99, of.max), (None, Some(2.0), None, None, None));
    assert!(of.p50.is_some_and(|p50| (p50 - 2.0).abs() < 0.1), "{of:?}");
    assert_eq!((node("s1").inflated, node("s1").inflated_at_least), (None, 0));
    assert_eq!((node("e1").latency_us.max, node("e1").inflated), (Some(1.0), Some(0)));
    assert!(!found.inflated.is_empty());
    for of in &found.inflated {
        assert_eq!((&*of.node, of.count, of.at_least, of.at_most), ("s1", None, 0, None));
    }
}

/// Of a sink with towers alone the mean has bounds by them.
#[test]
fn towers_bound_no_mean_from_above_that_stacks_cut() {
    let shape = Shape { tower_words: 512, row_sets: 0, ..Shape::default() };
    let mut network = Network::new(layout(shape), 1);
    let mut packets = packets_of(1, 1, 50);
    packets[40..].iter_mut().for_each(|packet| packet.latencies[1] = LONGEST);
    let found = network.report([&packets, &[]]).findings;
    let [flow] = &found.flows[..] else { panic!("one flow") };
    let bounds = |name: &str| {
        let hop = flow.hops.iter().find(|hop| hop.node == name).unwrap();
        (hop.mean_min_us.is_some(), hop.mean_max_us.is_some())
    };
    assert_eq!((bounds("e1"), bounds("s1")), ((true, true), (true, false)));
}

#[test]
fn without_a_sink_no_number_of_a_switch_is_exact() {
    let of = |is_missing: bool| {
        let mut network = Network::new(layout(Shape::default()), 1);
        network.misses_e3 = is_missing;
        let report = network.report([&packets_of(1, 1, 50), &packets_of(2, 1, 9)]);
        assert_eq!(report.complete, !is_missing);
        let s1 = report.findings.nodes.into_iter().find(|node| node.node == "s1").unwrap();
        let NodeReport { packets, at_most, inflated, heavy_hitters_complete, .. } = s1;
        let exact = (packets, at_most, inflated, heavy_hitters_complete);
        let links = report.findings.links.into_iter().map(|link| link.packets);
        (exact, s1.at_least, s1.latency_sinks.join(" "), links.collect::<Vec<_>>())
    };
    let (exact, at_least, sinks, links) = of(false);
    assert_eq!((exact, at_least), ((Some(59), Some(59), Some(0), true), 59));
    assert_eq!((&*sinks, links), ("e2 e3", vec![Some(59), Some(50), Some(9)]));
    let (exact, at_least, sinks, links) = of(true);
    assert_eq!((exact, at_least), ((None, None, None, false), 50));
    // A hop that e3 did not push may be on any link.
    assert_eq!((&*sinks, links), ("e2", Vec::new()));
}
