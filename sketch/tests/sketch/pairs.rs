//! The words of a flow at a switch (`docs/contract.md`, "Pairs"): flows meet in pair towers no
//! likelier than by a word that mixes all bits of both, and a flow does not meet itself.

use std::collections::HashMap;

use calumma_sketch::sketchint::{Pairs, Shape, flow_word, pair_words};
use calumma_sketch::{FlowKey, Part};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{STRUCTURES, family, random_keys};
use crate::hashes::rank;

type Words = [u32; Pairs::LEVELS];

/// The words of a pair by multiplications, for comparison: SplitMix64's finish over flow and
/// switch, and the upper halves of three products.
fn by_products(flow: u64, node: u32) -> Words {
    let mut z = flow ^ u64::from(node).wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9]
        .map(|odd: u64| (z.wrapping_mul(odd) >> 32) as u32)
}

const WAYS: [fn(u64, u32) -> Words; 2] = [pair_words, by_products];

/// The five switches on a flow's path through a fat tree of 8 leaves, 8 switches above them and 4
/// in the middle.
fn path(flow: u32) -> [u32; 5] {
    let (from, to, middle) = (flow % 8, (flow / 8 + 1 + flow % 8) % 8, flow / 64 % 4);
    [1 + from, 9 + from, 17 + middle, 9 + to, 1 + to]
}

fn parts(pair_buckets: u32) -> [Part; Pairs::LEVELS] {
    let shape = Shape { pair_buckets, ..Shape::default() };
    shape.pairs().map(|level| Part::new(0, level.buckets))
}

/// The same index says that the difference of two switches' words has zeros there, whatever the
/// flow.
#[test]
fn a_flow_does_not_meet_itself_at_another_switch() {
    let parts = parts(Shape::default().pair_buckets);
    let buckets = |node| {
        let words = pair_words(0, node);
        [0, 1, 2].map(|level| parts[level].bucket(words[level]))
    };
    for node in 1..1 << 16 {
        let meets = buckets(node).map(|bucket| bucket == 0);
        if node < 4096 {
            assert_eq!(meets, [false; 3], "switches {node} apart");
        }
        assert!(meets.contains(&false), "switches {node} apart");
    }
}

/// Flows of equal first CRC differ in their lanes by the second one, rotated.
#[test]
fn the_indexes_of_a_pair_see_every_bit_of_the_second_crc() {
    let seen = |bit: u32| {
        let flow = u64::from(1_u32 << bit) << 32 | u64::from((1_u32 << bit).rotate_left(11));
        pair_words(flow, 0).iter().fold(0, |bits, word| bits << 12 | u64::from(word & 0xFFF))
    };
    assert_eq!(rank(&(0..32).map(seen).collect::<Vec<_>>()), 32);
}

/// Pairs of a flow and a switch, of different flows, that share a bucket in the first array, and in
/// all three.
fn meetings(flows: &[u64], words: fn(u64, u32) -> Words, parts: &[Part; 3]) -> [u64; 2] {
    let mut first: HashMap<u32, u64> = HashMap::new();
    let mut all: HashMap<Words, u64> = HashMap::new();
    let mut own = [0; 2];
    for (number, &flow) in (0..).zip(flows) {
        let nodes = path(number);
        let buckets = nodes.map(|node| {
            let words = words(flow, node);
            [0, 1, 2].map(|level| parts[level].bucket(words[level]))
        });
        for (at, one) in buckets.iter().enumerate() {
            *first.entry(one[0]).or_default() += 1;
            *all.entry(*one).or_default() += 1;
            own[0] += buckets[..at].iter().filter(|other| other[0] == one[0]).count() as u64;
            own[1] += buckets[..at].iter().filter(|other| *other == one).count() as u64;
        }
    }
    let meetings = |of: Vec<u64>| of.iter().map(|n| n * (n - 1) / 2).sum::<u64>();
    [
        meetings(first.into_values().collect()) - own[0],
        meetings(all.into_values().collect()) - own[1],
    ]
}

#[test]
fn flows_meet_at_switches_no_likelier_than_by_a_word_that_mixes_all_bits() {
    const FLOWS: usize = 2000;
    const FAMILIES: u64 = 24;
    let mut kinds = vec![("random", random_keys(&mut StdRng::seed_from_u64(1), FLOWS))];
    kinds.extend(STRUCTURES.map(|(kind, keys)| (kind, keys(FLOWS as u32))));
    let parts = parts(256);
    let pairs = (FLOWS * (FLOWS - 1) / 2 * 25) as f64 * FAMILIES as f64;
    // Of 256, 128 and 64 buckets.
    let chances = [8, 8 + 7 + 6].map(|bits| pairs / f64::from(1 << bits));
    for (kind, keys) in &kinds {
        let mut found = [[0; 2]; 2];
        for seed in 0..FAMILIES {
            let family = family(seed);
            let flows: Vec<u64> = keys.iter().map(|key| flow_word(&family.hash(key))).collect();
            for (way, sums) in WAYS.iter().zip(&mut found) {
                let of = meetings(&flows, *way, &parts);
                (0..2).for_each(|at| sums[at] += of[at]);
            }
        }
        println!("{kind}: {found:?} of {chances:.0?} by chance");
        for of in found {
            for (found, chance) in of.into_iter().zip(chances) {
                // Flows that share a bucket at one switch may do so at all five.
                let most = chance * 1.02 + 5.0 * (5.0 * chance).sqrt();
                assert!((found as f64) < most, "{kind}: {found} of {chance:.0} by chance");
            }
        }
    }
}

/// Mean relative error of packets at switches, by a tower of that many buckets.
fn error(flows: &[(u64, u32)], words: fn(u64, u32) -> Words, parts: &[Part; 3]) -> f64 {
    let mut levels = parts.map(|part| vec![0_u32; part.len() as usize]);
    let places = |flow, node| {
        let words = words(flow, node);
        [0, 1, 2].map(|level| parts[level].bucket(words[level]) as usize)
    };
    let visits = || (0..).zip(flows).flat_map(|(at, of)| path(at).map(|node| (*of, node)));
    for ((flow, packets), node) in visits() {
        for (level, at) in levels.iter_mut().zip(places(flow, node)) {
            level[at] += packets;
        }
    }
    let errors = visits().map(|((flow, packets), node)| {
        let counts = levels.iter().zip(places(flow, node)).map(|(level, at)| level[at]);
        f64::from(counts.min().unwrap() - packets) / f64::from(packets)
    });
    errors.sum::<f64>() / (5 * flows.len()) as f64
}

#[test]
fn towers_err_no_more_than_by_a_word_that_mixes_all_bits() {
    const FLOWS: u32 = 3000;
    let mut sums = [0.0; 2];
    let parts = parts(8192);
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let family = family(seed);
        let flows: Vec<(u64, u32)> = (0..FLOWS)
            .map(|n| {
                let ports = (32_768 + n) << 16 | 443;
                let key = FlowKey::from_words(0x0A01_0002 + n % 24, 0x0A02_0002, ports, 6);
                let packets = (1.0 / (1.0 - rng.random::<f64>())).min(10_000.0) as u32;
                (flow_word(&family.hash(&key)), packets)
            })
            .collect();
        for (way, sum) in WAYS.iter().zip(&mut sums) {
            *sum += error(&flows, *way, &parts) / 40.0;
        }
    }
    let [ours, products] = sums;
    println!("{ours:.3}, by products {products:.3}");
    assert!(ours > 0.05 && (ours / products - 1.0).abs() < 0.1, "{ours}, by products {products}");
}
