//! What an epoch's report says of why its losses are not exact, or not known.

use calumma_analysis::Flow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::LossClass;

/// What kind of thing makes an epoch incomplete, or its losses bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CauseKind {
    /// An edge did not deliver everything, now or two epochs before.
    Missing,
    /// Clocks are too far apart, or a path between edges is not what it must be, as probes show.
    Clock,
    /// An edge changed epochs too late, now or two epochs before.
    Rotation,
    /// Edges or lcores measured with different attention.
    Attention,
    /// Packets were late, and their flows are not known.
    Late,
    /// Packets leave with other marks than those that they entered with, or with none.
    Mark,
    /// What edges counted is not what their encoders hold.
    Balance,
}

/// What makes an epoch incomplete, or its losses bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// The edge where it shows; absent where it is the network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    /// What kind of thing it is.
    pub kind: CauseKind,
    /// What it is, in words.
    pub reason: String,
    /// Packets that are concerned, as far as that is known.
    pub packets: u64,
    /// Flows that have most of them, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
}

impl Cause {
    /// Something that is no edge's.
    pub(crate) fn of_network(kind: CauseKind, reason: String) -> Self {
        Self { edge: None, kind, reason, packets: 0, flows: Vec::new() }
    }

    /// Something at an edge: `what` goes behind its name.
    pub(crate) fn at(edge: &str, kind: CauseKind, what: impl std::fmt::Display) -> Self {
        Self { edge: Some(edge.to_owned()), ..Self::of_network(kind, format!("{edge}: {what}")) }
    }

    /// The same of so many packets.
    pub(crate) fn of_packets(self, packets: u64) -> Self {
        Self { packets, ..self }
    }
}

/// Why no sketch holds a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StrayKind {
    /// It came when its epoch was over.
    Late,
    /// Its mark says that it is of an earlier epoch.
    Old,
    /// Its hierarchy has no buckets in this epoch.
    Misfit,
    /// It has no valid mark.
    Unmarked,
}

/// Packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowPackets {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets.
    pub packets: u64,
}

/// Flows that share a bucket in every array of an encoder, so that they can't be told apart. They
/// are two or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndistinctFlows {
    /// Packets that entered as any of them less those that left: 0 or negative where as many left
    /// or more.
    pub packets: i64,
    /// The encoder.
    pub class: LossClass,
}

/// Packets that left at an edge and that no sketch holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StrayReport {
    /// The edge.
    pub edge: String,
    /// Why no sketch holds them.
    pub what: StrayKind,
    /// How many they are.
    pub packets: u64,
    /// Packets among them whose flows are not known, since there was no room.
    pub beyond: u64,
    /// Flows that have most of them.
    pub flows: Vec<FlowPackets>,
}

impl StrayReport {
    /// No packets yet.
    pub(crate) fn none(edge: &str, what: StrayKind) -> Self {
        Self { edge: edge.to_owned(), what, packets: 0, beyond: 0, flows: Vec::new() }
    }
}
