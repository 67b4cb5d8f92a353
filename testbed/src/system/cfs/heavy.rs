//! Heavy flows and flows by size: numbers lie between their bounds, and what a list is said to have
//! all of it has. What a heavy change says of the window before is that window's to judge.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

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
            .or_else(|| self.contradicts_prefixes(found))
            .or_else(|| self.contradicts_sizes(found))
    }

    /// Packets and bytes of a flow at each switch that it came to, copies made on the way among
    /// them.
    fn came(&self, flow: &Flow) -> impl Iterator<Item = [u64; 2]> {
        self.counts.get(flow).into_iter().flat_map(|counts| counts.values().copied())
    }

    /// The most packets of a flow that a switch received.
    fn most(&self, flow: &Flow) -> u64 {
        self.came(flow).map(|[packets, _]| packets).max().unwrap_or(0)
    }

    fn contradicts_changes(&self, found: &Found) -> Option<String> {
        found.heavy_changes.iter().find_map(|it| {
            let (there, most) = (self.entered(&it.flow), self.most(&it.flow));
            let is_right = match it.packets_high {
                // Exact counts are of one switch, which may be behind where packets were lost.
                Some(high) if high == it.packets => {
                    self.came(&it.flow).any(|[packets, _]| packets == high)
                        || high == 0 && most == 0
                }
                high => it.packets <= most && high.is_none_or(|high| there <= high),
            };
            (!is_right).then(|| format!("{it:?}, but {there} packets entered"))
        })
    }

    fn contradicts_hitters(&self, found: &Found) -> Option<String> {
        let threshold = found.thresholds.heavy_packets;
        let wrong = found.heavy_hitters.iter().find(|it| {
            let is_right = |[packets, bytes]: [u64; 2]| match it.exact {
                true => (it.packets, it.bytes) == (packets, bytes),
                false => it.packets <= packets && it.bytes <= bytes,
            };
            !self.came(&it.flow).any(is_right)
        });
        if let Some(wrong) = wrong {
            let came: Vec<[u64; 2]> = self.came(&wrong.flow).collect();
            return Some(format!("{wrong:?}, but {came:?} packets and bytes came"));
        }
        let missing = self.counts.keys().find(|flow| {
            let is_listed = || found.heavy_hitters.iter().any(|it| it.flow == **flow);
            self.entered(flow) >= threshold && !is_listed()
        });
        let missing = missing.filter(|_| found.heavy_hitters_complete)?;
        let packets = self.entered(missing);
        Some(format!("{missing} has {packets} packets, and is no heavy hitter"))
    }

    fn contradicts_prefixes(&self, found: &Found) -> Option<String> {
        let threshold = found.thresholds.heavy_packets;
        let listed: Vec<Prefix> =
            found.heavy_prefixes.iter().filter_map(|it| Prefix::parse(&it.prefix)).collect();
        if listed.len() < found.heavy_prefixes.len() {
            return Some(format!("{:?}, which are not all prefixes", found.heavy_prefixes));
        }
        let rest_of = |prefix: &Prefix| {
            let narrower: Vec<&Prefix> =
                listed.iter().filter(|of| of.bits > prefix.bits && of.lies_in(prefix)).collect();
            let flows = self.counts.keys().filter_map(|flow| match flow.src {
                IpAddr::V4(source) if prefix.contains(source) => Some((flow, source)),
                _ => None,
            });
            let (mut all, mut rest) = ([0; 2], [0; 2]);
            for (flow, source) in flows {
                let bounds = [self.entered(flow), self.most(flow)];
                let is_rest = !narrower.iter().any(|of| of.contains(source));
                for (at, packets) in bounds.into_iter().enumerate() {
                    all[at] += packets;
                    rest[at] += if is_rest { packets } else { 0 };
                }
            }
            (all, rest)
        };
        for (it, prefix) in found.heavy_prefixes.iter().zip(&listed) {
            let ([all, all_most], [rest, rest_most]) = rest_of(prefix);
            let is_right = it.packets <= all_most
                && it.rest <= rest_most
                && it.packets_high.is_none_or(|high| all <= high)
                && it.rest_high.is_none_or(|high| rest <= high);
            if !is_right {
                return Some(format!("{it:?}, but {all} packets entered, {rest} of the rest"));
            }
        }
        let mut hosts: HashMap<Ipv4Addr, u64> = HashMap::new();
        for flow in self.counts.keys().filter(|_| found.heavy_prefixes_complete) {
            if let IpAddr::V4(source) = flow.src {
                *hosts.entry(source).or_default() += self.entered(flow);
            }
        }
        let is_listed = |host: Ipv4Addr| listed.contains(&Prefix { address: host, bits: 32 });
        let missing =
            hosts.into_iter().find(|&(host, packets)| packets >= threshold && !is_listed(host));
        let (host, packets) = missing?;
        Some(format!("{packets} packets came from {host}, which is no heavy prefix"))
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

/// A prefix of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    address: Ipv4Addr,
    bits: u32,
}

impl Prefix {
    /// Of a text like `10.1.0.0/16`.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let prefix = Self { address: address.parse().ok()?, bits: bits.parse().ok()? };
        (prefix.bits <= 32).then_some(prefix)
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let differ = address.to_bits() ^ self.address.to_bits();
        differ.checked_shr(32 - self.bits).unwrap_or(0) == 0
    }

    fn lies_in(&self, other: &Self) -> bool {
        self.bits >= other.bits && other.contains(self.address)
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
        for list in ["heavy_changes", "heavy_hitters"] {
            let of_the_flow = more.get_mut(list).and_then(Value::as_array_mut);
            for it in of_the_flow.into_iter().flatten() {
                it.as_object_mut().unwrap().extend(flow.as_object().unwrap().clone());
            }
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
        assert_eq!((change(7, None), change(10, Some(10))), (None, None));
        assert!(change(7, Some(9)).is_some() && change(11, None).is_some());
        assert!(change(8, Some(8)).is_some() && change(0, Some(0)).is_some());
        let hitter = |packets: u64, exact: bool| {
            let bytes = if exact { 460 } else { 400 };
            let it = json!({ "packets": packets, "bytes": bytes, "exact": exact });
            contradiction(json!({ "heavy_hitters": [it], "heavy_hitters_complete": true }))
        };
        assert_eq!((hitter(10, true), hitter(9, false)), (None, None));
        assert!(hitter(9, true).is_some() && hitter(11, false).is_some());
        let prefix = |prefix: &str, packets: u64, rest_high: u64| {
            let it = json!({ "prefix": prefix, "packets": packets, "packets_high": 10, "rest": 0,
                "rest_high": rest_high });
            let host = json!({ "prefix": format!("{}/32", host_address(0, 0)), "packets": 10,
                "packets_high": 10, "rest": 10, "rest_high": 10 });
            contradiction(json!({ "heavy_prefixes": [host, it] }))
        };
        // All is the narrower one's.
        assert_eq!((prefix("0.0.0.0/0", 10, 0), prefix("9.0.0.0/8", 0, 0)), (None, None));
        assert!(prefix("0.0.0.0/0", 11, 0).is_some() && prefix("9.0.0.0/8", 1, 0).is_some());
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
