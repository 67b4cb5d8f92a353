//! Metrics for Prometheus, in its text format: of nodes and outputs, and those that the systems add
//! of their reports.
//!
//! Labels are nodes and fixed words: never flows, whose number has no bound. Totals count from the
//! controller's start.

use std::sync::{Arc, Mutex, PoisonError};

use calumma_analysis::metrics::{ReportMetrics, counters, int_gauges};
use calumma_analysis::{Report, System};
use calumma_ports::Guests;
use prometheus::{Encoder, IntCounterVec, IntGaugeVec, Registry, TextEncoder};

use crate::api::{CarrierStatus, HashKeyStatus, NodeStatus};
use crate::config::Config;
use crate::output::{Output, SinkStatus};
use crate::paths::PathStatus;

/// Families of counters that switches are known to have, by the first part of their names. They are
/// always shown; further systems' counters begin with the system's name. `given_up` is what
/// switches of the release before count as `discarded`.
const KNOWN_COUNTERS: [&str; 20] = [
    "collection",
    "discarded",
    "driver",
    "dropped",
    "egress",
    "epochs",
    "given_up",
    "icmp_errors",
    "ingress",
    "malformed",
    "port",
    "probe",
    "received",
    "routed",
    "slow_path",
    "tables",
    "transmitted",
    "tunnel",
    "undelivered",
    "unmeasured",
];

/// What switches of the release before count as totals, and is none: it goes down as well.
pub(crate) const GAUGES: [&str; 2] = ["neighbours", "slow_path.waiting"];

/// Counters of one switch that are shown of known families: more than a software edge with 64 ports
/// has. Names come from the network, so there is a bound.
const MOST_COUNTERS: usize = 2 * calumma_wire::MAX_COUNTERS;

/// Counters of one switch that are shown beside those.
const MOST_OTHER_COUNTERS: usize = 64;

/// All metrics of a controller.
#[derive(Debug)]
pub struct Metrics {
    systems: &'static [&'static dyn System],
    registry: Registry,
    reports: Vec<Box<dyn ReportMetrics>>,
    system_on: IntGaugeVec,
    node: NodeMetrics,
    path_problem: IntGaugeVec,
    sink_reports: IntCounterVec,
    sink_failures: IntCounterVec,
    key_changes: IntCounterVec,
    carrier: IntGaugeVec,
    connections: IntGaugeVec,
    turned_away: IntCounterVec,
    refused_requests: IntCounterVec,
    outputs: Vec<Arc<SinkStatus>>,
    /// One scrape at a time: it takes over totals that are counted elsewhere.
    scrape: Mutex<()>,
}

/// Those with a label for the node.
#[derive(Debug)]
struct NodeMetrics {
    connected: IntGaugeVec,
    connections: IntCounterVec,
    frames: IntCounterVec,
    switch: IntCounterVec,
}

