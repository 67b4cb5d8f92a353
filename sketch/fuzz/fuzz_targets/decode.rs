//! Arbitrary bucket contents: decoding ends, and when it claims completeness the flows, encoded
//! again, are the sketch.
#![no_main]

use calumma_sketch::fermat::P;
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, HashKey, Shape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, u8, u8, Vec<u32>)| {
    let (prime, fingerprint, arrays, buckets, words) = input;
    let shape = Shape {
        arithmetic: if prime { Arithmetic::Prime } else { Arithmetic::Wrapping },
        fingerprint,
        arrays: 2 + usize::from(arrays % 4),
        buckets: 1 + usize::from(buckets % 32),
    };
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let words = words.into_iter().map(|word| if prime { word % P } else { word });
    let words = words.chain(std::iter::repeat(0));
    let words = words.take(shape.total_buckets() * shape.arithmetic.words());
    let sketch = FermatSketch::<FlowKey>::from_words(shape, words).unwrap();
    let decoded = sketch.clone().decode(&family);
    if !decoded.is_complete() {
        return;
    }
    let mut again = FermatSketch::new(shape);
    for (key, &packets) in decoded.flowset() {
        let mut rest = packets;
        while rest != 0 {
            let some = rest.clamp(-i64::from(i32::MAX), i64::from(i32::MAX));
            again.insert(&family, key, some as i32);
            rest -= some;
        }
    }
    assert_eq!(again, sketch);
});
