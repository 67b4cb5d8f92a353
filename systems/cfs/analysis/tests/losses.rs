//! Losses and black holes of made-up networks: three edges, two switches between them, and links
//! that lose some packets of a flow, or all. What is said was lost is; and where all nodes can
//! prove it, everything that was lost is said.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs::frames::Entry;
use calumma_cfs_analysis::Found;
use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, Key, WideKey};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use world::Network;

const NAMES: [&str; 5] = ["e1", "e2", "e3", "s1", "s2"];
const EDGES: usize = 3;
const SPINES: [usize; 2] = [3, 4];
const SINGLE: u8 = 1;

/// What may happen in a network.
#[derive(Clone, Copy, Debug, Default)]
struct Case {
    seed: u64,
    /// The share of flows that a table refuses.
    refused: f64,
    /// Whether packets of a flow take several ways.
    sprays: bool,
    /// Whether the host behind several edges moves from packet to packet.
    moves: bool,
    /// Whether addresses are translated on the way.
    translates: bool,
    /// Whether links make copies.
    copies: bool,
    /// Whether a node is missing, or has other routes.
    disturbed: bool,
}

/// A flow, as it went.
#[derive(Clone, Debug, Default)]
struct Went {
    /// Packets that came to each node.
    came: [u64; 5],
    /// On which sides.
    sides: [u8; 5],
    lost: u64,
    /// Where it was to leave, if that is one edge, and no other than where it entered.
    to: Option<usize>,
    from: usize,
    /// Whether the first packet went to a host of the same edge, and how many did.
    is_local: bool,
    stayed: u64,
}

/// Where a destination is.
#[derive(Clone, Copy)]
enum To {
    Edge(usize),
    /// A switch's own address.
    Switch,
}

impl Case {
    fn is_plain(&self) -> bool {
        self.refused == 0.0 && !self.translates && !self.copies && !self.disturbed
    }

