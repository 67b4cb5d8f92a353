//! Plans that override the setup, in virtual time: every window is measured by its own, says by
//! which, and counts as exactly as any.

mod common;
#[path = "common/model.rs"]
mod model;

use std::collections::BTreeMap;

use calumma_cfs::frames::{Entry, Graded, Overrides, Plan, Setup, Window};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos};
use calumma_plane::packet::Packet;
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, begin, clock, flow, frame, session};
use model::{Received, Traffic, entry, number};

/// Epochs of a window.
const WINDOW: u64 = 2;

fn setup() -> Setup {
    let (entries, filter_bits, window_epochs) = (512, 1 << 16, WINDOW as u16);
    Setup { entries, filter_bits, window_epochs, overrides: true, ..Setup::default() }
}

/// What window `number` measures by.
fn of_window(number: u64) -> Overrides {
    let (entries, grade) = (Some(256), Some(Graded::Greedy));
    let all = [
        Overrides::default(),
        Overrides { entries, ..Overrides::default() },
        Overrides { grade, unclaimed: true, ..Overrides::default() },
        Overrides { unclaimed: true, ..Overrides::default() },
        Overrides { entries: Some(300), grade: Some(Graded::Random), unclaimed: false },
    ];
    all[number as usize % all.len()]
}

/// What a switch between others, of one lcore, keeps of ten windows of 700 flows.
fn windows(net: &Net) -> (BTreeMap<u64, Window>, BTreeMap<u64, Traffic>) {
    let mut switch = Switch::new(net, 1, 1);
    let mut received = BTreeMap::<u64, Traffic>::new();
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..10_000 {
        let now_ns = start + n * EPOCH_NS / 500;
        switch.advance_to(now_ns);
        let at = n / 1_000;
        if n % 1_000 == 0 {
            let plan = Plan { overrides: of_window(at + 1), ..Plan::default() };
            switch.plan(FIRST_EPOCH + WINDOW * (at + 1), &plan);
        }
        let key = flow(number(n, 700), net.keys);
        let mut packet = frame(&key, 60, 100);
        let len = (packet.bytes().len() - 14) as u64;
        let seen = Received { ttl: 60, len, at_ns: now_ns, side: Entry::ENTERED };
        let of_window = received.entry(FIRST_EPOCH + WINDOW * at).or_default();
        of_window.entry(key).or_default().push(seen);
        switch.pass_all(0, Path::Enter, std::slice::from_mut(&mut packet));
    }
    switch.advance_to(start + 30 * EPOCH_NS);
    (std::mem::take(&mut switch.windows), received)
}

#[test]
fn each_window_is_measured_by_its_own_plan_and_says_so() {
    let shim = Carrier::Shim(Shim::default());
    for (carrier, keys, residual) in [
        (Carrier::Tos(Tos::default()), KeyKind::Ipv4, None),
        (shim, KeyKind::Dual, None),
        (shim, KeyKind::Dual, Some(1024)),
    ] {
        let alpha_moves = residual.is_some();
        let net = Net { carrier, keys, setup: Setup { residual, alpha_moves, ..setup() } };
        let (windows, received) = windows(&net);
        for ((epoch, traffic), at) in received.iter().zip(0..) {
            let (window, overrides) = (&windows[epoch], of_window(at));
            assert_eq!(window.overrides, Some(overrides));
            let measured = net.setup.with(overrides);
            let of_window = Net { setup: measured, ..net };
            let of = |(key, packets): (_, &Vec<_>)| entry(&of_window, 1, *epoch, key, packets);
            let mut best: Vec<Entry> = traffic.iter().map(of).collect();
            best.sort_unstable_by_key(|entry| entry.rank);
            best.truncate(measured.entries as usize);
            best.sort_unstable_by_key(|entry| entry.key);
            assert_eq!(window.entries, best, "window {at}");
            assert!(traffic.len() > 300, "more than the small tables hold");
            let claimed = window.totals.claimed_out > 0;
            assert_eq!((claimed, window.theta == Some(0)), (measured.claim, !measured.claim));
            assert_eq!(Window::decode(&window.encode(), &net.setup).as_ref(), Ok(window));
        }
    }
}

#[test]
fn a_plan_that_a_switch_cant_measure_by_is_refused() {
    let numbered = begin(&session(1, 1), setup()).unwrap();
    let random = Overrides { grade: Some(Graded::Random), ..Overrides::default() };
    let bytes = |overrides| Plan { overrides, ..Plan::default() }.encode(&setup());
    assert!(numbered.plan(&bytes(random)).is_ok());
    let many = numbered.plan(&bytes(Overrides { entries: Some(513), ..random }));
    assert!(many.unwrap_err().contains("entries: 513: must be 256 to 512"));
    let without =
        begin(&calumma_plane::system::SessionContext { node_id: None, ..session(1, 1) }, setup());
    let refused = without.unwrap().plan(&bytes(random)).unwrap_err();
    assert!(refused.ends_with("the controller has given this node no number"), "{refused}");
}