impl Metrics {
    /// Metrics that stand at nothing, of the systems' reports on the nodes of a configuration;
    /// `outputs` are those whose state is shown.
    ///
    /// # Errors
    /// When two have the same name, which is a mistake in the program.
    pub fn new(
        systems: &'static [&'static dyn System],
        config: &Config,
        outputs: Vec<Arc<SinkStatus>>,
    ) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let on = &registry;
        let reports = systems.iter().map(|&system| system.metrics(on, &config.nodes_for(system)));
        Ok(Self {
            systems,
            reports: reports.collect::<Result<_, _>>()?,
            system_on: int_gauges(on, "system_on", "1 where a system is on.", &["system"])?,
            node: NodeMetrics::new(on)?,
            path_problem: int_gauges(
                on,
                "path_problem",
                "1 where probes show that epochs can't be trusted for what a path does.",
                &["from", "to"],
            )?,
            sink_reports: counters(
                on,
                "output_reports_total",
                "Reports that slow outputs accepted, and those they were too slow for.",
                &["output", "result"],
            )?,
            sink_failures: counters(
                on,
                "output_failures_total",
                "Times that an output failed.",
                &["output"],
            )?,
            key_changes: counters(
                on,
                "hash_key_changes_total",
                "Changes of the hash key by what they came of.",
                &["by"],
            )?,
            carrier: int_gauges(
                on,
                "carrier",
                "1 for the carrier by which the connected edges mark packets; who chose it.",
                &["carrier", "by"],
            )?,
            connections: int_gauges(
                on,
                "open_connections",
                "Connections to a port that are bounded: of switches, those that are not known yet.",
                &["port"],
            )?,
            turned_away: counters(
                on,
                "turned_away_connections_total",
                "Connections that had to give way to newer ones, and those that were not let in.",
                &["port", "how"],
            )?,
            refused_requests: counters(
                on,
                "refused_requests_total",
                "Requests to the HTTP API that were not answered in full, by the reason.",
                &["why"],
            )?,
            outputs,
            scrape: Mutex::new(()),
            registry,
        })
    }

    /// Takes a report into account.
    pub fn record(&self, report: &dyn Report) {
        self.reports.iter().for_each(|metrics| metrics.record(report));
    }

    /// Takes over which systems are on: of others, no report is the latest.
    pub fn note_systems(&self, is_on: impl Fn(&dyn System) -> bool) {
        for (&system, metrics) in self.systems.iter().zip(&self.reports) {
            let is_on = is_on(system);
            self.system_on.with_label_values(&[system.name()]).set(i64::from(is_on));
            if !is_on {
                metrics.forget();
            }
        }
    }

    /// Takes over how often the hash key has changed.
    pub fn note_key(&self, status: &HashKeyStatus) {
        for (by, changes) in &status.changes {
            set(&self.key_changes, &[by.name()], *changes);
        }
    }

    /// Takes over by which carrier packets are marked.
    pub fn note_carrier(&self, status: &CarrierStatus) {
        self.carrier.reset();
        if let Some(carrier) = &status.in_force {
            let is_chosen = status.chosen.as_ref().is_some_and(|of| of.carrier == *carrier);
            let by = if is_chosen { "controller" } else { "files" };
            self.carrier.with_label_values(&[carrier, by]).set(1);
        }
    }

    /// Takes over how many connections a port has, and has turned away.
    pub fn note_port(&self, port: &str, guests: &Guests) {
        let present = i64::try_from(guests.present()).unwrap_or(i64::MAX);
        self.connections.with_label_values(&[port]).set(present);
        set(&self.turned_away, &[port, "displaced"], guests.displaced());
        set(&self.turned_away, &[port, "refused"], guests.refused());
    }

    /// Takes over how many requests were not answered in full for a reason.
    pub fn note_requests(&self, why: &str, requests: u64) {
        set(&self.refused_requests, &[why], requests);
    }

    /// Everything as text, beside what is known of nodes, paths and outputs at this moment.
    ///
    /// # Errors
    /// When it can't be written as text; it has no reason to.
    pub fn render(&self, nodes: &[NodeStatus], paths: &[PathStatus]) -> prometheus::Result<String> {
        let _alone = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        // Names of counters come from the network: none is kept that no node has now.
        self.node.switch.reset();
        nodes.iter().for_each(|node| self.node.watch(node, self.systems));
        // Those alone that have a problem: there are as many paths as pairs of edges.
        self.path_problem.reset();
        for path in paths.iter().filter(|path| path.problem.is_some()) {
            self.path_problem.with_label_values(&[&path.from, &path.to]).set(1);
        }
        for sink in &self.outputs {
            set(&self.sink_reports, &[sink.name(), "accepted"], sink.accepted());
            set(&self.sink_reports, &[sink.name(), "dropped"], sink.dropped());
            set(&self.sink_failures, &[sink.name()], sink.failures());
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|problem| prometheus::Error::Msg(problem.to_string()))
    }
}

impl Output for Arc<Metrics> {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        self.record(report);
    }
}

