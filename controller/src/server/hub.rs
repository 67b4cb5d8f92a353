//! What connections, lanes and the HTTP API share: which systems run, who is connected, and, of
//! ChameleMon, which attention is planned.

mod carrier;
mod counters;
mod ended;
mod marking;
mod nodes;
mod paths;
mod rotation;
mod switching;
mod unexpected;

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_analysis::{HashKeys, Node, System};
use calumma_cpus::Cpus;
use calumma_epoch::EpochClock;
use calumma_ports::Guests;
use calumma_wire::{Domain, Role};
use tokio::sync::{broadcast, watch};

use self::marking::Marked;
use self::nodes::Entry;
pub(crate) use self::nodes::{Admission, Entrance, Introduction};
use self::rotation::Rotation;
use self::switching::Ended;
use self::unexpected::Unexpected;
use super::connection;
use super::lane::Lane;
use crate::carrier::Carriers;
use crate::chamelemon::State;
use crate::clocks::{Delays, Faults};
use crate::config::Config;
use crate::paths::Paths;
use crate::topology::Topologies;

/// Time that a message gets to reach a node before the epoch it is about is armed, as long as
/// nothing is known of the way there.
const LEAD_NS: u64 = 20_000_000;

/// The same beside twice the longest way that was measured: what nodes ask for, and a few rounds of
/// their control threads.
const NODE_LEAD_NS: u64 = 5_000_000;

/// The systems that run, those that are about to end among them.
pub(crate) type Lanes = Arc<Vec<Arc<Lane>>>;

/// Notices that a reader of events may be behind by.
const NOTICES_WAITING: usize = 256;

/// The shared state. Locks are taken in the order of the fields and held for moments only. A frame
/// takes that of its own node alone.
#[derive(Debug)]
pub struct Hub {
    config: Config,
    /// Those that threads run on, where the file says so.
    cpus: Option<Cpus>,
    clock: EpochClock,
    deployment_id: NonZeroU16,
    /// The systems that can run.
    systems: &'static [&'static dyn System],
    /// Time that a message gets to reach every node, in nanoseconds.
    lead_ns: AtomicU64,
    /// Held while a node is let in or a system is switched, so that each sees the other.
    admissions: Mutex<()>,
    lanes: watch::Sender<Lanes>,
    /// Systems that have ended, and whose last reports nodes hold until the archive has them.
    ended: Mutex<Vec<Ended>>,
    /// How many reports have been about to be published.
    reports: AtomicU64,
    pub(crate) chamelemon: State,
    marked: Mutex<Marked>,
    /// Where packets carry their marks, as far as switches leave that to the controller.
    carriers: Mutex<Carriers>,
    /// Edges first, then transits, then hosts.
    nodes: Vec<Entry>,
    /// Times that messages take to the nodes and back.
    delays: Mutex<Delays>,
    rotation: Rotation,
    /// Positions of the nodes by name.
    positions: HashMap<String, usize>,
    unexpected: Unexpected,
    /// Connections whose node is not known yet.
    strangers: Arc<Guests>,
    topologies: Arc<Topologies>,
    /// What is reported before its epoch is over, as JSON, to whoever reads events.
    notices: broadcast::Sender<Arc<str>>,
    paths: Mutex<Paths>,
    faults: Mutex<Faults>,
    /// Those of edges as compared with each other, for what other nodes don't matter to.
    faults_of_edges: Mutex<Faults>,
    /// Whose packets are measured.
    domain: Mutex<Domain>,
    /// Whose were, each with the first epoch in which that was over.
    domains_before: Mutex<Vec<(u64, Domain)>>,
}

