//! Packets pass every switch of their way, and the truth says where each was lost: held against the
//! topology, for any network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use calumma_controller::report::CauseKind;
use calumma_testbed::scenario::command::{Order, play_all};
use calumma_testbed::scenario::{Scenario, play};
use calumma_testbed::simulate::{
    Detail, EpochTruth, FlowTruth, Outcome, Setup, Simulation, SwitchClock,
};
use calumma_testbed::topology::{LinkQuality, Point, Segment, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use proptest::prelude::*;
use serde_json::Value;

use crate::simulation::{ill, setup};

/// A network of any shape, not always in one piece.
#[derive(Clone, Debug)]
struct Network {
    edges: usize,
    switches: usize,
    /// Which switches there are links between, as numbers to be cut down to theirs, and what they
    /// do.
    links: Vec<([usize; 2], Link)>,
    /// Which inner switches are software.
    software: [bool; 5],
    victims: f64,
    clocks_off_us: f64,
    detail: Detail,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    loss: f64,
    duplicate: f64,
    jitter_us: f64,
    rate_pps: f64,
    queue: u32,
    down: bool,
}

fn networks() -> impl Strategy<Value = Network> {
    let one_of = |values: &'static [f64]| prop::sample::select(values);
    let link = (one_of(&[0.0, 0.0, 0.02, 1.0]), one_of(&[0.0, 0.0, 0.05]), one_of(&[0.0, 300.0]));
    let queue = (one_of(&[0.0, 0.0, 50_000.0, 1_000_000.0]), 0u32..20);
    let link = (link, queue, prop::bool::weighted(0.1));
    let link = link.prop_map(|((loss, duplicate, jitter_us), (rate_pps, queue), down)| Link {
        loss,
        duplicate,
        jitter_us,
        rate_pps,
        queue,
        down,
    });
    let details = vec![Detail::Runs, Detail::Packets { spread: 0.6 }];
    let links = prop::collection::vec((prop::array::uniform2(0usize..64), link), 4..16);
    let offsets = one_of(&[0.0, 300.0]);
    let rest = (one_of(&[0.0, 0.2]), offsets, prop::sample::select(details), any::<u64>());
    let kinds = any::<[bool; 5]>();
    (2usize..5, 1usize..5, links, kinds, rest).prop_map(|(edges, switches, links, kinds, rest)| {
        let (victims, clocks_off_us, detail, seed) = rest;
        let software = kinds;
        Network { edges, switches, links, software, victims, clocks_off_us, detail, seed }
    })
}

impl Network {
    /// As the file of a topology: every edge has a link to an inner switch, and there are the
    /// others.
    fn topology(&self) -> Topology {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let names: Vec<String> = (1..=self.edges)
            .map(|edge| format!("e{edge}"))
            .chain((1..=self.switches).map(|switch| format!("s{switch}")))
            .collect();
        let mut text = String::new();
        for (at, name) in names.iter().enumerate() {
            let (table, more) = match at.checked_sub(self.edges) {
                None => ("edge", "hosts = 2"),
                Some(inner) if self.software[inner] => ("switch", "kind = 'software'"),
                Some(_) => ("switch", ""),
            };
            writeln!(text, "[[{table}]]\nname = '{name}'\n{more}").unwrap();
        }
        let mut pairs = BTreeMap::new();
        for (at, &([a, b], link)) in self.links.iter().enumerate() {
            let a = if at < self.edges { at } else { a % names.len() };
            let b = self.edges + b % self.switches;
            if a != b {
                pairs.entry([a.min(b), a.max(b)]).or_insert(link);
            }
        }
        for ([a, b], link) in pairs {
            let [a, b] = [&names[a], &names[b]];
            let Link { loss, duplicate, jitter_us, rate_pps, queue, down } = link;
            writeln!(text, "[[link]]\nbetween = ['{a}', '{b}']").unwrap();
            writeln!(
                text,
                "quality = {{ loss = {loss:?}, duplicate = {duplicate:?}, \
                 jitter_us = {jitter_us:?}, rate_pps = {rate_pps:?}, queue = {queue}, down = {down} }}"
            )
            .unwrap();
        }
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("calumma-topology-{}-{number}.toml", std::process::id());
        let path = std::env::temp_dir().join(&name);
        std::fs::write(&path, text).unwrap();
        let topology = Topology::load(&name, &std::env::temp_dir(), LinkQuality::default());
        std::fs::remove_file(path).unwrap();
        topology.unwrap()
    }

    /// What was reported, and the totals of inner switches: packets received, sent and refused.
    fn run(&self, topology: &Topology) -> (Vec<Outcome>, BTreeMap<usize, [u64; 3]>) {
        let setup = Setup { attention: ill(), ..setup(self.detail, self.seed) };
        let clocks = self.edges + topology.transits().count();
        let clocks = SwitchClock::draw(self.seed, clocks, self.clocks_off_us, 0.0);
        let mut simulation = Simulation::new(setup, topology.clone(), clocks).unwrap();
        let traffic = Traffic {
            flows: 150,
            victims: self.victims,
            sizes: Sizes::Hadoop,
            tcp: 0.5,
            ..Traffic::default()
        };
        simulation.set_traffic(vec![traffic]).unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            outcomes.extend(simulation.run_epoch().unwrap());
        }
        outcomes.extend(simulation.finish().unwrap());
        assert_eq!(outcomes.len(), 3);
        let totals = |switch| {
            let of = simulation.counters(switch).expect("it is software");
            (switch, [of.fabric_received, of.transmitted, of.dropped_transmit])
        };
        (outcomes, topology.transits().map(totals).collect())
    }
}

