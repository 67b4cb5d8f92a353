//! Sockets, threads and files around the pure parts.
//!
//! ```text
//!  edge ── TCP ── connection ─┐
//!  edge ── TCP ── connection ─┼─ frames ─▶ collecting ─ epochs ─▶ decoding ─▶ reporting ─▶ outputs
//!                             │                                                       └▶ recent ─▶ HTTP
//!                            hub: who is connected, what attention is planned
//! ```
//!
//! Connections and collecting run on the async runtime. Each edge's HH encoder is decoded when its
//! ingress side comes in, on the runtime's threads for such work; what is left when the last egress
//! side is in has a thread of its own, and so has what is worked out at leisure.

mod analysing;
mod audit;
mod collecting;
mod connection;
mod http;
mod hub;
mod recent;
mod scrape;
mod secret;
mod shifting;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use calumma_archive::Archive;
use calumma_systems::SYSTEMS;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, info};

pub use self::hub::{AttentionStatus, Hub};
use crate::alert::Alerts;
use crate::analyse::Analyser;
use crate::config::Config;
use crate::ipfix::Exporter;
use crate::metrics::Metrics;
use crate::output::{Background, Output};

/// Frames that may wait for the collecting task.
const FRAMES_WAITING: usize = 256;

/// Steps that may wait for decoding.
const STEPS_WAITING: usize = 128;

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// A controller that is running.
#[derive(Debug)]
pub struct Running {
    hub: Arc<Hub>,
    listen: SocketAddr,
    http: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    collecting: JoinHandle<()>,
    analysis: std::thread::JoinHandle<anyhow::Result<()>>,
}

/// Starts a controller on the current tokio runtime. `outputs` get every report, in order.
///
/// # Errors
/// When an address can't be listened on or the hash key can't be read or kept.
pub async fn start(config: Config, outputs: Vec<Box<dyn Output>>) -> anyhow::Result<Running> {
    let clock = config.clock()?;
    let hash_key = secret::hash_key(&config)?;
    let analyser = Analyser::new(config.layout.clone(), &hash_key, clock, config.tasks);
    let hub = Arc::new(Hub::new(config.clone(), hash_key, analyser.decoder().clone())?);

    let listener = bind(config.listen, "listen").await?;
    let listen = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let (frames, heard) = mpsc::channel(FRAMES_WAITING);
    let (steps, measured) = mpsc::channel(STEPS_WAITING);

    let background = background(&config)?;
    let metrics = Arc::new(Metrics::new(&config.edges, background.status())?);

    let http = match config.http {
        None => None,
        Some(address) => {
            let listener = bind(address, "http").await?;
            let address = listener.local_addr()?;
            let scrape = scrape::router(hub.clone(), metrics.clone());
            tokio::spawn(http::serve(listener, hub.clone(), scrape, stopped.clone()));
            Some(address)
        }
    };
    tokio::spawn(connection::accept(listener, hub.clone(), frames, stopped.clone()));
    let collecting =
        tokio::spawn(collecting::run(hub.clone(), config.grace_ms, heard, steps, stopped));

    let mut outputs = outputs;
    outputs.push(Box::new(metrics));
    outputs.push(Box::new(background));
    let analysis = analysing::start(hub.clone(), analyser, measured, outputs, stop.clone())?;
    Ok(Running { hub, listen, http, stop, collecting, analysis })
}

/// The outputs that the configuration asks for and that may be slow.
fn background(config: &Config) -> anyhow::Result<Background> {
    let mut background = Background::default();
    if let Some(section) = &config.archive {
        background.add(Archive::open(section, SYSTEMS)?)?;
    }
    if let Some(section) = &config.ipfix {
        background.add(Exporter::start(section, &config.edges)?)?;
    }
    if let Some(section) = &config.alerts {
        background.add(Alerts::start(section, &config.edges)?)?;
    }
    Ok(background)
}

async fn bind(address: SocketAddr, field: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{field} = {address}: can't listen there; is another controller running?")
    })
}

impl Running {
    /// Where edges connect to.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the HTTP API listens.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// What is known of the edges and the plan.
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
        let fixed = self.hub.config().fixed_differences(config);
        if !fixed.is_empty() {
            error!("{} changed: these need a restart; the old values stay", fixed.join(", "));
        }
        self.hub.set_tasks(config.tasks);
        match self.hub.reload_attention(&config.attention, unix_ns()) {
            Ok(Some(epoch)) => info!(epoch, "new attention sent to the edges"),
            Ok(None) => info!("attention stays as it is"),
            Err(problem) => error!("[attention]: {problem}; the old one stays"),
        }
    }

    /// Stops: closes connections, reports the epochs that are still pending, writes everything out.
    ///
    /// # Errors
    /// When an output could not be written.
    pub async fn stop(self) -> anyhow::Result<()> {
        // Fails only where every task has ended already.
        let _ = self.stop.send(true);
        self.collecting.await.context("the collecting task failed")?;
        let analysis = tokio::task::spawn_blocking(move || self.analysis.join()).await?;
        analysis.map_err(|_| anyhow::anyhow!("the reporting thread panicked"))?
    }
}
