//! Whose count of a flow is the flow's, and what nodes on its way counted of it.
//!
//! Counts of several nodes are compared, and never added: most packets come by several nodes. That
//! of the edge where a flow enters is the flow's; where that has no count of it, that of the edge
//! where it leaves, less what was lost before. Hosts may be behind several edges, and move: the
//! other edges must show that no packet of the flow came there. A transit node that counted every
//! packet it received may still not have seen the flow's others, which went another way: its count
//! is the flow's only where the operator says that flows have one way each, and no node's routes
//! changed.
//!
//! A count that is not the flow's says what there was at least. Packets that come round come to a
//! node again, each time with a smaller time to live: with the first one of the flow every packet
//! comes once at most.

use calumma_analysis::Flow;
use calumma_cfs::frames::Entry;
use calumma_wire::Role;

use crate::report::{FlowCount, HopCount, KeptIn};
use crate::seen::Seen;
use crate::view::View;

/// Times to live that a packet may have: it comes to a node so many times at most.
const TIMES: u64 = 255;

/// Bytes that every packet has.
const HEADER: u64 = 20;

/// The count that is a flow's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// All that its node received, where it is exact; else what the flow had at least.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    node: u32,
    /// Packets of it that entered at most, as far as its counts tell: one that entered at several
    /// edges has the sum of these, and of one that lost packets before a node others have more.
    most: u64,
    /// Nodes that have a count of it.
    pub(crate) hops: u32,
    /// Whether that has all packets of the flow that were not lost before.
    pub(crate) exact: bool,
    /// Whether none was: it is the count of the edge where the flow entered.
    is_whole: bool,
    /// Whether it was pinned, or goes from host to host of one edge: its hash has no part in that
    /// it has a count.
    pub(crate) comes_first: bool,
    /// The smallest and the largest time to live of its packets at its node, where that is known.
    pub(crate) ttls: Option<[u8; 2]>,
}

impl Judged {
    /// That of a flow of which nodes have these counts, at least one.
    pub(crate) fn of(view: &View<'_>, seen: &[Seen<'_>]) -> Self {
        let hops = seen.len() as u32;
        let (mut entered, mut left) = (on(seen, Entry::ENTERED), on(seen, Entry::LEFT));
        let (at, exact) = if let Some(first) = entered.next() {
            (largest(first, entered), is_all_of_the_flow(view, seen, first))
        } else if let Some(first) = left.next() {
            (largest(first, left), is_all_of_the_flow(view, seen, first))
        } else {
            let nearest = seen.iter().min_by_key(|seen| place(seen)).unwrap_or(&seen[0]);
            (nearest, is_all_of_the_flow(view, seen, nearest))
        };
        // A residual's packets may have had any, and so may those that a table has not counted.
        let has_all = exact && at.from == KeptIn::Table;
        let ttls = || if at.differs { at.entry.ttls() } else { Some([at.ttl; 2]) };
        let at_edges = seen.iter().filter(|seen| view.node(seen).role == Role::Edge);
        let sum = || at_edges.map(|seen| seen.packets).fold(0, u64::saturating_add);
        let most = || seen.iter().map(|seen| seen.packets).max().unwrap_or(0);
        let (packets, bytes) = if exact { (at.packets, at.bytes) } else { at_least(at) };
        let is_whole = exact && at.sides == Entry::ENTERED;
        Self {
            packets,
            bytes,
            // What was lost before a node is in no count there, and in others' before it.
            most: if is_whole { at.packets } else { sum().max(most()) },
            node: at.node() as u32,
            hops,
            exact,
            is_whole,
            comes_first: seen.iter().any(|of| of.is_pinned || of.is_single),
            ttls: if has_all { ttls() } else { None },
        }
    }

    /// That of a flow of which so many packets entered.
    #[cfg(test)]
    pub(crate) fn exactly(packets: u64) -> Self {
        let (node, hops, bytes) = (0, 1, HEADER * packets);
        let (exact, is_whole, comes_first, ttls) = (true, true, false, None);
        Self { packets, bytes, node, most: packets, hops, exact, is_whole, comes_first, ttls }
    }

    /// Packets of the flow that entered: at least, and at most where so many that did have no count
    /// and may be of any flow; `None` where nobody knows how many these are. Those that were lost
    /// before a node are not in its count.
    pub(crate) fn entered(&self, uncounted: Option<u64>) -> (u64, Option<u64>) {
        let most = || Some(self.most.saturating_add(uncounted?));
        (self.packets, if self.is_whole { Some(self.packets) } else { most() })
    }

    /// The position in [`View::nodes`] of the node whose count it is.
    pub(crate) fn node(&self) -> usize {
        self.node as usize
    }

    /// What a report lists of the flow, of which nodes have these counts.
    pub(crate) fn listed(&self, view: &View<'_>, seen: &[Seen<'_>]) -> FlowCount {
        let at = seen.iter().find(|of| of.node() == self.node()).unwrap_or(&seen[0]);
        let hop = |seen: Seen<'_>| HopCount {
            node: view.node(&seen).name.to_owned(),
            hop: view.hop_of(&seen),
            packets: seen.packets,
            bytes: seen.bytes,
            looped: seen.looped(),
            exact: seen.is_exact,
            from: seen.from,
        };
        FlowCount {
            flow: Flow::from(&at.entry.key),
            packets: self.packets,
            bytes: self.bytes,
            exact: self.exact,
            at: view.node(at).name.to_owned(),
            from: at.from,
            hops: in_order(seen.to_vec()).into_iter().map(hop).collect(),
        }
    }
}

