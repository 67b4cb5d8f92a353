//! IPv4 and IPv6 in the same sketches: every task is answered for either, attention shifts, and
//! whoever looks reads IPv6 addresses as they are written.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use calumma_chamelemon::frames::Message;
use calumma_controller::EpochReport;
use calumma_controller::report::DecodeState;
use calumma_sketch::{WideKey, estimate};

use crate::browser::Browser;
use crate::stories::{Controller, Edge, PATIENT_BY_ONE_SECRET, lost};
use crate::world::{World, wide_flow};

fn controller() -> Controller {
    let tasks = "[tasks]\nheavy_hitter = 180\nheavy_change = 100";
    Controller::start(&format!("{PATIENT_BY_ONE_SECRET}\n[layout]\nkeys = 'dual'\n{tasks}"))
}

fn join(controller: &Controller) -> [Edge; 2] {
    ["e1", "e2"].map(|name| Edge::join(controller, name))
}

/// Flow 7 of these, an IPv6 one, as people and as programs write it.
const FLOW: [&str; 3] = ["[2001:db8:0:1::2]:7", "[2001:db8:0:2::]:5201", "tcp"];
const QUERY: &str = "src=2001:db8:0:1::2&dst=2001:db8:0:2::&sport=7&dport=5201&proto=6";

/// 200 flows, half of them IPv6, of which every seventh loses its second packet, and one of IPv6
/// that sends `grown` packets.
fn traffic(world: &mut World<WideKey>, grown: u64) {
    for n in 0..200 {
        world.send((0, 1), wide_flow(n), 3 + u64::from(n), |at| n % 7 == 0 && at == 1);
        world.send((1, 0), wide_flow(1000 + n), 2, |_| false);
    }
    world.send((0, 1), wide_flow(5001), grown, |_| false);
}

fn deliver(
    controller: &Controller,
    edges: &mut [Edge; 2],
    epoch: u64,
    grown: u64,
) -> (World<WideKey>, EpochReport) {
    let mut world = edges[0].wide_world(epoch);
    traffic(&mut world, grown);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(report.complete, "{:?}", report.incomplete_because);
    (world, report)
}

#[test]
fn every_task_is_answered_for_both_families() {
    let controller = controller();
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 2;
    deliver(&controller, &mut edges, first, 150);
    let (world, report) = deliver(&controller, &mut edges, first + 1, 300);

    // Loss detection.
    let named = lost::<WideKey>(&report);
    assert_eq!((report.decode.hl, &named), (DecodeState::Complete, &world.lost));
    let ipv6 = named.keys().filter(|flow| flow.src().to_ipv4_mapped().is_none()).count();
    assert_eq!((named.len(), ipv6), (29, 14));
    // The six accumulation tasks.
    for (edge, sent) in report.edges.iter().zip(&world.sent) {
        let hitters: BTreeMap<WideKey, u64> =
            edge.heavy_hitters.iter().map(|at| (at.flow.key().unwrap(), at.size)).collect();
        let large = sent.iter().filter(|(_, packets)| **packets > 180);
        assert_eq!(hitters, large.map(|(flow, packets)| (*flow, *packets)).collect());
        assert_eq!(
            (edge.cardinality, edge.cardinality_error),
            (Some(sent.len() as f64), Some(0.0))
        );
        let mut sizes: BTreeMap<u64, f64> = BTreeMap::new();
        sent.values().for_each(|&packets| *sizes.entry(packets).or_default() += 1.0);
        let sizes: Vec<(u64, f64)> = sizes.into_iter().collect();
        assert_eq!(edge.size_distribution, sizes);
        assert!((edge.entropy.unwrap() - estimate::entropy(&sizes)).abs() < 1e-3);
    }
    let changes = &report.edges[0].heavy_changes;
    let changes: Vec<_> =
        changes.iter().map(|at| (at.flow.key::<WideKey>().unwrap(), at.before, at.after)).collect();
    assert_eq!(changes, [(wide_flow(5001), 150, 300)]);
    let sizes = controller.get(&format!("/api/v1/flows?{QUERY}"));
    assert_eq!((&sizes[0]["edge"], &sizes[0]["size"]), (&"e1".into(), &10.into()));
    assert_eq!(sizes[0]["exact"], true);
}

