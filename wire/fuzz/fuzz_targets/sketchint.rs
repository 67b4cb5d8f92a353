//! Any bytes, as a layout, as a window of SketchINT and as what a source did: no panic, and what
//! can be read says the same when written and read again. Run from `wire/` with
//! `cargo +nightly fuzz run fuzz-wire-sketchint fuzz/corpus/sketchint
//! ../systems/sketchint/tests/golden/v6`.

#![no_main]

use calumma_sketch::sketchint::Shape;
use calumma_sketchint::frames::{Entered, Layout, Window};
use calumma_wire::body::Body;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut body = Body::new("a layout", bytes, 0);
    if let Ok(layout) = Layout::read(&mut body) {
        let mut out = Vec::new();
        layout.put(&mut out);
        assert_eq!(out, bytes[..body.offset()]);
    }
    if let Ok(entered) = Entered::decode(bytes) {
        assert_eq!(entered.encode(), bytes);
    }
    let shape = Shape { tower_words: 64, pair_buckets: 64, row_sets: 16, ..Shape::default() };
    let shape = Shape { hops: 4, paths: 8, nodes: 6, keys: 4, inflated: 4, quantiles: 5, ..shape };
    let towers = Shape { row_sets: 0, quantiles: 0, ..shape };
    for shape in [shape, towers] {
        let layout = Layout { shape, ..Layout::default() };
        if let Ok(window) = Window::decode(bytes, &layout) {
            assert_eq!(Window::decode(&window.encode(), &layout), Ok(window));
        }
    }
});
