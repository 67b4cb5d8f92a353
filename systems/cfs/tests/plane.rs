//! CFS on the data plane, in virtual time: whatever packets do, the entries of a window are the
//! flows of smallest rank, and what they say to be exact is what the switch received.

mod common;
#[path = "common/model.rs"]
mod model;

use std::collections::{BTreeMap, HashSet};

use calumma_cfs::frames::{Entry, Graded, Hop, Setup, Window};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_sketch::{KeyKind, WideKey};
use proptest::prelude::*;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, begin, clock, flow, frame};
use model::{Received, Traffic, entry, lower_ttl, number};

fn setup() -> Setup {
    let (entries, filter_bits, window_epochs) = (256, 1 << 16, 4);
    Setup { entries, filter_bits, window_epochs, claim: false, ..Setup::default() }
}

fn networks() -> Vec<Net> {
    let carriers = [
        (Carrier::Tos(Tos::default()), KeyKind::Ipv4),
        (Carrier::Tos(Tos::default()), KeyKind::Dual),
        (Carrier::SignedTos(Tos::default()), KeyKind::Dual),
        (Carrier::Shim(Shim::default()), KeyKind::Dual),
        (Carrier::IpId, KeyKind::Ipv4),
        (Carrier::IpId, KeyKind::Dual),
    ];
    carriers.map(|(carrier, keys)| Net { carrier, keys, setup: setup() }).to_vec()
}

/// One packet on one lcore of a switch.
fn pass(switch: &mut Switch, lcore: usize, path: Path, frame: &mut Frame) {
    switch.pass_all(lcore, path, std::slice::from_mut(frame));
}

/// The traffic of a switch's windows, by first epoch.
type Windows = BTreeMap<u64, Traffic>;

/// Notes a packet received by a switch; gives the window.
fn note(of: &mut Windows, net: &Net, entered_ns: u64, key: WideKey, packet: Received) {
    let window = u64::from(net.setup.window_epochs);
    let epoch = clock().epoch_at(entered_ns) / window * window;
    of.entry(epoch).or_default().entry(key).or_default().push(packet);
}

/// Holds a window against all that the switch received in it: of all flows, each with one TTL, it
/// must have those of smallest rank, and all that is known of them.
fn check(net: &Net, node: u16, epoch: u64, window: &Window, traffic: &Traffic) {
    let flows = traffic.iter().map(|(key, packets)| entry(net, node, epoch, key, packets));
    let mut flows: Vec<Entry> = flows.collect();
    flows.sort_unstable_by_key(|flow| flow.rank);
    let received: u64 = flows.iter().map(|flow| flow.packets).sum();
    let number = flows.len();
    flows.truncate(net.setup.entries as usize);
    flows.sort_unstable_by_key(|flow| flow.key);
    assert_eq!(window.totals.filtered, 0, "the filter is roomy enough");
    assert_eq!(window.entries, flows, "node {node}, window {epoch}");
    assert_eq!(window.totals.packets, received);
    let (estimate, one) = (window.flows.estimate(), &window.totals);
    let error = (estimate.value - number as f64).abs();
    assert!(error <= 5.0 * estimate.standard_error.unwrap() + 1.0, "{estimate:?}, {number}");
    assert_eq!(one.admitted - one.evicted, window.entries.len() as u64);
    assert_eq!(one.admitted + one.refused, number as u64);
    assert_eq!((one.unmarked, window.theta), (0, Some(0)));
}

/// Packets of 700 flows from e1 over s1 to e2, in windows of four epochs. Every seventh is lost
/// before s1, every eleventh behind it.
fn counted(net: &Net) {
    let [mut e1, mut s1, mut e2] = [1, 2, 3].map(|node| Switch::new(net, node, 1));
    let [mut at_e1, mut at_s1, mut at_e2] = [(); 3].map(|()| Windows::new());
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..9_000_u64 {
        let now_ns = start + n * 60_000;
        // Few flows of many packets, and many of few.
        let number = number(n, 700);
        let (key, payload) = (flow(number, net.keys), (n * 7 % 1200) as usize);
        let ttl = [64, 128, 255, 60][number as usize % 4];
        let mut packet = frame(&key, ttl, payload);
        let plain = packet.clone();
        let len = (packet.bytes().len() - 14) as u64;
        let seen = |ttl, at_ns, side| Received { ttl, len, at_ns, side };
        e1.advance_to(now_ns);
        pass(&mut e1, 0, Path::Enter, &mut packet);
        note(&mut at_e1, net, now_ns, key, seen(ttl, now_ns, Entry::ENTERED));
        if n % 7 == 0 {
            continue;
        }
        // Under way for up to 4 ms each.
        let at_ns = now_ns + n % 5 * 1_000_000;
        lower_ttl(&mut packet);
        let marked = packet.clone();
        s1.advance_to(at_ns);
        pass(&mut s1, 0, Path::Transit, &mut packet);
        assert_eq!(packet.bytes(), marked.bytes(), "a transit switch changes nothing");
        note(&mut at_s1, net, now_ns, key, seen(ttl - 1, at_ns, Entry::PASSED));
        if n % 11 == 0 {
            continue;
        }
        let at_ns = at_ns + 3_000_000;
        lower_ttl(&mut packet);
        e2.advance_to(at_ns);
        pass(&mut e2, 0, Path::Leave, &mut packet);
        note(&mut at_e2, net, now_ns, key, seen(ttl - 2, at_ns, Entry::LEFT));
        assert_eq!(packet.bytes().len(), plain.bytes().len());
    }
    let end = start + 20 * EPOCH_NS;
    for (node, switch, truth) in [(1, &mut e1, at_e1), (2, &mut s1, at_s1), (3, &mut e2, at_e2)] {
        switch.advance_to(end);
        assert_eq!(switch.late, 0);
        assert!(truth.len() >= 3 && switch.windows.len() >= truth.len());
        for (epoch, window) in &switch.windows {
            let none = Traffic::new();
            check(net, node, *epoch, window, truth.get(epoch).unwrap_or(&none));
        }
    }
    // They cooperate: together they have more flows than one table holds, each window.
    for epoch in e1.windows.keys().take(2) {
        let switches = [&e1, &s1, &e2].map(|switch| &switch.windows[epoch].entries);
        let all: HashSet<WideKey> = switches.into_iter().flatten().map(|entry| entry.key).collect();
        assert!(all.len() > 450, "{} flows", all.len());
    }
}

