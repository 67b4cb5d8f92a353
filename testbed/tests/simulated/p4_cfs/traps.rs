//! What a table of registers that are accessed once a pass can get wrong, case by case.

use std::collections::BTreeMap;

use calumma_sketch::{FlowKey, KeyKind};

use super::of_flow;
use super::rig::Rig;
use super::twin::{Place, Seen, Side, Window, event};
use crate::switch::HOST;

const TTL: u8 = 62;
const SEED: u32 = 0x5EED_0001;

fn rig(row_bits: u32) -> Rig {
    let mut rig = Rig::new(row_bits);
    rig.open(0, Window { number: 0, seed: SEED, claimed_below: None });
    rig
}

fn key(number: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + number, 0xC0A8_0001, 0x1F90_0050 ^ number << 7, 6)
}

/// The flow's standing, row and note.
fn chosen(rig: &Rig, key: FlowKey, ttl: u8) -> (u32, u32, u32) {
    let (side, single) = (Side::Passed, false);
    let seen = Seen { key, ttl, len: 28, claimed: false, side, single };
    rig.twin.chosen_by(&rig.windows[0].unwrap(), &seen)
}

/// Flows of one row, the best first.
fn of_one_row(rig: &Rig, number: usize) -> Vec<FlowKey> {
    let in_row = (0..).map(key).filter(|&key| chosen(rig, key, TTL).1 == 0);
    let mut keys: Vec<FlowKey> = in_row.take(number).collect();
    keys.sort_by_key(|&key| std::cmp::Reverse(chosen(rig, key, TTL).0));
    keys
}

/// Packets that come one after the other.
fn come(rig: &mut Rig, packets: impl IntoIterator<Item = (FlowKey, u8)>) {
    for (key, ttl) in packets {
        rig.burst(&[of_flow(&key, ttl, 0)]);
    }
}

/// What came of all is as it must be, and what the first row holds.
fn checked(rig: &Rig) -> Vec<Place> {
    rig.compare();
    rig.is_right(0);
    places(rig, 0)
}

/// What a row holds, in the order of its columns.
fn places(rig: &Rig, row: u32) -> Vec<Place> {
    rig.twin.groups[0].rows.get(&row).into_iter().flatten().flatten().copied().collect()
}

fn counts(row: &[Place]) -> Vec<(FlowKey, u32)> {
    row.iter().map(|place| (place.key, place.packets)).collect()
}

#[test]
fn a_flow_is_found_in_every_column_and_a_better_one_takes_the_place_of_the_worst() {
    let mut rig = rig(1);
    let [a, b, c, d, e, f] = of_one_row(&rig, 6)[..] else { panic!() };
    come(&mut rig, [c, e, b, d, c, e, b, d].map(|key| (key, TTL)));
    assert_eq!(counts(&checked(&rig)), [(c, 2), (e, 2), (b, 2), (d, 2)]);
    come(&mut rig, [(a, TTL), (a, TTL)]);
    assert_eq!(counts(&checked(&rig)), [(c, 2), (a, 2), (b, 2), (d, 2)]);
    // One that is worse than all takes no place.
    come(&mut rig, [(f, TTL), (d, TTL)]);
    assert_eq!(counts(&checked(&rig)), [(c, 2), (a, 2), (b, 2), (d, 3)]);
    assert_eq!(rig.twin.groups[0].events[event::REFUSED], 1);
    assert_eq!(rig.twin.groups[0].events[event::REPLACED], 1);
}

#[test]
fn a_flow_that_was_evicted_or_refused_does_not_come_back() {
    let mut rig = rig(1);
    let [a, b, c, d, e] = of_one_row(&rig, 5)[..] else { panic!() };
    come(&mut rig, [b, c, d, e, e, a, e].map(|key| (key, TTL)));
    let kept = [(b, 1), (c, 1), (d, 1), (a, 1)];
    assert_eq!(counts(&checked(&rig)), kept);
    assert_eq!(rig.twin.groups[0].evicted_packets, 2);
    // With another TTL it would stand better than all of them: the filter keeps it out.
    let better = (33..=255).find(|&ttl| chosen(&rig, e, ttl).0 > chosen(&rig, a, TTL).0).unwrap();
    come(&mut rig, [(e, better)]);
    assert_eq!(counts(&checked(&rig)), kept);
    assert_eq!(rig.twin.groups[0].events[event::FILTERED], 1);
}

#[test]
fn a_packet_that_loops_hits_its_entry() {
    let mut rig = rig(1);
    let [a, b, c] = of_one_row(&rig, 3)[..] else { panic!() };
    come(&mut rig, [(a, TTL), (b, TTL), (c, TTL)]);
    // By what it brings it would stand anywhere.
    come(&mut rig, (2..TTL).rev().step_by(2).map(|ttl| (c, ttl)));
    assert_eq!(counts(&checked(&rig)), [(a, 1), (b, 1), (c, 31)]);
    // How many came with another TTL nobody has counted, so nothing is said for certain.
    assert!(rig.twin.doubts(0, &c) && !rig.twin.doubts(0, &a));
}

