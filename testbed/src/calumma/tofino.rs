//! A hardware switch as processes: the model of a Tofino with network interfaces for ports, and the
//! control plane that runs it through the driver's interface.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_switchd::system::System;
use calumma_wire::Role;
use nix::sys::signal::Signal;

use super::p4::{self, Sources};
use super::programs::{LOOPBACK, Place, STOP_LIMIT};
use crate::fabric::{Process, wait_until};

/// Numbers of the CPU port and of the first of the others.
const CPU_PORT: u16 = 64;
const FIRST_PORT: u16 = 1;

/// The model hands an element of its registers out on each pass, so answers take their time.
const RETRY_MS: u64 = 200;

/// A hardware switch and what it stands between.
pub(crate) struct Hardware<'a> {
    /// The switch's name.
    pub(crate) name: &'a str,
    /// What it is in the network: `edge` or `transit`.
    pub(crate) role: &'a str,
    /// The system whose program it has.
    pub(crate) system: &'a dyn System,
    /// The controller's configuration, for which the program is built.
    pub(crate) controller: &'a toml::Table,
    /// Its ports but for the CPU's.
    pub(crate) ports: &'a [HardwarePort],
    /// Where it sends what comes by a port without a peer: more of its configuration.
    pub(crate) routes: &'a str,
    /// Both ends of the wire at its CPU port: the control plane's and the switch's.
    pub(crate) cpu_port: [String; 2],
    /// Where the driver's interface is offered.
    pub(crate) grpc_port: u16,
}

/// A port of a hardware switch.
pub(crate) struct HardwarePort {
    /// The network interface that it is.
    pub(crate) interface: String,
    /// What is on the other side: host or fabric.
    pub(crate) role: &'static str,
    /// The position of the port that its packets go to; none where they are routed.
    pub(crate) peer: Option<usize>,
}

/// The number by which a switch knows the port at a position.
pub(crate) fn port_number(at: usize) -> u16 {
    FIRST_PORT + at as u16
}

impl Hardware<'_> {
    /// The configuration of its control plane; `security` says whether it speaks by TLS.
    fn config(&self, (address, port): (&str, u16), security: &str) -> String {
        let Hardware { name, role, system, routes, cpu_port: [near, _], grpc_port, .. } = self;
        let program = Path::new(system.program()).file_stem().unwrap_or_default().display();
        let mut config = format!(
            "name = \"{name}\"\n\
             role = \"{role}\"\n\
             controller = \"{address}:{port}\"\n\
             {security}\
             [driver]\n\
             address = \"{LOOPBACK}:{grpc_port}\"\n\
             program = \"{program}\"\n\
             [collection]\n\
             interface = \"{near}\"\n\
             cpu_port = {CPU_PORT}\n\
             retry_ms = {RETRY_MS}\n"
        );
        for (at, HardwarePort { role, peer, .. }) in self.ports.iter().enumerate() {
            config += &format!("[[port]]\nnumber = {}\nrole = \"{role}\"\n", port_number(at));
            config +=
                &peer.map(|peer| format!("peer = {}\n", port_number(peer))).unwrap_or_default();
        }
        config + routes
    }

    fn configure(&self, place: Place<'_>) -> Result<std::path::PathBuf> {
        let security = place.security(self.name)?;
        place.write(&format!("{}.toml", self.name), &self.config(place.controller, &security))
    }
}

/// A hardware switch that runs.
pub(crate) struct Tofino {
    name: String,
    // Ends first.
    control: Process,
    model: Process,
}

