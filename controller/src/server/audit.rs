//! Who has changed what: a JSON object a line, appended to a file that only its owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::Serialize;
use tracing::{error, info};

use super::unix_ns;

/// A change that was asked for.
#[derive(Debug, Serialize)]
pub(super) struct Change<'a> {
    /// When, in nanoseconds since the Unix epoch.
    pub(super) unix_ns: u64,
    /// Whose token it was, or the signal.
    pub(super) who: &'a str,
    /// From where; null of a signal.
    pub(super) from: Option<SocketAddr>,
    /// What was asked for.
    pub(super) what: &'a str,
    /// With which words.
    pub(super) body: serde_json::Value,
    /// What was answered: an HTTP status; null of a signal.
    pub(super) status: Option<u16>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Audit(Option<Mutex<File>>);

impl Audit {
    /// Opens the file; without one, changes are in the log only.
    ///
    /// # Errors
    /// When it can't be written: nothing is to change unseen.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let place = || format!("audit: {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(place)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Ok(Self(Some(Mutex::new(file.with_context(place)?))))
    }

    /// Writes a change down.
    pub(super) fn note(&self, change: &Change<'_>) {
        let Change { who, from, what, status, .. } = change;
        info!(who, from = from.map(tracing::field::display), status, "changed: {what:?}");
        let Some(file) = &self.0 else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::to_string(change).map(|line| line + "\n");
        let written = line.map_err(std::io::Error::from);
        if let Err(problem) = written.and_then(|line| file.write_all(line.as_bytes())) {
            error!("the audit file can't be written: {problem}");
        }
    }

    /// Writes down that a signal has had the configuration read again.
    pub(super) fn note_reload(&self) {
        let (who, what, body) = ("SIGHUP", "the configuration is read again", Default::default());
        self.note(&Change { unix_ns: unix_ns(), who, from: None, what, body, status: None });
    }
}
