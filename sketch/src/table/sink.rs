//! What a table hands to its user, and what it says of flows.

use std::ops::Range;

use super::order::Rank;

/// What the user of a table does with the packets that it is given. Packets are named by their
/// places in the burst; those of a range belong to one flow.
pub trait Sink<K, V> {
    /// Adds these packets to the flow's entry.
    fn count(&mut self, value: &mut V, packets: Range<usize>);

    /// These packets' flow has no entry, and gets none before the table is cleared.
    fn refuse(&mut self, packets: Range<usize>);

    /// The flow has no entry any more, and gets none before the table is cleared.
    fn evict(&mut self, key: &K, rank: Rank, value: &V);
}

/// A flow with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow<'a, K, V> {
    /// The flow.
    pub key: &'a K,
    /// Its rank: that of its first packet.
    pub rank: Rank,
    /// What was counted of it.
    pub value: &'a V,
}

/// Flows with entries.
pub type Flows<'a, K, V> = Vec<Flow<'a, K, V>>;

/// What happened to flows since the table was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Flows that got an entry.
    pub admitted: u64,
    /// Those of them that lost it.
    pub evicted: u64,
    /// Flows that got none, some of them not counted here, whom the filter mistook for others.
    pub refused: u64,
    /// Runs of packets whose rank would have got them an entry, but which the filter kept out: had
    /// their flow been refused before, or was it mistaken for one that had?
    pub filtered: u64,
    /// Flows among the refused for which there was no room although their rank was small enough:
    /// dozens of flows agreed in their hashes.
    pub crowded: u64,
}
