//! Sets of flows that share all their buckets are set aside, and the other flows are exact.

use std::collections::BTreeMap;

use calumma_sketch::{
    Arithmetic, Decoded, FermatSketch, FlowKey, HashFamily, Key, Part, Shape, WideKey,
};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{family, random_keys};

fn shape(arithmetic: Arithmetic) -> Shape {
    Shape { arithmetic, ..Shape::default().with_buckets(16) }
}

fn any_key<K: Key>(rng: &mut StdRng) -> K {
    let words: [u32; 9] = rng.random();
    K::from_word_fn(|at| words[at], rng.random())
}

/// The bucket of a flow in each array.
fn place<K: Key>(family: &HashFamily, shape: Shape, key: &K) -> [u32; 3] {
    let (whole, hashes) = (Part::new(0, shape.buckets as u32), family.hash(key));
    [0, 1, 2].map(|array| whole.bucket(hashes.array_word(array)))
}

/// Flows that share a bucket in every array: found by trying.
fn together<K: Key>(family: &HashFamily, shape: Shape, rng: &mut StdRng, flows: usize) -> Vec<K> {
    let first = any_key(rng);
    let wanted = place(family, shape, &first);
    let any = std::iter::repeat_with(|| any_key(rng));
    let others = any.filter(|key| place(family, shape, key) == wanted);
    [first].into_iter().chain(others).take(flows).collect()
}

fn decode<K: Key>(family: &HashFamily, shape: Shape, flows: &[(K, i32)]) -> Decoded<K> {
    let mut sketch = FermatSketch::new(shape);
    flows.iter().for_each(|(key, packets)| sketch.insert(family, key, *packets));
    sketch.decode(family)
}

/// Packets of a flow, never none.
fn packets(rng: &mut StdRng) -> i32 {
    rng.random_range(1..2000) * if rng.random() { 1 } else { -1 }
}

/// Decodes `sets` sets of flows that share their buckets, and `others`, which may do so by chance.
/// Where that gives something that it calls exact, it is.
fn assert_sound<K: Key>(seed: u64, arithmetic: Arithmetic, sets: usize, others: usize) -> bool {
    let (mut rng, family, shape) = (StdRng::seed_from_u64(seed), family(seed), shape(arithmetic));
    let mut keys: Vec<K> = (0..others).map(|_| any_key(&mut rng)).collect();
    for _ in 0..sets {
        keys.extend(together::<K>(&family, shape, &mut rng, 2 + seed as usize % 3));
    }
    let flows: Vec<(K, i32)> = keys.into_iter().map(|key| (key, packets(&mut rng))).collect();
    let decoded = decode(&family, shape, &flows);
    if !decoded.is_exact() {
        assert!(decoded.indistinct().is_empty());
        return false;
    }
    let mut by_place: BTreeMap<_, Vec<(K, i64)>> = BTreeMap::new();
    for &(key, packets) in &flows {
        by_place.entry(place(&family, shape, &key)).or_default().push((key, packets.into()));
    }
    let (alone, shared): (Vec<_>, Vec<_>) =
        by_place.into_values().partition(|flows| flows.len() == 1);
    for (key, packets) in alone.iter().flatten() {
        assert_eq!(decoded.packets_of(key), Some(*packets), "seed {seed}");
    }
    assert_eq!(decoded.flows().len(), alone.len());
    let sums = shared.iter().map(|flows| flows.iter().map(|flow| flow.1).sum());
    let mut wanted: Vec<i64> = sums.collect();
    let mut found: Vec<i64> = decoded.indistinct().iter().map(|set| set.packets).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted, "seed {seed}");
    assert_eq!(decoded.is_complete(), wanted.is_empty());
    true
}

#[test]
fn most_sets_are_set_aside_and_all_other_flows_exact() {
    for (arithmetic, least) in [(Arithmetic::Prime, 80), (Arithmetic::Wrapping, 90)] {
        let exact = |seed| assert_sound::<FlowKey>(seed, arithmetic, 1, 10);
        let exact = (0..100).filter(|&seed| exact(seed)).count();
        assert!(exact >= least, "{arithmetic:?}: {exact} of 100");
    }
    let exact = |seed| assert_sound::<WideKey>(seed, Arithmetic::Prime, 2, 10);
    let exact = (0..50).filter(|&seed| exact(seed)).count();
    assert!(exact >= 40, "wide keys: {exact} of 50");
}

#[test]
fn two_sets_of_the_same_contents_are_none() {
    let shape = Shape { fingerprint: false, ..shape(Arithmetic::Prime) };
    let (mut rng, family) = (StdRng::seed_from_u64(2), family(2));
    let place = |key: &FlowKey| place(&family, shape, key);
    // Pairs whose sums are the same, and no multiple of two: they divide into no key.
    let mut pairs = std::iter::repeat_with(|| {
        let more: u32 = rng.random_range(0..1 << 30);
        [more, (1 << 30) + 1 - more].map(|word| FlowKey::from_words(word, word, 7, 17))
    })
    .filter(|[one, other]| place(one) == place(other));
    let (first, second) = (pairs.next().unwrap(), pairs.next().unwrap());
    assert_ne!(place(&first[0]), place(&second[0]));
    for pair in [first, second] {
        let decoded = decode(&family, shape, &pair.map(|key| (key, 1)));
        assert_eq!(decoded.indistinct().iter().map(|set| set.packets).collect::<Vec<_>>(), [2]);
    }
    let both = decode(
        &family,
        shape,
        &[first, second].concat().iter().map(|&key| (key, 1)).collect::<Vec<_>>(),
    );
    assert!(!both.is_exact() && both.remaining_buckets() == 6);
}

#[test]
fn flows_hashed_by_other_functions_are_no_sets() {
    for seed in 0..500 {
        let (here, elsewhere) = (family(seed), family(seed + 1000));
        let mut rng = StdRng::seed_from_u64(seed);
        let shape = Shape::default().with_buckets(256);
        let (mut entered, mut left) = (FermatSketch::new(shape), FermatSketch::new(shape));
        for key in random_keys(&mut rng, 1 + seed as usize % 8) {
            let packets = rng.random_range(1..50);
            entered.insert(&here, &key, packets);
            left.insert(&elsewhere, &key, packets);
        }
        entered.subtract(&left).unwrap();
        let decoded = entered.decode(&here);
        assert!(!decoded.is_exact(), "seed {seed}: {:?}", decoded.indistinct());
        assert!(!left.decode(&here).is_exact(), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_called_exact_is(seed: u64, wrapping: bool, sets in 0..4_usize, others in 0..40_usize) {
        let arithmetic = if wrapping { Arithmetic::Wrapping } else { Arithmetic::Prime };
        assert_sound::<FlowKey>(seed, arithmetic, sets, others);
    }
}
