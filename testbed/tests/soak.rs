//! A hundred million packets over shared memory. A test program of its own: it takes all CPUs there are.

use std::path::Path;

use calumma_testbed::soak;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn a_hundred_million_packets_over_memif_are_each_in_exactly_one_epoch() {
    let soak = soak::run(100_000_000, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= 100_000_000 && soak.epochs > 100, "{soak:#?}");
}
