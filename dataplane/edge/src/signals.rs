//! What the system tells the switch to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Flags that signals raise.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Raised by SIGINT and SIGTERM: measure the epoch under way to its end, and leave.
    pub stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
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
