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
    /// By kind of keys.
    of_kinds: [OfKind<'a>; 2],
}

/// A node's side: the position of the side among [`SIDES`], and that of the node.
type At = (usize, usize);

/// What edges with keys of one kind say.
#[derive(Debug)]
struct OfKind<'a> {
    /// By side a bit for each of these edges.
    edges: [Vec<u64>; 2],
    filters: Vec<SideBySide>,
    /// Residuals of edges without such filters.
    uncounted: Vec<(At, &'a Uncounted)>,
}

/// Filters of one size.
#[derive(Debug)]
struct SideBySide {
    filters: Sliced,
    /// What each of them is of.
    of: Vec<At>,
}

impl SideBySide {
    /// All these, each with what it is of.
    fn all(mut filters: Vec<(At, &Refused)>) -> Vec<Self> {
        let size = |(_, filter): &(At, &Refused)| filter.size();
        filters.sort_by_key(size);
        let of_one_size = filters.chunk_by(|one, other| size(one) == size(other));
        let some = of_one_size.flat_map(|of_one_size| of_one_size.chunks(Sliced::MOST));
        some.filter_map(|some| {
            let (of, filters): (_, Vec<_>) = some.iter().copied().unzip();
            Some(Self { filters: Sliced::of(&filters)?, of })
        })
        .collect()
    }
}

fn set(bits: &mut [u64], node: usize) {
    bits[node / 64] |= 1 << (node % 64);
}

impl<'a> Noted<'a> {
    /// That of these nodes, of which edges have a bit in so many words.
    pub(crate) fn of(nodes: &[NodeView<'a>], words: usize) -> Self {
        let edges = || nodes.iter().enumerate().filter(|(_, node)| node.role == Role::Edge);
        let unknown = SIDES.map(|side| {
            let mut unknown = vec![0; words];
            let are_silent = edges().filter(|(_, node)| node.notes(side).is_none());
            are_silent.for_each(|(at, _)| set(&mut unknown, at));
            unknown
        });
        let of_kinds = KINDS.map(|kind| {
            let mut bits = [vec![0; words], vec![0; words]];
            let (mut filters, mut uncounted) = (Vec::new(), Vec::new());
            for (at, node) in edges().filter(|(_, node)| node.window.keys == kind) {
                for (side, bits) in bits.iter_mut().enumerate() {
                    let Some(notes) = node.notes(SIDES[side]) else { continue };
                    set(bits, at);
                    match notes {
                        Notes::Filters(of) => {
                            filters.extend(of.iter().map(|filter| ((side, at), filter)));
                        }
                        Notes::Uncounted(of) => uncounted.push(((side, at), of)),
                    }
                }
            }
            OfKind { edges: bits, filters: SideBySide::all(filters), uncounted }
        });
        Self { words, unknown, of_kinds }
    }
}

/// What all edges' filters say of some flows.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The number of the first of the flows.
    first: usize,
    /// By flow and side a bit for each node, in so many words.
    may_have: Vec<u64>,
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
        let mut may_have = noted.unknown.concat().repeat(flows);
        for (kind, of) in KINDS.into_iter().zip(&noted.of_kinds) {
            if of.edges.iter().flatten().all(|&bits| bits == 0) {
                continue;
            }
            let hashes = &hashes(kind)[..flows];
            let of_flow = |flow: u32| flow as usize * 2 * words;
            let in_order = if of.filters.is_empty() { Vec::new() } else { in_order(hashes) };
            for SideBySide { filters, of } in &of.filters {
                // Of each filter the bit among those of a flow.
                let bit = |&(side, node): &At| (side * words + node / 64, 1 << (node % 64));
                let bits: Vec<(usize, u64)> = of.iter().map(bit).collect();
                for &(flow, spot) in &in_order {
                    let mut having = filters.having(spot);
                    let of_flow = &mut may_have[of_flow(flow)..];
                    while having != 0 {
                        let (word, bit) = bits[having.trailing_zeros() as usize];
                        of_flow[word] |= bit;
                        having &= having - 1;
                    }
                }
            }
            for &((side, node), uncounted) in &of.uncounted {
                for (flow, hashes) in (0..).zip(hashes) {
                    if hashes.as_ref().is_some_and(|hashes| uncounted.may_have(hashes)) {
                        set(&mut may_have[of_flow(flow) + side * words..], node);
                    }
                }
            }
            // What has no such keys may be any flow of theirs.
            let edges = of.edges.concat();
            for (flow, _) in (0..).zip(hashes).filter(|(_, hashes)| hashes.is_none()) {
                let bits = may_have[of_flow(flow)..].iter_mut().zip(&edges);
                bits.for_each(|(bits, edges)| *bits |= edges);
            }
        }
        Self { first, may_have, words }
    }

    /// At which edges packets of a flow that no entry has may have come on a side: a bit for each
    /// of 64 nodes, of which the first has 64 times the position `word`. `None` where the flow is
    /// not among those that are answered for.
    #[inline]
    pub(crate) fn may_have(&self, side: u8, flow: usize, word: usize) -> Option<u64> {
        let of_flow = flow.checked_sub(self.first)? * 2 + usize::from(side == Entry::LEFT);
        self.may_have.get(of_flow * self.words + word).copied()
    }
}

/// Where filters note each of these flows that has hashes, in about that order.
fn in_order(hashes: &[Option<Hashes>]) -> Vec<(u32, Spot)> {
    const PLACES: usize = 1 << 10;
    let place = |spot: Spot| (spot.order() >> 22) as usize;
    let spots = (0..).zip(hashes).filter_map(|(flow, of)| Some((flow, Spot::of(of.as_ref()?))));
    let spots: Vec<(u32, Spot)> = spots.collect();
    let mut begins = [0; PLACES];
    spots.iter().for_each(|(_, spot)| begins[place(*spot)] += 1);
    let mut all = 0;
    for begin in &mut begins {
        (*begin, all) = (all, all + *begin);
    }
    let mut order = vec![(0, Spot::default()); all];
    for (flow, spot) in spots {
        let begin = &mut begins[place(spot)];
        order[*begin] = (flow, spot);
        *begin += 1;
    }
    order
}
