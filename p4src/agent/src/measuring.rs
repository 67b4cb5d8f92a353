//! Measuring on one switch: what is to be measured, and the threads that do. A driver that goes is
//! connected to anew, beside the conversation with the controller, and measuring goes on from
//! there.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_bfrt::{ClientError, Info, Options};
use calumma_plane::system::RouteWatch;
use calumma_switch_host::{Session, unix_ns};
use calumma_wire::{Role, SystemId};
use tokio::runtime::Runtime;
use tracing::{error, info};

use crate::collector::{Collector, Way};
use crate::config::{Config, Method};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::gatherer::{Channels, Gatherer, Part, Run, prepare_ns};
use crate::marks;
use crate::pilot::{MarkedBy, Noticing, Pilot};
use crate::system::{Plan, Setup, System};
use crate::tables::TableEntry;
use crate::{collector, fits, forwarding, system};

mod session;

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
    /// That program.
    program: Info,
    /// Here while no thread has it.
    way: Option<Way>,
    running: Option<Running>,
    /// What is to run once the system that has left the session is done.
    next: Option<Running>,
    /// The systems of the session that are not run, and why.
    declined: Vec<(SystemId, String)>,
    /// What is to be sent to the controller of them.
    news: VecDeque<(SystemId, String)>,
    threads: Option<Threads>,
    preparing: Option<Receiver<Prepared>>,
    /// When to try again what went wrong.
    retry_at: Instant,
    /// What went wrong last.
    problem: Option<String>,
    to_controller: Sender<Part>,
    parts: Receiver<Part>,
    /// What the system that ran before has finished.
    rest: VecDeque<Finished>,
    counters: Arc<Counters>,
    /// By how many nanoseconds the clock was set that has ended the session; 0 where none was.
    clock_set: Arc<AtomicI64>,
    /// When the routes changed last.
    routes: RouteWatch,
}

/// What a system has finished, with its number and its words' meaning.
pub(crate) type Finished = (SystemId, Arc<dyn Setup>, Part);

