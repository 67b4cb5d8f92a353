//! Right reports are left alone, and each wrong number is found.

use std::path::Path;
use std::sync::Arc;

use calumma_sketch::WideKey;
use serde_json::{Value, json};

use super::*;
use crate::topology::{LinkQuality, Routes, Segment};
use crate::workload::host_address;

fn key() -> WideKey {
    WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17)
}

fn topology() -> Topology {
    let fabric = "leaf-spine:2x2 s1=software s2=software";
    Topology::load(fabric, Path::new("."), LinkQuality::default()).unwrap()
}

/// Ten packets of a flow from e1 by a spine to e2, of which two are lost before it.
fn simulated() -> (EpochTruth, String) {
    let way = Arc::new(Routes::new(&topology()).way(0, 1, 1).unwrap());
    let spine = topology().names()[way.switch(1)].clone();
    let mut flow = FlowTruth::new(key(), 0);
    (flow.packets, flow.losses) = (10, vec![(way.segment(1), 2)]);
    (flow.lost, flow.way) = (2, Some(way));
    (EpochTruth { flows: vec![flow], ..EpochTruth::default() }, spine)
}

/// The same by the wires, where two are lost behind the spine.
fn from_wires() -> (EpochTruth, String) {
    let (mut truth, spine) = simulated();
    let at = topology().position(&spine).unwrap();
    let came = |packets, entered| Came { packets, bytes: 46 * packets, entered };
    let switches = [(0, came(10, 10)), (at, came(10, 0)), (1, came(8, 0))];
    truth.came = Some(AtSwitches::from([(key(), BTreeMap::from(switches))]));
    truth.flows[0].losses = vec![(Segment::link(at, 1), 2)];
    (truth, spine)
}

