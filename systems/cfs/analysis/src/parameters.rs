//! The section `[cfs]` of the controller's file.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_analysis::Node;
use calumma_cfs::frames::{Graded, Hop, Pins, PortHops, Setup};
use calumma_epoch::EpochClock;
use calumma_sketch::grade::HopRule;
use calumma_sketch::residual::{ARRAYS, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::alpha::{BUCKET_BYTES, ENTRY_BYTES};
use crate::pinning::Automatic;

/// How hops are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Hops {
    Ttl,
    Port,
    Mark,
    None,
}

/// By which rule flows are graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Rule {
    Fold,
    Greedy,
    Random,
    Even,
}

/// Which ways the packets of one flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Paths {
    /// All of them the same, as long as routes don't change.
    Single,
    /// Several.
    Sprayed,
}

/// Where hosts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HostsAre {
    /// Behind whichever edges: they may move, and be behind several.
    Any,
    /// Each behind one edge, always the same: so an operator says.
    Fixed,
}

/// Flows that are pinned without an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Pinned {
    Victims,
    Heavy,
}

/// What switches keep of flows without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    None,
    Fermat,
    FlowRadar,
}

/// Which share of the memory of table and residual the table has.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum Share {
    Fixed(f64),
    /// What `auto` is the only one of.
    Named(String),
}

/// The share that memory is divided by where it moves: what it begins with.
const FIRST_SHARE: f64 = 0.9;

/// What the operator can say. `docs/cfs.md` has a table of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Section {
    entries: u32,
    filter_bits: Option<u32>,
    hll_bits: u8,
    window_epochs: u16,
    hop: Hops,
    hops: BTreeMap<String, Vec<u8>>,
    path_length: u8,
    ttl_base: Option<u8>,
    hop_offset: u8,
    hop_step: u8,
    grade: Option<Rule>,
    claim: bool,
    reseed: bool,
    residual: Kept,
    alpha: Share,
    guard: bool,
    pins: Option<u32>,
    pin: Vec<Pinned>,
    paths: Paths,
    hosts: HostsAre,
    flows_listed: usize,
    heavy_packets: u64,
    heavy_change_packets: u64,
    superspreader: u64,
    coverage_wanted: f64,
}

impl Default for Section {
    fn default() -> Self {
        let setup = Setup::default();
        Self {
            entries: setup.entries,
            filter_bits: None,
            hll_bits: setup.hll_bits,
            window_epochs: setup.window_epochs,
            hop: Hops::Ttl,
            hops: BTreeMap::new(),
            path_length: 0,
            ttl_base: None,
            hop_offset: 0,
            hop_step: 1,
            grade: None,
            claim: false,
            reseed: setup.reseed,
            residual: Kept::None,
            alpha: Share::Fixed(FIRST_SHARE),
            guard: true,
            pins: None,
            pin: vec![Pinned::Victims, Pinned::Heavy],
            paths: Paths::Single,
            hosts: HostsAre::Any,
            flows_listed: 1000,
            heavy_packets: 10_000,
            heavy_change_packets: 10_000,
            superspreader: 1000,
            coverage_wanted: 0.9,
        }
    }
}

/// What the analysis goes by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// What switches measure by. Where ports say which hop a switch is at, it has none of them.
    pub(crate) setup: Setup,
    /// The hops of each node's ports, where they say it.
    pub(crate) hops: BTreeMap<String, PortHops>,
    /// Whether the share of the memory of table and residual moves by itself.
    pub(crate) alpha_moves: bool,
    /// Flows that can be pinned, at most.
    pub(crate) pins: usize,
    /// What is pinned without an operator's word.
    pub(crate) pin: Automatic,
    /// Which ways the packets of one flow go.
    pub(crate) paths: Paths,
    /// Where hosts are.
    pub(crate) hosts: HostsAre,
    /// The largest flows that a report lists.
    pub(crate) flows_listed: usize,
    /// What is listed as large.
    pub(crate) thresholds: Thresholds,
}

