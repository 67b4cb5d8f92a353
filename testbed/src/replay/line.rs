//! A capture through a line of switches that run any measurement systems, each report held against
//! what came to the switches.
//!
//! The switches, the frames and the controller are those of a simulated network
//! ([`crate::simulate`]), in the capture's own time. What came to each switch and what was lost is
//! counted here, packet by packet, and reports are judged as those of live fabrics are.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use calumma_analysis::Report;
use calumma_chamelemon_analysis::NAME;
use calumma_edge::forward::header::{decrement_hop_limit, decrement_ttl};
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::{KeyKind, WideKey};
use serde::Serialize;
use serde_json::{Value, json};

use super::{LONGEST_SILENCE, Lose, Setup, Summary};
use crate::carrier::Carrier;
use crate::live::wires::Wires;
use crate::scenario::SystemSummary;
use crate::simulate::{self, Detail, EpochTruth, FlowTruth, Lcores, Simulation};
use crate::system::{self, SYSTEMS};
use crate::table::table;
use crate::topology::{Segment, Topology};

/// Room before a packet for what switches put into it.
const HEADROOM: usize = 256;

/// How long the controller waits for what is missing of an epoch. Nothing ever is.
const GRACE_NS: u64 = 200_000_000;

/// Epochs after the last packet within which every system has reported its window.
const REPORTED_WITHIN: u64 = 2000;

/// Most switches in a line.
pub const MOST_HOPS: u8 = 16;

/// A line of switches, the first and the last of which are edges, and what they run.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it measures by.
    pub setup: Setup,
    /// The systems that run, by name.
    pub systems: Vec<String>,
    /// Sections of the controller's configuration for them.
    pub sections: BTreeMap<String, Value>,
    /// Switches, the two edges among them.
    pub hops: u8,
}

impl Line {
    /// The line of so many switches that run these systems, by a controller's configuration as
    /// [`Setup::load`] takes it. `entries` takes the place of those of `[cfs]`.
    ///
    /// # Errors
    /// What is wrong with the configuration, and where; which system is not known.
    pub fn load(
        (config, epoch_ms): (Option<&Path>, Option<u64>),
        systems: Vec<String>,
        hops: u8,
        entries: Option<u32>,
    ) -> Result<Self> {
        let config = super::file::config(config)?;
        system::check(SYSTEMS, &systems)?;
        let of = |name: &String| Some((name.clone(), config.section(name).clone()));
        let mut sections: BTreeMap<String, Value> = systems.iter().filter_map(of).collect();
        if let Some(entries) = entries {
            let cfs = sections.get_mut("cfs").context("--entries: of cfs, which does not run")?;
            match cfs.as_object_mut() {
                Some(section) => drop(section.insert("entries".to_owned(), entries.into())),
                None => *cfs = json!({ "entries": entries }),
            }
        }
        Ok(Self { setup: Setup::of(&config, epoch_ms)?, systems, sections, hops })
    }

    /// Whether a system runs.
    fn runs(&self, name: &str) -> bool {
        self.systems.iter().any(|system| system == name)
    }

    /// By which keys switches tell flows apart: ChameleMon's layout says so where that runs.
    fn keys(&self) -> KeyKind {
        if self.runs(NAME) { self.setup.layout.keys } else { KeyKind::Dual }
    }

    /// Edges e1 and e2, and transits s1, s2 and so on from the one to the other.
    fn topology(&self) -> Result<Topology> {
        ensure!((2..=MOST_HOPS).contains(&self.hops), "{} switches: 2 to {MOST_HOPS}", self.hops);
        let inner: Vec<String> = (1..self.hops - 1).map(|at| format!("s{at}")).collect();
        let way = ["e1"].into_iter().chain(inner.iter().map(String::as_str)).chain(["e2"]);
        let way: Vec<&str> = way.collect();
        let switch = |name| format!("[[switch]]\nname = {name:?}\nkind = \"software\"\n");
        let link = |of: &[&str]| format!("[[link]]\nbetween = {of:?}\n");
        let switches: String = inner.iter().map(switch).collect();
        let links: String = way.windows(2).map(link).collect();
        let text = format!("edge = [{{ name = \"e1\" }}, {{ name = \"e2\" }}]\n{switches}{links}");
        toml::from_str(&text).context("a line of switches")
    }

