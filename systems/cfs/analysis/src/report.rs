//! What is reported of a window.

use std::sync::Arc;

use calumma_analysis::{EpochHead, Findings, Flow, Report};
use calumma_topology::Place;
use serde::{Deserialize, Serialize};

use crate::counted::Monitored;
use crate::packed::packed;

/// What was found in a window. Of counts, `exact` says whether they are; else they are what there
/// was at least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its number: that of its first epoch divided by its length.
    pub window: u64,
    /// How many flows there were; absent where an edge did not deliver a sound window.
    pub flows_total: Option<f64>,
    /// By how much `flows_total` is wrong at most, 95 times out of 100; 0 where it is exact.
    pub flows_total_error: Option<f64>,
    /// Flows that any node has an entry of, or a residual that decoded.
    pub monitored: u64,
    /// Monitored flows that only residuals have.
    #[serde(default)]
    pub decoded: u64,
    /// Monitored flows whose count is exact.
    pub monitored_exactly: u64,
    /// The share of all flows that is monitored; absent where their number is.
    pub coverage: Option<f64>,
    /// Lower bound of `coverage`, 95 times out of 100.
    pub coverage_low: Option<f64>,
    /// Upper bound of `coverage`, 95 times out of 100.
    pub coverage_high: Option<f64>,
    /// The share of all flows that all tables together could count, if somebody who knows all ways
    /// chose for each what to count; absent where their number is, and where a node did not deliver
    /// a sound window.
    #[serde(default)]
    pub optimum: Option<f64>,
    /// Lower bound of `optimum`, 95 times out of 100; equal to it where that is exact.
    #[serde(default)]
    pub optimum_low: Option<f64>,
    /// Upper bound of `optimum`, 95 times out of 100; equal to it where that is exact.
    #[serde(default)]
    pub optimum_high: Option<f64>,
    /// The share of the memory of table and residual that the tables had, of all nodes for which
    /// the controller says it; absent where it does not, or where they differ.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// What listing went by.
    pub thresholds: Listed,
    /// Every node that delivered.
    pub nodes: Vec<NodeReport>,
    /// The largest flows that are monitored, the largest first.
    pub flows: Vec<FlowCount>,
    /// Monitored flows of many packets, the largest first.
    pub heavy_hitters: Vec<HeavyHitter>,
    /// Whether no other flow had as many: of what entered nothing without a count can be of one.
    #[serde(default)]
    pub heavy_hitters_complete: bool,
    /// Prefixes of source addresses of IPv4 with many packets, wide ones last.
    #[serde(default)]
    pub heavy_prefixes: Vec<HeavyPrefix>,
    /// Whether no other prefix had as many.
    #[serde(default)]
    pub heavy_prefixes_complete: bool,
    /// The first epoch of the window before; absent where that was not analysed.
    #[serde(default)]
    pub heavy_changes_since: Option<u64>,
    /// Flows that have many packets more or less than then, for certain.
    pub heavy_changes: Vec<HeavyChange>,
    /// Whether no other flow changed by as many.
    #[serde(default)]
    pub heavy_changes_complete: bool,
    /// Sources of flows to many destinations.
    pub superspreaders: Vec<Spread>,
    /// Whether no other source has as many, 95 times out of 100.
    #[serde(default)]
    pub superspreaders_complete: bool,
    /// Whether no other source has as many, 95 times out of 100, if of an edge's flows those to
    /// some hosts are monitored like those to others.
    #[serde(default)]
    pub superspreaders_likely_complete: bool,
    /// Destinations of flows from many sources.
    pub flooded: Vec<Spread>,
    /// Whether no other destination has as many, 95 times out of 100.
    #[serde(default)]
    pub flooded_complete: bool,
    /// Whether no other destination has as many, 95 times out of 100, if of an edge's flows those
    /// of some hosts are monitored like those of others.
    #[serde(default)]
    pub flooded_likely_complete: bool,
    /// How many flows of each size there were; absent where that can't be said.
    pub size_distribution: Option<Vec<SizeBin>>,
    /// Entropy of the packets over flows, in bits; absent where not every flow has an exact count.
    pub entropy: Option<f64>,
    /// Flows that lost packets between two nodes that counted them exactly.
    pub losses: Vec<Loss>,
    /// Nodes, or ways from a node to an edge, on which nothing went on.
    #[serde(default)]
    pub black_holes: Vec<BlackHole>,
    /// Whether others would have been seen, as far as it is known where hosts are: every node has
    /// counted all flows.
    #[serde(default)]
    pub black_holes_known: bool,
    /// Flows whose packets came by a node again and again.
    pub loops: Vec<Loop>,
    /// Whether every node watched each flow for loops, by its entry or its guard.
    #[serde(default)]
    pub loops_watched: bool,
    /// Flows whose packets came with different times to live, without being in a loop.
    pub path_changes: Vec<PathChange>,
    /// As [`counted`](Self::counted). JSON that is published has not got them.
    #[serde(default, skip_serializing, deserialize_with = "crate::packed::read")]
    pub(crate) counted: Arc<Monitored>,
}

