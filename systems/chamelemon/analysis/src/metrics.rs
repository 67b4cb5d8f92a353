//! Metrics of ChameleMon's reports.
//!
//! Labels are edges, encoders and fixed words: never flows, whose number has no bound. Totals count
//! from the controller's start. What is not known of the last epoch is NaN, never 0, and so is
//! everything of it before there is one and while ChameleMon is off.

use calumma_analysis::Report;
use calumma_analysis::metrics::{
    ReportMetrics, counter, counters, gauge, gauges, histograms, int_gauges,
};
use prometheus::{
    Gauge, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry, Result,
};

use crate::report::{EdgeReport, EpochReport, LossClass, NetworkState};

/// Bounds of the histogram of response times in seconds, around the epochs' length.
const RESPONSE_SECONDS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.5, 1.0, 5.0];

/// All of them.
#[derive(Debug)]
pub(crate) struct Metrics {
    epochs: IntCounterVec,
    last_epoch: Gauge,
    last_epoch_start: Gauge,
    ill: Gauge,
    lost: IntCounterVec,
    taken_back: IntCounter,
    judged: IntCounter,
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
}

/// Those with a label for the edge.
#[derive(Debug)]
struct EdgeMetrics {
    packets: IntCounterVec,
    missing: IntCounterVec,
    cardinality: GaugeVec,
    cardinality_error: GaugeVec,
    entropy: GaugeVec,
    load: GaugeVec,
    decodes: IntCounterVec,
    heavy_hitters: GaugeVec,
    heavy_changes: GaugeVec,
}

impl Metrics {
    /// Metrics that stand at nothing; `edges` are the deployment's.
    pub(crate) fn new(on: &Registry, edges: &[String]) -> Result<Self> {
        let metrics = Self {
            epochs: counters(on, "epochs_total", "Epochs reported.", &["complete"])?,
            last_epoch: gauge(on, "last_epoch", "Last epoch reported.")?,
            last_epoch_start: gauge(on, "last_epoch_start_seconds", "Its start in Unix time.")?,
            ill: gauge(
                on,
                "network_ill",
                "1 where light losses are recorded separately and sampled, 0 where the network is healthy.",
            )?,
            lost: counters(on, "lost_packets_total", "Packets lost.", &["class"])?,
            taken_back: counter(
                on,
                "lost_packets_taken_back_total",
                "Packets counted as lost of which later epochs show that they may not have been.",
            )?,
            judged: counter(
                on,
                "judged_packets_total",
                "Packets that entered in epochs whose losses are counted.",
            )?,
            victims: gauge(on, "victim_flows", "Flows that lost packets in the last epoch.")?,
            surplus: counter(
                on,
                "surplus_packets_total",
                "Packets that left the network without having entered it.",
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
            response: histograms(
                on,
                "response_seconds",
                "Time from an epoch's end to each step of its report.",
                &RESPONSE_SECONDS,
                &["step"],
            )?,
            edge: EdgeMetrics::new(on)?,
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
        metrics.forget();
        Ok(metrics)
    }

    fn record(&self, report: &EpochReport) {
        let truth = |value: bool| if value { "true" } else { "false" };
        self.epochs.with_label_values(&[truth(report.complete)]).inc();
        self.last_epoch.set(report.epoch as f64);
        self.last_epoch_start.set(report.start_unix_ns as f64 / 1e9);
        self.ill.set(f64::from(u8::from(report.state == NetworkState::Ill)));

        for loss in report.loss.iter().filter(|loss| !loss.partial) {
            self.lost.with_label_values(&[loss.class.name()]).inc_by(loss.lost);
        }
        let taken_back = report.amendments.iter().map(|amendment| amendment.was - amendment.lost);
        self.taken_back.inc_by(taken_back.sum());
        if report.losses_are_decoded() || report.loss.iter().any(|loss| !loss.partial) {
            let entered = report.edges.iter().filter_map(|edge| edge.packets_in);
            self.judged.inc_by(entered.fold(0, u64::saturating_add));
        }
        let exact = report.losses_are_exact();
        self.victims.set(if exact { report.loss.len() as f64 } else { f64::NAN });
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
}

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        if let Some(report) = report.as_type() {
            self.record(report);
        }
    }

    fn forget(&self) {
        let Self { last_epoch, last_epoch_start, ill, victims, sample_rate, .. } = self;
        for gauge in [last_epoch, last_epoch_start, ill, victims, sample_rate] {
            gauge.set(f64::NAN);
        }
        self.load.reset();
        self.threshold.reset();
        self.buckets.reset();
        self.edge.forget();
    }
}

impl EdgeMetrics {
    fn new(on: &Registry) -> Result<Self> {
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
                "Flows that entered the network at an edge in the last epoch; NaN where no more than \
                 a lower bound is known.",
                &["edge"],
            )?,
            cardinality_error: gauges(
                on,
                "edge_flows_error",
                "Standard error of that: 0 where it is exact.",
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
            heavy_hitters: gauges(
                on,
                "edge_heavy_hitters",
                "Heavy hitters listed at an edge in the last epoch, where none is missing.",
                &["edge"],
            )?,
            heavy_changes: gauges(
                on,
                "edge_heavy_changes",
                "Heavy changes listed at an edge in the last epoch.",
                &["edge"],
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
        let error = report.cardinality_error;
        number(&self.cardinality, report.cardinality.filter(|_| error.is_some()));
        number(&self.cardinality_error, error);
        number(&self.entropy, report.entropy);
        number(&self.load, report.hh_load_factor);
        self.decodes.with_label_values(&[edge, report.hh_decode.name()]).inc();
        number(&self.heavy_hitters, report.number_of_heavy_hitters().map(|flows| flows as f64));
        number(&self.heavy_changes, report.number_of_heavy_changes().map(|flows| flows as f64));
    }

    fn forget(&self) {
        let Self { cardinality, cardinality_error, entropy, load, .. } = self;
        let gauges = [cardinality, cardinality_error, entropy, load];
        gauges.into_iter().for_each(GaugeVec::reset);
        self.heavy_hitters.reset();
        self.heavy_changes.reset();
    }
}
