//! Metrics for Prometheus, by switch and sink, never by flow.

use calumma_analysis::metrics::{ReportMetrics, counters, gauge, gauges};
use calumma_analysis::{Report, SystemReport};
use prometheus::{Gauge, GaugeVec, IntCounterVec, Registry};

use crate::report::Found;

#[derive(Debug)]
struct Metrics {
    coverage: Gauge,
    path_changes: Gauge,
    loops: Gauge,
    mean: GaugeVec,
    p99: GaugeVec,
    inflated: IntCounterVec,
    packets: IntCounterVec,
    int_packets: IntCounterVec,
    flows: GaugeVec,
    rows_refused: IntCounterVec,
}

/// Metrics, registered with `on`.
///
/// # Errors
/// When two have the same name, which is a mistake in the program.
pub fn new(on: &Registry) -> prometheus::Result<Box<dyn ReportMetrics>> {
    let (node, sink) = (&["node"][..], &["sink"][..]);
    Ok(Box::new(Metrics {
        coverage: gauge(
            on,
            "sketchint_coverage",
            "Share of the packets for hosts that came with INT; NaN: there were none.",
        )?,
        path_changes: gauge(on, "sketchint_path_changes", "Flows that changed their path.")?,
        loops: gauge(on, "sketchint_loops", "Paths that come by a switch twice.")?,
        mean: gauges(
            on,
            "sketchint_latency_mean_us",
            "Mean latency of a switch in the latest window; NaN: unknown.",
            node,
        )?,
        p99: gauges(
            on,
            "sketchint_latency_p99_us",
            "What 99 of 100 latencies of a switch don't exceed, within 1.6 %; NaN: unknown.",
            node,
        )?,
        inflated: counters(
            on,
            "sketchint_inflated_total",
            "Inflated latencies at a switch that were counted.",
            node,
        )?,
        packets: counters(on, "sketchint_packets_total", "Packets for a sink's hosts.", sink)?,
        int_packets: counters(on, "sketchint_int_packets_total", "Those with INT.", sink)?,
        flows: gauges(on, "sketchint_flows", "Flows of a sink; NaN: unknown.", sink)?,
        rows_refused: counters(
            on,
            "sketchint_rows_refused_total",
            "Packets that found no row at a sink.",
            sink,
        )?,
    }))
}

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<SystemReport<Found>>() else { return };
        let found = &report.findings;
        let (with_int, all) = (found.coverage.int_packets, found.coverage.packets);
        self.coverage.set(with_int as f64 / all as f64);
        self.path_changes.set(found.path_changes.len() as f64);
        self.loops.set(found.loops.len() as f64);
        for node in &found.nodes {
            let labels = &[&*node.node];
            self.mean.with_label_values(labels).set(node.latency_us.mean.unwrap_or(f64::NAN));
            self.p99.with_label_values(labels).set(node.latency_us.p99.unwrap_or(f64::NAN));
            self.inflated.with_label_values(labels).inc_by(node.inflated_at_least);
        }
        for sink in &found.sinks {
            let labels = &[&*sink.edge];
            self.packets.with_label_values(labels).inc_by(sink.coverage.packets);
            self.int_packets.with_label_values(labels).inc_by(sink.coverage.int_packets);
            self.flows.with_label_values(labels).set(sink.cardinality.unwrap_or(f64::NAN));
            self.rows_refused.with_label_values(labels).inc_by(sink.rows_refused);
        }
    }
}
