//! The controller's reports as it writes them: shown line by line, kept, and waited for.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use calumma_controller::report::EpochReport;

use crate::fabric::wait_until;

/// Reads a file of reports while it grows, in a thread of its own.
pub(crate) struct Reports {
    read: Arc<Mutex<Vec<EpochReport>>>,
    show: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Result<()>>,
}

impl Reports {
    /// Reads the reports that appear in the file at `path`. Where `show` says so, prints a line for
    /// each from the first complete one on.
    pub(crate) fn watch(path: &Path, show: bool) -> Self {
        let read = Arc::new(Mutex::new(Vec::new()));
        let show = Arc::new(AtomicBool::new(show));
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (path, read) = (path.to_owned(), read.clone());
            let (show, stop) = (show.clone(), stop.clone());
            move || follow(&path, &read, &show, &stop)
        });
        Self { read, show, stop, reader }
    }

    /// Waits for a report that is as `wanted`; each is asked about once, in order. `alive` says why
    /// it may never come.
    pub(crate) fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&EpochReport) -> bool,
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
    pub(crate) fn take(&self) -> Vec<EpochReport> {
        std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prints no more of them: what comes when switches stop is of no interest.
    pub(crate) fn hush(&self) {
        self.show.store(false, Ordering::Relaxed);
    }

    /// Reads what is still to be read, and gives all of it.
    pub(crate) fn finish(self) -> Result<Vec<EpochReport>> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.join().map_err(|_| anyhow!("reading the reports ended in a panic"))??;
        Ok(std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn follow(
    path: &Path,
    read: &Mutex<Vec<EpochReport>>,
    show: &AtomicBool,
    stop: &AtomicBool,
) -> Result<()> {
    let context = || format!("reading {}", path.display());
    let mut file: Option<BufReader<File>> = None;
    let mut line = String::new();
    let mut begun = false;
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
                let report: EpochReport = serde_json::from_str(&line)
                    .with_context(|| format!("a report in {}: {line}", path.display()))?;
                begun |= report.complete;
                if begun && show.load(Ordering::Relaxed) {
                    println!("{}", line_of(&report));
                }
                read.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                line.clear();
            }
        }
        if last {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A report on one line.
fn line_of(report: &EpochReport) -> String {
    let packets: u64 = report.edges.iter().filter_map(|edge| edge.packets_in).sum();
    let flows = report.edges.iter().filter_map(|edge| edge.cardinality).fold(0.0, |a, b| a + b);
    let hitters: usize = report.edges.iter().map(|edge| edge.heavy_hitters.len()).sum();
    let lost: u64 = report.loss.iter().map(|loss| loss.lost).sum();
    let mut line = format!(
        "epoch {}  {packets:>7} packets  {flows:>6.0} flows  {hitters:>3} heavy hitters  {lost:>5} lost of {:>3} flows",
        report.epoch,
        report.loss.len(),
    );
    if let Some(worst) = report.loss.first() {
        let flow = worst.flow;
        line += &format!(
            "  most: {} > {} {}",
            SocketAddr::new(flow.src, flow.sport),
            SocketAddr::new(flow.dst, flow.dport),
            worst.lost
        );
    }
    if !report.complete {
        line += &format!("  INCOMPLETE: {}", report.incomplete_because.join("; "));
    }
    line
}
