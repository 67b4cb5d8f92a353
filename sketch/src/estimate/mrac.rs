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
use crate::tower::Stratum;

/// What counters of an array say that flows fall on equally often, as far as they can tell values
/// apart.
pub(super) struct Observed {
    /// Number of counters.
    counters: f64,
    /// The chance of each that a flow falls on it.
    chance: f64,
    /// Counters that hold each value below the ceiling.
    holding: Vec<f64>,
    /// Counters at the ceiling or above.
    above: f64,
}

/// Flows by size, as far as they are told apart.
pub(super) struct Sizes {
    /// Flows of each size below the ceiling; none at size 0.
    pub flows: Vec<f64>,
    /// Flows of the ceiling's size and above.
    pub above: f64,
}

impl Observed {
    /// A stratum of an array, its histogram cut off at `ceiling`.
    pub(super) fn new(stratum: &Stratum, ceiling: usize) -> Self {
        let Stratum { counters, chance, ref histogram, .. } = *stratum;
        let mut observed = Self { counters, chance, holding: vec![0.0; ceiling], above: 0.0 };
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
}

/// Iterations of the EM: the more flows share a counter the slower it converges, and more
/// iterations than that fit the noise of sizes that few flows have.
fn iterations(load: f64) -> usize {
    (16.0 + 6.0 * load * load).min(64.0) as usize
}

/// The most likely flow sizes behind `arrays`, each the strata of one array; all arrays have the
/// same flows, and where their ceilings differ they rise. Where sizes are `known` from some size on
/// (at most the last ceiling), these stay as they are. Some 10 us an iteration and stratum at a
/// ceiling of 255.
///
/// Arrays are assumed to be independent, as their hash functions are: the flows that all arrays
/// together make most likely are those for which the expected numbers of flows behind each array's
/// counters are these flows again, on average.
///
/// Where flows of each size were found `before`, with others for the known ones, it goes on from
/// these, and a quarter of the iterations is enough.
pub(super) fn expect_and_maximise(
    arrays: &[Vec<Observed>],
    known: Option<(usize, Sizes)>,
    before: Option<Sizes>,
) -> Sizes {
    Engine::detect().run(Maximise { arrays, known, before })
}

/// [`expect_and_maximise`], compiled for vectors.
struct Maximise<'a> {
    arrays: &'a [Vec<Observed>],
    known: Option<(usize, Sizes)>,
    before: Option<Sizes>,
}

impl Work for Maximise<'_> {
    type Output = Sizes;

    #[inline(always)]
    fn work(self, _isa: impl Isa) -> Sizes {
        maximise(self.arrays, self.known, self.before)
    }
}

#[inline(always)]
fn maximise(
    arrays: &[Vec<Observed>],
    known: Option<(usize, Sizes)>,
    before: Option<Sizes>,
) -> Sizes {
    let ceiling = arrays.last().map_or(1, |strata| strata[0].holding.len());
    let free = known.as_ref().map_or(ceiling, |known| known.0);
    let load = |strata: &[Observed]| strata[0].load();
    let least = arrays.iter().map(|strata| load(strata)).fold(f64::INFINITY, f64::min);
    let mut rounds = iterations(least);
    if before.is_some() {
        rounds = rounds.div_ceil(4);
    }
    let mut sizes = before.unwrap_or_else(|| first_guess(arrays, ceiling));
    let is_known = known.is_some();
    if let Some((_, known)) = known {
        sizes.flows[free..].copy_from_slice(&known.flows[free..]);
        sizes.above = known.above;
    }
    // In a crowded array hardly any counter holds one flow alone.
    let asked: Vec<(&[Observed], f64)> = arrays
        .iter()
        .map(|strata| (strata.as_slice(), (least - load(strata)).exp()))
        .filter(|&(_, weight)| weight > FAINT)
        .collect();
    let all: f64 = asked.iter().map(|array| array.1).sum();
    let mut expected = vec![0.0; ceiling];
    for _ in 0..rounds {
        expected.fill(0.0);
        let mut expected_above = 0.0;
        for &(strata, weight) in &asked {
            for stratum in strata {
                expected_above += expect(stratum, &sizes, weight, &mut expected[..free]);
            }
        }
        for (flows, factor) in sizes.flows[..free].iter_mut().zip(&expected) {
            *flows *= factor / all;
        }
        if !is_known {
            sizes.above *= expected_above / all;
        }
    }
    sizes
}

