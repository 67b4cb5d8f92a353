//! Systems switched on and off: at the start, and when the configuration is read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use calumma_analysis::{Deployment, System};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{error, info};

use super::analysis::{self, Analysing};
use super::hub::{Hub, lock};
use super::lane::{FRAMES_WAITING, Inlet, Lane};
use super::{Publisher, unix_ns};
use crate::analyse::Analyser;
use crate::chamelemon;
use crate::config::Config;
use crate::steering::Steering;

/// Epochs beyond the next that can be changed at which systems are switched, so that nodes that are
/// further away than edges receive it in time, too.
const SWITCHING_EPOCHS: u64 = 2;

/// Starts and ends lanes.
#[derive(Debug)]
pub(super) struct Switchboard {
    hub: Arc<Hub>,
    publisher: Arc<Publisher>,
    stop: watch::Sender<bool>,
    runtime: Handle,
    /// The last thread of each lane.
    threads: Mutex<Vec<JoinHandle<anyhow::Result<()>>>>,
}

impl Switchboard {
    pub(super) fn new(hub: Arc<Hub>, publisher: Arc<Publisher>, stop: watch::Sender<bool>) -> Self {
        Self { hub, publisher, stop, runtime: Handle::current(), threads: Mutex::default() }
    }

    /// Starts the systems that the configuration asks for.
    pub(super) fn start(&self, config: &Config) -> anyhow::Result<()> {
        let lanes = config.systems.iter().map(|name| self.lane(name, config, 0));
        let lanes = lanes.collect::<anyhow::Result<_>>()?;
        self.hub.switch(lanes, &[], 0);
        Ok(())
    }

    /// Lets exactly the systems run that a configuration asks for, from the next epoch on that all
    /// nodes can follow.
    ///
    /// # Errors
    /// When one can't be started, or has not ended yet; then nothing is switched.
    pub(super) fn switch(&self, config: &Config) -> anyhow::Result<()> {
        let wanted = &config.systems;
        let running: Vec<Arc<Lane>> =
            self.hub.lanes().iter().filter(|lane| lane.is_on()).cloned().collect();
        let runs = |name: &str| running.iter().any(|lane| lane.system.name() == name);
        let is_wanted = |lane: &&Arc<Lane>| wanted.iter().any(|name| name == lane.system.name());
        let off: Vec<Arc<Lane>> = running.iter().filter(|lane| !is_wanted(lane)).cloned().collect();
        let missing: Vec<&String> = wanted.iter().filter(|name| !runs(name)).collect();
        for lane in running.iter().filter(is_wanted) {
            let name = lane.system.name();
            match lane.reload(config.section(name)) {
                Ok(waiting) => waiting.iter().for_each(|why| error!("[{name}] {why}")),
                Err(problem) => error!("[{name}] {problem}; the old values stay"),
            }
        }
        if off.is_empty() && missing.is_empty() {
            return Ok(());
        }
        // Its reports would come in no order.
        let is_ending = |name: &&&String| {
            self.hub.lanes().iter().any(|lane| !lane.is_on() && lane.system.name() == **name)
        };
        if let Some(name) = missing.iter().find(is_ending) {
            bail!("{name} still reports its last epochs: try again in a moment");
        }
        // Not before a change of the hash key that nodes have been sent already.
        let earliest = self.hub.earliest_epoch(unix_ns()) + SWITCHING_EPOCHS;
        let epoch = earliest.max(self.hub.keys().newest().from_epoch);
        let mut on: Vec<Arc<Lane>> = Vec::new();
        for name in &missing {
            match self.lane(name, config, epoch) {
                Ok(lane) => on.push(lane),
                Err(problem) => {
                    on.iter().for_each(|lane| lane.stop());
                    return Err(problem);
                }
            }
        }
        for (name, state) in missing
            .into_iter()
            .map(|name| (name.as_str(), "on"))
            .chain(off.iter().map(|lane| (lane.system.name(), "off")))
        {
            info!(system = name, epoch, "switched {state}");
        }
        self.hub.switch(on, &off, epoch);
        Ok(())
    }