impl Found {
    /// Every monitored flow, by rising keys, for the archive and for collectors; in a report that
    /// was read from published JSON, those that it lists.
    pub fn counted(&self) -> &[Counted] {
        self.counted.counted()
    }

    /// Whether no source that is not listed is likely to be a superspreader.
    pub(crate) fn knows_superspreaders(&self) -> bool {
        self.superspreaders_complete || self.superspreaders_likely_complete
    }
}

impl Findings for Found {
    const SYSTEM: &'static str = "cfs";

    fn unpublished(&self) -> Option<String> {
        Some(format!(r#""counted":"{}""#, packed(self.counted())))
    }
}

/// What listing went by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Packets that make a heavy hitter.
    pub heavy_packets: u64,
    /// Packets that make a heavy change.
    pub heavy_change_packets: u64,
    /// Peers that make a superspreader, or a flooded destination.
    pub superspreader: u64,
    /// The coverage that the operator wants.
    pub coverage_wanted: f64,
}

/// A node in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// What it does: `edge` or `transit`.
    pub role: String,
    /// Flows that its table holds.
    pub entries: u64,
    /// Flows that its table had at the end.
    pub used: u64,
    /// Packets that it recorded.
    pub packets: u64,
    /// Recorded packets that entries have counted.
    pub counted: u64,
    /// Packets without a mark, which are not recorded.
    pub unmarked: u64,
    /// Flows that got an entry.
    pub admitted: u64,
    /// Flows that got an entry and lost it again.
    pub evicted: u64,
    /// Flows that got none.
    pub refused: u64,
    /// Runs of packets that only the filter kept out.
    pub filtered: u64,
    /// Flows that got none since dozens agreed in their hashes.
    pub crowded: u64,
    /// Packets that came with a claim.
    pub claimed_in: u64,
    /// Packets that went on with one.
    pub claimed_out: u64,
    /// The class of the worst flow that was still admitted at the end: `pinned`, `single`,
    /// `unclaimed`, `claimed`, or `all` where none of these holds for the whole table: a part of it
    /// refused none, or some parts had no room for all that come first.
    pub threshold_class: String,
    /// Its grade within the class, 0 to 1.
    pub threshold: f64,
    /// The grade from which on the node claimed no flow, 0 to 1; 1 where it claimed all.
    pub theta: f64,
    /// How many flows it saw, entries or not.
    pub flows: f64,
    /// By how much `flows` is wrong at most, 95 times out of 100.
    pub flows_error: f64,
    /// Whether its routes changed in the window, or may have.
    pub routes_changed: bool,
    /// Whether it recorded every packet of the window. If not, only counts of flows that entered
    /// there may be exact.
    pub sound: bool,
    /// Bytes of memory of the table and what belongs to it.
    pub bytes: u64,
    /// Flows that it has an entry of since they were pinned.
    #[serde(default)]
    pub pinned: u64,
    /// Flows whose packets at this node it counted exactly, be it in its table or its residual.
    #[serde(default)]
    pub exact: Exact,
    /// The share of the memory of table and residual that its table had; absent where it keeps no
    /// residual.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// What came of its residual; absent where it keeps none.
    #[serde(default)]
    pub residual: Option<Residue>,
    /// Flows without an entry that it watched for loops; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guarded>,
    /// What the optimum would be if its table held a tenth more flows; absent where that is.
    #[serde(default)]
    pub optimum_with_more: Option<f64>,
    /// Lower bound of `optimum_with_more`, 95 times out of 100.
    #[serde(default)]
    pub optimum_with_more_low: Option<f64>,
    /// Upper bound of `optimum_with_more`, 95 times out of 100.
    #[serde(default)]
    pub optimum_with_more_high: Option<f64>,
}

/// Flows that a node counted exactly, and what it received of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exact {
    /// How many flows.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// The bytes of these, as IP counts them.
    pub bytes: u64,
}

