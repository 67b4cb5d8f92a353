//! The machine, which one test at a time has for itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Switches that poll take all CPUs there are. Tests of one process wait for each other here; where
/// each has a process of its own, `.config/nextest.toml` keeps them apart.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often something is tried on a machine that other programs share.
const TRIES: usize = 3;

/// Runs something again, twice at most, as long as `torn` says what of it the machine spoiled:
/// where it stands still for longer than the guards, windows are incomplete, and nobody can measure
/// latencies. What is wrong is wrong the first time: that is for `run` to find out, or the caller.
pub(crate) fn unless_torn<T>(mut run: impl FnMut() -> T, torn: impl Fn(&T) -> Option<String>) -> T {
    for _ in 1..TRIES {
        let result = run();
        let Some(why) = torn(&result) else { return result };
        eprintln!("once more: {why}");
    }
    run()
}
