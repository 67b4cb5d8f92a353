//! Any bytes, as a setup, as a window and as a notice of CFS: no panic, and what can be read says
//! the same when written and read again. Run from `wire/` with
//! `cargo +nightly fuzz run fuzz-wire-cfs fuzz/corpus/cfs ../systems/cfs/tests/golden/v3`.

#![no_main]

use calumma_cfs::frames::{Notice, Setup, Window};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(setup) = Setup::decode(bytes) {
        assert_eq!(setup.encode(), bytes);
    }
    if let Ok(notice) = Notice::decode(bytes) {
        assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
    }
    let setup = Setup { entries: 256, hll_bits: 4, ..Setup::default() };
    let guard = Setup { guard: true, ..setup };
    let residual = Some(16);
    for setup in [setup, guard, Setup { residual, ..setup }, Setup { residual, ..guard }] {
        if let Ok(window) = Window::decode(bytes, &setup) {
            assert_eq!(Window::decode(&window.encode(), &setup), Ok(window));
        }
    }
});
