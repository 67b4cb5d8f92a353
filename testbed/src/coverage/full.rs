//! The smallest entries with which all flows are counted.

use super::{Network, Outcome, Trial};

/// How close to the smallest number of entries the search ends: to a hundredth.
const CLOSE: f64 = 1.01;

impl Network {
    /// The trial with the smallest entries of which all flows were counted, to a hundredth; `None`
    /// where as many entries as there are flows at every switch were not enough.
    ///
    /// More entries are taken to count no fewer flows.
    pub fn smallest_full(&self, trial: &Trial) -> Option<Outcome> {
        let play = |entries: u32| {
            let trial = Trial { entries: trial.entries.with_mean(entries), ..trial.clone() };
            let outcome = self.play(&trial);
            (outcome.coverage == 1.0).then_some(outcome)
        };
        let most = trial.flows.max(256);
        let mut low = (trial.flows / self.switches() as u32).max(256);
        let (mut high, mut full) = loop {
            if let Some(outcome) = play(low) {
                break (low, outcome);
            }
            if low >= most {
                return None;
            }
            low = (u64::from(low) * 3 / 2).min(most.into()) as u32;
        };
        // The last that was not enough, unless the first one was.
        low = (u64::from(high) * 2 / 3) as u32;
        while f64::from(high) > f64::from(low) * CLOSE && high > low + 1 {
            let middle = low.midpoint(high);
            match play(middle) {
                Some(outcome) => (high, full) = (middle, outcome),
                None => low = middle,
            }
        }
        Some(full)
    }
}
