//! Metrics, rules and dashboard as Prometheus and Grafana read them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use calumma_analysis::alert::{Reading, Rules};
use calumma_analysis::{Report, System, SystemReport};
use calumma_cfs_analysis::Cfs;
use calumma_controller::api::NodeStatus;
use calumma_controller::config::Config;
use calumma_controller::metrics::Metrics;
use calumma_controller::output::{Background, Output};
use calumma_controller::report::{Amendment, EpochReport, NetworkState, sample};
use calumma_controller::server::start;
use calumma_controller::summary::EpochSummary;
use calumma_sketchint_analysis::Watch;
use calumma_sketchint_analysis::report::Found;
use calumma_systems::SYSTEMS;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::any::{quiet, reports};

fn deployed(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn metrics() -> Metrics {
    let config = Config::parse("edges = ['e1', 'e2']", "c.toml").unwrap();
    Metrics::new(SYSTEMS, &config, Background::default().sinks()).unwrap()
}

/// The metrics of a controller that saw reports of every shape and an edge.
fn rendered() -> String {
    let metrics = metrics();
    let reports = reports(40).new_tree(&mut TestRunner::deterministic()).unwrap().current();
    reports.iter().for_each(|report| metrics.record(report));
    metrics.record(&of_sketchint());
    metrics.record(&*of_cfs());
    metrics.note_systems(|_| true);
    let counters = [("rx_packets".to_owned(), 7)].into();
    let node = NodeStatus { node: "e1".to_owned(), counters, ..NodeStatus::default() };
    metrics.render(&[node], &[]).unwrap()
}

/// A report on a window of SketchINT in which something went wrong.
fn of_sketchint() -> SystemReport<Found> {
    let none: [u8; 0] = [];
    let covered = json!({ "packets": 90, "int_packets": 60, "partial": 9, "mtu_exceeded": 5,
        "hops_exceeded": 4, "unmarked": 0 });
    let mut coverage = covered.clone();
    (coverage["inserted"], coverage["not_carried"]) = (json!(61), json!({ "share": 30 }));
    let mut sink = json!({ "edge": "e2", "sound": true, "cardinality": 3.0, "cardinality_error": 0.0,
        "entropy": 1.0, "entropy_min": 1.0, "entropy_max": 1.0, "heavy_hitters": none,
        "heavy_hitters_complete": true, "heavy_changes": null, "size_distribution": null,
        "flows": 3, "flows_exact": 3, "rows_refused": 0, "rows_evicted": 0, "paths_full": 0,
        "bytes": 4096, "paths": none });
    sink.as_object_mut().unwrap().extend(covered.as_object().unwrap().clone());
    let node = json!({ "node": "s1", "id": 3, "packets": 60, "latency_us": { "mean": 2.0,
        "min": 1.0, "p50": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0, "error": 0.016 },
        "queue": null, "inflated": 1, "inflated_at_least": 1, "heavy_hitters": none,
        "heavy_hitters_complete": true, "heavy_changes": null });
    let link = json!({ "from": "s1", "to": "e2", "packets": 51, "at_least": 51 });
    let config = json!({ "insertion": "cm", "rows": 8, "unit_ns": 64, "heavy_packets": 500,
        "heavy_change_packets": 250, "inflation_percent": 500, "coverage_wanted": 0.5 });
    let report = json!({ "system": "sketchint", "epoch": 20, "start_unix_ns": 0,
        "length_ms": 1000, "complete": true, "missing_nodes": none, "incomplete_because": none,
        "window": [20, 39], "state": "on", "config": config, "coverage": coverage,
        "nodes": [node], "links": [link], "flows": none, "path_changes": none, "loops": none,
        "inflated": none, "sinks": [sink] });
    serde_json::from_value(report).unwrap()
}

/// A report on a window of CFS in which flows went round, and nothing came to an edge.
fn of_cfs() -> Arc<dyn Report> {
    let none: [u8; 0] = [];
    let flow =
        json!({ "src": "10.1.0.2", "dst": "10.2.0.2", "sport": 7, "dport": 53, "proto": 17 });
    let mut looped = json!({ "nodes": ["s1"], "length": 2, "ttls": [63, 61, 59], "packets": null,
        "certain": true });
    looped.as_object_mut().unwrap().extend(flow.as_object().unwrap().clone());
    let hole = json!({ "place": { "from": "s1:in", "to": "e2:in" }, "flows": 3, "packets": 40 });
    let node = json!({ "node": "s1", "role": "transit", "entries": 256, "used": 200,
        "packets": 900, "counted": 800, "unmarked": 0, "admitted": 210, "evicted": 10,
        "refused": 90, "filtered": 0, "crowded": 0, "claimed_in": 0, "claimed_out": 0,
        "threshold_class": "unclaimed", "threshold": 0.5, "theta": 1.0, "flows": 300.0,
        "flows_error": 9.0, "routes_changed": false, "sound": true, "bytes": 4096,
        "guard": { "suspects": 12, "missed": 5 }, "optimum_with_more": 0.82 });
    let thresholds = json!({ "heavy_packets": 1, "heavy_change_packets": 1, "superspreader": 9,
        "coverage_wanted": 0.9 });
    let report = json!({ "system": "cfs", "epoch": 20, "start_unix_ns": 0, "length_ms": 1000,
        "complete": true, "missing_nodes": none, "incomplete_because": none, "window": 1,
        "flows_total": 310.0, "flows_total_error": 9.0, "monitored": 200,
        "monitored_exactly": 190, "coverage": 0.6, "coverage_low": 0.5, "coverage_high": 0.7,
        "optimum": 0.8, "optimum_low": 0.5, "optimum_high": 0.9,
        "thresholds": thresholds, "nodes": [node], "flows": none, "heavy_hitters": none,
        "heavy_prefixes": none, "heavy_changes": none, "superspreaders": none, "flooded": none,
        "size_distribution": null, "entropy": null, "losses": none, "black_holes": [hole],
        "loops": [looped], "path_changes": none });
    Cfs.read(&report.to_string()).expect("a report of cfs")
}

#[test]
fn what_goes_round_and_where_nothing_goes_on_is_counted() {
    let text = rendered();
    let of = |name: &str| value(&text, &format!("calumma_cfs_{name}"));
    assert_eq!([of("loops"), of("black_holes"), of("coverage")], [1.0, 1.0, 0.6]);
    assert_eq!([of("optimum"), of("optimum_with_more{node=\"s1\"}")], [0.8, 0.82]);
    assert_eq!(of("suspects{node=\"s1\"}"), 12.0);
    assert_eq!(of("guard_missed_total{node=\"s1\"}"), 5.0);
}

/// A switch that is down, a window of which not all is known, and a system that is off.
#[test]
fn no_gauge_says_what_was_in_an_earlier_window() {
    let metrics = metrics();
    let text = || metrics.render(&[], &[]).unwrap();
    let [loops, coverage] = ["calumma_cfs_loops", "calumma_cfs_coverage"];
    assert!(value(&text(), loops).is_nan() && value(&text(), coverage).is_nan());
    metrics.record(&of_sketchint());
    metrics.record(&*of_cfs());
    assert!(text().contains("calumma_sketchint_latency_p99_seconds{"));
    assert!(text().contains("calumma_cfs_entries{"));

    let mut of = of_sketchint();
    (of.complete, of.findings.nodes, of.findings.sinks) = (false, Vec::new(), Vec::new());
    // Of how many packets were to come without INT, nothing is known either.
    of.findings.coverage.not_carried = None;
    let wanted = |int: &str| {
        let name = format!("calumma_sketchint_wanted_packets_total{{int=\"{int}\"}}");
        value(&text(), &name)
    };
    let before = [wanted("yes"), wanted("no")];
    metrics.record(&of);
    assert_eq!([wanted("yes"), wanted("no")], before);
    let now = text();
    assert!(!now.contains("calumma_sketchint_latency_p99_seconds{"), "{now}");
    assert!(!now.contains("calumma_sketchint_flows{"), "{now}");
    assert_eq!(value(&now, "calumma_sketchint_inflated_total{node=\"s1\"}"), 1.0);
    assert!(value(&now, "calumma_sketchint_loops").is_nan());
    of.complete = true;
    metrics.record(&of);
    assert_eq!(value(&text(), "calumma_sketchint_loops"), 0.0);

    assert_eq!((value(&text(), loops), value(&text(), coverage)), (1.0, 0.6));
    metrics.note_systems(|system| system.name() != Cfs.name());
    let now = text();
    assert!(value(&now, loops).is_nan() && value(&now, coverage).is_nan());
    assert!(!now.contains("calumma_cfs_entries{"), "{now}");
    assert_eq!(value(&now, "calumma_cfs_packets_total{node=\"s1\"}"), 900.0);
    assert_eq!(value(&now, "calumma_sketchint_loops"), 0.0);
}

/// As on a controller that does not run ChameleMon, has not reported yet, or switched it off.
#[test]
fn a_network_that_nobody_watches_is_neither_healthy_nor_ill() {
    let metrics = metrics();
    let text = || metrics.render(&[], &[]).unwrap();
    let gauges =
        ["network_ill", "victim_flows", "last_epoch", "last_epoch_start_seconds", "sample_rate"]
            .map(|name| format!("calumma_{name}"));
    let labelled = [
        "edge_flows",
        "edge_entropy",
        "edge_heavy_hitters",
        "edge_hh_load_factor",
        "delta_load_factor",
        "threshold_packets",
        "encoder_buckets",
    ]
    .map(|name| format!("calumma_{name}{{"));
    let is_nothing_known = || {
        let text = text();
        gauges.iter().all(|gauge| value(&text, gauge).is_nan())
            && labelled.iter().all(|gauge| !text.contains(gauge))
    };
    assert!(is_nothing_known(), "{}", text());
    let of_system = |system: &str| format!("calumma_system_on{{system=\"{system}\"}}");
    metrics.note_systems(|system| system.name() == "chamelemon");
    let mut report = sample();
    report.state = NetworkState::Ill;
    metrics.record(&report);
    let now = text();
    assert!(gauges.iter().all(|gauge| !value(&now, gauge).is_nan()), "{now}");
    assert!(labelled.iter().all(|gauge| now.contains(gauge)), "{now}");
    assert_eq!(value(&now, "calumma_network_ill"), 1.0);
    assert_eq!(value(&now, "calumma_last_epoch"), report.epoch as f64);
    assert_eq!([value(&now, &of_system("chamelemon")), value(&now, &of_system("cfs"))], [1.0, 0.0]);

    metrics.note_systems(|system| system.name() == Cfs.name());
    assert!(is_nothing_known(), "{}", text());
    let now = text();
    assert_eq!([value(&now, &of_system("chamelemon")), value(&now, &of_system("cfs"))], [0.0, 1.0]);
    assert_eq!(value(&now, "calumma_epochs_total{complete=\"true\"}"), 1.0);
}

#[test]
fn a_number_of_flows_that_is_a_lower_bound_is_no_estimate() {
    let of = |cardinality, error| {
        let metrics = metrics();
        let mut report = sample();
        (report.edges[0].cardinality, report.edges[0].cardinality_error) = (cardinality, error);
        metrics.record(&report);
        let text = metrics.render(&[], &[]).unwrap();
        ["edge_flows", "edge_flows_error"]
            .map(|name| value(&text, &format!("calumma_{name}{{edge=\"e1\"}}")))
    };
    assert_eq!(of(Some(412.0), Some(0.0)), [412.0, 0.0]);
    assert_eq!(of(Some(70_000.0), Some(350.5)), [70_000.0, 350.5]);
    let bound = of(Some(1e6), None);
    assert!(bound.iter().all(|number| number.is_nan()), "{bound:?}");
}

#[test]
fn that_no_path_has_changed_is_known_where_there_is_a_window_before() {
    let (metrics, mut watch) = (metrics(), Watch::default());
    let mut of = of_sketchint();
    // The first window; the next; one after a window that did not come; after an incomplete one.
    for (first, complete, is_known) in [
        (20, true, false),
        (40, true, true),
        (80, true, false),
        (100, false, false),
        (120, true, false),
        (140, true, true),
    ] {
        (of.findings.window, of.complete) = ([first, first + 19], complete);
        let facts = watch.read(&of).unwrap();
        let fact = facts.iter().find(|fact| fact.alert == "sketchint_path_changes").unwrap();
        let wanted = if is_known { Reading::Good } else { Reading::Unknown };
        assert_eq!(fact.reading, wanted, "{first}");
        metrics.record(&of);
        let changes = value(&metrics.render(&[], &[]).unwrap(), "calumma_sketchint_path_changes");
        assert_eq!(changes == 0.0, is_known, "{first}: {changes}");
    }
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in:\n{text}")).parse().unwrap()
}

fn promtool(arguments: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}\n{input}", String::from_utf8_lossy(&said));
}

