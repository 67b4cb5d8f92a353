//! What reports are expected to say, and whether they do.

use anyhow::{Result, ensure};
use calumma_controller::report::NetworkState;
use serde::{Deserialize, Serialize};

use super::summary::{EpochSummary, SystemSummary};

/// What every report of some epochs is expected to say. All that is given must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The expectation in words.
    pub says: String,
    /// The first of the epochs, and the one after the last.
    epochs: [u64; 2],
    /// Share of these epochs in which it must hold.
    #[serde(default = "all")]
    share: f64,
    /// The system whose reports it is about, where that is not ChameleMon.
    system: Option<String>,
    /// Whether there is a report at all.
    #[serde(default = "yes")]
    reported: bool,
    complete: Option<bool>,
    decoded: Option<bool>,
    state: Option<NetworkState>,
    /// Edges that are missing, exactly these.
    missing: Option<Vec<String>>,
    /// Words that one of the reasons of an incomplete report has.
    because: Option<String>,
    /// Bounds of the packets lost that the report can't know of.
    hidden: Option<[u64; 2]>,
    /// Bounds of the number of victim flows reported.
    victims: Option<[usize; 2]>,
    /// Bounds of the share of all lost packets that are reported.
    seen: Option<[f64; 2]>,
    /// Bounds of the share of all flows that have an exact count.
    coverage: Option<[f64; 2]>,
    /// Bounds of that share by the one that the report says tables have room for.
    coverage_over_optimum: Option<[f64; 2]>,
    /// Bounds of the share of the flows that go round that a system says are certainly in a loop;
    /// some must.
    loops: Option<[f64; 2]>,
    /// Bounds of the number of places where a system says that nothing goes on.
    black_holes: Option<[u64; 2]>,
    /// Bounds of the number of sources of which a system says that they send to very many
    /// destinations.
    superspreaders: Option<[u64; 2]>,
    /// Switches that a system names for inflated latencies, exactly these.
    inflated: Option<Vec<String>>,
    /// The links on which packets were longer than on the fastest one, by more than bounds leave
    /// open, exactly these: the two switches of each, the sender first, in order.
    slow_links: Option<Vec<[String; 2]>>,
    /// Whether the link that lost most is first among those that victims voted for, where there are
    /// enough.
    suspected: Option<bool>,
    /// Bounds of the number of flows reported with packets too many.
    surpluses: Option<[usize; 2]>,
    t_h: Option<[u32; 2]>,
    t_l: Option<[u32; 2]>,
    /// Bounds of the buckets an array of the HL encoder.
    hl_buckets: Option<[u32; 2]>,
    /// Bounds of the largest number of heavy hitters at an edge.
    heavy_hitters: Option<[usize; 2]>,
    /// Bounds of the largest number of heavy changes at an edge.
    heavy_changes: Option<[usize; 2]>,
    /// Bounds of the load factor of the fullest HH encoder.
    hh_load: Option<[f64; 2]>,
}

fn all() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// What became of an expectation.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The expectation in words.
    pub says: String,
    /// Whether it held.
    pub holds: bool,
    /// Epochs in which it held.
    pub epochs: usize,
    /// Epochs that it is about.
    pub of: usize,
    /// The first epoch in which it did not hold, and what failed.
    pub first_failure: Option<(u64, &'static str)>,
}

fn within<T: PartialOrd>(bounds: &Option<[T; 2]>, value: Option<T>) -> bool {
    let Some([low, high]) = bounds else { return true };
    value.is_some_and(|value| value >= *low && value <= *high)
}

impl Expectation {
    pub(super) fn check(&self, epochs: u64) -> Result<()> {
        let [from, to] = self.epochs;
        ensure!(from < to && to <= epochs, "epochs = [{from}, {to}]: within 0 to {epochs}");
        ensure!((0.0..=1.0).contains(&self.share), "share = {}: from 0 to 1", self.share);
        let conditions = [
            self.complete.is_some(),
            self.decoded.is_some(),
            self.state.is_some(),
            self.missing.is_some(),
            self.because.is_some(),
            self.hidden.is_some(),
            self.victims.is_some(),
            self.seen.is_some(),
            self.coverage.is_some(),
            self.coverage_over_optimum.is_some(),
            self.loops.is_some(),
            self.black_holes.is_some(),
            self.superspreaders.is_some(),
            self.inflated.is_some(),
            self.slow_links.is_some(),
            self.suspected.is_some(),
            self.surpluses.is_some(),
            self.t_h.is_some(),
            self.t_l.is_some(),
            self.hl_buckets.is_some(),
            self.heavy_hitters.is_some(),
            self.heavy_changes.is_some(),
            self.hh_load.is_some(),
        ];
        let any = conditions.contains(&true);
        // Of these, what reports say is known to any system.
        let general = [
            self.complete.is_some(),
            self.decoded.is_some(),
            self.because.is_some(),
            self.seen.is_some(),
            self.coverage.is_some(),
            self.coverage_over_optimum.is_some(),
            self.loops.is_some(),
            self.black_holes.is_some(),
            self.superspreaders.is_some(),
            self.inflated.is_some(),
            self.slow_links.is_some(),
            self.suspected.is_some(),
        ];
        // And these are known to other systems alone.
        let of_systems = [
            self.coverage.is_some(),
            self.coverage_over_optimum.is_some(),
            self.loops.is_some(),
            self.black_holes.is_some(),
            self.superspreaders.is_some(),
            self.inflated.is_some(),
            self.slow_links.is_some(),
            self.suspected.is_some(),
        ];
        let count = |of: &[bool]| of.iter().filter(|&&is| is).count();
        ensure!(
            self.system.is_none() || count(&conditions) == count(&general),
            "{:?}: of a system only `reported`, `complete`, `decoded`, `because`, `seen`, \
             `coverage`, `coverage_over_optimum`, `loops`, `black_holes`, `superspreaders`, \
             `inflated`, `slow_links` and `suspected` are expected",
            self.says
        );
        ensure!(
            self.system.is_some() || count(&of_systems) == 0,
            "{:?}: coverage, coverage_over_optimum, loops, black_holes, superspreaders, inflated, \
             slow_links and suspected are those of a `system`",
            self.says
        );
        ensure!(any || !self.reported, "{:?} expects nothing", self.says);
        ensure!(!any || self.reported, "{:?}: without a report nothing else can hold", self.says);
        Ok(())
    }

