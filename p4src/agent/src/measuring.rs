//! Measuring on one switch: what is to be measured, and the threads that do. A driver that goes is
//! connected to anew, beside the conversation with the controller, and measuring goes on from
//! there.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_bfrt::{ClientError, Options};
use calumma_epoch::Timeline;
use calumma_switch_host::{Measurer, Session, SystemOffer, unix_ns};
use calumma_wire::{Role, SystemId, SystemSetup};
use tokio::runtime::Runtime;
use tracing::{error, info, warn};

use crate::collector::{Collector, Way};
use crate::config::Config;
use crate::driver::Driver;
use crate::figures::Figures;
use crate::gatherer::{Channels, Gatherer, Part, Run, lock, prepare_ns};
use crate::pilot::Pilot;
use crate::system::{Plan, Setup, System};
use crate::tables::TableEntry;
use crate::{collector, fits, forwarding};

/// Time to get a switch ready for a session: a thousand entries, and registers cleared.
const SETUP_NS: u64 = 1_000_000_000;

/// How long to wait before a driver that has gone is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(crate) struct Measuring {
    systems: &'static [&'static dyn System],
    config: Config,
    runtime: Arc<Runtime>,
    driver: Option<Driver>,
    /// The system whose program was loaded when the driver was connected to last, if it is one of
    /// ours.
    loaded: Option<SystemId>,
    /// Here while no thread has it.
    way: Option<Way>,
    running: Option<Running>,
    /// The systems of the session that are not run, and why.
    declined: Vec<(SystemId, String)>,
    /// What the controller has not been told yet.
    news: VecDeque<(SystemId, String)>,
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

/// The system that a session has the switch run.
struct Running {
    id: SystemId,
    run: Run,
    /// What the controller has asked for.
    session: Session,
    /// The plan accepted last, and the epoch from which it holds.
    holding: (Plan, u64),
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
    /// For what.
    setup: Option<Arc<dyn Setup>>,
    driver: anyhow::Result<Driver>,
}

impl Measuring {
    /// Connects to the driver and has the switch forward.
    ///
    /// # Errors
    /// Without a driver or its program, or where a table is full.
    pub(crate) fn new(
        systems: &'static [&'static dyn System],
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
            systems,
            config,
            runtime,
            loaded: loaded(systems, &driver),
            driver: Some(driver),
            way: Some(way),
            running: None,
            declined: Vec::new(),
            news: VecDeque::new(),
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

    /// The system that is run and what it measures by; none before the first session.
    pub(crate) fn running(&self) -> Option<(SystemId, &dyn Setup)> {
        self.running.as_ref().map(|running| (running.id, &*running.run.setup))
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
    /// switch from running a system, once.
    pub(crate) fn poll(&mut self) -> Option<(SystemId, String)> {
        self.look_after();
        self.news.pop_front()
    }

    fn look_after(&mut self) {
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
            match preparing.try_recv() {
                Ok(prepared) => self.begin_measuring(prepared),
                Err(TryRecvError::Empty) => {}
                // The thread is gone, and with it the way out of the switch.
                Err(TryRecvError::Disconnected) => {
                    self.preparing = None;
                    let problem = "the switch could not be got ready: restart the daemon";
                    self.problem(problem.to_owned());
                }
            }
            return;
        }
        let idle = self.driver.is_some() && self.running.is_none();
        if self.threads.is_none() && !idle && Instant::now() >= self.retry_at {
            self.prepare();
        }
    }

    /// Has a thread get the switch ready for what it is to run, if anything.
    fn prepare(&mut self) {
        let Some(way) = self.way.take() else { return };
        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        let driver = self.driver.clone();
        let setup = self.running.as_ref().map(|running| running.run.setup.clone());
        let (give, prepared) = channel();
        self.preparing = Some(prepared);
        std::thread::spawn(move || {
            let driver = get_ready(&config, &runtime, driver, setup.as_deref());
            let _ = give.send(Prepared { way, setup, driver });
        });
    }

