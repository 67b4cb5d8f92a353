//! Cooperative flow selection: every count that a report calls exact is held against what really
//! passed each switch, flow by flow and hop by hop.
//!
//! In a simulation the ways and losses of flows are known, and what passed follows from them. In a
//! live fabric it was read from the wires, and what routers lost is held against it besides.

mod heavy;
mod optimum;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_cfs_analysis::{Cfs, DESTINATION, FlowCount, Found, HopCount};

use super::{Reported, System};
use crate::simulate::{AtSwitches, Came, EpochTruth, FlowTruth, Treatment};
use crate::topology::{Point, Routes, Segment, Topology};
use crate::workload::frame;

/// Bytes of made-up packets, as switches receive them.
const PACKET: u16 = 60;
const ETHERNET: usize = 14;

impl System for Cfs {
    fn listed(&self) -> &'static dyn calumma_analysis::System {
        &Cfs
    }

    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        Some(&calumma_switchd::cfs::Cfs)
    }

    fn reported(&self, report: &dyn Report) -> Option<Reported> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        let mut lost: BTreeMap<Flow, i64> = BTreeMap::new();
        for loss in &found.losses {
            *lost.entry(loss.flow).or_default() += loss.lost as i64;
        }
        let share = match found.coverage {
            Some(share) => format!("{:5.1} %", 100.0 * share),
            None => "      ?".to_owned(),
        };
        Some(Reported {
            head: report.head,
            complete: report.complete,
            incomplete_because: report.incomplete_because.clone(),
            // Only losses between two counts are known.
            exact: false,
            lost,
            counted: Some(found.monitored_exactly),
            optimum: found.optimum,
            looped: Some(found.loops.iter().filter(|it| it.certain).map(|it| it.flow).collect()),
            black_holes: Some(found.black_holes.len() as u64),
            superspreaders: Some(found.superspreaders.len() as u64),
            line: format!("{:>6} flows counted exactly, {share} of all", found.monitored_exactly),
        })
    }

    fn reads_wires(&self) -> bool {
        true
    }

    fn contradicts(
        &self,
        report: &dyn Report,
        truth: &EpochTruth,
        topology: &Topology,
    ) -> Option<String> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        let truth = Passed::of(truth, topology);
        let flows = found.flows.iter().find_map(|count| truth.contradicts_flow(count));
        let losses = || truth.contradicts_losses(found);
        let holes =
            || truth.contradicts_black_holes(found).or_else(|| truth.contradicts_loops(found));
        // What nodes that are missing have marked wrong, nobody can tell.
        let sums = || truth.contradicts_sums(found).or_else(|| truth.contradicts_heavy(found));
        let sums = || sums().filter(|_| report.complete);
        let optimum = || truth.contradicts_optimum(found).filter(|_| report.complete);
        flows.or_else(losses).or_else(holes).or_else(sums).or_else(optimum)
    }
}

/// What passed each switch in a window.
struct Passed<'a> {
    topology: &'a Topology,
    /// All that could be, whatever links are down.
    routes: Routes,
    /// By flow and switch: packets that it received, and their bytes.
    counts: HashMap<Flow, BTreeMap<usize, [u64; 2]>>,
    /// The edge where each flow entered.
    entered: HashMap<Flow, usize>,
    /// Switches that are on every way that packets of the flow took.
    on_every_way: HashMap<Flow, BTreeSet<usize>>,
    /// Where wires were read: what routers lost of each flow.
    lost: Option<HashMap<Flow, Lost>>,
    /// Flows of which links changed the marks or addresses of packets, or held them up, and those
    /// that others became: no switch can know in which window their packets were sent.
    disturbed: HashSet<Flow>,
    /// Flows that went round, and the switches of each turn that they took.
    round: HashMap<Flow, Vec<BTreeSet<usize>>>,
}

