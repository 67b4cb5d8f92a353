//! A window as all nodes saw it: who delivered, and which of them have a count of which flow.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery};
use calumma_cfs::frames::{Entry, Hop, PortHops, Setup, Totals, Uncounted, Window};
use calumma_sketch::table::Refused;
use calumma_sketch::{FlowKey, HashFamily, Hashes, Key, KeyKind, WideKey};
use calumma_wire::{Role, SideKind};

use crate::addresses::{Addresses, Place};
use crate::answers::{Answers, Noted};
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

impl<'a> NodeView<'a> {
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

    /// What it noted of packets that no entry has and that came on a side. `None` where it notes
    /// nothing of them, or where that is not all.
    pub(crate) fn notes(&self, side: u8) -> Option<Notes<'a>> {
        if !self.is_sound || !self.has_recorded(side) {
            return None;
        }
        match &self.window.ends {
            Some(ends) => Some(Notes::Filters(ends.filters(side))),
            None => self.window.uncounted.as_ref().map(Notes::Uncounted),
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

/// Flows without an entry, as a node has them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notes<'a> {
    /// In the filters of its lcores.
    Filters(&'a [Refused]),
    /// In its residual.
    Uncounted(&'a Uncounted),
}

/// A flow's hashes at a node with such keys.
pub(crate) fn hashes(family: &HashFamily, keys: KeyKind, key: &WideKey) -> Option<Hashes> {
    Some(match keys {
        KeyKind::Dual => family.hash(key),
        KeyKind::Ipv4 => family.hash(&of_ipv4(key)?),
    })
}

fn of_ipv4(key: &WideKey) -> Option<FlowKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol())
}

/// Flows' hashes, by the kind of keys.
#[derive(Debug)]
struct Hashed {
    family: Arc<HashFamily>,
    dual: OnceCell<Vec<Option<Hashes>>>,
    ipv4: OnceCell<Vec<Option<Hashes>>>,
}

fn hash_all<K: Key>(
    family: &HashFamily,
    keys: impl Iterator<Item = Option<K>>,
) -> Vec<Option<Hashes>> {
    const AT_ONCE: usize = 1 << 10;
    let mut all = Vec::new();
    let (mut some, mut hashes) = (Vec::with_capacity(AT_ONCE), [Hashes::default(); AT_ONCE]);
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        let begin = all.len();
        for key in keys.by_ref().take(AT_ONCE) {
            all.push(key.is_some().then(Hashes::default));
            some.extend(key);
        }
        family.hash_burst(&some, &mut hashes[..some.len()]);
        let of_them = all[begin..].iter_mut().flatten();
        of_them.zip(&hashes).for_each(|(of_one, hashes)| *of_one = *hashes);
        some.clear();
    }
    all
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
    /// Where each flow begins there, and the ranks of its source and its destination.
    flows: Vec<(u32, [u32; 2])>,
    pub(crate) addresses: Addresses,
    hashed: Hashed,
    /// Whether an edge delivered no window.
    misses_edges: bool,
    /// A bit for each node, set where it is an edge that may have seen flows of which it has no
    /// count.
    unproven: Vec<u64>,
    doubts: Doubts,
    /// What edges noted of flows that no entry has, put in order when it is first asked for.
    noted: OnceCell<Noted<'a>>,
    /// What that says of the flows that were asked about last.
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
}

impl<'a> View<'a> {
    /// `decoded` is what came of each node's residual, in the order of `collected`, or empty where
    /// only tables count; `family` is what flows are hashed by.
    pub(crate) fn new(
        setup: &'a Setup,
        paths: Paths,
        family: Arc<HashFamily>,
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
            addresses: Addresses::default(),
            hashed: Hashed { family, dual: OnceCell::new(), ipv4: OnceCell::new() },
            misses_edges: false,
            unproven: Vec::new(),
            doubts: Doubts::default(),
            noted: OnceCell::new(),
            answers: RefCell::new(None),
            numbering: None,
        };
        for (at, delivery) in collected.nodes.iter().enumerate() {
            let (name, role) = (&*delivery.node.name, delivery.node.role);
            let (end, doubts) = (&delivery.end, &delivery.doubts);
            let is_sound = delivery.is_whole() && end.clock.is_none() && doubts.is_empty();
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
        let is_unproven = |node: &NodeView<'_>| node.role == Role::Edge && !node.has_all();
        let bits = |nodes: &[NodeView<'_>]| {
            let of = nodes.iter().enumerate();
            of.fold(0, |bits, (at, node)| bits | u64::from(is_unproven(node)) << at)
        };
        view.unproven = view.nodes.chunks(64).map(bits).collect();
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
        let (addresses, places) = Addresses::of(seen.iter().map(|seen| &seen.entry.key));
        let mut order: Vec<(Place, u32)> = places.into_iter().zip(0..).collect();
        // One run for each node, each in order already.
        order.sort_by_key(|(place, _)| *place);
        view.addresses = addresses;
        view.seen.reserve_exact(seen.len());
        for of_one in order.chunk_by(|(one, _), (other, _)| one == other) {
            let (flow, begin) = (view.flows.len() as u32, view.seen.len() as u32);
            view.flows.push((begin, of_one[0].0.ends()));
            view.seen.extend(of_one.iter().map(|&(_, at)| Seen { flow, ..seen[at as usize] }));
        }
        view
    }

