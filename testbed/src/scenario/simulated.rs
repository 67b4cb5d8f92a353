//! Scenarios in a simulated network.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use calumma_analysis::{Flow, Report, SystemReport};
use calumma_plane::system as plane;
use calumma_sketch::HashKey;
use calumma_sketchint_analysis::report::Found;
use calumma_sketchint_analysis::suspects::Suspects;
use serde_json::Value;

use super::{EdgeForwarding, EpochSummary, Network, Played, Scenario, SystemSummary, play_in};
use crate::simulate::{self, EpochTruth, Outcome, Simulation, SwitchClock, SwitchQuality};
use crate::system::{SYSTEMS, Systems, name, on_tofinos};
use crate::topology::{Place, Point, Topology};
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
        scenario.edges == EdgeForwarding::Pairs && scenario.mutants == 0,
        "edges, mutants: in live fabrics only"
    );
    let topology = scenario.topology()?;
    let clocks = SwitchClock::draw(
        scenario.seed,
        topology.sinks() + topology.transits().count(),
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
        victims: BTreeMap::new(),
        voting: Vec::new(),
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
    /// Flows that ChameleMon says lost packets, and how many, by epoch.
    victims: BTreeMap<u64, Vec<(Flow, u64)>>,
    /// Reports by which such flows vote for links: each with the number of its summary, its epochs,
    /// and the links that lost most.
    voting: Vec<Voting>,
}

/// Fewest victims whose votes are looked at.
const ENOUGH_VICTIMS: u64 = 20;

/// A report by which flows that lost packets vote for links.
struct Voting {
    /// The position of its summary.
    at: usize,
    epochs: Range<u64>,
    report: Arc<dyn Report>,
    /// The link that lost most packets, either way.
    worst: Option<[usize; 2]>,
}

/// The link that lost most packets, by the switches at its ends.
fn worst_link(truth: &EpochTruth) -> Option<[usize; 2]> {
    let mut lost: BTreeMap<[usize; 2], u64> = BTreeMap::new();
    for (segment, packets) in truth.losses() {
        if let (Point::Out(from), Point::In(to)) = (segment.from, segment.to) {
            *lost.entry([from.min(to), from.max(to)]).or_default() += packets;
        }
    }
    lost.into_iter().max_by_key(|(_, packets)| *packets).map(|(link, _)| link)
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
            let Some(reported) = system.reported(report) else { continue };
            let epochs = outcome.epoch..outcome.epoch + outcome.truth.len() as u64;
            let flows = outcome.truth.into_iter().flat_map(|epoch| epoch.flows).collect();
            let truth = EpochTruth { flows, ..EpochTruth::default() };
            let wrong = system.contradicts(report, &truth, &self.topology);
            let summary =
                SystemSummary::new(name(system), epochs.clone(), &reported, &truth, wrong);
            let inflated = system.inflated(report);
            if inflated.is_some() {
                let (at, worst) = (self.reported.len(), worst_link(&truth));
                let report = outcome.report.clone();
                self.voting.push(Voting { at, epochs, report, worst });
            }
            let slow_links = system.slow_links(report);
            self.reported.push(SystemSummary { inflated, slow_links, ..summary });
        }
    }
}

impl Simulated {
    /// Remembers which flows ChameleMon says lost packets.
    fn hold_victims(&mut self, outcomes: &[Outcome]) {
        for Outcome { report, .. } in outcomes {
            let lost = report.loss.iter().map(|loss| (loss.flow, loss.lost));
            self.victims.insert(report.epoch, lost.collect());
        }
    }

    /// Lets victims vote, once all has been reported.
    fn vote(&mut self) {
        for Voting { at, epochs, report, worst } in &self.voting {
            let Some(report) = report.as_type::<SystemReport<Found>>() else { continue };
            let mut lost: BTreeMap<Flow, u64> = BTreeMap::new();
            for (flow, packets) in self.victims.range(epochs.clone()).flat_map(|(_, of)| of) {
                *lost.entry(*flow).or_default() += packets;
            }
            let lost: Vec<(Flow, u64)> = lost.into_iter().collect();
            let votes = Suspects::of(&report.findings, &lost);
            let names = self.topology.names();
            let (Some([a, b]), true) = (*worst, votes.placed >= ENOUGH_VICTIMS) else { continue };
            let is_worst = |place: &Place| {
                let link = |from: usize, to: usize| {
                    place.from == format!("{}:out", names[from])
                        && place.to == format!("{}:in", names[to])
                };
                link(a, b) || link(b, a)
            };
            let first = votes.suspects.first().is_some_and(|first| is_worst(&first.place));
            self.reported[*at].suspected = Some(first);
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

    fn set_switches(&mut self, switches: Vec<SwitchQuality>) -> Result<()> {
        self.simulation.set_switches(switches);
        Ok(())
    }

    fn set_clock(&mut self, edge: usize, offset_ns: Option<f64>, drift: Option<f64>) -> Result<()> {
        self.simulation.set_clock(edge, offset_ns, drift);
        Ok(())
    }

    fn restart(&mut self, edge: usize) -> Result<()> {
        self.simulation.restart(edge);
        Ok(())
    }

    fn restart_sink(&mut self, sink: usize) -> Result<()> {
        let before = self.topology.edges().len() + self.topology.transits().count();
        self.simulation.restart(before + sink);
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
        self.hold_victims(&outcomes);
        self.hold_systems();
        Ok(outcomes)
    }

    fn finish(&mut self) -> Result<Vec<Outcome>> {
        let last = self.simulation.passed();
        let outcomes = self.simulation.finish()?;
        self.hold_victims(&outcomes);
        self.hold_systems();
        self.vote();
        self.reported.retain(|summary| summary.epoch < last);
        Ok(outcomes)
    }

    fn of_systems(&self) -> &[SystemSummary] {
        &self.reported
    }
}
