//! What a sketch answers in the six accumulation tasks, and how far that is from the truth, by the
//! metrics of appendix C of the ChameleMon paper.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use calumma_baselines::{Query, Tracked};
use calumma_sketch::FlowKey;

use super::epochs::{Epoch, Pair};

/// Answers about a pair of epochs; `None` where the sketch has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// The size of each flow of the first epoch.
    pub(super) sizes: Option<HashMap<FlowKey, f64>>,
    /// Heavy hitters of the first epoch and their sizes.
    pub(super) hitters: Option<HashMap<FlowKey, f64>>,
    pub(super) changes: Option<HashSet<FlowKey>>,
    /// Number of flows by size in the first epoch.
    pub(super) distribution: Option<Vec<(u64, f64)>>,
    pub(super) entropy: Option<f64>,
    pub(super) cardinality: Option<f64>,
}

/// How far answers are from the truth, by task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    pub(super) hitters_f1: Option<f64>,
    pub(super) hitters_are: Option<f64>,
    pub(super) sizes_are: Option<f64>,
    pub(super) sizes_aae: Option<f64>,
    pub(super) changes_f1: Option<f64>,
    pub(super) wmre: Option<f64>,
    pub(super) entropy_re: Option<f64>,
    pub(super) cardinality_re: Option<f64>,
}

impl Answers {
    /// Sizes of all flows by a sketch of the first epoch.
    pub(super) fn with_sizes(mut self, pair: &Pair, sketch: &impl Query) -> Self {
        let size = |key: &FlowKey| (*key, f64::from(sketch.query(key)));
        self.sizes = Some(pair.first.flows.keys().map(size).collect());
        self
    }

    /// Heavy hitters by the flows that the first epoch's sketch keeps; changes by those that either
    /// sketch keeps, where that epoch had the more packets: as the programs published with
    /// ChameleMon do. What a sketch does not keep it knows badly, and such a size is never the
    /// larger one.
    pub(super) fn with_tracked<S: Tracked + Query>(
        self,
        pair: &Pair,
        first: &S,
        second: &S,
    ) -> Self {
        let sizes = |sketch: &S| sketch.tracked().into_iter().collect();
        let (first_sizes, second_sizes): (HashMap<FlowKey, u32>, HashMap<FlowKey, u32>) =
            (sizes(first), sizes(second));
        // A flow that one epoch's sketch does not keep may still have an estimate there.
        let size = |kept: &HashMap<FlowKey, u32>, sketch: &S, key: &FlowKey| {
            kept.get(key).copied().unwrap_or_else(|| sketch.query(key))
        };
        let heavy = |more: u32, less: u32| more > less.saturating_add(pair.change);
        let falls = first_sizes
            .iter()
            .filter(|&(key, &packets)| heavy(packets, size(&second_sizes, second, key)));
        let rises = second_sizes
            .iter()
            .filter(|&(key, &packets)| heavy(packets, size(&first_sizes, first, key)));
        let changes = falls.chain(rises).map(|flow| *flow.0).collect();
        let hitters = first_sizes.iter().filter(|flow| *flow.1 > pair.hitter);
        let hitters = hitters.map(|(key, &size)| (*key, size.into())).collect();
        Self { hitters: Some(hitters), changes: Some(changes), ..self }
    }

    pub(super) fn errors(&self, pair: &Pair) -> Errors {
        let Epoch { flows, .. } = &pair.first;
        let relative = |estimate: Option<f64>, truth: f64| {
            estimate.map(|estimate| (estimate - truth).abs() / truth)
        };
        let true_hitters = || flows.iter().filter(|flow| *flow.1 > pair.hitter);
        let hitters_are = |estimates: &HashMap<FlowKey, f64>| {
            mean(true_hitters().map(|(key, &size)| {
                let size = f64::from(size);
                (estimates.get(key).copied().unwrap_or(0.0) - size).abs() / size
            }))
        };
        let off = |estimates: &HashMap<FlowKey, f64>, key, size: u32| {
            (estimates.get(key).copied().unwrap_or(0.0) - f64::from(size)).abs()
        };
        Errors {
            hitters_f1: self.hitters.as_ref().map(|estimates| {
                f1(
                    &estimates.keys().copied().collect(),
                    &true_hitters().map(|flow| *flow.0).collect(),
                )
            }),
            hitters_are: self.hitters.as_ref().map(hitters_are),
            sizes_are: self.sizes.as_ref().map(|estimates| {
                mean(flows.iter().map(|(key, &size)| off(estimates, key, size) / f64::from(size)))
            }),
            sizes_aae: self
                .sizes
                .as_ref()
                .map(|estimates| mean(flows.iter().map(|(key, &size)| off(estimates, key, size)))),
            changes_f1: self
                .changes
                .as_ref()
                .map(|estimates| f1(estimates, &pair.changes().collect())),
            wmre: self
                .distribution
                .as_ref()
                .map(|estimates| wmre(estimates, &pair.first.distribution())),
            entropy_re: relative(self.entropy, pair.first.entropy()),
            cardinality_re: relative(self.cardinality, flows.len() as f64),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, number) = values.fold((0.0, 0), |(sum, number), value| (sum + value, number + 1));
    sum / f64::from(number.max(1))
}

/// The harmonic mean of precision and recall.
pub(super) fn f1<T: Eq + Hash>(estimates: &HashSet<T>, truth: &HashSet<T>) -> f64 {
    let right = estimates.intersection(truth).count() as f64;
    2.0 * right / ((estimates.len() + truth.len()) as f64).max(1.0)
}

/// The weighted mean relative error of a distribution.
fn wmre(estimates: &[(u64, f64)], truth: &[(u64, f64)]) -> f64 {
    let mut difference: HashMap<u64, f64> = truth.iter().copied().collect();
    estimates.iter().for_each(|&(size, flows)| *difference.entry(size).or_default() -= flows);
    let sum = |sizes: &[(u64, f64)]| sizes.iter().map(|size| size.1).sum::<f64>();
    2.0 * difference.values().map(|flows| flows.abs()).sum::<f64>() / (sum(estimates) + sum(truth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_those_of_the_paper() {
        let key = |flow| FlowKey::from_words(flow, 0, 0, 6);
        let set = |flows: &[u32]| flows.iter().map(|&flow| key(flow)).collect();
        // Precision 2 of 3, recall 2 of 4.
        assert!((f1(&set(&[1, 2, 3]), &set(&[1, 2, 4, 5])) - 4.0 / 7.0).abs() < 1e-12);
        // Off by 1, 2 and 1; means of 9.5, 1 and 0.5.
        let off = wmre(&[(1, 9.0), (2, 2.0)], &[(1, 10.0), (5, 1.0)]);
        assert!((off - 4.0 / 11.0).abs() < 1e-12);
    }
}
