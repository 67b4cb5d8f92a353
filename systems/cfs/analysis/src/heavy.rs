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

/// Monitored flows of at least so many packets, the largest first, and whether no other flow has as
/// many. Counts that are not exact are what there was at least, so all of these are. `uncounted`
/// packets may be of any flow.
pub(crate) fn hitters(
    view: &View<'_>,
    flows: &[Judged],
    uncounted: Option<u64>,
    threshold: u64,
) -> (Vec<HeavyHitter>, bool) {
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
    let is_settled = |flow: &Judged| {
        let (low, high) = flow.entered(uncounted);
        low >= threshold || high.is_some_and(|high| high < threshold)
    };
    let are_all = uncounted.is_some_and(|of| of < threshold) && flows.iter().all(is_settled);
    (hitters, are_all)
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
/// outside narrower ones that are listed; narrow ones first, and those by their addresses. And
/// whether there are no others. `uncounted` packets may be of any prefix.
pub(crate) fn prefixes(
    view: &View<'_>,
    flows: &[Judged],
    uncounted: Option<u64>,
    threshold: u64,
) -> (Vec<HeavyPrefix>, bool) {
    let high = |of: Range| uncounted.map(|uncounted| of.high.saturating_add(uncounted));
    let threshold = threshold.max(1);
    let mut are_all = uncounted.is_some_and(|of| of < threshold);
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
            // What may be of any flow is added once, to what its counts tell.
            let (low, high) = flow.entered(Some(0));
            let range = Range { low, high: high.unwrap_or(u64::MAX) };
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
            if rest.low >= threshold {
                let address = Ipv4Addr::from_bits(*prefix);
                found.push(HeavyPrefix {
                    prefix: format!("{address}/{bits}"),
                    packets: all.low,
                    packets_high: high(*all),
                    rest: rest.low,
                    rest_high: high(*rest),
                });
                *rest = Range::default();
            } else {
                are_all &= high(*rest).is_some_and(|high| high < threshold);
            }
        }
    }
    (found, are_all)
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
    /// Packets that entered and are in no count, at most.
    uncounted: Option<u64>,
    /// Hosts behind several edges.
    several: HashSet<[u8; 16]>,
    flows: Arc<Monitored>,
}

/// What changed from one window to the next.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The number of the window before.
    pub(crate) since: u64,
    /// The largest change first.
    pub(crate) changes: Vec<HeavyChange>,
    /// Whether no other flow changed by as many packets.
    pub(crate) are_all: bool,
}

/// By how much two numbers differ, of which each lies between bounds: at least, and at most.
fn difference(one: (u64, Option<u64>), other: (u64, Option<u64>)) -> (u64, Option<u64>) {
    let more = |(_, high): (u64, Option<u64>), (low, _)| Some(high?.saturating_sub(low));
    let less = |(low, _): (u64, Option<u64>), (_, high): (u64, Option<u64>)| {
        high.map_or(0, |high| low.saturating_sub(high))
    };
    let high = more(one, other).zip(more(other, one)).map(|(one, other)| one.max(other));
    (less(one, other).max(less(other, one)), high)
}

impl Counts {
    /// Those of a window, of which all flows are judged; so many packets at most have no count.
    pub(crate) fn of(
        window: u64,
        view: View<'_>,
        flows: Vec<Judged>,
        uncounted: Option<u64>,
    ) -> Self {
        let has_all_flows = view.has_all_flows();
        // Packets of a flow that a transit node saw may come by another one now.
        let is_only = |role: Role| role == Role::Edge || view.has_single_paths;
        let is_on_way =
            |node: &NodeView<'_>| has_all_flows || !view.may_move() && is_only(node.role);
        let node = |node: &NodeView<'_>| (node.name.to_owned(), node.has_all() && is_on_way(node));
        let nodes = view.nodes.iter().map(node).collect();
        let several = view.several().clone();
        let flows = Arc::new(Monitored::new(view.into_keys(), flows));
        Self { window, nodes, has_all_flows, uncounted, several, flows }
    }

