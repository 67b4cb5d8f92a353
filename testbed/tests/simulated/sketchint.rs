//! The scenarios of SketchINT hold, for a seed of their own each: every number that a report calls
//! exact, and every bound, is held against what each packet met on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs_analysis::Found as Counted;
use calumma_sketch::KeyKind;
use calumma_sketchint_analysis::report::Found;
use calumma_testbed::scenario::{Played, Scenario, play};
use calumma_testbed::simulate::{
    Detail, Met, Setup, Simulation, SwitchClock, SwitchQuality, Systems,
};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use serde_json::json;

use crate::simulation::setup;

/// Plays the scenario of this name, whose reports must all be right.
fn played(name: &str) -> Played {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/sketchint");
    let scenario = Scenario::load(&folder.join(name).with_extension("toml")).unwrap();
    let played = play(&scenario, |_, _| Ok(())).unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
    for verdict in &played.verdicts {
        assert!(verdict.holds, "{name}: {verdict:?}");
    }
    let of_system = || played.systems.iter().filter(|of| of.system == "sketchint");
    assert!(of_system().count() >= 4, "{name}");
    played
}

/// A test for each scenario, named as its file.
macro_rules! scenarios {
    ($($name:ident)*) => {
        const ALL: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            played(&stringify!($name).replace('_', "-"));
        })*
    };
}

scenarios! {
    dual_stack
    enable_disable
    fabric
    freeze
    host_sink
    loss_and_place
    mixed
    mtu
    overload
    path_change
    queues
    share
    signature
    sink_restart
    slow_link
    tofino
    udp_port
}

#[test]
fn every_scenario_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/sketchint");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name =
        |file: std::path::PathBuf| file.file_stem().unwrap().to_string_lossy().replace('-', "_");
    let mut names: Vec<String> = files.map(name).collect();
    names.sort();
    assert_eq!(names, ALL);
}

/// Packets between the edges have other ports and protocols than hosts sent: what measures them
/// there goes by what was sent.
#[test]
fn switches_in_between_count_the_flows_that_hosts_send() {
    let name = "leaf-spine:2x2 s1=software s2=software";
    let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
    let sections = [
        ("sketchint", json!({ "window_epochs": 4, "udp_port": 41_000 })),
        ("cfs", json!({ "window_epochs": 4, "flows_listed": 10_000 })),
    ];
    let systems = Systems {
        on: vec!["sketchint".to_owned(), "cfs".to_owned()],
        sections: sections.map(|(name, section)| (name.to_owned(), section)).into(),
        ..Systems::default()
    };
    let mut setup = Setup { systems, ..setup(Detail::Packets { spread: 0.9 }, 12) };
    setup.layout.keys = KeyKind::Dual;
    let clocks = SwitchClock::draw(12, 4, 100.0, 5.0);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let traffic = Traffic {
        flows: 100,
        sizes: Sizes::Constant(4),
        tcp: 0.3,
        sctp: 0.4,
        ipv6: 0.5,
        local_share: Some(0.0),
        ..Traffic::default()
    };
    simulation.set_traffic(vec![traffic]).unwrap();
    for _ in 0..32 {
        simulation.run_epoch().unwrap();
    }
    simulation.finish().unwrap();
    let (mut is_on, mut counted) = (false, BTreeMap::new());
    for of in simulation.take_reports() {
        if let Some(report) = of.report.as_type::<SystemReport<Found>>() {
            is_on |= report.findings.state == "on" && report.complete;
        }
        let Some(report) = of.report.as_type::<SystemReport<Counted>>() else { continue };
        let sent = of.truth.iter().flat_map(|epoch| &epoch.flows);
        let sent: BTreeSet<Flow> = sent.map(|flow| Flow::from(&flow.key)).collect();
        for count in report.findings.flows.iter().filter(|count| count.exact) {
            assert!(sent.contains(&count.flow), "nobody sent {}", count.flow);
            for hop in count.hops.iter().filter(|hop| hop.node.starts_with('s') && hop.exact) {
                assert_eq!(hop.packets, count.packets, "{}: {hop:?}", count.flow);
                *counted.entry((count.flow.proto, count.flow.src.is_ipv6())).or_insert(0) += 1;
            }
        }
    }
    assert!(is_on);
    let all = [6, 17, 132].map(|proto| [false, true].map(|ipv6| counted.get(&(proto, ipv6))));
    assert!(all.as_flattened().iter().all(|of| of > &Some(&20)), "{counted:?}");
}

