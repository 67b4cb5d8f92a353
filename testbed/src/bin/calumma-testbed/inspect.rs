//! `inspect`: what is in a capture.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::inspect;
use clap::Args;

use crate::output::{print, verdict};

/// Read a capture and say what is in it, or where and why it can't be read
///
/// Reads pcap and pcapng of any size as a stream. Exits with 1 if the file is cut short, damaged or
/// foreign; what is before that place is still counted.
#[derive(Args)]
pub(crate) struct Inspect {
    /// The capture
    trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let summary = inspect::summarise(&self.trace);
        print(self.json, &summary, || summary.to_text())?;
        Ok(verdict(summary.error.is_none()))
    }
}
