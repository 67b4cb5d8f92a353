//! What the nodes count along a flow's way, and where packets were lost in between.

use std::collections::BTreeMap;
use std::path::Path;

use calumma_analysis::Flow;
use calumma_controller::report::DecodeState;
use calumma_sketch::KeyKind;
use calumma_testbed::simulate::{
    Detail, EpochTruth, FlowTruth, Outcome, Simulation, SwitchClock, SystemOutcome,
};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};

use crate::{Counts, count, counts, passed, report, segments, setup};

const EPOCHS: u64 = 4;

struct Played {
    topology: Topology,
    of_chamelemon: Vec<Outcome>,
    of_hops: Vec<SystemOutcome>,
}

/// Some epochs of victim flows and lossy links.
fn played(topology: &str, quality: LinkQuality, detail: Detail, ipv6: f64, seed: u64) -> Played {
    let topology = Topology::load(topology, Path::new("."), quality).unwrap();
    let nodes = topology.edges().len() + topology.transits().count();
    let clocks = SwitchClock::draw(seed, nodes, 400.0, 20.0);
    let keys = if ipv6 > 0.0 { KeyKind::Dual } else { KeyKind::Ipv4 };
    let mut simulation =
        Simulation::new(setup(detail, keys, seed), topology.clone(), clocks).unwrap();
    let traffic = Traffic {
        flows: 150,
        victims: 0.2,
        churn: 0.1,
        tcp: 0.5,
        ipv6,
        sizes: Sizes::Hadoop,
        ..Traffic::default()
    };
    simulation.set_traffic(vec![traffic]).unwrap();
    let mut of_chamelemon = Vec::new();
    for _ in 0..EPOCHS {
        of_chamelemon.extend(simulation.run_epoch().unwrap());
    }
    of_chamelemon.extend(simulation.finish().unwrap());
    let mut of_hops = simulation.take_reports();
    of_hops.retain(|outcome| outcome.epoch < EPOCHS);
    let epochs: Vec<u64> = of_hops.iter().map(|outcome| outcome.epoch).collect();
    assert_eq!(epochs, (0..EPOCHS).collect::<Vec<_>>());
    assert_eq!(of_chamelemon.len(), EPOCHS as usize);
    Played { topology, of_chamelemon, of_hops }
}

fn lossy() -> LinkQuality {
    LinkQuality { jitter_us: 200.0, loss: 0.01, ..LinkQuality::default() }
}

const PACKETS: Detail = Detail::Packets { spread: 0.7 };

/// Nodes whose neighbours on a flow's way are nodes as well, and the same with a router that
/// measures nothing in between.
const TOPOLOGIES: [&str; 5] = [
    "pair core=software",
    "leaf-spine:3x2 s1=software s2=tofino",
    "leaf-spine:3x2 s1=software s2=software",
    "leaf-spine:3x2 s1=software",
    "fat-tree:4x2 a1=software a2=software a3=software a4=software c1=software c3=software",
];

#[test]
fn every_node_counts_what_reached_it_of_every_flow() {
    for (at, topology) in TOPOLOGIES.into_iter().enumerate() {
        // A Tofino tells no flows of IPv6 apart.
        let some = if topology.contains("tofino") { 0.0 } else { 0.3 };
        for (detail, ipv6) in [(Detail::Runs, 0.0), (PACKETS, some)] {
            let quality = LinkQuality { duplicate: if at == 0 { 0.02 } else { 0.0 }, ..lossy() };
            let Played { topology, of_hops, .. } =
                played(topology, quality, detail, ipv6, at as u64);
            for outcome in &of_hops {
                assert!(report(outcome).complete, "{:?}", report(outcome).incomplete_because);
                assert_eq!(counts(outcome), passed(&topology, &outcome.truth));
            }
        }
    }
}

/// A point of a flow's way at which it is counted.
struct Counted {
    node: String,
    side: &'static str,
    /// Whether what the node's transmit queues refused did not get there.
    sent: bool,
    /// The number of segments before it.
    segments: usize,
}

