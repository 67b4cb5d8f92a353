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
        let follows = followed != self.running;
        self.running = followed;
        let reroutes = self.reroute(&new);
        if follows || reroutes {
            info!(reroutes, "the configuration was read again: {settings:?}");
        } else {
            info!("the configuration was read again; nothing changes");
        }
        changed.then_some(settings)
    }

    /// Lets the switch forward by the routes of `new`, where they differ from those that it goes
    /// by, and gives whether it is to.
    fn reroute(&mut self, new: &Config) -> bool {
        let Some(routes) = &self.routes else { return false };
        let same_mode = self.running.forwarding.mode == new.forwarding.mode;
        let is_new = self.running.forwarding != new.forwarding || routes.are_behind();
        if !same_mode || !is_new {
            return false;
        }
        // On the ports that there are: those of the new file wait for the next start.
        let forwarding = new.forwarding.clone();
        let running = Config { forwarding, ..self.running.clone() };
        match running.plan(routes.macs()).and_then(|plan| routes.apply(plan)) {
            Ok(()) => {
                self.running = running;
                true
            }
            Err(problem) => {
                error!("{problem:#}; the old routes stay");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::forward::address::Mac;

    fn file(mtu: u16) -> String {
        format!(
            "name = 'e1'\ncontroller = '127.0.0.1:9'\n\
             port = [{{ name = 'h', role = 'host' }}, {{ name = 'f', role = 'fabric' }}]\n\
             [forwarding]\nmode = 'routed'\n\
             [[forwarding.interface]]\nport = 'f'\naddresses = ['10.9.0.1/30']\nmtu = {mtu}\n"
        )
    }

    #[test]
    fn routes_that_could_not_be_built_are_tried_again_when_the_same_file_is_read() {
        let name = format!("calumma-reload-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let running = Config::parse(&file(1500), "edge.toml").unwrap();
        let (routes, plans) = Routes::new(vec![Mac([2; 6]); 2]);
        let (signals, routes) = (Signals::default(), Some(routes));
        let mut reload = Reload::new(path.clone(), signals, running, routes, None);
        let mut read = |mtu| {
            fs::write(&path, file(mtu)).unwrap();
            assert_eq!(reload.read(), None, "no lcore is to go by anything else");
            let given = plans.next();
            given.map(|plan| (plan.interfaces[0].mtu, reload.fabric_mtu()))
        };
        assert_eq!(read(1500), None);
        for _ in 0..2 {
            assert_eq!(read(1400), Some((1400, Some(1400))));
            plans.note(false);
        }
        assert_eq!(read(1400), Some((1400, Some(1400))));
        plans.note(true);
        assert_eq!(read(1400), None);
        let _ = fs::remove_file(&path);
    }
}
