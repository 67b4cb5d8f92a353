//! What the guard says of packets that go round, and of others.

use calumma_sketch::{FlowKey, KeyKind};
use proptest::prelude::*;

use super::of_flow;
use super::rig::Rig;
use super::twin::{COLUMNS, Window};

fn key(number: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + number, 0xC0A8_0001, 0x1F90_0050 ^ number << 7, 6)
}

/// A switch of one row in each group, which others than its flows have, and of so many cells.
fn full(cell_bits: u32) -> Rig {
    let mut rig = Rig::with_cells(KeyKind::Dual, (1, cell_bits), COLUMNS);
    rig.open(0, Window { number: 0, seed: 0x5EED_0001, claimed_below: None });
    rig.notify([u32::MAX; 2]);
    rig
}

/// The times to live with which packets of a flow came that the switch said; each is compared with
/// the twin's.
fn said(rig: &mut Rig, flow: u32, ttls: impl IntoIterator<Item = u8>) -> u32 {
    let count =
        |rig: &Rig| rig.switch.read_register_lanes("Egress.guard.notices.numbers").unwrap()[0][0];
    let before = count(rig);
    for ttl in ttls {
        rig.burst(&[of_flow(&key(flow), ttl, 0)]);
    }
    rig.compare();
    count(rig) - before
}

#[test]
fn of_a_flow_that_goes_round_every_time_to_live_is_said_once() {
    let mut rig = full(16);
    // So that no flow of the test has an entry.
    rig.pin(0, (1000..1100).map(key).collect());
    (1000..1100).for_each(|flow| rig.burst(&[of_flow(&key(flow), 62, 0)]));
    for (flow, first, length) in [(1, 62, 2), (2, 61, 3), (3, 127, 2), (4, 254, 5), (5, 63, 12)] {
        let round = || (1..=first).rev().step_by(length);
        // The third is the first that is said; with the next packet the second one is. Differences
        // up to 127 are distinguished, and all beyond are one.
        let within = (1..=first).rev().step_by(length).skip(2).filter(|ttl| first - ttl <= 127);
        let beyond = u32::from(first > 128);
        assert_eq!(said(&mut rig, flow, round()), within.count() as u32 + beyond);
        assert_eq!(said(&mut rig, flow, round()), 1, "{first} {length}");
        assert_eq!(said(&mut rig, flow, round()), 0);
    }
}

#[test]
fn nothing_is_said_of_what_hosts_and_changes_of_path_do() {
    let mut rig = full(16);
    let sweep = || (1..=30).flat_map(|ttl| [ttl; 3]);
    assert_eq!(said(&mut rig, 1, std::iter::repeat_n(64, 50)), 0);
    assert_eq!(said(&mut rig, 2, [61, 63, 61, 63, 61, 58, 63]), 0);
    assert_eq!(said(&mut rig, 3, sweep()), 0);
    assert_eq!(said(&mut rig, 4, (1..=30).rev()), 0);
    // A route that is longer by four, and then by one more.
    assert_eq!(said(&mut rig, 5, [60, 60, 56, 56, 55, 55]), 0);
    // Longer than is looked for.
    assert_eq!(said(&mut rig, 6, (1..=63).rev().step_by(13)), 0);
}

/// A flow that has an entry is watched by its packets with other times to live.
#[test]
fn a_flow_with_an_entry_is_said_to_go_round_as_well() {
    let mut rig = full(16);
    let round = || (1..=62).rev().step_by(2);
    // The entry has 62; 60 is the highest of the others.
    assert_eq!(said(&mut rig, 1, round()), 31 - 3);
    assert_eq!(rig.twin.groups[0].evicted_packets, 0);
    assert_eq!(said(&mut rig, 1, round()), 1);
}

/// No packet comes to the flow's cell in the window between, and both have one group.
#[test]
fn a_flow_that_goes_round_again_two_windows_later_is_said_again() {
    let mut rig = full(16);
    let round = || (1..=62).rev().step_by(2);
    assert_eq!(said(&mut rig, 1, round()), 31 - 3);
    assert_eq!((said(&mut rig, 1, round()), said(&mut rig, 1, round())), (1, 0));
    rig.clear(0);
    rig.open(0, Window { number: 2, seed: 0x5EED_0002, claimed_below: None });
    assert_eq!(said(&mut rig, 1, round()), 31 - 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Flows share cells, entries and groups; every word of every register is the twin's, and so is
    /// each notice, as far as some are sent.
    #[test]
    fn what_is_said_is_what_the_twin_says(
        packets in prop::collection::vec((0_u32..8, 0_u8..5, 0_usize..2), 1..150),
        first in 1_u8..=255, step in 1_u8..40, budgets: [u8; 2],
    ) {
        let mut rig = Rig::with_cells(KeyKind::Ipv4, (1, 2), COLUMNS);
        rig.notify(budgets.map(|most| u32::from(most) / 8));
        for bit in 0..2 {
            let number = 0x1_2344 + bit as u32;
            rig.open(bit, Window { number, seed: 0x5EED_0001, claimed_below: None });
        }
        let mut turns = [0_u8; 8];
        for packets in packets.chunks(3) {
            let packet = |&(flow, turn, bit): &(u32, u8, usize)| {
                // Most times to live fall by the same step.
                let at = &mut turns[flow as usize];
                *at = if turn == 0 { 0 } else { *at + turn / 3 };
                of_flow(&key(flow), first.saturating_sub(at.saturating_mul(step)), bit)
            };
            rig.burst(&packets.iter().map(packet).collect::<Vec<_>>());
            rig.compare();
        }
    }
}