    fn simulated(&self) -> simulate::Setup {
        let Setup { layout, hash_key, clock, attention, tasks } = self.setup.clone();
        let systems = simulate::Systems {
            on: self.systems.clone(),
            sections: self.sections.clone(),
            ..simulate::Systems::default()
        };
        simulate::Setup {
            layout,
            hash_key,
            clock,
            attention,
            planner: None,
            tasks,
            losses_only: false,
            grace_ns: GRACE_NS,
            detail: Detail::Packets { spread: 0.0 },
            switches: Vec::new(),
            lcores: Lcores::default(),
            probes: false,
            carrier: Carrier::Tos,
            seed: 1,
            systems,
        }
    }
}

/// A report, and what was found about it.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// When the epoch or the window began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Packets that entered the network in it.
    pub packets: u64,
    /// Flows that they were of.
    pub flows: usize,
    /// Flows of which the report has an exact count; none where it counts no flows.
    pub counted: Option<u64>,
    /// What the report says beside what happened. `epoch` is the capture's.
    #[serde(flatten)]
    pub summary: SystemSummary,
}

/// What became of a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Of all packets.
    #[serde(flatten)]
    pub summary: Summary,
    /// Every report, in the order in which they came.
    pub reports: Vec<Held>,
}

impl Outcome {
    /// What reports say for certain and is not so.
    pub fn contradictions(&self) -> impl Iterator<Item = (u64, &str)> {
        let reports = self.reports.iter().map(|of| &of.summary);
        reports.filter_map(|of| Some((of.epoch, of.contradiction.as_deref()?)))
    }

    /// A row for each report.
    pub fn to_text(&self) -> String {
        let heading =
            ["system", "epoch", "packets", "flows", "exact", "share", "lost", "named", "complete"];
        let row = |of: &Held| {
            let summary = &of.summary;
            let or_nothing = |value: Option<String>| value.unwrap_or_default();
            [
                summary.system.clone(),
                summary.epoch.to_string(),
                of.packets.to_string(),
                of.flows.to_string(),
                or_nothing(of.counted.map(|flows| flows.to_string())),
                or_nothing(summary.coverage.map(|share| format!("{:.1} %", 100.0 * share))),
                summary.lost.to_string(),
                summary.reported_lost.to_string(),
                if summary.complete { "yes" } else { "no" }.to_owned(),
            ]
        };
        table(heading, &self.reports.iter().map(row).collect::<Vec<_>>())
    }
}

/// A capture on its way through a line.
#[derive(Debug)]
pub struct Passage {
    line: Line,
    topology: Topology,
    keys: KeyKind,
    lose: Lose,
    running: Option<Running>,
    summary: Summary,
    reports: Vec<Held>,
}

/// A network, from one long silence to the next.
#[derive(Debug)]
struct Running {
    network: Simulation,
    /// The epoch of the first packet, and the time of the last.
    first_epoch: u64,
    last_ns: u64,
    came: Wires,
    /// Packets that were lost, by epoch.
    lost: BTreeMap<u64, HashMap<WideKey, u32>>,
}

impl Passage {
    /// A capture whose packets are lost as `lose` says, in the middle of the line.
    ///
    /// # Errors
    /// Where there can be no such line.
    pub fn new(line: Line, lose: Lose) -> Result<Self> {
        let (topology, keys) = (line.topology()?, line.keys());
        let summary = Summary::default();
        Ok(Self { line, topology, keys, lose, running: None, summary, reports: Vec::new() })
    }

