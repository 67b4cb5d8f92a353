//! A window as all nodes saw it: who delivered, and which of them have a count of which flow.

use std::collections::HashSet;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery};
use calumma_cfs::frames::{Entry, Setup, Totals, Window};
use calumma_sketch::{FlowKey, HashFamily, Hashes, Key, KeyKind, WideKey};
use calumma_wire::{Role, SideKind};

use crate::coverage::{dst, src};
use crate::parameters::Paths;
use crate::report::KeptIn;
use crate::residual::Decoded;

/// A side that was delivered.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// What the node kept; none on the ingress side, which has no record of its own.
    pub(crate) window: Option<Box<Window>>,
    /// The keys that its flows' words and registers follow from.
    pub(crate) words: KeyKind,
    /// By how much a step of the rotation came too late.
    pub(crate) stall_ns: u64,
}

/// A node that delivered.
#[derive(Debug)]
pub(crate) struct NodeView<'a> {
    /// Its position among all nodes, those that are missing included.
    pub(crate) place: usize,
    pub(crate) name: &'a str,
    pub(crate) role: Role,
    pub(crate) window: &'a Window,
    /// The keys that its flows' words and registers follow from.
    pub(crate) words: KeyKind,
    /// What came of its residual, if it keeps one.
    pub(crate) residual: Option<&'a Decoded>,
    /// Whether it delivered all of the window, and changed windows in time by a clock that is
    /// right.
    pub(crate) is_sound: bool,
    /// Packets from the fabric that it did not record: they came too late, or without a mark.
    pub(crate) unrecorded: u64,
}

impl NodeView<'_> {
    /// Whether a count has all packets of the flow that the node received.
    pub(crate) fn is_exact(&self, entry: &Entry) -> bool {
        // Of which flow such packets were, nobody knows; but none of them entered here.
        let has_all = self.unrecorded == 0 || entry.sides == Entry::ENTERED;
        entry.exact && self.is_sound && has_all
    }

    /// Whether it has a count of every flow that it saw.
    pub(crate) fn has_all(&self) -> bool {
        let Totals { evicted, refused, filtered, crowded, .. } = self.window.totals;
        let Totals { refused_packets, evicted_packets, .. } = self.window.totals;
        // Flows of other kinds of keys are packets only.
        let without = [evicted, refused, filtered, crowded, refused_packets, evicted_packets];
        let has_entries_of_all = without == [0; 6];
        let has_decoded = self.residual.is_some_and(|of| of.counts.is_some());
        self.is_sound && self.unrecorded == 0 && (has_entries_of_all || has_decoded)
    }
}

/// A flow's hashes at a node with such keys.
pub(crate) fn hashes(family: &HashFamily, keys: KeyKind, key: &WideKey) -> Option<Hashes> {
    Some(match keys {
        KeyKind::Dual => family.hash(key),
        KeyKind::Ipv4 => {
            let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
            family.hash(&FlowKey::new(src, dst, sport, dport, key.protocol())?)
        }
    })
}

/// A flow's count at a node, by the node's position in [`View::nodes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) node: usize,
    /// What is only in the residual has no times, and no times to live.
    pub(crate) entry: &'a Entry,
    pub(crate) from: KeptIn,
}

/// The class of flows that are counted everywhere, whatever their hashes.
pub(crate) const PINNED: u8 = 0;

/// Whether a flow has counts because it was pinned, and not by its hash.
pub(crate) fn is_pinned(seen: &[Seen<'_>]) -> bool {
    // What is only in a residual has no rank.
    seen.iter().any(|of| of.from == KeptIn::Table && of.entry.rank.class() == PINNED)
}

/// What a node kept, of what it delivered; `None` where that is missing.
pub(crate) fn window_of(of: &Delivery<Delivered>) -> Option<&Window> {
    Some(kept(of)?.0)
}

/// The same with the keys that words and registers follow from.
fn kept(of: &Delivery<Delivered>) -> Option<(&Window, KeyKind)> {
    let sides = of.came().filter(|(kind, _)| *kind != SideKind::Ingress);
    sides.filter_map(|(_, side)| Some((side.window.as_deref()?, side.words))).next()
}

/// A window as all nodes saw it.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) nodes: Vec<NodeView<'a>>,
    /// Why nodes are not sound although everything came from them.
    pub(crate) problems: Vec<String>,
    /// Whether all edges are there and sound.
    pub(crate) has_all_edges: bool,
    /// Whether a flow that passed a transit node had all its packets pass there.
    pub(crate) has_single_paths: bool,
    seen: Vec<Seen<'a>>,
    /// Whether an edge delivered no window.
    misses_edges: bool,
    doubts: Doubts,
}

/// Where flows may be counted at an edge, and packets of theirs have come by another one.
#[derive(Clone, Debug, Default)]
struct Doubts {
    /// Hosts behind several edges, by their addresses.
    several: HashSet<[u8; 16]>,
    /// Which finds flows in filters.
    family: Option<Arc<HashFamily>>,
}

