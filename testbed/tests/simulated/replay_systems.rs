//! Captures through lines of switches that run other systems than ChameleMon alone: their reports
//! are what the capture says, by a count of its own here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::WideKey;
use calumma_testbed::capture::{Capture, PcapWriter};
use calumma_testbed::replay::{self, Line, Lose, Outcome, Passage};
use calumma_testenv::capture;
use serde_json::Value;

use crate::replay::{made_up, made_up_of_both_families};

/// Length of an epoch; a window of cfs is 20 of them, one of SketchINT 100.
const EPOCH_MS: u64 = 5;

fn line(systems: &[&str], hops: u8, entries: Option<u32>) -> Line {
    let systems = systems.iter().map(|&name| name.to_owned()).collect();
    Line::load((None, Some(EPOCH_MS)), systems, hops, entries).unwrap()
}

/// What entered of each flow, named as in reports, and what was lost of it.
type Counts = BTreeMap<String, (u64, u64)>;

fn named(flow: &Value) -> String {
    let field = |name: &str| flow[name].to_string();
    ["src", "sport", "dst", "dport", "proto"].map(field).join(" ")
}

/// What happened in each window of so many epochs.
fn truth(path: &Path, epochs: u64, mut lose: Lose) -> BTreeMap<u64, Counts> {
    let mut windows: BTreeMap<u64, Counts> = BTreeMap::new();
    let mut capture = Capture::open(path).unwrap();
    while let Some(record) = capture.next_record().unwrap() {
        let (key, at) = match parse(record.bytes, record.original_len as usize) {
            Parsed::Flow { key, ip_offset } => (WideKey::from(key), ip_offset),
            Parsed::Flow6 { key, ip_offset } => (WideKey::from_bytes(key), ip_offset),
            _ => continue,
        };
        let flow = calumma_analysis::Flow::from(&key);
        let name = named(&serde_json::to_value(flow).unwrap());
        let window = record.timestamp_ns / (EPOCH_MS * 1_000_000) / epochs;
        let counts = windows.entry(window).or_default().entry(name).or_default();
        counts.0 += 1;
        counts.1 += u64::from(lose.decides(record.bytes, at));
    }
    windows
}

/// Replays a capture; gives the reports of each system by the number of their window or epoch.
fn play(path: &Path, line: Line, lose: Lose) -> (BTreeMap<(String, u64), Value>, Outcome) {
    let mut passage = Passage::new(line, lose).unwrap();
    let mut lines = Vec::new();
    let mut capture = Capture::open(path).unwrap();
    while let Some(record) = capture.next_record().unwrap() {
        let wire_len = record.original_len as usize;
        lines.extend(passage.packet(record.timestamp_ns, wire_len, record.bytes).unwrap());
    }
    lines.extend(passage.finish().unwrap());
    let outcome = passage.into_outcome();
    assert_eq!(outcome.contradictions().collect::<Vec<_>>(), []);
    let report = |line: &String| {
        let report: Value = serde_json::from_str(line).unwrap();
        let system = report["system"].as_str().unwrap_or("chamelemon").to_owned();
        let length = match system.as_str() {
            "cfs" => 20,
            "sketchint" => 100,
            _ => 1,
        };
        ((system, report["epoch"].as_u64().unwrap() / length), report)
    };
    (lines.iter().map(report).collect(), outcome)
}

fn list<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().unwrap().iter()
}

fn number(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap()
}

#[test]
fn cfs_counts_every_flow_of_a_capture_and_names_every_loss() {
    let path = made_up_of_both_families(3_003);
    let lose = Lose::CongestionExperienced;
    let (reports, outcome) = play(&path, line(&["cfs"], 3, None), lose.clone());
    let truth = truth(&path, 20, lose);
    assert_eq!((truth.len(), reports.len(), outcome.reports.len()), (3, 3, 3));
    for (window, flows) in &truth {
        let report = &reports[&("cfs".to_owned(), *window)];
        assert_eq!(report["complete"], true, "{}", report["incomplete_because"]);
        assert_eq!(number(report, "monitored_exactly"), flows.len() as u64);
        assert_eq!(report["coverage"], 1.0);
        for flow in list(report, "flows") {
            let (entered, lost) = flows[&named(flow)];
            assert_eq!((flow["exact"].as_bool(), number(flow, "packets")), (Some(true), entered));
            let hops: BTreeMap<&str, u64> = list(flow, "hops")
                .map(|hop| (hop["node"].as_str().unwrap(), number(hop, "packets")))
                .collect();
            let at_each = [("e1", entered), ("s1", entered), ("e2", entered - lost)];
            assert_eq!(hops, at_each.into_iter().filter(|(_, came)| *came > 0).collect());
        }
        let lost: Counts = flows.iter().map(|(name, of)| (name.clone(), *of)).collect();
        let lost: Vec<(String, u64)> =
            lost.into_iter().filter(|(_, of)| of.1 > 0).map(|(name, of)| (name, of.1)).collect();
        let mut said: Vec<(String, u64)> =
            list(report, "losses").map(|loss| (named(loss), number(loss, "lost"))).collect();
        said.sort();
        assert_eq!(said, lost);
    }
    assert_eq!(outcome.summary.lost, 429);
    assert_eq!(outcome.reports.iter().map(|of| of.packets).sum::<u64>(), 3_003);
    fs::remove_file(path).unwrap();
}

