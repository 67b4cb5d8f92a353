//! Heavy hitters and heavy changes among the flows that are monitored.

use std::cmp::{Ordering, Reverse};

use calumma_analysis::Flow;
use calumma_sketch::WideKey;

use crate::flows::Judged;
use crate::report::{HeavyChange, HeavyHitter};
use crate::view::{NodeView, View};

/// Monitored flows of at least so many packets, the largest first. Counts that are not exact are
/// what there was at least, so all of these are.
pub(crate) fn hitters(flows: &[Judged<'_>], threshold: u64) -> Vec<HeavyHitter> {
    let is_heavy = |flow: &&Judged<'_>| flow.packets() >= threshold;
    let hitter = |flow: &Judged<'_>| HeavyHitter {
        flow: Flow::from(flow.key),
        packets: flow.packets(),
        bytes: flow.at.entry.bytes,
        exact: flow.exact,
    };
    let mut hitters: Vec<HeavyHitter> = flows.iter().filter(is_heavy).map(hitter).collect();
    hitters.sort_by_key(|hitter| Reverse(hitter.packets));
    hitters
}

/// What one window's changes need of it.
#[derive(Debug)]
pub(crate) struct Counts {
    window: u64,
    /// The nodes' names, and whether each had an entry of every flow that it saw.
    nodes: Vec<(String, bool)>,
    /// Flows with an exact count, by rising keys: the node that counted, and packets.
    flows: Vec<(WideKey, usize, u64)>,
}

impl Counts {
    /// Those of a window, of flows by rising keys.
    pub(crate) fn of(window: u64, view: &View<'_>, flows: &[Judged<'_>]) -> Self {
        let exact = flows.iter().filter(|flow| flow.exact);
        let flows = exact.map(|flow| (*flow.key, flow.at.node, flow.packets())).collect();
        let node = |node: &NodeView<'_>| (node.name.to_owned(), node.has_all());
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
                (Some((key, node, packets)), Some((_, other, before)))
                    if self.nodes[*node].0 == last.nodes[*other].0 =>
                {
                    add(key, *before, *packets);
                }
                (Some((key, node, packets)), None) if last.has_all(&self.nodes[*node].0) => {
                    add(key, 0, *packets);
                }
                (None, Some((key, node, before))) if self.has_all(&last.nodes[*node].0) => {
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
