//! Cooperative flow selection on real switches: what the tables of edges and transits count is held
//! against what the kernel logged on the wires next to them, and against what routers lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use calumma_testbed::demo;
use calumma_testbed::live::Live;
use calumma_testbed::scenario::Scenario;
use serde_json::Value;

use crate::machine::alone;
use crate::playing::Play;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/live/cfs");

/// The host that scans.
const SCANNER: &str = "fd00::1";

/// Within so long after a route lets packets go round, a flow of these is to be reported.
const WITHIN_NS: u64 = 500_000_000;

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn leaves_and_spines_count_what_came_to_them_over_the_wires() {
    let _alone = alone();
    let out = folder("scenario");
    play("fabric.toml", &out);

    // Exact counts that were held against the wires, by node, and packets lost by place.
    let (mut exact, mut lost) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u64>::new());
    let reports = lines(&out.join("cfs.jsonl"));
    for report in &reports {
        for hop in list(report, "flows").flat_map(|flow| list(flow, "hops")) {
            let counts = exact.entry(text(&hop["node"]).to_owned()).or_default();
            *counts += u32::from(hop["exact"] == true);
        }
        add_losses(report, &mut lost);
    }
    assert_eq!(exact.keys().collect::<Vec<_>>(), ["e1", "e2", "s1", "s2"]);
    assert!(exact.values().all(|&counts| counts > 300), "{exact:?}");
    // The lossy wire, in either direction, and no other.
    lost.retain(|place, _| is_between(place));
    assert_eq!(lost.keys().collect::<Vec<_>>(), ["e1:in s1:in", "s1:in e1:in"]);
    assert!(lost.values().all(|&packets| packets > 20), "{lost:?}");
    let wires = lines(&out.join("cfs.wires.jsonl"));
    let epochs = |lines: &[Value]| lines.iter().map(|line| line["epoch"].clone()).collect();
    let [reported, logged]: [Vec<Value>; 2] = [epochs(&reports), epochs(&wires)];
    assert_eq!(reported, logged);
    fs::remove_dir_all(out).expect("what was written can be removed");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn marks_number_the_hops_of_flows_that_tables_count_as_one() {
    let _alone = alone();
    let out = folder("hop-mark");
    play("hop-mark.toml", &out);

    // Exact counts that were held against the wires, by node and the number of its hop, and packets
    // lost by place.
    let mut exact = BTreeMap::<(String, u64), u32>::new();
    let mut lost = BTreeMap::<String, u64>::new();
    let wires = lines(&out.join("cfs.wires.jsonl"));
    for (report, wires) in lines(&out.join("cfs.jsonl")).iter().zip(&wires) {
        assert_eq!(report["epoch"], wires["epoch"]);
        let mut homes = BTreeMap::new();
        for flow in list(wires, "flows") {
            let home = list(flow, "came").find(|came| came["entered"] != 0);
            homes.extend(home.map(|home| (key(flow), text(&home["node"]))));
        }
        for flow in list(report, "flows") {
            // Nobody counts a flow that no wire had.
            let home = homes[&key(flow)];
            for hop in list(flow, "hops") {
                let node = text(&hop["node"]);
                let of_leaf = if node == home { 0 } else { 2 };
                let number = if node.starts_with('s') { 1 } else { of_leaf };
                assert_eq!(hop["hop"], number, "{node} of {flow}, which entered at {home}");
                let counts = exact.entry((node.to_owned(), number)).or_default();
                *counts += u32::from(hop["exact"] == true);
            }
        }
        add_losses(report, &mut lost);
    }
    eprintln!("exact counts by node and hop: {exact:?}, lost: {lost:?}");
    let hops: Vec<(&str, u64)> = exact.keys().map(|(node, hop)| (&**node, *hop)).collect();
    assert_eq!(hops, [("e1", 0), ("e1", 2), ("e2", 0), ("e2", 2), ("s1", 1), ("s2", 1)]);
    assert!(exact.values().all(|&counts| counts > 300), "{exact:?}");
    lost.retain(|place, _| is_between(place) && *place != "e2:in e1:in");
    assert_eq!(lost.keys().collect::<Vec<_>>(), ["e1:in s1:in", "s1:in e1:in"]);
    assert!(lost.values().all(|&packets| packets > 20), "{lost:?}");
    fs::remove_dir_all(out).expect("what was written can be removed");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_tofino_spine_counts_what_came_to_it_over_the_wires() {
    let _alone = alone();
    let out = folder("tofino");
    play("tofino.toml", &out);

    // Exact counts of the Tofino that were held against the wires, by window, and packets lost by
    // place.
    let (mut exact, mut lost) = (Vec::new(), BTreeMap::<String, u64>::new());
    for report in lines(&out.join("cfs.jsonl")) {
        let hops = list(&report, "flows").flat_map(|flow| list(flow, "hops"));
        let of_tofino = hops.filter(|hop| hop["node"] == "s2" && hop["exact"] == true);
        exact.push(of_tofino.count());
        add_losses(&report, &mut lost);
    }
    eprintln!("flows that s2 counted exactly by window: {exact:?}, lost: {lost:?}");
    assert!(exact.iter().filter(|&&flows| flows > 20).count() >= 5, "{exact:?}");
    // Of a flow that the Tofino has no count of, since all its packets were lost before it or its
    // table was full, only the edges know what is missing.
    lost.retain(|place, _| is_between(place) && *place != "e2:in e1:in");
    assert_eq!(lost.keys().collect::<Vec<_>>(), ["e1:in s2:in", "s2:in e1:in"]);
    assert!(lost.values().all(|&packets| packets > 5), "{lost:?}");
    fs::remove_dir_all(out).expect("what was written can be removed");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_tofino_leaf_counts_what_its_hosts_sent_and_received() {
    let _alone = alone();
    let out = folder("tofino-edge");
    play("tofino-edge.toml", &out);

    // By window: flows that the Tofino counted exactly, and those that its count is of.
    let (mut exact, mut own, mut lost) = (Vec::new(), Vec::new(), BTreeMap::<String, u64>::new());
    for report in lines(&out.join("cfs.jsonl")) {
        let hops = list(&report, "flows").flat_map(|flow| list(flow, "hops"));
        let of_tofino = hops.filter(|hop| hop["node"] == "e2" && hop["exact"] == true);
        exact.push(of_tofino.count());
        let flows = list(&report, "flows");
        own.push(flows.filter(|flow| flow["at"] == "e2" && flow["exact"] == true).count());
        add_losses(&report, &mut lost);
    }
    eprintln!("of e2 by window: {exact:?}, of them its own: {own:?}, lost: {lost:?}");
    for counts in [exact, own] {
        assert!(counts.iter().filter(|&&flows| flows > 20).count() >= 5, "{counts:?}");
    }
    let of_link = ["e1:in s2:in", "s2:in e1:in"].map(|place| lost.get(place).copied());
    assert!(of_link.iter().all(|packets| *packets > Some(5)), "{lost:?}");
    fs::remove_dir_all(out).expect("what was written can be removed");
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn the_demo_shows_every_flow_as_the_wires_and_the_lossy_one_by_name() {
    let _alone = alone();
    let out = folder("demo");
    let demo = demo::run_in_fabric(5, Path::new(TESTBED), &out).expect("the demo runs");
    let text = demo.to_text();
    assert!(demo.is_equal(), "{text}");
    assert!(text.contains("lossy wires: e1 > s1, s1 > e1\n"), "{text}");
    assert!(out.join("cfs.jsonl").exists() && out.join("cfs.wires.jsonl").exists());
    fs::remove_dir_all(out).expect("what was written can be removed");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn a_loop_is_reported_within_half_a_second_and_a_scan_within_two_windows() {
    let _alone = alone();
    let out = folder("loop");
    let live = play("loop.toml", &out);
    let begun_ns = *live.rerouted_ns().first().expect("routes changed");
    let noticed = live.noticed();
    let first = noticed.first().expect("a loop is reported at once");
    let after_ns = first.at_ns.saturating_sub(begun_ns);
    eprintln!("{} notices, the first {} ms after the routes", noticed.len(), after_ns / 1_000_000);
    assert!(after_ns < WITHIN_NS, "{after_ns} ns: {}", first.json);
    // All of it was for e2, and a turn of two switches is six hops.
    for noticed in &noticed {
        let json: Value = serde_json::from_str(&noticed.json).expect("JSON");
        for it in list(&json, "loops") {
            assert!(it["certain"] == true && it["length"] == 6, "{it}");
            assert!(text(&it["dst"]).starts_with("10.0.1."), "{it}");
        }
    }

    let (mut round, mut lost) = (0, BTreeMap::<String, u64>::new());
    let (mut named_after, mut certain_after) = (None, None);
    let mut scanned: Vec<usize> = Vec::new();
    let both = lines(&out.join("cfs.jsonl")).into_iter().zip(lines(&out.join("cfs.wires.jsonl")));
    for (report, wires) in both {
        let named: Vec<_> =
            list(&report, "loops").filter(|it| it["certain"] == true).map(key).collect();
        for flow in list(&wires, "flows") {
            let packets = |came: &Value, field: &str| came[field].as_u64().expect("a number");
            let entered: u64 = list(flow, "came").map(|came| packets(came, "entered")).sum();
            let mut came = list(flow, "came");
            let again = came.any(|came| packets(came, "packets") > entered);
            // A window that is not complete lacks nodes.
            if again && report["complete"] == true {
                assert!(named.contains(&key(flow)), "{flow} went round, and {named:?} are named");
                round += 1;
            }
        }
        let of_scan = list(&wires, "flows").filter(|flow| flow["src"] == SCANNER);
        let targets: BTreeSet<&str> = of_scan.map(|flow| text(&flow["dst"])).collect();
        if !targets.is_empty() {
            scanned.push(targets.len());
            let wanted = report["thresholds"]["superspreader"].as_f64().expect("a number");
            for named in list(&report, "superspreaders").filter(|it| it["address"] == SCANNER) {
                if named["estimate_low"].as_f64().is_some_and(|least| least >= wanted) {
                    named_after.get_or_insert(scanned.len());
                }
                if named["certain"] == true {
                    certain_after.get_or_insert(scanned.len());
                }
            }
        }
        let spreads = list(&report, "superspreaders").filter(|it| it["certain"] == true);
        spreads.for_each(|it| assert_eq!(it["address"], SCANNER, "{it}"));
        add_losses(&report, &mut lost);
    }
    eprintln!(
        "addresses scanned by window: {scanned:?}, reported in number {named_after:?}, for certain in \
         {certain_after:?}"
    );
    assert!(named_after.is_some_and(|windows| windows <= 2), "{scanned:?}, {named_after:?}");
    // Whatever is monitored, one edge's entries of 256 tell as much, but not in every window.
    assert!(certain_after.is_some_and(|windows| windows <= 4), "{scanned:?}, {certain_after:?}");
    assert!(round >= 10, "{round} flows went round in complete windows");
    // What went round was lost, and of the wires' losses none elsewhere is named.
    lost.retain(|place, _| is_between(place));
    assert_eq!(lost.keys().collect::<Vec<_>>(), ["e1:in s1:in", "s1:in e1:in"], "{lost:?}");
    fs::remove_dir_all(out).expect("what was written can be removed");
}

/// Plays a scenario and holds what it was reported of against the wires; with the fabric, which has
/// ended.
fn play(scenario: &str, out: &Path) -> Live {
    let scenario = Scenario::load(&Path::new(SCENARIOS).join(scenario)).expect("it is there");
    let (played, live) = Play { scenario: &scenario, out: Some(out) }.run(|_, _| {});
    assert!(played.doubts.is_empty(), "{:?}", played.doubts);
    live
}

/// Adds the packets that a report says were lost, by place.
fn add_losses(report: &Value, lost: &mut BTreeMap<String, u64>) {
    for loss in list(report, "losses") {
        let place = format!("{} {}", text(&loss["place"]["from"]), text(&loss["place"]["to"]));
        *lost.entry(place).or_default() += loss["lost"].as_u64().expect("a number");
    }
}

/// Whether a place is between a leaf and a spine. Of a flow that a spine has no count of only the
/// edges know what is missing, and of one that lost all behind a switch only that one.
fn is_between(place: &str) -> bool {
    !place.ends_with(" destination") && place != "e1:in e2:in"
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("calumma-cfs-{name}-{}", std::process::id()))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file of lines");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The flow that something is of.
fn key(of: &Value) -> String {
    ["src", "dst", "sport", "dport", "proto"].map(|field| of[field].to_string()).join(" ")
}

fn list<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().expect("a list").iter()
}

fn text(of: &Value) -> &str {
    of.as_str().expect("a text")
}
