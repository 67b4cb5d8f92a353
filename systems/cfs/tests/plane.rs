//! CFS on the data plane, in virtual time: whatever packets do, the entries of a window are the
//! flows of smallest rank, and what they say to be exact is what the switch received.

mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/residual.rs"]
mod residual;

use std::collections::{BTreeMap, HashMap, HashSet};

use calumma_cfs::frames::{Entry, Graded, Hop, Plan, Setup, Window};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::secret::hash_key;
use calumma_plane::system::SessionContext;
use calumma_plane::worker::Path;
use calumma_sketch::residual::Kind;
use calumma_sketch::table::Rank;
use calumma_sketch::{HashFamily, Hashes, KeyKind, WideKey};
use calumma_wire::Role;
use proptest::prelude::*;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, begin, clock, flow, frame, secret, session};
use model::{Received, Traffic, entry, grade, lower_ttl, number};

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
fn check(
    (net, node, epoch): (&Net, u16, u64),
    window: &Window,
    traffic: &Traffic,
    claimed: impl Fn(&WideKey) -> bool,
) {
    let flow = |(key, packets): (&WideKey, &Vec<Received>)| {
        let mut entry = entry(net, node, epoch, key, packets);
        if claimed(key) {
            entry.rank = Rank::new(3, entry.rank.grade());
        }
        entry
    };
    let mut flows: Vec<Entry> = traffic.iter().map(flow).collect();
    flows.sort_unstable_by_key(|flow| flow.rank);
    let received: u64 = flows.iter().map(|flow| flow.packets).sum();
    let of_claimed = flows.iter().filter(|flow| flow.rank.class() == 3);
    let claimed_in: u64 = of_claimed.map(|flow| flow.packets).sum();
    let number = flows.len();
    flows.truncate(net.setup.entries as usize);
    flows.sort_unstable_by_key(|flow| flow.key);
    assert_eq!(window.totals.filtered, 0, "the filter is roomy enough");
    assert_eq!(window.entries, flows, "node {node}, window {epoch}");
    let totals = &window.totals;
    assert_eq!((totals.packets, totals.claimed_in), (received, claimed_in));
    let estimate = window.flows.estimate();
    let error = (estimate.value - number as f64).abs();
    assert!(error <= 5.0 * estimate.standard_error.unwrap() + 1.0, "{estimate:?}, {number}");
    assert_eq!(totals.admitted - totals.evicted, window.entries.len() as u64);
    assert_eq!(totals.admitted + totals.refused, number as u64);
    assert_eq!(totals.unmarked, 0);
    if !net.setup.claim {
        assert_eq!((window.theta, totals.claimed_out), (Some(0), 0));
    }
}

/// A flow's hashes at a switch that measures by such keys.
fn hashes_of(keys: KeyKind, key: &WideKey) -> Hashes {
    let family = HashFamily::new(&hash_key(&secret()));
    match common::narrow(key).filter(|_| keys == KeyKind::Ipv4) {
        Some(narrow) => family.hash(&narrow),
        None => family.hash(key),
    }
}

/// The TTL with which hosts send the packets of a flow.
fn ttl_of(number: u32) -> u8 {
    [64, 128, 255, 60][number as usize % 4]
}