#[test]
fn every_switch_has_the_flows_of_smallest_rank_and_their_exact_counts() {
    networks().iter().for_each(counted);
}

#[test]
fn so_it_is_with_every_rule_of_grading() {
    let net = networks()[1];
    let greedy = Setup { grade: Graded::Greedy, ..setup() };
    let random = Setup { grade: Graded::Random, hop: Hop::None, ..setup() };
    let alike = Setup { reseed: false, ..setup() };
    for setup in [greedy, random, alike] {
        counted(&Net { setup, ..net });
    }
}

/// A flow whose packets come to two lcores is in both tables, or one has refused it: its count says
/// that it is no more than a lower bound. All others are exact.
#[test]
fn counts_of_flows_on_two_lcores_are_lower_bounds() {
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        let net = Net { keys, ..networks()[0] };
        let mut switch = Switch::new(&net, 1, 3);
        let (mut truth, mut lcores_of) = (Windows::new(), BTreeMap::<_, HashSet<usize>>::new());
        let start = clock().start_of(FIRST_EPOCH);
        for n in 0..12_000_u64 {
            let now_ns = start + n * 40_000;
            let number = number(n, 911);
            let spread = if number.is_multiple_of(10) { n } else { 0 };
            let lcore = (u64::from(number) + spread) as usize % 3;
            let key = flow(number, keys);
            let mut packet = frame(&key, 64, 10);
            let len = (packet.bytes().len() - 14) as u64;
            switch.advance_to(now_ns);
            pass(&mut switch, lcore, Path::Enter, &mut packet);
            let side = Entry::ENTERED;
            note(&mut truth, &net, now_ns, key, Received { ttl: 64, len, at_ns: now_ns, side });
            let epoch = clock().epoch_at(now_ns) / 4 * 4;
            lcores_of.entry((epoch, key)).or_default().insert(lcore);
        }
        switch.advance_to(start + 20 * EPOCH_NS);
        let (mut exact, mut bounds) = (0, 0);
        for (epoch, traffic) in &truth {
            let window = &switch.windows[epoch];
            let packets: usize = traffic.values().map(Vec::len).sum();
            assert_eq!(window.totals.packets, packets as u64);
            for got in &window.entries {
                let wanted = entry(&net, 1, *epoch, &got.key, &traffic[&got.key]);
                if lcores_of[&(*epoch, got.key)].len() == 1 {
                    assert_eq!(*got, wanted);
                    exact += 1;
                } else {
                    assert!(!got.exact && got.packets <= wanted.packets);
                    assert!(got.bytes <= wanted.bytes && got.first_us >= wanted.first_us);
                    bounds += 1;
                }
            }
            // Each lcore has the best of what it has seen, in a third of the entries.
            assert!(window.entries.len() > 200, "{} entries", window.entries.len());
        }
        assert!(exact > 500 && bounds > 30, "{exact} exact, {bounds} bounds");
    }
}

/// What goes from host to host of a switch is recorded once, and before all else.
#[test]
fn flows_of_one_switch_are_counted_once() {
    let net = networks()[1];
    let mut edge = Switch::new(&net, 1, 1);
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..2_000_u64 {
        edge.advance_to(start + n * 50_000);
        let local = n % 4 == 0;
        let path = if local { Path::Cross } else { Path::Enter };
        let number = (n % 400) as u32 + if local { 1_000 } else { 0 };
        pass(&mut edge, 0, path, &mut frame(&flow(number, net.keys), 64, 20));
    }
    edge.advance_to(start + 8 * EPOCH_NS);
    let window = &edge.windows[&FIRST_EPOCH];
    assert_eq!(window.totals.packets, 2_000);
    let (local, others): (Vec<&Entry>, Vec<&Entry>) =
        window.entries.iter().partition(|entry| entry.rank.class() == 1);
    assert_eq!((local.len(), others.len()), (100, 156));
    assert!(window.entries.iter().all(|entry| entry.packets == 5 && entry.sides == Entry::ENTERED));
    assert!(others.iter().all(|entry| entry.rank.class() == 2));
}

