//! `disks`: archives on disks that fail.

use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::disks;

/// Archives on disks that fail, fill up, tear what is written and lose power at any moment
///
/// The disk is simulated, the archive is the controller's own. Prints how many epochs were
/// acknowledged, and for each run in which one of them is not there, or there twice, what plays it
/// again. Exits with 1 if there is one.
#[derive(clap::Args)]
pub(crate) struct Disks {
    /// The first run's seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many runs
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Print the figures as a line of JSON
    #[arg(long)]
    json: bool,
}

impl Disks {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let sum = disks::play(self.from..self.from.saturating_add(self.runs))?;
        if self.json {
            let disks::Sum { runs, acknowledged, deaths, failures, wrong } = &sum;
            let failed = wrong.len();
            println!(
                r#"{{"seeds":{runs},"failures":{failed},"acknowledged":{acknowledged},"deaths":{deaths},"disk_failures":{failures}}}"#
            );
        } else {
            println!("{sum}");
        }
        Ok(if sum.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
