//! What the HTTP API answers beside reports and summaries; its clients read the same types.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::report::{Flow, LossClass};

/// A flow's size at one edge in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SizeAt {
    /// The edge where it entered the network.
    pub edge: String,
    /// The epoch.
    pub epoch: u64,
    /// Packets; never below the truth unless the edge's HH encoder came out partial.
    pub size: u64,
    /// The least that it can have been.
    pub size_min: u64,
    /// Whether both are the truth.
    pub exact: bool,
}

/// A flow in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowInEpoch {
    /// Number of the epoch.
    pub epoch: u64,
    /// Its start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Whether the epoch's measurement is whole and sound.
    pub complete: bool,
    /// Packets of the flow that were lost; absent where that is not known.
    pub lost: Option<u64>,
    /// Which encoder the losses were found in; absent where there are none.
    pub class: Option<LossClass>,
    /// Whether `lost` is uncertain since an encoder came out partial.
    pub partial: bool,
    /// Whether more may have been lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Its size at every edge, where still known; in older epochs, where it was a heavy hitter.
    pub sizes: Vec<SizeAt>,
}

/// A flow's losses over some epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Victim {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets lost for certain; more where copies or rewritten packets hide some.
    pub lost: u64,
    /// Packets lost as encoders have it that came out partial.
    pub uncertain: u64,
    /// Epochs in which it lost some.
    pub epochs: u64,
    /// The last of them.
    pub last_epoch: u64,
}

/// Losses over some epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Victims {
    /// The oldest epoch that was looked at; absent where there is none.
    pub first_epoch: Option<u64>,
    /// The newest.
    pub last_epoch: Option<u64>,
    /// How many they are.
    pub epochs: u64,
    /// How many of them have their losses not or not all known.
    pub epochs_unknown: u64,
    /// Packets that entered the network in them.
    pub packets_in: u64,
    /// Packets lost for certain, of all victim flows.
    pub lost: u64,
    /// Victim flows, of which `flows` may show the first only.
    pub victims: u64,
    /// Victim flows, most packets first.
    pub flows: Vec<Victim>,
}

/// An edge as `GET /api/v1/edges` shows it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct EdgeStatus {
    /// The edge's name.
    pub edge: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Its address, when connected last.
    #[schema(value_type = Option<String>, example = "10.0.0.7:51234")]
    pub address: Option<SocketAddr>,
    /// `software` or `tofino`.
    pub kind: Option<&'static str>,
    /// Its program and version.
    pub program: Option<String>,
    /// Where its packets carry their mark: the same at all edges.
    pub carrier: Option<String>,
    /// By which header it measures packets in tunnels: the same at all edges.
    pub tunnels: Option<String>,
    /// Connections since the controller started.
    pub connections: u64,
    /// The last epoch that it sent a frame about.
    pub last_epoch: Option<u64>,
    /// Its clock's time less the controller's, in milliseconds, once it has been measured.
    pub clock_offset_ms: Option<f64>,
    /// Most that `clock_offset_ms` is wrong.
    pub clock_error_ms: Option<f64>,
    /// Time that a message takes to the edge and back, in milliseconds, without what it waits
    /// there.
    pub path_delay_ms: Option<f64>,
    /// What is wrong with its clock; none where it keeps to the clock guard.
    pub clock_problem: Option<String>,
    /// Frames that were accepted.
    pub frames: u64,
    /// Frames that had come before.
    pub duplicate_frames: u64,
    /// Frames that came after their epoch had been reported.
    pub late_frames: u64,
    /// Frames whose epoch lay too far from the controller's time.
    pub out_of_window_frames: u64,
    /// Why it is connected and does not measure as it should; none where it does.
    pub measuring_problem: Option<String>,
    /// What ended its last connection, or why it was refused.
    pub last_problem: Option<String>,
    /// The switch's own totals, as it sent them last.
    pub counters: BTreeMap<String, u64>,
}

/// A node as `GET /api/v1/nodes` shows it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// `edge`, `transit` or `host`.
    pub role: &'static str,
    /// Its number, never 0.
    pub id: u16,
    /// Whether it is connected.
    pub connected: bool,
    /// Its address, when connected last.
    #[schema(value_type = Option<String>, example = "10.0.0.7:51234")]
    pub address: Option<SocketAddr>,
    /// `software` or `tofino`.
    pub kind: Option<&'static str>,
    /// Its program and version.
    pub program: Option<String>,
    /// The systems that it runs, while it is connected.
    pub systems: Vec<&'static str>,
    /// Connections since the controller started.
    pub connections: u64,
    /// The last epoch that it sent a frame about.
    pub last_epoch: Option<u64>,
    /// Frames that were accepted.
    pub frames: u64,
    /// Frames that had come before.
    pub duplicate_frames: u64,
    /// Frames that came after their epoch had been reported.
    pub late_frames: u64,
    /// Frames whose epoch lay too far from the controller's time.
    pub out_of_window_frames: u64,
    /// What is wrong with its clock; none where it keeps to the clock guard.
    pub clock_problem: Option<String>,
    /// Why it is connected and does not measure as it should; none where it does.
    pub measuring_problem: Option<String>,
    /// What ended its last connection, or why it was refused.
    pub last_problem: Option<String>,
    /// Its own totals, as it sent them last.
    pub counters: BTreeMap<String, u64>,
}

