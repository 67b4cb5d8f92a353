//! `p4src/cfs.p4` on the model of a Tofino, beside a twin in plain code: the same packets, real
//! ones and drawn ones, leave the same words in every register, and every count that is not doubted
//! is right.
//!
//! Real captures are read from the directory that `CALUMMA_DATA` names, or from `../shared/data`
//! beside the repository.

mod edges;
mod guard;
mod loops;
mod rig;
mod traps;
mod twin;

use std::collections::BTreeSet;

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::grade::window_seed;
use calumma_sketch::{FlowKey, KeyKind};
use proptest::prelude::*;

use crate::captures::{LONGEST, captured};
use crate::switch::{Numbers, checksum, packet};
use rig::{Rig, with_claim};
use twin::{COLUMNS, MOST_COLUMNS, Window};

/// The window of that number, in which packets carry claims.
fn window(number: u64) -> Window {
    let claimed_below = Some(if number == 0 { 1 << 32 } else { 700_000_000 * number });
    Window { number: number as u32, seed: window_seed(number), claimed_below }
}

/// The packet with this TTL, timestamp bit and claim, its checksum right.
fn dressed(bytes: &[u8], ttl: u8, bit: usize, claimed: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Parsed::Flow { ip_offset: ip, .. } = parse(&bytes, usize::MAX) else { return bytes };
    bytes[ip + 1] = bytes[ip + 1] & 0x77 | (bit as u8) << 7 | u8::from(claimed) << 3;
    bytes[ip + 8] = ttl;
    bytes[ip + 10..ip + 12].fill(0);
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = checksum(&bytes[ip..ip + header]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A small packet of a flow.
fn of_flow(key: &FlowKey, ttl: u8, bit: usize) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, key.protocol(), 0, 0]);
    for word in [key.src_word(), key.dst_word(), key.ports_word()] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    dressed(&bytes, ttl, bit, false)
}

/// All the packets in windows of `each`, by an alternating timestamp bit, some of them late in the
/// next window, in bursts. Gives how many second passes there were for a packet, by windows.
fn play(row_bits: u32, packets: &[Vec<u8>], each: usize, numbers: &mut Numbers) -> Vec<f64> {
    let mut rig = Rig::new(row_bits);
    let mut shares = Vec::new();
    let mut late: Vec<Vec<u8>> = Vec::new();
    rig.open(0, window(0));
    for (number, packets) in (0_u64..).zip(packets.chunks(each)) {
        let bit = (number & 1) as usize;
        rig.pin(bit, one_in_16(packets));
        rig.open(bit, window(number));
        let before = rig.switch.statistics().recirculations;
        for packets in packets.chunks(100) {
            let mut packets: Vec<Vec<u8>> = packets.to_vec();
            packets.append(&mut late);
            let mut left = &packets[..];
            while !left.is_empty() {
                let burst = [1, 1, 2, 3, 32][numbers.below(5) as usize].min(left.len());
                rig.burst(&left[..burst]);
                left = &left[burst..];
            }
        }
        shares.push((rig.switch.statistics().recirculations - before) as f64 / each as f64);
        rig.compare();
        rig.is_right(bit);
        // The group before has had its last packets.
        rig.close(bit ^ 1);
        rig.is_right(bit ^ 1);
        rig.clear(bit ^ 1);
        rig.compare();
        let of_window = packets.iter().filter(|_| numbers.below(200) == 0);
        late.extend(of_window.cloned());
    }
    shares
}

/// Some of these packets' flows.
fn one_in_16(packets: &[Vec<u8>]) -> BTreeSet<FlowKey> {
    let flow = |bytes: &Vec<u8>| match parse(bytes, usize::MAX) {
        Parsed::Flow { key, .. } => Some(key),
        _ => None,
    };
    let is_one = |key: &FlowKey| {
        let word = key.src_word() ^ key.dst_word() ^ key.ports_word();
        word.wrapping_mul(0x9E37_79B1) >> 28 == 7
    };
    packets.iter().filter_map(flow).filter(is_one).collect()
}

/// Packets of a capture as they come to a switch between others: marked, with the TTL that some
/// hops have left, some of them claimed, and every thousandth with another TTL than its flow has.
fn passing(frames: &[Vec<u8>], each: usize, numbers: &mut Numbers) -> Vec<Vec<u8>> {
    let dress = |(at, bytes): (usize, &Vec<u8>)| {
        let Parsed::Flow { key, .. } = parse(bytes, usize::MAX) else { return bytes.clone() };
        let flow = key.src_word() ^ key.ports_word();
        let strays = u8::from(numbers.below(1000) == 0);
        let ttl = [32, 64, 128, 255][flow as usize % 4] - (flow >> 8) as u8 % 6 - strays;
        dressed(bytes, ttl, (at / each) & 1, flow.is_multiple_of(3))
    };
    frames.iter().enumerate().map(dress).collect()
}

