//! What only the nightly toolchain builds: tests under AddressSanitizer and ThreadSanitizer.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::runner::host;
use crate::shell;

/// The nightly toolchain of this machine.
#[derive(Clone, Copy)]
pub(crate) struct Nightly(());

impl Nightly {
    /// `None` where there is no such toolchain.
    pub(crate) fn find() -> Option<Self> {
        let nightly = Self(());
        let there = shell::found("rustup")
            && shell::succeeds(nightly.cargo("sanitize").args(["cargo", "--version"]));
        there.then_some(nightly)
    }

    /// Whether it has the source of the standard library, which [`threads`] builds.
    pub(crate) fn has_source(self) -> bool {
        let sysroot = self.cargo("threads").args(["rustc", "--print", "sysroot"]).output();
        let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let source = "lib/rustlib/src/rust/library/std";
        sysroot.is_ok_and(|sysroot| Path::new(sysroot.trim()).join(source).is_dir())
    }

    /// `rustup run nightly`, which builds in a folder of the target directory.
    pub(crate) fn cargo(self, folder: &str) -> Command {
        let mut rustup = Command::new("rustup");
        rustup.args(["run", "nightly"]).current_dir(shell::root()).env_remove("CARGO");
        rustup.env("CARGO_TARGET_DIR", shell::target_dir().join(folder));
        rustup
    }
}

/// The tests of a package, built to check every access to memory.
fn sanitized(nightly: Nightly, package: &str) -> Result<Command> {
    let mut cargo = nightly.cargo("sanitize");
    // Naming the target keeps build scripts and procedural macros free of the sanitizer.
    cargo
        .args(["cargo", "test", "--package", package, "--target", &host()?])
        .env("RUSTFLAGS", "-Zsanitizer=address");
    Ok(cargo)
}

/// The tests that go through the sketches' vector instructions.
pub(crate) fn sketches(nightly: Nightly) -> Result<Command> {
    let mut cargo = sanitized(nightly, "calumma-sketch")?;
    cargo.args(["--package", "calumma-chamelemon", "--lib"]);
    cargo.args(["--test", "engines", "--test", "algebra", "--test", "allocation"]);
    Ok(cargo)
}

/// The tests of what stands between Rust and DPDK, the shim in C among it. DPDK itself is the
/// system's, and leaves memory behind when it ends.
pub(crate) fn dpdk(nightly: Nightly) -> Result<Command> {
    let mut cargo = sanitized(nightly, "dpdk")?;
    cargo
        .arg("--tests")
        .env("CC", "clang")
        .env("CFLAGS", "-fsanitize=address")
        .env("ASAN_OPTIONS", "detect_leaks=0");
    Ok(cargo)
}

/// The library tests of switch and controller, and those in which lcores and control thread run
/// beside each other, built to find accesses to memory that nothing orders. The standard library
/// is built so as well, from its source. DPDK is the system's, and that it orders what threads do
/// is not seen, so tests in which packets pass by its rings are left out.
pub(crate) fn threads(nightly: Nightly) -> Result<Command> {
    let mut cargo = threaded(nightly)?;
    cargo.args(["--lib", "--test", "packets"]).env("PROPTEST_CASES", "4");
    Ok(cargo)
}

/// Tests that run the switch as a program, between network namespaces too. Its threads hand mbufs
/// to each other by channels and by pools, and of pools the shim says what they order.
pub(crate) fn programs(nightly: Nightly) -> Result<Command> {
    let mut cargo = threaded(nightly)?;
    cargo.args(["--test", "program", "--no-fail-fast", "--"]);
    cargo.args(["--include-ignored", "--test-threads=1"]).args(PROGRAMS);
    Ok(cargo)
}

/// The modules of tests that run the switch for a while, and hold no time against a bound.
const PROGRAMS: [&str; 4] = ["interfaces::", "operation::", "pcap_port::", "routed::"];

/// Tests that run the controller with its threads, within the test and as a program.
pub(crate) fn controller(nightly: Nightly) -> Result<Command> {
    let mut cargo = threaded(nightly)?;
    cargo.args(["--test", "controller", "--no-fail-fast", "--"]);
    cargo.args(BOUNDED.iter().flat_map(|tests| ["--skip", tests]));
    let suppressions = shell::root().join("xtask/tsan-suppressions");
    cargo.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    cargo.env("PROPTEST_CASES", "4");
    Ok(cargo)
}

/// Tests of the controller that hold times or memory against bounds, or fail where all threads
/// stand still for seconds, as they do while a report is looked up among the suppressed ones; and
/// one that waits for a signal, which ThreadSanitizer puts off until the thread makes a call it
/// knows.
const BOUNDED: [&str; 7] = [
    "attacks",
    "dashboard::an_incomplete_epoch",
    "keys::all_edges_get_another_key",
    "program::it_says_where_it_listens",
    "systems::every_node_is_counted",
    "systems::systems_are_switched",
    "trust::the_authority_is_replaced",
];

fn threaded(nightly: Nightly) -> Result<Command> {
    let mut cargo = nightly.cargo("threads");
    cargo.args(["cargo", "test", "-Zbuild-std", "--target", &host()?]);
    // Always both packages, so that all of these commands build others' crates with one set of
    // features, and so once.
    cargo.args(["--package", "calumma-edge", "--package", "calumma-controller"]);
    cargo.env("RUSTFLAGS", "-Zsanitizer=thread");
    cargo.env("CC", "clang").env("CFLAGS", "-DCALUMMA_TSAN");
    Ok(cargo)
}
