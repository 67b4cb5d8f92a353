//! How many of a network's flows its switches count exactly, each choosing by itself, beside how
//! many they could count: figure 3 of the paper on cooperative flow selection (CFS).
//!
//! The tables, grades and claims are those that switches use. A flow has one packet, which passes
//! the switches of its way; in every window all flows are new.

mod optimum;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Result, ensure};
use calumma_sketch::grade::{self, Chosen, Claims, HopRule};
use calumma_sketch::table::{BITS_OF_A_FLOW, BoundedTable, Capacity, Rank, Sink};
use calumma_sketch::{FlowKey, HashFamily, HashKey, HyperLogLog};
use calumma_topology::{LinkQuality, Routes, Topology};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

pub use self::optimum::most_counted;

/// How switches choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// By folding
    Fold,
    /// By the greedy rule
    Greedy,
    /// By even shares of ways whose length is known
    Even,
    /// Each by chance
    Random,
    /// All the same flows
    Same,
    /// By folding, and by the claims of switches before
    Claim,
    /// By chance, and by the claims of switches before
    ClaimRandom,
}

impl Algorithm {
    fn claims(self) -> bool {
        matches!(self, Self::Claim | Self::ClaimRandom)
    }

    fn grade(self, family: &HashFamily, word: u32, at: At) -> u32 {
        match self {
            Self::Fold | Self::Claim => grade::fold(word, at.hop),
            Self::Greedy => grade::greedy(word, at.hop),
            Self::Even => grade::even(word, at.hop, at.hops),
            Self::Random | Self::ClaimRandom => {
                grade::random(family, word, (at.switch as u32).wrapping_mul(0x9E37_79B9))
            }
            Self::Same => word,
        }
    }
}

/// Where a packet is.
#[derive(Clone, Copy)]
struct At {
    switch: usize,
    hop: u8,
    hops: u8,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Flows of a window.
    pub flows: u32,
    /// Flows that each switch has room for.
    pub entries: u32,
    /// How switches choose.
    pub algorithm: Algorithm,
    /// Windows, of which the last one counts.
    pub windows: u32,
    /// What flows, their ways and the hash key are drawn from.
    pub seed: u64,
}

/// What came of a trial, in its last window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The network.
    pub topology: String,
    /// Its switches.
    pub nodes: usize,
    /// Flows of a window.
    pub flows: u32,
    /// Flows that each switch has room for.
    pub entries: u32,
    /// How switches chose.
    pub algorithm: Algorithm,
    /// What all was drawn from.
    pub seed: u64,
    /// Share of the flows that a switch counted.
    pub coverage: f64,
    /// Share of the flows that switches could have counted.
    pub optimum: f64,
    /// The one through the other.
    pub coverage_over_optimum: f64,
    /// Entries of flows that another switch counted as well, for each flow.
    pub duplicates: f64,
    /// Entries with another number of packets than the flow had.
    pub wrong: u64,
    /// Flows in all, as the switches' merged HyperLogLog sketches estimate them.
    pub flows_estimated: f64,
    /// Bytes of a switch's table and filter.
    pub bytes_per_node: usize,
}

/// A network in which all inner switches and edges have tables.
#[derive(Debug)]
pub struct Network {
    name: String,
    topology: Topology,
    routes: Routes,
    /// The edge of each host.
    hosts: Vec<usize>,
}

impl Network {
    /// The network of this shape, or in this file.
    ///
    /// # Errors
    /// When there is none, or it has fewer than two hosts.
    pub fn load(name: &str) -> Result<Self> {
        let topology = Topology::load(name, Path::new("."), LinkQuality::default())?;
        let routes = Routes::new(&topology);
        let hosts = topology.hosts().iter().enumerate();
        let hosts: Vec<usize> =
            hosts.flat_map(|(edge, &hosts)| vec![edge; hosts as usize]).collect();
        ensure!(hosts.len() >= 2, "{name}: at least two hosts are needed");
        Ok(Self { name: name.to_owned(), topology, routes, hosts })
    }

