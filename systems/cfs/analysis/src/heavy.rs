//! Heavy hitters, also by prefixes, and heavy changes among the flows that are monitored.

use std::cmp::Reverse;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use calumma_analysis::Flow;
use calumma_sketch::WideKey;
use calumma_wire::Role;

use crate::counted::Monitored;
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
    /// The nodes' names, and whether each had an entry of every flow that it saw: where hosts may
    /// be behind any edge, whether every edge had.
    nodes: Vec<(String, bool)>,
    flows: Arc<Monitored>,
}

impl Counts {
    /// Those of a window, of which all flows are judged.
    pub(crate) fn of(window: u64, view: View<'_>, flows: Vec<Judged>) -> Self {
        let has_all_flows = !view.may_move() || view.has_all_flows();
        let node = |node: &NodeView<'_>| (node.name.to_owned(), has_all_flows && node.has_all());
        let nodes = view.nodes.iter().map(node).collect();
        Self { window, nodes, flows: Arc::new(Monitored::new(view.into_keys(), flows)) }
    }

    /// Its flows.
    pub(crate) fn flows(&self) -> Arc<Monitored> {
        self.flows.clone()
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
                (Some(now), None) if now.exact && last.has_all(here_at) => {
                    add(&key, 0, now.packets);
                }
                (None, Some(before)) if before.exact && self.has_all(there_at) => {
                    add(&key, before.packets, 0);
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
