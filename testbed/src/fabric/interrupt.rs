//! Ctrl-C, SIGTERM and SIGHUP: noted by a handler, and turned into an ordinary error at the next
//! wait, so that every value on the way out is dropped and takes away what it made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler; once per process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if !INTERRUPTED.swap(true, Ordering::SeqCst) {
            eprintln!("interrupted: stopping and cleaning up");
        }
    })
    .context("installing the Ctrl-C handler")
}

/// An error if the process was told to stop.
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps, but not through an interrupt.
pub fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
