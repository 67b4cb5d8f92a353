//! Names of the archive's files.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{DateTime, Duration, NaiveDateTime, Utc};

use crate::disk::{Disk, OsDisk};

/// What a whole file's name ends with.
const WHOLE: &str = ".parquet";

/// What is added while a file is being written.
pub(super) const PART: &str = ".part";

/// The time in names: sorted by name is sorted by time.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// The name of a file, made of the first epoch in it. The order is that of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// Start of the first epoch, to the second.
    pub start: DateTime<Utc>,
    /// The first epoch.
    pub epoch: u64,
}

impl FileName {
    /// The name of a file whose first epoch began at `start_unix_ns`.
    pub fn new(start_unix_ns: u64, epoch: u64) -> Self {
        let seconds = i64::try_from(start_unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
        Self { start: DateTime::from_timestamp(seconds, 0).unwrap_or_default(), epoch }
    }

    /// The name of a file whose first epoch is `epoch` and that comes behind this one.
    pub(super) fn after(self, epoch: u64) -> Self {
        let later = self.start.checked_add_signed(Duration::seconds(1));
        Self { start: later.unwrap_or(self.start), epoch }
    }

    /// Reads the name of a whole file; `None` where it is no such name.
    pub fn parse(name: &str) -> Option<Self> {
        let (time, epoch) = name.strip_suffix(WHOLE)?.split_once('-')?;
        let start = NaiveDateTime::parse_from_str(time, TIME).ok()?.and_utc();
        Some(Self { start, epoch: epoch.parse().ok()? })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}{WHOLE}", self.start.format(TIME), self.epoch)
    }
}

/// The whole files of a table in an archive, oldest first; none where the table has no folder yet.
///
/// # Errors
/// When the folder can't be read.
pub fn files_of(dir: &Path, table: &str) -> anyhow::Result<Vec<(FileName, PathBuf)>> {
    files_on(&OsDisk, dir, table)
}

/// The same on another disk than the operating system's.
///
/// # Errors
/// As [`files_of`].
pub fn files_on<D: Disk>(
    disk: &D,
    dir: &Path,
    table: &str,
) -> anyhow::Result<Vec<(FileName, PathBuf)>> {
    let mut files: Vec<_> = entries(disk, &dir.join(table))?
        .into_iter()
        .filter_map(|path| Some((FileName::parse(path.file_name()?.to_str()?)?, path)))
        .collect();
    files.sort();
    Ok(files)
}

/// What is in a folder; nothing where there is none.
pub(super) fn entries<D: Disk>(disk: &D, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    disk.list(folder).with_context(|| format!("{}: can't be listed", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_sort_by_time() {
        let name = FileName::new(1_769_860_800_050_000_000, 35_397_216_001);
        assert_eq!(name.to_string(), "20260131T120000Z-35397216001.parquet");
        assert_eq!(FileName::parse(&name.to_string()), Some(name));
        assert!(name < FileName::new(1_769_860_801_000_000_000, 5));
        for other in ["20260131T120000Z-1.parquet.part", "20260131-1.parquet", "notes.txt"] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }
}
