//! How many packets of a flow entered the network, at all edges together.

use std::sync::Arc;

use calumma_sketch::{AnyKey, FlowKey, HashFamily, Key, WideKey};

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
/// from the T_h-th on, so what it has of a flow is the least, and T_h - 1 more the most. And every
/// packet that enters is counted by the flow classifier, whose counters never say less than what a
/// flow sent: a flow that one of its counters does not know has not entered.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    family: &'a HashFamily,
    edges: &'a [Arc<EdgeSizes>],
}

impl<'a> Entered<'a> {
    pub(super) fn new(family: &'a HashFamily, edges: &'a [Arc<EdgeSizes>]) -> Self {
        Self { family, edges }
    }

    /// Packets of a flow that entered.
    pub(super) fn of(&self, flow: &Flow) -> Bounds {
        match self.edges.first().map(|edge| edge.by_key()) {
            Some(AnyKey::Ipv4(_)) => self.of_key(flow.key::<FlowKey>()),
            Some(AnyKey::Dual(_)) => self.of_key(flow.key::<WideKey>()),
            None => Bounds::UNKNOWN,
        }
    }

    fn of_key<K: Key>(&self, key: Option<K>) -> Bounds {
        let Some(key) = key else { return Bounds::UNKNOWN };
        let hashes = self.family.hash(&key);
        let edges = self.edges.iter().map(|edge| {
            edge.by_key().get::<K>().map_or(Bounds::UNKNOWN, |sizes| sizes.entered(&key, &hashes))
        });
        edges.fold(Bounds { least: 0, most: Some(0) }, |sum, edge| Bounds {
            least: sum.least + edge.least,
            most: sum.most.zip(edge.most).map(|(sum, most)| sum + most),
        })
    }
}
