//! A guard: a process that outlives a run that is killed, and removes what it left.
//!
//! It holds the reading end of a pipe whose other end only the run has. The kernel closes that one
//! however the run ends.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::run::Run;

/// A guard that watches this process.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts one. `testbed` is the calumma-testbed program.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(testbed: &Path) -> Result<Self> {
        let mut command = Command::new(testbed);
        // In a process group of its own: what a terminal does to the run must not reach it.
        command.arg("guard").stdin(Stdio::piped()).process_group(0);
        Ok(Self(command.spawn().context("starting the guard that cleans up after this run")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if let Err(error) = self.0.wait() {
            eprintln!("cannot wait for the guard: {error}");
        }
    }
}

/// Waits until standard input ends, which is when the run does, and removes what it left.
///
/// # Errors
/// When something can't be removed.
pub fn wait() -> Result<()> {
    io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink())
        .context("watching the run")?;
    Run::clean_up()
}