/// What routers lost of a flow.
struct Lost {
    /// The edge where it entered.
    edge: usize,
    /// Places by how far they are from the edge where it entered: twice the links to a switch where
    /// packets come to it, one more where they leave it. Packets lost on the way there, less copies
    /// that were made.
    on_the_way_to: Vec<(u32, i64)>,
}

impl Lost {
    /// Packets that came to the switch `from` and were lost before they came to the switch `to`.
    /// None where no way leads there.
    fn between(&self, routes: &Routes, from: usize, to: usize) -> Option<i64> {
        let links = |switch| routes.distance(self.edge, switch).map(u32::from);
        let (from, to) = (2 * links(from)?, 2 * links(to)?);
        let there = self.on_the_way_to.iter().filter(|(at, _)| (from + 1..=to).contains(at));
        Some(there.map(|(_, packets)| packets).sum())
    }
}

impl<'a> Passed<'a> {
    fn of(truth: &EpochTruth, topology: &'a Topology) -> Self {
        let mut passed = Self {
            topology,
            routes: Routes::over_all(topology),
            counts: HashMap::new(),
            entered: HashMap::new(),
            on_every_way: HashMap::new(),
            lost: None,
            disturbed: truth.disturbed.keys().map(Flow::from).collect(),
            round: HashMap::new(),
        };
        match &truth.came {
            Some(came) => passed.read(came, &truth.flows),
            None => {
                let sent = truth.flows.iter().filter(|flow| flow.packets > 0);
                let (round, through): (Vec<_>, Vec<_>) = sent.partition(|of| of.turn().is_some());
                through.into_iter().for_each(|flow| passed.add(flow));
                round.into_iter().for_each(|flow| passed.add_round(flow));
            }
        }
        passed
    }

    /// What wires say, and what routers lost and copied.
    fn read(&mut self, came: &AtSwitches, touched: &[FlowTruth]) {
        let routes = &self.routes;
        let mut all_lost: HashMap<Flow, Lost> = HashMap::new();
        for (key, switches) in came {
            let flow = Flow::from(key);
            let counts = switches.iter().map(|(&at, came)| (at, [came.packets, came.bytes]));
            self.counts.insert(flow, counts.collect());
            let Some((&edge, home)) = switches.iter().find(|(_, came)| came.entered > 0) else {
                continue;
            };
            self.entered.insert(flow, edge);
            let mut lost = Lost { edge, on_the_way_to: Vec::new() };
            for of in touched.iter().filter(|of| of.key == *key) {
                let losses = of.losses.iter().map(|&(place, lost)| (place, i64::from(lost)));
                let copies = of.copies.iter().map(|&(place, made)| (place, -i64::from(made)));
                lost.on_the_way_to.extend(losses.chain(copies).filter_map(|(place, packets)| {
                    let (Point::In(switch) | Point::Out(switch)) = place.to;
                    let links = u32::from(routes.distance(edge, switch)?);
                    Some((2 * links + u32::from(place.to == Point::Out(switch)), packets))
                }));
            }
            let is_whole = |(switch, of): (&usize, &Came)| {
                let lost = lost.between(routes, edge, *switch)?;
                let came_or_lost = of.packets.checked_add_signed(lost)?;
                (came_or_lost == home.entered).then_some(*switch)
            };
            self.on_every_way.insert(flow, switches.iter().filter_map(is_whole).collect());
            // Each packet comes to a switch once, unless it goes round.
            let copies: i64 = lost.on_the_way_to.iter().map(|&(_, lost)| -lost.min(0)).sum();
            let once = home.entered.saturating_add_signed(copies);
            let again = switches.iter().filter(|(_, of)| of.packets > once);
            let turn: BTreeSet<usize> = again.map(|(&switch, _)| switch).collect();
            if turn.len() > 1 {
                self.round.insert(flow, vec![turn]);
            }
            all_lost.insert(flow, lost);
        }
        self.lost = Some(all_lost);
    }

