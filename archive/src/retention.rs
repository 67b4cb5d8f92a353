//! Which files of an archive go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use calumma_analysis::{System, tables_of};
use chrono::{DateTime, Days, Utc};

use super::disk::Disk;
use super::names::{FileName, PART, entries, files_on};

/// Removes files that a killed controller left half written; what they hold is in the journal.
pub(super) fn remove_parts<D: Disk>(
    disk: &D,
    dir: &Path,
    systems: &[&'static dyn System],
) -> anyhow::Result<()> {
    for table in tables_of(systems) {
        for path in entries(disk, &dir.join(table.name()))? {
            let part = path.to_str().and_then(|path| path.strip_suffix(PART));
            if part.is_some_and(|whole| file_name(Path::new(whole)).is_some()) {
                remove(disk, &path)?;
            }
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> Option<FileName> {
    FileName::parse(path.file_name()?.to_str()?)
}

fn remove<D: Disk>(disk: &D, path: &Path) -> anyhow::Result<()> {
    disk.remove(path).with_context(|| format!("{}: can't be removed", path.display()))
}

/// Removes the files of rolls that began more than `keep_days` days before `now`, and then the
/// oldest until all take at most `keep_mib`; 0 is no limit. Files of one name go together.
/// Gives the number of files removed.
pub(super) fn make_room<D: Disk>(
    (disk, dir): (&D, &Path),
    systems: &[&'static dyn System],
    keep_days: u64,
    keep_mib: u64,
    now: DateTime<Utc>,
) -> anyhow::Result<usize> {
    let mut rolls: BTreeMap<FileName, (u64, Vec<PathBuf>)> = BTreeMap::new();
    for table in tables_of(systems) {
        for (name, path) in files_on(disk, dir, table.name())? {
            let bytes = disk.bytes(&path).unwrap_or(0);
            let roll = rolls.entry(name).or_default();
            roll.0 += bytes;
            roll.1.push(path);
        }
    }
    let oldest = if keep_days == 0 { None } else { now.checked_sub_days(Days::new(keep_days)) };
    let most = if keep_mib == 0 { u64::MAX } else { keep_mib.saturating_mul(1 << 20) };
    let mut total: u64 = rolls.values().map(|(bytes, _)| bytes).sum();
    let mut removed = 0;
    for (name, (bytes, paths)) in rolls {
        if oldest.is_none_or(|oldest| name.start >= oldest) && total <= most {
            break;
        }
        paths.iter().try_for_each(|path| remove(disk, path))?;
        removed += paths.len();
        total -= bytes;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::OsDisk;
    use crate::names::files_of;
    use calumma_chamelemon_analysis::ChameleMon;

    static SYSTEMS: [&dyn System; 1] = [&ChameleMon];

    #[test]
    fn the_oldest_rolls_go_by_age_and_by_size_and_nothing_else_does() {
        let dir = std::env::temp_dir().join(format!("calumma-room-{}", std::process::id()));
        let day = 86_400_000_000_000;
        let write = |table: &str, at: u64, bytes: usize| {
            std::fs::create_dir_all(dir.join(table)).unwrap();
            let name = FileName::new(at * day, at).to_string();
            std::fs::write(dir.join(table).join(name), vec![0; bytes]).unwrap();
        };
        for at in [10, 20, 30] {
            write("epochs", at, 600_000);
            write("losses", at, 600_000);
        }
        std::fs::write(dir.join("losses/notes.txt"), "an operator's").unwrap();
        let now = DateTime::from_timestamp(31 * 86_400, 0).unwrap();
        let left = || -> Vec<u64> {
            files_of(&dir, "losses").unwrap().into_iter().map(|(name, _)| name.epoch).collect()
        };

        assert_eq!(make_room((&OsDisk, &dir), &SYSTEMS, 0, 0, now).unwrap(), 0);
        assert_eq!(make_room((&OsDisk, &dir), &SYSTEMS, 15, 0, now).unwrap(), 2);
        assert_eq!(left(), [20, 30]);
        assert_eq!(make_room((&OsDisk, &dir), &SYSTEMS, 15, 2, now).unwrap(), 2);
        assert_eq!(left(), [30]);
        assert!(dir.join("losses/notes.txt").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
