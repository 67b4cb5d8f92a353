//! How many buckets a number of flows needs, and how many flows a number of buckets holds.
//!
//! n flows in d arrays of m buckets decode when peeling empties a random hypergraph of n edges. It
//! fails in two ways, which are estimated apart and fail independently:
//!
//! - *Overload.* Above a load n / (d m) of 1 / c_d hardly any sketch decodes, below it nearly all
//!   (Theorem 3.1 of the ChameleMon paper: c_3 = 1.23, c_4 = 1.30, c_5 = 1.43). For finite sizes
//!   the step is a normal distribution of width alpha / sqrt(d m), shifted by beta (d m)^(-2/3), as
//!   for erasure codes on sparse graphs (Amraoui, Montanari, Richardson, Urbanke 2009). alpha and
//!   beta are fitted to some 10^7 peelings of random hypergraphs, m from 100 to 10,000.
//! - *Small stopping sets*, at any load: two flows that share all their buckets, four flows that
//!   share them in pairs, and so on. Their expected number is exact; its leading term is n^2 / 2
//!   m^d.
//!
//! Arithmetic and fingerprint don't matter: buckets that wrongly pass for pure are put back (see
//! the tests). In wrapping arithmetic a flow of a multiple of 2^18 packets fails whatever the size.

use super::MAX_ARRAYS;
use super::sketch::Shape;
use crate::part::Part;

/// Most buckets an array that an index reaches.
const MOST_BUCKETS: usize = 1 << 28;

/// Stopping sets of up to so many flows are counted.
const LARGEST_SET: usize = 32;

/// The step from decodable to overloaded for a number of arrays.
struct Step {
    /// The load at which it lies for endless sketches whose buckets are equally likely (1 / c_d).
    load: f64,
    /// Relative change of that load for every relative variance of the buckets' likelihood.
    unevenness: f64,
    alpha: f64,
    beta: f64,
}

/// For 3, 4 and 5 arrays.
const STEPS: [Step; MAX_ARRAYS - 2] = [
    Step { load: 0.818_469, unevenness: -0.38, alpha: 0.5145, beta: 0.930 },
    Step { load: 0.772_280, unevenness: -0.06, alpha: 0.4002, beta: 0.799 },
    Step { load: 0.701_781, unevenness: 0.15, alpha: 0.3610, beta: 0.738 },
];

/// Beyond this many standard deviations the step falls more slowly than the normal distribution, by
/// [`TAIL`].
const BODY: f64 = 2.0;

/// What a standard deviation counts for in the tail.
const TAIL: f64 = 0.85;

impl Shape {
    /// How likely a sketch of this shape is not to decode completely with `flows` flows in it.
    ///
    /// Within a third of simulated failures from 1 to 10^5 flows wherever these are 10^-4 to a
    /// half, for 3 to 5 arrays. With two arrays any cycle of flows is a failure, and only loads
    /// of some percent decode.
    ///
    /// ```
    /// use calumma_sketch::Shape;
    ///
    /// let shape = Shape::default();
    /// assert!(shape.failure_probability(9_500) < 1e-3);
    /// assert!(shape.failure_probability(10_500) > 0.99);
    /// ```
    pub fn failure_probability(&self, flows: usize) -> f64 {
        let (n, arrays) = (flows as f64, self.arrays as f64);
        if flows < 2 || self.arrays < 2 {
            return 0.0;
        }
        let unevenness = unevenness(self.buckets);
        // Flows meet as often as they would in so many equally likely buckets.
        let even = self.buckets as f64 / (1.0 + unevenness);
        let Some(step) = STEPS.get(self.arrays.wrapping_sub(3)) else {
            // Two arrays: a random bipartite graph has no cycle with probability sqrt(1 - load^2).
            return 1.0 - (1.0 - (n / even).powi(2)).max(0.0).sqrt();
        };
        let total = self.total_buckets() as f64;
        let load = step.load * (1.0 + step.unevenness * unevenness);
        let margin =
            ((load - n / total) * total.sqrt() - step.beta * total.powf(-1.0 / 6.0)) / step.alpha;
        let margin = if margin > BODY { BODY + TAIL * (margin - BODY) } else { margin };
        let overloaded = libm::erfc(margin / std::f64::consts::SQRT_2) / 2.0;

        let sets = stopping_sets(flows, even, arrays);
        let failure = 1.0 - (1.0 - overloaded) * (-small(&sets)).exp();
        match flows {
            // Too few for a step.
            0..4 => sets.iter().sum::<f64>().min(1.0),
            // All sets were counted: one of them is there where a sketch fails.
            4..=LARGEST_SET => failure.min(sets.iter().sum()),
            _ => failure,
        }
    }