    fn add(&mut self, of: &FlowTruth) {
        let flow = Flow::from(&of.key);
        let length = (frame(&of.key, PACKET).len() - ETHERNET) as u64;
        for (_, treatment, _) in &of.treated {
            self.disturbed.insert(flow);
            if let Treatment::Translated(key) = treatment {
                self.disturbed.insert(Flow::from(key));
            }
        }
        self.entered.insert(flow, of.edge as usize);
        let mut receive = |switch, packets| self.receive((flow, length), switch, packets);
        let count = |list: &[(Segment, u32)], segment: Segment| {
            list.iter().filter(|(at, _)| *at == segment).map(|(_, packets)| *packets).sum::<u32>()
        };
        let mut packets = of.packets;
        receive(of.edge as usize, packets);
        let mut way = BTreeSet::from([of.edge as usize]);
        let segments = of.way.iter().flat_map(|way| (0..way.segments()).map(|at| way.segment(at)));
        for segment in segments {
            packets = packets + count(&of.copies, segment) - count(&of.losses, segment);
            if let Point::In(switch) = segment.to {
                receive(switch, packets);
                way.insert(switch);
            }
        }
        let common = self.on_every_way.entry(flow).or_insert_with(|| way.clone());
        common.retain(|switch| way.contains(switch));
    }

    /// Adds packets that went round until they had no time to live any more: on whatever way others
    /// of the flow come, these were lost before.
    fn add_round(&mut self, of: &FlowTruth) {
        let Some(turn) = of.turn() else { return };
        let flow = Flow::from(&of.key);
        let length = (frame(&of.key, PACKET).len() - ETHERNET) as u64;
        self.entered.insert(flow, of.edge as usize);
        let home = [(of.edge as usize, of.packets)];
        let visits = of.visits.iter().map(|(&switch, &packets)| (switch, packets)).chain(home);
        let visited: BTreeSet<usize> = visits.clone().map(|(switch, _)| switch).collect();
        visits.for_each(|(switch, packets)| self.receive((flow, length), switch, packets));
        self.on_every_way.entry(flow).or_insert(visited);
        self.round.entry(flow).or_default().push(turn);
    }

    /// Packets of a flow came to a switch, each of so many bytes.
    fn receive(&mut self, (flow, length): (Flow, u64), switch: usize, packets: u32) {
        let [there, bytes] = self.counts.entry(flow).or_default().entry(switch).or_default();
        *there += u64::from(packets);
        *bytes += u64::from(packets) * length;
    }

    /// Packets of a flow that the switch called `node` received, and their bytes.
    fn at(&self, flow: &Flow, node: &str) -> [u64; 2] {
        let switch = self.topology.position(node);
        let counts = self.counts.get(flow);
        switch.and_then(|at| counts?.get(&at).copied()).unwrap_or([0; 2])
    }

    fn contradicts_flow(&self, count: &FlowCount) -> Option<String> {
        let flow = &count.flow;
        if self.disturbed.contains(flow) {
            return None;
        }
        for HopCount { node, packets, bytes, exact, .. } in &count.hops {
            let [there, bytes_there] = self.at(flow, node);
            let how = if *exact { "exactly" } else { "at least" };
            if packets > &there || (*exact && *packets != there) {
                return Some(format!("{node} counted {how} {packets} of {flow}, {there} came"));
            }
            // Where some packets were not counted, lengths show only if all are alike.
            let alike = bytes_there.checked_div(there).filter(|_| self.lost.is_none());
            let expected = alike.map_or(bytes_there, |length| packets * length);
            let is_bound = alike.is_none() && !exact;
            if *bytes > expected || (!is_bound && *bytes != expected) {
                return Some(format!(
                    "{node} counted {how} {bytes} bytes of {packets} packets of {flow}, \
                     {bytes_there} of {there} came"
                ));
            }
        }
        let counted = count.hops.iter().find(|hop| hop.node == count.at)?;
        if count.packets > counted.packets || count.exact && count.packets != counted.packets {
            return Some(format!("{flow} has other counts at {} than there", count.at));
        }
        // Packets that went round came there again and again.
        let entered = self.entered.get(flow).and_then(|edge| self.counts.get(flow)?.get(edge));
        let entered = entered.filter(|_| self.round.contains_key(flow));
        if let Some(&[entered, _]) = entered
            && count.packets > entered
        {
            let at_least = count.packets;
            return Some(format!("{flow} is said to have {at_least} packets, {entered} entered"));
        }
        let switch = self.topology.position(&count.at)?;
        let is_on_every_way = self.on_every_way.get(flow).is_some_and(|of| of.contains(&switch));
        (count.exact && !is_on_every_way)
            .then(|| format!("{flow} is reported to have passed {} whole", count.at))
    }

