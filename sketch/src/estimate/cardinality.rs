//! Linear counting: how many flows there were, from the share of counters none of them hit.

use crate::tower::TowerSketch;

/// A number and how far it is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error, in the same unit. `None` where the sketch was out of its range and the
    /// value is no more than a lower bound.
    pub standard_error: Option<f64>,
}

impl Estimate {
    /// Whether the sketch was out of its range, so that the truth is probably larger.
    pub fn is_lower_bound(&self) -> bool {
        self.standard_error.is_none()
    }

    /// The nearest whole number, the larger of two.
    pub(super) fn rounded(&self) -> u64 {
        // As `f64::round`, which is a call where not all CPUs have an instruction for it.
        let whole = self.value as u64;
        whole + u64::from(self.value - whole as f64 >= 0.5)
    }
}

/// Flows that the classifier saw, by linear counting (section 4.2 of the ChameleMon paper; Whang
/// and others 1990), all arrays taken together.
///
/// With w counters of which a share V is zero, an array's estimate is -w ln V flows; at t = n / w
/// flows a counter its standard error is sqrt(w (e^t - t - 1)). Flows fall into each array
/// independently of the others, so the estimates are averaged by the inverse of their variance. On
/// the default layout that gives 0.5 % of 30,000 flows and 1.0 % of 200,000.
///
/// In an array whose size is no power of two, some counters have more of the hash words than
/// others, up to a quarter. Counted as even it would give about 1 % too few flows, more than its
/// standard error; so the number of flows is looked for that leaves so many counters zero on
/// average.
///
/// An array without any zero counter says only that there were many flows and is left out. Where
/// none has a zero counter left, the value is w ln w of the widest, the number of flows that leaves
/// one zero counter on average, and has no standard error: a lower bound.
///
/// Flows that are known from the HH flowset don't help: mice are in there for sharing their
/// counters with elephants, so the unknown ones are no longer spread at random.
pub fn cardinality(classifier: &TowerSketch) -> Estimate {
    let (mut weighted, mut weights, mut floor) = (0.0, 0.0, 0.0_f64);
    for (at, level) in classifier.levels().enumerate() {
        let counters = f64::from(level.counters);
        let zero = classifier.zeros(at);
        if zero == level.counters as usize {
            return Estimate { value: 0.0, standard_error: Some(0.0) };
        }
        floor = floor.max(counters * counters.ln());
        if zero > 0 {
            let flows = flows_leaving(zero as f64, &classifier.chances(at).collect::<Vec<_>>());
            let load = flows / counters;
            let weight = 1.0 / (counters * (load.exp() - load - 1.0));
            weighted += weight * flows;
            weights += weight;
        }
    }
    if weights == 0.0 {
        return Estimate { value: floor, standard_error: None };
    }
    Estimate { value: weighted / weights, standard_error: Some((1.0 / weights).sqrt()) }
}

/// How many flows leave `zero` of an array's counters untouched on average. Of each of its `strata`
/// the number of counters and the chance of each that a flow falls on it.
fn flows_leaving(zero: f64, strata: &[(f64, f64)]) -> f64 {
    let mut flows = 0.0_f64;
    // Newton's method on a convex falling curve: from the left it never goes too far, and about one
    // step for each flow a counter brings it near.
    for _ in 0..64 {
        let (mut left, mut slope) = (0.0, 0.0);
        for &(counters, chance) in strata {
            let untouched = counters * (-flows * chance).exp();
            left += untouched;
            slope += untouched * chance;
        }
        let step = (left - zero) / slope;
        flows += step;
        if step < 1e-6 * flows {
            break;
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, HashFamily, HashKey, Level};

    fn tower(levels: &[Level], flows: u32) -> TowerSketch {
        let family = HashFamily::new(&HashKey::from_bytes([4; 32]));
        let mut tower = TowerSketch::new(levels).unwrap();
        for flow in 0..flows {
            tower.insert(&family.hash(&FlowKey::from_words(0x0A00_0000 + flow, 7, flow << 7, 17)));
        }
        tower
    }

    #[test]
    fn an_empty_classifier_saw_no_flow() {
        let none = cardinality(&tower(&[Level::new(8, 100)], 0));
        assert_eq!(none, Estimate { value: 0.0, standard_error: Some(0.0) });
    }

    #[test]
    fn the_truth_lies_within_four_standard_errors() {
        let levels = [Level::new(8, 32_768), Level::new(16, 16_384)];
        for flows in [1, 100, 3_000, 30_000, 100_000, 200_000] {
            let estimate = cardinality(&tower(&levels, flows));
            let error = (estimate.value - f64::from(flows)).abs();
            let allowed = 4.0 * estimate.standard_error.unwrap() + 1e-3;
            assert!(error <= allowed, "{flows} flows: {estimate:?}");
        }
    }

    #[test]
    fn an_array_whose_size_is_no_power_of_two_tells_no_fewer_flows() {
        // 4.5 hash words a counter: half have five, the others four.
        let levels = [Level::new(8, 29_127)];
        let trials = 24;
        let error = |seed: u32| {
            let family = HashFamily::new(&HashKey::from_bytes([seed as u8; 32]));
            let mut tower = TowerSketch::new(&levels).unwrap();
            for flow in 0..60_000 {
                tower.insert(&family.hash(&FlowKey::from_words(flow, seed, 1, 6)));
            }
            let estimate = cardinality(&tower);
            (estimate.value - 60_000.0) / estimate.standard_error.unwrap()
        };
        // Taken for even, they would be two standard errors below the truth on average.
        let mean = (0..trials).map(error).sum::<f64>() / f64::from(trials);
        assert!(mean.abs() < 4.0 / f64::from(trials).sqrt(), "{mean} standard errors");
    }

    #[test]
    fn arrays_are_trusted_as_far_as_their_zero_counters_tell() {
        let full = [Level::new(8, 16), Level::new(16, 4_096)];
        let both = [Level::new(8, 2_048), Level::new(16, 4_096)];
        let error = |levels: &[Level]| {
            let estimate = cardinality(&tower(levels, 1_000));
            assert!((estimate.value - 1_000.0).abs() < 4.0 * estimate.standard_error.unwrap());
            estimate.standard_error.unwrap()
        };
        assert!(error(&both) < 0.9 * error(&full));
    }

    #[test]
    fn without_a_zero_counter_the_value_is_a_lower_bound_and_says_so() {
        let estimate = cardinality(&tower(&[Level::new(8, 64), Level::new(16, 32)], 5_000));
        assert!(estimate.is_lower_bound());
        assert!(estimate.value > 64.0 && estimate.value < 5_000.0);
    }
}
