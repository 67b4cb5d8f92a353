//! `cargo xtask test`: formatting, lints, the tests, the end-to-end tests, which are marked
//! `#[ignore]` because they need root or take long, SQL over the archive, and the sketches and
//! bindings to DPDK under AddressSanitizer. Goes through all of it, prints how long each step took,
//! and sums up at the end.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::runner::{Runner, as_root};
use crate::sanitize::{self, Nightly};
use crate::shell::cargo;
use crate::steps::Steps;
use crate::{machine, runner};

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
        if runner.runs_without_cargo() {
            // Cargo has nothing more to build for the tests, so the linter can have its lock.
            let lint = Steps::beside("linting", &lint())?;
            steps.tests("testing", runner.tests()?)?;
            steps.join(lint)?;
        } else {
            steps.tests("testing", runner.tests()?)?;
            steps.check("linting", lint())?;
        }
        steps.tests("testing the documentation's examples", runner::documentation())?;
        let mut end_to_end = runner.end_to_end()?;
        as_root(&mut end_to_end)?;
        steps.tests("testing end to end", end_to_end)?;
    } else {
        steps.check("linting", lint())?;
    }
    steps.tests("testing SQL over the archive", runner::queries())?;

    sanitized(&mut steps)?;
    Ok(steps.finish())
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

fn lint() -> Command {
    let mut lint = cargo();
    lint.args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    // Fuzz targets are checked, not linked: what links them need not be built.
    lint.env("CUSTOM_LIBFUZZER_PATH", "not-linked/libfuzzer.a");
    lint
}
