//! The program `calumma-controller`, for a list of systems: see its `--help` and
//! `docs/controller.md`.

use std::io::{IsTerminal, Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use calumma_analysis::System;
use clap::{Parser, ValueEnum};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use crate::carrier::needs_tos;
use crate::config::{Config, HashGenerators, ShiftingMode};
use crate::keep::Keep;
use crate::output::{Background, JsonLines, LiveTable, Output, PlainLines, may_wait};
use crate::server;

/// Collects every edge's sketches, epoch by epoch, and reports which flows lost how many packets,
/// beside heavy hitters, heavy changes, flow sizes, cardinality and entropy at each edge.
///
/// Start it before or after the edges; they keep trying to connect. Reports go to a live table on
/// the terminal, to a file of JSON lines with --out, and to HTTP with --http.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  calumma-controller --config docs/controller.toml
      edges connect to the address the file gives; a live table on the terminal
  calumma-controller --config c.toml --out epochs.jsonl --http 127.0.0.1:7601 --quiet
      then: curl 'http://127.0.0.1:7601/api/v1/epochs?last=1'
  calumma-controller --config c.toml --check
      says whether the file is right, and what it means
  calumma-controller pki init, then pki issue e1
      certificates for the controller and for the switch e1: see pki --help
  calumma-controller token add ada --role operate
      a token for the HTTP API, which changes need: see token --help

Signals:
  SIGHUP            read the configuration again, and certificates, what is revoked and tokens;
                    new systems, [topology], [attention] and [tasks] take effect;
                    a changed [attention] then holds, and nothing shifts before
                    'curl -X POST http://ADDRESS/api/v1/attention/release'
  SIGTERM, Ctrl-C   report the epochs still pending, then end

RUST_LOG=debug shows more of what goes on."
)]
struct Arguments {
    /// The deployment: edges, epochs, memory, attention. docs/controller.toml shows every field
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Write one JSON object per epoch to this file, each as soon as it is known
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where edges connect to, instead of `listen` in the configuration; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where the HTTP API listens, instead of `http` in the configuration
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Check the configuration, say what it means, and end
    #[arg(long)]
    check: bool,
    /// How log messages are written to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Show no epochs on the terminal
    #[arg(long, short)]
    quiet: bool,
    #[command(subcommand)]
    keep: Option<Keep>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// An object a line, for log collectors
    Json,
}

/// Systems that can run.
type Systems = &'static [&'static dyn System];

impl Arguments {
    /// The configuration's file; it is required where there is no other command.
    fn path(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(""))
    }

    fn config(&self, systems: Systems) -> anyhow::Result<Config> {
        let path = self.path();
        let mut config = Config::load_for(systems, path)?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.http = self.http.or(config.http);
        let exposure = config.check_exposure();
        exposure.map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?;
        Ok(config)
    }
}

