//! Seeded traffic.

use std::collections::HashSet;

use anyhow::{Context, Result};
use calumma_sketch::FlowKey;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// `number` distinct keys without any structure.
pub fn keys(number: usize, seed: u64) -> Vec<FlowKey> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut seen = HashSet::with_capacity(number);
    let keys = std::iter::repeat_with(|| FlowKey::from_bytes(rng.random()));
    keys.filter(|&key| seen.insert(key)).take(number).collect()
}

/// `number` distinct source addresses, all other fields zero: keys of four bytes.
pub fn addresses(number: usize, seed: u64) -> Vec<FlowKey> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut seen = HashSet::with_capacity(number);
    let keys = std::iter::repeat_with(|| FlowKey::from_words(rng.random(), 0, 0, 0));
    keys.filter(|&key| seen.insert(key)).take(number).collect()
}

/// The keys of `packets` packets, each one's flow drawn from a Zipf distribution over `flows`.
pub fn zipf(flows: usize, packets: usize, exponent: f64, seed: u64) -> Vec<FlowKey> {
    let mut rng = StdRng::seed_from_u64(!seed);
    zipf_of(&keys(flows, seed), packets, exponent, &mut rng)
}

/// `packets` packets of flows of `keys`, each one's drawn from a Zipf distribution, the first ones
/// with the most.
pub fn zipf_of(keys: &[FlowKey], packets: usize, exponent: f64, rng: &mut StdRng) -> Vec<FlowKey> {
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=keys.len())
        .map(|rank| {
            total += (rank as f64).powf(-exponent);
            total
        })
        .collect();
    let mut draw = || {
        let drawn = rng.random_range(0.0..total);
        keys[cumulated.partition_point(|&sum| sum <= drawn)]
    };
    (0..packets).map(|_| draw()).collect()
}

/// Two epochs of the flows of `keys`, each with `packets` packets drawn from a Zipf distribution;
/// in the second one flow in ten has another's place in it.
pub fn zipf_epochs(
    keys: Vec<FlowKey>,
    packets: usize,
    exponent: f64,
    seed: u64,
) -> [Vec<FlowKey>; 2] {
    let flows = keys.len();
    let mut rng = StdRng::seed_from_u64(!seed);
    let first = zipf_of(&keys, packets, exponent, &mut rng);
    let mut later = keys;
    for _ in 0..flows / 20 {
        later.swap(rng.random_range(0..flows), rng.random_range(0..flows));
    }
    [first, zipf_of(&later, packets, exponent, &mut rng)]
}

/// Losses of flow number `flow`: one in 16 has many, the others few.
pub fn losses(flow: usize) -> i32 {
    if flow.is_multiple_of(16) { 1 + (flow as i32 * 11) % 100_000 } else { 1 + flow as i32 % 7 }
}

/// The number of the first CPU that this process may run on, in a container or out of it.
///
/// # Errors
/// When the kernel does not say.
pub fn first_cpu() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    Ok(first.context("/proc/self/status names no CPU")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_the_same_for_the_same_seed_and_its_first_flow_leads() {
        let packets = zipf(100, 10_000, 1.1, 7);
        assert_eq!(packets, zipf(100, 10_000, 1.1, 7));
        let first = keys(100, 7)[0];
        let share = packets.iter().filter(|&&key| key == first).count();
        assert!((1_500..4_000).contains(&share), "{share}");
    }
}
