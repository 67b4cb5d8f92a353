//! What only the nightly toolchain builds: tests under AddressSanitizer, and fuzz targets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::runner::host;
use crate::shell;

/// Packages with fuzz targets: the folders beside their `fuzz`.
const FUZZED: [&str; 4] = ["sketch", "wire", "dataplane/edge", "testbed"];

/// Every fuzz target: the folder of its package, and its name there.
pub(crate) fn fuzz_targets() -> Result<Vec<(&'static str, String)>> {
    let mut targets = Vec::new();
    for folder in FUZZED {
        let sources = shell::root().join(folder).join("fuzz/fuzz_targets");
        let listed = std::fs::read_dir(&sources)
            .with_context(|| format!("listing the fuzz targets in {}", sources.display()))?;
        for source in listed {
            let source = source?.path();
            let name = source.file_stem().context("a file without a name")?;
            targets.push((folder, name.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

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
    fn cargo(self, folder: &str) -> Command {
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

/// Builds all fuzz targets, instrumented as `cargo fuzz` does.
pub(crate) fn fuzz_build(nightly: Nightly) -> Result<Command> {
    let mut cargo = nightly.cargo("fuzz");
    cargo.args(["cargo", "build", "--release", "--bins", "--target", &host()?]).env(
        "RUSTFLAGS",
        "-Zsanitizer=address --cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module \
         -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
         -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
         -Ccodegen-units=1",
    );
    // Without link-time optimisation, which would drop the counters' table.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    for folder in FUZZED {
        cargo.args(["--package", &format!("calumma-{}-fuzz", short(folder))]);
    }
    Ok(cargo)
}

/// Runs a fuzz target for so many seconds over the corpus in its folder, which grows.
pub(crate) fn fuzz(folder: &str, target: &str, seconds: u64) -> Result<Command> {
    let program = shell::target_dir()
        .join("fuzz")
        .join(host()?)
        .join("release")
        .join(format!("fuzz-{}-{target}", short(folder)));
    let home = shell::root().join(folder).join("fuzz");
    let corpus = made(home.join("corpus").join(target))?;
    let artifacts = made(home.join("artifacts").join(target))?;
    let mut fuzz = Command::new(program);
    fuzz.arg(corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-rss_limit_mb=4096"])
        .env("ASAN_OPTIONS", "detect_leaks=0");
    Ok(fuzz)
}

/// What a package's fuzz targets are named after: the last part of its folder.
fn short(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

fn made(folder: PathBuf) -> Result<PathBuf> {
    let path: &Path = &folder;
    std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that cargo does not know under the name that is run would be built and never run.
    #[test]
    fn every_fuzz_target_has_a_program_of_its_name() {
        let targets = fuzz_targets().unwrap();
        assert!(targets.contains(&("wire", "decode".into())));
        for (folder, target) in targets {
            let manifest = shell::root().join(folder).join("fuzz/Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            let program = format!("name = \"fuzz-{}-{target}\"", short(folder));
            assert!(manifest.contains(&program), "{folder}: no program {program}");
        }
    }
}
