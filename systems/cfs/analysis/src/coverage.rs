//! Which share of all flows is monitored: in the network, and of those that pass an edge.
//!
//! A switch's HyperLogLog counts the flows that it saw, and those of all switches together the
//! flows of the network. Where every edge has a count of each of its flows, these are all flows.
//! Else those that have a count are known, and only the others are estimated, from registers that
//! flows with a count leave too small: the fewer they are, the less it is wrong.
//!
//! Flows that were pinned are no sample of all: where something is estimated from a share, it is
//! that of the other flows, which were chosen by their hashes.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use calumma_cfs::frames::{Entry, Unentered};
use calumma_sketch::{Beyond, HashFamily, Hashes, HyperLogLog, KeyKind, WideKey};
use calumma_wire::Role;

use crate::view::{NodeView, View, hashes, is_pinned};

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
        Self { value: share(total.flows), low: share(total.high), high: share(total.low) }
    }
}

/// How many flows there were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Total {
    pub(crate) flows: f64,
    /// At least so many, 95 times out of 100.
    low: f64,
    /// At most so many, 95 times out of 100.
    high: f64,
}

impl Total {
    /// So many, which are all.
    fn exactly(flows: u64) -> Self {
        let flows = flows as f64;
        Self { flows, low: flows, high: flows }
    }

    /// So many, and those beyond them.
    fn with(known: u64, beyond: Beyond) -> Self {
        let [flows, low, high] =
            [beyond.value, beyond.low, beyond.high].map(|of| known as f64 + of);
        Self { flows, low, high }
    }

    /// By how much the number is wrong at most, 95 times out of 100.
    pub(crate) fn error(&self) -> f64 {
        (self.high - self.flows).max(self.flows - self.low)
    }

    /// Those of them that were not pinned.
    pub(crate) fn without(self, pinned: u64) -> Self {
        let [flows, low, high] =
            [self.flows, self.low, self.high].map(|of| (of - pinned as f64).max(0.0));
        Self { flows, low, high }
    }
}

/// The registers of flows that have a count, as nodes have them that hash so.
struct Known<'a> {
    family: &'a HashFamily,
    words: KeyKind,
    flows: HyperLogLog,
}

impl<'a> Known<'a> {
    fn new(family: &'a HashFamily, node: &NodeView<'_>) -> Self {
        let flows = HyperLogLog::new(node.window.flows.bits());
        Self { family, words: node.words, flows }
    }

    /// Adds a flow with these hashes by its wide key. Nodes that hash otherwise have others, or
    /// none if it is no flow of theirs.
    fn add(&mut self, key: &WideKey, by_wide: &Hashes) {
        match self.words {
            KeyKind::Dual => self.flows.insert(by_wide),
            KeyKind::Ipv4 => {
                hashes(self.family, self.words, key).iter().for_each(|it| self.flows.insert(it));
            }
        }
    }

    /// All flows, where these are `monitored` and registers are of all.
    fn total(&self, monitored: u64, mut registers: HyperLogLog) -> Option<Total> {
        // Some that have a count may have entered at no edge.
        let fits = registers.merge(&self.flows);
        let beyond = registers.beyond(&self.flows).filter(|_| fits)?;
        Some(Total::with(monitored, beyond))
    }
}

/// All flows of the network, of which `monitored` have a count, if their number is known.
pub(crate) fn total(view: &View<'_>, family: &HashFamily, monitored: u64) -> Option<Total> {
    if !view.has_all_edges {
        return None;
    }
    if view.has_all_flows() || counts_are_all(view, family) == Some(true) {
        return Some(Total::exactly(monitored));
    }
    let mut edges = view.nodes.iter().filter(|node| node.role == Role::Edge);
    let first = edges.next()?;
    let mut all = first.window.flows.clone();
    // Registers of switches of unlike releases may have a flow twice.
    let is_same = edges.all(|edge| edge.words == first.words && all.merge(&edge.window.flows));
    let mut known = Known::new(family, first);
    view.flows().for_each(|(key, _)| known.add(key, &family.hash(key)));
    known.total(monitored, all).filter(|_| is_same)
}

/// Whether flows that have a count add up to what entered without an entry, by the sums of all
/// edges: then there are no others. `None` where that is not known.
fn counts_are_all(view: &View<'_>, family: &HashFamily) -> Option<bool> {
    let edges = || view.nodes.iter().filter(|node| node.role == Role::Edge);
    let keys = edges().next()?.window.keys;
    let (mut entered, mut counted) = (Unentered::default(), Unentered::default());
    for edge in edges() {
        let (totals, sums) = (edge.window.totals, edge.window.ends.as_ref()?.sums?);
        // Packets of other kinds of keys are in no sum.
        let has_all = sums.packets == totals.refused_packets.checked_add(totals.evicted_packets)?;
        if !has_all || edge.window.keys != keys {
            return None;
        }
        entered.weighted = entered.weighted.wrapping_add(sums.weighted);
        for entry in edge.window.entries.iter().filter(|of| of.sides & Entry::ENTERED != 0) {
            if entry.sides != Entry::ENTERED {
                return None;
            }
            entered.weigh(&hashes(family, keys, &entry.key)?, entry.packets);
        }
    }
    for (key, seen) in view.flows() {
        // Whatever is taken for a flow's packets is right if all add up.
        let packets = seen.iter().map(|seen| seen.entry.packets).max()?;
        counted.weigh(&hashes(family, keys, key)?, packets);
    }
    Some(entered.weighted == counted.weighted)
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
    pub(crate) fn new(
        view: &View<'_>,
        family: &HashFamily,
        homes: &'a Homes,
        everywhere: Coverage,
    ) -> Self {
        // Flows that were not pinned, and those that were; registers of both.
        let mut monitored = vec![[0_u64; 2]; view.nodes.len()];
        let is_part = everywhere.low < 1.0;
        let estimates =
            |node: &&NodeView<'_>| is_part && node.role == Role::Edge && !node.has_all();
        let of = |node| Some(node).filter(estimates).map(|node| Known::new(family, node));
        let mut known: Vec<Option<Known<'_>>> = view.nodes.iter().map(of).collect();
        for (key, seen) in view.flows() {
            let by_wide = family.hash(key);
            let [from, to] = [src(key), dst(key)].map(|at| homes.get(at).copied().flatten());
            let counted = seen.iter().map(|seen| seen.node).filter(|node| {
                // One that is counted there without a host of the flow being there passed it.
                Some(*node) != from && Some(*node) != to
            });
            let to = to.filter(|to| Some(*to) != from);
            let kind = usize::from(is_pinned(seen));
            counted.chain(from).chain(to).for_each(|node| {
                monitored[node][kind] += 1;
                known[node].iter_mut().for_each(|known| known.add(key, &by_wide));
            });
        }
        let edges = view.nodes.iter().zip(&monitored).zip(&known);
        let edges = edges.map(|((node, &[monitored, pinned]), known)| {
            let total = match known {
                Some(known) => known.total(monitored + pinned, node.window.flows.clone())?,
                None => Total::exactly(monitored + pinned),
            };
            let is_edge = node.role == Role::Edge;
            is_edge.then(|| Coverage::of(monitored, total.without(pinned)))
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
