//! The demo: two edge switches and the controller, as an operator runs them, with real traffic.

use std::fs;
use std::path::Path;

use calumma_testbed::demo;
use calumma_testbed::traffic::Mix;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn reported_losses_equal_the_kernels_count_for_every_flow() {
    let out = std::env::temp_dir().join(format!("calumma-demo-{}", std::process::id()));
    let mix = Mix { seconds: 4, tcp_mbit: 200, udp_mbit: 50, connections: 200 };
    let demo = demo::run(&mix, 10, Path::new(TESTBED), &out).expect("the demo runs");
    assert!(demo.is_equal(), "{}", demo.to_text());
    assert_eq!(demo.passage.complaints(), [""; 0]);
    assert!(demo.comparison.rows.len() > 20, "{}", demo.to_text());
    assert!(out.join("epochs.jsonl").exists() && out.join("truth.json").exists());
    fs::remove_dir_all(out).expect("what the demo wrote can be removed");
}
