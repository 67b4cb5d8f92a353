//! The cases of cooperative flow selection measure what they say.

use calumma_benches::cfs::{Switch, cases, frames, of_udp};
use calumma_benches::workload;
use calumma_cfs::frames::{Setup, Window};
use calumma_sketch::WideKey;

/// Every packet is recorded, the guard sees those without an entry, and pins hold.
#[test]
fn packets_are_recorded_with_and_without_pins_and_a_guard() {
    let keys = of_udp(&workload::keys(4096, 5));
    let mut pins: Vec<WideKey> = keys[4032..].iter().map(|&key| key.into()).collect();
    pins.sort_unstable();
    let setup = Setup { entries: 256, filter_bits: 1 << 16, guard: true, ..Setup::default() };
    let window = |setup, pins| {
        let mut switch = Switch::new(setup, pins);
        assert!(switch.pass(&mut frames(&keys)) > 0.0);
        switch.finish()
    };
    let guarded = window(setup, pins);
    let unguarded = window(Setup { guard: false, ..setup }, Vec::new());
    assert_eq!([guarded.totals.packets, unguarded.totals.packets], [4096; 2]);
    assert!(guarded.totals.refused_packets > 2500, "{:?}", guarded.totals);
    assert_eq!((guarded.suspects.is_some(), unguarded.suspects.is_some()), (true, false));
    let pinned = |window: &Window| {
        let classes = window.entries.iter().map(|entry| entry.rank.class());
        classes.filter(|&class| class == 0).count()
    };
    assert_eq!([pinned(&guarded), pinned(&unguarded)], [64, 0]);
    let names: Vec<_> = cases().iter().map(|case| case.name().to_owned()).collect();
    let expected = ["cfs.pass.all_new.ns", "cfs.guard.ns", "cfs.pass.pinned.ns", "cfs.pins.ns"];
    assert_eq!(names, expected);
}