    /// The largest number of flows that a sketch of this shape decodes, but for a probability of
    /// `failure` (above 0).
    ///
    /// ```
    /// use calumma_sketch::Shape;
    ///
    /// let flows = Shape::default().flows_for(1e-3);
    /// assert!((9_700..9_900).contains(&flows));
    /// ```
    pub fn flows_for(&self, failure: f64) -> usize {
        let fits = |flows| self.failure_probability(flows) <= failure;
        // More flows than buckets never decode.
        last_that(1, self.total_buckets() + 1, fits)
    }

    /// The least buckets an array with which a sketch of these arrays decodes `flows` flows, but
    /// for a probability of `failure` (above 0). `None` where more would be needed than an
    /// index reaches (2^28).
    ///
    /// Few flows need many buckets each in three arrays, and much less in more: 100 flows decode
    /// 999 times in 1,000 in 3 x 171 buckets, 4 x 48, or 5 x 35. About 20 us.
    ///
    /// ```
    /// use calumma_sketch::Shape;
    ///
    /// // 1.25 buckets a flow.
    /// let buckets = Shape::default().buckets_for(10_000, 1e-3).unwrap();
    /// assert!((4_150..4_200).contains(&buckets));
    /// assert!(Shape::default().with_buckets(buckets).failure_probability(10_000) <= 1e-3);
    /// ```
    pub fn buckets_for(&self, flows: usize, failure: f64) -> Option<usize> {
        let fails = |buckets| self.with_buckets(buckets).failure_probability(flows) > failure;
        let mut enough = 1;
        while fails(enough) {
            enough *= 2;
            if enough > MOST_BUCKETS {
                return None;
            }
        }
        Some(if enough == 1 { 1 } else { last_that(enough / 2, enough, fails) + 1 })
    }
}

