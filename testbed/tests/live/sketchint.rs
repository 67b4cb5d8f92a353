//! SketchINT on real switches: bytes, ways and times of packets are held against captures at hosts
//! and on both sides of every switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use calumma_analysis::Flow;
use calumma_testbed::collected::Collected;
use calumma_testbed::demo;
use calumma_testbed::live::{Came, Comparison};
use calumma_testbed::scenario::Scenario;
use serde_json::Value;

use crate::machine::{alone, unless_torn};
use crate::playing::Play;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// By switch and name.
type Totals = BTreeMap<String, BTreeMap<String, u64>>;

#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn no_host_receives_a_byte_of_int_while_it_goes_off_and_on() {
    let _alone = alone();
    let Finished { compared, reports, totals, .. } = play_all("fabric");
    assert!(compared.windows >= 6, "{}", compared.to_text());
    assert!(compared.moved[0] > 10_000 && compared.flows.len() > 60, "{}", compared.to_text());
    let nodes: Vec<&String> = compared.switches.keys().collect();
    assert_eq!(nodes, ["e1", "e2", "s1", "s2"]);
    let families: BTreeSet<bool> = compared.flows.keys().map(|flow| flow.src.is_ipv6()).collect();
    assert_eq!(families.len(), 2);
    let states: BTreeSet<&str> = reports.iter().filter_map(|of| of["state"].as_str()).collect();
    assert!(states.contains("on") && states.len() > 1, "{states:?}");
    // What hosts forge is their payload. While INT is off, what no sink would take for a stack of
    // this network keeps its bit.
    let count = |edge: &str, name: &str| totals[edge][&format!("sketchint.{name}")];
    assert!(count("e1", "dscp_cleared") > 100, "{:?}", totals["e1"]);
    assert!(count("e2", "foreign") > 0, "{:?}", totals["e2"]);
    assert_eq!(["e1", "e2"].map(|edge| count(edge, "unstripped")), [0; 2]);
    // DPDK's packet sockets give no stamps, and don't say how many packets wait.
    let whole = reports.iter().filter(|of| of["state"] == "on" && of["complete"] == true);
    let mut seen = 0;
    for node in whole.flat_map(|report| list(report, "nodes")) {
        assert_eq!(node["stamp"], "poll", "{node}");
        assert!(node["stamp_error_us"].as_f64() > Some(0.0), "{node}");
        let queue = &node["queue"];
        assert_eq!(queue["unit"], "packets", "{node}");
        assert!(
            queue["packets"].as_u64() > Some(0) && queue["mean"].as_f64() >= Some(1.0),
            "{node}"
        );
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
    // Stamps and captures enclose the same wires; bounds are held in each window.
    let links: Vec<String> = compared.links.keys().map(|ends| ends.join(" ")).collect();
    let all = ["e1 s1", "e1 s2", "e2 s1", "e2 s2", "s1 e1", "s1 e2", "s2 e1", "s2 e2"];
    assert_eq!(links, all, "{}", compared.to_text());
    assert!(compared.links.values().all(|row| row.packets > 100), "{}", compared.to_text());
}

#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn a_spine_that_stands_still_is_named_and_so_is_one_that_flows_move_to() {
    let _alone = alone();
    let Finished { compared, reports, totals, collected, .. } = play_all("freeze");
    hold_collected(&collected, (&compared, &reports, &totals));
    // What captures say that each switch kept a packet for at most, in microseconds.
    let most = |node: &str| -> f64 {
        let hops = compared.flows.values().filter_map(|(of, _)| of.hops.get(node));
        hops.flat_map(|hop| &hop.residences_ns).max().map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    assert!(most("s1") > 10_000.0, "s1 stood still: {}", compared.to_text());
    // All that it found waiting counts as half as late as it stood still.
    let inflated = |report| list(report, "inflated").filter(|of| of["node"] == "s1");
    let is_named = |of: &Value| of["max_us"].as_f64().expect("a latency") > 2_500.0;
    let mut by_s1 = reports.iter().flat_map(inflated);
    assert!(by_s1.any(is_named), "s1 is not named: {}", compared.to_text());

    let (compared, reports) = play("path-change");
    assert!(compared.path_changes > 0, "{}", compared.to_text());
    let by_s1 = |report: &Value| {
        list(report, "flows")
            .flat_map(|flow| list(flow, "paths"))
            .any(|of| of["path"].to_string().starts_with("[\"e1\",\"s1\""))
    };
    assert!(reports.iter().any(by_s1));
    let last = reports.iter().rfind(|report| report["complete"] == true).expect("a whole window");
    assert!(!by_s1(last), "that link is down");
}

