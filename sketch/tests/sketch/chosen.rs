//! Flows that somebody chose to be mistaken for each other, knowing all but the secret.
//!
//! Keys agree in both CRCs where the generators divide their difference, and whoever knows the
//! generators finds such keys by Gaussian elimination. One packet each of two such flows looks like
//! two packets of a third (a *triple*), or like nothing that can be decoded (a *jam*).

use calumma_sketch::hash::crc::{CASTAGNOLI, CrcPair, ISO_HDLC, bitwise};
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Key, Shape, WideKey};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::family;

/// A key's bytes as the CRCs read them.
trait Padded: Key {
    const LEN: usize;
    fn from_slice(bytes: &[u8]) -> Self;
    fn crcs(&self, pair: &CrcPair) -> u64;
}

fn side_by_side((x, y): (u32, u32)) -> u64 {
    u64::from(x) << 32 | u64::from(y)
}

impl Padded for FlowKey {
    const LEN: usize = FlowKey::LEN;

    fn from_slice(bytes: &[u8]) -> Self {
        Self::from_bytes(bytes.try_into().unwrap())
    }

    fn crcs(&self, pair: &CrcPair) -> u64 {
        side_by_side(pair.of(self.padded()))
    }
}

impl Padded for WideKey {
    const LEN: usize = WideKey::LEN;

    fn from_slice(bytes: &[u8]) -> Self {
        Self::from_bytes(bytes.try_into().unwrap())
    }

    fn crcs(&self, pair: &CrcPair) -> u64 {
        side_by_side(pair.of(self.padded()))
    }
}

/// The CRCs that everybody knows, which once were those of all deployments.
fn known_to_all(key: &FlowKey) -> u64 {
    let crc = |generator| bitwise(generator, key.padded());
    side_by_side((crc(CASTAGNOLI), crc(ISO_HDLC)))
}

/// What each bit of a key does to its CRCs, byte by byte, lowest bit first.
fn effects<K: Padded>(crcs: impl Fn(&K) -> u64) -> Vec<u64> {
    let zero = crcs(&K::default());
    let effect = |bit: usize| {
        let mut bytes = vec![0; K::LEN];
        bytes[bit / 8] = 1 << (bit % 8);
        crcs(&K::from_slice(&bytes)) ^ zero
    };
    (0..8 * K::LEN).map(effect).collect()
}

/// A basis of the differences in some bits of a key that change neither CRC.
fn kernel(effects: &[u64], free: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
    let mut basis: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut kernel = Vec::new();
    for (bit, &effect) in effects.iter().enumerate().filter(|&(bit, _)| free(bit)) {
        let (mut rest, mut bytes) = (effect, vec![0; effects.len() / 8]);
        bytes[bit / 8] = 1 << (bit % 8);
        for (vector, with) in &basis {
            if rest ^ vector < rest {
                (rest, bytes) = (rest ^ vector, xor(&bytes, with));
            }
        }
        if rest == 0 { kernel.push(bytes) } else { basis.push((rest, bytes)) }
    }
    kernel
}

fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}

/// A difference that a random part of the basis makes.
fn any_of(rng: &mut StdRng, basis: &[Vec<u8>]) -> Vec<u8> {
    let mut sum = vec![0; basis[0].len()];
    while sum.iter().all(|&byte| byte == 0) {
        for vector in basis.iter().filter(|_| rng.random()) {
            sum = xor(&sum, vector);
        }
    }
    sum
}

/// Bits of a difference that may be doubled: they stay in their byte, and below the top bit of
/// their word, which stands in another fragment.
fn doubles(bit: usize) -> bool {
    bit % 8 < if (bit / 8).is_multiple_of(4) { 6 } else { 7 }
}

/// Two flows and the one between them, each fragment of which is the mean of theirs.
fn triple<K: Padded>(rng: &mut StdRng, difference: &[u8]) -> [K; 3] {
    let base: Vec<u8> = difference.iter().map(|d| rng.random::<u8>() & !(d | d << 1)).collect();
    let far = xor(&base, &difference.iter().map(|d| d << 1).collect::<Vec<_>>());
    [&base, &far, &xor(&base, difference)].map(|bytes| K::from_slice(bytes))
}

/// Two flows that were chosen to agree in everything.
fn jam<K: Padded>(rng: &mut StdRng, difference: &[u8]) -> [K; 2] {
    let base: Vec<u8> = difference.iter().map(|_| rng.random()).collect();
    [&base, &xor(&base, difference)].map(|bytes| K::from_slice(bytes))
}

/// What decodes of one packet of each flow.
fn of_one_each<K: Key>(family: &HashFamily, flows: &[K]) -> calumma_sketch::Decoded<K> {
    let mut sketch = FermatSketch::new(Shape::default());
    flows.iter().for_each(|flow| sketch.insert(family, flow, 1));
    sketch.decode(family)
}

