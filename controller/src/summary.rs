//! An epoch in few numbers: for lists, live views and terminals, which need every epoch but not
//! every flow. A report of a busy network is a hundred kilobytes; its summary is one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::report::{
    Cause, DecodeReport, DecodeState, EdgeReport, EpochConfig, EpochReport, IndistinctFlows,
    NetworkState, PlanReport, Timing,
};

/// An [`EpochReport`] without its flows. Fields of the same name mean the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpochSummary {
    /// Number of the epoch.
    pub epoch: u64,
    /// Its start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Its length in milliseconds.
    pub length_ms: u64,
    /// Whether every expected edge delivered a sound measurement under the same attention.
    pub complete: bool,
    /// Expected edges of which something did not come in time.
    pub missing_edges: Vec<String>,
    /// Why the epoch is incomplete; empty where it is complete.
    pub incomplete_because: Vec<String>,
    /// The network state that the attention was made for.
    pub state: NetworkState,
    /// Thresholds, sampling and division of memory that held.
    pub config: EpochConfig,
    /// How decoding of the delta encoders went.
    pub decode: DecodeReport,
    /// Packets that entered the network, at all edges that say so.
    pub packets_in: u64,
    /// Packets that left it.
    pub packets_out: u64,
    /// Victim flows; absent where not all losses are known.
    pub victims: Option<u64>,
    /// Packets they lost; absent where not all losses are known.
    pub lost: Option<u64>,
    /// Packets that were lost at least, where there is no more to know than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at_least: Option<u64>,
    /// What makes the epoch incomplete, or its losses bounds, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Packets of flows that can't be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indistinct: Vec<IndistinctFlows>,
    /// What was decided from this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// When the steps from the epoch's end to its report were done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// What each edge saw.
    pub edges: Vec<EdgeSummary>,
}

/// An [`EdgeReport`] without its flows. Fields of the same name mean the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EdgeSummary {
    /// The edge's name.
    pub edge: String,
    /// Packets that entered the network here.
    pub packets_in: Option<u64>,
    /// Packets that left it here.
    pub packets_out: Option<u64>,
    /// Flows that entered the network here.
    pub cardinality: Option<f64>,
    /// Standard error of the cardinality: 0 where it is exact, absent where it is a lower bound.
    pub cardinality_error: Option<f64>,
    /// Entropy of the flow sizes in bits.
    pub entropy: Option<f64>,
    /// How decoding of the HH encoder went.
    pub hh_decode: DecodeState,
    /// Flows over buckets of the HH encoder.
    pub hh_load_factor: Option<f64>,
    /// Number of heavy hitters listed; absent where some may be missing.
    pub heavy_hitters: Option<u64>,
    /// Number of heavy changes listed; absent where there was nothing to compare with.
    pub heavy_changes: Option<u64>,
}

impl From<&EpochReport> for EpochSummary {
    fn from(report: &EpochReport) -> Self {
        let known = report.losses_are_exact();
        let sum = |of: fn(&EdgeReport) -> Option<u64>| {
            report.edges.iter().filter_map(of).fold(0, u64::saturating_add)
        };
        Self {
            epoch: report.epoch,
            start_unix_ns: report.start_unix_ns,
            length_ms: report.length_ms,
            complete: report.complete,
            missing_edges: report.missing_edges.clone(),
            incomplete_because: report.incomplete_because.clone(),
            state: report.state,
            config: report.config,
            decode: report.decode,
            packets_in: sum(|edge| edge.packets_in),
            packets_out: sum(|edge| edge.packets_out),
            victims: known.then_some(report.loss.len() as u64),
            lost: known.then(|| report.lost_packets()),
            lost_at_least: (report.losses_are_decoded() && !known).then(|| report.lost_packets()),
            causes: report.causes.clone(),
            indistinct: report.indistinct.clone(),
            plan: report.plan.clone(),
            timing: report.timing,
            edges: report.edges.iter().map(EdgeSummary::from).collect(),
        }
    }
}

impl From<&EdgeReport> for EdgeSummary {
    fn from(report: &EdgeReport) -> Self {
        Self {
            edge: report.edge.clone(),
            packets_in: report.packets_in,
            packets_out: report.packets_out,
            cardinality: report.cardinality,
            cardinality_error: report.cardinality_error,
            entropy: report.entropy,
            hh_decode: report.hh_decode,
            hh_load_factor: report.hh_load_factor,
            heavy_hitters: report.number_of_heavy_hitters(),
            heavy_changes: report.number_of_heavy_changes(),
        }
    }
}
