//! `calumma-tna`: a modelled Tofino switch with network interfaces for ports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use calumma_interface::Interface;
use calumma_tna::{Program, Switch};
use calumma_tna_driver::{Driver, Pipe, Port};
use clap::Parser;
use tracing::info;
use tracing_subscriber::EnvFilter;

/// Runs a P4 program for Tofino without hardware, its ports on network interfaces, and offers the
/// switch driver's interface (BFRuntime over gRPC) for its control plane.
#[derive(Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct Arguments {
    /// The program's top-level file.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,

    /// The name that control planes bind; that of the file unless given.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A macro for the program.
    #[arg(short = 'D', value_name = "NAME=VALUE", value_parser = define)]
    define: Vec<(String, String)>,

    /// A port of the program and the network interface it is.
    #[arg(long, value_name = "NUMBER=INTERFACE", value_parser = port)]
    port: Vec<(u16, String)>,

    /// Print the description of the program's tables (JSON, as a compiler's bfrt.json), and
    /// exit.
    #[arg(long)]
    describe: bool,

    /// Where the driver's interface is offered.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50052")]
    grpc: SocketAddr,
}

const EXAMPLES: &str = "\
Example, with the CPU port 64 and two others:
  calumma-tna --program p4src/edge.p4 --port 1=veth1 --port 2=veth2 --port 64=veth64";

fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    Ok((name.to_owned(), value.to_owned()))
}

fn port(text: &str) -> Result<(u16, String), String> {
    let problem = || format!("{text}: a port is written NUMBER=INTERFACE, for example 1=veth1");
    let (number, interface) = text.split_once('=').ok_or_else(problem)?;
    Ok((number.parse().map_err(|_| problem())?, interface.to_owned()))
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calumma-tna: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = Program::load(&arguments.program, &arguments.define)?;
    if arguments.describe {
        println!("{}", String::from_utf8_lossy(&calumma_tna_driver::description(&program)));
        return Ok(());
    }
    let name = match arguments.name {
        Some(name) => name,
        None => {
            let stem = arguments.program.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        }
    };
    let mut ports = Vec::new();
    for (number, interface) in &arguments.port {
        ports.push(Port { number: *number, plug: Box::new(Interface::open(interface)?) });
    }
    info!(program = name, ports = ports.len(), grpc = %arguments.grpc, "running");
    let (pipe, thread) = Pipe::start(Switch::new(&program), ports)?;
    let driver = Driver::new(pipe, &name, &program);

    let (give_stop, stop) = tokio::sync::watch::channel(false);
    ctrlc::set_handler(move || {
        give_stop.send_replace(true);
    })
    .context("a handler for SIGINT and SIGTERM")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("the runtime of the driver's interface")?;
    runtime.block_on(driver.serve(arguments.grpc, stopped(stop)))?;
    // Whatever is still under way holds on to the pipe no longer.
    drop(runtime);
    let _ = thread.join();
    Ok(())
}

async fn stopped(mut stop: tokio::sync::watch::Receiver<bool>) {
    // An error means that nobody can tell any more.
    let _ = stop.wait_for(|stop| *stop).await;
}
