//! `calumma-testbed`: tries Calumma, and the machine it runs on, on real and recorded traffic.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_testbed::traffic::{Mix, short};
use calumma_testbed::{baseline, fabric, inspect};
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
