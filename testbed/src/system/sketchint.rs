//! SketchINT: every number of a report that is exact or has bounds is held against the packets that
//! really came to each sink, flow by flow, path by path and hop by hop.
//!
//! Sinks know of packets that reached them. What came to a switch and was lost behind it is in no
//! number, and neither is the way of packets that came without INT.

mod met;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_sketchint_analysis::SketchInt;
use calumma_sketchint_analysis::report::{
    FlowReport, Found, Heavy, LinkReport, NodeReport, SinkReport,
};

use self::met::Known;
use super::{Reported, System};
use crate::simulate::{AtSwitches, Came, EpochTruth, FlowTruth, Treatment};
use crate::topology::Topology;
use crate::workload::is_host;

impl System for SketchInt {
    fn listed(&self) -> &'static dyn calumma_analysis::System {
        &SketchInt
    }

    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        Some(&calumma_switchd::sketchint::SketchInt)
    }

    fn reported(&self, report: &dyn Report) -> Option<Reported> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        let sum = |of: fn(&SinkReport) -> u64| found.sinks.iter().map(of).sum::<u64>();
        let exact = sum(|sink| sink.flows_exact);
        Some(Reported {
            head: report.head,
            complete: report.complete,
            incomplete_because: report.incomplete_because.clone(),
            // It names no losses.
            exact: false,
            lost: BTreeMap::new(),
            counted: Some(exact),
            optimum: None,
            looped: None,
            black_holes: None,
            superspreaders: None,
            line: format!(
                "{:>7} packets, {:>7} with INT, {:>5} flows of which {exact} exact, {:>3} inflated, \
                 {:>3} path changes, {}",
                found.coverage.sinks.packets,
                found.coverage.sinks.int_packets,
                sum(|sink| sink.flows),
                found.inflated.len(),
                found.path_changes.len(),
                found.state,
            ),
        })
    }

    fn reads_wires(&self) -> bool {
        true
    }

    fn inflated(&self, report: &dyn Report) -> Option<Vec<String>> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let nodes = report.findings.inflated.iter().map(|of| of.node.clone());
        Some(nodes.collect::<BTreeSet<String>>().into_iter().collect())
    }

    fn slow_links(&self, report: &dyn Report) -> Option<Vec<[String; 2]>> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let links = report.findings.links.iter();
        let bounds: Vec<(f64, f64, &LinkReport)> = links
            .map(|link| {
                let error_us = link.clock_error_us? + link.arrival_error_us?;
                let mean_us = link.latency_us?.mean;
                Some((mean_us - error_us, mean_us + error_us, link))
            })
            .collect::<Option<_>>()?;
        let fastest = bounds.iter().map(|(_, at_most, _)| *at_most).fold(f64::INFINITY, f64::min);
        let slow = bounds.into_iter().filter(|(at_least, _, _)| *at_least > fastest);
        let slow = slow.map(|(_, _, link)| [link.from.clone(), link.to.clone()]);
        Some(slow.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn contradicts(
        &self,
        report: &dyn Report,
        truth: &EpochTruth,
        topology: &Topology,
    ) -> Option<String> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        let known = Known::of(truth, topology);
        let met = || known.and_then(|known| known.contradicts(found, report.complete));
        let truth = Arrived::of(truth, topology);
        let flows = || found.flows.iter().find_map(|flow| truth.contradicts_flow(flow));
        let sinks = || found.sinks.iter().find_map(|sink| truth.contradicts_sink(sink, found));
        let nodes = || found.nodes.iter().find_map(|node| truth.contradicts_node(node, found));
        let kinds = || {
            let mut nodes = found.nodes.iter();
            nodes.find_map(|node| is_of_other_kind(node, topology, report.complete))
        };
        let scaled = || truth.contradicts_estimates(found);
        let loops = || Some(format!("{:?}, and no packet went round", found.loops.first()?));
        let of_switches = || nodes().or_else(kinds).or_else(loops);
        flows().or_else(scaled).or_else(sinks).or_else(of_switches).or_else(met)
    }
}

