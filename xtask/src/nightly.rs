//! `cargo xtask nightly`: what takes hours. Every scenario under many seeds, large sweeps, the fuzz
//! targets, AddressSanitizer and ThreadSanitizer.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::fuzz::{self, Built, Target};
use crate::release;
use crate::runner::as_root;
use crate::sanitize::{self, Nightly};
use crate::schedules;
use crate::shell::{self, cargo};
use crate::steps::Steps;
use crate::{checks, machine};

/// How much is played, and where to.
pub(crate) struct Night<'a> {
    /// Seeds of every scenario.
    pub(crate) seeds: u64,
    /// How long each fuzz target runs.
    pub(crate) fuzz_seconds: u64,
    /// Whether sweeps, soaks and schedules are no larger than `cargo xtask test` has them.
    pub(crate) small: bool,
    /// Where what the scenarios played goes.
    pub(crate) out: &'a Path,
}

pub(crate) fn run(night: &Night<'_>) -> Result<ExitCode> {
    let sized = |mut command: Command| {
        if !night.small {
            command.env("CALUMMA_SWEEPS", "large");
        }
        command
    };
    let mut steps = Steps::start()?;
    steps.work("preparing the machine", || {
        machine::prepare()?;
        machine::prepare_tests();
        machine::add_rust_components()
    })?;

    let mut sweeps = cargo();
    sweeps.args(["test", "--package", "calumma-sketch", "--test", "decode_success"]);
    steps.tests("sweeping over sketches", sized(sweeps))?;
    let mut soak = cargo();
    soak.args(["test", "--package", "calumma-testbed", "--test", "live", "--no-fail-fast"]);
    soak.args(["--", "--ignored", "soak", "routers"]);
    let mut soak = sized(soak);
    as_root(&mut soak)?;
    steps.tests("soaking, and routers of all kinds", soak)?;

    steps.tests("testing under many drawn schedules", sized(schedules::tests()))?;

    checks::sanitized(&mut steps)?;
    run_threads(&mut steps)?;
    run_targets(&mut steps, night.fuzz_seconds)?;

    if steps.build("building the release", release::build(release::PROGRAMS))? {
        let mut scenarios = shell::program(release::program("calumma-testbed"));
        scenarios.args(["nightly", "--seeds", &night.seeds.to_string(), "--out"]);
        scenarios.arg(std::path::absolute(night.out).context("where to put what was played")?);
        scenarios.arg("--scenarios").arg(shell::root().join("testbed/scenarios"));
        steps.check("playing every scenario", scenarios)?;
    }
    Ok(steps.finish())
}

fn run_threads(steps: &mut Steps) -> Result<()> {
    match Nightly::find().filter(|nightly| nightly.has_source()) {
        Some(nightly) => {
            let threads = sanitize::threads(nightly)?;
            steps.tests("testing threads with ThreadSanitizer", threads)?;
            let mut programs = sanitize::programs(nightly)?;
            as_root(&mut programs)?;
            steps.tests("testing the switch as a program with ThreadSanitizer", programs)?;
            let controller = sanitize::controller(nightly)?;
            steps.tests("testing the controller with ThreadSanitizer", controller)
        }
        None => {
            let needs = "it needs `rustup component add rust-src --toolchain nightly`";
            steps.skip("ThreadSanitizer", needs);
            Ok(())
        }
    }
}

fn run_targets(steps: &mut Steps, seconds: u64) -> Result<()> {
    let Some(nightly) = Nightly::find() else {
        steps.skip("fuzzing", "it needs `rustup toolchain install nightly`");
        return Ok(());
    };
    if steps.build("building the fuzz targets", fuzz::build(nightly)?)? {
        steps.side_by_side("fuzzing", commands(fuzz::targets()?, seconds)?)?;
    }
    if steps.build("building the fuzz target of SQL", fuzz::build_apart(nightly)?)? {
        steps.side_by_side("fuzzing SQL", commands(fuzz::targets_apart()?, seconds)?)?;
    }
    Ok(())
}

fn commands(targets: Vec<Target>, seconds: u64) -> Result<Vec<(String, Command)>> {
    let command = |target: Target| Ok((target.title(), target.run(Built::Fully, seconds)?));
    targets.into_iter().map(command).collect()
}