    fn contradicts_losses(&self, found: &Found) -> Option<String> {
        let losses = found.losses.iter().filter(|loss| !self.disturbed.contains(&loss.flow));
        for loss in losses {
            let at = |point: &str| {
                let node = point.strip_suffix(":in")?;
                Some((self.topology.position(node)?, self.at(&loss.flow, node)[0]))
            };
            let ends = if loss.place.to == DESTINATION {
                at(&loss.place.from).map(|from| (from, None, self.left(&loss.flow)))
            } else {
                at(&loss.place.from)
                    .zip(at(&loss.place.to))
                    .map(|(from, to)| (from, Some(to.0), to.1))
            };
            let Some(((from, before), to, behind)) = ends else {
                return Some(format!("{loss:?}, where no two switches are"));
            };
            if before.checked_sub(behind) != Some(loss.lost) {
                return Some(format!(
                    "{loss:?}, but {before} came to the one and {behind} to the other"
                ));
            }
            let lost = to.and_then(|to| self.lost_between(&loss.flow, from, to));
            if lost.is_some_and(|lost| i64::try_from(loss.lost) != Ok(lost)) {
                return Some(format!("{loss:?}, but routers lost {} there", lost.unwrap_or(0)));
            }
        }
        None
    }

    /// Packets of a flow that left at any edge but the one where it entered.
    fn left(&self, flow: &Flow) -> u64 {
        let (Some(counts), Some(entered)) = (self.counts.get(flow), self.entered.get(flow)) else {
            return 0;
        };
        let edges = (0..self.topology.edges().len()).filter(|edge| edge != entered);
        edges.filter_map(|edge| counts.get(&edge)).map(|[packets, _]| packets).sum()
    }

    /// Something came on from where nothing is reported to.
    fn contradicts_black_holes(&self, found: &Found) -> Option<String> {
        let position = |point: &str| self.topology.position(point.strip_suffix(":in")?);
        for hole in &found.black_holes {
            let Some(from) = position(&hole.place.from) else {
                return Some(format!("{hole:?}, where no switch is"));
            };
            let seen = hole.seen_behind.as_ref();
            let seen = seen.and_then(|edge| self.topology.position(edge));
            let to = position(&hole.place.to).or(seen);
            for (flow, counts) in &self.counts {
                let came = |at: usize| counts.get(&at).is_some_and(|[packets, _]| *packets > 0);
                let Some(&entered) = self.entered.get(flow) else { continue };
                let edges = (0..self.topology.edges().len()).filter(|&edge| edge != entered);
                let mut ends = edges.filter(|&edge| edge != from && to.is_none_or(|to| to == edge));
                if came(from) && !self.disturbed.contains(flow) && ends.any(came) {
                    return Some(format!("{hole:?}, but {flow} came on from there"));
                }
            }
        }
        None
    }

