//! What SketchINT reported beside what captures say: packets and paths flow by flow and hop by hop,
//! which have to be equal, and latencies, which have to be near.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use calumma_analysis::{Flow, SystemReport};
use calumma_sketchint_analysis::report::{FlowReport, Found, HopReport};
use serde_json::{Value, json};

use super::observed::{Observed, OfFlow};
use crate::table::table;

/// A mean latency may be wrong by this share of itself and by so many microseconds. Captures stand
/// at the far ends of wires: what is between them and the switch's rings takes some microseconds in
/// either direction, the packets of a burst are handed to the wire one after the other behind the
/// instant that counts as their transmission, and of a packet that waited between two polls the
/// middle is all that a switch knows.
const SHARE: f64 = 0.2;
const MICROSECONDS: f64 = 20.0;

/// Of so many means one may be further off: a CPU that other programs share keeps single packets
/// waiting between a capture and a switch's ring.
const ONE_OF: usize = 20;

/// Packets from which on a flow's mean at a switch is compared: an error of half a poll's distance
/// either way is small in the mean of many.
const LEAST_PACKETS: u64 = 50;

/// The 99th percentiles of two switches differ clearly from this ratio on, and by so many
/// microseconds.
const CLEARLY: f64 = 3.0;
const CLEARLY_US: f64 = 500.0;

/// Flows that are printed before they are only counted.
const ROWS: usize = 40;

/// A flow at a switch in all windows together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopRow {
    /// Packets by the captures and as reported.
    pub packets: [u64; 2],
    /// The mean latency in microseconds, likewise; none where nobody knows it.
    pub mean_us: [Option<f64>; 2],
}

impl HopRow {
    /// By how many microseconds the reported mean is further off than it may be, or nearer where
    /// negative; none where it is not compared.
    fn beyond_us(&self) -> Option<f64> {
        let [Some(real), Some(reported)] = self.mean_us else { return None };
        let beyond = (reported - real).abs() - SHARE * real - MICROSECONDS;
        (self.packets[0] >= LEAST_PACKETS).then_some(beyond)
    }
}

/// How long packets were on a link, in all windows that say so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkRow {
    /// Packets that were compared.
    pub packets: u64,
    /// Their time on it by the captures and as reported, in microseconds, all together.
    pub sum_us: [f64; 2],
    /// By how much the reported mean may be wrong, in microseconds, at most in any window.
    pub error_us: f64,
}

/// Both sides.
#[derive(Debug)]
pub struct Comparison {
    /// Windows that were compared: those of which the report is complete.
    pub windows: usize,
    /// By flow: what captures say in all, and each hop.
    pub flows: BTreeMap<Flow, (OfFlow, BTreeMap<String, HopRow>)>,
    /// All flows together, by switch.
    pub switches: BTreeMap<String, HopRow>,
    /// All packets of a link, by the switches at its ends, the sender first.
    pub links: BTreeMap<[String; 2], LinkRow>,
    /// Numbers in reports that are wrong.
    pub wrong: Vec<String>,
    /// Latencies that are further off than they may be, and how many were compared.
    pub beyond: Vec<String>,
    /// See there.
    pub means: usize,
    /// Pairs of switches whose percentiles differ clearly, and those of them in the wrong order.
    pub pairs: [usize; 2],
    /// Flows that are reported to have changed their path, of all windows.
    pub path_changes: usize,
    /// Packets that came to hosts with a stack, or changed.
    pub leaked: u64,
    /// See there.
    pub changed: u64,
    /// Packets that hosts sent and received.
    pub moved: [u64; 2],
    /// Packets that came to hosts' own sinks with a stack, by the sink's name.
    pub to_sinks: BTreeMap<String, u64>,
}