#[test]
fn attention_shifts_to_victims_of_both_families() {
    let controller = controller();
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 4;
    let mut measure = |epoch| {
        let mut world = edges[0].wide_world(epoch);
        for n in 0..1200 {
            world.send((0, 1), wide_flow(n), 3, |position| position == 1);
        }
        edges.iter_mut().enumerate().for_each(|(at, edge)| edge.deliver(&world, at));
        let report = controller.report(epoch);
        let plan = report.plan.clone().expect("a plan from every epoch");
        if plan.applied {
            for edge in &mut edges {
                let Some(Message::Reconfigure { attention, .. }) = edge.receive() else {
                    panic!("a reconfiguration")
                };
                edge.attention = attention;
            }
        }
        (world, report, plan)
    };
    let (_, _, plan) = measure(first);
    assert!(plan.applied && plan.config.hl_buckets > 512, "{plan:?}");
    assert!(plan.reasons[0].contains("expanded from 512"), "{plan:?}");
    let (world, report, settled) = measure(first + 1);
    assert_eq!(lost::<WideKey>(&report), world.lost);
    assert_eq!((settled.config, settled.applied), (plan.config, false));
}

#[test]
fn a_flow_is_asked_for_in_a_terminal_as_ipv6_is_written() {
    let controller = controller();
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 1;
    deliver(&controller, &mut edges, first, 150);
    let address = controller.running.http().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_calumma"));
    let output = command.args(["--controller", &address, "flow"]).args(FLOW).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("{} > {} {}", FLOW[0], FLOW[1], FLOW[2]));
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(words[1..], ["1", "HL", "10", "at", "e1"], "{text}");
}

#[test]
fn the_page_shows_ipv6_flows_also_where_it_is_narrow() {
    let Some(browser) = Browser::start() else { return };
    let controller = controller();
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 1;
    let (_, report) = deliver(&controller, &mut edges, first, 150);
    let url = format!("http://{}/", controller.running.http().unwrap());
    for (width, height) in [(1440, 2000), (390, 4600)] {
        browser.look(width, height, "light");
        browser.open(&url);
        browser.wait(&format!("document.body.dataset.epoch === '{first}'"));
        browser.wait("document.querySelectorAll('#victims tbody tr').length === 29");
        let shown: Vec<String> =
            browser.table("#victims").into_iter().map(|mut row| row.swap_remove(0)).collect();
        let mut wanted: Vec<String> =
            report.loss.iter().map(|loss| loss.flow.to_string().replace(" > ", " → ")).collect();
        assert!(wanted.contains(&format!("{} → {} {}", FLOW[0], FLOW[1], FLOW[2])));
        // All have lost one packet: in no order but that of flows.
        let mut sorted = shown.clone();
        sorted.sort();
        wanted.sort();
        assert_eq!(sorted, wanted);

        // Nothing has to be scrolled sideways, neither the page nor its tables.
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
        for panel in ["#victims", "#hitters", "#heavy-changes"] {
            let narrow = format!(
                "[...document.querySelectorAll('{panel} .scroll')].every((at) => at.scrollWidth <= at.clientWidth)"
            );
            assert_eq!(browser.value(&narrow), true, "{panel} at {width}");
        }
        let picture = format!("dual-stack-{width}.png");
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture));

        let at = shown.iter().position(|flow| flow.starts_with(FLOW[0])).unwrap();
        browser.value(&format!("document.querySelectorAll('#victims button.flow')[{at}].click()"));
        browser.wait("document.querySelectorAll('#flow tbody tr').length === 1");
        let row = browser.table("#flow").remove(0);
        assert_eq!((row[2].as_str(), row[3].as_str()), ("10 at e1", "1"));
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
    }
    assert_eq!(browser.complaints(), serde_json::json!([]));
}