/// From when on something is listed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    /// Packets in a window that make a flow a heavy hitter.
    pub(crate) heavy_packets: u64,
    /// Packets more or less than in the window before that make it a heavy change.
    pub(crate) heavy_change_packets: u64,
    /// Destinations that make a source a superspreader, and sources that flood a destination.
    pub(crate) superspreader: u64,
    /// The share of all flows below which an alert says that too few have an entry.
    pub(crate) coverage_wanted: f64,
}

/// Flows that can be pinned where nothing else is said, as far as tables have room.
const PINS: u32 = 1024;

/// Bits of the filter for each entry where nothing else is said: enough to keep five times as many
/// flows out as there are entries.
const FILTER_BITS_OF_AN_ENTRY: u32 = 64;

/// Buckets an array of the residual, so large that the table has its share of both.
fn residual_of(section: &Section, filter_bits: u32) -> Result<Option<u32>, (&'static str, String)> {
    let alpha = match &section.alpha {
        Share::Fixed(alpha) if (0.1..=0.99).contains(alpha) => *alpha,
        Share::Fixed(alpha) => {
            return Err(("alpha", format!("{alpha}: must be 0.1 to 0.99, or auto")));
        }
        Share::Named(name) if name != "auto" => {
            return Err(("alpha", format!("{name}: must be 0.1 to 0.99, or auto")));
        }
        Share::Named(_) if section.residual == Kept::None => {
            return Err(("alpha", "auto: there is no residual, which needs fermat".to_owned()));
        }
        Share::Named(_) if section.residual == Kept::FlowRadar => {
            let why = "auto: the share of flowradar does not move: must be 0.1 to 0.99";
            return Err(("alpha", why.to_owned()));
        }
        Share::Named(_) => FIRST_SHARE,
    };
    let (filter, of_bucket) = match section.residual {
        Kept::None => return Ok(None),
        // The table's filter is what it needs.
        Kept::Fermat => (f64::from(filter_bits) / 8.0, BUCKET_BYTES * ARRAYS as f64),
        // It has one as large as the table's: these are not shared.
        Kept::FlowRadar => (0.0, Setup::CELLS_BYTES.into()),
    };
    let table = f64::from(section.entries) * ENTRY_BYTES + filter;
    let buckets = table * (1.0 - alpha) / alpha / of_bucket;
    let (least, most) = (Setup::RESIDUAL.start(), Setup::RESIDUAL.end());
    Ok(Some((buckets as u32).clamp(*least, *most)))
}

/// The hops of each node's ports, where they say at which hop it is.
fn hops_of(section: &Section, nodes: &[Arc<Node>]) -> Result<BTreeMap<String, PortHops>, String> {
    if section.hop != Hops::Port {
        return match section.hops.keys().next() {
            Some(node) => Err(format!("hops.{node}: only where hop = \"port\"")),
            None => Ok(BTreeMap::new()),
        };
    }
    if let Some(node) = section.hops.keys().find(|name| nodes.iter().all(|of| of.name != **name)) {
        return Err(format!("hops.{node}: there is no such node"));
    }
    let of_node = |node: &Arc<Node>| {
        let name = &node.name;
        let numbers = section.hops.get(name).filter(|numbers| !numbers.is_empty());
        let none = || format!("hop = \"port\": node {name} has no number for port 0");
        let numbers = numbers.ok_or_else(none)?;
        let (most, ports) = (PortHops::MOST, numbers.len());
        let many = || format!("hops.{name} = {ports} numbers: must be at most {most}");
        Ok((name.clone(), PortHops::new(numbers).ok_or_else(many)?))
    };
    nodes.iter().map(of_node).collect()
}

impl Section {
    /// The section as it stands in a file; the defaults where there is none.
    ///
    /// # Errors
    /// What can't be read of it.
    pub(crate) fn read(section: &Value) -> Result<Self, String> {
        match section {
            Value::Null => Ok(Self::default()),
            section => Self::deserialize(section).map_err(|error| error.to_string()),
        }
    }

