//! Every number of a report, held against what the test itself counted.

use std::collections::{BTreeMap, BTreeSet};

use calumma_analysis::Flow;
use calumma_sketchint_analysis::Delays;
use calumma_sketchint_analysis::report::{Change, FlowReport, Found, Heavy, HopReport, SinkReport};
use proptest::prelude::*;

use super::{CHANGE, Counted, HEAVY, Truth, key, mean, names, near, node_of};

/// Percentiles of a flow at a switch with their bounds, in microseconds.
pub(crate) fn quantiles(hop: &HopReport) -> [(usize, [Option<f64>; 3]); 3] {
    [
        (50, [hop.p50_us, hop.p50_min_us, hop.p50_max_us]),
        (90, [hop.p90_us, hop.p90_min_us, hop.p90_max_us]),
        (99, [hop.p99_us, hop.p99_min_us, hop.p99_max_us]),
    ]
}

/// By how much percentiles of a flow and of a switch may be wrong, as `docs/sketchint.md` says.
const FACTOR: f64 = 1.19;
const ERROR: f64 = 0.016;

/// Whether percentiles are known within a quarter of an octave, of latencies that were all counted
/// by size.
pub(crate) fn are_near(hop: &HopReport) -> Result<(), TestCaseError> {
    for (_, [number, low, high]) in quantiles(hop) {
        prop_assert_eq!(number.is_some(), hop.max_us.is_some(), "{:?}", hop);
        let Some((low, high)) = low.zip(high) else { continue };
        prop_assert!(high < low * FACTOR, "{:?}", hop);
    }
    Ok(())
}

