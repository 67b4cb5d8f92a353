//! `figures`: those that come from simulated networks and captures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::figures;
use clap::Args;

/// Draw the ChameleMon paper's figures 7-9 and 14-22 from simulated networks, each beside its claim
///
/// Also the accuracy of every task over time on captures of real traffic. Writes NAME.svg, NAME.csv
/// and index.html.
#[derive(Args)]
pub(crate) struct Figures {
    /// Where they go
    #[arg(long, default_value = "figures-out", value_name = "DIR")]
    out: PathBuf,
    /// Only figures whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// The folder with the scenarios of each system
    #[arg(long, default_value = "testbed/scenarios", value_name = "DIR")]
    scenarios: PathBuf,
    /// The folder of mixed-captures.pcap and backbone-65k.pcap
    #[arg(long, default_value = "../shared/data", value_name = "DIR")]
    captures: PathBuf,
}

impl Figures {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let context = figures::Context::new(self.scenarios, self.captures);
        calumma_figures::produce(&figures::table(), &context, &self.only, &self.out)?;
        println!("{}", self.out.join("index.html").display());
        Ok(ExitCode::SUCCESS)
    }
}