#[test]
fn of_two_flows_that_stand_alike_the_first_one_stays_before_the_other() {
    let mut rig = rig(1);
    let mut standings: BTreeMap<(u32, u32), FlowKey> = BTreeMap::new();
    let (one, other) = (0..1 << 20)
        .map(key)
        .find_map(|key| {
            let (standing, row, _) = chosen(&rig, key, TTL);
            standings.insert((row, standing), key).map(|before| (before, key))
        })
        .unwrap();
    let row = chosen(&rig, one, TTL).1;
    come(&mut rig, [(one, TTL), (other, TTL), (one, TTL), (other, TTL), (other, TTL)]);
    checked(&rig);
    assert_eq!(counts(&places(&rig, row)), [(one, 2), (other, 3)]);
    // Back to back, the second one takes the first one's entry for its own, and is refused.
    rig.clear(0);
    rig.burst(&[other, one, one, other].map(|key| of_flow(&key, TTL, 0)));
    checked(&rig);
    assert_eq!(counts(&places(&rig, row)), [(other, 2)]);
    assert_eq!(rig.twin.groups[0].events[event::CROWDED_OUT], 2);
}

/// Of keys that differ in one part, and of which all hashes that are kept are the same.
#[test]
fn whole_keys_are_compared() {
    let parts: [fn(u32, u32) -> FlowKey; 4] = [
        |_, number| FlowKey::from_words(number, 2, 3, 6),
        |_, number| FlowKey::from_words(1, number, 3, 6),
        |_, number| FlowKey::from_words(1, 2, number, 17),
        |base, number| FlowKey::from_words(base, 2, 0, 0x80 | number as u8),
    ];
    for part in parts {
        let mut rig = rig(1);
        let alike = |base| {
            let mut places: BTreeMap<(u32, u32), FlowKey> = BTreeMap::new();
            (0..100).map(|number| part(base, base << 7 | number)).find_map(|key| {
                let (_, row, note) = chosen(&rig, key, TTL);
                let before = places.insert((row, note), key)?;
                (before != key).then_some((before, key))
            })
        };
        let (one, other) = (0..10_000).find_map(alike).unwrap();
        come(&mut rig, [(one, TTL), (other, TTL), (other, TTL)]);
        checked(&rig);
        let row = places(&rig, chosen(&rig, one, TTL).1);
        let mut counted: Vec<u32> = row.iter().map(|place| place.packets).collect();
        counted.sort_unstable();
        assert_eq!(counted, [1, 2], "{one}, {other}");
    }
}

#[test]
fn more_bytes_than_a_word_holds() {
    let mut rig = rig(1);
    let [a, ..] = of_one_row(&rig, 1)[..] else { panic!() };
    // As long as can be; the ingress counts them by what they say, and the egress drops them.
    let mut bytes = of_flow(&a, TTL, 0);
    bytes[16..18].fill(0xFF);
    let packets = vec![bytes; 70_000];
    packets.chunks(1000).for_each(|packets| rig.burst(packets));
    let row = checked(&rig);
    assert_eq!((row[0].packets, row[0].bytes), (70_000, 70_000 * 65_535));
    assert!(row[0].bytes > 1 << 32);
}

/// The packets of a flow that begins with a burst: all are counted, and nothing is doubted.
#[test]
fn packets_of_a_new_flow_back_to_back_are_all_counted() {
    let mut rig = rig(1);
    let [a, b, c, ..] = of_one_row(&rig, 3)[..] else { panic!() };
    rig.burst(&[c, c, a, c, b, a, c].map(|key| of_flow(&key, TTL, 0)));
    assert_eq!(counts(&checked(&rig)), [(c, 4), (a, 2), (b, 1)]);
    assert_eq!(rig.twin.groups[0].events[event::MET], 4);
    assert!([a, b, c].iter().all(|key| !rig.twin.doubts(0, key)));
}

/// Of one that begins with a burst of packets with different TTLs, two entries may come to be, and
/// each packet is counted once.
#[test]
fn a_new_flow_of_two_times_to_live_at_once_is_doubted() {
    let mut rig = rig(1);
    let [a, ..] = of_one_row(&rig, 1)[..] else { panic!() };
    let better = (33..=255).find(|&ttl| chosen(&rig, a, ttl).0 > chosen(&rig, a, TTL).0).unwrap();
    rig.burst(&[of_flow(&a, TTL, 0), of_flow(&a, better, 0)]);
    let places: Vec<u32> = checked(&rig).iter().map(|place| place.packets).collect();
    assert_eq!(places, [2, 0]);
    assert!(rig.twin.doubts(0, &a));
}

