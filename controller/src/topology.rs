//! The topology that the operator gives: whether it fits the nodes, and what is seen of it.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use calumma_topology::{Routes, Topology};
use calumma_wire::Role;

use crate::api::{NodeStatus, TopologyNode, TopologyStatus, UnexpectedNode};
use crate::server::hub::lock;

/// Checks that a topology has the edges and transits that are expected, and ways between the edges.
///
/// # Errors
/// The switch and the remedy.
pub(crate) fn check(
    topology: &Topology,
    edges: &[String],
    transits: &[String],
) -> Result<(), String> {
    if topology.through_edges() {
        return Err(
            "`through_edges`: an edge counts what its own hosts send and receive, so packets that \
             pass through it would be missed: make switches that forward others' packets a `switch`"
                .to_owned(),
        );
    }
    let expected: HashSet<&String> = edges.iter().collect();
    let is_edge = |name: &str| topology.position(name).is_some_and(|at| topology.is_edge(at));
    if let Some(name) = edges.iter().find(|name| !is_edge(name)) {
        return Err(format!(
            "{name:?} of `edges` is no edge there: add {{ name = {name:?} }} to its `edge`, or take \
             it out of `edges`"
        ));
    }
    if let Some(name) = topology.edges().iter().find(|name| !expected.contains(name)) {
        return Err(format!(
            "its edge {name:?} is not expected: add it to `edges`, or make it a `switch` there"
        ));
    }
    let is_inner = |name: &str| topology.position(name).is_some_and(|at| !topology.is_edge(at));
    if let Some(name) = transits.iter().find(|name| !is_inner(name)) {
        return Err(format!(
            "{name:?} of `transits` is no switch there: add {{ name = {name:?} }} to its `switch`, \
             or take it out of `transits`"
        ));
    }
    let is_transit = |name: &&str| transits.iter().any(|transit| transit == name);
    if let Some(name) = topology.measuring().find(|name| !is_transit(name)) {
        return Err(format!(
            "its switch {name:?} is said to measure and is not expected: add it to `transits`, or \
             leave its kind out"
        ));
    }
    let routes = Routes::new(topology);
    match (1..topology.edges().len()).find(|&edge| !routes.reaches(0, edge)) {
        None => Ok(()),
        Some(edge) => {
            let [from, to] = [0, edge].map(|at| &topology.edges()[at]);
            Err(format!("no way leads from {from:?} to {to:?}: add the links between them"))
        }
    }
}

/// Changes of the topology that are kept; windows before them have none.
const CHANGES_KEPT: usize = 64;

/// The topology of every epoch. It changes when the configuration is read again: in what epoch the
/// links changed is then not known, but for those that begin afterwards.
#[derive(Debug)]
pub struct Topologies(Mutex<Changes>);

#[derive(Debug)]
struct Changes {
    /// Before all changes.
    first: Option<Arc<Topology>>,
    /// Each with the epoch in which it was made, ascending.
    made: VecDeque<(u64, Option<Arc<Topology>>)>,
}

impl Topologies {
    /// One topology, or none, until it changes.
    pub fn new(topology: Option<Topology>) -> Self {
        let first = topology.map(Arc::new);
        Self(Mutex::new(Changes { first, made: VecDeque::new() }))
    }

    /// The last one.
    pub(crate) fn last(&self) -> Option<Arc<Topology>> {
        let changes = lock(&self.0);
        changes.made.back().map_or(&changes.first, |(_, topology)| topology).clone()
    }

    /// That of a window, which is not empty; `None` where it changed meanwhile.
    pub(crate) fn in_all_of(&self, window: Range<u64>) -> Option<Arc<Topology>> {
        let changes = lock(&self.0);
        let before_its_end = changes.made.iter().rev().find(|(epoch, _)| *epoch < window.end);
        match before_its_end {
            None => changes.first.clone(),
            Some((epoch, _)) if window.contains(epoch) => None,
            Some((_, topology)) => topology.clone(),
        }
    }

    /// Makes it another in `epoch`, and says whether it is another.
    pub(crate) fn change(&self, topology: Option<Topology>, epoch: u64) -> bool {
        if self.last().as_deref() == topology.as_ref() {
            return false;
        }
        let mut changes = lock(&self.0);
        // The clock may have been set back.
        let epoch = changes.made.back().map_or(epoch, |(last, _)| epoch.max(*last));
        changes.made.push_back((epoch, topology.map(Arc::new)));
        if changes.made.len() > CHANGES_KEPT {
            changes.made.pop_front();
            changes.first = None;
        }
        true
    }
}

