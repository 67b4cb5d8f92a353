//! A hardware edge as processes: the model of a Tofino with network interfaces for ports, and the
//! control plane that runs it through the driver's interface.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_chamelemon::Layout;
use calumma_switchd::chamelemon::program::defines;

use super::p4;
use super::programs::{ADDRESS, Place, STOP_LIMIT};
use crate::fabric::Process;

/// Numbers of the CPU port and of the first of the others, of which each host has two.
const CPU_PORT: u16 = 64;
const FIRST_PORT: u16 = 1;

/// How long the model may take to read the program.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The model hands an element of its registers out on each pass, so answers take their time.
const RETRY_MS: u64 = 200;

/// A hardware edge and what it stands between.
pub(crate) struct Hardware<'a> {
    /// The edge's name.
    pub(crate) name: &'a str,
    /// What its sketches are like: the program is built for them.
    pub(crate) layout: &'a Layout,
    /// Its interfaces: for each host the one towards it and the one towards the fabric.
    pub(crate) ports: &'a [[String; 2]],
    /// Both ends of the wire at its CPU port: the control plane's and the switch's.
    pub(crate) cpu_port: [String; 2],
    /// Where the driver's interface is offered.
    pub(crate) grpc_port: u16,
}

/// A hardware edge that runs.
pub(crate) struct Tofino {
    // Ends first.
    control: Process,
    model: Process,
}

impl Tofino {
    /// Starts it.
    pub(crate) fn start(place: Place<'_>, edge: &Hardware<'_>) -> Result<Self> {
        let Hardware { name, layout, ports, cpu_port: [near, far], grpc_port } = edge;
        let most = usize::from(CPU_PORT - FIRST_PORT) / 2;
        ensure!(ports.len() <= most, "{name}: a modelled Tofino has at most {most} hosts");
        let folder = place.run.directory().join(format!("{name}.p4"));
        // It is there where the edge is started anew.
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;

        let mut command = place.command("calumma-tna")?;
        command.arg("--program").arg(p4::write(layout, &folder)?);
        for (name, value) in defines(layout) {
            command.arg("-D").arg(format!("{name}={value}"));
        }
        command.args(["--grpc", &format!("{ADDRESS}:{grpc_port}")]);
        let mut config = format!(
            "name = \"{name}\"\n\
             controller = \"{ADDRESS}:{}\"\n\
             [driver]\n\
             address = \"{ADDRESS}:{grpc_port}\"\n\
             [collection]\n\
             interface = \"{near}\"\n\
             cpu_port = {CPU_PORT}\n\
             retry_ms = {RETRY_MS}\n",
            place.port
        );
        for (number, [host, fabric]) in (FIRST_PORT..).step_by(2).zip(ports.iter()) {
            let both = [(number, host, "host", number + 1), (number + 1, fabric, "fabric", number)];
            for (number, interface, role, peer) in both {
                command.args(["--port", &format!("{number}={interface}")]);
                config +=
                    &format!("[[port]]\nnumber = {number}\nrole = \"{role}\"\npeer = {peer}\n");
            }
        }
        command.args(["--port", &format!("{CPU_PORT}={far}")]);
        let mut model = Process::start(&format!("{name}-model"), command, place.run.directory())?;
        model.wait_listening(*grpc_port, START_LIMIT)?;

        let mut command = place.command("calumma-switchd")?;
        command.arg("--config").arg(place.write(&format!("{name}.toml"), &config)?);
        let control = Process::start(name, command, place.run.directory())?;
        Ok(Self { control, model })
    }

    /// An error, with what it wrote last, if either part has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.model.check_running()?;
        self.control.check_running()
    }

    /// Stops it.
    pub(crate) fn stop(self) -> Result<()> {
        for (what, process) in [("control plane", self.control), ("model", self.model)] {
            let status = process.stop(STOP_LIMIT)?;
            ensure!(status.success(), "the {what} of a hardware edge ended with {status}");
        }
        Ok(())
    }
}
