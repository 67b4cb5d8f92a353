//! A switch that begins anew sends packets on before it puts its hop into them again, and their
//! stacks look whole all the same. Where one did not deliver the window, no way is known to be
//! whole.

use std::sync::Arc;

use calumma_analysis::alert::{Fact, Reading, Rules};
use calumma_analysis::{Delivery, Node, NodeEnd};
use calumma_sketch::sketchint::Shape;
use calumma_sketchint_analysis::report::{Found, Packets};
use calumma_sketchint_analysis::{Delivered, Watch};
use calumma_wire::{Role, Side, SideKind};
use proptest::prelude::*;

use super::{Network, Packet, Says, layout, packets_of, play_window, traffic};

/// What comes of s1, which says nothing of how well it knows when packets arrived.
pub(crate) fn s1(network: &Network) -> Delivery<Delivered> {
    let node = Node { name: "s1".to_owned(), role: Role::Transit, id: 3 };
    let (side, body) = (SideKind::Transit, Vec::new());
    let passed = Side { side, body, packets: 0, ..network.sink(6, &[]) };
    let passed = network.windows.decode(&node, &passed).unwrap();
    let came = !network.misses_s1;
    let end = NodeEnd { late_packets: came.then_some(0), ..NodeEnd::default() };
    let sides = vec![(side, came.then_some(passed))];
    Delivery { node: Arc::new(node), sides, doubts: Vec::new(), end }
}

/// What switches behind the first one sent on without a word.
fn silent(packets: Vec<Packet>) -> Vec<Packet> {
    packets.into_iter().map(|packet| Packet { says: Says::FirstAlone, ..packet }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_bounds_hold_of_a_window_that_a_switch_did_not_deliver(
        traffic in (traffic(30), traffic(30)),
        (row_sets, lcores) in (prop::sample::select(vec![0_u32, 1, 64]), 1..3_usize),
        tofino: bool,
    ) {
        let (tower_words, pair_buckets) = (64, 64);
        let shape = Shape { tower_words, pair_buckets, row_sets, keys: 1024, ..Shape::default() };
        let mut network = Network::new(layout(shape), lcores);
        network.tofino = tofino && row_sets == 0;
        let mut before = None;
        let windows = traffic.0.into_iter().chain(traffic.1);
        for (mut window, misses_s1) in windows.zip([false, true, true, false]) {
            network.misses_s1 = misses_s1;
            if misses_s1 {
                let all = window.iter_mut().flatten();
                let silent = all.filter(|of| of.says == Says::First);
                silent.for_each(|of| of.says = Says::FirstAlone);
            }
            let (found, now) = play_window(&window, &mut network, before.as_ref())?;
            if misses_s1 {
                prop_assert!(found.path_changes.is_empty() && found.links.is_empty());
            }
            before = Some(now);
        }
    }
}

/// What is said of paths that change.
fn reading(rules: &mut Watch, network: &mut Network, packets: &[Packet]) -> (Found, Reading) {
    let report = network.report([packets, &[]]);
    let facts = rules.read(&report).unwrap();
    let of = facts.iter().find(|Fact { alert, .. }| *alert == "sketchint_path_changes").unwrap();
    (report.findings, of.reading)
}

#[test]
fn a_switch_that_sent_packets_on_without_a_word_changes_no_path() {
    let (mut network, mut rules) = (Network::new(layout(Shape::default()), 1), Watch::default());
    let found = |windows: &mut Network, rules: &mut Watch, silently: usize| {
        windows.misses_s1 = silently > 0;
        let packets = [silent(packets_of(1, 1, silently)), packets_of(1, 1, 50 - silently)];
        reading(rules, windows, &packets.concat())
    };
    assert_eq!(found(&mut network, &mut rules, 0).0.links.len(), 2);
    assert_eq!(found(&mut network, &mut rules, 0).1, Reading::Good);
    let (away, reading) = found(&mut network, &mut rules, 20);
    assert_eq!((reading, away.path_changes.len(), away.links.len()), (Reading::Unknown, 0, 0));
    let [flow] = &away.flows[..] else { panic!("{:?}", away.flows) };
    assert!(flow.exact && flow.packets.packets == Some(50));
    assert!(flow.paths.iter().all(|path| path.partial), "{:?}", flow.paths);
    let at = |name: &str| flow.hops.iter().find(|hop| hop.node == name).unwrap();
    assert_eq!(at("e1").packets.packets, Some(50));
    assert_eq!(at("e2").packets.packets, Some(50));
    assert_eq!(at("s1").packets, Packets { packets: None, at_least: 30, at_most: Some(50) });
    assert_eq!((flow.in_switches_us, flow.delays_at(at("s1"))), (None, None));
    // Nor is the next window compared with it.
    assert_eq!(found(&mut network, &mut rules, 0).1, Reading::Unknown);
    assert_eq!(found(&mut network, &mut rules, 0).1, Reading::Good);
}
