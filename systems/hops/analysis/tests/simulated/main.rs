//! `hops` beside ChameleMon on whole simulated networks: with the switches' own conversation, and
//! held against what the simulation did to every packet.

mod rotation;
mod scenario;
mod segments;
mod switching;

use std::collections::{BTreeMap, BTreeSet};

use calumma_analysis::{Flow, SystemReport};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::Tasks;
use calumma_epoch::{EpochClock, Guards};
use calumma_hops_analysis::Found;
use calumma_hops_tofino::Hops as HopsOnTofino;
use calumma_plane::system::System;
use calumma_sketch::{HashKey, KeyKind, Level};
use calumma_switchd::chamelemon::ChameleMon as ChameleMonOnTofino;
use calumma_testbed::carrier::Carrier;
use calumma_testbed::simulate::{
    Detail, EpochTruth, FlowTruth, Lcores, Setup, SystemOutcome, Systems,
};
use calumma_testbed::topology::{Point, Segment, Topology};

static ON_SWITCHES: &[&dyn System] = &[&calumma_chamelemon::ChameleMon, &calumma_hops::Hops];
static IN_CONTROLLER: &[&dyn calumma_analysis::System] =
    &[&calumma_chamelemon_analysis::ChameleMon, &calumma_hops_analysis::Hops];

/// A small ChameleMon that encodes every packet, and tables with room for all flows.
fn setup(detail: Detail, keys: KeyKind, seed: u64) -> Setup {
    let layout = Layout {
        keys,
        upstream_buckets: 512,
        downstream_buckets: 512,
        classifier: vec![Level::new(8, 4096), Level::new(16, 2048)],
        ..Layout::default()
    };
    let hops = serde_json::json!({ "flows": 2000 });
    Setup {
        attention: Attention::healthy(&layout, 256),
        layout,
        planner: None,
        hash_key: HashKey::from_bytes([5; 32]),
        clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
        tasks: Tasks::default(),
        losses_only: false,
        grace_ns: 100_000_000,
        detail,
        switches: Vec::new(),
        lcores: Lcores::default(),
        probes: false,
        carrier: Carrier::default(),
        seed,
        systems: Systems {
            on_switches: ON_SWITCHES,
            on_tofinos: vec![&ChameleMonOnTofino, &HopsOnTofino::ON_TRANSITS],
            in_controller: IN_CONTROLLER.to_vec(),
            on: vec!["chamelemon".to_owned(), "hops".to_owned()],
            sections: BTreeMap::from([("hops".to_owned(), hops)]),
        },
    }
}

/// Packets of a flow by node and side: those that reached it, and those of them that its transmit
/// queues refused.
type Counts = BTreeMap<(String, String, Flow), [u64; 2]>;

/// What a report of `hops` says, of flows that were seen.
fn counts(outcome: &SystemOutcome) -> Counts {
    counts_of(report(outcome))
}

fn counts_of(report: &SystemReport<Found>) -> Counts {
    let mut counts = Counts::new();
    for count in &report.findings.counts {
        let (most, refused) = (count.at_most, count.refused_at_most);
        assert!(most.is_none_or(|most| most == count.packets), "the tables are large enough");
        assert!(refused.is_none_or(|most| most == count.refused));
        assert!(most.is_some() || !report.complete);
        let place = (count.node.clone(), count.side.clone(), count.flow);
        let counted = [count.packets, count.refused];
        assert!(counts.insert(place, counted).is_none(), "named once: {count:?}");
    }
    counts
}

fn report(outcome: &SystemOutcome) -> &SystemReport<Found> {
    outcome.report.as_type().expect("a report of hops")
}

/// What there was to be seen by the nodes, from what the simulation did.
fn passed(topology: &Topology, truth: &[EpochTruth]) -> Counts {
    let transits: BTreeSet<usize> = topology.transits().collect();
    let mut counts = Counts::new();
    for flow in truth.iter().flat_map(|epoch| &epoch.flows) {
        let mut add = |switch: usize, side: &str, at: usize, packets: u32| {
            if packets > 0 {
                let name = topology.names()[switch].clone();
                let place = (name, side.to_owned(), Flow::from(&flow.key));
                counts.entry(place).or_default()[at] += u64::from(packets);
            }
        };
        let mut packets = flow.packets;
        add(flow.edge as usize, "ingress", 0, packets);
        let segments: Vec<Segment> = segments(flow).collect();
        for (number, &segment) in segments.iter().enumerate() {
            let lost = count(&flow.losses, segment);
            packets += count(&flow.copies, segment);
            packets -= lost;
            match (segment.from, segment.to) {
                (_, Point::In(switch)) if transits.contains(&switch) => {
                    add(switch, "transit", 0, packets);
                }
                (Point::In(switch), _) if transits.contains(&switch) => {
                    add(switch, "transit", 1, lost);
                }
                (_, Point::Out(edge)) if number + 1 == segments.len() => {
                    add(edge, "egress", 0, packets);
                }
                _ => {}
            }
        }
    }
    counts
}

/// The segments of a flow's way, in order.
fn segments(flow: &FlowTruth) -> impl Iterator<Item = Segment> {
    let way = flow.way.as_ref();
    way.into_iter().flat_map(|way| (0..way.segments()).map(|at| way.segment(at)))
}

fn count(of: &[(Segment, u32)], segment: Segment) -> u32 {
    of.iter().filter(|(at, _)| *at == segment).map(|(_, packets)| packets).sum()
}