/// The network as it should be, and as it is seen.
pub(crate) fn status(
    topology: Option<&Topology>,
    nodes: Vec<NodeStatus>,
    unexpected: Vec<UnexpectedNode>,
) -> TopologyStatus {
    let missing = nodes.iter().filter(|node| !node.connected).map(missing);
    let problems = missing.chain(unexpected.iter().map(not_named)).collect();
    let measuring: HashSet<String> = nodes.iter().map(|node| node.node.clone()).collect();
    let place = |node: NodeStatus| TopologyNode {
        hosts: topology.and_then(|topology| hosts(topology, &node.node)),
        node: node.node,
        role: node.role,
        id: Some(node.id),
        connected: Some(node.connected),
    };
    let others = topology.map_or(&[][..], Topology::names).iter();
    let others = others.filter(|name| !measuring.contains(*name)).map(|name| TopologyNode {
        node: name.clone(),
        role: Role::Transit.name(),
        id: None,
        connected: None,
        hosts: None,
    });
    let links = topology.map(|topology| {
        let names = topology.names();
        topology.links().iter().map(|link| link.ends.map(|at| names[at].clone())).collect()
    });
    TopologyStatus {
        nodes: nodes.into_iter().map(place).chain(others).collect(),
        links,
        unexpected,
        problems,
    }
}

/// How many hosts an edge has.
fn hosts(topology: &Topology, node: &str) -> Option<u32> {
    topology.hosts().get(topology.position(node)?).copied()
}

fn missing(node: &NodeStatus) -> String {
    let NodeStatus { node, role, last_problem, .. } = node;
    match last_problem {
        Some(problem) => format!("{role} {node} is not connected: {problem}"),
        None => format!(
            "{role} {node} is not connected: start its program with name = {node:?}, role = \
             {role:?} and this controller's address"
        ),
    }
}

fn not_named(unexpected: &UnexpectedNode) -> String {
    let UnexpectedNode { node, role, address, .. } = unexpected;
    format!(
        "{role} {node:?} at {address} is not expected here, and measures nothing: add it to \
         `{role}s`, or correct its name"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn problem(text: &str) -> String {
        Config::parse(text, "c.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_window_in_which_the_topology_changed_has_none() {
        let named = |shape: &str| Some(serde_json::from_value::<Topology>(shape.into()).unwrap());
        let topologies = Topologies::new(named("pair"));
        let switches = |window| topologies.in_all_of(window).map(|topology| topology.switches());
        assert!(!topologies.change(named("pair"), 4), "it is no other");
        assert_eq!(switches(0..100), Some(3));

        assert!(topologies.change(named("leaf-spine:2x2"), 10));
        assert!(topologies.change(named("leaf-spine:2x3"), 10), "once more in that epoch");
        assert!(topologies.change(None, 20));
        let windows = [9..10, 10..11, 11..12, 19..20, 20..21, 21..22, 5..11, 5..10, 11..20, 11..21];
        let expected = [Some(3), None, Some(5), Some(5), None, None, None, Some(3), Some(5), None];
        assert_eq!(windows.map(switches), expected);

        let shapes = ["pair", "leaf-spine:2x2"].into_iter().cycle().take(CHANGES_KEPT);
        shapes.zip(30..).for_each(|(shape, epoch)| assert!(topologies.change(named(shape), epoch)));
        assert_eq!(topologies.last().unwrap().switches(), 4);
        assert_eq!(switches(11..12), None, "that is forgotten");
    }

    #[test]
    fn what_does_not_fit_the_nodes_is_named_with_the_remedy() {
        let pair = "edges = ['e1', 'e2']\ntransits = ['core']\ntopology = 'pair'";
        assert!(Config::parse(pair, "c.toml").is_ok());
        let edge = problem(&pair.replace("['e1', 'e2']", "['e1', 'e9']"));
        assert!(edge.contains("\"e9\" of `edges` is no edge there: add"), "{edge}");
        let edge = problem(&pair.replace("['e1', 'e2']", "['e1']"));
        assert!(edge.contains("its edge \"e2\" is not expected: add it to `edges`"), "{edge}");
        let transit = problem(&pair.replace("core", "s1"));
        assert!(transit.contains("\"s1\" of `transits` is no switch there: add"), "{transit}");

        let table = "edges = ['e1', 'e2']\n[topology]\nedge = [{ name = 'e1' }, { name = 'e2' }]\n\
                     switch = [{ name = 's1', kind = 'software' }]\n\
                     link = [{ between = ['e1', 's1'] }]";
        let through = problem(&table.replace("[topology]", "[topology]\nthrough_edges = true"));
        assert!(through.contains("packets that pass through it would be missed"), "{through}");
        let kind = problem(table);
        assert!(kind.contains("\"s1\" is said to measure and is not expected"), "{kind}");
        let way = problem(&table.replace(", kind = 'software'", ""));
        assert!(way.contains("no way leads from \"e1\" to \"e2\": add the links"), "{way}");
    }
}
