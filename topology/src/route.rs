//! The ways through a network: shortest paths, those of equal length shared out by flow (ECMP).

use std::collections::{BTreeMap, BTreeSet};

use crate::{Link, Segment, Topology};

/// The switches and links that packets pass on their way from one edge to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    from: usize,
    hops: Vec<Hop>,
}

/// A link on a way, and the switch at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link, by its number.
    pub link: usize,
    /// The switch that it leads to.
    pub to: usize,
}

impl Way {
    /// Links that no packet lives to pass.
    const MOST_HOPS: usize = 255;

    /// Its links, in order; none within an edge.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Its switches, from the edge where it begins to the one where it ends.
    pub fn switches(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.from).chain(self.hops.iter().map(|hop| hop.to))
    }

    /// The switch after `hops` links.
    pub fn switch(&self, hops: usize) -> usize {
        hops.checked_sub(1).map_or(self.from, |last| self.hops[last].to)
    }

    /// Whether packets go round on it until they have no time to live any more.
    pub fn goes_round(&self) -> bool {
        self.hops.len() == Self::MOST_HOPS
    }

    /// The switches of a turn, by position, where packets go round. It has as many links.
    pub fn turn(&self) -> Option<BTreeSet<usize>> {
        let last = self.hops.last().filter(|_| self.goes_round())?;
        let before = self.hops.iter().rev().skip(1).take_while(|hop| *hop != last);
        Some(before.chain([last]).map(|hop| hop.to).collect())
    }

    /// How many segments it has: the inside of every switch, and the links between them.
    pub fn segments(&self) -> usize {
        2 * self.hops.len() + 1
    }

    /// Its segment `number`, counted from 0: switches have the even numbers, links the odd ones.
    pub fn segment(&self, number: usize) -> Segment {
        let at = self.switch(number / 2);
        if number.is_multiple_of(2) {
            Segment::inside(at)
        } else {
            Segment::link(at, self.switch(number / 2 + 1))
        }
    }
}

/// Distances to every edge over the links that are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// For each switch, its neighbours and the links to them.
    pub(super) neighbours: Vec<Vec<(usize, usize)>>,
    /// For each edge, the distance of every switch from it in links.
    distances: Vec<Vec<u16>>,
    /// Ways lead through switches from this one on: all, or those that are no edges.
    first_through: usize,
    /// By switch and edge, where a static route leads: the neighbour, and the link to it.
    fixed: BTreeMap<(usize, usize), (usize, usize)>,
}

/// No way leads there.
const UNREACHABLE: u16 = u16::MAX;

impl Routes {
    /// Routes over the links of `topology` that are up.
    pub fn new(topology: &Topology) -> Self {
        Self::over(topology, |link| !link.quality.down)
    }

    /// Routes over all links of `topology`, up or down.
    pub fn over_all(topology: &Topology) -> Self {
        Self::over(topology, |_| true)
    }

    /// Routes over the links of `topology` that `used` picks.
    fn over(topology: &Topology, used: impl Fn(&Link) -> bool) -> Self {
        let mut neighbours = vec![Vec::new(); topology.switches()];
        for (number, link) in topology.links().iter().enumerate().filter(|(_, link)| used(link)) {
            let [a, b] = link.ends;
            neighbours[a].push((b, number));
            neighbours[b].push((a, number));
        }
        let edges = topology.edges().len();
        let first_through = if topology.through_edges() { 0 } else { edges };
        let distances =
            (0..edges).map(|edge| distances_from(edge, first_through, &neighbours)).collect();
        let fixed = topology.static_routes.iter().filter_map(|(&(at, to), &via)| {
            let hop = neighbours[at].iter().find(|&&(next, _)| next == via)?;
            Some(((at, to), *hop))
        });
        let fixed = fixed.collect();
        Self { neighbours, distances, first_through, fixed }
    }

    /// The neighbours of switch `at` that are nearer to edge `to`, or the one that a static route
    /// says; none where no way leads there.
    pub fn next_hops(&self, at: usize, to: usize) -> Vec<usize> {
        match self.fixed.get(&(at, to)) {
            Some(&(next, _)) => vec![next],
            None => self.nearer(at, to).map(|(next, _)| next).collect(),
        }
    }

