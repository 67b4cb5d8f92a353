//! The contract's page, its test vectors and the crate say the same.
//!
//! [`reference`] is a second implementation, written from `docs/contract.md` alone and as plainly
//! as can be. It makes the vectors in `golden/contract.json`; run with `CALUMMA_BLESS=1` to write
//! them anew after the contract has changed on purpose.

use std::net::Ipv6Addr;

use calumma_sketch::hash::{polynomial, sample_seed};
use calumma_sketch::sketchint::{flow_word, pair_words};
use calumma_sketch::{
    Arithmetic, FermatSketch, FlowKey, HashFamily, HashKey, Hashes, Key, Part, Shape, WideKey,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{check_golden, contract_page};

/// The page, word for word.
pub(crate) mod reference {
    pub(super) const P: u64 = 4_294_967_291;
    pub(super) const ROTATIONS: [u32; 4] = [0, 11, 21, 16];

    pub(super) fn padded(key: &[u8]) -> Vec<u8> {
        [key, &[0; 3]].concat()
    }

    pub(super) fn crc32(coeff: u32, bytes: &[u8]) -> u32 {
        let mut register = u32::MAX;
        for byte in bytes {
            for bit in 0..8 {
                let out = register & 1 != u32::from(byte >> bit & 1);
                register >>= 1;
                if out {
                    register ^= coeff.reverse_bits();
                }
            }
        }
        register ^ u32::MAX
    }

    /// Whether a polynomial of degree 32 has no factor of degree 16 or less (Ben-Or's test): such a
    /// factor of degree i divides x^(2^i) - x.
    pub(super) fn is_irreducible(polynomial: u64) -> bool {
        let degree = |of: u128| 127 - of.leading_zeros() as i32;
        let rest = |mut of: u128, by: u128| {
            while of != 0 && degree(of) >= degree(by) {
                of ^= by << (degree(of) - degree(by));
            }
            of
        };
        let polynomial = u128::from(polynomial);
        let mut power = 2;
        (1..=16).all(|_| {
            let square = (0..64).filter(|bit| power >> bit & 1 == 1);
            power = rest(square.fold(0, |sum, bit| sum ^ power << bit), polynomial);
            let (mut one, mut other) = (polynomial, power ^ 2);
            while other != 0 {
                (one, other) = (other, rest(one, other));
            }
            one == 1
        })
    }

    /// What a hash key stands for.
    pub(crate) struct Secret {
        pub(crate) tables: Vec<u32>,
        pub(crate) generators: [u32; 2],
    }

    pub(crate) fn secret(key: &[u8; 32]) -> Secret {
        let mut tables = key_stream(key, 0, 0..320);
        let candidates = tables.split_off(4096).into_iter().map(|word| word | 1);
        let mut found = candidates.filter(|&word| is_irreducible(1 << 32 | u64::from(word)));
        let x = found.next().unwrap();
        let y = found.find(|&y| y != x).unwrap();
        Secret { tables, generators: [x, y] }
    }

    /// The number of a key; `nonce` says whether its generators are public.
    pub(super) fn key_id(key: &[u8; 32], nonce: u32) -> u64 {
        let stream = key_stream(key, nonce, 0..1);
        u64::from(stream[1]) << 32 | u64::from(stream[0])
    }

    /// Blocks of RFC 8439's ChaCha20 key stream, its nonce this word and zeros, as words.
    fn key_stream(key: &[u8; 32], nonce: u32, counters: std::ops::Range<u32>) -> Vec<u32> {
        let word = |i: usize| u32::from_le_bytes(key[4 * i..4 * i + 4].try_into().unwrap());
        let mut stream = Vec::new();
        for counter in counters {
            let mut start = [0; 16];
            start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
            (0..8).for_each(|i| start[4 + i] = word(i));
            (start[12], start[13]) = (counter, nonce);
            let mut s = start;
            let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
                for (x, y, z, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
                    s[x] = s[x].wrapping_add(s[y]);
                    s[z] = (s[z] ^ s[x]).rotate_left(by);
                }
            };
            for _ in 0..10 {
                (0..4).for_each(|i| quarter(i, 4 + i, 8 + i, 12 + i));
                (0..4).for_each(|i| {
                    quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
                });
            }
            stream.extend(s.iter().zip(start).map(|(s, start)| s.wrapping_add(start)));
        }
        stream
    }

    pub(crate) struct Words {
        pub(crate) x: u32,
        pub(crate) y: u32,
        pub(crate) lanes: [u32; 4],
    }

    pub(crate) fn words(secret: &Secret, key: &[u8]) -> Words {
        let [x, y] = secret.generators.map(|generator| crc32(generator, &padded(key)));
        let lanes = [0, 1, 2, 3].map(|lane| {
            let looked_up = |position: usize| {
                let value = (x >> (8 * position) & 0xFF) as usize;
                secret.tables[(position * 256 + value) * 4 + lane]
            };
            (0..4).fold(y.rotate_left(ROTATIONS[lane]), |word, position| word ^ looked_up(position))
        });
        Words { x, y, lanes }
    }

    impl Words {
        pub(super) fn array_word(&self, array: usize) -> u32 {
            match array {
                4 => self.lanes[0].rotate_left(16) ^ self.lanes[1].rotate_left(24) ^ self.x,
                _ => self.lanes[array],
            }
        }

        pub(super) fn classifier_word(&self, level: usize) -> u32 {
            let c = self.lanes[3];
            [
                c,
                c.rotate_left(16) ^ self.x,
                c.rotate_left(8) ^ self.y,
                c.rotate_left(24) ^ self.x ^ self.y,
            ][level]
        }

        pub(super) fn pair_words(&self, switch: u32) -> [u32; 3] {
            let [zero, one, ..] = self.lanes;
            [
                zero ^ switch ^ (switch >> 5),
                one ^ switch ^ (switch >> 6),
                (zero ^ one).rotate_left(16) ^ switch ^ (switch >> 7),
            ]
        }

        pub(super) fn fingerprint(&self) -> u32 {
            self.y >> 12
        }

        pub(super) fn wide_fingerprint(&self) -> u32 {
            self.y >> 18
        }

        pub(super) fn sample(&self, seed: u16) -> u16 {
            ((self.lanes[3] ^ self.y) >> 16) as u16 ^ seed
        }
    }

    pub(super) fn bucket(word: u32, offset: u32, len: u32) -> u32 {
        let mut range = 1_u64;
        while range <= 4 * u64::from(len) {
            range *= 2;
        }
        offset + ((u64::from(word) & (range - 1)) % u64::from(len)) as u32
    }

    pub(super) fn seed(epoch: u64) -> u16 {
        let modulus = 1_u128 << 64;
        let mut z = (u128::from(epoch) + 0x9E37_79B9_7F4A_7C15) % modulus;
        z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 % modulus;
        z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB % modulus;
        ((z ^ z >> 31) % 65_536) as u16
    }

    fn bits(key: &[u8]) -> Vec<u32> {
        key.iter()
            .flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit & 1)))
            .collect()
    }

    fn number(bits: &[u32]) -> u32 {
        bits.iter().fold(0, |number, bit| number << 1 | bit)
    }

    pub(super) fn prime_fragments(key: &[u8; 13], fingerprint: u32) -> [u32; 4] {
        let bits = bits(key);
        let rest = [&[bits[0], bits[32], bits[64]], &bits[96..]].concat();
        [
            number(&bits[1..32]),
            number(&bits[33..64]),
            number(&bits[65..96]),
            number(&rest) << 20 | fingerprint,
        ]
    }

    pub(super) fn wide_fragments(key: &[u8; 37], fingerprint: u32) -> [u32; 10] {
        let bits = bits(key);
        let tops: Vec<u32> = (0..9).map(|word| bits[32 * word]).collect();
        let rest = [&tops, &bits[288..]].concat();
        std::array::from_fn(|i| match i {
            9 => number(&rest) << 14 | fingerprint,
            _ => number(&bits[32 * i + 1..32 * (i + 1)]),
        })
    }

    pub(super) fn wrapping_fragments(key: &[u8; 13]) -> [u32; 7] {
        let bits = [bits(key), vec![0]].concat();
        std::array::from_fn(|i| number(&bits[15 * i..15 * (i + 1)]))
    }
}