/// The weight, beside that of the roomiest array, below which an array is not asked: it would cost
/// as much and hardly change anything.
const FAINT: f64 = 0.2;

/// For each size, as far as `expected` reaches, the share of its flows that the counters of a
/// stratum are expected to hold if `sizes` were right, more than their chance where there are too
/// few flows of that size; added to `expected` times `weight`. Gives that of the flows beyond all
/// sizes.
#[inline(always)]
fn expect(stratum: &Observed, sizes: &Sizes, weight: f64, expected: &mut [f64]) -> f64 {
    let Observed { chance, above, ref holding, .. } = *stratum;
    let ceiling = holding.len();
    let (small, large) = sizes.flows.split_at(ceiling);
    let rates: Vec<f64> = small.iter().map(|flows| flows * chance).collect();
    let rate_above = (large.iter().sum::<f64>() + sizes.above) * chance;
    let asked = ceiling.min(expected.len());
    let mut values = vec![0.0; ceiling];
    let mut shares = vec![0.0; asked];
    compound_poisson(&rates, &mut values);
    expected_shares(holding, &values, &mut shares);
    // A counter at the ceiling: a flow that large, or smaller ones that add up to it.
    let no_flow_above = (-rate_above).exp();
    let mut below: f64 = values.iter().sum();
    let at_ceiling = (1.0 - no_flow_above * below).max(1e-9);
    let factor = weight * chance;
    for size in 1..asked {
        below -= values[ceiling - size];
        let beside = (1.0 - no_flow_above * below).clamp(0.0, 1.0);
        expected[size] += factor * (shares[size] + above * beside / at_ceiling);
    }
    let beyond = factor * above / at_ceiling;
    expected[asked..].iter_mut().for_each(|expected| *expected += beyond);
    beyond
}

/// Flows to start from: of each size those that the first array gives whose ceiling is above it.
fn first_guess(arrays: &[Vec<Observed>], ceiling: usize) -> Sizes {
    let mut sizes = Sizes { flows: vec![0.0], above: 0.0 };
    for strata in arrays {
        let from = sizes.flows.len();
        if from < strata[0].holding.len() {
            sizes.flows.resize(strata[0].holding.len(), 0.0);
            for stratum in strata {
                let guess = guess(stratum);
                for (flows, more) in sizes.flows[from..].iter_mut().zip(&guess[from..]) {
                    *flows += more;
                }
            }
            sizes.above = strata.iter().map(|stratum| stratum.above).sum();
        }
    }
    sizes.flows.resize(ceiling, 0.0);
    sizes
}

/// Flows of each size that the counters of one stratum may hold. Panjer's recursion run backwards
/// gives those that would explain the counters exactly, if it were not for noise; they are
/// blended with every non-zero counter being one flow, so that no size is ruled out (a rate of zero
/// would stay zero).
fn guess(stratum: &Observed) -> Vec<f64> {
    let Observed { counters, ref holding, .. } = *stratum;
    let load = stratum.load();
    let hit = counters - holding[0];
    let mut flows = vec![0.0; holding.len()];
    // What the sizes found so far do not explain of each value, times the value.
    let mut unexplained: Vec<f64> =
        holding.iter().enumerate().map(|(value, &holding)| value as f64 * holding).collect();
    for size in 1..holding.len() {
        let rate = (unexplained[size] / (size as f64 * holding[0].max(1.0))).max(0.0);
        let moment = size as f64 * rate;
        for (unexplained, holding) in unexplained[size..].iter_mut().zip(holding) {
            *unexplained -= moment * holding;
        }
        let rate = BACKWARDS * rate + (1.0 - BACKWARDS) * load * holding[size] / hit.max(1.0);
        flows[size] = (rate * counters).max(1e-2);
    }
    flows
}

/// Weight of the backward recursion in the first guess.
const BACKWARDS: f64 = 0.5;

/// Values that are worked on together: what each adds to the others is read and written once for
/// all.
const BLOCK: usize = 8;

/// [`compound_poisson`] for sums below `longest`, compiled for vectors.
pub(super) fn sums_below(longest: usize, rates: &[f64]) -> Vec<f64> {
    Engine::detect().run(SumsBelow { longest, rates })
}

struct SumsBelow<'a> {
    longest: usize,
    rates: &'a [f64],
}

impl Work for SumsBelow<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn work(self, _isa: impl Isa) -> Vec<f64> {
        let mut sums = vec![0.0; self.longest];
        compound_poisson(self.rates, &mut sums);
        sums
    }
}

