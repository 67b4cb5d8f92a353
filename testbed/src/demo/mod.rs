//! The demo: the fabric with two `calumma-edge` processes and the controller in it, real traffic,
//! and the losses the controller reported beside those the routers' kernel counted.

mod compare;
mod fabric;
mod sketchint;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use calumma_controller::config::ShiftingMode;
use calumma_sketch::KeyKind;
use serde::Serialize;

pub use self::compare::{Comparison, Row};
pub use self::fabric::{FabricDemo, run as run_in_fabric};
pub use self::sketchint::{IntDemo, run as run_sketchint};
use crate::calumma::{Controller, Device, EPOCH, LOOPBACK, Measured, Place, Reports, Switch, Wire};
use crate::fabric::{Pair, Passage, Run, Tunnel, interrupt};
use crate::system::{self, Reported, System};
use crate::traffic::{self, Mix};

/// What the demo showed.
#[derive(Debug, Serialize)]
pub struct Demo {
    /// What the applications say.
    pub traffic: traffic::Report,
    /// Where the packets went, by the kernel's counters.
    pub passage: Passage,
    /// Copies of packets that the routers sent to where no edge is.
    pub mirrored: u64,
    /// Packets that went through the tunnel between the routers.
    pub tunnelled: u64,
    /// Both sides, flow by flow.
    pub comparison: Comparison,
}

/// What the demo's network is like.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// TCP and UDP packets that its routers drop, of a thousand.
    pub loss_permille: u16,
    /// `[carrier] kind` of the edges; unset, what the controller chooses.
    pub carrier: Option<String>,
    /// Whether its routers set the DSCP of all packets to 0, as networks do that trust no host's.
    pub clears_dscp: bool,
    /// Whether its routers send a copy of every packet to a port that leads to no edge.
    pub mirrors: bool,
    /// The tunnel through which its routers send each other everything, if any.
    pub tunnel: Option<Tunnel>,
}

/// Where the controller listens, in the switches' own namespace.
const CONTROLLER_PORT: u16 = 7600;

/// Packets an epoch that make a flow a heavy hitter.
const HEAVY_HITTER: u64 = 100;

/// How long the edges and the controller may take until a first epoch is complete.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Epochs that are waited for after the last packet.
const EPOCHS_AFTER: u32 = 3;

/// Runs the demo with a system alone, and writes `epochs.jsonl` and `truth.json` to `out`.
/// `testbed` is the calumma-testbed program, beside which those of the edge and the controller lie.
///
/// # Errors
/// When the user is not root, or something breaks down.
pub fn run(
    system: &'static dyn System,
    mix: &Mix,
    network: &Network,
    testbed: &Path,
    out: &Path,
) -> Result<Demo> {
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let epochs = out.join("epochs.jsonl");
    // What an earlier demo left would be taken for this one's.
    match fs::remove_file(&epochs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", epochs.display()));
        }
        _ => {}
    }

    let run = Run::begin()?;
    let pair = Pair::create(&run, network.loss_permille)?;
    if network.clears_dscp {
        pair.clear_dscp()?;
    }
    if network.mirrors {
        pair.mirror()?;
    }
    if let Some(tunnel) = network.tunnel {
        pair.tunnel(tunnel)?;
    }
    let kind = network.carrier.as_ref().map(|kind| format!("[carrier]\nkind = \"{kind}\"\n"));
    let more = kind.unwrap_or_default();
    let place = Place {
        run: &run,
        namespace: pair.switches(),
        testbed,
        controller: (LOOPBACK, CONTROLLER_PORT),
        pki: None,
        first: true,
    };
    let measured = Measured {
        system: system::name(system),
        keys: if mix.ipv6 { KeyKind::Dual } else { KeyKind::Ipv4 },
        heavy_hitter: HEAVY_HITTER,
        shifting: ShiftingMode::Shift,
    };
    let mut controller = Controller::start(place, pair.edges(), &epochs, &measured)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut switches = Vec::new();
    for (edge, name) in pair.edges().iter().enumerate() {
        let wire = Wire {
            name,
            role: "edge",
            lcores: &format!("0@{}", edge % cpus),
            ports: &Device::pair("net_af_packet0", "net_af_packet1"),
            devices: &pair.devices(edge),
            more: &more,
            idle_sleep_us: 50,
            idle_polls: None,
        };
        switches.push(Switch::start(place, &wire)?);
    }
    let show = Arc::new(AtomicBool::new(true));
    let reports = Reports::watch(&epochs, {
        let (show, mut has_begun) = (show.clone(), false);
        move |line| {
            let report = system.listed().read(line).and_then(|report| system.reported(&*report));
            let report = report.context("the report of another system")?;
            has_begun |= report.complete;
            if has_begun && show.load(Ordering::Relaxed) {
                println!("{}", report.to_line());
            }
            Ok(Some(report))
        }
    });
    let alive = |controller: &mut Controller, switches: &mut [Switch]| -> Result<()> {
        controller.check_running()?;
        switches.iter_mut().try_for_each(Switch::check_running)
    };
    reports.wait_until(
        "a first complete epoch",
        START_LIMIT,
        |report: &Reported| report.complete,
        || alive(&mut controller, &mut switches),
    )?;

    let traffic = mix.run(&pair, testbed, run.directory());
    // Without an edge no traffic gets through, but it is the edge that knows why.
    alive(&mut controller, &mut switches)?;
    let traffic = traffic?;
    pair.wait_quiet()?;
    let quiet_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
    let length_ns = EPOCH.as_nanos() as u64;
    let after_ns = quiet_ns + u64::from(EPOCHS_AFTER) * length_ns;
    reports.wait_until(
        "the epochs after the last packet",
        START_LIMIT,
        |report: &Reported| report.head.start_unix_ns >= after_ns,
        || alive(&mut controller, &mut switches),
    )?;
    interrupt::check()?;

    // What comes when switches stop is of no interest.
    show.store(false, Ordering::Relaxed);
    let passage = pair.passage()?;
    let losses = pair.losses()?;
    let mirrored = if network.mirrors { pair.mirrored()? } else { 0 };
    let tunnelled = network.tunnel.map_or(Ok(0), |tunnel| pair.tunnelled(tunnel))?;
    for switch in switches {
        switch.stop()?;
    }
    controller.stop()?;
    let reports = reports.finish()?;
    // While programs start and stop, epochs can't be complete, and no packet is on its way.
    let begin = reports.iter().position(|report| report.complete).unwrap_or_default();
    let end = reports.iter().rposition(|report| report.head.start_unix_ns <= after_ns);
    let reports = &reports[begin..end.map_or(begin, |last| last + 1)];
    ensure!(!reports.is_empty(), "the controller reported no complete epoch");

    let truth = out.join("truth.json");
    fs::write(&truth, serde_json::to_string_pretty(&losses)?)
        .with_context(|| format!("writing {}", truth.display()))?;
    let comparison = Comparison::new(reports, &losses);
    Ok(Demo { traffic, passage, mirrored, tunnelled, comparison })
}

impl Demo {
    /// Whether the controller's reports equal the kernel's counts for every flow.
    pub fn is_equal(&self) -> bool {
        self.comparison.differences() == 0
    }

    /// The result for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = self.comparison.to_text();
        for complaint in self.passage.complaints() {
            text += &format!("not by a router's rule: {complaint}\n");
        }
        text
    }
}
