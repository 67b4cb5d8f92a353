//! `cargo xtask test`: formatting, lints, files and the documentation, the tests, the end-to-end
//! tests, which are marked `#[ignore]` because they need root or take long, the packages, SQL over
//! the archive, and the sketches and bindings to DPDK under AddressSanitizer. Goes through all of
//! it, prints how long each step took, and sums up at the end.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::fuzz::{self, Built, Target};
use crate::runner::{Runner, as_root};
use crate::sanitize::{self, Nightly};
use crate::schedules;
use crate::shell::cargo;
use crate::steps::{Job, Steps};
use crate::{machine, package, runner, tools};

pub(crate) fn run() -> Result<ExitCode> {
    let mut steps = Steps::start()?;
    steps.work("preparing the machine", || {
        machine::prepare()?;
        machine::prepare_tests();
        machine::add_rust_components()
    })?;

    let mut format = cargo();
    format.args(["fmt", "--all", "--check"]);
    steps.check("checking the formatting", format)?;

    let runner = Runner::choose();
    if steps.build("building the tests", runner.build()?)? {
        let mut end_to_end = runner.end_to_end()?;
        as_root(&mut end_to_end)?;
        if runner.runs_without_cargo() {
            // Many tests wait for something: what else there is to build is built meanwhile. The
            // end-to-end tests have the machine for themselves: packets of a switch that waits for
            // a compiler are late, whatever the compiler's priority, and captures say so.
            let background = Steps::beside(besides()?);
            steps.tests("testing", runner.tests()?)?;
            steps.join(background)?;
            steps.tests("testing end to end", end_to_end)?;
        } else {
            steps.tests("testing", runner.tests()?)?;
            steps.tests("testing end to end", end_to_end)?;
            steps.check("linting", lint())?;
            steps.check("checking files and the documentation", hygiene()?)?;
        }
        steps.check("testing the packages in a container", package::check_of_tests()?)?;
        steps.tests("testing the documentation's examples", runner::documentation())?;
    } else {
        steps.check("linting", lint())?;
    }
    steps.tests("testing under drawn schedules", schedules::tests())?;
    steps.tests("testing SQL over the archive", runner::queries())?;

    sanitized(&mut steps)?;
    fuzzed(&mut steps)?;
    Ok(steps.finish())
}

/// How long each fuzz target runs.
const FUZZ_SECONDS: u64 = 5;

/// What needs cargo, and tests that were built do not.
fn besides() -> Result<Vec<Job>> {
    let mut jobs = vec![Job::check("linting", lint())];
    jobs.push(Job::check("checking files and the documentation", hygiene()?));
    jobs.push(Job::build("building the tests of drawn schedules", only_built(schedules::tests())));
    jobs.push(Job::build("building SQL over the archive", only_built(runner::queries())));
    let deb = tools::deb_installation();
    jobs.extend(deb.map(|install| Job::build("building what packs the packages", install)));
    if let Some(nightly) = Nightly::find() {
        for (what, tests) in [
            ("vector instructions", sanitize::sketches(nightly)?),
            ("bindings", sanitize::dpdk(nightly)?),
        ] {
            let name = format!("building the {what} with AddressSanitizer");
            jobs.push(Job::build(&name, only_built(tests)));
        }
    }
    Ok(jobs)
}

/// Builds the fuzz targets and runs each for some seconds.
fn fuzzed(steps: &mut Steps) -> Result<()> {
    let mut targets = Vec::new();
    if steps.build("building the fuzz targets", fuzz::build_quickly())? {
        targets.extend(fuzz::targets()?);
    }
    if steps.build("building the fuzz target of SQL", fuzz::build_quickly_apart())? {
        targets.extend(fuzz::targets_apart()?);
    }
    let command = |target: Target| Ok((target.title(), target.run(Built::Quickly, FUZZ_SECONDS)?));
    let targets = targets.into_iter().map(command).collect::<Result<_>>()?;
    steps.side_by_side("fuzzing", targets, fuzz::executed)
}

/// `cargo test` that runs nothing.
fn only_built(mut tests: Command) -> Command {
    tests.arg("--no-run");
    tests
}

/// Runs what is tested under AddressSanitizer.
pub(crate) fn sanitized(steps: &mut Steps) -> Result<()> {
    let Some(nightly) = Nightly::find() else {
        steps.skip("AddressSanitizer", "it needs `rustup toolchain install nightly`");
        return Ok(());
    };
    let sketches = sanitize::sketches(nightly)?;
    steps.tests("testing the vector instructions with AddressSanitizer", sketches)?;
    let dpdk = sanitize::dpdk(nightly)?;
    steps.tests("testing the bindings to DPDK with AddressSanitizer", dpdk)
}

/// `cargo xtask hygiene`.
fn hygiene() -> Result<Command> {
    let mut hygiene = Command::new(std::env::current_exe().context("finding this program")?);
    hygiene.arg("hygiene");
    Ok(hygiene)
}

fn lint() -> Command {
    let mut lint = cargo();
    lint.args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    // Fuzz targets are checked, not linked: what links them need not be built.
    lint.env("CUSTOM_LIBFUZZER_PATH", "not-linked/libfuzzer.a");
    lint
}