/// Panjer's recursion: the probability of every value of a counter that flows of each size hit at
/// `rates`, as far as `values` reaches. Rates so high that an empty counter's probability
/// underflows give values in proportion.
#[inline(always)]
pub(super) fn compound_poisson(rates: &[f64], values: &mut [f64]) {
    let load: f64 = rates.iter().sum();
    // The moment of size s at BLOCK + s, zeros around them.
    let mut moments = vec![0.0; rates.len() + 2 * BLOCK];
    for (size, (moment, rate)) in moments[BLOCK..].iter_mut().zip(rates).enumerate() {
        *moment = size as f64 * rate;
    }
    values.fill(0.0);
    values[0] = (-load.min(600.0)).exp();
    // Within a block, each value waits for the one before. So what a block adds to those after the
    // next is added once the next one is on its way: the CPU does both at once.
    let mut pending = None;
    for start in (0..values.len()).step_by(BLOCK) {
        let end = (start + BLOCK).min(values.len());
        for value in start..end {
            if value > 0 {
                values[value] /= value as f64;
            }
            for later in value + 1..end {
                values[later] += moments[BLOCK + later - value] * values[value];
            }
        }
        let (done, later) = values.split_at_mut(end);
        if let Some(factors) = pending.take() {
            let reach = later.len().min(rates.len().saturating_sub(1 + BLOCK));
            add_products(&mut later[..reach], &moments[2 * BLOCK + 1..], &factors);
        }
        if let Ok(block) = <&[f64; BLOCK]>::try_from(&done[start..]) {
            let reach = later.len().min(rates.len().saturating_sub(1)).min(BLOCK);
            // A value that is one higher meets the moment of a size that is one lower.
            let mut factors = *block;
            factors.reverse();
            add_products(&mut later[..reach], &moments[BLOCK + 1..], &factors);
            pending = Some(factors);
        }
    }
}

/// Adds to each of `sums` the `BLOCK` elements of `row` from its place on, each times its factor.
#[inline(always)]
fn add_products(sums: &mut [f64], row: &[f64], factors: &[f64; BLOCK]) {
    let (chunks, rest) = sums.as_chunks_mut::<LANES>();
    let done = chunks.len() * LANES;
    for (at, sums) in chunks.iter_mut().enumerate() {
        // Of a length that the compiler knows: it keeps the factors in registers and has no loop.
        let row = row[at * LANES..].first_chunk::<{ LANES + BLOCK - 1 }>();
        let Some(row) = row else { return };
        let mut more = *sums;
        for at in 0..BLOCK {
            for lane in 0..LANES {
                more[lane] += row[at + lane] * factors[at];
            }
        }
        *sums = more;
    }
    for (sum, row) in rest.iter_mut().zip(row[done..].windows(BLOCK)) {
        for (element, factor) in row.iter().zip(factors) {
            *sum += element * factor;
        }
    }
}

/// Sums that are worked on side by side: one or a few vectors of them.
const LANES: usize = 8;

