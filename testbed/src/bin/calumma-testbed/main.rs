//! `calumma-testbed`: tries Calumma, and the machine it runs on, on real and recorded traffic.
//!
//! A file for each command: what it takes, and the call of the library that does it.

mod baseline;
mod circulate;
mod coverage;
mod demo;
mod disks;
mod figures;
mod generate;
mod host;
mod inspect;
mod int;
mod nightly;
mod output;
mod replay;
mod run;
mod soak;
mod tiny;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use calumma_testbed::fabric::{guard, interrupt};
use clap::{Parser, Subcommand};

/// Tries Calumma, and the machine it runs on, on real and recorded traffic.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Inspect),
    Int(int::Int),
    Replay(replay::Replay),
    Run(run::Run),
    Figures(figures::Figures),
    Traffic(traffic::Traffic),
    Demo(demo::Demo),
    Soak(soak::Soak),
    Circulate(circulate::Circulate),
    Coverage(coverage::Coverage),
    Nightly(nightly::Nightly),
    Tiny(tiny::Tiny),
    Disks(disks::Disks),
    Generate(generate::Generate),
    Baseline(baseline::Baseline),

    /// Remove what this run leaves, once its standard input ends (started by the testbed itself)
    #[command(hide = true)]
    Guard,

    #[command(flatten)]
    Host(host::Host),
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
        Command::Inspect(inspect) => inspect.run(),
        Command::Int(int) => int.run(),
        Command::Replay(replay) => replay.run(),
        Command::Run(run) => run.run(),
        Command::Figures(figures) => figures.run(),
        Command::Traffic(traffic) => traffic.run(),
        Command::Demo(demo) => demo.run(),
        Command::Soak(soak) => soak.run(),
        Command::Circulate(circulate) => circulate.run(),
        Command::Coverage(coverage) => coverage.run(),
        Command::Nightly(nightly) => nightly.run(),
        Command::Tiny(tiny) => tiny.run(),
        Command::Disks(disks) => disks.run(),
        Command::Generate(generate) => generate.run(),
        Command::Baseline(baseline) => baseline.run(),
        Command::Guard => guard::wait().map(|()| ExitCode::SUCCESS),
        Command::Host(host) => host.run(),
    }
}

/// Prepares for a run on real networks: gives this program's own file, and the guard that cleans up
/// where the run itself can't.
fn prepare() -> Result<(PathBuf, guard::Guard)> {
    interrupt::install()?;
    let testbed = std::env::current_exe().context("finding this program's own file")?;
    let guard = guard::Guard::start(&testbed)?;
    Ok((testbed, guard))
}
