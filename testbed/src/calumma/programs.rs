//! Starting and stopping the controller and software switches.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_controller::config::ShiftingMode;
use calumma_sketch::KeyKind;
use calumma_trust::{Authority, TlsFiles};
use nix::sys::signal::Signal;

use crate::fabric::{Namespace, Process, Run, wait_until};

/// Length of the epochs.
pub(crate) const EPOCH: Duration = Duration::from_millis(50);

/// Where programs of one namespace find each other.
pub(crate) const LOOPBACK: &str = "127.0.0.1";

/// On a machine whose few CPUs two switches, hosts, core and applications share, and which is
/// itself a guest, everything may stand still for ten milliseconds. The guards share an epoch out
/// evenly: as long for packets on their way as for a switch that is late to take its egress group.
pub(crate) const CLOCK_GUARD_US: u64 = 2_000;
pub(crate) const FLIGHT_GUARD_US: u64 = 22_000;

/// What comes late is in no report, and here packets are counted in all reports: where programs
/// wait for a CPU, reports wait for them.
const GRACE_MS: u32 = 10_000;

/// A switch measures the epoch under way to its end first; on a busy machine that takes its time.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Where programs are started: whose run it is, in which network, and where their files lie.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The run.
    pub(crate) run: &'a Run,
    /// The network namespace; a run that is killed is cleaned up after by what runs in its
    /// namespaces.
    pub(crate) namespace: &'a Namespace,
    /// The calumma-testbed program, beside which the others lie.
    pub(crate) testbed: &'a Path,
    /// The IPv4 address and the TCP port at which the controller listens, as seen from there.
    pub(crate) controller: (&'a str, u16),
    /// The folder of the authority whose certificates they know each other by; without one, they
    /// speak without TLS: nobody else is in their namespaces.
    pub(crate) pki: Option<&'a Path>,
    /// Whether they go before other programs when CPUs are short. Switches that never sleep would
    /// starve these.
    pub(crate) first: bool,
}

impl Place<'_> {
    /// The program `name`.
    pub(crate) fn command(&self, name: &str) -> Result<Command> {
        let program = self.testbed.with_file_name(name);
        ensure!(
            program.exists(),
            "{} is missing; build it with `cargo build --bin {name}`",
            program.display()
        );
        let mut command = self.namespace.command("nice");
        command.args(["-n", if self.first { "-19" } else { "0" }]).arg(program);
        Ok(command)
    }

    /// What a switch's configuration says of TLS, after its certificate has been made.
    pub(super) fn security(&self, switch: &str) -> Result<String> {
        let Some(pki) = self.pki else { return Ok("insecure = true\n".to_owned()) };
        if !pki.join(format!("{switch}.crt")).exists() {
            Authority::open(pki)?.issue(switch, 1)?;
        }
        let TlsFiles { ca, certificate, key, .. } = TlsFiles::of(pki, switch);
        Ok(format!("tls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?} }}\n"))
    }

    /// Writes a file of the run's.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.run.directory().join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// What a controller has measured.
pub(crate) struct Measured<'a> {
    /// By which system.
    pub(crate) system: &'a str,
    /// Which flows.
    pub(crate) keys: KeyKind,
    /// Flows of more packets than this in an epoch are reported.
    pub(crate) heavy_hitter: u64,
    /// Whether attention is shifted, or stays as it is at first: every flow decoded from one
    /// packet on.
    pub(crate) shifting: ShiftingMode,
}

/// A controller that runs.
pub(crate) struct Controller(Process);

impl Controller {
    /// Starts it for these edges, its reports going to `epochs`. Packets are counted at every hop,
    /// so edges send none of their own.
    pub(crate) fn start(
        place: Place<'_>,
        edges: &[impl AsRef<str>],
        epochs: &Path,
        measured: &Measured<'_>,
    ) -> Result<Self> {
        let Measured { system, keys, heavy_hitter, shifting } = measured;
        let keys = keys.name();
        let mode = match shifting {
            ShiftingMode::Shift => "shift",
            ShiftingMode::DryRun => "dry-run",
            ShiftingMode::Static => "static",
        };
        let sections = format!(
            "systems = [\"{system}\"]\n\
             grace_ms = {GRACE_MS}\n\
             [layout]\n\
             keys = \"{keys}\"\n\
             [epoch]\n\
             length_ms = {}\n\
             clock_guard_us = {CLOCK_GUARD_US}\n\
             flight_guard_us = {FLIGHT_GUARD_US}\n\
             [tasks]\n\
             heavy_hitter = {heavy_hitter}\n\
             [probes]\n\
             enabled = false\n\
             [shifting]\n\
             mode = \"{mode}\"\n",
            EPOCH.as_millis()
        );
        Self::configured(place, epochs, edges, toml::from_str(&sections)?)
    }

