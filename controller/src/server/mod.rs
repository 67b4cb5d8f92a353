//! Sockets, threads and files around the pure parts.
//!
//! ```text
//!  node -- TCP -- connection -+            +> collecting -> decoding -> reporting -+  (ChameleMon)
//!  node -- TCP -- connection -+- lanes ----+                                       +-> outputs
//!                             |            +> collecting, decoding, reporting -----+  (any other)
//!                            hub: who is connected, which systems run
//! ```
//!
//! Connections run on the async runtime. Every system has a lane of its own, with a bounded queue
//! and its own threads. Of ChameleMon, each edge's HH encoder is decoded when its ingress side
//! comes in, on the runtime's threads for such work; what is left when the last egress side is in
//! has a thread of its own, and so has what is worked out at leisure.

mod analysis;
mod audit;
mod connection;
mod gate;
pub(crate) mod http;
pub(crate) mod hub;
pub(crate) mod lane;
mod node_ids;
mod publisher;
mod scrape;
mod secret;
mod stream;
mod systems;
mod trust;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use calumma_analysis::System;
use calumma_archive::Archive;
use calumma_ports::Guests;
use calumma_systems::SYSTEMS;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{error, info, warn};

use self::audit::Audit;
pub use self::hub::Hub;
pub(crate) use self::publisher::Publisher;
use self::systems::Switchboard;
use self::trust::Trust;
use crate::alert::{Alerts, NodeWatch};
use crate::analyse::Decoder;
use crate::api::KeyChangeBy;
use crate::chamelemon::State;
pub use crate::chamelemon::attention::AttentionStatus;
use crate::config::Config;
use crate::ipfix::Exporter;
use crate::metrics::Metrics;
use crate::output::{Background, Output};
use crate::topology;

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// What [`steady_ns`] counts from, and the time then.
static BEGIN: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), unix_ns()));

/// The same by a clock that is never set: what the system's would show had it not been set since
/// this was asked first.
pub(crate) fn steady_ns() -> u64 {
    let (begin, unix_ns) = *BEGIN;
    unix_ns + begin.elapsed().as_nanos() as u64
}

/// How long nodes are waited for at most before the hash key changes at the start, and how often
/// they are looked for.
const LONGEST_START: Duration = Duration::from_secs(10);
const START_STEP: Duration = Duration::from_millis(100);

/// Steps of niceness by which estimates come after everything else.
const NICENESS: i32 = 10;

/// Lowers the priority of this thread: where CPUs are short, nodes are received and attention is
/// planned before estimates are made. Linux keeps a niceness for each thread, and 0 names the one
/// that asks.
pub(crate) fn yield_to_others() {
    let lowered = rustix::process::getpriority_process(None)
        .and_then(|nice| rustix::process::setpriority_process(None, nice + NICENESS));
    if let Err(error) = lowered {
        tracing::warn!("estimates run at full priority: {error}");
    }
}

/// A controller that is running.
#[derive(Debug)]
pub struct Running {
    hub: Arc<Hub>,
    listen: SocketAddr,
    http: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    switchboard: Switchboard,
    trust: Arc<Trust>,
    audit: Arc<Audit>,
}

/// Starts a controller on the current tokio runtime. `outputs` get every report, each system's in
/// order.
///
/// # Errors
/// When an address can't be listened on, or others reach it and nothing protects it, or keys and
/// certificates can't be read or kept.
pub async fn start(config: Config, outputs: Vec<Box<dyn Output>>) -> anyhow::Result<Running> {
    start_with(SYSTEMS, config, outputs).await
}

/// As [`start`], with other systems than the product's to choose from.
///
/// # Errors
/// As [`start`].
pub async fn start_with(
    systems: &'static [&'static dyn System],
    config: Config,
    mut outputs: Vec<Box<dyn Output>>,
) -> anyhow::Result<Running> {
    config.check_exposure().map_err(anyhow::Error::msg)?;
    if config.insecure {
        warn!("insecure = true: nothing asks for TLS, nor for tokens where nothing changes");
    }
    let trust = Arc::new(Trust::read(&config)?);
    let audit = Arc::new(Audit::open(trust::audit_path(&config).as_deref())?);
    let keys = secret::hash_keys(&config)?;
    let (nodes, number) = (node_ids::nodes(&config)?, node_ids::deployment(&config)?);
    let decoder = Decoder::new(config.layout.clone(), keys, config.clock()?);
    let state = State::new(&config, decoder)?;
    let hub = Arc::new(Hub::new(config.clone(), systems, (nodes, number), state)?);

    let listener = bind(config.listen, "listen").await?;
    let listen = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);

    let background = background(&hub)?;
    let sinks = outputs.iter().flat_map(|output| output.sinks()).chain(background.sinks());
    let metrics = Arc::new(Metrics::new(systems, &config, sinks.collect())?);

    let http = match config.http {
        None => None,
        Some(address) => {
            let listener = bind(address, "http").await?;
            let address = listener.local_addr()?;
            let server =
                http::Server::new(hub.clone(), trust.clone(), audit.clone(), stopped.clone());
            let guests = Arc::new(Guests::new(http::BOUNDS));
            let scrape = scrape::router(server.clone(), guests.clone(), metrics.clone());
            http::start(listener, server, guests, scrape)?;
            Some(address)
        }
    };
    outputs.push(Box::new(metrics));
    outputs.push(Box::new(background));
    let publisher = Arc::new(Publisher::new(outputs));
    let switchboard = Switchboard::new(hub.clone(), publisher, stop.clone());
    switchboard.start(&config)?;
    tokio::spawn(connection::accept(listener, hub.clone(), trust.nodes(), stopped));
    if config.key_rotation.at_start && config.state_dir.is_some() {
        tokio::spawn(rotate_key_at_start(hub.clone()));
    }
    Ok(Running { hub, listen, http, stop, switchboard, trust, audit })
}

