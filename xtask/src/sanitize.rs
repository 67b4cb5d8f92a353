//! What only the nightly toolchain builds: tests under AddressSanitizer.

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
