//! The fabric end to end, with DPDK's own forwarder where the edge switches will be.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::alone;
use calumma_testbed::baseline;
use calumma_testbed::traffic::Mix;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");
const MIXED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/chamelemon/mixed.toml");

/// The network namespaces of a testbed process.
fn namespaces_of(pid: u32) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let prefix = format!("calumma-{pid}-");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
}

/// A testbed that would run for long.
fn start(args: &[&str]) -> Child {
    Command::new(TESTBED)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the testbed starts")
}

/// Waits until so many programs run where a testbed's switches are, and gives their process ids.
fn programs_of(testbed: &Child, programs: usize) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(40);
    let running = || -> Vec<String> {
        let namespaces = namespaces_of(testbed.id());
        let Some(switches) = namespaces.iter().find_map(|line| {
            line.split_whitespace().next().filter(|name| name.ends_with("-switches"))
        }) else {
            return Vec::new();
        };
        let pids = Command::new("ip").args(["netns", "pids", switches]).output().expect("ip runs");
        String::from_utf8_lossy(&pids.stdout).split_whitespace().map(str::to_owned).collect()
    };
    loop {
        let pids = running();
        if pids.len() >= programs {
            return pids;
        }
        assert!(Instant::now() < end, "the testbed starts its switches: {pids:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "end to end: needs root, dpdk-testpmd and iperf3; `cargo xtask test` runs it"]
fn only_routers_drop_and_they_count_every_drop_by_its_flow() {
    let _alone = alone();
    let mix = Mix { seconds: 2, tcp_mbit: 200, udp_mbit: 50, connections: 100, ipv6: false };
    let result = baseline::run(&mix, 20, Path::new(TESTBED)).expect("the baseline runs");

    let complaints = result.passage.complaints();
    assert!(result.passage.only_routers_dropped(), "{}", complaints.join("\n"));
    assert_eq!(result.traffic.short.completed, 100, "{:?}", result.traffic.short);

    let lost = |wanted: &dyn Fn(u8, u16, u16) -> bool| -> u64 {
        let flows =
            result.losses.iter().filter(|l| wanted(l.flow.proto, l.flow.sport, l.flow.dport));
        flows.map(|l| l.lost).sum()
    };
    let udp = lost(&|proto, _, dport| proto == 17 && dport == 5202);
    assert!(udp > 0 && udp <= result.traffic.udp.lost_datagrams, "{udp} UDP packets lost");
    assert!(lost(&|proto, _, dport| proto == 6 && dport == 5201) > 0, "TCP to h2 lost packets");
    assert!(lost(&|proto, sport, _| proto == 6 && sport == 5203) > 0, "TCP to h1 lost packets");
    assert!(lost(&|proto, _, dport| proto == 6 && dport == 7000) > 0, "short connections did");

    assert_eq!(namespaces_of(std::process::id()), [""; 0], "nothing is left");
}

#[test]
#[ignore = "end to end: needs root, dpdk-testpmd and iperf3; `cargo xtask test` runs it"]
fn a_run_cleans_up_after_ctrl_c_and_its_guard_after_it_was_killed() {
    let _alone = alone();
    let interrupted = start(&["baseline", "--seconds", "60"]);
    programs_of(&interrupted, 1);
    let killed = start(&["run", "--live", MIXED]);
    // A controller, three software edges, and a hardware edge of two programs.
    let programs = programs_of(&killed, 6);
    let pid = |child: &Child| Pid::from_raw(child.id() as i32);

    kill(pid(&interrupted), Signal::SIGINT).expect("it can be interrupted");
    let interrupted_pid = interrupted.id();
    let output = interrupted.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("interrupted: stopping and cleaning up"), "{said}");
    assert_eq!(namespaces_of(interrupted_pid), [""; 0]);
    // Of eight hosts, six routers, and the switches.
    assert_eq!(namespaces_of(killed.id()).len(), 15, "the other run's are not touched");

    let killed_pid = killed.id();
    kill(pid(&killed), Signal::SIGKILL).expect("it can be killed");
    // Its output ends when the guard, which has it too, has cleaned up.
    killed.wait_with_output().expect("it ends");
    assert_eq!(namespaces_of(killed_pid), [""; 0]);
    // One that has ended and that nobody has waited for yet has no command line any more.
    let runs = |pid: &&String| {
        std::fs::read(Path::new("/proc").join(pid).join("cmdline"))
            .is_ok_and(|line| !line.is_empty())
    };
    let left = programs.iter().filter(runs);
    assert_eq!(left.count(), 0, "of the programs {programs:?}");
    assert!(!Path::new("/run/calumma-testbed").join(format!("calumma-{killed_pid}-0")).exists());
}
