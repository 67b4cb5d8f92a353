//! How large single flows are, as far as the classifier's counters and the HH flowset tell.
//!
//! A counter holds its flow and a sum of others. How that sum is distributed is known once the size
//! distribution is (compound Poisson), so that Bayes' rule says how likely each size is behind the
//! counters seen: a flow whose counters read 3 and 40 where most flows have one packet has probably
//! one, not three. Elephants in the HH flowset are taken out of the counters first.

use std::collections::HashMap;

use super::Estimate;
use super::mrac::compound_poisson;
use crate::hash::Hashes;
use crate::tower::{OVERFLOW, TowerSketch};

/// Sizes and sums are told apart below this many packets.
const LONGEST: usize = 1024;

/// What is known of a counter of one flow.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Its value; `None` where it overflowed.
    value: Option<u64>,
    /// Packets of flows known to be in it.
    known: u64,
}

/// Other flows in a counter of one array.
#[derive(Clone, Debug)]
struct Noise {
    /// Probability of each sum of small flows.
    sums: Vec<f64>,
    /// Probability of at least that sum.
    at_least: Vec<f64>,
    /// Half of all counters hold no more of small flows.
    median: u64,
    /// The value at which a counter has overflowed.
    max: u64,
}

impl Noise {
    fn new(small: &[f64], counters: u32, max: u32) -> Self {
        let rates: Vec<f64> = small.iter().map(|flows| flows / f64::from(counters)).collect();
        let mut sums = vec![0.0; LONGEST];
        compound_poisson(&rates, &mut sums);
        let mut below = 0.0;
        let at_least: Vec<f64> = sums
            .iter()
            .map(|sum| {
                let rest = 1.0_f64 - below;
                below += sum;
                rest.max(0.0)
            })
            .collect();
        let median = at_least.iter().skip(1).take_while(|&&rest| rest > 0.5).count() as u64;
        Self { sums, at_least, median, max: max.into() }
    }

    /// How likely a counter is to be seen like this around a flow of `size` packets, but for a factor
    /// that is the same for all sizes.
    fn likelihood(&self, seen: &Seen, size: usize) -> f64 {
        match seen.value {
            Some(value) => {
                let rest = value.saturating_sub(seen.known) as usize;
                // A sum that large has an unknown elephant in it, whatever the flow's own size.
                if rest >= LONGEST {
                    1.0
                } else {
                    rest.checked_sub(size).map_or(0.0, |r| self.sums[r])
                }
            }
            None => {
                let lacking = self.max.saturating_sub(seen.known) as usize;
                self.at_least[lacking.saturating_sub(size).min(LONGEST - 1)]
            }
        }
    }
}

/// What the counters of a classifier say of any flow.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Flows of each size, of which larger ones are told from among their neighbours.
    prior: Vec<f64>,
    arrays: Vec<Noise>,
    /// Packets of the flowset by counter, array by array.
    known: Vec<HashMap<usize, u64>>,
}

impl Sizes {
    /// From the distribution of all flows, ascending. Those of at least `known_from` packets are in the
    /// flowset.
    pub(super) fn new(
        classifier: &TowerSketch,
        distribution: &[(u64, f64)],
        known_from: u64,
    ) -> Self {
        let mut flows = vec![0.0; LONGEST];
        for &(size, more) in distribution {
            if let Some(cell) = flows.get_mut(size as usize) {
                *cell += more;
            }
        }
        let prior = smoothed(&flows);
        flows.truncate(known_from.min(LONGEST as u64) as usize);
        let noise = |level: crate::Level| Noise::new(&flows, level.counters, level.max());
        let arrays: Vec<Noise> = classifier.levels().map(noise).collect();
        let known = vec![HashMap::new(); arrays.len()];
        Self { prior, arrays, known }
    }

    /// Takes for known that `flows` have so many packets, and nothing of others any more.
    pub(super) fn know(
        &mut self,
        classifier: &TowerSketch,
        flows: impl Iterator<Item = (Hashes, u64)>,
    ) {
        self.known.iter_mut().for_each(HashMap::clear);
        for (hashes, packets) in flows {
            for (array, known) in self.known.iter_mut().enumerate() {
                *known.entry(classifier.counter(array, &hashes).0).or_insert(0) += packets;
            }
        }
    }

    fn seen(
        &self,
        classifier: &TowerSketch,
        hashes: &Hashes,
        own: u64,
    ) -> impl Iterator<Item = Seen> {
        self.known.iter().enumerate().map(move |(array, known)| {
            let (at, value) = classifier.counter(array, hashes);
            let known = known.get(&at).map_or(0, |&known| known.saturating_sub(own));
            Seen { value: (value != OVERFLOW).then_some(value.into()), known }
        })
    }

    /// The size of a flow that is not in the flowset and has less than `below` packets: that of
    /// least expected relative error, and the root of the expected square error.
    pub(super) fn of_other(
        &self,
        classifier: &TowerSketch,
        hashes: &Hashes,
        below: u64,
    ) -> Estimate {
        let seen: Vec<Seen> = self.seen(classifier, hashes, 0).collect();
        let bound = seen.iter().filter_map(|seen| seen.value).min().unwrap_or(u64::MAX);
        if bound == 0 {
            return Estimate { value: 0.0, standard_error: Some(0.0) };
        }
        if bound == u64::MAX && below == u64::MAX {
            // All its counters overflowed, be it by this flow or by others.
            return Estimate { value: self.most_told() as f64, standard_error: None };
        }
        let most = bound.min(below - 1);
        let weights: Vec<(f64, f64)> = (1..LONGEST.min(most as usize + 1))
            .map(|size| {
                let behind =
                    self.arrays.iter().zip(&seen).map(|(a, seen)| a.likelihood(seen, size));
                (size as f64, self.prior[size] * behind.product::<f64>())
            })
            .collect();
        let total: f64 = weights.iter().map(|weight| weight.1).sum();
        if total > 0.0 && most < LONGEST as u64 {
            return least_relative_error(&weights, total);
        }
        // An elephant that the flowset lacks, beside what else is usual in its counters.
        let beside = self.arrays.iter().map(|array| array.median).min().unwrap_or(0);
        let value = bound.saturating_sub(beside).clamp(1, most) as f64;
        Estimate { value, standard_error: Some((beside as f64).max(1.0)) }
    }

