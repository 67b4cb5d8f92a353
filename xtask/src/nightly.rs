//! `cargo xtask nightly`: what takes hours. Every scenario under many seeds, large sweeps, the fuzz
//! targets, AddressSanitizer and ThreadSanitizer.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::fuzz::{self, Built, Target};
use crate::release;
use crate::runner::as_root;
use crate::sanitize::{self, Nightly};
use crate::schedules;
use crate::shell::{self, cargo};
use crate::steps::Steps;
use crate::{checks, machine};

/// What a night consists of, in the order in which it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Sketches of many sizes, decoded
    Sweeps,
    /// Drawn networks, clocks and disks, as tests have them, and more of each
    Networks,
    /// Live fabrics with mixed load and random faults, and with routers of all kinds
    Soaks,
    /// Threads of a switch in drawn schedules
    Schedules,
    /// AddressSanitizer over vector instructions and the bindings to DPDK
    Addresses,
    /// ThreadSanitizer over the switch and the controller
    Threads,
    /// The fuzz targets
    Fuzzing,
    /// Every simulated scenario under many seeds
    Scenarios,
}

/// How much is played, and where to.
pub(crate) struct Night<'a> {
    /// The parts to run; all where it is empty.
    pub(crate) only: &'a [Part],
    /// Seeds of every scenario.
    pub(crate) seeds: u64,
    /// How long each fuzz target runs.
    pub(crate) fuzz_seconds: u64,
    /// Whether sweeps, soaks and schedules are no larger than `cargo xtask test` has them.
    pub(crate) small: bool,
    /// Where what the scenarios played goes.
    pub(crate) out: &'a Path,
}

impl Night<'_> {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// The command, with as much to play as this night has.
    fn sized(&self, mut command: Command) -> Command {
        if !self.small {
            command.env("CALUMMA_SWEEPS", "large");
        }
        command
    }
}

pub(crate) fn run(night: &Night<'_>) -> Result<ExitCode> {
    let mut steps = Steps::start()?;
    steps.work("preparing the machine", || {
        machine::prepare()?;
        machine::prepare_tests();
        machine::add_rust_components()
    })?;
    for part in Part::value_variants() {
        if night.has(*part) {
            run_part(*part, night, &mut steps)?;
        }
    }
    Ok(steps.finish())
}

fn run_part(part: Part, night: &Night<'_>, steps: &mut Steps) -> Result<()> {
    match part {
        Part::Sweeps => {
            let mut sweeps = cargo();
            sweeps.args(["test", "--package", "calumma-sketch", "--test", "decode_success"]);
            steps.tests("sweeping over sketches", night.sized(sweeps))
        }
        Part::Networks => {
            let mut networks = cargo();
            networks.args(["test", "--package", "calumma-testbed", "--test", "simulated"]);
            networks.args(["--no-fail-fast", "--", "clocks::", "disks::", "tiny::"]);
            steps.tests("drawing networks, clocks and disks", night.sized(networks))
        }
        Part::Soaks => {
            let mut soak = cargo();
            soak.args(["test", "--package", "calumma-testbed", "--test", "live"]);
            soak.args(["--no-fail-fast", "--", "--ignored", "soak", "routers"]);
            let mut soak = night.sized(soak);
            as_root(&mut soak)?;
            steps.tests("soaking, and routers of all kinds", soak)
        }
        Part::Schedules => {
            steps.tests("testing under many drawn schedules", night.sized(schedules::tests()))
        }
        Part::Addresses => checks::sanitized(steps),
        Part::Threads => run_threads(steps),
        Part::Fuzzing => run_targets(steps, night.fuzz_seconds),
        Part::Scenarios => run_scenarios(night, steps),
    }
}

fn run_scenarios(night: &Night<'_>, steps: &mut Steps) -> Result<()> {
    if steps.build("building the release", release::build(release::PROGRAMS))? {
        let mut scenarios = shell::program(release::program("calumma-testbed"));
        scenarios.args(["nightly", "--seeds", &night.seeds.to_string(), "--out"]);
        scenarios.arg(std::path::absolute(night.out).context("where to put what was played")?);
        scenarios.arg("--scenarios").arg(shell::root().join("testbed/scenarios"));
        steps.check("playing every scenario", scenarios)?;
    }
    Ok(())
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
        steps.side_by_side("fuzzing", commands(fuzz::targets()?, seconds)?, fuzz::executed)?;
    }
    if steps.build("building the fuzz target of SQL", fuzz::build_apart(nightly)?)? {
        let targets = commands(fuzz::targets_apart()?, seconds)?;
        steps.side_by_side("fuzzing SQL", targets, fuzz::executed)?;
    }
    Ok(())
}

fn commands(targets: Vec<Target>, seconds: u64) -> Result<Vec<(String, Command)>> {
    let command = |target: Target| Ok((target.title(), target.run(Built::Fully, seconds)?));
    targets.into_iter().map(command).collect()
}
