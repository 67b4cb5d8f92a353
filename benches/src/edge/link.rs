//! A generator and a switch, a process each, with a memif link between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_edge::measure::Moment;
use calumma_testbed::fabric::{Process, Run, wait_until};
use serde_json::Value;

use super::Trial;
use super::ovs::{self, Ovs};
use super::sketching::{self, DOMAIN, Sketching};
use crate::measure::Figure;

/// The CPU that the switch polls on, and nothing else runs on.
pub const SWITCH_CPU: usize = 0;

/// That of the generator, and of all that is beside the two.
const GENERATOR_CPU: usize = 1;

/// What stands in the switch's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `dpdk-testpmd` in one of its forwarding modes.
    Testpmd(&'static str),
    /// Forwarding that counts every packet's flow in the sketch of DPDK's membership library.
    Member,
    /// Open vSwitch on DPDK.
    Ovs(Ovs),
    /// `calumma-edge` without a controller: it parses and forwards.
    EdgeOff,
    /// `calumma-edge` that measures.
    Edge(Measuring),
    /// The same with everything on, as a router.
    EdgeRouted,
    /// A router without a controller.
    EdgeRoutedOff,
    /// A router between others, with tables of cooperative flow selection.
    CfsTransit,
    /// `calumma-edge` with INT.
    Sketching(Sketching),
    /// `calumma-edge` that does not look for INT stacks: measuring everything else, or off.
    Unstripped(bool),
}

/// How much of the measurement each packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measuring {
    /// The flow classifier; hardly a packet goes into an encoder.
    Classifier,
    /// The flow classifier, and an encoder for every packet.
    All,
    /// Tables of cooperative flow selection in place of that, with claims.
    Cfs,
    /// These beside all of that.
    AllAndCfs,
}

/// What the controller is to do.
pub(super) struct Analysis {
    /// Its systems.
    pub(super) systems: Vec<&'static str>,
    /// Sections of its file.
    pub(super) sections: String,
}

impl Analysis {
    fn of(measuring: Measuring) -> Self {
        // Thresholds so high that all flows are light-loss candidates, of which one in 65,536 is
        // sampled.
        let attention = match measuring {
            Measuring::All | Measuring::Cfs | Measuring::AllAndCfs => "",
            Measuring::Classifier => {
                "[attention]\nt_h = 1_000_000_000\nt_l = 1_000_000_000\nsample_rate = 0.00001\n\
                 hl_buckets = 2560\nll_buckets = 512\n"
            }
        };
        let systems = match measuring {
            Measuring::Cfs => vec!["cfs"],
            Measuring::AllAndCfs => vec!["chamelemon", "cfs"],
            Measuring::All | Measuring::Classifier => vec!["chamelemon"],
        };
        let tables = match measuring.has_cfs() {
            true => "[cfs]\nentries = 10_000\nresidual = \"fermat\"\n",
            false => "",
        };
        Self { systems, sections: format!("{attention}{tables}") }
    }
}

impl Measuring {
    fn has_cfs(self) -> bool {
        matches!(self, Self::Cfs | Self::AllAndCfs)
    }
}

