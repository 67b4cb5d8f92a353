//! Metrics for Prometheus: short ways to register them, all named `calumma_...`.

use std::fmt::Debug;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    Registry, Result,
};

use crate::report::Report;

/// Metrics that follow a system's reports.
pub trait ReportMetrics: Debug + Send + Sync {
    /// Takes a report into account; other systems' are ignored.
    fn record(&self, report: &dyn Report);

    /// Lets no gauge say anything, since the system is off or has not reported yet. Totals stay.
    fn forget(&self) {}
}

/// How many were seen: NaN where there are none and not all is known.
pub fn seen(many: usize, complete: bool) -> f64 {
    if many == 0 && !complete { f64::NAN } else { many as f64 }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("calumma_{name}"), help)
}

fn registered<C: Collector + Clone + 'static>(on: &Registry, metric: C) -> Result<C> {
    on.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A number that goes up and down.
///
/// # Errors
/// When the name is taken, which is a mistake in the program; likewise of the others.
pub fn gauge(on: &Registry, name: &str, help: &str) -> Result<Gauge> {
    registered(on, Gauge::with_opts(opts(name, help))?)
}

/// Such numbers by `labels`.
///
/// # Errors
/// As [`gauge`].
pub fn gauges(on: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
    registered(on, GaugeVec::new(opts(name, help), labels)?)
}

/// Whole numbers that go up and down, by `labels`.
///
/// # Errors
/// As [`gauge`].
pub fn int_gauges(on: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
    registered(on, IntGaugeVec::new(opts(name, help), labels)?)
}

/// A total.
///
/// # Errors
/// As [`gauge`].
pub fn counter(on: &Registry, name: &str, help: &str) -> Result<IntCounter> {
    registered(on, IntCounter::with_opts(opts(name, help))?)
}

/// Totals by `labels`.
///
/// # Errors
/// As [`gauge`].
pub fn counters(on: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
    registered(on, IntCounterVec::new(opts(name, help), labels)?)
}

/// Histograms over `buckets` by `labels`.
///
/// # Errors
/// As [`gauge`].
pub fn histograms(
    on: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec> {
    let opts = HistogramOpts::new(format!("calumma_{name}"), help).buckets(buckets.to_vec());
    registered(on, HistogramVec::new(opts, labels)?)
}