#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn full_sized_packets_come_as_they_were_sent_without_int() {
    let _alone = alone();
    let (_, reports) = play("mtu-1500");
    let whole = reports.iter().filter(|report| report["complete"] == true);
    let less = whole.filter(|of| lacking(of) > 0).count();
    assert!(less > 0, "every packet had room for a stack");
}

/// Holds what a collector received while s1 stood still, from two sinks that may report 100 packets
/// a second each, against captures, reports and counters.
fn hold_collected(
    collected: &[Came],
    (compared, reports, totals): (&Comparison, &[Value], &Totals),
) {
    let nodes = reports.iter().flat_map(|report| list(report, "nodes"));
    let names: BTreeMap<u64, &str> =
        nodes.filter_map(|node| Some((node["id"].as_u64()?, node["node"].as_str()?))).collect();
    let name = |id: u32| names.get(&id.into()).copied();
    let mut of_sinks: BTreeMap<&str, Vec<(Instant, Collected)>> = BTreeMap::new();
    for Came { at, datagram } in collected {
        let read = Collected::read(datagram).expect("a datagram of reports");
        of_sinks.entry(name(read.node).expect("a sink")).or_default().push((*at, read));
    }
    assert_eq!(of_sinks.keys().copied().collect::<Vec<_>>(), ["e1", "e2"]);
    let mut on_known_paths = 0;
    for (sink, came) in &of_sinks {
        let sequences = came.iter().map(|(_, read)| read.sequence);
        assert!(sequences.eq(0..came.len() as u32), "{sink}: each came once, in order");
        let sizes: Vec<usize> = came.iter().map(|(_, read)| read.reports.len()).collect();
        let count = |of: &str| totals[*sink][&format!("sketchint.reports.{of}")];
        let all: usize = sizes.iter().sum();
        assert_eq!((count("sent"), count("dropped")), (all as u64, 0), "{sink}");
        // A tenth of a second's reports may come at once, and the reader may have been late.
        let (mut first, mut within) = (0, 0);
        for (last, size) in sizes.iter().enumerate() {
            within += size;
            while came[last].0 - came[first].0 > Duration::from_secs(1) {
                within -= sizes[first];
                first += 1;
            }
            assert!(within <= 120, "{sink}: {within} in a second");
        }
        for report in came.iter().flat_map(|(_, read)| &read.reports) {
            // Before INT was on everywhere, none came with a stack.
            if !report.tracked {
                continue;
            }
            let nodes = report.hops.iter().map(|hop| name(hop.0)).chain([Some(*sink)]);
            let path: Vec<String> = nodes.map(|node| node.expect("a switch").to_owned()).collect();
            let (src, dst, sport, dport, proto) = report.flow().expect("a flow");
            // Captures are held against complete windows only.
            let flow = Flow { src, dst, sport, dport, proto };
            if let Some((of, _)) = compared.flows.get(&flow) {
                assert!(of.paths.contains_key(&path), "{flow}: {path:?}, {:?}", of.paths);
                on_known_paths += 1;
            }
        }
    }
    assert!(on_known_paths > 50, "{on_known_paths}");
    let read = of_sinks.values().flatten().flat_map(|(_, read)| &read.reports);
    let late = |(node, ns): (u32, u32)| (name(node) == Some("s1")).then_some(ns);
    let most =
        read.filter(|of| of.reasons.contains(&"inflated")).filter_map(|of| late(of.inflated?));
    assert!(most.max() > Some(2_500_000), "s1 stood still");
}

/// Linux goes by what the edges say, in both families.
#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn hosts_go_by_the_mtu_that_leaves_room_and_all_their_packets_carry_stacks() {
    let _alone = alone();
    let Finished { reports, totals, path_mtus, .. } = play_all("pmtu");
    // Less six hops of two words.
    assert_eq!(path_mtus, Some(BTreeMap::from([((0, 1, 4), 1436), ((1, 0, 6), 1436)])));
    for edge in ["e1", "e2"] {
        let count = |name: &str| totals[edge][&format!("sketchint.{name}")];
        assert!(count("mtu_advised") > 0, "{edge}");
    }
    let last = reports.iter().rfind(|report| report["complete"] == true).expect("a whole window");
    let packets = last["coverage"]["packets"].as_u64();
    assert!(packets > Some(500) && lacking(last) == 0, "{}", last["coverage"]);
}

