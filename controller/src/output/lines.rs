//! A file of JSON lines: one report a line, written out at once.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use calumma_analysis::Report;
use tracing::error;

use super::Output;

/// A file that reports are appended to, each in one write.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
    /// Reports that could not be written.
    lost: u64,
}

impl JsonLines {
    /// Begins a new file at `path`; one that is there already is replaced.
    ///
    /// # Errors
    /// When the file can't be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path)
            .with_context(|| format!("--out {}: can't be written to", path.display()))?;
        Ok(Self { path: path.to_owned(), file, line: Vec::new(), lost: 0 })
    }

    /// Whether writing may wait for whoever is at its other end.
    ///
    /// # Errors
    /// When that can't be found out.
    pub fn may_wait(&self) -> anyhow::Result<bool> {
        may_wait(&self.file).with_context(|| self.path.display().to_string())
    }
}

/// Whether writing to `output` may wait for whoever is at its other end: a pipe, or a terminal.
///
/// # Errors
/// When that can't be found out.
pub(crate) fn may_wait(output: impl AsFd) -> io::Result<bool> {
    let file = File::from(output.as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_socket() || file.is_terminal())
}

impl Output for JsonLines {
    fn report(&mut self, _report: &dyn Report, json: &str) {
        self.line.clear();
        self.line.extend_from_slice(json.as_bytes());
        self.line.push(b'\n');
        if let Err(problem) = self.file.write_all(&self.line) {
            if self.lost == 0 {
                error!("--out {}: {problem}; reports are being lost", self.path.display());
            }
            self.lost += 1;
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.lost == 0,
            "--out {}: {} reports could not be written",
            self.path.display(),
            self.lost
        );
        Ok(())
    }
}
