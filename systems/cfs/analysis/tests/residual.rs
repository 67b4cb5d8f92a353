//! Residuals in a whole network: switches of several lcores, whose tables are too small for all
//! flows, in virtual time, and the controller's analysis of what they send. Links lose packets, and
//! TTLs change: whatever is reported as exact is what came, and a residual decodes to all of its
//! node's flows or is said not to.

#[path = "../../tests/common/mod.rs"]
mod common;
mod played;

use std::collections::BTreeMap;

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs_analysis::{Found, KeptIn};
use calumma_plane::packet::Packet;
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;
use calumma_topology::optimum::most_counted;
use calumma_wire::Role;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use common::{EPOCH_NS, FIRST_EPOCH, clock, flow, frame};
use played::Played;

const NAMES: [&str; 3] = ["e1", "s1", "e2"];
const WINDOW_EPOCHS: u64 = 2;

/// What there is of a flow at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    packets: u64,
    bytes: u64,
}

/// By node and flow.
type Truth = [BTreeMap<Flow, Came>; 3];

/// What differs between networks.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    flows: u32,
    packets: u64,
    lcores: usize,
    alpha: f64,
    keys: KeyKind,
    /// Whether a flow's packets come with different TTLs, and to several lcores.
    is_unsteady: bool,
    /// The most bytes of payload; they differ from packet to packet.
    most: usize,
    loss: f64,
    residual: &'static str,
    /// Whether some flows take another way than by the switch between the edges, from some packet
    /// on.
    moves: bool,
}

impl Case {
    fn section(&self) -> Value {
        json!({ "entries": 256, "hll_bits": 8, "window_epochs": WINDOW_EPOCHS,
            "residual": self.residual, "alpha": self.alpha, "guard": false, "flows_listed": 100_000 })
    }

    /// A window of the network: what came to the nodes, and the report.
    fn play(&self) -> (Truth, SystemReport<Found>) {
        let roles = [Role::Edge, Role::Transit, Role::Edge];
        let nodes: [(&str, Role); 3] = std::array::from_fn(|at| (NAMES[at], roles[at]));
        let mut network = Played::new(&nodes, &self.section(), self.keys, self.lcores);
        let mut truth = Truth::default();
        let mut rng = StdRng::seed_from_u64(self.seed);
        let start = clock().start_of(FIRST_EPOCH);
        let step = WINDOW_EPOCHS * EPOCH_NS / self.packets.max(1);
        for n in 0..self.packets {
            let now_ns = start + n * step;
            let number = rng.random_range(0..self.flows);
            let key = flow(number, self.keys);
            let ttl = if self.is_unsteady { rng.random_range(61..=64) } else { 64 };
            let mut packet = frame(&key, ttl, rng.random_range(0..=self.most));
            let is_moved = self.moves && number % 5 == 1 && 2 * n > self.packets;
            if self.moves && 2 * n == self.packets {
                network.switches[0].routes.changed(now_ns);
            }
            for (at, path) in [Path::Enter, Path::Transit, Path::Leave].into_iter().enumerate() {
                network.switches[at].advance_to(now_ns);
                if is_moved && at == 1 {
                    continue;
                }
                let spreads = self.is_unsteady && number.is_multiple_of(7);
                let by = if spreads { rng.random_range(0..self.lcores) } else { number as usize };
                let len = packet.bytes().len() as u64 - 14;
                let came = truth[at].entry(Flow::from(&key)).or_default();
                *came = Came { packets: came.packets + 1, bytes: came.bytes + len };
                let packet_of = std::slice::from_mut(&mut packet);
                network.switches[at].pass_all(by % self.lcores, path, packet_of);
                if rng.random_bool(self.loss) {
                    break;
                }
                let ip = &mut packet.bytes_mut()[14..];
                let at = if ip[0] >> 4 == 4 { 8 } else { 7 };
                ip[at] -= 1;
            }
        }
        (truth, network.report())
    }

