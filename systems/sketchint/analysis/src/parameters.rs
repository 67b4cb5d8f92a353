//! The section `[sketchint]` of the controller's file.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_analysis::{Deployment, Node};
use calumma_plane::int::Instructions;
use calumma_sketch::sketchint::Shape;
use calumma_sketchint::frames::{Layout, Setup, WatchList, WatchRule};
use calumma_wire::Prefix;
use serde::Deserialize;

/// What a hop can say beside node id and latency, by the names of the specification.
const INSTRUCTIONS: [(&str, u16); 9] = [
    ("node-id", Instructions::NODE),
    ("ports", Instructions::PORTS),
    ("latency", Instructions::LATENCY),
    ("queue", Instructions::QUEUE),
    ("ingress-timestamp", Instructions::INGRESS),
    ("egress-timestamp", Instructions::EGRESS),
    ("interfaces", Instructions::INTERFACES),
    ("utilisation", Instructions::UTILISATION),
    ("buffer", Instructions::BUFFER),
];

/// What sinks keep of flows at switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    /// Rows of a table, and towers for what finds no room there.
    Rows,
    /// The paper's towers alone.
    Tower,
}

/// What the flows of an entry of the watch list have in common.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    src: Option<String>,
    dst: Option<String>,
    sport: Option<u16>,
    dport: Option<u16>,
    proto: Option<Proto>,
}

/// A protocol that stacks have a place in.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Proto {
    Tcp = 6,
    Udp = 17,
}

impl Rule {
    fn parse(&self) -> Result<WatchRule, String> {
        let prefix = |text: &Option<String>| -> Result<Option<Prefix>, String> {
            text.as_deref().map(str::parse).transpose()
        };
        Ok(WatchRule {
            src: prefix(&self.src)?,
            dst: prefix(&self.dst)?,
            sport: self.sport,
            dport: self.dport,
            proto: self.proto.map(|proto| proto as u8),
        })
    }
}

/// What the operator can say. `docs/sketchint.md` has a table of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Section {
    window_epochs: u16,
    instructions: Vec<String>,
    hops: u8,
    share: f64,
    watch: Vec<Rule>,
    foreign: BTreeMap<String, u32>,
    attention: bool,
    orphan_seconds: u16,
    layout: Kept,
    tower_words: u32,
    pair_buckets: u32,
    row_sets: u32,
    paths: u16,
    keys: u16,
    quantiles: u16,
    heavy_packets: u32,
    heavy_change_packets: u32,
    inflation: f64,
    flows_limit: usize,
    udp_port: u16,
}

impl Default for Section {
    fn default() -> Self {
        let setup = Setup::default();
        let Layout { shape, heavy_packets, heavy_change_packets, inflation_percent } = setup.layout;
        Self {
            window_epochs: setup.window_epochs,
            instructions: vec!["node-id".to_owned(), "latency".to_owned()],
            hops: setup.hops,
            share: 1.0,
            watch: Vec::new(),
            foreign: BTreeMap::new(),
            attention: false,
            orphan_seconds: setup.orphan_seconds,
            layout: Kept::Rows,
            tower_words: shape.tower_words,
            pair_buckets: shape.pair_buckets,
            row_sets: shape.row_sets,
            paths: shape.paths,
            keys: shape.keys,
            quantiles: shape.quantiles,
            heavy_packets,
            heavy_change_packets,
            inflation: f64::from(inflation_percent) / 100.0,
            flows_limit: 1000,
            udp_port: 0,
        }
    }
}

/// What the analysis goes by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// What switches measure by.
    pub(crate) setup: Setup,
    /// Whether the flows that ChameleMon finds carry stacks whatever the share.
    pub(crate) attention: bool,
    /// The largest flows that a report lists.
    pub(crate) flows_limit: usize,
    /// Switches of other makers, by the numbers that they put into stacks.
    pub(crate) foreign: BTreeMap<u32, String>,
}