impl NodeMetrics {
    fn new(on: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            connected: int_gauges(
                on,
                "node_connected",
                "1 where a node is connected.",
                &["node", "role"],
            )?,
            connections: counters(
                on,
                "node_connections_total",
                "Connections that a node made.",
                &["node", "role"],
            )?,
            frames: counters(
                on,
                "node_frames_total",
                "Frames from a node by what became of them.",
                &["node", "role", "result"],
            )?,
            switch: counters(
                on,
                "switch_total",
                "The node's own totals, as it sent them last.",
                &["node", "counter"],
            )?,
        })
    }

    fn watch(&self, status: &NodeStatus, systems: &[&dyn System]) {
        let (node, role) = (status.node.as_str(), status.role);
        self.connected.with_label_values(&[node, role]).set(i64::from(status.connected));
        set(&self.connections, &[node, role], status.connections);
        for (result, frames) in [
            ("accepted", status.frames),
            ("duplicate", status.duplicate_frames),
            ("late", status.late_frames),
            ("out_of_window", status.out_of_window_frames),
        ] {
            set(&self.frames, &[node, role, result], frames);
        }
        let counters = status.counters.iter().filter(|(name, _)| !GAUGES.contains(&name.as_str()));
        let (known, other): (Vec<_>, Vec<_>) =
            counters.partition(|(counter, _)| is_known(counter, systems));
        let shown = known.into_iter().take(MOST_COUNTERS);
        for (counter, total) in shown.chain(other.into_iter().take(MOST_OTHER_COUNTERS)) {
            set(&self.switch, &[node, counter], *total);
        }
    }
}

/// Takes over a total that is counted elsewhere.
fn set(counters: &IntCounterVec, labels: &[&str], total: u64) {
    let counter = counters.with_label_values(labels);
    counter.reset();
    counter.inc_by(total);
}

/// Whether a counter is of a family that switches are known to have.
fn is_known(counter: &str, systems: &[&dyn System]) -> bool {
    let family = counter.split('.').next().unwrap_or(counter);
    KNOWN_COUNTERS.contains(&family) || systems.iter().any(|s| s.name() == family)
}

#[cfg(test)]
mod tests {
    use calumma_plane::counters::Counters;

    use super::*;

    /// What a software edge that routes between `ports` ports counts.
    fn counters_of_an_edge(ports: usize) -> Vec<String> {
        let of_lcores = Counters::default().named().into_iter().map(|(name, _)| name);
        let others =
            ["undelivered.frames", "epochs.stalled", "driver.rx_no_mbuf", "slow_path.full"];
        let of_ports =
            (0..ports).flat_map(|port| (0..12).map(move |n| format!("port.{port}.counter_{n}")));
        of_lcores.chain(others.map(str::to_owned)).chain(of_ports).collect()
    }

    #[test]
    fn known_counters_are_never_cut() {
        let config = Config::parse("edges = ['e1']", "c.toml").unwrap();
        let metrics = Metrics::new(calumma_systems::SYSTEMS, &config, Vec::new()).unwrap();
        let known = counters_of_an_edge(64);
        // Names that sort before all others.
        let unknown = (0..1000).map(|n| format!("a{n}"));
        let gauges = GAUGES.map(str::to_owned);
        let counters = known.iter().cloned().chain(unknown).chain(gauges);
        let counters = counters.map(|name| (name, 7)).collect();
        let node = NodeStatus { node: "e1".to_owned(), counters, ..NodeStatus::default() };
        let text = metrics.render(&[node], &[]).unwrap();
        for name in &known {
            let line = format!("calumma_switch_total{{counter=\"{name}\",node=\"e1\"}} 7");
            assert!(text.contains(&line), "{name}");
        }
        let others = text.matches("calumma_switch_total{counter=\"a").count();
        assert_eq!(others, MOST_OTHER_COUNTERS);
        // Of a switch one release older.
        assert!(GAUGES.iter().all(|name| !text.contains(&format!("\"{name}\""))));
    }
}