/// So many packets of 700 flows from e1 over s1 to e2, in windows of four epochs. Every seventh is
/// lost before s1, every eleventh behind it. Gives how many flows there were in each window, and
/// how many of them the switches have.
fn counted(net: &Net, packets: u64) -> Vec<(usize, usize)> {
    let [mut e1, mut s1, mut e2] = [1, 2, 3].map(|node| Switch::new(net, node, 1));
    let [mut at_e1, mut at_s1, mut at_e2] = [(); 3].map(|()| Windows::new());
    let mut ttls = HashMap::new();
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..packets {
        let now_ns = start + n * 60_000;
        let number = number(n, 700);
        let (key, payload) = (flow(number, net.keys), (n * 7 % 1200) as usize);
        let ttl = ttl_of(number);
        ttls.insert(key, ttl);
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
        let unchanged = packet.bytes() == marked.bytes();
        assert!(unchanged || net.setup.claim, "a transit switch changes nothing but claims");
        note(&mut at_s1, net, now_ns, key, seen(ttl - 1, at_ns, Entry::PASSED));
        if n % 11 == 0 {
            continue;
        }
        let at_ns = at_ns + 3_000_000;
        lower_ttl(&mut packet);
        e2.advance_to(at_ns);
        pass(&mut e2, 0, Path::Leave, &mut packet);
        note(&mut at_e2, net, now_ns, key, seen(ttl - 2, at_ns, Entry::LEFT));
        let mut wanted = plain;
        (0..2).for_each(|_| lower_ttl(&mut wanted));
        // Without DF, an identification is drawn anew.
        assert_eq!(packet.bytes(), wanted.bytes(), "{:?}", net.carrier);
    }
    let end = start + (packets * 60_000 / EPOCH_NS + 10) * EPOCH_NS;
    [&mut e1, &mut s1, &mut e2].into_iter().for_each(|switch| switch.advance_to(end));
    let claims = |switch: &Switch, node: u16, epoch: u64, key: &WideKey, ttl: u8| {
        let limit = switch.windows[&epoch].theta.map_or(1 << 32, u64::from);
        u64::from(grade(net, node, epoch, key, ttl)) < limit
    };
    let by_e1 = |epoch: u64, key: &WideKey| claims(&e1, 1, epoch, key, ttls[key]);
    let by_s1 = |epoch: u64, key: &WideKey| claims(&s1, 2, epoch, key, ttls[key] - 1);
    let none = Traffic::new();
    for (node, switch, truth) in [(1, &e1, &at_e1), (2, &s1, &at_s1), (3, &e2, &at_e2)] {
        assert_eq!(switch.late, 0);
        assert!(truth.len() >= 3 && switch.windows.len() >= truth.len());
        for (&epoch, window) in &switch.windows {
            let traffic = truth.get(&epoch).unwrap_or(&none);
            check((net, node, epoch), window, traffic, |key| match node {
                1 => false,
                2 => by_e1(epoch, key),
                _ => by_e1(epoch, key) || by_s1(epoch, key),
            });
        }
    }
    // They cooperate: together they have more flows than one table holds.
    let covered = |(epoch, traffic): (&u64, &Traffic)| {
        let tables = [&e1, &s1, &e2].map(|switch| &switch.windows[epoch].entries);
        let all: HashSet<WideKey> = tables.into_iter().flatten().map(|entry| entry.key).collect();
        (traffic.len(), all.len())
    };
    at_e1.iter().map(covered).collect()
}

/// The full windows are covered better than by this.
fn covers(windows: &[(usize, usize)], least: f64) {
    for &(flows, have) in &windows[..windows.len() - 1] {
        assert!(have as f64 >= least * flows as f64, "{windows:?}");
    }
}

#[test]
fn every_switch_has_the_flows_of_smallest_rank_and_their_exact_counts() {
    networks().iter().for_each(|net| covers(&counted(net, 9_000), 0.75));
}

#[test]
fn so_it_is_with_every_rule_of_grading() {
    let net = networks()[1];
    let greedy = Setup { grade: Graded::Greedy, ..setup() };
    let random = Setup { grade: Graded::Random, hop: Hop::None, ..setup() };
    let alike = Setup { reseed: false, ..setup() };
    for setup in [greedy, random, alike] {
        covers(&counted(&Net { setup, ..net }, 9_000), 0.65);
    }
}

