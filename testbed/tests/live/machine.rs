//! The machine, which one test at a time has for itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Switches that poll take all CPUs there are. Tests of one process wait for each other here; where
/// each has a process of its own, `.config/nextest.toml` keeps them apart.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
