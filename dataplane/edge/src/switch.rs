//! Puts the switch together: ports, lcores, control thread; and takes it apart again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::Context;
use dpdk::{Eal, Mempool, Port};
use tracing::{info, warn};

use crate::config::Config;
use crate::control::Control;
use crate::control::collect::Collector;
use crate::counters::Counters;
use crate::lcore::{self, PortQueues};
use crate::measure::Measurement;
use crate::profile::Profile;
use crate::worker::Worker;

/// Mbufs beyond those that may lie in descriptors: bursts, caches, a device's own.
const SPARE_MBUFS: u32 = 4096;

/// Runs the switch until it is told to stop by SIGINT or SIGTERM, and gives its totals by name.
///
/// # Errors
/// When the EAL, a port or a pool can't be had, or an lcore panicked.
pub fn run(config: &Config, eal_arguments: &[String]) -> anyhow::Result<Vec<(String, u64)>> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    ctrlc::set_handler(move || told.store(true, Ordering::Relaxed))
        .context("a handler for SIGINT and SIGTERM")?;
    // Started before the EAL pins this thread to an lcore's CPU, which new threads would inherit.
    let (hand_over, control) = mpsc::channel::<Control>();
    let (stopped, cpu) = (stop.clone(), config.polling.control_cpu);
    let control_thread =
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            if let Some(id) = cpu
                && !core_affinity::set_for_current(core_affinity::CoreId { id })
            {
                warn!(cpu = id, "the control thread can't be pinned to polling.control_cpu");
            }
            if let Ok(control) = control.recv() {
                control.run(&stopped);
            }
        })?;

    let eal = Eal::init(eal_arguments)?;
    let lcores = eal.lcores().len();
    let descriptors: u32 = config
        .ports
        .iter()
        .map(|port| u32::from(port.rx_descriptors) + u32::from(port.tx_descriptors))
        .sum();
    let mbufs = (descriptors * lcores as u32 + SPARE_MBUFS).next_power_of_two() - 1;
    let pool = Mempool::new(&eal, "packets", mbufs, -1)?;
    let (ports, queues) = open_ports(&eal, config, lcores, &pool)?;
    info!(edge = config.name, lcores, ports = ports.len(), dpdk = dpdk::version(), "forwarding");

    let (collector, mailboxes) = Collector::new(lcores);
    let for_totals = ports.clone();
    let control = Control::new(config, collector, Box::new(move || port_totals(&for_totals)));
    let workers: Vec<(Worker, Vec<PortQueues>)> = mailboxes
        .into_iter()
        .map(|mailbox| Worker::new(config.policy(), Measurement::new(mailbox)))
        .zip(queues)
        .collect();

    let polling = config.polling;
    if hand_over.send(control).is_err() {
        anyhow::bail!("the control thread has ended early");
    }
    let finished = eal.run_on_lcores(workers, |(worker, ports)| {
        // Where one lcore ends, even by a panic, the others must not go on without it.
        let _stop = StopOnDrop(&stop);
        lcore::run(worker, ports, polling, &stop)
    });
    stop.store(true, Ordering::Relaxed);
    let _ = control_thread.join();
    let finished = finished?;

    let mut counters = Counters::default();
    let mut profile = Profile::new(dpdk::tsc_hz());
    for lcore in &finished {
        counters += &lcore.worker.counters;
        profile.add(&lcore.profile);
    }
    let mut totals = counters.named();
    totals.extend(profile.named());
    totals.extend(port_totals(&ports));
    Ok(totals)
}

/// Tells everybody to stop.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens all ports with a pair of queues for each lcore; gives the ports, and for each lcore its
/// queues.
fn open_ports(
    eal: &Eal,
    config: &Config,
    lcores: usize,
    pool: &Mempool,
) -> anyhow::Result<(Vec<Port>, Vec<Vec<PortQueues>>)> {
    let mut ports = Vec::new();
    let mut by_lcore: Vec<Vec<PortQueues>> = (0..lcores).map(|_| Vec::new()).collect();
    for (port, peer) in config.ports.iter().zip(config.peers()) {
        let setup = dpdk::PortConfig {
            queues: u16::try_from(lcores).context("more lcores than a port has queues")?,
            rx_descriptors: port.rx_descriptors,
            tx_descriptors: port.tx_descriptors,
            ..dpdk::PortConfig::default()
        };
        let (opened, queues) = Port::open(eal, &port.name, setup, pool)?;
        ports.push(opened);
        for (lcore, (rx, tx)) in by_lcore.iter_mut().zip(queues) {
            lcore.push(PortQueues { rx, tx, role: port.role, peer });
        }
    }
    Ok((ports, by_lcore))
}

fn port_totals(ports: &[Port]) -> Vec<(String, u64)> {
    let mut totals = Vec::new();
    for port in ports {
        let Ok(stats) = port.stats() else { continue };
        for (name, value) in [
            ("rx_packets", stats.rx_packets),
            ("tx_packets", stats.tx_packets),
            ("rx_missed", stats.rx_missed),
            ("rx_errors", stats.rx_errors),
            ("rx_no_mbuf", stats.rx_no_mbuf),
            ("tx_errors", stats.tx_errors),
        ] {
            totals.push((format!("port.{}.{name}", port.name()), value));
        }
    }
    totals
}
