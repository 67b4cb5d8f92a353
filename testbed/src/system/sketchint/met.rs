//! What a simulation knows packet by packet: by which switches each came to its sink, and how long
//! each of them had it, and how long it was on each link between them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use calumma_analysis::Flow;
use calumma_sketchint_analysis::report::{
    FlowReport, Found, HopReport, InSwitches, Latency, LinkReport, Queue,
};

use crate::simulate::{EpochTruth, Met, Queues};
use crate::topology::Topology;
use crate::workload::is_host;

/// Packets that a flow must have had at a switch before one is called inflated.
const SEEN: usize = 8;

/// What packets of a window met.
pub(super) struct Known<'a> {
    topology: &'a Topology,
    flows: HashMap<Flow, Met>,
    disturbed: HashSet<Flow>,
}

impl<'a> Known<'a> {
    /// `None` where nobody knows packet by packet.
    pub(super) fn of(truth: &EpochTruth, topology: &'a Topology) -> Option<Self> {
        let mut flows: HashMap<Flow, Met> = HashMap::new();
        for of in &truth.flows {
            flows.entry(Flow::from(&of.key)).or_default().add(&of.met);
        }
        flows.retain(|_, met| met.packets > 0);
        let disturbed = truth.disturbed.keys().map(Flow::from).collect();
        (!flows.is_empty()).then_some(Self { topology, flows, disturbed })
    }

    /// What is wrong with a report, which is `complete` or not.
    pub(super) fn contradicts(&self, found: &Found, complete: bool) -> Option<String> {
        let undisturbed = |of: &&FlowReport| !self.disturbed.contains(&of.flow);
        let mut flows = found.flows.iter().filter(undisturbed);
        let flow = flows.find_map(|of| {
            let wrong = self.flow(of, found.config.inflation_percent)?;
            Some(format!("{} at {}: {wrong}", of.flow, of.sink))
        });
        flow.or_else(|| if complete { self.whole(found) } else { None })
    }

    fn name(&self, switch: usize) -> &str {
        &self.topology.names()[switch]
    }

    /// The sink that a flow's packets went to.
    fn sink(&self, flow: &Flow) -> Option<String> {
        let hosts = self.topology.hosts().iter().enumerate();
        let is_at = |(edge, hosts): &(usize, &u32)| {
            (0..**hosts).any(|host| is_host(flow.dst, (*edge, host)))
        };
        let (edge, _) = hosts.into_iter().find(is_at)?;
        Some(self.topology.sink_of(edge, |host| is_host(flow.dst, (edge, host))))
    }

    fn flow(&self, of: &FlowReport, inflation_percent: u32) -> Option<String> {
        let nothing = Met::default();
        let met = self.flows.get(&of.flow).unwrap_or(&nothing);
        if of.int_packets.is_some_and(|reported| reported != met.with_int) {
            return Some(format!("{:?} with INT, {} came so", of.int_packets, met.with_int));
        }
        let mut paths: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
        for (path, packets) in &met.paths {
            let names = path.iter().map(|&switch| self.name(switch)).collect();
            *paths.entry(names).or_default() += packets;
        }
        let mut reported: BTreeMap<Vec<&str>, (u64, bool)> = BTreeMap::new();
        for path in &of.paths {
            let names = path.path.iter().map(String::as_str).collect();
            let of_path = reported.entry(names).or_insert((0, true));
            of_path.0 += path.at_least;
            of_path.1 &= path.packets.is_some();
        }
        for (path, &(at_least, is_exact)) in &reported {
            let came = paths.get(path).copied().unwrap_or(0);
            if at_least > came || is_exact && at_least != came {
                return Some(format!("{at_least} packets by {path:?}, {came} came so"));
            }
        }
        if of.exact && reported.len() != paths.len() {
            return Some(format!("paths {reported:?}, but packets came by {paths:?}"));
        }
        for hop in &of.hops {
            let switch = self.topology.position(&hop.node)?;
            let none = Vec::new();
            let latencies = met.latencies.get(&switch).unwrap_or(&none);
            if let Some(wrong) = hop_contradicts(hop, latencies, inflation_percent) {
                return Some(format!("{}: {wrong}", hop.node));
            }
        }
        if let Some(reported) = &of.in_switches_us
            && let Some(wrong) = ways_contradict(reported, met)
        {
            return Some(wrong);
        }
        let named: BTreeSet<usize> =
            of.hops.iter().filter_map(|hop| self.topology.position(&hop.node)).collect();
        let missing = met.latencies.keys().find(|switch| !named.contains(switch));
        let missing = missing.filter(|_| of.exact)?;
        Some(format!("nothing of {}, by which packets came", self.name(*missing)))
    }

