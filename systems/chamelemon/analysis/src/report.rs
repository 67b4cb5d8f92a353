//! What the controller says about an epoch: one JSON object.
//!
//! Field names are an interface; they only ever grow in number. `docs/reports.md` explains each.

mod doubts;

use std::collections::HashMap;
use std::sync::Arc;

pub use calumma_analysis::Flow;
use calumma_analysis::{EpochHead, Report};
use calumma_chamelemon::Attention;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::doubts::{Cause, CauseKind, FlowPackets, IndistinctFlows, StrayKind, StrayReport};

/// Everything about one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpochReport {
    /// Number of the epoch: its start in nanoseconds since the Unix epoch over its length.
    pub epoch: u64,
    /// Its start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Its length in milliseconds.
    pub length_ms: u64,
    /// Whether every expected edge delivered a sound measurement under the same attention. Losses
    /// are known only then.
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
    /// Victim flows, most packets first.
    pub loss: Vec<Loss>,
    /// Flows that left the network with more packets than they entered it with: duplicated in the
    /// network, or later than the guards allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub surplus: Vec<Surplus>,
    /// Packets that are missing of one flow and may be those too many of another, or of the same
    /// flow with another mark or in another epoch: not known to be lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<Rewritten>,
    /// Packets of flows that can't be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indistinct: Vec<IndistinctFlows>,
    /// Packets that no sketch holds: late, or with marks that do not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<StrayReport>,
    /// What makes the epoch incomplete, or its losses bounds, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// What this epoch shows of losses that earlier ones were reported with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amendments: Vec<Amendment>,
    /// What later epochs have shown of this one's losses; in no report as it was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amended: Vec<Amendment>,
    /// What was decided from this epoch; absent where attention is not the controller's to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// When the steps from the epoch's end to this report were done; absent in a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Whether the accumulation tasks were left out since the controller could not keep up: what
    /// edges saw is then no more than packets and load factors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub losses_only: bool,
    /// What each edge saw.
    pub edges: Vec<EdgeReport>,
}

impl EpochReport {
    /// Whether what each flow lost on balance is known: of a sound measurement, out of encoders
    /// that were large enough.
    pub fn losses_are_decoded(&self) -> bool {
        self.complete
            && self.decode.hl == DecodeState::Complete
            && matches!(self.decode.ll, DecodeState::Complete | DecodeState::Absent)
    }

    /// Whether `loss` is the whole truth: decoded, of all flows, and without a doubt that packets
    /// of a flow were copied or rewritten on their way, or which flow they are of.
    pub fn losses_are_exact(&self) -> bool {
        self.losses_are_decoded()
            && self.config.encodes_all()
            && self.causes.is_empty()
            && self.rewritten.is_empty()
            && self.indistinct.is_empty()
            && self.amended.is_empty()
            && self.loss.iter().all(|loss| !loss.at_least)
            && self.surplus.iter().all(|surplus| surplus.stranger)
    }

    /// Losses with what later epochs have left of each; those that they took back are left out.
    pub fn losses_left(&self) -> impl Iterator<Item = (&Loss, u64)> {
        let amended: HashMap<&Flow, u64> =
            self.amended.iter().map(|amended| (&amended.flow, amended.lost)).collect();
        let left = move |loss: &Loss| amended.get(&loss.flow).copied().unwrap_or(loss.lost);
        self.loss.iter().map(move |loss| (loss, left(loss))).filter(|&(_, left)| left > 0)
    }

    /// Packets that victim flows are said to have lost, uncertain ones left out: at least so many.
    pub fn lost_packets(&self) -> u64 {
        let lost: u64 = self.loss.iter().filter(|loss| !loss.partial).map(|loss| loss.lost).sum();
        let amended = self.amended.iter().map(|amendment| amendment.was - amendment.lost);
        lost.saturating_sub(amended.sum())
    }
}

impl Report for EpochReport {
    fn system(&self) -> &'static str {
        crate::NAME
    }

    fn head(&self) -> EpochHead {
        let Self { epoch, start_unix_ns, length_ms, .. } = *self;
        EpochHead { epoch, start_unix_ns, length_ms }
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn to_shared(&self) -> Arc<dyn Report> {
        Arc::new(self.clone())
    }
}

