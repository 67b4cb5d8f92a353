//! Export to IPFIX collectors, over UDP (RFC 7011): victim flows and heavy hitters of epochs, the
//! flows that cooperative flow selection counted in windows, and how long switches had packets of
//! flows by SketchINT (RFC 9951).
//!
//! A victim flow's packets are those that were dropped (`droppedPacketDeltaCount`, and
//! `packetDeltaCount` with `forwardingStatus` *dropped* for collectors that don't know it); a heavy
//! hitter's are those that entered the network at an edge, which `observationPointId` names. Of a
//! window, each flow that was counted exactly has a record of the node whose count is the flow's,
//! and each node one of options that says which flows it selected (RFC 7014). Of a window of
//! SketchINT, each listed flow of which all latencies are known has a record of the time in all
//! switches together, and one of each switch. Only what is certain goes out; what isn't stays in
//! the reports. It collects nothing and does not know TCP.

mod message;

pub use message::{
    DROPPED, Data, Encoder, FLOW_STATE_DEPENDENT, Kind, MAX_MESSAGE, Record, Selection, Template,
};

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use calumma_analysis::{EpochHead, Published, SystemReport};
use calumma_cfs_analysis::{Counted, Exact, Found};
use calumma_sketchint_analysis::report::Found as Sketched;
use serde::Deserialize;

use crate::output::Sink;
use crate::report::EpochReport;

/// `[ipfix]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpfixSection {
    /// The collector.
    pub collector: SocketAddr,
    /// Number of the observation domain: another one for each deployment that a collector serves.
    #[serde(default = "default_domain")]
    pub observation_domain: u32,
    /// Seconds after which templates are sent again: UDP may have lost them.
    #[serde(default = "default_template_seconds")]
    pub template_seconds: u64,
    /// Whether every flow that cooperative flow selection counts exactly is sent as well.
    #[serde(default)]
    pub flows: bool,
    /// Whether latencies that SketchINT knows exactly of listed flows are sent as well.
    #[serde(default)]
    pub delays: bool,
}

/// The longest that the records of a window are spread over: reports of epochs wait meanwhile.
const MOST_SPREAD: Duration = Duration::from_secs(1);

/// The shortest pause between messages that is worth a system call.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

fn default_domain() -> u32 {
    1
}

fn default_template_seconds() -> u64 {
    60
}

/// Sends records to a collector.
#[derive(Debug)]
pub struct Exporter {
    collector: SocketAddr,
    socket: UdpSocket,
    encoder: Encoder,
    nodes: Vec<String>,
    flows: bool,
    delays: bool,
    template_age: Duration,
    templates_sent: Option<Instant>,
}

impl Exporter {
    /// An exporter; `nodes` are the deployment's edges and then its transits, whose places in the
    /// list records name.
    ///
    /// # Errors
    /// When there is no socket to send from.
    pub fn start(section: &IpfixSection, nodes: &[String]) -> anyhow::Result<Self> {
        let collector = section.collector;
        let local: SocketAddr = match collector {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(local)
            .and_then(|socket| socket.connect(collector).map(|()| socket))
            .with_context(|| format!("[ipfix] collector = {collector}: can't send there"))?;
        Ok(Self {
            collector,
            socket,
            encoder: Encoder::new(section.observation_domain),
            nodes: nodes.to_owned(),
            flows: section.flows,
            delays: section.delays,
            template_age: Duration::from_secs(section.template_seconds),
            templates_sent: None,
        })
    }

    /// Sends what the report of an epoch has for it; `time` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// When the kernel refused some of it, or the collector's host answered that its port is
    /// closed.
    pub fn export(&mut self, report: &EpochReport, time: u32, now: Instant) -> anyhow::Result<()> {
        let records = records_of(report, |name| self.place(name));
        let sent = self.send_templates(time, now);
        let sent = sent.and(self.send_all(time, &records, Duration::ZERO));
        sent.with_context(|| format!("collector {}", self.collector))
    }

    /// Sends what the report of a window of cooperative flow selection has for it, where the
    /// configuration asks for that. The messages are spread over half of the window, or
    /// a second where that is less: a collector's socket has room for few of them at once.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub fn export_window(
        &mut self,
        report: &SystemReport<Found>,
        time: u32,
        now: Instant,
    ) -> anyhow::Result<()> {
        if !self.flows {
            return Ok(());
        }
        let (selections, records) = window_records(report, |name| self.place(name));
        let spread = spread_of(&report.head);
        let sent = self.send_templates(time, now);
        let sent = sent.and(self.send_all(time, &selections, Duration::ZERO));
        let sent = sent.and(self.send_all(time, &records, spread));
        sent.with_context(|| format!("collector {}", self.collector))
    }

