//! What edges' filters say of flows, many flows at a time.
//!
//! Of most flows every edge is asked whether packets came there that no entry has. A filter answers
//! for thousands of flows in turn, and stays in the cache meanwhile: flow by flow, each question
//! would find another one there.

use std::cell::OnceCell;

use calumma_cfs::frames::Entry;
use calumma_sketch::table::Spot;
use calumma_sketch::{Hashes, KeyKind};
use calumma_wire::Role;

use crate::view::{NodeView, Notes};

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

    /// Of flows, of which the first has this number, as many as are answered for at once. `hashes`
    /// gives those of all from that one on, at nodes with such keys.
    pub(crate) fn of<'h>(
        nodes: &[NodeView<'_>],
        first: usize,
        hashes: impl Fn(KeyKind) -> &'h [Option<Hashes>],
    ) -> Self {
        let words = nodes.len().div_ceil(64);
        let mut may_have = [(); 2].map(|()| Vec::new());
        let (dual, ipv4) = (OnceCell::new(), OnceCell::new());
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.role == Role::Edge) {
            let kind = node.window.keys;
            let of_kind = if kind == KeyKind::Dual { &dual } else { &ipv4 };
            let hashed = of_kind.get_or_init(|| Hashed::of(hashes(kind)));
            let bit = 1 << (at % 64);
            for (side, may_have) in SIDES.into_iter().zip(&mut may_have) {
                may_have.resize(hashed.hashes.len() * words, 0);
                let of_flows = may_have.iter_mut().skip(at / 64).step_by(words);
                match node.notes(side) {
                    None => of_flows.for_each(|of_flow| *of_flow |= bit),
                    Some(notes) => hashed.ask(notes, bit, of_flows),
                }
            }
        }
        Self { first, may_have, words }
    }

    /// At which edges packets of a flow that no entry has may have come on a side: a bit for each
    /// of 64 nodes, of which the first has 64 times the position `word`. `None` where the flow is
    /// not among those that are answered for.
    #[inline]
    pub(crate) fn may_have(&self, side: u8, flow: usize, word: usize) -> Option<u64> {
        let of_side = &self.may_have[usize::from(side == Entry::LEFT)];
        let at = flow.checked_sub(self.first)? * self.words + word;
        of_side.get(at).copied()
    }
}

/// Flows by their hashes at nodes with keys of one kind; `None` for those that are not of it.
#[derive(Debug)]
struct Hashed<'h> {
    hashes: &'h [Option<Hashes>],
    spots: Vec<Option<Spot>>,
}

impl<'h> Hashed<'h> {
    fn of(hashes: &'h [Option<Hashes>]) -> Self {
        let hashes = &hashes[..hashes.len().min(FLOWS)];
        let spots = hashes.iter().map(|of| of.as_ref().map(Spot::of)).collect();
        Self { hashes, spots }
    }

    /// Sets a bit for each flow that may be among a node's notes.
    fn ask<'w>(&self, notes: Notes<'_>, bit: u64, of_flows: impl Iterator<Item = &'w mut u64>) {
        match notes {
            // Most edges have one filter.
            Notes::Filters([filter]) => {
                for (spot, of_flow) in self.spots.iter().zip(of_flows) {
                    let may = spot.is_none_or(|spot| filter.has(spot));
                    *of_flow |= if may { bit } else { 0 };
                }
            }
            Notes::Filters(filters) => {
                for (spot, of_flow) in self.spots.iter().zip(of_flows) {
                    let has = |spot| filters.iter().any(|filter| filter.has(spot));
                    *of_flow |= if spot.is_none_or(has) { bit } else { 0 };
                }
            }
            Notes::Uncounted(uncounted) => {
                for (hashes, of_flow) in self.hashes.iter().zip(of_flows) {
                    let may = hashes.as_ref().is_none_or(|hashes| uncounted.may_have(hashes));
                    *of_flow |= if may { bit } else { 0 };
                }
            }
        }
    }
}