/// Packets without a mark are counted and in no table; those that come when their window was taken
/// are late.
#[test]
fn packets_of_no_window_are_counted_and_not_recorded() {
    let net = networks()[2];
    let mut edge = Switch::new(&net, 1, 1);
    let start = clock().start_of(FIRST_EPOCH);
    edge.advance_to(start + 3 * EPOCH_NS + EPOCH_NS / 2);
    let mut late = frame(&flow(1, net.keys), 64, 20);
    pass(&mut edge, 0, Path::Enter, &mut late);
    for path in [Path::Leave, Path::Transit] {
        let mut unmarked: Vec<_> = (0..7).map(|n| frame(&flow(n, net.keys), 60, 20)).collect();
        edge.pass_all(0, path, &mut unmarked);
    }
    edge.advance_to(start + 4 * EPOCH_NS + EPOCH_NS / 2);
    pass(&mut edge, 0, Path::Transit, &mut late);
    edge.advance_to(start + 12 * EPOCH_NS);
    let window = &edge.windows[&FIRST_EPOCH];
    assert_eq!((window.totals.packets, window.totals.unmarked, edge.late), (1, 14, 1));
    assert_eq!(window.entries.len(), 1);
}

#[test]
fn a_setup_that_a_switch_cant_measure_by_is_refused() {
    let problem = |setup: Setup| begin(setup, 1, 1).unwrap_err();
    let bad = Setup { entries: 100, ..setup() };
    assert!(problem(bad).contains("entries: 100"), "{}", problem(bad));
    assert!(problem(Setup { claim: true, ..setup() }).contains("claim"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Packets of a flow come with any TTLs, by any side and on any lcore, in bursts, while
    /// windows turn: whatever an entry says to be exact is right, and every packet is in an entry,
    /// refused or evicted.
    #[test]
    fn exact_counts_are_right_whatever_packets_do(
        bursts in prop::collection::vec(
            (prop::collection::vec((0_u32..900, 0_u8..4, 0_usize..3), 1..32), 0_usize..2, 0_usize..3),
            60..220,
        ),
        ttl_changes: bool,
        filter in prop::sample::select(vec![1_u32 << 10, 1 << 16]),
        keys in prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]),
    ) {
        let setup = Setup { filter_bits: filter, window_epochs: 2, ..setup() };
        let net = Net { keys, setup, ..networks()[0] };
        let mut switch = Switch::new(&net, 1, 2);
        let mut truth = Windows::new();
        let start = clock().start_of(FIRST_EPOCH);
        for (at, (burst, lcore, path)) in bursts.into_iter().enumerate() {
            let now_ns = start + at as u64 * 1_500_000;
            switch.advance_to(now_ns);
            let (path, side) = [
                (Path::Enter, Entry::ENTERED), (Path::Transit, Entry::PASSED), (Path::Leave, Entry::LEFT),
            ][path];
            let mut frames = Vec::new();
            for (number, ttl, payload) in burst {
                // Flows of one lcore mostly.
                if number % 16 != 0 && number as usize % 2 != lcore {
                    continue;
                }
                let key = flow(number, keys);
                let ttl = if ttl_changes { 60 - ttl } else { 60 };
                let mut packet = frame(&key, ttl, payload);
                let len = (packet.bytes().len() - 14) as u64;
                note(&mut truth, &net, now_ns, key, Received { ttl, len, at_ns: now_ns, side });
                if path != Path::Enter {
                    // Another switch has marked it.
                    let bit = clock().epoch_at(now_ns) as u8 & 1;
                    let tos = bit << 7;
                    let ip = &mut packet.bytes_mut()[14..];
                    if ip[0] >> 4 == 4 { ip[1] = tos } else { ip[0] = 0x60 | tos >> 4 };
                }
                frames.push(packet);
            }
            switch.pass_all(lcore, path, &mut frames);
        }
        switch.advance_to(start + 14 * EPOCH_NS);
        prop_assert_eq!(switch.late, 0);
        for (epoch, traffic) in &truth {
            let window = &switch.windows[epoch];
            let packets: usize = traffic.values().map(Vec::len).sum();
            prop_assert_eq!(window.totals.packets, packets as u64);
            for got in &window.entries {
                let wanted = entry(&net, 1, *epoch, &got.key, &traffic[&got.key]);
                if got.exact {
                    prop_assert_eq!(got, &wanted);
                }
                prop_assert!(got.packets <= wanted.packets);
            }
        }
    }
}
