//! `run`: scenarios, simulated or live.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::scenario::command::{self, Order};
use clap::Args;

use crate::output::verdict;
use crate::prepare;

/// Play scenarios in a simulated or live network, and hold every report against what really
/// happened
///
/// A scenario is a file that says the network, its traffic, what changes when, and what the reports
/// are expected to say (docs/scenarios.md; testbed/scenarios has many). Edges, frames and
/// controller are the live ones' code in virtual time: the same seed gives the same reports. Exits
/// with 1 if an expectation fails, or if any report claims to be certain and is wrong.
#[derive(Args)]
pub(crate) struct Run {
    /// The scenarios
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// How many seeds of each, from its own on
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Where reports, truth and verdicts of each scenario's first seed go
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// In network namespaces, in real time, with real switches, routers and a real controller.
    /// Needs root, and the programs calumma-edge and calumma-controller beside this one
    #[arg(long)]
    live: bool,
    /// Length of epochs in milliseconds, where it is not to be that of the scenarios: the same
    /// packets in longer epochs are fewer a second
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=3_600_000))]
    epoch_ms: Option<u64>,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { scenarios: files, seeds, out, live, epoch_ms } = self;
        let (live, _guard) = live.then(prepare).transpose()?.unzip();
        command::run(&Order { files, seeds, out, epoch_ms, live }).map(verdict)
    }
}