/// The segments that a flow passes or could not pass, in order.
fn segments(flow: &FlowTruth) -> Vec<Segment> {
    match &flow.way {
        Some(way) => (0..way.segments()).map(|at| way.segment(at)).collect(),
        None => vec![Segment::inside(flow.edge as usize)],
    }
}

/// The switches of a flow's way are joined by links of the topology that are up, with no edge among
/// those in the middle.
fn is_a_path(topology: &Topology, flow: &FlowTruth) -> bool {
    let Some(way) = &flow.way else { return true };
    let switches: Vec<usize> = way.switches().collect();
    let edges = topology.edges().len();
    let joined = switches.windows(2).zip(way.hops()).all(|(pair, hop)| {
        let link = &topology.links()[hop.link];
        let ends = [[pair[0], pair[1]], [pair[1], pair[0]]];
        ends.contains(&link.ends) && !link.quality.down
    });
    let inner = switches.len().saturating_sub(2);
    joined
        && switches[0] == flow.edge as usize
        && switches.last().is_some_and(|&last| last < edges)
        && switches.iter().skip(1).take(inner).all(|&switch| switch >= edges)
}

fn count(of: &[(Segment, u32)], segment: Segment) -> u32 {
    of.iter().filter(|(at, _)| *at == segment).map(|(_, packets)| packets).sum()
}

/// What passed each point, from what entered, and what was lost and doubled on the way there.
fn passed(truth: &EpochTruth) -> BTreeMap<Point, u64> {
    let mut passed = BTreeMap::new();
    for flow in &truth.flows {
        let mut packets = flow.packets;
        let mut add = |point, packets: u32| {
            if packets > 0 {
                *passed.entry(point).or_default() += u64::from(packets);
            }
        };
        add(Point::In(flow.edge as usize), packets);
        for segment in segments(flow) {
            packets += count(&flow.copies, segment);
            packets -= count(&flow.losses, segment);
            add(segment.to, packets);
        }
    }
    passed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 64, ..Default::default() })]

    #[test]
    fn what_is_sent_is_delivered_or_lost_on_a_segment_of_its_way(network in networks()) {
        let topology = network.topology();
        let (outcomes, totals) = network.run(&topology);
        let mut expected: BTreeMap<usize, [u64; 3]> =
            topology.transits().map(|switch| (switch, [0; 3])).collect();
        for Outcome { report, truth, .. } in outcomes {
            // Copies of packets that are encoded nowhere may be others, with rewritten marks.
            let may_be_incomplete = truth.doubled() > 0
                && report.causes.iter().any(|cause| cause.kind == CauseKind::Mark);
            let because = &report.incomplete_because;
            prop_assert!(report.complete || may_be_incomplete, "{:?}", because);
            prop_assert_eq!(truth.contradicts(&report), None);
            for flow in &truth.flows {
                prop_assert!(is_a_path(&topology, flow), "{flow:?}");
                prop_assert_eq!(flow.packets + flow.doubled, flow.delivered + flow.lost, "{:?}", flow);
                let on_way = segments(flow);
                for (counts, total) in [(&flow.losses, flow.lost), (&flow.copies, flow.doubled)] {
                    prop_assert_eq!(counts.iter().map(|(_, packets)| packets).sum::<u32>(), total);
                    prop_assert!(counts.iter().all(|(at, _)| on_way.contains(at)), "{flow:?}");
                }
                // Only what is said to lose packets loses any.
                for &(segment, _) in flow.losses.iter().filter(|_| network.victims == 0.0) {
                    let loses = flow.way.as_ref().is_none_or(|way| way.hops().iter().any(|hop| {
                        let quality = topology.links()[hop.link].quality;
                        segment.to == Point::In(hop.to)
                            && (quality.loss > 0.0 || quality.rate_pps > 0.0)
                    }));
                    prop_assert!(loses, "{flow:?}");
                }
                // Nothing passes a link that loses all.
                for hop in flow.way.iter().flat_map(|way| way.hops()) {
                    if topology.links()[hop.link].quality.loss == 1.0 {
                        prop_assert_eq!(flow.delivered, 0, "{:?}", flow);
                    }
                }
            }
            prop_assert_eq!(&truth.passed, &passed(&truth));
            for (&switch, [received, sent, refused]) in &mut expected {
                let passed = |point| truth.passed.get(&point).copied().unwrap_or(0);
                *received += passed(Point::In(switch));
                *sent += passed(Point::Out(switch));
                *refused += truth.losses().get(&Segment::inside(switch)).copied().unwrap_or(0);
            }
        }
        // By another clock a few packets are in an epoch before the first or after the last one.
        if network.clocks_off_us == 0.0 {
            prop_assert_eq!(totals, expected, "a software switch sees what passes it");
        }
    }
}