    /// All its fields, also those that nobody has said.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // A struct is an object.
            _ => Map::new(),
        }
    }
}

impl Parameters {
    /// Those of a deployment of such nodes.
    ///
    /// # Errors
    /// The field that is wrong, with its value, and what it may be.
    pub(crate) fn of(
        section: &Section,
        clock: EpochClock,
        nodes: &[Arc<Node>],
    ) -> Result<Self, String> {
        let named = |(field, why): (&str, String)| format!("{field} = {why}");
        let filter_bits = section.filter_bits.unwrap_or_else(|| {
            let (least, most) = (Setup::FILTER_BITS.start(), Setup::FILTER_BITS.end());
            section.entries.saturating_mul(FILTER_BITS_OF_AN_ENTRY).clamp(*least, *most)
        });
        let rule =
            HopRule { base: section.ttl_base, offset: section.hop_offset, step: section.hop_step };
        let (hop, rule_unless_said) = match section.hop {
            Hops::Ttl => (Hop::Ttl(rule), Rule::Fold),
            Hops::Port => (Hop::Port(PortHops::NONE), Rule::Fold),
            Hops::Mark => (Hop::Mark { length: section.path_length }, Rule::Fold),
            Hops::None => (Hop::None, Rule::Random),
        };
        if section.path_length > 0 && section.hop != Hops::Mark {
            let why = format!("{}: only where hop = \"mark\"", section.path_length);
            return Err(named(("path_length", why)));
        }
        let hops = hops_of(section, nodes)?;
        let residual = residual_of(section, filter_bits).map_err(named)?;
        let is_radar = section.residual == Kept::FlowRadar;
        let kind = if is_radar { Kind::FlowRadar } else { Kind::Fermat };
        let setup = Setup {
            entries: section.entries,
            filter_bits,
            hll_bits: section.hll_bits,
            window_epochs: section.window_epochs,
            hop,
            grade: match section.grade.unwrap_or(rule_unless_said) {
                Rule::Fold => Graded::Fold,
                Rule::Greedy => Graded::Greedy,
                Rule::Random => Graded::Random,
                Rule::Even => Graded::Even,
            },
            claim: section.claim,
            reseed: section.reseed,
            residual,
            kind,
            guard: section.guard,
            alpha_moves: residual.is_some() && kind == Kind::Fermat,
            overrides: true,
            ends: section.hosts == HostsAre::Any,
            sums: section.hosts == HostsAre::Any,
        };
        setup.check().map_err(named)?;
        let most_pins = Pins::most_of(setup.entries);
        let pins = section.pins.unwrap_or(most_pins.min(PINS));
        if pins > most_pins {
            let why = format!("{pins}: must be 0 to {most_pins}, a quarter of the entries at most");
            return Err(named(("pins", why)));
        }
        let pin = Automatic {
            victims: section.pin.contains(&Pinned::Victims),
            heavy: section.pin.contains(&Pinned::Heavy),
        };
        let Section { heavy_packets, heavy_change_packets, superspreader, .. } = *section;
        let coverage_wanted = section.coverage_wanted;
        for (field, value) in [
            ("heavy_packets", heavy_packets),
            ("heavy_change_packets", heavy_change_packets),
            ("superspreader", superspreader),
        ] {
            if value == 0 {
                return Err(named((field, "0: must be at least 1".to_owned())));
            }
        }
        if !(0.0..=1.0).contains(&coverage_wanted) {
            let why = format!("{coverage_wanted}: must be 0 to 1");
            return Err(named(("coverage_wanted", why)));
        }
        let window_ns = clock.length_ns().saturating_mul(setup.window_epochs.into());
        if window_ns / 1000 > u32::MAX.into() {
            let why = format!("{}: a window of more than 71 minutes", setup.window_epochs);
            return Err(named(("window_epochs", why)));
        }
        let thresholds =
            Thresholds { heavy_packets, heavy_change_packets, superspreader, coverage_wanted };
        let Section { paths, hosts, flows_listed, .. } = *section;
        let pins = pins as usize;
        let alpha_moves = matches!(section.alpha, Share::Named(_));
        Ok(Self { setup, hops, alpha_moves, pins, pin, paths, hosts, flows_listed, thresholds })
    }
}

