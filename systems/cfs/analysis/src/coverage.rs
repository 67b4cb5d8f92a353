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

use calumma_cfs::frames::{Entry, Unentered};
use calumma_sketch::{Beyond, HashFamily, Hashes, HyperLogLog, WideKey};
use calumma_wire::Role;

use crate::hashed::hashes;
use crate::view::{NodeView, View};

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
pub struct Total {
    /// So many.
    pub flows: f64,
    /// At least so many, 95 times out of 100.
    pub low: f64,
    /// At most so many, 95 times out of 100.
    pub high: f64,
}

impl Total {
    /// So many, which are all.
    pub(crate) fn exactly(flows: u64) -> Self {
        let flows = flows as f64;
        Self { flows, low: flows, high: flows }
    }

    /// So many, and those beyond them.
    pub(crate) fn with(known: u64, beyond: Beyond) -> Self {
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
    /// All flows' hashes there, those of its kind of keys.
    hashes: &'a [Option<Hashes>],
    flows: HyperLogLog,
}

impl<'a> Known<'a> {
    fn new(view: &'a View<'_>, node: &NodeView<'_>) -> Self {
        let flows = HyperLogLog::new(node.window.flows.bits());
        Self { hashes: view.hashes(node.words), flows }
    }

    /// Adds the flow of this number.
    fn add(&mut self, flow: usize) {
        self.hashes[flow].iter().for_each(|hashes| self.flows.insert(hashes));
    }