    fn begin_measuring(&mut self, prepared: Prepared) {
        self.preparing = None;
        let Prepared { way, setup, driver } = prepared;
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
        self.loaded = loaded(self.systems, &driver);
        self.driver = Some(driver.clone());
        self.problem = None;
        match (&self.running, setup) {
            (Some(Running { run, .. }), Some(setup)) if Arc::ptr_eq(&run.setup, &setup) => {
                let run = run.clone();
                let collector = Collector::new(driver.clone(), way, self.figures.clone());
                self.threads = Some(self.spawn(driver, collector, run));
            }
            // The controller wants something else by now.
            _ => self.way = Some(way),
        }
    }

    /// Says what is wrong where it was not wrong before.
    fn problem(&mut self, problem: String) {
        if self.problem.as_ref() == Some(&problem) {
            return;
        }
        error!("{problem}; trying again");
        self.problem = Some(problem.clone());
        self.news.extend(self.running.as_ref().map(|running| (running.id, problem)));
    }

    fn spawn(&self, driver: Driver, collector: Collector, mut run: Run) -> Threads {
        let now_ns = unix_ns() + prepare_ns(&run.clock);
        run.first_epoch = run.first_epoch.max(run.clock.epoch_at(now_ns) + 2);
        let stop = Arc::new(AtomicBool::new(false));
        let (give_task, tasks) = channel();
        let (give_ready, ready) = channel();
        let pilot = Pilot {
            driver: driver.clone(),
            role: self.role(),
            clock: run.clock,
            first_epoch: run.first_epoch,
            tasks: give_task,
            ready,
            parts: self.to_controller.clone(),
            figures: self.figures.clone(),
        };
        let channels = Channels { tasks, ready: give_ready, parts: self.to_controller.clone() };
        let gatherer = Gatherer::new(driver, collector, run, channels, self.figures.clone());
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

impl Measuring {
    fn role(&self) -> Role {
        self.config.role.into()
    }

    /// The systems that switches of this role can run.
    fn offered(&self) -> impl Iterator<Item = &'static dyn System> {
        let role = self.role();
        self.systems.iter().copied().filter(move |system| system.roles().contains(&role))
    }

    /// Has a system run as the session says: on, where it runs so already, or from the session's
    /// first epoch on.
    fn measure(
        &mut self,
        system: &'static dyn System,
        setup: &SystemSetup,
        session: &Session,
    ) -> Result<(), String> {
        let id = system.id();
        if let Some(running) = self.running.as_mut()
            && running.id == id
            && goes_on(id, &running.session, session)
        {
            if *running.holding.0 != *setup.plan {
                running.run.setup.check(&setup.plan)?;
                running.reconfigure(session.first_epoch, &setup.plan);
            }
            return Ok(());
        }
        let plan = Plan::from(&*setup.plan);
        let setup = system.setup(self.role(), session, setup)?;
        if let Some(driver) = &self.driver {
            fits::check(driver.info(), &setup.needs()).map_err(|problem| problem.to_string())?;
        }
        self.end();
        // Of no use to whoever planned this session.
        while self.parts.try_recv().is_ok() {}
        let Session { clock, first_epoch, .. } = *session;
        let plans = Arc::new(Mutex::new(Timeline::new(plan.clone())));
        self.running = Some(Running {
            id,
            run: Run { setup, clock, first_epoch, plans },
            session: session.clone(),
            holding: (plan, first_epoch),
        });
        self.retry_at = Instant::now();
        Ok(())
    }

    /// Which of the systems of a session to run: the only one, or the one whose program is loaded.
    /// A switch has one program at a time.
    fn choose<'a>(
        &self,
        session: &'a Session,
    ) -> Result<Option<(&'static dyn System, &'a SystemSetup)>, String> {
        let asked = |system: &'static dyn System| Some((system, session.setup_of(system.id())?));
        let asked: Vec<_> = self.offered().filter_map(asked).collect();
        if let [] | [_] = asked[..] {
            return Ok(asked.first().copied());
        }
        let is_loaded = |(system, _): &(&dyn System, _)| self.loaded == Some(system.id());
        let chosen = asked.iter().copied().find(is_loaded).map(Some);
        chosen.ok_or_else(|| {
            let programs: Vec<_> = asked.iter().map(|(system, _)| system.program()).collect();
            format!(
                "a Tofino runs one P4 program at a time, and none of {} is loaded on this one",
                programs.join(", ")
            )
        })
    }
}

