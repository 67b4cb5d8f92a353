//! Replaying a capture file into a file of reports.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use anyhow::{Context, Result};
use calumma_controller::config::Config;
use calumma_controller::report::EpochReport;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Lose, Replay, Setup};
use crate::capture::Capture;

/// The controller's own defaults, for two edges.
const DEFAULTS: &str = "edges = [\"e1\", \"e2\"]";

/// How often progress is shown, in packets.
const SHOW_EVERY: u64 = 4096;

impl Setup {
    /// The setup that a controller's configuration describes, or the controller's defaults without
    /// one; `epoch_ms` takes the place of its epochs' length. Without a hash key in it, a fixed one
    /// serves: two replays of a capture give the same reports.
    ///
    /// # Errors
    /// What is wrong with the configuration, and where.
    pub fn load(config: Option<&Path>, epoch_ms: Option<u64>) -> Result<Self> {
        let config = match config {
            Some(path) => Config::load(path)?,
            None => Config::parse(DEFAULTS, "the built-in configuration")?,
        };
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
            layout: config.layout,
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
    let mut capture = Capture::open(trace).with_context(|| trace.display().to_string())?;
    let writing = || format!("writing {}", out.display());
    let mut writer: BufWriter<Box<dyn Write>> = BufWriter::new(match out.as_os_str() {
        name if name == "-" => Box::new(stdout()),
        _ => Box::new(File::create(out).with_context(writing)?),
    });
    let mut write = |reports: Vec<EpochReport>| -> Result<()> {
        for report in reports {
            serde_json::to_writer(&mut writer, &report).with_context(writing)?;
            writer.write_all(b"\n").with_context(writing)?;
        }
        Ok(())
    };

    let style = ProgressStyle::with_template("{spinner} {pos} packets, {per_sec}")?;
    let progress = ProgressBar::new_spinner().with_style(style);
    let mut replay = Replay::new(setup, lose);
    let fault = loop {
        match capture.next_record() {
            Ok(Some(record)) => {
                let wire_len = record.original_len as usize;
                write(replay.packet(record.timestamp_ns, wire_len, record.bytes)?)?;
            }
            Ok(None) => break None,
            Err(fault) => break Some(fault),
        }
        if capture.packets().is_multiple_of(SHOW_EVERY) {
            progress.set_position(capture.packets());
        }
    };
    write(replay.finish()?)?;
    writer.flush().with_context(writing)?;
    progress.finish_and_clear();

    let summary = replay.summary();
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
    if let Some(fault) = &fault {
        eprintln!("error: {}: {fault}", trace.display());
    }
    Ok(fault.is_none())
}
