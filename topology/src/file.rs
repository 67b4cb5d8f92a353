//! Topologies from TOML files: `[[edge]]`, `[[switch]]`, `[[link]]`; or from within other files.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::shapes::{HOSTS, named};
use super::{EdgeKind, InnerKind, LinkQuality, Topology};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    through_edges: bool,
    edge: Vec<Edge>,
    #[serde(default)]
    switch: Vec<Switch>,
    link: Vec<Link>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    name: String,
    #[serde(default = "default_hosts")]
    hosts: u32,
    #[serde(default)]
    kind: EdgeKind,
}

fn default_hosts() -> u32 {
    HOSTS
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
            "{}: a topology is `pair`, `leaf-spine:LxS`, `fat-tree:K`, `zoo:FILE.gml`, or the path \
             of a file",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).with_context(named)?;
    parse(&text, quality).with_context(|| path.display().to_string())
}

fn parse(text: &str, quality: LinkQuality) -> Result<Topology> {
    of(toml::from_str(text)?, quality)
}

fn of(file: File, quality: LinkQuality) -> Result<Topology> {
    let mut topology = Topology { through_edges: file.through_edges, ..Topology::default() };
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
            topology.position(name).with_context(|| {
                format!("link between {between:?}: no switch {name:?}; name it in edge or switch")
            })
        };
        let [a, b] = [at(&between[0])?, at(&between[1])?];
        topology.connect(a, b, own.unwrap_or(quality));
    }
    Ok(topology)
}

/// In a file of something else it is the name of a shape, or a table as in a file of its own. What
/// is wrong is named, and the file's reader adds the line.
impl<'de> Deserialize<'de> for Topology {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Topology;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`pair`, `leaf-spine:LxS`, `fat-tree:K`, or a table of edge, switch and link")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Topology, E> {
        let Some(topology) = named(name, LinkQuality::default()) else {
            return Err(E::invalid_value(serde::de::Unexpected::Str(name), &self));
        };
        topology.map_err(|problem| E::custom(format!("{problem:#}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Topology, A::Error> {
        let file = File::deserialize(MapAccessDeserializer::new(table))?;
        let topology = of(file, LinkQuality::default()).and_then(|topology| {
            topology.check()?;
            Ok(topology)
        });
        topology.map_err(|problem| A::Error::custom(format!("{problem:#}")))
    }
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

    #[test]
    fn another_file_has_it_as_a_name_or_a_table_and_mistakes_have_a_line() {
        #[derive(Debug, Deserialize)]
        struct Other {
            topology: Topology,
        }
        let read = |text: &str| toml::from_str::<Other>(text).map(|other| other.topology);
        let shape = read("topology = 'leaf-spine:2x1'").unwrap();
        let table = read(
            "[topology]
            edge = [{ name = 'e1' }, { name = 'e2' }]
            switch = [{ name = 's1' }]
            link = [{ between = ['e1', 's1'] }, { between = ['e2', 's1'] }]",
        );
        assert_eq!(table.unwrap(), shape);
        let problem = |text: &str| read(text).unwrap_err().to_string();
        let name = problem("\ntopology = 'ring:3'");
        assert!(name.contains("line 2") && name.contains("leaf-spine:LxS"), "{name}");
        let size = problem("topology = 'fat-tree:3'");
        assert!(size.contains("K = 3: must be even"), "{size}");
        let field = problem("[topology]\nedge = [{ name = 'e1', host = 2 }]\nlink = []");
        assert!(field.contains("line 2") && field.contains("unknown field `host`"), "{field}");
        let link =
            problem("[topology]\nedge = [{ name = 'e1' }]\nlink = [{ between = ['e1', 'x'] }]");
        assert!(link.contains("no switch \"x\"; name it in edge or switch"), "{link}");
        let itself =
            problem("[topology]\nedge = [{ name = 'e1' }]\nlink = [{ between = ['e1', 'e1'] }]");
        assert!(itself.contains("\"e1\" and itself"), "{itself}");
    }
}
