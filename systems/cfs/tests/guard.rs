//! Loops of flows without an entry: a switch whose table has no room for them finds them all the
//! same, and nothing else that hosts and networks do looks like one.

mod common;

use std::collections::{HashMap, HashSet};

use calumma_cfs::frames::{Setup, Suspect, Window};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_plane::{Carrier, carrier::Tos};
use calumma_sketch::{KeyKind, WideKey};
use calumma_wire::Role;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, flow, frame};

const ENTRIES: u32 = 256;

/// What passes a switch in a window: flows and times to live, in order.
fn windows(lcores: usize, packets: &[(u32, u8)]) -> (Vec<Window>, Switch) {
    let filter_bits = 1 << 18;
    let setup =
        Setup { entries: ENTRIES, filter_bits, claim: false, guard: true, ..Setup::default() };
    let net = Net { carrier: Carrier::Tos(Tos::default()), keys: KeyKind::Dual, setup };
    let mut switch = Switch::with_role(&net, 1, lcores, Role::Transit);
    let window_ns = u64::from(setup.window_epochs) * EPOCH_NS;
    let start = clock().start_of(FIRST_EPOCH);
    let gap_ns = window_ns / packets.len() as u64;
    let mut edge = Switch::new(&net, 2, 1);
    let mut marked: HashMap<(u64, u32), Frame> = HashMap::new();
    for (at, &(number, ttl)) in (0..).zip(packets) {
        let now_ns = start + at * gap_ns;
        edge.advance_to(now_ns);
        switch.advance_to(now_ns);
        // A packet that goes round is marked once.
        let stamped = marked.entry((clock().epoch_at(now_ns), number)).or_insert_with(|| {
            let mut packet = frame(&flow(number, net.keys), 255, 10);
            edge.pass_all(0, Path::Enter, std::slice::from_mut(&mut packet));
            packet
        });
        let mut packet = Frame::with_headroom(16, stamped.bytes());
        let version = packet.bytes()[14] >> 4;
        packet.bytes_mut()[if version == 4 { 22 } else { 21 }] = ttl;
        let lcore = number as usize % lcores;
        switch.pass_all(lcore, Path::Transit, std::slice::from_mut(&mut packet));
    }
    switch.advance_to(start + 2 * window_ns);
    (std::mem::take(&mut switch.windows).into_values().collect(), switch)
}

/// Flows that entries or suspicions show with packets that went round by `length` hops down to the
/// end, by many turns.
fn going_round(windows: &[Window], length: u8) -> HashSet<WideKey> {
    let is_round = |ttl: u8, differences: u64| {
        let turns = ttl.saturating_sub(1).min(63) / length;
        let all = (1..=turns).fold(0, |bits, turn| bits | 1_u64 << (turn * length));
        differences & !1 == all && turns > 4
    };
    let mut found = HashSet::new();
    for window in windows {
        let entries = window.entries.iter().map(|of| (of.key, of.ttl, of.differences));
        let suspects = &window.suspects.as_ref().expect("they are looked for").flows;
        let suspects =
            suspects.iter().map(|&Suspect { key, ttl, differences }| (key, ttl, differences));
        let all = entries.chain(suspects);
        found.extend(all.filter(|of| is_round(of.1, of.2)).map(|of| of.0));
    }
    found
}

/// Numbers in an order that nothing is known of.
fn shuffled<T>(mut of: Vec<T>) -> Vec<T> {
    for at in (1..of.len()).rev() {
        let random = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        of.swap(at, (random % (at as u64 + 1)) as usize);
    }
    of
}

