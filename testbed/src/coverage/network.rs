//! A network of which all switches count, and the ways through it.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, ensure};
use calumma_topology::{LinkQuality, Routes, Topology};
use rand::Rng;
use rand::rngs::StdRng;

/// A network in which all inner switches and edges have tables.
#[derive(Debug)]
pub struct Network {
    pub(super) name: String,
    topology: Topology,
    routes: Routes,
    /// The edge of each host.
    hosts: Vec<usize>,
}

/// A flow's edges and the switches between them, in order.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) ends: (usize, usize),
    pub(super) switches: Vec<usize>,
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
        let reaches = |at: usize| at > 0 && routes.reaches(hosts[0], hosts[at]);
        ensure!((0..hosts.len()).any(reaches), "{name}: no way leads between two hosts");
        Ok(Self { name: name.to_owned(), topology, routes, hosts })
    }

    /// Switches, each of which has a table.
    pub fn switches(&self) -> usize {
        self.topology.switches()
    }

    /// The way between two different hosts.
    pub(super) fn way(&self, rng: &mut StdRng) -> Way {
        loop {
            let [from, to] = [(); 2].map(|()| rng.random_range(0..self.hosts.len()));
            let ends = (self.hosts[from], self.hosts[to]);
            let way = (from != to).then(|| self.routes.way(ends.0, ends.1, rng.random()));
            if let Some(way) = way.flatten() {
                return Way { ends, switches: way.switches().collect() };
            }
        }
    }

    /// For each pair of edges the switches that packets from one to the other can pass.
    pub(super) fn places(&self) -> HashMap<(usize, usize), Vec<usize>> {
        let edges = 0..self.topology.edges().len();
        let pairs = edges.clone().flat_map(|from| edges.clone().map(move |to| (from, to)));
        pairs.map(|(from, to)| ((from, to), self.between(from, to))).collect()
    }

    fn between(&self, from: usize, to: usize) -> Vec<usize> {
        let mut passed = vec![from];
        let mut at = 0;
        while let Some(&switch) = passed.get(at) {
            for next in self.routes.next_hops(switch, to) {
                if switch != to && !passed.contains(&next) {
                    passed.push(next);
                }
            }
            at += 1;
        }
        passed
    }
}
