//! A mixed fabric: three software edges and a modelled Tofino with its control plane on two spines,
//! and a link of the Tofino's that loses and doubles packets, traffic in both directions.

use std::path::Path;

use calumma_testbed::scenario::Scenario;

use crate::machine::alone;
use crate::playing::Play;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/chamelemon/mixed.toml");

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn software_edges_and_a_hardware_edge_name_exactly_what_the_core_lost_and_doubled() {
    let _alone = alone();
    let scenario = Scenario::load(Path::new(SCENARIO)).expect("the scenario is there");
    // Packets lost in epochs whose reports are held to name them all, by where they came from.
    let mut lost = [0; 4];
    Play { scenario: &scenario, out: None }.run(|outcome, epoch| {
        for flow in outcome.truth.flows.iter().filter(|_| epoch.decoded) {
            let [.., edge, _] = flow.key.src().octets();
            lost[usize::from(edge)] += flow.lost;
        }
    });
    assert!(lost.iter().all(|&packets| packets > 20), "from every edge: {lost:?} packets");
}
