//! What edges' filters say of flows, many filters and many flows at a time.
//!
//! Of most flows every edge is asked whether packets came there that no entry has. So filters of
//! one size stand side by side ([`Sliced`]), and flows are asked about in the order in which
//! filters note them: what was read for one is in the cache for the next.

use calumma_cfs::frames::{Entry, Uncounted};
use calumma_sketch::table::{Refused, Sliced, Spot};
use calumma_sketch::{Hashes, KeyKind};
use calumma_wire::Role;

use crate::view::{NodeView, Notes};

/// Flows that are answered for at once.
const FLOWS: usize = 1 << 16;

/// Flows of a node's filters.
const SIDES: [u8; 2] = [Entry::ENTERED, Entry::LEFT];

const KINDS: [KeyKind; 2] = [KeyKind::Dual, KeyKind::Ipv4];

/// What edges noted of flows that no entry has.
#[derive(Debug)]
pub(crate) struct Noted<'a> {
    /// Words that have a bit for each node.
    words: usize,
    /// By side a bit for each edge that does not say what came there.
    unknown: [Vec<u64>; 2],
    /// By kind of keys and by side.
    of_kinds: [[OfKind<'a>; 2]; 2],
}

/// What edges with keys of one kind say of a side.
#[derive(Debug)]
struct OfKind<'a> {
    /// A bit for each of these edges.
    edges: Vec<u64>,
    filters: Vec<SideBySide>,
    /// Residuals of edges without such filters.
    uncounted: Vec<(usize, &'a Uncounted)>,
}

/// Filters of one size.
#[derive(Debug)]
struct SideBySide {
    filters: Sliced,
    /// The node that each of them is of.
    nodes: Vec<usize>,
}

impl SideBySide {
    /// All these, each with the node that it is of.
    fn all(mut filters: Vec<(usize, &Refused)>) -> Vec<Self> {
        let size = |(_, filter): &(usize, &Refused)| filter.size();
        filters.sort_by_key(size);
        let of_one_size = filters.chunk_by(|one, other| size(one) == size(other));
        let some = of_one_size.flat_map(|of_one_size| of_one_size.chunks(Sliced::MOST));
        some.filter_map(|some| {
            let (nodes, filters): (_, Vec<_>) = some.iter().copied().unzip();
            Some(Self { filters: Sliced::of(&filters)?, nodes })
        })
        .collect()
    }
}

fn set(bits: &mut [u64], node: usize) {
    bits[node / 64] |= 1 << (node % 64);
}

impl<'a> Noted<'a> {
    pub(crate) fn of(nodes: &[NodeView<'a>]) -> Self {
        let words = nodes.len().div_ceil(64);
        let edges = || nodes.iter().enumerate().filter(|(_, node)| node.role == Role::Edge);
        let unknown = SIDES.map(|side| {
            let mut unknown = vec![0; words];
            let are_silent = edges().filter(|(_, node)| node.notes(side).is_none());
            are_silent.for_each(|(at, _)| set(&mut unknown, at));
            unknown
        });
        let of_kinds = KINDS.map(|kind| {
            SIDES.map(|side| {
                let (mut bits, mut filters, mut uncounted) =
                    (vec![0; words], Vec::new(), Vec::new());
                for (at, node) in edges().filter(|(_, node)| node.window.keys == kind) {
                    let Some(notes) = node.notes(side) else { continue };
                    set(&mut bits, at);
                    match notes {
                        Notes::Filters(of) => filters.extend(of.iter().map(|filter| (at, filter))),
                        Notes::Uncounted(of) => uncounted.push((at, of)),
                    }
                }
                OfKind { edges: bits, filters: SideBySide::all(filters), uncounted }
            })
        });
        Self { words, unknown, of_kinds }
    }
}

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

    /// Of flows, of which the first has this number, as many as are answered for at once, out of so
    /// many from that one on. `hashes` gives those of all of these, at nodes with such keys.
    pub(crate) fn of<'h>(
        noted: &Noted<'_>,
        (first, flows): (usize, usize),
        hashes: impl Fn(KeyKind) -> &'h [Option<Hashes>],
    ) -> Self {
        let (flows, words) = (flows.min(FLOWS), noted.words);
        let mut may_have = noted.unknown.each_ref().map(|of| of.repeat(flows));
        for (kind, of_sides) in KINDS.into_iter().zip(&noted.of_kinds) {
            if of_sides.iter().all(|of| of.edges.iter().all(|&bits| bits == 0)) {
                continue;
            }
            let hashes = &hashes(kind)[..flows];
            let in_order = in_order(hashes);
            let others = || (0..).zip(hashes).filter(|(_, hashes)| hashes.is_none());
            for (of, may_have) in of_sides.iter().zip(&mut may_have) {
                let of_flow = |flow: u32| flow as usize * words..(flow as usize + 1) * words;
                for SideBySide { filters, nodes } in &of.filters {
                    for &(flow, spot) in &in_order {
                        let mut having = filters.having(spot);
                        while having != 0 {
                            let node = nodes[having.trailing_zeros() as usize];
                            set(&mut may_have[of_flow(flow)], node);
                            having &= having - 1;
                        }
                    }
                }
                for &(node, uncounted) in &of.uncounted {
                    for (flow, hashes) in (0..).zip(hashes) {
                        if hashes.as_ref().is_some_and(|hashes| uncounted.may_have(hashes)) {
                            set(&mut may_have[of_flow(flow)], node);
                        }
                    }
                }
                // What has no such keys may be any flow of theirs.
                for (flow, _) in others() {
                    let bits = may_have[of_flow(flow)].iter_mut().zip(&of.edges);
                    bits.for_each(|(bits, edges)| *bits |= edges);
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

/// Where filters note each of these flows that has hashes, in about that order.
fn in_order(hashes: &[Option<Hashes>]) -> Vec<(u32, Spot)> {
    const PLACES: usize = 1 << 10;
    let place = |spot: Spot| (spot.order() >> 22) as usize;
    let spots = || hashes.iter().map(|of| of.as_ref().map(Spot::of));
    let mut begins = [0; PLACES];
    spots().flatten().for_each(|spot| begins[place(spot)] += 1);
    let mut all = 0;
    for begin in &mut begins {
        (*begin, all) = (all, all + *begin);
    }
    let mut order = vec![(0, Spot::default()); all];
    for (flow, spot) in (0..).zip(spots()) {
        let Some(spot) = spot else { continue };
        let begin = &mut begins[place(spot)];
        order[*begin] = (flow, spot);
        *begin += 1;
    }
    order
}