    /// Every flow with its counts, by rising keys.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (&'a WideKey, &[Seen<'a>])> {
        let of_one = self.seen.chunk_by(|one, other| one.flow == other.flow);
        of_one.map(|seen| (&seen[0].entry.key, seen))
    }

    /// The ranks of a flow's source and destination among the [addresses](Self::addresses).
    pub(crate) fn ends_of(&self, seen: &Seen<'_>) -> [u32; 2] {
        self.flows[seen.flow as usize].1
    }

    /// All flows' hashes at nodes with such keys, computed when they are first asked for; `None`
    /// for those that are no flows of theirs.
    pub(crate) fn hashes(&self, keys: KeyKind) -> &[Option<Hashes>] {
        let Hashed { family, dual, ipv4 } = &self.hashed;
        let of = if keys == KeyKind::Dual { dual } else { ipv4 };
        of.get_or_init(|| match keys {
            KeyKind::Dual => hash_all(family, self.flows().map(|(key, _)| Some(*key))),
            KeyKind::Ipv4 => hash_all(family, self.flows().map(|(key, _)| of_ipv4(key))),
        })
    }

    /// Whether every flow of the network has a count.
    pub(crate) fn has_all_flows(&self) -> bool {
        let mut edges = self.nodes.iter().filter(|node| node.role == Role::Edge);
        self.has_all_edges && edges.all(NodeView::has_all)
    }

    /// Where hosts are, and those that were seen behind several edges.
    pub(crate) fn doubt(&mut self, hosts: HostsAre, several: HashSet<[u8; 16]>) {
        self.doubts = Doubts { any: hosts == HostsAre::Any, several };
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
        let there = |word: usize| if at.node / 64 == word { 1 << (at.node % 64) } else { 0 };
        let mut others = self.words().map(|word| self.edges_of(side, seen, word) & !there(word));
        self.may_be_anywhere(host) && (self.misses_edges || others.any(|of| of != 0))
    }

    /// Whether packets of a flow that passed between edges may have been some only: others entered
    /// or left at another edge, or left where they had entered.
    pub(crate) fn may_go_elsewhere(&self, key: &WideKey, seen: &[Seen<'_>]) -> bool {
        let edges = |side: u8| self.words().map(move |word| self.edges_of(side, seen, word));
        let are_several = |side: u8| edges(side).map(u64::count_ones).sum::<u32>() > 1;
        let stay =
            || edges(Entry::ENTERED).zip(edges(Entry::LEFT)).any(|(from, to)| from & to != 0);
        let (src, dst) = (self.may_be_anywhere(src(key)), self.may_be_anywhere(dst(key)));
        (src || dst) && self.misses_edges
            || src && are_several(Entry::ENTERED)
            || dst && (are_several(Entry::LEFT) || stay())
    }

    /// Whether packets of a flow that entered at an edge may have gone to a host of the same edge.
    pub(crate) fn may_stay(&self, seen: &[Seen<'_>], entered: &Seen<'_>) -> bool {
        let (key, node) = (&entered.entry.key, entered.node);
        let edges = || self.edges_of(Entry::LEFT, seen, node / 64);
        self.may_be_anywhere(dst(key)) && edges() >> (node % 64) & 1 == 1
    }

    /// Numbers of the words that have a bit for each node.
    fn words(&self) -> Range<usize> {
        0..self.unproven.len()
    }

    /// Where packets of a flow may have entered or left: of the nodes of a word a bit for each
    /// edge. Where edges don't say which packets go from host to host of one edge, all that entered
    /// may have left there.
    fn edges_of(&self, side: u8, seen: &[Seen<'_>], word: usize) -> u64 {
        let unproven = self.unproven[word];
        let unproven = if unproven == 0 { 0 } else { unproven & self.noted(side, seen, word) };
        seen.iter().filter(|of| of.node / 64 == word).fold(unproven, |edges, of| {
            let (node, bit) = (&self.nodes[of.node], 1 << (of.node % 64));
            if node.role != Role::Edge {
                edges
            } else if self.has_come(side, of, seen) {
                edges | bit
            } else if node.is_exact_on(of.entry, side) {
                edges & !bit
            } else {
                edges
            }
        })
    }

    /// Whether an edge that counted a flow may have had packets of it on a side, by that count.
    fn has_come(&self, side: u8, of: &Seen<'_>, seen: &[Seen<'_>]) -> bool {
        let sides = of.entry.sides;
        let stays = || match of.from {
            KeptIn::Table => of.entry.local || self.nodes[of.node].window.ends.is_none(),
            // A residual does not say where packets went.
            KeptIn::Residual | KeptIn::Both => {
                let noted = || self.noted(side, seen, of.node / 64) >> (of.node % 64) & 1 == 1;
                of.entry.local || noted()
            }
        };
        sides & side != 0 || side == Entry::LEFT && sides & Entry::ENTERED != 0 && stays()
    }

    /// Where packets of a flow that no entry has may have come on a side, as far as edges' filters
    /// say: of the nodes of a word a bit for each edge.
    fn noted(&self, side: u8, seen: &[Seen<'_>], word: usize) -> u64 {
        let Some(flow) = seen.first().map(|of| of.flow as usize) else { return u64::MAX };
        let mut answers = self.answers.borrow_mut();
        let known = answers.as_ref().and_then(|of| of.may_have(side, flow, word));
        known.unwrap_or_else(|| {
            let first = Answers::first_beside(flow);
            let flows = (first, self.flows.len() - first);
            let noted = self.noted.get_or_init(|| Noted::of(&self.nodes));
            let of = Answers::of(noted, flows, |keys| &self.hashes(keys)[first..]);
            answers.insert(of).may_have(side, flow, word).unwrap_or(u64::MAX)
        })
    }

    /// The node of a count.
    pub(crate) fn node(&self, seen: &Seen<'_>) -> &NodeView<'a> {
        &self.nodes[seen.node]
    }

    /// Whether a count has all packets of the flow that its node received.
    pub(crate) fn is_exact(&self, seen: &Seen<'_>) -> bool {
        self.node(seen).is_exact(seen.entry)
    }
}
