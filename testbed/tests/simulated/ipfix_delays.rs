//! Latencies of SketchINT as collectors that others wrote understand them: nfcapd and nfdump, which
//! know flow, packets and switch, and the dissector of Wireshark, which reads all elements by their
//! templates.

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::Path;
use std::time::Instant;

use calumma_analysis::{Flow, SystemReport};
use calumma_controller::ipfix::{Exporter, IpfixSection};
use calumma_sketch::KeyKind;
use calumma_sketchint_analysis::report::Found;
use calumma_testbed::simulate::{
    Detail, Met, Setup, Simulation, SwitchClock, SwitchQuality, Systems,
};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use calumma_testenv::{Nfcapd, has_program};
use serde_json::{Value, json};

use crate::ipfix::{dissect, dissected_flow, dumped_flow, messages_at, milliseconds};
use crate::simulation::setup;

const NODES: [&str; 4] = ["e1", "e2", "s1", "s2"];

/// What packets met in a window, by flow.
type Truth = BTreeMap<Flow, Met>;

/// Reports of a network with more flows than sinks have rows for, and what was true of each window.
fn windows() -> Vec<(SystemReport<Found>, Truth)> {
    let name = "leaf-spine:2x2 s1=software s2=software";
    let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
    let section = json!({ "window_epochs": 4, "flows_limit": 10_000, "row_sets": 16 });
    let systems = Systems {
        on: vec!["sketchint".to_owned()],
        sections: BTreeMap::from([("sketchint".to_owned(), section)]),
        ..Systems::default()
    };
    let quality = |latency_us, rate_pps| SwitchQuality { latency_us, rate_pps, mtu: 1500 };
    let switches = [(5.0, 2e6), (5.0, 2e6), (10.0, 1e5), (30.0, 3e4)];
    let switches = switches.map(|(latency_us, rate_pps)| quality(latency_us, rate_pps)).to_vec();
    let mut setup = Setup { systems, switches, ..setup(Detail::Packets { spread: 0.9 }, 5) };
    setup.layout.keys = KeyKind::Dual;
    let clocks = SwitchClock::draw(5, NODES.len(), 100.0, 5.0);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let of = |flows, packets| Traffic {
        flows,
        sizes: Sizes::Constant(packets),
        local_share: Some(0.1),
        ipv6: 0.3,
        churn: 0.3,
        ..Traffic::default()
    };
    simulation.set_traffic(vec![of(90, 5), of(40, 1)]).unwrap();
    for _ in 0..40 {
        simulation.run_epoch().unwrap();
    }
    simulation.finish().unwrap();
    let of_window = |of: calumma_testbed::simulate::SystemOutcome| {
        let report = of.report.as_type::<SystemReport<Found>>().unwrap().clone();
        let mut truth = Truth::new();
        for flow in of.truth.iter().flat_map(|epoch| &epoch.flows) {
            truth.entry(Flow::from(&flow.key)).or_default().add(&flow.met);
        }
        (report, truth)
    };
    simulation.take_reports().into_iter().map(of_window).collect()
}

/// Which record: the flow, when its window begins, and the place of the switch in the list; 0 for
/// all switches together.
type Which = (Flow, u64, usize);

/// What is in it: packets, sum, mean, and in microseconds the longest and the least where they are
/// there.
#[derive(Clone, Debug, PartialEq)]
struct Values {
    packets: u64,
    sum_us: u64,
    mean_us: u64,
    max_us: Option<u64>,
    min_us: Option<u64>,
}

impl Values {
    /// Whether these are the latencies, in nanoseconds; `known` as far as packets are known one by
    /// one.
    fn are_of(&self, packets: u64, sum_ns: u64, known: Option<&[u64]>) -> bool {
        let rounded = |ns: u64| (ns + 500) / 1000;
        let ends = [self.max_us, self.min_us];
        let was =
            known.map(|all| [all.iter().max(), all.iter().min()].map(|ns| rounded(*ns.unwrap())));
        let are_right = was
            .is_none_or(|was| ends.iter().zip(was).all(|(of, was)| of.is_none_or(|of| of == was)));
        let mean = sum_ns as f64 / packets as f64 / 1000.0;
        (self.packets, self.sum_us) == (packets, rounded(sum_ns))
            && (self.mean_us as f64 - mean).abs() <= 0.5
            && are_right
    }
}

