//! Cooperative flow selection: flows, hop by hop, spreads and loops of the latest windows.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::time::Duration;

use calumma_cfs_analysis::{BlackHole, FlowCount, HopCount, Loop, Loss, Spread};
use calumma_controller::cfs::config::CfsConfig;
use calumma_controller::cfs::{
    FlowsInWindow, LoopsInWindow, LossesInWindow, PinnedFlows, PinsWanted, SpreadsInWindow,
};
use calumma_controller::report::Flow;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::client::{Client, unknown_from};
use crate::flow;

/// How often a new window is asked for.
const POLL: Duration = Duration::from_millis(500);

/// Windows asked for again while those to come are followed.
const AGAIN: usize = 8;

#[derive(Subcommand)]
pub(crate) enum Ask {
    /// The largest flows, and which share of all flows is counted
    Top {
        /// How many flows of each window
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        windows: Windows,
    },
    /// One flow: a row for every switch that counted it
    Flow {
        /// `10.1.0.2:40000 10.2.0.2:5201 tcp`, or source, destination, their ports and the
        /// protocol
        #[arg(required = true, value_name = "FLOW")]
        flow: Vec<String>,
        #[command(flatten)]
        windows: Windows,
    },
    /// Sources of flows to many destinations, and destinations of flows from many sources
    Spreaders {
        #[command(flatten)]
        windows: Windows,
    },
    /// Flows whose packets go round
    Loops {
        #[command(flatten)]
        windows: Windows,
    },
    /// Flows that every switch counts: shows them, or pins others instead of those that were pinned
    /// by this before
    Pin {
        /// Flows, each in quotes: `'10.1.0.2:40000 10.2.0.2:5201 tcp'`; those that matter most
        /// first
        #[arg(value_name = "FLOW")]
        flows: Vec<String>,
        /// Pin no flow by this any more
        #[arg(long, conflicts_with = "flows")]
        none: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// What of the section `[cfs]` changes while switches measure: shows it, or changes fields
    Config {
        /// `entries=8192`, `alpha=auto`, `pin=victims,heavy`; all others stay
        #[arg(value_name = "FIELD=VALUE", value_parser = change)]
        changes: Vec<(String, Value)>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Where nothing goes on, and which flows lost packets between which switches
    Losses {
        #[command(flatten)]
        windows: Windows,
    },
}

#[derive(Args, Clone, Copy)]
pub(crate) struct Windows {
    /// How many windows, ending with the newest [default: 1 of `top` and `spreaders`, else 20]
    #[arg(long, short = 'n')]
    last: Option<usize>,
    /// Go on with every window to come, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// One JSON object a window and line instead of tables
    #[arg(long)]
    json: bool,
}

/// Shows what is asked for.
pub(crate) fn show(client: &Client, ask: Ask) -> anyhow::Result<()> {
    match ask {
        Ask::Top { limit, windows } => {
            let path = format!("/api/v1/cfs/flows?limit={limit}");
            each(client, &path, (windows, 1), |it: &FlowsInWindow| it.window, top)
        }
        Ask::Flow { flow, windows } => {
            let wanted = flow::parse(&flow.join(" ")).map_err(anyhow::Error::msg)?;
            let Flow { src, dst, sport, dport, proto } = wanted;
            let of = format!("src={src}&dst={dst}&sport={sport}&dport={dport}&proto={proto}");
            if !windows.json {
                writeln!(stdout(), "{wanted}\n{HOPS}")?;
            }
            let path = format!("/api/v1/cfs/flows?{of}");
            each(client, &path, (windows, 20), |it: &FlowsInWindow| it.window, hops)
        }
        Ask::Spreaders { windows } => {
            let path = "/api/v1/cfs/superspreaders?";
            each(client, path, (windows, 1), |it: &SpreadsInWindow| it.window, spreads)
        }
        Ask::Pin { flows, none, json } => {
            let flows: Result<Vec<Flow>, _> = flows.iter().map(|flow| flow::parse(flow)).collect();
            let wanted = PinsWanted { flows: flows.map_err(anyhow::Error::msg)? };
            let path = "/api/v1/cfs/pins";
            let pinned: PinnedFlows = if none || !wanted.flows.is_empty() {
                client.post_json(path, &serde_json::to_vec(&wanted)?)?
            } else {
                client.get(path)?
            };
            let text = if json { serde_json::to_string(&pinned)? + "\n" } else { pins(&pinned) };
            Ok(write!(stdout(), "{text}")?)
        }
        Ask::Config { changes, json } => {
            let path = "/api/v1/cfs/config";
            let found: CfsConfig = if changes.is_empty() {
                client.get(path)?
            } else {
                let changes: Map<String, Value> = changes.into_iter().collect();
                client.post_json(path, &serde_json::to_vec(&changes)?)?
            };
            let text = if json { serde_json::to_string(&found)? + "\n" } else { config(&found)? };
            Ok(write!(stdout(), "{text}")?)
        }
        Ask::Loops { windows } => {
            let path = "/api/v1/cfs/loops?";
            each(client, path, (windows, 20), |it: &LoopsInWindow| it.window, loops)
        }
        Ask::Losses { windows } => {
            let path = "/api/v1/cfs/losses?";
            each(client, path, (windows, 20), |it: &LossesInWindow| it.window, losses)
        }
    }
}

/// Writes what there is of each window, as JSON or in words.
fn each<T: DeserializeOwned + Serialize>(
    client: &Client,
    path: &str,
    (windows, default): (Windows, usize),
    number: fn(&T) -> u64,
    text: fn(&T) -> String,
) -> anyhow::Result<()> {
    let mut known = None;
    let mut last = windows.last.unwrap_or(default);
    loop {
        let found: Vec<T> = client.get(&format!("{path}&last={last}"))?;
        let numbers: Vec<u64> = found.iter().map(number).collect();
        for window in &found[unknown_from(&numbers, known)..] {
            known = Some(number(window));
            if windows.json {
                writeln!(stdout(), "{}", serde_json::to_string(window)?)?;
            } else {
                write!(stdout(), "{}", text(window))?;
            }
        }
        if !windows.follow {
            return Ok(());
        }
        last = AGAIN;
        std::thread::sleep(POLL);
    }
}

/// A count, as far as it is known.
fn count(packets: u64, exact: bool) -> String {
    if exact { packets.to_string() } else { format!(">={packets}") }
}

fn whole(complete: bool) -> &'static str {
    if complete { "complete" } else { "incomplete" }
}

fn pins(of: &PinnedFlows) -> String {
    let PinnedFlows { most, wanted, sent, without } = of;
    let mut text = format!(
        "{} flows pinned by an operator, {} sent to switches, of at most {most}\n",
        wanted.len(),
        sent.len()
    );
    for flow in wanted {
        let _ = writeln!(text, "  {flow}");
    }
    for flow in sent.iter().filter(|flow| !wanted.contains(flow)) {
        // What was asked for before is sent for as long as a switch has not followed.
        let _ = writeln!(text, "  {flow}  not by an operator, or not any more");
    }
    for node in without {
        let _ = writeln!(text, "  {node} can't pin flows: update it");
    }
    text
}

/// A field that is to be otherwise.
fn change(text: &str) -> Result<(String, Value), String> {
    let (field, value) = text.split_once('=').ok_or("must be FIELD=VALUE, as entries=8192")?;
    let value = match field {
        "pin" => value.split(',').filter(|kind| !kind.is_empty()).collect(),
        _ => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
    };
    Ok((field.to_owned(), value))
}

/// A row for every field, and what switches were sent of it where they measure by it.
fn config(of: &CfsConfig) -> anyhow::Result<String> {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            if all.is_empty() { "none".to_owned() } else { all.join(",") }
        }
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let all = serde_json::to_value(of)?;
    let mut text = format!("{:<22} {:>16} {:>10}\n", "field", "wanted", "sent");
    for (field, wanted) in all.as_object().into_iter().flatten() {
        if matches!(field.as_str(), "sent" | "without") {
            continue;
        }
        let sent = all["sent"].get(field).map_or(String::new(), plain);
        let row = format!("{field:<22} {:>16} {sent:>10}", plain(wanted));
        let _ = writeln!(text, "{}", row.trim_end());
    }
    for node in &of.without {
        let _ = writeln!(text, "{node} can't follow: update it");
    }
    Ok(text)
}

