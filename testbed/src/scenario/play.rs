//! Playing a scenario.

use anyhow::Result;
use serde::Serialize;

use super::{EpochSummary, Scenario, Verdict, change};
use crate::simulate::{Outcome, Simulation, SwitchClock};

/// A scenario that has been played.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// The seed.
    pub seed: u64,
    /// What became of each expectation.
    pub verdicts: Vec<Verdict>,
    /// Every epoch that was reported.
    pub epochs: Vec<EpochSummary>,
}

impl Played {
    /// Whether every expectation held and no report was wrong.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds) && self.contradictions().next().is_none()
    }

    /// Reports that claim to be certain and are not: the epoch, and what is wrong.
    pub fn contradictions(&self) -> impl Iterator<Item = (u64, &str)> {
        self.epochs.iter().filter_map(|epoch| Some((epoch.epoch, epoch.contradiction.as_deref()?)))
    }
}

/// Plays a scenario. Every reported epoch is shown to `watch`, with its summary, as it comes.
///
/// # Errors
/// When the scenario can't be played, or `watch` fails.
pub fn play(
    scenario: &Scenario,
    mut watch: impl FnMut(&Outcome, &EpochSummary) -> Result<()>,
) -> Result<Played> {
    let topology = scenario.topology()?;
    let clocks = SwitchClock::draw(
        scenario.seed,
        topology.edges().len(),
        scenario.clocks.offset_us,
        scenario.clocks.drift_ppm,
    );
    let mut simulation = Simulation::new(scenario.setup()?, topology.clone(), clocks)?;
    let mut traffic = scenario.traffic.clone();
    simulation.set_traffic(change::kinds(&traffic)?)?;

    let mut epochs = Vec::new();
    let mut take = |outcomes: Vec<Outcome>| {
        outcomes.into_iter().try_for_each(|outcome| {
            let summary = EpochSummary::new(&outcome);
            watch(&outcome, &summary)?;
            epochs.push(summary);
            anyhow::Ok(())
        })
    };
    for epoch in 0..scenario.epochs {
        for change in scenario.change.iter().filter(|change| change.at == epoch) {
            change.apply(&mut simulation, &topology, &mut traffic)?;
        }
        take(simulation.run_epoch()?)?;
    }
    take(simulation.finish()?)?;
    let verdicts = scenario.expect.iter().map(|expected| expected.judge(&epochs)).collect();
    Ok(Played { seed: scenario.seed, verdicts, epochs })
}
