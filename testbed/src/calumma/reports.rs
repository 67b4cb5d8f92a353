//! The controller's reports as it writes them: read line by line, kept, and waited for.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use calumma_controller::report::EpochReport;

use crate::fabric::wait_until;

/// Reads a file of reports while it grows, in a thread of its own. What it keeps of them is a `T`
/// each.
pub(crate) struct Reports<T> {
    read: Arc<Mutex<Vec<T>>>,
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Result<()>>,
}

impl Reports<EpochReport> {
    /// Reads the reports that appear in the file at `path`, where only ChameleMon runs.
    pub(crate) fn of_chamelemon(path: &Path) -> Self {
        Self::watch(path, |line| Ok(Some(serde_json::from_str(line)?)))
    }
}

impl<T: Send + 'static> Reports<T> {
    /// Reads the reports that appear in the file at `path`; `keep` makes of each line what is kept
    /// of it.
    pub(crate) fn watch(
        path: &Path,
        keep: impl FnMut(&str) -> Result<Option<T>> + Send + 'static,
    ) -> Self {
        let read = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (path, read, stop) = (path.to_owned(), read.clone(), stop.clone());
            move || follow(&path, keep, &read, &stop)
        });
        Self { read, stop, reader }
    }

    /// Waits for a report that is as `wanted`; each is asked about once, in order. `alive` says why
    /// it may never come.
    pub(crate) fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&T) -> bool,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut seen = 0;
        wait_until(what, limit, || {
            alive()?;
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            let found = read[seen..].iter().any(&mut wanted);
            seen = read.len();
            Ok(found)
        })
    }

    /// What has been read and not been taken before.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what is still to be read, and gives all of it.
    pub(crate) fn finish(self) -> Result<Vec<T>> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.join().map_err(|_| anyhow!("reading the reports ended in a panic"))??;
        Ok(std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn follow<T>(
    path: &Path,
    mut keep: impl FnMut(&str) -> Result<Option<T>>,
    read: &Mutex<Vec<T>>,
    stop: &AtomicBool,
) -> Result<()> {
    let context = || format!("reading {}", path.display());
    let mut file: Option<BufReader<File>> = None;
    let mut line = String::new();
    loop {
        // Asked for first, so that what was written before is read.
        let last = stop.load(Ordering::Relaxed);
        if file.is_none() {
            match File::open(path) {
                Ok(opened) => file = Some(BufReader::new(opened)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(context),
            }
        }
        if let Some(file) = &mut file {
            while file.read_line(&mut line).with_context(context)? > 0 && line.ends_with('\n') {
                let kept = keep(&line)
                    .with_context(|| format!("a report in {}: {line}", path.display()))?;
                read.lock().unwrap_or_else(PoisonError::into_inner).extend(kept);
                line.clear();
            }
        }
        if last {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
