//! Sketches of wide keys: IPv4 and IPv6 flows in one set of buckets, exactly as a plain multiset of
//! packets has them.

use std::collections::BTreeMap;

use crate::common::family;
use calumma_sketch::{Engine, FermatSketch, FlowKey, Shape, WideKey};
use proptest::prelude::*;

/// Flow number `n`: every other one is IPv4, and neighbours differ in few bits.
fn key(n: u32) -> WideKey {
    if n.is_multiple_of(2) {
        FlowKey::from_words(0x0A00_0000 | n, 0xC0A8_0001, n << 7, 17).into()
    } else {
        let words = [0x2001_0DB8, 0, n >> 3, n, 0xFE80_0000, n << 20, 0, 2, n << 9 | 443];
        WideKey::from_words(words, 6)
    }
}

fn shape(arrays: usize, buckets: usize, fingerprint: bool) -> Shape {
    Shape { arrays, buckets, fingerprint, ..Shape::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Packets entered on two replicas and, save some, left again: what decodes is what was lost.
    #[test]
    fn entered_minus_left_decodes_to_the_lost_packets(
        flows in prop::collection::vec((any::<([u32; 9], u8)>(), 0i32..2000, 0i32..2000), 0..120),
        arrays in 3usize..=5,
        fingerprint: bool,
        seed: u64,
    ) {
        let family = family(seed);
        let shape = shape(arrays, 128, fingerprint);
        let mut replicas = [FermatSketch::new(shape), FermatSketch::new(shape)];
        let mut left = FermatSketch::new(shape);
        let mut lost = BTreeMap::new();
        for (at, &((words, protocol), packets, leaving)) in flows.iter().enumerate() {
            let key = WideKey::from_words(words, protocol);
            replicas[at % 2].insert(&family, &key, packets);
            left.insert(&family, &key, leaving);
            *lost.entry(key).or_insert(0_i64) += i64::from(packets - leaving);
        }
        lost.retain(|_, packets| *packets != 0);
        let [mut delta, other] = replicas;
        delta.add(&other).unwrap();
        delta.subtract(&left).unwrap();

        let words: Vec<u32> = delta.words().collect();
        prop_assert_eq!(words.len(), shape.total_buckets() * 11);
        prop_assert_eq!(&FermatSketch::<WideKey>::from_words(shape, words).unwrap(), &delta);
        let decoded = delta.clone().decode(&family);
        for engine in Engine::available() {
            prop_assert_eq!(&delta.clone().decode(&family.clone().with_engine(engine)), &decoded);
        }
        if decoded.is_complete() {
            let flows: BTreeMap<WideKey, i64> = decoded.flows().iter().copied().collect();
            prop_assert_eq!(flows, lost);
        } else {
            // Only what three arrays are likely to leave over.
            prop_assert!(shape.failure_probability(lost.len()) > 1e-9);
        }
    }
}

#[test]
fn neighbouring_flows_of_both_families_decode_at_the_usual_load() {
    let (family, shape) = (family(7), Shape::default());
    let flows = (shape.total_buckets() * 7 / 10) as u32;
    let mut sketch = FermatSketch::new(shape);
    (0..flows).for_each(|n| sketch.insert(&family, &key(n), n as i32 + 1));
    let decoded = sketch.clone().decode(&family);
    assert!(decoded.is_complete());
    assert_eq!(decoded.flows().len(), flows as usize);
    assert!((0..flows).all(|n| decoded.packets_of(&key(n)) == Some(i64::from(n) + 1)));

    (flows..2 * flows).for_each(|n| sketch.insert(&family, &key(n), n as i32 + 1));
    assert!(!sketch.clone().decode(&family).is_complete());
    let hints: Vec<WideKey> = (0..2 * flows).map(key).collect();
    let decoded = sketch.decode_with_hints(&family, &hints);
    assert!(decoded.is_complete());
    assert!((0..2 * flows).all(|n| decoded.packets_of(&key(n)) == Some(i64::from(n) + 1)));
}
