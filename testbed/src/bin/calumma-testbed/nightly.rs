//! `nightly`: all scenarios, many seeds of each.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::nightly;
use clap::Args;

use crate::output::verdict;

/// The long run: all scenarios simulated, many seeds of each
///
/// Takes hours. Exits with 1 if an expectation fails, or if any report claims to be exact and is
/// wrong; the seed that is printed plays it again.
#[derive(Args)]
pub(crate) struct Nightly {
    /// How many seeds of each scenario
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The folder with the scenarios of each system
    #[arg(long, default_value = "testbed/scenarios", value_name = "DIR")]
    scenarios: PathBuf,
    /// Where reports, truth, verdicts and a page of each scenario's first seed go
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Nightly {
    pub(crate) fn run(self) -> Result<ExitCode> {
        nightly::run(&self.scenarios, self.seeds, self.out).map(verdict)
    }
}
