//! Metrics of the reports.

use calumma_analysis::metrics::{ReportMetrics, counter, counters, gauge, gauges, seen};
use calumma_analysis::{Report, SystemReport};
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, Registry};

use crate::report::Found;

#[derive(Debug)]
struct Metrics {
    coverage: Gauge,
    optimum: Gauge,
    alpha: Gauge,
    flows: Gauge,
    monitored: Gauge,
    superspreaders: Gauge,
    loops: Gauge,
    black_holes: Gauge,
    lost: IntCounter,
    entries: GaugeVec,
    optimum_with_more: GaugeVec,
    packets: IntCounterVec,
    evictions: IntCounterVec,
    refused: IntCounterVec,
    suspects: GaugeVec,
    guard_missed: IntCounterVec,
}

/// Metrics, registered with `on`.
pub(crate) fn new(on: &Registry) -> prometheus::Result<Box<dyn ReportMetrics>> {
    let node = &["node"][..];
    let metrics = Metrics {
        coverage: gauge(
            on,
            "cfs_coverage",
            "Share of the flows that have an entry; NaN: unknown.",
        )?,
        optimum: gauge(
            on,
            "cfs_optimum",
            "Share of the flows that tables have room for; NaN: unknown.",
        )?,
        alpha: gauge(
            on,
            "cfs_alpha",
            "Share of the memory of table and residual that tables had; NaN: they differ, or the \
             controller does not say it.",
        )?,
        flows: gauge(on, "cfs_flows", "Flows in the latest window; NaN: unknown.")?,
        monitored: gauge(on, "cfs_monitored_flows", "Flows that any node has an entry of.")?,
        superspreaders: gauge(
            on,
            "cfs_superspreaders",
            "Superspreaders that are certain; NaN: none were seen, and not all is known.",
        )?,
        loops: gauge(
            on,
            "cfs_loops",
            "Flows that are certainly in a loop; NaN: none were seen, and not all is known.",
        )?,
        black_holes: gauge(
            on,
            "cfs_black_holes",
            "Places where nothing goes on; NaN: none were seen, and not all is known.",
        )?,
        lost: counter(on, "cfs_lost_packets_total", "Packets lost between two exact counts.")?,
        entries: gauges(on, "cfs_entries", "Flows that a node has an entry of.", node)?,
        optimum_with_more: gauges(
            on,
            "cfs_optimum_with_more",
            "The optimum if a node's table held a tenth more flows; NaN: unknown.",
            node,
        )?,
        packets: counters(on, "cfs_packets_total", "Packets that a node has recorded.", node)?,
        evictions: counters(on, "cfs_evictions_total", "Flows that lost their entry.", node)?,
        refused: counters(on, "cfs_refused_total", "Flows that got no entry.", node)?,
        suspects: gauges(
            on,
            "cfs_suspects",
            "Flows without an entry that may be in loops, in the latest window.",
            node,
        )?,
        guard_missed: counters(
            on,
            "cfs_guard_missed_total",
            "Times that such a flow found no place in the loop guard.",
            node,
        )?,
    };
    metrics.forget();
    Ok(Box::new(metrics))
}

impl Metrics {
    fn forget_nodes(&self) {
        for gauges in [&self.entries, &self.optimum_with_more, &self.suspects] {
            gauges.reset();
        }
    }
}

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<SystemReport<Found>>() else { return };
        // Whoever this report does not name has no number of an earlier one.
        self.forget_nodes();
        let (found, complete) = (&report.findings, report.complete);
        self.coverage.set(found.coverage.unwrap_or(f64::NAN));
        self.optimum.set(found.optimum.unwrap_or(f64::NAN));
        self.alpha.set(found.alpha.unwrap_or(f64::NAN));
        self.flows.set(found.flows_total.unwrap_or(f64::NAN));
        self.monitored.set(found.monitored as f64);
        let certain = found.superspreaders.iter().filter(|it| it.certain).count();
        self.superspreaders.set(seen(certain, complete && found.knows_superspreaders()));
        let certain = found.loops.iter().filter(|it| it.certain).count();
        self.loops.set(seen(certain, complete && found.loops_watched));
        let known = complete && found.black_holes_known;
        self.black_holes.set(seen(found.black_holes.len(), known));
        let lost = found.losses.iter().map(|loss| loss.lost).fold(0, u64::saturating_add);
        self.lost.inc_by(lost);
        for node in &found.nodes {
            let labels = &[&*node.node];
            self.entries.with_label_values(labels).set(node.used as f64);
            let with_more = node.optimum_with_more.unwrap_or(f64::NAN);
            self.optimum_with_more.with_label_values(labels).set(with_more);
            self.packets.with_label_values(labels).inc_by(node.packets);
            self.evictions.with_label_values(labels).inc_by(node.evicted);
            self.refused.with_label_values(labels).inc_by(node.refused);
            if let Some(guard) = node.guard {
                self.suspects.with_label_values(labels).set(guard.suspects as f64);
                self.guard_missed.with_label_values(labels).inc_by(guard.missed);
            }
        }
    }

    fn forget(&self) {
        self.forget_nodes();
        let of_window = [&self.coverage, &self.optimum, &self.alpha, &self.flows, &self.monitored];
        for gauge in of_window.into_iter().chain([&self.superspreaders, &self.loops]) {
            gauge.set(f64::NAN);
        }
        self.black_holes.set(f64::NAN);
    }
}
