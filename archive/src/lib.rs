//! The archive: every report's contents as rows of tables, in Parquet files that any engine reads.
//!
//! ```text
//! DIR/journal.jsonl                            reports that no whole file holds yet, a line each
//! DIR/losses/20260131T120000Z-35905028647.parquet        whole files, named by their first epoch
//! DIR/losses/20260131T120500Z-35905034647.parquet.part   the one being written
//! ```
//!
//! Files are rolled by size and age; all tables of a system that are rolled together share
//! one name, and names come in the order in which files were written. A file gets its name only
//! when it is whole and on the disk, so a reader never meets half of one. What a killed controller
//! had not rolled is in the journal: the next start writes it out under the same name, and a reader
//! may take it from there (`calumma-query` does), so nothing is lost or found twice. An epoch that
//! a controller reports anew is written again only where what stands is incomplete and the new
//! report is not.
//!
//! Each system has tables of its own, and so files that are rolled and named for themselves. No
//! threads here and no waiting but for the disk. It is no database: rows are written once, in the
//! order of a system's epochs.

mod disk;
mod journal;
mod known;
mod names;
mod retention;
mod roll;

pub use disk::{Disk, DiskFile, OsDisk};
pub use journal::{Journaled, journaled, journaled_on};
pub use names::{FileName, files_of, files_on};

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use calumma_analysis::{Published, System, system_of};
use chrono::Utc;
use serde::Deserialize;
use tracing::{info, warn};

use self::journal::{Journal, Line};
use self::known::Known;
use self::retention::make_room;
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

/// Reports that wait for a disk that refuses them, at most; beyond that the oldest are lost.
const MOST_REFUSED: usize = 256;

/// Time after which a disk that has refused something is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Where lines of the journal go that are no reports.
const DAMAGED: &str = "damaged.jsonl";

/// An archive that is being written.
///
/// What fails is treated as a death of the controller: the files under way are left, and made anew
/// from the journal, which nothing is taken out of before it is in whole files. Until that has
/// succeeded nothing is written behind it.
#[derive(Debug)]
pub struct Archive<D: Disk = OsDisk> {
    section: ArchiveSection,
    systems: &'static [&'static dyn System],
    disk: D,
    journal: Journal<D>,
    known: Known,
    /// Files under way, at the positions of `systems`.
    rolls: Vec<Option<Roll<D>>>,
    /// The last name that files have, likewise.
    last: Vec<Option<FileName>>,
    /// Reports that are not in the journal yet, oldest first.
    refused: VecDeque<Arc<Published>>,
    /// Something has failed since the journal was empty.
    failed: bool,
    /// When it was last tried to mend that, in vain.
    tried: Option<Instant>,
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
        Self::open_on(OsDisk, section, systems)
    }
}

