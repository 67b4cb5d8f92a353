//! Measurement systems as the testbed knows them: what their reports say was lost stands beside
//! what really was.
//!
//! [`SYSTEMS`] are the product's. Whoever tries another one gives a list of their own, as to the
//! switch and to the controller.

mod cfs;
mod sketchint;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use calumma_analysis::{EpochHead, Flow, Report};
use calumma_cfs_analysis::Cfs;
use calumma_chamelemon_analysis::ChameleMon;
use calumma_controller::report::EpochReport;
use calumma_sketchint_analysis::SketchInt;

use crate::simulate::EpochTruth;
use crate::topology::Topology;

/// Every system of the product. One is added by adding it here.
pub static SYSTEMS: &[&dyn System] = &[&ChameleMon, &SketchInt, &Cfs];

/// A list of systems.
pub type Systems = &'static [&'static dyn System];

/// What the testbed asks of a system.
pub trait System: Debug + Sync {
    /// The same system in the controller's list: its name, and how its reports are read.
    fn listed(&self) -> &'static dyn calumma_analysis::System;

    /// The same system in the list of switches that are Tofinos; none where it has no P4 program.
    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        None
    }

    /// What one of its reports says; `None` for a report of another system.
    fn reported(&self, report: &dyn Report) -> Option<Reported>;

    /// Whether its reports say what came to each switch, so that a live fabric has to log every
    /// packet on the wires next to switches.
    fn reads_wires(&self) -> bool {
        false
    }

    /// Switches that one of its reports names for inflated latencies, in order; none where it looks
    /// for no such thing.
    fn inflated(&self, report: &dyn Report) -> Option<Vec<String>> {
        let _ = report;
        None
    }

    /// The links on which one of its reports says that packets were longer than on the fastest one,
    /// by more than bounds leave open, in order, the sender first. None where it does not say how
    /// long they were on all.
    fn slow_links(&self, report: &dyn Report) -> Option<Vec<[String; 2]>> {
        let _ = report;
        None
    }

    /// What one of its reports says that is not so, on an epoch in which `truth` happened. Where
    /// packets were lost is for systems to look at that say where.
    fn contradicts(
        &self,
        report: &dyn Report,
        truth: &EpochTruth,
        topology: &Topology,
    ) -> Option<String> {
        let _ = topology;
        self.reported(report)?.contradicts(truth)
    }
}

/// What a report says that can be held against what happened in its epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// The epoch.
    pub head: EpochHead,
    /// Whether the report claims to be whole.
    pub complete: bool,
    /// Why it does not.
    pub incomplete_because: Vec<String>,
    /// Whether besides it claims that `lost` is right for every flow.
    pub exact: bool,
    /// Packets that entered the network and did not leave it, by flow; negative where more left
    /// than entered. Flows of which all packets left are not listed.
    pub lost: BTreeMap<Flow, i64>,
    /// Flows of which it has an exact count, where it has counts of flows.
    pub counted: Option<u64>,
    /// The share of all flows that it says tables have room for, where it says any.
    pub optimum: Option<f64>,
    /// Flows that it says are certainly in a loop, where it looks for any.
    pub looped: Option<BTreeSet<Flow>>,
    /// Places where it says that nothing goes on, where it looks for any.
    pub black_holes: Option<u64>,
    /// Sources that it says send to very many destinations, where it looks for any.
    pub superspreaders: Option<u64>,
    /// What else it says, on one line.
    pub line: String,
}

impl Reported {
    /// What is wrong with it; nothing where it claims nothing that is not so.
    pub fn contradicts(&self, truth: &EpochTruth) -> Option<String> {
        if !self.exact {
            return None;
        }
        let mut lost: BTreeMap<Flow, i64> = BTreeMap::new();
        for flow in &truth.flows {
            let packets = i64::from(flow.lost) - i64::from(flow.doubled);
            *lost.entry(Flow::from(&flow.key)).or_default() += packets;
        }
        let of = |from: &BTreeMap<Flow, i64>, flow| from.get(flow).copied().unwrap_or_default();
        let mut flows = self.lost.keys().chain(lost.keys());
        let flow = flows.find(|flow| of(&self.lost, flow) != of(&lost, flow))?;
        let (reported, lost) = (of(&self.lost, flow), of(&lost, flow));
        Some(format!("{flow} is reported to have lost {reported} packets, but it lost {lost}"))
    }

    /// All of it on one line.
    pub fn to_line(&self) -> String {
        let lost: i64 = self.lost.values().filter(|packets| **packets > 0).sum();
        let victims = self.lost.values().filter(|packets| **packets > 0).count();
        let epoch = self.head.epoch;
        let mut line =
            format!("epoch {epoch}  {}  {lost:>5} lost of {victims:>3} flows", self.line);
        if let Some((flow, packets)) = self.lost.iter().max_by_key(|(_, packets)| **packets) {
            let (src, dst) =
                (SocketAddr::new(flow.src, flow.sport), SocketAddr::new(flow.dst, flow.dport));
            line += &format!("  most: {src} > {dst} {packets}");
        }
        if !self.complete {
            line += &format!("  INCOMPLETE: {}", self.incomplete_because.join("; "));
        }
        line
    }
}

