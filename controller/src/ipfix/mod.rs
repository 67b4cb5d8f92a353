//! Export of victim flows and heavy hitters to IPFIX collectors, over UDP (RFC 7011).
//!
//! Two templates: a victim flow's packets are those that were dropped (`droppedPacketDeltaCount`,
//! and `packetDeltaCount` with `forwardingStatus` *dropped* for collectors that don't know it); a
//! heavy hitter's are those that entered the network at an edge, which `observationPointId` names.
//! Only what is certain goes out; what isn't stays in the reports. It collects nothing and knows
//! neither TCP nor options.

mod message;

pub use message::{DROPPED, Encoder, Kind, MAX_MESSAGE, Record, Template};

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use calumma_analysis::Published;
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
}

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
    edges: Vec<String>,
    template_age: Duration,
    templates_sent: Option<Instant>,
}

impl Exporter {
    /// An exporter; `edges` are the deployment's, whose places in the list records name.
    ///
    /// # Errors
    /// When there is no socket to send from.
    pub fn start(section: &IpfixSection, edges: &[String]) -> anyhow::Result<Self> {
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
            edges: edges.to_owned(),
            template_age: Duration::from_secs(section.template_seconds),
            templates_sent: None,
        })
    }

    /// Sends what a report has for it; `time` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// When the kernel refused some of it, or the collector's host answered that its port is
    /// closed.
    pub fn export(&mut self, report: &EpochReport, time: u32, now: Instant) -> anyhow::Result<()> {
        let records = records_of(report, &self.edges);
        let mut sent = Ok(());
        if self.templates_sent.is_none_or(|at| now - at >= self.template_age) {
            sent = sent.and(self.send(&self.encoder.templates(time)));
            self.templates_sent = Some(now);
        }
        let mut rest = &records[..];
        while !rest.is_empty() {
            let (message, count) = self.encoder.records(time, rest);
            // The rest is tried all the same: each message stands for itself.
            sent = sent.and(self.send(&message));
            rest = &rest[count..];
        }
        sent.with_context(|| format!("collector {}", self.collector))
    }

    fn send(&self, message: &[u8]) -> std::io::Result<()> {
        self.socket.send(message).map(drop)
    }
}

/// The records of a report, those of a template together.
fn records_of(report: &EpochReport, edges: &[String]) -> Vec<Record> {
    let start_ms = report.start_unix_ns / 1_000_000;
    let record = |flow, kind| Record { start_ms, end_ms: start_ms + report.length_ms, flow, kind };
    let victims = report.loss.iter().filter(|loss| !loss.partial);
    let mut records: Vec<Record> =
        victims.map(|loss| record(loss.flow, Kind::Victim { lost: loss.lost })).collect();
    for edge in &report.edges {
        let place = edges.iter().position(|name| *name == edge.edge).map_or(0, |at| at as u64 + 1);
        records.extend(edge.heavy_hitters.iter().map(|hitter| {
            record(hitter.flow, Kind::HeavyHitter { size: hitter.size, edge: place })
        }));
    }
    records
}

impl Sink for Exporter {
    fn name(&self) -> &'static str {
        "ipfix"
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        let Some(report) = published.report.as_type() else { return Ok(()) };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.export(report, since.as_secs() as u32, Instant::now())
    }
}