    /// Sends the latencies that the report of a window of SketchINT knows exactly, where the
    /// configuration asks for that, spread as [those of flows](Self::export_window) are.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub fn export_delays(
        &mut self,
        report: &SystemReport<Sketched>,
        time: u32,
        now: Instant,
    ) -> anyhow::Result<()> {
        if !self.delays {
            return Ok(());
        }
        let records = delay_records(report, |name| self.place(name));
        let sent = self.send_templates(time, now);
        let sent = sent.and(self.send_all(time, &records, spread_of(&report.head)));
        sent.with_context(|| format!("collector {}", self.collector))
    }

    /// A node's place in the list, from 1; 0 where it is not there.
    fn place(&self, name: &str) -> u64 {
        self.nodes.iter().position(|node| node == name).map_or(0, |at| at as u64 + 1)
    }

    /// Sends templates where it is time to.
    fn send_templates(&mut self, time: u32, now: Instant) -> std::io::Result<()> {
        if self.templates_sent.is_some_and(|at| now - at < self.template_age) {
            return Ok(());
        }
        self.templates_sent = Some(now);
        self.send(&self.encoder.templates(time, self.flows, self.delays))
    }

    /// Sends records, spread evenly. All are tried, whatever happens to one: each message stands
    /// for itself.
    fn send_all<D: Data>(
        &mut self,
        time: u32,
        records: &[D],
        spread: Duration,
    ) -> std::io::Result<()> {
        let begun = Instant::now();
        let (mut sent, mut done) = (Ok(()), 0);
        while let Some(rest) = records.get(done..).filter(|rest| !rest.is_empty()) {
            let due = spread.mul_f64(done as f64 / records.len() as f64);
            let pause = due.saturating_sub(begun.elapsed());
            if pause >= LEAST_PAUSE {
                std::thread::sleep(pause);
            }
            let (message, count) = self.encoder.records(time, rest);
            sent = sent.and(self.send(&message));
            done += count;
        }
        sent
    }

    fn send(&self, message: &[u8]) -> std::io::Result<()> {
        self.socket.send(message).map(drop)
    }
}

/// Over how long the records of a window are spread.
fn spread_of(head: &EpochHead) -> Duration {
    Duration::from_millis(head.length_ms / 2).min(MOST_SPREAD)
}

/// The records of an epoch's report, those of a template together. A record has no word for a
/// bound, so only numbers that are exact go out.
fn records_of(report: &EpochReport, place: impl Fn(&str) -> u64) -> Vec<Record> {
    let start_ms = report.start_unix_ns / 1_000_000;
    let record = |flow, kind| Record { start_ms, end_ms: start_ms + report.length_ms, flow, kind };
    let victims = report.loss.iter().filter(|loss| !loss.partial && !loss.at_least);
    let mut records: Vec<Record> =
        victims.map(|loss| record(loss.flow, Kind::Victim { lost: loss.lost })).collect();
    for edge in &report.edges {
        let place = place(&edge.edge);
        let exact = edge.heavy_hitters.iter().filter(|hitter| hitter.size_min.is_none());
        records.extend(exact.map(|hitter| {
            record(hitter.flow, Kind::HeavyHitter { size: hitter.size, edge: place })
        }));
    }
    records
}

/// What each node selected in a window, and the flows that were counted exactly, those of a
/// template together.
fn window_records(
    report: &SystemReport<Found>,
    place: impl Fn(&str) -> u64,
) -> (Vec<Selection>, Vec<Record>) {
    let (head, found) = (report.head, &report.findings);
    let start_ms = head.start_unix_ns / 1_000_000;
    let end_ms = start_ms + head.length_ms;
    let places: Vec<u64> = found.nodes.iter().map(|node| place(&node.node)).collect();
    let selections = found.nodes.iter().zip(&places).map(|(of, &node)| {
        let Exact { flows, packets, bytes } = of.exact;
        Selection { start_ms, end_ms, node, flows, packets, bytes }
    });
    let exact = found.counted().iter().filter(|it| it.exact);
    let mut records: Vec<Record> = exact
        .map(|it| {
            let Counted { flow, packets, bytes, ttls, .. } = *it;
            let node = places.get(it.at).copied().unwrap_or(0);
            let kind = Kind::Counted { packets, bytes, node, ttls };
            Record { start_ms, end_ms, flow, kind }
        })
        .collect();
    records.sort_by_key(|record| record.template().id());
    (selections.collect(), records)
}

/// How long switches had the packets of the flows that a window's report lists, where that is known
/// of all packets of the flow; those of a template together. A switch that is none of the
/// deployment's has no number for a record to name it by.
fn delay_records(report: &SystemReport<Sketched>, place: impl Fn(&str) -> u64) -> Vec<Record> {
    let start_ms = report.head.start_unix_ns / 1_000_000;
    let end_ms = start_ms + report.head.length_ms;
    let mut records = Vec::new();
    for of in &report.findings.flows {
        let record = |kind| Record { start_ms, end_ms, flow: of.flow, kind };
        records.extend(of.delays().map(|delays| record(Kind::Delay(delays))));
        records.extend(of.hops.iter().filter_map(|hop| {
            let (node, delays) = (place(&hop.node), of.delays_at(hop)?);
            let max_us = delays.max_us?;
            (node > 0).then(|| record(Kind::HopDelay { node, delays, max_us }))
        }));
    }
    records.sort_by_key(|record| record.template().id());
    records
}

impl Sink for Exporter {
    fn name(&self) -> &'static str {
        "ipfix"
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (time, now) = (since.as_secs() as u32, Instant::now());
        if let Some(report) = published.report.as_type() {
            return self.export(report, time, now);
        }
        if let Some(report) = published.report.as_type() {
            return self.export_window(report, time, now);
        }
        match published.report.as_type() {
            Some(report) => self.export_delays(report, time, now),
            None => Ok(()),
        }
    }
}
