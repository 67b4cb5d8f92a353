//! `baseline`: the demo's network without Calumma.

use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::baseline;
use clap::Args;

use crate::demo::Traffic;
use crate::output::{print, verdict};
use crate::prepare;

/// Run the demo's network and traffic with dpdk-testpmd in place of the edges
///
/// Two hosts in network namespaces, two forwarders, and between them Linux routers that drop
/// packets at random. Shows what this machine carries without Calumma, and that these alone drop:
/// each hop is listed with what entered and left it. Exits with 1 if packets vanished anywhere
/// else. Needs root; cleans up after itself, also on Ctrl-C.
#[derive(Args)]
pub(crate) struct Baseline {
    #[command(flatten)]
    traffic: Traffic,
    /// Print JSON, with what was dropped of each flow
    #[arg(long)]
    json: bool,
}

impl Baseline {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (testbed, _guard) = prepare()?;
        let mix = self.traffic.mix();
        let result = baseline::run(&mix, self.traffic.loss_permille, &testbed)?;
        print(self.json, &result, || result.to_text(&mix))?;
        Ok(verdict(result.passage.only_routers_dropped()))
    }
}
