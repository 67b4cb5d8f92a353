//! A switch's metrics over HTTP for Prometheus: a page put together anew whenever somebody asks,
//! from totals that are counted elsewhere. [`server`] shows it to those who may read it.
//!
//! A total named `family.kind` is the metric `calumma_edge_family_packets_total` with the label
//! `kind`; one without a kind has no label. So what a part of a switch begins to count shows by
//! itself, under the same name at every kind of switch.

mod server;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus::{Counter, Encoder, GaugeVec, IntCounterVec, Opts, Registry, TextEncoder};

pub use self::server::{MetricsConfig, Readers, server};

/// Families of totals that are no numbers of packets.
const OTHERS: [&str; 5] = ["collection", "driver", "epochs", "tables", "undelivered"];

/// Kinds of totals that are times: in a metric of their own, in seconds.
const MICROSECONDS: &str = "microseconds";

/// The answer to one scrape.
#[derive(Debug, Default)]
pub struct Page(Registry);

impl Page {
    /// Totals by name, each family in one metric.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn totals<'a>(
        &self,
        named: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> prometheus::Result<()> {
        let mut families: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
        for (name, total) in named {
            let (family, kind) = name.split_once('.').unwrap_or((name, ""));
            if kind == MICROSECONDS {
                self.seconds(family, total)?;
            } else {
                families.entry(family).or_default().push((kind, total));
            }
        }
        for (family, kinds) in families {
            let unit = if OTHERS.contains(&family) { "total" } else { "packets_total" };
            let name = format!("{family}_{unit}");
            let help = format!("Totals {family}.* of the switch.");
            if let [("", total)] = kinds[..] {
                self.counters(&name, &help, &[], [(vec![], total)])?;
            } else {
                let kinds = kinds.into_iter().map(|(kind, total)| (vec![kind], total));
                self.counters(&name, &help, &["kind"], kinds)?;
            }
        }
        Ok(())
    }

    fn seconds(&self, family: &str, microseconds: u64) -> prometheus::Result<()> {
        let help = format!("Time that {family} took.");
        let seconds = Counter::with_opts(opts(&format!("{family}_seconds_total"), &help))?;
        seconds.inc_by(microseconds as f64 / 1e6);
        self.0.register(Box::new(seconds))
    }

    /// A family of counters, with the values of their labels.
    ///
    /// # Errors
    /// When the name is taken or can't be one, which is a mistake in the program.
    pub fn counters<'a>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        totals: impl IntoIterator<Item = (Vec<&'a str>, u64)>,
    ) -> prometheus::Result<()> {
        let family = IntCounterVec::new(opts(name, help), labels)?;
        for (values, total) in totals {
            family.with_label_values(&values).inc_by(total);
        }
        self.0.register(Box::new(family))
    }

    /// A family of values that go up and down, with those of their labels.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn gauges<'a>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = (Vec<&'a str>, f64)>,
    ) -> prometheus::Result<()> {
        let family = GaugeVec::new(opts(name, help), labels)?;
        for (labels, value) in values {
            family.with_label_values(&labels).set(value);
        }
        self.0.register(Box::new(family))
    }

    /// A value that goes up and down.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn gauge(&self, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
        self.gauges(name, help, &[], [(vec![], value)])
    }

    /// What the devices of ports count: kinds of totals by port.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn ports<'a>(
        &self,
        totals: impl IntoIterator<Item = (&'a str, &'a str, u64)>,
    ) -> prometheus::Result<()> {
        let totals = totals.into_iter().map(|(port, kind, total)| (vec![port, kind], total));
        self.counters("port_total", "What a port's device counts.", &["port", "kind"], totals)
    }

    /// How the conversation with the controller stands.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn controller(&self, connected: bool, held_bytes: u64) -> prometheus::Result<()> {
        let connected = f64::from(u8::from(connected));
        let help = "1 where the controller's connection stands.";
        self.gauge("controller_connected", help, connected)?;
        self.gauge("held_bytes", "Bytes that wait for the controller.", held_bytes as f64)
    }

    /// The newest epoch that was finished.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn last_epoch(&self, epoch: u64) -> prometheus::Result<()> {
        self.gauge("last_epoch", "The newest epoch that was finished.", epoch as f64)
    }

    /// All of it in Prometheus's text format.
    ///
    /// # Errors
    /// When it can't be written as text; it has no reason to.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("calumma_edge_{name}"), help)
}

/// The answer to a scrape.
pub fn answer(page: prometheus::Result<String>) -> Response {
    match page {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_total_becomes_a_metric_with_its_unit() {
        let page = Page::default();
        let totals = [
            ("received.host", 7),
            ("received.fabric", 2),
            ("transmitted", 5),
            ("epochs.stalled", 1),
            ("tables.filled", 3),
            ("tables.microseconds", 1_500_000),
        ];
        page.totals(totals).unwrap();
        page.ports([("140", "rx_packets", 9)]).unwrap();
        page.controller(true, 64).unwrap();
        let text = page.text().unwrap();
        for line in [
            "calumma_edge_received_packets_total{kind=\"host\"} 7",
            "calumma_edge_received_packets_total{kind=\"fabric\"} 2",
            "calumma_edge_transmitted_packets_total 5",
            "calumma_edge_epochs_total{kind=\"stalled\"} 1",
            "calumma_edge_tables_total{kind=\"filled\"} 3",
            "calumma_edge_tables_seconds_total 1.5",
            "calumma_edge_port_total{kind=\"rx_packets\",port=\"140\"} 9",
            "calumma_edge_controller_connected 1",
            "calumma_edge_held_bytes 64",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
