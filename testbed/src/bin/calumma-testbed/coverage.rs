//! `coverage`: how many flows cooperating switches count.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use calumma_testbed::coverage::{Algorithm, Entries, Kind, Network, Outcome, Share, Trial};
use calumma_testbed::workload::Sizes;
use clap::Args;

/// How many of a network's flows its switches count exactly, each choosing by itself
///
/// Plays windows of new flows through the tables that switches use, and the decoder that the
/// controller uses, and sets what they count beside the most that tables could count.
#[derive(Args)]
pub(crate) struct Coverage {
    /// The network: a shape or a file, as `run` has it, or `zoo:FILE.gml`
    #[arg(long, default_value = "fat-tree:8")]
    topology: String,
    /// Flows of a window
    #[arg(long, default_value_t = 800_000, value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// Flows that each switch has room for; `uneven:N`: half of them for 1.6 N, half for 0.4 N
    #[arg(long, default_value = "10000")]
    entries: Entries,
    /// Tables of rows with so many flows each, as switching chips have, in place of whole ones
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    columns: Option<u8>,
    /// How switches choose
    #[arg(long, value_delimiter = ',', default_value = "fold,greedy,even,claim,random,same")]
    algorithm: Vec<Algorithm>,
    /// Share of the entries that are the table's where there is a residual; cells are the others.
    /// `auto`: a share of bytes, moved from window to window by how residuals decoded
    #[arg(long, default_value = "0.9")]
    alpha: Share,
    /// The residual, where it is to be another than the algorithm's own
    #[arg(long)]
    residual: Option<Kind>,
    /// Put flows that a switch before has claimed into residuals as well
    #[arg(long)]
    residual_claimed: bool,
    /// Packets of flows: one, unless they are `dctcp`, `vl2`, `hadoop`, `cache`,
    /// `constant:PACKETS` or `zipf:SKEW:LARGEST`
    #[arg(long)]
    sizes: Option<Sizes>,
    /// Look for the smallest entries of which all flows are counted, to a hundredth
    #[arg(long)]
    full: bool,
    /// Windows played, the last of which counts: 8, and 60 where alpha is `auto`
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Share of a window's flows that are new, from 0 to 1
    #[arg(long, default_value_t = 1.0)]
    churn: f64,
    /// Grade flows alike in all windows
    #[arg(long)]
    no_reseed: bool,
    /// Routers before a flow's first switch that take one off the time to live: up to this many
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..32))]
    routers_before: u8,
    /// Repetitions with other flows, ways and hash functions
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Write what came of each trial to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Coverage {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let of_other = |algorithm: &&Algorithm| {
            algorithm.has_residual() && algorithm.residual(self.residual) != Some(Kind::Fermat)
        };
        if self.alpha == Share::Auto
            && let Some(algorithm) = self.algorithm.iter().find(of_other)
        {
            bail!("{algorithm:?} with --alpha auto: say --residual fermat, whose bytes are shared");
        }
        let claims = self.algorithm.iter().find(|algorithm| algorithm.claims());
        if let (Some(algorithm), Some(_)) = (claims, self.columns) {
            bail!(
                "{algorithm:?} with --columns: a claim is by one limit, and each row has its own"
            );
        }
        let network = Network::load(&self.topology)?;
        println!(
            "{:12}  {:>9}  {:>8}  {:>8}  {:>10}  {:>8}  {:>11}  {:>5}",
            "", "entries", "coverage", "optimum", "duplicates", "decoded", "bytes/node", "wrong"
        );
        let mut lines = String::new();
        let mut right = true;
        for &algorithm in &self.algorithm {
            for seed in 1..=self.seeds {
                let outcome = self.play(&network, &self.trial(algorithm, seed))?;
                print(&outcome)?;
                right &= outcome.wrong == 0;
                lines.push_str(&serde_json::to_string(&outcome).context("an outcome as JSON")?);
                lines.push('\n');
            }
        }
        if let Some(file) = self.json {
            std::fs::write(&file, lines).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn trial(&self, algorithm: Algorithm, seed: u64) -> Trial {
        let packets = |sizes: Sizes| {
            // Spread over all places, in an order that has nothing to do with flows' numbers.
            let place = |flow: u32| f64::from(flow.wrapping_mul(0x9E37_79B1)) / 2_f64.powi(32);
            (0..self.flows).map(|flow| sizes.packets(place(flow), self.flows)).collect()
        };
        Trial {
            alpha: self.alpha,
            columns: self.columns,
            residual: self.residual,
            residual_claimed: self.residual_claimed,
            sizes: self.sizes.map(packets).unwrap_or_default(),
            windows: self.windows.unwrap_or(self.alpha.windows(8)),
            churn: self.churn,
            reseed: !self.no_reseed,
            routers_before: self.routers_before,
            ..Trial::new(algorithm, self.flows, self.entries, seed)
        }
    }

    fn play(&self, network: &Network, trial: &Trial) -> Result<Outcome> {
        if !self.full {
            return Ok(network.play(trial));
        }
        match network.smallest_full(trial) {
            Some(outcome) => Ok(outcome),
            None => bail!("{:?} never counted all {} flows", trial.algorithm, trial.flows),
        }
    }
}

fn print(outcome: &Outcome) -> Result<()> {
    let [name, entries] = [
        serde_json::to_value(outcome.algorithm).context("an algorithm's name")?,
        serde_json::to_value(outcome.entries).context("entries")?,
    ];
    println!(
        "{:12}  {:>9}  {:>8.4}  {:>8.4}  {:>10.4}  {:>8.4}  {:>11}  {:>5}",
        name.as_str().unwrap_or_default(),
        entries.to_string().trim_matches('"'),
        outcome.coverage,
        outcome.optimum,
        outcome.duplicates,
        outcome.decoded,
        outcome.bytes_per_node,
        outcome.wrong,
    );
    Ok(())
}
