//! What really happened to packets, bytes, ways and times: captures by `tcpdump` at every host and
//! on the wires on both sides of every switch, each at the end that is not the switch's. No switch
//! has a part in it, and nothing of a switch's code reads it.

mod compare;
mod observed;
mod packet;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use self::compare::{Comparison, HopRow};
pub(super) use self::observed::Observed;
pub use self::observed::{OfFlow, OfHop};
use crate::fabric::wiring::{HOST, Wiring};
use crate::fabric::{Namespace, Process, Run, interrupt, wait_until};
use crate::topology::Topology;

/// How long a capture may take until it begins, and to end.
const LIMIT: Duration = Duration::from_secs(30);

/// The kernel hands a capture what it has after a second at the latest.
const HANDED_OVER: Duration = Duration::from_millis(1500);

/// Kilobytes that the kernel keeps for each capture.
const BUFFER: &str = "16384";

/// Where a capture stands: on a wire of the switch at a position. The wire of an edge leads to a
/// host or to its router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wire {
    switch: usize,
    port: usize,
    is_host: bool,
    part: Part,
}

/// What of a wire a capture sees. Where a host has a sink of its own, two stand on its wire, one on
/// each side of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    All,
    /// What the switch sends and receives.
    Switch,
    /// What the host sends and receives.
    Host,
}

/// Captures that run.
pub(super) struct Captures {
    running: Vec<(Wire, Process, PathBuf)>,
}

impl Captures {
    /// Begins to capture. To be called before any host sends.
    pub(super) fn start(wiring: &Wiring, topology: &Topology, run: &Run) -> Result<Self> {
        let mut running = Vec::new();
        // What a switch sends, no capture at its own end of a wire sees.
        let mut begin = |wire: Wire, namespace: &Namespace, interface: &str| -> Result<()> {
            let name = format!("capture-{}", running.len());
            let file = run.directory().join(format!("{name}.pcap"));
            let mut command = namespace.command("tcpdump");
            command.args(["-n", "-Z", "root", "-s", "0", "-B", BUFFER]);
            if wire.part == Part::Switch {
                command.args(["-Q", "in"]);
            }
            command.args(["--time-stamp-precision", "nano", "-i", interface, "-w"]).arg(&file);
            running.push((wire, Process::start(&name, command, run.directory())?, file));
            Ok(())
        };
        for (switch, hosts) in wiring.hosts().iter().enumerate() {
            for (number, host) in hosts.iter().enumerate() {
                let wire = |is_host, part| Wire { switch, port: number, is_host, part };
                if let Some(sink) = topology.host_sink(switch, number) {
                    // Both ends of that wire are switches'.
                    let [_, network] = wiring.sink_ports(switch, number);
                    let [near, _] = &wiring.ports(switch)[number];
                    begin(wire(true, Part::Switch), &wiring.sinks()[sink], &network)?;
                    begin(wire(true, Part::Switch), wiring.switches(), near)?;
                    begin(wire(true, Part::Host), host, HOST)?;
                } else {
                    begin(wire(true, Part::All), host, HOST)?;
                }
                let router = (&wiring.routers()[switch], format!("h{}", number + 1));
                begin(wire(false, Part::All), router.0, &router.1)?;
            }
        }
        for switch in topology.transits() {
            for port in 1..=topology.neighbours(switch).count() {
                let interface = super::transit::interface(&topology.names()[switch], port);
                let wire = Wire { switch, port, is_host: false, part: Part::All };
                begin(wire, &wiring.routers()[switch], &interface)?;
            }
        }
        for (_, process, _) in &mut running {
            wait_until("a capture to begin", LIMIT, || {
                process.check_running()?;
                process.has_logged("listening on")
            })?;
        }
        Ok(Self { running })
    }

    /// Ends capturing, once nothing is on its way, and reads what was captured.
    pub(super) fn finish(self, topology: &Topology) -> Result<Observed> {
        interrupt::sleep(HANDED_OVER)?;
        let mut observed = Observed::new(topology);
        let mut files: Vec<(Wire, PathBuf)> = Vec::new();
        for (wire, process, file) in self.running {
            let log = file.with_extension("err");
            process.stop(LIMIT)?;
            ensure!(
                lost_nothing(&log)?,
                "the kernel had no room for all packets of a capture: fewer packets, or a larger \
                 buffer"
            );
            files.push((wire, file));
        }
        files.sort();
        observed.read(&files)?;
        Ok(observed)
    }
}

/// Whether `tcpdump` says that the kernel dropped nothing.
fn lost_nothing(log: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    Ok(text.lines().any(|line| line.trim() == "0 packets dropped by kernel"))
}
