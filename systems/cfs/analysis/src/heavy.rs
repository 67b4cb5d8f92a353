//! Heavy hitters, also by prefixes, and heavy changes among the flows that are monitored.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use calumma_analysis::Flow;
use calumma_sketch::WideKey;
use calumma_wire::Role;

use crate::counted::Monitored;
use crate::coverage::{dst, src};
use crate::flows::Judged;
use crate::report::{HeavyChange, HeavyHitter, HeavyPrefix};
use crate::view::{NodeView, View};

/// Monitored flows of at least so many packets, the largest first. Counts that are not exact are
/// what there was at least, so all of these are.
pub(crate) fn hitters(view: &View<'_>, flows: &[Judged], threshold: u64) -> Vec<HeavyHitter> {
    let is_heavy = |(_, flow): &(usize, &Judged)| flow.packets >= threshold;
    let hitter = |(at, flow): (usize, &Judged)| HeavyHitter {
        flow: Flow::from(&view.key(&view.keys()[at])),
        packets: flow.packets,
        bytes: flow.bytes,
        exact: flow.exact,
    };
    let heavy = flows.iter().enumerate().filter(is_heavy);
    let mut hitters: Vec<HeavyHitter> = heavy.map(hitter).collect();
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
pub(crate) fn prefixes(view: &View<'_>, flows: &[Judged], threshold: u64) -> Vec<HeavyPrefix> {
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
    for (flow, key) in flows.iter().zip(view.keys()) {
        if let Some(source) = Ipv6Addr::from(*view.addresses.get(key.ends[0])).to_ipv4_mapped() {
            let range = Range { low: flow.packets, high: flow.most };
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

/// What one window's changes need of it.
#[derive(Debug)]
pub(crate) struct Counts {
    window: u64,
    /// The nodes' names, and whether a flow without a count had no packets that were to come to
    /// each: it had an entry of every flow that it saw, and no other one was on their way.
    nodes: Vec<(String, bool)>,
    /// Whether every edge had an entry of every flow that it saw.
    has_all_flows: bool,
    /// Hosts behind several edges.
    several: HashSet<[u8; 16]>,
    flows: Arc<Monitored>,
}

impl Counts {
    /// Those of a window, of which all flows are judged.
    pub(crate) fn of(window: u64, view: View<'_>, flows: Vec<Judged>) -> Self {
        let has_all_flows = view.has_all_flows();
        // Packets of a flow that a transit node saw may come by another one now.
        let is_only = |role: Role| role == Role::Edge || view.has_single_paths;
        let is_on_way =
            |node: &NodeView<'_>| has_all_flows || !view.may_move() && is_only(node.role);
        let node = |node: &NodeView<'_>| (node.name.to_owned(), node.has_all() && is_on_way(node));
        let nodes = view.nodes.iter().map(node).collect();
        let several = view.several().clone();
        let flows = Arc::new(Monitored::new(view.into_keys(), flows));
        Self { window, nodes, has_all_flows, several, flows }
    }

    /// Its flows.
    pub(crate) fn flows(&self) -> Arc<Monitored> {
        self.flows.clone()
    }

    /// Flows whose packets at one node differ by at least so many from those in the window before,
    /// the largest change first. A flow that has no count in one of the windows had no packets
    /// there where the node had an entry of every flow, and packets can't have come by another.
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
        // One that changed by so many had at least as many in one of the windows.
        let (mut now, mut before) =
            (self.flows.heavy(threshold).peekable(), last.flows.heavy(threshold).peekable());
        let (mut here_from, mut there_from) = (0, 0);
        while let Some(key) = now.peek().into_iter().chain(before.peek()).min().copied() {
            now.next_if_eq(&key);
            before.next_if_eq(&key);
            let here = self.flows.find(&mut here_from, &key).map(|at| self.flows.flow(at));
            let there = last.flows.find(&mut there_from, &key).map(|at| last.flows.flow(at));
            let [here_at, there_at] = [(self, here), (last, there)]
                .map(|(of, flow)| flow.map_or("", |flow| &*of.nodes[flow.node()].0));
            match (here, there) {
                (Some(now), Some(before)) if now.exact && before.exact && here_at == there_at => {
                    add(&key, before.packets, now.packets);
                }
                (Some(now), None) if now.exact && last.has_none(here_at, &key) => {
                    add(&key, 0, now.packets);
                }
                (None, Some(before)) if before.exact && self.has_none(there_at, &key) => {
                    add(&key, before.packets, 0);
                }
                _ => {}
            }
        }
        changes.sort_by_key(|change| Reverse(change.before.abs_diff(change.packets)));
        changes
    }

    /// Whether a flow without a count had no packets that were to come to a node.
    fn has_none(&self, node: &str, key: &WideKey) -> bool {
        let is_fixed = || ![src(key), dst(key)].into_iter().any(|of| self.several.contains(of));
        let mut nodes = self.nodes.iter();
        nodes.any(|(name, has_none)| name == node && *has_none)
            && (self.has_all_flows || is_fixed())
    }
}