#[test]
fn promtool_finds_no_fault_with_metrics_and_alert_rules() {
    if !calumma_testenv::has_program("promtool", "prometheus") {
        return;
    }
    promtool(&["check", "metrics"], &rendered());
    for rules in ["alerts", "tofino"] {
        let file = |kind| deployed(&format!("prometheus/{rules}{kind}.yml")).display().to_string();
        promtool(&["check", "rules", &file("")], "");
        promtool(&["test", "rules", &file(".test")], "");
    }
}

/// Names of metrics in a text: words that begin with the prefix.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !word(c)).filter(|word| word.starts_with("calumma_"));
    words.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn packets_without_stacks_and_hops_are_counted_by_reason_and_sink() {
    let text = rendered();
    let of = |name: &str| value(&text, &format!("calumma_sketchint_{name}"));
    assert_eq!(of("not_carried_total{reason=\"share\"}"), 30.0);
    let wanted = |int: &str| of(&format!("wanted_packets_total{{int=\"{int}\"}}"));
    assert_eq!((wanted("yes"), wanted("no")), (60.0, 0.0));
    assert_eq!(of("mtu_exceeded_total{sink=\"e2\"}"), 5.0);
    assert_eq!(of("hops_exceeded_total{sink=\"e2\"}"), 4.0);
    assert_eq!(of("latency_p99_seconds{node=\"s1\"}"), 3e-6);
    assert_eq!(of("link_packets_total{from=\"s1\",to=\"e2\"}"), 51.0);
}

