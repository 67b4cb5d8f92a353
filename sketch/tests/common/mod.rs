//! Workloads for the tests: seeded traffic of known truth, structured key sets, real keys.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![allow(unreachable_pub)]

use std::collections::{BTreeMap, HashSet};

use calumma_sketch::{FlowKey, HashFamily, HashKey};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A hash family of its own for every seed.
pub fn family(seed: u64) -> HashFamily {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    HashFamily::new(&HashKey::from_bytes(key))
}

/// Holds vectors against those that are kept; with `CALUMMA_BLESS` it writes them anew.
pub fn check_golden(name: &str, vectors: &serde_json::Value) {
    let golden = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = serde_json::to_string_pretty(vectors).unwrap() + "\n";
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text);
}

/// The page that vectors are of.
pub fn contract_page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contract.md")).unwrap()
}

/// Distinct keys without any structure.
pub fn random_keys(rng: &mut impl Rng, number: usize) -> Vec<FlowKey> {
    let mut seen = HashSet::with_capacity(number);
    let keys = std::iter::repeat_with(|| FlowKey::from_bytes(rng.random()));
    keys.filter(|&key| seen.insert(key)).take(number).collect()
}

/// A kind of key set, and how as many keys of it as wanted are made.
pub type Structure = (&'static str, fn(u32) -> Vec<FlowKey>);

/// The kinds of structured key sets that a plain CRC fails on, each of `number` distinct keys.
pub const STRUCTURES: [Structure; 5] = [
    ("consecutive source addresses", |number| {
        (0..number).map(|n| FlowKey::from_words(0x0A00_0000 + n, 0x0A80_0001, 80, 17)).collect()
    }),
    ("two subnets times ports", |number| {
        let key = |n: u32| {
            let (host, peer, port) = (n % 24, n / 24 % 24, n / 576);
            FlowKey::from_words(
                0x0A01_0002 + host,
                0x0A02_0002 + peer,
                (32_768 + port) << 16 | 443,
                6,
            )
        };
        (0..number).map(key).collect()
    }),
    ("a port sweep", |number| {
        (0..number)
            .map(|n| FlowKey::from_words(0xC0A8_0105, 0xC0A8_0207, 0xD431_0000 | n, 6))
            .collect()
    }),
    ("pktgen's ranges, all fields counting at once", |number| {
        let key = |n: u32| {
            FlowKey::from_words(
                0x0A0A_0000 + n,
                0x0A14_0000 + n,
                (1024 + n % 60_000) << 16 | (2048 + n % 60_000),
                17,
            )
        };
        (0..number).map(key).collect()
    }),
    ("a grid of address bits", |number| {
        (0..number).map(|n| FlowKey::from_words(n & 0x7F, (n >> 7) << 24, 0, 61)).collect()
    }),
];

/// Flows and their packets: `packets` draws from a Zipf distribution over `flows` random keys.
pub fn zipf(flows: usize, packets: usize, exponent: f64, seed: u64) -> Vec<(FlowKey, u32)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=flows)
        .map(|rank| {
            total += (rank as f64).powf(-exponent);
            total
        })
        .collect();
    let mut sizes = vec![0_u32; flows];
    for _ in 0..packets {
        let drawn = rng.random_range(0.0..total);
        sizes[cumulated.partition_point(|&sum| sum <= drawn)] += 1;
    }
    let keys = random_keys(&mut rng, flows);
    keys.into_iter().zip(sizes).filter(|&(_, size)| size > 0).collect()
}

/// Every packet's key in a capture of real traffic, in order; `None`, the test being skipped, where
/// there is no such file.
pub fn real_packets(name: &str) -> Option<Vec<FlowKey>> {
    let capture = std::fs::read(calumma_testenv::capture(name)?).expect("a readable capture");
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert!(matches!(word(0), 0xA1B2_C3D4 | 0xA1B2_3C4D), "{name}: little-endian pcap");
    assert_eq!(word(20), 1, "{name}: Ethernet");
    let mut packets = Vec::new();
    let mut at = 24;
    while at + 16 <= capture.len() {
        let len = word(at + 8) as usize;
        packets.extend(key_of_frame(&capture[at + 16..at + 16 + len]));
        at += 16 + len;
    }
    Some(packets)
}

/// Sizes of the flows that these packets belong to.
pub fn flows_of(packets: &[FlowKey]) -> BTreeMap<FlowKey, u32> {
    let mut flows = BTreeMap::new();
    packets.iter().for_each(|&key| *flows.entry(key).or_insert(0) += 1);
    flows
}

/// The key of an Ethernet frame with IPv4 behind up to two VLAN tags.
fn key_of_frame(frame: &[u8]) -> Option<FlowKey> {
    let mut packet = frame.get(12..)?;
    while matches!(packet.get(..2)?, [0x81, 0x00] | [0x88, 0xA8]) {
        packet = packet.get(4..)?;
    }
    let (ethertype, packet) = packet.split_at(2);
    let header = packet.get(..20)?;
    if ethertype != [8, 0] || header[0] >> 4 != 4 {
        return None;
    }
    let ports = packet.get(usize::from(header[0] & 15) * 4..).and_then(|l4| l4.get(..4));
    let first = u16::from_be_bytes([header[6], header[7]]) & 0x1FFF == 0;
    let mut key = [0; FlowKey::LEN];
    key[..8].copy_from_slice(&header[12..20]);
    if let (6 | 17 | 132, true, Some(ports)) = (header[9], first, ports) {
        key[8..12].copy_from_slice(ports);
    }
    key[12] = header[9];
    Some(FlowKey::from_bytes(key))
}