#[test]
fn queues_that_packets_would_wait_in_for_too_long_are_refused() {
    let text = "title = 't'\nepochs = 2\nlinks = { rate_pps = 1000, queue = 30 }\n[traffic.a]\n";
    let scenario = Scenario::parse(text, Path::new(".")).unwrap();
    let refused = play(&scenario, |_, _| Ok(())).unwrap_err().to_string();
    assert!(refused.contains("may take a packet 124020 us"), "{refused}");
}

#[test]
fn the_truth_of_a_scenario_names_the_links_that_lose_and_how_much() {
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/chamelemon/slow-spine.toml");
    let scenario = Scenario::load(&scenario).unwrap();
    let out = std::env::temp_dir().join(format!("calumma-slow-spine-{}", std::process::id()));
    let order =
        Order { files: vec![], seeds: 1, out: Some(out.clone()), epoch_ms: None, live: None };
    assert!(play_all(&[("slow-spine".to_owned(), scenario)], &order).unwrap());
    let truth = std::fs::read_to_string(out.join("slow-spine/truth.jsonl")).unwrap();
    std::fs::remove_dir_all(out).unwrap();
    let lines: Vec<Value> = truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 16);

    // Both directions of each link.
    let full = [["e2:out", "s1:in"], ["s1:out", "e2:in"]];
    let lossy = [["e1:out", "s2:in"], ["s2:out", "e1:in"]];
    let mut seen = BTreeSet::new();
    for line in &lines {
        let places = lost_at(&line["places"]);
        let expected = match line["epoch"].as_u64().unwrap() {
            0..4 | 12.. => vec![],
            4..8 => full.to_vec(),
            _ => vec![lossy[0], full[0], full[1], lossy[1]],
        };
        let named: Vec<[&str; 2]> = places.iter().map(|(place, _)| *place).collect();
        assert!(named.iter().all(|place| expected.contains(place)), "{named:?}, {expected:?}");
        seen.extend(named);
        assert_eq!(places.iter().map(|(_, lost)| lost).sum::<u64>(), line["lost"]);
        let mut by_flow: BTreeMap<[&str; 2], u64> = BTreeMap::new();
        for flow in line["losses"].as_array().unwrap() {
            let path: Vec<&str> = flow["path"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap())
                .collect();
            for (place, lost) in lost_at(&flow["places"]) {
                let [from, to] = place.map(|point| point.split_once(':').unwrap().0);
                assert!(path.windows(2).any(|hop| hop == [from, to]), "{flow}");
                *by_flow.entry(place).or_default() += lost;
            }
        }
        assert!(by_flow.into_iter().eq(places), "epoch {}", line["epoch"]);
    }
    assert!(seen.into_iter().eq([lossy[0], full[0], full[1], lossy[1]]), "all four lose some");
}

/// The places of a list, and the packets that were lost there.
fn lost_at(places: &Value) -> Vec<([&str; 2], u64)> {
    let places = places.as_array().unwrap().iter();
    places
        .map(|at| {
            let place = [&at["from"], &at["to"]].map(|point| point.as_str().unwrap());
            (place, at["lost"].as_u64().unwrap())
        })
        .collect()
}
