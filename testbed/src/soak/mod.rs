//! Many packets, as fast as they go, through two edges over shared memory: none is counted in two
//! epochs or in none, and every one is accounted for.
//!
//! ```text
//!  dpdk-testpmd txonly ---- memif ---- [edge e1] ---- memif ---- [edge e2] ---- net_null
//! ```
//!
//! What e1 drops for want of room towards e2 is lost in the network, so the controller must report
//! exactly that. On a machine with few CPUs the edges wait for their turn, sometimes longer than
//! the guards allow: such epochs are incomplete, and their losses are not reported.

pub mod fabric;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::config::ShiftingMode;
use calumma_controller::report::{DecodeState, EpochReport};
use calumma_sketch::KeyKind;
use serde::Serialize;

use crate::balance;
use crate::calumma::{Controller, Device, EPOCH, LOOPBACK, Measured, Place, Reports, Switch, Wire};
use crate::carrier::Carrier;
use crate::fabric::{Namespace, Process, Run, wait_until};

const CONTROLLER_PORT: u16 = 7610;
const START_LIMIT: Duration = Duration::from_secs(20);

/// An end to a run that stands still; slow machines carry a fraction of a million packets a second.
const SLOWEST_PPS: u64 = 100_000;

/// What became of the packets.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Soak {
    /// Epochs reported, from the first to the last that saw a packet.
    pub epochs: usize,
    /// Epochs of those that are not complete.
    pub incomplete: usize,
    /// Packets that e1 received.
    pub received: u64,
    /// Packets that e1 recorded.
    pub recorded: u64,
    /// Packets that the reports say entered at e1, over all epochs.
    pub reported_in: u64,
    /// Packets that e1's heavy-hitter encoders hold, flow by flow, over all epochs.
    pub decoded_in: u64,
    /// Packets that e1 sent on.
    pub transmitted: u64,
    /// Packets that e1 dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that e2 received.
    pub received_by_e2: u64,
    /// Packets that the reports say left at e2, over all epochs.
    pub reported_out: u64,
    /// Packets that e2 received too late to tell their epoch.
    pub late: u64,
    /// Packets that the reports on complete epochs say were lost.
    pub reported_lost: u64,
    /// Packets that they say are missing and may not be lost: late ones of a flow leave its losses
    /// around them in doubt.
    pub in_doubt: u64,
    /// Packets that entered at e1 and left at e2 in epochs which one lcore has recorded and
    /// another has not finished: no report has them.
    pub discarded: [u64; 2],
    /// Packets that entered in complete epochs, less those that left in them.
    pub vanished: u64,
}

impl Soak {
    /// What does not add up, one line each; empty where everything does.
    pub fn complaints(&self) -> Vec<String> {
        let dropped: u64 = self.dropped.values().sum();
        let equal = [
            ("received by e1", self.received, "sent on and dropped", self.transmitted + dropped),
            ("received by e1", self.received, "recorded", self.recorded),
            (
                "recorded by e1",
                self.recorded,
                "entered by the reports or were given up",
                self.reported_in + self.discarded[0],
            ),
            ("entered by the reports", self.reported_in, "decoded", self.decoded_in),
            ("sent on by e1", self.transmitted, "received by e2", self.received_by_e2),
            (
                "received by e2",
                self.received_by_e2,
                "left, were late or given up",
                self.reported_out + self.late + self.discarded[1],
            ),
        ];
        let mut complaints = balance::complaints(&equal, self.incomplete, self.epochs);
        // Without late packets nothing is in doubt, and all that vanished is lost.
        let in_doubt = if self.late > 0 { self.in_doubt + self.late } else { 0 };
        let lost = self.reported_lost..=self.reported_lost + in_doubt;
        if !lost.contains(&self.vanished) {
            complaints.push(format!(
                "{} packets vanished in complete epochs, but {lost:?} are lost by the reports",
                self.vanished
            ));
        }
        complaints
    }
}

