//! Flows that go round are reported long before their window is over.

use std::collections::BTreeMap;
use std::path::Path;

use calumma_analysis::Flow;
use calumma_cfs_analysis::LoopsNoticed;
use calumma_testbed::simulate::{Detail, Setup, Simulation, SwitchClock, Systems};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use serde_json::json;

use crate::simulation::setup;

/// Within so long after the third time to live, a loop is to be reported.
const WITHIN_NS: u64 = 200_000_000;

#[test]
fn loops_are_published_within_200_ms_whether_tables_have_the_flows_or_not() {
    published_in_time(concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring.toml"), 900);
}

/// Each of their notices is of one packet, and there is an end to how many are sent in an epoch.
#[test]
fn tofinos_publish_loops_as_well() {
    published_in_time(concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring-tofino.toml"), 450);
}

fn published_in_time(ring: &str, flows: u32) {
    let mut topology = Topology::load(ring, Path::new("."), LinkQuality::default()).unwrap();
    // Windows of a second.
    let section = json!({ "entries": 256, "window_epochs": 20 });
    let systems = Systems {
        on: vec!["cfs".to_owned()],
        sections: BTreeMap::from([("cfs".to_owned(), section)]),
        ..Systems::default()
    };
    let setup = Setup { systems, ..setup(Detail::Packets { spread: 0.9 }, 5) };
    let epoch_ns = setup.clock.length_ns();
    let clocks = SwitchClock::draw(5, 6, 500.0, 20.0);
    let mut simulation = Simulation::new(setup, topology.clone(), clocks).unwrap();
    let sizes = Sizes::Constant(2);
    simulation.set_traffic(vec![Traffic { flows, sizes, ..Traffic::default() }]).unwrap();
    // In the middle of a window.
    for _ in 0..26 {
        simulation.run_epoch().unwrap();
    }
    assert!(simulation.take_notices().is_empty(), "nothing goes round");

    for [node, via] in [["s1", "s3"], ["s3", "s1"]] {
        topology.set_route("e2", node, Some(via)).unwrap();
    }
    simulation.set_links(&topology).unwrap();
    let round: Vec<Flow> = simulation
        .flows()
        .iter()
        .filter(|flow| flow.way.as_ref().is_some_and(|way| way.goes_round()))
        .map(|flow| Flow::from(&flow.key))
        .collect();
    assert!(round.len() as u32 > flows / 5, "{}", round.len());
    for _ in 0..6 {
        simulation.run_epoch().unwrap();
    }
    let mut found: BTreeMap<Flow, u64> = BTreeMap::new();
    for (at_ns, published) in simulation.take_notices() {
        let noticed: &LoopsNoticed = published.report.as_type().expect("of cfs");
        for it in &noticed.loops {
            assert!(it.certain && it.length == 2, "{it:?}");
            assert!(["s1", "s3"].contains(&&*it.nodes[0]), "{it:?}");
            assert_eq!(found.insert(it.flow, at_ns), None, "twice");
        }
    }
    let mut named = 0;
    for flow in &round {
        let Some(at_ns) = found.remove(flow) else { continue };
        named += 1;
        // A flow's first packet goes round in the first epoch, and dies within a millisecond.
        let after_ns = at_ns - 26 * epoch_ns;
        assert!(after_ns < epoch_ns + WITHIN_NS, "{flow}: after {after_ns} ns");
    }
    assert!(found.is_empty(), "{found:?} go round, it is said");
    assert!(named * 100 >= round.len() * 99, "{named} of {}", round.len());
}
