//! How far reports can be trusted in networks that do to packets what networks do, and what that
//! costs, as a table and as JSON.

use std::io::stdout;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use calumma_benches::crowd::Crowd;
use calumma_benches::load::{self, Load, Outcome};
use calumma_benches::measure::Figure;
use calumma_benches::{cases, controller, measure, workload};
use calumma_sketch::{HashFamily, HashKey};
use calumma_testbed::disks;
use calumma_testbed::tiny::{self, Sum, Trouble};
use clap::Parser;
use serde_json::Value;

/// How far reports can be trusted in networks that re-mark, translate and hold up packets, and what
/// the secret hash costs
///
/// Thousands of tiny simulated networks, each of which also loses packets. `false` counts packets
/// that reports which claim to be exact name as lost, and that were not; `incomplete` is the share
/// of epochs whose report does not claim to be whole; `ghosts` are flows that no host sent.
#[derive(Parser)]
struct Cli {
    /// Write the figures to this file, too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Readings of the hash
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Networks of each kind
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    networks: u64,
    /// Simulations of each kind in which nothing may be wrong
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Times that edges and controller of a live fabric are killed or stopped, four seconds apart;
    /// needs root. 0: none
    #[arg(long, default_value_t = 0)]
    troubles: u64,
    /// Edges of the live controller whose CPU time is compared with TLS and without; 16 of them are
    /// also run beside strangers that connect by the thousand; 0: none
    #[arg(long, default_value_t = 128)]
    edges: usize,
}

/// Epochs and flows of the live controller, and how often it is run either way.
const EPOCH_MS: u64 = 50;
const FLOWS: usize = 1560;
const LIVE_ROUNDS: usize = 3;

/// Who else connects to a live controller, and beside how many edges.
const CROWD: Crowd = Crowd { idle: 10_000, hostile: 1_000 };
const CROWDED_EDGES: usize = 16;

/// The live fabric in which programs are killed.
const FABRIC: &str = "leaf-spine:4x2";

fn main() -> Result<()> {
    let cli = Cli::parse();
    let packets = workload::zipf(63_000, 2_300_000, 1.1, 1);
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let hash = vec![cases::hash("trust.hash.ns", family, &packets)];
    let mut figures = measure::in_turns(hash, cli.rounds.into());
    let mut figure = |name: &str, unit, value: f64| {
        figures.push(controller::exact(name, unit, value));
    };
    let incomplete = |sum: &Sum| (sum.epochs - sum.complete) as f64 / sum.epochs.max(1) as f64;
    for (trouble, name) in [
        (Trouble::Strangers, "strangers"),
        (Trouble::Remarks, "remark"),
        (Trouble::Translation, "translation"),
        (Trouble::Late, "late"),
        (Trouble::Copies, "copies"),
        (Trouble::Chosen, "chosen"),
    ] {
        let sum = tiny::play(0..cli.networks, &[Trouble::Loss, trouble])?;
        figure(&format!("trust.{name}.incomplete"), "share", incomplete(&sum));
        figure(&format!("trust.{name}.false"), "packets", sum.false_lost as f64);
        figure(&format!("trust.{name}.hidden"), "packets", sum.hidden as f64);
        figure(&format!("trust.{name}.ghosts"), "flows", sum.ghosts as f64);
    }
    let networks = tiny::play(0..cli.seeds, &Trouble::HOLDS)?;
    let archives = disks::play(0..cli.seeds)?;
    let failures = networks.wrong.len() + archives.wrong.len();
    figure("trust.sim.seeds", "runs", (networks.networks + archives.runs) as f64);
    figure("trust.sim.failures", "runs", failures as f64);
    print!("{networks}");
    println!("{archives}");
    if cli.troubles > 0 {
        figure("trust.kill.runs", "kills", cli.troubles as f64);
        figure("trust.kill.false", "reports", kills(cli.troubles)? as f64);
    }
    if cli.edges > 0 {
        figures.extend(tls(cli.edges)?);
        figures.extend(crowded(cli.edges.min(CROWDED_EDGES))?);
    }
    measure::write_table(&figures, &mut stdout().lock())?;
    if let Some(file) = cli.json {
        measure::write_json(&figures, &file)?;
    }
    Ok(())
}

