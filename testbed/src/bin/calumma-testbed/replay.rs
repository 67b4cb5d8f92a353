//! `replay`: a capture through edges in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use calumma_testbed::replay::{self, Line, Lose, MOST_HOPS};
use clap::Args;

use crate::output::verdict;

/// Run a capture through two edge switches in virtual time, and report every epoch
///
/// The capture enters the network at edge e1 and leaves it at edge e2, by its own timestamps,
/// through the code of the live switches; the reports are those of the live controller, one JSON
/// object a line. Reads pcap and pcapng of any size as a stream. If the capture is cut short,
/// damaged or foreign, what is before that place is still reported, and the exit status is 1.
///
/// With other systems than ChameleMon alone, or switches between the edges, every report is held
/// against what came to each switch and what was lost, a table has a row for each, and the exit
/// status is 1 as well where one says for certain what is not so.
#[derive(Args)]
pub(crate) struct Replay {
    /// The capture
    trace: PathBuf,
    /// Where the reports go; - is standard output. Only ChameleMon alone needs it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The measurement systems that run
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "chamelemon")]
    system: Vec<String>,
    /// Switches that packets pass, the two edges among them; what is lost is lost in the middle
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=i64::from(MOST_HOPS)))]
    hops: u8,
    /// Flows that each switch's table of cfs holds, where it is not to be the configuration's
    #[arg(long, value_name = "N")]
    entries: Option<u32>,
    /// The controller's configuration: memory, thresholds, tasks, hash key, sections of systems;
    /// what else is in it does not matter here
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
    /// Write what the table has to this file as well, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let lose = match self.drop_share {
            _ if self.drop_ce => Lose::CongestionExperienced,
            Some(share) => Lose::share(share, self.seed),
            None => Lose::Nothing,
        };
        let setup = (self.config.as_deref(), self.epoch_ms);
        if self.system == ["chamelemon"] && self.hops == 2 && self.json.is_none() {
            let Some(out) = self.out else { bail!("--out: say where the reports go") };
            if self.entries.is_some() {
                bail!("--entries: of cfs, which does not run");
            }
            let setup = replay::Setup::load(setup.0, setup.1)?;
            return replay::run(&self.trace, &out, setup, lose).map(verdict);
        }
        let line = Line::load(setup, self.system, self.hops, self.entries)?;
        let (is_whole, outcome) = replay::run_line(&self.trace, self.out.as_deref(), line, lose)?;
        if self.out.is_some_and(|out| out.as_os_str() == "-") {
            eprint!("{}", outcome.to_text());
        } else {
            print!("{}", outcome.to_text());
        }
        let wrong: Vec<(u64, &str)> = outcome.contradictions().collect();
        for (epoch, words) in &wrong {
            eprintln!("the report on epoch {epoch} is WRONG: {words}");
        }
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&outcome)? + "\n";
            std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(verdict(is_whole && wrong.is_empty()))
    }
}