/// The system whose program the driver runs.
fn loaded(systems: &[&dyn System], driver: &Driver) -> Option<SystemId> {
    let loaded = systems.iter().find(|system| driver.info().table(system.landmark()).is_ok());
    loaded.map(|system| system.id())
}

/// Whether what runs by one session for a system can go on in another.
fn goes_on(id: SystemId, one: &Session, other: &Session) -> bool {
    let fixed =
        |session: &Session| session.setup_of(id).map(|setup| (setup.version, setup.setup.clone()));
    let named = one.node_id.is_some() && other.node_id.is_some();
    (!named || one.node_id == other.node_id)
        && one.hash_key == other.hash_key
        && one.clock == other.clock
        && fixed(one) == fixed(other)
}

impl Measurer for Measuring {
    fn systems(&self) -> Vec<SystemOffer> {
        self.offered().map(System::offer).collect()
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let holding = self.running.iter().filter_map(|running| {
            let (plan, from_epoch) = &running.holding;
            Some((running.id, running.run.setup.holding(plan, *from_epoch)?))
        });
        holding.collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let Some((system, setup)) = self.choose(session)? else {
            self.end();
            self.running = None;
            self.declined.clear();
            self.news.clear();
            return Ok(());
        };
        self.measure(system, setup, session)?;
        let others = self.offered().filter(|other| other.id() != system.id());
        let others = others.filter(|other| session.setup_of(other.id()).is_some());
        let reason = |other: &dyn System| {
            format!(
                "{} is not run here: a Tofino runs one P4 program at a time, and {} is loaded, which is \
                 for {}; load {} instead",
                other.name(),
                system.program(),
                system.name(),
                other.program()
            )
        };
        self.declined = others.map(|other| (other.id(), reason(other))).collect();
        self.news = self.declined.clone().into();
        Ok(())
    }

    fn check(&self, system: SystemId, plan: &[u8]) -> Result<(), String> {
        if let Some((_, reason)) = self.declined.iter().find(|(id, _)| *id == system) {
            return Err(reason.clone());
        }
        let running = self.running.as_ref().filter(|running| running.id == system);
        running.ok_or("it is not measuring")?.run.setup.check(plan)
    }

    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]) {
        let Some(running) = self.running.as_mut().filter(|running| running.id == system) else {
            return;
        };
        running.reconfigure(epoch, plan);
    }

    fn lead_ns(&self) -> u64 {
        // A thread may be late.
        let clock = self.running.as_ref().map(|running| running.run.clock);
        clock.map_or(0, |clock| prepare_ns(&clock)) + 2_000_000
    }

    fn setup_ns(&self) -> u64 {
        SETUP_NS
    }
}

impl Running {
    fn reconfigure(&mut self, epoch: u64, plan: &[u8]) {
        let plan = Plan::from(plan);
        if let Err(problem) = lock(&self.run.plans).change(epoch, plan.clone()) {
            // Its sketches will say under what they were measured.
            warn!("plan of epoch {epoch}: {problem}");
        }
        self.holding = (plan, epoch);
    }
}

/// Connects to the driver, where that is not done, and gets the switch ready for a session.
fn get_ready(
    config: &Config,
    runtime: &Arc<Runtime>,
    driver: Option<Driver>,
    setup: Option<&dyn Setup>,
) -> anyhow::Result<Driver> {
    let driver = match driver {
        Some(driver) => driver,
        None => connect(config, runtime)?,
    };
    if let Some(setup) = setup {
        let needs = setup.needs();
        fits::check(driver.info(), &needs)?;
        fill(&driver, &setup.fixed(), &needs.epoch_tables)?;
        collector::clear_all(&driver, &needs.sources)?;
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

/// Fills in the tables of a session, and empties those of epochs.
fn fill(driver: &Driver, fixed: &[TableEntry], epoch_tables: &[String]) -> Result<(), ClientError> {
    let wanted = driver.numbered(fixed)?;
    let tables: BTreeSet<&str> = fixed.iter().map(|entry| &*entry.table).collect();
    let mut present = Vec::new();
    for table in tables {
        present.extend(driver.entries(table)?);
    }
    driver.change(&present, &wanted)?;
    for table in epoch_tables {
        driver.clear(table)?;
    }
    Ok(())
}