/// A live controller with so many edges and nobody else.
fn load(controller: PathBuf, edges: usize) -> Load {
    let (flows, epoch_ms, seconds) = (FLOWS, EPOCH_MS, 3);
    Load { controller, edges, flows, epoch_ms, seconds, tls: false, crowd: Crowd::default() }
}

/// A live controller whose edges speak TLS, with a crowd of strangers and without, in turns: when
/// reports come, how many of the epochs are complete, and memory.
fn crowded(edges: usize) -> Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("calumma-controller");
    let mut outcomes = [Vec::new(), Vec::new()];
    for round in 0..2 * LIVE_ROUNDS {
        let crowd = if round % 2 == 1 { CROWD } else { Crowd::default() };
        let load = Load { tls: true, crowd, ..load(program.clone(), edges) };
        outcomes[round % 2].push(load::run(&load)?);
    }
    let mut figures = Vec::new();
    for (name, outcomes) in ["calm", "crowd"].into_iter().zip(&outcomes) {
        let mut figure = |what: &str, unit, of: fn(&Outcome) -> f64| {
            let name = format!("trust.{name}.{what}");
            figures.push(Figure::of(name, unit, outcomes.iter().map(of).collect()));
        };
        figure("published.ms", "ms", |of| of.published_ms.0);
        figure("published.last.ms", "ms", |of| of.published_ms.1);
        figure("complete", "share", |of| of.complete as f64 / of.epochs as f64);
        figure("memory.mib", "MiB", |of| of.resident_bytes as f64 / f64::from(1 << 20));
        figure("connects", "connections", |of| of.crowd_connects as f64);
    }
    Ok(figures)
}

/// CPU time of a live controller for each edge and epoch by TLS and without, in turns, and the
/// ratio of both.
fn tls(edges: usize) -> Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("calumma-controller");
    let mut cpu_us = [Vec::new(), Vec::new()];
    for round in 0..2 * LIVE_ROUNDS {
        let (controller, tls) = (program.clone(), round % 2 == 1);
        let load = Load { tls, ..load(controller, edges) };
        cpu_us[usize::from(tls)].push(load::run(&load)?.cpu_us);
    }
    let [plain, secured] = cpu_us;
    let ratios = plain.iter().zip(&secured).map(|(plain, secured)| secured / plain).collect();
    Ok(vec![
        Figure::of("trust.plain.cpu.us".to_owned(), "us/edge", plain),
        Figure::of("trust.tls.cpu.us".to_owned(), "us/edge", secured),
        Figure::of("trust.tls.cpu.ratio".to_owned(), "of plain", ratios),
    ])
}

/// Has edges and controller of a live fabric killed and stopped so many times, and gives how many
/// reports claimed to be certain and were not. What else the soak asks for must hold.
fn kills(troubles: u64) -> Result<usize> {
    let program = std::env::current_exe()?.with_file_name("calumma-testbed");
    let out = std::env::temp_dir().join(format!("calumma-bench-kills-{}", std::process::id()));
    let mut soak = Command::new(program);
    soak.args(["soak", "--topology", FABRIC, "--troubles", &troubles.to_string(), "--out"]);
    let status = soak.arg(&out).status().with_context(|| format!("running {soak:?}"))?;
    let played = out.join("soak/played.json");
    let text = std::fs::read(&played).with_context(|| played.display().to_string())?;
    let wrong = contradictions(&serde_json::from_slice(&text)?);
    ensure!(status.success() || wrong > 0, "{soak:?} has failed: see {}", out.display());
    Ok(wrong)
}

/// The reports of what was played that contradict the truth.
fn contradictions(played: &Value) -> usize {
    match played {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                ("contradiction", Value::String(_)) => 1,
                _ => contradictions(value),
            })
            .sum(),
        Value::Array(values) => values.iter().map(contradictions).sum(),
        _ => 0,
    }
}
