//! A switch that feeds itself: packets go round through both roles as fast as its lcores go, and
//! every one of them is accounted for.
//!
//! ```text
//!   net_pcap0 --> [host | edge | fabric] --> net_ring1 --> [fabric | edge | host] --> net_ring0
//!   net_ring0 --> [host | edge ...
//!   net_null0 --> [host | edge]  (nothing but what is dropped)
//! ```
//!
//! These are a circle. All lcores share one, or each has [its own](Circles).
//!
//! What is sent into a `net_ring` comes out of it. A capture with packets of all kinds is let in
//! once, enters the network at the edge, leaves it there, enters it again. No generator takes a
//! CPU, so that many packets pass in little time, with a flip every 50 milliseconds. No packet is
//! lost between ingress and egress, so the controller must never report that one was.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::config::ShiftingMode;
use calumma_controller::report::EpochReport;
use calumma_cpus::Cpus;
use calumma_sketch::{KeyKind, WideKey};
use serde::Serialize;

use crate::balance;
use crate::calumma::{Controller, Device, LOOPBACK, Measured, Place, Reports, Switch, Wire};
use crate::capture::PcapWriter;
use crate::fabric::{Namespace, Run};
use crate::workload::frame;

const CONTROLLER_PORT: u16 = 7611;
const START_LIMIT: Duration = Duration::from_secs(20);

/// No flow is one: what flows there are does not matter here.
const HEAVY_HITTER: u64 = 1_000_000_000;

/// An end to a run that stands still; slow machines carry a fraction of a million packets a second.
const SLOWEST_PPS: u64 = 200_000;

/// Packets that go round on each lcore: more than a burst, and half of what a ring holds.
const ROUND: u16 = 512;

/// Whose ports the packets go round through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circles {
    /// All lcores poll the same ports, each a queue of its own.
    Shared,
    /// Each lcore has ports that no other polls. `net_ring` and `net_null` keep the counters of a
    /// port's queues side by side, so that lcores which share a port wait for each other's
    /// cache lines, as they do not with queues that a driver keeps apart.
    Apart,
}

/// What became of the packets.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Circulated {
    /// Epochs reported in which a packet was recorded.
    pub epochs: usize,
    /// Epochs of those that are not complete.
    pub incomplete: usize,
    /// Packets received from host-facing and from fabric-facing ports.
    pub received: [u64; 2],
    /// Packets sent.
    pub transmitted: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that entered while an epoch was measured, by the edge and by the reports.
    pub entered: [u64; 2],
    /// Packets that left while their epoch was open, by the edge and by the reports.
    pub left: [u64; 2],
    /// Packets that entered and left in epochs which one lcore has recorded and another has not
    /// finished: no report has them.
    pub discarded: [u64; 2],
    /// Packets that entered in complete epochs, less those that left in them.
    pub vanished: u64,
    /// Packets that the reports on complete epochs say were lost.
    pub reported_lost: u64,
    /// Packets that lay in the rings when the switch had stopped.
    pub in_rings: u64,
    /// Mbufs that nobody had given back by then; a `net_ring` does not empty its rings.
    pub mbufs_out: u64,
    /// Millions of packets a second, those dropped included, from the first to the last report.
    pub mpps: f64,
    /// How long bursts took, those at an event of the epochs apart from all others: their number,
    /// and quantiles in nanoseconds.
    pub bursts: BTreeMap<String, u64>,
}

impl Circulated {
    /// What does not add up, one line each; empty where everything does.
    pub fn complaints(&self) -> Vec<String> {
        let received: u64 = self.received.iter().sum();
        let dropped: u64 = self.dropped.values().sum();
        let equal = [
            ("received", received, "sent or dropped", self.transmitted + dropped),
            (
                "entered",
                self.entered[0],
                "entered by the reports or were given up",
                self.entered[1] + self.discarded[0],
            ),
            (
                "left",
                self.left[0],
                "left by the reports or were given up",
                self.left[1] + self.discarded[1],
            ),
            ("vanished", self.vanished, "could have", 0),
            ("lost by the reports", self.reported_lost, "could have been", 0),
            ("not given back", self.mbufs_out, "in the rings", self.in_rings),
        ];
        balance::complaints(&equal, self.incomplete, self.epochs)
    }
}

