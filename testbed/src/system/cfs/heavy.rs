//! Heavy flows and flows by size: numbers lie between their bounds, and what a list is said to have
//! all of it has.

use std::collections::HashMap;
use std::net::IpAddr;

use calumma_analysis::Flow;
use calumma_cfs_analysis::Found;

use super::Passed;

impl Passed<'_> {
    /// Packets of a flow that entered, where none goes round: no others came to that edge.
    fn entered(&self, flow: &Flow) -> u64 {
        let counts = self.entered.get(flow).and_then(|edge| self.counts.get(flow)?.get(edge));
        counts.map_or(0, |[packets, _]| *packets)
    }

    /// Where no flow was disturbed: what is said of heavy flows, and of how large flows are.
    pub(super) fn contradicts_heavy(&self, found: &Found) -> Option<String> {
        if !self.disturbed.is_empty() || !self.round.is_empty() {
            return None;
        }
        self.contradicts_changes(found)
            .or_else(|| self.contradicts_hitters(found))
            .or_else(|| self.contradicts_sizes(found))
    }

    fn contradicts_changes(&self, found: &Found) -> Option<String> {
        found.heavy_changes.iter().find_map(|it| {
            let there = self.entered(&it.flow);
            // Exact counts are of one node, which may be behind where packets were lost.
            let is_exact = it.packets_high == Some(it.packets);
            // Copies were made on the way.
            let counts = self.counts.get(&it.flow).into_iter().flat_map(|counts| counts.values());
            let most = counts.map(|[packets, _]| *packets).max().unwrap_or(0);
            let is_within = it.packets_high.is_none_or(|high| there <= high);
            let is_right = is_exact || is_within && it.packets <= most;
            (!is_right).then(|| format!("{it:?}, but {there} packets entered"))
        })
    }

    fn contradicts_hitters(&self, found: &Found) -> Option<String> {
        let threshold = found.thresholds.heavy_packets;
        let mut sources: HashMap<IpAddr, u64> = HashMap::new();
        for flow in self.counts.keys() {
            let packets = self.entered(flow);
            let is_listed = || found.heavy_hitters.iter().any(|it| it.flow == *flow);
            if found.heavy_hitters_complete && packets >= threshold && !is_listed() {
                return Some(format!("{flow} has {packets} packets, and is no heavy hitter"));
            }
            *sources.entry(flow.src).or_default() += packets;
        }
        for (host, packets) in sources.into_iter().filter(|(host, _)| host.is_ipv4()) {
            let prefix = format!("{host}/32");
            let named = found.heavy_prefixes.iter().find(|it| it.prefix == prefix);
            let is_missing = found.heavy_prefixes_complete && packets >= threshold;
            let high = named.and_then(|it| it.packets_high);
            if is_missing && named.is_none() || high.is_some_and(|high| packets > high) {
                return Some(format!("{named:?}, but {packets} packets of {prefix} entered"));
            }
        }
        None
    }

    /// Where the number of flows is exact, so are bounds of how many have which size.
    fn contradicts_sizes(&self, found: &Found) -> Option<String> {
        let is_exact = found.flows_total_error == Some(0.0);
        found.size_distribution.iter().flatten().find_map(|bin| {
            let of_size = |flow: &&Flow| (bin.from..=bin.to).contains(&self.entered(flow));
            let there = self.counts.keys().filter(of_size).count() as f64;
            let is_right = bin.low <= there && (!is_exact || there <= bin.high);
            (!is_right).then(|| format!("{bin:?}, but there were {there}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use calumma_analysis::SystemReport;
    use calumma_cfs_analysis::Cfs;
    use calumma_sketch::WideKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::simulate::{EpochTruth, FlowTruth};
    use crate::system::System as _;
    use crate::topology::{LinkQuality, Routes, Topology};
    use crate::workload::host_address;

    /// Of a flow of ten packets that entered, what is wrong with a report that says this besides.
    fn contradiction(mut more: Value) -> Option<String> {
        let path = Path::new(".");
        let topology = Topology::load("leaf-spine:2x2", path, LinkQuality::default()).unwrap();
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17);
        let mut flow = FlowTruth::new(key, 0);
        flow.packets = 10;
        flow.way = Some(Arc::new(Routes::new(&topology).way(0, 1, 1).unwrap()));
        let truth = EpochTruth { flows: vec![flow], ..EpochTruth::default() };
        let mut report = json!({
            "system": "cfs", "epoch": 20, "start_unix_ns": 0, "length_ms": 1000, "complete": true,
            "missing_nodes": [], "incomplete_because": [], "window": 1, "flows_total": 1.0,
            "flows_total_error": 1.0, "monitored": 0, "monitored_exactly": 0, "coverage": 1.0,
            "coverage_low": 1.0, "coverage_high": 1.0, "nodes": [], "flows": [],
            "thresholds": { "heavy_packets": 10, "heavy_change_packets": 10, "superspreader": 1,
                "coverage_wanted": 0.9 },
            "heavy_hitters": [], "heavy_changes": [], "superspreaders": [], "flooded": [],
            "size_distribution": null, "entropy": null, "losses": [], "loops": [],
            "path_changes": [],
        });
        let flow = serde_json::to_value(Flow::from(&key)).unwrap();
        let changes = more.get_mut("heavy_changes").and_then(Value::as_array_mut);
        for it in changes.into_iter().flatten() {
            it.as_object_mut().unwrap().extend(flow.as_object().unwrap().clone());
        }
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let report = Cfs.listed().read(&report.to_string()).expect("a report of cfs");
        let found: &SystemReport<Found> = report.as_type().unwrap();
        assert!(found.complete);
        Cfs.contradicts(&*report, &truth, &topology)
    }

    #[test]
    fn bounds_hold_and_what_is_all_is_all() {
        let change = |low: u64, high: Option<u64>| {
            let it = json!({ "before": 0, "before_high": 0, "packets": low, "packets_high": high });
            contradiction(json!({ "heavy_changes": [it] }))
        };
        assert_eq!(change(7, Some(10)), None);
        assert_eq!((change(7, None), change(8, Some(8))), (None, None));
        assert!(change(7, Some(9)).is_some() && change(11, None).is_some());
        let all = contradiction(json!({ "heavy_hitters_complete": true })).unwrap();
        assert!(all.ends_with("has 10 packets, and is no heavy hitter"), "{all}");
        assert!(contradiction(json!({ "heavy_prefixes_complete": true })).is_some());
        let bin = |from: u64, low: f64, high: f64, error: f64| {
            let bin = json!({ "from": from, "to": 2 * from - 1, "flows": low, "low": low,
                "high": high, "error": 1.0 });
            let of = json!({ "size_distribution": [bin], "flows_total_error": error,
                "monitored": if error == 0.0 { 1 } else { 0 } });
            contradiction(of)
        };
        assert_eq!((bin(8, 1.0, 1.0, 0.0), bin(4, 0.0, 0.0, 0.0)), (None, None));
        assert!(bin(4, 1.0, 2.0, 0.0).is_some() && bin(8, 0.0, 0.0, 0.0).is_some());
        assert_eq!(bin(8, 0.0, 0.5, 1.0), None);
    }
}