/// The hash key of the vectors.
pub(crate) fn hash_key() -> [u8; 32] {
    std::array::from_fn(|i| i as u8)
}

pub(crate) fn keys() -> Vec<[u8; 13]> {
    let key = |src: u32, dst: u32, ports: u32, protocol: u8| -> [u8; 13] {
        FlowKey::from_words(src, dst, ports, protocol).as_bytes().try_into().unwrap()
    };
    vec![
        key(0x0A01_0002, 0x0A02_0002, 40_000 << 16 | 5_201, 6),
        key(0xC000_0201, 0xC633_6407, 0x1234 << 16 | 443, 17),
        key(0x0A01_0002, 0x0A02_0002, 0, 1),
        [0; 13],
        [0xFF; 13],
        key(0x8000_0000, 0x7FFF_FFFF, 0x8000_0001, 132),
    ]
}

fn wide_keys() -> Vec<[u8; 37]> {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let key = |src: &str, dst: &str, sport: u16, dport: u16, protocol: u8| -> [u8; 37] {
        let key = WideKey::v6(address(src), address(dst), sport, dport, protocol);
        key.as_bytes().try_into().unwrap()
    };
    vec![
        key("2001:db8:1::2", "2001:db8:2::2", 40_000, 5_201, 6),
        key("::ffff:10.1.0.2", "::ffff:10.2.0.2", 40_000, 5_201, 6),
        key("fe80::1", "ff02::1:ff00:2", 0, 0, 58),
        [0; 37],
        [0xFF; 37],
        key("8000:0:8000:0:8000:0:8000:0", "7fff:ffff:7fff:ffff::1", 0x8000, 1, 132),
    ]
}

