//! The daemon: the conversation with the controller, and the measuring that goes on at its word. A
//! driver that goes is connected to anew, and measuring goes on from there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use calumma_bfrt::{ClientError, Options};
use calumma_epoch::Timeline;
use calumma_interface::Interface;
use calumma_link::{
    Conversation, EgressSide, Identity, IngressSide, MOST_HELD, Measurer, SessionPlan, unix_ns,
};
use calumma_sketch::{Attention, HashFamily};
use calumma_wire::{Defects, Marking, SwitchKind};
use tokio::runtime::Runtime;
use tracing::{error, info, warn};

use crate::collector::{Collector, Way};
use crate::config::{Config, Method};
use crate::driver::Driver;
use crate::gatherer::{Channels, Gatherer, Part, Plans, lock, prepare_ns};
use crate::pilot::Pilot;
use crate::{entries, ports, program};

/// How often the daemon looks after everything.
const TICK: Duration = Duration::from_millis(1);

/// How long a controller is given to take what was finished last.
const FINISH: Duration = Duration::from_secs(1);

/// Time to get a switch ready for a deployment: 1024 secrets, and registers cleared.
const SETUP_NS: u64 = 1_000_000_000;

/// How long to wait before a driver that has gone is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the daemon until `stop` is set.
///
/// # Errors
/// At the start, when there is no driver, another program, no CPU port, or no room in a table. What
/// goes wrong later is logged and tried again.
pub fn run(config: &Config, stop: &AtomicBool) -> anyhow::Result<()> {
    let way = way(config)?;
    run_by(config, way, stop)
}

/// As [`run`], with another way for groups to come out of the switch than the configuration names.
///
/// # Errors
/// As [`run`].
pub fn run_by(config: &Config, way: Way, stop: &AtomicBool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("driver")
        .enable_all()
        .build()
        .context("the runtime of the driver's connection")?;
    let mut measuring = Measuring::new(config, Arc::new(runtime), way)?;
    let identity = Identity {
        edge: config.name.clone(),
        kind: SwitchKind::Tofino,
        program: format!(
            "{} by calumma-switchd {}",
            config.driver.program,
            env!("CARGO_PKG_VERSION")
        ),
        marking: Marking::default(),
    };
    let mut conversation = Conversation::new(identity, config.controller.clone(), MOST_HELD);
    info!(edge = config.name, driver = config.driver.address, "forwarding");
    while !stop.load(Ordering::Relaxed) {
        conversation.step(unix_ns(), &mut measuring);
        measuring.look_after();
        while let Ok(part) = measuring.parts.try_recv() {
            deliver(&mut conversation, part);
        }
        conversation.flush();
        conversation.wait(TICK);
    }
    conversation.finish(FINISH);
    Ok(())
}

/// The way that the configuration names.
fn way(config: &Config) -> anyhow::Result<Way> {
    let collection = &config.collection;
    Ok(match collection.method {
        Method::Packets => Way::Packets {
            port: Box::new(Interface::open(&collection.interface)?),
            retry: Duration::from_millis(collection.retry_ms),
        },
        Method::Registers => Way::Registers,
    })
}

fn deliver(conversation: &mut Conversation, part: Part) {
    let defects = |stall_ns| Defects { stall_ns, ..Defects::default() };
    match part {
        Part::Ingress { epoch, attention, stall_ns, packets, classifier, upstream, totals } => {
            let side = IngressSide {
                epoch,
                attention: &attention,
                defects: defects(stall_ns),
                packets,
                classifier: &classifier,
                upstream: &upstream,
            };
            conversation.ingress(&side, totals);
        }
        Part::Egress { epoch, attention, stall_ns, packets, downstream } => {
            let side = EgressSide {
                epoch,
                attention: &attention,
                defects: defects(stall_ns),
                packets,
                downstream: &downstream,
            };
            conversation.egress(&side);
        }
        Part::Sealed { epoch, late_packets } => {
            conversation.sealed(epoch, late_packets);
        }
    }
}

/// Measuring on one switch: what is to be measured, and the threads that do.
struct Measuring {
    config: Config,
    runtime: Arc<Runtime>,
    driver: Option<Driver>,
    /// Here while no thread has it.
    way: Option<Way>,
    session: Option<(SessionPlan, Plans)>,
    threads: Option<Threads>,
    /// When to try again what went wrong.
    retry_at: Instant,
    to_controller: Sender<Part>,
    parts: Receiver<Part>,
}

/// The pilot and the gatherer of a session.
struct Threads {
    stop: Arc<AtomicBool>,
    pilot: JoinHandle<Result<(), ClientError>>,
    gatherer: JoinHandle<(Collector, Result<(), ClientError>)>,
}

impl Measuring {
    fn new(config: &Config, runtime: Arc<Runtime>, way: Way) -> Result<Measuring, ClientError> {
        let driver = connect(config, &runtime)?;
        let (to_controller, parts) = channel();
        Ok(Measuring {
            config: config.clone(),
            runtime,
            driver: Some(driver),
            way: Some(way),
            session: None,
            threads: None,
            retry_at: Instant::now(),
            to_controller,
            parts,
        })
    }