/// Sends at least `packets` 64-byte packets of 256 flows; each edge takes them with `lcores`
/// lcores. `testbed` is the calumma-testbed program, beside which those of the edge and the
/// controller lie.
pub fn run(packets: u64, lcores: usize, testbed: &Path) -> Result<Soak> {
    let run = Run::begin()?;
    let epochs = run.directory().join("epochs.jsonl");
    // Nothing goes over its links; what runs in it is found when this run is killed.
    let switches = Namespace::create(&run, "switches")?;
    let controller = (LOOPBACK, CONTROLLER_PORT);
    let place =
        Place { run: &run, namespace: &switches, testbed, controller, pki: None, first: false };
    // Packets are counted in decoded flows too, so the HH encoder must hold all.
    let measured = Measured {
        system: NAME,
        keys: KeyKind::Ipv4,
        heavy_hitter: 0,
        shifting: ShiftingMode::Static,
    };
    let mut controller = Controller::start(place, &["e1", "e2"], &epochs, &measured)?;
    let socket = |name: &str| run.directory().join(name).display().to_string();
    let (host, fabric) = (socket("host.sock"), socket("fabric.sock"));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let places = |first: usize| {
        let place = |lcore: usize| format!("{lcore}@{}", (first + lcore) % cpus);
        (0..lcores).map(place).collect::<Vec<_>>().join(",")
    };

    // The side that listens on a socket must be there first.
    let e1 = Wire {
        name: "e1",
        role: "edge",
        lcores: &places(0),
        ports: &Device::pair("net_memif0", "net_memif1"),
        devices: &[
            format!("--vdev=net_memif0,role=server,id=0,socket-abstract=no,socket={host}"),
            format!("--vdev=net_memif1,role=server,id=1,socket-abstract=no,socket={fabric}"),
        ],
        more: Carrier::Tos.section(),
        idle_sleep_us: 20,
        idle_polls: None,
    };
    let e2 = Wire {
        name: "e2",
        role: "edge",
        lcores: &places(1),
        ports: &Device::pair("net_null0", "net_memif0"),
        devices: &[
            "--vdev=net_null0,no-rx=1".to_owned(),
            format!("--vdev=net_memif0,role=client,id=1,socket-abstract=no,socket={fabric}"),
        ],
        more: Carrier::Tos.section(),
        idle_sleep_us: 20,
        idle_polls: None,
    };
    let mut first = Switch::start(place, &e1)?;
    wait_until("e1 to listen", START_LIMIT, || {
        first.check_running()?;
        Ok(Path::new(&host).exists() && Path::new(&fabric).exists())
    })?;
    let mut second = Switch::start(place, &e2)?;
    let reports = Reports::of_chamelemon(&epochs);
    reports.wait_until(
        "a first complete epoch",
        START_LIMIT,
        |report| report.complete,
        || {
            controller.check_running()?;
            first.check_running()?;
            second.check_running()
        },
    )?;

    let mut generator = generator(&run, &switches, &host, 1 % cpus, lcores)?;
    let limit = START_LIMIT + Duration::from_secs(packets / SLOWEST_PPS);
    let mut entered = 0;
    reports.wait_until(
        &format!("{packets} packets"),
        limit,
        |report| {
            entered += edge(report, 0, |edge| edge.packets_in);
            entered >= packets
        },
        || {
            first.check_running()?;
            second.check_running()?;
            generator.check_running()
        },
    )?;
    generator.stop(Duration::from_secs(10))?;
    let after = SystemTime::now() + 4 * EPOCH;
    let after_ns = after.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
    reports.wait_until(
        "the epochs after the last packet",
        START_LIMIT,
        |report| report.start_unix_ns >= after_ns,
        || controller.check_running(),
    )?;

    let (first, second) = (first.stop()?, second.stop()?);
    controller.stop()?;
    account(&reports.finish()?, &first, &second)
}

