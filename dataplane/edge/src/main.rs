//! `calumma-edge`: the software edge switch.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use calumma_edge::config::Config;
use calumma_edge::switch;
use clap::Parser;
use tracing_subscriber::EnvFilter;

/// The software edge switch of Calumma: forwards packets between host-facing and fabric-facing
/// DPDK ports and records them, so that the controller can name every heavy hitter and every lost
/// packet.
///
/// DPDK's EAL arguments come after `--`. Each lcore polls one queue of every port.
#[derive(Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct Arguments {
    /// The switch's configuration (TOML); dpdk-config/ has ready ones.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

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

const EXAMPLES: &str = "\
Examples:
  Two network interfaces of the kernel, no hugepages:
    calumma-edge --config dpdk-config/af_packet.toml -- \\
        --no-huge -m 512 --no-pci -l 0 \\
        --vdev net_af_packet0,iface=eth1 --vdev net_af_packet1,iface=eth2

  Two ports of a NIC bound to vfio-pci, two lcores:
    calumma-edge --config dpdk-config/pci.toml -- -l 2,3 -a 0000:3b:00.0 -a 0000:3b:00.1";

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calumma-edge: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = Config::load(&arguments.config)?;
    if arguments.check {
        println!("{}: a switch of {} ports", arguments.config.display(), config.ports.len());
        return Ok(());
    }
    let totals = switch::run(&config, &arguments.config, &arguments.eal)?;
    for (name, value) in &totals {
        println!("{name:>40} {value}");
    }
    if let Some(path) = &arguments.stats {
        let json = serde_json::to_string_pretty(&totals.into_iter().collect::<BTreeMap<_, _>>())?;
        std::fs::write(path, json).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
