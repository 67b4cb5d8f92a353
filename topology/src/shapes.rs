//! Topologies that have a name.

use anyhow::{Context, Result, ensure};

use super::{LinkQuality, Topology};

/// Hosts of every edge where the shape does not say.
pub(super) const HOSTS: u32 = 2;

/// The topology called `name`; none where no shape is called so.
pub(super) fn named(name: &str, quality: LinkQuality) -> Option<Result<Topology>> {
    let (shape, size) = name.split_once(':').unwrap_or((name, ""));
    let topology = match shape {
        "pair" => Ok(pair(quality)),
        "leaf-spine" => two_numbers(size)
            .and_then(|(leaves, spines)| leaf_spine(leaves, spines, quality))
            .context("leaf-spine:LxS has L leaves and S spines"),
        "fat-tree" => {
            let (arity, pods) = match size.split_once('x') {
                Some((arity, pods)) => (arity.parse(), pods.parse()),
                None => (size.parse(), size.parse()),
            };
            match (arity, pods) {
                (Ok(arity), Ok(pods)) => fat_tree(arity, pods, quality),
                _ => Err(anyhow::anyhow!("{size:?} is no size")),
            }
            .context("fat-tree:K has K pods of K/2 edges each; fat-tree:KxP has P pods only")
        }
        _ => return None,
    };
    Some(topology.with_context(|| format!("topology {name:?}")))
}

fn two_numbers(size: &str) -> Result<(usize, usize)> {
    let (a, b) = size.split_once('x').with_context(|| format!("{size:?} is no size"))?;
    Ok((a.parse()?, b.parse()?))
}

/// Two edges at either side of one switch.
fn pair(quality: LinkQuality) -> Topology {
    let mut topology = Topology::default();
    let edges = [topology.add_edge("e1", HOSTS), topology.add_edge("e2", HOSTS)];
    let core = topology.add_switch("core");
    edges.iter().for_each(|&edge| topology.connect(edge, core, quality));
    topology
}

/// Every leaf, which is an edge, connected to every spine.
fn leaf_spine(leaves: usize, spines: usize, quality: LinkQuality) -> Result<Topology> {
    ensure!(leaves >= 2 && spines >= 1, "at least two leaves and a spine");
    let mut topology = Topology::default();
    (1..=leaves).for_each(|leaf| {
        topology.add_edge(format!("e{leaf}"), HOSTS);
    });
    for spine in 1..=spines {
        let spine = topology.add_switch(format!("s{spine}"));
        (0..leaves).for_each(|leaf| topology.connect(leaf, spine, quality));
    }
    Ok(topology)
}

/// The first `pods` of a fat tree's `arity` pods: each has arity/2 edges with as many hosts, and
/// arity/2 aggregation switches, every one of which is connected to arity/2 cores of its own.
fn fat_tree(arity: usize, pods: usize, quality: LinkQuality) -> Result<Topology> {
    ensure!(arity >= 2 && arity.is_multiple_of(2), "K = {arity}: must be even and at least 2");
    ensure!((1..=arity).contains(&pods), "P = {pods}: must be 1 to K");
    let half = arity / 2;
    let mut topology = Topology::default();
    (1..=pods * half).for_each(|edge| {
        topology.add_edge(format!("e{edge}"), half as u32);
    });
    let cores: Vec<usize> =
        (1..=half * half).map(|core| topology.add_switch(format!("c{core}"))).collect();
    for pod in 0..pods {
        for (at, cores) in cores.chunks(half).enumerate() {
            let aggregation = topology.add_switch(format!("a{}", pod * half + at + 1));
            for edge in pod * half..(pod + 1) * half {
                topology.connect(edge, aggregation, quality);
            }
            cores.iter().for_each(|&core| topology.connect(aggregation, core, quality));
        }
    }
    Ok(topology)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(name: &str) -> (usize, usize, usize) {
        let topology = named(name, LinkQuality::default()).unwrap().unwrap();
        (topology.edges().len(), topology.switches(), topology.links().len())
    }

    #[test]
    fn shapes_have_the_switches_and_links_their_names_promise() {
        assert_eq!(sizes("pair"), (2, 3, 2));
        assert_eq!(sizes("leaf-spine:4x2"), (4, 6, 8));
        assert_eq!(sizes("fat-tree:4"), (8, 20, 32));
        assert_eq!(sizes("fat-tree:4x2"), (4, 12, 16));
    }

    #[test]
    fn a_size_that_makes_no_network_is_refused_with_what_is_expected() {
        let problem =
            |name| format!("{:#}", named(name, LinkQuality::default()).unwrap().err().unwrap());
        assert!(problem("fat-tree:3").contains("K = 3: must be even"));
        assert!(problem("leaf-spine:4").contains("L leaves and S spines"));
        assert!(named("ring:3", LinkQuality::default()).is_none());
    }
}