    /// All flows, where these are `monitored` and registers are of all.
    fn total(&self, monitored: u64, mut registers: HyperLogLog) -> Option<Total> {
        // Some that have a count may have entered at no edge.
        let fits = registers.merge(&self.flows);
        let beyond = registers.beyond(&self.flows).filter(|_| fits)?;
        Some(Total::with(monitored, beyond))
    }
}

/// Whether every flow of the network is known to have a count.
pub(crate) fn are_all_counted(view: &View<'_>, family: &HashFamily) -> bool {
    view.has_all_edges && (view.has_all_flows() || counts_are_all(view, family) == Some(true))
}

/// Packets that entered and are in no count, at most: any of them may be of any flow. `None` where
/// an edge did not deliver a sound window. `are_all_counted` as above.
pub(crate) fn uncounted(view: &View<'_>, are_all_counted: bool) -> Option<u64> {
    if are_all_counted {
        return Some(0);
    }
    let edges = view.nodes.iter().filter(|node| node.role == Role::Edge && !node.has_all());
    let of_each = edges
        .map(|edge| edge.window.totals)
        .map(|totals| totals.refused_packets.saturating_add(totals.evicted_packets));
    view.has_all_edges.then(|| of_each.fold(0, u64::saturating_add))
}

/// All flows of the network, of which `monitored` have a count, if their number is known.
/// `are_all_counted` as above.
pub(crate) fn total(view: &View<'_>, monitored: u64, are_all_counted: bool) -> Option<Total> {
    if !view.has_all_edges {
        return None;
    }
    if are_all_counted {
        return Some(Total::exactly(monitored));
    }
    let mut edges = view.nodes.iter().filter(|node| node.role == Role::Edge);
    let first = edges.next()?;
    let mut all = first.window.flows.clone();
    // Registers of switches of unlike releases may have a flow twice.
    let is_same = edges.all(|edge| edge.words == first.words && all.merge(&edge.window.flows));
    let mut known = Known::new(view, first);
    known.hashes.iter().flatten().for_each(|hashes| known.flows.insert(hashes));
    known.total(monitored, all).filter(|_| is_same)
}

/// Whether flows that have a count add up to what entered without an entry, by the sums of all
/// edges: then there are no others. `None` where that is not known.
fn counts_are_all(view: &View<'_>, family: &HashFamily) -> Option<bool> {
    let edges = || view.nodes.iter().filter(|node| node.role == Role::Edge);
    let keys = edges().next()?.window.keys;
    let has_decoded =
        |edge: &NodeView<'_>| edge.residual.is_some_and(|residual| residual.counts.is_some());
    let (mut entered, mut counted) = (Unentered::default(), Unentered::default());
    for edge in edges() {
        let (totals, sums) = (edge.window.totals, edge.window.ends.as_ref()?.sums?);
        // Packets of other kinds of keys are in no sum.
        let has_all = sums.packets == totals.refused_packets.checked_add(totals.evicted_packets)?;
        if !has_all || edge.window.keys != keys {
            return None;
        }
        entered.weighted = entered.weighted.wrapping_add(sums.weighted);
        // Counts of one whose residual has decoded are more than its entries, which count here.
        let apart = if has_decoded(edge) { &*edge.window.entries } else { &[] };
        for entry in apart.iter().filter(|of| of.sides & Entry::ENTERED != 0) {
            if entry.sides != Entry::ENTERED {
                return None;
            }
            entered.weigh(&hashes(family, keys, &entry.key)?, entry.packets);
        }
    }
    for ((_, seen), hashes) in view.flows().zip(view.hashes(keys)) {
        for of in seen {
            let edge = view.node(of);
            if of.sides & Entry::ENTERED == 0 || edge.role != Role::Edge || has_decoded(edge) {
                continue;
            }
            if of.sides != Entry::ENTERED {
                return None;
            }
            entered.weigh(hashes.as_ref()?, of.packets);
        }
        // Whatever is taken for a flow's packets is right if all add up.
        let packets = seen.iter().map(|seen| seen.packets).max()?;
        counted.weigh(hashes.as_ref()?, packets);
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
pub(crate) struct Local {
    /// By node; `None` where it is no edge.
    edges: Vec<Option<Coverage>>,
    /// The edge of each of the view's addresses, where there is one.
    homes: Vec<Option<usize>>,
    everywhere: Coverage,
}

impl Local {
    /// `everywhere` is for hosts of which nobody knows the edge.
    pub(crate) fn new(view: &View<'_>, homes: &Homes, everywhere: Coverage) -> Self {
        let home = |address: &[u8; 16]| homes.get(address).copied().flatten();
        let homes: Vec<Option<usize>> = view.addresses.iter().map(home).collect();
        // Flows that were not pinned, and those that were; registers of both.
        let mut monitored = vec![[0_u64; 2]; view.nodes.len()];
        let is_part = everywhere.low < 1.0;
        let estimates =
            |node: &&NodeView<'_>| is_part && node.role == Role::Edge && !node.has_all();
        let of = |node| Some(node).filter(estimates).map(|node| Known::new(view, node));
        let mut known: Vec<Option<Known<'_>>> = view.nodes.iter().map(of).collect();
        let has_pins = view.nodes.iter().any(|node| node.sums.pinned > 0);
        for (flow, (key, nodes)) in view.keys().iter().zip(view.seen_at()).enumerate() {
            let [from, to] = key.ends.map(|host| homes[host as usize]);
            let is_pinned = has_pins && view.seen_of(flow).iter().any(|of| of.is_pinned);
            let kind = usize::from(is_pinned);
            let mut add = |node: usize| {
                monitored[node][kind] += 1;
                known[node].iter_mut().for_each(|known| known.add(flow));
            };
            for node in nodes.iter().map(|&node| node as usize) {
                // One that is counted there without a host of the flow being there passed it.
                if Some(node) != from && Some(node) != to {
                    add(node);
                }
            }
            from.into_iter().for_each(&mut add);
            to.filter(|to| Some(*to) != from).into_iter().for_each(add);
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

    /// Of the flows of the host whose address has this rank.
    pub(crate) fn of(&self, address: u32) -> Coverage {
        let home = self.homes[address as usize];
        home.and_then(|node| self.edges[node]).unwrap_or(self.everywhere)
    }
}

/// The edges where hosts are, as far as packets of theirs entered or left; `None` where those were
/// several.
pub(crate) type Homes = HashMap<[u8; 16], Option<usize>>;

/// Those of a window. What enters at a transit switch it has made itself.
pub(crate) fn homes(view: &View<'_>) -> Homes {
    let mut homes: Vec<Option<Option<usize>>> = vec![None; view.addresses.len()];
    let mut is_at = |rank: u32, node: usize| {
        let home = &mut homes[rank as usize];
        *home = Some(home.map_or(Some(node), |one| one.filter(|one| *one == node)));
    };
    for (key, seen) in view.flows() {
        let [src, dst] = key.ends;
        for seen in seen.iter().filter(|seen| view.node(seen).role == Role::Edge) {
            if seen.sides & Entry::ENTERED != 0 {
                is_at(src, seen.node());
            }
            if seen.sides & Entry::LEFT != 0 {
                is_at(dst, seen.node());
            }
        }
    }
    let known = view.addresses.iter().zip(homes);
    known.filter_map(|(address, home)| Some((*address, home?))).collect()
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