/// What the controller decided from an epoch (section 4.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    /// The first epoch that it is meant to hold for.
    pub effective_epoch: u64,
    /// The network state that it is made for.
    pub state: NetworkState,
    /// The attention itself.
    pub config: EpochConfig,
    /// Whether the switches were reconfigured; not in a dry run, and not where attention is frozen
    /// or nothing changes.
    pub applied: bool,
    /// Why, a sentence a step, in the order of the decisions; empty where nothing changes.
    pub reasons: Vec<String>,
}

/// When things were done, in milliseconds after the epoch's end by the controller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// The last ingress side was received.
    pub ingress_ms: f64,
    /// The last egress side was received.
    pub egress_ms: f64,
    /// The plan was made and sent to the switches.
    pub planned_ms: f64,
    /// The report was published.
    pub published_ms: f64,
}

/// Whether attention is on accumulation or on losses (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkState {
    /// All victim flows can be recorded.
    Healthy,
    /// So many victim flows that light losses are recorded separately and sampled.
    Ill,
}

impl NetworkState {
    /// As reports and metrics write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Ill => "ill",
        }
    }
}

/// Attention as reports give it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpochConfig {
    /// Packets that make a flow a heavy-hitter candidate.
    pub t_h: u32,
    /// Packets below which a flow is a light-loss candidate.
    pub t_l: u32,
    /// The share of light-loss candidates that were monitored.
    pub sample_rate: f64,
    /// Buckets an array of the HH encoder.
    pub hh_buckets: u32,
    /// Buckets an array of the HL encoder.
    pub hl_buckets: u32,
    /// Buckets an array of the LL encoder.
    pub ll_buckets: u32,
}

impl EpochConfig {
    /// Whether packets of all flows were encoded, from their first on.
    pub(crate) fn encodes_all(&self) -> bool {
        self.t_l == 1 || self.sample_rate >= 1.0
    }
}

impl From<&Attention> for EpochConfig {
    fn from(attention: &Attention) -> Self {
        Self {
            t_h: attention.t_h,
            t_l: attention.t_l,
            sample_rate: attention.sample_rate.as_f64(),
            hh_buckets: attention.partition.hh,
            hl_buckets: attention.partition.hl,
            ll_buckets: attention.partition.ll,
        }
    }
}

impl From<&Attention> for NetworkState {
    fn from(attention: &Attention) -> Self {
        if attention.partition.ll == 0 { Self::Healthy } else { Self::Ill }
    }
}

/// What came out of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecodeState {
    /// Every packet is accounted for, by flow or as one of flows that can't be told apart.
    Complete,
    /// Some buckets could not be emptied: what came out is marked partial.
    Partial,
    /// Not decoded, since an HH encoder that it needs came out partial.
    Blocked,
    /// Not decoded, since the measurement is incomplete or unsound.
    Skipped,
    /// The encoder has no buckets in this epoch.
    Absent,
}

impl DecodeState {
    /// As reports and metrics write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Blocked => "blocked",
            Self::Skipped => "skipped",
            Self::Absent => "absent",
        }
    }
}

/// How decoding of the delta encoders went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecodeReport {
    /// The delta HL encoder.
    pub hl: DecodeState,
    /// The delta LL encoder.
    pub ll: DecodeState,
    /// Flows over buckets of the delta HL encoder; estimated from its empty buckets where it came
    /// out partial, absent where it was not looked at.
    pub hl_load_factor: Option<f64>,
    /// Flows over buckets of the delta LL encoder; estimated from its empty buckets where it came
    /// out partial, absent where it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ll_load_factor: Option<f64>,
}

/// Which encoder a victim flow was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum LossClass {
    /// Heavy-loss: in the HL encoder.
    #[serde(rename = "HL")]
    Heavy,
    /// Light-loss: in the LL encoder only.
    #[serde(rename = "LL")]
    Light,
}

