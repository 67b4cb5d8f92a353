//! `int`: what INT stacks a capture's packets have.

use std::io::{BufWriter, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::stacks;
use clap::Args;

/// Read the INT stacks of a capture's packets: a JSON object a packet, with its stack or why it has
/// none
#[derive(Args)]
pub(crate) struct Int {
    /// The capture, pcap or pcapng
    trace: PathBuf,
}

impl Int {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut out = BufWriter::new(stdout().lock());
        stacks::write_all(&self.trace, &mut out)?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
