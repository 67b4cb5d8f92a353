//! The share of all flows that a report says tables have room for, held against what that is by the
//! ways which all flows took.

use std::collections::BTreeMap;

use calumma_cfs_analysis::{Found, NodeReport};

use crate::topology::optimum::most_counted_with;

/// By how much bounds may be exceeded that hold 95 times out of 100, in parts of what lies between
/// them and the value: what is beyond is three times the error that they allow for.
const BEYOND: f64 = 2.0;

/// What is wrong with it, if so many flows came to the nodes of each way, which are those of the
/// report by their positions.
pub(super) fn contradicts(found: &Found, ways: &BTreeMap<Vec<usize>, u64>) -> Option<String> {
    let entries: Vec<u64> = found.nodes.iter().map(|node| node.entries).collect();
    let (most, with_more) = most_counted_with(|node| entries[node] / 10, ways, &entries);
    let all: u64 = ways.values().sum();
    let share = |flows: u64| if all == 0 { 1.0 } else { flows as f64 / all as f64 };
    // The low bound is a share of as many flows as the coverage's is.
    let few = found.coverage.unwrap_or(1.0) - found.coverage_low.unwrap_or(1.0);
    let wrong = |what: &str, of: [Option<f64>; 3], there: f64| {
        let [value, low, high] = [of[0]?, of[1]?, of[2]?];
        let least = low - BEYOND * few - 1e-9;
        let most = high + BEYOND * (high - value) + 1e-9;
        let is_right = low <= value && value <= high && least <= there && there <= most;
        (!is_right).then(|| {
            format!("tables have room for {value} ({low} to {high}) of all{what}, not {there}")
        })
    };
    let of_node = |(node, most): (&NodeReport, u64)| {
        let low = node.optimum_with_more_low;
        let of = [node.optimum_with_more, low, node.optimum_with_more_high];
        wrong(&format!(", with more at {}", node.node), of, share(most))
    };
    let of_all = [found.optimum, found.optimum_low, found.optimum_high];
    let of_nodes = || found.nodes.iter().zip(with_more).find_map(of_node);
    wrong("", of_all, share(most)).or_else(of_nodes)
}

#[cfg(test)]
mod tests {
    use calumma_analysis::SystemReport;
    use calumma_cfs_analysis::Cfs;
    use serde_json::{Value, json};

    use super::*;
    use crate::system::System as _;

    /// Of two nodes with ten entries each, one that all of 40 flows passed, and one that ten did.
    fn contradiction(optimum: [f64; 3], with_more: [[f64; 3]; 2], error: f64) -> Option<String> {
        let node = |(name, [value, low, high]): (&str, [f64; 3])| {
            json!({ "node": name, "role": "edge", "entries": 10, "used": 10, "packets": 90,
                "counted": 80, "unmarked": 0, "admitted": 10, "evicted": 0, "refused": 9,
                "filtered": 0, "crowded": 0, "claimed_in": 0, "claimed_out": 0,
                "threshold_class": "unclaimed", "threshold": 0.5, "theta": 1.0, "flows": 30.0,
                "flows_error": 9.0, "routes_changed": false, "sound": true, "bytes": 4096,
                "optimum_with_more": value, "optimum_with_more_low": low,
                "optimum_with_more_high": high })
        };
        let nodes: Vec<Value> = ["e1", "e2"].into_iter().zip(with_more).map(node).collect();
        let [value, low, high] = optimum;
        let report = json!({
            "system": "cfs", "epoch": 20, "start_unix_ns": 0, "length_ms": 1000, "complete": true,
            "missing_nodes": [], "incomplete_because": [], "window": 1, "flows_total": 40.0,
            "flows_total_error": 0.0, "monitored": 15, "monitored_exactly": 15, "coverage": 0.375,
            "coverage_low": 0.375 - error, "coverage_high": 0.375 + error, "nodes": nodes,
            "optimum": value, "optimum_low": low, "optimum_high": high,
            "thresholds": { "heavy_packets": 1, "heavy_change_packets": 1, "superspreader": 1,
                "coverage_wanted": 0.9 },
            "flows": [], "heavy_hitters": [], "heavy_changes": [], "superspreaders": [],
            "flooded": [], "size_distribution": null, "entropy": null, "losses": [], "loops": [],
            "path_changes": [],
        });
        let report = Cfs.listed().read(&report.to_string()).expect("a report of cfs");
        let report: &SystemReport<Found> = report.as_type().unwrap();
        contradicts(&report.findings, &BTreeMap::from([(vec![0], 30), (vec![0, 1], 10)]))
    }

    #[test]
    fn what_is_exact_is_the_optimum_and_else_it_is_about_between_the_bounds() {
        let exactly = |value: f64| [value; 3];
        let more = [exactly(0.525), exactly(0.5)];
        assert_eq!(contradiction(exactly(0.5), more, 0.0), None);
        let wrong = contradiction(exactly(0.45), more, 0.0).unwrap();
        assert_eq!(wrong, "tables have room for 0.45 (0.45 to 0.45) of all, not 0.5");
        let wrong = contradiction(exactly(0.5), [exactly(0.525); 2], 0.0).unwrap();
        assert!(wrong.ends_with("of all, with more at e2, not 0.5"), "{wrong}");
        let wide = [[0.49, 0.36, 0.55]; 2];
        assert_eq!(contradiction([0.49, 0.36, 0.51], wide, 0.01), None);
        // Bounds may be missed, but not by far.
        assert_eq!(contradiction([0.47, 0.36, 0.49], wide, 0.01), None);
        assert!(contradiction([0.47, 0.36, 0.479], wide, 0.01).is_some());
        assert_eq!(contradiction([0.55, 0.51, 0.6], wide, 0.01), None);
        assert!(contradiction([0.55, 0.53, 0.6], wide, 0.01).is_some());
        assert!(contradiction([0.6, 0.36, 0.5], wide, 0.01).is_some());
    }
}