/// Edges of a network without IPv6 measure by narrow keys, and switches between them, which don't
/// know that, by wide ones: one table of the network they are only if they grade alike.
#[test]
fn edges_and_transits_grade_a_flow_alike_whatever_keys_they_measure_by() {
    let narrow = networks()[0];
    let wide = Net { keys: KeyKind::Dual, ..narrow };
    let mut edge = Switch::with_role(&narrow, 1, 1, Role::Edge);
    let mut transit = Switch::with_role(&wide, 2, 1, Role::Transit);
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..2_000 {
        let now_ns = start + u64::from(n) * 50_000;
        [&mut edge, &mut transit].into_iter().for_each(|switch| switch.advance_to(now_ns));
        let mut packet = frame(&flow(n % 700, KeyKind::Ipv4), 64, 20);
        pass(&mut edge, 0, Path::Enter, &mut packet);
        // The table must have the same flows: the router between is left out.
        pass(&mut transit, 0, Path::Transit, &mut packet);
    }
    let windows = [&mut edge, &mut transit].map(|switch| {
        switch.advance_to(start + 8 * EPOCH_NS);
        switch.windows.remove(&FIRST_EPOCH).unwrap()
    });
    assert_eq!(windows.each_ref().map(|of| of.keys), [KeyKind::Ipv4, KeyKind::Dual]);
    assert_eq!(windows[0].flows, windows[1].flows, "registers");
    let [of_edge, of_transit] = windows.each_ref().map(|window| {
        let ranks = window.entries.iter().map(|entry| (entry.key, entry.rank, entry.packets));
        ranks.collect::<Vec<_>>()
    });
    assert_eq!((of_edge.len(), of_edge), (256, of_transit));
}

/// A claim is the same in all packets of a flow and window, whatever the carrier: so every switch
/// has exactly the flows of smallest rank, those last that others have for certain. With entries
/// for little more than all flows, nearly all are counted once the limits have been found.
#[test]
fn claims_leave_few_flows_to_nobody() {
    let tos = Carrier::Tos(Tos { dscp: 0 });
    let carriers = [(tos, KeyKind::Ipv4), (tos, KeyKind::Dual)].into_iter();
    let others = [Carrier::Shim(Shim::default()), Carrier::IpId].map(|of| (of, KeyKind::Dual));
    for (carrier, keys) in carriers.chain(others) {
        let net = Net { carrier, keys, setup: Setup { claim: true, ..setup() } };
        let windows = counted(&net, 17_500);
        covers(&windows[2..], 0.93);
    }
    let label = Net { carrier: Carrier::FlowLabel, keys: KeyKind::Dual, ..networks()[0] };
    only_ipv6(&Net { setup: Setup { claim: true, ..label.setup }, ..label });
}

/// The same where IPv6 has a carrier only: a claim is seen behind two switches.
fn only_ipv6(net: &Net) {
    let [mut e1, mut s1, mut e2] = [1, 2, 3].map(|node| Switch::new(net, node, 1));
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..400 {
        let now_ns = start + n * 100_000;
        [&mut e1, &mut s1, &mut e2].into_iter().for_each(|switch| switch.advance_to(now_ns));
        let mut packet = frame(&flow(2 * n as u32 + 1, net.keys), 64, 20);
        let plain = packet.clone();
        pass(&mut e1, 0, Path::Enter, &mut packet);
        pass(&mut s1, 0, Path::Transit, &mut packet);
        pass(&mut e2, 0, Path::Leave, &mut packet);
        assert_eq!(packet.bytes(), plain.bytes());
    }
    for (switch, came, went) in [(&mut e1, 0, 400), (&mut s1, 400, 400), (&mut e2, 400, 0)] {
        switch.advance_to(start + 8 * EPOCH_NS);
        let totals = switch.windows[&FIRST_EPOCH].totals;
        // Without a window before, a switch claims all.
        assert_eq!((totals.packets, totals.claimed_in, totals.claimed_out), (400, came, went));
    }
}

