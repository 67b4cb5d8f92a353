//! Packets into a DPDK port at line rate, with the truth about every flow kept.
//!
//! One lcore in poll mode: frames are made before it starts, so that a packet costs a copy of its
//! headers and its share of the driver's burst. What the port has no room for is either tried again
//! (a generator that goes as fast as the other side takes packets) or counted as refused (a
//! generator that keeps to a rate).

mod flows;
mod lcore;
mod rate;
mod stacks;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dpdk::{Eal, Mempool, MempoolConfig, Port, PortConfig};
use serde::{Deserialize, Serialize};

pub use flows::{Mix, Popularity, Sizes};
pub use lcore::Sent;
pub use stacks::Stacks;

use flows::Frames;
use lcore::Transmitter;

/// What to send.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The flows and how packets are drawn from them.
    pub mix: Mix,
    /// How fast.
    pub pace: Pace,
    /// For how long; the search for a rate takes a dozen times as long.
    pub duration: Duration,
    /// Sent before anything is counted: the other side's caches and clocks settle.
    pub warm_up: Duration,
}

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as the port takes packets; none is refused.
    Flood,
    /// As many packets a second, those refused included.
    Rate(f64),
    /// The highest rate at which the port refuses none, found by bisection.
    Search,
}

/// What was sent.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Packets that the port took.
    pub sent: u64,
    /// Packets that it had no room for.
    pub refused: u64,
    /// Seconds in which it took them.
    pub seconds: f64,
    /// Millions of packets a second that it took; where a rate was searched for, the highest at
    /// which it refused none.
    pub mpps: f64,
    /// Packets of each flow, warm-up and search included.
    #[serde(skip)]
    pub truth: Vec<FlowSent>,
}

/// A flow and how many of its packets were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSent {
    /// The flow.
    #[serde(flatten)]
    pub flow: calumma_controller::report::Flow,
    /// Its packets that the port took.
    pub packets: u64,
}

/// Mbufs of the generator's pool: what may lie in a port's ring, and some.
const MBUFS: u32 = 8191;

/// Sends by `plan` into the port that DPDK calls `device`, on the first of the EAL's lcores. What
/// came of it goes to `then` while the port is still open.
///
/// # Errors
/// When the EAL or the port can't be had, the mix makes no packets, or `then` fails.
pub fn run<T>(
    plan: &Plan,
    device: &str,
    eal_arguments: &[String],
    then: impl FnOnce(&Outcome) -> Result<T>,
) -> Result<T> {
    let frames = Frames::new(&plan.mix)?;
    let eal = Eal::init(eal_arguments)?;
    let pool = Mempool::with_config(
        &eal,
        "generator",
        MempoolConfig { mbufs: MBUFS, cache: 512, ..MempoolConfig::default() },
    )?;
    ensure!(
        plan.mix.largest() <= usize::from(pool.data_room()),
        "packets of at most {} bytes can be sent",
        pool.data_room()
    );
    let (_port, mut queues) = Port::open(&eal, device, PortConfig::default(), &pool)?;
    let (_, tx) = queues.pop().context("a port with a queue")?;
    let transmitter = Transmitter::new(frames, plan.mix.clone(), pool, tx);
    let plan = plan.clone();
    let (outcome, truth) = eal
        .run_on_lcores(vec![transmitter], |mut transmitter| {
            transmitter.send(None, plan.warm_up);
            let outcome = match plan.pace {
                Pace::Flood => transmitter.send(None, plan.duration),
                Pace::Rate(pps) => transmitter.send(Some(pps), plan.duration),
                Pace::Search => rate::search(&mut transmitter, plan.duration),
            };
            (outcome, transmitter.truth())
        })?
        .pop()
        .context("the generator's lcore")?;
    then(&Outcome {
        sent: outcome.packets,
        refused: outcome.refused,
        seconds: outcome.seconds,
        mpps: outcome.packets as f64 / outcome.seconds / 1e6,
        truth,
    })
}
