//! The figures of the papers that are about sketches alone, measured and drawn.

use std::path::PathBuf;

use anyhow::Result;
use calumma_benches::figures::{Setup, table};
use calumma_figures::produce;
use clap::Parser;

/// The figures of the papers that are about sketches alone, measured and drawn
#[derive(Parser)]
struct Cli {
    /// Where drawings (SVG), numbers (CSV) and the page (index.html) go
    #[arg(long, value_name = "DIR", default_value = "figures-out")]
    out: PathBuf,
    /// Only figures whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// A few points and small workloads only
    #[arg(long)]
    quick: bool,
    /// Where the captures are; what needs one that is not there is skipped
    #[arg(long, value_name = "DIR", env = "CALUMMA_DATA", default_value = "../shared/data")]
    data: PathBuf,
}

fn main() -> Result<()> {
    let Cli { out, only, quick, data } = Cli::parse();
    produce(&table(), &Setup { data, quick }, &only, &out)?;
    println!("{}", out.join("index.html").display());
    Ok(())
}
