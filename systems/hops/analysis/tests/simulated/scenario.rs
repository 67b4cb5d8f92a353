//! The scenario of live fabrics that switches systems on and off, in a simulation.

use std::collections::BTreeMap;
use std::path::Path;

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_chamelemon_analysis::ChameleMon;
use calumma_hops_analysis::{Found, Hops};
use calumma_testbed::scenario::{Scenario, play_with};
use calumma_testbed::simulate::EpochTruth;
use calumma_testbed::system::{Reported, System, Systems};
use calumma_testbed::topology::Topology;

use crate::{ON_SWITCHES, counts_of, passed};

static SYSTEMS: Systems = &[&ChameleMon, &HeldHops];

/// `hops`, whose reports are held against what passed each node.
#[derive(Debug)]
struct HeldHops;

impl System for HeldHops {
    fn listed(&self) -> &'static dyn calumma_analysis::System {
        &Hops
    }

    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        Some(&calumma_hops_tofino::Hops::ON_TRANSITS)
    }

    fn reported(&self, report: &dyn Report) -> Option<Reported> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let mut lost: BTreeMap<Flow, i64> = BTreeMap::new();
        for ((_, side, flow), [packets, _]) in counts_of(report) {
            match side.as_str() {
                "ingress" => *lost.entry(flow).or_default() += packets as i64,
                "egress" => *lost.entry(flow).or_default() -= packets as i64,
                _ => {}
            }
        }
        lost.retain(|_, packets| *packets != 0);
        Some(Reported {
            head: report.head,
            complete: report.complete,
            incomplete_because: report.incomplete_because.clone(),
            exact: report.complete,
            lost,
            counted: None,
            optimum: None,
            looped: None,
            black_holes: None,
            superspreaders: None,
            line: String::new(),
        })
    }

    fn contradicts(
        &self,
        report: &dyn Report,
        truth: &EpochTruth,
        topology: &Topology,
    ) -> Option<String> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let (reported, is) = (counts_of(report), passed(topology, std::slice::from_ref(truth)));
        (report.complete && reported != is).then(|| format!("{reported:?} counted, {is:?} passed"))
    }
}

/// Plays a scenario of live fabrics in a simulation; gives how many reports of hops are exact on
/// epochs in which packets were lost.
fn played(name: &str) -> usize {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testbed/scenarios/live/systems");
    let scenario = Scenario::load(&folder.join(name)).unwrap();
    let played = play_with(ON_SWITCHES, SYSTEMS, &scenario, |_, _| Ok(())).unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for verdict in &played.verdicts {
        assert!(verdict.holds, "{verdict:?}");
    }
    played.systems.iter().filter(|of| of.exact && of.lost > 0).count()
}

#[test]
fn the_live_scenario_that_switches_systems_holds_in_a_simulation() {
    assert!(played("switching.toml") > 100);
}

#[test]
fn the_live_scenario_with_a_tofino_between_edges_holds_in_a_simulation() {
    assert!(played("hardware-spine.toml") > 10);
}
