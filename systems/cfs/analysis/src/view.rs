//! A window as all nodes saw it: who delivered, and which of them have a count of which flow.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery};
use calumma_cfs::frames::{Entry, Hop, PortHops, Setup, Totals, Window};
use calumma_sketch::{FlowKey, HashFamily, Hashes, Key, KeyKind, WideKey};
use calumma_wire::{Role, SideKind};

use crate::answers::Answers;
use crate::coverage::{dst, src};
use crate::parameters::{HostsAre, Paths};
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
        self.is_exact_on(entry, entry.sides)
    }

    /// Whether a count has all packets of the flow that the node received on a side.
    fn is_exact_on(&self, entry: &Entry, side: u8) -> bool {
        entry.exact && self.is_sound && self.has_recorded(side)
    }

    /// Whether it recorded all that came on a side, as far as it is sound. What came too late or
    /// without a mark did not enter there.
    fn has_recorded(&self, side: u8) -> bool {
        side == Entry::ENTERED || self.unrecorded == 0
    }

    /// What its filters say of the flow with these hashes: whether packets that no entry has may
    /// have come on a side. `None` where it sends none, or where that is not all; without hashes
    /// the flow is none of the node's kind, and was counted as packets only.
    pub(crate) fn filters_have(&self, side: u8, hashes: Option<&Hashes>) -> Option<bool> {
        if !self.is_sound || !self.has_recorded(side) {
            return None;
        }
        match &self.window.ends {
            Some(ends) => Some(ends.may_have(side, hashes?)),
            None => Some(self.window.uncounted.as_ref()?.may_have(hashes?)),
        }
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
    /// The number of the flow, by rising keys.
    flow: u32,
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
    /// Where each flow begins there.
    flows: Vec<u32>,
    /// Whether an edge delivered no window.
    misses_edges: bool,
    doubts: Doubts,
    /// What filters say of the flows that were asked about last.
    answers: RefCell<Option<Answers>>,
    numbering: Option<Numbering<'a>>,
}

/// What the grades of a window follow from, where ports or marks say at which hop a node is.
#[derive(Clone, Debug)]
struct Numbering<'a> {
    hops: &'a BTreeMap<String, PortHops>,
    seed: u32,
    family: Arc<HashFamily>,
}

