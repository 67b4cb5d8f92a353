//! Optimised programs: which packages are built together, and how.

use std::path::PathBuf;
use std::process::Command;

use crate::shell::{self, cargo};

/// What is measured, and what measures. Always built together: cargo builds third parties anew
/// where another choice of packages asks them for other features.
pub(crate) const PROGRAMS: &[&str] =
    &["calumma-testbed", "calumma-edge", "calumma-controller", "calumma-benches"];

/// The programs that the demo runs, and their packages.
const DEMO: [(&str, &str); 3] = [
    ("calumma-testbed", "calumma-testbed"),
    ("calumma-edge", "calumma-edge"),
    ("calumma-controller", "calumma-controller"),
];

/// Builds the programs of these packages for production.
pub(crate) fn build(packages: &[&str]) -> Command {
    let mut build = cargo();
    build.args(["build", "--release", "--bins"]);
    build.args(packages.iter().flat_map(|package| ["--package", package]));
    build
}

/// A program that [`build`] has built.
pub(crate) fn program(name: &str) -> PathBuf {
    shell::target_dir().join("release").join(name)
}

/// Builds what the demo runs, quicker than for production.
pub(crate) fn build_demo() -> Command {
    let mut build = cargo();
    build.args(["build", "--profile", "demo"]);
    for (package, program) in DEMO {
        build.args(["--package", package, "--bin", program]);
    }
    build
}

/// A program that [`build_demo`] has built.
pub(crate) fn demo_program(name: &str) -> PathBuf {
    shell::target_dir().join("demo").join(name)
}
