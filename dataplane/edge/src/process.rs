//! The switch as a process of its host: whose it is.

use anyhow::Context;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use tracing::info;

/// Becomes `user` for good, with all threads. DPDK has opened its devices and memory by then, and
/// keeps them.
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