/// A lock whose data is never left half changed, so that a panic elsewhere does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(super) fn new(
        config: Config,
        systems: &'static [&'static dyn System],
        (nodes, deployment_id): (Vec<Arc<Node>>, NonZeroU16),
        chamelemon: State,
    ) -> anyhow::Result<Self> {
        let clock = config.clock()?;
        let ids: Vec<u16> = nodes.iter().take(config.edges.len()).map(|node| node.id).collect();
        Ok(Self {
            faults: Mutex::new(Faults::new(clock, nodes.len())),
            faults_of_edges: Mutex::new(Faults::new(clock, ids.len())),
            paths: Mutex::new(Paths::new(clock, config.probes.enabled, ids)),
            domain: Mutex::new(config.domain.domain().unwrap_or_default()),
            domains_before: Mutex::default(),
            clock,
            deployment_id,
            systems,
            lead_ns: AtomicU64::new(LEAD_NS),
            admissions: Mutex::default(),
            lanes: watch::Sender::new(Lanes::default()),
            ended: Mutex::default(),
            reports: AtomicU64::new(0),
            chamelemon,
            marked: Mutex::default(),
            carriers: Mutex::new(carrier::kept(&config)?),
            delays: Mutex::default(),
            rotation: Rotation::default(),
            strangers: Arc::new(Guests::new(connection::bounds(nodes.len()))),
            positions: nodes.iter().map(|node| node.name.clone()).zip(0..).collect(),
            nodes: nodes.into_iter().map(Entry::expected).collect(),
            unexpected: Unexpected::default(),
            notices: broadcast::Sender::new(NOTICES_WAITING),
            topologies: Arc::new(Topologies::new(config.topology.clone())),
            cpus: config.cpus(),
            config,
        })
    }

    /// The configuration that the controller was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Has the calling thread run on the next of the CPUs that the file names, if any.
    pub(crate) fn pin(&self) {
        if let Some(cpus) = &self.cpus {
            cpus.pin_or_warn();
        }
    }

    /// The deployment's epochs.
    pub fn clock(&self) -> EpochClock {
        self.clock
    }

    /// What is reported before its epoch is over from now on.
    pub(crate) fn notices(&self) -> broadcast::Receiver<Arc<str>> {
        self.notices.subscribe()
    }

    /// Something is reported before its epoch is over.
    pub(super) fn noticed(&self, json: &str) {
        // Fails only where nobody reads.
        let _ = self.notices.send(json.into());
    }

    /// The deployment's number.
    pub(super) fn deployment_id(&self) -> NonZeroU16 {
        self.deployment_id
    }

    /// By which keys nodes hash, epoch by epoch.
    pub(crate) fn keys(&self) -> &HashKeys {
        self.chamelemon.decoder.keys()
    }

    /// The systems that can run.
    pub(crate) fn systems(&self) -> &'static [&'static dyn System] {
        self.systems
    }

    /// The nodes of these roles, each with its position.
    pub(super) fn nodes_of(&self, roles: &[Role]) -> Vec<(usize, Arc<Node>)> {
        let nodes = self.nodes.iter().map(|entry| entry.node.clone()).enumerate();
        nodes.filter(|(_, node)| roles.contains(&node.role)).collect()
    }

    /// The connections whose node is not known yet.
    pub(crate) fn strangers(&self) -> &Arc<Guests> {
        &self.strangers
    }

    /// How the switches are linked, by epoch.
    pub(crate) fn topologies(&self) -> &Arc<Topologies> {
        &self.topologies
    }

    /// The systems that run.
    pub(crate) fn lanes(&self) -> Lanes {
        self.lanes.borrow().clone()
    }

    /// The same, with a notice of each change.
    pub(super) fn watch_lanes(&self) -> watch::Receiver<Lanes> {
        self.lanes.subscribe()
    }

    /// The first epoch that a message sent at `now_ns` can change on every switch.
    pub(crate) fn earliest_epoch(&self, now_ns: u64) -> u64 {
        // An epoch is armed before it begins, by the clock guard.
        let lead_ns = self.clock.guards().clock_ns + self.lead_ns.load(Ordering::Relaxed);
        self.clock.epoch_at(now_ns.saturating_add(lead_ns)) + 1
    }
}
