//! Paths of which it is not known yet whether marks come through.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The paths from an edge, in an epoch, to which no probe with each mark has come through yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unprobed {
    /// By address: the edge in front of it, as a number.
    pub hosts: Arc<HashMap<IpAddr, usize>>,
    /// Edges to which all marks have come through, and since which epoch.
    pub proven: Arc<BTreeMap<usize, u64>>,
    /// The epoch.
    pub epoch: u64,
    /// Edges to which packets go and that are waited for.
    pub waiting: Vec<usize>,
    /// Whether all other edges are waited for.
    pub others: bool,
    /// Whether addresses are that are behind no edge, as far as is known.
    pub unknown: bool,
}

impl Unprobed {
    /// Whether packets to a destination take such a path.
    pub fn concerns(&self, destination: &IpAddr) -> bool {
        let Some(edge) = self.hosts.get(destination) else { return self.unknown };
        let is_proven = self.proven.get(edge).is_some_and(|&since| since <= self.epoch);
        !is_proven && (self.others || self.waiting.contains(edge))
    }
}
