//! The configuration, read again while the switch runs.

use std::path::PathBuf;
use std::sync::Arc;

use calumma_switch_host::metrics::Readers;
use calumma_switch_host::{Signals, TlsFiles};
use tracing::{error, info, warn};

use crate::config::{Config, Settings};
use crate::forward::thread::Routes;

/// Reads the configuration again when a signal asks for it.
pub struct Reload {
    path: PathBuf,
    signals: Signals,
    running: Config,
    /// Where routes can be changed.
    routes: Option<Routes>,
    /// Who may read the switch's metrics, where they are served.
    metrics: Option<Arc<Readers>>,
}

impl Reload {
    /// Reads the file at `path`, of which the switch runs by `running`, forwarding by `routes` if
    /// it does and serving `metrics` if so.
    pub fn new(
        path: PathBuf,
        signals: Signals,
        running: Config,
        routes: Option<Routes>,
        metrics: Option<Arc<Readers>>,
    ) -> Self {
        Self { path, signals, running, routes, metrics }
    }

    /// Whether somebody has asked for it since this was asked last.
    pub(super) fn is_asked(&self) -> bool {
        self.signals.reload_asked()
    }

    /// By which files the controller is called.
    pub(super) fn tls(&self) -> Option<TlsFiles> {
        self.running.tls.clone()
    }

    /// The smallest MTU of interfaces to the fabric.
    pub(super) fn fabric_mtu(&self) -> Option<u16> {
        self.running.fabric_mtu()
    }

    /// The settings that lcores are to go by from now on; none where they stay as they are. Says in
    /// the log what has changed, and what would have but can't.
    pub(super) fn read(&mut self) -> Option<Settings> {
        if let Some(metrics) = &self.metrics {
            metrics.reload();
        }
        let new = match Config::load(&self.path) {
            Ok(new) => new,
            Err(problem) => {
                error!("{problem}; the old configuration stays");
                return None;
            }
        };
        // What can't change stays as it is, and is spoken of again the next time.
        let (followed, fixed) = self.running.following(&new);
        if !fixed.is_empty() {
            warn!("{} can't change while the switch runs; restart it", fixed.join(", "));
        }
        let settings = followed.settings();
        let changed = settings != self.running.settings();
        self.running = followed;
        self.reroute(&new);
        if !changed {
            info!("the configuration was read again; nothing changes");
            return None;
        }
        info!("the configuration was read again: {settings:?}");
        Some(settings)
    }

    /// Lets the switch forward by the routes of `new`, where they differ.
    fn reroute(&mut self, new: &Config) {
        let Some(routes) = &self.routes else { return };
        let same_mode = self.running.forwarding.mode == new.forwarding.mode;
        if !same_mode || self.running.forwarding == new.forwarding {
            return;
        }
        // On the ports that there are: those of the new file wait for the next start.
        let forwarding = new.forwarding.clone();
        let running = Config { forwarding, ..self.running.clone() };
        match running.plan(routes.macs()).and_then(|plan| routes.apply(plan)) {
            Ok(()) => self.running = running,
            Err(problem) => error!("{problem:#}; the old routes stay"),
        }
    }
}