/// What came of a node's residual.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Residue {
    /// `complete` where it decoded: the node counted every flow that it saw; else `partial`, and
    /// nothing is known of what is in it.
    pub decode: String,
    /// Buckets of all its arrays.
    #[serde(default)]
    pub buckets: u64,
    /// Flows in it for each bucket; absent where it did not decode.
    pub load_factor: Option<f64>,
    /// Flows in it; absent where it did not decode.
    pub flows: Option<u64>,
}

/// What a node saw of flows without an entry that may have been in loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// Flows that came with at least three times to live at equal distances.
    pub suspects: u64,
    /// How often one found no place to be remembered in: loops may be missing then.
    pub missed: u64,
}

/// What of a node has the packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptIn {
    /// Its table.
    #[default]
    Table,
    /// Its residual, which decoded.
    Residual,
    /// Both, or the tables of several lcores, since the flow came to several.
    Both,
}

/// A flow, as one node counted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its packets by the count of the node `at`: where that is not exact, each that came there
    /// again and again counts once, as far as that is known, or less.
    pub packets: u64,
    /// Their bytes, as IP counts them.
    pub bytes: u64,
    /// Whether these are all packets of the flow that were not lost before that node; else it had
    /// at least so many.
    pub exact: bool,
    /// The node: the edge where the flow entered, else the one where it left, else the one nearest
    /// its source.
    pub at: String,
    /// What of that node has the packets.
    #[serde(default)]
    pub from: KeptIn,
    /// What every node that has a count of it counted, the nearest to the source first; transit
    /// nodes whose residual has it stand behind those whose tables do.
    pub hops: Vec<HopCount>,
}

/// A flow at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopCount {
    /// The node.
    pub node: String,
    /// How many others its packets had passed; absent where hops have no number, and where only the
    /// residual has the flow.
    pub hop: Option<u8>,
    /// Packets that the node received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that came with another time to live than the first; absent where that is not known,
    /// as of packets that a residual has, or several lcores.
    pub looped: Option<u64>,
    /// Whether these are all that it received.
    pub exact: bool,
    /// What of the node has them.
    #[serde(default)]
    pub from: KeptIn,
}

/// A flow in the archive, and for collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The flow.
    pub flow: Flow,
    /// As [`FlowCount::packets`].
    pub packets: u64,
    /// As [`FlowCount::bytes`].
    pub bytes: u64,
    /// As [`FlowCount::exact`].
    pub exact: bool,
    /// The position in [`Found::nodes`] of the node that counted it.
    pub at: usize,
    /// Nodes that have a count of it.
    pub hops: u32,
    /// The smallest and the largest time to live that all of its packets came to that node with;
    /// `None` where these are not known for certain.
    pub ttls: Option<[u8; 2]>,
}

/// A flow of many packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavyHitter {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether these are all; else it had at least so many.
    pub exact: bool,
}

/// A hierarchical heavy hitter: a prefix of source addresses of IPv4, of 32, 24, 16 or 8 bits,
/// whose flows have many packets although those of narrower ones that are listed are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavyPrefix {
    /// As `10.1.0.0/16`.
    pub prefix: String,
    /// Packets of all its flows, at least.
    pub packets: u64,
    /// Upper bound of its flows' packets; absent where an edge did not deliver a sound window.
    pub packets_high: Option<u64>,
    /// Lower bound of its packets outside narrower prefixes that are listed.
    pub rest: u64,
    /// Upper bound of its packets outside narrower prefixes that are listed; absent where
    /// `packets_high` is.
    pub rest_high: Option<u64>,
}

/// A flow that had many packets more, or less, than in the window before: by exact counts of one
/// node, or by what is known of the packets that entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeavyChange {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its packets in the window before, at least.
    pub before: u64,
    /// Upper bound of its packets in the window before, equal to `before` where they are known
    /// exactly; absent where nobody knows.
    #[serde(default)]
    pub before_high: Option<u64>,
    /// Its packets in this one, at least.
    pub packets: u64,
    /// Upper bound of its packets in this window, equal to `packets` where they are known exactly;
    /// absent where nobody knows.
    #[serde(default)]
    pub packets_high: Option<u64>,
}