    /// The largest size that a counter can show.
    fn most_told(&self) -> u64 {
        self.arrays.iter().map(|array| array.max).max().unwrap_or(0)
    }

    /// The size of a flow of which `recorded` packets are in the flowset, the first `unseen` packets
    /// of its counters not being among them. `own` is what it was taken for in [`know`](Self::know).
    ///
    /// All flows of a counter are taken to send evenly over the epoch. With A packets of others in
    /// the emptiest counter, a flow of S packets has sent its share S / (S + A) of `unseen` when the
    /// counter reaches that, so recorded = S - unseen S / (S + A).
    pub(super) fn of_recorded(
        &self,
        classifier: &TowerSketch,
        hashes: &Hashes,
        recorded: u64,
        unseen: u64,
        own: u64,
    ) -> Estimate {
        let mut most = recorded + unseen;
        // Others in the emptiest counter: all packets but the flow's own, or what is known of it.
        // An array of counters too narrow for `unseen` packets never kept the flow out.
        let (mut exact, mut guessed) = (u64::MAX, u64::MAX);
        let seen = self.seen(classifier, hashes, own).zip(&self.arrays);
        for (seen, array) in seen.filter(|(_, array)| array.max > unseen) {
            match seen.value {
                Some(value) => {
                    most = most.min(value);
                    exact = exact.min(value);
                }
                None => guessed = guessed.min(seen.known + array.median),
            }
        }
        if most <= recorded {
            return Estimate { value: recorded as f64, standard_error: Some(0.0) };
        }
        // A counter of value V has V - S others; S + A = V then, and S follows without a root.
        let (c, k) = (recorded as f64, unseen as f64);
        let by_value =
            if exact == u64::MAX { None } else { Some(c / (1.0 - (k / exact as f64).min(1.0))) };
        let by_guess = (guessed != u64::MAX).then(|| {
            let half = (guessed as f64 - k - c) / 2.0;
            (half * half + c * guessed as f64).sqrt() - half
        });
        // The emptier counter decides, and that gives the larger flow.
        let fluid = by_value.into_iter().chain(by_guess).fold(c, f64::max).min(most as f64);
        let others = exact.saturating_sub(fluid as u64).min(guessed);
        if others >= unseen
            && fluid < LONGEST as f64
            && let Some(estimate) = self.in_company(recorded, unseen, most, others)
        {
            return estimate;
        }
        let share = (k / (fluid + others as f64)).min(1.0);
        let spread = (others as f64 * share * (1.0 - share)).sqrt().min(most as f64 - c);
        Estimate { value: fluid, standard_error: Some(spread) }
    }

    /// A flow in company of at least as many packets as go unseen: each of its packets was late
    /// enough to be recorded with a like probability, and mice are likelier than larger flows.
    fn in_company(&self, recorded: u64, unseen: u64, most: u64, others: u64) -> Option<Estimate> {
        let mut weights = Vec::new();
        // Ways to choose the recorded packets among all, grown with the size.
        let mut choices = 1.0_f64;
        for size in recorded..=most.min(LONGEST as u64 - 1) {
            let (s, missed) = (size as f64, (size - recorded) as f64);
            if missed > 0.0 {
                choices *= s / missed;
            }
            let early = unseen as f64 / (others as f64 + s);
            let likelihood =
                choices * (1.0 - early).max(0.0).powf(recorded as f64) * early.powf(missed);
            weights.push((s, self.prior[size as usize] * likelihood));
        }
        let total: f64 = weights.iter().map(|weight| weight.1).sum();
        (total.is_finite() && total > 0.0).then(|| least_relative_error(&weights, total))
    }
}

/// The mean of each size and its neighbours within an eighth of it: few flows of a size tell little of
/// how many another epoch would have.
fn smoothed(flows: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    flows.iter().for_each(|flows| sums.push(sums[sums.len() - 1] + flows));
    let mean = |size: usize| {
        let (from, to) = (size - size / 8, (size + size / 8 + 1).min(flows.len()));
        (sums[to] - sums[from]) / (to - from) as f64
    };
    (0..flows.len()).map(mean).collect()
}

/// The size of least expected relative error among (size, weight), that is their median weighted
/// once more by 1 / size, and the root of its expected square error.
fn least_relative_error(weights: &[(f64, f64)], total: f64) -> Estimate {
    let mut half: f64 = weights.iter().map(|&(size, weight)| weight / size).sum::<f64>() / 2.0;
    let mut value = weights[0].0;
    for &(size, weight) in weights {
        value = size;
        half -= weight / size;
        if half <= 0.0 {
            break;
        }
    }
    let square: f64 = weights.iter().map(|&(s, weight)| weight * (s - value) * (s - value)).sum();
    Estimate { value, standard_error: Some((square / total).sqrt()) }
}
