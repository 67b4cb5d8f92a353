//! Any text as a P4 program: an error that names its place, or a program, which a packet passes
//! through. No panic.
//!
//! Run with `cargo +nightly fuzz run fuzz-model-program fuzz/corpus/program tests/programs` in
//! `p4src/model/`.
#![no_main]

use calumma_tna::{Program, Switch};
use libfuzzer_sys::fuzz_target;

/// Elements of registers and counters of a program that is run: larger ones are of the same kind.
const MOST_ELEMENTS: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let program = match Program::from_text("any.p4", text, &[]) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let registers = program.registers();
    let counters = program.counters();
    let sizes = registers.iter().map(|it| it.size).chain(counters.iter().map(|it| it.size));
    if program.tables().len() > 256 || sizes.sum::<usize>() > MOST_ELEMENTS {
        return;
    }
    let mut switch = Switch::new(&program);
    switch.set_max_passes(4);
    for (port, byte) in [(1, 0), (68, 0x45), (300, 0xFF)] {
        let _ = switch.inject(port, &[byte; 80]);
    }
});