/// Vectors for part (offset 512, 2560 buckets an array) and epoch 1000.
const PART: (u32, u32) = (512, 2560);
const EPOCH: u64 = 1000;

/// The switch that the vectors of pairs are of.
const SWITCH: u32 = 0x1234;

fn vector(secret: &reference::Secret, key: &[u8; 13]) -> Value {
    let words = reference::words(secret, key);
    let mut vector = vector_of_hashes(&words, key);
    vector["fingerprint"] = format!("{:05x}", words.fingerprint()).into();
    vector["prime_fragments"] =
        hex_words(&reference::prime_fragments(key, words.fingerprint())).into();
    let wrapping = reference::wrapping_fragments(key).map(|f| format!("{f:04x}"));
    vector["wrapping_fragments"] = wrapping.to_vec().into();
    vector
}

fn wide_vector(secret: &reference::Secret, key: &[u8; 37]) -> Value {
    let words = reference::words(secret, key);
    let fingerprint = words.wide_fingerprint();
    let mut vector = vector_of_hashes(&words, key);
    vector["fingerprint"] = format!("{fingerprint:04x}").into();
    vector["fragments"] = hex_words(&reference::wide_fragments(key, fingerprint)).into();
    vector
}

pub(crate) fn hex_words(words: &[u32]) -> Vec<String> {
    words.iter().map(|word| format!("{word:08x}")).collect()
}

