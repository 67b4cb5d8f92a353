//! What the controller does for ChameleMon alone: attention is planned from each epoch and sent to
//! the edges, its history is kept by flow, and losses go before estimates, so that it has two
//! threads instead of one.
//!
//! Connections, nodes, completeness and the lane that all this runs in are
//! [`server`](crate::server)'s, for every system.

mod analysing;
pub(crate) mod attention;
mod audit;
pub mod collect;
mod collecting;
pub(crate) mod http;
mod recent;
mod shifting;

use std::sync::{Arc, Mutex, MutexGuard};

use calumma_chamelemon::frames::{self, Message};
use calumma_wire::SystemId;
use tokio::sync::{mpsc, watch};

pub use collect::Collector;

use self::attention::Plan;
use self::audit::Audit;
use self::recent::Recent;
use crate::analyse::{Analyser, DecodedIngress, Decoder, Tasks};
use crate::config::Config;
use crate::server::hub::lock;
use crate::server::lane::Lane;
use crate::server::{Hub, Publisher};

/// Steps that may wait for decoding.
const STEPS_WAITING: usize = 128;

/// Whether a system is ChameleMon.
pub(crate) fn is_chamelemon(system: SystemId) -> bool {
    system == frames::ID
}

/// What is shared about ChameleMon, whether it runs or not.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) decoder: Decoder,
    plan: Mutex<Plan>,
    audit: Option<Audit>,
    tasks: Mutex<Tasks>,
    pub(crate) recent: Recent,
}

impl State {
    pub(crate) fn new(config: &Config, decoder: Decoder) -> anyhow::Result<Self> {
        let attention = config.planned_attention()?;
        Ok(Self {
            recent: Recent::new(config.history),
            decoder,
            plan: Mutex::new(Plan::new(attention, config.attention)),
            audit: config.shifting.audit.as_deref().map(Audit::open).transpose()?,
            tasks: Mutex::new(config.tasks),
        })
    }

    /// Which attention holds from which epoch on. No other lock may be held but that on admissions.
    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    pub(crate) fn tasks(&self) -> Tasks {
        *lock(&self.tasks)
    }

    pub(crate) fn set_tasks(&self, tasks: Tasks) {
        *lock(&self.tasks) = tasks;
    }
}

/// A frame about an epoch of an edge.
#[derive(Debug)]
pub(crate) struct EdgeFrame {
    /// Position of its edge among the expected ones.
    pub(crate) edge: usize,
    /// What it says.
    pub(crate) message: Message,
    /// Of an ingress side, what is decoded of it.
    pub(crate) decoded: Option<Box<DecodedIngress>>,
    /// When its last byte was received.
    pub(crate) received_ns: u64,
}

/// Starts the task and the threads that ChameleMon's lane runs on. They end with the lane, or when
/// `stop` is true; that becomes true when one of them fails.
pub(crate) fn start(
    hub: &Arc<Hub>,
    lane: Arc<Lane>,
    analyser: Analyser,
    frames: mpsc::Receiver<EdgeFrame>,
    publisher: Arc<Publisher>,
    stop: watch::Sender<bool>,
) -> anyhow::Result<std::thread::JoinHandle<anyhow::Result<()>>> {
    let (steps, measured) = mpsc::channel(STEPS_WAITING);
    tokio::spawn(collecting::run(hub.clone(), lane.clone(), frames, steps));
    analysing::start(hub.clone(), lane, analyser, measured, publisher, stop)
}
