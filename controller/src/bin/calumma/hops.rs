//! A flow's path, and what it met at each switch.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::time::Duration;

use calumma_controller::report::Flow;
use calumma_sketchint_analysis::FlowInWindow;
use calumma_sketchint_analysis::report::{Estimated, FlowReport, Packets, PathReport};

use crate::Window;
use crate::client::{Client, unknown_from};

/// How often a new window is asked for.
const POLL: Duration = Duration::from_millis(500);

/// Shows by which switches a flow went in the latest windows, and in those to come where that is
/// wanted.
pub(crate) fn show(client: &Client, flow: &Flow, window: Window) -> anyhow::Result<()> {
    let Flow { src, dst, sport, dport, proto } = flow;
    let query = format!("src={src}&dst={dst}&sport={sport}&dport={dport}&proto={proto}");
    if !window.json {
        writeln!(stdout(), "{flow}")?;
    }
    let mut known = None;
    loop {
        let path = format!("/api/v1/sketchint/flows?{query}&last={}", window.last);
        let windows: Vec<FlowInWindow> = client.get(&path)?;
        let numbers: Vec<u64> = windows.iter().map(|of| of.head.epoch).collect();
        for of in &windows[unknown_from(&numbers, known)..] {
            let text = if window.json { serde_json::to_string(of)? + "\n" } else { lines(of) };
            write!(stdout(), "{text}")?;
        }
        known = numbers.last().copied().or(known);
        if !window.follow {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

fn lines(of: &FlowInWindow) -> String {
    let [first, last] = of.window;
    let whole = if of.complete { "complete" } else { "incomplete" };
    let mut text = format!("epochs {first} to {last}, {whole}, INT {}", of.state);
    if of.flows.is_empty() {
        text += if of.complete { ": no packet" } else { ": no packet at any sink that delivered" };
    }
    text.push('\n');
    for FlowReport { sink, packets, int_packets, paths, hops, .. } in &of.flows {
        let with_int = int_packets.map_or("?".to_owned(), |packets| packets.to_string());
        let _ = writeln!(text, "  at {sink}: {} packets, {with_int} with INT", count(packets));
        for PathReport { path, partial, packets, at_least, .. } in paths {
            let packets = packets.map_or(format!(">={at_least}"), |packets| packets.to_string());
            let partial = if *partial { ", and maybe more switches" } else { "" };
            let _ = writeln!(text, "  {packets:>12}  {}{partial}", path.join(" > "));
        }
        if !hops.is_empty() {
            let _ = writeln!(
                text,
                "  {:>12} {:>15} {:>21} {:>21} {:>10} {:>9}",
                "switch", "packets", "mean us", "99th percentile us", "longest us", "inflated"
            );
        }
        for hop in hops {
            let or = |number: Option<String>| number.unwrap_or_else(|| "?".to_owned());
            let longest = or(hop.max_us.map(|us| format!("{us:.1}")));
            let inflated = or(hop.inflated.map(|times| times.to_string()));
            let packets = hop.estimate.map_or_else(|| count(&hop.packets), |of| likely(&of));
            let (packets, mean) =
                (packets, latency(hop.mean_us, (hop.mean_min_us, hop.mean_max_us)));
            let p99 = latency(hop.p99_us, (hop.p99_min_us, hop.p99_max_us));
            let node = &hop.node;
            let _ = writeln!(
                text,
                "  {node:>12} {packets:>15} {mean:>21} {p99:>21} {longest:>10} {inflated:>9}"
            );
        }
    }
    text
}

/// A number of packets with its bounds.
fn count(of: &Packets) -> String {
    match (of.packets, of.at_most) {
        (Some(packets), _) => packets.to_string(),
        (None, Some(most)) => format!("{}..{most}", of.at_least),
        (None, None) => format!(">={}", of.at_least),
    }
}

/// An estimate with the bounds that it has 95 times out of 100.
fn likely(of: &Estimated) -> String {
    format!("~{:.0} {}..{}", of.packets, of.at_least, of.at_most)
}

/// A latency, between its bounds where these differ.
fn latency(number: Option<f64>, bounds: (Option<f64>, Option<f64>)) -> String {
    match (number, bounds) {
        (_, (Some(least), Some(most))) if least < most => format!("{least:.1}..{most:.1}"),
        (Some(number), _) => format!("{number:.1}"),
        (None, (Some(least), _)) => format!("{least:.1}"),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flow_has_its_paths_and_hops_with_what_is_not_known_of_them() {
        let hop = |node: &str, mean: Option<f64>, bounds: (f64, f64)| {
            json!({ "node": node, "packets": mean.map(|_| 8), "at_least": 8,
                "at_most": if mean.is_some() { 8 } else { 11 }, "mean_us": mean,
                "mean_min_us": bounds.0, "mean_max_us": bounds.1, "max_us": mean, "inflated": null,
                "p50_us": mean, "p50_min_us": mean, "p50_max_us": mean,
                "p99_us": mean.map(|_| 2.0), "p99_min_us": mean.map(|_| 1.5),
                "p99_max_us": mean.map(|_| 2.5) })
        };
        let flow = json!({ "src": "10.1.0.2", "dst": "10.2.0.2", "sport": 7, "dport": 53,
            "proto": 17, "sink": "e2", "packets": null, "at_least": 8, "at_most": 11,
            "int_packets": null, "exact": false,
            "paths": [{ "path": ["e1", "s1", "e2"], "partial": false, "packets": null,
                "at_least": 8 }],
            "hops": [hop("e1", Some(2.5), (2.5, 2.5)), hop("s1", None, (1.0, 90.0))] });
        let mut estimated = flow.clone();
        estimated["hops"][1]["estimate"] = json!({ "packets": 9.4, "standard_error": 1.0,
            "at_least": 9, "at_most": 11, "confidence": 0.95 });
        let window = |flows: serde_json::Value, complete: bool| {
            let of = json!({ "epoch": 20, "start_unix_ns": 0, "length_ms": 1000, "window": [20, 39],
                "state": "on", "complete": complete, "flows": flows });
            lines(&serde_json::from_value(of).unwrap())
        };
        let text = window(json!([flow]), true);
        let words: Vec<Vec<&str>> =
            text.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(text.lines().next(), Some("epochs 20 to 39, complete, INT on"));
        assert_eq!(text.lines().nth(1), Some("  at e2: 8..11 packets, ? with INT"));
        assert_eq!(words[2], [">=8", "e1", ">", "s1", ">", "e2"]);
        assert_eq!(words[4], ["e1", "8", "2.5", "1.5..2.5", "2.5", "?"]);
        assert_eq!(words[5], ["s1", "8..11", "1.0..90.0", "?", "?", "?"]);
        let text = window(json!([estimated]), true);
        assert!(text.lines().nth(5).unwrap().contains(" ~9 9..11 "), "{text}");
        assert!(window(json!([]), true).ends_with(": no packet\n"));
        assert!(window(json!([]), false).ends_with(": no packet at any sink that delivered\n"));
    }
}