/// What is wrong with the kind of a switch, which is known where the report is complete.
fn is_of_other_kind(report: &NodeReport, topology: &Topology, is_complete: bool) -> Option<String> {
    let switch = topology.position(&report.node)?;
    let kind = if topology.is_tofino(switch) { "tofino" } else { "software" };
    let is_wrong = report.kind.as_deref().map_or(is_complete, |reported| reported != kind);
    is_wrong.then(|| format!("{} is of kind {:?}, not {kind}", report.node, report.kind))
}

/// A flow's packets that reached their sink in a window.
#[derive(Debug, Default)]
struct OfFlow {
    /// The edge where they left, and how many.
    sink: usize,
    packets: u64,
    /// By switch: no more of them came by it.
    came: BTreeMap<usize, u64>,
    /// Whether that is how many did: nothing was lost or copied on the way.
    is_all: bool,
    /// By path, where the simulation knows it.
    ways: Option<BTreeMap<Vec<usize>, u64>>,
}

/// What reached sinks in a window.
struct Arrived<'a> {
    topology: &'a Topology,
    flows: HashMap<Flow, OfFlow>,
    /// Flows of which links changed the marks or addresses of packets, or held them up, and those
    /// that others became: no switch can know in which window their packets were sent.
    disturbed: HashSet<Flow>,
    /// Whether nothing was lost or copied anywhere.
    is_lossless: bool,
}

impl<'a> Arrived<'a> {
    fn of(truth: &EpochTruth, topology: &'a Topology) -> Self {
        let disturbed = truth.disturbed.keys().map(Flow::from).collect();
        let is_lossless = truth.lost() + truth.doubled() == 0;
        let mut arrived = Self { topology, flows: HashMap::new(), disturbed, is_lossless };
        match &truth.came {
            Some(came) => arrived.read(came, &truth.flows),
            None => truth.flows.iter().for_each(|flow| arrived.add(flow)),
        }
        arrived.flows.retain(|_, flow| flow.packets > 0);
        arrived
    }

    /// What wires say; flows that lost packets, or had copies, are `touched`.
    fn read(&mut self, came: &AtSwitches, touched: &[FlowTruth]) {
        let mut copied: HashMap<Flow, u64> = HashMap::new();
        for of in touched {
            let copies: u32 = of.copies.iter().map(|(_, copies)| copies).sum();
            *copied.entry(Flow::from(&of.key)).or_default() += u64::from(copies);
        }
        let edges = self.topology.edges().len();
        for (key, switches) in came {
            let flow = Flow::from(key);
            let is_sink =
                |&(&at, came): &(&usize, &Came)| at < edges && came.packets > came.entered;
            let Some((&sink, at_sink)) = switches.iter().find(is_sink) else { continue };
            let copies = copied.get(&flow);
            // A copy names the switches that its packet came by before.
            let most = |came: &Came| came.packets + copies.unwrap_or(&0);
            let of = OfFlow {
                sink,
                packets: at_sink.packets - at_sink.entered,
                came: switches.iter().map(|(&at, came)| (at, most(came))).collect(),
                is_all: copies.is_none(),
                ways: None,
            };
            self.flows.insert(flow, of);
        }
    }

    fn add(&mut self, of: &FlowTruth) {
        let flow = Flow::from(&of.key);
        for (_, treatment, _) in &of.treated {
            self.disturbed.insert(flow);
            if let Treatment::Translated(key) = treatment {
                self.disturbed.insert(Flow::from(key));
            }
        }
        let Some(way) = &of.way else { return };
        let mut packets = i64::from(of.packets);
        // What the sink lost, it had recorded.
        for number in 0..way.segments() - 1 {
            let segment = way.segment(number);
            let count = |list: &[(_, u32)]| -> i64 {
                list.iter().filter(|(at, _)| *at == segment).map(|(_, of)| i64::from(*of)).sum()
            };
            packets += count(&of.copies) - count(&of.losses);
        }
        let packets = u64::try_from(packets).unwrap_or(0);
        let path: Vec<usize> = way.switches().collect();
        let known = self.flows.entry(flow).or_insert_with(|| OfFlow {
            is_all: true,
            ways: Some(BTreeMap::new()),
            ..OfFlow::default()
        });
        known.sink = path.last().copied().unwrap_or(of.edge as usize);
        known.packets += packets;
        for &switch in path.iter().collect::<BTreeSet<_>>() {
            *known.came.entry(switch).or_default() += packets;
        }
        if let Some(ways) = &mut known.ways {
            *ways.entry(path).or_default() += packets;
        }
    }