#[test]
fn nearly_every_loop_is_found_at_any_ratio_of_entries_to_flows() {
    for (flows, length, lcores) in [(200, 2, 1), (256, 3, 1), (1000, 2, 2), (8000, 4, 1)] {
        // Every eighth flow goes round, two packets of it; the packets of all are mixed, those of
        // one that goes round among others' as they come again.
        let round = |flow: &u32| flow % 8 == 3;
        let mut packets: Vec<(u64, (u32, u8))> = Vec::new();
        for flow in 0..flows {
            let begin = u64::from(flow).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
            let once = (0..3).map(|at| (begin + at * 40_000, (flow, 61)));
            packets.extend(once);
            if round(&flow) {
                let again = (1..=61).rev().step_by(length.into());
                for late in [0, 20_333] {
                    let turn = |(at, ttl): (u64, u8)| (begin + late + 4_000 * at, (flow, ttl));
                    packets.extend((0..).zip(again.clone()).map(turn));
                }
            }
        }
        packets.sort_by_key(|of| of.0);
        let packets: Vec<(u32, u8)> = packets.into_iter().map(|of| of.1).collect();
        let (windows, switch) = windows(lcores, &packets);
        let found = going_round(&windows, length);
        let truth: HashSet<WideKey> =
            (0..flows).filter(round).map(|number| flow(number, KeyKind::Dual)).collect();
        let share = found.intersection(&truth).count() as f64 / truth.len() as f64;
        println!("{flows} flows, {ENTRIES} entries, turns of {length} hops: {share:.4} found");
        assert!(share >= 0.99, "{flows} flows: {share}");
        assert_eq!(found.difference(&truth).count(), 0);
        assert_eq!(switch.totals()["cfs.guard_missed"], 0);
        // Most have no entry.
        let suspects: usize =
            windows.iter().flat_map(|of| &of.suspects).map(|of| of.flows.len()).sum();
        assert!(flows < 1000 || suspects * 2 > truth.len(), "{suspects} of {}", truth.len());
        assert_eq!(switch.totals()["cfs.guard"], suspects as u64);
    }
}

#[test]
fn flowlets_changes_of_path_traceroutes_and_hosts_of_any_ttl_are_no_loop() {
    let random = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let mut packets = Vec::new();
    for flow in 0..3000_u32 {
        let ttls: Vec<u8> = match flow % 6 {
            0 => vec![61; 5],
            // Flowlets over ways of two lengths, and of three.
            1 => (0..12).map(|at| [61, 59][(at / 3) % 2]).collect(),
            2 => (0..18).map(|at| [61, 59, 57][(at / 3) % 3]).collect(),
            // A change of path.
            3 => (0..10).map(|at| if at < 5 { 61 } else { 59 }).collect(),
            // Traceroute with one pair of ports, twice.
            4 => (1..=30).chain(1..=30).flat_map(|ttl| [ttl; 3]).collect(),
            _ => (0..20).map(|at| random(u64::from(flow) << 8 | at) as u8 | 1).collect(),
        };
        packets.push((flow, ttls));
    }
    // A round of every flow, again and again.
    let longest = packets.iter().map(|of| of.1.len()).max().unwrap();
    let round = |at: usize| {
        shuffled(packets.iter().filter_map(|(flow, ttls)| Some((*flow, *ttls.get(at)?))).collect())
    };
    let packets: Vec<(u32, u8)> = (0..longest).flat_map(round).collect();
    let (windows, _) = windows(1, &packets);
    for length in 2..=32 {
        assert_eq!(going_round(&windows, length), HashSet::new(), "{length} hops a turn");
    }
    let totals: u64 = windows.iter().map(|of| of.totals.refused_packets).sum();
    assert!(totals > 10_000, "{totals} packets without an entry");
}

#[test]
fn a_flow_that_goes_round_is_reported_at_once_and_once_a_window() {
    // With an entry or without one: the table has room for all flows, or for a part of them.
    for flows in [40, 1200] {
        let round = |number: u32| number.is_multiple_of(8);
        let ttls = |number| match round(number) {
            true => (1..=62).rev().step_by(2).collect(),
            // Hosts that trace routes.
            false if number % 8 == 1 => (1..=30).collect(),
            false => vec![62; 4],
        };
        let packets: Vec<(u32, u8)> = (0..flows)
            .flat_map(|number| ttls(number).into_iter().map(move |ttl| (number, ttl)))
            .collect();
        let (windows, switch) = windows(2, &packets);
        let now_ns = clock().start_of(FIRST_EPOCH + 40);
        let (epoch, found) = switch.notice(now_ns).expect("flows go round");
        assert_eq!((epoch, switch.notice(now_ns + EPOCH_NS)), (FIRST_EPOCH, None));
        let found: HashSet<WideKey> = found.into_iter().collect();
        let expected: HashSet<WideKey> =
            (0..flows).filter(|&n| round(n)).map(|n| flow(n, KeyKind::Dual)).collect();
        assert!(found.is_subset(&expected), "{} of {flows}", found.len());
        assert!(found.len() * 100 >= expected.len() * 99, "{} of {}", found.len(), expected.len());
        assert!(found.is_subset(&going_round(&windows, 2)), "the window has them, too");
    }
}
