//! How often a loaded sketch decodes at load factor 0.7 in 3 x 4096 buckets, for random, structured
//! and real keys: 6,000 sets of them, or 28,000 with `CALUMMA_SWEEPS=large`.
//!
//! Of random sets one in 1,850 must fail, since two of its 8,602 flows share all three buckets.

mod common;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Shape};
use common::{STRUCTURES, family, flows_of, real_packets};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The test machine's cores.
const THREADS: usize = 2;

/// Flows at load factor 0.7.
const FLOWS: usize = 8602;

/// So many sets of a large sweep as are decoded here.
fn sets(large: usize) -> usize {
    if calumma_testenv::are_sweeps_large() { large } else { large / 5 }
}

/// Failures that so many sets exceed by chance less than once in 1,000 times: a quantile of the
/// Poisson distribution whose mean is one in 1,850.
fn most_failures(sets: usize) -> usize {
    let mean = sets as f64 / 1_850.0;
    let mut chance = (-mean).exp();
    let (mut failures, mut exceeded) = (0, 1.0 - chance);
    while exceeded > 1e-3 {
        failures += 1;
        chance *= mean / failures as f64;
        exceeded -= chance;
    }
    failures
}

#[test]
fn the_bound_on_failures_is_a_quantile() {
    // For a mean of 2, P(X > 7) is 1.1e-3 and P(X > 8) 2.4e-4.
    assert_eq!([0, 3_700].map(most_failures), [0, 8]);
}

/// Decodes the flows that `keys` gives for each of `sets`, each under hash tables of its own. Gives
/// how many failed, which are not more than chance allows, and of how many.
fn assert_decodes(
    kind: &str,
    shape: Shape,
    sets: Range<usize>,
    keys: impl Fn(usize) -> Vec<FlowKey> + Sync,
) -> [usize; 2] {
    let (next, failures) = (AtomicUsize::new(sets.start), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut sketch = FermatSketch::new(shape);
                loop {
                    let set = next.fetch_add(1, Ordering::Relaxed);
                    if set >= sets.end {
                        break;
                    }
                    let decoded = decodes(&mut sketch, &family(set as u64), &keys(set));
                    failures.fetch_add(usize::from(!decoded), Ordering::Relaxed);
                }
            });
        }
    });
    let (failures, sets) = (failures.into_inner(), sets.len());
    eprintln!("{kind}, {:?}: {failures} of {sets} failed", shape.arithmetic);
    assert!(failures <= most_failures(sets), "{kind}: {failures} of {sets} failed");
    [failures, sets]
}

/// Holds several sweeps together to what chance allows, which is less than each alone is allowed.
fn assert_together(sweeps: impl IntoIterator<Item = [usize; 2]>) {
    let [failures, sets] =
        sweeps.into_iter().fold([0, 0], |sum, sweep| [sum[0] + sweep[0], sum[1] + sweep[1]]);
    assert!(failures <= most_failures(sets), "in all, {failures} of {sets} failed");
}

/// Whether exactly these flows come out.
fn decodes(sketch: &mut FermatSketch, family: &HashFamily, keys: &[FlowKey]) -> bool {
    // One flow in 16 has many packets, the others few.
    let packets_of = |flow: usize| {
        if flow.is_multiple_of(16) { 1 + flow as i32 * 11 } else { 1 + flow as i32 % 7 }
    };
    sketch.clear();
    let whole = sketch.whole();
    for (flow, key) in keys.iter().enumerate() {
        sketch.insert_into(&whole, key, &family.hash(key), packets_of(flow));
    }
    let decoded = sketch.clone().decode(family);
    if !decoded.is_complete() {
        return false;
    }
    assert_eq!(decoded.flowset().len(), keys.len(), "complete, but not these flows");
    for (flow, key) in keys.iter().enumerate().step_by(97) {
        assert_eq!(decoded.packets_of(key), Some(i64::from(packets_of(flow))));
    }
    true
}

const PRIME: Shape =
    Shape { arithmetic: Arithmetic::Prime, fingerprint: true, arrays: 3, buckets: 4096 };
const WRAPPING: Shape = Shape { arithmetic: Arithmetic::Wrapping, ..PRIME };

/// Keys of random bytes; that two of them are alike happens once in 10^23 sets.
fn random(set: usize) -> Vec<FlowKey> {
    let mut rng = StdRng::seed_from_u64(set as u64);
    (0..FLOWS).map(|_| FlowKey::from_bytes(rng.random())).collect()
}

#[test]
fn random_keys_fail_to_decode_once_in_1850_times() {
    assert_together([
        assert_decodes("random keys", PRIME, 0..sets(10_000), random),
        assert_decodes("random keys", WRAPPING, 0..sets(2_000), random),
    ]);
}

#[test]
fn structured_keys_decode_as_often() {
    let mut sweeps = Vec::new();
    for (kind, keys) in STRUCTURES {
        let keys = keys(FLOWS as u32);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), FLOWS, "{kind}");
        sweeps.push(assert_decodes(kind, PRIME, 0..sets(2_000), |_| keys.clone()));
        let wrapping = 2_000..2_000 + sets(400);
        sweeps.push(assert_decodes(kind, WRAPPING, wrapping, |_| keys.clone()));
    }
    assert_together(sweeps);
}

#[test]
fn real_keys_decode_as_often() {
    let mut sweeps = Vec::new();
    for name in ["backbone-65k.pcap", "mixed-captures.pcap"] {
        let Some(packets) = real_packets(name) else { continue };
        let flows: Vec<FlowKey> = flows_of(&packets).into_keys().collect();
        assert!(flows.len() > FLOWS, "{name}: {} flows", flows.len());
        // Neighbouring flows of the capture, as one rack or one moment would have them.
        let some = |set: usize| {
            let from = set * 131 % flows.len();
            flows.iter().cycle().skip(from).take(FLOWS).copied().collect()
        };
        sweeps.push(assert_decodes(name, PRIME, 0..sets(1_000), some));
    }
    assert_together(sweeps);
}

#[test]
fn wrong_flows_that_go_to_and_fro_do_not_use_up_the_decoder() {
    // In these sets the mean of two flows passes for a flow, and its other buckets are empty. A
    // decoder that looks at the last changed bucket first moves it to and fro for ever.
    for set in [1460, 3346, 3539, 3671] {
        let mut sketch = FermatSketch::new(WRAPPING);
        assert!(decodes(&mut sketch, &family(set), &random(set as usize)), "set {set}");
    }
}
