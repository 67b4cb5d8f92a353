//! Topologies from TOML files: `[[edge]]`, `[[switch]]`, `[[link]]`.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{EdgeKind, InnerKind, LinkQuality, Topology};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    edge: Vec<Edge>,
    #[serde(default)]
    switch: Vec<Switch>,
    link: Vec<Link>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    name: String,
    hosts: u32,
    #[serde(default)]
    kind: EdgeKind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    name: String,
    #[serde(default)]
    kind: InnerKind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    between: [String; 2],
    quality: Option<LinkQuality>,
}

/// Reads a topology; links without a quality of their own have `quality`.
pub(super) fn read(path: &Path, quality: LinkQuality) -> Result<Topology> {
    let named = || {
        format!(
            "{}: a topology is `pair`, `leaf-spine:LxS`, `fat-tree:K`, or the path of a file",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).with_context(named)?;
    parse(&text, quality).with_context(|| path.display().to_string())
}

fn parse(text: &str, quality: LinkQuality) -> Result<Topology> {
    let file: File = toml::from_str(text)?;
    let mut topology = Topology::default();
    for Edge { name, hosts, kind } in file.edge {
        let at = topology.add_edge(name, hosts);
        topology.kinds[at] = kind;
    }
    for Switch { name, kind } in file.switch {
        let at = topology.add_switch(name);
        topology.inner[at - topology.hosts.len()] = kind;
    }
    for Link { between, quality: own } in file.link {
        let at = |name: &String| {
            let position = topology.switches.iter().position(|switch| switch == name);
            position.with_context(|| format!("link between {between:?}: no switch {name:?}"))
        };
        let [a, b] = [at(&between[0])?, at(&between[1])?];
        topology.connect(a, b, own.unwrap_or(quality));
    }
    Ok(topology)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_edges_switches_and_links() {
        let text =
            "edge = [{ name = 'e1', hosts = 2 }, { name = 'e2', hosts = 1, kind = 'tofino' }]
            switch = [{ name = 's', kind = 'software' }]
            [[link]]
            between = ['e1', 's']
            [[link]]
            between = ['s', 'e2']
            quality = { loss = 0.5 }";
        let mut topology = parse(text, LinkQuality::default()).unwrap();
        assert_eq!(topology.hosts(), [2, 1]);
        assert_eq!(topology.kinds(), [EdgeKind::Software, EdgeKind::Tofino]);
        assert!(topology.transits().eq([2]));
        let link = topology.link_between(&["e2".to_owned(), "s".to_owned()]).unwrap();
        assert_eq!((link.quality.loss, link.quality.delay_us), (0.5, 5.0));
        let wrong = parse(&text.replace("'s', 'e2'", "'x', 'e2'"), LinkQuality::default());
        assert!(format!("{:#}", wrong.unwrap_err()).contains("no switch \"x\""));
    }
}