fn top(of: &FlowsInWindow) -> String {
    let FlowsInWindow { window, monitored, .. } = of;
    let mut text = format!("window {window}, {}: {monitored} flows counted", whole(of.complete));
    if let (Some(share), Some(low), Some(high)) = (of.coverage, of.coverage_low, of.coverage_high) {
        let [share, low, high] = [share, low, high].map(|of| 100.0 * of);
        let _ = write!(text, ", {share:.1} % of all ({low:.1} to {high:.1})");
    }
    if let (Some(share), Some(low), Some(high)) = (of.optimum, of.optimum_low, of.optimum_high) {
        let [share, low, high] = [share, low, high].map(|of| 100.0 * of);
        let _ = write!(text, "; tables have room for {share:.1} % ({low:.1} to {high:.1})");
    }
    let _ = writeln!(text, "\n{:>12} {:>14} {:>8} {:>5}  flow", "packets", "bytes", "at", "hops");
    for FlowCount { flow, packets, bytes, exact, at, hops, .. } in &of.flows {
        let [packets, bytes] = [packets, bytes].map(|number| count(*number, *exact));
        let _ = writeln!(text, "{packets:>12} {bytes:>14} {at:>8} {:>5}  {flow}", hops.len());
    }
    text
}

const HOPS: &str = "      window     node  hop      packets          bytes  counted by";