/// Lets packets go round in `circles` on `lcores` lcores until at least `packets` have been
/// received. `testbed` is the calumma-testbed program, beside which those of the edge and the
/// controller lie.
///
/// # Errors
/// When the user is not root, or a program is missing or ends early.
pub fn run(packets: u64, lcores: usize, circles: Circles, testbed: &Path) -> Result<Circulated> {
    let run = Run::begin()?;
    let epochs = run.directory().join("epochs.jsonl");
    // It has no links; what runs in it is found when this run is killed.
    let switches = Namespace::create(&run, "switches")?;
    let controller = (LOOPBACK, CONTROLLER_PORT);
    let place =
        Place { run: &run, namespace: &switches, testbed, controller, pki: None, first: false };
    let measured = Measured {
        system: NAME,
        keys: KeyKind::Dual,
        heavy_hitter: HEAVY_HITTER,
        shifting: ShiftingMode::Static,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let polled: Vec<usize> = (0..lcores).map(|lcore| lcore % cpus).collect();
    let places: Vec<String> =
        polled.iter().enumerate().map(|(lcore, cpu)| format!("{lcore}@{cpu}")).collect();
    // The lcores have their CPUs for themselves, where there are others for this program and the
    // controller.
    if lcores < cpus {
        Cpus::of_this_thread()?
            .besides(|cpu| polled.contains(&cpu))
            .pin()
            .context("keeping off the lcores' CPUs")?;
    }
    let mut controller = Controller::start(place, &["e1"], &epochs, &measured)?;
    let file = |name: &str| run.directory().join(name).display().to_string();
    let circles: Vec<Circle> = match circles {
        Circles::Shared => vec![Circle::new(0, None)],
        Circles::Apart => (0..lcores).map(|lcore| Circle::new(lcore, Some(lcore))).collect(),
    };
    let mut devices = Vec::new();
    for circle in &circles {
        let Circle { rings, pcap, null, lcore } = circle;
        let mut pcap = format!("--vdev={pcap}");
        for lcore in lcore.map_or(0..lcores, |lcore| lcore..lcore + 1) {
            let name = file(&format!("in{lcore}.pcap"));
            write_capture(Path::new(&name), lcore as u8)?;
            pcap += &format!(",rx_pcap={name},tx_pcap={}", file(&format!("out{lcore}.pcap")));
        }
        devices.extend([rings[0].as_str(), &rings[1], null].map(|name| format!("--vdev={name}")));
        devices.push(pcap);
    }
    let ports: Vec<Device<'_>> = circles.iter().flat_map(Circle::ports).collect();
    let wire = Wire {
        name: "e1",
        role: "edge",
        lcores: &places.join(","),
        ports: &ports,
        devices: &devices,
        // What net_null sends is nothing, and must not get into the rings.
        more: "[policy]\nunmeasured = \"drop\"\n[carrier]\nkind = \"tos\"\n",
        idle_sleep_us: 0,
        idle_polls: None,
    };
    let mut switch = Switch::start(place, &wire)?;
    let reports = Reports::of_chamelemon(&epochs);
    let limit = START_LIMIT + Duration::from_secs(packets / SLOWEST_PPS);
    let mut passed = 0;
    reports.wait_until(
        &format!("{packets} packets"),
        limit,
        |report| {
            passed += report.edges.first().map_or(0, |edge| {
                edge.packets_in.unwrap_or_default() + edge.packets_out.unwrap_or_default()
            });
            passed >= packets
        },
        || {
            controller.check_running()?;
            switch.check_running()
        },
    )?;
    let totals = switch.stop()?;
    // The switch has handed its last epoch over; the controller reports it, and what it waited for.
    std::thread::sleep(Duration::from_millis(500));
    controller.stop()?;
    account(&reports.finish()?, &totals)
}

/// The ports that packets go round through.
struct Circle {
    rings: [String; 2],
    pcap: String,
    null: String,
    /// The lcore that alone polls them, if there is one.
    lcore: Option<usize>,
}

impl Circle {
    fn new(number: usize, lcore: Option<usize>) -> Self {
        Self {
            rings: [0, 1].map(|side| format!("net_ring{}", 2 * number + side)),
            pcap: format!("net_pcap{number}"),
            null: format!("net_null{number}"),
            lcore,
        }
    }

    fn ports(&self) -> [Device<'_>; 4] {
        let Self { rings: [first, second], pcap, null, lcore } = self;
        let device = |name, role, peer| Device {
            name,
            role,
            peer: Some(peer),
            lcore: *lcore,
            host_sink: false,
        };
        [
            device(first, "host", second),
            device(second, "fabric", first),
            device(pcap, "host", second),
            device(null, "host", second),
        ]
    }
}

fn account(reports: &[EpochReport], totals: &BTreeMap<String, u64>) -> Result<Circulated> {
    let total = |name: &str| -> Result<u64> {
        totals.get(name).copied().with_context(|| format!("the edge counts no {name}"))
    };
    let of_rings = |counter: &str| -> u64 {
        let of_ring = |name: &str| name.starts_with("port.net_ring") && name.ends_with(counter);
        totals.iter().filter(|(name, _)| of_ring(name)).map(|(_, packets)| packets).sum()
    };
    let packets = |report: &EpochReport| {
        let edge = report.edges.first();
        let side = |packets: Option<Option<u64>>| packets.flatten().unwrap_or_default();
        [side(edge.map(|edge| edge.packets_in)), side(edge.map(|edge| edge.packets_out))]
    };
    let busy: Vec<&EpochReport> =
        reports.iter().filter(|report| packets(report) != [0, 0]).collect();
    let sum = |of: &dyn Fn(&EpochReport) -> u64| busy.iter().map(|report| of(report)).sum::<u64>();
    let received = [total("received.host")?, total("received.fabric")?];
    let nanos = match (busy.first(), busy.last()) {
        (Some(first), Some(last)) => last.start_unix_ns - first.start_unix_ns,
        _ => 0,
    };
    Ok(Circulated {
        epochs: busy.len(),
        incomplete: busy.iter().filter(|report| !report.complete).count(),
        received,
        transmitted: total("transmitted")?,
        dropped: totals
            .iter()
            .filter(|(name, packets)| name.starts_with("dropped.") && **packets > 0)
            .map(|(name, packets)| (name.clone(), *packets))
            .collect(),
        entered: [total("ingress.recorded")?, sum(&|report| packets(report)[0])],
        left: [total("egress.recorded")?, sum(&|report| packets(report)[1])],
        discarded: [total("discarded.ingress")?, total("discarded.egress")?],
        vanished: sum(&|report| {
            let [entered, left] = packets(report);
            if report.complete { entered.abs_diff(left) } else { 0 }
        }),
        reported_lost: sum(&|report| report.loss.iter().map(|loss| loss.lost).sum()),
        in_rings: of_rings(".tx_packets") - of_rings(".rx_packets"),
        mbufs_out: total("mbufs.lost")?,
        mpps: (received[0] + received[1]) as f64 * 1e3 / nanos.max(1) as f64,
        bursts: totals
            .iter()
            .filter(|(name, _)| name.starts_with("burst"))
            .map(|(name, ns)| (name.clone(), *ns))
            .collect(),
    })
}

/// Writes [`ROUND`] packets of mixed lengths and kinds.
fn write_capture(path: &Path, lcore: u8) -> Result<()> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut capture = PcapWriter::new(BufWriter::new(file))?;
    for number in 0..ROUND {
        let bytes = packet(number, lcore);
        capture.write(0, bytes.len() as u32, &bytes)?;
    }
    capture.finish()?;
    Ok(())
}

