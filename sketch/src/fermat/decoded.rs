//! What decoding gives.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::indistinct::Indistinct;
use crate::key::{FlowKey, Key};

/// What came out of a sketch.
///
/// Only an exact decode accounts for every packet, be it by flow or by sets of flows that can't be
/// told apart. From another one, the flows are those that
/// could be peeled: each passed verification, but their counts may lack packets that remain in
/// impure buckets, or count some twice.
#[derive(Clone, Debug, Default)]
pub struct Decoded<K = FlowKey> {
    /// No key twice, no count zero.
    flows: Vec<(K, i64)>,
    /// The flows by key, from when they are first asked for: that costs about as much as decoding.
    by_key: OnceLock<HashMap<K, i64>>,
    remaining_buckets: usize,
    exhausted: bool,
    /// What all of the remaining buckets hold, where that is known.
    indistinct: Vec<Indistinct>,
}

impl<K: Key> Decoded<K> {
    /// From flows as they were peeled; where `repeated`, a key may be among them more than once.
    pub(super) fn new(
        mut flows: Vec<(K, i64)>,
        repeated: bool,
        remaining_buckets: usize,
        exhausted: bool,
    ) -> Self {
        if repeated {
            flows.sort_by_key(|&(key, _)| key);
            flows.dedup_by(|(key, packets), (kept, sum)| {
                let same = key == kept;
                *sum += if same { *packets } else { 0 };
                same
            });
            flows.retain(|&(_, packets)| packets != 0);
        }
        let (by_key, indistinct) = (OnceLock::new(), Vec::new());
        Self { flows, by_key, remaining_buckets, exhausted, indistinct }
    }

    /// The same, the remaining buckets being those of `sets`.
    pub(super) fn beside(self, sets: Vec<Indistinct>) -> Self {
        Self { indistinct: sets, ..self }
    }

    /// Whether the flowset accounts for all that the sketch recorded: every bucket came out empty,
    /// in fragments as well as counts.
    pub fn is_complete(&self) -> bool {
        self.remaining_buckets == 0 && !self.exhausted
    }

    /// Whether every flow's packets are exact: the decode is complete, or so but for sets of flows
    /// that can't be told apart ([`indistinct`](Self::indistinct)).
    pub fn is_exact(&self) -> bool {
        self.is_complete() || !self.indistinct.is_empty()
    }

    /// Sets of flows that share a bucket in every array, where they are all that is left.
    pub fn indistinct(&self) -> &[Indistinct] {
        &self.indistinct
    }

    /// Buckets, over all arrays, that could not be emptied.
    pub fn remaining_buckets(&self) -> usize {
        self.remaining_buckets
    }

    /// The flows and their packets, each flow once, in no order. A negative number means that more
    /// packets of the flow were subtracted than added.
    pub fn flows(&self) -> &[(K, i64)] {
        &self.flows
    }

    /// The flows and their packets by key; see [`flows`](Self::flows). Made when first asked for.
    pub fn flowset(&self) -> &HashMap<K, i64> {
        self.by_key.get_or_init(|| self.flows.iter().copied().collect())
    }

    /// The flows and their packets, for keeps.
    pub fn into_flowset(self) -> HashMap<K, i64> {
        self.by_key.into_inner().unwrap_or_else(|| self.flows.into_iter().collect())
    }

    /// Packets of one flow; `None` where it was not decoded.
    pub fn packets_of(&self, key: &K) -> Option<i64> {
        self.flowset().get(key).copied()
    }
}

impl<K: Key> PartialEq for Decoded<K> {
    fn eq(&self, other: &Self) -> bool {
        self.remaining_buckets == other.remaining_buckets
            && self.exhausted == other.exhausted
            && self.indistinct == other.indistinct
            && self.flowset() == other.flowset()
    }
}

impl<K: Key> Eq for Decoded<K> {}
