//! What the hash family promises, beyond being computed as the contract says.

use std::collections::HashMap;

use crate::common::{STRUCTURES, family, random_keys};
use calumma_sketch::hash::crc::CrcPair;
use calumma_sketch::{FlowKey, Part};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Families looked at one by one.
const FAMILIES: u64 = 200;

/// Both CRCs of a key side by side.
fn crcs(pair: &CrcPair, key: &FlowKey) -> u64 {
    let (x, y) = pair.of(key.padded());
    u64::from(x) << 32 | u64::from(y)
}

/// What flipping one bit of any key does to its CRCs, bits in the order in which a reflected CRC
/// takes them: byte by byte, lowest bit first.
fn effects(pair: &CrcPair) -> Vec<u64> {
    let zero = crcs(pair, &FlowKey::default());
    let effect = |bit: usize| {
        let mut bytes = [0; FlowKey::LEN];
        bytes[bit / 8] = 1 << (bit % 8);
        crcs(pair, &FlowKey::from_bytes(bytes)) ^ zero
    };
    (0..8 * FlowKey::LEN).map(effect).collect()
}

/// Rank over GF(2).
pub(crate) fn rank(vectors: &[u64]) -> usize {
    let mut basis: Vec<u64> = Vec::new();
    for &vector in vectors {
        let rest = basis.iter().fold(vector, |rest, &b| rest.min(rest ^ b));
        if rest != 0 {
            basis.push(rest);
        }
    }
    basis.len()
}

#[test]
fn the_two_crcs_together_carry_64_independent_bits() {
    for seed in 0..FAMILIES {
        assert_eq!(rank(&effects(family(seed).crcs())), 64);
    }
}

#[test]
fn keys_that_differ_within_64_neighbouring_bits_never_agree_in_both_crcs() {
    // The effects of 64 neighbouring bits are independent, so no difference within them vanishes.
    for seed in 0..FAMILIES {
        for (from, window) in effects(family(seed).crcs()).windows(64).enumerate() {
            assert_eq!(rank(window), 64, "bits {from} to {} of family {seed}", from + 63);
        }
    }
}

proptest! {
    #[test]
    fn the_effect_of_a_difference_does_not_depend_on_the_key(key: [u8; 13], difference: [u8; 13]) {
        let other = std::array::from_fn(|i| key[i] ^ difference[i]);
        let family = family(3);
        let crcs = |key| crcs(family.crcs(), &FlowKey::from_bytes(key));
        let (effect, alone) = (crcs(key) ^ crcs(other), crcs(difference) ^ crcs([0; 13]));
        prop_assert_eq!(effect, alone);
    }
}

/// Pairs of keys that fall on the same bucket in all of the first `arrays` arrays.
fn pairs_in_all_arrays(keys: &[FlowKey], seed: u64, arrays: usize, part: &Part) -> u64 {
    let family = family(seed);
    let mut together: HashMap<Vec<u32>, u64> = HashMap::new();
    for key in keys {
        let hashes = family.hash(key);
        let buckets = (0..arrays).map(|array| part.bucket(hashes.array_word(array))).collect();
        *together.entry(buckets).or_insert(0) += 1;
    }
    together.values().map(|&flows| flows * (flows - 1) / 2).sum()
}

#[test]
fn two_flows_share_all_arrays_no_likelier_than_the_index_widths_say() {
    const FLOWS: usize = 2000;
    const TABLES: u64 = 60;
    let mut kinds = vec![("random", random_keys(&mut StdRng::seed_from_u64(1), FLOWS))];
    kinds.extend(STRUCTURES.map(|(kind, keys)| (kind, keys(FLOWS as u32))));
    for (arrays, part) in
        [(3, Part::new(0, 64)), (3, Part::new(0, 50)), (4, Part::new(0, 24)), (5, Part::new(0, 12))]
    {
        let pairs = (FLOWS * (FLOWS - 1) / 2) as f64 * TABLES as f64;
        // The modulo favours some buckets: of up to 8 len words each has at least 4 and at most 8.
        let words = f64::from(part.mask() + 1);
        let share = |bucket: u32| ((part.mask() - bucket) / part.len() + 1) as f64 / words;
        let same: f64 = (0..part.len()).map(|bucket| share(bucket).powi(2)).sum();
        let expected = pairs * same.powi(arrays as i32);
        for (kind, keys) in &kinds {
            let found: u64 =
                (0..TABLES).map(|seed| pairs_in_all_arrays(keys, seed, arrays, &part)).sum();
            assert!(
                (found as f64) < expected * 1.15 + 5.0 * expected.sqrt(),
                "{kind}, {arrays} arrays of {}: {found} pairs, expected {expected:.0}",
                part.len()
            );
        }
    }
}

#[test]
fn flows_of_equal_first_crc_still_part_ways() {
    // Differences that the first CRC does not see: solved for by elimination over single bits.
    let family = family(5);
    let effects = effects(family.crcs());
    let part = Part::new(0, 4096);
    let unseen = differences_unseen_by_the_first_crc(&effects);
    assert_eq!(unseen.len(), 8 * FlowKey::LEN - 32);
    for difference in unseen {
        let (one, other) = (FlowKey::default(), FlowKey::from_bytes(difference));
        let crcs = family.crcs();
        assert_eq!(crcs.of(one.padded()).0, crcs.of(other.padded()).0);
        let (one, other) = (family.hash(&one), family.hash(&other));
        let apart = (0..3).any(|array| {
            part.bucket(one.array_word(array)) != part.bucket(other.array_word(array))
        });
        assert!(apart || one == other, "{difference:?}");
    }
}

/// A basis of the key differences that leave the first CRC as it is.
fn differences_unseen_by_the_first_crc(effects: &[u64]) -> Vec<[u8; FlowKey::LEN]> {
    let mut basis: Vec<(u32, u128)> = Vec::new();
    let mut unseen = Vec::new();
    for (bit, &effect) in effects.iter().enumerate() {
        let (mut rest, mut bits) = ((effect >> 32) as u32, 1_u128 << bit);
        for &(vector, with) in &basis {
            if rest ^ vector < rest {
                (rest, bits) = (rest ^ vector, bits ^ with);
            }
        }
        if rest == 0 {
            unseen.push(bits.to_le_bytes()[..FlowKey::LEN].try_into().unwrap());
        } else {
            basis.push((rest, bits));
        }
    }
    unseen
}

#[test]
fn every_lane_and_classifier_word_spreads_structured_keys_evenly() {
    // Chi-square over 256 buckets of 4,096 keys: 255 +- 23 for random words. The mean over tables
    // keeps the test sharp without being a game of chance.
    const TABLES: u64 = 40;
    for (kind, keys) in STRUCTURES {
        let keys = keys(4096);
        for word in 0..9 {
            let mut chi_square = 0.0;
            for seed in 0..TABLES {
                let family = family(seed);
                let mut buckets = [0_u32; 256];
                for key in &keys {
                    let hashes = family.hash(key);
                    let word = match word {
                        0..5 => hashes.array_word(word),
                        _ => hashes.classifier_word(word - 5),
                    };
                    buckets[word as usize % 256] += 1;
                }
                chi_square +=
                    buckets.iter().map(|&n| (f64::from(n) - 16.0).powi(2) / 16.0).sum::<f64>();
            }
            let mean = chi_square / TABLES as f64;
            assert!(mean < 290.0, "{kind}, word {word}: chi-square {mean}");
        }
    }
}