impl Switch {
    /// `calumma-edge` with everything on.
    pub const EDGE_ALL: Self = Self::Edge(Measuring::All);

    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::Testpmd("rxonly"),
        Self::Testpmd("io"),
        Self::Testpmd("macswap"),
        Self::Testpmd("5tswap"),
        Self::Member,
        Self::Ovs(Ovs::ALL[0]),
        Self::Ovs(Ovs::ALL[1]),
        Self::Ovs(Ovs::ALL[2]),
        Self::Ovs(Ovs::ALL[3]),
        Self::Ovs(Ovs::ALL[4]),
        Self::Ovs(Ovs::ALL[5]),
        Self::EdgeOff,
        Self::Edge(Measuring::Classifier),
        Self::EDGE_ALL,
        Self::Edge(Measuring::Cfs),
        Self::Edge(Measuring::AllAndCfs),
        Self::EdgeRouted,
        Self::EdgeRoutedOff,
        Self::CfsTransit,
        Self::Unstripped(false),
        Self::Unstripped(true),
        Self::Sketching(Sketching::ALL[0]),
        Self::Sketching(Sketching::ALL[1]),
        Self::Sketching(Sketching::ALL[2]),
        Self::Sketching(Sketching::ALL[3]),
    ];

    /// Its name among the figures.
    pub fn name(self) -> String {
        match self {
            Self::Testpmd(mode) => format!("testpmd.{mode}"),
            Self::Member => "rte_member".to_owned(),
            Self::Ovs(which) => which.name(),
            Self::EdgeOff => "edge.off".to_owned(),
            Self::Edge(Measuring::Classifier) => "edge.classifier".to_owned(),
            Self::EDGE_ALL => "edge.all".to_owned(),
            Self::Edge(Measuring::Cfs) => "edge.cfs".to_owned(),
            Self::Edge(Measuring::AllAndCfs) => "edge.chamelemon_cfs".to_owned(),
            Self::EdgeRouted => "edge.routed".to_owned(),
            Self::EdgeRoutedOff => "edge.routed_off".to_owned(),
            Self::CfsTransit => "edge.cfs_transit".to_owned(),
            Self::Unstripped(false) => "edge.off.no_strip".to_owned(),
            Self::Unstripped(true) => "edge.all.no_strip".to_owned(),
            Self::Sketching(which) => which.name(),
        }
    }

    /// Whether it has tables of cooperative flow selection.
    fn has_cfs(self) -> bool {
        match self {
            Self::Edge(measuring) => measuring.has_cfs(),
            _ => self == Self::CfsTransit,
        }
    }

    /// Why it can't run on this machine; nothing where it can.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Ovs(_) => Ovs::missing(),
            _ => None,
        }
    }
}

const CONTROLLER_PORT: u16 = 7620;
const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long after it listens a switch polls at the latest.
const POLLS_AFTER: Duration = Duration::from_millis(500);

/// Longer than a window of tables and what it takes to collect it.
const WINDOW: Duration = Duration::from_millis(2500);

/// What the controller reports.
const EPOCHS: &str = "epochs.jsonl";

/// Memory of a switch and of the generator, in MiB; without hugepages, so that it runs wherever
/// root does.
const MEMORY: &str = "512";

/// Where the generator sends its packets to, which a router must be.
const SWITCH_MAC: &str = "02:00:00:00:00:02";

/// Ports of an edge that is a bump in the wire.
const PAIRED: &str = r#"
[[port]]
name = "net_memif0"
role = "host"
peer = "net_null0"
[[port]]
name = "net_null0"
role = "fabric"
peer = "net_memif0"
"#;

/// Ports of an edge that is a router, and the way that the generator's packets go.
const ROUTED: &str = r#"
[[port]]
name = "net_memif0"
role = "host"
[[port]]
name = "net_null0"
role = "fabric"
[forwarding]
mode = "routed"
[[forwarding.interface]]
port = "net_memif0"
addresses = ["10.1.0.1/16"]
[[forwarding.interface]]
port = "net_null0"
addresses = ["10.9.0.1/30"]
# Packets are up to 1518 bytes long without the frame check sequence, four more than Ethernet's.
mtu = 1504
[[forwarding.route]]
to = "10.101.0.0/16"
via = ["10.9.0.2"]
[[forwarding.neighbour]]
address = "10.9.0.2"
mac = "02:00:00:00:00:09"
"#;

/// Where the programs lie, and the run that they belong to.
pub struct Link {
    run: Run,
    programs: PathBuf,
}

/// What became of a trial.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Millions of packets a second.
    pub mpps: f64,
    /// What a `calumma-edge` counted, by name.
    pub totals: BTreeMap<String, u64>,
}

impl Link {
    /// A link between programs that lie in the directory `programs`.
    ///
    /// # Errors
    /// When the user is not root, or a program is missing.
    pub fn new(programs: &Path) -> Result<Self> {
        for (name, package) in [
            ("calumma-testbed", "calumma-testbed"),
            ("calumma-edge", "calumma-edge"),
            ("calumma-controller", "calumma-controller"),
            ("member_switch", "calumma-benches"),
        ] {
            let program = programs.join(name);
            ensure!(
                program.exists(),
                "{} is missing; build it with `cargo build --release -p {package}`",
                program.display()
            );
        }
        Ok(Self { run: Run::begin()?, programs: programs.to_owned() })
    }