    /// Starts the lane of the system called `name`.
    fn lane(&self, name: &str, config: &Config, first_epoch: u64) -> anyhow::Result<Arc<Lane>> {
        let _runtime = self.runtime.enter();
        let hub = &self.hub;
        let system = hub.systems().iter().copied().find(|system| system.name() == name);
        let system = system.ok_or_else(|| anyhow!("no system is called {name:?}"))?;
        let thread = if chamelemon::is_chamelemon(system.offer().system) {
            self.start_chamelemon(system, config, first_epoch)?
        } else {
            self.start_analysis(system, config, first_epoch)?
        };
        let (lane, thread) = thread;
        lock(&self.threads).push(thread);
        Ok(lane)
    }

    fn start_chamelemon(
        &self,
        system: &'static dyn System,
        config: &Config,
        first_epoch: u64,
    ) -> Started {
        let hub = &self.hub;
        let (queue, frames) = mpsc::channel(FRAMES_WAITING);
        let inlet = Inlet::ChameleMon(queue);
        let lane = Arc::new(Lane::new(system, inlet, first_epoch, config));
        let tasks = hub.chamelemon.tasks();
        let analyser = Analyser::with(hub.chamelemon.decoder.clone(), tasks);
        let (publisher, stop) = (self.publisher.clone(), self.stop.clone());
        let thread = chamelemon::start(hub, lane.clone(), analyser, frames, publisher, stop)?;
        Ok((lane, thread))
    }

    fn start_analysis(
        &self,
        system: &'static dyn System,
        config: &Config,
        first_epoch: u64,
    ) -> Started {
        let hub = &self.hub;
        let name = system.name();
        let nodes = hub.nodes_of(system.roles());
        let of_system: Vec<_> = nodes.iter().map(|(_, node)| node.clone()).collect();
        let deployment = Deployment {
            section: config.section(name),
            hash_keys: hub.keys(),
            clock: hub.clock(),
            nodes: &of_system,
            id: hub.deployment_id(),
        };
        let analysis = system.start(&deployment);
        let analysis = analysis.map_err(|problem| anyhow!("[{name}]: {problem}"))?;
        let analysis = analysis.with_context(|| format!("{name} has no analysis"))?;
        if let Some(remark) = analysis.remark() {
            info!("{name}: {remark}");
        }
        let offer = system.offer();
        let mut setups = HashMap::new();
        for version in offer.lowest..=offer.highest {
            for (position, node) in &nodes {
                setups.insert((*position, version), analysis.setup(node, version));
            }
        }
        let (queue, frames) = mpsc::channel(FRAMES_WAITING);
        let inlet = Inlet::Analysis(queue, setups);
        let of = (offer.system, analysis.window());
        let positions = nodes.iter().map(|(position, _)| *position);
        let steer = analysis.steer();
        let steering = steer.map(|steer| Steering::new(steer, of, positions, unix_ns()));
        let lane = Lane::new(system, inlet, first_epoch, config).steered(steering);
        let lane = Arc::new(lane.remembering(analysis.remembered()));
        let (hub, publisher) = (hub.clone(), self.publisher.clone());
        let analysing = Analysing { hub, lane: lane.clone(), analysis, nodes, publisher };
        Ok((lane, analysis::start(analysing, frames)?))
    }

    /// Ends all lanes with what they have, and has everything written out.
    ///
    /// # Errors
    /// When an output could not be written.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // One that is switched on is not among the hub's yet, but then nobody stops.
        self.hub.lanes().iter().for_each(|lane| lane.stop());
        let threads = std::mem::take(&mut *lock(&self.threads));
        let mut result = Ok(());
        for thread in threads {
            let name = thread.thread().name().unwrap_or("a").to_owned();
            let ended =
                thread.join().unwrap_or_else(|_| Err(anyhow!("the {name} thread panicked")));
            result = result.and(ended);
        }
        result.and(self.publisher.finish())
    }
}

type Started = anyhow::Result<(Arc<Lane>, JoinHandle<anyhow::Result<()>>)>;
