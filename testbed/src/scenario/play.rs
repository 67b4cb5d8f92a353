//! Playing a scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::{
    EpochSummary, Expectation, Program, Scenario, Stacks, SystemSummary, Usage, Verdict, change,
};
use crate::simulate::{Outcome, SwitchQuality};
use crate::topology::Topology;
use crate::workload::Traffic;

/// A scenario that has been played.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// The seed.
    pub seed: u64,
    /// What became of each expectation.
    pub verdicts: Vec<Verdict>,
    /// Every epoch that was reported.
    pub epochs: Vec<EpochSummary>,
    /// Every report of a system other than ChameleMon.
    pub systems: Vec<SystemSummary>,
    /// What happened besides, so that the truth may not be all of it; nothing in a simulation.
    pub doubts: Vec<String>,
    /// What programs held meanwhile; nothing in a simulation.
    pub usage: Vec<Usage>,
    /// How often programs were killed or stopped, by program and which of the two.
    pub troubles: BTreeMap<String, u64>,
    /// What became of INT stacks; none in a simulation, or where there were none.
    pub stacks: Option<Stacks>,
}

impl Played {
    /// Whether every expectation held, no report was wrong, and no program grew and grew.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
            && self.contradictions().next().is_none()
            && self.growths().next().is_none()
    }

    /// How often programs were killed or stopped, in words; none where none was.
    pub fn troubled(&self) -> Option<String> {
        let times = |(what, times): (&String, &u64)| format!("{what}: {times}");
        let all: Vec<String> = self.troubles.iter().map(times).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Programs whose memory or descriptors have grown beyond their bound, in words.
    pub fn growths(&self) -> impl Iterator<Item = String> {
        self.usage.iter().filter_map(Usage::growth)
    }

    /// Reports that claim to be certain and are not: the epoch, and what is wrong.
    pub fn contradictions(&self) -> impl Iterator<Item = (u64, &str)> {
        let of_chamelemon = self.epochs.iter().map(|of| (of.epoch, &of.contradiction));
        let of_others = self.systems.iter().map(|of| (of.epoch, &of.contradiction));
        let all = of_chamelemon.chain(of_others);
        all.filter_map(|(epoch, contradiction)| Some((epoch, contradiction.as_deref()?)))
    }
}

/// A network that a scenario is played in.
pub trait Network {
    /// Lets other traffic flow from now on.
    ///
    /// # Errors
    /// When it can't flow there.
    fn set_traffic(&mut self, kinds: Vec<Traffic>) -> Result<()>;

    /// Gives the links the qualities that `topology`, the same otherwise, has now.
    ///
    /// # Errors
    /// When links can't be so.
    fn set_links(&mut self, topology: &Topology) -> Result<()>;

    /// What switches do to packets from now on, by position.
    ///
    /// # Errors
    /// Where they are real ones, of which nobody says what they do.
    fn set_switches(&mut self, switches: Vec<SwitchQuality>) -> Result<()> {
        let _ = switches;
        bail!("switches: only simulated ones can be set")
    }

    /// Sets an edge's clock: by how many nanoseconds it is ahead, and by how many it gains in one.
    ///
    /// # Errors
    /// When it can't be set.
    fn set_clock(&mut self, edge: usize, offset_ns: Option<f64>, drift: Option<f64>) -> Result<()>;

    /// Starts an edge anew: it loses what it measured.
    ///
    /// # Errors
    /// When it does not come up.
    fn restart(&mut self, edge: usize) -> Result<()>;

    /// Starts a host's own sink anew, by its number.
    ///
    /// # Errors
    /// Where these are real ones.
    fn restart_sink(&mut self, sink: usize) -> Result<()> {
        let _ = sink;
        bail!("restart: of hosts' sinks only simulated ones")
    }

    /// Lets a program's process stand still for some time.
    ///
    /// # Errors
    /// When there is no such process.
    fn freeze(&mut self, program: Program, time: Duration) -> Result<()> {
        let _ = (program, time);
        bail!("freeze: in live fabrics only")
    }

