//! What edges' filters say of flows, many flows at a time.
//!
//! Of most flows every edge is asked whether packets came there that no entry has. A filter answers
//! for thousands of flows in turn, and stays in the cache meanwhile: flow by flow, each question
//! would find another one there.

use calumma_cfs::frames::Entry;
use calumma_sketch::{HashFamily, Hashes, KeyKind, WideKey};
use calumma_wire::Role;

use crate::view::{NodeView, hashes};

/// Flows that are answered for at once.
const FLOWS: usize = 1 << 13;

/// Flows of a node's filters.
const SIDES: [u8; 2] = [Entry::ENTERED, Entry::LEFT];

/// What all edges' filters say of some flows.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The number of the first of the flows.
    first: usize,
    /// By side and flow a bit for each node, in so many words.
    may_have: [Vec<u64>; 2],
    words: usize,
}

impl Answers {
    /// The number of the first flow that is answered for together with this one.
    pub(crate) fn first_beside(flow: usize) -> usize {
        flow / FLOWS * FLOWS
    }

    /// Of the flows with these keys, of which the first has this number, as many as are answered
    /// for at once.
    pub(crate) fn of<'k>(
        nodes: &[NodeView<'_>],
        family: Option<&HashFamily>,
        first: usize,
        keys: impl Iterator<Item = &'k WideKey>,
    ) -> Self {
        let keys: Vec<&WideKey> = keys.take(FLOWS).collect();
        let words = nodes.len().div_ceil(64);
        let mut may_have = [(); 2].map(|()| vec![0; keys.len() * words]);
        let hashed = |kind: KeyKind| -> Vec<Option<Hashes>> {
            let of = |key: &&WideKey| hashes(family?, kind, key);
            keys.iter().map(of).collect()
        };
        let (mut dual, mut ipv4) = (None, None);
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.role == Role::Edge) {
            let hashed = match node.window.keys {
                KeyKind::Dual => dual.get_or_insert_with(|| hashed(KeyKind::Dual)),
                KeyKind::Ipv4 => ipv4.get_or_insert_with(|| hashed(KeyKind::Ipv4)),
            };
            for (side, may_have) in SIDES.into_iter().zip(&mut may_have) {
                for (hashes, of_flow) in hashed.iter().zip(may_have.chunks_exact_mut(words)) {
                    let may = node.filters_have(side, hashes.as_ref()) != Some(false);
                    of_flow[at / 64] |= u64::from(may) << (at % 64);
                }
            }
        }
        Self { first, may_have, words }
    }

    /// Whether packets of a flow that no entry has may have come to the edge at this position on a
    /// side; `None` where the flow is not among those that are answered for.
    pub(crate) fn may_have(&self, side: u8, edge: usize, flow: usize) -> Option<bool> {
        let of_side = &self.may_have[usize::from(side == Entry::LEFT)];
        let at = flow.checked_sub(self.first)? * self.words + edge / 64;
        Some(of_side.get(at)? >> (edge % 64) & 1 == 1)
    }
}
