//! `calumma-switchd`: the control plane of a Tofino switch.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use calumma_bfrt::Info;
use calumma_chamelemon::Layout;
use calumma_switchd::chamelemon::{self, program};
use calumma_switchd::config::Config;
use calumma_switchd::{SYSTEMS, daemon, fits};
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The control plane of a Tofino switch of Calumma: fills the tables of its P4 program
/// (p4src/edge.p4 for ChameleMon), keeps epochs on it, collects its sketches and sends them to the
/// controller.
///
/// The switch's driver must run with the program loaded. SIGHUP reads ports, routes and the
/// carrier's DSCP again; the file's other parts want a restart.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: RunArguments,
}

#[derive(Args)]
struct RunArguments {
    /// The daemon's configuration (TOML); docs/tofino.md has one.
    #[arg(short, long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,

    /// Check the configuration, say what is wrong with it, and exit.
    #[arg(long)]
    check: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Print the constants that ChameleMon's P4 program is built with:
    /// chamelemon/generated/contract.p4 for the layout of a controller's configuration, or for the
    /// default layout.
    Contract {
        /// The controller's configuration (TOML), for its [layout].
        #[arg(long, value_name = "FILE")]
        controller: Option<PathBuf>,
    },

    /// Say whether a compiled program is ChameleMon's as this daemon drives it, and built for the
    /// layout of a controller's configuration, or for the default layout.
    Fits {
        /// What the compiler has written of the program's tables: bfrt.json (in Intel's SDE,
        /// bf-rt.json).
        #[arg(value_name = "FILE")]
        description: PathBuf,

        /// The controller's configuration (TOML), for its [layout].
        #[arg(long, value_name = "FILE")]
        controller: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let arguments = Arguments::parse();
    let result = match (arguments.command, &arguments.run.config) {
        (Some(Command::Contract { controller }), _) => contract(controller.as_deref()),
        (Some(Command::Fits { description, controller }), _) => {
            fits(&description, controller.as_deref())
        }
        (None, Some(config)) => run(config, arguments.run.check),
        (None, None) => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calumma-switchd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &Path, check: bool) -> anyhow::Result<()> {
    if check {
        let config = Config::load(path)?;
        println!("{}: a switch of {} ports", path.display(), config.ports.len());
        return Ok(());
    }
    daemon::run(&SYSTEMS, path)
}

fn contract(controller: Option<&Path>) -> anyhow::Result<()> {
    let layout = layout_of(controller)?;
    print!("{}", program::contract(&layout)?);
    for (name, value) in program::defines(&layout) {
        eprintln!("compile the program with -D {name}={value}");
    }
    Ok(())
}

fn fits(description: &Path, controller: Option<&Path>) -> anyhow::Result<()> {
    let layout = layout_of(controller)?;
    program::check(&layout)?;
    let place = || description.display().to_string();
    let text = std::fs::read(description).with_context(place)?;
    let info = Info::from_json(&[&text]).with_context(place)?;
    fits::check(&info, &chamelemon::needs(&layout)).with_context(place)?;
    println!("{}: fits", place());
    Ok(())
}

/// The layout in a controller's configuration; without one, the default.
fn layout_of(path: Option<&Path>) -> anyhow::Result<Layout> {
    #[derive(serde::Deserialize)]
    struct Controller {
        #[serde(default)]
        layout: Layout,
    }
    let Some(path) = path else { return Ok(Layout::default()) };
    let place = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(place)?;
    let controller: Controller = toml::from_str(&text).with_context(place)?;
    Ok(controller.layout)
}
