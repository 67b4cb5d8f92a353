//! Puts the switch together: ports, lcores, control thread; and takes it apart again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use calumma_cpus::Cpus;
use calumma_plane::arrival::Polls;
use calumma_plane::outlet::Outlets;
use calumma_plane::system::System;
use calumma_switch_host::Signals;
use calumma_wire::Role;
use dpdk::{Eal, Mempool, Port};
use tracing::{info, warn};

use crate::config::{Config, Polled, PortConfig, Settings};
use crate::control::links::Links;
use crate::control::systems::Systems;
use crate::control::{Control, Reload, Tools};
use crate::forward::assembly::Forwarding;
use crate::forward::thread::Routes;
use crate::lcore::emptied::Emptied;
use crate::lcore::exits::Exits;
use crate::lcore::forwarder::{Forwarder, Pairs};
use crate::lcore::stations::Stations;
use crate::lcore::{self, Finished, PortQueues};
use crate::live::{Line, Lines, sum};
use crate::measure::Measurement;
use crate::status::{Board, Named};
use crate::worker::Worker;
use crate::{metrics, pools, process, reports, telemetry};

/// Runs the switch until it is told to stop by SIGINT or SIGTERM, and gives its totals by name. On
/// SIGHUP it reads the file at `path` again, which `config` comes from. It measures by those of
/// `systems` that the controller wants.
///
/// # Errors
/// When the EAL, a port, a pool or the address for metrics can't be had, privileges can't be
/// dropped, or an lcore panicked.
pub fn run(
    config: &Config,
    path: &Path,
    eal_arguments: &[String],
    systems: &'static [&'static dyn System],
) -> anyhow::Result<Vec<(String, u64)>> {
    let role = Role::from(config.role);
    let signals = Signals::catch().context("handlers for SIGINT, SIGTERM and SIGHUP")?;
    let (stop, over) = (signals.stop.clone(), Arc::new(AtomicBool::new(false)));
    let board = Board::default();
    // The EAL pins this thread to an lcore's CPU, which threads would inherit that don't say
    // otherwise.
    let allowed = Cpus::of_this_thread().context("the CPUs that this process may use")?;
    let eal = Eal::init(eal_arguments)?;
    let cpus = match config.polling.control_cpu {
        Some(cpu) => Cpus::only(cpu).with_context(|| format!("polling.control_cpu: {cpu}"))?,
        None => allowed.besides(|cpu| eal.has_lcore_on(cpu)),
    };
    let metrics = metrics::serve(config, board.clone(), &cpus)?;
    telemetry::answer(&eal, &board)?;
    let tsc_hz = dpdk::tsc_hz();
    let lcore_numbers = eal.lcores();
    let lcores = lcore_numbers.len();
    let pool = Mempool::new(&eal, "packets", pools::to_receive(config, lcores), -1)?;
    let (ports, queues) = open_ports(&eal, config, &lcore_numbers, &pool)?;
    let exits = Exits::new(ports.iter().map(Port::number));
    let (forwarding, routers) =
        Forwarding::start(&eal, config, (&ports, &exits), lcores, &cpus, &over)?;
    if let Some(user) = &config.process.user {
        process::become_user(user)?;
    }
    let (name, dpdk) = (&config.name, dpdk::version());
    info!(switch = name, role = role.name(), lcores, ports = ports.len(), dpdk, "forwarding");
    if config.insecure {
        warn!(controller = config.controller, "insecure = true: no TLS is asked for");
    }
    let reporting = Reporting::start(config, lcores, &cpus)?;
    let routes = forwarding.routes();
    let watch = routes.as_ref().map(Routes::watch).unwrap_or_default();
    let (systems, mailboxes) = Systems::new(systems, role, lcores);
    let systems = adapt(systems, config).with_routes(watch).with_outlets(reporting.outlets());
    let (lines, lcore_lines) = Lines::new(lcores, tsc_hz);
    let for_totals = ports.clone();
    let control = Control::new(Tools {
        name: config.name.clone(),
        role,
        controller: config.controller.clone(),
        tls: config.tls.clone(),
        systems,
        lines,
        port_totals: Box::new(move || port_totals(&for_totals)),
        board,
        reload: Reload::new(path.to_owned(), signals, config.clone(), routes, metrics),
        most_held: config.process.most_held(),
        marking: config.marking(),
        slow_path: forwarding.counters(),
        links: Links::new(ports.clone(), exits.clone()),
        tsc_hz,
    });
    let settings = config.settings();
    let of_lcores = mailboxes.into_iter().zip(queues).zip(lcore_lines);
    let input = |((mailbox, queues), line)| {
        let line = Line { pool: Some(pool.clone()), ..line };
        (Worker::new(settings.policy, Measurement::new(mailbox)), queues, line)
    };
    let inputs: Vec<LcoreInput> = of_lcores.map(input).collect();

    let lcores_over = over.clone();
    let control_thread = cpus.spawn("control", move || control.run(&lcores_over))?;
    let finished = match routers {
        Some(routers) => run_lcores(&eal, inputs, routers, settings, &stop),
        None => {
            let pairs = pairs(config, lcores, &exits);
            run_lcores(&eal, inputs, pairs, settings, &stop)
                .map(|(finished, _)| (finished, Vec::new()))
        }
    };
    // No lcore hands anything on any more: what was is sent, and then all is counted.
    reporting.finish();
    over.store(true, Ordering::Relaxed);
    let controlled = control_thread.join();
    let (finished, routers) = finished?;

    let mut totals = match controlled {
        Ok((lines, of_control)) => {
            [totals_of_lcores(lines, &finished, tsc_hz), of_control].concat()
        }
        Err(_) => Vec::new(),
    };
    for (port, named) in port_totals(&ports) {
        totals.extend(named.into_iter().map(|(name, n)| (format!("port.{port}.{name}"), n)));
    }
    let (slow_path, others) = forwarding.finish(&routers);
    totals.extend(slow_path);
    // With queues, routers and ports gone, nobody holds an mbuf any more.
    drop((finished, routers, ports));
    let lost: u32 = others.iter().chain([&pool]).map(Mempool::in_use).sum();
    totals.push(("mbufs.lost".to_owned(), lost.into()));
    Ok(totals)
}