    fn name(&self, switch: usize) -> &str {
        &self.topology.names()[switch]
    }

    fn is_sink(&self, sink: &str, flow: &Flow, of: &OfFlow) -> bool {
        self.topology.sink_of(of.sink, |host| is_host(flow.dst, (of.sink, host))) == sink
    }

    /// Packets of a flow that came by a switch and reached the sink: at most so many, and whether
    /// these are all.
    fn at(&self, flow: &Flow, node: &str) -> (u64, bool) {
        let of = self.flows.get(flow);
        let switch = self.topology.position(node);
        let packets = of.zip(switch).and_then(|(of, at)| of.came.get(&at).copied()).unwrap_or(0);
        let least = of.map_or(0, |of| of.packets);
        (packets.min(least), of.is_none_or(|of| of.is_all))
    }

    fn arrived(&self, flow: &Flow) -> u64 {
        self.flows.get(flow).map_or(0, |of| of.packets)
    }

    fn contradicts_flow(&self, report: &FlowReport) -> Option<String> {
        let flow = &report.flow;
        if self.disturbed.contains(flow) {
            return None;
        }
        let there = self.arrived(flow);
        if !report.packets.allows(there) || report.exact && report.packets.packets != Some(there) {
            return Some(format!(
                "{there} packets of {flow} came to {}, {:?}",
                report.sink, report.packets
            ));
        }
        let of = self.flows.get(flow).filter(|of| self.is_sink(&report.sink, flow, of));
        let Some(of) = of.filter(|_| there > 0) else {
            return Some(format!("{flow} did not come to {}", report.sink));
        };
        if report.int_packets.is_some_and(|with_int| with_int > there) {
            return Some(format!("{:?} packets with INT of {there} of {flow}", report.int_packets));
        }
        // All of their ways are known.
        let is_whole = report.exact
            && report.int_packets == Some(there)
            && report.paths.iter().all(|path| !path.partial);
        for hop in &report.hops {
            let (most, is_all) = self.at(flow, &hop.node);
            let least = if is_all { most } else { 0 };
            let wrong = hop.packets.at_least > most
                || hop.packets.packets.is_some_and(|packets| !(least..=most).contains(&packets))
                || hop.packets.at_most.is_some_and(|packets| packets < least);
            if wrong {
                return Some(format!(
                    "{:?} of {flow} came by {}, {most} of these reached {}",
                    hop.packets, hop.node, report.sink
                ));
            }
            let bounds = (hop.mean_min_us, hop.mean_us, hop.mean_max_us);
            if let (Some(least), Some(mean), Some(most)) = bounds
                && !(least..=most).contains(&mean)
            {
                return Some(format!("{flow} at {}: a mean beside its bounds", hop.node));
            }
        }
        if is_whole && of.is_all {
            let named: BTreeSet<&str> = report.hops.iter().map(|hop| hop.node.as_str()).collect();
            let passed = of.came.iter().filter(|(_, packets)| **packets > 0);
            let mut passed = passed.map(|(&switch, _)| self.name(switch));
            if let Some(switch) = passed.find(|switch| !named.contains(switch)) {
                return Some(format!("{flow} came by {switch}, which is not reported"));
            }
        }
        self.contradicts_paths(report, of, is_whole)
    }

