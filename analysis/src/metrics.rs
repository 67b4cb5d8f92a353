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

/// Adds to a total, by the labels' values.
pub type Add<'a> = &'a mut dyn FnMut(&[&str], u64);

/// A total by labels, and what reports of type `R` add to it.
#[derive(Debug)]
pub struct TotalOf<R: 'static> {
    /// Its name behind `calumma_`: of a further system, `<system>_..._total`.
    pub name: &'static str,
    /// What it is a total of.
    pub help: &'static str,
    /// The labels.
    pub labels: &'static [&'static str],
    /// Says what a report adds, each time with the labels' values.
    pub add: fn(&R, Add<'_>),
}

impl<R: Report> TotalOf<R> {
    /// The metrics of a system that has only such totals, registered with `on`.
    ///
    /// # Errors
    /// As [`gauge`].
    pub fn register(on: &Registry, totals: &'static [Self]) -> Result<Box<dyn ReportMetrics>> {
        let counters = totals.iter().map(|of| counters(on, of.name, of.help, of.labels));
        let counters = counters.collect::<Result<Vec<_>>>()?;
        Ok(Box::new(Totals(totals.iter().zip(counters).collect())))
    }
}

#[derive(Debug)]
struct Totals<R: 'static>(Vec<(&'static TotalOf<R>, IntCounterVec)>);

impl<R: Report> ReportMetrics for Totals<R> {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<R>() else { return };
        for (of, total) in &self.0 {
            (of.add)(report, &mut |values, more| total.with_label_values(values).inc_by(more));
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::report::EpochHead;

    #[derive(Clone, Debug)]
    struct Seen(u64);

    #[derive(Clone, Debug)]
    struct Other;

    macro_rules! reports {
        ($($report:ty),+) => {
            $(impl Report for $report {
                fn system(&self) -> &'static str {
                    "sixth"
                }

                fn head(&self) -> EpochHead {
                    EpochHead { epoch: 7, start_unix_ns: 350_000_000, length_ms: 50 }
                }

                fn is_complete(&self) -> bool {
                    true
                }

                fn to_shared(&self) -> Arc<dyn Report> {
                    Arc::new(self.clone())
                }
            })+
        };
    }
    reports!(Seen, Other);

    static TOTALS: [TotalOf<Seen>; 1] = [TotalOf {
        name: "seen_total",
        help: "What was seen.",
        labels: &["node", "side"],
        add: |report, add| {
            add(&["e1", "ingress"], report.0);
            add(&["e1", "egress"], 1);
        },
    }];

    #[test]
    fn a_total_is_the_sum_of_what_its_reports_add() {
        let registry = Registry::new();
        let metrics = TotalOf::register(&registry, &TOTALS).unwrap();
        metrics.record(&Seen(3));
        metrics.record(&Other);
        metrics.record(&Seen(4));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [r#"{node="e1",side="ingress"} 7"#, r#"{node="e1",side="egress"} 2"#] {
            assert!(text.contains(&format!("calumma_seen_total{line}\n")), "{text}");
        }
        assert!(TotalOf::register(&registry, &TOTALS).is_err(), "the name is taken");
    }
}