fn vector_of_hashes(words: &reference::Words, key: &[u8]) -> Value {
    let hex = |word: u32| format!("{word:08x}");
    json!({
        "key": key.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "x": hex(words.x),
        "y": hex(words.y),
        "lanes": words.lanes.map(hex),
        "array_words": std::array::from_fn::<_, 5, _>(|array| hex(words.array_word(array))),
        "classifier_words": std::array::from_fn::<_, 4, _>(|level| hex(words.classifier_word(level))),
        "pair_words": hex_words(&words.pair_words(SWITCH)),
        "sample": words.sample(reference::seed(EPOCH)),
        "buckets": std::array::from_fn::<_, 3, _>(|array| reference::bucket(words.array_word(array), PART.0, PART.1)),
    })
}

fn vectors() -> Value {
    let secret = reference::secret(&hash_key());
    let tables = &secret.tables;
    let bytes: Vec<u8> = tables.iter().flat_map(|word| word.to_le_bytes()).collect();
    json!({
        "hash_key": hash_key().map(|byte| format!("{byte:02x}")).concat(),
        "tables": {
            "first": hex_words(&tables[..4]),
            "last": hex_words(&tables[4092..]),
            "crc32_iso_hdlc": format!("{:08x}", reference::crc32(0x04C1_1DB7, &bytes)),
        },
        "generators": hex_words(&secret.generators),
        "epoch": EPOCH,
        "switch": SWITCH,
        "seed": reference::seed(EPOCH),
        "part": {"offset": PART.0, "len": PART.1, "mask": format!("{:08x}", 0x3FFF)},
        "keys": keys().iter().map(|key| vector(&secret, key)).collect::<Vec<_>>(),
        "wide_keys": wide_keys().iter().map(|key| wide_vector(&secret, key)).collect::<Vec<_>>(),
    })
}

#[test]
fn the_golden_vectors_are_those_of_the_page() {
    check_golden("contract", &vectors());
}

#[test]
fn the_page_shows_the_vectors_and_numbers_that_the_crate_computes() {
    let page = contract_page();
    let vectors = vectors();
    let mut wanted = vec![
        calumma_sketch::fermat::P.to_string(),
        format!("{:?}", calumma_sketch::hash::ROTATIONS),
        vectors["tables"]["crc32_iso_hdlc"].as_str().unwrap().into(),
        polynomial::IRREDUCIBLE.to_string(),
        vectors["seed"].to_string(),
    ];
    for generator in vectors["generators"].as_array().unwrap() {
        wanted.push(generator.as_str().unwrap().into());
    }
    let shown = &vectors["keys"][0];
    for field in ["key", "x", "y", "fingerprint"] {
        wanted.push(shown[field].as_str().unwrap().into());
    }
    for field in [
        "lanes",
        "array_words",
        "classifier_words",
        "pair_words",
        "prime_fragments",
        "wrapping_fragments",
    ] {
        let words = shown[field].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        wanted.push(words.collect::<Vec<_>>().join(" "));
    }
    let buckets = shown["buckets"].as_array().unwrap().iter().map(Value::to_string);
    wanted.push(buckets.collect::<Vec<_>>().join(" "));
    wanted.push(shown["sample"].to_string());
    let shown = &vectors["wide_keys"][0];
    for field in ["key", "x", "y", "fingerprint"] {
        wanted.push(shown[field].as_str().unwrap().into());
    }
    for field in ["lanes", "fragments"] {
        let words = shown[field].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        wanted.push(words.collect::<Vec<_>>().join(" "));
    }
    for text in wanted {
        assert!(page.contains(&text), "docs/contract.md lacks {text}");
    }
}

/// What one packet puts into a sketch of one bucket an array.
fn fragments<K: Key>(arithmetic: Arithmetic, key: &K, hashes: &Hashes) -> Vec<u32> {
    let shape = Shape { arithmetic, buckets: 1, ..Shape::default() };
    let mut sketch = FermatSketch::new(shape);
    sketch.encode(&sketch.whole(), key, hashes);
    let words: Vec<u32> = sketch.words().take(sketch.bucket_words()).collect();
    assert_eq!(words.last(), Some(&1));
    words[..words.len() - 1].to_vec()
}

