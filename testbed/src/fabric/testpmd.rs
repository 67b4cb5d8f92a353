//! DPDK's own forwarder in an edge's place: shows what the fabric and this machine do without
//! Calumma.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pair::Pair;
use super::process::{Process, wait_until};
use super::run::Run;

/// A `dpdk-testpmd` that passes packets between an edge's two interfaces, untouched.
#[derive(Debug)]
pub struct Testpmd {
    process: Process,
    edge: usize,
    name: String,
}

impl Testpmd {
    /// Starts it on one CPU, its output in `logs`.
    pub fn start(run: &Run, pair: &Pair, edge: usize, cpu: usize, logs: &Path) -> Result<Self> {
        let name = pair.edges()[edge].clone();
        let mut command = pair.switches().command("dpdk-testpmd");
        command.args(["--no-huge", "-m", "1024", "--no-pci", "--no-telemetry"]);
        command.args(["--file-prefix", &format!("{}-{name}", run.prefix())]);
        command.args(["--lcores", &format!("0@{cpu},1@{cpu}")]);
        command.args(pair.devices(edge));
        command.args(["--", "--forward-mode=io", "--auto-start", "--total-num-mbufs=16384"]);
        // By default it throws away what arrived before it was ready.
        command.arg("--no-flush-rx");
        // Without a terminal testpmd ends at once, unless it has statistics to print.
        command.args(["--stats-period", "3600"]);
        let process = Process::start(&format!("testpmd-{name}"), command, logs)
            .context("starting dpdk-testpmd (Debian and Ubuntu package dpdk-dev)")?;
        Ok(Self { process, edge, name })
    }

    /// Waits until no packet passes it by.
    pub fn wait_ready(&mut self, pair: &Pair) -> Result<()> {
        let what = format!("dpdk-testpmd to open the interfaces of {}", self.name);
        wait_until(&what, Duration::from_secs(20), || {
            self.process.check_running()?;
            pair.has_switch(self.edge)
        })
        .with_context(|| format!("its last words: {}", self.process.last_words()))
    }

    /// An error if it has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// Stops it.
    pub fn stop(self) -> Result<()> {
        self.process.stop(Duration::from_secs(10)).map(drop)
    }
}
