//! Measuring on one switch: what is to be measured, and the threads that do. A driver that goes is
//! connected to anew, beside the conversation with the controller, and measuring goes on from there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_bfrt::{ClientError, Options};
use calumma_chamelemon::frames::{self, SessionPlan, SwitchSession};
use calumma_epoch::Timeline;
use calumma_sketch::HashFamily;
use calumma_switch_host::{Measurer, Session, SystemOffer, unix_ns};
use calumma_wire::SystemId;
use tokio::runtime::Runtime;
use tracing::{error, info, warn};

use crate::collector::{Collector, Way};
use crate::config::Config;
use crate::driver::Driver;
use crate::figures::Figures;
use crate::gatherer::{Channels, Gatherer, Part, Plans, lock, prepare_ns};
use crate::pilot::Pilot;
use crate::{collector, entries, fits, forwarding, program};

/// Time to get a switch ready for a deployment: 1024 secrets, and registers cleared.
const SETUP_NS: u64 = 1_000_000_000;

/// How long to wait before a driver that has gone is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(crate) struct Measuring {
    config: Config,
    runtime: Arc<Runtime>,
    driver: Option<Driver>,
    /// Here while no thread has it.
    way: Option<Way>,
    session: Option<(SwitchSession, Plans)>,
    threads: Option<Threads>,
    preparing: Option<Receiver<Prepared>>,
    /// When to try again what went wrong.
    retry_at: Instant,
    /// What went wrong last.
    problem: Option<String>,
    to_controller: Sender<Part>,
    parts: Receiver<Part>,
    figures: Arc<Figures>,
}

/// The pilot and the gatherer of a session.
struct Threads {
    stop: Arc<AtomicBool>,
    pilot: JoinHandle<Result<(), ClientError>>,
    gatherer: JoinHandle<(Collector, Result<(), ClientError>)>,
}

/// What becomes of getting a switch ready.
struct Prepared {
    way: Way,
    /// For what session.
    plan: Option<SessionPlan>,
    driver: anyhow::Result<Driver>,
}

