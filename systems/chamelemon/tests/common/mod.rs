//! Workloads for the tests of groups, and packets for those of lcores.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![allow(unreachable_pub)]

use calumma_plane::packet::Frame;
use calumma_sketch::{HashFamily, HashKey};
use proptest::prelude::{Just, Strategy, prop, prop_oneof};

/// A hash family of its own for every seed.
pub fn family(seed: u64) -> HashFamily {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    HashFamily::new(&HashKey::from_bytes(key))
}

/// A UDP packet of flow `n`.
pub fn frame(n: u64) -> Frame {
    let mut bytes = vec![0; 42];
    bytes[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
    bytes[23] = 17;
    bytes[26..38].copy_from_slice(&[10, 0, 0, n as u8, 10, 200, 0, 1, 0x30, 0x39, 0, 80]);
    Frame::new(bytes)
}

/// Numbers of flows packet by packet, each below `flows`: single packets in between, and trains of
/// one flow.
pub fn trains(flows: u32, most: usize) -> impl Strategy<Value = Vec<u32>> {
    let train = (0..flows, prop_oneof![Just(1), 2..12_usize, 12..80_usize]);
    prop::collection::vec(train, 0..most).prop_map(|trains| {
        trains.into_iter().flat_map(|(flow, packets)| std::iter::repeat_n(flow, packets)).collect()
    })
}