    /// A loop is certain of a flow that does not go round, or not so.
    fn contradicts_loops(&self, found: &Found) -> Option<String> {
        let loops = found.loops.iter().filter(|it| it.certain);
        for it in loops.filter(|it| !self.disturbed.contains(&it.flow)) {
            let Some(turns) = self.round.get(&it.flow) else {
                return Some(format!("{} is reported to go round, and no packet does", it.flow));
            };
            let position = |node: &String| self.topology.position(node);
            let nodes: Option<BTreeSet<usize>> = it.nodes.iter().map(position).collect();
            let is_of = |turn: &BTreeSet<usize>| {
                // In a live fabric each switch of a turn stands for as many hops.
                let hops = usize::from(it.length);
                let steps = hops / turn.len().max(1);
                (steps == 1 || self.lost.is_some() && steps > 1)
                    && steps * turn.len() == hops
                    && nodes.as_ref().is_some_and(|nodes| nodes.is_subset(turn))
            };
            if !turns.iter().any(is_of) {
                return Some(format!("{it:?}, but packets went round by {turns:?}"));
            }
            let entered = self.entered.get(&it.flow);
            let entered = entered.and_then(|edge| self.counts.get(&it.flow)?.get(edge));
            if it.packets > entered.map(|[packets, _]| *packets) {
                return Some(format!("{it:?}, but {entered:?} packets and bytes entered"));
            }
        }
        None
    }

    /// Packets of a flow that routers lost between two switches, where wires were read.
    fn lost_between(&self, flow: &Flow, from: usize, to: usize) -> Option<i64> {
        self.lost.as_ref()?.get(flow)?.between(&self.routes, from, to)
    }

    /// Where no flow was disturbed: tables have room for another share of the flows.
    fn contradicts_optimum(&self, found: &Found) -> Option<String> {
        if !self.disturbed.is_empty() {
            return None;
        }
        let places = found.nodes.iter().map(|node| self.topology.position(&node.node));
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let mut ways: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for counts in self.counts.values() {
            let came = |place: &usize| counts.get(place).is_some_and(|[packets, _]| *packets > 0);
            let nodes = (0..places.len()).filter(|&node| came(&places[node]));
            *ways.entry(nodes.collect()).or_default() += 1;
        }
        optimum::contradicts(found, &ways)
    }