#[cfg(test)]
mod tests {
    use calumma_epoch::Guards;
    use calumma_wire::Role;
    use serde_json::json;

    use super::*;

    fn read(section: &serde_json::Value) -> Result<Parameters, String> {
        read_for(&[], section)
    }

    fn read_for(nodes: &[&str], section: &serde_json::Value) -> Result<Parameters, String> {
        let node = |(id, name): (u16, &&str)| {
            Arc::new(Node { name: (*name).to_owned(), role: Role::Edge, id })
        };
        let nodes: Vec<_> = (1..).zip(nodes).map(node).collect();
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        Parameters::of(&Section::read(section)?, clock, &nodes)
    }

    #[test]
    fn a_section_need_not_be_there_and_its_mistakes_are_named_with_their_range() {
        let defaults = read(&serde_json::Value::Null).unwrap();
        let setup = Setup {
            claim: false,
            guard: true,
            ends: true,
            sums: true,
            overrides: true,
            ..Setup::default()
        };
        assert_eq!((defaults.setup, defaults.paths), (setup, Paths::Single));
        let fixed = read(&json!({ "hosts": "fixed" })).unwrap();
        assert_eq!(
            (fixed.hosts, fixed.setup),
            (HostsAre::Fixed, Setup { ends: false, sums: false, ..setup })
        );
        assert!(read(&json!({ "hosts": "moving" })).unwrap_err().contains("unknown variant"));
        let mistake = |section| read(&section).unwrap_err();
        let entries = mistake(json!({ "entries": 100 }));
        assert_eq!(entries, "entries = 100: must be 256 to 4194304");
        let odd = mistake(json!({ "window_epochs": 7 }));
        assert_eq!(odd, "window_epochs = 7: must be even");
        let grade = mistake(json!({ "hop": "none", "grade": "fold" }));
        assert_eq!(grade, "grade = fold: must be random where hop is none");
        let share = mistake(json!({ "coverage_wanted": 1.5 }));
        assert_eq!(share, "coverage_wanted = 1.5: must be 0 to 1");
        let spreader = mistake(json!({ "superspreader": 0 }));
        assert_eq!(spreader, "superspreader = 0: must be at least 1");
        let alpha = mistake(json!({ "alpha": 1.0 }));
        assert_eq!(alpha, "alpha = 1: must be 0.1 to 0.99, or auto");
        let alpha = mistake(json!({ "alpha": "all", "residual": "fermat" }));
        assert_eq!(alpha, "alpha = all: must be 0.1 to 0.99, or auto");
        let alpha = mistake(json!({ "alpha": "auto" }));
        assert!(alpha.starts_with("alpha = auto: there is no residual"), "{alpha}");
        let radar = mistake(json!({ "alpha": "auto", "residual": "flowradar" }));
        let why = "alpha = auto: the share of flowradar does not move: must be 0.1 to 0.99";
        assert_eq!(radar, why);
        let pins = mistake(json!({ "entries": 256, "pins": 65 }));
        assert_eq!(pins, "pins = 65: must be 0 to 64, a quarter of the entries at most");
        assert!(mistake(json!({ "pin": ["all"] })).contains("unknown variant `all`"));
        assert!(mistake(json!({ "entires": 1 })).contains("unknown field `entires`"));
    }