    /// Sums over all packets, of a report that has all of them.
    fn whole(&self, found: &Found) -> Option<String> {
        let sum = |of: fn(&Met) -> u64| self.flows.values().map(of).sum::<u64>();
        let came = [sum(|met| met.packets), sum(|met| met.with_int), sum(|met| met.partial)];
        let of = &found.coverage;
        let reported = [of.sinks.packets, of.sinks.int_packets, of.sinks.partial];
        if reported != came {
            return Some(format!("coverage {reported:?}, but {came:?} came"));
        }
        // By switch and sink.
        let mut all: BTreeMap<&str, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
        for (flow, met) in &self.flows {
            let sink = self.sink(flow).unwrap_or_default();
            for (switch, latencies) in &met.latencies {
                let at = all.entry(self.name(*switch)).or_default();
                at.entry(sink.clone()).or_default().extend(latencies);
            }
        }
        for node in &found.nodes {
            let of_sinks = all.entry(&node.node).or_default();
            let came = of_sinks.values().map(|latencies| latencies.len() as u64).sum::<u64>();
            let is_exact = node.packets.is_none_or(|reported| reported == came);
            let bounds = node.at_least..=node.at_most.unwrap_or(u64::MAX);
            if !is_exact || !bounds.contains(&came) {
                let packets = node.packets;
                return Some(format!(
                    "{}: {packets:?} packets, {bounds:?}, {came} came",
                    node.node
                ));
            }
            let of_these = node.latency_sinks.iter().filter_map(|sink| of_sinks.get(sink));
            let mut latencies: Vec<u32> = of_these.flatten().copied().collect();
            latencies.sort_unstable();
            if latencies.is_empty() && node.latency_us.mean.is_some() {
                return Some(format!("{}: latencies of {:?}", node.node, node.latency_sinks));
            }
            if let Some(wrong) = latency_contradicts(&node.latency_us, &latencies) {
                return Some(format!("{}: {wrong}", node.node));
            }
            let mut queues = Queues::default();
            let switch = self.topology.position(&node.node);
            let of_flows = self.flows.values().filter_map(|met| met.queues.get(&switch?));
            of_flows.for_each(|of| queues.add(of));
            // Of one that a sink did not distinguish, some packets are not counted.
            if node.packets.is_some()
                && let Some(wrong) = queue_contradicts(node.queue.as_ref(), &queues)
            {
                return Some(format!("{}: {wrong}", node.node));
            }
        }
        let mut on_links: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
        for (&(from, to), on_it_ns) in self.flows.values().flat_map(|met| &met.links) {
            let ends = (self.name(from), self.name(to));
            on_links.entry(ends).or_default().extend(on_it_ns);
        }
        for link in &found.links {
            let on_it_ns = on_links.get(&(&*link.from, &*link.to)).map_or(&[][..], Vec::as_slice);
            if let Some(wrong) = link_contradicts(link, on_it_ns) {
                return Some(format!("{} to {}: {wrong}", link.from, link.to));
            }
        }
        let named: BTreeSet<&str> = found.nodes.iter().map(|node| &*node.node).collect();
        let missing = all.iter().find(|(name, of)| !of.is_empty() && !named.contains(*name))?.0;
        Some(format!("nothing of {missing}, by which packets came"))
    }
}

fn queue_contradicts(reported: Option<&Queue>, met: &Queues) -> Option<String> {
    let is_right = match reported {
        None => met.packets == 0,
        Some(of) => {
            let mean = met.sum as f64 / met.packets as f64;
            (of.packets, of.max, of.at_least) == (met.packets, met.max, false)
                && (of.mean - mean).abs() <= 1e-9 * mean
        }
    };
    (!is_right).then(|| format!("a queue of {reported:?}, packets met {met:?}"))
}

/// Whether two latencies in microseconds are the same but for rounding.
fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * (1.0 + other.abs())
}

fn mean_us(latencies: &[u32]) -> f64 {
    latencies.iter().map(|&ns| f64::from(ns)).sum::<f64>() / latencies.len() as f64 / 1000.0
}

fn hop_contradicts(hop: &HopReport, latencies: &[u32], inflation_percent: u32) -> Option<String> {
    let came = latencies.len() as u64;
    if !hop.packets.allows(came) {
        return Some(format!("{:?}, but {came} came", hop.packets));
    }
    let longest = f64::from(*latencies.iter().max()?) / 1000.0;
    let mean = mean_us(latencies);
    let wrong_mean = hop.mean_us.is_some_and(|reported| !same(reported, mean))
        || hop.mean_min_us.is_some_and(|least| least > mean && !same(least, mean))
        || hop.mean_max_us.is_some_and(|most| most < mean && !same(most, mean));
    if wrong_mean {
        let reported = (hop.mean_us, hop.mean_min_us, hop.mean_max_us);
        return Some(format!("a mean of {reported:?} us, but it was {mean}"));
    }
    let least = f64::from(*latencies.iter().min()?) / 1000.0;
    for (reported, was) in [(hop.min_us, least), (hop.max_us, longest)] {
        if reported.is_some_and(|reported| !same(reported, was)) {
            return Some(format!("{reported:?} us at least or at most, but it was {was}"));
        }
    }
    if hop.latencies.is_some_and(|reported| reported != came) {
        return Some(format!("{:?} latencies, but there were {came}", hop.latencies));
    }
    let inflated = inflated(latencies, inflation_percent);
    let wrong = hop.inflated.is_some_and(|reported| reported != inflated);
    wrong.then(|| format!("{:?} inflated latencies, but there were {inflated}", hop.inflated))
}

