//! Replaying a capture file into a file of reports.

use std::fs::File;
use std::io::{BufWriter, Write, sink, stdout};
use std::path::Path;

use anyhow::{Context, Result};
use calumma_controller::config::Config;
use calumma_controller::report::EpochReport;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Line, Lose, Outcome, Passage, Replay, Setup, Summary};
use crate::capture::{Capture, CaptureError};

/// The controller's own defaults, for two edges.
const DEFAULTS: &str = "edges = [\"e1\", \"e2\"]";

/// How often progress is shown, in packets.
const SHOW_EVERY: u64 = 4096;

/// The configuration at a path; the controller's defaults without one.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn config(path: Option<&Path>) -> Result<Config> {
    Ok(match path {
        Some(path) => Config::load(path)?,
        None => Config::parse(DEFAULTS, "the built-in configuration")?,
    })
}

impl Setup {
    /// The setup that a controller's configuration describes, or the controller's defaults without
    /// one; `epoch_ms` takes the place of its epochs' length. Without a hash key in it, a fixed one
    /// serves: two replays of a capture give the same reports.
    ///
    /// # Errors
    /// What is wrong with the configuration, and where.
    pub fn load(path: Option<&Path>, epoch_ms: Option<u64>) -> Result<Self> {
        Self::of(&config(path)?, epoch_ms)
    }

    /// The same of a configuration that has been read.
    pub(super) fn of(config: &Config, epoch_ms: Option<u64>) -> Result<Self> {
        let length_ms = epoch_ms.unwrap_or(config.epoch.length_ms);
        let mut guards = config.clock()?.guards();
        if epoch_ms.is_some() {
            // Packets travel in no time and the clocks are one: short epochs need no long guards.
            guards.clock_ns = guards.clock_ns.min(length_ms * 1_000_000 / 8);
            guards.flight_ns = guards.flight_ns.min(length_ms * 1_000_000 / 4);
        }
        let clock = EpochClock::new(length_ms * 1_000_000, guards)
            .with_context(|| format!("epochs of {length_ms} ms"))?;
        Ok(Self {
            attention: config.planned_attention()?,
            hash_key: config.fixed_hash_key().unwrap_or(HashKey::from_bytes([0x5A; 32])),
            clock,
            tasks: config.tasks,
            layout: config.layout.clone(),
        })
    }
}

/// Replays the capture at `trace` and writes a report a line to `out` (`-`: standard output), with
/// progress and a summary on standard error. Gives whether the capture could be read to its end;
/// where it could not, the packets up to there are reported, and the reason is said.
///
/// # Errors
/// When the capture can't be opened, reports can't be written, or the setup is invalid.
pub fn run(trace: &Path, out: &Path, setup: Setup, lose: Lose) -> Result<bool> {
    let mut reports = Lines::create(Some(out))?;
    let mut write = |of: Vec<EpochReport>| -> Result<()> {
        of.iter().try_for_each(|report| reports.write(&serde_json::to_string(report)?))
    };
    let mut replay = Replay::new(setup, lose);
    let fault =
        read(trace, |time_ns, wire_len, bytes| write(replay.packet(time_ns, wire_len, bytes)?))?;
    write(replay.finish()?)?;
    reports.finish()?;
    say(&replay.summary(), fault.as_ref().map(|fault| (trace, fault)));
    Ok(fault.is_none())
}

/// The same through a line of switches, where there need be no `out`. Gives what became of the
/// capture besides.
///
/// # Errors
/// As [`run`].
pub fn run_line(
    trace: &Path,
    out: Option<&Path>,
    line: Line,
    lose: Lose,
) -> Result<(bool, Outcome)> {
    let mut passage = Passage::new(line, lose)?;
    let mut reports = Lines::create(out)?;
    let fault = read(trace, |time_ns, wire_len, bytes| {
        let lines = passage.packet(time_ns, wire_len, bytes)?;
        lines.iter().try_for_each(|line| reports.write(line))
    })?;
    passage.finish()?.iter().try_for_each(|line| reports.write(line))?;
    reports.finish()?;
    say(&passage.summary(), fault.as_ref().map(|fault| (trace, fault)));
    Ok((fault.is_none(), passage.into_outcome()))
}

/// Where reports go, a line each.
struct Lines {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Lines {
    /// At this path, on standard output (`-`), or nowhere.
    fn create(path: Option<&Path>) -> Result<Self> {
        let name = path.map_or(String::new(), |path| path.display().to_string());
        let writer: Box<dyn Write> = match path {
            None => Box::new(sink()),
            Some(path) if path.as_os_str() == "-" => Box::new(stdout()),
            Some(path) => Box::new(File::create(path).with_context(|| format!("writing {name}"))?),
        };
        Ok(Self { writer: BufWriter::new(writer), name })
    }

    fn write(&mut self, line: &str) -> Result<()> {
        writeln!(self.writer, "{line}").with_context(|| format!("writing {}", self.name))
    }

    fn finish(mut self) -> Result<()> {
        self.writer.flush().with_context(|| format!("writing {}", self.name))
    }
}

/// Reads a capture packet by packet: when it was captured, how long it was, and its bytes. Gives
/// where it can't be read any further, if so.
fn read(
    trace: &Path,
    mut packet: impl FnMut(u64, usize, &[u8]) -> Result<()>,
) -> Result<Option<CaptureError>> {
    let mut capture = Capture::open(trace).with_context(|| trace.display().to_string())?;
    let style = ProgressStyle::with_template("{spinner} {pos} packets, {per_sec}")?;
    let progress = ProgressBar::new_spinner().with_style(style);
    let fault = loop {
        match capture.next_record() {
            Ok(Some(record)) => {
                packet(record.timestamp_ns, record.original_len as usize, record.bytes)?;
            }
            Ok(None) => break None,
            Err(fault) => break Some(fault),
        }
        if capture.packets().is_multiple_of(SHOW_EVERY) {
            progress.set_position(capture.packets());
        }
    };
    progress.finish_and_clear();
    Ok(fault)
}

/// Says on standard error what became of the packets, and where the capture could not be read.
fn say(summary: &Summary, fault: Option<(&Path, &CaptureError)>) {
    eprintln!(
        "{} packets, {} of them measured, {} lost between the edges; {} epochs",
        summary.packets, summary.measured, summary.lost, summary.epochs
    );
    if summary.out_of_order > 0 {
        eprintln!(
            "{} packets were earlier than the one before them and count as sent with it",
            summary.out_of_order
        );
    }
    if let Some((trace, fault)) = fault {
        eprintln!("error: {}: {fault}", trace.display());
    }
}
