//! What a node counted of a flow.

use calumma_cfs::frames::Entry;
use calumma_wire::Role;

use crate::report::KeptIn;
use crate::view::NodeView;

/// The class of flows that are counted everywhere, whatever their hashes.
pub(crate) const PINNED: u8 = 0;

/// The class of flows that go from host to host of one edge, which come before all but pinned ones.
pub(crate) const SINGLE: u8 = 1;

/// The class of all others that no switch has claimed.
pub(crate) const UNCLAIMED: u8 = 2;

/// A flow's count at a node, by the node's position in [`View::nodes`], with what is asked of most
/// counts: entries lie where the node's others are, and flows that follow each other have theirs
/// far from each other.
///
/// [`View::nodes`]: crate::view::View::nodes
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    node: u32,
    /// The number of the flow, by rising keys.
    pub(crate) flow: u32,
    /// What is only in the residual has no times, and no times to live.
    pub(crate) entry: &'a Entry,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The sides that it came on; nothing leaves at a transit switch.
    pub(crate) sides: u8,
    /// The sides of which it has all packets of the flow that came to the node there.
    exact_on: u8,
    pub(crate) ttl: u8,
    /// Whether some of its packets came with another time to live.
    pub(crate) differs: bool,
    pub(crate) from: KeptIn,
    /// Whether some that entered went to a host of the same edge, where edges say so.
    pub(crate) is_local: bool,
    /// Whether it is counted since it was pinned, and not by its hash.
    pub(crate) is_pinned: bool,
    /// Whether it is counted since it goes from host to host of one edge.
    pub(crate) is_single: bool,
    /// Whether it has all packets of the flow that the node received.
    pub(crate) is_exact: bool,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(at: usize, node: &NodeView<'_>, (entry, from): (&'a Entry, KeptIn)) -> Self {
        let Entry { packets, bytes, ttl, differences, rank, local, .. } = *entry;
        let on = |side: u8| if node.is_exact_on(entry, side) { side } else { 0 };
        Self {
            node: at as u32,
            flow: 0,
            entry,
            packets,
            bytes,
            sides: sides(node.role, entry.sides),
            exact_on: on(Entry::ENTERED) | on(Entry::LEFT),
            ttl,
            differs: differences != 0,
            from,
            is_local: local,
            // What is only in a residual has no rank.
            is_pinned: from == KeptIn::Table && rank.class() == PINNED,
            is_single: from == KeptIn::Table && rank.class() == SINGLE && node.role == Role::Edge,
            is_exact: node.is_exact(entry),
        }
    }

    /// The same, of the flow of this number.
    pub(crate) fn of_flow(self, flow: u32) -> Self {
        Self { flow, ..self }
    }

    pub(crate) fn node(&self) -> usize {
        self.node as usize
    }

    /// Packets that came with another time to live than the first one. `None` where that is not
    /// known: of packets that a residual has, of lcores that saw unlike ones first or of which only
    /// some keep the flow, and of a Tofino's doubtful entries.
    pub(crate) fn looped(&self) -> Option<u64> {
        (self.from == KeptIn::Table && self.entry.exact).then_some(self.entry.looped)
    }

    /// Whether it has all packets of the flow that came to the node on one of the sides of an edge.
    pub(crate) fn is_exact_on(&self, side: u8) -> bool {
        self.exact_on & side != 0
    }
}

/// The sides of a node with this role that packets came on, by what it says. No host is behind a
/// transit switch: what it says has left waited there for the address of its next hop, or was for
/// the switch itself, and came from the fabric like all that passes.
fn sides(role: Role, said: u8) -> u8 {
    if role == Role::Edge || said & Entry::LEFT == 0 {
        said
    } else {
        said & !Entry::LEFT | Entry::PASSED
    }
}
