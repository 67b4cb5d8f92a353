//! MRAC: the flow size distribution behind one array of narrow counters, by expectation
//! maximisation (Kumar and others 2004).
//!
//! MRAC as published enumerates the ways a counter value can be a sum of flow sizes. That is not
//! needed: flows hash to counters independently, so with n_s flows of size s among w counters a
//! counter's value is compound Poisson with rates lambda_s = n_s / w. Its probability P(v) follows
//! Panjer's recursion v P(v) = sum_s s lambda_s P(v - s), and a counter of value v holds
//! lambda_s P(v - s) / P(v) flows of size s on average: the exact E-step, in O(V^2) for values up
//! to V. A counter at its ceiling counts as what it is: a sum at or above it.

use crate::simd::{Engine, Isa, Work};

/// What the counters of an array say, as far as they can tell values apart.
pub(super) struct Observed {
    /// Number of counters (w).
    pub counters: f64,
    /// Counters that hold each value below the ceiling.
    pub holding: Vec<f64>,
    /// Counters at the ceiling or above.
    pub above: f64,
}

/// Flows by size, as far as they are told apart.
pub(super) struct Sizes {
    /// Flows of each size below the ceiling; none at size 0.
    pub flows: Vec<f64>,
    /// Flows of the ceiling's size and above.
    pub above: f64,
}

impl Observed {
    /// The histogram of an array of `counters` counters, cut off at `ceiling`.
    pub(super) fn new(histogram: &[(u32, u32)], counters: u32, ceiling: usize) -> Self {
        let mut observed =
            Self { counters: f64::from(counters), holding: vec![0.0; ceiling], above: 0.0 };
        for &(value, holding) in histogram {
            match observed.holding.get_mut(value as usize) {
                Some(cell) => *cell = f64::from(holding),
                None => observed.above += f64::from(holding),
            }
        }
        observed
    }

    /// Flows on average a counter, by linear counting.
    fn load(&self) -> f64 {
        (self.counters / self.holding[0].max(1.0)).ln()
    }

    /// Iterations of the EM: the more flows share a counter the slower it converges, and more
    /// iterations than that fit the noise of sizes that few flows have.
    fn iterations(&self) -> usize {
        let load = self.load();
        (16.0 + 6.0 * load * load).min(64.0) as usize
    }
}

/// The most likely flow sizes behind `observed`. Where sizes are `known` from some size on (at most
/// the ceiling), these stay as they are. Some 10 us an
/// iteration at a ceiling of 255.
pub(super) fn expect_and_maximise(observed: &Observed, known: Option<(usize, Sizes)>) -> Sizes {
    Engine::detect().run(Maximise { observed, known })
}

/// [`expect_and_maximise`], compiled for vectors.
struct Maximise<'a> {
    observed: &'a Observed,
    known: Option<(usize, Sizes)>,
}

impl Work for Maximise<'_> {
    type Output = Sizes;

    #[inline(always)]
    fn work(self, _isa: impl Isa) -> Sizes {
        maximise(self.observed, self.known)
    }
}

#[inline(always)]
fn maximise(observed: &Observed, known: Option<(usize, Sizes)>) -> Sizes {
    let ceiling = observed.holding.len();
    let w = observed.counters;
    let free = known.as_ref().map_or(ceiling, |known| known.0);
    let mut rates = first_guess(observed, free);
    let mut rate_above = observed.above / w;
    if let Some((_, known)) = &known {
        for size in free..ceiling {
            rates[size] = known.flows[size] / w;
        }
        rate_above = known.above / w;
    }
    let mut values = vec![0.0; ceiling];
    let mut shares = vec![0.0; ceiling];
    for _ in 0..observed.iterations() {
        compound_poisson(&rates, &mut values);
        expected_shares(observed, &values, &mut shares);
        // A counter at the ceiling: a flow that large, or smaller ones that add up to it.
        let no_flow_above = (-rate_above).exp();
        let mut below: f64 = values.iter().sum();
        let at_ceiling = (1.0 - no_flow_above * below).max(1e-9);
        for size in 1..free {
            below -= values[ceiling - size];
            let beside = (1.0 - no_flow_above * below).clamp(0.0, 1.0);
            rates[size] *= (shares[size] + observed.above * beside / at_ceiling) / w;
        }
        if known.is_none() {
            rate_above *= observed.above / at_ceiling / w;
        }
    }
    Sizes { flows: rates.into_iter().map(|rate| rate * w).collect(), above: rate_above * w }
}

