//! Which epochs the archive has, as far back as they may be reported again.
//!
//! Nodes send what no controller has acknowledged to the next one, which reports it again; the
//! archive of the one that died may have that already.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use calumma_analysis::{Published, System};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use tracing::warn;

use super::disk::Disk;
use super::names::{FileName, files_on};

/// Epochs of a system that are remembered: more than nodes hold.
const MOST: usize = 16_384;

/// Epochs of a system from which on older files are not looked into: some hundreds are held by
/// nodes.
const ENOUGH: usize = 4096;

/// Columns of the tables of reports.
const EPOCH: &str = "epoch";
const COMPLETE: &str = "complete";

/// What is added to the name of a file that can't be read.
const DAMAGED: &str = "damaged";

/// For each system its epochs, and whether a complete report of one is there, or one of which that
/// is not known.
#[derive(Debug)]
pub(super) struct Known(Vec<BTreeMap<u64, bool>>);

impl Known {
    /// None of so many systems.
    pub(super) fn none(systems: usize) -> Self {
        Self(vec![BTreeMap::new(); systems])
    }

    /// Those of the latest whole files of each system. A file that is damaged is set aside.
    ///
    /// # Errors
    /// When a folder or a file can't be read.
    pub(super) fn of_files<D: Disk>(
        disk: &D,
        dir: &Path,
        systems: &[&'static dyn System],
    ) -> anyhow::Result<Self> {
        let of = |system: &&'static dyn System| {
            let mut epochs = BTreeMap::new();
            for files in rolls(disk, dir, *system)?.into_values().rev() {
                for (epoch, complete) in of_roll(disk, system.reports().name(), &files)? {
                    *epochs.entry(epoch).or_default() |= complete;
                }
                if epochs.len() >= ENOUGH {
                    break;
                }
            }
            Ok(epochs)
        };
        systems.iter().map(of).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Whether a report of the system at a position says more than what is there of its epoch.
    pub(super) fn is_more(&self, system: usize, published: &Published) -> bool {
        let there = self.0.get(system).and_then(|of| of.get(&published.report.head().epoch));
        there.is_none_or(|&complete| !complete && published.report.is_complete())
    }

    /// Notes that it is there now.
    pub(super) fn note(&mut self, system: usize, published: &Published) {
        let Some(epochs) = self.0.get_mut(system) else { return };
        *epochs.entry(published.report.head().epoch).or_default() |= published.report.is_complete();
        if epochs.len() > MOST {
            epochs.pop_first();
        }
    }
}

/// The files of a roll, each beside the name of its table.
type Files = Vec<(&'static str, PathBuf)>;

/// The whole files of a system, oldest first.
fn rolls<D: Disk>(
    disk: &D,
    dir: &Path,
    system: &'static dyn System,
) -> anyhow::Result<BTreeMap<FileName, Files>> {
    let mut rolls: BTreeMap<FileName, Files> = BTreeMap::new();
    for table in system.tables() {
        for (name, path) in files_on(disk, dir, table.name())? {
            rolls.entry(name).or_default().push((table.name(), path));
        }
    }
    Ok(rolls)
}

/// The epochs of a roll, as the table `reports` has them. Those that only other tables have count
/// as complete, and so do all where it has no file, or one of a release that did not write which
/// are complete: an incomplete report then stays where a complete one might have come, and no row
/// is there twice.
fn of_roll<D: Disk>(disk: &D, reports: &str, files: &Files) -> anyhow::Result<Vec<(u64, bool)>> {
    let of_reports = files.iter().find(|(table, _)| *table == reports);
    let said = match of_reports {
        Some((_, path)) => read(disk, path, reports_in)?,
        None => None,
    };
    let mut epochs = BTreeMap::new();
    for (table, path) in files {
        if said.is_none() || *table != reports {
            let there = read(disk, path, epochs_in)?.into_iter().flatten();
            epochs.extend(there.map(|epoch| (epoch, true)));
        }
    }
    epochs.extend(said.into_iter().flatten());
    Ok(epochs.into_iter().collect())
}

/// What `of` finds in a file; `None` where it finds nothing, or the file is damaged and set aside.
fn read<D: Disk, T>(
    disk: &D,
    path: &Path,
    of: impl FnOnce(D::Read) -> Result<Option<T>, ParquetError>,
) -> anyhow::Result<Option<T>> {
    let file = match disk.open(path) {
        // It was damaged, and has just been set aside.
        Err(problem) if problem.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| path.display().to_string())?,
    };
    match of(file) {
        Ok(found) => Ok(found),
        Err(problem) if is_disk(&problem) => {
            Err(problem).with_context(|| path.display().to_string())
        }
        Err(problem) => set_aside(disk, path, &problem).map(|()| None),
    }
}

/// Whether the disk did not let a file be read; what it has may be sound.
fn is_disk(problem: &ParquetError) -> bool {
    let ParquetError::External(cause) = problem else { return false };
    let cause = cause.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() != ErrorKind::UnexpectedEof)
}

/// Takes a file that can't be read out of the way of those who read the archive.
fn set_aside<D: Disk>(disk: &D, path: &Path, problem: &ParquetError) -> anyhow::Result<()> {
    let aside = path.with_added_extension(DAMAGED);
    warn!("{}: {problem}; it is now {}", path.display(), aside.display());
    disk.rename(path, &aside).with_context(|| path.display().to_string())
}

/// The epochs of a file, and which are complete; `None` where it does not say that.
fn reports_in(file: impl ChunkReader + 'static) -> Result<Option<Vec<(u64, bool)>>, ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
    let mut reports = Vec::new();
    for batch in reader {
        let batch = batch.map_err(ParquetError::from)?;
        let complete = batch.column_by_name(COMPLETE).and_then(|of| of.as_boolean_opt());
        let (Some(epochs), Some(complete)) = (epochs_of(&batch), complete) else { return Ok(None) };
        reports.extend(epochs.iter().copied().zip(complete.iter().map(|of| of.unwrap_or(true))));
    }
    Ok(Some(reports))
}

/// The epochs of a file, whatever else it has; `None` where it has none.
fn epochs_in(file: impl ChunkReader + 'static) -> Result<Option<BTreeSet<u64>>, ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let column = ProjectionMask::columns(builder.parquet_schema(), [EPOCH]);
    let mut all = BTreeSet::new();
    for batch in builder.with_projection(column).build()? {
        let batch = batch.map_err(ParquetError::from)?;
        let Some(epochs) = epochs_of(&batch) else { return Ok(None) };
        // Rows of an epoch stand together.
        all.extend(epochs.chunk_by(u64::eq).filter_map(|of_one| of_one.first()));
    }
    Ok(Some(all))
}

fn epochs_of(batch: &RecordBatch) -> Option<&[u64]> {
    Some(batch.column_by_name(EPOCH)?.as_primitive_opt::<UInt64Type>()?.values())
}
