//! The controller and the edge switches as processes in the switches' namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fabric::{Edge, Pair, Process, Run, SWITCHES_ADDRESS};

/// Length of the demo's epochs.
pub(super) const EPOCH: Duration = Duration::from_millis(50);

const CONTROLLER_PORT: u16 = 7600;
const HTTP_PORT: u16 = 7680;

/// The guards are wide: on a machine whose few CPUs two switches, hosts, core and applications share, a packet may wait
/// for its turn for many milliseconds.
const CLOCK_GUARD_US: u64 = 2_000;
const FLIGHT_GUARD_US: u64 = 40_000;

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The program `name` beside the testbed's own.
fn beside(testbed: &Path, name: &str) -> Result<PathBuf> {
    let program = testbed.with_file_name(name);
    ensure!(
        program.exists(),
        "{} is missing; build it with `cargo build --release -p {name}`",
        program.display()
    );
    Ok(program)
}

fn command(pair: &Pair, program: &Path) -> Result<std::process::Command> {
    let program = program.to_str().context("the path of a program is not UTF-8")?;
    Ok(pair.switches().command(program))
}

/// A controller that runs.
pub(super) struct Controller(Process);

impl Controller {
    pub(super) fn start(run: &Run, pair: &Pair, testbed: &Path, epochs: &Path) -> Result<Self> {
        let config = run.directory().join("controller.toml");
        fs::write(
            &config,
            format!(
                "listen = \"{SWITCHES_ADDRESS}:{CONTROLLER_PORT}\"\n\
                 http = \"{SWITCHES_ADDRESS}:{HTTP_PORT}\"\n\
                 edges = [\"e1\", \"e2\"]\n\
                 [epoch]\n\
                 length_ms = {}\n\
                 clock_guard_us = {CLOCK_GUARD_US}\n\
                 flight_guard_us = {FLIGHT_GUARD_US}\n",
                EPOCH.as_millis()
            ),
        )
        .with_context(|| format!("writing {}", config.display()))?;
        let mut command = command(pair, &beside(testbed, "calumma-controller")?)?;
        command.arg("--config").arg(&config).arg("--out").arg(epochs).arg("--quiet");
        let mut process = Process::start("controller", command, run.directory())?;
        process.wait_listening(CONTROLLER_PORT, Duration::from_secs(10))?;
        Ok(Self(process))
    }

    pub(super) fn check_running(&mut self) -> Result<()> {
        self.0.check_running()
    }

    pub(super) fn stop(self) -> Result<()> {
        self.0.stop(STOP_LIMIT).map(drop)
    }
}

/// An edge switch that runs.
pub(super) struct Switch(Process);

impl Switch {
    pub(super) fn start(
        run: &Run,
        pair: &Pair,
        testbed: &Path,
        edge: Edge,
        cpu: usize,
    ) -> Result<Self> {
        let name = edge.name();
        let config = run.directory().join(format!("{name}.toml"));
        fs::write(
            &config,
            format!(
                "name = \"{name}\"\n\
                 controller = \"{SWITCHES_ADDRESS}:{CONTROLLER_PORT}\"\n\
                 [polling]\n\
                 idle_sleep_us = 50\n\
                 [[port]]\n\
                 name = \"net_af_packet0\"\n\
                 role = \"host\"\n\
                 peer = \"net_af_packet1\"\n\
                 [[port]]\n\
                 name = \"net_af_packet1\"\n\
                 role = \"fabric\"\n\
                 peer = \"net_af_packet0\"\n"
            ),
        )
        .with_context(|| format!("writing {}", config.display()))?;
        let mut command = command(pair, &beside(testbed, "calumma-edge")?)?;
        command.arg("--config").arg(&config).arg("--");
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"]);
        command.args(["--file-prefix", &format!("{}-{name}", run.prefix())]);
        command.args(["--lcores", &format!("0@{cpu}")]);
        command.args(edge.devices());
        Process::start(name, command, run.directory()).map(Self)
    }

    pub(super) fn check_running(&mut self) -> Result<()> {
        self.0.check_running()
    }

    pub(super) fn stop(self) -> Result<()> {
        self.0.stop(STOP_LIMIT).map(drop)
    }
}
