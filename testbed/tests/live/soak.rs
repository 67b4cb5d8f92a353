//! Millions of packets through edges as fast as they go, every one accounted for.

use std::path::Path;

use crate::machine::alone;
use calumma_testbed::circulate::{self, Circles};
use calumma_testbed::live::Live;
use calumma_testbed::scenario::{Played, play_in};
use calumma_testbed::soak;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// Packets of a soak: so many million, or five times as many with `CALUMMA_SWEEPS=large`.
fn millions(number: u64) -> u64 {
    1_000_000 * if calumma_testenv::are_sweeps_large() { 5 * number } else { number }
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn all_packets_over_memif_are_each_in_exactly_one_epoch() {
    let _alone = alone();
    let packets = millions(20);
    let soak = soak::run(packets, 1, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= packets && soak.epochs > 20, "{soak:#?}");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn edges_of_two_lcores_report_what_both_have_seen() {
    let _alone = alone();
    let packets = millions(10);
    let soak = soak::run(packets, 2, Path::new(TESTBED)).expect("the soak runs");
    assert_eq!(soak.complaints(), [""; 0], "{soak:#?}");
    assert!(soak.received >= packets && soak.epochs > 5, "{soak:#?}");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn packets_of_all_kinds_that_go_round_are_all_there_at_the_end() {
    let _alone = alone();
    for (lcores, circles) in [(1, Circles::Shared), (2, Circles::Shared), (2, Circles::Apart)] {
        let round = circulate::run(millions(10), lcores, circles, Path::new(TESTBED));
        let round = round.expect("they go round");
        assert_eq!(round.complaints(), [""; 0], "{lcores} lcores, {circles:?}: {round:#?}");
        assert!(round.epochs > 4 && round.dropped["dropped.unmeasured"] > 0, "{round:#?}");
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn edges_and_the_controller_are_killed_and_stopped_and_no_report_is_wrong() {
    let troubles = if calumma_testenv::are_sweeps_large() { 300 } else { 8 };
    play_with_troubles("leaf-spine:2x1", troubles, 1);
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_tofinos_control_plane_is_killed_and_stopped_as_often_as_other_programs() {
    let troubles = if calumma_testenv::are_sweeps_large() { 300 } else { 6 };
    // Of this seed, the first six are of all kinds but the stop of an edge.
    let played = play_with_troubles("leaf-spine:2x1 e2=tofino", troubles, 27);
    for what in ["killed", "stopped"] {
        let times = played.troubles.get(&format!("calumma-switchd {what}"));
        assert!(times > Some(&0), "{:?}", played.troubles);
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn no_report_of_other_systems_is_wrong_in_a_fabric_that_loses_and_doubles_packets() {
    let minutes = if calumma_testenv::are_sweeps_large() { 10 } else { 1 };
    play_of("cfs", 600 * minutes);
}

/// No host receives a byte of them either, and captures agree with every complete report.
#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn every_stack_is_taken_out_or_lost_in_a_fabric_that_loses_packets() {
    let epochs = if calumma_testenv::are_sweeps_large() { 6000 } else { 400 };
    let played = play_of("sketchint", epochs);
    let stacks = played.stacks.expect("SketchINT ran");
    let balance = stacks.balance.expect("no switch was started anew");
    assert_eq!((stacks.leaked, stacks.changed), (0, 0));
    assert!(stacks.windows > 5 && balance.lost > 100, "{stacks:?}");
    // Some are dropped beside the log where a machine is busy; then the run says so of as many.
    let is_said = played.doubts.iter().any(|of| of.starts_with("stacks do not balance"));
    assert!(balance.accounted() == balance.inserted || is_said, "{stacks:?}, {:?}", played.doubts);
}

/// A soak of leaves and spines with a system for so many epochs.
fn play_of(system: &str, epochs: u64) -> Played {
    let _alone = alone();
    let topology = "leaf-spine:2x2 s1=software s2=software";
    let systems = [system.to_owned()];
    let fabric = soak::fabric::Fabric { topology, systems: &systems };
    let soak = soak::fabric::scenario(fabric, epochs).expect("a scenario");
    let mut live = Live::start(&soak, Path::new(TESTBED)).expect("the fabric comes up");
    let played = play_in(&mut live, &soak, |_, _| Ok(())).expect("the soak runs");
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}, {:?}", played.doubts);
    let whole = played.systems.iter().filter(|of| of.complete && of.coverage > Some(0.3));
    assert!(whole.count() > 5, "{:?}", played.systems);
    played
}

fn play_with_troubles(topology: &str, troubles: u64, seed: u64) -> Played {
    let _alone = alone();
    let systems = ["chamelemon".to_owned()];
    let fabric = soak::fabric::Fabric { topology, systems: &systems };
    let soak = soak::fabric::with_troubles(fabric, troubles, seed).expect("a scenario");
    let mut live = Live::start(&soak, Path::new(TESTBED)).expect("the fabric comes up");
    // It fails by itself where a complete report is not in the archive once.
    let played = play_in(&mut live, &soak, |_, _| Ok(())).expect("the soak runs");
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}, {:?}", played.doubts);
    // A machine that is busy itself is in trouble as well.
    let kept = played.verdicts.iter().filter(|verdict| verdict.holds).count();
    assert!(kept * 10 >= played.verdicts.len() * 9, "{:?}", played.verdicts);
    played
}
