//! `calumma`: what the controller knows, from a terminal. See `--help` and `docs/dashboard.md`.

mod cfs;
mod client;
mod flow;
mod hops;
mod watch;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};

use calumma_controller::api::{CarrierOrder, CarrierStatus, KeyRotated};

use client::Client;

/// Asks a running controller what the network carries and loses.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  calumma top
      victim flows, heavy hitters and the latest epochs, redrawn as they come
  calumma --controller 10.0.0.5:7601 epochs --last 100 --follow
      a line for each of the last 100 epochs, and for every one to come
  calumma flow 10.1.0.2:40000 10.2.0.2:5201 tcp
      what that flow carried and lost lately, epoch by epoch, and at which edges
  calumma flow 10.1.0.2:40000 10.2.0.2:5201 tcp --hops --last 1
      by which switches it went, and how long each had its packets, where SketchINT runs
  calumma epochs --last 1 --json | jq '.loss[0]'
      the flow that lost most in the last epoch
  calumma cfs flow 10.1.0.2:40000 10.2.0.2:5201 tcp
      what each switch counted of it, where cooperative flow selection runs
  CALUMMA_TOKEN=calumma-... calumma rotate-key
      another hash key, where somebody may know the one that switches hash by
  calumma -c https://c.example:7601 --ca ca.crt --token-file ~/.calumma-token top
      a controller on another host, with a certificate of its own authority"
)]
struct Arguments {
    /// Where the controller's HTTP API listens: `http` in its configuration; https:// before it
    /// where there is `[http_tls]`
    #[arg(long, short, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7601")]
    controller: String,
    /// The authority of the controller's certificate (PEM), where it is not one of the world's
    #[arg(long, value_name = "FILE", env = "CALUMMA_CA")]
    ca: Option<PathBuf>,
    /// File with a token: `calumma-controller token add` makes one. Changes need one that may
    /// operate
    #[arg(long, value_name = "FILE", env = "CALUMMA_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Ask,
}

#[derive(Subcommand)]
enum Ask {
    /// Watch victim flows, heavy hitters and the latest epochs in a table redrawn in place
    Top,
    /// A line for each of the latest epochs
    Epochs {
        #[command(flatten)]
        window: Window,
    },
    /// What one flow carried and lost, epoch by epoch, and at which edges it entered
    Flow {
        /// `10.1.0.2:40000 10.2.0.2:5201 tcp`, or source, destination, their ports and the
        /// protocol
        #[arg(required = true, value_name = "FLOW")]
        flow: Vec<String>,
        /// Its path and what it met at each switch instead, window by window, where SketchINT runs
        #[arg(long)]
        hops: bool,
        #[command(flatten)]
        window: Window,
    },
    /// Exact counts of cooperative flow selection: flows hop by hop, spreads, loops
    Cfs {
        #[command(subcommand)]
        ask: cfs::Ask,
    },
    /// Have the controller draw another hash key, by which all switches measure from one epoch on
    RotateKey,
    /// Where packets carry their marks, which carriers switches offer, and another one by command
    Carrier {
        /// Have this one chosen for switches whose files name none: tos, ip-id, or auto for the one
        /// that the controller would choose now. All switches begin anew within seconds
        #[arg(long, value_name = "CARRIER")]
        choose: Option<String>,
    },
    /// SQL over the controller's archive: `calumma query --help`
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Args, Clone, Copy)]
struct Window {
    /// How many epochs, ending with the newest
    #[arg(long, short = 'n', default_value_t = 20)]
    last: usize,
    /// Go on with every epoch to come, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// One JSON object a line instead of words
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read this has seen enough, as `head` has.
        Err(problem) if is_closed_pipe(&problem) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("calumma: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(problem: &anyhow::Error) -> bool {
    let error = problem.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (token, ca) = (arguments.token_file.as_deref(), arguments.ca.as_deref());
    let client = Client::new(&arguments.controller, token, ca)?;
    match arguments.command {
        Ask::Top => watch::top(&client),
        Ask::Epochs { window } => watch::epochs(&client, window),
        Ask::Flow { flow, hops, window } => {
            let wanted = flow::parse(&flow.join(" ")).map_err(anyhow::Error::msg)?;
            let show = if hops { hops::show } else { flow::show };
            show(&client, &wanted, window)
        }
        Ask::Cfs { ask } => cfs::show(&client, ask),
        Ask::RotateKey => rotate_key(&client),
        Ask::Carrier { choose } => carrier(&client, choose),
        Ask::Other(words) => other(&words),
    }
}

/// Has the hash key changed, and says from which epoch on the new one holds.
fn rotate_key(client: &Client) -> anyhow::Result<()> {
    let KeyRotated { effective_epoch } = client.post("/api/v1/hash-key/rotate")?;
    println!("all switches measure by a new hash key from epoch {effective_epoch} on");
    Ok(())
}

/// Shows where packets carry their marks, after another choice where one is wanted.
fn carrier(client: &Client, choose: Option<String>) -> anyhow::Result<()> {
    const PATH: &str = "/api/v1/carrier";
    let status: CarrierStatus = match choose {
        Some(carrier) => client.post_json(PATH, &serde_json::to_vec(&CarrierOrder { carrier })?)?,
        None => client.get(PATH)?,
    };
    let CarrierStatus { in_force, chosen, offers, missing, .. } = status;
    println!("in force: {}", in_force.as_deref().unwrap_or("nothing, as no edge is connected"));
    match chosen {
        Some(chosen) => println!("chosen: {}: {}", chosen.carrier, chosen.reason),
        None => println!("chosen: nothing, as no switch has left it to the controller"),
    }
    for (node, carriers) in offers {
        println!("{node} offers {}", carriers.join(", "));
    }
    missing.iter().for_each(|node| println!("{node} has not said what it offers"));
    println!("fabric_mtu: {}", status.fabric_mtu);
    for (node, packets) in status.above_fabric_mtu {
        println!("{node} has left {packets} packets out that are longer and may be fragmented");
    }
    status.remedy.iter().for_each(|remedy| println!("{remedy}"));
    Ok(())
}

/// Runs `calumma-WORD`, which lies beside this program or on the path: commands that bring much
/// with them, such as a database engine, are programs of their own.
fn other(words: &[OsString]) -> anyhow::Result<()> {
    let Some((word, rest)) = words.split_first() else { bail!("no command: see calumma --help") };
    let mut name = OsString::from("calumma-");
    name.push(word);
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(&name));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| name.clone().into());
    // Returns only where the program could not be started.
    let problem = Command::new(program).args(rest).exec();
    Err(problem).with_context(|| {
        format!("{}: no such command, for there is no {}", word.display(), name.display())
    })
}
