//! The archive: every report's contents as rows of tables, in Parquet files that any engine reads.
//!
//! ```text
//! DIR/journal.jsonl                            reports that no whole file holds yet, a line each
//! DIR/losses/20260131T120000Z-35905028647.parquet        whole files, named by their first epoch
//! DIR/losses/20260131T120500Z-35905034647.parquet.part   the one being written
//! ```
//!
//! Files are rolled by size and age; all tables of a roll share one name. A file gets its name only
//! when it is whole and on the disk, so a reader never meets half of one. What a killed controller
//! had not rolled is in the journal: the next start writes it out under the same name, and a reader
//! may take it from there (`calumma-query` does), so nothing is lost or found twice.
//!
//! No threads here and no waiting but for the disk; [`Background`](crate::output::Background) keeps
//! it off the analysis thread. It is no database: rows are written once, in the order of epochs.

mod journal;
mod names;
mod retention;
mod roll;
mod table;
mod tables;

pub use journal::journaled;
pub use names::{FileName, files_of};
pub use table::{ColumnInfo, Table};
pub use tables::TABLES;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::Utc;
use serde::Deserialize;
use tracing::{info, warn};

use self::journal::Journal;
use self::roll::Roll;
use crate::output::{Published, Sink};

/// `[archive]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveSection {
    /// The folder; made where it is missing. One controller at a time.
    pub dir: PathBuf,
    /// Longest time that a file is added to, in seconds.
    #[serde(default = "default_roll_seconds")]
    pub roll_seconds: u64,
    /// Size from which on a roll's files, all tables together, are not added to any more.
    #[serde(default = "default_roll_mib")]
    pub roll_mib: u64,
    /// Days after which files are removed; 0 keeps them.
    #[serde(default = "default_keep_days")]
    pub keep_days: u64,
    /// Size of all files above which the oldest are removed; 0 keeps them.
    #[serde(default = "default_keep_mib")]
    pub keep_mib: u64,
}

fn default_roll_seconds() -> u64 {
    300
}

fn default_roll_mib() -> u64 {
    32
}

fn default_keep_days() -> u64 {
    30
}

fn default_keep_mib() -> u64 {
    10 * 1024
}

impl ArchiveSection {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The field and the remedy.
    pub fn check(&self) -> Result<(), String> {
        if self.roll_seconds == 0 || self.roll_mib == 0 {
            return Err("roll_seconds and roll_mib: at least 1".to_owned());
        }
        if self.keep_mib > 0 && self.keep_mib < 2 * self.roll_mib {
            return Err(format!(
                "keep_mib = {}: raise it to two files at least, {}, or set 0 to keep all",
                self.keep_mib,
                2 * self.roll_mib
            ));
        }
        Ok(())
    }
}

/// An archive that is being written.
#[derive(Debug)]
pub struct Archive {
    section: ArchiveSection,
    journal: Journal,
    roll: Option<Roll>,
}

impl Archive {
    /// Opens the archive, and brings what an earlier controller left in its journal into files.
    ///
    /// # Errors
    /// When the folder can't be used, or another controller uses it.
    pub fn open(section: &ArchiveSection) -> anyhow::Result<Self> {
        let section = section.clone();
        std::fs::create_dir_all(&section.dir)
            .with_context(|| format!("[archive] dir = {}: can't be made", section.dir.display()))?;
        let journal = Journal::open(&section.dir)?;
        retention::remove_parts(&section.dir)?;
        let mut archive = Self { section, journal, roll: None };
        let mut left = 0;
        for published in archive.journal.read()? {
            archive.add(&Arc::new(published), Instant::now())?;
            left += 1;
        }
        if left > 0 {
            info!("archive: {left} epochs from the journal of an earlier run");
        }
        archive.finish_roll()?;
        Ok(archive)
    }

    /// Adds a report at `now`.
    ///
    /// # Errors
    /// When the disk doesn't take it; the rows of the roll under way are then given up, and their
    /// number is in the error.
    pub fn append(&mut self, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        self.journal.append(&published.json)?;
        self.add(published, now)?;
        self.roll_if_due(now)
    }

    /// Ends files that have become old or large enough.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn roll_if_due(&mut self, now: Instant) -> anyhow::Result<()> {
        let age = Duration::from_secs(self.section.roll_seconds);
        let bytes = self.section.roll_mib << 20;
        if self.roll.as_ref().is_some_and(|roll| roll.is_due(now, age, bytes)) {
            self.finish_roll()?;
        }
        Ok(())
    }

    fn add(&mut self, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        let begin = || Roll::begin(&self.section.dir, &published.report, now);
        let added = self.roll.get_or_insert_with(begin).add(published);
        added.or_else(|problem| self.give_up(problem))
    }

    /// Makes the files under way whole, and makes room.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn finish_roll(&mut self) -> anyhow::Result<()> {
        if let Some(roll) = &mut self.roll {
            let finished = roll.finish();
            finished.or_else(|problem| self.give_up(problem))?;
            self.roll = None;
        }
        self.journal.clear()?;
        let ArchiveSection { dir, keep_days, keep_mib, .. } = &self.section;
        let removed = retention::make_room(dir, *keep_days, *keep_mib, Utc::now())?;
        if removed > 0 {
            info!("archive: {removed} old files removed");
        }
        Ok(())
    }

    /// Forgets the roll under way, whose rows the disk would refuse again, so that later ones have a
    /// chance.
    fn give_up(&mut self, problem: anyhow::Error) -> anyhow::Result<()> {
        let epochs = self.roll.take().map_or(0, |roll| roll.epochs());
        let cleared = retention::remove_parts(&self.section.dir).and(self.journal.clear());
        if let Err(other) = cleared {
            warn!("archive: {other:#}");
        }
        Err(problem.context(format!("{epochs} epochs are not in the archive")))
    }
}

impl Sink for Archive {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        self.append(published, Instant::now())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.roll_if_due(Instant::now())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.finish_roll()
    }
}
