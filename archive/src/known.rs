//! Which epochs the archive has, as far back as they may be reported again.
//!
//! Nodes send what no controller has acknowledged to the next one, which reports it again; the
//! archive of the one that died may have that already.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use calumma_analysis::{Published, System};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use serde::Deserialize;
use tracing::warn;

use super::disk::Disk;
use super::names::files_on;

/// Epochs of a system that are remembered: more than nodes hold.
const MOST: usize = 16_384;

/// Epochs of a system from which on older files are not looked into: some hundreds are held by
/// nodes.
const ENOUGH: usize = 4096;

/// What is added to the name of a file that can't be read.
const DAMAGED: &str = "damaged";

/// For each system its epochs, and whether a complete report of one is there.
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
            // Each system's first table has a row for each epoch.
            let Some(table) = system.tables().first() else { return Ok(epochs) };
            for (_, path) in files_on(disk, dir, table.name())?.into_iter().rev() {
                let file = disk.open(&path).with_context(|| path.display().to_string())?;
                match epochs_in(file) {
                    Ok(more) => more.into_iter().for_each(|(epoch, complete)| {
                        *epochs.entry(epoch).or_default() |= complete;
                    }),
                    Err(problem) if is_disk(&problem) => {
                        return Err(problem).with_context(|| path.display().to_string());
                    }
                    Err(problem) => set_aside(disk, &path, &problem)?,
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
        there.is_none_or(|&complete| !complete && is_complete(&published.json))
    }

    /// Notes that it is there now.
    pub(super) fn note(&mut self, system: usize, published: &Published) {
        let Some(epochs) = self.0.get_mut(system) else { return };
        *epochs.entry(published.report.head().epoch).or_default() |= is_complete(&published.json);
        if epochs.len() > MOST {
            epochs.pop_first();
        }
    }
}

/// What every system's report says of itself.
#[derive(Deserialize)]
struct Head {
    complete: bool,
}

fn is_complete(json: &str) -> bool {
    serde_json::from_str::<Head>(json).is_ok_and(|head| head.complete)
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

/// The epochs of a file, where it says which of them are complete.
fn epochs_in(file: impl ChunkReader + 'static) -> Result<Vec<(u64, bool)>, ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
    let mut epochs = Vec::new();
    for batch in reader {
        let batch = batch.map_err(ParquetError::from)?;
        let columns = (batch.column_by_name("epoch"), batch.column_by_name("complete"));
        let (Some(numbers), Some(complete)) = columns else { break };
        let (numbers, complete) =
            (numbers.as_primitive_opt::<UInt64Type>(), complete.as_boolean_opt());
        let (Some(numbers), Some(complete)) = (numbers, complete) else { break };
        epochs.extend(numbers.values().iter().copied().zip(complete.values().iter()));
    }
    Ok(epochs)
}
