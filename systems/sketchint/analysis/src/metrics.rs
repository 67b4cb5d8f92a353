//! Metrics for Prometheus, by switch and sink, never by flow.

use std::sync::atomic::{AtomicU64, Ordering};

use calumma_analysis::metrics::{ReportMetrics, counters, gauge, gauges, seen};
use calumma_analysis::{Report, SystemReport};
use prometheus::{Gauge, GaugeVec, IntCounterVec, Registry};

use crate::alert::wanted;
use crate::report::Found;

#[derive(Debug)]
struct Metrics {
    coverage: Gauge,
    not_carried: IntCounterVec,
    mtu_exceeded: IntCounterVec,
    hops_exceeded: IntCounterVec,
    link_packets: IntCounterVec,
    link_mean: GaugeVec,
    link_error: GaugeVec,
    path_changes: Gauge,
    /// The first epoch after the last window, where that was complete; else 0.
    next: AtomicU64,
    loops: Gauge,
    mean: GaugeVec,
    p99: GaugeVec,
    inflated: IntCounterVec,
    packets: IntCounterVec,
    int_packets: IntCounterVec,
    wanted: IntCounterVec,
    flows: GaugeVec,
    rows_refused: IntCounterVec,
}

/// Metrics, registered with `on`.
///
/// # Errors
/// When two have the same name, which is a mistake in the program.
pub fn new(on: &Registry) -> prometheus::Result<Box<dyn ReportMetrics>> {
    let (node, sink, link) = (&["node"][..], &["sink"][..], &["from", "to"][..]);
    let metrics = Metrics {
        coverage: gauge(
            on,
            "sketchint_coverage",
            "Share of the packets for hosts that came with INT; NaN: there were none.",
        )?,
        not_carried: counters(
            on,
            "sketchint_not_carried_total",
            "Packets that sources sent on without INT.",
            &["reason"],
        )?,
        mtu_exceeded: counters(
            on,
            "sketchint_mtu_exceeded_total",
            "Packets at a sink into which a switch did not push since they would have been too \
             long.",
            sink,
        )?,
        hops_exceeded: counters(
            on,
            "sketchint_hops_exceeded_total",
            "Packets at a sink into which a switch did not push since it may have no more hops.",
            sink,
        )?,
        link_packets: counters(
            on,
            "sketchint_link_packets_total",
            "Packets with a whole path that came by a link.",
            link,
        )?,
        link_mean: gauges(
            on,
            "sketchint_link_latency_mean_seconds",
            "Mean time that packets were on a link in the latest window; NaN: unknown.",
            link,
        )?,
        link_error: gauges(
            on,
            "sketchint_link_latency_error_seconds",
            "By how much that may be wrong, for clocks and stamps; NaN: unknown.",
            link,
        )?,
        path_changes: gauge(
            on,
            "sketchint_path_changes",
            "Flows that changed their path; NaN: none were seen, and not all is known.",
        )?,
        next: AtomicU64::new(0),
        loops: gauge(
            on,
            "sketchint_loops",
            "Paths that come by a switch twice; NaN: none were seen, and not all is known.",
        )?,
        mean: gauges(
            on,
            "sketchint_latency_mean_seconds",
            "Mean latency of a switch in the latest window, to sinks that tell switches apart; \
             NaN: unknown.",
            node,
        )?,
        p99: gauges(
            on,
            "sketchint_latency_p99_seconds",
            "What 99 of 100 latencies of a switch don't exceed, within 1.6 %, to sinks that tell \
             switches apart; NaN: unknown.",
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
        wanted: counters(
            on,
            "sketchint_wanted_packets_total",
            "Packets that were to come with INT, in complete windows while it was on, and whether \
             they did.",
            &["int"],
        )?,
        flows: gauges(on, "sketchint_flows", "Flows of a sink; NaN: unknown.", sink)?,
        rows_refused: counters(
            on,
            "sketchint_rows_refused_total",
            "Packets that found no row at a sink.",
            sink,
        )?,
    };
    metrics.forget();
    Ok(Box::new(metrics))
}

impl Metrics {
    fn forget_nodes(&self) {
        for gauges in [&self.link_mean, &self.link_error, &self.mean, &self.p99, &self.flows] {
            gauges.reset();
        }
    }
}

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<SystemReport<Found>>() else { return };
        // Whoever this report does not name has no number of an earlier one.
        self.forget_nodes();
        let found = &report.findings;
        let (with_int, all) = (found.coverage.sinks.int_packets, found.coverage.sinks.packets);
        self.coverage.set(with_int as f64 / all as f64);
        // Paths change against the window before.
        let [first, last] = found.window;
        let next = if report.complete { last.saturating_add(1) } else { 0 };
        let is_compared = self.next.swap(next, Ordering::Relaxed) == first && first > 0;
        let known = report.complete && is_compared;
        self.path_changes.set(seen(found.path_changes.len(), known));
        self.loops.set(seen(found.loops.len(), report.complete));
        if report.complete && found.state == "on" {
            let all = wanted(found);
            let missing = all.saturating_sub(with_int);
            for (int, packets) in [("yes", all - missing), ("no", missing)] {
                self.wanted.with_label_values(&[int]).inc_by(packets);
            }
        }
        for (reason, &packets) in found.coverage.not_carried.iter().flatten() {
            self.not_carried.with_label_values(&[&**reason]).inc_by(packets);
        }
        let seconds = |us: Option<f64>| us.map_or(f64::NAN, |us| us / 1e6);
        for link in &found.links {
            let labels = &[&*link.from, &*link.to];
            self.link_packets.with_label_values(labels).inc_by(link.at_least);
            let mean_us = link.latency_us.map(|latency| latency.mean);
            let errors = link.clock_error_us.zip(link.arrival_error_us);
            let error_us = errors.map(|(clock, arrival)| clock + arrival);
            self.link_mean.with_label_values(labels).set(seconds(mean_us));
            self.link_error.with_label_values(labels).set(seconds(error_us));
        }
        for node in &found.nodes {
            let labels = &[&*node.node];
            self.mean.with_label_values(labels).set(seconds(node.latency_us.mean));
            self.p99.with_label_values(labels).set(seconds(node.latency_us.p99));
            self.inflated.with_label_values(labels).inc_by(node.inflated_at_least);
        }
        for sink in &found.sinks {
            let labels = &[&*sink.edge];
            self.packets.with_label_values(labels).inc_by(sink.coverage.packets);
            self.int_packets.with_label_values(labels).inc_by(sink.coverage.int_packets);
            self.mtu_exceeded.with_label_values(labels).inc_by(sink.coverage.mtu_exceeded);
            self.hops_exceeded.with_label_values(labels).inc_by(sink.coverage.hops_exceeded);
            self.flows.with_label_values(labels).set(sink.cardinality.unwrap_or(f64::NAN));
            self.rows_refused.with_label_values(labels).inc_by(sink.rows_refused);
        }
    }

    fn forget(&self) {
        self.forget_nodes();
        for gauge in [&self.coverage, &self.path_changes, &self.loops] {
            gauge.set(f64::NAN);
        }
    }
}