#[test]
fn collectors_read_latencies_of_flows_whose_packets_all_say_them() {
    if !has_program("nfcapd", "nfdump") || !has_program("tshark", "tshark") {
        return;
    }
    let windows = windows();
    let folder = std::env::temp_dir().join(format!("calumma-ipfix-delays-{}", std::process::id()));
    let nfcapd = Nfcapd::start(&folder);
    let wiretap = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nodes = NODES.map(str::to_owned);
    let exporter = |port: u16, delays: bool| {
        let section = format!("collector = '127.0.0.1:{port}'\ndelays = {delays}");
        Exporter::start(&toml::from_str::<IpfixSection>(&section).unwrap(), &nodes).unwrap()
    };
    let mut to_nfcapd = exporter(nfcapd.port(), true);
    let mut to_wiretap = exporter(wiretap.local_addr().unwrap().port(), true);
    let mut silent = exporter(wiretap.local_addr().unwrap().port(), false);
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for (report, _) in &windows {
        let now = Instant::now();
        for exporter in [&mut to_nfcapd, &mut to_wiretap, &mut silent] {
            exporter.export_delays(report, 1_700_000_001, now).unwrap();
        }
        messages.extend(messages_at(&wiretap));
    }
    let dumped: Vec<Value> = serde_json::from_slice(&nfcapd.stop(0)).unwrap();
    let mut records: BTreeMap<Which, Values> = BTreeMap::new();
    dissect(&folder, &messages, "cflow.srcport", |record| {
        let (which, values) = dissected(record);
        assert_eq!(records.insert(which, values), None, "twice");
    });
    std::fs::remove_dir_all(&folder).unwrap();

    let in_nfdump: BTreeSet<(Which, u64)> = dumped.iter().map(of_nfdump).collect();
    let packets = records.iter().map(|(which, values)| (*which, values.packets));
    assert_eq!(in_nfdump, packets.collect(), "nfdump and Wireshark");
    let mut seen = Seen::default();
    for (report, truth) in &windows {
        seen.check(report, truth, &mut records);
    }
    assert_eq!(records.keys().next(), None, "more than reports have");
    let Seen { ways, hops, ranges, inexact } = seen;
    assert!(ways > 100 && hops > 300 && ranges > 50 && inexact > 20, "{seen:?}");
}

/// How many records there were, those with the least latency, and flows without any.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ways: usize,
    hops: usize,
    ranges: usize,
    inexact: usize,
}

impl Seen {
    /// Takes out the records of a window, which must be those of all flows whose packets say all,
    /// and as it was.
    fn check(
        &mut self,
        report: &SystemReport<Found>,
        truth: &Truth,
        records: &mut BTreeMap<Which, Values>,
    ) {
        let start_ms = report.head.start_unix_ns / 1_000_000;
        for of in &report.findings.flows {
            let met = &truth[&of.flow];
            let says_all = of.exact && met.with_int == met.packets && met.partial == 0;
            self.inexact += usize::from(!of.exact);
            for (&switch, latencies) in &met.latencies {
                let values = records.remove(&(of.flow, start_ms, switch + 1));
                assert!(values.is_some() || !says_all, "{} at {}", of.flow, NODES[switch]);
                let Some(values) = values else { continue };
                let all: Vec<u64> = latencies.iter().map(|&ns| ns.into()).collect();
                let is_right = values.are_of(all.len() as u64, all.iter().sum(), Some(&all));
                assert!(of.exact && is_right, "{values:?} of {all:?}, {of:?}");
                assert!(values.max_us.is_some());
                assert!(values.min_us.is_some() || all.len() > 2, "{values:?} of {all:?}");
                self.hops += 1;
                self.ranges += usize::from(values.min_us.is_some());
            }
            let values = records.remove(&(of.flow, start_ms, 0));
            assert_eq!(values.is_some(), says_all, "{of:?}");
            let Some(values) = values else { continue };
            let of_each = |at| met.latencies.values().map(move |all| u64::from(all[at]));
            let by_one_way = met.paths.len() == 1;
            let each = by_one_way.then(|| (0..met.packets as usize).map(|at| of_each(at).sum()));
            let each: Option<Vec<u64>> = each.map(Iterator::collect);
            let sum = met.latencies.values().flatten().map(|&ns| u64::from(ns)).sum();
            let is_right = values.are_of(met.packets, sum, each.as_deref());
            assert!(is_right, "{values:?} of {met:?}");
            self.ways += 1;
            self.ranges += usize::from(values.min_us.is_some());
        }
    }
}

fn of_nfdump(record: &Value) -> (Which, u64) {
    let number = |name: &str| record[name].as_u64();
    let start_ms = milliseconds(record["first"].as_str().unwrap());
    let place = number("observationPointID").unwrap_or(0) as usize;
    ((dumped_flow(record), start_ms, place), number("in_packets").unwrap())
}

/// Wireshark 4.0 has no names for the elements of RFC 9951 and shows their bytes, in the template's
/// order.
fn dissected(record: &Value) -> (Which, Values) {
    let number = |name: &str| record[format!("cflow.{name}")].as_str()?.parse::<u64>().ok();
    let start = record["cflow.timedelta_tree"]["cflow.abstimestart"].as_str().unwrap();
    let place = number("observation_point_id").unwrap_or(0) as usize;
    let which = (dissected_flow(record), milliseconds(start), place);
    let unnamed = record["cflow.enterprise_private_entry"].as_array().unwrap();
    let bytes = |text: &str| u64::from_str_radix(&text.replace(':', ""), 16).unwrap();
    let unnamed: Vec<u64> = unnamed.iter().map(|of| bytes(of.as_str().unwrap())).collect();
    let (&[sum_us, mean_us], rest) = unnamed.split_first_chunk().unwrap();
    let packets = number("packets").unwrap();
    let [max_us, min_us] = [0, 1].map(|at| rest.get(at).copied());
    (which, Values { packets, sum_us, mean_us, max_us, min_us })
}
