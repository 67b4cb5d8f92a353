//! `cargo xtask package`: Debian packages, and a test of them in a container.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::shell::{self, cargo, step, sudo};
use crate::{machine, tools};

/// The packages, each with what `cargo deb` knows about it in its Cargo.toml.
const PACKAGES: [&str; 3] = ["calumma-controller", "calumma-edge", "calumma-switchd"];

/// The programs that go into packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// Those of a release, which is built.
    Release,
    /// Those that the tests have been built with: quick to have, and slow.
    OfTests,
}

impl Programs {
    /// The folder below the target directory for packages of these.
    fn folder(self) -> PathBuf {
        shell::target_dir().join(match self {
            Self::Release => "debian",
            Self::OfTests => "debian-of-tests",
        })
    }

    /// `cargo deb` for packages of these, which are built.
    fn packer(self) -> Result<Command> {
        let mut deb = tools::deb()?;
        deb.arg("--no-build");
        if self == Self::OfTests {
            // It packs releases alone: this is where it finds one.
            let target = self.folder().join("target");
            std::fs::create_dir_all(&target)
                .with_context(|| format!("creating {}", target.display()))?;
            let release = target.join("release");
            let _ = std::fs::remove_file(&release);
            std::os::unix::fs::symlink(shell::target_dir().join("debug"), &release)
                .with_context(|| format!("linking {}", release.display()))?;
            deb.arg("--fast").env("CARGO_TARGET_DIR", target);
        }
        Ok(deb)
    }
}

/// Builds the packages into `out`, and with `check` installs, starts and purges them in a
/// container.
pub(crate) fn run(out: Option<&Path>, check: bool, programs: Programs) -> Result<ExitCode> {
    machine::prepare()?;
    let out = match out {
        Some(out) => std::path::absolute(out).context("where to put the packages")?,
        None => programs.folder(),
    };
    if programs == Programs::Release {
        step("building the release");
        let mut build = cargo();
        build.args(["build", "--release", "--bins"]);
        build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
        shell::run(build)?;
    }
    let packages = build_packages(&out, programs)?;
    if check {
        step("installing the packages in a container");
        machine::install(&["systemd-container"])?;
        shell::run(container(&packages)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The check of packages of what the tests have been built with, by this program.
pub(crate) fn check_of_tests() -> Result<Command> {
    let mut check = Command::new(std::env::current_exe().context("finding this program")?);
    check.args(["package", "--check", "--of-tests"]);
    Ok(check)
}

/// Packs what is built; gives the files.
fn build_packages(out: &Path, programs: Programs) -> Result<Vec<PathBuf>> {
    machine::install(&["dpkg-dev", "adduser"])?;
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let mut files = Vec::new();
    for package in PACKAGES {
        step(&format!("packing {package}"));
        let mut deb = programs.packer()?;
        deb.args(["--package", package, "--output"]).arg(out);
        // The last line of its output is the package's path.
        let printed = shell::output(&mut deb)?;
        let path = printed.lines().last().map(PathBuf::from).filter(|path| path.is_file());
        let Some(path) = path else { bail!("cargo deb made no package of {package}") };
        println!("{}", path.display());
        files.push(path);
    }
    Ok(files)
}

/// Tests packages in a container that boots systemd over this machine's own files, which stay as
/// they are.
fn container(packages: &[PathBuf]) -> Result<Command> {
    let mut unshare = sudo("unshare")?;
    unshare.args(["--mount", "sh"]).arg(shell::root().join("deploy/debian/test/container"));
    unshare.args(packages).current_dir(shell::root());
    Ok(unshare)
}