/// For each size s, as far as `shares` reaches, the sum over counters of P(v - s) / P(v), v being
/// the counter's value.
#[inline(always)]
fn expected_shares(holding: &[f64], values: &[f64], shares: &mut [f64]) {
    let mut weights = vec![0.0; holding.len() + BLOCK];
    for (weight, (&holding, &probability)) in weights.iter_mut().zip(holding.iter().zip(values)) {
        *weight = holding / probability.max(f64::MIN_POSITIVE);
    }
    shares.fill(0.0);
    for rest in (0..values.len()).step_by(BLOCK) {
        let block = std::array::from_fn(|at| values.get(rest + at).copied().unwrap_or(0.0));
        let reach = shares.len().min(values.len() - rest);
        add_products(&mut shares[..reach], &weights[rest..], &block);
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

    /// The E-step as MRAC has it: every way in which flows of up to `largest` packets make up
    /// `value`, with its weight, the product of rate^n / n! over its sizes. Adds its flows,
    /// weighted, to `shares`, and gives the sum of weights.
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

    /// One array of counters that all flows hit alike.
    fn array(counters: f64, holding: Vec<f64>, above: f64) -> Vec<Observed> {
        vec![Observed { counters, chance: 1.0 / counters, holding, above }]
    }

    /// How many of so many counters hold each value on average, `flows` (by size) falling on each
    /// by `chance`.
    fn expected(counters: f64, chance: f64, flows: &[f64]) -> Observed {
        let rates: Vec<f64> = flows.iter().map(|flows| flows * chance).collect();
        let mut values = vec![0.0; 40];
        compound_poisson(&rates, &mut values);
        let holding = values.iter().map(|probability| probability * counters).collect();
        Observed { counters, chance, holding, above: 0.0 }
    }

    #[test]
    fn panjers_recursion_finds_what_enumerating_finds() {
        let holding = [310.0, 260.0, 150.0, 90.0, 70.0, 41.0, 30.0, 14.0, 16.0, 9.0, 3.0, 7.0, 0.0];
        let counters = holding.iter().sum();
        let observed = [array(counters, holding.to_vec(), 0.0)];
        let start = first_guess(&observed, holding.len());
        let mut rates: Vec<f64> = start.flows.iter().map(|flows| flows / counters).collect();
        for _ in 0..iterations(observed[0][0].load()) {
            let mut flows = vec![0.0; holding.len()];
            for (value, &holding) in holding.iter().enumerate().skip(1) {
                let mut shares = vec![0.0; rates.len()];
                let total = enumerate(value, value, &rates, &mut shares);
                let weights = shares.iter().map(|share| holding * share / total);
                flows.iter_mut().zip(weights).for_each(|(flows, more)| *flows += more);
            }
            rates = flows.iter().map(|flows| flows / counters).collect();
        }
        let sizes = expect_and_maximise(&observed, None, None);
        for (size, rate) in rates.iter().enumerate().skip(1) {
            let enumerated = rate * counters;
            assert!((sizes.flows[size] - enumerated).abs() < 1e-6, "{size}: {enumerated}");
        }
    }

    #[test]
    fn a_sum_of_two_sizes_is_told_from_flows_of_the_sum() {
        // 1,000 flows of 2 and of 3 packets on 1,000 counters: those of 5 are all coincidence.
        let observed = expected(1000.0, 1e-3, &[0.0, 0.0, 1000.0, 1000.0]);
        assert!(observed.holding[5] > 130.0);
        let sizes = expect_and_maximise(&[vec![observed]], None, None);
        assert!((sizes.flows[2] - 1000.0).abs() < 100.0, "{:?}", &sizes.flows[..8]);
        assert!((sizes.flows[3] - 1000.0).abs() < 100.0, "{:?}", &sizes.flows[..8]);
        assert!(sizes.flows[5] < 40.0, "{:?}", &sizes.flows[..8]);
    }

    #[test]
    fn counters_that_are_hit_more_often_tell_no_more_flows() {
        let flows = [0.0, 150.0, 0.0, 50.0];
        // Half of the counters are hit nine times as often as the others; treated as even, they
        // would give 187 flows.
        let uneven = vec![expected(500.0, 1.8e-3, &flows), expected(500.0, 0.2e-3, &flows)];
        let found = expect_and_maximise(&[uneven], None, None).flows;
        assert!((found.iter().sum::<f64>() - 200.0).abs() < 3.0, "{found:?}");
        assert!((found[1] - 150.0).abs() < 3.0 && (found[3] - 50.0).abs() < 3.0, "{found:?}");
    }

    #[test]
    fn counters_at_the_ceiling_count_for_the_flows_that_may_be_in_them() {
        // Flows of 1 and of 100 packets, read with a ceiling of 15.
        let (ones, hundreds, w) = (0.8_f64, 0.2_f64, 1000.0);
        let mut values = vec![0.0; 15];
        compound_poisson(&[0.0, ones], &mut values);
        let holding: Vec<f64> = values.iter().map(|p| p * (-hundreds).exp() * w).collect();
        let above = w - holding.iter().sum::<f64>();
        let sizes = expect_and_maximise(&[array(w, holding, above)], None, None);
        assert!((sizes.flows[1] - ones * w).abs() < 50.0, "{:?}", sizes.flows);
        assert!((sizes.above - hundreds * w).abs() < 8.0, "{}", sizes.above);
    }

    #[test]
    fn an_overloaded_array_gives_numbers_all_the_same() {
        for holding in [vec![0.0; 255], vec![1.0; 255]] {
            let sizes = expect_and_maximise(&[array(255.0, holding, 0.0)], None, None);
            assert!(sizes.flows.iter().all(|flows| flows.is_finite()));
        }
    }
}
