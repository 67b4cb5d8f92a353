//! What a switch does in the network, as its configuration says.

use calumma_wire::Role;
use serde::Deserialize;

/// What a switch does in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// Packets enter and leave the network there.
    #[default]
    Edge,
    /// It stands in the middle: all its ports face the fabric, and it routes.
    Transit,
    /// It stands in an end host, between network and kernel, and takes out of packets what switches
    /// have put into them.
    Host,
}

impl From<NodeRole> for Role {
    fn from(role: NodeRole) -> Self {
        match role {
            NodeRole::Edge => Self::Edge,
            NodeRole::Transit => Self::Transit,
            NodeRole::Host => Self::Host,
        }
    }
}
