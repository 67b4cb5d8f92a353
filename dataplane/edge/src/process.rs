//! The switch as a process of its host: whose it is, and what its supervisor is told.

use std::time::{Duration, Instant};

use anyhow::Context;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use sd_notify::NotifyState;
use tracing::{info, warn};

/// Becomes `user` for good, with all threads. DPDK has opened its devices and memory by then, and keeps
/// them.
///
/// # Errors
/// When there is no such user, or this process may not become another.
pub fn become_user(user: &str) -> anyhow::Result<()> {
    let entry = User::from_name(user)
        .with_context(|| format!("looking up process.user {user}"))?
        .with_context(|| {
        format!("process.user: there is no user {user}; make one with useradd")
    })?;
    let name = std::ffi::CString::new(user)?;
    let may = || format!("process.user: becoming {user}, which only root may");
    if Uid::effective() == entry.uid {
        return Ok(());
    }
    initgroups(&name, entry.gid).with_context(may)?;
    setgid(entry.gid).with_context(may)?;
    setuid(entry.uid).with_context(may)?;
    // What was given up must not be to be had again.
    let regained = !entry.uid.is_root()
        && (setuid(Uid::from_raw(0)).is_ok() || setgid(Gid::from_raw(0)).is_ok());
    anyhow::ensure!(!regained, "process.user: the privileges of root could be taken back");
    info!(user, "privileges dropped");
    Ok(())
}

/// systemd, where it started the switch: it wants to know when that is ready, and that it lives.
#[derive(Debug)]
pub struct Supervisor {
    /// How often it wants to hear, and when it heard last.
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
        self.tell(&[NotifyState::Ready]);
    }

    /// The configuration is read again; [`ready`](Self::ready) says when that is done.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(problem) => warn!("systemd can't be told: {problem}"),
        }
    }

    /// The switch is about to leave.
    pub fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Says that the switch lives, where that is asked for and due.
    pub fn alive(&mut self) {
        let Some((period, last)) = &mut self.beat else { return };
        if last.elapsed() >= *period {
            *last = Instant::now();
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    fn tell(&self, what: &[NotifyState<'_>]) {
        if let Err(problem) = sd_notify::notify(what) {
            warn!("systemd can't be told: {problem}");
        }
    }
}
