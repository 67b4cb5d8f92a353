//! The configuration, read again while the switch runs.

use std::path::PathBuf;

use tracing::{error, info, warn};

use crate::config::{Config, PollingConfig, Settings};
use crate::signals::Signals;

/// Reads the configuration again when a signal asks for it.
pub struct Reload {
    path: PathBuf,
    signals: Signals,
    running: Config,
}

impl Reload {
    /// Reads the file at `path`, of which the switch runs by `running`.
    pub fn new(path: PathBuf, signals: Signals, running: Config) -> Self {
        Self { path, signals, running }
    }

    /// Whether somebody has asked for it since this was asked last.
    pub(super) fn is_asked(&self) -> bool {
        self.signals.reload_asked()
    }

    /// The settings that lcores are to go by from now on; none where they stay as they are. Says in
    /// the log what has changed, and what would have but can't.
    pub(super) fn read(&mut self) -> Option<Settings> {
        let new = match Config::load(&self.path) {
            Ok(new) => new,
            Err(problem) => {
                error!("{problem}; the old configuration stays");
                return None;
            }
        };
        let fixed = self.running.fixed_differences(&new);
        if !fixed.is_empty() {
            warn!("{} can't change while the switch runs; restart it", fixed.join(", "));
        }
        let settings = new.settings();
        if settings == self.running.settings() {
            info!("the configuration was read again; nothing changes");
            return None;
        }
        info!("the configuration was read again: {settings:?}");
        // What can't change stays as it is, and is spoken of again the next time.
        self.running.policy = new.policy;
        self.running.carrier = new.carrier;
        let control_cpu = self.running.polling.control_cpu;
        self.running.polling = PollingConfig { control_cpu, ..new.polling };
        Some(settings)
    }
}
