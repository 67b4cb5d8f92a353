//! How long the controller takes from an epoch's last sketch to the next attention, how many bytes
//! edges send it, and how many edges one process serves.

use std::cell::RefCell;
use std::io::stdout;
use std::path::PathBuf;

use anyhow::{Context, Result};
use calumma_benches::controller;
use calumma_benches::cooperation::Cooperation;
use calumma_benches::crowd::Crowd;
use calumma_benches::load::{self, Load};
use calumma_benches::measure::{self, Figure};
use calumma_benches::network::{Keys, Network};
use calumma_benches::windows::Collection;
use clap::Parser;

/// Response, bytes and reach of the controller
///
/// First each step on one core: four edges at the paper's sizes, 25,000 flows at each, a window of
/// four SketchINT sinks with 9,000 flows and five hops, and two of a fat-tree whose 80 switches
/// have counted 800,000 flows by CFS, or 640,000 with residuals that decode. Then a controller of
/// its own (calumma-controller beside this program) under edges that speak the real protocol over
/// loopback, more and more of them until it does not keep up.
#[derive(Parser)]
struct Cli {
    /// Write the figures to this file, too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Readings of each step
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Leave the live controller out
    #[arg(long)]
    steps_only: bool,
    /// Only steps whose name contains this, and no live controller; several of it for some
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only run this many edges against a live controller, and print what came of it
    #[arg(long, value_name = "EDGES", conflicts_with = "json")]
    edges: Option<usize>,
    /// Length of an epoch in milliseconds, with --edges
    #[arg(long, default_value_t = 50, requires = "edges")]
    epoch_ms: u64,
    /// Flows at each edge in an epoch, with --edges
    #[arg(long, default_value_t = 1560, requires = "edges")]
    flows: usize,
    /// How long the edges send, in seconds, with --edges
    #[arg(long, default_value_t = 5, requires = "edges")]
    seconds: u64,
    /// Edges and controller speak TLS, with --edges
    #[arg(long, requires = "edges")]
    tls: bool,
    /// Connections beside the edges' that say nothing, with --edges
    #[arg(long, default_value_t = 0, requires = "edges")]
    idle: usize,
    /// Hostile peers beside the edges, which connect again once they were turned away, with --edges
    #[arg(long, default_value_t = 0, requires = "edges")]
    hostile: usize,
}

/// Flows at each edge where there are many: 100,000 over 64 edges.
const FLOWS: usize = 1560;

/// Flows at each of four edges: 100,000.
const MANY_FLOWS: usize = 25_000;

fn main() -> Result<()> {
    let cli = Cli::parse();
    let program = std::env::current_exe()?.with_file_name("calumma-controller");
    let controller = || {
        program.exists().then(|| program.clone()).with_context(|| {
            let path = program.display();
            format!("{path} is missing: cargo build --release -p calumma-controller")
        })
    };
    if let Some(edges) = cli.edges {
        let Cli { flows, epoch_ms, seconds, tls, idle, hostile, .. } = cli;
        let (controller, crowd) = (controller()?, Crowd { idle, hostile });
        let outcome = load::run(&Load { controller, edges, flows, epoch_ms, seconds, tls, crowd })?;
        println!("{}", serde_json::to_string_pretty(&outcome)?);
        return Ok(());
    }

    let network = Network::measure(4, MANY_FLOWS, Keys::Hosts);
    let random = Network::measure(4, MANY_FLOWS, Keys::Random);
    let mut collection = Collection::default();
    let cooperating = [Cooperation::full(), Cooperation::decoded()].map(RefCell::new);
    let mut steps = controller::steps(&network);
    steps.push(collection.case());
    steps.extend(cooperating.iter().flat_map(Cooperation::cases));
    let is_wanted =
        |name: &str| cli.only.is_empty() || cli.only.iter().any(|text| name.contains(text));
    steps.retain(|step| is_wanted(step.name()));
    let mut figures = measure::in_turns(steps, cli.rounds.into());
    let bytes = controller::bytes(&network, &random).into_iter().chain(collection.bytes());
    figures.extend(bytes.filter(|figure| is_wanted(&figure.name)));
    if !cli.steps_only && cli.only.is_empty() {
        figures.extend(live(&controller()?)?);
    }
    measure::write_table(&figures, &mut stdout().lock())?;
    if let Some(file) = cli.json {
        measure::write_json(&figures, &file)?;
    }
    Ok(())
}

/// A live controller under more and more edges.
fn live(program: &std::path::Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (epoch_ms, flows, steps) in [
        (50, FLOWS, &[4, 16, 64, 96, 128][..]),
        (10, FLOWS, &[4, 8, 16, 24]),
        (10, MANY_FLOWS, &[4]),
    ] {
        let mut sustained = 0;
        for &edges in steps {
            let controller = program.to_path_buf();
            let crowd = Crowd::default();
            let load = Load { controller, edges, flows, epoch_ms, seconds: 3, tls: false, crowd };
            let outcome = load::run(&load)?;
            eprintln!("{}", serde_json::to_string(&outcome)?);
            let name = |what: &str| format!("controller.{epoch_ms}ms.{edges}x{flows}.{what}");
            let (median, max) = outcome.response_ms;
            figures.push(Figure {
                name: name("response.ms"),
                unit: "ms",
                median,
                min: median,
                max,
            });
            figures.push(controller::exact(&name("cpu.us"), "us/edge", outcome.cpu_us));
            if !outcome.is_sustained() {
                break;
            }
            sustained = edges;
        }
        let name = format!("controller.{epoch_ms}ms.{flows}_flows.edges");
        figures.push(controller::exact(&name, "edges", sustained as f64));
    }
    Ok(figures)
}
