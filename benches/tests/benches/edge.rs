//! The bench of an edge switch without its figures: every switch in it can be started, carries the
//! longest packets that are sent, and does what its figures are named for.

use std::path::Path;
use std::time::Duration;

use calumma_benches::edge::{Link, trials};

#[test]
#[ignore = "end to end: needs root, DPDK and two CPUs; `cargo xtask test` runs it"]
fn every_switch_carries_the_longest_packets() {
    let programs =
        Path::new(env!("CARGO_BIN_EXE_edge")).parent().expect("a program is in a folder");
    let link = Link::new(programs).expect("programs are there");
    for trial in trials(false).into_iter().filter(|trial| trial.size == "1518") {
        if trial.switch.missing().is_some() {
            eprintln!("{} is not there", trial.name());
            continue;
        }
        let carried = link.carry(&trial, Duration::from_millis(200), false);
        let carried = carried.unwrap_or_else(|error| panic!("{}: {error:#}", trial.name()));
        assert!(carried.mpps > 0.0, "{}", trial.name());
        let transmitted = carried.totals.get("transmitted");
        assert!(
            transmitted.is_none_or(|&packets| packets > 0),
            "{}: {transmitted:?}",
            trial.name()
        );
    }
}