fn hops(of: &FlowsInWindow) -> String {
    let mut text = String::new();
    for HopCount { node, hop, packets, bytes, exact, from, .. } in
        of.flows.iter().flat_map(|flow| &flow.hops)
    {
        let hop = hop.map_or("?".to_owned(), |hop| hop.to_string());
        let [packets, bytes] = [packets, bytes].map(|number| count(*number, *exact));
        let from = format!("{from:?}").to_lowercase();
        let window = of.window;
        let _ = writeln!(text, "{window:>12} {node:>8} {hop:>4} {packets:>12} {bytes:>14}  {from}");
    }
    if text.is_empty() {
        let why = match (of.listed < of.monitored, of.complete && of.coverage_low == Some(1.0)) {
            (true, _) => "not among the flows that are listed",
            (false, true) => "no measured packet",
            (false, false) => "not counted",
        };
        let _ = writeln!(text, "{:>12} {why}", of.window);
    }
    text
}

fn spreads(of: &SpreadsInWindow) -> String {
    let mut text = format!("window {}, {}\n", of.window, whole(of.complete));
    for (what, found, are_all, are_likely_all) in [
        (
            "sources of flows to many destinations",
            &of.superspreaders,
            of.superspreaders_complete,
            of.superspreaders_likely_complete,
        ),
        (
            "destinations of flows from many sources",
            &of.flooded,
            of.flooded_complete,
            of.flooded_likely_complete,
        ),
    ] {
        let others = match (are_all, are_likely_all) {
            (true, _) => "",
            (false, true) => "; others are not likely",
            (false, false) => "; whether there are others is not known",
        };
        let threshold = of.threshold;
        if found.is_empty() {
            let seen = if are_all { "" } else { " seen" };
            let _ = writeln!(text, "no {what}{seen} ({threshold} or more){others}");
            continue;
        }
        let _ = writeln!(text, "{what} ({threshold} or more){others}");
        let _ = writeln!(text, "{:>10} {:>10} {:>10}  address", "at least", "estimate", "at most");
        for Spread { address, low, estimate, high, certain, .. } in found {
            let number = |of: Option<f64>| of.map_or("?".to_owned(), |of| format!("{of:.0}"));
            // Bounds are no less certain when they are rounded.
            let (low, high) = (number(Some(low.floor())), number(high.map(f64::ceil)));
            let estimate = number(*estimate);
            let doubt = if *certain { "" } else { " (may be fewer)" };
            let _ = writeln!(text, "{low:>10} {estimate:>10} {high:>10}  {address}{doubt}");
        }
    }
    text
}

fn loops(of: &LoopsInWindow) -> String {
    let mut text = String::new();
    for Loop { flow, nodes, length, packets, certain, .. } in &of.loops {
        let (window, nodes) = (of.window, nodes.join(", "));
        let doubt = if *certain { "" } else { ", or a host sends so" };
        let packets = packets.map_or_else(String::new, |packets| format!("{packets} packets "));
        let _ = writeln!(
            text,
            "{window:>12} {flow}: {packets}round by {nodes}, {length} hops a turn{doubt}"
        );
    }
    if text.is_empty() {
        let doubt = match (of.complete, of.loops_watched) {
            (false, _) => " (incomplete)",
            (true, false) => ", and not every flow was watched",
            (true, true) => "",
        };
        let _ = writeln!(text, "{:>12} no loop seen{doubt}", of.window);
    }
    text
}

