//! What an archive has, read from its disk, and whether that is what was acknowledged.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use calumma_archive::{Disk, files_on, journaled_on};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::report::EpochReport;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::SYSTEMS;
use super::disk::FaultyDisk;

/// What an archive has of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfEpoch {
    /// Its reports: whether each is complete.
    pub complete: Vec<bool>,
    /// The losses of all of them, in packets.
    pub lost: Vec<u64>,
}

/// By epoch what an archive has.
pub type Found = BTreeMap<u64, OfEpoch>;

/// Reads the archive in `dir`. Whoever reads is not failed by the disk.
///
/// # Errors
/// When a file of it can't be read.
pub fn found(disk: &FaultyDisk, dir: &Path) -> Result<Found> {
    let disk = disk.copy();
    let mut found = Found::new();
    let journal = journaled_on(&disk, dir, &SYSTEMS)?;
    let whole = |table: &str| -> Result<Vec<RecordBatch>> {
        let mut rows = Vec::new();
        for (name, path) in files_on(&disk, dir, table)? {
            // The journal has the same rows.
            if !journal.is_in(NAME, &name) {
                let file = disk.open(&path)?;
                let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
                for batch in reader {
                    rows.push(batch?);
                }
            }
        }
        Ok(rows)
    };
    for batch in whole("losses")? {
        let (epochs, lost) = (numbers(&batch, "epoch")?, numbers(&batch, "lost")?);
        for (epoch, lost) in epochs.into_iter().zip(lost) {
            found.entry(epoch).or_default().lost.push(lost);
        }
    }
    for batch in whole("epochs")? {
        let complete = batch.column_by_name("complete").context("complete")?.as_boolean();
        for (epoch, complete) in numbers(&batch, "epoch")?.into_iter().zip(complete) {
            found.entry(epoch).or_default().complete.push(complete.unwrap_or_default());
        }
    }
    for report in &journal.reports {
        let report = report.as_type::<EpochReport>().context("another system's report")?;
        let of = found.entry(report.epoch).or_default();
        of.complete.push(report.complete);
        of.lost.extend(report.loss.iter().map(|loss| loss.lost));
    }
    Ok(found)
}

/// Checks that each epoch that was acknowledged is there, with a complete report where one was
/// acknowledged (`true` beside it), and that no epoch is there twice.
///
/// # Errors
/// What does not hold.
pub fn check(found: &Found, acknowledged: impl IntoIterator<Item = (u64, bool)>) -> Result<()> {
    for (epoch, wanted) in acknowledged {
        let of = found.get(&epoch).filter(|of| !of.complete.is_empty());
        let of = of.with_context(|| format!("epoch {epoch} was acknowledged and is not there"))?;
        let is_complete = of.complete.contains(&true);
        ensure!(is_complete || !wanted, "a complete report of epoch {epoch} is not there");
    }
    for (epoch, of) in found {
        for complete in [false, true] {
            let times = of.complete.iter().filter(|one| **one == complete).count();
            ensure!(times <= 1, "epoch {epoch} is there {times} times, complete: {complete}");
        }
    }
    Ok(())
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<u64>> {
    let column = batch.column_by_name(name).context("no such column")?;
    Ok(column.as_primitive::<UInt64Type>().values().to_vec())
}
