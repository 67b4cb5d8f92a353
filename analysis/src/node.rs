//! Nodes, as far as all systems' analyses agree on them.

use crate::Unprobed;

/// How far a node's clock was from the controller's in all of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The node's time less the controller's, in nanoseconds.
    pub offset_ns: i64,
    /// Most that `offset_ns` is wrong.
    pub error_ns: u64,
}

/// How an epoch ended at a node, after its sides had come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEnd {
    /// Packets that came after the node had finished the epoch; `None` where it has not sealed it.
    pub late_packets: Option<u64>,
    /// What else its seal says of them, in the system's own format.
    pub seal: Vec<u8>,
    /// What else the operator should know where something is missing.
    pub note: Option<String>,
    /// What is wrong with its clock, where it is too far from another node's.
    pub clock: Option<String>,
    /// How far its clock was from the controller's; `None` where that is not known of all of the
    /// epoch. Of a system that sums over windows, of the window.
    pub offset: Option<ClockOffset>,
    /// What kind of switch it is, `software` or `tofino`; `None` where it has not connected.
    pub kind: Option<&'static str>,
    /// Whether it measured when it first connected to this controller, which knows nothing of what
    /// it did before.
    pub measured_before: bool,
    /// Paths from it of which it is not known yet whether marks come through; `None` where it is of
    /// all.
    pub unprobed: Option<Unprobed>,
}
