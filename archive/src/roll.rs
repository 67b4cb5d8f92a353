//! A system's files that are being written: one of each table that has rows, all under the same
//! name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use arrow_array::RecordBatch;
use calumma_analysis::{Published, Report, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::disk::{Disk, DiskFile};
use super::names::{FileName, PART};

/// Reports that are made into rows together: a column is filled faster at a stretch.
const REPORTS_A_BATCH: usize = 32;

/// Files under way.
#[derive(Debug)]
pub(super) struct Roll<D: Disk> {
    disk: D,
    dir: PathBuf,
    tables: &'static [&'static dyn Table],
    name: FileName,
    begun: Instant,
    epochs: u64,
    waiting: Vec<Arc<Published>>,
    /// At the positions of `tables`.
    parts: Vec<Option<Part<D>>>,
}

/// A file that is not whole yet.
#[derive(Debug)]
struct Part<D: Disk> {
    path: PathBuf,
    writer: ArrowWriter<D::File>,
}

impl<D: Disk> Roll<D> {
    /// Begins files of `tables` that are to be called `name`.
    pub(super) fn begin(
        (disk, dir): (&D, &Path),
        tables: &'static [&'static dyn Table],
        name: FileName,
        now: Instant,
    ) -> Self {
        let parts = tables.iter().map(|_| None).collect();
        let waiting = Vec::with_capacity(REPORTS_A_BATCH);
        let (disk, dir) = (disk.clone(), dir.to_owned());
        Self { disk, dir, tables, name, begun: now, epochs: 0, waiting, parts }
    }

    /// What the files are to be called.
    pub(super) fn name(&self) -> FileName {
        self.name
    }

    /// Epochs that were added.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Time since it was begun.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// Bytes written or waiting, compressed.
    pub(super) fn bytes(&self) -> u64 {
        let of = |part: &Part<D>| part.writer.bytes_written() + part.writer.in_progress_size();
        self.parts.iter().flatten().map(|part| of(part) as u64).sum()
    }

    /// Adds the rows of a report.
    ///
    /// # Errors
    /// When the disk doesn't take them.
    pub(super) fn add(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        self.epochs += 1;
        self.waiting.push(published.clone());
        if self.waiting.len() >= REPORTS_A_BATCH { self.write_waiting() } else { Ok(()) }
    }

    fn write_waiting(&mut self) -> anyhow::Result<()> {
        let reports: Vec<&dyn Report> = self.waiting.iter().map(|p| &*p.report).collect();
        for (table, part) in self.tables.iter().zip(&mut self.parts) {
            let batch = table.batch(&reports)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let part = match part {
                Some(part) => part,
                none => none.insert(Part::create(&self.disk, &self.dir, *table, self.name)?),
            };
            part.write(&batch)?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Writes everything out and gives the files their names.
    ///
    /// # Errors
    /// When the disk doesn't take it.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        self.write_waiting()?;
        let mut parts = self.parts.iter_mut().filter_map(Option::take);
        parts.try_for_each(|part| part.finish(&self.disk))
    }
}

impl<D: Disk> Part<D> {
    fn create(disk: &D, dir: &Path, table: &dyn Table, name: FileName) -> anyhow::Result<Self> {
        let folder = dir.join(table.name());
        disk.make_folder(&folder)
            .and_then(|()| disk.sync_folder(dir))
            .with_context(|| format!("{}: can't be made", folder.display()))?;
        let path = folder.join(format!("{name}{PART}"));
        let file =
            disk.create(&path).with_context(|| format!("{}: can't be made", path.display()))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("calumma ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = ArrowWriter::try_new(file, table.schema(), Some(properties))?;
        Ok(Self { path, writer })
    }

    fn write(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        self.writer.write(batch).with_context(|| self.path.display().to_string())
    }

    /// Makes the file whole, on the disk, and then visible.
    fn finish(self, disk: &D) -> anyhow::Result<()> {
        let Self { path, writer } = self;
        let whole = path.with_extension("");
        let finish = || {
            writer.into_inner()?.sync()?;
            disk.rename(&path, &whole)?;
            // The name is in the folder, which is a file of its own.
            match whole.parent() {
                Some(folder) => Ok(disk.sync_folder(folder)?),
                None => anyhow::Ok(()),
            }
        };
        finish().with_context(|| path.display().to_string())
    }
}