    /// Starts it for `edges`, its reports going to `epochs`, with `sections` of its configuration.
    pub(crate) fn configured(
        place: Place<'_>,
        epochs: &Path,
        edges: &[impl AsRef<str>],
        sections: toml::Table,
    ) -> Result<Self> {
        let config = Self::configure(place, edges, sections)?;
        let mut command = place.command("calumma-controller")?;
        command.arg("--config").arg(&config).arg("--out").arg(epochs).arg("--quiet");
        let mut process = Process::start("controller", command, place.run.directory())?;
        process.wait_listening(place.controller.1)?;
        Ok(Self(process))
    }

    fn configure(
        place: Place<'_>,
        edges: &[impl AsRef<str>],
        mut sections: toml::Table,
    ) -> Result<PathBuf> {
        let edges: Vec<&str> = edges.iter().map(AsRef::as_ref).collect();
        let (address, port) = place.controller;
        sections.insert("listen".to_owned(), format!("{address}:{port}").into());
        sections.insert("edges".to_owned(), edges.into());
        if let Some(pki) = place.pki {
            let file = |name: &str| pki.join(name).display().to_string().into();
            let tls = [
                ("ca", "ca.crt"),
                ("certificate", "controller.crt"),
                ("key", "controller.key"),
                ("revoked", "revoked.pem"),
            ];
            let tls: toml::Table =
                tls.into_iter().map(|(field, name)| (field.to_owned(), file(name))).collect();
            sections.insert("tls".to_owned(), tls.into());
        } else {
            sections.insert("insecure".to_owned(), true.into());
        }
        place.write("controller.toml", &toml::to_string(&sections)?)
    }

    /// Lets it go by another configuration from now on, as far as a controller can that runs.
    pub(crate) fn reload(
        &self,
        place: Place<'_>,
        edges: &[impl AsRef<str>],
        sections: toml::Table,
    ) -> Result<()> {
        Self::configure(place, edges, sections)?;
        self.0.signal(Signal::SIGHUP)
    }

    /// An error, with what it wrote last, if it has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.0.check_running()
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        &self.0
    }

    /// Lets its process stand still for some time, in a moment.
    pub(crate) fn freeze(&self, moment: Duration, time: Duration) {
        self.0.freeze(moment, time);
    }

    /// Kills its process.
    pub(crate) fn kill(self) -> Result<()> {
        self.0.kill()
    }

    /// Stops it.
    pub(crate) fn stop(self) -> Result<()> {
        self.0.stop(STOP_LIMIT).map(drop)
    }
}

/// A port of an edge switch.
pub(crate) struct Device<'a> {
    /// DPDK's name of it.
    pub(crate) name: &'a str,
    /// What is on the other side: host or fabric.
    pub(crate) role: &'a str,
    /// The port that its packets go to; none where they are routed.
    pub(crate) peer: Option<&'a str>,
    /// The lcore that alone polls it, if there is one.
    pub(crate) lcore: Option<usize>,
    /// Whether a host with a sink of its own is on the other side.
    pub(crate) host_sink: bool,
}

impl<'a> Device<'a> {
    /// Two ports that are each other's peers.
    pub(crate) fn pair(host: &'a str, fabric: &'a str) -> [Self; 2] {
        [
            Self { name: host, role: "host", peer: Some(fabric), lcore: None, host_sink: false },
            Self { name: fabric, role: "fabric", peer: Some(host), lcore: None, host_sink: false },
        ]
    }
}

