//! Heavy hitters, also by prefixes, and heavy changes among the flows that are monitored.

use std::cmp::{Ordering, Reverse};
use std::net::{Ipv4Addr, Ipv6Addr};

use calumma_analysis::Flow;
use calumma_sketch::WideKey;
use calumma_wire::Role;

use crate::flows::Judged;
use crate::report::{HeavyChange, HeavyHitter, HeavyPrefix};
use crate::view::{NodeView, Seen, View};

/// Monitored flows of at least so many packets, the largest first. Counts that are not exact are
/// what there was at least, so all of these are.
pub(crate) fn hitters(flows: &[Judged<'_>], threshold: u64) -> Vec<HeavyHitter> {
    let is_heavy = |flow: &&Judged<'_>| flow.packets() >= threshold;
    let hitter = |flow: &Judged<'_>| HeavyHitter {
        flow: Flow::from(flow.key()),
        packets: flow.packets(),
        bytes: flow.at.entry.bytes,
        exact: flow.exact,
    };
    let mut hitters: Vec<HeavyHitter> = flows.iter().filter(is_heavy).map(hitter).collect();
    hitters.sort_by_key(|hitter| Reverse(hitter.packets));
    hitters
}

/// Bits of the prefixes of source addresses of IPv4, narrow ones first.
const BITS: [u32; 4] = [32, 24, 16, 8];

/// Packets of flows: at least, and at most as far as their counts tell.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    low: u64,
    high: u64,
}

impl Range {
    fn add(&mut self, other: Self) {
        self.low = self.low.saturating_add(other.low);
        self.high = self.high.saturating_add(other.high);
    }
}

/// Hierarchical heavy hitters: prefixes of source addresses of IPv4 with at least so many packets
/// outside narrower ones that are listed; narrow ones first, and those by their addresses.
/// `entries` are those of each flow, flows by rising keys.
pub(crate) fn prefixes(
    view: &View<'_>,
    flows: &[Judged<'_>],
    entries: &[&[Seen<'_>]],
    threshold: u64,
) -> Vec<HeavyPrefix> {
    // What entered and has no count may be of any prefix.
    let edges = view.nodes.iter().filter(|node| node.role == Role::Edge && !node.has_all());
    let uncounted: u64 = edges
        .map(|edge| edge.window.totals)
        .map(|totals| totals.refused_packets.saturating_add(totals.evicted_packets))
        .fold(0, u64::saturating_add);
    let high = |of: Range| view.has_all_edges.then(|| of.high.saturating_add(uncounted));
    // Prefixes of a length by their addresses: all packets, and those outside listed ones.
    let mut prefixes: Vec<(u32, Range, Range)> = Vec::new();
    let merge =
        |into: &mut Vec<(u32, Range, Range)>, prefix: u32, all: Range, rest: Range| match into
            .last_mut()
        {
            Some((last, all_there, rest_there)) if *last == prefix => {
                all_there.add(all);
                rest_there.add(rest);
            }
            _ => into.push((prefix, all, rest)),
        };
    for (flow, entries) in flows.iter().zip(entries) {
        if let Some(source) =
            Ipv6Addr::from(*view.addresses.get(view.ends_of(flow.at)[0])).to_ipv4_mapped()
        {
            let range = range(view, flow, entries);
            merge(&mut prefixes, source.to_bits(), range, range);
        }
    }
    let mut found = Vec::new();
    for bits in BITS {
        let mask = u32::MAX << (32 - bits);
        let narrower = std::mem::take(&mut prefixes);
        for (address, all, rest) in narrower {
            merge(&mut prefixes, address & mask, all, rest);
        }
        for (prefix, all, rest) in &mut prefixes {
            if rest.low >= threshold.max(1) {
                let address = Ipv4Addr::from_bits(*prefix);
                found.push(HeavyPrefix {
                    prefix: format!("{address}/{bits}"),
                    packets: all.low,
                    packets_high: high(*all),
                    rest: rest.low,
                    rest_high: high(*rest),
                });
                *rest = Range::default();
            }
        }
    }
    found
}

/// A flow's packets. Those of one that entered at several edges are the sum of all at most.
fn range(view: &View<'_>, flow: &Judged<'_>, entries: &[Seen<'_>]) -> Range {
    let low = flow.packets();
    if flow.exact {
        return Range { low, high: low };
    }
    let at_edges = entries.iter().filter(|seen| view.node(seen).role == Role::Edge);
    let sum = at_edges.map(|seen| seen.packets).fold(0, u64::saturating_add);
    Range { low, high: sum.max(low) }
}

/// What one window's changes need of it.
#[derive(Debug)]
pub(crate) struct Counts {
    window: u64,
    /// The nodes' names, and whether each had an entry of every flow that it saw: where hosts may
    /// be behind any edge, whether every edge had.
    nodes: Vec<(String, bool)>,
    /// Flows by rising keys: the node that counted, and packets where that is exact.
    flows: Vec<(WideKey, usize, Option<u64>)>,
}

impl Counts {
    /// Those of a window, of flows by rising keys.
    pub(crate) fn of(window: u64, view: &View<'_>, flows: &[Judged<'_>]) -> Self {
        let of = |flow: &Judged<'_>| flow.exact.then(|| flow.packets());
        let flows = flows.iter().map(|flow| (*flow.key(), flow.at.node(), of(flow))).collect();
        let has_all_flows = !view.may_move() || view.has_all_flows();
        let node = |node: &NodeView<'_>| (node.name.to_owned(), has_all_flows && node.has_all());
        Self { window, nodes: view.nodes.iter().map(node).collect(), flows }
    }

    /// Flows whose packets at one node differ by at least so many from those in the window before,
    /// the largest change first. A flow that has no count in one of the windows had no packets
    /// there where the node had an entry of every flow.
    pub(crate) fn changes_since(&self, last: &Self, threshold: u64) -> Vec<HeavyChange> {
        if self.window != last.window + 1 {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut add = |key: &WideKey, before: u64, packets: u64| {
            if before.abs_diff(packets) >= threshold {
                changes.push(HeavyChange { flow: Flow::from(key), before, packets });
            }
        };
        let (mut now, mut before) = (self.flows.iter().peekable(), last.flows.iter().peekable());
        loop {
            let order = match (now.peek(), before.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.0.cmp(&other.0),
            };
            let here = now.next_if(|_| order != Ordering::Greater);
            let there = before.next_if(|_| order != Ordering::Less);
            match (here, there) {
                (Some((key, node, Some(packets))), Some((_, other, Some(before))))
                    if self.nodes[*node].0 == last.nodes[*other].0 =>
                {
                    add(key, *before, *packets);
                }
                (Some((key, node, Some(packets))), None) if last.has_all(&self.nodes[*node].0) => {
                    add(key, 0, *packets);
                }
                (None, Some((key, node, Some(before)))) if self.has_all(&last.nodes[*node].0) => {
                    add(key, *before, 0);
                }
                _ => {}
            }
        }
        changes.sort_by_key(|change| Reverse(change.before.abs_diff(change.packets)));
        changes
    }

    fn has_all(&self, node: &str) -> bool {
        self.nodes.iter().any(|(name, has_all)| name == node && *has_all)
    }
}