/// How long all switches together had each packet of a flow is as it was; the least and the longest
/// where all came by one way, so that the packets of each switch are known one by one.
fn ways_contradict(reported: &InSwitches, met: &Met) -> Option<String> {
    let sum_ns: u64 = met.latencies.values().flatten().map(|&ns| u64::from(ns)).sum();
    let mean = sum_ns as f64 / met.packets as f64 / 1000.0;
    if !same(reported.mean, mean) {
        return Some(format!("{reported:?} us in switches, but a mean of {mean}"));
    }
    let of_each =
        |at: usize| met.latencies.values().map(move |of| of.get(at).map(|&ns| u64::from(ns)));
    let sums: Option<Vec<u64>> = (0..met.packets as usize).map(|at| of_each(at).sum()).collect();
    let sums = sums.filter(|_| met.paths.len() == 1)?;
    for (reported, was) in [(reported.min, sums.iter().min()), (reported.max, sums.iter().max())] {
        let was = *was? as f64 / 1000.0;
        if reported.is_some_and(|reported| !same(reported, was)) {
            return Some(format!("{reported:?} us in switches, but it was {was}"));
        }
    }
    None
}

/// Latencies above so many hundredths of the mean of those before, where there are enough.
fn inflated(latencies: &[u32], percent: u32) -> u32 {
    let mut sum = 0_u128;
    let mut count = 0;
    for (seen, &latency) in latencies.iter().enumerate() {
        let beyond = u128::from(latency) * seen as u128 * 100 > u128::from(percent) * sum;
        count += u32::from(seen >= SEEN && beyond);
        sum += u128::from(latency);
    }
    count
}

/// How long packets were on a link lies within the bounds of what is reported of it.
fn link_contradicts(link: &LinkReport, on_it_ns: &[u64]) -> Option<String> {
    let of = link.latency_us?;
    if of.packets != on_it_ns.len() as u64 {
        return Some(format!("{} packets on it, {} came so", of.packets, on_it_ns.len()));
    }
    let (Some(clock_us), Some(arrival_us)) = (link.clock_error_us, link.arrival_error_us) else {
        return Some(format!("{of:?} without bounds"));
    };
    let us = |ns: u64| ns as f64 / 1000.0;
    let sum_ns: u64 = on_it_ns.iter().sum();
    let (least, longest) = (us(*on_it_ns.iter().min()?), us(*on_it_ns.iter().max()?));
    let mean = us(sum_ns) / on_it_ns.len() as f64;
    // Clocks show whole nanoseconds.
    let within = clock_us + arrival_us + 0.003;
    let pairs = [(of.mean, mean), (of.min, least), (of.max, longest)];
    let wrong = pairs.into_iter().find(|(reported, was)| (reported - was).abs() > within)?;
    Some(format!("{wrong:?} us, reported and as it was, and an error of {within} us"))
}

fn latency_contradicts(reported: &Latency, sorted: &[u32]) -> Option<String> {
    let us = |ns: u32| f64::from(ns) / 1000.0;
    let (least, longest) = (us(*sorted.first()?), us(*sorted.last()?));
    let exact = [(reported.mean, mean_us(sorted)), (reported.min, least), (reported.max, longest)];
    if exact.iter().any(|(reported, was)| reported.is_some_and(|reported| !same(reported, *was))) {
        return Some(format!("mean, least and longest {exact:?}"));
    }
    for (q, quantile) in [(0.5, reported.p50), (0.9, reported.p90), (0.99, reported.p99)] {
        let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
        let was = us(sorted[rank - 1]);
        if quantile
            .is_some_and(|reported_us| (reported_us - was).abs() > reported.error * was + 1e-6)
        {
            return Some(format!("a quantile of {q} of {quantile:?} us, but it was {was}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_that_which_all_packets_met_that_say_it() {
        let (none, met) = (Queues::default(), Queues { packets: 4, sum: 10, max: 6 });
        let of = |packets, mean, max| Queue { unit: None, at_least: false, packets, mean, max };
        let right = of(4, 2.5, 6);
        assert_eq!(queue_contradicts(Some(&right), &met), None);
        assert_eq!(queue_contradicts(None, &none), None);
        let at_least = Queue { at_least: true, ..right.clone() };
        for wrong in [of(3, 2.5, 6), of(4, 2.6, 6), of(4, 2.5, 7), at_least] {
            assert!(queue_contradicts(Some(&wrong), &met).is_some(), "{wrong:?}");
        }
        assert!(queue_contradicts(None, &met).is_some());
        assert!(queue_contradicts(Some(&right), &none).is_some());
    }
}
