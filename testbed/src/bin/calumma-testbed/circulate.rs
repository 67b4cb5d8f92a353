//! `circulate`: packets go round through one edge, every one accounted for.

use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::circulate::{self, Circles};
use clap::Args;

use crate::output::accounted;
use crate::prepare;

/// Let packets of all kinds go round through one edge as fast as it goes, and account for every one
/// of them
///
/// No generator takes a CPU: what leaves the edge enters it again. Exits with 1 unless every packet
/// received was sent or dropped for a reason, recorded in exactly one epoch on its way in and on
/// its way out, none is reported lost, and all memory for packets is given back at the end. Needs
/// root, and the programs calumma-edge and calumma-controller beside this one.
#[derive(Args)]
pub(crate) struct Circulate {
    /// Packets to pass through, at least
    #[arg(long, default_value_t = 1_000_000_000)]
    packets: u64,
    /// Lcores of the edge
    #[arg(long, default_value_t = 1)]
    lcores: usize,
    /// Give each lcore ports of its own: those used here keep their queues' counters side by side,
    /// so that lcores which share a port wait for each other's cache lines
    #[arg(long)]
    apart: bool,
}

impl Circulate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (testbed, _guard) = prepare()?;
        let circles = if self.apart { Circles::Apart } else { Circles::Shared };
        let result = circulate::run(self.packets, self.lcores, circles, &testbed)?;
        accounted(&result, &result.complaints())
    }
}