/// The last number from `low` to below `high` for which `holds`, which does for `low` and for no
/// number after one for which it does not.
fn last_that(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The relative variance of the buckets' likelihood. A masked hash word taken modulo the number of
/// buckets falls on some of them once more often than on the others: see [`Part`].
fn unevenness(buckets: usize) -> f64 {
    let words = f64::from(Part::new(0, buckets as u32).mask()) + 1.0;
    let buckets = buckets as f64;
    let rest = words % buckets;
    // `rest` buckets have one word more than the others.
    rest * (buckets - rest) / (words * words)
}

/// Expected numbers of stopping sets of two flows, three, and so on: sets of flows of which, in
/// every array, none is alone in its bucket.
fn stopping_sets(flows: usize, buckets: f64, arrays: f64) -> Vec<f64> {
    let largest = flows.min(LARGEST_SET);
    // Coefficients of (e^x - x)^buckets, x being scaled by 1 / buckets: times k! the probability
    // that k flows leave none alone.
    let mut series = [0.0; LARGEST_SET + 1];
    let mut coefficients = [0.0; LARGEST_SET + 1];
    // Those of e^x - x itself: 1, 0, and 1 / k!.
    let mut inverse_factorial = 1.0 / buckets;
    for k in 2..=largest {
        inverse_factorial /= k as f64 * buckets;
        series[k] = inverse_factorial;
    }
    coefficients[0] = 1.0;
    for k in 1..=largest {
        let terms = (2..=k).map(|i| {
            let weight = i as f64 * buckets - k as f64 + i as f64;
            weight * series[i] * coefficients[k - i]
        });
        coefficients[k] = terms.sum::<f64>() / k as f64;
    }
    // Sets of k flows, times k!.
    let (mut arrangements, mut factorial) = (flows as f64, 1.0);
    (2..=largest)
        .map(|k| {
            arrangements *= (flows - k + 1) as f64;
            factorial *= k as f64;
            let together = (coefficients[k] * factorial).max(0.0);
            arrangements / factorial * together.powf(arrays)
        })
        .collect()
}

/// The sum of expected numbers as far as they fall, even sizes (pairs) taken with the odd ones
/// after them: sets beyond the turn grow with the sketch and are the overload.
fn small(sets: &[f64]) -> f64 {
    let (mut sum, mut last) = (0.0, f64::INFINITY);
    for pair in sets.chunks(2) {
        let both = pair.iter().sum();
        if both >= last {
            break;
        }
        sum += both;
        last = both;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(arrays: usize, buckets: usize) -> Shape {
        Shape { arrays, buckets, ..Shape::default() }
    }

    /// The highest load at which density evolution leaves nothing, buckets being hit at `rates`
    /// times the average by such shares of them: the least load at which, for some share x of flows
    /// left in a bucket's view, x = 1 - sum share rate exp(-d load rate x^(d - 1)).
    fn threshold(arrays: i32, rates: &[(f64, f64)]) -> f64 {
        let least = (1..1000).map(|step| {
            let x = f64::from(step) / 1000.0;
            let left = |load: f64| -> f64 {
                let hits = f64::from(arrays) * load * x.powi(arrays - 1);
                rates.iter().map(|(share, rate)| share * rate * (-hits * rate).exp()).sum()
            };
            let (mut low, mut high) = (0.0, 100.0);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if 1.0 - left(middle) < x { low = middle } else { high = middle }
            }
            high
        });
        least.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn thresholds_are_those_of_density_evolution() {
        for (arrays, step) in (3..).zip(STEPS) {
            assert!((threshold(arrays, &[(1.0, 1.0)]) - step.load).abs() < 1e-4, "{arrays}");
            // 3,600 buckets: 16,384 words, so 4 for one part of them and 5 for the others.
            let mean = 16_384.0 / 3_600.0;
            let rates = [(5.0 - mean, 4.0 / mean), (mean - 4.0, 5.0 / mean)];
            let uneven = step.load * (1.0 + step.unevenness * unevenness(3_600));
            assert!((threshold(arrays, &rates) - uneven).abs() < 2e-4, "{arrays}");
        }
    }

    #[test]
    fn c_d_buckets_a_flow_is_what_large_sketches_need() {
        for (arrays, c_d) in [(3, 1.23), (4, 1.30), (5, 1.43)] {
            let buckets = shape(arrays, 1).buckets_for(1_000_000, 1e-3).unwrap();
            let a_flow = (arrays * buckets) as f64 / 1e6;
            assert!(a_flow > 0.99 * c_d && a_flow < 1.015 * c_d, "{arrays} arrays: {a_flow}");
        }
    }

    #[test]
    fn two_flows_fail_where_they_share_all_buckets() {
        for (arrays, buckets) in [(3, 4), (4, 8), (5, 16)] {
            let exact = f64::from(buckets).powi(-arrays);
            let failure = shape(arrays as usize, buckets as usize).failure_probability(2);
            assert!((failure / exact - 1.0).abs() < 1e-9, "{failure} {exact}");
            assert_eq!(shape(arrays as usize, 1).failure_probability(1), 0.0);
            assert_eq!(shape(arrays as usize, 1).failure_probability(2), 1.0);
        }
        assert_eq!(shape(3, 1).buckets_for(0, 1e-9), Some(1));
        assert_eq!(shape(3, 1).buckets_for(1, 1e-9), Some(1));
        assert_eq!(shape(2, 1).buckets_for(1 << 28, 1e-9), None);
    }

    proptest! {
        #[test]
        fn more_flows_fail_more_often(
            arrays in 2_usize..=5, buckets in 1_usize..100_000, share in 0.0..1.2_f64,
        ) {
            let shape = shape(arrays, buckets);
            let flows = (share * shape.total_buckets() as f64) as usize;
            let (less, more) = (shape.failure_probability(flows), shape.failure_probability(flows + 1));
            prop_assert!((0.0..=1.0).contains(&less) && less <= more + 1e-12, "{less} {more}");
        }

        #[test]
        fn buckets_and_flows_answer_each_other(
            arrays in 3_usize..=5, flows in 1_usize..200_000, exponent in 0.5..8.0_f64,
        ) {
            let failure = 10_f64.powf(-exponent);
            let buckets = shape(arrays, 1).buckets_for(flows, failure).unwrap();
            let sized = shape(arrays, buckets);
            prop_assert!(sized.failure_probability(flows) <= failure);
            prop_assert!(sized.flows_for(failure) >= flows);
            if buckets > 1 {
                prop_assert!(shape(arrays, buckets - 1).failure_probability(flows) > failure);
            }
        }
    }
}