impl LossClass {
    /// As reports and metrics write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heavy => "HL",
            Self::Light => "LL",
        }
    }
}

/// A victim flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Loss {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets lost.
    pub lost: u64,
    /// Where it was found.
    pub class: LossClass,
    /// Whether the number, or even the flow, is uncertain since an encoder came out partial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether more may have been lost: copies of packets that left the network may stand for lost
    /// ones, what may have been rewritten is not counted, and what a flow outside the sample lost
    /// before it reached T_l is not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// A flow with more packets at egress than at ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Surplus {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets too many.
    pub packets: u64,
    /// Whether this is uncertain: an encoder came out partial, or packets of the flow may be of
    /// this epoch that are counted in none, so that there may be more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether the flow is known not to have entered the network in this epoch, so that these
    /// packets hide no loss of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stranger: bool,
}

/// What a network may change of a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Addresses or ports, as NAT does.
    Address,
    /// The mark, as a policy for DSCP does.
    Mark,
    /// The epoch that they were counted in, or whether they were counted in any: they left too
    /// early or too late.
    Epoch,
}

impl Change {
    /// As reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Mark => "mark",
            Self::Epoch => "epoch",
        }
    }
}

/// Packets that are missing of a flow and may have left the network as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rewritten {
    /// The flow that they entered as.
    pub from: Flow,
    /// The flow that they left as; absent where several may be it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Flow>,
    /// Packets, at most.
    pub packets: u64,
    /// What was changed.
    pub what: Change,
}

/// What a later epoch shows of a flow's loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amendment {
    /// Number of the epoch whose report it amends.
    pub epoch: u64,
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets that the report says were lost.
    pub was: u64,
    /// Packets that were lost at least; exactly, where `late` is there.
    pub lost: u64,
    /// Packets that were late, where their number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// Packets that were late at most, where their number is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most_late: Option<u64>,
    /// What shows it, in words.
    pub why: String,
}

/// What one edge saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EdgeReport {
    /// The edge's name.
    pub edge: String,
    /// Packets that entered the network here; absent where the ingress side did not come.
    pub packets_in: Option<u64>,
    /// Packets that left it here; absent where the egress side did not come.
    pub packets_out: Option<u64>,
    /// Flows that entered the network here.
    pub cardinality: Option<f64>,
    /// Standard error of the cardinality: 0 where it is exact, absent where it is a lower bound.
    pub cardinality_error: Option<f64>,
    /// Entropy of the flow sizes in bits.
    pub entropy: Option<f64>,
    /// How decoding of the HH encoder went.
    pub hh_decode: DecodeState,
    /// Flows over buckets of the HH encoder; estimated where it came out partial.
    pub hh_load_factor: Option<f64>,
    /// Flows larger than the threshold, largest first.
    pub heavy_hitters: Vec<HeavyHitter>,
    /// Whether no such flow is missing there.
    #[serde(default)]
    pub heavy_hitters_complete: bool,
    /// The epoch that heavy changes are seen against; absent where it was not comparable.
    pub heavy_changes_since: Option<u64>,
    /// Flows whose size changed by more than the threshold, largest change first.
    pub heavy_changes: Vec<HeavyChange>,
    /// Whether no such flow is missing there.
    #[serde(default)]
    pub heavy_changes_complete: bool,
    /// Number of flows by size in packets, ascending; sizes without flows are left out.
    pub size_distribution: Vec<(u64, f64)>,
}

impl EdgeReport {
    /// How many heavy hitters are listed, where none is missing.
    pub fn number_of_heavy_hitters(&self) -> Option<u64> {
        self.heavy_hitters_complete.then_some(self.heavy_hitters.len() as u64)
    }

    /// How many heavy changes are listed, where none is missing.
    pub fn number_of_heavy_changes(&self) -> Option<u64> {
        self.heavy_changes_complete.then_some(self.heavy_changes.len() as u64)
    }
}

/// A large flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeavyHitter {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its packets; never below the truth where the HH encoder decoded completely.
    pub size: u64,
    /// The least that it can have been; absent where `size` is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min: Option<u64>,
}