/// A packet of a flow of its own: IPv4 and IPv6 with TCP, UDP, SCTP or ICMP, of four lengths; one
/// in six of them behind VLAN tags, a fragment, with IPv6 extension headers or malformed; and some
/// that are no IP at all.
fn packet(number: u16, lcore: u8) -> Vec<u8> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ICMP: [u8; 2] = [1, 58];
    const SCTP: u8 = 132;
    let ipv6 = number % 2 == 1;
    let protocol = [TCP, UDP, UDP, SCTP, TCP, ICMP[usize::from(ipv6)]][usize::from(number / 2 % 6)];
    let [high, low] = number.to_be_bytes();
    let key = if ipv6 {
        let source = Ipv6Addr::new(0xFD00, lcore.into(), 0, 0, 0, 0, 0, number);
        let to = Ipv6Addr::new(0xFD00, 200, 0, 0, 0, 0, 0, 1);
        WideKey::v6(source, to, 1024 + number, 80, protocol)
    } else {
        WideKey::v4(
            [10, lcore, high, low].into(),
            [10, 200, 0, 1].into(),
            1024 + number,
            80,
            protocol,
        )
    };
    let length = [60, 128, 590, 1500][usize::from(number / 12 % 4)];
    let mut bytes = frame(&key, length).to_vec();
    bytes.resize(usize::from(length).max(bytes.len()), 0);
    let mut extend = |header: u8, contents: [u8; 7]| {
        bytes.splice(54..54, [&[bytes[20]][..], &contents].concat());
        bytes[20] = header;
        let payload_len = (bytes.len() - 54) as u16;
        bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
    };
    match number % 48 {
        2 | 3 => drop(bytes.splice(12..12, [0x88, 0xA8, 0, 5, 0x81, 0, 0, 7])),
        10 | 11 => drop(bytes.splice(12..12, [0x81, 0, 0, 9])),
        // Fragments that are not the first; the header's checksum does not matter to anybody here.
        20 => bytes[21] = 16,
        21 => extend(44, [0, 0, 8, 0, 0, 0, 7]),
        // Options to look at on every hop, and at the destination.
        29 => {
            extend(60, [0, 1, 4, 0, 0, 0, 0]);
            extend(0, [0, 1, 4, 0, 0, 0, 0]);
        }
        // An IP header shorter than any, and a payload longer than the packet.
        36 => bytes[14] = 0x44,
        37 => bytes[18] = 0xFF,
        46 => bytes[12..14].copy_from_slice(&[8, 6]),
        _ => {}
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use calumma_edge::parse::{Parsed, parse};

    #[test]
    fn a_round_has_packets_of_all_kinds_and_lengths() {
        let (mut kinds, mut lengths) = (BTreeMap::new(), BTreeMap::new());
        for bytes in (0..ROUND).map(|number| packet(number, 0)) {
            let tagged = bytes[12] == 0x81 || bytes[12] == 0x88;
            let (kind, protocol, ports) = match parse(&bytes, bytes.len()) {
                Parsed::Flow { key, .. } => ("ipv4", key.protocol(), key.sport() > 0),
                Parsed::Flow6 { key, .. } => ("ipv6", key[36], key[32] > 0),
                Parsed::Malformed(kind) => (kind.name(), 0, false),
                Parsed::Unmeasured(kind) => (kind.name(), 0, false),
            };
            *kinds.entry((kind, protocol, ports, tagged)).or_insert(0) += 1;
            *lengths.entry(bytes.len()).or_insert(0) += 1;
        }
        for family in ["ipv4", "ipv6"] {
            for protocol in [6, 17, 132] {
                assert!(kinds[&(family, protocol, true, false)] > 30, "{kinds:?}");
            }
            assert!(kinds.keys().any(|kind| kind.0 == family && kind.3), "{kinds:?}");
        }
        // Fragments that are not the first have no ports, and ICMP has none.
        for portless in [("ipv4", 1), ("ipv6", 58)] {
            assert!(kinds[&(portless.0, portless.1, false, false)] > 20, "{kinds:?}");
        }
        let fragments = kinds
            .iter()
            .filter(|((_, protocol, ports, _), _)| matches!(protocol, 6 | 17 | 132) && !ports);
        assert_eq!(fragments.map(|(_, packets)| packets).sum::<i32>(), 22);
        for broken in ["ipv4_header_length", "ipv6_payload_length", "not_ip"] {
            assert!(kinds[&(broken, 0, false, false)] >= 10, "{kinds:?}");
        }
        for length in [60, 128, 590, 1500] {
            assert!(lengths[&length] > 40, "{lengths:?}");
        }
    }
}