impl Parameters {
    /// Those of a deployment.
    ///
    /// # Errors
    /// The field that is wrong, with its value, and what it may be.
    pub(crate) fn of(deployment: &Deployment<'_>) -> Result<Self, String> {
        let section: Section = deployment.parameters()?;
        let named = |(field, why): (&str, String)| format!("{field} = {why}");
        let Section { hops, share, window_epochs, orphan_seconds, .. } = section;
        if !(0.0..=1.0).contains(&share) {
            return Err(named(("share", format!("{share}: must be 0 to 1"))));
        }
        if !(1.0..=1e6).contains(&section.inflation) {
            let why = format!("{}: must be 1 to 1000000", section.inflation);
            return Err(named(("inflation", why)));
        }
        let watch: Result<Vec<WatchRule>, String> = section.watch.iter().map(Rule::parse).collect();
        let watch = watch.and_then(|rules| WatchList::new(&rules));
        let watch = watch.map_err(|why| named(("watch", why)))?;
        let foreign = foreign(&section.foreign, deployment.nodes);
        let foreign = foreign.map_err(|why| named(("foreign", why)))?;
        let row_sets = if section.layout == Kept::Rows { section.row_sets } else { 0 };
        let Section { tower_words, pair_buckets, paths, keys, quantiles, .. } = section;
        let shape = Shape { tower_words, pair_buckets, row_sets, hops, paths, ..Shape::default() };
        let shape = Shape { keys, quantiles, ..shape };
        let Section { heavy_packets, heavy_change_packets, .. } = section;
        let inflation_percent = (section.inflation * 100.0).round() as u32;
        let setup = Setup {
            domain: deployment.id,
            instructions: instructions(&section.instructions).map_err(named)?,
            hops,
            share: (share * f64::from(u32::MAX)).round() as u32,
            window_epochs,
            orphan_seconds,
            layout: Layout { shape, heavy_packets, heavy_change_packets, inflation_percent },
            watch,
            udp_port: NonZeroU16::new(section.udp_port),
        };
        setup.check().map_err(named)?;
        let Section { attention, flows_limit, .. } = section;
        Ok(Self { setup, attention, flows_limit, foreign })
    }
}

/// Switches of other makers by their numbers, none of which is that of another name.
fn foreign(
    names: &BTreeMap<String, u32>,
    nodes: &[Arc<Node>],
) -> Result<BTreeMap<u32, String>, String> {
    let mut foreign: BTreeMap<u32, String> = BTreeMap::new();
    for (name, &id) in names {
        if !(1..u32::MAX).contains(&id) {
            return Err(format!("{name} = {id}: must be 1 to {}", u32::MAX - 1));
        }
        if nodes.iter().any(|node| node.name == *name) {
            return Err(format!("{name} = {id}: that is the name of a node of this network"));
        }
        let node = nodes.iter().find(|node| u32::from(node.id) == id).map(|node| &node.name);
        if let Some(other) = node.or(foreign.get(&id)) {
            return Err(format!("{name} = {id}: that is the number of {other}"));
        }
        foreign.insert(id, name.clone());
    }
    Ok(foreign)
}

/// The instructions of these names.
fn instructions(names: &[String]) -> Result<Instructions, (&'static str, String)> {
    let mut bits = 0;
    for name in names {
        let known = INSTRUCTIONS.iter().find(|(known, _)| known == name);
        let Some((_, bit)) = known else {
            let known: Vec<&str> = INSTRUCTIONS.iter().map(|(known, _)| *known).collect();
            return Err(("instructions", format!("{name:?}: there are {}", known.join(", "))));
        };
        bits |= bit;
    }
    Instructions::new(bits).ok_or_else(|| {
        ("instructions", format!("{names:?}: node-id and latency must be among them"))
    })
}

#[cfg(test)]
mod tests {
    use calumma_analysis::HashKeys;
    use calumma_epoch::{EpochClock, Guards};
    use calumma_sketch::HashKey;
    use serde_json::{Value, json};

    use super::*;

    fn of(section: &Value) -> Result<Parameters, String> {
        let (name, role) = ("s1".to_owned(), calumma_wire::Role::Transit);
        let nodes = [Arc::new(Node { name, role, id: 3 })];
        let hash_keys = HashKeys::new(HashKey::from_bytes([1; 32]));
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let id = NonZeroU16::new(77).unwrap();
        Parameters::of(&Deployment { section, hash_keys: &hash_keys, clock, nodes: &nodes, id })
    }