pub(crate) fn check(
    (found, asked): (&Found, &[FlowReport]),
    before: Option<&Counted>,
    now: &Counted,
) -> Result<(), TestCaseError> {
    let flow_of: BTreeMap<Flow, u32> = (0..200).map(|at| (Flow::from(&key(at)), at)).collect();
    let sink_of = |name: &str| if name == "e2" { "e2" } else { "e3" };
    let get = |counted: &Counted, sink: &str, flow: &Flow| {
        counted.get(&(sink_of(sink), flow_of[flow])).cloned().unwrap_or_default()
    };
    let all: u64 = now.values().map(|of| of.packets).sum();
    prop_assert_eq!(found.coverage.sinks.packets, all);
    prop_assert_eq!(
        found.coverage.sinks.int_packets,
        now.values().map(Truth::with_int).sum::<u64>()
    );

    for ((sink, flow), truth) in now {
        let flow = Flow::from(&key(*flow));
        let is_told = asked.iter().any(|of| of.sink == *sink && of.flow == flow);
        prop_assert!(is_told || truth.packets == 0, "{} at {}", flow, sink);
    }
    for of in found.flows.iter().chain(asked) {
        let truth = get(now, &of.sink, &of.flow);
        prop_assert!(of.packets.allows(truth.packets), "{:?} {:?}", of, truth);
        prop_assert!(of.int_packets.is_none_or(|packets| packets == truth.with_int()));
        for path in &of.paths {
            let packets = truth.by(path, &of.sink);
            prop_assert!(packets > 0, "{:?}", path);
            prop_assert!(path.at_least <= packets);
            prop_assert!(path.packets.is_none_or(|reported| reported == packets));
        }
        for hop in &of.hops {
            let node = node_of(&hop.node);
            let at = truth.at_node.get(&node).cloned().unwrap_or_default();
            prop_assert!(hop.packets.allows(at.packets), "{:?} {:?}", hop, at);
            let number = at.latencies.len() as u64;
            prop_assert!(hop.latencies.is_none_or(|reported| reported == number), "{:?}", hop);
            let (delays, own) = (of.delays_at(hop), node_of(&of.sink));
            check_delays(delays, &at.latencies.iter().map(|&ns| ns.into()).collect::<Vec<_>>())?;
            let visits = |path: &&[u32]| {
                path.iter().chain([&own]).filter(|visited| **visited == node).count()
            };
            let once = truth.by_path.keys().all(|(path, _)| visits(path) <= 1);
            let all_say_it = once && number == at.packets;
            prop_assert!(delays.is_none() || all_say_it, "{:?} {:?}", hop, at);
            if !at.latencies.is_empty() {
                let mean = mean(&at.latencies);
                let (low, high) = (hop.mean_min_us, hop.mean_max_us);
                prop_assert!(
                    low.is_none_or(|low| low <= mean * (1.0 + 1e-9)),
                    "{:?} {}",
                    hop,
                    mean
                );
                prop_assert!(
                    high.is_none_or(|high| high >= mean * (1.0 - 1e-9)),
                    "{:?} {}",
                    hop,
                    mean
                );
                prop_assert!(hop.mean_us.is_none_or(|reported| near(reported, mean)));
                let max = f64::from(*at.latencies.iter().max().unwrap()) / 1000.0;
                prop_assert!(hop.max_us.is_none_or(|reported| near(reported, max)));
                let min = f64::from(*at.latencies.iter().min().unwrap()) / 1000.0;
                prop_assert!(hop.min_us.is_none_or(|reported| near(reported, min)));
                let are_few = at.latencies.len() < 3 && hop.max_us.is_some();
                prop_assert!(hop.min_us.is_some() || !are_few, "{:?}", hop);
                for (percent, [number, low, high]) in quantiles(hop) {
                    let mut sorted = at.latencies.clone();
                    sorted.sort_unstable();
                    let rank = (percent * sorted.len()).div_ceil(100);
                    let truth = f64::from(sorted[rank - 1]) / 1000.0;
                    prop_assert_eq!(low.is_some() && high.is_some(), hop.max_us.is_some());
                    prop_assert!(low.is_none_or(|low| low <= truth), "{} {:?}", truth, hop);
                    prop_assert!(high.is_none_or(|high| high >= truth), "{} {:?}", truth, hop);
                    let is_between = |of: f64| low <= Some(of) && Some(of) <= high;
                    prop_assert!(number.is_none_or(is_between), "{} {:?}", truth, hop);
                    // One is the maximum, and of two latencies both are known by their sum.
                    let is_known = percent == 99 || sorted.len() < 3;
                    let is_known = is_known && sorted.len() < 100 && low.is_some();
                    prop_assert!(number == Some(truth) || !is_known, "{} {:?}", truth, hop);
                    prop_assert!(number == low || low < high, "{} {:?}", truth, hop);
                }
            }
        }
        let sums: Option<Vec<u64>> = truth.in_switches.iter().copied().collect();
        prop_assert_eq!(of.in_switches_us.is_some(), of.exact && sums.is_some(), "{:?}", of);
        check_delays(of.delays(), &sums.unwrap_or_default())?;
        if of.exact {
            prop_assert_eq!(of.packets.packets, Some(truth.packets));
            prop_assert!(of.hops.iter().all(|hop| hop.latencies.is_some()), "{:?}", of);
            prop_assert_eq!(of.paths.len(), truth.by_path.len());
            prop_assert_eq!(of.hops.len(), truth.named.len());
            let says_all = truth.by_path.keys().all(|path| !path.1);
            if truth.with_int() == truth.packets && says_all {
                prop_assert!(of.hops.iter().all(|hop| hop.packets.packets.is_some()), "{:?}", of);
            }
            let known = of.hops.iter().filter(|hop| hop.mean_us.is_some()).count();
            let has_known = truth.at_node.values().filter(|at| !at.latencies.is_empty());
            prop_assert_eq!(known, has_known.count());
        }
    }
    for sink in &found.sinks {
        check_sink(sink, now)?;
        let heavy = |listed: &[Heavy], flow: Flow, packets: u64, is_complete: bool| {
            let of = listed.iter().find(|of| of.flow == flow && of.sink == sink.edge);
            let is_missing = of.is_none() && is_complete && packets > HEAVY.into();
            let is_right =
                |of: &Heavy| of.packets.allows(packets) && (!of.certain || packets > HEAVY.into());
            !is_missing && of.is_none_or(is_right)
        };
        let changed = |listed: &[Change], flow: Flow, (old, new): (u64, u64), is_complete: bool| {
            let of = listed.iter().find(|of| of.flow == flow && of.sink == sink.edge);
            let by = old.abs_diff(new);
            let is_missing = of.is_none() && is_complete && by > CHANGE.into();
            let is_right = |of: &Change| {
                let are_bounds = of.before.allows(old) && of.after.allows(new);
                are_bounds && of.change.allows(by) && (!of.certain || by > CHANGE.into())
            };
            !is_missing && of.is_none_or(is_right)
        };
        let complete = sink.heavy_hitters_complete;
        prop_assert_eq!(sink.heavy_changes.is_some(), before.is_some());
        for (&flow, &number) in &flow_of {
            let truth = get(now, &sink.edge, &flow);
            prop_assert!(heavy(&sink.heavy_hitters, flow, truth.packets, complete), "{}", number);
            for node in &found.nodes {
                let packets = truth.at(node.id);
                let complete = node.heavy_hitters_complete;
                prop_assert!(heavy(&node.heavy_hitters, flow, packets, complete), "{}", number);
            }
            let Some(before) = before else { continue };
            let old = get(before, &sink.edge, &flow);
            // Where the table of keys was full, before or now, a change may be missing.
            let listed = sink.heavy_changes.as_deref().unwrap();
            let packets = (old.packets, truth.packets);
            prop_assert!(changed(listed, flow, packets, false), "{} {:?}", number, packets);
            for node in &found.nodes {
                let packets = (old.at(node.id), truth.at(node.id));
                let listed = node.heavy_changes.as_deref().unwrap();
                prop_assert!(changed(listed, flow, packets, false), "{} {:?}", number, packets);
            }
        }
    }
    let mut links: BTreeMap<[String; 2], u64> = BTreeMap::new();
    for ((sink, _), of) in now {
        let whole = of.by_path.iter().filter(|(path, _)| !path.1);
        for (path, packets) in whole {
            for link in names(path.0, sink).windows(2) {
                *links.entry([link[0].clone(), link[1].clone()]).or_default() += packets;
            }
        }
    }
    for link in &found.links {
        let packets = links[&[link.from.clone(), link.to.clone()]];
        prop_assert!(link.at_least <= packets, "{:?} {}", link, packets);
        prop_assert!(link.packets.is_none_or(|of| of == packets), "{:?} {}", link, packets);
    }
    if found.links.iter().all(|link| link.packets.is_some()) && !found.links.is_empty() {
        prop_assert_eq!(found.links.len(), links.len());
    }
    for node in &found.nodes {
        // Others have not connected.
        prop_assert_eq!(node.kind.is_some(), [2, 6].contains(&node.id), "{:?}", node);
        let is_tofino = node.kind.as_deref() == Some("tofino");
        let (stamp, error_us) = match (node.id, is_tofino) {
            (_, true) => (Some("device"), None),
            (2 | 6, false) => (Some("poll"), Some(f64::from(node.id))),
            _ => (None, None),
        };
        prop_assert_eq!((node.stamp.as_deref(), node.stamp_error_us), (stamp, error_us));
        let at = now.iter().filter_map(|((sink, _), of)| Some((*sink, of.at_node.get(&node.id)?)));
        let said: u64 = at.clone().map(|(_, of)| of.said).sum();
        prop_assert!(node.packets.is_none_or(|reported| reported == said), "{:?} {}", node, said);
        let bounds = node.at_least..=node.at_most.unwrap_or(u64::MAX);
        prop_assert!(bounds.contains(&said), "{:?} {}", node, said);
        let is_of = |sink: &str| node.latency_sinks.iter().any(|of| of == sink);
        let of_these = at.filter(|(sink, _)| is_of(sink));
        let mut latencies: Vec<u32> = of_these.flat_map(|(_, of)| of.latencies.clone()).collect();
        latencies.sort_unstable();
        let it = &node.latency_us;
        prop_assert!(it.error <= ERROR, "{:?}", it);
        prop_assert_eq!(latencies.is_empty(), node.latency_sinks.is_empty());
        if latencies.is_empty() {
            prop_assert_eq!((it.mean, it.p99), (None, None));
            continue;
        }
        prop_assert!(near(it.mean.unwrap(), mean(&latencies)));
        let us = |ns: u32| f64::from(ns) / 1000.0;
        prop_assert!(near(it.min.unwrap(), us(latencies[0])));
        prop_assert!(near(it.max.unwrap(), us(latencies[latencies.len() - 1])));
        for (q, reported) in [(0.5, it.p50), (0.9, it.p90), (0.99, it.p99)] {
            let rank = (q * latencies.len() as f64).ceil() as usize;
            let truth = us(latencies[rank.max(1) - 1]);
            prop_assert!((reported.unwrap() - truth).abs() <= it.error * truth + 1e-9);
        }
    }
    for change in &found.path_changes {
        let paths = |counted: Option<&Counted>| -> BTreeSet<Vec<String>> {
            let of = counted.map(|of| get(of, &change.sink, &change.flow)).unwrap_or_default();
            of.by_path.keys().map(|path| names(path.0, &change.sink)).collect()
        };
        let (old, new) = (paths(before), paths(Some(now)));
        let of = before.map(|of| get(of, &change.sink, &change.flow)).unwrap_or_default();
        let is_whole = of.with_int() == of.packets && of.by_path.keys().all(|path| !path.1);
        prop_assert!(change.before.is_empty() || is_whole, "{:?} {:?}", change, of);
        prop_assert!(change.after.iter().all(|path| new.contains(path)));
        prop_assert!(change.before.iter().all(|path| old.contains(path)));
        let is_new = change.after.iter().any(|path| !old.contains(path));
        prop_assert!(is_new || change.after.len() > 1, "{:?} {:?}", change, old);
    }
    check_loops(found, now)
}