/// Between a flow's passes another one with its note is refused, and then its second packet is
/// kept out by the filter: the entry that its first packet makes is doubted.
#[test]
fn a_flow_that_is_kept_out_while_it_is_put_in_is_doubted() {
    let mut rig = rig(1);
    let row = of_one_row(&rig, 4);
    come(&mut rig, row.iter().map(|&key| (key, TTL)));
    // One that would be refused in that row, and one of the other row with the same note.
    let worst = chosen(&rig, row[3], TTL).0;
    let mut notes: BTreeMap<u32, FlowKey> = BTreeMap::new();
    let (refused, other) = (0..1 << 22)
        .map(key)
        .find_map(|key| {
            let (standing, row, note) = chosen(&rig, key, TTL);
            if row == 0 && standing < worst {
                notes.insert(note, key);
            }
            (row == 1).then(|| notes.get(&note).map(|&refused| (refused, key))).flatten()
        })
        .unwrap();
    rig.burst(&[other, refused, other].map(|key| of_flow(&key, TTL, 0)));
    checked(&rig);
    let [place] = places(&rig, 1)[..] else { panic!("one flow in the other row") };
    assert_eq!((place.key, place.packets), (other, 1), "and two came");
    assert_eq!(rig.twin.groups[0].events[event::FILTERED], 1);
    assert!(rig.twin.doubts(0, &other));
}

/// The same, where a flow with its note was evicted meanwhile.
#[test]
fn a_flow_whose_note_is_taken_while_it_is_put_in_is_doubted() {
    let mut rig = rig(1);
    let [a, ..] = of_one_row(&rig, 1)[..] else { panic!() };
    let (_, _, note) = chosen(&rig, a, TTL);
    let packet = of_flow(&a, TTL, 0);
    (0..2).for_each(|_| rig.switch.offer(HOST, &packet));
    rig.switch.run(1, |_, _| panic!("it goes through once more"));
    rig.switch.write_register("filter.bits", note as usize, &[1]).unwrap();
    let mut sent = 0;
    rig.switch.run(usize::MAX, |_, _| sent += 1);
    assert_eq!(sent, 2);
    let word = |register: &str, at: usize| rig.switch.read_register_lanes(register).unwrap()[0][at];
    assert_eq!([event::PLACED, event::FILTERED].map(|at| word("events.sums", at)), [1, 1]);
    assert_eq!(word("doubts.kinds", note as usize & 0xFFF), 1);
}

/// A packet may be lost on its way to the second pass: more were sent there than came.
#[test]
fn packets_that_are_lost_between_the_passes_are_missing_in_the_events() {
    let mut rig = rig(1);
    let [a, b, ..] = of_one_row(&rig, 2)[..] else { panic!() };
    come(&mut rig, [(a, TTL)]);
    rig.switch.offer(HOST, &of_flow(&b, TTL, 0));
    rig.switch.run(1, |_, _| panic!("it is still on its way"));
    rig.switch.discard_waiting();
    let sums = |at: usize| rig.switch.read_register_lanes("events.sums").unwrap()[0][at];
    assert_eq!((sums(event::SENT), sums(event::PLACED)), (2, 1));
}

/// Of more pinned flows than a row has places it has the best, as of others; no two stand alike.
#[test]
fn a_row_of_pinned_flows_has_the_best_of_them() {
    let mut rig = rig(1);
    let mut keys = of_one_row(&rig, 12);
    let pinned = keys.split_off(6);
    rig.pin(0, pinned.iter().copied().collect());
    rig.burst(&keys.iter().map(|key| of_flow(key, TTL, 0)).collect::<Vec<_>>());
    come(&mut rig, pinned.iter().rev().map(|&key| (key, TTL)));
    come(&mut rig, pinned.iter().map(|&key| (key, TTL)));
    let mut row = checked(&rig);
    row.sort_by_key(|place| std::cmp::Reverse(place.standing));
    let best: Vec<_> = pinned[..4].iter().map(|&key| (key, 2)).collect();
    assert_eq!(counts(&row), best);
    // Back to back, in a row that is empty.
    rig.clear(0);
    rig.burst(&pinned[..4].iter().map(|key| of_flow(key, TTL, 0)).collect::<Vec<_>>());
    assert_eq!(checked(&rig).len(), 4);
}

/// Every bit of a grade at every hop, and claims that came.
#[test]
fn flows_stand_as_the_contract_says() {
    for (keys, limit) in [
        (KeyKind::Ipv4, 0),
        (KeyKind::Ipv4, 1 << 29),
        (KeyKind::Dual, 1 << 30),
        (KeyKind::Dual, 1 << 32),
    ] {
        let mut rig = Rig::with_keys(keys, 12);
        let window = Window { number: 1, seed: SEED ^ limit as u32, claimed_below: Some(limit) };
        rig.open(0, window);
        for (number, ttl) in (0..4000_u32).zip((0..=u8::MAX).cycle()) {
            let packet = of_flow(&key(number), ttl, 0);
            rig.burst(&[super::with_claim(&packet, number.is_multiple_of(5))]);
        }
        rig.compare();
        rig.is_right(1);
    }
}
