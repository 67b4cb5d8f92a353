//! The fuzz targets: where they are, how they are built and run, and what they begin with.
//!
//! There are two builds. [`build`] is that of `cargo xtask nightly`, which runs for hours: nightly
//! Rust, optimised, with AddressSanitizer. [`build_quickly`] is that of `cargo xtask test`: the
//! crates of the workspace are built again with counters of coverage, all others are those that the
//! tests have been built with. Both have a second half, for the workspace of SQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};

use crate::runner::host;
use crate::sanitize::Nightly;
use crate::shell::{self, cargo};

/// Packages with fuzz targets: the folders beside their `fuzz`.
const FUZZED: [&str; 7] =
    ["sketch", "wire", "dataplane/edge", "testbed", "trust", "p4src/model", "p4src/agent"];

/// The one with targets that is a workspace of its own.
const APART: &str = "query";

/// Real files that targets begin with, beside those of their `fuzz/seeds`: folder, target, and
/// where the files lie.
const REAL: [(&str, &str, &[&str]); 5] = [
    ("wire", "decode", &["systems/chamelemon/tests/golden"]),
    ("wire", "cfs", &["systems/cfs/tests/golden"]),
    ("wire", "sketchint", &["systems/sketchint/tests/golden"]),
    ("testbed", "config", &["docs", "deploy", "dpdk-config", "testbed/scenarios"]),
    ("p4src/model", "program", &["p4src/model/tests/programs", "p4src/include"]),
];

/// A fuzz target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// The folder of its package.
    folder: &'static str,
    name: String,
}

/// How the targets were built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built {
    /// By [`build_quickly`] and [`build_quickly_apart`].
    Quickly,
    /// By [`build`] and [`build_apart`].
    Fully,
}

/// The targets of this workspace.
pub(crate) fn targets() -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for folder in FUZZED {
        targets.extend(targets_of(folder)?);
    }
    targets.sort();
    Ok(targets)
}

/// Those of the workspace apart.
pub(crate) fn targets_apart() -> Result<Vec<Target>> {
    targets_of(APART)
}

fn targets_of(folder: &'static str) -> Result<Vec<Target>> {
    let sources = shell::root().join(folder).join("fuzz/fuzz_targets");
    let listed = std::fs::read_dir(&sources)
        .with_context(|| format!("listing the fuzz targets in {}", sources.display()))?;
    let target = |source: std::io::Result<std::fs::DirEntry>| {
        let source = source?.path();
        let name = source.file_stem().context("a file without a name")?;
        Ok(Target { folder, name: name.to_string_lossy().into_owned() })
    };
    listed.map(target).collect()
}

impl Target {
    /// What people know it by.
    pub(crate) fn title(&self) -> String {
        format!("fuzzing {}: {}", self.folder, self.name)
    }

    fn program(&self) -> String {
        format!("fuzz-{}-{}", short(self.folder), self.name)
    }

    /// Runs it for so many seconds, from its seeds and the corpus in its folder, which grows.
    pub(crate) fn run(&self, built: Built, seconds: u64) -> Result<Command> {
        let folder = shell::target_dir();
        let folder = match built {
            Built::Quickly => folder.join("debug"),
            Built::Fully => folder.join("fuzz").join(host()?).join("release"),
        };
        let home = shell::root().join(self.folder).join("fuzz");
        let corpus = made(home.join("corpus").join(&self.name))?;
        let artifacts = made(home.join("artifacts").join(&self.name))?;
        // Targets whose seeds are made and not kept write them here.
        let seeds = shell::target_dir().join("fuzz-seeds").join(self.program());
        let _ = std::fs::remove_dir_all(&seeds);
        let seeds = made(seeds)?;
        let mut fuzz = shell::program(folder.join(self.program()));
        fuzz.arg(corpus).arg(&seeds).env("CALUMMA_SEEDS", &seeds);
        let real =
            REAL.iter().filter(|(folder, name, _)| (*folder, *name) == (self.folder, &self.name));
        let real = real.flat_map(|(.., paths)| *paths).map(|path| shell::root().join(path));
        let real = real.chain([home.join("seeds").join(&self.name)]);
        fuzz.args(real.filter(|path| path.is_dir()));
        fuzz.arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-print_final_stats=1", "-rss_limit_mb=4096", "-timeout=30"])
            .env("ASAN_OPTIONS", "detect_leaks=0");
        if (self.folder, built) == (APART, Built::Quickly) {
            // Most of what tells queries from each other is in code that counts no coverage.
            fuzz.arg("-keep_seed=1");
        }
        Ok(fuzz)
    }
}