    /// Sends the packets of `trial` for as long as `duration`, or searches for the rate at which
    /// none is refused.
    ///
    /// # Errors
    /// When a program can't be started or ends early.
    pub fn carry(&self, trial: &Trial, duration: Duration, search: bool) -> Result<Carried> {
        let socket = self.run.directory().join("link.sock");
        let _ = fs::remove_file(&socket);
        let controller = match trial.switch {
            Switch::Edge(measuring) => Some(self.controller(&Analysis::of(measuring))?),
            Switch::EdgeRouted | Switch::Unstripped(true) => {
                Some(self.controller(&Analysis::of(Measuring::All))?)
            }
            Switch::CfsTransit => Some(self.controller(&Analysis::of(Measuring::Cfs))?),
            Switch::Sketching(which) => Some(self.controller(&which.analysis())?),
            Switch::Testpmd(_)
            | Switch::Member
            | Switch::Ovs(_)
            | Switch::EdgeOff
            | Switch::EdgeRoutedOff
            | Switch::Unstripped(false) => None,
        };
        let (ovs, mut switch) = self.start(trial.switch, &socket)?;
        wait_until("the switch to listen", START_LIMIT, || {
            switch.check_running()?;
            Ok(socket.exists())
        })?;
        // A switch listens before its lcore polls, and does not report when that begins.
        std::thread::sleep(POLLS_AFTER);
        if controller.is_some() {
            wait_until("the edge to measure", START_LIMIT, || {
                switch.check_running()?;
                self.measures(trial.switch)
            })?;
        }
        let (generator, mpps) = self.generate(trial, &socket, duration, search, &mut switch)?;
        // Tables are counted once their window is over.
        if trial.switch.has_cfs() {
            std::thread::sleep(WINDOW);
        }
        if let Switch::Sketching(which) = trial.switch {
            std::thread::sleep(WINDOW);
            which.check_reports(&self.file(EPOCHS))?;
        }
        // Whoever polls a memif port must leave before the other side does.
        match ovs {
            Some(ovs) => ovs.stop(switch)?,
            None => {
                let status = switch.stop(STOP_LIMIT)?;
                ensure!(status.success(), "{} ended with {status}", trial.switch.name());
            }
        }
        generator.stop(STOP_LIMIT)?;
        if let Some(controller) = controller {
            controller.stop(STOP_LIMIT)?;
        }
        let totals = match trial.switch {
            Switch::Testpmd(_) | Switch::Member | Switch::Ovs(_) => BTreeMap::new(),
            _ => self.totals(trial.switch)?,
        };
        Ok(Carried { mpps, totals })
    }

    /// The totals of the `calumma-edge` that ran last, after a look at whether it did what its
    /// trial is named for.
    fn totals(&self, switch: Switch) -> Result<BTreeMap<String, u64>> {
        let text = fs::read_to_string(self.file("edge.stats.json")).context("an edge's totals")?;
        let totals: BTreeMap<String, u64> = serde_json::from_str(&text)?;
        let total = |name: &str| totals.get(name).copied().unwrap_or_default();
        let came_by =
            if switch == Switch::CfsTransit { "received.fabric" } else { "received.host" };
        let (received, recorded) = (total(came_by), total("ingress.recorded"));
        if let Switch::Sketching(which) = switch {
            which.check(&total)?;
            return Ok(totals);
        }
        ensure!(received > 0, "the edge received no packet");
        if switch.has_cfs() {
            // Of windows that were over.
            ensure!(total("cfs.recorded") > 0, "the edge has counted no packet in tables");
        }
        match switch {
            Switch::Edge(Measuring::Cfs) | Switch::CfsTransit => {
                ensure!(recorded == 0, "chamelemon was to be off, but recorded {recorded}");
            }
            Switch::Edge(_) | Switch::EdgeRouted | Switch::Unstripped(true) => ensure!(
                recorded * 100 > received * 95,
                "the edge recorded only {recorded} of {received} packets"
            ),
            _ => ensure!(recorded == 0, "the edge was not to measure, but recorded {recorded}"),
        }
        Ok(totals)
    }