impl Comparison {
    /// Holds reports against what was captured; an epoch has `length_ns`.
    pub(in crate::live) fn new(
        observed: &Observed,
        reports: &[SystemReport<Found>],
        length_ns: u64,
    ) -> Self {
        let Observed { leaked, changed, moved, .. } = *observed;
        let mut all = Self {
            windows: 0,
            flows: BTreeMap::new(),
            switches: BTreeMap::new(),
            links: BTreeMap::new(),
            wrong: Vec::new(),
            beyond: Vec::new(),
            means: 0,
            pairs: [0; 2],
            path_changes: 0,
            leaked,
            changed,
            moved,
            to_sinks: observed.to_sinks(),
        };
        // By flow and switch: the sum of reported latencies, and of how many packets.
        let mut reported: BTreeMap<(Flow, String), [f64; 2]> = BTreeMap::new();
        for report in reports.iter().filter(|report| report.complete) {
            let found = &report.findings;
            let flows = observed.within(found.window, length_ns);
            all.windows += 1;
            all.path_changes += found.path_changes.len();
            let unknown = observed.unknown(found.window, length_ns);
            all.hold(found, &flows, &unknown);
            all.order(found, &flows);
            if unknown.is_empty() {
                all.hold_links(found, &flows);
            }
            for flow in &found.flows {
                for hop in &flow.hops {
                    let (Some(mean), Some(packets)) = (hop.mean_us, hop.packets.packets) else {
                        continue;
                    };
                    let sum = reported.entry((flow.flow, hop.node.clone())).or_default();
                    sum[0] += mean * packets as f64;
                    sum[1] += packets as f64;
                }
            }
            for (flow, of) in flows {
                let sum = &mut all.flows.entry(flow).or_default().0;
                sum.packets += of.packets;
                for (path, packets) in of.paths {
                    *sum.paths.entry(path).or_default() += packets;
                }
                for (link, times_ns) in of.links {
                    sum.links.entry(link).or_default().extend(times_ns);
                }
                for (node, hop) in of.hops {
                    let sum = sum.hops.entry(node).or_default();
                    sum.packets += hop.packets;
                    sum.residences_ns.extend(hop.residences_ns);
                }
            }
        }
        all.join(&reported);
        all
    }

    fn join(&mut self, reported: &BTreeMap<(Flow, String), [f64; 2]>) {
        let mut sums: BTreeMap<String, [f64; 4]> = BTreeMap::new();
        for (flow, (of, rows)) in &mut self.flows {
            for (node, hop) in &of.hops {
                let [sum, packets] =
                    reported.get(&(*flow, node.clone())).copied().unwrap_or_default();
                let mean = (packets > 0.0).then(|| sum / packets);
                let row = HopRow {
                    packets: [hop.packets, packets as u64],
                    mean_us: [hop.mean_us(), mean],
                };
                let beyond = row.beyond_us();
                self.means += usize::from(beyond.is_some());
                if let Some(beyond) = beyond.filter(|beyond| *beyond > 0.0) {
                    let [real, reported] = row.mean_us.map(Option::unwrap_or_default);
                    self.beyond.push(format!(
                        "{flow} at {node}: {reported:.0} us reported, {real:.0} us by the captures, of \
                         {} packets: {beyond:.0} us too far",
                        hop.packets
                    ));
                }
                let of_node = sums.entry(node.clone()).or_default();
                let real: u64 = hop.residences_ns.iter().sum();
                let more = [real as f64 / 1e3, hop.residences_ns.len() as f64, sum, packets];
                of_node.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                rows.insert(node.clone(), row);
            }
        }
        for (node, [real, seen, sum, packets]) in sums {
            let mean = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
            let mean_us = [mean(real, seen), mean(sum, packets)];
            let row = HopRow { packets: [seen as u64, packets as u64], mean_us };
            let beyond = row.beyond_us();
            self.means += usize::from(beyond.is_some());
            if let Some(beyond) = beyond.filter(|beyond| *beyond > 0.0) {
                self.beyond.push(format!("all packets at {node}: {beyond:.0} us too far"));
            }
            self.switches.insert(node, row);
        }
    }

    /// Holds the numbers of a window against what was captured, but for flows of which that is not
    /// known.
    fn hold(&mut self, found: &Found, flows: &BTreeMap<Flow, OfFlow>, unknown: &BTreeSet<Flow>) {
        let reported: BTreeMap<Flow, &FlowReport> =
            found.flows.iter().map(|of| (of.flow, of)).collect();
        let window = found.window[0];
        // Sinks without rows list large flows alone, and may have no room for all of these.
        let most = match found.config.rows {
            0 if found.sinks.iter().any(|sink| !sink.heavy_hitters_complete) => u64::MAX,
            0 => found.config.heavy_packets.min(found.config.heavy_change_packets).into(),
            _ => 0,
        };
        let named: BTreeSet<&Flow> = flows.keys().chain(reported.keys()).collect();
        for flow in named.into_iter().filter(|flow| !unknown.contains(flow)) {
            let wrong = match (flows.get(flow), reported.get(flow)) {
                (Some(of), Some(reported)) => differs(of, reported),
                (Some(of), None) => {
                    let packets = Some(of.packets).filter(|packets| *packets > most);
                    packets.map(|packets| format!("{packets} packets, and is not reported"))
                }
                (None, Some(reported)) => {
                    Some(format!("{:?} reported, none came", reported.packets))
                }
                (None, None) => None,
            };
            self.wrong.extend(wrong.map(|wrong| format!("window {window}: {flow}: {wrong}")));
        }
    }