/// A flow that grew or shrank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeavyChange {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its packets in the epoch before, at most.
    pub before: u64,
    /// The least that it can have had then; absent where `before` is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_min: Option<u64>,
    /// Its packets in this epoch, at most.
    pub after: u64,
    /// The least that it can have in this one; absent where `after` is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_min: Option<u64>,
}

/// A small healthy epoch, as an example for tests.
pub fn sample() -> EpochReport {
    let flow = Flow {
        src: [10, 1, 0, 2].into(),
        dst: [10, 2, 0, 2].into(),
        sport: 40_000,
        dport: 5_201,
        proto: 6,
    };
    EpochReport {
        epoch: 12,
        start_unix_ns: 600_000_000,
        length_ms: 50,
        complete: true,
        missing_edges: vec![],
        incomplete_because: vec![],
        state: NetworkState::Healthy,
        config: EpochConfig {
            t_h: 1,
            t_l: 1,
            sample_rate: 1.0,
            hh_buckets: 3584,
            hl_buckets: 512,
            ll_buckets: 0,
        },
        decode: DecodeReport {
            hl: DecodeState::Complete,
            ll: DecodeState::Absent,
            hl_load_factor: Some(0.03),
            ll_load_factor: None,
        },
        loss: vec![Loss {
            flow,
            lost: 3,
            class: LossClass::Heavy,
            partial: false,
            at_least: false,
        }],
        surplus: vec![],
        rewritten: vec![],
        indistinct: vec![],
        strays: vec![],
        causes: vec![],
        amendments: vec![],
        amended: vec![],
        plan: None,
        timing: None,
        losses_only: false,
        edges: vec![EdgeReport {
            edge: "e1".to_owned(),
            packets_in: Some(81_234),
            packets_out: Some(80_991),
            cardinality: Some(412.0),
            cardinality_error: Some(0.0),
            entropy: Some(5.91),
            hh_decode: DecodeState::Complete,
            hh_load_factor: Some(0.04),
            heavy_hitters: vec![HeavyHitter { flow, size: 5120, size_min: None }],
            heavy_hitters_complete: true,
            heavy_changes_since: Some(11),
            heavy_changes: vec![HeavyChange {
                flow,
                before: 10,
                before_min: None,
                after: 900,
                after_min: None,
            }],
            heavy_changes_complete: true,
            size_distribution: vec![(1, 210.4), (2, 55.0)],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_operators_and_tools_expect() {
        let report = sample();
        let text = serde_json::to_string(&report).unwrap();
        let wanted = [
            r#"{"epoch":12,"start_unix_ns":600000000,"length_ms":50,"complete":true,"#,
            r#""missing_edges":[],"incomplete_because":[],"state":"healthy","#,
            r#""config":{"t_h":1,"t_l":1,"sample_rate":1.0,"hh_buckets":3584,"#,
            r#""hl_buckets":512,"ll_buckets":0},"#,
            r#""decode":{"hl":"complete","ll":"absent","hl_load_factor":0.03},"#,
            r#""loss":[{FLOW,"lost":3,"class":"HL"}],"#,
            r#""edges":[{"edge":"e1","packets_in":81234,"packets_out":80991,"#,
            r#""cardinality":412.0,"cardinality_error":0.0,"entropy":5.91,"#,
            r#""hh_decode":"complete","hh_load_factor":0.04,"#,
            r#""heavy_hitters":[{FLOW,"size":5120}],"heavy_hitters_complete":true,"#,
            r#""heavy_changes_since":11,"#,
            r#""heavy_changes":[{FLOW,"before":10,"after":900}],"heavy_changes_complete":true,"#,
            r#""size_distribution":[[1,210.4],[2,55.0]]}]}"#,
        ];
        let flow = r#""src":"10.1.0.2","dst":"10.2.0.2","sport":40000,"dport":5201,"proto":6"#;
        assert_eq!(text, wanted.concat().replace("FLOW", flow));
        assert_eq!(serde_json::from_str::<EpochReport>(&text).unwrap(), report);
    }
}
