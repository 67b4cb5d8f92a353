//! Sketches sized for a failure probability fail about as often as that, with the real hash family:
//! from one flow to 100,000, three to five arrays, both arithmetics, with and without fingerprint.

use std::thread;

use crate::common::family;
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, Shape};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Flows put into sketches for each case.
const WORK: usize = 400_000;

/// How many of `trials` sketches with `flows` flows of random keys don't decode.
fn failures(shape: Shape, flows: usize, trials: usize, seed: u64) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sketch = FermatSketch::new(shape);
    let mut family = family(seed);
    let failed = |trial: usize| {
        if trial % 256 == 255 {
            family = crate::common::family(seed + trial as u64);
        }
        sketch.clear();
        for flow in 0..flows {
            let packets = if flow % 16 == 0 { 1 + flow as i32 * 11 } else { 1 + flow as i32 % 7 };
            sketch.insert(&family, &FlowKey::from_bytes(rng.random()), packets);
        }
        !sketch.clone().decode(&family).is_complete()
    };
    (0..trials).map(failed).filter(|&failed| failed).count()
}

/// Sizes a sketch of this kind for each number of flows and probability that can be tried often
/// enough, and compares how often it should fail with how often it does.
fn assert_as_expected(kind: Shape) {
    let mut seed = 1;
    for flows in [1, 2, 3, 5, 10, 20, 40, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000] {
        for wanted in [0.3, 1e-1, 1e-2, 1e-3, 1e-4] {
            let trials = (WORK / flows).clamp(16, 100_000);
            if (wanted * trials as f64) < 4.0 {
                continue;
            }
            let shape = kind.with_buckets(kind.buckets_for(flows, wanted).unwrap());
            let expected = shape.failure_probability(flows) * trials as f64;
            seed += 1;
            let failed = failures(shape, flows, trials, seed) as f64;
            let chance = 4.0 * expected.sqrt() + 1.0;
            let text = format!("{flows} flows, {wanted}: {failed} of {trials}, not {expected}");
            assert!(failed <= 1.35 * expected + chance, "{shape:?}: {text}");
            assert!(failed >= 0.6 * expected - chance, "{shape:?}: {text}");
        }
    }
}

#[test]
fn sized_sketches_fail_as_seldom_as_asked() {
    let three = Shape::default();
    let shapes = [
        three,
        Shape { arrays: 4, ..three },
        Shape { arrays: 5, ..three },
        Shape { fingerprint: false, ..three },
        Shape { arithmetic: Arithmetic::Wrapping, ..three },
    ];
    thread::scope(|scope| {
        for shape in shapes {
            scope.spawn(move || assert_as_expected(shape));
        }
    });
}