/// Changes the hash key once all nodes are connected, so that they go on by the kept one until
/// then; those that don't come are not waited for.
async fn rotate_key_at_start(hub: Arc<Hub>) {
    let begun = Instant::now();
    while !hub.all_are_connected() && begun.elapsed() < LONGEST_START {
        tokio::time::sleep(START_STEP).await;
    }
    let reason = "the controller has started";
    let rotating =
        tokio::task::spawn_blocking(move || hub.rotate_key_unasked(KeyChangeBy::Start, reason));
    if let Err(problem) = rotating.await {
        error!("{reason}, and the hash key stays: {problem}");
    }
}

/// The outputs that the configuration asks for and that may be slow.
fn background(hub: &Arc<Hub>) -> anyhow::Result<Background> {
    let (config, systems) = (hub.config(), hub.systems());
    let mut background = Background::default();
    if let Some(section) = &config.archive {
        let kept = hub.clone();
        background.add_keeping(Archive::open(section, systems)?, move |report| {
            kept.archived(report.system(), report.head().epoch);
        })?;
    }
    if let Some(section) = &config.ipfix {
        let nodes = [&config.edges[..], &config.transits].concat();
        background.add(Exporter::start(section, &nodes)?)?;
    }
    if let Some(section) = &config.alerts {
        let watched = hub.clone();
        let nodes = NodeWatch::new(section, move || watched.watched_nodes());
        background.add(Alerts::start(systems, section, config)?.with_nodes(nodes))?;
    }
    Ok(background)
}

async fn bind(address: SocketAddr, field: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{field} = {address}: can't listen there; is another controller running?")
    })
}

impl Running {
    /// Where nodes connect to.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the HTTP API listens.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// What is known of the nodes and the plan.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns when the controller has failed and should be stopped, to learn why.
    pub async fn failed(&self) {
        let mut stopped = self.stop.subscribe();
        // The sender is in `self`, so this does not fail.
        let _ = stopped.wait_for(|&stopped| stopped).await;
    }

    /// Takes over what may change in a configuration while the controller runs.
    pub fn reload(&self, config: &Config) {
        self.audit.note_reload();
        // By the names that it was started with.
        self.trust.reload(self.hub.config());
        let fixed = self.hub.config().fixed_differences(config);
        if !fixed.is_empty() {
            error!("{} changed: these need a restart; the old values stay", fixed.join(", "));
        }
        self.hub.chamelemon.set_tasks(config.tasks);
        self.hub.enable_probes(config.probes.enabled);
        match self.hub.reload_attention(&config.attention, unix_ns()) {
            Ok(Some(epoch)) => info!(epoch, "new attention sent to the edges"),
            Ok(None) => info!("attention stays as it is"),
            Err(problem) => error!("[attention]: {problem}; the old one stays"),
        }
        match config.domain.domain().and_then(|domain| self.hub.change_domain(domain)) {
            Ok(Some(epoch)) => info!(epoch, "new domain sent to the nodes"),
            Ok(None) => {}
            Err(problem) => error!("[domain]: {problem}; the old one stays"),
        }
        self.reload_topology(config);
        if let Err(problem) = self.switchboard.switch(config) {
            error!("systems: {problem:#}; those that run stay");
        }
    }

    fn reload_topology(&self, config: &Config) {
        let Config { edges, transits, .. } = self.hub.config();
        let topology = config.topology.as_ref();
        // The nodes stay as they are, whatever the file says of them now.
        if let Some(Err(problem)) = topology.map(|it| topology::check(it, edges, transits)) {
            return error!("[topology]: {problem}; the old one stays");
        }
        let epoch = self.hub.clock().epoch_at(unix_ns());
        if self.hub.topologies().change(topology.cloned(), epoch) {
            info!(epoch, "new topology; from the next epoch on, places are of it");
        }
    }

    /// Stops: closes connections, reports the epochs that are still pending, writes everything out.
    ///
    /// # Errors
    /// When an output could not be written.
    pub async fn stop(self) -> anyhow::Result<()> {
        // Fails only where every task has ended already.
        let _ = self.stop.send(true);
        tokio::task::spawn_blocking(move || self.switchboard.stop()).await?
    }
}