fn assert_all_come_out<K: Key>(family: &HashFamily, flows: &[K]) {
    let decoded = of_one_each(family, flows);
    assert!(decoded.is_complete(), "{} buckets remain", decoded.remaining_buckets());
    assert_eq!(decoded.flows().len(), flows.len());
    flows.iter().for_each(|flow| assert_eq!(decoded.packets_of(flow), Some(1), "{flow}"));
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

#[test]
fn flows_of_equal_public_crcs_decode() {
    let narrow = [
        "0a0001000a0400070001000011",
        "0a5485ac0a06ace70e2d504611",
        "0a0100020a0200029c40145106",
        "0a01000234c7cf9f43fce6a311",
    ]
    .map(|text| FlowKey::from_slice(&hex(text)));
    assert_eq!(known_to_all(&narrow[0]), known_to_all(&narrow[1]));
    assert_eq!(known_to_all(&narrow[2]), known_to_all(&narrow[3]));
    let wide = [
        "20010db8000100000000000000000000\
         20010db80002000000000000000000020000000011",
        "20010db80001000062840880101aa094\
         20010db80002000000000000000000022040602211",
    ]
    .map(|text| WideKey::from_slice(&hex(text)));
    for secret in [[0; 32], [7; 32], [255; 32]] {
        let family = HashFamily::new(&HashKey::from_bytes(secret));
        assert_all_come_out(&family, &narrow[..2]);
        assert_all_come_out(&family, &narrow[2..]);
        assert_all_come_out(&family, &wide);
    }
}

#[test]
fn no_difference_that_one_secret_does_not_see_is_unseen_by_another() {
    let rank = |vectors: &[u128]| {
        let mut basis: Vec<u128> = Vec::new();
        for &vector in vectors {
            let rest = basis.iter().fold(vector, |rest, &b| rest.min(rest ^ b));
            if rest != 0 {
                basis.push(rest);
            }
        }
        basis.len()
    };
    let known = effects(known_to_all);
    let mut before = known.clone();
    for seed in 0..10_000 {
        let family = family(seed);
        let now = effects(|key: &FlowKey| key.crcs(family.crcs()));
        for solved in [&known, &before] {
            let both: Vec<u128> = solved
                .iter()
                .zip(&now)
                .map(|(&a, &b)| u128::from(a) << 64 | u128::from(b))
                .collect();
            assert_eq!(rank(&both), 8 * FlowKey::LEN, "family {seed}");
        }
        before = now;
    }
}

#[test]
fn differences_solved_for_under_one_secret_are_seen_under_another() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut before = family(0);
    for seed in 1..300 {
        let now = family(seed);
        let kernel = kernel(&effects(|key: &WideKey| key.crcs(before.crcs())), |_| true);
        assert_eq!(kernel.len(), 8 * WideKey::LEN - 64);
        for _ in 0..100 {
            let difference = any_of(&mut rng, &kernel);
            let [one, other] = jam::<WideKey>(&mut rng, &difference);
            assert_eq!(before.hash(&one), before.hash(&other));
            assert_ne!(one.crcs(now.crcs()), other.crcs(now.crcs()), "{one}, {other}");
        }
        before = now;
    }
}

/// Hostile sets chosen under one secret and played under others, `sets` for each of `secrets`.
fn play<K: Padded>(secrets: u64, sets: usize) {
    let mut rng = StdRng::seed_from_u64(11);
    let mut before = family(0);
    for seed in 1..=secrets {
        let effects = effects(|key: &K| key.crcs(before.crcs()));
        let (doubling, any) = (kernel(&effects, doubles), kernel(&effects, |_| true));
        let mut flows: Vec<K> = Vec::with_capacity(2 * sets);
        for set in 0..sets {
            let [one, other] = if set % 2 == 0 {
                let difference = any_of(&mut rng, &doubling);
                let [one, other, between]: [K; 3] = triple(&mut rng, &difference);
                if set == 0 {
                    // The attack is one: whoever knows the secret makes a flow that never was.
                    let decoded = of_one_each(&before, &[one, other]);
                    assert!(decoded.is_complete());
                    assert_eq!(decoded.flows(), [(between, 2)]);
                }
                [one, other]
            } else {
                let difference = any_of(&mut rng, &any);
                jam(&mut rng, &difference)
            };
            flows.extend([one, other]);
        }
        let now = family(seed);
        assert_all_come_out(&now, &flows);
        before = now;
    }
}

#[test]
fn a_million_hostile_sets_make_no_ghost_and_block_nothing() {
    play::<FlowKey>(1_800, 500);
    play::<WideKey>(200, 500);
}
