//! Decoding with hints: never less than plain decoding gives, never a wrong flow in a complete one,
//! and far more flows from the same buckets where hints are good.

use std::collections::BTreeMap;

use crate::common::{STRUCTURES, family, random_keys};
use calumma_sketch::fermat::{Decoded, Lanes};
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Shape};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const KINDS: [Shape; 3] = [
    Shape { arithmetic: Arithmetic::Prime, fingerprint: true, arrays: 3, buckets: 4096 },
    Shape { arithmetic: Arithmetic::Prime, fingerprint: false, arrays: 3, buckets: 4096 },
    Shape { arithmetic: Arithmetic::Wrapping, fingerprint: false, arrays: 3, buckets: 4096 },
];

fn packets_of(flow: usize) -> i32 {
    if flow.is_multiple_of(16) { 1 + flow as i32 * 11 } else { 1 + flow as i32 % 7 }
}

fn sketch_of(shape: Shape, family: &HashFamily, keys: &[FlowKey]) -> FermatSketch {
    let mut sketch = FermatSketch::new(shape);
    for (flow, key) in keys.iter().enumerate() {
        sketch.insert(family, key, packets_of(flow));
    }
    sketch
}

/// Whether exactly these flows come out at a load factor, with such shares of them hinted and of
/// the hints stale.
fn decodes(shape: Shape, load: f64, hinted: f64, stale: f64, seed: u64) -> bool {
    let family = family(seed);
    let flows = (load * shape.total_buckets() as f64) as usize;
    let hinted = (flows as f64 * hinted) as usize;
    let stale = (hinted as f64 * stale) as usize;
    let keys = random_keys(&mut StdRng::seed_from_u64(seed), flows + stale);
    let hints = [&keys[..hinted], &keys[flows..]].concat();
    let decoded = sketch_of(shape, &family, &keys[..flows]).decode_with_hints(&family, &hints);
    if decoded.is_complete() {
        let packets =
            keys.iter().take(flows).enumerate().map(|(flow, key)| (*key, packets_of(flow)));
        let truth: BTreeMap<FlowKey, i64> = packets.map(|(key, n)| (key, n.into())).collect();
        assert_eq!(decoded.flows().iter().copied().collect::<BTreeMap<_, _>>(), truth);
    }
    decoded.is_complete()
}

#[test]
fn hints_raise_the_load_that_decodes_as_documented() {
    for shape in KINDS {
        for (hinted, stale, load) in
            [(0.0, 0.0, 0.78), (0.5, 0.0, 0.95), (0.8, 0.2, 1.4), (0.9, 0.3, 1.8), (1.0, 0.0, 2.5)]
        {
            for seed in 0..5 {
                assert!(decodes(shape, load, hinted, stale, seed), "{shape:?} {hinted} {stale}");
            }
        }
        assert!(!decodes(shape, 0.85, 0.0, 0.0, 1), "{shape:?}");
    }
    // Eight equations tell seven flows of a bucket apart where five tell four.
    assert!(decodes(KINDS[2], 3.6, 1.0, 0.0, 1));
    assert!(!decodes(KINDS[0], 3.6, 1.0, 0.0, 1));
}

#[test]
fn structured_keys_are_hinted_as_well_as_random_ones() {
    let shape = KINDS[0];
    let flows = (1.3 * shape.total_buckets() as f64) as u32;
    for (kind, keys) in STRUCTURES {
        let (family, keys) = (family(5), keys(flows));
        // Four in five, here and there, and one from the last epoch for each five of these.
        let known = keys.iter().enumerate().filter(|(at, _)| at % 5 != 2).map(|(_, key)| *key);
        let gone = (0..flows / 6).map(|n| FlowKey::from_words(0x0A00_0000 + n, 99, 80, 17));
        let hints: Vec<FlowKey> = known.chain(gone).collect();
        let decoded = sketch_of(shape, &family, &keys).decode_with_hints(&family, &hints);
        assert!(decoded.is_complete(), "{kind}: {} buckets remain", decoded.remaining_buckets());
        for (flow, key) in keys.iter().enumerate() {
            assert_eq!(decoded.packets_of(key), Some(packets_of(flow).into()), "{kind}");
        }
    }
}

fn key(n: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + n % 7, 0x0B00_0000 + n % 5, n << 16 | 80, 6)
}

proptest! {
    #[test]
    fn hints_never_make_a_decode_worse_or_wrong(
        kind in 0_usize..3,
        buckets in 4_usize..40,
        flows in prop::collection::vec((0_u32..200, -20_i32..1000), 0..120),
        hints in prop::collection::vec(0_u32..260, 0..200),
        seed: u64,
    ) {
        let (family, shape) = (family(seed), KINDS[kind].with_buckets(buckets));
        let mut sketch = FermatSketch::new(shape);
        let mut truth = BTreeMap::new();
        for (n, packets) in flows {
            sketch.insert(&family, &key(n), packets);
            *truth.entry(key(n)).or_insert(0) += i64::from(packets);
        }
        truth.retain(|_, packets| *packets != 0);
        // Hints come in any order, twice, and of flows that are not there.
        let hints: Vec<FlowKey> = hints.into_iter().map(key).collect();
        let plain = sketch.clone().decode(&family);
        let hinted = sketch.clone().decode_with_hints(&family, &hints);
        if plain.is_complete() {
            prop_assert_eq!(&hinted, &plain);
        }
        let exact = |decoded: &Decoded| {
            decoded.flows().iter().filter(|(key, packets)| truth.get(key) == Some(packets)).count()
        };
        prop_assert!(exact(&hinted) >= exact(&plain));

        // Whatever comes out, taking it out of the sketch leaves as many buckets as it says.
        let mut rest = sketch;
        for &(key, packets) in hinted.flows() {
            rest.insert(&family, &key, -(packets as i32));
        }
        let left = rest.buckets().iter().filter(|bucket| !bucket.is_zero()).count();
        prop_assert_eq!(left, hinted.remaining_buckets());
        if hinted.is_complete() && shape.fingerprint {
            prop_assert_eq!(hinted.into_flowset().into_iter().collect::<BTreeMap<_, _>>(), truth);
        }
    }

    #[test]
    fn hints_to_garbage_always_end(
        kind in 0_usize..3,
        words in prop::collection::vec(prop_oneof![Just(0), 0_u32..9, 0_u32..4_294_967_291], 8 * 3 * 8),
        hints in prop::collection::vec(any::<[u8; 13]>(), 0..100),
        seed: u64,
    ) {
        let (family, shape) = (family(seed), KINDS[kind].with_buckets(8));
        let words = words.into_iter().take(shape.total_buckets() * shape.arithmetic.words());
        let garbage = FermatSketch::from_words(shape, words).unwrap();
        let hints: Vec<FlowKey> = hints.into_iter().map(FlowKey::from_bytes).collect();
        let decoded = garbage.clone().decode_with_hints(&family, &hints);
        if decoded.is_complete() {
            let mut rest = garbage;
            for &(key, packets) in decoded.flows() {
                rest.insert(&family, &key, -(packets as i32));
            }
            prop_assert!(rest.buckets().iter().all(|bucket| bucket.is_zero()));
        }
    }
}