/// Systems for a switch that marks, strips and names itself as `config` says.
fn adapt(systems: Systems, config: &Config) -> Systems {
    let policy = config.policy();
    systems
        .with_carrier(policy.carrier)
        .with_carriers(config.carriers())
        .with_fabric_mtu(config.fabric_mtu())
        .with_strip(policy.strip)
        .with_ports(&config.name, config.ports.len())
}

/// What forwards between port pairs, for each of so many lcores.
fn pairs(config: &Config, lcores: usize, exits: &Exits) -> Vec<Pairs> {
    let stations = config.forwarding.skip_flooded.then(Arc::<Stations>::default);
    let of_lcore = || match (&stations, Role::from(config.role)) {
        (_, Role::Host) => Pairs::of_host(),
        (None, _) => Pairs::default(),
        (Some(stations), _) => Pairs::learning(stations.clone()),
    };
    (0..lcores).map(|_| of_lcore().with_exits(exits.clone())).collect()
}

/// The thread that reports single packets at once, where the file names a collector.
struct Reporting {
    outlets: Outlets,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reporting {
    fn start(config: &Config, lcores: usize, cpus: &Cpus) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let Some(reports) = &config.sketchint.reports else {
            return Ok(Self { outlets: Outlets::default(), over, thread: None });
        };
        let tracked = reports.tracked.word.unwrap_or(0);
        let made = Outlets::new(lcores, reports.packet_bytes.into(), tracked);
        let outlets = made.0.clone();
        let thread = reports::start(reports, made, cpus, over.clone())?;
        Ok(Self { outlets, over, thread: Some(thread) })
    }

    /// By which lcores hand packets on.
    fn outlets(&self) -> Outlets {
        self.outlets.clone()
    }

