//! A switch between two DPDK ports that counts every packet's flow in the sketch of DPDK's
//! membership library: what calumma-edge is measured beside.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use calumma_benches::peers::member_config;
use calumma_edge::parse::{Parsed, parse};
use calumma_switch_host::Signals;
use clap::Parser;
use dpdk::{Burst, Eal, MemberSketch, Mempool, Port, PortConfig, RxQueue, TxQueue};

/// Packets from one DPDK port to another, each counted in an rte_member sketch, until SIGINT or
/// SIGTERM
#[derive(Parser)]
struct Cli {
    /// The port that packets come from
    from: String,
    /// The port that they go to
    to: String,
    /// Arguments for DPDK's environment abstraction layer
    #[arg(last = true)]
    eal: Vec<String>,
}

/// Mbufs of the pool: what may lie in both ports' queues, and some.
const MBUFS: u32 = 16_383;

fn main() -> Result<()> {
    let cli = Cli::parse();
    let signals = Signals::catch().context("handlers for SIGINT and SIGTERM")?;
    let eal = Eal::init(&cli.eal)?;
    let pool = Mempool::new(&eal, "packets", MBUFS, -1)?;
    let open = |name: &str| -> Result<(RxQueue, TxQueue)> {
        let (_, mut queues) = Port::open(&eal, name, PortConfig::default(), &pool)?;
        queues.pop().context("a port with a queue")
    };
    let ((mut rx, _), (_, mut tx)) = (open(&cli.from)?, open(&cli.to)?);
    let mut sketch = MemberSketch::new(&eal, "flows", member_config())?;
    // This thread is the main lcore.
    let counted = forward(&mut rx, &mut tx, &mut sketch, &signals.stop);
    ensure!(counted > 0, "no packet was counted");
    Ok(())
}

/// Forwards until stopped, and gives the number of packets counted.
fn forward(
    rx: &mut RxQueue,
    tx: &mut TxQueue,
    sketch: &mut MemberSketch,
    stop: &AtomicBool,
) -> u64 {
    let mut burst = Burst::<{ dpdk::BURST }>::new();
    let mut counted = 0;
    while !stop.load(Ordering::Relaxed) {
        if rx.rx(&mut burst) == 0 {
            continue;
        }
        for packet in burst.as_slice() {
            if let Parsed::Flow { key, .. } = parse(packet.data(), packet.pkt_len()) {
                sketch.insert(key.as_bytes());
                counted += 1;
            }
        }
        tx.tx(&mut burst);
        burst.clear();
    }
    counted
}