    /// The neighbours of switch `at` that are nearer to edge `to`, and the links to them. Another
    /// edge may be nearer too, but leads nowhere unless ways lead through edges.
    fn nearer(&self, at: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
        let distances = &self.distances[to];
        let first_through = self.first_through;
        let leads_there = move |next: usize| next == to || next >= first_through;
        let nearer = move |next: usize| {
            leads_there(next) && distances[next].checked_add(1) == Some(distances[at])
        };
        self.neighbours[at].iter().copied().filter(move |&(next, _)| nearer(next))
    }

    /// Whether a way leads from one edge to another.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        self.distances[to][from] != UNREACHABLE
    }

    /// How many links lie between an edge and a switch; none where no way leads there.
    pub fn distance(&self, edge: usize, switch: usize) -> Option<u16> {
        Some(self.distances[edge][switch]).filter(|&links| links != UNREACHABLE)
    }

    /// How many links the longest of all ways has.
    pub fn longest(&self) -> usize {
        let edges = self.distances.len();
        let between_edges = self.distances.iter().flat_map(|from| &from[..edges]);
        let reachable = between_edges.filter(|&&distance| distance != UNREACHABLE);
        reachable.max().map_or(0, |&links| links.into())
    }

    /// The way that packets of a flow with hash `hash` take; none where no way leads there. Packets
    /// within an edge are on no link. Where static routes let packets go round, the way is as long
    /// as any packet lives.
    pub fn way(&self, from: usize, to: usize, mut hash: u64) -> Option<Way> {
        let mut hops: Vec<Hop> = Vec::new();
        let mut at = from;
        while at != to {
            // A switch sends all packets of a flow by the same link, whenever they come.
            let visited = std::iter::once(from).chain(hops.iter().map(|hop| hop.to));
            let mut before = visited.take(hops.len());
            if !self.fixed.is_empty()
                && let Some(begin) = before.position(|switch| switch == at)
            {
                let turn = hops[begin..].to_vec();
                hops.extend(turn.into_iter().cycle().take(Way::MOST_HOPS - hops.len()));
                break;
            }
            if let Some(&(next, link)) = self.fixed.get(&(at, to)) {
                hops.push(Hop { link, to: next });
                at = next;
                continue;
            }
            let choices = self.nearer(at, to).count();
            if choices == 0 {
                return None;
            }
            let chosen = (hash % choices as u64) as usize;
            hash = hash.rotate_right(11);
            let (next, link) = self.nearer(at, to).nth(chosen)?;
            hops.push(Hop { link, to: next });
            at = next;
        }
        Some(Way { from, hops })
    }
}