/// Every path that comes by a switch again is listed, where its sink had room for all paths, and
/// no other one.
fn check_loops(found: &Found, now: &Counted) -> Result<(), TestCaseError> {
    let mut loops: BTreeMap<(&str, Vec<String>), u64> = BTreeMap::new();
    for ((sink, _), of) in now {
        for (path, packets) in &of.by_path {
            let path = names(path.0, sink);
            if !again(&path).is_empty() {
                *loops.entry((sink, path)).or_default() += packets;
            }
        }
    }
    for of in &found.loops {
        let packets = loops.get(&(&*of.sink, of.path.clone())).copied().unwrap_or(0);
        prop_assert!(packets > 0 && of.at_least <= packets, "{:?} {}", of, packets);
        prop_assert!(of.packets.is_none_or(|reported| reported == packets), "{:?}", of);
        prop_assert_eq!(of.nodes.iter().collect::<BTreeSet<_>>(), again(&of.path));
    }
    for (sink, path) in loops.keys() {
        let is_listed = found.loops.iter().any(|of| of.sink == *sink && of.path == *path);
        let has_room = |of: &SinkReport| of.edge == *sink && of.paths_full == 0;
        prop_assert!(is_listed || !found.sinks.iter().any(has_room), "{:?} at {}", path, sink);
    }
    Ok(())
}

