//! What is reported of a window. A number is exact, or has bounds beside it, or is null.

use std::collections::BTreeMap;

use calumma_analysis::{Findings, Flow};
use serde::{Deserialize, Serialize};

/// What was found in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its first and last epoch.
    pub window: [u64; 2],
    /// How far the deployment is: `off`, `sinks`, `transits` or `on`.
    pub state: String,
    /// What it was measured and listed by.
    pub config: Config,
    /// Packets for hosts, over all sinks that delivered, and what sources put stacks into.
    pub coverage: Covered,
    /// Every switch that packets came by.
    pub nodes: Vec<NodeReport>,
    /// Every link that packets came by, those of most packets first.
    pub links: Vec<LinkReport>,
    /// The largest flows, the largest first.
    pub flows: Vec<FlowReport>,
    /// Flows that came by a path that they did not come by before.
    pub path_changes: Vec<PathChange>,
    /// Paths that come by a switch twice.
    pub loops: Vec<Loop>,
    /// Flows with inflated latencies at a switch, of those flows that have them counted, and those
    /// that sinks without rows name.
    pub inflated: Vec<Inflated>,
    /// Every sink that delivered.
    pub sinks: Vec<SinkReport>,
    /// Every source that delivered.
    #[serde(default)]
    pub sources: Vec<crate::SourceReport>,
}

impl Findings for Found {
    const SYSTEM: &'static str = "sketchint";
}

impl Found {
    /// Lets the archive know of which flow each hop and path is, which JSON says by nesting, and
    /// gives exact numbers of older reports their bounds.
    pub fn fill(&mut self) {
        for node in &mut self.nodes {
            if let Some(packets) = node.packets {
                (node.at_least, node.at_most) = (packets, Some(packets));
            }
        }
        for of in &mut self.inflated {
            if let Some(count) = of.count {
                (of.at_least, of.at_most) = (count, Some(count.into()));
            }
        }
        for flow in &mut self.flows {
            flow.hops.iter_mut().for_each(|hop| hop.of = Some(flow.flow));
            flow.paths.iter_mut().for_each(|path| path.of = Some(flow.flow));
        }
    }
}

/// What a window was measured and listed by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// `cm`, `cu` or `acu`.
    pub insertion: String,
    /// Rows of a sink, 0 where it has towers alone.
    pub rows: u64,
    /// The unit of latencies in pair towers, in nanoseconds.
    pub unit_ns: u32,
    /// Packets above which a flow is a heavy hitter.
    pub heavy_packets: u32,
    /// Packets more or less than in the window before above which it is a heavy change.
    pub heavy_change_packets: u32,
    /// Hundredths of the mean above which a latency is inflated.
    pub inflation_percent: u32,
    /// Of the packets that were to carry INT, the share that should have come with it.
    pub coverage_wanted: f64,
    /// The share of packets that carry INT.
    #[serde(default = "every")]
    pub share: f64,
}

fn every() -> f64 {
    1.0
}

/// Packets, and what is known of their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Packets for hosts.
    pub packets: u64,
    /// Packets for hosts that came with INT.
    pub int_packets: u64,
    /// Packets with INT whose stack may lack switches: one had no room to push, or no hops left.
    pub partial: u64,
    /// Packets with INT into which a switch did not push since they would have been too long.
    pub mtu_exceeded: u64,
    /// Packets with INT into which a switch did not push since their stack may have no more hops.
    pub hops_exceeded: u64,
    /// Packets without a mark that says their window: in no other number.
    pub unmarked: u64,
    /// Packets of IPv6 for hosts of which a sink can't tell the flow: in no other number than upper
    /// bounds.
    #[serde(default)]
    pub unclassified: u64,
}

/// Packets over all sinks, and those of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Packets for hosts.
    #[serde(flatten)]
    pub sinks: Coverage,
    /// Packets of the window that sources sent on with a stack, whatever became of them; null where
    /// an edge did not deliver.
    pub inserted: Option<u64>,
    /// Packets of the window that sources sent on without one, by the reason; null where an edge
    /// did not deliver.
    pub not_carried: Option<BTreeMap<String, u64>>,
}

/// A number of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// The number, where it is known exactly.
    pub packets: Option<u64>,
    /// Lower bound of `packets`.
    pub at_least: u64,
    /// No more; null where that can't be said.
    pub at_most: Option<u64>,
}

impl Packets {
    /// Exactly so many.
    pub(crate) fn exactly(packets: u64) -> Self {
        Self::between(packets, Some(packets))
    }

    /// Between two bounds.
    pub(crate) fn between(at_least: u64, at_most: Option<u64>) -> Self {
        let at_most = at_most.map(|most| most.max(at_least));
        Self { packets: at_most.filter(|&most| most == at_least), at_least, at_most }
    }