fn assert_the_crate_follows_the_page(hash_key: [u8; 32], key: [u8; 13], epoch: u64, part: Part) {
    let secret = reference::secret(&hash_key);
    let family = HashFamily::new(&HashKey::from_bytes(hash_key));
    assert_eq!(family.tables().as_flattened().as_flattened(), secret.tables);
    assert_eq!(family.crcs().generators(), secret.generators);

    let words = reference::words(&secret, &key);
    let flow = FlowKey::from_bytes(key);
    let hashes = family.hash(&flow);
    assert_eq!(family.crcs().of(flow.padded()), (words.x, words.y));
    assert_hashes_follow_the_page(&hashes, &words, epoch, part);
    assert_eq!(hashes.fingerprint(), words.fingerprint());

    let prime = reference::prime_fragments(&key, words.fingerprint());
    assert!(prime.iter().all(|&fragment| u64::from(fragment) < reference::P));
    assert_eq!(fragments(Arithmetic::Prime, &flow, &hashes), prime);
    let wrapping = reference::wrapping_fragments(&key);
    assert_eq!(fragments(Arithmetic::Wrapping, &flow, &hashes), wrapping);
}

fn assert_wide_keys_follow_the_page(hash_key: [u8; 32], key: [u8; 37], epoch: u64, part: Part) {
    let words = reference::words(&reference::secret(&hash_key), &key);
    let flow = WideKey::from_bytes(key);
    let hashes = HashFamily::new(&HashKey::from_bytes(hash_key)).hash(&flow);
    assert_hashes_follow_the_page(&hashes, &words, epoch, part);
    assert_eq!(hashes.wide_fingerprint(), words.wide_fingerprint());

    let prime = reference::wide_fragments(&key, words.wide_fingerprint());
    assert!(prime.iter().all(|&fragment| u64::from(fragment) < reference::P));
    assert_eq!(fragments(Arithmetic::Prime, &flow, &hashes), prime);
}

fn assert_hashes_follow_the_page(
    hashes: &Hashes,
    words: &reference::Words,
    epoch: u64,
    part: Part,
) {
    for array in 0..5 {
        let word = words.array_word(array);
        assert_eq!(hashes.array_word(array), word);
        assert_eq!(part.bucket(word), reference::bucket(word, part.offset(), part.len()));
    }
    for level in 0..4 {
        assert_eq!(hashes.classifier_word(level), words.classifier_word(level));
    }
    for switch in [1, 77, SWITCH, u32::MAX] {
        assert_eq!(pair_words(flow_word(hashes), switch), words.pair_words(switch));
    }
    assert_eq!(sample_seed(epoch), reference::seed(epoch));
    assert_eq!(hashes.sample(sample_seed(epoch)), words.sample(reference::seed(epoch)));
}

#[test]
fn a_key_has_the_number_of_the_page() {
    let [secret, public] =
        [HashKey::from_bytes(hash_key()), HashKey::with_public_generators(hash_key())];
    assert_eq!(secret.id(), reference::key_id(&hash_key(), 3));
    assert_eq!(public.id(), reference::key_id(&hash_key(), 4));
}

#[test]
fn the_crate_follows_the_page_on_the_vectors() {
    for key in keys() {
        assert_the_crate_follows_the_page(hash_key(), key, EPOCH, Part::new(PART.0, PART.1));
    }
    for key in wide_keys() {
        assert_wide_keys_follow_the_page(hash_key(), key, EPOCH, Part::new(PART.0, PART.1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_crate_follows_the_page_everywhere(
        hash_key: [u8; 32], wide: ([u8; 13], [u8; 24]), epoch: u64, offset in 0_u32..10_000,
        len in 1_u32..=1 << 28,
    ) {
        let (key, part) = (wide.0, Part::new(offset, len));
        assert_the_crate_follows_the_page(hash_key, key, epoch, part);
        let wide = [&wide.0[..], &wide.1].concat().try_into().unwrap();
        assert_wide_keys_follow_the_page(hash_key, wide, epoch, part);
    }
}
