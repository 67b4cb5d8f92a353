//! The flow sizes behind an array of counters, by expectation maximisation, and what follows from
//! them. Used by all peers that have such an array.
//!
//! The papers enumerate the ways in which flows add up to a counter's value. Under the same model,
//! flows of each size hitting counters at random, the expectations follow exactly from the
//! probabilities of the values, which Panjer's recursion gives: the results are those that full
//! enumeration would have, without the cut that the papers make to end in time.

use std::collections::BTreeMap;

/// Values below this are explained by all sums of flows; a larger one is one large flow and the
/// small ones that a counter has on average.
const DENSE: usize = 1024;

/// Iterations.
const ITERATIONS: usize = 24;

/// Counters that each take the flows of this many leaves; a plain array's have one leaf.
pub(crate) struct Counters {
    pub(crate) leaves: usize,
    pub(crate) values: Vec<u32>,
}

/// Counters of one number of leaves, by value.
struct Observed {
    leaves: f64,
    holding: Vec<f64>,
    large: Vec<u32>,
}

/// Number of flows by size behind `counters`, which have `leaves` leaves in all.
pub(crate) fn sizes_behind(counters: &[Counters], leaves: usize) -> Vec<(u64, f64)> {
    let observed: Vec<Observed> = counters.iter().map(observe).collect();
    let w = leaves as f64;
    // Flows of each size a leaf, at first as if every counter were one flow.
    let mut rates = vec![1e-9; DENSE];
    for group in &observed {
        for (size, holding) in group.holding.iter().enumerate().skip(1) {
            rates[size] += holding / w;
        }
    }
    rates[0] = 0.0;
    for _ in 0..ITERATIONS {
        let mut flows = vec![0.0; DENSE];
        for group in &observed {
            expect(group, &rates, &mut flows);
        }
        rates = flows.into_iter().map(|flows| flows / w).collect();
    }
    let mean: f64 = rates.iter().enumerate().map(|(size, rate)| size as f64 * rate).sum();
    let mut sizes: BTreeMap<u64, f64> = BTreeMap::new();
    for (size, rate) in rates.iter().enumerate().skip(1) {
        sizes.insert(size as u64, rate * w);
    }
    for group in &observed {
        for &value in &group.large {
            let beside = (group.leaves * mean).round() as u64;
            let size = u64::from(value).saturating_sub(beside).max(DENSE as u64);
            *sizes.entry(size).or_default() += 1.0;
        }
    }
    sizes.into_iter().filter(|&(_, flows)| flows > 0.0).collect()
}

fn observe(counters: &Counters) -> Observed {
    let mut holding = vec![0.0; DENSE];
    let mut large = Vec::new();
    for &value in &counters.values {
        match holding.get_mut(value as usize) {
            Some(holding) => *holding += 1.0,
            None => large.push(value),
        }
    }
    Observed { leaves: counters.leaves as f64, holding, large }
}

/// Adds the flows of each size that the group's counters hold, expected under `rates`.
fn expect(group: &Observed, rates: &[f64], flows: &mut [f64]) {
    let rates: Vec<f64> = rates.iter().map(|rate| rate * group.leaves).collect();
    let load: f64 = rates.iter().sum();
    let largest = group.holding.iter().rposition(|&holding| holding > 0.0).map_or(0, |at| at + 1);
    // Probabilities of the values, up to a common factor, which cancels out below.
    let mut values = vec![0.0; largest.max(1)];
    values[0] = (-load.min(600.0)).exp();
    for value in 1..values.len() {
        let sum: f64 =
            (1..=value).map(|size| size as f64 * rates[size] * values[value - size]).sum();
        values[value] = sum / value as f64;
    }
    let large = group.large.len() as f64;
    for size in 1..rates.len() {
        let explained: f64 = (size..largest)
            .map(|value| {
                group.holding[value] * values[value - size] / values[value].max(f64::MIN_POSITIVE)
            })
            .sum();
        flows[size] += rates[size] * (explained + large);
    }
}

/// The distribution with flows of known sizes added.
pub(crate) fn with_flows(
    sizes: Vec<(u64, f64)>,
    flows: impl Iterator<Item = u32>,
) -> Vec<(u64, f64)> {
    let mut sizes: BTreeMap<u64, f64> = sizes.into_iter().collect();
    for packets in flows {
        *sizes.entry(packets.into()).or_default() += 1.0;
    }
    sizes.into_iter().collect()
}

/// Flows that leave `empty` of `counters` counters empty (Whang and others, 1990).
pub(crate) fn linear_counting(empty: f64, counters: usize) -> f64 {
    let counters = counters as f64;
    counters * (counters / empty.max(1.0)).ln()
}

/// Entropy of flow sizes, in bits.
pub(crate) fn entropy_of(sizes: &[(u64, f64)]) -> f64 {
    let packets: f64 = sizes.iter().map(|&(size, flows)| size as f64 * flows).sum();
    let share = |&(size, flows): &(u64, f64)| {
        let share = size as f64 / packets;
        flows * share * share.log2()
    };
    -sizes.iter().map(share).sum::<f64>()
}