    /// Whether it may be so many.
    pub fn allows(&self, packets: u64) -> bool {
        let bounds = self.at_least..=self.at_most.unwrap_or(u64::MAX);
        bounds.contains(&packets) && self.packets.is_none_or(|exactly| exactly == packets)
    }

    /// Whether it may be more than `limit`.
    pub(crate) fn may_exceed(&self, limit: u64) -> bool {
        self.at_most.is_none_or(|most| most > limit)
    }

    /// The distance of two numbers.
    pub(crate) fn distance(&self, other: &Self) -> Self {
        let apart = |low: &Self, high: &Self| {
            low.at_most.map_or(0, |most| high.at_least.saturating_sub(most))
        };
        let reach =
            |low: &Self, high: &Self| high.at_most.map(|most| most.saturating_sub(low.at_least));
        let at_most = reach(self, other).zip(reach(other, self)).map(|(one, two)| one.max(two));
        Self::between(apart(self, other).max(apart(other, self)), at_most)
    }
}

/// A number of packets that was estimated from those with INT, and is never exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimated {
    /// The estimate.
    pub packets: f64,
    /// Its standard error; null where packets went without INT for what they are, not by chance.
    pub standard_error: Option<f64>,
    /// Lower bound of the number, as often as `confidence` says.
    pub at_least: u64,
    /// Upper bound of the number, as often as `confidence` says.
    pub at_most: u64,
    /// How often both hold at least, over all draws.
    pub confidence: f64,
}

/// A latency over all packets of a switch, in microseconds; null where none is known, or what is
/// known is cut at the longest that stacks can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean, exactly.
    pub mean: Option<f64>,
    /// The least, exactly.
    pub min: Option<f64>,
    /// What half of the packets don't exceed, within `error`.
    pub p50: Option<f64>,
    /// What 90 of 100 packets don't exceed, within `error`.
    pub p90: Option<f64>,
    /// What 99 of 100 packets don't exceed, within `error`.
    pub p99: Option<f64>,
    /// The longest, exactly.
    pub max: Option<f64>,
    /// By which share of themselves `p50`, `p90` and `p99` may be wrong.
    pub error: f64,
}

/// A queue, in its switch's own unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// `packets` or `cells`; null where that is not known: the switch is of another maker, or has
    /// not connected to this controller.
    #[serde(default)]
    pub unit: Option<String>,
    /// Whether it may have been longer than `mean` and `max` say: some polls found more packets
    /// than they took.
    #[serde(default)]
    pub at_least: bool,
    /// Packets that its length is known of.
    pub packets: u64,
    /// The mean length that they met.
    pub mean: f64,
    /// The longest.
    pub max: u32,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name, or `node` and its number.
    pub node: String,
    /// Its number.
    pub id: u32,
    /// `software` or `tofino`; null where that is not known: it is of another maker, or has not
    /// connected to this controller.
    #[serde(default)]
    pub kind: Option<String>,
    /// What said when packets arrived that it has put its hop into, or that it had as their sink:
    /// `device`, `poll` or `both`; null where that is not known.
    #[serde(default)]
    pub stamp: Option<String>,
    /// By how much `stamp` is wrong at most, in microseconds; null where that is not known.
    #[serde(default)]
    pub stamp_error_us: Option<f64>,
    /// Packets that it said something of to sinks, each as often as it came by. Null where that is
    /// not known exactly: a sink is missing, not sound, or could not tell all switches apart.
    pub packets: Option<u64>,
    /// Lower bound of `packets`.
    #[serde(default)]
    pub at_least: u64,
    /// Upper bound of `packets`; null where a sink is missing or not sound, and in older reports.
    #[serde(default)]
    pub at_most: Option<u64>,
    /// How long it had those of them that `latency_sinks` received.
    pub latency_us: Latency,
    /// The sinks that `latency_us` is of: of those its packets came to, sound ones that can tell
    /// all switches apart.
    #[serde(default)]
    pub latency_sinks: Vec<String>,
    /// Its queue; null where it says nothing of it.
    pub queue: Option<Queue>,
    /// Inflated latencies; null where not all flows have them counted.
    pub inflated: Option<u64>,
    /// Lower bound of `inflated`.
    pub inflated_at_least: u64,
    /// Flows of which more packets came by than the threshold, or may have.
    pub heavy_hitters: Vec<Heavy>,
    /// Whether these are all.
    pub heavy_hitters_complete: bool,
    /// Flows of which so many more or fewer came by than in the window before; null without one.
    pub heavy_changes: Option<Vec<Change>>,
}

/// How long packets were on a link, in microseconds, by the stamps of both switches less what their
/// clocks are apart. It may be negative, by less than it may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkLatency {
    /// Packets of which both switches say when.
    pub packets: u64,
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The longest.
    pub max: f64,
}

