//! The command line of `calumma-switchd`.
//!
//! The systems that the daemon knows are given by whoever runs it, so that a program with one more
//! is a few lines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use calumma_bfrt::Info;
use calumma_wire::Role;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Config;
use crate::system::{Build, System, Target};
use crate::{daemon, fits, marks, system};

/// The control plane of a Tofino switch of Calumma: fills the tables of its P4 program
/// (p4src/edge.p4 for ChameleMon), keeps epochs on it, collects its sketches and sends them to the
/// controller.
///
/// The switch's driver must run with the program loaded. SIGHUP reads ports, routes and the
/// carrier's DSCP again; the file's other parts want a restart.
#[derive(Parser)]
#[command(name = "calumma-switchd", version, args_conflicts_with_subcommands = true)]
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
    /// Print the constants that a system's P4 program is built with, for a controller's
    /// configuration or for the default one.
    ///
    /// Where they belong, and which macros the program needs beside them, goes to standard error.
    Contract {
        /// The system.
        #[arg(long, value_name = "NAME", default_value = "chamelemon")]
        system: String,

        /// The role of the switch; of a system of several the first of these.
        #[arg(long, value_enum)]
        role: Option<SwitchRole>,

        /// The chip; of cfs.p4 a Tofino 2 has rows of more places.
        #[arg(long, value_enum, default_value = "tofino")]
        target: Chip,

        /// The controller's configuration (TOML); ChameleMon's constants follow from its [layout],
        /// those of SketchINT from [sketchint].
        #[arg(long, value_name = "FILE")]
        controller: Option<PathBuf>,
    },

    /// Say which system's program a compiled one is, and whether it is as this daemon drives it,
    /// built for a controller's configuration or for the default one.
    Fits {
        /// What the compiler has written of the program's tables: bfrt.json (in Intel's SDE,
        /// bf-rt.json).
        #[arg(value_name = "FILE")]
        description: PathBuf,

        /// The role of the switch; of a system of several the first of these.
        #[arg(long, value_enum)]
        role: Option<SwitchRole>,

        /// The controller's configuration (TOML); ChameleMon's sizes follow from its [layout],
        /// those of SketchINT from [sketchint].
        #[arg(long, value_name = "FILE")]
        controller: Option<PathBuf>,
    },
}

/// A chip, by the name that compilers have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Chip {
    Tofino,
    Tofino2,
}

impl From<Chip> for Target<'_> {
    fn from(chip: Chip) -> Self {
        match chip {
            Chip::Tofino => Self::Tofino,
            Chip::Tofino2 => Self::Tofino2,
        }
    }
}

/// What a switch is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum SwitchRole {
    /// With hosts behind it.
    Edge,
    /// In the middle.
    Transit,
}

impl From<SwitchRole> for Role {
    fn from(role: SwitchRole) -> Self {
        match role {
            SwitchRole::Edge => Self::Edge,
            SwitchRole::Transit => Self::Transit,
        }
    }
}

/// The role that a system's program is built for: the one that was asked for, if it runs there.
fn role_of(system: &dyn System, asked: Option<SwitchRole>) -> anyhow::Result<Role> {
    let roles = system.roles();
    let role = asked.map(Role::from).or(roles.first().copied());
    role.filter(|role| roles.contains(role))
        .ok_or_else(|| anyhow!("{} does not run on switches of that role", system.name()))
}

/// Runs `calumma-switchd` by its command line, with those measurement systems.
pub fn main_with(systems: &'static [&'static dyn System]) -> ExitCode {
    calumma_switch_host::run("calumma-switchd", || {
        let arguments = Arguments::parse();
        match (arguments.command, &arguments.run.config) {
            (Some(Command::Contract { system, role, target, controller }), _) => {
                contract(systems, (&system, role, target.into()), controller.as_deref())
            }
            (Some(Command::Fits { description, role, controller }), _) => {
                fits(systems, (&description, role), controller.as_deref())
            }
            (None, Some(config)) => run(systems, config, arguments.run.check),
            (None, None) => Ok(()),
        }
    })
}

fn run(systems: &'static [&'static dyn System], path: &Path, check: bool) -> anyhow::Result<()> {
    if check {
        let config = Config::load(path)?;
        println!("{}: a switch of {} ports", path.display(), config.ports.len());
        let kind = config.carrier.kind;
        println!("carrier.kind = {:?}: {}", kind.words(), kind.costs());
        return Ok(());
    }
    daemon::run(systems, path)
}

fn contract(
    systems: &[&dyn System],
    (name, role, target): (&str, Option<SwitchRole>, Target<'_>),
    controller: Option<&Path>,
) -> anyhow::Result<()> {
    let known = systems.iter().copied().find(|system| system.name() == name);
    let system =
        known.ok_or_else(|| anyhow!("no system {name:?}; there are {}", names(systems)))?;
    let role = role_of(system, role)?;
    let Build { constants, defines, .. } = build(system, (role, target), controller)?;
    let program = system.program();
    match constants {
        Some(constants) => {
            print!("{}", constants.text);
            eprintln!("these are p4src/{}, which {program} includes", constants.file);
        }
        None => eprintln!("{program} is built as it is, for every configuration"),
    }
    for (name, value) in defines {
        eprintln!("compile {program} with -D {name}={value}");
    }
    if role == Role::Edge && system.may_go_by_identification() {
        eprintln!("and with -D {}=1 where carrier.kind = \"ip-id\"", marks::DEFINE);
    }
    Ok(())
}

fn fits(
    systems: &[&dyn System],
    (description, role): (&Path, Option<SwitchRole>),
    controller: Option<&Path>,
) -> anyhow::Result<()> {
    let place = || description.display().to_string();
    let text = std::fs::read(description).with_context(place)?;
    let info = Info::from_json(&[&text]).with_context(place)?;
    let Some(system) = system::of_program(systems, &info) else {
        bail!("{}: no system's program; there are those of {}", place(), names(systems));
    };
    let on = (role_of(system, role)?, Target::Built(&info));
    let Build { needs, .. } = build(system, on, controller)?;
    fits::check(&info, &needs).with_context(place)?;
    let carrier = marks::of_program(&info);
    marks::check(&info, carrier).with_context(place)?;
    println!("{}: fits {}, carrier.kind = {:?}", place(), system.name(), carrier.words());
    Ok(())
}

/// How a system's program is built for a controller's configuration; without one, by default.
fn build(
    system: &dyn System,
    on: (Role, Target<'_>),
    controller: Option<&Path>,
) -> anyhow::Result<Build> {
    let Some(path) = controller else {
        return system.build(on, &toml::Table::new()).map_err(anyhow::Error::msg);
    };
    let place = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(place)?;
    let table = text.parse().with_context(place)?;
    system.build(on, &table).map_err(anyhow::Error::msg).with_context(place)
}

fn names(systems: &[&dyn System]) -> String {
    let names: Vec<_> = systems.iter().map(|system| system.name()).collect();
    names.join(", ")
}