impl<'a> View<'a> {
    /// `decoded` is what came of each node's residual, in the order of `collected`, or empty where
    /// only tables count.
    pub(crate) fn new(
        setup: &'a Setup,
        paths: Paths,
        collected: &'a Collected<Delivered>,
        decoded: &'a [Option<Decoded>],
    ) -> Self {
        let mut view = Self {
            setup,
            nodes: Vec::with_capacity(collected.nodes.len()),
            problems: Vec::new(),
            has_all_edges: true,
            has_single_paths: paths == Paths::Single,
            seen: Vec::new(),
            misses_edges: false,
            doubts: Doubts::default(),
        };
        for (at, delivery) in collected.nodes.iter().enumerate() {
            let (name, role) = (&*delivery.node.name, delivery.node.role);
            let stall_ns = delivery.came().map(|(_, side)| side.stall_ns).max().unwrap_or(0);
            if stall_ns > 0 {
                let late_ms = stall_ns as f64 / 1e6;
                view.problems.push(format!("{name}: it changed windows {late_ms:.1} ms too late"));
            }
            let end = &delivery.end;
            let is_sound = delivery.is_whole() && end.clock.is_none() && stall_ns == 0;
            let late = end.late_packets.unwrap_or(0);
            let kept = kept(delivery);
            let window = kept.map(|(window, _)| window);
            view.has_all_edges &= role != Role::Edge || is_sound && late == 0;
            view.misses_edges |= role == Role::Edge && window.is_none();
            // Nobody knows whether the routes of one that is missing have changed.
            view.has_single_paths &=
                delivery.is_whole() && window.is_some_and(|window| !window.routes_changed);
            if let Some((window, words)) = kept {
                let unrecorded = late.saturating_add(window.totals.unmarked);
                let residual = decoded.get(at).and_then(Option::as_ref);
                view.nodes.push(NodeView {
                    place: at,
                    name,
                    role,
                    window,
                    words,
                    residual,
                    is_sound,
                    unrecorded,
                });
            }
        }
        let mut seen = Vec::new();
        for (node, of) in view.nodes.iter().enumerate() {
            if let Some(counts) = of.residual.and_then(|of| of.counts.as_ref()) {
                seen.extend(counts.iter().map(|(entry, from)| Seen { node, entry, from: *from }));
            } else {
                let entries = of.window.entries.iter();
                seen.extend(entries.map(|entry| Seen { node, entry, from: KeptIn::Table }));
            }
        }
        // One run for each node, each in order already.
        seen.sort_by_key(|seen| &seen.entry.key);
        view.seen = seen;
        view
    }

    /// Every flow with its counts, by rising keys.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (&'a WideKey, &[Seen<'a>])> {
        let of_one = self.seen.chunk_by(|one, other| one.entry.key == other.entry.key);
        of_one.map(|seen| (&seen[0].entry.key, seen))
    }

    /// Whether every flow of the network has a count.
    pub(crate) fn has_all_flows(&self) -> bool {
        let mut edges = self.nodes.iter().filter(|node| node.role == Role::Edge);
        self.has_all_edges && edges.all(NodeView::has_all)
    }

    /// Hosts behind several edges, and the functions that find flows in nodes' filters.
    pub(crate) fn doubt(&mut self, several: HashSet<[u8; 16]>, family: Arc<HashFamily>) {
        self.doubts = Doubts { several, family: Some(family) };
    }

    /// Doubts what the other view of the window doubts.
    pub(crate) fn doubt_as(&mut self, other: &View<'_>) {
        self.doubts = other.doubts.clone();
    }

    /// Whether packets of a flow that entered or left at one edge may have done so at another,
    /// since its host was behind several edges lately.
    pub(crate) fn may_come_elsewhere(&self, seen: &[Seen<'_>], at: &Seen<'_>) -> bool {
        let key = &at.entry.key;
        let host = if at.entry.sides == Entry::LEFT { dst(key) } else { src(key) };
        self.doubts.several.contains(host)
            && (self.misses_edges
                || self
                    .other_edges(seen, at)
                    .any(|edge| self.filters_have(edge, key) != Some(false)))
    }

    /// Whether another edge's filter says that a flow may be among those which it has not counted.
    pub(crate) fn seems_elsewhere(&self, seen: &[Seen<'_>], at: &Seen<'_>) -> bool {
        let key = &at.entry.key;
        self.other_edges(seen, at).any(|edge| self.filters_have(edge, key) == Some(true))
    }

    /// Edges that may have seen packets of a flow without a count that says so.
    fn other_edges<'s>(
        &'s self,
        seen: &'s [Seen<'_>],
        at: &'s Seen<'_>,
    ) -> impl Iterator<Item = &'s NodeView<'a>> {
        let nodes = self.nodes.iter().enumerate().filter(|(node, of)| {
            let has_counted = || seen.iter().any(|of| of.node == *node && self.is_exact(of));
            of.role == Role::Edge && *node != at.node && !of.has_all() && !has_counted()
        });
        nodes.map(|(_, of)| of)
    }

    /// What a node's filters say of a flow: whether it may be among those that its tables refused
    /// or evicted. `None` where it has none, or packets that nobody knows.
    fn filters_have(&self, node: &NodeView<'_>, key: &WideKey) -> Option<bool> {
        let uncounted = node.window.uncounted.as_ref();
        let refused = &uncounted.filter(|_| node.is_sound && node.unrecorded == 0)?.refused;
        let family = self.doubts.family.as_ref()?;
        let hashes = hashes(family, node.window.keys, key);
        // A flow that is none of the node's kind was counted as packets only.
        Some(hashes.is_none_or(|hashes| refused.iter().any(|of| of.contains(&hashes))))
    }

    /// The node of a count.
    pub(crate) fn node(&self, seen: &Seen<'a>) -> &NodeView<'a> {
        &self.nodes[seen.node]
    }

    /// Whether a count has all packets of the flow that its node received.
    pub(crate) fn is_exact(&self, seen: &Seen<'a>) -> bool {
        self.node(seen).is_exact(seen.entry)
    }
}
