//! What flow records may have of switches that a packet came by twice.

use calumma_sketch::sketchint::Shape;

use super::{Network, Packet, Says, layout};

/// The switches that had the only packet of a flow for a time that is known of all its visits, by
/// what it met on its way to e2.
fn known(path: usize, latencies: [u32; 3], says: Says) -> Vec<String> {
    let shape = Shape { tower_words: 512, row_sets: 64, ..Shape::default() };
    let mut network = Network::new(layout(shape), 1);
    let packet = Packet { flow: 1, path, latencies, own: 400, lcore: 0, says };
    let report = network.report([&[packet], &[]]);
    let [flow] = &report.findings.flows[..] else { panic!("{:?}", report.findings.flows) };
    assert!(flow.exact);
    let hops = flow.hops.iter().filter(|hop| flow.delays_at(hop).is_some());
    hops.map(|hop| hop.node.clone()).collect()
}

#[test]
fn a_switch_that_one_came_by_twice_has_no_delay_in_flow_records() {
    assert_eq!(known(1, [100, 200, 0], Says::All), ["e1", "s1", "e2"]);
    // By e1, s1 and e1 again; a latency of each visit, of one of both, or of none.
    for first in [100, u32::MAX] {
        for again in [300, u32::MAX] {
            assert_eq!(known(4, [first, 200, again], Says::All), ["s1", "e2"]);
        }
    }
    // By the sink itself, s1 and the sink again.
    for first in [100, u32::MAX] {
        assert_eq!(known(5, [first, 200, 0], Says::All), ["s1"]);
    }
    // A stack that lacks switches may lack another visit.
    assert_eq!(known(4, [100, 200, 300], Says::First), ["e2"]);
}
