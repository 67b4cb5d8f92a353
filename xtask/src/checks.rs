//! `cargo xtask test`: formatting, lints, the tests, the end-to-end tests, which are marked `#[ignore]` because they
//! need root or take long, and the sketches and bindings to DPDK under AddressSanitizer. Goes through all of it, and sums up
//! at the end.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::machine;
use crate::shell::{self, cargo, is_root, step};

/// How many tests passed and failed. Each check without tests of its own counts as one.
#[derive(Default)]
struct Score {
    passed: u32,
    failed: u32,
}

pub(crate) fn run() -> Result<ExitCode> {
    machine::prepare()?;
    machine::prepare_tests();
    machine::add_rust_components()?;
    let mut score = Score::default();

    step("checking the formatting");
    score.check(cargo().args(["fmt", "--all", "--check"]))?;
    step("linting");
    let lint = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    score.check(cargo().args(lint))?;
    step("testing");
    score.tests(cargo().args(["test", "--workspace", "--no-fail-fast"]))?;
    step("testing end to end");
    let tests = ["test", "--workspace", "--no-fail-fast", "--tests", "--", "--ignored"];
    score.tests(as_root(&mut cargo())?.args(tests))?;
    if let Some(nightly) = nightly() {
        step("testing the vector instructions with AddressSanitizer");
        score.tests(&mut sanitized_sketches(&nightly)?)?;
        step("testing the bindings to DPDK with AddressSanitizer");
        score.tests(&mut sanitized_dpdk(&nightly)?)?;
    } else {
        println!("skipped: AddressSanitizer needs `rustup toolchain install nightly`");
    }

    println!("{} passed, {} failed", score.passed, score.failed);
    Ok(if score.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Score {
    fn check(&mut self, command: &mut Command) -> Result<()> {
        let status = command.status().with_context(|| format!("running {command:?}"))?;
        self.count(u32::from(status.success()), u32::from(!status.success()));
        Ok(())
    }

    /// Runs tests, shows what they print, and adds up their results. Tests that failed without being counted, because
    /// they did not compile or their process died, count as one failure.
    fn tests(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {command:?}"))?;
        let mut failed = 0;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.context("reading what the tests print")?;
                println!("{line}");
                if let Some((passed_here, failed_here)) = result(&line) {
                    self.count(passed_here, failed_here);
                    failed += failed_here;
                }
            }
        }
        let status = child.wait().context("waiting for the tests")?;
        if !status.success() && failed == 0 {
            self.count(0, 1);
        }
        Ok(())
    }

    fn count(&mut self, passed: u32, failed: u32) {
        self.passed += passed;
        self.failed += failed;
    }
}

/// What runs programs of the nightly toolchain, which alone can build with a sanitizer; `None` where there
/// is no such toolchain.
fn nightly() -> Option<impl Fn() -> Command> {
    let nightly = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["run", "nightly"]).current_dir(shell::root()).env_remove("CARGO");
        rustup
    };
    let there = shell::found("rustup") && shell::succeeds(nightly().args(["cargo", "--version"]));
    there.then_some(nightly)
}

/// The tests of a package, built to check every access to memory.
fn sanitized(nightly: &impl Fn() -> Command, package: &str) -> Result<Command> {
    let mut cargo = nightly();
    // Naming the target keeps build scripts and procedural macros free of the sanitizer.
    cargo
        .args(["cargo", "test", "--package", package, "--target", &host()?])
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_TARGET_DIR", shell::target_dir().join("sanitize"));
    Ok(cargo)
}

/// The tests that go through the sketches' vector instructions.
fn sanitized_sketches(nightly: &impl Fn() -> Command) -> Result<Command> {
    let mut cargo = sanitized(nightly, "calumma-sketch")?;
    cargo.args(["--package", "calumma-chamelemon", "--lib"]);
    cargo.args(["--test", "engines", "--test", "algebra", "--test", "allocation"]);
    Ok(cargo)
}

/// The tests of what stands between Rust and DPDK, the shim in C among it. DPDK itself is the system's, and leaves memory
/// behind when it ends.
fn sanitized_dpdk(nightly: &impl Fn() -> Command) -> Result<Command> {
    let mut cargo = sanitized(nightly, "dpdk")?;
    cargo
        .arg("--tests")
        .env("CC", "clang")
        .env("CFLAGS", "-fsanitize=address")
        .env("ASAN_OPTIONS", "detect_leaks=0");
    Ok(cargo)
}

/// Lets cargo run test programs through sudo, while what it builds stays the user's own.
fn as_root(cargo: &mut Command) -> Result<&mut Command> {
    if is_root()? {
        return Ok(cargo);
    }
    let host = host()?;
    let variable = format!("CARGO_TARGET_{}_RUNNER", host.replace('-', "_").to_uppercase());
    Ok(cargo.env(variable, "sudo --preserve-env"))
}

/// The target that cargo builds for on this machine.
fn host() -> Result<String> {
    let version = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.into())
}

/// Reads `test result: ok. 13 passed; 0 failed; ...`.
fn result(line: &str) -> Option<(u32, u32)> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| {
        let words: Vec<&str> = counts.split_whitespace().collect();
        let at = words.iter().position(|w| w.trim_end_matches(';') == word)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    Some((before("passed")?, before("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_line_of_the_test_runner_is_read_and_others_are_not() {
        let line =
            "test result: FAILED. 13 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(result(line), Some((13, 2)));
        assert_eq!(result("test a_test ... ok"), None);
    }
}
