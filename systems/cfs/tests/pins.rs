//! Pinned flows: every switch counts them from their first packet on, and all others as before.

mod common;
#[path = "common/model.rs"]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use calumma_cfs::frames::{Entry, OFFER, PINS_SINCE, Pins, Setup, Window};
use calumma_plane::Carrier;
use calumma_plane::carrier::Tos;
use calumma_plane::packet::Packet;
use calumma_plane::system::System;
use calumma_plane::worker::Path;
use calumma_sketch::table::Rank;
use calumma_sketch::{KeyKind, WideKey};
use calumma_wire::{Role, SystemSetup};
use proptest::prelude::*;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, flow, frame, session};
use model::{Received, Traffic, entry, lower_ttl, number};

const WINDOW: u64 = 4;
const FLOWS: u64 = 1024;

fn net(keys: KeyKind) -> Net {
    let (entries, filter_bits, window_epochs) = (256, 1 << 20, WINDOW as u16);
    let setup = Setup { entries, filter_bits, window_epochs, claim: false, ..Setup::default() };
    Net { carrier: Carrier::Tos(Tos::default()), keys, setup }
}

/// What a window must be of, where these flows are pinned: exactly the flows of smallest rank,
/// each as it was received.
fn check(net: &Net, epoch: u64, window: &Window, traffic: &Traffic, pinned: &BTreeSet<WideKey>) {
    let mut flows: Vec<Entry> = traffic
        .iter()
        .map(|(key, packets)| {
            let mut entry = entry(net, 1, epoch, key, packets);
            if pinned.contains(key) {
                entry.rank = Rank::new(0, 0);
            }
            entry
        })
        .collect();
    if window.totals.filtered > 0 {
        // The filter took a flow for one that was refused, as it may: that one has no entry, and
        // others are right.
        flows.retain(|flow| window.entries.iter().any(|entry| entry.key == flow.key));
    }
    flows.sort_unstable_by_key(|flow| flow.rank);
    flows.truncate(net.setup.entries as usize);
    flows.sort_unstable_by_key(|flow| flow.key);
    assert_eq!(window.entries, flows, "window {epoch}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Four flows for every entry, and other pins in each window, up to a quarter of the entries.
    /// One that is sent in the middle of a window holds from the next one on.
    #[test]
    fn a_flow_has_one_rank_for_a_window_whatever_is_pinned_meanwhile(
        dual: bool,
        seed: u64,
        pins in prop::collection::vec(prop::collection::btree_set(0..FLOWS as u32, 0..=64), 4),
    ) {
        let keys = if dual { KeyKind::Dual } else { KeyKind::Ipv4 };
        let net = net(keys);
        let mut switch = Switch::new(&net, 1, 1);
        let start = clock().start_of(FIRST_EPOCH);
        let window_ns = WINDOW * EPOCH_NS;
        let mut traffic = BTreeMap::<u64, Traffic>::new();
        let pinned: Vec<BTreeSet<WideKey>> =
            pins.iter().map(|of| of.iter().map(|&n| flow(n, keys)).collect()).collect();
        let packets = 4000;
        for n in 0..4 * packets {
            let now_ns = start + n * window_ns / packets;
            switch.advance_to(now_ns);
            let window = n / packets;
            if n % packets == packets / 2 {
                let next = FIRST_EPOCH + (window + 1) * WINDOW;
                switch.pin(next, pinned[window as usize].iter().copied());
            }
            let key = flow(number(n ^ seed, FLOWS), keys);
            let mut packet = frame(&key, 64, 20);
            let len = (packet.bytes().len() - 14) as u64;
            switch.pass_all(0, Path::Enter, std::slice::from_mut(&mut packet));
            let seen = Received { ttl: 64, len, at_ns: now_ns, side: Entry::ENTERED };
            let epoch = FIRST_EPOCH + window * WINDOW;
            traffic.entry(epoch).or_default().entry(key).or_default().push(seen);
        }
        switch.advance_to(start + 6 * window_ns);
        let none = BTreeSet::new();
        for (at, (epoch, traffic)) in traffic.iter().enumerate() {
            let pinned = at.checked_sub(1).map_or(&none, |before| &pinned[before]);
            check(&net, *epoch, &switch.windows[epoch], traffic, pinned);
        }
    }
}

/// Four flows for every entry of three switches in a row, and a lossy link between the last two: of
/// a pinned flow all three have exact counts, whose differences are what was lost on each link.
#[test]
fn a_pinned_flow_has_exact_counts_at_every_switch() {
    let net = net(KeyKind::Ipv4);
    let roles = [Role::Edge, Role::Transit, Role::Edge];
    let mut switches: Vec<Switch> =
        (0..3).map(|at| Switch::with_role(&net, at as u16 + 1, 1, roles[at])).collect();
    let victims: Vec<WideKey> = (0..60).map(|n| flow(17 * n, net.keys)).collect();
    let start = clock().start_of(FIRST_EPOCH);
    let second = FIRST_EPOCH + WINDOW;
    let mut came = BTreeMap::<(usize, WideKey), u64>::new();
    for n in 0..8_000_u64 {
        let now_ns = start + n * 2 * WINDOW * EPOCH_NS / 8_000;
        switches.iter_mut().for_each(|switch| switch.advance_to(now_ns));
        if n == 1_000 {
            for switch in &mut switches {
                switch.pin(second, victims.iter().copied());
            }
        }
        let key = flow((n % FLOWS) as u32, net.keys);
        let mut packet = frame(&key, 64, 20);
        for (at, path) in [Path::Enter, Path::Transit, Path::Leave].into_iter().enumerate() {
            if at == 2 && n % 5 == 0 {
                break;
            }
            switches[at].pass_all(0, path, std::slice::from_mut(&mut packet));
            if n >= 4_000 {
                *came.entry((at, key)).or_default() += 1;
            }
            lower_ttl(&mut packet);
        }
    }
    switches.iter_mut().for_each(|switch| switch.advance_to(start + 5 * WINDOW * EPOCH_NS));
    let count = |at: usize, epoch: u64, key: &WideKey| {
        let entries = &switches[at].windows[&epoch].entries;
        entries.iter().find(|entry| entry.key == *key).map(|entry| (entry.packets, entry.exact))
    };
    let everywhere = |epoch, key: &&WideKey| (0..3).all(|at| count(at, epoch, key).is_some());
    let before = victims.iter().filter(|key| everywhere(FIRST_EPOCH, key)).count();
    assert!(before < 10, "{before} of them had counts everywhere without being pinned");
    for key in &victims {
        for at in 0..3 {
            let there = came.get(&(at, *key)).copied().unwrap_or(0);
            assert_eq!(count(at, second, key), Some((there, true)), "{key} at {at}");
        }
    }
    let used = switches.iter().map(|switch| switch.windows[&second].entries.len());
    assert_eq!(used.collect::<Vec<_>>(), [256; 3]);
}

/// A controller one release older plans nothing, and a newer switch goes on without.
#[test]
fn what_can_be_pinned_depends_on_the_version() {
    let setup = net(KeyKind::Ipv4).setup;
    let begin = |version, plan: Vec<u8>| {
        let system = OFFER.system;
        calumma_cfs::Cfs
            .begin(&session(1, 1), &SystemSetup { system, version, setup: setup.encode(), plan })
    };
    let of = |number: u32| {
        let flows: BTreeSet<WideKey> = (0..number).map(|n| flow(n, KeyKind::Ipv4)).collect();
        Pins { flows: flows.into_iter().collect() }.encode()
    };
    let older = begin(PINS_SINCE - 1, Vec::new()).unwrap();
    assert!(older.plan(&[]).is_ok() && older.holding().is_empty());
    assert!(older.plan(&of(1)).unwrap_err().contains("nothing to plan"));
    let mut newer = begin(PINS_SINCE, of(3)).unwrap();
    assert!(newer.plan(&of(64)).is_ok() && newer.plan(&[]).is_ok());
    let many = newer.plan(&of(65)).unwrap_err();
    assert!(many.ends_with("pins: 65: there may be 64"), "{many}");
    newer.accept(140, &of(5));
    let held = calumma_cfs::frames::Holding::decode(&newer.holding()).unwrap();
    assert_eq!((held.setup, held.epoch, held.plan), (setup.encode(), 140, of(5)));
    assert!(begin(PINS_SINCE, of(65)).is_err());
}

/// What goes from host to host comes before all but pinned flows. Of two lcores one has room for
/// these and the other one has not, or both have: a limit says that such flows were admitted.
#[test]
fn a_limit_is_said_only_where_it_holds_for_what_comes_first_at_each_lcore() {
    let net = net(KeyKind::Ipv4);
    let start = clock().start_of(FIRST_EPOCH);
    let limit = |local: [u32; 2], others: [u32; 2]| {
        let mut edge = Switch::new(&net, 1, 2);
        edge.advance_to(start + 1);
        for lcore in 0..2 {
            let first = 2_000 * lcore as u32;
            for number in first..first + local[lcore] {
                let mut packet = frame(&flow(number, net.keys), 64, 20);
                edge.pass_all(lcore, Path::Cross, std::slice::from_mut(&mut packet));
            }
            for number in first + 1_000..first + 1_000 + others[lcore] {
                let mut packet = frame(&flow(number, net.keys), 64, 20);
                edge.pass_all(lcore, Path::Enter, std::slice::from_mut(&mut packet));
            }
        }
        edge.advance_to(start + 2 * WINDOW * EPOCH_NS);
        let window = &edge.windows[&FIRST_EPOCH];
        assert!(window.totals.refused + window.totals.evicted > 0);
        window.limit.map(|limit| limit.class())
    };
    // Each has half of 256 entries.
    assert_eq!(limit([20, 20], [600, 600]), Some(2));
    assert_eq!(limit([600, 600], [0, 600]), Some(1));
    assert_eq!(limit([600, 20], [0, 600]), None);
    assert_eq!(limit([600, 20], [0, 20]), None);
    // A few more than it holds are taken out as the window ends.
    assert_eq!(limit([20, 20], [130, 130]), Some(2));
}
