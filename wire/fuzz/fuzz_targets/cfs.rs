//! Any bytes, as a setup, a window, a notice, pins and a plan of CFS: no panic, and what can be
//! read says the same when written and read again. Run from `wire/` with
//! `cargo +nightly fuzz run fuzz-wire-cfs fuzz/corpus/cfs ../systems/cfs/tests/golden/v11`.

#![no_main]

use calumma_cfs::frames::{Holding, Notice, Pins, Plan, Setup, Window};
use calumma_sketch::residual::Kind;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(setup) = Setup::decode(bytes) {
        assert_eq!(setup.encode(), bytes);
    }
    if let Ok(notice) = Notice::decode(bytes) {
        assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
    }
    if let Ok(pins) = Pins::decode(bytes, 16_384) {
        assert_eq!(pins.encode(), bytes);
    }
    if let Ok(holding) = Holding::decode(bytes) {
        assert_eq!(holding.encode(), bytes);
    }
    let setup = Setup { entries: 256, hll_bits: 4, ..Setup::default() };
    let guard = Setup { guard: true, ..setup };
    let residual = Some(16);
    let divided = Setup { residual, alpha_moves: true, ..guard };
    if let Ok(plan) = Plan::decode(bytes, &divided) {
        assert_eq!(plan.encode(&divided), bytes);
    }
    let overridden = Setup { overrides: true, entries: 1024, ..divided };
    if let Ok(plan) = Plan::decode(bytes, &overridden) {
        assert_eq!(plan.encode(&overridden), bytes);
    }
    let fixed = [setup, guard, Setup { residual, ..setup }, Setup { residual, ..guard }];
    let of_ends = Setup { ends: true, ..setup };
    let ends = [of_ends, Setup { sums: true, ..of_ends }, Setup { ends: true, ..divided }];
    let of_radar = Setup { residual, kind: Kind::FlowRadar, filter_bits: 1 << 10, ..setup };
    let radar = [of_radar, Setup { ends: true, guard: true, ..of_radar }];
    for setup in fixed.into_iter().chain([divided, overridden]).chain(ends).chain(radar) {
        if let Ok(window) = Window::decode(bytes, &setup) {
            assert_eq!(Window::decode(&window.encode(), &setup), Ok(window));
        }
    }
});