/// A capture of so many flows of three packets each within a twentieth of a second.
fn many(flows: u32) -> std::path::PathBuf {
    let name = format!("calumma-{}-{flows}-flows.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for number in 0..3 * flows {
        let [.., high, low] = (number % flows).to_be_bytes();
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, high]);
        frame.extend_from_slice(&[low, 10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
        let time =
            1_700_000_000_000_000_000 + u64::from(number) * 50_000_000 / u64::from(3 * flows);
        writer.write(time, frame.len() as u32, &frame).unwrap();
    }
    fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

#[test]
fn the_more_switches_the_more_flows_they_count_together() {
    let path = many(2_000);
    let share = |hops| {
        let (_, outcome) = play(&path, line(&["cfs"], hops, Some(256)), Lose::share(0.05, 3));
        let [report] = outcome.reports.try_into().unwrap();
        assert_eq!((report.packets, report.flows), (6_000, 2_000));
        report.summary.coverage.unwrap()
    };
    let shares = [2, 4, 6].map(share);
    assert!(shares[0] > 0.1 && shares[0] <= 0.256, "{shares:?}");
    assert!(shares[1] > 1.3 * shares[0] && shares[2] > shares[1], "{shares:?}");
    fs::remove_file(path).unwrap();
}

#[test]
fn sinks_of_sketchint_say_what_arrives_and_which_way_it_came() {
    let path = made_up_of_both_families(3_005);
    let lose = Lose::share(0.1, 5);
    let (reports, outcome) = play(&path, line(&["sketchint"], 4, None), lose.clone());
    let truth = truth(&path, 100, lose);
    assert_eq!((truth.len(), reports.len()), (1, 1));
    let (window, flows) = truth.first_key_value().unwrap();
    let report = &reports[&("sketchint".to_owned(), *window)];
    assert_eq!(report["complete"], true, "{}", report["incomplete_because"]);
    let arrived: BTreeMap<&str, u64> = flows
        .iter()
        .map(|(name, (entered, lost))| (name.as_str(), entered - lost))
        .filter(|(_, packets)| *packets > 0)
        .collect();
    let mut said: BTreeMap<String, u64> = BTreeMap::new();
    for flow in list(report, "flows") {
        assert_eq!((flow["exact"].as_bool(), flow["sink"].as_str()), (Some(true), Some("e2")));
        let paths: Vec<&Value> = list(flow, "paths").map(|path| &path["path"]).collect();
        assert_eq!(paths, [&serde_json::json!(["e1", "s1", "s2", "e2"])]);
        said.insert(named(flow), number(flow, "packets"));
    }
    assert_eq!(
        said.iter().map(|(name, of)| (name.as_str(), *of)).collect::<Vec<_>>(),
        arrived.into_iter().collect::<Vec<_>>()
    );
    assert!(outcome.summary.lost > 200);
    fs::remove_file(path).unwrap();
}

#[test]
fn systems_beside_each_other_name_the_same_losses() {
    let path = made_up(3_002);
    let lose = Lose::CongestionExperienced;
    let systems = ["chamelemon", "sketchint", "cfs"];
    let (reports, outcome) = play(&path, line(&systems, 2, None), lose.clone());
    let lost = |system: &str, field: &str| -> u64 {
        let of_system = reports.iter().filter(|((of, _), _)| of == system);
        of_system.flat_map(|(_, report)| list(report, field)).map(|of| number(of, "lost")).sum()
    };
    assert_eq!((lost("chamelemon", "loss"), lost("cfs", "losses")), (429, 429));
    // A quarter of a second, and the windows that it is in.
    let of = |name: &str| outcome.reports.iter().filter(|of| of.summary.system == name).count();
    assert_eq!(systems.map(of), [50, 1, 3]);
    assert!(outcome.reports.iter().all(|of| of.summary.complete));
    fs::remove_file(path).unwrap();
}

#[test]
fn real_captures_are_counted_right_at_every_switch() {
    for name in ["mixed-captures.pcap", "backbone-65k.pcap"] {
        let Some(path) = capture(name) else { return };
        let systems = ["cfs".to_owned(), "sketchint".to_owned()].to_vec();
        let line = Line::load((None, None), systems, 4, Some(4096)).unwrap();
        let (is_whole, outcome) =
            replay::run_line(&path, None, line, Lose::share(0.02, 7)).unwrap();
        println!("{name}\n{}", outcome.to_text());
        assert_eq!(outcome.contradictions().collect::<Vec<_>>(), []);
        assert!(is_whole && outcome.reports.iter().all(|of| of.summary.complete));
        let counted = outcome.reports.iter().filter_map(|of| of.counted).sum::<u64>();
        assert!(counted > 4096, "{counted} flows");
    }
}

#[test]
fn what_can_not_be_replayed_so_is_refused_with_the_reason() {
    let of = |systems: &[&str], entries| {
        let systems = systems.iter().map(|&name| name.to_owned()).collect();
        Line::load((None, None), systems, 2, entries)
    };
    let unknown = format!("{:#}", of(&["hopps"], None).unwrap_err());
    assert!(unknown.contains("known are chamelemon, sketchint, cfs"), "{unknown}");
    let without = format!("{:#}", of(&["sketchint"], Some(256)).unwrap_err());
    assert!(without.starts_with("--entries: of cfs"), "{without}");
    let play = |line: Line, time_ns| {
        let mut passage = Passage::new(line, Lose::Nothing).unwrap();
        format!("{:#}", passage.packet(time_ns, 60, &[0; 60]).unwrap_err())
    };
    let few = play(of(&["cfs"], Some(100)).unwrap(), 1_700_000_000_000_000_000);
    assert!(few.contains("entries = 100: must be 256"), "{few}");
    let old = play(of(&["cfs"], None).unwrap(), 7);
    assert!(old.contains("1970"), "{old}");
}