    /// Sends a packet as [`Replay::packet`](super::Replay::packet) does. Gives the reports that are
    /// there by then, each a line of JSON.
    ///
    /// # Errors
    /// When the line's layout, attention or sections are invalid, or a report can't be written.
    pub fn packet(
        &mut self,
        timestamp_ns: u64,
        wire_len: usize,
        bytes: &[u8],
    ) -> Result<Vec<String>> {
        let clock = self.line.setup.clock;
        let now_ns = match &self.running {
            None => timestamp_ns,
            Some(running) => {
                self.summary.out_of_order += u64::from(timestamp_ns < running.last_ns);
                timestamp_ns.max(running.last_ns)
            }
        };
        let (epoch, mut lines) = (clock.epoch_at(now_ns), Vec::new());
        let is_silent = |of: &Running| epoch > clock.epoch_at(of.last_ns) + LONGEST_SILENCE;
        if self.running.as_ref().is_some_and(is_silent) {
            lines.extend(self.finish()?);
        }
        let mut running = match self.running.take() {
            Some(running) => running,
            None => {
                let (setup, topology) = (self.line.simulated(), self.topology.clone());
                let network = Simulation::measuring_from(now_ns, setup, topology)?;
                let (came, lost) = (Wires::default(), BTreeMap::new());
                Running { network, first_epoch: epoch, last_ns: now_ns, came, lost }
            }
        };
        running.last_ns = now_ns;
        running.network.pass_time(now_ns)?;
        self.summary.packets += 1;
        let mut packet = Frame::with_headroom(HEADROOM, bytes).cut_from(wire_len);
        self.pass(&mut running, &mut packet, epoch);
        lines.extend(self.hold(&mut running, epoch)?);
        self.running = Some(running);
        Ok(lines)
    }

    /// A packet passes the line, as far as it gets.
    fn pass(&mut self, running: &mut Running, packet: &mut Frame, epoch: u64) {
        let Running { network, last_ns, came, lost, .. } = running;
        let flow = flow_of(packet, self.keys);
        self.summary.measured += u64::from(flow.is_some());
        let is_lost = flow.is_some_and(|(_, at)| self.lose.decides(packet.bytes(), at));
        let has_stacks = self.line.runs("sketchint");
        let way = way(self.topology.switches());
        for (hop, &switch) in way.iter().enumerate() {
            if let Some((key, ip_offset)) = flow {
                let is_sink = switch == LAST && has_stacks;
                let seen = (&packet.bytes()[ip_offset..], is_sink);
                came.note(key, seen, epoch, (switch, hop == 0));
            }
            network.receive(switch, packet, *last_ns);
            if is_lost && hop == lossy(&way) {
                self.summary.lost += 1;
                if let Some((key, _)) = flow {
                    *lost.entry(epoch).or_default().entry(key).or_default() += 1;
                }
                return;
            }
            if let Some((_, ip_offset)) = flow {
                route(packet.bytes_mut(), ip_offset);
            }
        }
    }

    /// Lets the last window end, and gives the reports that were still to come.
    ///
    /// # Errors
    /// As [`packet`](Self::packet).
    pub fn finish(&mut self) -> Result<Vec<String>> {
        let Some(mut running) = self.running.take() else { return Ok(Vec::new()) };
        let clock = self.line.setup.clock;
        let last = clock.epoch_at(running.last_ns);
        let wait = REPORTED_WITHIN + GRACE_NS.div_ceil(clock.length_ns());
        let mut lines = Vec::new();
        for epoch in last + 1..=last + wait {
            running.network.pass_time(clock.start_of(epoch))?;
            lines.extend(self.hold(&mut running, last)?);
            if running.network.unreported() > last {
                return Ok(lines);
            }
        }
        ensure!(self.line.systems.is_empty(), "not all systems report epoch {last}");
        Ok(lines)
    }

    /// Holds what has been reported against what happened. Reports on epochs before the first
    /// packet, and behind `last`, are about nothing.
    fn hold(&mut self, running: &mut Running, last: u64) -> Result<Vec<String>> {
        let (of_chamelemon, of_others) = running.network.take_all_reports();
        let mut lines = Vec::new();
        for report in &of_chamelemon {
            if self.judge(running, report, last)? {
                lines.push(serde_json::to_string(report).context("a report as JSON")?);
            }
        }
        for of in of_others {
            if self.judge(running, &*of.report, last)? {
                lines.push(of.json);
            }
        }
        if !of_chamelemon.is_empty() || !lines.is_empty() {
            let unreported = running.network.unreported();
            running.came.forget_before(unreported);
            running.lost = running.lost.split_off(&unreported);
        }
        self.summary.epochs += lines.len() as u64;
        Ok(lines)
    }