/// How many inputs a target ran, by the statistics that it ends with.
pub(crate) fn executed(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr);
    let count = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("an unknown number of", str::trim).to_owned()
    };
    let (inputs, new) = ("stat::number_of_executed_units", "stat::new_units_added");
    format!("{} inputs, {} new ones kept", count(inputs), count(new))
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

/// What counts coverage in instrumented code.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds all targets as `cargo fuzz` does: all code instrumented, and AddressSanitizer.
pub(crate) fn build(nightly: Nightly) -> Result<Command> {
    let mut cargo = fully(nightly)?;
    for folder in FUZZED {
        cargo.args(["--package", &format!("calumma-{}-fuzz", short(folder))]);
    }
    Ok(cargo)
}

/// The same for those of the workspace apart.
pub(crate) fn build_apart(nightly: Nightly) -> Result<Command> {
    let mut cargo = fully(nightly)?;
    cargo.arg("--manifest-path").arg(shell::root().join(APART).join("fuzz/Cargo.toml"));
    Ok(cargo)
}

fn fully(nightly: Nightly) -> Result<Command> {
    let mut cargo = nightly.cargo("fuzz");
    cargo.args(["cargo", "build", "--release", "--bins", "--target", &host()?]);
    cargo.env(
        "RUSTFLAGS",
        format!(
            "-Zsanitizer=address --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 {COVERAGE}"
        ),
    );
    // Without link-time optimisation, which would drop the counters' table.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    Ok(cargo)
}

/// Builds all targets by the tests' toolchain and profile, the workspace's own crates instrumented.
pub(crate) fn build_quickly() -> Command {
    let mut cargo = instrumented();
    // The whole workspace and a test of it, so that others' crates have the features that the tests
    // have built them with.
    cargo.args(["--workspace", "--test", "frames", "--bin", "fuzz-*"]);
    cargo
}

/// The same for those of the workspace apart: what is instrumented is its own crates, and neither
/// DataFusion nor ours that it depends on.
pub(crate) fn build_quickly_apart() -> Command {
    let mut cargo = instrumented();
    cargo.args(["--workspace", "--bin", "fuzz-*", "--manifest-path"]);
    cargo.arg(shell::root().join(APART).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(shell::target_dir());
    cargo
}

fn instrumented() -> Command {
    let mut cargo = cargo();
    cargo.arg("build").env("RUSTC_WORKSPACE_WRAPPER", shell::root().join("xtask/instrumented"));
    // A fifth of the time to build, for some seconds of running.
    cargo.env("CALUMMA_INSTRUMENTED", format!("{COVERAGE} -Copt-level=0"));
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that cargo does not know under the name that is run would be built and never run.
    #[test]
    fn every_fuzz_target_has_a_program_of_its_name() {
        let mut targets = targets().unwrap();
        assert!(targets.contains(&Target { folder: "wire", name: "decode".into() }));
        targets.extend(targets_apart().unwrap());
        for target in targets {
            let manifest = shell::root().join(target.folder).join("fuzz/Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            let program = format!("name = \"{}\"", target.program());
            assert!(manifest.contains(&program), "{}: no program {program}", target.folder);
        }
    }

    #[test]
    fn what_a_target_ran_is_read_from_its_statistics() {
        let stderr = b"#9 DONE\nstat::number_of_executed_units: 123\nstat::new_units_added:  4\n";
        let output =
            Output { status: Default::default(), stdout: Vec::new(), stderr: stderr.into() };
        assert_eq!(executed(&output), "123 inputs, 4 new ones kept");
    }

    #[test]
    fn real_files_are_of_targets_that_there_are() {
        let mut targets = targets().unwrap();
        targets.extend(targets_apart().unwrap());
        for (folder, name, paths) in REAL {
            assert!(targets.contains(&Target { folder, name: name.into() }), "{folder}: {name}");
            assert!(paths.iter().all(|path| shell::root().join(path).is_dir()), "{paths:?}");
        }
    }
}