    #[test]
    fn without_a_section_it_is_the_papers_window_and_this_deployments_domain() {
        let parameters = of(&Value::Null).unwrap();
        let domain = NonZeroU16::new(77).unwrap();
        assert_eq!(parameters.setup, Setup { domain, ..Setup::default() });
        assert!(!parameters.attention && of(&json!({ "attention": true })).unwrap().attention);
        let rules = json!([{ "proto": "tcp" }, { "src": "10.1.0.0/16", "sport": 53 }]);
        let watching = of(&json!({ "watch": rules })).unwrap().setup;
        let tcp = WatchRule { proto: Some(6), ..WatchRule::default() };
        let src = Some("10.1.0.0/16".parse().unwrap());
        let dns = WatchRule { src, sport: Some(53), ..WatchRule::default() };
        assert_eq!(watching.watch, WatchList::new(&[tcp, dns]).unwrap());
        let tower = of(&json!({ "layout": "tower", "share": 0.5 })).unwrap().setup;
        assert_eq!((tower.layout.shape.row_sets, tower.share), (0, 1 << 31));
        let foreign = of(&json!({ "foreign": { "s7": 77, "s8": 0x1_0001 } })).unwrap().foreign;
        assert_eq!(foreign, [(77, "s7".to_owned()), (0x1_0001, "s8".to_owned())].into());
        let by_size = of(&json!({ "quantiles": 256 })).unwrap().setup;
        assert_eq!((setup_of(&by_size), by_size.layout.shape.quantiles), (by_size, 256));
        let by_port = of(&json!({ "udp_port": 41000 })).unwrap().setup;
        assert_eq!((setup_of(&by_port), by_port.udp_port), (by_port, NonZeroU16::new(41_000)));
        assert_eq!(of(&json!({ "udp_port": 0 })).unwrap().setup.udp_port, None);
    }

    fn setup_of(setup: &Setup) -> Setup {
        Setup::decode(&setup.encode()).unwrap()
    }

    #[test]
    fn mistakes_are_named_with_what_may_be() {
        for (section, words) in [
            (json!({ "window": 3 }), "unknown field `window`"),
            (json!({ "window_epochs": 1 }), "window_epochs = 1: must be 2 to 1000"),
            (json!({ "share": 1.5 }), "share = 1.5: must be 0 to 1"),
            (json!({ "watch": [{}] }), "watch = rule 0 is empty"),
            (json!({ "watch": [{ "src": "10.0.0.1/8" }] }), "bits beyond the first 8 are set"),
            (json!({ "watch": [{ "proto": "icmp" }] }), "unknown variant `icmp`"),
            (json!({ "watch": [{ "port": 80 }] }), "unknown field `port`"),
            (json!({ "hops": 17 }), "hops = 17: must be 1 to 16"),
            (json!({ "orphan_seconds": 0 }), "orphan_seconds = 0: must be 1 to 3600"),
            (
                json!({ "instructions": ["node-id", "colour"] }),
                "instructions = \"colour\": there are",
            ),
            (json!({ "instructions": ["latency"] }), "node-id and latency must be among them"),
            (json!({ "inflation": 0.5 }), "inflation = 0.5: must be 1 to 1000000"),
            (json!({ "layout": "table" }), "unknown variant `table`"),
            (json!({ "quantiles": 5000 }), "quantiles = 5000: must be 0 to 4096"),
            (
                json!({ "layout": "tower", "quantiles": 5 }),
                "quantiles = 5: there are no rows that they could be of",
            ),
            (json!({ "foreign": { "s7": 0 } }), "foreign = s7 = 0: must be 1 to 4294967294"),
            (json!({ "foreign": { "s1": 9 } }), "s1 = 9: that is the name of a node of this"),
            (json!({ "foreign": { "s7": 3 } }), "foreign = s7 = 3: that is the number of s1"),
            (
                json!({ "foreign": { "s7": 77, "s8": 77 } }),
                "foreign = s8 = 77: that is the number of s7",
            ),
            (json!({ "udp_port": 65536 }), "invalid value: integer `65536`"),
            (json!({ "udp_port": 53 }), "udp_port = 53: is a service's that hosts, firewalls"),
            (json!({ "udp_port": 4789 }), "udp_port = 4789: is VXLAN's"),
            (json!({ "udp_port": 6081 }), "udp_port = 6081: is Geneve's"),
            (json!({ "row_sets": 262145 }), "row_sets = 262145: must be 0 to 262144"),
        ] {
            let problem = of(&section).unwrap_err();
            assert!(problem.contains(words), "{section}: {problem}");
        }
        let all: Vec<&str> = INSTRUCTIONS.iter().map(|(name, _)| *name).collect();
        let long = json!({ "instructions": all, "hops": 16 });
        assert_eq!(of(&long).unwrap().setup.instructions.words(), 12);
    }
}