/// An address with flows to, or from, many others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The address.
    pub address: std::net::IpAddr,
    /// Other addresses in monitored flows.
    pub seen: u64,
    /// Others in all flows, if those of its edge are monitored alike; absent where their share is
    /// not known.
    pub estimate: Option<f64>,
    /// Lower bound of `estimate`, 95 times out of 100; absent where the estimate is.
    #[serde(default)]
    pub estimate_low: Option<f64>,
    /// Upper bound of `estimate`, 95 times out of 100; absent where the estimate is.
    #[serde(default)]
    pub estimate_high: Option<f64>,
    /// Lower bound of the number of peers, 95 times out of 100, whatever is monitored.
    pub low: f64,
    /// Upper bound of the number of peers, 95 times out of 100, whatever is monitored; absent where
    /// nobody knows how many flows are not monitored.
    pub high: Option<f64>,
    /// Whether it is beyond the threshold all the same at the low end.
    pub certain: bool,
}

/// Flows of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeBin {
    /// Packets that they have at least.
    pub from: u64,
    /// Packets that they have at most.
    pub to: u64,
    /// How many there were, if flows with a count are like those without.
    pub flows: f64,
    /// Lower bound of `flows`, for certain.
    #[serde(default)]
    pub low: f64,
    /// Upper bound of `flows`, 95 times out of 100.
    #[serde(default)]
    pub high: f64,
    /// By how much the number is wrong at most, so; 0 where it is exact.
    pub error: f64,
}

/// Packets of a flow that were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Between where two nodes received it. Of a flow of which nothing left, from the last node
    /// that received it to the edge that its destination is behind, or to
    /// [`DESTINATION`] where that may have moved.
    pub place: Place,
    /// How many, less copies that were made there.
    pub lost: u64,
    /// Of a flow of which nothing left, the edge behind which its destination was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_behind: Option<String>,
}

/// Where a flow's way ends, whichever edge that is behind.
pub const DESTINATION: &str = "destination";

/// Where nothing goes on: of flows that a node received on their way to the hosts of an edge
/// nothing left, and nothing else that it received came to that edge; or nothing at all came to any
/// of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlackHole {
    /// From where the node received them to where the edge should have, or to [`DESTINATION`] where
    /// hosts may have moved, or nothing came to any of several edges.
    pub place: Place,
    /// The edge behind which all their destinations were seen last; none where those are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_behind: Option<String>,
    /// Flows that the node received and that no node behind it counted.
    pub flows: u64,
    /// Their packets that the node received, all of which were lost.
    pub packets: u64,
}

impl Loss {
    /// Where its place ends, for people to read.
    pub fn end(&self) -> String {
        end(&self.place, self.seen_behind.as_deref())
    }
}

impl BlackHole {
    /// Where its place ends, for people to read.
    pub fn end(&self) -> String {
        end(&self.place, self.seen_behind.as_deref())
    }
}

fn end(place: &Place, seen_behind: Option<&str>) -> String {
    match seen_behind {
        Some(edge) if place.to == DESTINATION => format!("{DESTINATION}, last behind {edge}"),
        _ => place.to.clone(),
    }
}

/// A flow whose packets come by a node again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loop {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The nodes that saw such times to live, in the order of the loop.
    pub nodes: Vec<String>,
    /// Hops of a turn.
    pub length: u8,
    /// The times to live with which the first of the nodes received it, the largest first.
    pub ttls: Vec<u8>,
    /// Packets that the first of them received, each counted once; absent where it has no entry of
    /// the flow, and where several lcores saw it come with unlike times to live first.
    pub packets: Option<u64>,
    /// Whether packets went round until they had no time to live any more, six turns or more; else
    /// a host may have sent them so.
    pub certain: bool,
}

/// Flows of a window that a node has seen go round, before the window is over. Each is reported
/// once a window, by the node that is first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopsNoticed {
    /// The epoch in which it was reported.
    #[serde(flatten)]
    pub head: EpochHead,
    /// `cfs`.
    pub system: String,
    /// Number of the window.
    pub window: u64,
    /// Without a number of packets: more are to come.
    pub loops: Vec<Loop>,
}

impl Report for LoopsNoticed {
    fn system(&self) -> &'static str {
        Found::SYSTEM
    }

    fn head(&self) -> EpochHead {
        self.head
    }

    /// More is to come, with the window's report.
    fn is_complete(&self) -> bool {
        false
    }

    fn to_shared(&self) -> Arc<dyn Report> {
        Arc::new(self.clone())
    }
}

/// A flow whose packets came to a node with different times to live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// The node.
    pub node: String,
    /// The time to live of its first packet there.
    pub ttl: u8,
    /// By how much less others had, as far as that was at most 63.
    pub shorter_by: Vec<u8>,
    /// Whether others had more than the first, or less by more than 63.
    pub others: bool,
    /// Packets with another time to live than the first; absent where that is not known, as of
    /// several lcores that saw unlike ones first.
    pub packets: Option<u64>,
}
