//! `coverage`: how many flows cooperating switches count.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use calumma_testbed::coverage::{Algorithm, Network, Trial};
use clap::Args;

/// How many of a network's flows its switches count exactly, each choosing by itself
///
/// Plays windows of new flows of one packet each through the tables that switches use, and sets
/// what they count beside the most that they could count.
#[derive(Args)]
pub(crate) struct Coverage {
    /// The network: a shape or a file, as `run` has it
    #[arg(long, default_value = "fat-tree:8")]
    topology: String,
    /// Flows of a window
    #[arg(long, default_value_t = 800_000, value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// Flows that each switch has room for
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(256..=1 << 22))]
    entries: u32,
    /// How switches choose
    #[arg(long, value_delimiter = ',', default_value = "fold,greedy,even,claim,random,same")]
    algorithm: Vec<Algorithm>,
    /// Windows played, the last of which counts
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    windows: u32,
    /// Repetitions with other flows, ways and hash functions
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Write what came of each trial to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Coverage {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { topology, flows, entries, algorithm, windows, seeds, json } = self;
        let network = Network::load(&topology)?;
        println!(
            "{:12}  {:>8}  {:>8}  {:>10}  {:>5}",
            "", "coverage", "optimum", "duplicates", "wrong"
        );
        let mut lines = String::new();
        let mut right = true;
        for algorithm in algorithm {
            for seed in 1..=seeds {
                let trial = Trial { flows, entries, algorithm, windows, seed };
                let outcome = network.play(&trial);
                let name = serde_json::to_value(algorithm).context("an algorithm's name")?;
                println!(
                    "{:12}  {:>8.4}  {:>8.4}  {:>10.4}  {:>5}",
                    name.as_str().unwrap_or_default(),
                    outcome.coverage,
                    outcome.optimum,
                    outcome.duplicates,
                    outcome.wrong,
                );
                right &= outcome.wrong == 0;
                lines.push_str(&serde_json::to_string(&outcome).context("an outcome as JSON")?);
                lines.push('\n');
            }
        }
        if let Some(file) = json {
            std::fs::write(&file, lines).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