/// What is wrong with a report of one exact flow at e2, which `change` changes.
fn wrong((truth, spine): &(EpochTruth, String), change: impl FnOnce(&mut Value)) -> Option<String> {
    let path = json!(["e1", spine, "e2"]);
    let packets = json!({ "packets": 8, "at_least": 8, "at_most": 8 });
    let with = |more: Value| {
        let mut fields = packets.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let hop = |node: &Value| {
        with(json!({ "node": node, "mean_us": 3.0, "mean_min_us": 3.0, "mean_max_us": 3.0,
            "max_us": 4.0, "inflated": 0 }))
    };
    let mut flow = with(json!({ "sink": "e2", "int_packets": 8, "exact": true,
        "paths": [{ "path": path, "partial": false, "packets": 8, "at_least": 8 }],
        "hops": path.as_array().unwrap().iter().map(hop).collect::<Vec<_>>() }));
    let named = serde_json::to_value(Flow::from(&key())).unwrap();
    flow.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
    let coverage = json!({ "packets": 8, "int_packets": 8, "partial": 0, "mtu_exceeded": 0,
        "hops_exceeded": 0, "unmarked": 0 });
    let mut sink = json!({ "edge": "e2", "sound": true, "cardinality": 1.0,
        "cardinality_error": 0.0, "entropy": 0.0, "entropy_min": 0.0, "entropy_max": 0.0,
        "heavy_hitters": [], "heavy_hitters_complete": true, "heavy_changes": null,
        "size_distribution": [{ "from": 8, "to": 8, "flows": 1.0, "at_least": 1, "at_most": 1 }],
        "flows": 1, "flows_exact": 1, "rows_refused": 0, "rows_evicted": 0, "paths_full": 0,
        "bytes": 1, "paths": [] });
    sink.as_object_mut().unwrap().extend(coverage.as_object().unwrap().clone());
    let node = json!({ "node": spine, "id": 3, "kind": "software", "packets": 8, "latency_us": { "mean": 3.0,
        "min": 3.0, "p50": 3.0, "p90": 3.0, "p99": 3.0, "max": 3.0, "error": 0.02 },
        "queue": null, "inflated": 0, "inflated_at_least": 0, "heavy_hitters": [],
        "heavy_hitters_complete": true, "heavy_changes": null });
    let mut report = json!({ "system": "sketchint", "epoch": 20, "start_unix_ns": 0,
        "length_ms": 1000, "complete": true, "missing_nodes": [], "incomplete_because": [],
        "window": [20, 39], "state": "on", "config": { "insertion": "cu", "rows": 8,
        "unit_ns": 64, "heavy_packets": 20, "heavy_change_packets": 10,
        "inflation_percent": 500, "coverage_wanted": 0.5 }, "coverage": coverage,
        "nodes": [node], "links": [], "flows": [flow], "path_changes": [], "loops": [], "inflated": [],
        "sinks": [sink] });
    change(&mut report);
    let report = SketchInt.listed().read(&report.to_string()).expect("a report of sketchint");
    assert_eq!(SketchInt.reported(&*report).unwrap().counted, Some(1));
    SketchInt.contradicts(&*report, truth, &topology())
}

#[test]
fn every_number_is_held_against_the_packets_that_reached_the_sink() {
    for truth in [simulated(), from_wires()] {
        assert_eq!(wrong(&truth, |_| {}), None);
        let changed = |at: &str, value: Value| {
            wrong(&truth, |report| *report.pointer_mut(at).unwrap() = value)
                .unwrap_or_else(|| panic!("{at} is not looked at"))
        };
        assert!(changed("/flows/0/packets", json!(9)).contains("8 packets of"));
        assert!(changed("/flows/0/at_most", json!(7)).contains("8 packets of"));
        assert!(changed("/flows/0/sink", json!("e1")).ends_with("did not come to e1"));
        assert!(changed("/flows/0/hops/1/packets", json!(11)).contains("came by s"));
        assert!(changed("/flows/0/hops/1/at_least", json!(9)).contains("came by s"));
        assert!(changed("/flows/0/paths/0/path/1", json!("e2")).contains("packets of"));
        assert!(changed("/flows/0/paths/0/at_least", json!(11)).contains("11 packets of"));
        assert!(changed("/sinks/0/packets", json!(9)).starts_with("9 packets at e2"));
        assert!(changed("/sinks/0/cardinality", json!(2.0)).ends_with("1 came"));
        assert!(changed("/sinks/0/entropy_min", json!(0.5)).contains("entropy"));
        assert!(changed("/sinks/0/size_distribution/0/at_least", json!(2)).contains("there were"));
        assert!(changed("/nodes/0/packets", json!(11)).starts_with("Some(11) packets"));
        assert!(changed("/nodes/0/kind", json!("tofino")).ends_with("not software"));
        assert!(changed("/nodes/0/kind", Value::Null).ends_with("not software"));
        let bounds = |at_least: u64, at_most: u64| {
            wrong(&truth, |report| {
                let node = &mut report["nodes"][0];
                node["packets"] = Value::Null;
                (node["at_least"], node["at_most"]) = (json!(at_least), json!(at_most));
            })
        };
        assert!(bounds(11, 12).unwrap().starts_with("None packets, 11 to"));
        assert_eq!(bounds(0, 12), None);
        assert!(changed("/config/heavy_packets", json!(7)).contains("is no heavy hitter"));
    }
}

#[test]
fn estimates_are_held_against_what_came() {
    let truth = from_wires();
    let (mut flows, lost) = (truth.0, truth.1);
    flows.flows[0].losses.clear();
    flows.came = Some(AtSwitches::from([(
        key(),
        BTreeMap::from([
            (0, Came { packets: 8, bytes: 368, entered: 8 }),
            (topology().position(&lost).unwrap(), Came { packets: 8, bytes: 368, entered: 0 }),
            (1, Came { packets: 8, bytes: 368, entered: 0 }),
        ]),
    )]));
    flows.flows.clear();
    let truth = (flows, lost);
    let estimated = |number: u64, bounds: [u64; 2], times: usize| {
        wrong(&truth, |report| {
            let flow = &mut report["flows"][0];
            flow["int_packets"] = json!(2);
            let hop = &mut flow["hops"][1];
            (hop["packets"], hop["at_least"]) = (Value::Null, json!(2));
            hop["estimate"] = json!({ "packets": number, "standard_error": 1.0,
                "at_least": bounds[0], "at_most": bounds[1], "confidence": 0.95 });
            let hops = vec![hop.clone(); times];
            flow["hops"] = json!(hops);
        })
    };
    assert_eq!(estimated(6, [3, 8], 5), None);
    assert!(estimated(9, [3, 9], 1).unwrap().contains("Estimated"));
    assert!(estimated(2, [3, 8], 1).unwrap().contains("Estimated"));
    // One beside its bounds is no wonder, five are.
    assert_eq!(estimated(4, [3, 5], 1), None);
    assert!(estimated(4, [3, 5], 5).unwrap().contains("5 of 5 estimates"));
}

#[test]
fn where_nothing_was_lost_every_hop_has_all_packets_and_every_switch_is_named() {
    let mut truth = simulated();
    truth.0.flows[0].packets = 8;
    (truth.0.flows[0].lost, truth.0.flows[0].losses) = (0, Vec::new());
    assert_eq!(wrong(&truth, |_| {}), None);
    let without = wrong(&truth, |report| {
        report["flows"][0]["hops"].as_array_mut().unwrap().remove(1);
    });
    assert!(without.unwrap().ends_with("which is not reported"));
    let less = wrong(&truth, |report| {
        let hop = &mut report["flows"][0]["hops"][1];
        (hop["packets"], hop["at_least"]) = (json!(7), json!(7));
    });
    assert!(less.unwrap().contains("8 of these reached e2"));
    let path = wrong(&truth, |report| report["flows"][0]["paths"] = json!([]));
    assert!(path.unwrap().ends_with("a path is not reported"));
}

#[test]
fn a_copy_names_the_switches_that_its_packet_came_by() {
    let (mut truth, spine) = from_wires();
    let at = topology().position(&spine).unwrap();
    let came = |packets, entered| Came { packets, bytes: 46 * packets, entered };
    let switches = [(0, came(7, 7)), (at, came(7, 0)), (1, came(8, 0))];
    truth.came = Some(AtSwitches::from([(key(), BTreeMap::from(switches))]));
    let flow = &mut truth.flows[0];
    (flow.lost, flow.losses, flow.doubled) = (0, Vec::new(), 1);
    flow.copies = vec![(Segment::link(at, 1), 1)];
    let mut of = (truth, spine);
    assert_eq!(wrong(&of, |_| {}), None);
    of.0.flows[0].copies.clear();
    assert!(wrong(&of, |_| {}).unwrap().contains("came by e1, 7 of these reached e2"));
}
