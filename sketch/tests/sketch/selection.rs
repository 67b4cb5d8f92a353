//! The contract's section on selection, its test vectors and the crate say the same.
//!
//! [`reference`] is written from `docs/contract.md` alone. It makes the vectors in
//! `golden/selection.json`; run with `CALUMMA_BLESS=1` to write them anew after the contract has
//! changed on purpose.

use calumma_sketch::grade::{self, HopRule};
use calumma_sketch::{FlowKey, HashFamily, HashKey, HyperLogLog};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{check_golden, contract_page};
use crate::contract::reference::{Secret, Words, secret, words};
use crate::contract::{hash_key, hex_words, keys};

/// The section, word for word.
mod reference {
    use super::{Secret, Words};

    const ONE: i128 = 1 << 32;

    pub(super) fn hop(ttl: u8, base: Option<u8>, offset: u8, step: u8) -> u8 {
        let bases = [32, 64, 128, 255];
        let base = base.unwrap_or_else(|| *bases.iter().find(|&&base| base >= ttl).unwrap());
        let passed = i32::from(base) - i32::from(ttl) - i32::from(offset);
        if passed < 0 { 0 } else { (passed / i32::from(step)) as u8 }
    }

    pub(super) fn seed(window: u64) -> u32 {
        let modulus = 1_u128 << 64;
        let mut z = (u128::from(window) + 0x9E37_79B9_7F4A_7C15) % modulus;
        z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 % modulus;
        z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB % modulus;
        (z ^ z >> 31) as u32
    }

    pub(super) fn fold(h: u32, y: u8) -> u32 {
        let h = i128::from(h);
        let grade = match y {
            0 => h.min(ONE - 1 - h),
            _ => ((h << ((y - 1) % 16)) % ONE - ONE / 2).abs(),
        };
        grade as u32
    }

    pub(super) fn greedy(h: u32, y: u8) -> u32 {
        let n = i128::from(y) + 1;
        let k = (0..9).rfind(|&k| 1 << k <= n).unwrap();
        let target = (2 * (n - (1 << k)) + 1) * (1 << (31 - k));
        (i128::from(h) - target).unsigned_abs() as u32
    }

    pub(super) fn even(h: u32, y: u8, l: u8) -> u32 {
        let (h, y, l) = (i128::from(h), i128::from(y), i128::from(l));
        let middle = (2 * (y % l) + 1) * (ONE / 2) / l;
        (h - middle).rem_euclid(ONE).min((middle - h).rem_euclid(ONE)) as u32
    }

    pub(super) fn random(secret: &Secret, h: u32, salt: u32) -> u32 {
        let bytes = (h ^ salt).to_le_bytes();
        let entry = |j: usize| secret.tables[(256 * j + usize::from(bytes[j])) * 4];
        entry(0) ^ entry(1) ^ entry(2) ^ entry(3)
    }

    pub(super) fn register(words: &Words, p: u32) -> (usize, u8) {
        let bits: Vec<u32> = [0, 1]
            .iter()
            .flat_map(|&l| (0..32).rev().map(move |b| words.lanes[l] >> b & 1))
            .collect();
        let (index, rest) = bits.split_at(p as usize);
        let index = index.iter().fold(0, |index, &bit| index << 1 | bit as usize);
        let zeros = rest.iter().position(|&bit| bit == 1).unwrap_or(rest.len());
        (index, zeros as u8 + 1)
    }
}

const WINDOW: u64 = 1000;
const HOPS: [u8; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17];
const SALTS: [u32; 2] = [1, 0x89AB_CDEF];
const REGISTERS: u8 = 12;

fn vector(secret: &Secret, key: &[u8; 13]) -> Value {
    let words = words(secret, key);
    let h = words.lanes[3] ^ reference::seed(WINDOW);
    let (register, value) = reference::register(&words, REGISTERS.into());
    json!({
        "key": key.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "word": format!("{h:08x}"),
        "fold": hex_words(&HOPS.map(|y| reference::fold(h, y))),
        "greedy": hex_words(&HOPS.map(|y| reference::greedy(h, y))),
        "even": hex_words(&[0, 1, 2, 3, 4].map(|y| reference::even(h, y, 5))),
        "random": hex_words(&SALTS.map(|salt| reference::random(secret, h, salt))),
        "register": [register, usize::from(value)],
    })
}

fn vectors() -> Value {
    let secret = secret(&hash_key());
    let ttls = [255_u8, 254, 200, 129, 128, 125, 64, 61, 33, 32, 30, 1, 0];
    json!({
        "window": WINDOW,
        "seed": format!("{:08x}", reference::seed(WINDOW)),
        "hops": HOPS,
        "salts": hex_words(&SALTS),
        "register_bits": REGISTERS,
        "hop_of_ttl": ttls.map(|ttl| [ttl, reference::hop(ttl, None, 0, 1)]),
        "keys": keys().iter().map(|key| vector(&secret, key)).collect::<Vec<_>>(),
    })
}

#[test]
fn the_golden_vectors_are_those_of_the_page() {
    check_golden("selection", &vectors());
}

#[test]
fn the_page_shows_the_vectors() {
    let page = contract_page();
    let vectors = vectors();
    let shown = &vectors["keys"][0];
    let first = |field: &str, most: usize| {
        let words = shown[field].as_array().unwrap().iter().take(most);
        let words = words.map(|word| word.as_str().map_or(word.to_string(), str::to_owned));
        format!("| {} |", words.collect::<Vec<_>>().join(" "))
    };
    for wanted in [
        format!("window {WINDOW} (seed {})", vectors["seed"].as_str().unwrap()),
        format!("| H | {} |", shown["word"].as_str().unwrap()),
        first("fold", 5),
        first("greedy", 5),
        first("even", 5),
        first("random", 2),
        first("register", 2),
    ] {
        assert!(page.contains(&wanted), "docs/contract.md lacks {wanted}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_crate_follows_the_page_everywhere(
        hash_key: [u8; 32], key: [u8; 13], window: u64, salt: u32, hop: u8, hops in 1_u8..,
        rule in (prop::option::of(any::<u8>()), any::<u8>(), 1_u8..), ttl: u8, p in 4_u8..=16,
    ) {
        let secret = secret(&hash_key);
        let family = HashFamily::new(&HashKey::from_bytes(hash_key));
        let (words, hashes) = (words(&secret, &key), family.hash(&FlowKey::from_bytes(key)));
        let h = words.lanes[3] ^ reference::seed(window);
        prop_assert_eq!(grade::word(&hashes, grade::window_seed(window)), h);
        prop_assert_eq!(grade::fold(h, hop), reference::fold(h, hop));
        prop_assert_eq!(grade::greedy(h, hop), reference::greedy(h, hop));
        prop_assert_eq!(grade::even(h, hop, hops), reference::even(h, hop, hops));
        prop_assert_eq!(grade::random(&family, h, salt), reference::random(&secret, h, salt));

        let (base, offset, step) = rule;
        let number = HopRule { base, offset, step }.number(ttl);
        prop_assert_eq!(number, reference::hop(ttl, base, offset, step));

        let mut sketch = HyperLogLog::new(p);
        sketch.insert(&hashes);
        let (register, value) = reference::register(&words, p.into());
        prop_assert_eq!(sketch.registers()[register], value);
        prop_assert_eq!(sketch.registers().iter().filter(|&&register| register > 0).count(), 1);
    }
}