    fn play(&self) -> (BTreeMap<WideKey, Went>, SystemReport<Found>) {
        let mut rng = StdRng::seed_from_u64(self.seed);
        // By the switch that sends and the one that receives.
        let mut loss = [[0.0; 5]; 5];
        for of_one in loss.iter_mut().flatten() {
            *of_one = [0.0, 0.0, 0.2, 1.0][rng.random_range(0..4)];
        }
        let mut flows: BTreeMap<WideKey, Went> = BTreeMap::new();
        for number in 0..rng.random_range(1..60_u32) {
            let from = rng.random_range(0..EDGES);
            let (dst, to) = match rng.random_range(0..10) {
                0 => (0x0A63_0001, To::Switch),
                // A service behind several edges.
                1 => (0x0A32_0001, To::Edge(rng.random_range(0..EDGES))),
                _ => {
                    let edge = rng.random_range(0..EDGES);
                    (0x0A00_0001 + ((edge as u32) << 16), To::Edge(edge))
                }
            };
            let is_service = dst == 0x0A32_0001;
            let src = 0x0A00_0001 + ((from as u32) << 16);
            let proto = if rng.random_bool(0.1) { 1 } else { 17 };
            let key = FlowKey::from_words(src, dst, number << 16 | 9, proto);
            let mut went = Went { from, ..Went::default() };
            let mut translated = Went { from, ..Went::default() };
            let is_translated = self.translates && rng.random_bool(0.3);
            let spine = SPINES[rng.random_range(0..2)];
            if let To::Edge(edge) = to {
                went.to = (edge != from && !is_service).then_some(edge);
            }
            for _ in 0..rng.random_range(1..20) {
                let to = match to {
                    To::Edge(_) if is_service && self.moves => To::Edge(rng.random_range(0..EDGES)),
                    to => to,
                };
                went.arrive(from, Entry::ENTERED, 1);
                if matches!(to, To::Edge(edge) if edge == from) {
                    went.is_local |= went.came[from] == 1;
                    went.stayed += 1;
                    continue;
                }
                let sprayed = SPINES[rng.random_range(0..2)];
                let spine = if self.sprays { sprayed } else { spine };
                if rng.random_bool(loss[from][spine]) {
                    went.lost += 1;
                    continue;
                }
                went.arrive(spine, Entry::PASSED, 1);
                let To::Edge(edge) = to else { continue };
                if rng.random_bool(loss[spine][edge]) {
                    went.lost += 1;
                    continue;
                }
                let copies = 1 + u64::from(self.copies && rng.random_bool(0.2));
                let left = if is_translated { &mut translated } else { &mut went };
                left.arrive(edge, Entry::LEFT, copies);
            }
            if is_translated {
                // Nobody knows under which other name it leaves.
                let other = FlowKey::from_words(src + 0x00C8_0000, dst, number << 16 | 10, proto);
                flows.insert(other.into(), translated);
            }
            flows.insert(key.into(), went);
        }
        let paths = if self.sprays { "sprayed" } else { "single" };
        let mut network = Network::of(&NAMES, json!({ "paths": paths }));
        for (key, went) in &flows {
            for (at, &packets) in went.came.iter().enumerate().filter(|(_, packets)| **packets > 0)
            {
                let key = narrow(key);
                if rng.random_bool(self.refused) {
                    let left = if went.stayed > 0 && at == went.from { Entry::LEFT } else { 0 };
                    network.refuse_of(at, &key, packets, went.sides[at] | left);
                    continue;
                }
                let ttl = [64, 63, 62][went.sides[at].trailing_zeros() as usize];
                let entry = network.count_of(at, &key, packets, (went.sides[at], ttl));
                entry.local = went.stayed > 0 && at == went.from;
                if went.is_local {
                    entry.rank = Rank::new(SINGLE, entry.rank.grade());
                }
            }
        }
        if self.disturbed {
            match rng.random_range(0..3) {
                0 => network.late[rng.random_range(0..5)] = None,
                1 => network.late[rng.random_range(0..5)] = Some(1),
                _ => network.windows[rng.random_range(0..5)].routes_changed = true,
            }
        }
        (flows, network.report())
    }

    /// Holds a report against what happened. Gives how many flows were said to be lost altogether,
    /// and how many black holes there are.
    fn check(&self) -> (usize, usize) {
        let (flows, report) = self.play();
        let by_flow: BTreeMap<Flow, &Went> =
            flows.iter().map(|(key, went)| (Flow::from(key), went)).collect();
        let at = |point: &str| NAMES.iter().position(|name| point == format!("{name}:in"));
        let mut said: BTreeMap<Flow, u64> = BTreeMap::new();
        for loss in &report.findings.losses {
            let went = by_flow[&loss.flow];
            let (from, to) = (at(&loss.place.from).unwrap(), at(&loss.place.to));
            assert!(to.is_some() || loss.place.to == "destination", "{loss:?}");
            let ends = (0..EDGES).filter(|edge| *edge != went.from);
            let behind =
                to.map_or_else(|| ends.map(|edge| went.came[edge]).sum(), |to| went.came[to]);
            assert_eq!(went.came[from].checked_sub(behind), Some(loss.lost), "{loss:?}");
            *said.entry(loss.flow).or_default() += loss.lost;
        }
        for (flow, lost) in &said {
            assert!(*lost <= by_flow[flow].lost, "{flow}: {lost} of {:?}", by_flow[flow]);
        }
        let vanished = |went: &Went| went.lost > 0 && went.lost == went.came[went.from];
        if self.is_plain() {
            // Who has sent or received is known to be a host.
            let left = |went: &Went| went.to.filter(|&to| went.came[to] > 0);
            let hosts: BTreeSet<usize> =
                flows.values().flat_map(|went| left(went).into_iter().chain([went.from])).collect();
            for (key, went) in &flows {
                let Some(to) = went.to.filter(|to| hosts.contains(to)) else { continue };
                let said = said.get(&Flow::from(key)).copied().unwrap_or(0);
                assert!(said == went.lost || !vanished(went), "{key} to {to}: {said} of {went:?}");
            }
        }
        for hole in &report.findings.black_holes {
            let from = at(&hole.place.from).unwrap();
            let to = at(&hole.place.to);
            assert!(to.is_some() || hole.place.to == "destination");
            // Hosts may be elsewhere: where they were seen nothing came.
            let seen = hole.seen_behind.as_ref().and_then(|edge| at(&format!("{edge}:in")));
            let to = to.or(seen);
            for (key, went) in flows.iter().filter(|(_, went)| went.came[from] > 0) {
                let edges = (0..EDGES).filter(|&edge| edge != went.from && edge != from);
                let left: u64 = edges
                    .filter(|edge| to.is_none_or(|to| to == *edge))
                    .map(|edge| went.came[edge])
                    .sum();
                assert!(left == 0, "{hole:?}, but {key}: {went:?}");
            }
            let all: u64 = flows.values().map(|went| went.came[from]).sum();
            assert!(hole.packets >= 10 && hole.packets <= all, "{hole:?}");
        }
        let all = said.keys().filter(|flow| vanished(by_flow[flow])).count();
        (all, report.findings.black_holes.len())
    }
}

