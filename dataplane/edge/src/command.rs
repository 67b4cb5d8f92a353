//! The command line of `calumma-edge`.
//!
//! The systems that the switch knows are given by whoever runs it, so that a program with one more
//! is a few lines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use calumma_plane::system::System;
use calumma_ports::client::Client;
use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::{switch, top};

/// The software edge switch of Calumma: forwards packets between host-facing and fabric-facing
/// DPDK ports and records them, so that the controller can name every heavy hitter and every lost
/// packet.
///
/// DPDK's EAL arguments come after `--`. Each lcore polls one queue of every port.
#[derive(Parser)]
#[command(name = "calumma-edge", version, after_long_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: RunArguments,
}

#[derive(clap::Args)]
struct RunArguments {
    /// The switch's configuration (TOML); dpdk-config/ has ready ones.
    #[arg(short, long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,

    /// Check the configuration, say what is wrong with it, and exit.
    #[arg(long)]
    check: bool,

    /// When the switch stops, write its totals to this file as JSON.
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Arguments for DPDK's environment abstraction layer.
    #[arg(last = true, value_name = "EAL ARGUMENTS")]
    eal: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Show a running switch: packets, cycles, epochs, as they come
    ///
    /// Asks the address that the switch's configuration has under [metrics] listen.
    Top {
        /// The running switch's configuration
        #[arg(short, long, value_name = "FILE", required_unless_present = "address")]
        config: Option<PathBuf>,
        /// The address itself, where the configuration is not at hand
        ///
        /// With https:// before it where the switch has [metrics] tls.
        #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
        address: Option<String>,
        /// The authority of the switch's certificate for metrics (PEM), where it is no public one
        #[arg(long, value_name = "FILE", env = "CALUMMA_CA")]
        ca: Option<PathBuf>,
        /// File with a token for reading; without it, the environment's CALUMMA_TOKEN
        #[arg(long, value_name = "FILE", env = "CALUMMA_TOKEN_FILE")]
        token_file: Option<PathBuf>,
        /// Print an object a line
        #[arg(long)]
        json: bool,
        /// Seconds between two looks
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        every: f64,
        /// Stop after so many
        #[arg(long, value_name = "NUMBER")]
        times: Option<u64>,
    },
}

const EXAMPLES: &str = "\
Examples:
  Two network interfaces of the kernel, no hugepages:
    calumma-edge --config dpdk-config/af_packet.toml -- \\
        --no-huge -m 512 --no-pci -l 0 \\
        --vdev net_af_packet0,iface=eth1 --vdev net_af_packet1,iface=eth2

  The same switch while it runs:
    calumma-edge top --config dpdk-config/af_packet.toml

  Two ports of a NIC bound to vfio-pci, two lcores:
    calumma-edge --config dpdk-config/intel.toml -- -l 2,3 -a 0000:3b:00.0 -a 0000:3b:00.1";

/// Runs the program by its command line, with these systems, and gives how it ended. Errors are
/// printed.
pub fn main_with(systems: &'static [&'static dyn System]) -> ExitCode {
    calumma_switch_host::run("calumma-edge", || {
        let arguments = Arguments::parse();
        match arguments.command {
            Some(command) => show(command),
            None => run(&arguments.run, systems),
        }
    })
}

fn show(
    Command::Top { config, address, ca, token_file, json, every, times }: Command,
) -> anyhow::Result<()> {
    let address = match (address, config) {
        (Some(address), _) => address,
        (None, config) => {
            let path = config.unwrap_or_default();
            let metrics = Config::load(&path)?.metrics;
            let listen = metrics.listen.with_context(|| {
                format!("{}: has no [metrics] listen, so there is nothing to ask", path.display())
            })?;
            let scheme = if metrics.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{listen}")
        }
    };
    let interval = Duration::try_from_secs_f64(every).context("--every")?;
    let client = Client::of_files(&address, token_file.as_deref(), ca.as_deref())?;
    top::run(&top::Options { client, interval, times, json })
}

fn run(arguments: &RunArguments, systems: &'static [&'static dyn System]) -> anyhow::Result<()> {
    let path = arguments.config.as_deref().context("--config is missing")?;
    let config = Config::load(path)?;
    if arguments.check {
        println!("{}: valid: a switch of {} ports", path.display(), config.ports.len());
        config.on_carrier().iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let totals = switch::run(&config, path, &arguments.eal, systems)?;
    for (name, value) in &totals {
        println!("{name:>40} {value}");
    }
    if let Some(path) = &arguments.stats {
        let json = serde_json::to_string_pretty(&totals.into_iter().collect::<BTreeMap<_, _>>())?;
        std::fs::write(path, json).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
