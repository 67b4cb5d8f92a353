//! What connections, collecting and the HTTP API share: who is connected and which attention is
//! planned.

mod edges;
mod plan;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;

use self::edges::Edge;
pub(super) use self::edges::{Admission, Introduction};
pub use self::plan::AttentionStatus;
use self::plan::Plan;
use super::audit::Audit;
use super::recent::Recent;
use crate::analyse::{Decoder, Tasks};
use crate::clocks::Delays;
use crate::config::Config;

/// Time that a message gets to reach an edge before the epoch it is about is armed, as long as
/// nothing is known of the way there.
const LEAD_NS: u64 = 20_000_000;

/// The same beside twice the longest way that was measured: what edges ask for, and a few rounds of
/// their control threads.
const EDGE_LEAD_NS: u64 = 5_000_000;

/// The shared state. Locks are taken in the order of the fields and held for moments only.
#[derive(Debug)]
pub struct Hub {
    config: Config,
    clock: EpochClock,
    hash_key: HashKey,
    decoder: Decoder,
    /// Time that a message gets to reach every edge, in nanoseconds.
    lead_ns: AtomicU64,
    plan: Mutex<Plan>,
    audit: Option<Audit>,
    tasks: Mutex<Tasks>,
    edges: Mutex<Vec<Edge>>,
    /// Times that messages take to the edges and back.
    delays: Mutex<Delays>,
    /// Positions of the edges by name.
    positions: HashMap<String, usize>,
    recent: Recent,
}

/// A lock whose data is never left half changed, so that a panic elsewhere does no harm.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(super) fn new(config: Config, hash_key: HashKey, decoder: Decoder) -> anyhow::Result<Self> {
        let attention = config.planned_attention()?;
        Ok(Self {
            clock: config.clock()?,
            hash_key,
            recent: Recent::new(config.history, decoder.family().clone()),
            decoder,
            lead_ns: AtomicU64::new(LEAD_NS),
            plan: Mutex::new(Plan::new(attention, config.attention)),
            audit: config.shifting.audit.as_deref().map(Audit::open).transpose()?,
            tasks: Mutex::new(config.tasks),
            delays: Mutex::default(),
            positions: config.edges.iter().cloned().zip(0..).collect(),
            edges: Mutex::new(config.edges.iter().map(|name| Edge::expected(name)).collect()),
            config,
        })
    }

    /// The configuration that the controller was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The deployment's epochs.
    pub fn clock(&self) -> EpochClock {
        self.clock
    }

    /// What decodes the epochs' encoders.
    pub(super) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub(super) fn tasks(&self) -> Tasks {
        *lock(&self.tasks)
    }

    pub(super) fn set_tasks(&self, tasks: Tasks) {
        *lock(&self.tasks) = tasks;
    }

    /// The first epoch that a message sent at `now_ns` can change on every switch.
    pub(super) fn earliest_epoch(&self, now_ns: u64) -> u64 {
        // An epoch is armed before it begins, by the clock guard.
        let lead_ns = self.clock.guards().clock_ns + self.lead_ns.load(Ordering::Relaxed);
        self.clock.epoch_at(now_ns.saturating_add(lead_ns)) + 1
    }

    /// What is remembered of the latest epochs.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }
}
