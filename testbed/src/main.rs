//! `calumma-testbed`: tries Calumma, and the machine it runs on, on real and recorded traffic.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calumma_testbed::generator::{self, Pace, Popularity, Sizes};
use calumma_testbed::replay::{self, Lose};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::traffic::{Mix, http, short};
use calumma_testbed::{
    baseline, circulate, demo, fabric, figures, inspect, nightly, scenario, soak, workload,
};
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

    /// Play scenarios in a simulated or live network, and hold every report against what really happened
    ///
    /// A scenario is a file that says the network, its traffic, what changes when, and what the reports are expected to
    /// say (docs/scenarios.md; testbed/scenarios has many). Edges, frames and controller are the live ones' code in
    /// virtual time: the same seed gives the same reports. Exits with 1 if an expectation fails, or if any report claims
    /// to be certain and is wrong.
    Run {
        /// The scenarios
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
        /// How many seeds of each, from its own on
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// Where reports, truth and verdicts of each scenario's first seed go
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// In network namespaces, in real time, with real switches, routers and a real controller. Needs root, and
        /// the programs calumma-edge and calumma-controller beside this one
        #[arg(long)]
        live: bool,
        /// Length of epochs in milliseconds, where it is not to be that of the scenarios: the same packets in longer
        /// epochs are fewer a second
        #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=3_600_000))]
        epoch_ms: Option<u64>,
    },

    /// Draw the ChameleMon paper's figures 7-9 and 14-22 from simulated networks, each beside its claim
    ///
    /// Also the accuracy of every task over time on captures of real traffic. Writes NAME.svg, NAME.csv and index.html.
    Figures {
        /// Where they go
        #[arg(long, default_value = "figures-out", value_name = "DIR")]
        out: PathBuf,
        /// Only figures whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// The folder of the scenarios
        #[arg(long, default_value = "testbed/scenarios", value_name = "DIR")]
        scenarios: PathBuf,
        /// The folder of mixed-captures.pcap and backbone-65k.pcap
        #[arg(long, default_value = "../shared/data", value_name = "DIR")]
        captures: PathBuf,
    },

    /// Make up traffic as a capture, with the truth about each flow
    ///
    /// Every flow sends all its packets in every epoch. Packets of victim flows that are to be lost carry the ECN field
    /// "congestion experienced": `replay --drop-ce` loses them. For traffic straight into a DPDK port, see `generate`; into
    /// a simulated network, see `run`.
    Traffic {
        #[command(flatten)]
        made: MadeTraffic,
        /// Where the capture goes
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Where the list of flows goes: packets sent, and those of them that are marked, as JSON
        #[arg(long, value_name = "FILE")]
        truth: Option<PathBuf>,
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
        #[arg(long, default_value_t = 100_000_000, conflicts_with_all = ["topology", "minutes"])]
        packets: u64,
        /// Lcores of each edge
        #[arg(long, default_value_t = 1)]
        lcores: usize,
        /// Instead, a live fabric of this topology (leaf-spine:4x2) whose links lose and double packets: every report is
        /// held against the kernel's log of them
        #[arg(long, requires = "minutes")]
        topology: Option<String>,
        /// How long the fabric is soaked
        #[arg(long, requires = "topology", value_parser = clap::value_parser!(u64).range(1..=1440))]
        minutes: Option<u64>,
        /// Where the fabric's reports, truth and verdicts go
        #[arg(long, requires = "topology", value_name = "DIR")]
        out: Option<PathBuf>,
    },

    /// Let packets of all kinds go round through one edge as fast as it goes, and account for every one of them
    ///
    /// No generator takes a CPU: what leaves the edge enters it again. Exits with 1 unless every packet received was sent
    /// or dropped for a reason, recorded in exactly one epoch on its way in and on its way out, none is reported lost, and
    /// all memory for packets is given back at the end. Needs root, and the programs calumma-edge and calumma-controller
    /// beside this one.
    Circulate {
        /// Packets to pass through, at least
        #[arg(long, default_value_t = 1_000_000_000)]
        packets: u64,
        /// Lcores of the edge
        #[arg(long, default_value_t = 1)]
        lcores: usize,
    },

    /// The long run: all scenarios simulated, 100 seeds of each, at least 10,000 epochs
    ///
    /// Takes hours. Exits with 1 if an expectation fails, or if any report claims to be certain and is wrong; the seed that
    /// is printed plays it again.
    Nightly {
        /// How many seeds of each scenario
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The folder of the scenarios
        #[arg(long, default_value = "testbed/scenarios", value_name = "DIR")]
        scenarios: PathBuf,
        /// Where reports, truth, verdicts and a page of each scenario's first seed go
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },

    /// Remove what this run leaves, once its standard input ends (started by the testbed itself)
    #[command(hide = true)]
    Guard,

    /// Send packets into a DPDK port at line rate
    ///
    /// UDP packets of many flows over IPv4, made beforehand and sent by one lcore in poll mode. Prints how many the port took,
    /// as JSON; --truth writes how many of each flow. EAL arguments come after --, the device among them, as in
    /// `-- --no-huge -m 512 --no-pci --lcores 0@1 --vdev=net_memif0,role=client,socket=/run/e1.sock,socket-abstract=no`.
    Generate {
        #[command(flatten)]
        what: Sending,
        /// DPDK's name of the port
        #[arg(long, default_value = "net_memif0", value_name = "DEVICE")]
        port: String,
        /// Write how many packets of each flow were sent to this file, a JSON object a line
        #[arg(long, value_name = "FILE")]
        truth: Option<PathBuf>,
        /// After sending, stay until SIGINT or SIGTERM: whoever polls the other side of a memif port must leave first
        #[arg(long)]
        stay: bool,
        /// EAL arguments
        #[arg(last = true)]
        eal: Vec<String>,
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

    /// Answer HTTP requests (run by the testbed in a host's namespace)
    #[command(hide = true)]
    HttpServer { address: SocketAddr },

    /// Make HTTP requests and print what came of them as JSON (run by the testbed in a host's namespace)
    #[command(hide = true)]
    HttpClient {
        server: SocketAddr,
        #[arg(long)]
        requests: u32,
        #[arg(long)]
        seconds: u64,
    },

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
struct Sending {
    /// Number of flows
    #[arg(long, default_value_t = 100_000)]
    flows: usize,
    /// How often each flow is drawn: uniform, or zipf: and an exponent
    #[arg(long, default_value = "zipf:1.1")]
    popularity: Popularity,
    /// Length of packets in bytes, without the frame check sequence, or imix
    #[arg(long, default_value = "64")]
    size: Sizes,
    /// Share of the flows that are IPv6
    #[arg(long, default_value_t = 0.0)]
    ipv6: f64,
    /// Millions of packets a second; without, as fast as the port takes them
    #[arg(long, value_name = "MPPS", conflicts_with = "search")]
    rate: Option<f64>,
    /// Search for the highest rate at which the port refuses no packet
    #[arg(long)]
    search: bool,
    /// Seconds to send; where a rate is searched for, seconds of each trial
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds to send before anything is counted
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// The same seed sends the same packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Sending {
    fn plan(&self) -> Result<generator::Plan> {
        let seconds = |name: &str, value: f64| {
            Duration::try_from_secs_f64(value).with_context(|| format!("--{name} {value}"))
        };
        let pace = match self.rate {
            None if self.search => Pace::Search,
            None => Pace::Flood,
            Some(mpps) if mpps > 0.0 => Pace::Rate(mpps * 1e6),
            Some(mpps) => bail!("--rate {mpps}: a rate is above 0"),
        };
        Ok(generator::Plan {
            mix: generator::Mix {
                flows: self.flows,
                popularity: self.popularity,
                sizes: self.size,
                ipv6: self.ipv6,
                seed: self.seed,
            },
            pace,
            duration: seconds("seconds", self.seconds)?,
            warm_up: seconds("warm-up", self.warm_up)?,
        })
    }
}

#[derive(Args)]
struct MadeTraffic {
    /// Flows in every epoch
    #[arg(long, default_value_t = 1000)]
    flows: u32,
    /// Packets of a flow in an epoch: dctcp, vl2, hadoop, cache, constant:PACKETS or zipf:SKEW:LARGEST
    #[arg(long, default_value = "dctcp")]
    sizes: workload::Sizes,
    /// Share of the flows that lose packets, each 1 to 20 % of them
    #[arg(long, default_value_t = 0.0)]
    victims: f64,
    /// Share of the flows that are TCP; the others are UDP
    #[arg(long, default_value_t = 0.0)]
    tcp: f64,
    /// Share of the flows that are IPv6; the others are IPv4
    #[arg(long, default_value_t = 0.0)]
    ipv6: f64,
    /// Share of the flows that other ones take the place of in every epoch
    #[arg(long, default_value_t = 0.0)]
    churn: f64,
    /// The hosts: pair, leaf-spine:LxS, fat-tree:K, or a topology's file
    #[arg(long, default_value = "fat-tree:4x2")]
    topology: String,
    /// How many epochs
    #[arg(long, default_value_t = 1)]
    epochs: u32,
    /// Length of an epoch in milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    epoch_ms: u64,
    /// Share of an epoch over which a flow spreads its packets
    #[arg(long, default_value_t = 0.5)]
    spread: f64,
    /// Bytes of every packet on the wire, without its checksum
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=9000))]
    packet_bytes: u16,
    /// The same seed makes the same traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl MadeTraffic {
    fn record(self, out: &Path, truth: Option<&Path>) -> Result<u64> {
        let Self { flows, sizes, victims, tcp, ipv6, churn, .. } = self;
        let kind =
            workload::Traffic { flows, sizes, victims, tcp, ipv6, churn, ..Default::default() };
        let topology = Topology::load(&self.topology, Path::new("."), LinkQuality::default())?;
        let recording = workload::pcap::Recording {
            epochs: self.epochs,
            length_ns: self.epoch_ms * 1_000_000,
            spread: self.spread,
            packet_bytes: self.packet_bytes,
            seed: self.seed,
        };
        workload::pcap::record(kind, &topology, &recording, out, truth)
    }
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
    /// Transfers over IPv6, short connections over IPv4, all in the same sketches
    #[arg(long)]
    ipv6: bool,
}

