//! What a switch carries on one core, as a table, a drawing and JSON.

use std::collections::BTreeSet;
use std::io::stdout;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_benches::{edge, measure};
use calumma_cpus::Cpus;
use calumma_testbed::fabric;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// What calumma-edge carries on one core, beside DPDK's own forwarder and Open vSwitch
///
/// A generator floods a switch over net_memif, each on a CPU of its own; the switch sends on into
/// net_null. All switches take turns. Then what each step of an edge's work costs on its own. Needs
/// root, two CPUs, dpdk-testpmd, and the programs calumma-edge, calumma-controller and
/// calumma-testbed beside this one. Without Open vSwitch on DPDK its figures are null.
#[derive(Parser)]
struct Cli {
    /// Write the figures to this file, too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the figures into this directory, too (SVG and CSV)
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Readings of each trial
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of each reading
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Packets of 64 bytes and 100,000 flows only
    #[arg(long)]
    quick: bool,
    /// Only trials and steps whose name contains this, of a system also those that it is compared
    /// with; several of it to compare some
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    fabric::interrupt::install()?;
    // The controller, which this starts, shares the generator's CPU and not the switch's.
    Cpus::of_this_thread()?
        .besides(|cpu| cpu == edge::SWITCH_CPU)
        .pin()
        .context("keeping off the switch's CPU")?;
    let mut trials = edge::trials(cli.quick);
    let wanted =
        |name: &str| cli.only.is_empty() || cli.only.iter().any(|text| name.contains(text));
    trials.retain(|trial| {
        cli.only.is_empty() || cli.only.iter().any(|text| trial.is_asked_for(text))
    });
    let missing: BTreeSet<String> =
        trials.iter().filter_map(|trial| trial.switch.missing()).collect();
    for what in missing {
        eprintln!("not everything can be measured: {what}");
    }
    let rounds = usize::from(cli.rounds);

    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta} left  {msg}")?;
    let bar = ProgressBar::new((rounds * trials.len()) as u64).with_style(style);
    let duration = Duration::try_from_secs_f64(cli.seconds).context("--seconds")?;
    let mut figures = Vec::new();
    if !trials.is_empty() {
        let this = std::env::current_exe().context("finding this program's own file")?;
        let link = edge::Link::new(this.parent().context("this program's directory")?)?;
        figures = edge::run(&link, &trials, rounds, duration, |name| {
            bar.set_message(name.to_owned());
            bar.inc(1);
        })?;
    }
    bar.finish_and_clear();
    let in_cycles = edge::stages().into_iter().map(|case| {
        let name = case.name().replace(".ns", ".cycles");
        case.in_cycles(&name)
    });
    let mut steps: Vec<_> = edge::stages().into_iter().chain(in_cycles).collect();
    steps.extend(edge::stacks());
    steps.extend(edge::carriers());
    steps.retain(|step| wanted(step.name()));
    figures.extend(measure::in_turns(steps, rounds));
    // The EAL binds this thread to a CPU, so these come last.
    if wanted("edge.stage.pairs.ns") || wanted("edge.stage.routing.ns") {
        let eal = edge::eal()?;
        figures.extend(measure::in_turns(edge::forwarding(&eal)?, rounds));
    }

    measure::write_table(&figures, &mut stdout().lock())?;
    if let Some(file) = cli.json {
        measure::write_json(&figures, &file)?;
    }
    if let Some(folder) = cli.svg {
        edge::draw(&figures, &folder)?;
    }
    Ok(())
}
