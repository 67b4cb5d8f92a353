//! A switch as a program and service of its host: log and exit code, signals from the system, and
//! notices to its supervisor.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use tracing::warn;
use tracing_subscriber::EnvFilter;

/// Runs the program `name` and gives how it ended. Errors are printed; what it logs goes to
/// standard error, as `RUST_LOG` says, or from `info` on.
pub fn run(name: &str, program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Flags that signals raise.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Raised by SIGINT and SIGTERM: measure the epoch under way to its end, and leave.
    pub stop: Arc<AtomicBool>,
    /// Raised by SIGHUP: read the configuration again.
    pub reload: Arc<AtomicBool>,
}

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from here on. A second SIGINT or SIGTERM ends the process
    /// at once.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch() -> std::io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag not yet raised.
            flag::register_conditional_shutdown(signal, 1, signals.stop.clone())?;
            flag::register(signal, signals.stop.clone())?;
        }
        flag::register(SIGHUP, signals.reload.clone())?;
        Ok(signals)
    }

    /// Whether the configuration is to be read again: true once for each SIGHUP.
    pub fn reload_asked(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}

/// systemd, where it started the switch: it wants to know when that is ready, and that it lives.
#[derive(Debug)]
pub struct Supervisor {
    /// How often it expects a notice, and when it got the last.
    beat: Option<(Duration, Instant)>,
}

impl Supervisor {
    /// The supervisor named by this process's environment, if any.
    pub fn of_environment() -> Self {
        // Twice as often as asked for, so that one beat may come late.
        let beat = sd_notify::watchdog_enabled().map(|period| (period / 2, Instant::now()));
        Self { beat }
    }

    /// The switch forwards.
    pub fn ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// The configuration is read again; [`ready`](Self::ready) says when that is done.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(problem) => warn!("systemd can't be notified: {problem}"),
        }
    }

    /// The switch is about to leave.
    pub fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    /// Says that the switch lives, where that is asked for and due.
    pub fn alive(&mut self) {
        let Some((period, last)) = &mut self.beat else { return };
        if last.elapsed() >= *period {
            *last = Instant::now();
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    fn notify(&self, what: &[NotifyState<'_>]) {
        if let Err(problem) = sd_notify::notify(what) {
            warn!("systemd can't be notified: {problem}");
        }
    }
}