impl<D: Disk> Archive<D> {
    /// The same on another disk than the operating system's.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn open_on(
        disk: D,
        section: &ArchiveSection,
        systems: &'static [&'static dyn System],
    ) -> anyhow::Result<Self> {
        let section = section.clone();
        disk.make_folder(&section.dir)
            .with_context(|| format!("[archive] dir = {}: can't be made", section.dir.display()))?;
        let journal = Journal::open(&disk, &section.dir)?;
        let mut archive = Self {
            section,
            systems,
            disk,
            journal,
            known: Known::none(systems.len()),
            rolls: systems.iter().map(|_| None).collect(),
            last: vec![None; systems.len()],
            refused: VecDeque::new(),
            failed: false,
            tried: None,
        };
        let left = archive.recover(Instant::now())?;
        if left > 0 {
            info!("archive: {left} reports from the journal of an earlier run");
        }
        Ok(archive)
    }

    /// Adds a report at `now`, unless one on the same epoch is there that is complete, or that is
    /// incomplete as well: nodes send a controller that has begun anew what they don't know to be
    /// reported.
    ///
    /// # Errors
    /// When the disk doesn't take it, or what came before: it is added before the next one then.
    pub fn append(&mut self, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        // Of another system than the product's, it would stand in the others' way.
        self.position(published)?;
        self.refused.push_back(published.clone());
        let appended = self.append_refused(now).and_then(|()| self.roll_if_due(now));
        // Not before the disk was tried, which may take them all.
        let lost = if self.refused.len() > MOST_REFUSED { self.refused.pop_front() } else { None };
        match lost {
            Some(lost) => appended.context(format!(
                "epoch {} is not in the archive, since too many wait",
                lost.report.head().epoch
            )),
            None => appended,
        }
    }

    fn append_refused(&mut self, now: Instant) -> anyhow::Result<()> {
        self.mend(now)?;
        while let Some(published) = self.refused.front().cloned() {
            let at = self.position(&published)?;
            if self.known.is_more(at, &published) {
                let put = self.put(at, &published, now);
                self.checked(put)?;
            }
            self.refused.pop_front();
        }
        Ok(())
    }

    /// Writes a report to the journal and to the files under way.
    fn put(&mut self, at: usize, published: &Arc<Published>, now: Instant) -> anyhow::Result<()> {
        let head = published.report.head();
        let mut name = FileName::new(head.start_unix_ns, head.epoch);
        let mut other = None;
        if let (None, Some(last)) = (&self.rolls[at], self.last[at])
            && name <= last
        {
            name = last.after(head.epoch);
            other = Some(name);
        }
        self.journal.append(published, other)?;
        self.add(at, published, name, now)?;
        self.known.note(at, published);
        Ok(())
    }

    /// Has the disk take all that was [appended](Self::append): from here on it outlives the
    /// machine's death.
    ///
    /// # Errors
    /// When the disk doesn't.
    pub fn sync(&mut self) -> anyhow::Result<()> {
        ensure!(!self.failed, "what was written before is not known to be there");
        let synced = self.journal.sync();
        self.checked(synced)
    }

    /// Ends files that have become old or large enough, and tries again what the disk has refused.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn roll_if_due(&mut self, now: Instant) -> anyhow::Result<()> {
        self.mend(now)?;
        let age = Duration::from_secs(self.section.roll_seconds);
        let bytes = self.section.roll_mib << 20;
        let all = || self.rolls.iter().flatten();
        let written: u64 = all().map(Roll::bytes).sum();
        if written >= bytes || all().any(|roll| roll.age(now) >= age) {
            self.finish_roll()?;
        }
        Ok(())
    }

    /// Ends the files under way, with all that was appended in them.
    ///
    /// # Errors
    /// When the disk doesn't take it. The next controller brings into files what is in the journal.
    pub fn finish(&mut self, now: Instant) -> anyhow::Result<()> {
        self.tried = None;
        self.append_refused(now)?;
        self.finish_roll()
    }

    /// The position of the system that a report is of.
    fn position(&self, published: &Published) -> anyhow::Result<usize> {
        let system = published.report.system();
        let at = system_of(self.systems, system);
        at.with_context(|| format!("no system is called {system}"))
    }

    fn add(
        &mut self,
        at: usize,
        published: &Arc<Published>,
        name: FileName,
        now: Instant,
    ) -> anyhow::Result<()> {
        let tables = self.systems[at].tables();
        let begin = || Roll::begin((&self.disk, &self.section.dir), tables, name, now);
        self.rolls[at].get_or_insert_with(begin).add(published)
    }

    /// Makes the files under way whole, and makes room.
    fn finish_roll(&mut self) -> anyhow::Result<()> {
        let ended = self.end_files();
        let epochs: u64 = self.rolls.iter().flatten().map(Roll::epochs).sum();
        self.checked(ended)
            .with_context(|| format!("{epochs} epochs are in the journal and not in files yet"))?;
        let ArchiveSection { dir, keep_days, keep_mib, .. } = &self.section;
        let place = (&self.disk, dir.as_path());
        let removed = make_room(place, self.systems, *keep_days, *keep_mib, Utc::now())?;
        if removed > 0 {
            info!("archive: {removed} old files removed");
        }
        Ok(())
    }

    /// Makes the files under way whole, and empties the journal.
    fn end_files(&mut self) -> anyhow::Result<()> {
        // Of tables that get their files one after the other, some alone must not be all there is.
        self.journal.sync()?;
        for (roll, last) in self.rolls.iter_mut().zip(&mut self.last) {
            if let Some(roll) = roll {
                roll.finish()?;
                *last = (*last).max(Some(roll.name()));
            }
        }
        self.journal.clear()?;
        self.rolls.fill_with(|| None);
        Ok(())
    }

    /// Notes whether something has failed.
    fn checked(&mut self, done: anyhow::Result<()>) -> anyhow::Result<()> {
        self.failed |= done.is_err();
        done
    }

    /// Begins anew from the journal where something has failed.
    fn mend(&mut self, now: Instant) -> anyhow::Result<()> {
        if !self.failed {
            return Ok(());
        }
        let waits = |tried| now.saturating_duration_since(tried) < RETRY;
        ensure!(!self.tried.is_some_and(waits), "the disk is tried again within a second");
        self.tried = Some(now);
        let left = self.recover(now)?;
        (self.failed, self.tried) = (false, None);
        info!("archive: it goes on, with {left} reports from the journal");
        Ok(())
    }

    /// Brings what is in the journal into files, as if this had just been opened. Gives how many
    /// reports that were.
    fn recover(&mut self, now: Instant) -> anyhow::Result<u64> {
        let (disk, dir) = (self.disk.clone(), self.section.dir.clone());
        self.rolls.fill_with(|| None);
        retention::remove_parts(&disk, &dir, self.systems)?;
        let mut here = Known::none(self.systems.len());
        let mut names = vec![None; self.systems.len()];
        let mut left = 0;
        let set_aside = |at, line: &[u8], is_torn| set_aside((&disk, &dir), at, line, is_torn);
        self.journal.renew(self.systems, set_aside)?;
        for line in self.journal.read(self.systems)? {
            match line? {
                Line::Files(at, name) => names[at] = Some(name),
                Line::Report(published) => {
                    let at = self.position(&published)?;
                    if here.is_more(at, &published) {
                        here.note(at, &published);
                        let head = published.report.head();
                        let own = || FileName::new(head.start_unix_ns, head.epoch);
                        let name = *names[at].get_or_insert_with(own);
                        self.add(at, &Arc::new(published), name, now)?;
                        left += 1;
                    }
                }
                Line::Damaged { .. } => {}
            }
        }
        self.end_files()?;
        self.known = Known::of_files(&disk, &dir, self.systems)?;
        for (system, last) in self.systems.iter().zip(&mut self.last) {
            for table in system.tables() {
                let files = files_on(&disk, &dir, table.name())?;
                *last = (*last).max(files.last().map(|(name, _)| *name));
            }
        }
        Ok(left)
    }
}

/// Keeps a line of the journal that is no report where somebody may look at it. The last one, where
/// it was not written to its end, nobody relies on.
fn set_aside<D: Disk>((disk, dir): (&D, &Path), at: u64, line: &[u8], is_torn: bool) {
    let (bytes, path) = (line.len(), dir.join(DAMAGED));
    if is_torn {
        info!("archive: the last {bytes} bytes of the journal, from byte {at} on, are cut off");
        return;
    }
    warn!(
        "archive: {bytes} bytes of the journal, from byte {at} on, are no report; they are in {}",
        path.display()
    );
    let file = disk.append(&path);
    let kept = file.and_then(|mut file| file.write_all(&[line, b"\n"].concat()));
    if let Err(problem) = kept {
        warn!("{}: {problem}", path.display());
    }
}