/// The network as `GET /api/v1/topology` shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TopologyStatus {
    /// Every node that is expected, then the switches of the topology that measure nothing.
    pub nodes: Vec<TopologyNode>,
    /// Names of the switches at both ends of each link; absent without `[topology]`.
    pub links: Option<Vec<[String; 2]>>,
    /// Nodes that have tried to connect within the last two minutes and are not expected.
    pub unexpected: Vec<UnexpectedNode>,
    /// What does not fit what is expected, with the remedy; none where all is well.
    pub problems: Vec<String>,
}

/// A node's place in the network.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TopologyNode {
    /// Its name.
    pub node: String,
    /// `edge`, `transit` or `host`.
    pub role: &'static str,
    /// Its number, never 0; absent where it measures nothing.
    pub id: Option<u16>,
    /// Whether it is connected; absent where it measures nothing.
    pub connected: Option<bool>,
    /// Hosts behind it; absent where it is no edge of `[topology]`.
    pub hosts: Option<u32>,
}

/// A node that connects and that the configuration does not name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UnexpectedNode {
    /// The name that it gives.
    pub node: String,
    /// `edge`, `transit` or `host`, as it says.
    pub role: &'static str,
    /// Where it came from last.
    #[schema(value_type = String, example = "10.0.0.7:51234")]
    pub address: SocketAddr,
    /// Connections that were refused since the controller's start.
    pub attempts: u64,
    /// The last of them, in nanoseconds since the Unix epoch.
    pub last_unix_ns: u64,
}

/// A system as `GET /api/v1/systems` shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SystemStatus {
    /// Its name.
    pub system: &'static str,
    /// Its number in frames.
    pub id: u8,
    /// The roles of the nodes that it runs on.
    pub roles: Vec<&'static str>,
    /// Whether it runs, or is switched on at an epoch to come.
    pub on: bool,
    /// The first epoch that it ran in; 0 since the controller's start, absent where it is off.
    pub since_epoch: Option<u64>,
    /// Its last epoch that was reported; absent where it is off, or there was none yet.
    pub last_epoch: Option<u64>,
    /// Frames that its analysis was too slow for, since it was switched on.
    pub dropped_frames: u64,
    /// Its panels on the dashboard.
    pub panels: Vec<PanelStatus>,
}

/// A system's panel on the dashboard.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PanelStatus {
    /// Its name among the system's panels.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Path of the JavaScript module that draws it.
    pub script: String,
}

/// What a change of the hash key came of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyChangeBy {
    /// Somebody asked for it.
    Operator,
    /// The controller started.
    Start,
    /// Reports showed signs of flows that somebody has chosen.
    Suspicion,
}

impl KeyChangeBy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Start, Self::Suspicion];

    /// As metrics and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Start => "start",
            Self::Suspicion => "suspicion",
        }
    }
}

/// A change of the hash key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyChange {
    /// What it came of.
    pub by: KeyChangeBy,
    /// Why it was changed, in words.
    pub reason: String,
    /// The first epoch that is measured by the new key.
    pub effective_epoch: u64,
    /// When it was decided, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
}

/// The hash key as `GET /api/v1/hash-key` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HashKeyStatus {
    /// The first epoch that it is for; 0 where it has never been changed.
    pub since_epoch: u64,
    /// How often it has changed since the controller's start, by what that came of.
    pub changes: BTreeMap<KeyChangeBy, u64>,
    /// The last of these changes.
    pub last: Option<KeyChange>,
    /// What would have changed it, and why it stays; absent where nothing would since the start.
    pub stays: Option<String>,
}

/// Where packets carry their marks, as `GET /api/v1/carrier` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarrierStatus {
    /// How the edges that are connected mark packets; absent where none is.
    pub in_force: Option<String>,
    /// What was chosen for switches that leave it to the controller; absent where none has come.
    pub chosen: Option<CarrierChoice>,
    /// What each node has offered last, by name: one carrier where its file says it.
    pub offers: BTreeMap<String, Vec<String>>,
    /// Nodes that have not said yet what they offer.
    pub missing: Vec<String>,
    /// By `ip-id`, IPv4 packets without DF of more bytes carry no mark and are not measured:
    /// `[domain] fabric_mtu`.
    pub fabric_mtu: u16,
    /// By node, those that have entered, since it started; only nodes that had any.
    pub above_fabric_mtu: BTreeMap<String, u64>,
    /// What to do about them, in words; absent where there were none.
    pub remedy: Option<String>,
}

/// A carrier that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarrierChoice {
    /// `tos` or `ip-id`.
    pub carrier: String,
    /// Why, in words.
    pub reason: String,
}

/// What `POST /api/v1/carrier` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarrierOrder {
    /// `tos`, `ip-id`, or `auto` for the one that the controller would choose now.
    pub carrier: String,
}

/// What `POST /api/v1/hash-key/rotate` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyRotated {
    /// The first epoch that all switches measure by the new key.
    pub effective_epoch: u64,
}