    /// Judges a report. Gives whether it is about any packet's time.
    fn judge(&mut self, running: &Running, report: &dyn Report, last: u64) -> Result<bool> {
        let clock = self.line.setup.clock;
        let head = report.head();
        let length = (head.length_ms * 1_000_000 / clock.length_ns()).max(1);
        let epochs = head.epoch..head.epoch + length;
        if epochs.end <= running.first_epoch || epochs.start > last {
            return Ok(false);
        }
        let system = system::find(SYSTEMS, report.system())?;
        let reported = system.reported(report).context("a report of another system")?;
        let truth = self.truth(running, epochs.clone());
        let wrong = system.contradicts(report, &truth, &self.topology);
        let came = truth.came.iter().flat_map(HashMap::values);
        let entered = came.filter_map(|switches| switches.get(&0)).map(|came| came.entered);
        self.reports.push(Held {
            start_unix_ns: head.start_unix_ns,
            packets: entered.sum(),
            flows: truth.senders(),
            counted: reported.counted,
            summary: SystemSummary::new(report.system(), epochs, &reported, &truth, wrong),
        });
        Ok(true)
    }

    /// What happened in these epochs.
    fn truth(&self, running: &Running, epochs: Range<u64>) -> EpochTruth {
        let way = way(self.topology.switches());
        let place = Segment::link(way[lossy(&way)], way[lossy(&way) + 1]);
        let victim = |(key, &lost): (&WideKey, &u32)| {
            let mut flow = FlowTruth::new(*key, 0);
            (flow.packets, flow.lost, flow.losses) = (lost, lost, vec![(place, lost)]);
            flow
        };
        let flows = running.lost.range(epochs.clone()).flat_map(|(_, lost)| lost).map(victim);
        let came = Some(running.came.of(epochs));
        EpochTruth { flows: flows.collect(), came, ..EpochTruth::default() }
    }

    /// What has become of the packets so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// What has become of the capture.
    pub fn into_outcome(self) -> Outcome {
        Outcome { summary: self.summary, reports: self.reports }
    }
}

/// Position of the edge at the end of a line; that at its beginning is 0.
const LAST: usize = 1;

/// The switches in the order in which packets come to them, by position.
fn way(switches: usize) -> Vec<usize> {
    [0].into_iter().chain(2..switches).chain([LAST]).collect()
}

/// Behind which switch of a way packets are lost: in the middle.
fn lossy(way: &[usize]) -> usize {
    (way.len() - 1) / 2
}

/// A packet's flow, and where its IP header begins; none where it is not measured.
fn flow_of(packet: &Frame, keys: KeyKind) -> Option<(WideKey, usize)> {
    match parse(packet.bytes(), packet.wire_len()) {
        Parsed::Flow { key, ip_offset } => Some((WideKey::from(key), ip_offset)),
        Parsed::Flow6 { key, ip_offset } if keys == KeyKind::Dual => {
            Some((WideKey::from_bytes(key), ip_offset))
        }
        Parsed::Flow6 { .. } | Parsed::Unmeasured(_) | Parsed::Malformed(_) => None,
    }
}

/// A switch takes one off the time to live. It leaves the last one, so that all of the capture
/// passes.
fn route(bytes: &mut [u8], ip_offset: usize) {
    match bytes[ip_offset] >> 4 {
        4 if bytes[ip_offset + 8] > 1 => decrement_ttl(bytes, ip_offset),
        6 if bytes[ip_offset + 7] > 1 => decrement_hop_limit(bytes, ip_offset),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{frame, host_address, set_ttl};

    #[test]
    fn a_switch_takes_one_off_the_time_to_live_and_the_checksum_stays_right() {
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 4000, 53, 17);
        for ttl in 2..=255 {
            let mut packet = frame(&key, 60);
            let mut wanted = packet;
            set_ttl(&mut packet, ttl);
            set_ttl(&mut wanted, ttl - 1);
            route(&mut packet, 14);
            assert_eq!(packet[..34], wanted[..34], "{ttl}");
        }
    }

    #[test]
    fn packets_are_lost_on_the_link_in_the_middle_of_a_line() {
        assert_eq!((way(2), lossy(&way(2))), (vec![0, 1], 0));
        assert_eq!((way(5), lossy(&way(5))), (vec![0, 2, 3, 4, 1], 2));
    }
}
