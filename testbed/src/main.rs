//! `calumma-testbed`: tries Calumma, and the machine it runs on, on real and recorded traffic.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_testbed::replay::{self, Lose};
use calumma_testbed::traffic::{Mix, short};
use calumma_testbed::{baseline, demo, fabric, inspect, soak};
use clap::{Args, Parser, Subcommand};

/// Tries Calumma, and the machine it runs on, on real and recorded traffic.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read a capture and say what is in it, or where and why it can't be read
    ///
    /// Reads pcap and pcapng of any size as a stream. Exits with 1 if the file is cut short, damaged or foreign; what is
    /// before that place is still counted.
    Inspect {
        /// The capture
        trace: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Run a capture through two edge switches in virtual time, and report every epoch
    ///
    /// The capture enters the network at edge e1 and leaves it at edge e2, by its own timestamps, through the code of the live
    /// switches; the reports are those of the live controller, one JSON object a line. Reads pcap and pcapng of any size as
    /// a stream. If the capture is cut short, damaged or foreign, what is before that place is still reported, and the exit
    /// status is 1.
    Replay {
        /// The capture
        trace: PathBuf,
        /// Where the reports go; - is standard output
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// The controller's configuration: memory, thresholds, tasks, hash key; what else is in it does not matter here
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Length of an epoch in milliseconds, where it is not to be that of the configuration (50 without one)
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=3_600_000))]
        epoch_ms: Option<u64>,
        /// Lose packets whose ECN field says "congestion experienced" between the edges
        #[arg(long, conflicts_with = "drop_share")]
        drop_ce: bool,
        /// Lose this share of the packets (0 to 1) between the edges, at random
        #[arg(long, value_name = "SHARE")]
        drop_share: Option<f64>,
        /// Which packets --drop-share loses
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },

    /// Watch two edge switches and the controller find every packet a network loses
    ///
    /// Two hosts, two calumma-edge processes and between them a namespace that routes and drops packets at random. Writes
    /// epochs.jsonl (the reports) and truth.json (the kernel's counts of what it dropped). Exits with 1 unless they are equal
    /// for every flow. Needs root, and the programs calumma-edge and calumma-controller beside this one; cleans up after
    /// itself, also on Ctrl-C.
    Demo {
        #[command(flatten)]
        traffic: Traffic,
        /// Where epochs.jsonl and truth.json go
        #[arg(long, default_value = "demo-out", value_name = "DIR")]
        out: PathBuf,
    },

    /// Push packets through two edges over shared memory, and account for every one of them
    ///
    /// dpdk-testpmd sends 64-byte packets as fast as it can, over net_memif, through calumma-edge twice. Exits with 1 unless every
    /// packet is recorded in exactly one epoch, sent on or dropped for a reason, and what was dropped is what the controller
    /// reports as lost. Needs root, dpdk-testpmd, and the programs calumma-edge and calumma-controller beside this one.
    Soak {
        /// Packets to send, at least
        #[arg(long, default_value_t = 100_000_000)]
        packets: u64,
    },

    /// Run the demo's network and traffic with dpdk-testpmd in place of the edges
    ///
    /// Two hosts in network namespaces, two forwarders, and between them a namespace that routes and drops packets at
    /// random. Shows what this machine carries without Calumma, and that the core alone drops: each hop is listed with what
    /// entered and left it. Exits with 1 if packets vanished anywhere else. Needs root; cleans up after itself, also on
    /// Ctrl-C.
    Baseline {
        #[command(flatten)]
        traffic: Traffic,
        /// Print JSON, with what was dropped of each flow
        #[arg(long)]
        json: bool,
    },

    /// Answer short connections (run by the testbed in a host's namespace)
    #[command(hide = true)]
    ShortServer { address: SocketAddr },

    /// Open short connections and print what came of them as JSON (run by the testbed in a host's namespace)
    #[command(hide = true)]
    ShortClient {
        server: SocketAddr,
        /// Only wait until a first connection comes about
        #[arg(long)]
        wait: bool,
        #[arg(long, default_value_t = 1)]
        connections: u32,
        #[arg(long, default_value_t = 0)]
        seconds: u64,
    },
}

#[derive(Args)]
struct Traffic {
    /// How long to send, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// TCP and UDP packets the core drops, of a thousand
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=999))]
    loss_permille: u16,
    /// TCP from h1 to h2, in Mbit/s; a quarter of it goes back from h2 to h1
    #[arg(long, default_value_t = 200)]
    tcp_mbit: u32,
    /// UDP from h1 to h2, in Mbit/s
    #[arg(long, default_value_t = 50)]
    udp_mbit: u32,
    /// Short TCP connections from h1 to h2, spread over the time
    #[arg(long, default_value_t = 300)]
    connections: u32,
}

impl Traffic {
    fn mix(&self) -> Mix {
        let Self { seconds, tcp_mbit, udp_mbit, connections, .. } = *self;
        Mix { seconds, tcp_mbit, udp_mbit, connections }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Inspect { trace, json } => {
            let summary = inspect::summarise(&trace);
            print(json, &summary, || summary.to_text())?;
            Ok(verdict(summary.error.is_none()))
        }
        Command::Replay { trace, out, config, epoch_ms, drop_ce, drop_share, seed } => {
            let lose = match drop_share {
                _ if drop_ce => Lose::CongestionExperienced,
                Some(share) => Lose::share(share, seed),
                None => Lose::Nothing,
            };
            let setup = replay::Setup::load(config.as_deref(), epoch_ms)?;
            replay::run(&trace, &out, setup, lose).map(verdict)
        }
        Command::Demo { traffic, out } => {
            fabric::interrupt::install()?;
            let testbed = std::env::current_exe().context("finding this program's own file")?;
            let result = demo::run(&traffic.mix(), traffic.loss_permille, &testbed, &out)?;
            println!("\n{}", result.to_text());
            Ok(verdict(result.is_equal()))
        }
        Command::Soak { packets } => {
            fabric::interrupt::install()?;
            let testbed = std::env::current_exe().context("finding this program's own file")?;
            let result = soak::run(packets, &testbed)?;
            let complaints = result.complaints();
            println!("{}", serde_json::to_string_pretty(&result)?);
            complaints.iter().for_each(|complaint| println!("{complaint}"));
            Ok(verdict(complaints.is_empty()))
        }
        Command::Baseline { traffic, json } => {
            fabric::interrupt::install()?;
            let mix = traffic.mix();
            let testbed = std::env::current_exe().context("finding this program's own file")?;
            let result = baseline::run(&mix, traffic.loss_permille, &testbed)?;
            print(json, &result, || result.to_text(&mix))?;
            Ok(verdict(result.passage.only_the_core_dropped()))
        }
        Command::ShortServer { address } => short::serve(address).map(|()| ExitCode::SUCCESS),
        Command::ShortClient { server, wait: true, .. } => {
            short::wait_for(server, Duration::from_secs(20)).map(|()| ExitCode::SUCCESS)
        }
        Command::ShortClient { server, connections, seconds, .. } => {
            let outcome = short::connect(server, connections, Duration::from_secs(seconds));
            print(true, &outcome, String::new)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a result as JSON, or as text for people.
fn print(json: bool, value: &impl serde::Serialize, text: impl Fn() -> String) -> Result<()> {
    let mut output = if json { serde_json::to_string_pretty(value)? } else { text() };
    if !output.ends_with('\n') {
        output.push('\n');
    }
    io::stdout().write_all(output.as_bytes()).context("writing the result")
}