    /// Holds a report against what came. Gives how many residuals decoded.
    fn check(&self) -> usize {
        let (truth, report) = self.play();
        assert!(report.complete, "{:?}", report.incomplete_because);
        let found = &report.findings;
        let mut exactly = [0; 3];
        for count in &found.flows {
            for hop in &count.hops {
                let at = NAMES.iter().position(|name| *name == hop.node).unwrap();
                let came = truth[at].get(&count.flow).copied().unwrap_or_default();
                let of = Came { packets: hop.packets, bytes: hop.bytes };
                assert!(hop.packets <= came.packets && hop.bytes <= came.bytes, "{count:?}");
                assert!(!hop.exact || of == came, "{count:?}, and {came:?} came to {}", hop.node);
                exactly[at] += usize::from(hop.exact);
                // Lcores that have some of it only don't know the others' times to live.
                assert_eq!(hop.looped.is_some(), hop.from == KeptIn::Table && hop.exact);
            }
            let sent = truth[0][&count.flow].packets;
            let at = NAMES.iter().position(|name| *name == count.at).unwrap();
            assert!(!count.exact || count.packets == truth[at][&count.flow].packets, "{count:?}");
            assert!(count.packets <= sent);
        }
        for loss in &found.losses {
            let at = |point: &str| {
                // All leave at one edge, if they do.
                let point = if point == "destination" { "e2:in" } else { point };
                let at = NAMES.iter().position(|name| point == format!("{name}:in")).unwrap();
                truth[at].get(&loss.flow).map_or(0, |came| came.packets)
            };
            assert_eq!(at(&loss.place.from) - at(&loss.place.to), loss.lost, "{loss:?}");
        }
        let mut decoded = 0;
        for (at, node) in found.nodes.iter().enumerate() {
            let of = node.residual.as_ref().unwrap();
            let is_complete = of.decode == "complete";
            assert_eq!((of.flows.is_some(), of.load_factor.is_some()), (is_complete, is_complete));
            decoded += usize::from(is_complete);
            if is_complete {
                assert_eq!(exactly[at], truth[at].len(), "{}: every flow has its count", node.node);
            }
        }
        if found.nodes.iter().all(|node| node.residual.as_ref().unwrap().flows.is_some()) {
            let there = truth[0].len() as u64;
            assert_eq!((found.monitored, found.monitored_exactly), (there, there));
            assert_eq!((found.flows_total_error, found.coverage), (Some(0.0), Some(1.0)));
            self.check_optimum(&truth, found);
            let lost: u64 = found.losses.iter().map(|loss| loss.lost).sum();
            let left = |(flow, came): (&Flow, &Came)| {
                truth[2].get(flow).map_or(0, |left| came.packets - left.packets)
            };
            let of_flows_that_left: u64 = truth[0].iter().map(left).sum();
            // Where TTLs rise on a flow's way, nothing is said of its losses.
            assert!(
                self.is_unsteady || self.moves || lost >= of_flows_that_left,
                "{lost} of {of_flows_that_left} lost packets"
            );
        }
        decoded
    }

    /// Where all nodes have a count of each flow that they saw, its way is known.
    fn check_optimum(&self, truth: &Truth, found: &Found) {
        let mut ways: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for flow in truth[0].keys() {
            let way = (0..3).filter(|&at| truth[at].contains_key(flow)).collect();
            *ways.entry(way).or_default() += 1;
        }
        let entries: Vec<u64> = found.nodes.iter().map(|node| node.entries).collect();
        let most = |ways: &_, entries: &_| {
            most_counted(ways, entries) as f64 / truth[0].len().max(1) as f64
        };
        let of_all = Some(most(&ways, &entries));
        assert_eq!([found.optimum, found.optimum_low, found.optimum_high], [of_all; 3]);
        for (at, node) in found.nodes.iter().enumerate() {
            let mut entries = entries.clone();
            entries[at] += entries[at] / 10;
            let with_more = Some(most(&ways, &entries));
            let of = [node.optimum_with_more_low, node.optimum_with_more_high];
            assert_eq!((node.optimum_with_more, of), (with_more, [with_more; 2]), "{}", node.node);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn residuals_decode_to_the_truth_or_say_that_they_do_not(
        seed: u64,
        flows in 200_u32..1_500,
        packets in 2_000_u64..6_000,
        lcores in 1..=3_usize,
        alpha in prop::sample::select(vec![0.3, 0.6, 0.9]),
        keys in prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]),
        is_unsteady: bool,
        most in prop::sample::select(vec![0_usize, 64]),
        loss in prop::sample::select(vec![0.0, 0.03, 0.3]),
        residual in prop::sample::select(vec!["fermat", "flowradar"]),
        moves: bool,
    ) {
        let case = Case {
            seed, flows, packets, lcores, alpha, keys, is_unsteady, most, loss, residual, moves,
        };
        case.check();
    }
}

#[test]
fn twice_as_many_flows_as_entries_are_all_counted_and_ten_times_as_many_are_not() {
    let steady = Case {
        seed: 1,
        flows: 500,
        packets: 5_000,
        lcores: 1,
        alpha: 0.4,
        keys: KeyKind::Ipv4,
        is_unsteady: false,
        most: 64,
        loss: 0.02,
        residual: "fermat",
        moves: false,
    };
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        assert_eq!(Case { keys, ..steady }.check(), 3);
        // Lcores that share a flow have all of it together. What is known of such a flow is a part
        // of it, and as many packets of other lengths elsewhere would leave nothing that decodes.
        let shared = Case { keys, lcores: 2, is_unsteady: true, most: 0, ..steady };
        assert_eq!(Case { alpha: 0.2, ..shared }.check(), 3);
        assert_eq!(Case { keys, flows: 5_000, packets: 10_000, ..steady }.check(), 0);
    }
}

/// Without losses, and with each flow on one lcore, cells are emptied by what tables have. A flow
/// that lost packets after one switch and is known by another leaves cells that are full, which is
/// said; so does one that several lcores have put in, and no table has.
#[test]
fn a_flow_radar_decodes_where_nothing_is_lost_and_says_so_where_something_is() {
    let steady = Case {
        seed: 1,
        flows: 500,
        packets: 5_000,
        lcores: 2,
        alpha: 0.357,
        keys: KeyKind::Ipv4,
        is_unsteady: false,
        most: 64,
        loss: 0.0,
        residual: "flowradar",
        moves: false,
    };
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        assert_eq!(Case { keys, ..steady }.check(), 3);
        assert_eq!(Case { keys, loss: 0.02, ..steady }.check(), 0);
        assert_eq!(Case { keys, flows: 5_000, packets: 10_000, ..steady }.check(), 0);
    }
}