    /// Holds how long packets were on links in a window against what was captured. A switch stamps
    /// a packet before it comes to the wire, and the next one after it has left that: captures may
    /// say no more than what is reported, plus what that may be wrong by.
    fn hold_links(&mut self, found: &Found, flows: &BTreeMap<Flow, OfFlow>) {
        let mut captured: BTreeMap<&[String; 2], Vec<u64>> = BTreeMap::new();
        for (link, times_ns) in flows.values().flat_map(|of| &of.links) {
            captured.entry(link).or_default().extend(times_ns);
        }
        for link in &found.links {
            let errors = link.clock_error_us.zip(link.arrival_error_us);
            let Some((latency, (clock_us, arrival_us))) = link.latency_us.zip(errors) else {
                continue;
            };
            let ends = [link.from.clone(), link.to.clone()];
            let times_ns = captured.get(&ends).map_or(&[][..], Vec::as_slice);
            let (reported, came) = (latency.packets, times_ns.len() as u64);
            if reported > came {
                self.wrong.push(format!("{ends:?}: {reported} packets, and {came} were on it"));
            }
            if reported != came {
                // Of some that waited for their next hop's address nobody says when they came.
                continue;
            }
            let us = |ns: u64| ns as f64 / 1e3;
            let sum_us = us(times_ns.iter().sum());
            let (real, error_us) = (sum_us / latency.packets as f64, clock_us + arrival_us);
            if latency.mean + error_us < real {
                let mean = latency.mean;
                self.wrong.push(format!(
                    "{ends:?}: {mean:.1} us, wrong by at most {error_us:.1}, and {real:.1} between wires"
                ));
            }
            let row = self.links.entry(ends).or_default();
            row.packets += latency.packets;
            row.sum_us[0] += sum_us;
            row.sum_us[1] += latency.mean * latency.packets as f64;
            row.error_us = row.error_us.max(error_us);
        }
    }

    /// Looks at the order of switches by their 99th percentiles.
    fn order(&mut self, found: &Found, flows: &BTreeMap<Flow, OfFlow>) {
        let mut of_nodes: BTreeMap<&str, super::OfHop> = BTreeMap::new();
        for (node, hop) in flows.values().flat_map(|of| &of.hops) {
            let sum = of_nodes.entry(node).or_default();
            sum.packets += hop.packets;
            sum.residences_ns.extend(&hop.residences_ns);
        }
        let real: Vec<(&str, f64)> = of_nodes
            .iter()
            .filter(|(_, hop)| hop.packets >= LEAST_PACKETS)
            .filter_map(|(node, hop)| Some((*node, hop.quantile_us(0.99)?)))
            .collect();
        let reported = |node: &str| {
            found.nodes.iter().find(|of| of.node == node).and_then(|of| of.latency_us.p99)
        };
        // Where a sink tells no switches apart, latencies are not of all packets.
        let is_of_all =
            |node: &str| found.nodes.iter().all(|of| of.node != node || of.packets.is_some());
        for (node, one) in &real {
            for (other, two) in &real {
                if is_of_all(node)
                    && is_of_all(other)
                    && *one >= CLEARLY * two
                    && one - two >= CLEARLY_US
                {
                    self.pairs[0] += 1;
                    self.pairs[1] += usize::from(reported(node) <= reported(other));
                }
            }
        }
    }

    /// Whether everything is equal that has to be, latencies are near, and switches whose 99th
    /// percentiles differ clearly are in the right order.
    pub fn is_equal(&self) -> bool {
        let are_near = self.beyond.len() * ONE_OF <= self.means && self.pairs[1] == 0;
        self.windows > 0 && self.complaint().is_none() && are_near
    }

    /// What is wrong apart from latencies.
    pub fn complaint(&self) -> Option<String> {
        let Self { leaked, changed, .. } = self;
        if leaked + changed > 0 {
            return Some(format!("{leaked} packets came to hosts with a stack, {changed} changed"));
        }
        let more = self.wrong.len().saturating_sub(1);
        self.wrong.first().map(|wrong| format!("by the captures: {wrong} (and {more} more)"))
    }

    /// What captures alone say.
    pub fn truth(&self) -> Value {
        let flow = |(flow, (of, _)): (&Flow, &(OfFlow, _))| {
            let hops = of.hops.iter().map(|(node, hop)| {
                json!({ "node": node, "packets": hop.packets, "mean_us": hop.mean_us() })
            });
            let paths = of.paths.iter();
            let paths = paths.map(|(path, packets)| json!({ "path": path, "packets": packets }));
            let Flow { src, dst, sport, dport, proto } = flow;
            json!({ "src": src, "dst": dst, "sport": sport, "dport": dport, "proto": proto,
                "packets": of.packets, "paths": paths.collect::<Vec<_>>(),
                "hops": hops.collect::<Vec<_>>() })
        };
        let flows: Vec<Value> = self.flows.iter().map(flow).collect();
        json!({ "flows": flows, "leaked": self.leaked, "changed": self.changed })
    }

