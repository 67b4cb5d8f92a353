//! Arbitrary words and bytes: refused or read, and what was read gives the same words and bytes.
#![no_main]

use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, Level, Shape, TowerSketch, estimate};
use libfuzzer_sys::fuzz_target;

/// Arithmetic, buckets, their words, levels as bits and counters, and their bytes.
type Input = (bool, u8, Vec<u32>, Vec<(u8, u8)>, Vec<u8>);

fuzz_target!(|input: Input| {
    let (prime, buckets, words, levels, bytes) = input;
    let shape = Shape {
        arithmetic: if prime { Arithmetic::Prime } else { Arithmetic::Wrapping },
        ..Shape::default().with_buckets(1 + usize::from(buckets % 16))
    };
    if let Ok(sketch) = FermatSketch::<FlowKey>::from_words(shape, words.iter().copied()) {
        assert_eq!(sketch.words().collect::<Vec<_>>(), words);
    }

    let levels: Vec<Level> = levels
        .into_iter()
        .map(|(bits, counters)| Level::new(bits.into(), counters.into()))
        .collect();
    let Ok(empty) = TowerSketch::new(&levels) else { return };
    let mut bytes = bytes;
    bytes.resize(empty.bytes(), 0);
    let tower = TowerSketch::from_bytes(&levels, &bytes).unwrap();
    let mut again = Vec::new();
    tower.write_to(&mut again);
    assert_eq!(TowerSketch::from_bytes(&levels, &again).unwrap(), tower);
    assert!(estimate::cardinality(&tower).value.is_finite());
    let sizes = estimate::size_distribution(&tower, []);
    assert!(sizes.iter().all(|&(_, flows)| flows.is_finite()));
    assert!(estimate::entropy(&sizes).is_finite());
});