impl Tofino {
    /// Starts it.
    pub(crate) fn start(place: Place<'_>, switch: &Hardware<'_>) -> Result<Self> {
        let Hardware { name, role, system, controller, ports, .. } = switch;
        let Hardware { cpu_port: [_, far], grpc_port, .. } = switch;
        let role = if *role == "transit" { Role::Transit } else { Role::Edge };
        let most = usize::from(CPU_PORT - FIRST_PORT);
        ensure!(ports.len() <= most, "{name}: a modelled Tofino has at most {most} ports");
        let folder = place.run.directory().join(format!("{name}.p4"));
        // It is there where the switch is started anew.
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;

        let mut command = place.command("calumma-tna")?;
        let Sources { file, defines } = p4::write((*system, role), controller, &folder)?;
        command.arg("--program").arg(file);
        for (name, value) in defines {
            command.arg("-D").arg(format!("{name}={value}"));
        }
        command.args(["--grpc", &format!("{LOOPBACK}:{grpc_port}")]);
        for (at, HardwarePort { interface, .. }) in ports.iter().enumerate() {
            command.args(["--port", &format!("{}={interface}", port_number(at))]);
        }
        command.args(["--port", &format!("{CPU_PORT}={far}")]);
        let mut model = Process::start(&format!("{name}-model"), command, place.run.directory())?;
        model.wait_listening(*grpc_port)?;

        let control = Self::start_control(place, name, &switch.configure(place)?)?;
        Ok(Self { name: (*name).to_owned(), control, model })
    }

    fn start_control(place: Place<'_>, name: &str, config: &Path) -> Result<Process> {
        let mut command = place.command("calumma-switchd")?;
        command.arg("--config").arg(config);
        Process::start(name, command, place.run.directory())
    }

    /// Kills its control plane and starts that anew, while the switch forwards on.
    pub(crate) fn kill_control(self, place: Place<'_>) -> Result<Self> {
        let Self { name, control, model } = self;
        control.kill()?;
        let config = place.run.directory().join(format!("{name}.toml"));
        let control = Self::start_control(place, &name, &config)?;
        Ok(Self { name, control, model })
    }

    /// The process of its control plane.
    pub(crate) fn control(&self) -> &Process {
        &self.control
    }

    /// Lets its control plane stand still for some time, in a moment.
    pub(crate) fn freeze_control(&self, moment: Duration, time: Duration) {
        self.control.freeze(moment, time);
    }

    /// Lets it go by `switch` from now on, as far as a switch can that runs.
    pub(crate) fn reload(&self, place: Place<'_>, switch: &Hardware<'_>) -> Result<()> {
        switch.configure(place)?;
        self.control.signal(Signal::SIGHUP)
    }

    /// Waits until it forwards packets.
    pub(crate) fn wait_forwarding(&mut self, limit: Duration) -> Result<()> {
        wait_until("a hardware switch to forward", limit, || {
            self.check_running()?;
            self.control.has_logged("forwarding")
        })
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
            ensure!(status.success(), "the {what} of a hardware switch ended with {status}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_switchd::chamelemon::ChameleMon;
    use calumma_switchd::config::Config;

    #[test]
    fn a_control_plane_reads_the_configuration_of_a_transit() {
        let port = |interface: &str| HardwarePort {
            interface: interface.to_owned(),
            role: "fabric",
            peer: None,
        };
        let hop = "{ port = 1, mac = \"02:00:00:00:00:01\", from = \"02:00:00:00:00:02\" }";
        let routes = format!(
            "[[route]]\nto = \"10.0.1.0/24\"\nvia = [{hop}]\n\
             [[route]]\nto = \"fd00:0:0:1::/64\"\ndiscard = true\n"
        );
        let hardware = Hardware {
            name: "s1",
            role: "transit",
            system: &ChameleMon,
            controller: &toml::Table::new(),
            ports: &[port("s1t1"), port("s1t2")],
            routes: &routes,
            cpu_port: ["s1cpu", "s1dp"].map(str::to_owned),
            grpc_port: 50_052,
        };
        let text = hardware.config(("100.127.2.1", 7620), "insecure = true\n");
        let config = Config::parse(&text, "s1.toml").unwrap();
        let numbers: Vec<u16> = config.ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers, [port_number(0), port_number(1)]);
        assert_eq!((&*config.driver.program, config.routes.len()), ("edge", 2));
        assert_eq!(config.controller, "100.127.2.1:7620");
    }
}