impl Counted {
    /// Those of a flow's way.
    fn on_way_of(topology: &Topology, flow: &FlowTruth) -> Vec<Self> {
        let transits: Vec<usize> = topology.transits().collect();
        let Some(way) = &flow.way else { return Vec::new() };
        let at = |switch: usize, side, sent, segments| {
            let node = topology.names()[switch].clone();
            Self { node, side, sent, segments }
        };
        let mut points = vec![at(flow.edge as usize, "ingress", false, 0)];
        for (hop, switch) in way.switches().enumerate() {
            if transits.contains(&switch) {
                // Before it there are the insides of so many switches, and the links between.
                points.push(at(switch, "transit", false, 2 * hop));
                points.push(at(switch, "transit", true, 2 * hop + 1));
            }
        }
        points.push(at(way.switch(way.hops().len()), "egress", false, way.segments()));
        points
    }

    /// Packets of a flow that got there.
    fn packets(&self, counts: &Counts, flow: Flow) -> u64 {
        let place = (self.node.clone(), self.side.to_owned(), flow);
        let [received, refused] = counts.get(&place).copied().unwrap_or_default();
        if self.sent { received - refused } else { received }
    }
}

/// Losses by flow and stretch of its way: the number of the first segment, and that of the first
/// one after.
type Stretches = BTreeMap<(Flow, usize, usize), u64>;

/// What is missing from one point to the next.
fn missing(topology: &Topology, truth: &EpochTruth, counts: &Counts) -> Stretches {
    let mut missing = Stretches::new();
    for flow in &truth.flows {
        let key = Flow::from(&flow.key);
        for pair in Counted::on_way_of(topology, flow).windows(2) {
            let lost = pair[0].packets(counts, key) - pair[1].packets(counts, key);
            if lost > 0 {
                missing.insert((key, pair[0].segments, pair[1].segments), lost);
            }
        }
    }
    missing
}

/// What the simulation lost from one point to the next.
fn lost(topology: &Topology, truth: &EpochTruth) -> Stretches {
    let mut lost = Stretches::new();
    for flow in &truth.flows {
        let on_way: Vec<_> = segments(flow).collect();
        for pair in Counted::on_way_of(topology, flow).windows(2) {
            let [from, to] = [pair[0].segments, pair[1].segments];
            let stretch = on_way[from..to].iter();
            let packets: u32 = stretch.map(|&segment| count(&flow.losses, segment)).sum();
            if packets > 0 {
                let place = (Flow::from(&flow.key), from, to);
                *lost.entry(place).or_default() += u64::from(packets);
            }
        }
    }
    lost
}

#[test]
fn what_is_missing_between_two_points_was_lost_between_them() {
    for (at, topology) in TOPOLOGIES.into_iter().enumerate() {
        for detail in [Detail::Runs, PACKETS] {
            let seed = 10 + at as u64;
            let Played { topology, of_chamelemon, of_hops } =
                played(topology, lossy(), detail, 0.0, seed);
            let mut stretches = 0;
            for (outcome, of_chamelemon) in of_hops.iter().zip(&of_chamelemon) {
                let (counts, truth) = (counts(outcome), &outcome.truth[0]);
                let missing = missing(&topology, truth, &counts);
                assert_eq!(missing, lost(&topology, truth));
                stretches += missing.len();

                // From end to end it is what ChameleMon says.
                let Outcome { report, truth, .. } = of_chamelemon;
                assert_eq!(truth.contradicts(report), None);
                assert_eq!(report.decode.hl, DecodeState::Complete);
                let mut from_end_to_end: BTreeMap<Flow, u64> = BTreeMap::new();
                for ((flow, _, _), lost) in missing {
                    *from_end_to_end.entry(flow).or_default() += lost;
                }
                let losses = report.loss.iter().map(|loss| (loss.flow, loss.lost));
                assert_eq!(losses.collect::<BTreeMap<_, _>>(), from_end_to_end);
            }
            assert!(stretches > 30, "{stretches} stretches that lost packets");
        }
    }
}