    /// Estimates are within what is known for certain, and not beside their bounds more often than
    /// these say, by four standard errors of that.
    fn contradicts_estimates(&self, found: &Found) -> Option<String> {
        let (mut all, mut missed, mut expected) = (0_u64, 0_u64, 0.0);
        for flow in found.flows.iter().filter(|of| !self.disturbed.contains(&of.flow)) {
            for hop in &flow.hops {
                let Some(estimate) = hop.estimate else { continue };
                let bounds = estimate.at_least..=estimate.at_most;
                let is_within = *bounds.start() >= hop.packets.at_least
                    && hop.packets.at_most.is_none_or(|most| *bounds.end() <= most)
                    && (*bounds.start() as f64..=*bounds.end() as f64).contains(&estimate.packets);
                if !is_within || hop.packets.packets.is_some() {
                    let node = &hop.node;
                    return Some(format!("{} at {node}: {estimate:?}", flow.flow));
                }
                if let (there, true) = self.at(&flow.flow, &hop.node) {
                    all += 1;
                    missed += u64::from(!bounds.contains(&there));
                    expected += 1.0 - estimate.confidence;
                }
            }
        }
        let most = expected + 4.0 * f64::sqrt(expected) + 1.0;
        (missed as f64 > most)
            .then(|| format!("{missed} of {all} estimates are beside their bounds"))
    }

    /// Whether a switch may be the next one in a stack: a link leads there, or two by a switch that
    /// does not measure and is in no stack.
    fn is_next(&self, from: usize, to: usize) -> bool {
        let is_in_stacks =
            |at: usize| self.topology.is_edge(at) || self.topology.transits().any(|it| it == at);
        let leads_to = |from: usize| self.topology.neighbours(from).any(|next| next == to);
        leads_to(from) || self.topology.neighbours(from).any(|by| !is_in_stacks(by) && leads_to(by))
    }

    fn contradicts_paths(
        &self,
        report: &FlowReport,
        of: &OfFlow,
        is_whole: bool,
    ) -> Option<String> {
        let flow = &report.flow;
        let mut reported: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for path in &report.paths {
            let switches: Option<Vec<usize>> =
                path.path.iter().map(|name| self.topology.position(name)).collect();
            let Some(switches) = switches else {
                return Some(format!("{flow} by {:?}, where not all are switches", path.path));
            };
            // One that may lack switches is part of a way.
            if path.partial {
                continue;
            }
            let are_linked = switches.windows(2).all(|two| self.is_next(two[0], two[1]));
            let least = switches.iter().map(|at| of.came.get(at).copied().unwrap_or(0)).min();
            if !are_linked || switches.last() != Some(&of.sink) || least < Some(path.at_least) {
                return Some(format!("{} packets of {flow} by {:?}", path.at_least, path.path));
            }
            *reported.entry(switches).or_default() += path.at_least;
        }
        let Some(ways) = &of.ways else { return None };
        let ways: BTreeMap<_, _> = ways.iter().filter(|(_, packets)| **packets > 0).collect();
        for (path, packets) in &reported {
            let there = ways.get(path).map_or(0, |packets| **packets);
            if *packets > there || is_whole && *packets != there {
                let names: Vec<&str> = path.iter().map(|&at| self.name(at)).collect();
                return Some(format!("{packets} packets of {flow} by {names:?}, {there} came"));
            }
        }
        (is_whole && reported.len() != ways.len())
            .then(|| format!("{flow}: a path is not reported"))
    }

    /// Flows that came to a sink and that no link disturbed: their packets.
    fn at_sink(&self, sink: &str) -> impl Iterator<Item = (&Flow, u64)> {
        let here = self.flows.iter().filter(move |(flow, of)| self.is_sink(sink, flow, of));
        here.map(|(flow, of)| (flow, of.packets))
    }

