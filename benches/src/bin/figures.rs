//! The figures of the papers, measured and drawn: those about sketches alone, and those about whole
//! networks, which the testbed simulates.

use std::path::PathBuf;

use anyhow::Result;
use calumma_benches::figures::{Setup, table};
use calumma_figures::produce;
use calumma_testbed::figures as networks;
use clap::Parser;

/// The figures of the papers, measured and drawn
#[derive(Parser)]
struct Cli {
    /// Where drawings (SVG), numbers (CSV) and the page (index.html) go
    #[arg(long, value_name = "DIR", default_value = "figures-out")]
    out: PathBuf,
    /// Only figures whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Figures about sketches only, with a few points and small workloads
    #[arg(long)]
    quick: bool,
    /// Where the captures are; what needs one that is not there is skipped
    #[arg(long, value_name = "DIR", env = "CALUMMA_DATA", default_value = "../shared/data")]
    data: PathBuf,
    /// The folder with each system's scenarios, which networks are simulated by
    #[arg(long, value_name = "DIR", default_value = "testbed/scenarios")]
    scenarios: PathBuf,
}

fn main() -> Result<()> {
    let Cli { out, only, quick, data, scenarios } = Cli::parse();
    let (sketches, networks) = (table(), networks::table());
    let in_networks = !quick && networks.iter().any(|figure| figure.name.contains(&only));
    if !in_networks || sketches.iter().any(|figure| figure.name.contains(&only)) {
        produce(&sketches, &Setup { data: data.clone(), quick }, &only, &out)?;
    }
    if in_networks {
        produce(&networks, &networks::Context::new(scenarios, data), &only, &out)?;
    }
    println!("{}", out.join("index.html").display());
    Ok(())
}