impl Measuring {
    /// Connects to the driver and has the switch forward.
    ///
    /// # Errors
    /// Without a driver or its program, or where a table is full.
    pub(crate) fn new(
        config: Config,
        runtime: Arc<Runtime>,
        way: Way,
        figures: Arc<Figures>,
    ) -> Result<Measuring, ClientError> {
        let driver = connect(&config, &runtime)?;
        figures.connections.add(1);
        info!(edge = config.name, driver = config.driver.address, "forwarding");
        let (to_controller, parts) = channel();
        Ok(Measuring {
            config,
            runtime,
            driver: Some(driver),
            way: Some(way),
            session: None,
            threads: None,
            preparing: None,
            retry_at: Instant::now(),
            problem: None,
            to_controller,
            parts,
            figures,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The driver; none while it is away.
    pub(crate) fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()
    }

    /// What is measured by; none before the first session.
    pub(crate) fn session(&self) -> Option<&SwitchSession> {
        self.session.as_ref().map(|(session, _)| session)
    }

    /// The next thing that is to be sent to the controller.
    pub(crate) fn finished(&self) -> Option<Part> {
        self.parts.try_recv().ok()
    }

    /// Whether the switch is being got ready by a thread.
    pub(crate) fn is_preparing(&self) -> bool {
        self.preparing.is_some()
    }

    /// Forwards by another configuration; where that is refused, by the old one.
    ///
    /// # Errors
    /// What the driver refuses.
    pub(crate) fn forward_by(&mut self, config: Config) -> Result<(), ClientError> {
        if let Some(driver) = &self.driver
            && let Err(problem) = forwarding::configure(driver, &config)
        {
            // As far as it goes: a driver that has gone gets it when it is back.
            let _ = forwarding::configure(driver, &self.config);
            return Err(problem);
        }
        self.config = config;
        Ok(())
    }

    /// Begins what is to be measured and is not, and ends what has broken. Gives what keeps the
    /// switch from measuring, once.
    pub(crate) fn poll(&mut self) -> Option<String> {
        if let Some(Threads { stop, pilot, gatherer }) = &self.threads {
            // Without one the other is of no use. It may still wait for the driver.
            if pilot.is_finished() || gatherer.is_finished() {
                stop.store(true, Ordering::Relaxed);
            }
            if pilot.is_finished() && gatherer.is_finished() {
                self.end();
                self.driver = None;
                self.retry_at = Instant::now() + RETRY;
            }
        }
        if let Some(preparing) = &self.preparing {
            return match preparing.try_recv() {
                Ok(prepared) => self.begin_measuring(prepared),
                Err(TryRecvError::Empty) => None,
                // The thread is gone, and with it the way out of the switch.
                Err(TryRecvError::Disconnected) => {
                    self.preparing = None;
                    self.problem("the switch could not be got ready: restart the daemon".to_owned())
                }
            };
        }
        let idle = self.driver.is_some() && self.session.is_none();
        if self.threads.is_none() && !idle && Instant::now() >= self.retry_at {
            self.prepare();
        }
        None
    }

    /// Has a thread get the switch ready for the session, if there is one.
    fn prepare(&mut self) {
        let Some(way) = self.way.take() else { return };
        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        let driver = self.driver.clone();
        let plan = self.session.as_ref().map(|(session, _)| session.plan().clone());
        let (give, prepared) = channel();
        self.preparing = Some(prepared);
        std::thread::spawn(move || {
            let driver = get_ready(&config, &runtime, driver, plan.as_ref());
            let _ = give.send(Prepared { way, plan, driver });
        });
    }

    fn begin_measuring(&mut self, prepared: Prepared) -> Option<String> {
        self.preparing = None;
        let Prepared { way, plan, driver } = prepared;
        let driver = match driver {
            Ok(driver) => driver,
            Err(problem) => {
                self.way = Some(way);
                self.driver = None;
                self.retry_at = Instant::now() + RETRY;
                return self.problem(format!("{problem:#}"));
            }
        };
        if self.driver.is_none() {
            self.figures.connections.add(1);
            info!(driver = self.config.driver.address, "the driver is back");
        }
        self.driver = Some(driver.clone());
        self.problem = None;
        match (&self.session, plan) {
            (Some((wanted, plans)), Some(plan)) if same(wanted.plan(), &plan) => {
                let plans = plans.clone();
                let collector =
                    Collector::new(driver.clone(), way, plan.layout.clone(), self.figures.clone());
                self.threads = Some(self.spawn(driver, collector, plan, plans));
            }
            // The controller wants something else by now.
            _ => self.way = Some(way),
        }
        None
    }

    /// Says what is wrong; gives it where it was not wrong before.
    fn problem(&mut self, problem: String) -> Option<String> {
        if self.problem.as_ref() == Some(&problem) {
            return None;
        }
        error!("{problem}; trying again");
        self.problem = Some(problem.clone());
        Some(problem)
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
            figures: self.figures.clone(),
        };
        let channels = Channels { tasks, ready: give_ready, parts: self.to_controller.clone() };
        let gatherer =
            Gatherer::new(driver, collector, plan, plans, channels, self.figures.clone());
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
    fn systems(&self) -> Vec<SystemOffer> {
        vec![SystemOffer { offer: frames::OFFER, held: true }]
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let holding = self.session().map(|session| session.holding().encode());
        holding.into_iter().map(|holding| (frames::ID, holding)).collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let Some(setup) = session.setup_of(frames::ID) else {
            self.end();
            self.session = None;
            return Ok(());
        };
        let Session { hash_key, clock, first_epoch, .. } = session;
        let plan = SessionPlan::decode(setup, hash_key.0, *clock, *first_epoch)?;
        program::check(&plan.layout).map_err(|problem| format!("{problem:#}"))?;
        if let Some(driver) = &self.driver {
            let fits = fits::check(driver.info(), &plan.layout);
            fits.map_err(|problem| format!("{problem:#}"))?;
        }
        self.end();
        // Of no use to whoever planned this session.
        while self.parts.try_recv().is_ok() {}
        let plans = Arc::new(Mutex::new(Timeline::new(plan.attention)));
        self.session = Some((SwitchSession::new(plan), plans));
        self.retry_at = Instant::now();
        Ok(())
    }

    fn check(&self, _: SystemId, plan: &[u8]) -> Result<(), String> {
        let session = self.session().ok_or("it is not measuring")?;
        session.check(plan).map(drop)
    }

    fn reconfigure(&mut self, _: SystemId, epoch: u64, plan: &[u8]) {
        let Some((session, plans)) = &mut self.session else { return };
        let Ok(attention) = session.check(plan) else { return };
        if let Err(problem) = lock(plans).change(epoch, attention) {
            // Its sketches will say under what they were measured.
            warn!("attention of epoch {epoch}: {problem}");
        }
        session.accept(epoch, attention);
    }

    fn lead_ns(&self) -> u64 {
        // A thread may be late.
        let clock = self.session().map(|session| session.plan().clock);
        clock.map_or(0, |clock| prepare_ns(&clock)) + 2_000_000
    }

    fn setup_ns(&self) -> u64 {
        SETUP_NS
    }
}

/// Whether two plans are of one session.
fn same(one: &SessionPlan, other: &SessionPlan) -> bool {
    (&one.layout, &one.hash_key, one.clock, one.first_epoch)
        == (&other.layout, &other.hash_key, other.clock, other.first_epoch)
}

/// Connects to the driver, where that is not done, and gets the switch ready for a session.
fn get_ready(
    config: &Config,
    runtime: &Arc<Runtime>,
    driver: Option<Driver>,
    plan: Option<&SessionPlan>,
) -> anyhow::Result<Driver> {
    let driver = match driver {
        Some(driver) => driver,
        None => connect(config, runtime)?,
    };
    if let Some(plan) = plan {
        fits::check(driver.info(), &plan.layout)?;
        fill(&driver, plan)?;
        collector::clear_all(&driver, &plan.layout)?;
    }
    Ok(driver)
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
    forwarding::configure(&driver, config)?;
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
