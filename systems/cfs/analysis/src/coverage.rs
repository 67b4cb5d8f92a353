//! Which share of all flows is monitored: in the network, and of those that pass an edge.
//!
//! A switch's HyperLogLog counts the flows that it saw, and those of all switches together the
//! flows of the network. Where every edge has a count of each of its flows, these are all flows.
//! Else those that have a count are known, and only the others are estimated, from registers that
//! flows with a count leave too small: the fewer they are, the less it is wrong.
//!
//! Flows that were pinned are no sample of all, and neither are those from host to host of one
//! edge, which come before others there: where something is estimated from a share, it is that of
//! the other flows, which were chosen by their hashes.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use calumma_cfs::frames::{Entry, Unentered};
use calumma_sketch::{Beyond, HashFamily, Hashes, HyperLogLog, WideKey};
use calumma_wire::Role;

use crate::flows::Judged;
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

    /// Those of them that are not among so many.
    pub(crate) fn without(self, others: u64) -> Self {
        let [flows, low, high] =
            [self.flows, self.low, self.high].map(|of| (of - others as f64).max(0.0));
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
    if edges.clone().any(NodeView::has_others) {
        return None;
    }
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

/// Shares of the flows of each edge that were chosen by their hashes. Tables are not equally full
/// everywhere: what share of a host's flows is monitored depends on where it is.
#[derive(Debug)]
pub(crate) struct Local {
    /// By node; `None` where it is no edge, and where the share is not known.
    edges: Vec<Option<Of>>,
    /// The edge of each of the view's addresses, where there is one.
    homes: Vec<Option<usize>>,
    /// For hosts of which nobody knows the edge.
    everywhere: Of,
    /// Flows of IPv6 that entered and are in no register, at most.
    hidden: f64,
    /// Whether each of the view's addresses is of IPv6; empty where there are no such flows.
    may_have_hidden: Vec<bool>,
}

/// Flows of an edge, or of all.
#[derive(Clone, Copy, Debug)]
struct Of {
    /// The share of those chosen by their hashes that is monitored; `None` where it is not known
    /// how many of the others there are.
    share: Option<Coverage>,
    /// Flows that are not monitored, at most.
    others: f64,
}

impl Of {
    /// Of so many flows, of which others that come first and those chosen by their hashes are
    /// monitored. Where the former had no room nobody knows which of the flows are theirs.
    fn new(total: Total, [chosen, first]: [u64; 2], has_room_for_first: bool) -> Self {
        let others = (total.high - (chosen + first) as f64).max(0.0);
        let is_known = has_room_for_first || others == 0.0;
        let share = is_known.then(|| Coverage::of(chosen, total.without(first)));
        Self { share, others }
    }
}

impl Local {
    /// Those of a window that had so many flows in all.
    pub(crate) fn new(view: &View<'_>, homes: &Homes, flows: &[Judged], total: Total) -> Self {
        let home = |address: &[u8; 16]| homes.get(address).copied().flatten();
        let homes: Vec<Option<usize>> = view.addresses.iter().map(home).collect();
        // Flows that were chosen by their hashes, and those that come first; registers of both.
        let mut monitored = vec![[0_u64; 2]; view.nodes.len()];
        let is_part = total.high > flows.len() as f64;
        let estimates =
            |node: &&NodeView<'_>| is_part && node.role == Role::Edge && !node.has_all();
        let of = |node| Some(node).filter(estimates).map(|node| Known::new(view, node));
        let mut known: Vec<Option<Known<'_>>> = view.nodes.iter().map(of).collect();
        let mut everywhere = [0_u64; 2];
        let of_each = view.keys().iter().zip(view.seen_at()).zip(flows).enumerate();
        for (flow, ((key, nodes), judged)) in of_each {
            let [from, to] = key.ends.map(|host| homes[host as usize]);
            let kind = usize::from(judged.comes_first);
            everywhere[kind] += 1;
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
        let edges = edges.map(|((node, of), known)| {
            let number = of.iter().sum();
            let total = match known {
                Some(known) => known.total(number, node.window.flows.clone())?,
                None => Total::exactly(number),
            };
            let of = Of::new(total, *of, node.has_room_for_first());
            (node.role == Role::Edge).then_some(of)
        });
        let edges = edges.collect();
        let of_edges = view.nodes.iter().filter(|node| node.role == Role::Edge);
        let has_room = of_edges.clone().all(NodeView::has_room_for_first);
        let everywhere = Of::new(total, everywhere, has_room);
        let hidden = view.hidden() as f64;
        let is_ipv6 = |of: &[u8; 16]| Ipv6Addr::from(*of).to_ipv4_mapped().is_none();
        let addresses = view.addresses.iter().filter(|_| hidden > 0.0);
        let may_have_hidden = addresses.map(is_ipv6).collect();
        Self { edges, homes, everywhere, hidden, may_have_hidden }
    }

    /// Whether flows of the host whose address has this rank may be in no register.
    fn may_have_hidden(&self, address: u32) -> bool {
        self.may_have_hidden.get(address as usize).is_some_and(|may| *may)
    }

    fn home(&self, address: u32) -> Option<usize> {
        self.homes[address as usize]
    }

    /// The share of the flows chosen by their hashes that is monitored, of the host whose address
    /// has this rank, if it is known.
    pub(crate) fn of(&self, address: u32) -> Option<Coverage> {
        if self.may_have_hidden(address) {
            return None;
        }
        let edge = self.home(address).map(|node| self.edges[node].and_then(|of| of.share));
        edge.unwrap_or(self.everywhere.share)
    }

    /// The same of all hosts together.
    pub(crate) fn everywhere(&self) -> Option<Coverage> {
        self.everywhere.share
    }

    /// The smallest of all shares, at least so large.
    pub(crate) fn least(&self) -> Option<f64> {
        let of_edges = self.edges.iter().flatten().map(|of| Some(of.share?.low));
        let all = of_edges.chain([self.everywhere.share.map(|share| share.low)]);
        all.into_iter().try_fold(1.0, |least, low| Some(f64::min(least, low?)))
    }

    /// Flows that are not monitored, at most.
    pub(crate) fn others(&self) -> f64 {
        self.everywhere.others + self.hidden
    }

    /// Those of them that are in no register.
    pub(crate) fn hidden(&self) -> f64 {
        self.hidden
    }

    /// Flows of the host whose address has this rank that are not monitored, at most.
    pub(crate) fn others_of(&self, address: u32) -> f64 {
        self.everywhere.others + self.hidden_of(address)
    }

    /// The same of those that entered where the host is; it is behind no other edge.
    pub(crate) fn others_from(&self, address: u32) -> f64 {
        let edge = self.home(address).and_then(|node| self.edges[node]);
        let others = edge.map_or(f64::INFINITY, |of| of.others).min(self.everywhere.others);
        others + self.hidden_of(address)
    }

    fn hidden_of(&self, address: u32) -> f64 {
        if self.may_have_hidden(address) { self.hidden } else { 0.0 }
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
