//! Figures for Prometheus, in its text format.
//!
//! Labels are edges, encoders and fixed words: never flows, whose number has no bound. Totals count
//! from the controller's start. What is not known of the last epoch is NaN, never 0.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{
    Encoder, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use crate::output::{Output, SinkStatus};
use crate::report::{EdgeReport, EpochReport, LossClass, NetworkState};
use crate::server::EdgeStatus;

/// Counters of one switch that are shown. Their names come from the network, so there is a bound.
const COUNTERS_A_SWITCH: usize = 64;

/// Bounds of the histogram of response times in seconds, around the epochs' length.
const RESPONSE_SECONDS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.5, 1.0, 5.0];

/// All metrics of a controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    epochs: IntCounterVec,
    last_epoch: IntGauge,
    last_epoch_start: Gauge,
    ill: IntGauge,
    lost: IntCounterVec,
    victims: Gauge,
    surplus: IntCounter,
    decodes: IntCounterVec,
    load: GaugeVec,
    threshold: IntGaugeVec,
    sample_rate: Gauge,
    buckets: IntGaugeVec,
    plans: IntCounterVec,
    response: HistogramVec,
    edge: EdgeMetrics,
    sink_reports: IntCounterVec,
    sink_failures: IntCounterVec,
    outputs: Vec<Arc<SinkStatus>>,
    /// One scrape at a time: it takes over totals that are counted elsewhere.
    scrape: Mutex<()>,
}

/// Those with a label for the edge.
#[derive(Debug)]
struct EdgeMetrics {
    packets: IntCounterVec,
    missing: IntCounterVec,
    cardinality: GaugeVec,
    entropy: GaugeVec,
    load: GaugeVec,
    decodes: IntCounterVec,
    heavy_hitters: IntGaugeVec,
    heavy_changes: IntGaugeVec,
    connected: IntGaugeVec,
    connections: IntCounterVec,
    frames: IntCounterVec,
    switch: IntCounterVec,
}

impl Metrics {
    /// Metrics that stand at nothing; `edges` are the deployment's, `outputs` those whose state is
    /// shown.
    ///
    /// # Errors
    /// When two have the same name, which is a mistake in this file.
    pub fn new(edges: &[String], outputs: Vec<Arc<SinkStatus>>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let on = &registry;
        let seconds = HistogramOpts::new(
            "calumma_response_seconds",
            "Time from an epoch's end to each step of its report.",
        );
        let metrics = Self {
            epochs: counters(on, "epochs_total", "Epochs reported.", &["complete"])?,
            last_epoch: kept(on, IntGauge::with_opts(opts("last_epoch", "Last epoch reported."))?)?,
            last_epoch_start: gauge(on, "last_epoch_start_seconds", "Its start in Unix time.")?,
            ill: kept(
                on,
                IntGauge::with_opts(opts(
                    "network_ill",
                    "1 where light losses are told apart and sampled, 0 where the network is healthy.",
                ))?,
            )?,
            lost: counters(on, "lost_packets_total", "Packets lost.", &["class"])?,
            victims: gauge(on, "victim_flows", "Flows that lost packets in the last epoch.")?,
            surplus: kept(
                on,
                IntCounter::with_opts(opts(
                    "surplus_packets_total",
                    "Packets that left the network without having entered it.",
                ))?,
            )?,
            decodes: counters(
                on,
                "delta_decodes_total",
                "Decodes of the delta encoders by how they went.",
                &["encoder", "result"],
            )?,
            load: gauges(
                on,
                "delta_load_factor",
                "Flows over buckets of a delta encoder.",
                &["encoder"],
            )?,
            threshold: int_gauges(
                on,
                "threshold_packets",
                "Packets from which on a flow is a candidate.",
                &["threshold"],
            )?,
            sample_rate: gauge(on, "sample_rate", "Share of light-loss candidates monitored.")?,
            buckets: int_gauges(
                on,
                "encoder_buckets",
                "Buckets an array of an upstream encoder.",
                &["encoder"],
            )?,
            plans: counters(on, "plans_total", "Plans made from epochs.", &["applied"])?,
            response: kept(
                on,
                HistogramVec::new(seconds.buckets(RESPONSE_SECONDS.to_vec()), &["step"])?,
            )?,
            edge: EdgeMetrics::new(on)?,
            sink_reports: counters(
                on,
                "output_reports_total",
                "Reports that slow outputs took, and those they were too slow for.",
                &["output", "result"],
            )?,
            sink_failures: counters(
                on,
                "output_failures_total",
                "Times that an output failed.",
                &["output"],
            )?,
            outputs,
            scrape: Mutex::new(()),
            registry,
        };
        // Present from the start, so that a rate sees the first one.
        for complete in ["true", "false"] {
            metrics.epochs.with_label_values(&[complete]);
        }
        for class in [LossClass::Heavy, LossClass::Light] {
            metrics.lost.with_label_values(&[class.name()]);
        }
        for edge in edges {
            metrics.edge.missing.with_label_values(&[edge.as_str()]);
        }
        Ok(metrics)
    }