/// A software switch and what it stands between.
pub(crate) struct Wire<'a> {
    /// The switch's name.
    pub(crate) name: &'a str,
    /// What it is in the network: `edge`, `transit` or `host`.
    pub(crate) role: &'a str,
    /// Its lcores and their CPUs, as the EAL takes them.
    pub(crate) lcores: &'a str,
    /// Its ports.
    pub(crate) ports: &'a [Device<'a>],
    /// EAL arguments that make the devices.
    pub(crate) devices: &'a [String],
    /// More sections of its configuration.
    pub(crate) more: &'a str,
    /// Microseconds to sleep when there is nothing to do.
    pub(crate) idle_sleep_us: u32,
    /// Empty polls before the first sleep, where the usual number is not meant.
    pub(crate) idle_polls: Option<u32>,
}

impl Wire<'_> {
    /// The configuration of the switch, which belongs to the controller at `address` and `port`;
    /// `security` says whether they speak by TLS.
    fn config(&self, (address, port): (&str, u16), security: &str) -> String {
        let Wire { name, role, ports, more, idle_sleep_us, idle_polls, .. } = self;
        let idle_polls = idle_polls.map(|polls| format!("idle_polls = {polls}\n"));
        let mut config = format!(
            "name = \"{name}\"\n\
             role = \"{role}\"\n\
             controller = \"{address}:{port}\"\n\
             {security}\
             [polling]\n\
             idle_sleep_us = {idle_sleep_us}\n\
             {}{more}",
            idle_polls.unwrap_or_default()
        );
        for Device { name, role, peer, lcore, host_sink } in *ports {
            config += &format!("[[port]]\nname = \"{name}\"\nrole = \"{role}\"\n");
            config += &peer.map(|peer| format!("peer = \"{peer}\"\n")).unwrap_or_default();
            config += &lcore.map(|lcore| format!("lcores = [{lcore}]\n")).unwrap_or_default();
            config += if *host_sink { "host_sink = true\n" } else { "" };
        }
        config
    }
}

/// A software switch that runs.
pub(crate) struct Switch {
    process: Process,
    stats: PathBuf,
}

impl Switch {
    /// Starts it.
    pub(crate) fn start(place: Place<'_>, wire: &Wire<'_>) -> Result<Self> {
        let Wire { name, lcores, devices, .. } = wire;
        let config = Self::configure(place, wire)?;
        let stats = place.run.directory().join(format!("{name}.stats.json"));
        let mut command = place.command("calumma-edge")?;
        command.arg("--config").arg(&config).arg("--stats").arg(&stats).arg("--");
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"]);
        command.args(["--file-prefix", &format!("{}-{name}", place.run.prefix())]);
        command.args(["--lcores", lcores]).args(*devices);
        let process = Process::start(name, command, place.run.directory())?;
        Ok(Self { process, stats })
    }

    fn configure(place: Place<'_>, wire: &Wire<'_>) -> Result<PathBuf> {
        let security = place.security(wire.name)?;
        place.write(&format!("{}.toml", wire.name), &wire.config(place.controller, &security))
    }

    /// Lets it go by `wire` from now on, as far as a switch can that runs.
    pub(crate) fn reload(&self, place: Place<'_>, wire: &Wire<'_>) -> Result<()> {
        Self::configure(place, wire)?;
        self.process.signal(Signal::SIGHUP)
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Lets its process stand still for some time, in a moment.
    pub(crate) fn freeze(&self, moment: Duration, time: Duration) {
        self.process.freeze(moment, time);
    }

    /// Kills its process.
    pub(crate) fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Waits until it forwards packets.
    pub(crate) fn wait_forwarding(&mut self, limit: Duration) -> Result<()> {
        wait_until("a switch to forward", limit, || {
            self.process.check_running()?;
            self.process.has_logged("forwarding")
        })
    }

    /// An error, with what it wrote last, if it has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// Stops it, and gives its totals by name.
    pub(crate) fn stop(self) -> Result<BTreeMap<String, u64>> {
        let status = self.process.stop(STOP_LIMIT)?;
        ensure!(status.success(), "a switch ended with {status}");
        let reading = || format!("reading {}", self.stats.display());
        let text = fs::read_to_string(&self.stats).with_context(reading)?;
        serde_json::from_str(&text).with_context(reading)
    }
}
