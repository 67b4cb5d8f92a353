//! The daemon: the conversation with the controller, which measuring goes on beside, and what its
//! host asks of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use calumma_interface::Interface;
use calumma_switch_host::metrics::Readers;
use calumma_switch_host::{Conversation, Identity, MOST_HELD, Signals, Supervisor, unix_ns};
use calumma_wire::{Marking, Message, SwitchKind, SystemId};
use tracing::{error, info, warn};

use crate::collector::Way;
use crate::config::{Config, Method};
use crate::gatherer::Part;
use crate::measuring::Measuring;
use crate::metrics::{self, Shown, Snapshot};
use crate::system::{Setup, System};

/// How long a turn of the daemon waits for messages.
const TICK: Duration = Duration::from_millis(1);

/// How long a controller is given to take what was finished last.
const FINISH: Duration = Duration::from_secs(1);

/// How often what can be read of the daemon is brought up to date.
const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// Runs the daemon by the configuration at `path` until SIGINT or SIGTERM. On
/// SIGHUP it reads the file again. It offers the controller those of `systems` that its role can
/// run.
///
/// # Errors
/// At the start, when there is no driver, another program, no CPU port, or no room in a table. What
/// goes wrong later is logged and tried again.
pub fn run(systems: &'static [&'static dyn System], path: &Path) -> anyhow::Result<()> {
    let signals = Signals::catch().context("handlers for SIGINT, SIGTERM and SIGHUP")?;
    let config = Config::load(path)?;
    let way = way(&config)?;
    run_by(systems, config, path, way, &signals)
}

/// As [`run`], with a configuration that has been read, another way for groups to come out of the
/// switch than it names, and flags that somebody else raises.
///
/// # Errors
/// As [`run`].
pub fn run_by(
    systems: &'static [&'static dyn System],
    config: Config,
    path: &Path,
    way: Way,
    signals: &Signals,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("driver")
        .enable_all()
        .build()
        .context("the runtime of the driver's connection")?;
    let identity = Identity {
        node: config.name.clone(),
        role: config.role.into(),
        kind: SwitchKind::Tofino,
        program: format!(
            "{} by calumma-switchd {}",
            config.driver.program,
            env!("CARGO_PKG_VERSION")
        ),
        marking: Marking { carrier: config.carrier.kind.words().to_owned(), ..Marking::default() },
    };
    if config.insecure {
        warn!(controller = config.controller, "insecure = true: no TLS is asked for");
    }
    let mut conversation =
        Conversation::new(identity, config.controller.clone(), config.tls.clone(), MOST_HELD);
    let shown = Arc::new(Shown::new(Arc::default()));
    let metrics = metrics::serve(&config, shown.clone())?;
    let mut measuring =
        Measuring::new(systems, config, Arc::new(runtime), way, shown.counters.clone())?;
    let mut show_at = Instant::now();
    let mut reload = Reload { path: path.to_owned(), signals: signals.clone(), metrics };
    let mut supervisor = Supervisor::of_environment();
    supervisor.ready();
    while !signals.stop.load(Ordering::Relaxed) {
        conversation.step(unix_ns(), &mut measuring);
        while let Some((system, problem)) = measuring.poll() {
            let epoch = conversation.session().map_or(0, |session| session.first_epoch);
            conversation.decline(system, epoch, &problem);
        }
        while let Some((system, setup, part)) = measuring.finished() {
            deliver(&mut conversation, system, &*setup, part);
        }
        if reload.follow(&mut measuring, &supervisor) {
            conversation.transport_mut().set_tls(measuring.config().tls.clone());
        }
        conversation.flush();
        if Instant::now() >= show_at {
            shown.publish(snapshot(&measuring, &conversation));
            show_at += SHOWN_EVERY;
        }
        supervisor.alive();
        conversation.wait(TICK);
    }
    supervisor.stopping();
    let undelivered = conversation.finish(FINISH);
    if undelivered > 0 {
        warn!(frames = undelivered, "no controller took all that was measured");
    }
    Ok(())
}

/// How things stand.
fn snapshot(measuring: &Measuring, conversation: &Conversation) -> Snapshot {
    Snapshot {
        driver: measuring.driver().cloned(),
        ports: measuring.config().ports.iter().map(|port| port.number).collect(),
        connected: conversation.is_connected(),
        held_bytes: conversation.held_bytes() as u64,
    }
}

/// The configuration, read again while the daemon runs.
struct Reload {
    path: PathBuf,
    signals: Signals,
    /// Who may read the switch's metrics, where they are served.
    metrics: Option<Arc<Readers>>,
}

impl Reload {
    /// Lets the switch forward by the file as it is now, where somebody has asked for that. Gives
    /// whether somebody has.
    fn follow(&mut self, measuring: &mut Measuring, supervisor: &Supervisor) -> bool {
        // Not while a thread has the old configuration in its hands.
        if measuring.is_preparing() || !self.signals.reload_asked() {
            return false;
        }
        supervisor.reloading();
        if let Some(metrics) = &self.metrics {
            metrics.reload();
        }
        match Config::load(&self.path) {
            Ok(new) => {
                let (followed, fixed) = measuring.config().following(&new);
                if !fixed.is_empty() {
                    let fixed = fixed.join(", ");
                    warn!("{fixed} can't change while the daemon runs; restart it");
                }
                match measuring.forward_by(followed) {
                    Ok(()) => info!("the configuration was read again"),
                    Err(problem) => error!("{problem}; the old configuration stays"),
                }
            }
            Err(problem) => error!("{problem}; the old configuration stays"),
        }
        supervisor.ready();
        true
    }
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

fn deliver(conversation: &mut Conversation, system: SystemId, setup: &dyn Setup, part: Part) {
    match part {
        Part::Side { closed, words, totals } => match (setup.side(&closed, &words), totals) {
            (Ok(mut side), Some(mut totals)) => {
                totals.append(&mut side.counters);
                conversation.side_with_totals(side, totals);
            }
            (Ok(side), None) => drop(conversation.side(side)),
            (Err(problem), _) => error!(closed.epoch, "{problem}"),
        },
        Part::Sealed { epoch, late } => {
            conversation.sealed(system, epoch, late);
        }
        Part::Notice { epoch, body } => {
            conversation.tell(&Message::Notice { system, epoch, body });
        }
    }
}