/// The system that a session has the switch run.
struct Running {
    id: SystemId,
    run: Run,
    /// What the controller has asked for.
    session: Session,
    /// The plan accepted last, and the epoch from which it holds.
    holding: (Plan, u64),
    /// Whether it has left the session: it finishes its last epochs then, and no more.
    left: bool,
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
        counters: Arc<Counters>,
    ) -> Result<Measuring, ClientError> {
        let driver = connect(&config, &runtime)?;
        counters.connections.add(1);
        info!(edge = config.name, driver = config.driver.address, "forwarding");
        let (to_controller, parts) = channel();
        Ok(Measuring {
            systems,
            config,
            runtime,
            loaded: loaded(systems, &driver),
            program: driver.info().clone(),
            driver: Some(driver),
            way: Some(way),
            running: None,
            next: None,
            declined: Vec::new(),
            news: VecDeque::new(),
            threads: None,
            preparing: None,
            retry_at: Instant::now(),
            problem: None,
            to_controller,
            parts,
            rest: VecDeque::new(),
            counters,
            clock_set: Arc::default(),
            routes: RouteWatch::default(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The driver; none while it is away.
    pub(crate) fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()
    }

    /// The next thing that is to be sent to the controller.
    pub(crate) fn finished(&mut self) -> Option<Finished> {
        self.rest.pop_front().or_else(|| self.received())
    }

    /// What the system that runs has finished.
    fn received(&self) -> Option<Finished> {
        let Running { id, run, .. } = self.running.as_ref()?;
        Some((*id, run.setup.clone(), self.parts.try_recv().ok()?))
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
        // Entries change from now on, whether all are accepted or not.
        self.routes.changed(unix_ns());
        let forwarded = self.configure(config);
        self.routes.changed(unix_ns());
        forwarded
    }

    fn configure(&mut self, config: Config) -> Result<(), ClientError> {
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
        self.advance();
        self.news.pop_front()
    }

    fn advance(&mut self) {
        if let Some(Threads { stop, pilot, gatherer }) = &self.threads {
            // Without one the other is of no use. It may still wait for the driver. Once a system
            // has left, there is nothing more to gather, and the timestamp bit flips on.
            let left = self.running.as_ref().is_some_and(|running| running.left);
            if pilot.is_finished() || (gatherer.is_finished() && !left) {
                stop.store(true, Ordering::Relaxed);
            }
            if pilot.is_finished() && gatherer.is_finished() {
                self.end();
                self.driver = None;
                self.retry_at = Instant::now() + RETRY;
            }
        }
        self.take_turns();
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

    /// Lets the next system run where the one before has left and its last epochs are finished.
    fn take_turns(&mut self) {
        let left = self.running.as_ref().is_some_and(|running| running.left);
        let over = self.threads.as_ref().is_none_or(|threads| threads.gatherer.is_finished());
        if !(left && over) || self.next.is_none() {
            return;
        }
        self.end();
        while let Some(finished) = self.received() {
            self.rest.push_back(finished);
        }
        self.running = self.next.take();
        self.retry_at = Instant::now();
    }

    /// Has a thread get the switch ready for what it is to run, if anything.
    fn prepare(&mut self) {
        let Some(way) = self.way.take() else { return };
        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        let driver = self.driver.clone();
        let run = self.running.as_ref().map(|running| running.run.clone());
        let (give, prepared) = channel();
        self.preparing = Some(prepared);
        std::thread::spawn(move || {
            let driver = get_ready(&config, &runtime, driver, run.as_ref());
            let setup = run.map(|run| run.setup);
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
            self.counters.connections.add(1);
            info!(driver = self.config.driver.address, "the driver is back");
        }
        self.loaded = loaded(self.systems, &driver);
        self.program = driver.info().clone();
        self.driver = Some(driver.clone());
        self.problem = None;
        match (&self.running, setup) {
            (Some(Running { run, .. }), Some(setup)) if Arc::ptr_eq(&run.setup, &setup) => {
                let run = run.clone();
                let collector = Collector::new(driver.clone(), way, self.counters.clone());
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
        let (needs, window) = (run.setup.needs(), run.setup.window());
        run.first_epoch = run.first_epoch.max(run.clock.epoch_at(now_ns) + 2);
        run.first_epoch = run.first_epoch.next_multiple_of(window);
        let stop = Arc::new(AtomicBool::new(false));
        let (give_task, tasks) = channel();
        let (give_ready, ready) = channel();
        let pilot = Pilot {
            driver: driver.clone(),
            role: self.role(),
            clock: run.clock,
            window,
            first_epoch: run.first_epoch,
            end: run.end.clone(),
            tasks: Some(give_task),
            ready,
            noticing: self.noticing(&run),
            counters: self.counters.clone(),
            clock_set: self.clock_set.clone(),
            routes: self.routes.clone(),
            marked_by: MarkedBy {
                carrier: self.config.carrier.kind,
                marks: run.marks.clone(),
                armed: Vec::new(),
            },
            ingress_at_take: run.setup.ingress_at_take(),
            entered: needs.entered,
            stopped: needs.stopped,
        };
        let channels = Channels { tasks, ready: give_ready, parts: self.to_controller.clone() };
        let gatherer = Gatherer::new(driver, collector, run, channels, self.counters.clone());
        let flag = stop.clone();
        let pilot = std::thread::spawn(move || pilot.run(&flag));
        let flag = stop.clone();
        let gatherer = std::thread::spawn(move || gatherer.run(&flag));
        Threads { stop, pilot, gatherer }
    }

    /// Where the program of a system numbers notices, and the way for them.
    fn noticing(&self, run: &Run) -> Option<Noticing> {
        let collection = &self.config.collection;
        let is_way = collection.method == Method::Packets;
        let session = is_way.then_some(collection.notice_session);
        let streams = run.setup.needs().notices?;
        Some(Noticing { streams, session, allowed: Vec::new() })
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
                error!("finished groups can't be taken out of the switch: {problem}");
            }
            self.way = Some(collector.into_way());
        }
    }
}

impl Measuring {
    /// Sets what tables do on a miss. A driver that is away is given it when it is back, with all
    /// that holds for the session.
    fn put(&self, entries: &[TableEntry]) {
        let Some(driver) = self.driver.as_ref().filter(|_| !entries.is_empty()) else { return };
        let numbered = driver.numbered(entries).map_err(ClientError::from);
        let put = numbered.and_then(|entries| driver.change(&[], &entries));
        if let Err(problem) = put {
            error!("an entry can't be written: {problem}");
        }
    }

    fn role(&self) -> Role {
        self.config.role.into()
    }

    /// The systems that switches of this role can run.
    fn offered(&self) -> impl Iterator<Item = &'static dyn System> {
        let role = self.role();
        self.systems.iter().copied().filter(move |system| system.roles().contains(&role))
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.end();
    }
}

/// The system whose program the driver runs.
fn loaded(systems: &[&dyn System], driver: &Driver) -> Option<SystemId> {
    system::of_program(systems, driver.info()).map(System::id)
}

/// Connects to the driver, where that is not done, and gets the switch ready for a session.
fn get_ready(
    config: &Config,
    runtime: &Arc<Runtime>,
    driver: Option<Driver>,
    run: Option<&Run>,
) -> anyhow::Result<Driver> {
    let driver = match driver {
        Some(driver) => driver,
        None => connect(config, runtime)?,
    };
    if let Some(Run { setup, marks, .. }) = run {
        let needs = setup.needs();
        fits::check(driver.info(), &needs)?;
        marks::check(driver.info(), config.carrier.kind)?;
        let mut fixed = setup.fixed();
        if let Some(marks) = marks {
            // Nothing is signed by half a secret.
            driver.clear(marks::EPOCHS)?;
            fixed.extend(marks.secrets());
        }
        fill(&driver, &fixed, &needs.epoch_tables)?;
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
    // What a table does on a miss is written anew each time.
    let keyed = fixed.iter().filter(|entry| !entry.keys.is_empty());
    let tables: BTreeSet<&str> = keyed.map(|entry| &*entry.table).collect();
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