#[test]
fn rules_and_dashboard_speak_of_metrics_that_there_are() {
    // What sinks add has no sample here.
    let known = names(&rendered());
    let outputs = ["calumma_output_reports_total", "calumma_output_failures_total"];
    for file in ["prometheus/alerts.yml", "grafana/calumma.json"] {
        let text = fs::read_to_string(deployed(file)).unwrap();
        let used = names(&text);
        assert!(used.len() > 5, "{file}: {used:?}");
        for name in used.iter().filter(|name| !outputs.contains(&name.as_str())) {
            assert!(known.contains(name), "{file}: {name} is no metric of the controller");
        }
    }
    let dashboard = fs::read_to_string(deployed("grafana/calumma.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| !panel["description"].as_str().unwrap().is_empty()));
}

#[test]
fn what_is_not_known_is_nan_and_totals_are_those_of_the_reports() {
    let metrics = metrics();
    let mut report = quiet();
    report.state = NetworkState::Ill;
    metrics.record(&report);
    assert_eq!(value(&metrics.render(&[], &[]).unwrap(), "calumma_victim_flows"), 0.0);
    report.complete = false;
    report.missing_edges = vec!["e2".to_owned()];
    metrics.record(&report);
    let text = metrics.render(&[], &[]).unwrap();
    assert!(value(&text, "calumma_victim_flows").is_nan());
    assert_eq!(value(&text, "calumma_epochs_total{complete=\"false\"}"), 1.0);
    assert_eq!(value(&text, "calumma_edge_missing_epochs_total{edge=\"e2\"}"), 1.0);
    assert_eq!(value(&text, "calumma_edge_missing_epochs_total{edge=\"e1\"}"), 0.0);
    assert_eq!(value(&text, "calumma_network_ill"), 1.0);
}

/// 0 would say that there were none.
#[test]
fn numbers_of_heavy_flows_are_nan_where_nobody_knows_them() {
    let of = |change: fn(&mut EpochReport)| {
        let metrics = metrics();
        let mut report = sample();
        change(&mut report);
        metrics.record(&report);
        let text = metrics.render(&[], &[]).unwrap();
        let summary = serde_json::to_value(EpochSummary::from(&report)).unwrap();
        ["heavy_hitters", "heavy_changes"].map(|name| {
            let number = value(&text, &format!("calumma_edge_{name}{{edge=\"e1\"}}"));
            assert_eq!(summary["edges"][0][name].as_f64(), (!number.is_nan()).then_some(number));
            number
        })
    };
    assert_eq!(of(|_| {}), [1.0, 1.0]);
    // As of an epoch for which there was no time, or of which the ingress side is missing.
    let nothing = of(|report| {
        let edge = &mut report.edges[0];
        edge.heavy_hitters.clear();
        edge.heavy_hitters_complete = false;
        edge.heavy_changes.clear();
        edge.heavy_changes_since = None;
        edge.heavy_changes_complete = false;
    });
    assert!(nothing.iter().all(|number| number.is_nan()), "{nothing:?}");
    // There is an epoch to compare with, and flows of which too little is known.
    let [_, changes] = of(|report| report.edges[0].heavy_changes_complete = false);
    assert!(changes.is_nan());
}

/// The share of lost packets is one of packets whose losses are known, and what turns out not to
/// have been lost is counted apart, since a counter can't fall.
#[test]
fn losses_that_are_taken_back_and_packets_nobody_judged_are_counted_apart() {
    let metrics = metrics();
    let mut lossy = sample();
    assert!(lossy.losses_are_decoded());
    metrics.record(&lossy);
    let (flow, entered) = (lossy.loss[0].flow, lossy.edges[0].packets_in.unwrap());
    lossy.epoch += 1;
    lossy.loss.clear();
    lossy.complete = false;
    metrics.record(&lossy);
    let amendment = Amendment {
        epoch: lossy.epoch - 1,
        flow,
        was: 3,
        lost: 1,
        late: Some(2),
        at_most_late: None,
        why: String::new(),
    };
    lossy.epoch += 1;
    lossy.amendments = vec![amendment];
    metrics.record(&lossy);
    let text = metrics.render(&[], &[]).unwrap();
    assert_eq!(value(&text, "calumma_lost_packets_total{class=\"HL\"}"), 3.0);
    assert_eq!(value(&text, "calumma_lost_packets_taken_back_total"), 2.0);
    assert_eq!(value(&text, "calumma_judged_packets_total"), entered as f64);
    let of_edge = "calumma_edge_packets_total{direction=\"in\",edge=\"e1\"}";
    assert_eq!(value(&text, of_edge), 3.0 * entered as f64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// However many flows there are, there are no more lines.
    #[test]
    fn the_number_of_lines_does_not_depend_on_flows(reports in reports(20)) {
        let (with, without) = (metrics(), metrics());
        for report in &reports {
            with.record(report);
            let mut bare: EpochReport = report.clone();
            bare.surplus.clear();
            for edge in &mut bare.edges {
                edge.heavy_hitters.clear();
                edge.heavy_changes.clear();
                edge.size_distribution.clear();
            }
            bare.loss.clear();
            without.record(&bare);
        }
        let lines = |metrics: &Metrics| metrics.render(&[], &[]).unwrap().lines().count();
        prop_assert_eq!(lines(&with), lines(&without));
        let lost: u64 = reports.iter().map(EpochReport::lost_packets).sum();
        let text = with.render(&[], &[]).unwrap();
        let of = |class: &str| value(&text, &format!("calumma_lost_packets_total{{class=\"{class}\"}}"));
        prop_assert_eq!((of("HL") + of("LL")) as u64, lost);
    }
}

#[test]
fn a_running_controller_is_scraped_at_its_http_port() {
    let text = "edges = ['e1']\ntransits = ['s1']\nhosts = ['h1']\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n[alerts]";
    let config = Config::parse(text, "test.toml").unwrap();
    let runtime = Runtime::new().unwrap();
    let running = runtime.block_on(start(config, vec![])).unwrap();
    let mut stream = TcpStream::connect(running.http().unwrap()).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"));
    for (node, role) in [("e1", "edge"), ("s1", "transit"), ("h1", "host")] {
        let of_node = format!("node=\"{node}\",role=\"{role}\"}}");
        assert_eq!(value(&answer, &format!("calumma_node_connected{{{of_node}")), 0.0);
        let frames = format!(
            "calumma_node_frames_total{{node=\"{node}\",result=\"accepted\",role=\"{role}\"}}"
        );
        assert_eq!(value(&answer, &frames), 0.0);
    }
    let dropped = "calumma_output_reports_total{output=\"alerts\",result=\"dropped\"}";
    assert_eq!(value(&answer, dropped), 0.0);
    for (system, is_on) in [("chamelemon", 1.0), ("cfs", 0.0), ("sketchint", 0.0)] {
        assert_eq!(value(&answer, &format!("calumma_system_on{{system=\"{system}\"}}")), is_on);
    }
    assert!(value(&answer, "calumma_network_ill").is_nan());
    runtime.block_on(running.stop()).unwrap();
}