/// What hosts have set where claims are is taken out as their packets enter, and what is configured
/// is there when they leave; where no claims are, nothing changes.
#[test]
fn hosts_set_no_claims_and_see_none() {
    for (claim, dscp) in [(true, 0), (true, 0b00_0010), (false, 0)] {
        let carrier = Carrier::Tos(Tos { dscp });
        let net = Net { carrier, keys: KeyKind::Dual, setup: Setup { claim, ..setup() } };
        let [mut e1, mut e2] = [1, 2].map(|node| Switch::new(&net, node, 1));
        let start = clock().start_of(FIRST_EPOCH);
        for n in 0..3_000_u64 {
            let now_ns = start + n * 400_000;
            [&mut e1, &mut e2].into_iter().for_each(|switch| switch.advance_to(now_ns));
            let mut packet = frame(&flow(n as u32 % 600, net.keys), 64, 20);
            let set = n % 3 == 0;
            let class = |packet: &Frame| {
                let ip = &packet.bytes()[14..16];
                if ip[0] >> 4 == 4 { ip[1] } else { ip[0] << 4 | ip[1] >> 4 }
            };
            if set {
                let ip = &mut packet.bytes_mut()[14..16];
                if ip[0] >> 4 == 4 { ip[1] |= 0x08 } else { ip[1] |= 0x80 }
            }
            let before = class(&packet);
            pass(&mut e1, 0, Path::Enter, &mut packet);
            pass(&mut e2, 0, Path::Leave, &mut packet);
            let wanted = if claim { before & !0x08 | dscp << 2 } else { before };
            assert_eq!(class(&packet), wanted);
        }
        [&mut e1, &mut e2].into_iter().for_each(|switch| switch.advance_to(start + 32 * EPOCH_NS));
        assert_eq!(e1.counters().claim_bits, if claim { 1_000 } else { 0 });
        let came: Vec<(u64, u64)> =
            e2.windows.values().map(|w| (w.totals.packets, w.totals.claimed_in)).collect();
        let sent: Vec<u64> = e1.windows.values().map(|w| w.totals.claimed_out).collect();
        assert!(came.iter().zip(&sent).all(|((_, came), sent)| came == sent));
        // At first all are claimed, then those that the first switch will have.
        let some = came[1..4].iter().filter(|(all, came)| (1..*all).contains(came)).count();
        assert_eq!(some, if claim { 3 } else { 0 }, "{came:?}");
    }
}

/// A flow whose packets come to several lcores is in all their tables, and its count exact, or one
/// has refused it: then it says that it is no more than a lower bound. All others are exact.
#[test]
fn counts_of_flows_on_several_lcores_are_exact_or_lower_bounds() {
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        let net = Net { keys, ..networks()[0] };
        let mut switch = Switch::new(&net, 1, 3);
        let (mut truth, mut lcores_of) = (Windows::new(), BTreeMap::<_, HashSet<usize>>::new());
        let start = clock().start_of(FIRST_EPOCH);
        for n in 0..12_000_u64 {
            let now_ns = start + n * 40_000;
            let number = number(n, 911);
            // One has more flows than the others, and refuses some that these keep.
            let alone = [0, 0, 0, 1, 2][number as usize % 5];
            let lcore = if number.is_multiple_of(10) { n as usize % 3 } else { alone };
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
        let (mut exact, mut shared, mut bounds, mut doubted) = (0, 0, 0, 0);
        for (epoch, traffic) in &truth {
            let window = &switch.windows[epoch];
            let packets: usize = traffic.values().map(Vec::len).sum();
            assert_eq!(window.totals.packets, packets as u64);
            for got in &window.entries {
                let wanted = entry(&net, 1, *epoch, &got.key, &traffic[&got.key]);
                let is_shared = lcores_of[&(*epoch, got.key)].len() > 1;
                if got.exact {
                    assert_eq!(*got, wanted);
                    exact += 1;
                    shared += usize::from(is_shared);
                } else {
                    assert!(got.packets <= wanted.packets && got.bytes <= wanted.bytes);
                    assert!(got.first_us >= wanted.first_us);
                    bounds += usize::from(is_shared);
                    doubted += usize::from(!is_shared);
                }
            }
            // Each lcore has the best of what it has seen, in a third of the entries.
            assert!(window.entries.len() > 200, "{} entries", window.entries.len());
        }
        assert!(exact > 500 && shared > 5, "{exact} exact, {shared} of them on several lcores");
        // Filters are wrong about few.
        assert!(bounds > 10 && doubted < exact / 20, "{bounds} bounds, {doubted} doubted");
    }
}