    /// Waits until all is sent that lcores have handed on.
    fn finish(self) {
        self.over.store(true, Ordering::Relaxed);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of telemetry reports has panicked");
        }
    }
}

/// What an lcore works with, but for its forwarder.
type LcoreInput = (Worker, Vec<PortQueues>, Line);

/// Runs all lcores, each with a forwarder, until `stop` is set; gives what they leave behind and
/// the forwarders.
fn run_lcores<F: Forwarder + Send>(
    eal: &Eal,
    inputs: Vec<LcoreInput>,
    forwarders: Vec<F>,
    settings: Settings,
    stop: &AtomicBool,
) -> dpdk::Result<(Vec<Finished>, Vec<F>)> {
    let inputs = inputs.into_iter().zip(forwarders).collect();
    let finished = eal.run_on_lcores(inputs, |((worker, ports, line), forwarder)| {
        // Where one lcore ends, even by a panic, the others must not go on without it.
        let _stop = StopOnDrop(stop);
        lcore::run(worker, ports, forwarder, settings, line, stop)
    })?;
    Ok(finished.into_iter().unzip())
}

/// Tells everybody to stop.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens all ports with a pair of queues for each lcore that polls them; gives the ports, and for
/// each lcore its queues.
fn open_ports(
    eal: &Eal,
    config: &Config,
    lcores: &[u32],
    pool: &Mempool,
) -> anyhow::Result<(Vec<Port>, Vec<Vec<PortQueues>>)> {
    let polled = config.polled(lcores)?;
    let mut ports = Vec::new();
    let mut by_lcore: Vec<Vec<PortQueues>> = lcores.iter().map(|_| Vec::new()).collect();
    for (at, port) in config.ports.iter().enumerate() {
        let polling: Vec<(usize, Polled)> = polled
            .iter()
            .enumerate()
            .filter_map(|(lcore, ports)| {
                Some((lcore, *ports.iter().find(|polled| polled.port == at)?))
            })
            .collect();
        let setup = dpdk::PortConfig {
            queues: u16::try_from(polling.len()).context("more lcores than a port has queues")?,
            rx_descriptors: port.rx_descriptors,
            tx_descriptors: port.tx_descriptors,
            timestamps: port.timestamps,
            ..dpdk::PortConfig::default()
        };
        let (opened, queues) = Port::open(eal, &port.name, setup, pool)?;
        let mtu = match config.sketchint.mtu {
            Some(mtu) => mtu,
            None => opened.mtu()?,
        };
        let emptied = Emptied::by(&opened.info()?.driver);
        ports.push(opened);
        for ((lcore, polled), (rx, tx)) in polling.into_iter().zip(queues) {
            let PortConfig { role, host_sink, .. } = *port;
            let (number, peer, polls) = (at as u16, polled.peer, Polls::default());
            by_lcore[lcore].push(PortQueues {
                rx,
                tx,
                number,
                role,
                host_sink,
                peer,
                polls,
                emptied,
                mtu,
            });
        }
    }
    Ok((ports, by_lcore))
}

/// The totals of all lcores, given what they have left behind.
fn totals_of_lcores(mut lines: Lines, finished: &[Finished], tsc_hz: u64) -> Vec<(String, u64)> {
    lines.finish(finished.iter().map(|lcore| lcore.report.clone()).collect());
    let report = sum(&lines.totals(), tsc_hz);
    report.counters.named().into_iter().chain(report.profile.named()).collect()
}

fn port_totals(ports: &[Port]) -> Vec<(String, Named)> {
    let mut totals = Vec::new();
    for port in ports {
        let Ok(stats) = port.stats() else { continue };
        let named = [
            ("rx_packets", stats.rx_packets),
            ("tx_packets", stats.tx_packets),
            ("rx_missed", stats.rx_missed),
            ("rx_errors", stats.rx_errors),
            ("rx_no_mbuf", stats.rx_no_mbuf),
            ("tx_errors", stats.tx_errors),
        ];
        let named = named.into_iter().map(|(name, total)| (name.to_owned(), total)).collect();
        totals.push((port.name().to_owned(), named));
    }
    totals
}
