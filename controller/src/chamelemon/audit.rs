//! The audit log: what attention was changed to, when, by whom and why. One JSON object a line,
//! appended, so that it goes on where an earlier controller ended.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::Serialize;
use tracing::error;

use crate::report::{EpochConfig, NetworkState};

/// Who changed attention, or would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
    /// The planner.
    Planner,
    /// The planner, in a dry run or while attention was held: nothing was changed.
    PlannerNotApplied,
    /// Someone, over HTTP or by the configuration file.
    Operator,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) unix_ns: u64,
    pub(super) by: By,
    /// The epoch that it was decided from; absent where an operator decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_epoch: Option<u64>,
    /// The first epoch that the change holds for.
    pub(super) effective_epoch: u64,
    pub(super) state: NetworkState,
    pub(super) from: EpochConfig,
    pub(super) to: EpochConfig,
    pub(super) reasons: &'a [String],
}

/// The file.
#[derive(Debug)]
pub(super) struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

impl Audit {
    /// Opens the file, or begins it.
    ///
    /// # Errors
    /// When it can't be written to.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| {
            format!("[shifting] audit = {:?}: can't be written to; is its directory there?", path)
        })?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Appends an entry in one write. A full disk must not stop the measurement: it is said in the
    /// log.
    pub(super) fn append(&self, entry: &Entry<'_>) {
        let line = serde_json::to_vec(entry).map(|mut line| {
            line.push(b'\n');
            line
        });
        let written = line.map_err(std::io::Error::from).and_then(|line| {
            self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
        });
        if let Err(problem) = written {
            error!("{}: {problem}; the audit log lacks an entry", self.path.display());
        }
    }
}