/// Packets without a stack.
fn lacking(report: &Value) -> u64 {
    let coverage = |field: &str| report["coverage"][field].as_u64().unwrap_or(0);
    coverage("packets") - coverage("int_packets")
}

/// Stacks are taken out behind `e2`, which is a hop like others.
#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn hosts_with_sinks_of_their_own_receive_no_byte_of_int() {
    let _alone = alone();
    let Finished { compared, reports, totals, .. } = play_all("host-sink");
    assert!(compared.windows >= 3 && compared.moved[0] > 5_000, "{}", compared.to_text());
    assert_eq!(totals["e2"]["sketchint.stripped"], 0);
    for host in ["e2h1", "e2h2"] {
        let stripped = totals[host]["sketchint.stripped"];
        assert!(stripped > 100, "{host}: {stripped}");
        assert_eq!(stripped, compared.to_sinks[host], "{host}");
    }
    let whole = || reports.iter().filter(|report| report["complete"] == true);
    let sinks = whole().flat_map(|report| list(report, "sinks"));
    let sinks = sinks.filter(|of| of["int_packets"].as_u64() > Some(0));
    let sinks: BTreeSet<Option<&str>> = sinks.map(|of| of["edge"].as_str()).collect();
    assert_eq!(sinks, BTreeSet::from(["e1", "e2h1", "e2h2"].map(Some)));
    let paths = whole().flat_map(|report| list(report, "flows"));
    let paths = paths.flat_map(|flow| list(flow, "paths"));
    let hops: BTreeSet<_> = paths.map(|of| of["path"].as_array().map(Vec::len)).collect();
    assert_eq!(hops, BTreeSet::from([Some(3)]));
}

/// Bounds are held against captures, in each window.
#[test]
#[ignore = "end to end: needs root, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn a_tofino_is_a_source_and_a_sink_and_no_host_receives_a_byte_of_int() {
    let _alone = alone();
    let Finished { compared, reports, totals, .. } = play_all("tofino");
    assert!(compared.windows >= 4 && compared.flows.len() > 40, "{}", compared.to_text());
    let families: BTreeSet<bool> = compared.flows.keys().map(|flow| flow.src.is_ipv6()).collect();
    assert_eq!(families.len(), 2);
    let states: Vec<&str> = reports.iter().filter_map(|of| of["state"].as_str()).collect();
    let first = states.iter().position(|state| *state == "on").expect("INT is on");
    let stopped = states[first..].iter().position(|state| *state != "on").expect("it stops");
    assert!(states[first + stopped..].contains(&"on"), "{states:?}");
    assert!(totals["e1"]["sketchint.stripped"] > 100, "{:?}", totals["e1"]);
    // What the Tofino's packets met is in bounds, and what it sent is not.
    let whole = reports.iter().filter(|of| of["state"] == "on" && of["complete"] == true);
    let mut seen = 0;
    for report in whole {
        let nodes = list(report, "nodes").filter(|of| of["at_most"].as_u64() > Some(0));
        let nodes: BTreeMap<&str, &Value> =
            nodes.filter_map(|of| Some((of["node"].as_str()?, of))).collect();
        let kinds = ["e1", "e2", "s1"].map(|node| nodes[node]["kind"].as_str());
        assert_eq!(kinds, ["software", "tofino", "software"].map(Some));
        let [e1, s1] = ["e1", "s1"].map(|node| nodes[node]);
        for node in [e1, s1] {
            assert!(node["packets"].is_null() && node["at_least"].as_u64() > Some(0), "{node}");
            assert_eq!(node["latency_sinks"], serde_json::json!(["e1"]));
            assert!(node["latency_us"]["mean"].as_f64() > Some(0.0), "{node}");
        }
        let of_tofino = list(report, "sinks").find(|of| of["edge"] == "e2").expect("a sink");
        assert!(of_tofino["int_packets"].as_u64() > Some(50), "{of_tofino}");
        seen += 1;
    }
    assert!(seen >= 4, "{states:?}");
}