/// What goes from host to host of a switch is recorded once, and before all else.
#[test]
fn flows_of_one_switch_are_counted_once() {
    let of = networks()[1];
    let net = Net { setup: Setup { ends: true, ..of.setup }, ..of };
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
    assert!(others.iter().all(|entry| entry.rank.class() == 2 && !entry.local));
    assert!(local.iter().all(|entry| entry.local));
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
    let problem = |setup: Setup| begin(&session(1, 1), setup).unwrap_err();
    let bad = Setup { entries: 100, ..setup() };
    assert!(problem(bad).contains("entries: 100"), "{}", problem(bad));
    let no_room = SessionContext { carries_claims: false, ..session(1, 1) };
    let claim = Setup { claim: true, ..setup() };
    assert!(begin(&no_room, claim).unwrap_err().contains("claim"));
    assert!(begin(&session(1, 1), claim).is_ok());
    let nameless = SessionContext { node_id: None, ..session(1, 1) };
    let random = Setup { grade: Graded::Random, ..setup() };
    assert!(begin(&nameless, random).unwrap_err().contains("number"));
}

/// A window says so if the switch's routes changed in it, or about its beginning.
#[test]
fn windows_say_whether_routes_changed() {
    let mut switch = Switch::new(&networks()[0], 1, 1);
    let start = clock().start_of(FIRST_EPOCH);
    // Windows have four epochs.
    for epoch in [5, 16] {
        let now_ns = start + epoch * EPOCH_NS;
        switch.advance_to(now_ns);
        switch.routes.changed(now_ns);
    }
    switch.advance_to(start + 30 * EPOCH_NS);
    let changed: Vec<u64> = switch
        .windows
        .iter()
        .filter(|(_, of)| of.routes_changed)
        .map(|(epoch, _)| *epoch)
        .collect();
    // While the window that ends with epoch 115 is taken the routes are others already.
    assert_eq!(changed, [FIRST_EPOCH + 4, FIRST_EPOCH + 12, FIRST_EPOCH + 16]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Packets of a flow come with any TTLs, by any side and on any lcore, in bursts, while
    /// windows turn: whatever an entry says to be exact is right, and every packet is in an entry,
    /// refused or evicted, and in the residual then, whatever share of the memory each window's
    /// table has.
    #[test]
    fn exact_counts_are_right_whatever_packets_do(
        bursts in prop::collection::vec(
            (prop::collection::vec((0_u32..900, 0_u8..4, 0_usize..3), 1..32), 0_usize..2, 0_usize..4),
            60..220,
        ),
        ttl_changes: bool,
        filter in prop::sample::select(vec![1_u32 << 10, 1 << 16]),
        keys in prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]),
        buckets in prop::sample::select(vec![None, Some(64), Some(1024)]),
        alphas in prop::option::of(prop::array::uniform4(prop_oneof![Just(0_u8), Setup::ALPHA])),
        ends: bool,
        radar: bool,
    ) {
        let (filter_bits, window_epochs, residual) = (filter, 2, buckets);
        let kind = if radar && buckets.is_some() { Kind::FlowRadar } else { Kind::Fermat };
        let alphas = alphas.filter(|_| buckets.is_some() && kind == Kind::Fermat);
        let alpha_moves = alphas.is_some();
        let of = Setup { filter_bits, window_epochs, residual, kind, ..setup() };
        let setup = Setup { alpha_moves, ends, ..of };
        let net = Net { keys, setup, ..networks()[0] };
        let mut switch = Switch::new(&net, 1, 2);
        let mut truth = Windows::new();
        // Whether the first packet of a flow stayed at the switch, and whether any did.
        let mut stayed: BTreeMap<(u64, WideKey), [bool; 2]> = BTreeMap::new();
        let start = clock().start_of(FIRST_EPOCH);
        for (at, (burst, lcore, path)) in bursts.into_iter().enumerate() {
            let now_ns = start + at as u64 * 1_500_000;
            switch.advance_to(now_ns);
            // The first burst of a window: each has 66 or 67.
            let window = now_ns / (2 * EPOCH_NS) - start / (2 * EPOCH_NS);
            if let Some(alphas) = alphas
                && (now_ns - start) % (2 * EPOCH_NS) < 1_500_000
            {
                let plan = Plan { alpha: alphas[window as usize], ..Plan::default() };
                switch.plan(FIRST_EPOCH + 2 * (window + 1), &plan);
            }
            let (path, side) = [
                (Path::Enter, Entry::ENTERED),
                (Path::Transit, Entry::PASSED),
                (Path::Leave, Entry::LEFT),
                (Path::Cross, Entry::ENTERED),
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
                let stays = matches!(path, Path::Cross);
                let of_flow = (clock().epoch_at(now_ns) / 2 * 2, key);
                stayed.entry(of_flow).or_insert([stays; 2])[1] |= stays;
                if matches!(path, Path::Transit | Path::Leave) {
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
        let totals = switch.totals();
        let of = |name: &str| totals[name];
        let all: usize = truth.values().flat_map(|of| of.values()).map(Vec::len).sum();
        prop_assert_eq!(of("cfs.recorded"), all as u64);
        let parts = ["cfs.counted", "cfs.refused_packets", "cfs.evicted_packets"].map(of);
        prop_assert_eq!(parts.into_iter().sum::<u64>(), all as u64);
        if buckets.is_some() {
            prop_assert_eq!(of("cfs.counted") + of("cfs.residual"), all as u64);
        }
        let entries = || switch.windows.values().flat_map(|window| &window.entries);
        let inexact = entries().filter(|entry| !entry.exact).count();
        prop_assert_eq!(of("cfs.inexact"), inexact as u64);
        prop_assert_eq!(of("cfs.looped"), entries().map(|entry| entry.looped).sum::<u64>());
        for (epoch, traffic) in &truth {
            let window = &switch.windows[epoch];
            let packets: usize = traffic.values().map(Vec::len).sum();
            prop_assert_eq!(window.totals.packets, packets as u64);
            let number = (epoch - FIRST_EPOCH) as usize / 2;
            let alpha = |of: [u8; 4]| number.checked_sub(1).map_or(0, |before| of[before]);
            prop_assert_eq!(window.alpha, alphas.map(alpha));
            let sizes = setup.sizes(window.alpha.unwrap_or(0));
            if window.totals.refused > 0 {
                // Of two lcores, one may have room.
                prop_assert!(window.entries.len() as u32 >= sizes.entries / 2 - 1);
            }
            for got in &window.entries {
                let mut wanted = entry(&net, 1, *epoch, &got.key, &traffic[&got.key]);
                let [first, any] = stayed[&(*epoch, got.key)];
                if first {
                    wanted.rank = Rank::new(1, wanted.rank.grade());
                }
                wanted.local = any && ends;
                if got.exact {
                    prop_assert_eq!(got, &wanted);
                }
                prop_assert!(got.packets <= wanted.packets);
            }
            prop_assert_eq!(window.ends.is_some(), ends);
            if let Some(ends) = &window.ends {
                // On which sides packets came that no entry has, filters know.
                let of_entry: BTreeMap<WideKey, u8> = window.entries.iter().map(|entry| {
                    (entry.key, entry.sides | if entry.local { Entry::LEFT } else { 0 })
                }).collect();
                for (key, packets) in traffic {
                    let came = packets.iter().fold(0, |sides, packet| sides | packet.side);
                    let left = if stayed[&(*epoch, *key)][1] { Entry::LEFT } else { 0 };
                    let missing = (came | left) & !of_entry.get(key).copied().unwrap_or(0);
                    for side in [Entry::ENTERED, Entry::LEFT] {
                        let hashes = hashes_of(keys, key);
                        prop_assert!(missing & side == 0 || ends.may_have(side, &hashes), "{key}");
                    }
                }
            }
            if buckets.is_some() {
                let flows = residual::check(window, traffic);
                // A FlowRadar has flows of several lcores as often, and packets whose flow its
                // filter took for another.
                let is_roomy = sizes.residual >= Some(1024) && kind == Kind::Fermat;
                prop_assert!(flows.is_some() || !is_roomy, "far from full");
                let out = window.totals.refused + window.totals.evicted;
                prop_assert_eq!(flows == Some(0), flows.is_some() && out == 0);
            } else {
                prop_assert_eq!(&window.uncounted, &None);
            }
        }
    }
}
