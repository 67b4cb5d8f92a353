//! `soak`: edges for long, every packet accounted for.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::soak;
use clap::Args;

use crate::output::{accounted, verdict};
use crate::prepare;

/// Push packets through two edges over shared memory, and account for every one of them
///
/// dpdk-testpmd sends 64-byte packets as fast as it can, over net_memif, through calumma-edge
/// twice. Exits with 1 unless every packet is recorded in exactly one epoch, sent on or dropped for
/// a reason, and what was dropped is what the controller reports as lost. Needs root, dpdk-testpmd,
/// and the programs calumma-edge and calumma-controller beside this one.
#[derive(Args)]
pub(crate) struct Soak {
    /// Packets to send, at least
    #[arg(long, default_value_t = 100_000_000, conflicts_with_all = ["topology", "minutes"])]
    packets: u64,
    /// Lcores of each edge
    #[arg(long, default_value_t = 1)]
    lcores: usize,
    /// Instead, a live fabric of this topology (leaf-spine:4x2) whose links lose and double
    /// packets: every report is held against the kernel's log of them. With a modelled Tofino
    /// ("leaf-spine:2x1 e2=tofino") packets are few and epochs long
    #[arg(long, requires = "how_long")]
    topology: Option<String>,
    /// The measurement systems that run in the fabric. Where there are others than ChameleMon,
    /// every report is held against all packets on the wires next to switches, and with sketchint
    /// bytes against captures; inner switches measure with "s1=software" behind the topology
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "chamelemon")]
    #[arg(requires = "topology")]
    system: Vec<String>,
    /// How long the fabric is soaked
    #[arg(long, requires = "topology", group = "how_long")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Until edges and controller have been killed or stopped so many times, of Tofinos their
    /// control planes, four seconds apart, six where there is one or with cfs, or 15 with
    /// sketchint: reports have to be whole again soon, and the archive to have every epoch once
    #[arg(long, requires = "topology", group = "how_long")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    troubles: Option<u64>,
    /// Where troubles are drawn from
    #[arg(long, requires = "troubles", default_value_t = 1)]
    seed: u64,
    /// Where the fabric's reports, truth and verdicts go
    #[arg(long, requires = "topology", value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Soak {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (testbed, _guard) = prepare()?;
        if let Some(topology) = &self.topology {
            let fabric = soak::fabric::Fabric { topology, systems: &self.system };
            let held = match (self.troubles, self.minutes) {
                (Some(troubles), _) => soak::fabric::run_with_troubles(
                    fabric,
                    (troubles, self.seed),
                    self.out,
                    testbed,
                ),
                (None, minutes) => {
                    soak::fabric::run(fabric, minutes.unwrap_or(1), self.out, testbed)
                }
            };
            return held.map(verdict);
        }
        let result = soak::run(self.packets, self.lcores, &testbed)?;
        accounted(&result, &result.complaints())
    }
}