/// What is in a path more than once.
fn again(path: &[String]) -> BTreeSet<&String> {
    let is_again = |at: &usize| path[..*at].contains(&path[*at]);
    (0..path.len()).filter(is_again).map(|at| &path[at]).collect()
}

/// What collectors are given of latencies, which are these in nanoseconds: of two all is known.
fn check_delays(delays: Option<Delays>, latencies: &[u64]) -> Result<(), TestCaseError> {
    let Some(of) = delays else { return Ok(()) };
    let rounded = |ns: u64| (ns + 500) / 1000;
    let sum: u64 = latencies.iter().sum();
    prop_assert_eq!((of.packets, of.sum_us), (latencies.len() as u64, rounded(sum)));
    let off = f64::from(of.mean_us) - sum as f64 / of.packets as f64 / 1000.0;
    prop_assert!(off.abs() <= 0.5, "{:?}", of);
    let ends = [latencies.iter().min(), latencies.iter().max()];
    for (reported, ns) in [of.min_us, of.max_us].into_iter().zip(ends) {
        let was = rounded(*ns.unwrap());
        prop_assert!(reported.is_none_or(|us| u64::from(us) == was), "{:?} {}", of, was);
    }
    prop_assert!(of.packets > 1 || of.min_us.is_some() && of.max_us.is_some(), "{:?}", of);
    Ok(())
}

fn check_sink(sink: &SinkReport, now: &Counted) -> Result<(), TestCaseError> {
    let flows: Vec<u64> =
        now.iter().filter(|((of, _), _)| *of == sink.edge).map(|(_, of)| of.packets).collect();
    let all: u64 = flows.iter().sum();
    prop_assert_eq!(sink.coverage.packets, all);
    if sink.cardinality_error == Some(0.0) {
        prop_assert_eq!(sink.cardinality, Some(flows.len() as f64));
    }
    if all > 0 {
        let share = |packets: u64| packets as f64 / all as f64;
        let entropy: f64 = flows.iter().map(|&of| -share(of) * share(of).log2()).sum();
        let (low, high) = (sink.entropy_min.unwrap(), sink.entropy_max.unwrap());
        prop_assert!(low <= entropy + 1e-9 && entropy <= high + 1e-9, "{low} {entropy} {high}");
        prop_assert!(sink.entropy.is_none_or(|reported| (low..=high).contains(&reported)));
    }
    let bins = sink.size_distribution.as_ref().unwrap();
    for bin in bins {
        let here = flows.iter().filter(|&&of| (bin.from..=bin.to).contains(&of)).count() as u64;
        prop_assert!(bin.at_least <= here && here <= bin.at_most, "{:?} {}", bin, here);
        if bin.at_least == bin.at_most {
            prop_assert_eq!(bin.flows, Some(here as f64));
        }
    }
    for path in &sink.paths {
        let of_sink = now.iter().filter(|((of, _), _)| *of == sink.edge);
        let packets: u64 = of_sink.map(|(_, of)| of.by(path, &sink.edge)).sum();
        prop_assert!(path.at_least <= packets, "{:?} {}", path, packets);
        prop_assert!(
            path.packets.is_none_or(|reported| reported == packets),
            "{:?} {}",
            path,
            packets
        );
    }
    let is_listed = |of: u64| bins.iter().any(|bin| (bin.from..=bin.to).contains(&of));
    prop_assert!(flows.iter().all(|&of| is_listed(of)));
    Ok(())
}