fn losses(of: &LossesInWindow) -> String {
    let (mut text, window) = (String::new(), of.window);
    for hole in &of.black_holes {
        let (from, to) = (&hole.place.from, hole.end());
        let BlackHole { flows, packets, .. } = hole;
        let _ = writeln!(
            text,
            "{window:>12} nothing goes on from {from} to {to}: {packets} packets, flows: {flows}"
        );
    }
    for loss in &of.losses {
        let (from, to) = (&loss.place.from, loss.end());
        let Loss { flow, lost, .. } = loss;
        let _ = writeln!(text, "{window:>12} {flow}: {lost} packets lost from {from} to {to}");
    }
    if text.is_empty() {
        let doubt = if of.complete { "" } else { " (incomplete)" };
        let _ = writeln!(text, "{window:>12} no loss of a flow that is counted exactly{doubt}");
    }
    if of.black_holes.is_empty() && !of.black_holes_known {
        let _ = writeln!(text, "{window:>12} where nothing goes on is not known");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn window(more: Value) -> Value {
        let mut window = json!({ "epoch": 20, "start_unix_ns": 0, "length_ms": 1000, "window": 1,
            "complete": true });
        window.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        window
    }

    fn flows(flows: &Value, monitored: u64) -> FlowsInWindow {
        let coverage = if monitored == 1 { 1.0 } else { 0.5 };
        let of = json!({ "flows": flows, "monitored": monitored, "coverage": coverage,
            "coverage_low": coverage, "coverage_high": 1.0, "listed": 1,
            "optimum": 0.75, "optimum_low": coverage, "optimum_high": 0.8 });
        serde_json::from_value(window(of)).unwrap()
    }

    fn flow() -> Value {
        let hop = |node: &str, hop: Option<u8>, packets: u64, exact: bool| {
            json!({ "node": node, "hop": hop, "packets": packets, "bytes": 100 * packets,
                "looped": 0, "exact": exact, "from": if hop.is_some() { "table" } else { "residual" } })
        };
        json!({ "src": "10.1.0.2", "dst": "10.2.0.2", "sport": 7, "dport": 53, "proto": 17,
            "packets": 10, "bytes": 1000, "exact": true, "at": "e1", "from": "table",
            "hops": [hop("e1", Some(0), 10, true), hop("e2", None, 8, false)] })
    }

    fn words(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn a_flow_has_a_row_for_every_hop_and_says_what_is_certain() {
        let flow = json!([flow()]);
        let text = top(&flows(&flow, 2));
        let lines = words(&text);
        assert!(text.starts_with("window 1, complete: 2 flows counted, 50.0 % of all (50.0 to "));
        assert!(lines[0].join(" ").ends_with("; tables have room for 75.0 % (50.0 to 80.0)"));
        assert_eq!(lines[2][..4], ["10", "1000", "e1", "2"]);
        let text = hops(&flows(&flow, 2));
        let lines = words(&text);
        assert_eq!(lines[0], ["1", "e1", "0", "10", "1000", "table"]);
        assert_eq!(lines[1], ["1", "e2", "?", ">=8", ">=800", "residual"]);
        assert_eq!(words(HOPS)[0].len() - 1, lines[0].len());
        let none = |monitored| hops(&flows(&json!([]), monitored)).trim().to_owned();
        assert_eq!(none(2), "1 not among the flows that are listed");
        assert_eq!(none(1), "1 no measured packet");
    }

    #[test]
    fn fields_are_changed_by_name_and_shown_beside_what_switches_were_sent() {
        let read = |text| change(text).unwrap().1;
        assert_eq!(read("entries=8192"), json!(8192));
        assert_eq!([read("alpha=auto"), read("alpha=0.8")], [json!("auto"), json!(0.8)]);
        assert_eq!(
            [read("pin=victims,heavy"), read("pin=")],
            [json!(["victims", "heavy"]), json!([])]
        );
        assert!(change("entries").unwrap_err().contains("FIELD=VALUE"));
        let of = json!({ "entries": 512, "alpha": null, "grade": "fold", "claim": false, "pins": 64,
            "pin": [], "flows_listed": 1000, "heavy_packets": 7, "heavy_change_packets": 8,
            "superspreader": 9, "coverage_wanted": 0.9, "without": ["e2"],
            "sent": { "entries": 1024, "alpha": null, "grade": "greedy", "claim": false } });
        let text = config(&serde_json::from_value(of).unwrap()).unwrap();
        let lines = words(&text);
        let row = |field: &str| lines.iter().find(|line| line[0] == field).unwrap().clone();
        assert_eq!(row("entries"), ["entries", "512", "1024"]);
        assert_eq!(row("grade"), ["grade", "fold", "greedy"]);
        assert_eq!(row("alpha"), ["alpha", "-", "-"]);
        assert_eq!(row("heavy_packets"), ["heavy_packets", "7"]);
        assert_eq!(row("pin"), ["pin", "none"]);
        assert!(text.ends_with("e2 can't follow: update it\n"), "{text}");
    }

    #[test]
    fn spreads_and_loops_are_shown_with_their_doubts() {
        let spread = json!({ "address": "10.1.0.2", "seen": 90, "estimate": 100.0, "low": 95.0,
            "high": null, "certain": false });
        let text = |complete: bool, likely: bool| {
            let of = json!({ "threshold": 100, "superspreaders": [spread], "flooded": [],
                "superspreaders_complete": false, "superspreaders_likely_complete": true,
                "flooded_complete": complete, "flooded_likely_complete": likely });
            spreads(&serde_json::from_value(window(of)).unwrap())
        };
        let none = "no destinations of flows from many sources";
        let all = text(true, true);
        assert_eq!(all.lines().last(), Some(&*format!("{none} (100 or more)")));
        assert_eq!(words(&all)[3][..4], ["95", "100", "?", "10.1.0.2"]);
        let of_sources =
            "sources of flows to many destinations (100 or more); others are not likely";
        assert_eq!(all.lines().nth(1), Some(of_sources));
        let others = "(100 or more); whether there are others is not known";
        assert_eq!(text(false, false).lines().last(), Some(&*format!("{none} seen {others}")));
        let found = json!({ "src": "10.1.0.2", "dst": "10.2.0.2", "sport": 7, "dport": 53,
            "proto": 17, "nodes": ["s1", "e1"], "length": 2, "ttls": [63, 61, 59], "packets": 3,
            "certain": true });
        let text = |loops: Value, watched: bool| {
            let of = json!({ "loops": loops, "loops_watched": watched, "path_changes": [] });
            super::loops(&serde_json::from_value(window(of)).unwrap())
        };
        let said = text(json!([found]), false);
        assert!(said.ends_with("udp: 3 packets round by s1, e1, 2 hops a turn\n"), "{said}");
        assert_eq!(text(json!([]), true).trim(), "1 no loop seen");
        let unwatched = "1 no loop seen, and not every flow was watched";
        assert_eq!(text(json!([]), false).trim(), unwatched);
    }

    #[test]
    fn black_holes_stand_before_the_flows_that_lost_packets() {
        let place = json!({ "from": "s1:in", "to": "e2:in" });
        let hole = json!({ "place": place, "flows": 3, "packets": 40 });
        let mut loss = json!({ "src": "10.1.0.2", "dst": "10.2.0.2", "sport": 7, "dport": 53,
            "proto": 17, "place": place, "lost": 9 });
        let text = |holes: Value, lost: Value| {
            let of = json!({ "black_holes": holes, "losses": lost, "black_holes_known": true });
            losses(&serde_json::from_value(window(of)).unwrap())
        };
        let said = text(json!([hole]), json!([loss.clone()]));
        let lines: Vec<_> = said.lines().map(str::trim).collect();
        assert_eq!(lines[0], "1 nothing goes on from s1:in to e2:in: 40 packets, flows: 3");
        assert!(lines[1].ends_with("udp: 9 packets lost from s1:in to e2:in"), "{said}");
        assert_eq!(
            text(json!([]), json!([])).trim(),
            "1 no loss of a flow that is counted exactly"
        );
        let unknown = json!({ "black_holes": [], "losses": [], "black_holes_known": false });
        let said = losses(&serde_json::from_value(window(unknown)).unwrap());
        assert!(said.ends_with(" 1 where nothing goes on is not known\n"), "{said}");
        // Nothing left, and the host may have moved.
        loss["place"]["to"] = json!("destination");
        loss["seen_behind"] = json!("e2");
        let said = text(json!([]), json!([loss]));
        assert!(said.ends_with("lost from s1:in to destination, last behind e2\n"), "{said}");
    }
}