/// Checks that these systems are among those that are known.
///
/// # Errors
/// When one is not.
pub fn check(systems: Systems, wanted: &[String]) -> Result<()> {
    wanted.iter().try_for_each(|name| find(systems, name).map(drop)).context("systems")
}

/// Those of the systems that have a P4 program, as Tofinos run them.
pub fn on_tofinos(systems: Systems) -> Vec<&'static dyn calumma_switchd::system::System> {
    systems.iter().filter_map(|system| system.on_tofino()).collect()
}

/// The name of a system.
pub fn name(system: &dyn System) -> &'static str {
    system.listed().name()
}

/// The system called `wanted`.
///
/// # Errors
/// When there is none: the names of those that there are.
pub fn find(systems: Systems, wanted: &str) -> Result<&'static dyn System> {
    let found = systems.iter().copied().find(|system| name(*system) == wanted);
    found.with_context(|| {
        let known: Vec<&str> = systems.iter().map(|system| name(*system)).collect();
        format!("no system is called {wanted:?}; known are {}", known.join(", "))
    })
}

impl System for ChameleMon {
    fn listed(&self) -> &'static dyn calumma_analysis::System {
        &ChameleMon
    }

    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        Some(&calumma_switchd::chamelemon::ChameleMon)
    }

    fn reported(&self, report: &dyn Report) -> Option<Reported> {
        let report = report.as_type::<EpochReport>()?;
        let packets: u64 = report.edges.iter().filter_map(|edge| edge.packets_in).sum();
        let flows: f64 = report.edges.iter().filter_map(|edge| edge.cardinality).sum();
        let hitters: usize = report.edges.iter().map(|edge| edge.heavy_hitters.len()).sum();
        let mut lost: BTreeMap<Flow, i64> = BTreeMap::new();
        for loss in &report.loss {
            *lost.entry(loss.flow).or_default() += loss.lost as i64;
        }
        for surplus in &report.surplus {
            *lost.entry(surplus.flow).or_default() -= surplus.packets as i64;
        }
        Some(Reported {
            head: report.head(),
            complete: report.complete,
            incomplete_because: report.incomplete_because.clone(),
            // What was sampled away is in no report. Balances are right where packets were doubled.
            exact: report.losses_are_decoded()
                && report.config.sample_rate == 1.0
                && report.rewritten.is_empty(),
            lost,
            counted: None,
            optimum: None,
            looped: None,
            black_holes: None,
            superspreaders: None,
            line: format!("{packets:>7} packets  {flows:>6.0} flows  {hitters:>3} heavy hitters"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::FlowTruth;
    use crate::workload::host_address;
    use calumma_chamelemon::{Hierarchy, Run};
    use calumma_sketch::WideKey;

    #[test]
    fn a_report_is_held_against_every_flow_that_lost_or_doubled_packets() {
        let key = |port| WideKey::v4(host_address(0, 0), host_address(1, 0), port, 53, 17);
        let flow = |port| Flow::from(&key(port));
        let mut truth = EpochTruth::default();
        for (port, lost, doubled) in [(1, 3, 0), (2, 0, 2), (3, 1, 1)] {
            let mut of_flow = FlowTruth::new(key(port), 0);
            (0..lost).for_each(|_| of_flow.lose(&Run::single(Hierarchy::NonSampledLl)));
            (0..doubled).for_each(|_| of_flow.double(&Run::single(Hierarchy::NonSampledLl)));
            truth.flows.push(of_flow);
        }
        let head = EpochHead { epoch: 7, start_unix_ns: 0, length_ms: 50 };
        let lost = BTreeMap::from([(flow(1), 3), (flow(2), -2)]);
        let right = Reported {
            head,
            complete: true,
            incomplete_because: Vec::new(),
            exact: true,
            lost,
            counted: None,
            optimum: None,
            looped: None,
            black_holes: None,
            superspreaders: None,
            line: String::new(),
        };
        assert_eq!(right.contradicts(&truth), None);
        let mut wrong = right.clone();
        wrong.lost.remove(&flow(1));
        assert!(wrong.contradicts(&truth).unwrap().ends_with("lost 0 packets, but it lost 3"));
        wrong.exact = false;
        assert_eq!(wrong.contradicts(&truth), None);
        let mut made_up = right;
        made_up.lost.insert(flow(4), 1);
        assert!(made_up.contradicts(&truth).unwrap().ends_with("lost 1 packets, but it lost 0"));
    }

    #[test]
    fn a_system_that_is_not_known_is_refused_with_those_that_are() {
        assert_eq!(name(find(SYSTEMS, "chamelemon").unwrap()), "chamelemon");
        let refused = find(SYSTEMS, "hopps").unwrap_err().to_string();
        assert_eq!(refused, "no system is called \"hopps\"; known are chamelemon, sketchint, cfs");
    }
}