/// Where flows may be counted at an edge, and packets of theirs have come by another one.
#[derive(Clone, Debug, Default)]
struct Doubts {
    /// Whether any host may be behind any edge.
    any: bool,
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
            flows: Vec::new(),
            misses_edges: false,
            doubts: Doubts::default(),
            answers: RefCell::new(None),
            numbering: None,
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
                seen.extend(counts.iter().map(|(entry, from)| Seen {
                    node,
                    flow: 0,
                    entry,
                    from: *from,
                }));
            } else {
                let entries = of.window.entries.iter();
                seen.extend(entries.map(|entry| Seen {
                    node,
                    flow: 0,
                    entry,
                    from: KeptIn::Table,
                }));
            }
        }
        // One run for each node, each in order already.
        seen.sort_by_key(|seen| &seen.entry.key);
        let mut begin = 0;
        for of_one in seen.chunk_by_mut(|one, other| one.entry.key == other.entry.key) {
            let flow = view.flows.len() as u32;
            of_one.iter_mut().for_each(|seen| seen.flow = flow);
            view.flows.push(begin);
            begin += of_one.len() as u32;
        }
        view.seen = seen;
        view
    }

    /// Every flow with its counts, by rising keys.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (&'a WideKey, &[Seen<'a>])> {
        let of_one = self.seen.chunk_by(|one, other| one.flow == other.flow);
        of_one.map(|seen| (&seen[0].entry.key, seen))
    }

    /// Whether every flow of the network has a count.
    pub(crate) fn has_all_flows(&self) -> bool {
        let mut edges = self.nodes.iter().filter(|node| node.role == Role::Edge);
        self.has_all_edges && edges.all(NodeView::has_all)
    }

    /// Where hosts are, those that were seen behind several edges, and the functions that find
    /// flows in nodes' filters.
    pub(crate) fn doubt(
        &mut self,
        hosts: HostsAre,
        several: HashSet<[u8; 16]>,
        family: Arc<HashFamily>,
    ) {
        self.doubts = Doubts { any: hosts == HostsAre::Any, several, family: Some(family) };
        self.answers.take();
    }

    /// The hops that ports say, and what grades follow from in a window with this seed.
    pub(crate) fn number_by_ports(
        &mut self,
        hops: &'a BTreeMap<String, PortHops>,
        seed: u32,
        family: Arc<HashFamily>,
    ) {
        self.numbering = Some(Numbering { hops, seed, family });
    }

    /// The number of the hop at which a node counted a flow; `None` where it is not known, as that
    /// of what only a residual has, and by ports and marks that of pinned flows, which are not
    /// graded.
    pub(crate) fn hop_of(&self, seen: &Seen<'_>) -> Option<u8> {
        let entry = seen.entry;
        if seen.from == KeptIn::Residual {
            return None;
        }
        match self.setup.hop {
            Hop::Ttl(_) => Some(self.setup.hop_of(entry.ttl)),
            Hop::None => None,
            by @ (Hop::Port(_) | Hop::Mark { .. }) => {
                let of = self.numbering.as_ref().filter(|_| entry.rank.class() != PINNED)?;
                let node = &self.nodes[seen.node];
                let of_node = || Some(Hop::Port(*of.hops.get(node.name)?));
                let hop = if let Hop::Port(_) = by { of_node()? } else { by };
                let hashes = hashes(&of.family, node.words, &entry.key)?;
                // What is graded at random is graded alike at all hops.
                let setup = Setup { hop, ..*self.setup };
                setup.hop_graded(&of.family, &hashes, (of.seed, 0), entry.rank.grade())
            }
        }
    }

    /// Doubts what the other view of the window doubts.
    pub(crate) fn doubt_as(&mut self, other: &View<'_>) {
        self.doubts = other.doubts.clone();
        self.answers.take();
    }

    /// Whether any host may be behind any edge.
    pub(crate) fn may_move(&self) -> bool {
        self.doubts.any
    }

    /// Whether a host may be behind several edges.
    fn may_be_anywhere(&self, host: &[u8; 16]) -> bool {
        self.doubts.any || self.doubts.several.contains(host)
    }

    /// Whether packets of a flow that entered or left at one edge may have done so at another.
    pub(crate) fn may_come_elsewhere(&self, seen: &[Seen<'_>], at: &Seen<'_>) -> bool {
        let (key, side) = (&at.entry.key, at.entry.sides);
        let host = if side == Entry::LEFT { dst(key) } else { src(key) };
        let others = || self.edges().filter(|edge| *edge != at.node);
        self.may_be_anywhere(host)
            && (self.misses_edges || others().any(|edge| self.may_be_on(side, edge, seen)))
    }

    /// Whether packets of a flow that passed between edges may have been some only: others entered
    /// or left at another edge, or left where they had entered.
    pub(crate) fn may_go_elsewhere(&self, key: &WideKey, seen: &[Seen<'_>]) -> bool {
        let may = |side: u8, edge: usize| self.may_be_on(side, edge, seen);
        let are_several = |side| self.edges().filter(|edge| may(side, *edge)).nth(1).is_some();
        let stay = || {
            let mut entered = self.edges().filter(|edge| may(Entry::ENTERED, *edge));
            entered.any(|edge| may(Entry::LEFT, edge))
        };
        let (src, dst) = (self.may_be_anywhere(src(key)), self.may_be_anywhere(dst(key)));
        (src || dst) && self.misses_edges
            || src && are_several(Entry::ENTERED)
            || dst && (are_several(Entry::LEFT) || stay())
    }

    /// Whether packets of a flow that entered at an edge may have gone to a host of the same edge.
    pub(crate) fn may_stay(&self, seen: &[Seen<'_>], entered: &Seen<'_>) -> bool {
        let key = &entered.entry.key;
        self.may_be_anywhere(dst(key)) && self.may_be_on(Entry::LEFT, entered.node, seen)
    }

    fn edges(&self) -> impl Iterator<Item = usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, of)| of.role == Role::Edge).map(|(node, _)| node)
    }

    /// Whether packets of a flow may have entered or left at an edge. Where edges don't say which
    /// packets go from host to host of one edge, all that entered may have left there.
    fn may_be_on(&self, side: u8, edge: usize, seen: &[Seen<'_>]) -> bool {
        let node = &self.nodes[edge];
        let (ends, counted) = (&node.window.ends, seen.iter().find(|of| of.node == edge));
        let stays = |of: &Seen<'_>| match of.from {
            KeptIn::Table => of.entry.local || ends.is_none(),
            // A residual does not say where packets went.
            KeptIn::Residual | KeptIn::Both => {
                of.entry.local || self.filters_may_have(side, edge, seen)
            }
        };
        let has_come = |of: &Seen<'_>| {
            let sides = of.entry.sides;
            sides & side != 0 || side == Entry::LEFT && sides & Entry::ENTERED != 0 && stays(of)
        };
        let is_known = node.has_all() || counted.is_some_and(|of| node.is_exact_on(of.entry, side));
        counted.is_some_and(has_come) || !is_known && self.filters_may_have(side, edge, seen)
    }

    /// Whether packets of a flow that no entry has may have come to an edge on a side, as far as
    /// its filters say.
    fn filters_may_have(&self, side: u8, edge: usize, seen: &[Seen<'_>]) -> bool {
        let Some(flow) = seen.first().map(|of| of.flow as usize) else { return true };
        let mut answers = self.answers.borrow_mut();
        let known = answers.as_ref().and_then(|of| of.may_have(side, edge, flow));
        known.unwrap_or_else(|| {
            let first = Answers::first_beside(flow);
            let keys = self.flows[first..].iter().map(|&at| &self.seen[at as usize].entry.key);
            let of = Answers::of(&self.nodes, self.doubts.family.as_deref(), first, keys);
            answers.insert(of).may_have(side, edge, flow).unwrap_or(true)
        })
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
