//! `demo`: two edges and a controller find what a network loses.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use calumma_cfs_analysis::Cfs;
use calumma_sketchint_analysis::SketchInt;
use calumma_testbed::demo;
use calumma_testbed::system::{self, SYSTEMS};
use calumma_testbed::traffic::Mix;
use clap::Args;

use crate::output::verdict;
use crate::prepare;

/// Watch two edge switches and the controller find every packet a network loses
///
/// Two hosts, two calumma-edge processes and between them Linux routers that drop packets at
/// random. Writes epochs.jsonl (the reports) and truth.json (the kernel's counts of what it
/// dropped). Exits with 1 unless they are equal for every flow. With --system cfs, two leaves and
/// two spines that are all calumma-edge processes, and a wire that loses packets; of what follows
/// only --seconds and --out count, and cfs.jsonl and cfs.wires.jsonl are written. With --system
/// sketchint, such a fabric as well, with ChameleMon beside it: sketchint.jsonl, epochs.jsonl and
/// truth.json (what captures at hosts and on both sides of every switch say) are written, and it
/// exits with 1 unless bytes, paths and packets are equal and latencies near. Needs root, and
/// the programs calumma-edge and calumma-controller beside this one; cleans up after itself, also
/// on Ctrl-C.
#[derive(Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    traffic: Traffic,
    /// The measurement system that finds what is lost
    #[arg(long, value_name = "NAME", default_value = "chamelemon")]
    system: String,
    /// How packets carry their mark: tos, ip-id, flow-label or shim; by default as the controller
    /// chooses, by ip-id
    #[arg(long, value_name = "KIND")]
    carrier: Option<String>,
    /// Let the routers set the DSCP of all packets to 0
    #[arg(long)]
    clear_dscp: bool,
    /// Where epochs.jsonl and truth.json go
    #[arg(long, default_value = "demo-out", value_name = "DIR")]
    out: PathBuf,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { traffic, system, carrier, clear_dscp, out } = self;
        let system = system::find(SYSTEMS, &system).context("--system")?;
        let (testbed, _guard) = prepare()?;
        if system::name(system) == system::name(&Cfs) {
            let result = demo::run_in_fabric(traffic.seconds, &testbed, &out)?;
            println!("\n{}", result.to_text());
            return Ok(verdict(result.is_equal()));
        }
        if system::name(system) == system::name(&SketchInt) {
            let result = demo::run_sketchint(traffic.seconds, &testbed, &out)?;
            println!("\n{}", result.to_text());
            return Ok(verdict(result.is_equal()));
        }
        let loss_permille = traffic.loss_permille;
        let network =
            demo::Network { loss_permille, carrier, clears_dscp: clear_dscp, ..Default::default() };
        let result = demo::run(system, &traffic.mix(), &network, &testbed, &out)?;
        println!("\n{}", result.to_text());
        Ok(verdict(result.is_equal()))
    }
}

#[derive(Args)]
pub(crate) struct Traffic {
    /// How long to send, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// TCP and UDP packets that are dropped, of a thousand
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=999))]
    pub(crate) loss_permille: u16,
    /// TCP from h1 to h2, in Mbit/s; a quarter of it goes back from h2 to h1
    #[arg(long, default_value_t = 200)]
    tcp_mbit: u32,
    /// UDP from h1 to h2, in Mbit/s
    #[arg(long, default_value_t = 50)]
    udp_mbit: u32,
    /// Short TCP connections from h1 to h2, spread over the time
    #[arg(long, default_value_t = 300)]
    connections: u32,
    /// Transfers over IPv6, short connections over IPv4, all in the same sketches
    #[arg(long)]
    ipv6: bool,
}

impl Traffic {
    pub(crate) fn mix(&self) -> Mix {
        let Self { seconds, tcp_mbit, udp_mbit, connections, ipv6, .. } = *self;
        Mix { seconds, tcp_mbit, udp_mbit, connections, ipv6 }
    }
}