/// Whatever packets a switch says a latency of, its own included as a sink, it says a queue of.
#[test]
fn sinks_say_how_long_their_own_queues_were() {
    let name = "leaf-spine:2x2 s1=software s2=software";
    let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
    let section = json!({ "window_epochs": 4, "instructions": ["node-id", "latency", "queue"] });
    let systems = Systems {
        on: vec!["sketchint".to_owned()],
        sections: BTreeMap::from([("sketchint".to_owned(), section)]),
        ..Systems::default()
    };
    let setup = Setup { systems, ..setup(Detail::Packets { spread: 0.9 }, 13) };
    let clocks = SwitchClock::draw(13, 4, 100.0, 5.0);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let slow = SwitchQuality { rate_pps: 20_000.0, ..SwitchQuality::default() };
    simulation.set_switches(vec![slow; 4]);
    let traffic = Traffic { flows: 200, sizes: Sizes::Constant(4), ..Traffic::default() };
    simulation.set_traffic(vec![traffic]).unwrap();
    for _ in 0..24 {
        simulation.run_epoch().unwrap();
    }
    simulation.finish().unwrap();
    let mut windows = 0;
    for of in simulation.take_reports() {
        let report = of.report.as_type::<SystemReport<Found>>().unwrap();
        if !report.complete || report.findings.state != "on" {
            continue;
        }
        windows += 1;
        assert_eq!(report.findings.nodes.len(), 4);
        for node in &report.findings.nodes {
            let queue = node.queue.as_ref().unwrap();
            assert_eq!(Some(queue.packets), node.packets, "{}", node.node);
            assert_eq!(queue.unit.as_deref(), Some("packets"));
            assert!(queue.max > 1 && queue.mean > 1.0 && !queue.at_least, "{queue:?}");
        }
    }
    assert!(windows > 1, "{windows}");
}

/// Of each large flow whose key a Tofino keeps it names a way that packets of it came by.
#[test]
fn a_tofino_names_a_way_of_each_large_flow() {
    const NAMES: [&str; 4] = ["e1", "e2", "s1", "s2"];
    let name = "leaf-spine:2x2 e2=tofino s1=software s2=software";
    let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
    let section = json!({ "window_epochs": 4, "flows_limit": 10_000, "layout": "tower",
        "heavy_packets": 6, "heavy_change_packets": 6 });
    let systems = Systems {
        on: vec!["sketchint".to_owned()],
        sections: BTreeMap::from([("sketchint".to_owned(), section)]),
        ..Systems::default()
    };
    let mut setup = Setup { systems, ..setup(Detail::Packets { spread: 0.9 }, 11) };
    setup.layout.keys = KeyKind::Dual;
    let clocks = SwitchClock::draw(11, NAMES.len(), 100.0, 5.0);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let traffic = Traffic {
        flows: 60,
        sizes: Sizes::Constant(4),
        local_share: Some(0.0),
        ..Traffic::default()
    };
    simulation.set_traffic(vec![traffic]).unwrap();
    for _ in 0..32 {
        simulation.run_epoch().unwrap();
    }
    simulation.finish().unwrap();
    let (mut whole, mut ways) = (0, 0);
    for of in simulation.take_reports() {
        let report = of.report.as_type::<SystemReport<Found>>().unwrap();
        let found = &report.findings;
        let mut truth: BTreeMap<Flow, Met> = BTreeMap::new();
        for flow in of.truth.iter().flat_map(|epoch| &epoch.flows) {
            truth.entry(Flow::from(&flow.key)).or_default().add(&flow.met);
        }
        if !report.complete || found.state != "on" {
            continue;
        }
        whole += 1;
        let of_tofino = found.flows.iter().filter(|flow| flow.sink == "e2");
        for flow in of_tofino.filter(|flow| flow.packets.at_least > 0) {
            // None where the packet that made it large met an inflated latency.
            let Some(path) = flow.paths.first() else { continue };
            assert!(
                flow.paths.len() == 1 && path.once && !path.partial && path.packets.is_none(),
                "{path:?}"
            );
            let switches = path.path.iter().map(|name| NAMES.iter().position(|of| of == name));
            let switches: Vec<usize> = switches.map(Option::unwrap).collect();
            let packets = truth[&flow.flow].paths.get(&switches);
            assert!(packets.is_some_and(|&packets| packets > 0), "{path:?}: {truth:?}");
            ways += 1;
        }
    }
    assert!(whole > 2 && ways > 20 * whole, "{whole} windows, {ways} ways");
}