/// Rates to start from; those of sizes from `free` on are zero. Panjer's recursion run backwards
/// gives the rates that would explain the counters exactly, if it were not for noise; they are
/// blended with every non-zero counter being one flow, so that no size is ruled out (a rate of zero
/// would stay zero).
fn first_guess(observed: &Observed, free: usize) -> Vec<f64> {
    let holding = &observed.holding;
    let load = observed.load();
    let hit = observed.counters - holding[0];
    let floor = 1e-2 / observed.counters;
    let mut rates = vec![0.0; holding.len()];
    // What the sizes found so far do not explain of each value, times the value.
    let mut unexplained: Vec<f64> =
        holding.iter().enumerate().map(|(value, &holding)| value as f64 * holding).collect();
    for size in 1..free {
        let rate = (unexplained[size] / (size as f64 * holding[0].max(1.0))).max(0.0);
        let moment = size as f64 * rate;
        for (unexplained, holding) in unexplained[size..].iter_mut().zip(holding) {
            *unexplained -= moment * holding;
        }
        rates[size] = BACKWARDS * rate + (1.0 - BACKWARDS) * load * holding[size] / hit;
        rates[size] = rates[size].max(floor);
    }
    rates
}

/// Weight of the backward recursion in the first guess.
const BACKWARDS: f64 = 0.5;

/// Panjer's recursion: the probability of every value of a counter that flows of each size hit at
/// `rates`, as far as `values` reaches. Rates so high that an empty counter's probability
/// underflows give values in proportion.
#[inline(always)]
pub(super) fn compound_poisson(rates: &[f64], values: &mut [f64]) {
    let load: f64 = rates.iter().sum();
    let moments: Vec<f64> = rates.iter().enumerate().map(|(s, rate)| s as f64 * rate).collect();
    values.fill(0.0);
    values[0] = (-load.min(600.0)).exp();
    for value in 0..values.len() {
        if value > 0 {
            values[value] /= value as f64;
        }
        let probability = values[value];
        let later = &mut values[value + 1..];
        for (later, moment) in later.iter_mut().zip(&moments[1..]) {
            *later += moment * probability;
        }
    }
}