    /// What an epoch fails in; nothing where it is as expected.
    fn failure(&self, epoch: Option<&EpochSummary>) -> Option<&'static str> {
        let Some(epoch) = epoch else { return self.reported.then_some("no report") };
        if !self.reported {
            return Some("there is a report");
        }
        let equals = |expected: Option<bool>, value| expected.is_none_or(|is| is == value);
        let seen = epoch.reported_lost as f64 / epoch.lost.max(1) as f64;
        let missing = self.missing.as_ref();
        let because = |words: &String| epoch.incomplete_because.iter().any(|of| of.contains(words));
        let conditions = [
            ("complete", equals(self.complete, epoch.complete)),
            ("decoded", equals(self.decoded, epoch.decoded)),
            ("state", self.state.is_none_or(|state| state == epoch.state)),
            ("missing", missing.is_none_or(|missing| *missing == epoch.missing_edges)),
            ("because", self.because.as_ref().is_none_or(because)),
            ("hidden", within(&self.hidden, Some(epoch.hidden))),
            ("victims", within(&self.victims, Some(epoch.reported_victims))),
            ("seen", within(&self.seen, Some(seen))),
            ("surpluses", within(&self.surpluses, Some(epoch.surpluses))),
            ("t_h", within(&self.t_h, Some(epoch.config.t_h))),
            ("t_l", within(&self.t_l, Some(epoch.config.t_l))),
            ("hl_buckets", within(&self.hl_buckets, Some(epoch.config.hl_buckets))),
            ("heavy_hitters", within(&self.heavy_hitters, Some(epoch.heavy_hitters))),
            ("heavy_changes", within(&self.heavy_changes, Some(epoch.heavy_changes))),
            ("hh_load", within(&self.hh_load, epoch.hh_load)),
        ];
        conditions.into_iter().find(|(_, holds)| !holds).map(|(name, _)| name)
    }

    /// The same where it is about another system.
    fn failure_of_system(&self, epoch: Option<&SystemSummary>) -> Option<&'static str> {
        let Some(epoch) = epoch else { return self.reported.then_some("no report") };
        if !self.reported {
            return Some("there is a report");
        }
        let equals = |expected: Option<bool>, value| expected.is_none_or(|is| is == value);
        let seen = epoch.reported_lost as f64 / epoch.lost.max(1) as f64;
        let because = |words: &String| epoch.incomplete_because.iter().any(|of| of.contains(words));
        let over_optimum = epoch.coverage.zip(epoch.optimum).map(|(share, most)| share / most);
        let conditions = [
            ("complete", equals(self.complete, epoch.complete)),
            ("decoded", equals(self.decoded, epoch.exact)),
            ("because", self.because.as_ref().is_none_or(because)),
            ("coverage", within(&self.coverage, epoch.coverage)),
            ("coverage_over_optimum", within(&self.coverage_over_optimum, over_optimum)),
            ("loops", within(&self.loops, epoch.loops)),
            ("black_holes", within(&self.black_holes, epoch.black_holes)),
            ("superspreaders", within(&self.superspreaders, epoch.superspreaders)),
            ("inflated", self.inflated.is_none() || self.inflated == epoch.inflated),
            ("slow_links", self.slow_links.is_none() || self.slow_links == epoch.slow_links),
            ("suspected", self.suspected.is_none() || self.suspected == epoch.suspected),
            ("seen", within(&self.seen, Some(seen))),
        ];
        conditions.into_iter().find(|(_, holds)| !holds).map(|(name, _)| name)
    }

    /// Whether the epochs of a scenario, in order, are as expected; those of `systems` other than
    /// ChameleMon apart.
    pub fn judge(&self, epochs: &[EpochSummary], systems: &[SystemSummary]) -> Verdict {
        let [from, to] = self.epochs;
        let failures: Vec<(u64, &'static str)> = (from..to)
            .filter_map(|number| {
                let failure = match &self.system {
                    None => self.failure(epochs.iter().find(|epoch| epoch.epoch == number)),
                    Some(system) => self.failure_of_system(
                        systems.iter().find(|of| of.covers(number) && of.system == *system),
                    ),
                };
                Some((number, failure?))
            })
            .collect();
        let of = (to - from) as usize;
        let held = of - failures.len();
        Verdict {
            says: self.says.clone(),
            holds: held as f64 >= self.share * of as f64,
            epochs: held,
            of,
            first_failure: failures.first().copied(),
        }
    }
}