    /// Takes a report into account.
    pub fn record(&self, report: &EpochReport) {
        let truth = |value: bool| if value { "true" } else { "false" };
        self.epochs.with_label_values(&[truth(report.complete)]).inc();
        self.last_epoch.set(i64::try_from(report.epoch).unwrap_or(i64::MAX));
        self.last_epoch_start.set(report.start_unix_ns as f64 / 1e9);
        self.ill.set(i64::from(report.state == NetworkState::Ill));

        for loss in report.loss.iter().filter(|loss| !loss.partial) {
            self.lost.with_label_values(&[loss.class.name()]).inc_by(loss.lost);
        }
        let certain = report.losses_are_certain();
        self.victims.set(if certain { report.loss.len() as f64 } else { f64::NAN });
        let surplus = report.surplus.iter().filter(|surplus| !surplus.partial);
        self.surplus.inc_by(surplus.map(|surplus| surplus.packets).sum());

        let decode = &report.decode;
        for (encoder, state, load) in
            [("hl", decode.hl, decode.hl_load_factor), ("ll", decode.ll, decode.ll_load_factor)]
        {
            self.decodes.with_label_values(&[encoder, state.name()]).inc();
            self.load.with_label_values(&[encoder]).set(load.unwrap_or(f64::NAN));
        }
        let config = &report.config;
        self.threshold.with_label_values(&["t_h"]).set(config.t_h.into());
        self.threshold.with_label_values(&["t_l"]).set(config.t_l.into());
        self.sample_rate.set(config.sample_rate);
        self.buckets.with_label_values(&["hh"]).set(config.hh_buckets.into());
        self.buckets.with_label_values(&["hl"]).set(config.hl_buckets.into());
        self.buckets.with_label_values(&["ll"]).set(config.ll_buckets.into());
        if let Some(plan) = &report.plan {
            self.plans.with_label_values(&[truth(plan.applied)]).inc();
        }
        if let Some(timing) = &report.timing {
            for (step, ms) in [
                ("ingress", timing.ingress_ms),
                ("egress", timing.egress_ms),
                ("planned", timing.planned_ms),
                ("published", timing.published_ms),
            ] {
                self.response.with_label_values(&[step]).observe(ms / 1e3);
            }
        }
        for edge in &report.missing_edges {
            self.edge.missing.with_label_values(&[edge]).inc();
        }
        report.edges.iter().for_each(|edge| self.edge.record(edge));
    }

    /// Everything as text, beside what is known of edges and outputs at this moment.
    ///
    /// # Errors
    /// When it can't be written as text; it has no reason to.
    pub fn render(&self, edges: &[EdgeStatus]) -> prometheus::Result<String> {
        let _alone = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        edges.iter().for_each(|edge| self.edge.watch(edge));
        for sink in &self.outputs {
            set(&self.sink_reports, &[sink.name(), "taken"], sink.taken());
            set(&self.sink_reports, &[sink.name(), "dropped"], sink.dropped());
            set(&self.sink_failures, &[sink.name()], sink.failures());
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|problem| prometheus::Error::Msg(problem.to_string()))
    }
}

impl Output for Arc<Metrics> {
    fn report(&mut self, report: &EpochReport, _json: &str) {
        self.record(report);
    }
}

