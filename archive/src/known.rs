//! Which epochs the archive has, as far back as they may be reported again.
//!
//! Nodes send what no controller has acknowledged to the next one, which reports it again; the
//! archive of the one that died may have that already.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use calumma_analysis::{Published, System};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;

use super::names::files_of;

/// Epochs of a system that are remembered: more than nodes hold.
const MOST: usize = 16_384;

/// For each system its epochs, and whether a complete report of one is there.
#[derive(Debug)]
pub(super) struct Known(Vec<BTreeMap<u64, bool>>);

impl Known {
    /// Those of the latest whole file of each system.
    ///
    /// # Errors
    /// When a file can't be read.
    pub(super) fn of_files(dir: &Path, systems: &[&'static dyn System]) -> anyhow::Result<Self> {
        let of = |system: &&'static dyn System| {
            // Each system's first table has a row for each epoch.
            let Some(table) = system.tables().first() else { return Ok(BTreeMap::new()) };
            match files_of(dir, table.name())?.pop() {
                Some((_, path)) => epochs_in(&path).with_context(|| path.display().to_string()),
                None => Ok(BTreeMap::new()),
            }
        };
        systems.iter().map(of).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Forgets all: what the disk refused is not there.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(BTreeMap::clear);
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

/// The epochs of a file, where it says which of them are complete.
fn epochs_in(path: &Path) -> anyhow::Result<BTreeMap<u64, bool>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
    let mut epochs = BTreeMap::new();
    for batch in reader {
        let batch = batch?;
        let columns = (batch.column_by_name("epoch"), batch.column_by_name("complete"));
        let (Some(numbers), Some(complete)) = columns else { break };
        let (numbers, complete) =
            (numbers.as_primitive_opt::<UInt64Type>(), complete.as_boolean_opt());
        let (Some(numbers), Some(complete)) = (numbers, complete) else { break };
        let rows = numbers.values().iter().copied().zip(complete.values().iter());
        epochs.extend(rows);
    }
    Ok(epochs)
}
