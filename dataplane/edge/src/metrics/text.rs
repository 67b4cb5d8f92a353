//! A switch's figures in Prometheus's text format.
//!
//! A counter named `family.kind` is the metric `calumma_edge_family_packets_total` with the label
//! `kind`; one without a kind has no label. What other parts of the switch begin to count thus shows
//! by itself.

use std::collections::BTreeMap;

use prometheus::{Encoder, Gauge, GaugeVec, IntCounterVec, Opts, Registry, TextEncoder};

use crate::status::{Named, Status};

/// The metrics of a switch.
///
/// # Errors
/// When two metrics have the same name, which is a mistake in a counter's name.
pub fn prometheus(status: &Status) -> prometheus::Result<String> {
    let on = Registry::new();
    packets(&on, &status.counters)?;
    let ports = status.ports.iter().flat_map(|(port, totals)| {
        totals.iter().map(|(kind, total)| (vec![port.as_str(), kind.as_str()], *total))
    });
    counters(&on, "port_total", "What a port's device counts.", &["port", "kind"], ports)?;
    lcores(&on, &status.lcores)?;

    let connected = f64::from(u8::from(status.controller.connected));
    gauge(&on, "controller_connected", "1 where the controller's connection stands.", connected)?;
    let held = status.controller.held_bytes as f64;
    gauge(&on, "held_bytes", "Bytes that wait for the controller.", held)?;
    gauge(&on, "tsc_hz", "Cycles of the time stamp counter a second.", status.tsc_hz as f64)?;
    if let Some(last) = status.epochs.back() {
        gauge(&on, "last_epoch", "The newest epoch that was finished.", last.epoch as f64)?;
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&on.gather(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Totals by family and kind.
fn packets(on: &Registry, named: &Named) -> prometheus::Result<()> {
    let mut families: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (name, &total) in named {
        let (family, kind) = name.split_once('.').unwrap_or((name, ""));
        families.entry(family).or_default().push((kind, total));
    }
    for (family, kinds) in families {
        // What is told of the epochs and of frames is no number of packets.
        let name = match family {
            "epochs" | "undelivered" => format!("{family}_total"),
            _ => format!("{family}_packets_total"),
        };
        let help = format!("Totals {family}.* of the switch, all lcores together.");
        if let [("", total)] = kinds[..] {
            counters(on, &name, &help, &[], [(vec![], total)])?;
        } else {
            let kinds = kinds.into_iter().map(|(kind, total)| (vec![kind], total));
            counters(on, &name, &help, &["kind"], kinds)?;
        }
    }
    Ok(())
}

/// Cycles by stage, and how long bursts take.
fn lcores(on: &Registry, lcores: &[Named]) -> prometheus::Result<()> {
    let ids: Vec<String> = (0..lcores.len()).map(|at| at.to_string()).collect();
    let each = |prefix: &'static str| {
        ids.iter().zip(lcores).flat_map(move |(id, named)| {
            let of = named.iter().filter_map(move |(name, &value)| {
                Some((id.as_str(), name.strip_prefix(prefix)?, value))
            });
            of.collect::<Vec<_>>()
        })
    };
    let cycles = each("cycles.").map(|(id, stage, cycles)| (vec![id, stage], cycles));
    counters(on, "cycles_total", "Cycles of an lcore by stage.", &["lcore", "stage"], cycles)?;
    let bursts = opts("burst_seconds", "How long bursts take, quantiles since the start.");
    let bursts = GaugeVec::new(bursts, &["lcore", "at", "quantile"])?;
    for (prefix, at) in
        [("burst.", "other"), ("burst_at_arm_or_take.", "arm_or_take"), ("burst_at_flip.", "flip")]
    {
        for (id, figure, ns) in each(prefix) {
            let quantile = match figure {
                "p50_ns" => "0.5",
                "p99_ns" => "0.99",
                "p999_ns" => "0.999",
                "max_ns" => "1",
                _ => continue,
            };
            bursts.with_label_values(&[id, at, quantile]).set(ns as f64 / 1e9);
        }
    }
    on.register(Box::new(bursts))
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("calumma_edge_{name}"), help)
}

fn counters<'a>(
    on: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    totals: impl IntoIterator<Item = (Vec<&'a str>, u64)>,
) -> prometheus::Result<()> {
    let family = IntCounterVec::new(opts(name, help), labels)?;
    for (values, total) in totals {
        family.with_label_values(&values).inc_by(total);
    }
    on.register(Box::new(family))
}

fn gauge(on: &Registry, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
    let gauge = Gauge::with_opts(opts(name, help))?;
    gauge.set(value);
    on.register(Box::new(gauge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::measure::Moment;
    use crate::profile::{Profile, Stage};

    #[test]
    fn every_counter_becomes_a_metric_with_its_value() {
        let mut counters = Counters { host_received: 7, transmitted: 5, ..Counters::default() };
        counters.malformed[0] = 2;
        let mut profile = Profile::new(1_000_000_000);
        profile.spend(Stage::Work, 300);
        profile.burst(2_000, Moment::Flip);
        let status = Status {
            counters: counters.named().into_iter().collect(),
            lcores: vec![profile.named().into_iter().collect()],
            ports: [("net_null0".to_owned(), Named::from([("rx_packets".to_owned(), 9)]))].into(),
            ..Status::default()
        };
        let text = prometheus(&status).unwrap();
        for line in [
            "calumma_edge_received_packets_total{kind=\"host\"} 7",
            "calumma_edge_transmitted_packets_total 5",
            "calumma_edge_malformed_packets_total{kind=\"ethernet_truncated\"} 2",
            "calumma_edge_port_total{kind=\"rx_packets\",port=\"net_null0\"} 9",
            "calumma_edge_cycles_total{lcore=\"0\",stage=\"work\"} 300",
            "calumma_edge_controller_connected 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let burst = "calumma_edge_burst_seconds{at=\"flip\",lcore=\"0\",quantile=\"0.5\"} ";
        let burst = text.lines().find_map(|line| line.strip_prefix(burst)).unwrap();
        assert!((burst.parse::<f64>().unwrap() - 2e-6).abs() < 1e-7, "{burst}");
    }
}