/// Each takes a stateful ALU: five a column, seven beside the table, and five of the guard
/// (docs/p4.md).
#[test]
fn the_table_has_so_many_registers() {
    for (columns, registers) in [(COLUMNS, 32), (MOST_COLUMNS, 42)] {
        let rig = Rig::with_columns(KeyKind::Ipv4, 4, columns);
        assert_eq!(rig.switch.program().registers().len(), registers, "{columns} columns");
    }
}

#[test]
fn captures_of_every_kind_of_traffic_leave_the_same_words() {
    if let Some(frames) = captured("mixed-captures.pcap", LONGEST) {
        let numbers = &mut Numbers(3);
        let frames = passing(&frames[..frames.len().min(60_000)], 20_000, numbers);
        play(6, &frames, 20_000, numbers);
    }
}

#[test]
fn a_backbone_link_leaves_the_same_words_and_few_packets_pass_twice() {
    if let Some(frames) = captured("backbone-65k.pcap", LONGEST) {
        let numbers = &mut Numbers(5);
        let frames = passing(&frames, 30_000, numbers);
        let shares = play(12, &frames, 30_000, numbers);
        println!("second passes: {shares:?}");
    }
}

/// Most flows come early in a window, and then few packets find no entry where there is one to be
/// had: here 2,000 flows of 150 packets each in the mean, a few of them most, in a table of 1,024.
#[test]
fn after_the_first_tenth_of_a_window_few_packets_pass_twice() {
    let mut rig = Rig::new(8);
    rig.open(0, window(2));
    let (mut numbers, mut shares) = (Numbers(9), Vec::new());
    for _ in 0..10 {
        let before = rig.switch.statistics().recirculations;
        for _ in 0..30_000 {
            let flow = numbers.below(2000).min(numbers.below(2000)) as u32;
            let key = FlowKey::from_words(0x0A00_0000 + flow, 7, flow << 9, 17);
            rig.burst(&[of_flow(&key, 61 + flow as u8 % 3, 0)]);
        }
        shares.push((rig.switch.statistics().recirculations - before) as f64 / 30_000.0);
    }
    println!("second passes: {shares:?}");
    rig.compare();
    rig.is_right(0);
    assert!(shares[0] > 0.02, "flows do come: {shares:?}");
    assert!(shares[1..].iter().all(|share| *share <= 0.01), "{shares:?}");
}

#[test]
fn fuzzed_packets_leave_the_same_words() {
    let mut numbers = Numbers(42);
    let fuzzed: Vec<Vec<u8>> = (0..40_000).map(|_| fuzzed(&mut numbers)).collect();
    play(4, &fuzzed, 10_000, &mut numbers);
}

/// A packet of any kind, and often something wrong with it.
fn fuzzed(numbers: &mut Numbers) -> Vec<u8> {
    let bytes = packet(numbers).bytes;
    let (ttl, bit) = ((60 + numbers.below(5)) as u8, numbers.below(2) as usize);
    let mut bytes = dressed(&bytes, ttl, bit, numbers.below(2) == 0);
    match numbers.below(6) {
        0 => {
            for _ in 0..=numbers.below(4) {
                let at = 12 + numbers.below(bytes.len().min(60) as u64 - 12) as usize;
                bytes[at] = numbers.below(256) as u8;
            }
        }
        1 => bytes[14] = numbers.below(256) as u8,
        2 => bytes.truncate(14 + numbers.below(60) as usize),
        _ => {}
    }
    bytes
}

/// Bursts of packets: flow, TTL and claim.
fn bursts() -> impl Strategy<Value = Vec<Vec<(u8, u8, bool)>>> {
    let packet = (0_u8..40, 0_u8..12, any::<bool>()).prop_map(|(flow, ttl, claimed)| {
        // Most flows have one TTL and one claim; some change them.
        match flow % 4 {
            0 => (flow, 60 + ttl % 3, claimed),
            _ => (flow, 61, flow.is_multiple_of(3)),
        }
    });
    prop::collection::vec(prop::collection::vec(packet, 1..6), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn after_every_burst_all_words_are_the_twins(
        bursts in bursts(), seed: u32, columns in prop::sample::select(vec![COLUMNS, MOST_COLUMNS]),
        pinned in prop::collection::btree_set(0_u8..40, 0..8),
    ) {
        let key = |flow: u8| FlowKey::from_words(u32::from(flow) * 0x0101, 7, 0x0050_0051, 17);
        let mut rig = Rig::with_columns(KeyKind::Ipv4, 1, columns);
        rig.pin(0, pinned.into_iter().map(key).collect());
        rig.open(0, Window { number: 0, seed, claimed_below: Some(1 << 30) });
        for burst in bursts {
            let packet = |&(flow, ttl, claimed): &(u8, u8, bool)| {
                with_claim(&of_flow(&key(flow), ttl, 0), claimed)
            };
            rig.burst(&burst.iter().map(packet).collect::<Vec<_>>());
            rig.compare();
            rig.is_right(0);
        }
    }
}