    /// Whether the controller has reported an epoch whole or, where a switch has tables, a window.
    fn measures(&self, switch: Switch) -> Result<bool> {
        if let Switch::Sketching(which) = switch {
            return which.is_on(&self.file(EPOCHS));
        }
        let windows = switch.has_cfs();
        let reports = fs::read_to_string(self.file(EPOCHS)).unwrap_or_default();
        let mut whole = reports.lines().take_while(|line| line.ends_with('}'));
        whole.try_fold(false, |any, line| {
            let report: Value = serde_json::from_str(line).context("a report")?;
            let wanted = !windows || report["window"].is_u64();
            Ok(any || wanted && report["complete"] == true)
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.run.directory().join(name)
    }

    fn controller(&self, analysis: &Analysis) -> Result<Process> {
        let Analysis { systems, sections } = analysis;
        let (config, state) = (self.file("controller.toml"), self.file("state"));
        // Packets that the generator sends carry the deployment's number.
        fs::create_dir_all(&state).context("the controller's state")?;
        fs::write(state.join("deployment_id"), format!("{DOMAIN}\n"))
            .context("writing the deployment's number")?;
        let text = format!(
            "listen = \"127.0.0.1:{CONTROLLER_PORT}\"\nedges = [\"e1\"]\nsystems = {systems:?}\n\
             state_dir = {state:?}\n[shifting]\nmode = \"static\"\n{sections}"
        );
        fs::write(&config, text).context("writing the controller's configuration")?;
        let mut command = Command::new(self.programs.join("calumma-controller"));
        let epochs = self.file(EPOCHS);
        let _ = fs::remove_file(&epochs);
        command.arg("--config").arg(config).arg("--out").arg(epochs).arg("--quiet");
        let mut process = Process::start("controller", command, self.run.directory())?;
        process.wait_listening(CONTROLLER_PORT)?;
        Ok(process)
    }

    /// DPDK's arguments for a program of its own on a CPU.
    fn eal(&self, name: &str, lcores: &str, devices: &[String]) -> Vec<String> {
        let mut arguments = self.memory(name);
        arguments.extend(["--lcores".to_owned(), lcores.to_owned()]);
        arguments.extend_from_slice(devices);
        arguments
    }

    /// Those of them that say where its memory is.
    fn memory(&self, name: &str) -> Vec<String> {
        let prefix = format!("{}-{name}", self.run.prefix());
        let fixed = ["--no-huge", "-m", MEMORY, "--no-pci", "--no-telemetry", "--file-prefix"];
        fixed.into_iter().map(str::to_owned).chain([prefix]).collect()
    }

    /// The devices of a switch: where packets come from, and where they go.
    fn devices(socket: &Path) -> [String; 2] {
        let socket = socket.display();
        [
            format!(
                "net_memif0,role=server,id=0,socket-abstract=no,mac={SWITCH_MAC},socket={socket}"
            ),
            "net_null0,no-rx=1".to_owned(),
        ]
    }

    /// Starts a switch: the process that polls, and what Open vSwitch needs beside it.
    fn start(&self, switch: Switch, socket: &Path) -> Result<(Option<ovs::Running>, Process)> {
        let starting = || format!("starting {}", switch.name());
        let devices = Self::devices(socket).map(|device| format!("--vdev={device}"));
        let command = match switch {
            Switch::Ovs(which) => {
                let place = ovs::Place {
                    directory: self.run.directory(),
                    eal: self.memory("switch").join(" "),
                    polling_cpu: SWITCH_CPU,
                    other_cpu: GENERATOR_CPU,
                    ports: Self::devices(socket),
                };
                let (ovs, daemon) = ovs::Running::start(which, &place).with_context(starting)?;
                return Ok((Some(ovs), daemon));
            }
            Switch::Testpmd(mode) => {
                let mut command = Command::new("dpdk-testpmd");
                // The main lcore sleeps on the generator's CPU.
                command.args(self.eal(
                    "switch",
                    &format!("0@{GENERATOR_CPU},1@{SWITCH_CPU}"),
                    &devices,
                ));
                command.args(["--", "--auto-start", "--no-flush-rx", "--total-num-mbufs=16384"]);
                command.arg(format!("--forward-mode={mode}"));
                // Without a terminal testpmd ends at once, unless it has statistics to print.
                command.args(["--stats-period", "3600"]);
                command
            }
            Switch::Member => {
                let mut command = Command::new(self.programs.join("member_switch"));
                command.args(["net_memif0", "net_null0", "--"]);
                command.args(self.eal("switch", &format!("0@{SWITCH_CPU}"), &devices));
                command.arg("--force-max-simd-bitwidth=512");
                command
            }
            _ => {
                let config = self.file("edge.toml");
                let ports = match switch {
                    Switch::EdgeRouted | Switch::EdgeRoutedOff => ROUTED.to_owned(),
                    Switch::CfsTransit => sketching::between(ROUTED),
                    Switch::Sketching(which) => which.ports(PAIRED, ROUTED),
                    Switch::Unstripped(_) => format!("[sketchint]\nstrip = false\n{PAIRED}"),
                    _ => PAIRED.to_owned(),
                };
                let text = format!(
                    "name = \"e1\"\ncontroller = \"127.0.0.1:{CONTROLLER_PORT}\"\n\
                     carrier = {{ kind = \"tos\" }}\n\
                     [polling]\ncontrol_cpu = {GENERATOR_CPU}\n{ports}"
                );
                fs::write(&config, text).context("writing an edge's configuration")?;
                let mut command = Command::new(self.programs.join("calumma-edge"));
                command.arg("--config").arg(config);
                command.arg("--stats").arg(self.file("edge.stats.json")).arg("--");
                command.args(self.eal("switch", &format!("0@{SWITCH_CPU}"), &devices));
                command
            }
        };
        let process = Process::start("switch", command, self.run.directory());
        Ok((None, process.with_context(starting)?))
    }

    /// Starts the generator, and gives it and the rate in Mpps once it has sent all.
    fn generate(
        &self,
        trial: &Trial,
        socket: &Path,
        duration: Duration,
        search: bool,
        switch: &mut Process,
    ) -> Result<(Process, f64)> {
        let mut command = Command::new(self.programs.join("calumma-testbed"));
        command.args(["generate", "--stay", "--size", trial.size]);
        command.args(["--popularity", trial.popularity, "--flows", &trial.flows.to_string()]);
        if trial.hops > 0 {
            command.args(["--stack", &trial.hops.to_string(), "--domain", &DOMAIN.to_string()]);
        }
        if search {
            command.args(["--search", "--seconds", &(duration.as_secs_f64() / 4.0).to_string()]);
        } else {
            command.args(["--seconds", &duration.as_secs_f64().to_string()]);
        }
        let device = format!(
            "--vdev=net_memif0,role=client,id=0,socket-abstract=no,socket={}",
            socket.display()
        );
        command.arg("--").args(self.eal("generator", &format!("0@{GENERATOR_CPU}"), &[device]));
        let mut generator = Process::start("generator", command, self.run.directory())?;
        let output = self.file("generator.out");
        let mut mpps = None;
        wait_until("the generator to have sent", START_LIMIT + 40 * duration, || {
            generator.check_running()?;
            switch.check_running()?;
            let text = fs::read_to_string(&output).unwrap_or_default();
            // DPDK's drivers write to the standard output as well.
            let json = text.find("\n{").map_or(&*text, |at| &text[at..]);
            let outcome: Option<Value> = serde_json::from_str(json).ok();
            mpps = outcome.and_then(|outcome| outcome["mpps"].as_f64());
            Ok(mpps.is_some())
        })?;
        Ok((generator, mpps.unwrap_or_default()))
    }
}

/// Figures that the edge itself counted, from the totals of runs alike: cycles a packet by stage,
/// and how long bursts took.
pub(super) fn of_the_edge(name: &str, runs: &[BTreeMap<String, u64>]) -> Vec<Figure> {
    let each = |of: &dyn Fn(&BTreeMap<String, u64>) -> Option<f64>| -> Vec<f64> {
        runs.iter().filter_map(of).collect()
    };
    let mut figures = Vec::new();
    for stage in ["receive", "work", "transmit"] {
        let readings = each(&|totals| {
            let of = |port: &str| totals.get(port).copied().unwrap_or_default();
            let packets = (of("received.host") + of("received.fabric")) as f64;
            Some(*totals.get(&format!("cycles.{stage}"))? as f64 / packets)
        });
        figures.push((format!("{name}.{stage}.cycles"), "cycles/packet", readings));
    }
    for burst in Moment::ALL.map(Moment::bursts) {
        for quantile in ["p50", "p999", "max"] {
            // Where the link is slow, polls at so rare a moment may all have found no packet.
            let readings = each(&|totals| {
                let number = *totals.get(&format!("{burst}.number"))?;
                let nanos = *totals.get(&format!("{burst}.{quantile}_ns"))? as f64;
                (number > 0).then_some(nanos / 1e3)
            });
            figures.push((format!("{name}.{burst}.{quantile}.us"), "us", readings));
        }
    }
    figures
        .into_iter()
        .filter(|(_, _, readings)| !readings.is_empty())
        .map(|(name, unit, readings)| Figure::of(name, unit, readings))
        .collect()
}