    /// Both sides for a terminal: the flows of most packets first.
    pub fn to_text(&self) -> String {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|(_, (of, _))| std::cmp::Reverse(of.packets));
        let us = |mean: Option<f64>| mean.map_or("?".to_owned(), |us| format!("{us:.0}"));
        let cells = flows.iter().take(ROWS).map(|(flow, (of, rows))| {
            let Flow { src, dst, sport, dport, proto } = **flow;
            let [from, to] = [SocketAddr::new(src, sport), SocketAddr::new(dst, dport)];
            let paths: Vec<String> = of.paths.keys().map(|path| path.join(" ")).collect();
            let hops = rows.iter().map(|(node, row)| {
                let [real, reported] = row.mean_us.map(us);
                format!("{node} {real}/{reported}")
            });
            [
                format!("{from} > {to} {proto}"),
                paths.join(", "),
                of.packets.to_string(),
                hops.collect::<Vec<_>>().join("  "),
            ]
        });
        let cells: Vec<_> = cells.collect();
        let titles = ["flow", "path", "packets", "mean latency in us: captures/SketchINT"];
        let mut text = table(titles, &cells);
        if flows.len() > ROWS {
            text += &format!("... and {} flows more\n", flows.len() - ROWS);
        }
        text.push('\n');
        for (node, row) in &self.switches {
            let [real, reported] = row.mean_us.map(us);
            text += &format!(
                "{node}: {} packets, {real} us by captures, {reported} us by SketchINT\n",
                row.packets[0]
            );
        }
        for ([from, to], row) in &self.links {
            let [real, reported] = row.sum_us.map(|sum_us| sum_us / row.packets.max(1) as f64);
            text += &format!(
                "{from} to {to}: {} packets, {real:.0} us by captures, {reported:.0} us by SketchINT, \
                 wrong by at most {:.0} us\n",
                row.packets, row.error_us
            );
        }
        let packets: u64 = flows.iter().map(|(_, (of, _))| of.packets).sum();
        let [sent, received] = self.moved;
        text += &format!(
            "{} windows, {} flows, {packets} packets; of {sent} packets that hosts sent {received} \
             came, {} with a stack, {} changed\n",
            self.windows,
            flows.len(),
            self.leaked,
            self.changed
        );
        let [pairs, reversed] = self.pairs;
        text +=
            &format!("switches by p99: {pairs} pairs differ clearly, {reversed} in wrong order\n");
        for wrong in self.wrong.iter().take(ROWS) {
            text += &format!("WRONG: {wrong}\n");
        }
        text += &format!(
            "{} of {} mean latencies are further off than 20 % + 20 us\n",
            self.beyond.len(),
            self.means
        );
        for beyond in &self.beyond {
            text += &format!("latency: {beyond}\n");
        }
        text
    }
}

/// What is wrong in the report of a flow.
fn differs(of: &OfFlow, reported: &FlowReport) -> Option<String> {
    let there = of.packets;
    if !reported.packets.allows(there) {
        return Some(format!("{there} packets came, {:?}", reported.packets));
    }
    let passed = |hop: &HopReport| of.hops.get(&hop.node).map_or(0, |hop| hop.packets);
    if let Some(hop) = reported.hops.iter().find(|hop| !hop.packets.allows(passed(hop))) {
        return Some(format!("{} came by {}, {:?}", passed(hop), hop.node, hop.packets));
    }
    let are_whole = reported.paths.iter().all(|path| !path.partial);
    if !reported.exact || reported.int_packets != Some(there) || !are_whole {
        return None;
    }
    let paths: BTreeMap<&Vec<String>, Option<u64>> =
        reported.paths.iter().map(|path| (&path.path, path.packets)).collect();
    let real: BTreeMap<&Vec<String>, Option<u64>> =
        of.paths.iter().map(|(path, packets)| (path, Some(*packets))).collect();
    if paths != real {
        return Some(format!("by {real:?}, {paths:?} reported"));
    }
    let hops: BTreeMap<&String, Option<u64>> =
        reported.hops.iter().map(|hop| (&hop.node, hop.packets.packets)).collect();
    let real: BTreeMap<&String, Option<u64>> =
        of.hops.iter().map(|(node, hop)| (node, Some(hop.packets))).collect();
    (hops != real).then(|| format!("at {real:?}, {hops:?} reported"))
}
