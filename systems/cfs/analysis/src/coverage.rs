//! Which share of all flows is monitored: in the network, and of those that pass an edge.
//!
//! A switch's HyperLogLog counts the flows that it saw, and those of all switches together the
//! flows of the network. Where every edge has a count of each of its flows, these are all flows.
//!
//! Flows that were pinned are no sample of all: where something is estimated from a share, it is
//! that of the other flows, which were chosen by their hashes.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use calumma_cfs::frames::Entry;
use calumma_sketch::estimate::Estimate;
use calumma_sketch::{HyperLogLog, WideKey};
use calumma_wire::Role;

use crate::view::{View, is_pinned};

/// Standard errors to either side that hold the truth 95 times out of 100.
pub(crate) const Z95: f64 = 1.96;

/// A share between bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// The share.
    pub value: f64,
    /// At least so much, 95 times out of 100.
    pub low: f64,
    /// At most so much, 95 times out of 100.
    pub high: f64,
}

impl Coverage {
    /// All of them.
    pub(crate) const ALL: Self = Self { value: 1.0, low: 1.0, high: 1.0 };

    /// `monitored` out of so many.
    fn of(monitored: u64, total: Total) -> Self {
        let monitored = monitored as f64;
        let share = |total: f64| if total > monitored { monitored / total } else { 1.0 };
        let Total { flows, error } = total;
        Self { value: share(flows), low: share(flows + error), high: share(flows - error) }
    }
}

/// How many flows there were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Total {
    pub(crate) flows: f64,
    /// By how much that is wrong at most, 95 times out of 100.
    pub(crate) error: f64,
}

impl Total {
    pub(crate) fn of(flows: &HyperLogLog) -> Self {
        let Estimate { value, standard_error } = flows.estimate();
        Self { flows: value, error: Z95 * standard_error.unwrap_or(value) }
    }

    /// Those of them that were not pinned.
    pub(crate) fn without(self, pinned: u64) -> Self {
        Self { flows: (self.flows - pinned as f64).max(0.0), ..self }
    }
}

/// All flows of the network, if their number is known.
pub(crate) fn total(view: &View<'_>, monitored: u64) -> Option<Total> {
    if !view.has_all_edges {
        return None;
    }
    let mut edges = view.nodes.iter().filter(|node| node.role == Role::Edge);
    if view.has_all_flows() {
        return Some(Total { flows: monitored as f64, error: 0.0 });
    }
    let first = edges.next()?;
    let mut all = first.window.flows.clone();
    // Registers of switches of unlike releases may have a flow twice.
    let is_same = edges.all(|edge| edge.words == first.words && all.merge(&edge.window.flows));
    is_same.then(|| Total::of(&all))
}

/// The share of all flows that is monitored, if their number is known.
pub(crate) fn of_all(monitored: u64, total: Option<Total>) -> Option<Coverage> {
    Some(Coverage::of(monitored, total?))
}

/// Shares of the flows of each edge that were not pinned. Tables are not equally full everywhere:
/// what share of a host's flows is monitored depends on where it is.
#[derive(Debug)]
pub(crate) struct Local<'a> {
    /// By node; `None` where it is no edge.
    edges: Vec<Option<Coverage>>,
    homes: &'a Homes,
    everywhere: Coverage,
}

impl<'a> Local<'a> {
    /// `everywhere` is for hosts of which nobody knows the edge.
    pub(crate) fn new(view: &View<'_>, homes: &'a Homes, everywhere: Coverage) -> Self {
        // Flows that were not pinned, and those that were.
        let mut monitored = vec![[0_u64; 2]; view.nodes.len()];
        for (_, seen) in view.flows() {
            let key = &seen[0].entry.key;
            let [from, to] = [src(key), dst(key)].map(|at| homes.get(at).copied().flatten());
            let counted = seen.iter().map(|seen| seen.node).filter(|node| {
                // One that is counted there without a host of the flow being there passed it.
                Some(*node) != from && Some(*node) != to
            });
            let to = to.filter(|to| Some(*to) != from);
            let kind = usize::from(is_pinned(seen));
            counted.chain(from).chain(to).for_each(|node| monitored[node][kind] += 1);
        }
        let edges = view.nodes.iter().zip(&monitored).map(|(node, &[monitored, pinned])| {
            let is_edge = node.role == Role::Edge;
            let total = if node.has_all() {
                Total { flows: monitored as f64, error: 0.0 }
            } else {
                Total::of(&node.window.flows).without(pinned)
            };
            is_edge.then(|| Coverage::of(monitored, total))
        });
        Self { edges: edges.collect(), homes, everywhere }
    }

    /// Of the flows of the host with this address.
    pub(crate) fn of(&self, address: &[u8; 16]) -> Coverage {
        let home = self.homes.get(address).copied().flatten();
        home.and_then(|node| self.edges[node]).unwrap_or(self.everywhere)
    }
}

/// The edges where hosts are, as far as packets of theirs entered or left; `None` where those were
/// several.
pub(crate) type Homes = HashMap<[u8; 16], Option<usize>>;

/// Those of a window.
pub(crate) fn homes(view: &View<'_>) -> Homes {
    let mut homes = HashMap::new();
    let mut is_at = |address: &[u8; 16], node: usize| match homes.entry(*address) {
        Slot::Vacant(slot) => {
            slot.insert(Some(node));
        }
        Slot::Occupied(mut slot) => {
            if *slot.get() != Some(node) {
                slot.insert(None);
            }
        }
    };
    for (key, seen) in view.flows() {
        for seen in seen {
            if seen.entry.sides & Entry::ENTERED != 0 {
                is_at(src(key), seen.node);
            }
            if seen.entry.sides & Entry::LEFT != 0 {
                is_at(dst(key), seen.node);
            }
        }
    }
    homes
}

/// The source address of a key, an IPv4 one mapped.
pub(crate) fn src(key: &WideKey) -> &[u8; 16] {
    address(key, 0)
}

/// The destination address.
pub(crate) fn dst(key: &WideKey) -> &[u8; 16] {
    address(key, 16)
}

fn address(key: &WideKey, from: usize) -> &[u8; 16] {
    key.padded()[from..].first_chunk().unwrap_or(&[0; 16])
}
