//! `replay`: a capture through two edges in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::replay::{self, Lose};
use clap::Args;

use crate::output::verdict;

/// Run a capture through two edge switches in virtual time, and report every epoch
///
/// The capture enters the network at edge e1 and leaves it at edge e2, by its own timestamps,
/// through the code of the live switches; the reports are those of the live controller, one JSON
/// object a line. Reads pcap and pcapng of any size as a stream. If the capture is cut short,
/// damaged or foreign, what is before that place is still reported, and the exit status is 1.
#[derive(Args)]
pub(crate) struct Replay {
    /// The capture
    trace: PathBuf,
    /// Where the reports go; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The controller's configuration: memory, thresholds, tasks, hash key; what else is in it
    /// does not matter here
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Length of an epoch in milliseconds, where it is not to be that of the configuration (50
    /// without one)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=3_600_000))]
    epoch_ms: Option<u64>,
    /// Lose packets whose ECN field says "congestion experienced" between the edges
    #[arg(long, conflicts_with = "drop_share")]
    drop_ce: bool,
    /// Lose this share of the packets (0 to 1) between the edges, at random
    #[arg(long, value_name = "SHARE")]
    drop_share: Option<f64>,
    /// Which packets --drop-share loses
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let lose = match self.drop_share {
            _ if self.drop_ce => Lose::CongestionExperienced,
            Some(share) => Lose::share(share, self.seed),
            None => Lose::Nothing,
        };
        let setup = replay::Setup::load(self.config.as_deref(), self.epoch_ms)?;
        replay::run(&self.trace, &self.out, setup, lose).map(verdict)
    }
}
