//! `cargo xtask`: the commands of this repository. Each does its own set-up and asks nothing.

mod checks;
mod fuzz;
mod hygiene;
mod machine;
mod nightly;
mod p4;
mod package;
mod release;
mod runner;
mod sanitize;
mod schedules;
mod shell;
mod steps;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use nightly::{Night, Part};
use package::Programs;
use shell::sudo;

/// Set-up, demo and tests of Calumma
///
/// Needs cargo and a C linker. On Debian 12, Ubuntu 22.04 and 24.04 it installs the rest with apt,
/// through sudo where it isn't run by root; on other systems it says what to install.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch two software edge switches and the controller find every packet a network loses
    ///
    /// Two hosts, two calumma-edge processes and between them Linux routers that drop packets at
    /// random, all in network namespaces. Real TCP and UDP traffic runs for some seconds; then
    /// the losses the controller reported stand beside the kernel's own counts, flow by flow.
    /// Exits with 1 unless they are equal. Cleans up after itself, also on Ctrl-C.
    Demo {
        /// How long the traffic runs
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
        seconds: u32,
        /// The measurement system that finds what is lost
        #[arg(long, default_value = "chamelemon", value_name = "NAME", value_parser = known_system)]
        system: String,
        /// Where the reports and the kernel's counts go: epochs.jsonl and truth.json, with cfs
        /// cfs.jsonl and cfs.wires.jsonl, with sketchint sketchint.jsonl besides; its truth.json
        /// is what captures at hosts and on both sides of every switch say
        #[arg(long, default_value = "demo-out", value_name = "DIR")]
        out: PathBuf,
    },
    /// Measure how fast Calumma is on this machine, beside its peers
    #[command(subcommand)]
    Bench(Bench),
    /// Measure and draw the papers' figures, each beside its paper's claim, on one page
    ///
    /// Takes about half an hour; a few seconds with --quick, which leaves the simulated networks
    /// out.
    Figures {
        /// Where drawings (SVG), numbers (CSV) and the page (index.html) go
        #[arg(long, value_name = "DIR", default_value = "figures-out")]
        out: PathBuf,
        /// Only figures whose name contains this
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// Figures about sketches only, with a few points and small workloads
        #[arg(long)]
        quick: bool,
        /// Where real captures are, as in CALUMMA_DATA; figures of captures that are not there are
        /// skipped
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Compile all P4 programs for Tofino and print what each takes, ChameleMon's beside the
    /// published numbers
    ///
    /// Where p4c (with its Tofino backend) or bf-p4c is on the path; elsewhere it says that it
    /// skipped. What is compiled goes to target/p4.
    P4 {
        /// Only this system's program, or only variants whose name contains this
        #[arg(long, value_name = "SYSTEM")]
        only: Option<String>,
        /// Write the results to this file, too, as a JSON list
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Build Debian packages of the controller, the edge switch and the Tofino's control plane
    Package {
        /// Where they go; target/debian when left out
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Install, start and purge them in a container as well; needs root
        #[arg(long)]
        check: bool,
        /// Of the programs that `cargo xtask test` has built, for a check; builds nothing
        #[arg(long)]
        of_tests: bool,
    },
    /// Check what format, lints and tests leave out: the documentation, widths and lengths of files
    Hygiene {
        /// Check dependencies as well: licences, duplicates, unused ones; installs what that needs
        #[arg(long)]
        dependencies: bool,
    },
    /// Check the formatting, lint, and run every test, the end-to-end ones too
    Test,
    /// Run what takes hours: every scenario under 100 seeds, large sweeps and soaks, fuzzing,
    /// AddressSanitizer and ThreadSanitizer
    ///
    /// Every report of the simulated scenarios is held against what really happened. Exits with 1
    /// if one claims to be exact and is wrong, an expectation or a test fails, or a fuzz target
    /// finds something. Fuzzing and AddressSanitizer need nightly Rust. Corpora grow in the `fuzz`
    /// folders beside the targets.
    Nightly {
        /// Only these parts; all, one after another, when left out
        #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
        only: Vec<Part>,
        /// How many seeds of each scenario
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// How long each fuzz target runs
        #[arg(long, default_value_t = 600, value_name = "SECONDS")]
        fuzz: u64,
        /// Sweeps, soaks and drawn schedules as small as `cargo xtask test` has them
        #[arg(long)]
        small: bool,
        /// Where reports, truth, verdicts and a page with pictures of each scenario's first seed
        /// go
        #[arg(long, value_name = "DIR", default_value = "nightly-out")]
        out: PathBuf,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// Recording, hashing, decoding and adding, beside the peers, all in turns over the same
    /// packets
    Sketch {
        /// Write the results to this file, too, as a JSON list
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Instructions to use: scalar, avx2 or avx512; the fastest of the CPU when left out
        #[arg(long, value_name = "NAME")]
        engine: Option<String>,
        /// Only what has this in its name; several of it to compare some
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
    },
    /// The controller's response, the bytes it is sent, and how many edges it serves
    Controller {
        /// Write the results to this file, too, as a JSON list
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Only steps that have this in their name, and no live controller; several of it for some
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
    },
    /// How far reports can be trusted in networks that re-mark, translate and hold up packets,
    /// while programs are killed, and what the secret hash and TLS cost
    Trust {
        /// Write the results to this file, too, as a JSON list
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Times that edges and controller of a live fabric are killed or stopped, four seconds
        /// apart; 0: no live fabric, and no root that it takes
        #[arg(long, default_value_t = 20)]
        troubles: u64,
    },
    /// What an edge switch carries, beside DPDK's own forwarder and Open vSwitch on the same link;
    /// takes 25 minutes
    Edge {
        /// Write the results to this file, too, as a JSON list
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Draw the results into this directory, too (SVG and CSV)
        #[arg(long, value_name = "DIR")]
        svg: Option<PathBuf>,
        /// Packets of 64 bytes and 100,000 flows only; takes five minutes
        #[arg(long)]
        quick: bool,
        /// Only what has this in its name; of a system all that it is compared with;
        /// several of it to compare some
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo { seconds, system, out } => demo(seconds, &system, &out),
        Command::Bench(Bench::Sketch { json, engine, only }) => {
            let engine = engine.iter().flat_map(|name| ["--engine", name]);
            let more: Vec<&str> = engine.chain(each_only(&only)).collect();
            bench("sketch", json.as_deref(), &more)
        }
        Command::Bench(Bench::Controller { json, only }) => {
            bench("controller", json.as_deref(), &each_only(&only).collect::<Vec<_>>())
        }
        Command::Bench(Bench::Trust { json, troubles }) => {
            bench_trust(json.as_deref(), &troubles.to_string())
        }
        Command::Bench(Bench::Edge { json, svg, quick, only }) => {
            bench_edge(json.as_deref(), svg.as_deref(), quick, &only)
        }
        Command::Figures { out, only, quick, data } => {
            figures(&out, only.as_deref(), quick, data.as_deref())
        }
        Command::P4 { only, json } => p4::compile(only.as_deref(), json.as_deref()),
        Command::Package { out, check, of_tests } => {
            let programs = if of_tests { Programs::OfTests } else { Programs::Release };
            package::run(out.as_deref(), check, programs)
        }
        Command::Hygiene { dependencies } => hygiene::run(dependencies),
        Command::Test => checks::run(),
        Command::Nightly { only, seeds, fuzz, small, out } => {
            nightly::run(&Night { only: &only, seeds, fuzz_seconds: fuzz, small, out: &out })
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The system called `name`, where the product has one.
fn known_system(name: &str) -> Result<String, String> {
    // A system has a line in the controller's list, and its crate among the list's dependencies.
    let list = include_str!("../../systems/Cargo.toml");
    let of = |line: &'static str| Some(line.strip_prefix("calumma-")?.split_once("-analysis ")?.0);
    let known: Vec<&str> = list.lines().filter_map(of).collect();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("known systems are {}", known.join(", "))),
    }
}

fn demo(seconds: u32, system: &str, out: &std::path::Path) -> Result<ExitCode> {
    machine::prepare()?;
    shell::step("building the release");
    shell::run(release::build_demo())?;

    shell::step("running the demo");
    // Made here so that it belongs to whoever asked for it, also where the demo runs as root.
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let mut demo = sudo(release::demo_program("calumma-testbed"))?;
    demo.args(["demo", "--system", system, "--seconds", &seconds.to_string(), "--out"]).arg(out);
    let status = demo.status().with_context(|| format!("running {demo:?}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn figures(
    out: &std::path::Path,
    only: Option<&str>,
    quick: bool,
    data: Option<&std::path::Path>,
) -> Result<ExitCode> {
    machine::prepare()?;
    build_release()?;
    let mut figures = shell::program(release::program("figures"));
    figures.arg("--out").arg(std::path::absolute(out).context("where to put the figures")?);
    if let Some(only) = only {
        figures.args(["--only", only]);
    }
    if quick {
        figures.arg("--quick");
    }
    if let Some(data) = data {
        figures.arg("--data").arg(std::path::absolute(data).context("where the captures are")?);
    }
    shell::run(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds what is measured, and what measures.
fn build_release() -> Result<()> {
    shell::step("building the release");
    shell::run(release::build(release::PROGRAMS))
}

fn bench(name: &str, json: Option<&std::path::Path>, more: &[&str]) -> Result<ExitCode> {
    machine::prepare()?;
    build_release()?;
    let mut bench = shell::program(release::program(name));
    if let Some(json) = json {
        bench.arg("--json").arg(json);
    }
    bench.args(more);
    shell::run(bench)?;
    Ok(ExitCode::SUCCESS)
}

fn bench_trust(json: Option<&std::path::Path>, troubles: &str) -> Result<ExitCode> {
    machine::prepare()?;
    build_release()?;
    let program = release::program("trust");
    let mut bench = if troubles == "0" { shell::program(program) } else { sudo(program)? };
    if let Some(json) = json {
        bench.arg("--json").arg(json);
    }
    bench.args(["--troubles", troubles]);
    shell::run(bench)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments that say what to measure.
fn each_only(only: &[String]) -> impl Iterator<Item = &str> {
    only.iter().flat_map(|text| ["--only", text])
}

fn bench_edge(
    json: Option<&std::path::Path>,
    svg: Option<&std::path::Path>,
    quick: bool,
    only: &[String],
) -> Result<ExitCode> {
    machine::prepare()?;
    machine::prepare_peers();
    build_release()?;
    let mut bench = sudo(release::program("edge"))?;
    if let Some(json) = json {
        bench.arg("--json").arg(json);
    }
    if let Some(svg) = svg {
        bench.arg("--svg").arg(svg);
    }
    bench.args(quick.then_some("--quick")).args(each_only(only));
    shell::run(bench)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_is_not_known_is_refused_with_those_that_are() {
        assert_eq!(known_system("chamelemon").unwrap(), "chamelemon");
        let refused = known_system("hopps").unwrap_err();
        assert!(refused.starts_with("known systems are ") && refused.contains("chamelemon"));
        assert!(Cli::try_parse_from(["xtask", "demo", "--system", "hopps"]).is_err());
    }
}