/// testpmd as the source of packets.
fn generator(
    run: &Run,
    switches: &Namespace,
    socket: &str,
    cpu: usize,
    queues: usize,
) -> Result<Process> {
    let mut command = switches.command("dpdk-testpmd");
    command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"]);
    command.args(["--file-prefix", &format!("{}-generator", run.prefix())]);
    command.args(["--lcores", &format!("0@{cpu},1@{cpu}")]);
    command.arg(format!("--vdev=net_memif0,role=client,id=0,socket-abstract=no,socket={socket}"));
    command.args(["--", "--forward-mode=txonly", "--txonly-multi-flow", "--auto-start"]);
    command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
    // Without a terminal testpmd ends at once, unless it has statistics to print.
    command.args(["--total-num-mbufs=16384", "--stats-period", "3600"]);
    Process::start("generator", command, run.directory())
        .context("starting dpdk-testpmd (Debian and Ubuntu package dpdk-dev)")
}

fn edge(
    report: &EpochReport,
    at: usize,
    packets: impl Fn(&calumma_controller::report::EdgeReport) -> Option<u64>,
) -> u64 {
    report.edges.get(at).and_then(packets).unwrap_or_default()
}

fn account(
    reports: &[EpochReport],
    first: &BTreeMap<String, u64>,
    second: &BTreeMap<String, u64>,
) -> Result<Soak> {
    let total = |totals: &BTreeMap<String, u64>, name: &str| -> Result<u64> {
        totals.get(name).copied().with_context(|| format!("an edge counts no {name}"))
    };
    let busy = |report: &EpochReport| edge(report, 0, |edge| edge.packets_in) > 0;
    let begin = reports.iter().position(busy).unwrap_or_default();
    let end = reports.iter().rposition(busy).map_or(0, |last| last + 1);
    let sum = |of: &dyn Fn(&EpochReport) -> u64| reports.iter().map(of).sum::<u64>();
    let decoded = |report: &EpochReport| {
        let Some(edge) = report.edges.first() else { return 0 };
        match edge.hh_decode {
            DecodeState::Complete => edge.heavy_hitters.iter().map(|hitter| hitter.size).sum(),
            _ => 0,
        }
    };
    Ok(Soak {
        epochs: end - begin,
        incomplete: reports[begin..end].iter().filter(|report| !report.complete).count(),
        received: total(first, "received.host")?,
        recorded: total(first, "ingress.recorded")?,
        reported_in: sum(&|report| edge(report, 0, |edge| edge.packets_in)),
        decoded_in: sum(&decoded),
        transmitted: total(first, "transmitted")?,
        dropped: first
            .iter()
            .filter(|(name, packets)| name.starts_with("dropped.") && **packets > 0)
            .map(|(name, packets)| (name.clone(), *packets))
            .collect(),
        received_by_e2: total(second, "received.fabric")?,
        reported_out: sum(&|report| edge(report, 1, |edge| edge.packets_out)),
        late: total(second, "egress.late")? + total(second, "egress.unrecorded")?,
        reported_lost: sum(&|report| report.loss.iter().map(|loss| loss.lost).sum()),
        in_doubt: sum(&|report| report.rewritten.iter().map(|of| of.packets).sum()),
        discarded: [total(first, "discarded.ingress")?, total(second, "discarded.egress")?],
        vanished: sum(&|report| {
            let entered = edge(report, 0, |edge| edge.packets_in);
            let left = edge(report, 1, |edge| edge.packets_out);
            if report.complete { entered.abs_diff(left) } else { 0 }
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_vanished_is_lost_unless_late_packets_leave_doubt() {
        let of = |late, reported_lost, in_doubt| {
            let soak = Soak { vanished: 10, late, reported_lost, in_doubt, ..Soak::default() };
            let losses = soak.complaints().into_iter().filter(|text| text.contains("vanished"));
            losses.count() == 0
        };
        assert!(of(0, 10, 0) && of(1, 7, 2) && of(1, 10, 3));
        assert!(!of(0, 9, 1) && !of(0, 11, 0) && !of(1, 11, 0) && !of(1, 7, 1));
    }
}