/// For each size s the sum over counters of P(v - s) / P(v), v being the counter's value.
#[inline(always)]
fn expected_shares(observed: &Observed, values: &[f64], shares: &mut [f64]) {
    let weights: Vec<f64> = observed
        .holding
        .iter()
        .zip(values)
        .map(|(&holding, &probability)| holding / probability.max(f64::MIN_POSITIVE))
        .collect();
    shares.fill(0.0);
    for (rest, &probability) in values.iter().enumerate() {
        for (share, weight) in shares.iter_mut().zip(&weights[rest..]) {
            *share += weight * probability;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panjers_recursion_gives_the_poisson_distribution_for_flows_of_one_packet() {
        let mut values = vec![0.0; 12];
        compound_poisson(&[0.0, 2.0], &mut values);
        let mut poisson = (-2.0_f64).exp();
        for (value, probability) in values.iter().enumerate() {
            assert!((probability - poisson).abs() < 1e-15);
            poisson *= 2.0 / (value + 1) as f64;
        }
    }

    /// The E-step as MRAC has it: every way in which flows of up to `largest` packets make up `value`,
    /// with its weight, the product of rate^n / n! over its sizes. Adds its flows, weighted, to
    /// `shares`, and gives the sum of weights.
    fn enumerate(value: usize, largest: usize, rates: &[f64], shares: &mut [f64]) -> f64 {
        if value == 0 || largest == 0 {
            return if value == 0 { 1.0 } else { 0.0 };
        }
        let (mut total, mut weight) = (0.0, 1.0);
        for number in 0..=value / largest {
            if number > 0 {
                weight *= rates[largest] / number as f64;
            }
            let mut below = vec![0.0; shares.len()];
            let ways = enumerate(value - number * largest, largest - 1, rates, &mut below);
            total += weight * ways;
            shares[largest] += weight * ways * number as f64;
            shares.iter_mut().zip(below).for_each(|(share, below)| *share += weight * below);
        }
        total
    }

    #[test]
    fn panjers_recursion_finds_what_enumerating_finds() {
        let holding = [310.0, 260.0, 150.0, 90.0, 70.0, 41.0, 30.0, 14.0, 16.0, 9.0, 3.0, 7.0, 0.0];
        let counters = holding.iter().sum();
        let observed = Observed { counters, holding: holding.to_vec(), above: 0.0 };
        let mut rates = first_guess(&observed, holding.len());
        for _ in 0..observed.iterations() {
            let mut flows = vec![0.0; holding.len()];
            for (value, &holding) in holding.iter().enumerate().skip(1) {
                let mut shares = vec![0.0; rates.len()];
                let total = enumerate(value, value, &rates, &mut shares);
                let weights = shares.iter().map(|share| holding * share / total);
                flows.iter_mut().zip(weights).for_each(|(flows, more)| *flows += more);
            }
            rates = flows.iter().map(|flows| flows / counters).collect();
        }
        let sizes = expect_and_maximise(&observed, None);
        for (size, rate) in rates.iter().enumerate().skip(1) {
            let enumerated = rate * counters;
            assert!((sizes.flows[size] - enumerated).abs() < 1e-6, "{size}: {enumerated}");
        }
    }

    #[test]
    fn a_sum_of_two_sizes_is_told_from_flows_of_the_sum() {
        // 1,000 flows of 2 and of 3 packets on 1,000 counters: those of 5 are all coincidence.
        let mut values = vec![0.0; 40];
        compound_poisson(&[0.0, 0.0, 1.0, 1.0], &mut values);
        let holding = values.iter().map(|probability| probability * 1000.0).collect();
        let observed = Observed { counters: 1000.0, holding, above: 0.0 };
        let sizes = expect_and_maximise(&observed, None);
        assert!((sizes.flows[2] - 1000.0).abs() < 100.0, "{:?}", &sizes.flows[..8]);
        assert!((sizes.flows[3] - 1000.0).abs() < 100.0, "{:?}", &sizes.flows[..8]);
        assert!(observed.holding[5] > 130.0 && sizes.flows[5] < 40.0, "{:?}", &sizes.flows[..8]);
    }

    #[test]
    fn counters_at_the_ceiling_count_for_the_flows_that_may_be_in_them() {
        // Flows of 1 and of 100 packets, read with a ceiling of 15.
        let (ones, hundreds, w) = (0.8_f64, 0.2_f64, 1000.0);
        let mut values = vec![0.0; 15];
        compound_poisson(&[0.0, ones], &mut values);
        let holding: Vec<f64> = values.iter().map(|p| p * (-hundreds).exp() * w).collect();
        let above = w - holding.iter().sum::<f64>();
        let sizes = expect_and_maximise(&Observed { counters: w, holding, above }, None);
        assert!((sizes.flows[1] - ones * w).abs() < 50.0, "{:?}", sizes.flows);
        assert!((sizes.above - hundreds * w).abs() < 8.0, "{}", sizes.above);
    }

    #[test]
    fn an_overloaded_array_gives_numbers_all_the_same() {
        for holding in [vec![0.0; 255], vec![1.0; 255]] {
            let observed = Observed { counters: 255.0, holding, above: 0.0 };
            let sizes = expect_and_maximise(&observed, None);
            assert!(sizes.flows.iter().all(|flows| flows.is_finite()));
        }
    }
}