impl EdgeMetrics {
    fn new(on: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            packets: counters(
                on,
                "edge_packets_total",
                "Packets recorded that entered or left the network at an edge.",
                &["edge", "direction"],
            )?,
            missing: counters(
                on,
                "edge_missing_epochs_total",
                "Epochs of which an edge did not deliver everything in time.",
                &["edge"],
            )?,
            cardinality: gauges(
                on,
                "edge_flows",
                "Flows that entered the network at an edge in the last epoch.",
                &["edge"],
            )?,
            entropy: gauges(
                on,
                "edge_entropy",
                "Entropy of the flow sizes at an edge in the last epoch, in bits.",
                &["edge"],
            )?,
            load: gauges(
                on,
                "edge_hh_load_factor",
                "Flows over buckets of an edge's HH encoder.",
                &["edge"],
            )?,
            decodes: counters(
                on,
                "edge_hh_decodes_total",
                "Decodes of an edge's HH encoder by how they went.",
                &["edge", "result"],
            )?,
            heavy_hitters: int_gauges(
                on,
                "edge_heavy_hitters",
                "Heavy hitters at an edge in the last epoch.",
                &["edge"],
            )?,
            heavy_changes: int_gauges(
                on,
                "edge_heavy_changes",
                "Heavy changes at an edge in the last epoch.",
                &["edge"],
            )?,
            connected: int_gauges(
                on,
                "edge_connected",
                "1 where an edge is connected.",
                &["edge"],
            )?,
            connections: counters(
                on,
                "edge_connections_total",
                "Connections that an edge made.",
                &["edge"],
            )?,
            frames: counters(
                on,
                "edge_frames_total",
                "Frames from an edge by what became of them.",
                &["edge", "result"],
            )?,
            switch: counters(
                on,
                "switch_total",
                "The switch's own totals, as it sent them last.",
                &["edge", "counter"],
            )?,
        })
    }

    fn record(&self, report: &EdgeReport) {
        let edge = report.edge.as_str();
        self.packets.with_label_values(&[edge, "in"]).inc_by(report.packets_in.unwrap_or(0));
        self.packets.with_label_values(&[edge, "out"]).inc_by(report.packets_out.unwrap_or(0));
        let number = |gauges: &GaugeVec, value: Option<f64>| {
            gauges.with_label_values(&[edge]).set(value.unwrap_or(f64::NAN));
        };
        number(&self.cardinality, report.cardinality);
        number(&self.entropy, report.entropy);
        number(&self.load, report.hh_load_factor);
        self.decodes.with_label_values(&[edge, report.hh_decode.name()]).inc();
        let count = |gauges: &IntGaugeVec, count: usize| {
            gauges.with_label_values(&[edge]).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        count(&self.heavy_hitters, report.heavy_hitters.len());
        count(&self.heavy_changes, report.heavy_changes.len());
    }

    fn watch(&self, status: &EdgeStatus) {
        let edge = status.edge.as_str();
        self.connected.with_label_values(&[edge]).set(i64::from(status.connected));
        set(&self.connections, &[edge], status.connections);
        for (result, frames) in [
            ("taken", status.frames),
            ("duplicate", status.duplicate_frames),
            ("late", status.late_frames),
            ("astray", status.astray_frames),
        ] {
            set(&self.frames, &[edge, result], frames);
        }
        for (counter, total) in status.counters.iter().take(COUNTERS_A_SWITCH) {
            set(&self.switch, &[edge, counter], *total);
        }
    }
}

/// Takes over a total that is counted elsewhere.
fn set(counters: &IntCounterVec, labels: &[&str], total: u64) {
    let counter = counters.with_label_values(labels);
    counter.reset();
    counter.inc_by(total);
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("calumma_{name}"), help)
}

fn kept<C: Collector + Clone + 'static>(on: &Registry, metric: C) -> prometheus::Result<C> {
    on.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(on: &Registry, name: &str, help: &str) -> prometheus::Result<Gauge> {
    kept(on, Gauge::with_opts(opts(name, help))?)
}

fn gauges(on: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
    kept(on, GaugeVec::new(opts(name, help), labels)?)
}

fn int_gauges(
    on: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    kept(on, IntGaugeVec::new(opts(name, help), labels)?)
}

fn counters(
    on: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    kept(on, IntCounterVec::new(opts(name, help), labels)?)
}
