//! The table at an edge: packets of hosts are marked and lose what they have in the place of a
//! claim, packets for hosts get their DSCP back, and each flow is known by the side of its first
//! packet.

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::FlowKey;
use proptest::prelude::*;

use super::rig::{LOCAL, LOST, NO_WAY, Rig, THROUGH, with_claim};
use super::twin::{Window, event};
use super::{fuzzed, of_flow, one_in_16, passing, window};
use crate::captures::{LONGEST, captured};
use crate::switch::{FABRIC, HOST, Numbers};

const PORTS: [u16; 6] = [HOST, FABRIC, LOCAL, NO_WAY, THROUGH, LOST];

/// All packets by the port that their flow comes by, now and then another one, in windows of
/// `each`.
fn play(row_bits: u32, packets: &[Vec<u8>], each: usize, numbers: &mut Numbers) {
    let mut rig = Rig::edge(row_bits);
    rig.open(0, window(0));
    for (number, packets) in (0_u64..).zip(packets.chunks(each)) {
        let bit = (number & 1) as usize;
        rig.pin(bit, one_in_16(packets));
        rig.open(bit, window(number));
        rig.stamp(bit);
        for burst in packets.chunks(7) {
            let with_port = |bytes: &Vec<u8>| {
                let flow = match parse(bytes, usize::MAX) {
                    Parsed::Flow { key, .. } => key.src_word() ^ key.ports_word() >> 16,
                    _ => numbers.below(6) as u32,
                };
                let strays = if numbers.below(500) == 0 { 1 } else { 0 };
                (PORTS[(flow % 6 + strays) as usize % 6], bytes.clone())
            };
            let burst: Vec<_> = burst.iter().map(with_port).collect();
            rig.burst_at(&burst);
        }
        rig.compare();
        rig.is_right(bit);
        rig.close(bit ^ 1);
        rig.is_right(bit ^ 1);
        rig.clear(bit ^ 1);
    }
}

#[test]
fn captures_pass_an_edge_and_leave_the_same_words() {
    if let Some(frames) = captured("mixed-captures.pcap", LONGEST) {
        let numbers = &mut Numbers(13);
        let frames = passing(&frames[..frames.len().min(40_000)], 10_000, numbers);
        play(6, &frames, 10_000, numbers);
    }
}

#[test]
fn fuzzed_packets_pass_an_edge_and_leave_the_same_words() {
    let mut numbers = Numbers(43);
    let fuzzed: Vec<Vec<u8>> = (0..30_000).map(|_| fuzzed(&mut numbers)).collect();
    play(4, &fuzzed, 10_000, &mut numbers);
}

fn rig() -> Rig {
    let mut rig = Rig::edge(4);
    rig.open(0, Window { number: 0, seed: 5, claimed_below: Some(1 << 30) });
    rig
}

fn key(number: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + number, 0xC0A8_0001, 0x1F90_0050, 17)
}

#[test]
fn what_a_host_sends_and_has_no_way_to_go_on_is_in_no_entry() {
    let mut rig = rig();
    let packet = of_flow(&key(1), 64, 0);
    rig.burst_at(&[(NO_WAY, packet.clone())]);
    assert_eq!(rig.twin.groups[0].events, [0; 16]);
    // Nor where its flow has one.
    rig.burst_at(&[(HOST, packet.clone())]);
    rig.burst_at(&[(NO_WAY, packet.clone()), (HOST, packet.clone()), (NO_WAY, packet)]);
    rig.compare();
    rig.is_right(0);
    assert_eq!(rig.twin.groups[0].events[event::FOUND], 1);
    // What comes from the network and has none is one that came.
    rig.burst_at(&[(LOST, of_flow(&key(2), 60, 0))]);
    rig.compare();
    assert_eq!(rig.twin.groups[0].events[event::PLACED], 2);
}

/// As at a software edge, whether they go on or not.
#[test]
fn packets_that_come_late_are_counted_so_wherever_they_go() {
    let mut rig = rig();
    let ports = [FABRIC, THROUGH, LOST];
    let of_bit = |bit| ports.map(|port| (port, of_flow(&key(port.into()), 60, bit)));
    rig.burst_at(&of_bit(0));
    assert_eq!(rig.late, 0);
    rig.burst_at(&of_bit(1));
    assert_eq!(rig.late, 3);
    // One that a host sends is not of the network yet.
    rig.stamp(1);
    rig.burst_at(&[(HOST, of_flow(&key(1), 64, 0)), (NO_WAY, of_flow(&key(1), 64, 1))]);
    assert_eq!(rig.late, 3);
    rig.compare();
}

#[test]
fn a_flow_of_this_edge_alone_comes_before_all_others() {
    let mut rig = Rig::edge(1);
    rig.open(0, Window { number: 0, seed: 5, claimed_below: None });
    for number in 0..40 {
        rig.burst_at(&[(HOST, of_flow(&key(number), 64, 0))]);
    }
    let locals: Vec<u32> = (100..102).collect();
    for &number in &locals {
        rig.burst_at(&[(LOCAL, of_flow(&key(number), 64, 0))]);
    }
    rig.compare();
    let places = || rig.twin.groups[0].rows.values().flatten().flatten();
    for number in locals {
        let place = places().find(|place| place.key == key(number)).expect("an entry");
        assert_eq!(place.standing >> 28, 2);
    }
    assert_eq!(places().count(), 8);
}

