//! What stories in live fabrics share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Switches that poll take all CPUs there are, so the tests of a program come one after the other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