/// Runs the program: a controller that can run these systems.
pub fn main(systems: Systems) -> ExitCode {
    let arguments = Arguments::parse();
    log(arguments.log_format);
    let ended = match &arguments.keep {
        Some(keep) => keep.run(),
        None => run(systems, &arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("calumma-controller: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

fn log(format: LogFormat) {
    let filter =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

fn run(systems: Systems, arguments: &Arguments) -> anyhow::Result<()> {
    let config = arguments.config(systems)?;
    if arguments.check {
        return check(systems, &config, arguments);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(cpus) = config.cpus() {
        // What this thread starts, and no one pins, writes reports out and runs where it does.
        cpus.pin().with_context(|| format!("cpus = {:?}: can't be used", config.cpus))?;
        runtime.on_thread_start(move || cpus.pin_or_warn());
    }
    let outputs = outputs(arguments)?;
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(systems, arguments, config, outputs))
}

/// Where reports go by the arguments. Terminals and pipes may stand still, and hold nobody up.
fn outputs(arguments: &Arguments) -> anyhow::Result<Vec<Box<dyn Output>>> {
    let mut outputs: Vec<Box<dyn Output>> = Vec::new();
    let mut background = Background::default();
    if let Some(path) = &arguments.out {
        let lines = JsonLines::create(path)?;
        if lines.may_wait()? {
            background.add_pipe("out", lines)?;
        } else {
            outputs.push(Box::new(lines));
        }
    }
    if !arguments.quiet {
        if stdout().is_terminal() {
            background.add_shown("terminal", LiveTable::new(stdout()))?;
        } else if may_wait(stdout()).context("standard output")? {
            background.add_shown("terminal", PlainLines::new(stdout()))?;
        } else {
            outputs.push(Box::new(PlainLines::new(stdout())));
        }
    }
    outputs.push(Box::new(background));
    Ok(outputs)
}

async fn serve(
    systems: Systems,
    arguments: &Arguments,
    config: Config,
    outputs: Vec<Box<dyn Output>>,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let edges = config.edges.clone();
    let running = server::start_with(systems, config, outputs).await?;
    announce(&running);
    info!("waiting for edges: {}", edges.join(", "));
    let mut supervisor = Supervisor::new();
    supervisor.notify(&[NotifyState::Ready]);
    loop {
        tokio::select! {
            () = supervisor.watchdog() => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = running.failed() => break,
            _ = hangup.recv() => {
                supervisor.notify_reload();
                match arguments.config(systems) {
                    Ok(config) => running.reload(&config),
                    Err(problem) => error!("{problem:#}; the old configuration stays"),
                }
                supervisor.notify(&[NotifyState::Ready]);
            }
        }
    }
    supervisor.notify(&[NotifyState::Stopping]);
    running.stop().await
}

/// systemd, where it started the controller: it is notified when that is ready, and that it
/// lives.
struct Supervisor {
    /// How often it expects a notice.
    beat: Option<tokio::time::Interval>,
}

impl Supervisor {
    fn new() -> Self {
        // Twice as often as asked for, so that one beat may come late.
        let beat = sd_notify::watchdog_enabled().map(|period| tokio::time::interval(period / 2));
        Self { beat }
    }

    fn notify(&self, what: &[NotifyState<'_>]) {
        if let Err(problem) = sd_notify::notify(what) {
            error!("systemd can't be notified: {problem}");
        }
    }

    fn notify_reload(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(problem) => error!("systemd can't be notified: {problem}"),
        }
    }

    /// Waits for the next beat and gives it; for ever where none is asked for.
    async fn watchdog(&mut self) {
        match &mut self.beat {
            None => std::future::pending().await,
            Some(beat) => {
                beat.tick().await;
                self.notify(&[NotifyState::Watchdog]);
            }
        }
    }
}

/// The line by which whoever started the controller knows that it listens, and where.
fn announce(running: &server::Running) {
    let http = running.http().map_or("null".to_owned(), |http| format!("\"{http}\""));
    let mut out = stdout();
    let _ = writeln!(out, "{{\"listen\":\"{}\",\"http\":{http}}}", running.listen());
    let _ = out.flush();
}

/// By which carriers edges may mark packets, as far as the configuration says.
fn marks(systems: Systems, config: &Config) -> String {
    if needs_tos(systems, &config.systems).is_some() {
        return "as all edges' files say, but by \"ip-id\": sketchint's INT stacks are known by a bit \
                of the ToS byte. Where files name none, by \"tos\""
            .to_owned();
    }
    if config.hash_generators == HashGenerators::Public {
        return "as all edges' files say, but by \"ip-id\": switches of releases that hash by public \
                generators don't know it"
            .to_owned();
    }
    let mtu = config.domain.fabric_mtu;
    format!(
        "as all edges' files say; where they name none, by \"ip-id\" if all switches offer it, as \
         Tofinos do that have a program compiled for it, and else by \"tos\" (calumma carrier). By \
         \"ip-id\" routers set the DSCP as they like, IPv4 without DF of more than {mtu} bytes is \
         not measured ([domain] fabric_mtu), and no link between edges may take less than {mtu}. By \
         \"tos\", which all can, what the network writes there puts epochs in doubt"
    )
}

fn check(systems: Systems, config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let clock = config.clock()?;
    let attention = config.planned_attention()?;
    let (layout, partition) = (&config.layout, attention.partition);
    let classifier: usize = layout.classifier.iter().map(|level| level.bytes()).sum();
    let bucket = layout.arithmetic.words() * 4;
    let encoders =
        layout.upstream_shape().total_buckets() + layout.downstream_shape().total_buckets();
    println!("{}: valid", arguments.path().display());
    println!("  edges        {} on {}", config.edges.join(", "), config.listen);
    for (what, names) in [("transits", &config.transits), ("hosts", &config.hosts)] {
        if !names.is_empty() {
            println!("  {what:<12} {}", names.join(", "));
        }
    }
    if let Some(topology) = &config.topology {
        let (switches, links) = (topology.switches(), topology.links().len());
        println!("  topology     {switches} switches, {links} links");
    }
    println!(
        "  nodes        {}",
        match (&config.tls, config.insecure) {
            (Some(tls), _) => format!("by TLS, with certificates of {}", tls.ca.display()),
            (None, true) => "without TLS, from anywhere (insecure = true)".to_owned(),
            (None, false) => "without TLS, from this host".to_owned(),
        }
    );
    println!("  systems      {}", config.systems.join(", "));
    println!("  marks        {}", marks(systems, config));
    println!(
        "  epochs       {} ms, reported by {} ms after their end at the latest",
        clock.length_ns() / 1_000_000,
        clock.length_ns() / 1_000_000 + config.grace_ms
    );
    println!(
        "  memory       {} KiB a group: classifier {} KiB, encoders {} KiB",
        (classifier + encoders * bucket) / 1024,
        classifier / 1024,
        encoders * bucket / 1024
    );
    println!(
        "  attention    t_h {}, t_l {}, sample rate {}, hh/hl/ll {}/{}/{} buckets an array",
        attention.t_h,
        attention.t_l,
        attention.sample_rate.as_f64(),
        partition.hh,
        partition.hl,
        partition.ll
    );
    let bounds = config.shifting.bounds(layout);
    println!(
        "  shifting     {}",
        match config.shifting.mode {
            ShiftingMode::Static => "none: attention stays as it is".to_owned(),
            mode => format!(
                "{}at least {}/{}/{} buckets an array{}",
                if mode == ShiftingMode::DryRun { "dry run, " } else { "" },
                bounds.min_hh,
                bounds.min_hl,
                bounds.min_ll,
                bounds.fixed_t_h.map_or(String::new(), |t_h| format!(", t_h {t_h}")),
            ),
        }
    );
    println!(
        "  tasks        heavy hitters above {} packets, heavy changes above {}",
        config.tasks.heavy_hitter, config.tasks.heavy_change
    );
    if let Some(archive) = &config.archive {
        println!("  archive      in {}", archive.dir.display());
    }
    if let Some(ipfix) = &config.ipfix {
        let flows = if ipfix.flows { ", with the flows of cfs" } else { "" };
        let delays = if ipfix.delays { ", with latencies of sketchint" } else { "" };
        println!("  ipfix        to {}{flows}{delays}", ipfix.collector);
    }
    if let Some(alerts) = &config.alerts {
        let hosts: Vec<String> = alerts.webhooks.iter().map(ToString::to_string).collect();
        let to = if hosts.is_empty() { "the log only" } else { &hosts.join(", ") };
        println!("  alerts       to {to}");
    }
    Ok(())
}
