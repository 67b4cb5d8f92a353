//! Millions of packets through edges as fast as they go, every one accounted for. A test program of its own, its tests one
//! after the other: each takes all CPUs there are.

mod common;

use std::path::Path;

use calumma_testbed::circulate::{self, Circles};
use calumma_testbed::soak;
use common::alone;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn a_hundred_million_packets_over_memif_are_each_in_exactly_one_epoch() {
    let _alone = alone();
    let soak = soak::run(100_000_000, 1, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= 100_000_000 && soak.epochs > 100, "{soak:#?}");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn edges_of_two_lcores_report_what_both_have_seen() {
    let _alone = alone();
    let soak = soak::run(20_000_000, 2, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= 20_000_000 && soak.epochs > 10, "{soak:#?}");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn packets_of_all_kinds_that_go_round_are_all_there_at_the_end() {
    let _alone = alone();
    for (lcores, circles) in [(1, Circles::Shared), (2, Circles::Shared), (2, Circles::Apart)] {
        let round = circulate::run(50_000_000, lcores, circles, Path::new(TESTBED));
        let round = round.expect("they go round");
        assert_eq!(round.complaints(), [""; 0], "{lcores} lcores, {circles:?}: {round:#?}");
        assert!(round.epochs > 20 && round.dropped["dropped.unmeasured"] > 0, "{round:#?}");
    }
}