impl Went {
    fn arrive(&mut self, node: usize, side: u8, packets: u64) {
        self.came[node] += packets;
        self.sides[node] |= side;
    }
}

fn narrow(key: &WideKey) -> FlowKey {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol()).unwrap()
}

/// A host moves from behind e2 to behind e3 and is silent; s1 loses all that is sent to it there.
#[test]
fn where_a_host_is_that_may_have_moved_no_place_says() {
    let back = FlowKey::from_words(0x0A01_0001, 0x0A00_0002, 53 << 16 | 7, 17);
    let place_of = |hosts: &str, homes: &[usize]| {
        let mut network = Network::of(&["e1", "e2", "e3", "s1"], json!({ "hosts": hosts }));
        for home in homes {
            network.count_of(*home, &back, 5, (Entry::ENTERED, 64));
            network.report();
            network.begin();
        }
        network.count("e1", 1, 30);
        network.count("s1", 1, 30);
        let Found { losses, black_holes, .. } = network.report().findings;
        let ([loss], [hole]) = (&losses[..], &black_holes[..]) else {
            panic!("{losses:?}, {black_holes:?}")
        };
        assert_eq!((&loss.place, &loss.seen_behind), (&hole.place, &hole.seen_behind));
        assert_eq!((loss.lost, hole.packets, &*loss.place.from), (30, 30, "s1:in"));
        (loss.place.to.clone(), loss.seen_behind.clone().unwrap())
    };
    let at = |to: &str, seen: &str| (to.to_owned(), seen.to_owned());
    assert_eq!(place_of("any", &[1]), at("destination", "e2"));
    assert_eq!(place_of("fixed", &[1]), at("e2:in", "e2"));
    // An operator's word does not hold for a host that was seen to move.
    assert_eq!(place_of("fixed", &[2, 1]), at("destination", "e2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_loss_is_named_that_was_none(
        seed: u64,
        refused in prop::sample::select(vec![0.0, 0.02, 0.4]),
        sprays: bool,
        moves: bool,
        [translates, copies, disturbed]: [bool; 3],
    ) {
        Case { seed, refused, sprays, moves, translates, copies, disturbed }.check();
    }
}

#[test]
fn where_nothing_is_in_doubt_flows_that_lost_everything_are_named() {
    let (mut vanished, mut holes) = (0, 0);
    for seed in 0..200 {
        for sprays in [false, true] {
            let case = Case { seed, sprays, ..Case::default() };
            let (more, more_holes) = case.check();
            (vanished, holes) = (vanished + more, holes + more_holes);
        }
    }
    assert!(vanished > 1_000 && holes > 100, "{vanished} flows, {holes} black holes");
}
