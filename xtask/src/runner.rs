//! What runs the tests: cargo-nextest where it is installed, which runs those of all programs side
//! by side, else `cargo test`.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::shell::{self, cargo, is_root};

/// Runs the tests of the workspace.
pub(crate) enum Runner {
    /// With the files in which what was built is listed: cargo, and its lock, are not needed any
    /// more.
    Nextest {
        /// The programs of tests.
        binaries: PathBuf,
        /// The packages.
        packages: PathBuf,
    },
    /// Plain `cargo test`.
    Cargo,
}

impl Runner {
    pub(crate) fn choose() -> Self {
        if !shell::succeeds(cargo().args(["nextest", "--version"])) {
            return Self::Cargo;
        }
        let folder = shell::target_dir();
        Self::Nextest {
            binaries: folder.join("nextest-binaries.json"),
            packages: folder.join("nextest-packages.json"),
        }
    }

    /// Whether tests run without taking cargo's lock.
    pub(crate) fn runs_without_cargo(&self) -> bool {
        matches!(self, Self::Nextest { .. })
    }

    /// Builds all tests.
    pub(crate) fn build(&self) -> Result<Command> {
        let mut build = cargo();
        match self {
            Self::Nextest { binaries, packages } => {
                let metadata = cargo()
                    .args(["metadata", "--format-version", "1", "--locked"])
                    .stdout(create(packages)?)
                    .status();
                metadata.context("listing the packages")?;
                build.args(["nextest", "list", "--workspace", "--list-type", "binaries-only"]);
                build.args(["--message-format", "json"]).stdout(create(binaries)?);
            }
            Self::Cargo => {
                build.args(["test", "--workspace", "--no-run"]);
            }
        }
        Ok(build)
    }

    /// All tests but the end-to-end ones.
    pub(crate) fn tests(&self) -> Result<Command> {
        let mut tests = self.run();
        if let Self::Cargo = self {
            // Examples in the documentation have a step of their own.
            tests.args(["test", "--workspace", "--no-fail-fast"]);
            tests.args(["--lib", "--bins", "--tests"]);
        }
        Ok(tests)
    }

    /// The end-to-end tests.
    pub(crate) fn end_to_end(&self) -> Result<Command> {
        let mut tests = self.run();
        match self {
            Self::Nextest { .. } => tests.args(["--run-ignored", "only"]),
            Self::Cargo => {
                tests.args(["test", "--workspace", "--no-fail-fast", "--tests", "--", "--ignored"])
            }
        };
        Ok(tests)
    }

    fn run(&self) -> Command {
        let mut run = cargo();
        if let Self::Nextest { binaries, packages } = self {
            run.args(["nextest", "run", "--no-fail-fast", "--color", "never"]);
            run.arg("--binaries-metadata").arg(binaries).arg("--cargo-metadata").arg(packages);
        }
        run
    }
}

fn create(path: &PathBuf) -> Result<Stdio> {
    Ok(File::create(path).with_context(|| format!("creating {}", path.display()))?.into())
}

/// The examples in the documentation, which nextest does not run.
pub(crate) fn documentation() -> Command {
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast", "--doc"]);
    tests
}

/// The tests of `query/`, which is a workspace of its own; what it has in common with this one is
/// built once.
pub(crate) fn queries() -> Command {
    let mut tests = cargo();
    tests
        .args(["test", "--no-fail-fast", "--manifest-path"])
        .arg(shell::root().join("query/Cargo.toml"));
    tests.arg("--target-dir").arg(shell::target_dir());
    tests
}

/// Lets cargo run test programs through sudo, while what it builds stays the user's own.
pub(crate) fn as_root(cargo: &mut Command) -> Result<()> {
    if !is_root()? {
        let variable = format!("CARGO_TARGET_{}_RUNNER", host()?.replace('-', "_").to_uppercase());
        cargo.env(variable, "sudo --preserve-env");
    }
    Ok(())
}

/// The target that cargo builds for on this machine.
pub(crate) fn host() -> Result<String> {
    let version = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.into())
}