/// A link between two switches, from one to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The switch that packets came from.
    pub from: String,
    /// The one that they came to.
    pub to: String,
    /// Packets whose whole path is known and has this link, each as often as it came by; null where
    /// a sink is missing, is not sound, or does not know all paths.
    pub packets: Option<u64>,
    /// Lower bound of `packets`.
    pub at_least: u64,
    /// How long they were on it; null where stacks don't say, or one of the two switches is none of
    /// the deployment's or did not deliver all of the window, or its clock did not run evenly.
    #[serde(default)]
    pub latency_us: Option<LinkLatency>,
    /// By how much `latency_us` may be wrong, for what is not known of the two clocks.
    #[serde(default)]
    pub clock_error_us: Option<f64>,
    /// By how much it may be wrong besides, for what the second switch does not know of when
    /// packets arrived.
    #[serde(default)]
    pub arrival_error_us: Option<f64>,
}

/// A flow of many packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heavy {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The sink that it went to.
    pub sink: String,
    /// Its packets.
    #[serde(flatten)]
    pub packets: Packets,
    /// Whether it is certain.
    pub certain: bool,
}

/// A flow of more or fewer packets than in the window before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The sink that it went to.
    pub sink: String,
    /// By how many packets it changed.
    #[serde(flatten)]
    pub change: Packets,
    /// Its packets in the window before.
    pub before: Packets,
    /// Its packets in this one.
    pub after: Packets,
    /// Whether it is certain.
    pub certain: bool,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The sink that it went to.
    pub sink: String,
    /// Its packets.
    #[serde(flatten)]
    pub packets: Packets,
    /// Its packets that came with INT; null where that is not known exactly.
    pub int_packets: Option<u64>,
    /// Whether its packets and those of its paths are known exactly; so are those at its switches,
    /// where all came with whole stacks.
    pub exact: bool,
    /// The paths that it came by, of which others may be missing where it is not exact.
    pub paths: Vec<PathReport>,
    /// How long all switches on its way together had each of its packets; null where that is not
    /// known of all of them.
    #[serde(default)]
    pub in_switches_us: Option<InSwitches>,
    /// What it met at each switch.
    pub hops: Vec<HopReport>,
}

/// How long all switches on their way together had the packets of a flow, in microseconds. What
/// they were on links is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InSwitches {
    /// The mean, exactly.
    pub mean: f64,
    /// The least, where it is known exactly.
    pub min: Option<f64>,
    /// The longest, where it is known exactly.
    pub max: Option<f64>,
}

/// A flow's path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// The flow, for the archive.
    #[serde(skip)]
    pub(crate) of: Option<Flow>,
    /// Its switches, from the source on.
    pub path: Vec<String>,
    /// Whether there may have been more switches.
    pub partial: bool,
    /// Packets that came by it; null where that is not known exactly.
    pub packets: Option<u64>,
    /// Lower bound of `packets`.
    pub at_least: u64,
    /// Whether it is that of one packet, by a sink that keeps no paths: of others nothing is known.
    #[serde(default)]
    pub once: bool,
}

/// What a flow met at a switch. All means are over packets whose latency is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopReport {
    /// The flow, for the archive.
    #[serde(skip)]
    pub(crate) of: Option<Flow>,
    /// The switch.
    pub node: String,
    /// Packets of the flow that came by. Those without INT, or with a stack that lacks switches,
    /// may have.
    #[serde(flatten)]
    pub packets: Packets,
    /// How many they are likely, by those that say it: where only a share carries INT, and all
    /// packets of the flow at its sink are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimated>,
    /// Of how many the latency is known, exactly: what is exact of latencies is over these.
    #[serde(default)]
    pub latencies: Option<u64>,
    /// The mean latency of those that say it, exactly, in microseconds.
    pub mean_us: Option<f64>,
    /// Lower bound of `mean_us`.
    pub mean_min_us: Option<f64>,
    /// Upper bound of `mean_us`.
    pub mean_max_us: Option<f64>,
    /// The least, where it is known exactly.
    #[serde(default)]
    pub min_us: Option<f64>,
    /// The longest, exactly.
    pub max_us: Option<f64>,
    /// What half of the latencies don't exceed: exactly where its bounds are the same, about where
    /// latencies were counted by size; null elsewhere.
    pub p50_us: Option<f64>,
    /// Lower bound of `p50_us`; null where not all packets of the flow are in its rows.
    pub p50_min_us: Option<f64>,
    /// Upper bound of `p50_us`; null where not all packets of the flow are in its rows.
    pub p50_max_us: Option<f64>,
    /// What 90 of 100 latencies don't exceed: exact, estimated or null as `p50_us` is.
    #[serde(default)]
    pub p90_us: Option<f64>,
    /// Lower bound of `p90_us`.
    #[serde(default)]
    pub p90_min_us: Option<f64>,
    /// Upper bound of `p90_us`.
    #[serde(default)]
    pub p90_max_us: Option<f64>,
    /// What 99 of 100 latencies don't exceed: exact, estimated or null as `p50_us` is.
    pub p99_us: Option<f64>,
    /// Lower bound of `p99_us`.
    pub p99_min_us: Option<f64>,
    /// Upper bound of `p99_us`.
    pub p99_max_us: Option<f64>,
    /// Inflated ones; null where they are not counted.
    pub inflated: Option<u32>,
}