    #[test]
    fn each_port_of_each_node_has_a_number_where_ports_say_the_hop() {
        let by_port = |hops| json!({ "hop": "port", "hops": hops });
        let read = |hops| read_for(&["e1", "s1"], &by_port(hops));
        let both = read(json!({ "e1": [0, 2], "s1": [1, 1, 1] })).unwrap();
        assert_eq!(both.setup.hop, Hop::Port(PortHops::NONE));
        assert_eq!(both.hops["s1"].numbers(), [1, 1, 1]);
        let mistake = |hops| read(hops).unwrap_err();
        let none = "hop = \"port\": node s1 has no number for port 0";
        assert_eq!(mistake(json!({ "e1": [0, 2] })), none);
        assert_eq!(mistake(json!({ "e1": [0, 2], "s1": [] })), none);
        let unknown = mistake(json!({ "e1": [0], "s1": [1], "s2": [1] }));
        assert_eq!(unknown, "hops.s2: there is no such node");
        let many = mistake(json!({ "e1": vec![0; 65], "s1": [1] }));
        assert_eq!(many, "hops.e1 = 65 numbers: must be at most 64");
        let unasked = read_for(&["e1"], &json!({ "hops": { "e1": [0] } })).unwrap_err();
        assert_eq!(unasked, "hops.e1: only where hop = \"port\"");
    }

    #[test]
    fn the_length_of_ways_is_for_hops_by_mark_and_so_are_even_shares() {
        let marked = read(&json!({ "hop": "mark", "path_length": 3, "grade": "even" })).unwrap();
        let (hop, grade) = (marked.setup.hop, marked.setup.grade);
        assert_eq!((hop, grade), (Hop::Mark { length: 3 }, Graded::Even));
        let unknown = read(&json!({ "hop": "mark" })).unwrap().setup;
        assert_eq!((unknown.hop, unknown.grade), (Hop::Mark { length: 0 }, Graded::Fold));
        let mistake = |section| read(&section).unwrap_err();
        let unasked = mistake(json!({ "path_length": 3 }));
        assert_eq!(unasked, "path_length = 3: only where hop = \"mark\"");
        let even = mistake(json!({ "grade": "even" }));
        assert_eq!(even, "grade = even: must be fold, greedy or random where hop is not mark");
        let ports = mistake(json!({ "hop": "mark", "hops": { "e1": [0] } }));
        assert_eq!(ports, "hops.e1: only where hop = \"port\"");
    }

    #[test]
    fn a_filter_grows_with_the_entries_and_grades_are_random_where_hops_have_no_number() {
        let setup = |section| read(&section).unwrap().setup;
        assert_eq!(setup(json!({ "entries": 1000 })).filter_bits, 64_000);
        assert_eq!(setup(json!({ "entries": 1000, "filter_bits": 2048 })).filter_bits, 2048);
        // Of entries and filter, 68 bytes each, a ninth is in buckets of 40, three arrays of them.
        let residual = json!({ "entries": 10_000, "residual": "fermat" });
        assert_eq!(setup(residual.clone()).residual, Some(629));
        let half = json!({ "entries": 10_000, "residual": "fermat", "alpha": 0.5 });
        assert_eq!(setup(half).residual, Some(5666));
        let auto = json!({ "entries": 10_000, "residual": "fermat", "alpha": "auto" });
        let (auto, fixed) = (read(&auto).unwrap(), read(&residual).unwrap());
        assert_eq!((auto.setup, auto.alpha_moves), (fixed.setup, true));
        assert!(fixed.setup.alpha_moves && !fixed.alpha_moves, "an operator may move it");
        // Of entries alone, 60 bytes each, a ninth is in cells of 48: the filters come on top.
        let radar = json!({ "entries": 10_000, "residual": "flowradar" });
        let radar = read(&radar).unwrap().setup;
        assert_eq!((radar.residual, radar.kind), (Some(462), Kind::FlowRadar));
        assert!(!radar.alpha_moves && (radar.share(0).unwrap() - 0.9).abs() < 1e-3);
        let pins = |section| read(&section).map(|of| (of.pins, of.pin)).unwrap();
        let both = Automatic { victims: true, heavy: true };
        assert_eq!(pins(json!({ "entries": 256 })), (64, both));
        let victims = Automatic { victims: true, heavy: false };
        assert_eq!(pins(json!({ "entries": 1 << 20, "pin": ["victims"] })), (1024, victims));
        let none = setup(json!({ "hop": "none" }));
        assert_eq!((none.hop, none.grade), (Hop::None, Graded::Random));
    }
}
