//! The archive: every report's contents as rows of tables, in Parquet files that any engine reads.
//!
//! ```text
//! DIR/journal.jsonl                            reports that no whole file holds yet, a line each
//! DIR/losses/20260131T120000Z-35905028647.parquet        whole files, named by their first epoch
//! DIR/losses/20260131T120500Z-35905034647.parquet.part   the one being written
//! ```
//!
//! Files are rolled by size and age; all tables of a system that are rolled together share
//! one name. A file gets its name only when it is whole and on the disk, so a reader never meets
//! half of one. What a killed controller had not rolled is in the journal: the next start writes it
//! out under the same name, and a reader may take it from there (`calumma-query` does), so nothing
//! is lost or found twice. An epoch that a controller reports anew is written again only where what
//! stands is incomplete and the new report is not.
//!
//! Each system has tables of its own, and so files that are rolled and named for themselves. No
//! threads here and no waiting but for the disk. It is no database: rows are written once, in the
//! order of a system's epochs.

mod journal;
mod known;
mod names;
mod retention;
mod roll;

pub use journal::journaled;
pub use names::{FileName, files_of};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use calumma_analysis::{Published, System, system_of};
use chrono::Utc;
use serde::Deserialize;
use tracing::{info, warn};

use self::journal::Journal;
use self::known::Known;
use self::roll::Roll;

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
    systems: &'static [&'static dyn System],
    journal: Journal,
    known: Known,
    /// Files under way, at the positions of `systems`.
    rolls: Vec<Option<Roll>>,
}

impl Archive {
    /// Opens the archive for reports of `systems`, and brings what an earlier controller left in
    /// its journal into files.
    ///
    /// # Errors
    /// When the folder can't be used, or another controller uses it.
    pub fn open(
        section: &ArchiveSection,
        systems: &'static [&'static dyn System],
    ) -> anyhow::Result<Self> {
        let section = section.clone();
        std::fs::create_dir_all(&section.dir)
            .with_context(|| format!("[archive] dir = {}: can't be made", section.dir.display()))?;
        let journal = Journal::open(&section.dir)?;
        retention::remove_parts(&section.dir, systems)?;
        let rolls = systems.iter().map(|_| None).collect();
        let known = Known::of_files(&section.dir, systems)?;
        let mut archive = Self { section, systems, journal, known, rolls };
        let mut left = 0;
        for published in archive.journal.read(systems)? {
            let at = archive.position(&published)?;
            archive.known.note(at, &published);
            archive.add(at, &Arc::new(published), Instant::now())?;
            left += 1;
        }
        if left > 0 {
            info!("archive: {left} reports from the journal of an earlier run");
        }
        archive.finish_roll()?;
        Ok(archive)
    }

    /// Adds a report at `now`, unless one on the same epoch is there that is complete, or that is
    /// incomplete as well: nodes send a controller that has begun anew what they don't know to be
    /// reported.
    ///
    /// # Errors
    /// When the disk doesn't take it; the rows of the files under way are then discarded, and
    /// the number of their epochs is in the error.
    pub fn append(&mut self, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        let at = self.position(published)?;
        if !self.known.is_more(at, published) {
            return Ok(());
        }
        self.journal.append(&published.json)?;
        self.add(at, published, now)?;
        self.known.note(at, published);
        self.roll_if_due(now)
    }

    /// Has the disk take all that was [appended](Self::append): from here on it outlives the
    /// machine's death.
    ///
    /// # Errors
    /// When the disk doesn't.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.journal.sync()
    }

    /// Ends files that have become old or large enough.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn roll_if_due(&mut self, now: Instant) -> anyhow::Result<()> {
        let age = Duration::from_secs(self.section.roll_seconds);
        let bytes = self.section.roll_mib << 20;
        let all = || self.rolls.iter().flatten();
        let written: u64 = all().map(Roll::bytes).sum();
        if written >= bytes || all().any(|roll| roll.age(now) >= age) {
            self.finish_roll()?;
        }
        Ok(())
    }

    /// The position of the system that a report is of.
    fn position(&self, published: &Published) -> anyhow::Result<usize> {
        let system = published.report.system();
        let at = system_of(self.systems, system);
        at.with_context(|| format!("no system is called {system}"))
    }

    fn add(&mut self, at: usize, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        let report = &*published.report;
        let tables = self.systems[at].tables();
        let begin = || Roll::begin(&self.section.dir, tables, report.head(), now);
        let added = self.rolls[at].get_or_insert_with(begin).add(published);
        added.or_else(|problem| self.discard(problem))
    }

    /// Makes the files under way whole, and makes room.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn finish_roll(&mut self) -> anyhow::Result<()> {
        let finished = self.rolls.iter_mut().flatten().try_for_each(Roll::finish);
        finished.or_else(|problem| self.discard(problem))?;
        self.rolls.fill_with(|| None);
        self.journal.clear()?;
        let ArchiveSection { dir, keep_days, keep_mib, .. } = &self.section;
        let removed = retention::make_room(dir, self.systems, *keep_days, *keep_mib, Utc::now())?;
        if removed > 0 {
            info!("archive: {removed} old files removed");
        }
        Ok(())
    }

    /// Forgets the files under way, whose rows the disk would refuse again, so that later ones have
    /// a chance.
    fn discard(&mut self, problem: anyhow::Error) -> anyhow::Result<()> {
        let epochs: u64 = self.rolls.iter_mut().filter_map(Option::take).map(|r| r.epochs()).sum();
        self.known.clear();
        let removed = retention::remove_parts(&self.section.dir, self.systems);
        let cleared = removed.and(self.journal.clear());
        if let Err(other) = cleared {
            warn!("archive: {other:#}");
        }
        Err(problem.context(format!("{epochs} epochs are not in the archive")))
    }
}
