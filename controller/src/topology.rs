//! The topology that the operator gives: whether it fits the nodes, and what is seen of it.

use std::collections::HashSet;

use calumma_topology::{Routes, Topology};
use calumma_wire::Role;

use crate::api::{NodeStatus, TopologyNode, TopologyStatus, UnexpectedNode};
use crate::config::Config;

/// Checks that a topology has the edges and transits that are expected, and ways between the edges.
///
/// # Errors
/// The switch and the remedy.
pub(crate) fn check(
    topology: &Topology,
    edges: &[String],
    transits: &[String],
) -> Result<(), String> {
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

/// The network as it should be, and as it is seen.
pub(crate) fn status(
    config: &Config,
    nodes: Vec<NodeStatus>,
    unexpected: Vec<UnexpectedNode>,
) -> TopologyStatus {
    let topology = config.topology.as_ref();
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

    fn problem(text: &str) -> String {
        Config::parse(text, "c.toml").unwrap_err().to_string()
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
        let kind = problem(table);
        assert!(kind.contains("\"s1\" is said to measure and is not expected"), "{kind}");
        let way = problem(&table.replace(", kind = 'software'", ""));
        assert!(way.contains("no way leads from \"e1\" to \"e2\": add the links"), "{way}");
    }
}