    fn contradicts_sink(&self, report: &SinkReport, found: &Found) -> Option<String> {
        let edge = &report.edge;
        let threshold = u64::from(found.config.heavy_packets);
        let heavy = report.heavy_hitters.iter();
        let wrong = heavy
            .clone()
            .find_map(|of| self.contradicts_heavy(of, self.arrived(&of.flow), threshold));
        if wrong.is_some() || !self.disturbed.is_empty() {
            return wrong;
        }
        let packets: u64 = self.at_sink(edge).map(|(_, packets)| packets).sum();
        if report.coverage.packets > packets || report.sound && report.coverage.packets != packets {
            let reported = report.coverage.packets;
            return Some(format!("{reported} packets at {edge}, {packets} came"));
        }
        let flows = self.at_sink(edge).count() as u64;
        if !report.sound {
            return None;
        }
        if report.flows_exact > flows
            || report.cardinality_error == Some(0.0) && report.cardinality != Some(flows as f64)
        {
            return Some(format!("{:?} flows at {edge}, {flows} came", report.cardinality));
        }
        let named: HashSet<&Flow> = heavy.map(|of| &of.flow).collect();
        let missed = self
            .at_sink(edge)
            .find(|(flow, packets)| *packets > threshold && !named.contains(flow));
        if let Some((flow, packets)) = missed.filter(|_| report.heavy_hitters_complete) {
            return Some(format!("{flow} of {packets} packets is no heavy hitter at {edge}"));
        }
        if let [Some(least), Some(most)] = [report.entropy_min, report.entropy_max] {
            let share = |(_, of): (&Flow, u64)| of as f64 / packets.max(1) as f64;
            let entropy: f64 =
                self.at_sink(edge).map(share).map(|share| -share * share.log2()).sum();
            if !(least - 1e-6..=most + 1e-6).contains(&entropy) {
                return Some(format!("entropy of {least} to {most} at {edge}, it was {entropy}"));
            }
        }
        for bin in report.size_distribution.iter().flatten() {
            let there = self.at_sink(edge).filter(|of| (bin.from..=bin.to).contains(&of.1)).count();
            if !(bin.at_least..=bin.at_most).contains(&(there as u64)) {
                return Some(format!("{bin:?} at {edge}, there were {there}"));
            }
        }
        // Where every flow has a row and all rows are listed, none may lack.
        let are_all = report.rows_refused + report.rows_evicted == 0 && found.config.rows > 0;
        let listed: HashSet<&Flow> =
            found.flows.iter().filter(|of| of.sink == *edge).map(|of| &of.flow).collect();
        let mut missed = self.at_sink(edge).filter(|(flow, _)| !listed.contains(flow));
        let (flow, packets) =
            missed.next().filter(|_| are_all && listed.len() as u64 == report.flows)?;
        Some(format!("{packets} packets of {flow} came to {edge}, which is not reported"))
    }

    /// A heavy hitter of which `there` packets came.
    fn contradicts_heavy(&self, report: &Heavy, there: u64, threshold: u64) -> Option<String> {
        let is_wrong = !report.packets.allows(there) || report.certain && there <= threshold;
        let is_wrong = is_wrong && !self.disturbed.contains(&report.flow);
        is_wrong.then(|| format!("a heavy hitter {report:?}, {there} packets of it came"))
    }

    fn contradicts_node(&self, report: &NodeReport, found: &Found) -> Option<String> {
        let heavy = report.heavy_hitters.iter().filter(|of| !self.disturbed.contains(&of.flow));
        for of in heavy {
            let (most, _) = self.at(&of.flow, &report.node);
            if of.packets.at_least > most {
                return Some(format!("{:?} at {}, {most} packets of it came", of, report.node));
            }
        }
        if !self.disturbed.is_empty() {
            return None;
        }
        let switch = self.topology.position(&report.node)?;
        let came: u64 = self.flows.values().filter_map(|of| of.came.get(&switch)).sum();
        let is_all = found.sinks.iter().all(|sink| sink.sound)
            && found.sinks.len() == self.topology.sinks()
            && found.coverage.sinks.int_packets == found.coverage.sinks.packets
            && found.coverage.sinks.partial == 0
            && self.is_lossless;
        let at_most = report.packets.or(report.at_most);
        let is_wrong = report.packets.unwrap_or(report.at_least) > came
            || is_all && at_most.is_some_and(|most| most < came);
        is_wrong.then(|| {
            let NodeReport { node, packets, at_least, .. } = report;
            format!("{packets:?} packets, {at_least} to {at_most:?}, at {node}: {came} came by it")
        })
    }
}