impl Traffic {
    fn mix(&self) -> Mix {
        let Self { seconds, tcp_mbit, udp_mbit, connections, ipv6, .. } = *self;
        Mix { seconds, tcp_mbit, udp_mbit, connections, ipv6 }
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
        Command::Run { scenarios, seeds, out, live, epoch_ms } => {
            let (live, _guard) = live.then(prepare).transpose()?.unzip();
            let order = scenario::command::Order { files: scenarios, seeds, out, epoch_ms, live };
            scenario::command::run(&order).map(verdict)
        }
        Command::Figures { out, only, scenarios, captures } => {
            let context = figures::Context::new(scenarios, captures);
            calumma_figures::produce(&figures::table(), &context, &only, &out)?;
            println!("{}", out.join("index.html").display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Traffic { made, out, truth } => {
            let packets = made.record(&out, truth.as_deref())?;
            println!("{packets} packets in {}", out.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo { traffic, out } => {
            let (testbed, _guard) = prepare()?;
            let result = demo::run(&traffic.mix(), traffic.loss_permille, &testbed, &out)?;
            println!("\n{}", result.to_text());
            Ok(verdict(result.is_equal()))
        }
        Command::Guard => fabric::guard::wait().map(|()| ExitCode::SUCCESS),
        Command::Nightly { seeds, scenarios, out } => {
            nightly::run(&scenarios, seeds, out).map(verdict)
        }
        Command::Soak { topology: Some(topology), minutes: Some(minutes), out, .. } => {
            let (testbed, _guard) = prepare()?;
            soak::fabric::run(&topology, minutes, out, testbed).map(verdict)
        }
        Command::Soak { packets, lcores, .. } => {
            let (testbed, _guard) = prepare()?;
            let result = soak::run(packets, lcores, &testbed)?;
            accounted(&result, &result.complaints())
        }
        Command::Circulate { packets, lcores } => {
            let (testbed, _guard) = prepare()?;
            let result = circulate::run(packets, lcores, &testbed)?;
            accounted(&result, &result.complaints())
        }
        Command::Generate { what, port, truth, stay, eal } => {
            generate(&what.plan()?, &port, truth.as_deref(), stay, &eal)
        }
        Command::Baseline { traffic, json } => {
            let (testbed, _guard) = prepare()?;
            let mix = traffic.mix();
            let result = baseline::run(&mix, traffic.loss_permille, &testbed)?;
            print(json, &result, || result.to_text(&mix))?;
            Ok(verdict(result.passage.only_the_core_dropped()))
        }
        Command::HttpServer { address } => http::serve(address).map(|()| ExitCode::SUCCESS),
        Command::HttpClient { server, requests, seconds } => {
            let outcome = http::ask(server, requests, Duration::from_secs(seconds));
            print(true, &outcome, String::new)?;
            Ok(ExitCode::SUCCESS)
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

/// Prepares for a run on real networks: gives this program's own file, and the guard that cleans up where the run itself
/// can't.
fn prepare() -> Result<(PathBuf, fabric::guard::Guard)> {
    fabric::interrupt::install()?;
    let testbed = std::env::current_exe().context("finding this program's own file")?;
    let guard = fabric::guard::Guard::start(&testbed)?;
    Ok((testbed, guard))
}

fn generate(
    plan: &generator::Plan,
    port: &str,
    truth: Option<&Path>,
    stay: bool,
    eal: &[String],
) -> Result<ExitCode> {
    let (leave, left) = mpsc::channel();
    if stay {
        ctrlc::set_handler(move || leave.send(()).unwrap_or_default())
            .context("a handler for SIGINT and SIGTERM")?;
    }
    generator::run(plan, port, eal, |outcome| {
        if let Some(truth) = truth {
            let lines = outcome.truth.iter().map(serde_json::to_string);
            let lines = lines.collect::<Result<Vec<_>, _>>()?.join("\n");
            std::fs::write(truth, lines + "\n")
                .with_context(|| format!("writing {}", truth.display()))?;
        }
        print(true, outcome, String::new)?;
        if stay {
            left.recv().context("waiting for SIGINT")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints what became of some packets, and what does not add up.
fn accounted(result: &impl serde::Serialize, complaints: &[String]) -> Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(result)?);
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(verdict(complaints.is_empty()))
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
