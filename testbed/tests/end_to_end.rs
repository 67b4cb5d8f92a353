//! The product end to end: the programs as an operator runs them, with real packets.

use std::fs;
use std::path::Path;

use calumma_testbed::traffic::Mix;
use calumma_testbed::{demo, soak};

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn reported_losses_equal_the_kernels_count_for_every_flow() {
    let out = std::env::temp_dir().join(format!("calumma-demo-{}", std::process::id()));
    let mix = Mix { seconds: 4, tcp_mbit: 200, udp_mbit: 50, connections: 200 };
    let demo = demo::run(&mix, 10, Path::new(TESTBED), &out).expect("the demo runs");
    assert!(demo.is_equal(), "{}", demo.to_text());
    assert!(demo.comparison.rows.len() > 20, "{}", demo.to_text());
    assert!(out.join("epochs.jsonl").exists() && out.join("truth.json").exists());
    fs::remove_dir_all(out).expect("what the demo wrote can be removed");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn a_hundred_million_packets_over_memif_are_each_in_exactly_one_epoch() {
    let soak = soak::run(100_000_000, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= 100_000_000 && soak.epochs > 100, "{soak:#?}");
}
