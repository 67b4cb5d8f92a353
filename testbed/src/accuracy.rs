//! How far what an edge's report says is from exact counts, in the metrics of the ChameleMon
//! paper's appendix C.

use std::collections::{BTreeMap, HashMap, HashSet};

use calumma_controller::report::EdgeReport;
use calumma_sketch::{WideKey, estimate};

/// Errors of an edge's accumulation tasks in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// F1 score of the heavy hitters.
    pub hitters_f1: f64,
    /// Weighted mean relative error of the flow size distribution.
    pub distribution_wmre: f64,
    /// Relative error of the entropy.
    pub entropy_re: f64,
    /// Relative error of the number of flows.
    pub cardinality_re: f64,
}

impl Accuracy {
    /// The errors of `edge`, where flows of `truth` (packets by flow) entered and those of more
    /// than `heavy` packets are heavy hitters; nothing where nothing entered.
    pub fn of(edge: &EdgeReport, truth: &HashMap<WideKey, u64>, heavy: u64) -> Option<Self> {
        if truth.is_empty() {
            return None;
        }
        let hitters: HashSet<WideKey> =
            truth.iter().filter(|(_, size)| **size > heavy).map(|(flow, _)| *flow).collect();
        let reported = edge.heavy_hitters.iter().filter_map(|hitter| hitter.flow.key()).collect();
        let mut distribution: BTreeMap<u64, f64> = BTreeMap::new();
        truth.values().for_each(|&size| *distribution.entry(size).or_default() += 1.0);
        let sizes: Vec<(u64, f64)> = distribution.iter().map(|(&size, &n)| (size, n)).collect();
        Some(Self {
            hitters_f1: f1(&hitters, &reported),
            distribution_wmre: wmre(&distribution, edge),
            entropy_re: relative(edge.entropy, estimate::entropy(&sizes)),
            cardinality_re: relative(edge.cardinality, truth.len() as f64),
        })
    }

    /// The mean of several edges' errors; nothing of none.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let of = |value: fn(&Self) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| Self {
            hitters_f1: of(|one| one.hitters_f1),
            distribution_wmre: of(|one| one.distribution_wmre),
            entropy_re: of(|one| one.entropy_re),
            cardinality_re: of(|one| one.cardinality_re),
        })
    }
}

/// Harmonic mean of precision and recall; 1 where there is nothing to find and nothing was found.
pub fn f1(truth: &HashSet<WideKey>, reported: &HashSet<WideKey>) -> f64 {
    if truth.is_empty() && reported.is_empty() {
        return 1.0;
    }
    let right = truth.intersection(reported).count() as f64;
    2.0 * right / (truth.len() + reported.len()) as f64
}

/// Relative error; of what was not estimated, 1.
fn relative(estimate: Option<f64>, truth: f64) -> f64 {
    estimate.map_or(1.0, |estimate| {
        if estimate == truth {
            0.0
        } else {
            (estimate - truth).abs() / truth.abs().max(f64::MIN_POSITIVE)
        }
    })
}

/// Weighted mean relative error of the numbers of flows by size.
fn wmre(truth: &BTreeMap<u64, f64>, edge: &EdgeReport) -> f64 {
    let estimated: BTreeMap<u64, f64> = edge.size_distribution.iter().copied().collect();
    let sizes: HashSet<u64> = truth.keys().chain(estimated.keys()).copied().collect();
    let (mut differences, mut means) = (0.0, 0.0);
    for size in sizes {
        let [a, b] = [truth, &estimated].map(|of| of.get(&size).copied().unwrap_or(0.0));
        differences += (a - b).abs();
        means += (a + b) / 2.0;
    }
    differences / means
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_is_that_of_the_paper() {
        let flow = |n: u32| WideKey::v4(n.into(), 1.into(), 0, 2, 17);
        let set = |range: std::ops::Range<u32>| range.map(flow).collect::<HashSet<_>>();
        assert_eq!(f1(&set(0..0), &set(0..0)), 1.0);
        assert_eq!(f1(&set(0..4), &set(2..6)), 0.5);
        assert_eq!(f1(&set(0..4), &set(0..0)), 0.0);
    }

    #[test]
    fn relative_errors_are_shares_of_the_truth_and_whole_where_nothing_was_said() {
        assert_eq!(relative(Some(90.0), 100.0), 0.1);
        assert_eq!(relative(Some(0.0), 0.0), 0.0);
        assert_eq!(relative(None, 5.0), 1.0);
    }
}
