//! Scenarios in a simulated network.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use calumma_plane::system as plane;
use calumma_sketch::HashKey;
use serde_json::Value;

use super::{
    EdgeForwarding, EpochSummary, LiveCarrier, Network, Played, Scenario, SystemSummary, play_in,
};
use crate::simulate::{self, EpochTruth, Outcome, Simulation, SwitchClock};
use crate::system::{SYSTEMS, Systems, name, on_tofinos};
use crate::topology::Topology;
use crate::workload::{Draw, Traffic};

/// Plays a scenario in a simulation. Every epoch that ChameleMon reports is shown to `watch`, with
/// its summary, as it comes.
///
/// # Errors
/// When the scenario can't be played, or `watch` fails.
pub fn play(
    scenario: &Scenario,
    watch: impl FnMut(&Outcome, &EpochSummary) -> Result<()>,
) -> Result<Played> {
    play_with(calumma_edge::control::systems::SYSTEMS, SYSTEMS, scenario, watch)
}

/// The same where software switches can run the systems `on_switches`, and the controller can
/// analyse for `systems`.
///
/// # Errors
/// As [`play`].
pub fn play_with(
    on_switches: &'static [&'static dyn plane::System],
    systems: Systems,
    scenario: &Scenario,
    watch: impl FnMut(&Outcome, &EpochSummary) -> Result<()>,
) -> Result<Played> {
    ensure!(
        scenario.carrier == LiveCarrier::Tos
            && scenario.edges == EdgeForwarding::Pairs
            && scenario.mutants == 0,
        "carrier, edges, mutants: in live fabrics only"
    );
    let topology = scenario.topology()?;
    let clocks = SwitchClock::draw(
        scenario.seed,
        topology.edges().len() + topology.transits().count(),
        scenario.clocks.offset_us,
        scenario.clocks.drift_ppm,
    );
    let mut setup = scenario.setup()?;
    setup.systems = simulate::Systems {
        on_switches,
        on_tofinos: on_tofinos(systems),
        in_controller: systems.iter().map(|system| system.listed()).collect(),
        ..setup.systems
    };
    let mut simulated = Simulated {
        simulation: Simulation::new(setup, topology.clone(), clocks)?,
        systems,
        topology,
        reported: Vec::new(),
    };
    play_in(&mut simulated, scenario, watch)
}

/// Parameters of systems by name, as the controller takes them.
///
/// # Errors
/// When one is no JSON, as not a number.
pub(super) fn sections(of: &BTreeMap<String, toml::Table>) -> Result<BTreeMap<String, Value>> {
    let section = |(name, table): (&String, &toml::Table)| {
        let section = serde_json::to_value(table).with_context(|| format!("system.{name}"))?;
        Ok((name.clone(), section))
    };
    of.iter().map(section).collect()
}

/// A simulated network, and what systems have reported there.
struct Simulated {
    simulation: Simulation,
    /// Those that are known.
    systems: Systems,
    topology: Topology,
    reported: Vec<SystemSummary>,
}

impl Simulated {
    /// Holds what systems have reported against what happened.
    fn hold_systems(&mut self) {
        for outcome in self.simulation.take_reports() {
            let report = &*outcome.report;
            let mut systems = self.systems.iter().copied();
            let Some(system) = systems.find(|system| name(*system) == report.system()) else {
                continue;
            };
            let Some(said) = system.said(report) else { continue };
            let epochs = outcome.epoch..outcome.epoch + outcome.truth.len() as u64;
            let flows = outcome.truth.into_iter().flat_map(|epoch| epoch.flows).collect();
            let truth = EpochTruth { flows, ..EpochTruth::default() };
            let wrong = system.contradicts(report, &truth, &self.topology);
            let summary = SystemSummary::new(name(system), epochs, &said, &truth, wrong);
            self.reported.push(summary);
        }
    }
}

impl Network for Simulated {
    fn set_traffic(&mut self, kinds: Vec<Traffic>) -> Result<()> {
        self.simulation.set_traffic(kinds)
    }

    fn set_links(&mut self, topology: &Topology) -> Result<()> {
        self.topology = topology.clone();
        self.simulation.set_links(topology)
    }

    fn set_clock(&mut self, edge: usize, offset_ns: Option<f64>, drift: Option<f64>) -> Result<()> {
        self.simulation.set_clock(edge, offset_ns, drift);
        Ok(())
    }

    fn restart(&mut self, edge: usize) -> Result<()> {
        self.simulation.restart(edge);
        Ok(())
    }

    fn set_systems(&mut self, systems: &[String]) -> Result<()> {
        let names: Vec<&str> = systems.iter().map(String::as_str).collect();
        self.simulation.switch(&names).map(drop).context("systems")
    }

    fn rotate_key(&mut self) -> Result<()> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&Draw::new(self.simulation.passed()).bits().to_le_bytes());
        let rotated = self.simulation.rotate_key(HashKey::from_bytes(key))?;
        rotated.map(drop).context("rotate_key: it was changed a moment ago, or nobody is there")
    }

    fn set_controller(&mut self, runs: bool) -> Result<()> {
        self.simulation.set_controller(runs)
    }

    fn run_epoch(&mut self) -> Result<Vec<Outcome>> {
        let outcomes = self.simulation.run_epoch()?;
        self.hold_systems();
        Ok(outcomes)
    }

    fn finish(&mut self) -> Result<Vec<Outcome>> {
        let last = self.simulation.passed();
        let outcomes = self.simulation.finish()?;
        self.hold_systems();
        self.reported.retain(|summary| summary.epoch < last);
        Ok(outcomes)
    }

    fn of_systems(&self) -> &[SystemSummary] {
        &self.reported
    }
}
