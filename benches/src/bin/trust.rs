//! How far reports can be trusted in networks that do to packets what networks do, and what that
//! costs, as a table and as JSON.

use std::io::stdout;
use std::path::PathBuf;

use anyhow::Result;
use calumma_benches::{cases, controller, measure, workload};
use calumma_sketch::{HashFamily, HashKey};
use calumma_testbed::tiny::{self, Sum, Trouble};
use clap::Parser;

/// How far reports can be trusted in networks that re-mark, translate and hold up packets, and what
/// the secret hash costs
///
/// Thousands of tiny simulated networks, each of which also loses packets. `false` counts packets
/// that reports which claim to be exact name as lost, and that were not; `incomplete` is the share
/// of epochs whose report does not claim to be whole; `ghosts` are flows that no host sent.
#[derive(Parser)]
struct Cli {
    /// Write the figures to this file, too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Readings of the hash
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Networks of each kind
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    networks: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let packets = workload::zipf(63_000, 2_300_000, 1.1, 1);
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let hash = vec![cases::hash("trust.hash.ns", family, &packets)];
    let mut figures = measure::in_turns(hash, cli.rounds.into());
    let mut figure = |name: &str, unit, value: f64| {
        figures.push(controller::exact(name, unit, value));
    };
    let incomplete = |sum: &Sum| (sum.epochs - sum.complete) as f64 / sum.epochs.max(1) as f64;
    for (trouble, name) in [
        (Trouble::Strangers, "strangers"),
        (Trouble::Remarks, "remark"),
        (Trouble::Translation, "translation"),
        (Trouble::Late, "late"),
        (Trouble::Copies, "copies"),
        (Trouble::Chosen, "chosen"),
    ] {
        let sum = tiny::play(0..cli.networks, &[Trouble::Loss, trouble])?;
        figure(&format!("trust.{name}.incomplete"), "share", incomplete(&sum));
        figure(&format!("trust.{name}.false"), "packets", sum.false_lost as f64);
        figure(&format!("trust.{name}.hidden"), "packets", sum.hidden as f64);
        figure(&format!("trust.{name}.ghosts"), "flows", sum.ghosts as f64);
    }
    measure::write_table(&figures, &mut stdout().lock())?;
    if let Some(file) = cli.json {
        measure::write_json(&figures, &file)?;
    }
    Ok(())
}
