//! Truths about traffic, and how far answers are from them.

use std::collections::HashMap;

use calumma_baselines::Insert;
use calumma_sketch::FlowKey;

/// Flows and their packets.
pub(crate) type Truth = HashMap<FlowKey, u32>;

/// The sketch with the packets counted.
pub(crate) fn filled<S: Insert>(mut sketch: S, packets: &[FlowKey]) -> S {
    packets.iter().for_each(|key| sketch.insert(key));
    sketch
}

/// Weighted mean relative error of a distribution of flow sizes.
pub(crate) fn wmre(truth: &Truth, sizes: &[(u64, f64)]) -> f64 {
    let mut difference: HashMap<u64, f64> = HashMap::new();
    truth.values().for_each(|&size| *difference.entry(size.into()).or_default() -= 1.0);
    sizes.iter().for_each(|&(size, flows)| *difference.entry(size).or_default() += flows);
    let total = truth.len() as f64 + sizes.iter().map(|size| size.1).sum::<f64>();
    2.0 * difference.values().map(|flows| flows.abs()).sum::<f64>() / total
}