    /// Begins what is to be measured and is not, and ends what has broken.
    fn look_after(&mut self) {
        let ended =
            |threads: &Threads| threads.pilot.is_finished() || threads.gatherer.is_finished();
        if self.threads.as_ref().is_some_and(ended) {
            self.end();
            self.driver = None;
            self.retry_at = Instant::now() + RETRY;
        }
        if self.threads.is_some() || Instant::now() < self.retry_at {
            return;
        }
        if let Err(problem) = self.start() {
            error!("{problem}; trying again");
            self.driver = None;
            self.retry_at = Instant::now() + RETRY;
        }
    }

    /// Starts the session's threads, where there is a session.
    fn start(&mut self) -> anyhow::Result<()> {
        let driver = match &self.driver {
            Some(driver) => driver.clone(),
            None => {
                let driver = connect(&self.config, &self.runtime)?;
                info!(driver = self.config.driver.address, "the driver is back");
                self.driver.insert(driver).clone()
            }
        };
        let Some((plan, plans)) = self.session.clone() else { return Ok(()) };
        program::check_built(driver.info(), &plan.layout)?;
        fill(&driver, &plan)?;
        let Some(way) = self.way.take() else { return Ok(()) };
        let collector = Collector::new(driver.clone(), way, plan.layout.clone());
        if let Err(problem) = collector.clear_all() {
            self.way = Some(collector.into_way());
            return Err(problem.into());
        }
        self.threads = Some(self.spawn(driver, collector, plan, plans));
        Ok(())
    }

    fn spawn(
        &self,
        driver: Driver,
        collector: Collector,
        mut plan: SessionPlan,
        plans: Plans,
    ) -> Threads {
        let now_ns = unix_ns() + prepare_ns(&plan.clock);
        plan.first_epoch = plan.first_epoch.max(plan.clock.epoch_at(now_ns) + 2);
        let stop = Arc::new(AtomicBool::new(false));
        let (give_task, tasks) = channel();
        let (give_ready, ready) = channel();
        let pilot = Pilot {
            driver: driver.clone(),
            clock: plan.clock,
            first_epoch: plan.first_epoch,
            tasks: give_task,
            ready,
            parts: self.to_controller.clone(),
        };
        let channels = Channels { tasks, ready: give_ready, parts: self.to_controller.clone() };
        let gatherer = Gatherer::new(driver, collector, plan, plans, channels);
        let told = stop.clone();
        let pilot = std::thread::spawn(move || pilot.run(&told));
        let told = stop.clone();
        let gatherer = std::thread::spawn(move || gatherer.run(&told));
        Threads { stop, pilot, gatherer }
    }

    /// Stops the session's threads and says what ended them.
    fn end(&mut self) {
        let Some(Threads { stop, pilot, gatherer }) = self.threads.take() else { return };
        stop.store(true, Ordering::Relaxed);
        if let Ok(Err(problem)) = pilot.join() {
            error!("epochs can't be kept on the switch: {problem}");
        }
        if let Ok((collector, result)) = gatherer.join() {
            if let Err(problem) = result {
                error!("the switch can't be looked after: {problem}");
            }
            self.way = Some(collector.into_way());
        }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.end();
    }
}

impl Measurer for Measuring {
    type Error = anyhow::Error;

    fn begin(&mut self, plan: &SessionPlan) -> anyhow::Result<()> {
        program::check(&plan.layout)?;
        if let Some(driver) = &self.driver {
            program::check_built(driver.info(), &plan.layout)?;
        }
        self.end();
        // Of no use to whoever planned this session.
        while self.parts.try_recv().is_ok() {}
        let plans = Arc::new(Mutex::new(Timeline::new(plan.attention)));
        self.session = Some((plan.clone(), plans));
        self.retry_at = Instant::now();
        Ok(())
    }

    fn attend(&mut self, epoch: u64, attention: Attention) {
        if let Some((_, plans)) = &self.session
            && let Err(problem) = lock(plans).change(epoch, attention)
        {
            // Its sketches will say under what they were measured.
            warn!("attention of epoch {epoch}: {problem}");
        }
    }

    fn lead_ns(&self) -> u64 {
        // A thread may be late.
        let clock = self.session.as_ref().map(|(plan, _)| plan.clock);
        clock.map_or(0, |clock| prepare_ns(&clock)) + 2_000_000
    }

    fn setup_ns(&self) -> u64 {
        SETUP_NS
    }
}

/// Connects to the driver, and has the switch forward.
fn connect(config: &Config, runtime: &Arc<Runtime>) -> Result<Driver, ClientError> {
    let options = Options {
        address: config.driver.address.clone(),
        device: config.driver.device,
        client: config.driver.client,
        program: config.driver.program.clone(),
    };
    let driver = Driver::connect(runtime, &options)?;
    ports::configure(&driver, config)?;
    Ok(driver)
}

/// Fills in the deployment's secret tables, and empties those of epochs.
fn fill(driver: &Driver, plan: &SessionPlan) -> Result<(), ClientError> {
    let secrets = driver.numbered(&entries::secrets(&HashFamily::new(&plan.hash_key)))?;
    let mut present = Vec::new();
    for byte in 0..4 {
        present.extend(driver.entries(&entries::secret_table(byte))?);
    }
    driver.change(&present, &secrets)?;
    for table in entries::epoch_tables() {
        driver.clear(&table)?;
    }
    Ok(())
}
