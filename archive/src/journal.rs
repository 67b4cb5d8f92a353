//! The journal: reports that no whole file holds yet, one line of JSON each.
//!
//! A line is in the hands of the operating system before the next report is looked at, so it
//! outlives the controller's death; once [synced](Journal::sync), the machine's as well. Its lock
//! keeps a second controller away.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use calumma_analysis::{Published, Report, System};
use nix::fcntl::{Flock, FlockArg};

/// Its name in the archive's folder.
const JOURNAL: &str = "journal.jsonl";

/// A journal that is open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Flock<File>,
    line: Vec<u8>,
}

impl Journal {
    /// Opens the journal in `dir`, and makes it where there is none.
    ///
    /// # Errors
    /// When it can't be written to, or another controller has it.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(JOURNAL);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("{}: can't be written to", path.display()))?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, problem)| {
            anyhow::anyhow!(
                "{}: {problem}; does another controller write this archive? give each its own \
                 [archive] dir",
                path.display()
            )
        })?;
        // Its name is on the disk before its lines are.
        File::open(dir)
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("{}: can't be synced", dir.display()))?;
        Ok(Self { path, file, line: Vec::new() })
    }

    /// What is in it, one report at a time.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) fn read(
        &self,
        systems: &'static [&'static dyn System],
    ) -> anyhow::Result<impl Iterator<Item = Published> + use<>> {
        let file = File::open(&self.path)
            .with_context(|| format!("{}: can't be read", self.path.display()))?;
        Ok(reports_in(file, systems))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the disk doesn't take it.
    pub(super) fn append(&mut self, json: &str) -> anyhow::Result<()> {
        self.line.clear();
        self.line.extend_from_slice(json.as_bytes());
        self.line.push(b'\n');
        self.file.write_all(&self.line).with_context(|| self.path.display().to_string())
    }

    /// Has the disk take all lines.
    ///
    /// # Errors
    /// When it doesn't.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| self.path.display().to_string())
    }

    /// Empties it.
    ///
    /// # Errors
    /// When the disk doesn't do it.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        self.file.set_len(0).with_context(|| self.path.display().to_string())
    }
}

/// Reports that no whole file of the archive in `dir` holds yet, oldest first. The controller may
/// be writing meanwhile.
///
/// Read this first and then pass over a system's files whose name is not below that of the first of
/// its reports here: they hold the same rows.
///
/// # Errors
/// When the journal is there and can't be read.
pub fn journaled(
    dir: &Path,
    systems: &'static [&'static dyn System],
) -> anyhow::Result<Vec<Arc<dyn Report>>> {
    let path = dir.join(JOURNAL);
    match File::open(&path) {
        Ok(file) => Ok(reports_in(file, systems).map(|published| published.report).collect()),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(problem) => Err(problem).with_context(|| format!("{}: can't be read", path.display())),
    }
}

/// The reports on the lines of a file, to the first that is no whole one: what a controller was
/// writing when it died, or is writing now.
fn reports_in(
    file: File,
    systems: &'static [&'static dyn System],
) -> impl Iterator<Item = Published> {
    BufReader::new(file).lines().map_while(|line| {
        let json = line.ok()?;
        let report = systems.iter().find_map(|system| system.read(&json))?;
        Some(Published { report, json })
    })
}
