//! A switch's figures in Prometheus's text format: those of every kind of switch, and of its
//! lcores.

use calumma_switch_host::metrics::Page;

use crate::status::{Named, Status};

/// The metrics of a switch.
///
/// # Errors
/// When two metrics have the same name, which is a mistake in a counter's name.
pub fn prometheus(status: &Status) -> prometheus::Result<String> {
    let page = Page::default();
    page.totals(status.counters.iter().map(|(name, &total)| (name.as_str(), total)))?;
    page.ports(status.ports.iter().flat_map(|(port, totals)| {
        totals.iter().map(|(kind, &total)| (port.as_str(), kind.as_str(), total))
    }))?;
    lcores(&page, &status.lcores)?;
    page.controller(status.controller.connected, status.controller.held_bytes)?;
    for (name, &value) in &status.gauges {
        let help = format!("{name} at present.");
        page.gauge(&name.replace('.', "_"), &help, value as f64)?;
    }
    page.gauge("tsc_hz", "Cycles of the time stamp counter a second.", status.tsc_hz as f64)?;
    if let Some(last) = status.last_epoch() {
        page.last_epoch(last)?;
    }
    page.text()
}

/// Cycles by stage, and how long bursts take.
fn lcores(page: &Page, lcores: &[Named]) -> prometheus::Result<()> {
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
    page.counters("cycles_total", "Cycles of an lcore by stage.", &["lcore", "stage"], cycles)?;
    let mut bursts = Vec::new();
    for (prefix, at) in [
        ("burst.", "other"),
        ("burst_at_instant.", "instant"),
        ("burst_at_millisecond.", "millisecond"),
        ("burst_at_arm_or_take.", "arm_or_take"),
        ("burst_at_flip.", "flip"),
    ] {
        for (id, figure, ns) in each(prefix) {
            let quantile = match figure {
                "p50_ns" => "0.5",
                "p99_ns" => "0.99",
                "p999_ns" => "0.999",
                "max_ns" => "1",
                _ => continue,
            };
            bursts.push((vec![id, at, quantile], ns as f64 / 1e9));
        }
    }
    let help = "How long bursts take, quantiles since the start.";
    page.gauges("burst_seconds", help, &["lcore", "at", "quantile"], bursts)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::counters::Counters;
    use crate::forward::counters::SlowCounters;
    use crate::measure::Moment;
    use crate::profile::Profile;

    #[test]
    fn every_counter_becomes_a_metric_with_its_value() {
        let slow_path = SlowCounters::default();
        slow_path.neighbours.store(3, Relaxed);
        slow_path.waiting.store(3, Relaxed);
        let mut counters = Counters { host_received: 7, transmitted: 5, ..Counters::default() };
        counters.malformed[0] = 2;
        let mut profile = Profile::new(1_000_000_000);
        profile.burst(2_000, Moment::Flip);
        profile.stages(1_000, 300, 700);
        let status = Status {
            counters: counters.named().into_iter().chain(slow_path.named()).collect(),
            lcores: vec![profile.named().into_iter().collect()],
            gauges: slow_path.gauges().map(|(name, value)| (name.to_owned(), value)).into(),
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
            "# TYPE calumma_edge_neighbours gauge",
            "calumma_edge_neighbours 3",
            "# TYPE calumma_edge_slow_path_waiting gauge",
            "calumma_edge_slow_path_waiting 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        for total in ["calumma_edge_neighbours_packets_total", "kind=\"waiting\""] {
            assert!(!text.contains(total), "{total} in\n{text}");
        }
        let burst = "calumma_edge_burst_seconds{at=\"flip\",lcore=\"0\",quantile=\"0.5\"} ";
        let burst = text.lines().find_map(|line| line.strip_prefix(burst)).unwrap();
        assert!((burst.parse::<f64>().unwrap() - 2e-6).abs() < 1e-7, "{burst}");
    }
}