    /// Kills a program's process, and starts it anew.
    ///
    /// # Errors
    /// When there is no such process, or it does not come up.
    fn kill(&mut self, program: Program) -> Result<()> {
        let _ = program;
        bail!("kill: in live fabrics only")
    }

    /// Lets exactly these measurement systems run from an epoch on that is soon.
    ///
    /// # Errors
    /// When one can't run there.
    fn set_systems(&mut self, systems: &[String]) -> Result<()>;

    /// Has the controller change the hash key, from an epoch on that is soon.
    ///
    /// # Errors
    /// When it does not.
    fn rotate_key(&mut self) -> Result<()>;

    /// Stops the controller, or starts one that knows nothing of the one before.
    ///
    /// # Errors
    /// When it does not come up.
    fn set_controller(&mut self, runs: bool) -> Result<()>;

    /// Lets an epoch pass, and gives what was reported meanwhile: in the order of epochs, which
    /// count from 0.
    ///
    /// # Errors
    /// When the network breaks down.
    fn run_epoch(&mut self) -> Result<Vec<Outcome>>;

    /// Lets time pass without traffic until every epoch so far has been reported.
    ///
    /// # Errors
    /// When the network breaks down, or did not do what it was told.
    fn finish(&mut self) -> Result<Vec<Outcome>>;

    /// What systems other than ChameleMon have reported, once all is finished.
    fn of_systems(&self) -> &[SystemSummary] {
        &[]
    }

    /// What happened to packets that the truth does not know of, in words, once all is finished.
    fn doubts(&self) -> &[String] {
        &[]
    }

    /// What its programs have held so far, where there are any.
    fn usage(&self) -> &[Usage] {
        &[]
    }

    /// What became of INT stacks, once all is finished, where captures know of them.
    fn stacks(&self) -> Option<Stacks> {
        None
    }
}

/// Plays a scenario in `network`, which is the scenario's before anything has changed.
///
/// # Errors
/// When the scenario can't be played there, or `watch` fails.
pub fn play_in(
    network: &mut impl Network,
    scenario: &Scenario,
    mut watch: impl FnMut(&Outcome, &EpochSummary) -> Result<()>,
) -> Result<Played> {
    let mut topology = scenario.topology()?;
    let mut traffic = scenario.traffic.clone();
    network.set_traffic(change::kinds(&traffic)?)?;

    let (mut epochs, mut amendments): (Vec<EpochSummary>, Vec<_>) = Default::default();
    let mut take = |outcomes: Vec<Outcome>| {
        outcomes.into_iter().try_for_each(|outcome| {
            let summary = EpochSummary::new(&outcome);
            watch(&outcome, &summary)?;
            amendments.extend(outcome.report.amendments);
            epochs.push(summary);
            anyhow::Ok(())
        })
    };
    let mut troubles = BTreeMap::new();
    for epoch in 0..scenario.epochs {
        for change in scenario.change.iter().filter(|change| change.at == epoch) {
            change.apply(network, &mut topology, &mut traffic)?;
            for trouble in change.troubles(&topology) {
                *troubles.entry(trouble).or_default() += 1;
            }
        }
        take(network.run_epoch()?)?;
    }
    take(network.finish()?)?;
    for amendment in &amendments {
        let mut amended = epochs.iter_mut().filter(|epoch| epoch.epoch == amendment.epoch);
        amended.by_ref().for_each(|epoch| epoch.amend(amendment));
    }
    let systems = network.of_systems().to_vec();
    let judge = |expected: &Expectation| expected.judge(&epochs, &systems);
    let verdicts = scenario.expect.iter().map(judge).collect();
    let (doubts, usage) = (network.doubts().to_vec(), network.usage().to_vec());
    let (seed, stacks) = (scenario.seed, network.stacks());
    Ok(Played { seed, verdicts, epochs, systems, doubts, usage, troubles, stacks })
}