/// Captures on both sides of every switch have packets with UDP ports and protocols that hosts did
/// not send.
#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn no_host_receives_a_byte_where_a_udp_port_marks_packets() {
    let _alone = alone();
    let Finished { compared, reports, totals, .. } = play_all("udp-port");
    assert!(compared.windows >= 4 && compared.moved[0] > 5_000, "{}", compared.to_text());
    let protocols: BTreeSet<u8> = compared.flows.keys().map(|flow| flow.proto).collect();
    assert!([1, 6, 17, 58].iter().all(|of| protocols.contains(of)), "{protocols:?}");
    let paths = |proto: u8| {
        let flows = reports.iter().flat_map(|report| list(report, "flows"));
        flows.filter(|of| of["proto"] == proto).flat_map(|of| list(of, "paths")).count()
    };
    assert!(paths(1) > 0 && paths(58) > 0);
    for edge in ["e1", "e2"] {
        let count = |name: &str| totals[edge][&format!("sketchint.{name}")];
        assert!(count("stripped") > 1_000, "{:?}", totals[edge]);
        assert_eq!((count("unstripped"), count("malformed")), (0, 0), "{edge}");
    }
}

/// Whatever is on its way when the sink dies, no host receives a stack: captures say so.
#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn three_systems_are_exact_side_by_side_and_a_sink_that_is_killed_stops_the_sources() {
    let _alone = alone();
    let (compared, reports) = play("mixed");
    assert!(compared.moved[0] > 10_000, "{}", compared.to_text());
    let states: Vec<&str> = reports.iter().filter_map(|of| of["state"].as_str()).collect();
    let first = states.iter().position(|state| *state == "on").expect("INT is on");
    let stopped = states[first..].iter().position(|state| *state != "on").expect("it stops");
    assert!(states[first + stopped..].contains(&"on"), "{states:?}");
    // Sources know from the controller alone that the sink has begun anew.
    let stops = |of: &Value| of["edge"] == "e1" && of["inserted"] == 0 && of["idle"] != 0;
    let idle = reports[first..].iter().filter(|report| list(report, "sources").any(stops));
    let idle: Vec<&Value> = idle.map(|report| &report["state"]).collect();
    assert!(!idle.is_empty() && !idle.contains(&&Value::from("on")), "{states:?}");
}

#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and tcpdump; `cargo xtask test` runs it"]
fn the_demo_equals_what_was_captured() {
    let _alone = alone();
    let out = folder("demo");
    let demo = unless_torn(
        || demo::run_sketchint(5, Path::new(TESTBED), &out).expect("the demo runs"),
        |demo| {
            let is_torn = !demo.is_equal() && demo.differs_by_latency_alone();
            is_torn.then(|| demo.to_text())
        },
    );
    assert!(demo.is_equal(), "{}", demo.to_text());
    let truth = fs::read_to_string(out.join("truth.json")).expect("what was captured");
    let truth: Value = serde_json::from_str(&truth).expect("JSON");
    assert_eq!((&truth["leaked"], &truth["changed"]), (&Value::from(0), &Value::from(0)));
    let hops = list(&truth, "flows").flat_map(|flow| list(flow, "hops"));
    assert!(hops.count() > 100);
    assert!(out.join("epochs.jsonl").exists() && out.join("sketchint.jsonl").exists());
    fs::remove_dir_all(out).expect("what was written can be removed");
}

/// Plays a scenario, which fails by itself where bytes, ways or packets are other than reported;
/// gives both sides and the reports.
fn play(name: &str) -> (Comparison, Vec<Value>) {
    let Finished { compared, reports, .. } = play_all(name);
    (compared, reports)
}

/// What is left of a scenario.
struct Finished {
    compared: Comparison,
    reports: Vec<Value>,
    /// What edges and hosts' own sinks have counted.
    totals: Totals,
    /// The MTUs that hosts have found paths to have, by edges and IP version.
    path_mtus: Option<BTreeMap<(usize, usize, u8), u16>>,
    /// The telemetry reports that have come.
    collected: Vec<Came>,
}

/// The same, and all else.
fn play_all(name: &str) -> Finished {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/live/sketchint");
    let scenario = Scenario::load(&file.join(format!("{name}.toml"))).expect("a scenario");
    let out = folder(name);
    let mut live = Play { scenario: &scenario, out: Some(&out) }.run(|_, _| {}).1;
    let compared = live.take_compared().expect("SketchINT ran");
    assert_eq!((compared.leaked, compared.changed), (0, 0), "{name}");
    let text = fs::read_to_string(out.join("sketchint.jsonl")).expect("reports");
    let reports = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    fs::remove_dir_all(out).expect("what was written can be removed");
    let (totals, path_mtus) = (live.totals().clone(), live.path_mtus().cloned());
    let collected = live.take_collected();
    Finished { compared, reports, totals, path_mtus, collected }
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("calumma-sketchint-{name}-{}", std::process::id()))
}

fn list<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().into_iter().flatten()
}
