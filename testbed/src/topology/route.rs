//! The ways through a network: shortest paths, those of equal length shared out by flow (ECMP).

use super::Topology;

/// What happens to packets on their way from one edge to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// Time that every packet takes, in nanoseconds.
    pub delay_ns: u64,
    /// Most that a packet takes on top of it.
    pub jitter_ns: u64,
    /// Share of the packets that is lost on some link.
    pub loss: f64,
    /// Share of what is not lost that arrives twice.
    pub duplicate: f64,
}

/// Distances to every edge over the links that are up.
#[derive(Clone, Debug)]
pub struct Routes {
    /// For each switch, its neighbours and the links to them.
    neighbours: Vec<Vec<(usize, usize)>>,
    /// For each edge, the distance of every switch from it in links.
    distances: Vec<Vec<u16>>,
}

/// No way leads there.
const UNREACHABLE: u16 = u16::MAX;

impl Routes {
    /// Routes over the links of `topology` that are up.
    pub fn new(topology: &Topology) -> Self {
        let mut neighbours = vec![Vec::new(); topology.switches()];
        for (number, link) in topology.links().iter().enumerate() {
            if !link.quality.down {
                let [a, b] = link.ends;
                neighbours[a].push((b, number));
                neighbours[b].push((a, number));
            }
        }
        let edges = topology.edges().len();
        let distances = (0..edges).map(|edge| distances_from(edge, edges, &neighbours)).collect();
        Self { neighbours, distances }
    }

    /// The neighbours of switch `at` that are nearer to edge `to`; none where no way leads there.
    pub fn next_hops(&self, at: usize, to: usize) -> Vec<usize> {
        self.nearer(at, to).map(|(next, _)| next).collect()
    }

    /// The neighbours of switch `at` that are nearer to edge `to`, and the links to them.
    fn nearer(&self, at: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
        let distances = &self.distances[to];
        let nearer = move |next: usize| distances[next].checked_add(1) == Some(distances[at]);
        self.neighbours[at].iter().copied().filter(move |&(next, _)| nearer(next))
    }

    /// The way that packets of a flow with hash `hash` take; none where no way leads there. Packets
    /// within an edge are on no link.
    pub fn way(&self, topology: &Topology, from: usize, to: usize, mut hash: u64) -> Option<Way> {
        let (mut delay_us, mut jitter_us, mut kept, mut single) = (0.0, 0.0, 1.0, 1.0);
        let mut at = from;
        while at != to {
            let choices = self.nearer(at, to).count();
            if choices == 0 {
                return None;
            }
            let chosen = (hash % choices as u64) as usize;
            hash = hash.rotate_right(11);
            let (next, link) = self.nearer(at, to).nth(chosen)?;
            let quality = &topology.links()[link].quality;
            delay_us += quality.delay_us;
            jitter_us += quality.jitter_us;
            kept *= 1.0 - quality.loss;
            single *= 1.0 - quality.duplicate;
            at = next;
        }
        let ns = |us: f64| (us * 1000.0) as u64;
        Some(Way {
            delay_ns: ns(delay_us),
            jitter_ns: ns(jitter_us),
            loss: 1.0 - kept,
            duplicate: 1.0 - single,
        })
    }
}

/// Breadth first. Packets never pass through an edge that is not their own, since a flow is recorded
/// where it enters and where it leaves.
fn distances_from(edge: usize, edges: usize, neighbours: &[Vec<(usize, usize)>]) -> Vec<u16> {
    let mut distances = vec![UNREACHABLE; neighbours.len()];
    distances[edge] = 0;
    let mut reached = std::collections::VecDeque::from([edge]);
    while let Some(at) = reached.pop_front() {
        if at < edges && at != edge {
            continue;
        }
        for &(next, _) in &neighbours[at] {
            if distances[next] == UNREACHABLE {
                distances[next] = distances[at] + 1;
                reached.push_back(next);
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::LinkQuality;
    use std::path::Path;

    fn load(name: &str) -> Topology {
        Topology::load(name, Path::new("."), LinkQuality::default()).unwrap()
    }

    #[test]
    fn ways_are_the_shortest_and_all_of_them_are_used() {
        let mut topology = load("fat-tree:4");
        // Two hops within a pod, four between pods.
        let routes = Routes::new(&topology);
        assert_eq!(routes.way(&topology, 0, 0, 9).unwrap().delay_ns, 0);
        assert_eq!(routes.way(&topology, 0, 1, 9).unwrap().delay_ns, 10_000);
        assert_eq!(routes.way(&topology, 0, 7, 9).unwrap().delay_ns, 20_000);

        for (at, link) in topology.links.iter_mut().enumerate() {
            link.quality.delay_us = f64::from(1 << at.min(20));
        }
        let delays: std::collections::HashSet<u64> = (0..1000_u64)
            .map(|flow| flow.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .map(|hash| routes.way(&topology, 0, 7, hash).unwrap().delay_ns)
            .collect();
        assert!(delays.len() >= 4, "four ways between pods: {delays:?}");
    }

    #[test]
    fn a_link_that_is_down_is_avoided_and_one_that_drops_is_not() {
        let mut topology = load("leaf-spine:2x2");
        let ends = ["e1".to_owned(), "s1".to_owned()];
        topology.link_between(&ends).unwrap().quality.loss = 1.0;
        let lossy = |topology: &Topology| {
            let routes = Routes::new(topology);
            (0..64).filter(|&hash| routes.way(topology, 0, 1, hash).unwrap().loss == 1.0).count()
        };
        assert_eq!(lossy(&topology), 32);
        topology.link_between(&ends).unwrap().quality.down = true;
        assert_eq!(lossy(&topology), 0);

        let mut topology = load("pair");
        topology.links[0].quality.down = true;
        assert_eq!(Routes::new(&topology).way(&topology, 0, 1, 5), None);
    }
}