    /// Where no flow was disturbed: sums over all flows, as far as they are exact.
    fn contradicts_sums(&self, found: &Found) -> Option<String> {
        if !self.disturbed.is_empty() {
            return None;
        }
        let there = self.counts.len() as u64;
        if found.monitored > there
            || found.flows_total_error == Some(0.0) && found.monitored != there
        {
            return Some(format!("{} flows are monitored out of {there}", found.monitored));
        }
        for node in found.nodes.iter().filter(|node| node.sound) {
            let switch = self.topology.position(&node.node)?;
            let counts = self.counts.values().filter_map(|counts| counts.get(&switch));
            let came: u64 = counts.map(|[packets, _]| packets).sum();
            if node.packets != came {
                return Some(format!(
                    "{} recorded {} packets, {came} came",
                    node.node, node.packets
                ));
            }
            // Simulated switches have one lcore each: a flow is in the table or in the residual.
            if let Some(of_residual) = node.residual.as_ref().and_then(|of| of.flows) {
                // Of some, all packets were lost before they came there.
                let came = |counts: &&BTreeMap<usize, [u64; 2]>| {
                    counts.get(&switch).is_some_and(|[packets, _]| *packets > 0)
                };
                let flows = self.counts.values().filter(came).count();
                if node.used + of_residual != flows as u64 {
                    return Some(format!(
                        "{} has {} entries and {of_residual} flows beside them, {flows} came",
                        node.node, node.used
                    ));
                }
            }
        }
        let mut peers: [HashMap<IpAddr, HashSet<IpAddr>>; 2] = Default::default();
        for flow in self.counts.keys() {
            peers[0].entry(flow.src).or_default().insert(flow.dst);
            peers[1].entry(flow.dst).or_default().insert(flow.src);
        }
        for (spreads, peers) in [&found.superspreaders, &found.flooded].into_iter().zip(&peers) {
            for spread in spreads {
                let there = peers.get(&spread.address).map_or(0, |of| of.len() as u64);
                // The other bounds hold only 95 times out of 100.
                let is_more = found.flows_total_error == Some(0.0)
                    && spread.high.is_some_and(|high| there as f64 > high);
                if spread.seen > there || is_more {
                    return Some(format!("{spread:?}, but there were {there}"));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use calumma_chamelemon::{Hierarchy, Run};
    use calumma_sketch::WideKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::topology::{LinkQuality, Routes};
    use crate::workload::host_address;

    fn key() -> WideKey {
        WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17)
    }

    fn topology() -> Topology {
        Topology::load("leaf-spine:2x2", Path::new("."), LinkQuality::default()).unwrap()
    }

    /// Ten packets of a flow from e1 by s1 or s2 to e2, of which two are lost behind that.
    fn truth() -> (EpochTruth, String) {
        let way = Arc::new(Routes::new(&topology()).way(0, 1, 1).unwrap());
        let spine = topology().names()[way.switch(1)].clone();
        let mut flow = FlowTruth::new(key(), 0);
        (flow.packets, flow.losses) = (10, vec![(way.segment(3), 2)]);
        (0..2).for_each(|_| flow.lose(&Run::single(Hierarchy::NonSampledLl)));
        flow.way = Some(way);
        (EpochTruth { flows: vec![flow], ..EpochTruth::default() }, spine)
    }

    /// The same as wires and routers say it, where `passed` packets came to the spine and `lost`
    /// were lost behind it.
    fn from_wires(passed: u64, lost: u32) -> EpochTruth {
        let (mut truth, spine) = truth();
        let came = |packets, entered| Came { packets, bytes: 46 * packets, entered };
        let spine = topology().position(&spine).unwrap();
        let switches = [(0, came(10, 10)), (spine, came(passed, 0)), (1, came(8, 0))];
        truth.came = Some(AtSwitches::from([(key(), BTreeMap::from(switches))]));
        let flow = &mut truth.flows[0];
        (flow.packets, flow.way, flow.losses) = (lost, None, vec![(Segment::link(spine, 1), lost)]);
        truth
    }

    fn contradiction(hops: &[(&str, u64, bool)], at: &str, lost: u64) -> Option<String> {
        contradiction_to(&truth().0, hops, at, lost)
    }

    fn contradiction_to(
        truth: &EpochTruth,
        hops: &[(&str, u64, bool)],
        at: &str,
        lost: u64,
    ) -> Option<String> {
        let (_, spine) = self::truth();
        let named = |node: &str| if node == "s" { spine.clone() } else { node.to_owned() };
        let with_flow = |mut fields: Value| {
            let flow = serde_json::to_value(Flow::from(&key())).unwrap();
            let fields_of = fields.as_object_mut().unwrap();
            fields_of.extend(flow.as_object().unwrap().clone());
            fields
        };
        let hop = |&(node, packets, exact): &(&str, u64, bool)| {
            json!({ "node": named(node), "hop": 0, "packets": packets, "bytes": 46 * packets,
                "looped": 0, "exact": exact, "from": "table" })
        };
        let &(_, packets, exact) = hops.iter().find(|hop| hop.0 == at).unwrap();
        let count = with_flow(json!({ "packets": packets, "bytes": 46 * packets, "exact": exact,
            "at": named(at), "hops": hops.iter().map(hop).collect::<Vec<_>>() }));
        let place = json!({ "from": "e1:in", "to": "e2:in" });
        let losses: Vec<Value> =
            (0..lost.min(1)).map(|_| with_flow(json!({ "place": place, "lost": lost }))).collect();
        let report = json!({
            "system": "cfs", "epoch": 20, "start_unix_ns": 0, "length_ms": 1000, "complete": true,
            "missing_nodes": [], "incomplete_because": [], "window": 1, "flows_total": 1.0,
            "flows_total_error": 0.0, "monitored": 1, "monitored_exactly": 1, "coverage": 1.0,
            "coverage_low": 1.0, "coverage_high": 1.0, "nodes": [], "flows": [count],
            "thresholds": { "heavy_packets": 1, "heavy_change_packets": 1, "superspreader": 1,
                "coverage_wanted": 0.9 },
            "heavy_hitters": [], "heavy_changes": [], "superspreaders": [], "flooded": [],
            "size_distribution": null, "entropy": null, "losses": losses, "loops": [],
            "path_changes": [],
        });
        let report = Cfs.listed().read(&report.to_string()).expect("a report of cfs");
        assert_eq!(Cfs.reported(&*report).unwrap().counted, Some(1));
        Cfs.contradicts(&*report, truth, &topology())
    }

    #[test]
    fn every_count_is_held_against_what_came_to_its_node() {
        let right = [("e1", 10, true), ("s", 10, true), ("e2", 8, true)];
        assert_eq!(contradiction(&right, "e1", 2), None);
        assert_eq!(contradiction(&[("s", 7, false)], "s", 0), None);
        let wrong = |hops: &[(&str, u64, bool)], lost| contradiction(hops, "e1", lost).unwrap();
        let less = wrong(&[("e1", 9, true)], 0);
        assert!(less.ends_with(", 10 came") && less.starts_with("e1 counted exactly 9"), "{less}");
        let more = wrong(&[("e1", 10, true), ("e2", 9, false)], 0);
        assert!(more.starts_with("e2 counted at least 9"), "{more}");
        assert!(wrong(&right, 3).ends_with("but 10 came to the one and 8 to the other"));
    }

    #[test]
    fn flows_that_came_to_switches_more_often_than_they_entered_went_round() {
        let mut truth = from_wires(10, 2);
        let round = |truth: &EpochTruth| Passed::of(truth, &topology()).round;
        assert!(round(&truth).is_empty());
        let spines = ["s1", "s2"].map(|name| topology().position(name).unwrap());
        let came = Came { packets: 330, bytes: 330 * 46, entered: 0 };
        let switches = truth.came.as_mut().unwrap().get_mut(&key()).unwrap();
        switches.extend(spines.map(|at| (at, came)));
        assert_eq!(round(&truth), HashMap::from([(Flow::from(&key()), vec![spines.into()])]));
        let more = contradiction_to(&truth, &[("s", 330, false)], "s", 0).unwrap();
        assert!(more.ends_with("330 packets, 10 entered"), "{more}");
    }

    #[test]
    fn what_wires_say_is_held_against_counts_and_what_routers_lost_against_losses() {
        let right = [("e1", 10, true), ("s", 10, true), ("e2", 8, true)];
        let wires = from_wires(10, 2);
        assert_eq!(contradiction_to(&wires, &right, "e1", 2), None);
        assert_eq!(contradiction_to(&wires, &[("s", 10, true)], "s", 0), None);
        assert_eq!(contradiction_to(&wires, &[("e2", 8, true)], "e2", 0), None);
        assert_eq!(wires.senders(), 1);
        let wrong = |truth: &EpochTruth, hops: &[_], at| {
            contradiction_to(truth, hops, at, if hops.len() == 3 { 2 } else { 0 }).unwrap()
        };
        let less = wrong(&wires, &[("s", 9, true)], "s");
        assert!(less.contains("counted exactly 9") && less.ends_with(", 10 came"), "{less}");
        // Packets that went another way, and nothing was lost on either.
        let part = wrong(&from_wires(7, 0), &[("s", 7, true)], "s");
        assert!(part.ends_with("whole"), "{part}");
        let elsewhere = wrong(&from_wires(10, 1), &right, "e1");
        assert!(elsewhere.ends_with("but routers lost 1 there"), "{elsewhere}");
    }
}