/// A flow that came by a path that it did not come by before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathChange {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The sink that it went to.
    pub sink: String,
    /// The paths that it came by in the window before; empty where none is known.
    pub before: Vec<Vec<String>>,
    /// The paths that it came by in this window.
    pub after: Vec<Vec<String>>,
}

/// A path that comes by a switch twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// The switches that it comes by again.
    pub nodes: Vec<String>,
    /// The path.
    pub path: Vec<String>,
    /// The sink that it leads to.
    pub sink: String,
    /// Packets that came by it; null where that is not known exactly.
    pub packets: Option<u64>,
    /// Lower bound of `packets`.
    pub at_least: u64,
    /// Some of the flows that they are of.
    pub flows: Vec<Flow>,
}

/// By what mean a latency is inflated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// That of all the flow's packets before it.
    #[default]
    Rows,
    /// An estimate, from a part of them or counters that other flows may share.
    Towers,
}

impl By {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Towers => "towers",
        }
    }
}

/// Inflated latencies of a flow at a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inflated {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The sink that it went to.
    pub sink: String,
    /// The switch.
    pub node: String,
    /// By what mean: `rows`, that of all the flow's packets before, or `towers`, an estimate from
    /// some of them or counters which other flows may share; of a Tofino also with a threshold up
    /// to an eighth higher.
    #[serde(default)]
    pub by: By,
    /// How many there were by that mean; null where not all of them are known.
    pub count: Option<u32>,
    /// Lower bound of `count`.
    #[serde(default)]
    pub at_least: u32,
    /// Upper bound of `count`.
    #[serde(default)]
    pub at_most: Option<u64>,
    /// The longest of those known, in microseconds.
    pub max_us: f64,
    /// When the last one came, in nanoseconds since the Unix epoch; null where that is not known.
    pub last_unix_ns: Option<u64>,
}

/// Flows of some sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeBin {
    /// The least number of packets.
    pub from: u64,
    /// The largest.
    pub to: u64,
    /// How many flows have so many packets; an estimate where the bounds differ, null where the
    /// sketch tells nothing.
    pub flows: Option<f64>,
    /// Lower bound of `flows`.
    pub at_least: u64,
    /// Upper bound of `flows`.
    pub at_most: u64,
}

/// A sink, over all packets for its hosts, with INT or without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Its name.
    pub edge: String,
    /// Whether it delivered all of the window, in time and by a clock that is right.
    pub sound: bool,
    /// Its packets.
    #[serde(flatten)]
    pub coverage: Coverage,
    /// Its flows; null where there are too many to tell, or it is not sound.
    pub cardinality: Option<f64>,
    /// By how much `cardinality` is wrong at most, 95 times out of 100; 0 where it is exact.
    pub cardinality_error: Option<f64>,
    /// Entropy of the packets over flows, in bits; an estimate where the bounds differ.
    pub entropy: Option<f64>,
    /// Lower bound of `entropy`.
    pub entropy_min: Option<f64>,
    /// Upper bound of `entropy`.
    pub entropy_max: Option<f64>,
    /// Flows of more packets than the threshold, or that may have.
    pub heavy_hitters: Vec<Heavy>,
    /// Whether these are all: the table of large flows was not full.
    pub heavy_hitters_complete: bool,
    /// Flows with so many packets more or fewer than in the window before; null without one.
    pub heavy_changes: Option<Vec<Change>>,
    /// How many flows of each size there were.
    pub size_distribution: Option<Vec<SizeBin>>,
    /// Flows with rows.
    pub flows: u64,
    /// Flows with rows of which all is exact.
    pub flows_exact: u64,
    /// Packets that found no row.
    pub rows_refused: u64,
    /// Rows that had to leave.
    pub rows_evicted: u64,
    /// Packets whose path found no room.
    pub paths_full: u64,
    /// How often a packet's link found no room, of links that [have a latency](LinkLatency).
    #[serde(default)]
    pub links_full: u64,
    /// Bytes of memory that its sketches took.
    pub bytes: u64,
    /// The paths that packets came by, those of most packets first.
    pub paths: Vec<PathReport>,
}