/// Also before those of this edge alone; in the other group they are flows like any other.
#[test]
fn pinned_flows_come_before_all_others_in_the_windows_of_their_group() {
    for group in 0..2 {
        let mut rig = Rig::edge(1);
        let pinned: Vec<u32> = (200..204).collect();
        rig.pin(group, pinned.iter().copied().map(key).collect());
        rig.open(0, Window { number: 0, seed: 5, claimed_below: Some(1 << 30) });
        // Two rows, full of flows of this edge alone.
        for number in 100..120 {
            rig.burst_at(&[(LOCAL, of_flow(&key(number), 64, 0))]);
        }
        let ports = [HOST, FABRIC, THROUGH, LOCAL];
        for (&number, port) in pinned.iter().zip(ports) {
            // A claim makes no difference.
            let packet = with_claim(&of_flow(&key(number), 64, 0), number % 2 == 0);
            rig.burst_at(&[(port, packet.clone())]);
            rig.burst_at(&[(port, packet)]);
        }
        rig.compare();
        rig.is_right(0);
        let rows = rig.twin.groups[0].rows.values();
        let places: Vec<_> = rows.flatten().flatten().collect();
        assert_eq!(places.len(), 8);
        let of_pinned = places.iter().filter(|place| place.standing >> 28 == 3);
        let counts: Vec<u32> = of_pinned.map(|place| place.packets).collect();
        assert_eq!(counts, if group == 0 { vec![2; 4] } else { Vec::new() });
    }
}

#[test]
fn a_flow_that_comes_on_another_side_is_doubted() {
    let mut rig = rig();
    let packet = |number| of_flow(&key(number), 64, 0);
    for (port, other) in [(HOST, FABRIC), (FABRIC, THROUGH), (THROUGH, HOST), (LOCAL, FABRIC)] {
        let number = u32::from(10 * port + other);
        rig.burst_at(&[(port, packet(number)), (port, packet(number))]);
        assert!(!rig.twin.doubts(0, &key(number)));
        rig.burst_at(&[(other, packet(number))]);
        assert!(rig.twin.doubts(0, &key(number)));
    }
    // To a host of this edge or to another's: it entered.
    rig.burst_at(&[(HOST, packet(1))]);
    rig.burst_at(&[(LOCAL, packet(1))]);
    assert!(!rig.twin.doubts(0, &key(1)));
    rig.compare();
}

/// Its standing is by the seed of the first window.
#[test]
fn a_packet_between_its_passes_as_the_bit_flips_is_of_its_first_window() {
    let mut rig = rig();
    rig.open(1, Window { number: 1, seed: 6, claimed_below: Some(1 << 30) });
    let packet = of_flow(&key(1), 64, 0);
    rig.burst_flipping(&[(HOST, packet.clone())], Some(1));
    rig.compare();
    rig.is_right(0);
    let events = &rig.twin.groups[0].events;
    assert_eq!((events[event::SENT], events[event::PLACED]), (1, 1));
    assert_eq!(rig.twin.groups[1].events, [0; 16]);
    // The next one is of the next window.
    rig.burst_at(&[(HOST, packet)]);
    rig.compare();
    rig.is_right(1);
    assert_eq!(rig.twin.groups[1].events[event::PLACED], 1);
}

/// Bursts of packets: flow, TTL, claim, and whether it comes by another port than its flow does.
fn bursts() -> impl Strategy<Value = Vec<Vec<(u8, u8, bool, bool)>>> {
    let packet =
        (0_u8..40, 0_u8..12, any::<bool>(), 0_u8..20).prop_map(|(flow, ttl, claimed, strays)| {
            match flow % 4 {
                0 => (flow, 60 + ttl % 3, claimed, strays == 0),
                _ => (flow, 61, flow.is_multiple_of(3), false),
            }
        });
    prop::collection::vec(prop::collection::vec(packet, 1..6), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn after_every_burst_at_an_edge_all_words_are_the_twins(
        bursts in bursts(), seed: u32, pinned in prop::collection::btree_set(0_u32..40, 0..8),
    ) {
        let mut rig = Rig::edge(1);
        rig.pin(0, pinned.into_iter().map(key).collect());
        rig.open(0, Window { number: 0, seed, claimed_below: Some(1 << 30) });
        for burst in bursts {
            let packet = |&(flow, ttl, claimed, strays): &(u8, u8, bool, bool)| {
                let bytes = with_claim(&of_flow(&key(flow.into()), ttl, 0), claimed);
                (PORTS[usize::from(flow + u8::from(strays)) % 6], bytes)
            };
            rig.burst_at(&burst.iter().map(packet).collect::<Vec<_>>());
            rig.compare();
            rig.is_right(0);
        }
    }
}