    /// Switches, each of which has a table.
    pub fn switches(&self) -> usize {
        self.topology.switches()
    }

    /// The switches between two different hosts.
    fn way(&self, rng: &mut StdRng) -> Vec<usize> {
        loop {
            let [from, to] = [(); 2].map(|()| rng.random_range(0..self.hosts.len()));
            let way = (from != to)
                .then(|| self.routes.way(self.hosts[from], self.hosts[to], rng.random()));
            if let Some(way) = way.flatten() {
                return way.switches().collect();
            }
        }
    }

    /// Plays a trial.
    pub fn play(&self, trial: &Trial) -> Outcome {
        let mut rng = StdRng::seed_from_u64(trial.seed);
        let family = HashFamily::new(&HashKey::from_bytes(rng.random()));
        let mut switches = Switches::new(self.switches(), trial);
        let mut ways = HashMap::new();
        let windows = u64::from(trial.windows.max(1));
        let mut counted = Vec::new();
        for window in 0..windows {
            counted = vec![0; trial.flows as usize];
            ways.clear();
            let seed = grade::window_seed(window);
            for flow in 0..trial.flows {
                let way = self.way(&mut rng);
                let key = FlowKey::from_words(flow, window as u32, 7, 17);
                switches.pass(&family, &key, seed, &way);
                let mut class = way;
                class.sort_unstable();
                *ways.entry(class).or_insert(0) += 1;
            }
            switches.finish(&family, &mut counted, window + 1 == windows);
        }
        let covered = counted.iter().filter(|&&entries| entries > 0).count();
        let entries: u64 = counted.iter().map(|&entries| u64::from(entries)).sum();
        let room = vec![u64::from(trial.entries); self.switches()];
        let share = |flows: f64| flows / f64::from(trial.flows.max(1));
        let (coverage, optimum) = (share(covered as f64), share(most_counted(&ways, &room) as f64));
        Outcome {
            topology: self.name.clone(),
            nodes: self.switches(),
            flows: trial.flows,
            entries: trial.entries,
            algorithm: trial.algorithm,
            seed: trial.seed,
            coverage,
            optimum,
            coverage_over_optimum: coverage / optimum,
            duplicates: share(entries as f64 - covered as f64),
            wrong: switches.wrong,
            flows_estimated: switches.estimate(),
            bytes_per_node: switches.all[0].table.bytes(),
        }
    }
}

/// A switch and its claims.
struct Switch {
    table: BoundedTable<FlowKey, u32>,
    distinct: HyperLogLog,
    claims: Claims,
}

struct Switches {
    all: Vec<Switch>,
    algorithm: Algorithm,
    wrong: u64,
}

/// Hosts send all packets with this time to live.
const TTL: u8 = 64;

impl Switches {
    fn new(number: usize, trial: &Trial) -> Self {
        // Even a switch that every flow passes has a filter that is large enough.
        let filter_bits = trial.flows as usize * BITS_OF_A_FLOW;
        let capacity = Capacity { entries: trial.entries, filter_bits };
        let claims = if trial.algorithm.claims() { Claims::ALL } else { Claims::NONE };
        let switch = || Switch {
            table: BoundedTable::new(capacity),
            distinct: HyperLogLog::new(12),
            claims,
        };
        let all = (0..number).map(|_| switch()).collect();
        Self { all, algorithm: trial.algorithm, wrong: 0 }
    }

