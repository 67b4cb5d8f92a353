//! How many packets of a flow entered the network, at all edges together.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_sketch::{AnyKey, FlowKey, HashFamily, Hashes, Key, WideKey};

use super::edge::EdgeSizes;
use crate::report::Flow;

/// What is known of the number of a flow's packets. The truth lies between both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: u64,
    /// `None` where there is no bound.
    pub(super) most: Option<u64>,
}

impl Bounds {
    const UNKNOWN: Self = Self { least: 0, most: None };

    /// Whether the flow is known to have entered.
    pub(super) fn is_entered(&self) -> bool {
        self.least > 0
    }

    /// Whether the flow is known not to have entered.
    pub(super) fn is_stranger(&self) -> bool {
        self.most == Some(0)
    }
}

/// The flow sizes at all edges in a sound epoch.
///
/// Bounds rest on two things. An HH encoder that decoded completely holds each packet of a flow
/// from the T_h-th on, so what it has of a flow is the least, and T_h - 1 more of each lcore the
/// most. And every packet that enters is counted by the flow classifier, whose counters never say
/// less than what a flow sent: a flow that one of its counters does not know has not entered.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    family: &'a HashFamily,
    /// The edges by name.
    edges: &'a BTreeMap<String, Arc<EdgeSizes>>,
}

impl<'a> Entered<'a> {
    pub(super) fn new(family: &'a HashFamily, edges: &'a BTreeMap<String, Arc<EdgeSizes>>) -> Self {
        Self { family, edges }
    }

    /// Packets of a flow that entered.
    pub(super) fn of(&self, flow: &Flow) -> Bounds {
        if self.edges.is_empty() {
            return Bounds::UNKNOWN;
        }
        let none = Bounds { least: 0, most: Some(0) };
        self.by_edge(flow).fold(none, |sum, (_, edge)| Bounds {
            least: sum.least + edge.least,
            most: sum.most.zip(edge.most).map(|(sum, most)| sum + most),
        })
    }

    /// The names of all edges.
    pub(super) fn edges(&self) -> impl Iterator<Item = &'a str> {
        self.edges.keys().map(String::as_str)
    }

    /// The edges where a flow entered; where that is known of none, those where it may have.
    pub(super) fn edges_of(&self, flow: &Flow) -> Vec<&'a str> {
        let bounds: Vec<_> = self.by_edge(flow).collect();
        let is_known = bounds.iter().any(|(_, bounds)| bounds.is_entered());
        let is_there = |bounds: &Bounds| bounds.is_entered() || !(is_known || bounds.is_stranger());
        bounds.iter().filter(|(_, bounds)| is_there(bounds)).map(|&(edge, _)| edge).collect()
    }

    /// What is known of a flow at each edge.
    fn by_edge(&self, flow: &Flow) -> impl Iterator<Item = (&'a str, Bounds)> {
        let kind = self.edges.values().next().map(|edge| edge.by_key());
        let is_wide = matches!(kind, Some(AnyKey::Dual(_)));
        let narrow = self.hashed(flow.key::<FlowKey>().filter(|_| !is_wide));
        let wide = self.hashed(flow.key::<WideKey>().filter(|_| is_wide));
        self.edges.iter().map(move |(edge, sizes)| {
            let bounds = match sizes.by_key() {
                AnyKey::Ipv4(sizes) => narrow.map(|(key, hashes)| sizes.entered(&key, &hashes)),
                AnyKey::Dual(sizes) => wide.map(|(key, hashes)| sizes.entered(&key, &hashes)),
            };
            (edge.as_str(), bounds.unwrap_or(Bounds::UNKNOWN))
        })
    }

    fn hashed<K: Key>(&self, key: Option<K>) -> Option<(K, Hashes)> {
        key.map(|key| (key, self.family.hash(&key)))
    }
}