/// Breadth first. Packets pass through switches from `first_through` on. Where these are the inner
/// ones, no packet passes through an edge that is not its own: a flow is recorded where it enters
/// and where it leaves.
fn distances_from(
    edge: usize,
    first_through: usize,
    neighbours: &[Vec<(usize, usize)>],
) -> Vec<u16> {
    let mut distances = vec![UNREACHABLE; neighbours.len()];
    distances[edge] = 0;
    let mut reached = std::collections::VecDeque::from([edge]);
    while let Some(at) = reached.pop_front() {
        if at < first_through && at != edge {
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
    use crate::LinkQuality;
    use std::path::Path;

    fn load(name: &str) -> Topology {
        Topology::load(name, Path::new("."), LinkQuality::default()).unwrap()
    }

    #[test]
    fn ways_are_the_shortest_and_all_of_them_are_used() {
        let topology = load("fat-tree:4");
        let routes = Routes::new(&topology);
        let links = |to| routes.way(0, to, 9).unwrap().hops().len();
        assert_eq!([0, 1, 7].map(links), [0, 2, 4], "two links within a pod, four between pods");
        assert_eq!(routes.longest(), 4);
        let ways: std::collections::HashSet<Vec<usize>> = (0..1000_u64)
            .map(|flow| flow.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .map(|hash| routes.way(0, 7, hash).unwrap().switches().collect())
            .collect();
        assert_eq!(ways.len(), 4, "four ways between pods: {ways:?}");
        for way in ways {
            let names: Vec<&str> = way.iter().map(|&at| topology.names()[at].as_str()).collect();
            assert!(matches!(names[..], ["e1", "a1" | "a2", _, "a7" | "a8", "e8"]), "{names:?}");
        }
    }

    #[test]
    fn a_way_has_the_segments_of_its_switches_and_links() {
        let topology = load("leaf-spine:2x1");
        let way = Routes::new(&topology).way(1, 0, 3).unwrap();
        let segments: Vec<Segment> = (0..way.segments()).map(|at| way.segment(at)).collect();
        let expected = [
            Segment::inside(1),
            Segment::link(1, 2),
            Segment::inside(2),
            Segment::link(2, 0),
            Segment::inside(0),
        ];
        assert_eq!(segments, expected);
    }

    #[test]
    fn no_way_leads_through_another_edge_though_it_be_nearer() {
        let mut topology = Topology::default();
        let [a, b, c] = ["a", "b", "c"].map(|edge| topology.add_edge(edge, 1));
        let [s, t, u] = ["s", "t", "u"].map(|switch| topology.add_switch(switch));
        for [one, other] in [[b, s], [s, c], [s, u], [u, t], [c, t], [t, a]] {
            topology.connect(one, other, LinkQuality::default());
        }
        let routes = Routes::new(&topology);
        assert_eq!(routes.next_hops(t, b), [u], "not {c}");
        assert!(routes.way(a, b, 1).unwrap().switches().eq([a, t, u, s, b]));
    }

    #[test]
    fn ways_lead_through_edges_where_the_topology_says_so() {
        let mut topology = Topology::default();
        let line = ["a", "b", "c"].map(|edge| topology.add_edge(edge, 1));
        let [a, b, c] = line;
        topology.connect(a, b, LinkQuality::default());
        topology.connect(b, c, LinkQuality::default());
        assert_eq!(Routes::new(&topology).way(a, c, 1), None);
        topology.through_edges = true;
        let routes = Routes::new(&topology);
        assert!(routes.reaches(a, c) && routes.longest() == 2);
        assert!(routes.way(a, c, 1).unwrap().switches().eq(line));
    }

    #[test]
    fn static_routes_lead_elsewhere_and_may_let_packets_go_round() {
        let mut topology = Topology::default();
        let [a, b] = ["a", "b"].map(|edge| topology.add_edge(edge, 1));
        let [s, t, u] = ["s", "t", "u"].map(|switch| topology.add_switch(switch));
        for [one, other] in [[a, s], [b, t], [s, t], [t, u], [u, s]] {
            topology.connect(one, other, LinkQuality::default());
        }
        let way = |topology: &Topology| Routes::new(topology).way(a, b, 1).unwrap();
        assert!(way(&topology).switches().eq([a, s, t, b]));
        topology.set_route("b", "s", Some("u")).unwrap();
        assert!(way(&topology).switches().eq([a, s, u, t, b]));
        assert!(!way(&topology).goes_round() && way(&topology).turn().is_none());
        topology.set_route("b", "u", Some("s")).unwrap();
        assert_eq!(way(&topology).turn(), Some([s, u].into()));
        topology.set_route("b", "u", None).unwrap();
        topology.set_route("b", "t", Some("s")).unwrap();
        let round = way(&topology);
        assert_eq!((round.turn(), round.hops().len()), (Some([s, t, u].into()), 255));
        assert!(round.switches().take(6).eq([a, s, u, t, s, u]));
        // The way back is as it was.
        assert!(Routes::new(&topology).way(b, a, 1).unwrap().switches().eq([b, t, s, a]));
        let refused = |to, node, via| {
            topology.clone().set_route(to, node, Some(via)).unwrap_err().to_string()
        };
        assert_eq!(refused("b", "s", "x"), "route: no switch is called \"x\"");
        assert!(refused("b", "a", "u").starts_with("route: there is no link between"));
        assert!(refused("b", "s", "a").ends_with("is an edge other than \"b\""));
    }

    #[test]
    fn a_link_that_is_down_is_avoided_and_one_that_drops_is_not() {
        let mut topology = load("leaf-spine:2x2");
        let ends = ["e1".to_owned(), "s1".to_owned()];
        topology.link_between(&ends).unwrap().quality.loss = 1.0;
        let over_it = |topology: &Topology| {
            let routes = Routes::new(topology);
            (0..64).filter(|&hash| routes.way(0, 1, hash).unwrap().switch(1) == 2).count()
        };
        assert_eq!(over_it(&topology), 32);
        topology.link_between(&ends).unwrap().quality.down = true;
        assert_eq!(over_it(&topology), 0);

        let mut topology = load("pair");
        topology.links[0].quality.down = true;
        assert_eq!(Routes::new(&topology).way(0, 1, 5), None);
    }
}