    /// A packet passes the switches of its way.
    fn pass(&mut self, family: &HashFamily, key: &FlowKey, seed: u32, way: &[usize]) {
        let hashes = family.hash(key);
        let word = grade::word(&hashes, seed);
        let chosen = if way.len() == 1 { Chosen::Single } else { Chosen::Shared };
        let (mut ttl, mut is_claimed) = (TTL, false);
        for &number in way {
            let hop = HopRule::default().number(ttl);
            let at = At { switch: number, hop, hops: way.len() as u8 };
            let grade = self.algorithm.grade(family, word, at);
            let switch = &mut self.all[number];
            let ranked = switch.claims.rank(chosen, is_claimed, grade);
            switch.distinct.insert(&hashes);
            switch.table.record_run(family, key, (&hashes, ranked.rank), 1, &mut Packets);
            ttl -= 1;
            is_claimed = ranked.is_claimed && self.algorithm.claims();
        }
    }

    /// Ends a window. `counted` is how many switches have counted each flow.
    fn finish(&mut self, family: &HashFamily, counted: &mut [u8], is_last: bool) {
        for Switch { table, distinct, claims } in &mut self.all {
            table.finish(family, &mut Packets);
            for (key, _, &packets) in table.iter() {
                counted[key.src_word() as usize] += 1;
                self.wrong += u64::from(packets != 1);
            }
            if self.algorithm.claims() {
                let is_full = table.len() == table.capacity().entries as usize;
                let worst = table.iter().map(|(_, rank, _)| rank).max();
                *claims = claims.next(worst.filter(|_| is_full));
            }
            table.clear();
            if !is_last {
                distinct.clear();
            }
        }
    }

    fn estimate(&self) -> f64 {
        let mut merged = HyperLogLog::new(12);
        let same = self.all.iter().all(|switch| merged.merge(&switch.distinct));
        if same { merged.estimate().value } else { f64::NAN }
    }
}

/// Counts packets.
struct Packets;

impl Sink<FlowKey, u32> for Packets {
    fn count(&mut self, value: &mut u32, packets: Range<usize>) {
        *value += packets.len() as u32;
    }

    fn refuse(&mut self, _: Range<usize>) {}

    fn evict(&mut self, _: &FlowKey, _: Rank, _: &u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fat-tree of 80 switches and 128 hosts, with so many entries for each flow.
    fn outcome(algorithm: Algorithm, entries_per_flow: f64) -> Outcome {
        let network = Network::load("fat-tree:8").unwrap();
        let entries = 1_000;
        let flows = (network.switches() as f64 * f64::from(entries) / entries_per_flow) as u32;
        let outcome = network.play(&Trial { flows, entries, algorithm, windows: 8, seed: 4 });
        assert_eq!(outcome.wrong, 0);
        assert!(outcome.coverage <= outcome.optimum, "{outcome:?}");
        let error = outcome.flows_estimated / f64::from(flows) - 1.0;
        assert!(error.abs() < 0.065, "{} flows taken for {}", flows, outcome.flows_estimated);
        outcome
    }

    #[test]
    fn switches_that_grade_by_hop_cover_more_than_by_chance_and_those_more_than_all_the_same() {
        use Algorithm::{Even, Fold, Greedy, Random, Same};
        let [fold, greedy, even, random, same] =
            [Fold, Greedy, Even, Random, Same].map(|algorithm| outcome(algorithm, 1.0).coverage);
        assert!((fold - 0.877).abs() < 0.01, "folding covers {fold}");
        assert!((greedy - 0.791).abs() < 0.01, "the greedy rule covers {greedy}");
        assert!(even > random && fold > random && random > same, "{even}, {random}, {same}");
    }

    #[test]
    fn claims_cover_nearly_all_flows_where_there_is_room_for_all() {
        for (entries_per_flow, least) in [(1.0, 0.945), (1.1, 0.995), (1.25, 0.9995)] {
            let outcome = outcome(Algorithm::Claim, entries_per_flow);
            assert!(outcome.coverage >= least, "{outcome:?}");
            assert!(outcome.optimum > 0.999, "{outcome:?}");
        }
        let by_chance = outcome(Algorithm::ClaimRandom, 1.25);
        assert!(by_chance.coverage >= 0.99, "{by_chance:?}");
    }
}