/// Entries of nodes that saw the flow on a side.
fn on<'s, 'a>(seen: &'s [Seen<'a>], side: u8) -> impl Iterator<Item = &'s Seen<'a>> {
    seen.iter().filter(move |seen| seen.sides & side != 0)
}

fn largest<'s, 'a>(
    first: &'s Seen<'a>,
    others: impl Iterator<Item = &'s Seen<'a>>,
) -> &'s Seen<'a> {
    others.fold(first, |most, other| if other.packets > most.packets { other } else { most })
}

/// Packets that the flow of a count had at least, however often each came by, and their bytes.
fn at_least(at: &Seen<'_>) -> (u64, u64) {
    let once = matches!(at.sides, Entry::ENTERED | Entry::LEFT);
    if once || at.looped() == Some(0) {
        return (at.packets, at.bytes);
    }
    let each_often = |of: u64| of.div_ceil(TIMES);
    let packets = at.looped().map_or(each_often(at.packets), |looped| at.packets - looped);
    (packets, each_often(at.bytes).max(packets.saturating_mul(HEADER)))
}

/// Whether one of a flow's entries has every packet of the flow that was not lost before.
pub(crate) fn is_all_of_the_flow(view: &View<'_>, seen: &[Seen<'_>], at: &Seen<'_>) -> bool {
    let is_alone = |side: u8| at.sides == side && on(seen, side).count() == 1;
    let comes_by_once = || match at.sides {
        // Packets that come back come from the fabric.
        Entry::ENTERED | Entry::LEFT => is_alone(at.sides) && !view.may_come_elsewhere(seen, at),
        // Here only the time to live tells packets that come back, and residuals have none.
        Entry::PASSED => {
            let same = |other: &&Seen<'_>| other.from != KeptIn::Residual && other.ttl == at.ttl;
            let is_alone = on(seen, Entry::PASSED).filter(same).count() == 1;
            let has_ttls = at.from == KeptIn::Table;
            let comes_by_once = has_ttls && !at.differs && is_alone;
            comes_by_once && view.has_single_paths && !view.may_go_elsewhere(&at.entry.key, seen)
        }
        _ => false,
    };
    at.is_exact && comes_by_once()
}

/// Where a count stands on the flow's way: where it entered, by falling times to live, where it
/// left. What only residuals of nodes between have, stands behind others of these.
fn place(seen: &Seen<'_>) -> (u8, u8, usize) {
    let side = match seen.sides {
        sides if sides & Entry::ENTERED != 0 => 0,
        sides if sides & Entry::LEFT != 0 => 2,
        _ => 1,
    };
    (side, u8::MAX - seen.ttl, seen.node())
}

/// Counts in the order of the flow's way.
pub(crate) fn in_order(mut seen: Vec<Seen<'_>>) -> Vec<Seen<'_>> {
    seen.sort_by_key(place);
    seen
}