    /// Its flows.
    pub(crate) fn flows(&self) -> Arc<Monitored> {
        self.flows.clone()
    }

    /// Flows whose packets differ by at least so many from those in the window before: by exact
    /// counts of one node, or else by what entered, as far as that is known. A flow that has no
    /// count in one of the windows had no packets there where the node had an entry of every flow,
    /// and packets can't have come by another. `None` where the other is not the window before.
    pub(crate) fn changes_since(&self, last: &Self, threshold: u64) -> Option<Changes> {
        if self.window != last.window + 1 {
            return None;
        }
        let mut changes = Vec::new();
        // A flow without a count has so many packets at most.
        let [mut now, mut before] = [self, last].map(|of| of.uncounted);
        let mut are_all = now.max(before) < Some(threshold) && now.is_some() && before.is_some();
        if !are_all {
            // Then it does not matter what else may have changed.
            (now, before) = (None, None);
        }
        // One that changed by so many had at least as many in one of the windows.
        let mut heavy = self.flows.heavy(threshold, now).peekable();
        let mut heavy_before = last.flows.heavy(threshold, before).peekable();
        let (mut here_from, mut there_from) = (0, 0);
        while let Some(key) = heavy.peek().into_iter().chain(heavy_before.peek()).min().copied() {
            heavy.next_if_eq(&key);
            heavy_before.next_if_eq(&key);
            let here = self.flows.find(&mut here_from, &key).map(|at| self.flows.flow(at));
            let there = last.flows.find(&mut there_from, &key).map(|at| last.flows.flow(at));
            let entered = |flow: Option<&Judged>, of: &Self| {
                flow.map_or((0, of.uncounted), |flow| flow.entered(of.uncounted))
            };
            let both = (entered(there, last), entered(here, self));
            let exact = self.at_one_node(here, last, there, &key);
            let exactly = |packets: u64| (packets, Some(packets));
            let (before, now) = exact.map_or(both, |(before, now)| (exactly(before), exactly(now)));
            let (by, _) = difference(before, now);
            if by >= threshold {
                let ((before, before_high), (packets, packets_high)) = (before, now);
                let flow = Flow::from(&key);
                let change = HeavyChange { flow, before, before_high, packets, packets_high };
                changes.push((Reverse(by), change));
            } else {
                are_all &= difference(both.0, both.1).1.is_some_and(|by| by < threshold);
            }
        }
        changes.sort_by_key(|(by, _)| *by);
        let changes = changes.into_iter().map(|(_, change)| change).collect();
        Some(Changes { since: last.window, changes, are_all })
    }

    /// A flow's exact counts at one node: in the window before, and in this one.
    fn at_one_node(
        &self,
        here: Option<&Judged>,
        last: &Self,
        there: Option<&Judged>,
        key: &WideKey,
    ) -> Option<(u64, u64)> {
        match (here, there) {
            (Some(now), Some(before)) => {
                let is_one = now.exact && before.exact && self.node(now) == last.node(before);
                is_one.then_some((before.packets, now.packets))
            }
            (Some(now), None) => {
                let had_none = now.exact && last.has_none(self.node(now), key, self);
                had_none.then_some((0, now.packets))
            }
            (None, Some(before)) => {
                let has_none = before.exact && self.has_none(last.node(before), key, last);
                has_none.then_some((before.packets, 0))
            }
            (None, None) => None,
        }
    }

    /// The name of the node whose count is a flow's.
    fn node(&self, flow: &Judged) -> &str {
        &self.nodes[flow.node()].0
    }

    /// Whether a flow without a count had no packets that were to come to a node. Its hosts may
    /// have moved in the other window.
    fn has_none(&self, node: &str, key: &WideKey, other: &Self) -> bool {
        let may_move = |of: &[u8; 16]| self.several.contains(of) || other.several.contains(of);
        let is_fixed = || ![src(key), dst(key)].into_iter().any(may_move);
        let mut nodes = self.nodes.iter();
        nodes.any(|(name, has_none)| name == node && *has_none)
            && (self.has_all_flows || is_fixed())
    }
}
