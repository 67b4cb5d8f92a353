//! Scenarios in live fabrics: real switches, routers and applications on this machine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::machine::alone;
use crate::playing::Play;
use calumma_testbed::live::Live;
use calumma_testbed::scenario::{EpochSummary, Scenario};
use calumma_testbed::simulate::Outcome;
use calumma_testbed::soak;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn four_leaves_report_what_the_kernel_lost_and_doubled_epoch_by_epoch() {
    let _alone = alone();
    let systems = ["chamelemon".to_owned()];
    let fabric = soak::fabric::Fabric { topology: "leaf-spine:4x2", systems: &systems };
    let soak = soak::fabric::scenario(fabric, 200).expect("the soak is a scenario");
    let (mut lost, mut named) = (0, 0);
    let (played, live) = Play { scenario: &soak, out: None }.run(|_, epoch| {
        lost += epoch.lost;
        named += if epoch.decoded { epoch.reported_lost } else { 0 };
    });
    assert_eq!(played.epochs.len(), 200);
    assert!(lost > 200 && named > 0, "{lost} packets lost, {named} named");
    drop(live);
    let namespaces = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let ours = format!("calumma-{}-", std::process::id());
    assert!(!String::from_utf8_lossy(&namespaces.stdout).contains(&ours), "nothing is left");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn the_live_scenarios_hold_and_no_report_is_wrong() {
    let _alone = alone();
    for name in ["leaf-spine", "overflow", "disorder"] {
        play_live(name, |_, _| {});
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_tofinos_control_plane_is_killed_and_stopped_and_no_report_is_wrong() {
    let _alone = alone();
    // It fails by itself where a complete report is not in the archive once.
    play_live("tofino-kills", |_, _| {});
}

/// Routers as they stand at the boundaries of real networks. `cargo xtask nightly` plays more.
#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn routers_that_re_mark_translate_and_send_errors_make_no_loss_that_is_none() {
    let _alone = alone();
    play_live("boundary", |_, _| {});
    if calumma_testenv::are_sweeps_large() {
        for name in ["boundary-tos", "long-queue", "mutants"] {
            play_live(name, |_, _| {});
        }
    }
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn routers_that_clear_the_dscp_are_named_by_probes_as_long_as_they_do() {
    let _alone = alone();
    play_live("remarking", |_, _| {});
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn the_hash_key_changes_while_packets_flow_and_no_report_is_wrong() {
    let _alone = alone();
    let mut incomplete = Vec::new();
    play_live("key-rotation", |outcome, _| {
        if !outcome.report.complete {
            incomplete.push((outcome.report.epoch, outcome.report.incomplete_because.clone()));
        }
    });
    // A machine that is busy may lose some, but none for this.
    for (epoch, because) in &incomplete {
        assert!(!because.iter().any(|reason| reason.contains("key")), "epoch {epoch}: {because:?}");
    }
    println!("incomplete: {incomplete:?}");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_software_spine_carries_what_the_kernel_counts_on_either_side_of_it() {
    let _alone = alone();
    let live = play_live("transit", |_, _| {});
    let transited = live.transited();
    assert_eq!(transited.keys().collect::<Vec<_>>(), ["s1"]);
    assert!(transited["s1"] > 10_000, "{transited:?}");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn ipv6_is_reported_as_the_kernel_logged_it_beside_ipv4() {
    let _alone = alone();
    // Packets that the kernel logged as lost, and of these what reports named, of IPv4 and of IPv6.
    let (mut lost, mut named) = ([0, 0], [0, 0]);
    play_live("dual-stack", |outcome, epoch| {
        for flow in &outcome.truth.flows {
            lost[usize::from(flow.key.src().to_ipv4_mapped().is_none())] += u64::from(flow.lost);
        }
        for loss in outcome.report.loss.iter().filter(|_| epoch.decoded) {
            named[usize::from(loss.flow.src.is_ipv6())] += loss.lost;
        }
    });
    for (lost, named) in lost.into_iter().zip(named) {
        assert!(lost > 500 && named * 2 > lost, "{lost} packets lost, {named} named");
    }
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn four_idle_edges_leave_the_cpus_to_others() {
    let _alone = alone();
    let text =
        "title = 'idle'\nepochs = 1\ntopology = 'leaf-spine:4x2'\n[traffic.none]\nflows = 0\n";
    let scenario = Scenario::parse(text, Path::new(".")).expect("a scenario");
    let _live = Live::start(&scenario, Path::new(TESTBED)).expect("the fabric comes up");
    let edges = edges();
    assert_eq!(edges.len(), 4, "{edges:?}");
    let cpu_time = || -> Duration { edges.iter().map(|&edge| cpu_time(edge)).sum() };
    let before = cpu_time();
    let time = Duration::from_secs(2);
    std::thread::sleep(time);
    let used = cpu_time() - before;
    // Edges that only poll take all that there is; a machine of one CPU has no more than this to
    // share out.
    assert!(used < time, "four idle edges took {used:?} of CPUs' time in {time:?}");
}

/// The edges that this process has started.
fn edges() -> Vec<u32> {
    let ours = std::process::id();
    let status = |pid: u32, field: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with(field))?.to_owned();
        line.split_whitespace().nth(1).map(str::to_owned)
    };
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|&pid| status(pid, "Name:").as_deref() == Some("calumma-edge"))
        .filter(|&pid| status(pid, "PPid:") == Some(ours.to_string()))
        .collect()
}

/// The CPU time that a process has used so far.
fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(tasks.map(of_thread).sum())
}

/// Plays a scenario of the folder `live/chamelemon`, and shows every reported epoch to `watch`.
fn play_live(name: &str, watch: impl FnMut(&Outcome, &EpochSummary)) -> Live {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/live/chamelemon");
    let scenario = Scenario::load(&folder.join(format!("{name}.toml"))).expect("a scenario");
    Play { scenario: &scenario, out: None }.run(watch).1
}

#[test]
#[ignore = "end to end: needs root; `cargo xtask test` runs it"]
fn what_no_live_fabric_can_do_is_refused_before_anything_is_built() {
    let refused = |text: &str| {
        let scenario = Scenario::parse(text, Path::new(".")).expect("a scenario");
        let error = Live::start(&scenario, Path::new(TESTBED)).err().expect("a refusal");
        format!("{error:#}")
    };
    let head = "title = 't'\nepochs = 5\n";
    let slow = format!("{head}links = {{ jitter_us = 20000 }}\n[traffic.a]\n");
    assert!(refused(&slow).contains("a quarter of an epoch"));
    let large = format!("{head}topology = 'leaf-spine:20x2'\n[traffic.a]\n");
    assert!(refused(&large).contains("at most 15"));
}
