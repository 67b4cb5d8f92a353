//! A window as all nodes saw it: who delivered, and which of them have a count of which flow.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery};
use calumma_cfs::frames::{Entry, Hop, PortHops, Setup, Totals, Uncounted, Window};
use calumma_sketch::table::Refused;
use calumma_sketch::{HashFamily, Hashes, KeyKind, WideKey};
use calumma_wire::{Role, SideKind};

use crate::addresses::{Addresses, Keys, Ranked};
use crate::answers::{Answers, Noted};
use crate::coverage::{dst, src};
use crate::hashed::{Hashed, hashes};
use crate::parameters::{HostsAre, Paths};
use crate::report::{Exact, KeptIn};
use crate::residual::Decoded;
use crate::seen::{PINNED, SINGLE, Seen};

/// A side that was delivered.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// What the node kept; none on the ingress side, which has no record of its own.
    pub(crate) window: Option<Box<Window>>,
    /// The keys that its flows' words and registers follow from.
    pub(crate) words: KeyKind,
    /// Whether its table has rows, as a Tofino's.
    pub(crate) has_rows: bool,
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
    /// Whether its table has rows, as a Tofino's.
    pub(crate) has_rows: bool,
    /// What came of its residual, if it keeps one.
    pub(crate) residual: Option<&'a Decoded>,
    /// Whether it delivered all of the window, and changed windows in time by a clock that is
    /// right.
    pub(crate) is_sound: bool,
    /// Packets from the fabric that it did not record: they came too late, or without a mark.
    pub(crate) unrecorded: u64,
    pub(crate) sums: Sums,
}

/// Sums over a node's counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Those that are exact.
    pub(crate) exact: Exact,
    /// Packets of its table's entries.
    pub(crate) counted: u64,
    /// Entries of flows that were pinned.
    pub(crate) pinned: u64,
    /// Entries of flows that go from host to host of one edge.
    single: u64,
}

impl Sums {
    fn of(node: &NodeView<'_>) -> Self {
        let mut of = Self::default();
        let counts = node.counts().map(|(entry, _)| entry).filter(|entry| node.is_exact(entry));
        counts.for_each(|entry| of.exact.add(entry));
        for entry in &node.window.entries {
            of.counted += entry.packets;
            of.pinned += u64::from(entry.rank.class() == PINNED);
            of.single += u64::from(entry.rank.class() == SINGLE);
        }
        of
    }
}

impl Exact {
    fn add(&mut self, entry: &Entry) {
        self.flows += 1;
        self.packets = self.packets.saturating_add(entry.packets);
        self.bytes = self.bytes.saturating_add(entry.bytes);
    }
}

impl<'a> NodeView<'a> {
    /// Whether a count has all packets of the flow that the node received.
    pub(crate) fn is_exact(&self, entry: &Entry) -> bool {
        self.is_exact_on(entry, entry.sides)
    }

    /// Whether a count has all packets of the flow that the node received on a side.
    pub(crate) fn is_exact_on(&self, entry: &Entry, side: u8) -> bool {
        entry.exact && self.is_sound && self.has_recorded(side)
    }

    /// Whether it recorded all that came on a side, as far as it is sound. What came too late or
    /// without a mark did not enter there.
    fn has_recorded(&self, side: u8) -> bool {
        side == Entry::ENTERED || self.unrecorded == 0
    }

    /// Whether its table had room for all flows that come before those that are chosen by their
    /// hashes. No limit, and that of rows, is of those parts that had most room: others may have
    /// had none for flows that come first.
    pub(crate) fn has_room_for_first(&self) -> bool {
        let Totals { evicted, refused, filtered, crowded, .. } = self.window.totals;
        match self.window.limit.filter(|_| !self.has_rows) {
            Some(limit) => limit.class() > SINGLE,
            None => self.sums.single == 0 || [evicted, refused, filtered, crowded] == [0; 4],
        }
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

    /// Its counts, by rising keys: where its residual has decoded, of all flows that it saw.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'a Entry, KeptIn)> + use<'a> {
        let (entries, decoded) = match self.residual.and_then(|of| of.counts.as_ref()) {
            Some(decoded) => (&[][..], &decoded[..]),
            None => (&self.window.entries[..], &[][..]),
        };
        let entries = entries.iter().map(|entry| (entry, KeptIn::Table));
        entries.chain(decoded.iter().map(|(entry, from)| (entry, *from)))
    }

    /// Whether it recorded every packet.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_sound && self.unrecorded == 0
    }

    /// Whether its table had room for every flow that it recorded.
    pub(crate) fn has_room_for_all(&self) -> bool {
        let Totals { evicted, refused, filtered, crowded, .. } = self.window.totals;
        let Totals { refused_packets, evicted_packets, .. } = self.window.totals;
        // Flows of other kinds of keys are packets only.
        [evicted, refused, filtered, crowded, refused_packets, evicted_packets] == [0; 6]
    }

    /// Whether it saw flows of IPv6 although its table has rows, which are for IPv4: these are in
    /// none of its registers. It may have where it refused other flows as well.
    pub(crate) fn has_others(&self) -> bool {
        let Totals { evicted, refused, filtered, refused_packets, .. } = self.window.totals;
        self.has_rows && refused_packets > 0 && [evicted, refused, filtered] == [0; 3]
    }

    /// Flows of IPv6 that it may have seen although its table has rows, at most: each is a packet
    /// that it refused, and that was neither the first of a flow nor kept out by the filter.
    fn others_at_most(&self) -> u64 {
        let Totals { refused_packets, refused, filtered, .. } = self.window.totals;
        let is_dual = self.has_rows && self.window.keys == KeyKind::Dual;
        if is_dual { refused_packets.saturating_sub(refused).saturating_sub(filtered) } else { 0 }
    }

    /// Whether it has a count of every flow that it saw.
    pub(crate) fn has_all(&self) -> bool {
        let has_decoded = self.residual.is_some_and(|of| of.counts.is_some());
        self.is_whole() && (self.has_room_for_all() || has_decoded)
    }

    /// Whether it watched every flow that it saw for loops: those with an entry, and those without
    /// by its guard, which had room for all that it suspected. Entries in rows have no times to
    /// live, and the guard of Tofinos watches all flows but those of IPv6.
    pub(crate) fn has_watched(&self) -> bool {
        let has_guard = self.window.suspects.as_ref().is_some_and(|of| of.missed == 0);
        let has_all = match self.has_rows {
            true => has_guard && self.others_at_most() == 0,
            false => has_guard || self.has_room_for_all(),
        };
        self.is_whole() && has_all
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

/// What a node kept, of what it delivered; `None` where that is missing.
pub(crate) fn window_of(of: &Delivery<Delivered>) -> Option<&Window> {
    Some(kept(of)?.0)
}

/// The same with the side that it came with.
fn kept(of: &Delivery<Delivered>) -> Option<(&Window, &Delivered)> {
    let sides = of.came().filter(|(kind, _)| *kind != SideKind::Ingress);
    sides.filter_map(|(_, side)| Some((side.window.as_deref()?, side))).next()
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
    /// All counts, those of a flow beside each other.
    seen: Vec<Seen<'a>>,
    /// The node of each of these.
    seen_at: Vec<u32>,
    /// The key of each flow.
    flows: Vec<Ranked>,
    /// Where each flow's counts end.
    ends: Vec<u32>,
    pub(crate) addresses: Addresses,
    hashed: Hashed,
    /// Whether an edge delivered no window.
    misses_edges: bool,
    /// A bit for each node up to the last edge, set where it is an edge that may have seen flows of
    /// which it has no count.
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
            seen_at: Vec::new(),
            flows: Vec::new(),
            ends: Vec::new(),
            addresses: Addresses::default(),
            hashed: Hashed::by(family),
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
            if let Some((window, &Delivered { words, has_rows, .. })) = kept {
                let unrecorded = late.saturating_add(window.totals.unmarked);
                let residual = decoded.get(at).and_then(Option::as_ref);
                view.nodes.push(NodeView {
                    place: at,
                    name,
                    role,
                    window,
                    words,
                    has_rows,
                    residual,
                    is_sound,
                    unrecorded,
                    sums: Sums::default(),
                });
            }
        }
        let is_unproven = |node: &NodeView<'_>| node.role == Role::Edge && !node.has_all();
        let bits = |nodes: &[NodeView<'_>]| {
            let of = nodes.iter().enumerate();
            of.fold(0, |bits, (at, node)| bits | u64::from(is_unproven(node)) << at)
        };
        let last_edge = view.nodes.iter().rposition(|node| node.role == Role::Edge);
        let edges = &view.nodes[..last_edge.map_or(0, |last| last + 1)];
        view.unproven = edges.chunks(64).map(bits).collect();
        let number = view.nodes.iter().map(|node| node.counts().size_hint().0).sum();
        let mut counts: Vec<Seen<'a>> = Vec::with_capacity(number);
        let mut keys = Keys::with_capacity(number);
        // What is read of a node's entries is in the cache for all that is asked of them.
        for (at, node) in view.nodes.iter_mut().enumerate() {
            for of in node.counts() {
                counts.push(Seen::new(at, node, of));
                keys.push(&of.0.key);
            }
            node.sums = Sums::of(node);
        }
        let (addresses, order) = keys.in_order();
        view.seen.reserve_exact(number);
        let mut begin = 0;
        for (flow, &end) in (0..).zip(&order.ends) {
            let of_one = order.which[begin..end as usize].iter();
            view.seen.extend(of_one.map(|&at| counts[at as usize].of_flow(flow)));
            begin = end as usize;
        }
        view.seen_at = view.seen.iter().map(|of| of.node() as u32).collect();
        (view.addresses, view.flows, view.ends) = (addresses, order.keys, order.ends);
        view
    }

    /// How many flows have counts.
    pub(crate) fn flows_seen(&self) -> usize {
        self.flows.len()
    }

    /// Every flow with its counts, by rising keys.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (&Ranked, &[Seen<'a>])> {
        let mut begin = 0;
        self.flows.iter().zip(&self.ends).map(move |(flow, &end)| {
            let seen = &self.seen[begin..end as usize];
            begin = end as usize;
            (flow, seen)
        })
    }

    /// By flow, the nodes that have a count of it.
    pub(crate) fn seen_at(&self) -> impl Iterator<Item = &[u32]> {
        let mut begin = 0;
        self.ends.iter().map(move |&end| {
            let nodes = &self.seen_at[begin..end as usize];
            begin = end as usize;
            nodes
        })
    }

    /// The keys of all flows, which rise.
    pub(crate) fn keys(&self) -> &[Ranked] {
        &self.flows
    }

    /// The counts of the flow of this number.
    pub(crate) fn seen_of(&self, flow: usize) -> &[Seen<'a>] {
        let begin = flow.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.seen[begin as usize..self.ends[flow] as usize]
    }

    /// The key of a flow.
    pub(crate) fn key(&self, flow: &Ranked) -> WideKey {
        self.addresses.key(flow)
    }

    /// The addresses, and of each flow the key by their ranks: all that is asked of a window when
    /// counts were judged.
    pub(crate) fn into_keys(self) -> (Addresses, Vec<Ranked>) {
        (self.addresses, self.flows)
    }

    /// All flows' hashes at nodes with such keys, computed when they are first asked for; `None`
    /// for those that are no flows of theirs.
    pub(crate) fn hashes(&self, keys: KeyKind) -> &[Option<Hashes>] {
        self.hashed.of(keys, &self.addresses, &self.flows)
    }

    /// Whether every flow of the network has a count.
    pub(crate) fn has_all_flows(&self) -> bool {
        let mut edges = self.nodes.iter().filter(|node| node.role == Role::Edge);
        self.has_all_edges && edges.all(NodeView::has_all)
    }

    /// Flows of IPv6 that entered and are in no register, at most.
    pub(crate) fn hidden(&self) -> u64 {
        let edges = self.nodes.iter().filter(|node| node.role == Role::Edge);
        edges.map(NodeView::others_at_most).fold(0, u64::saturating_add)
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
                let node = &self.nodes[seen.node()];
                let of_node = || Some(Hop::Port(*of.hops.get(node.name)?));
                let hop = if let Hop::Port(_) = by { of_node()? } else { by };
                let hashes = hashes(&of.family, node.words, &entry.key)?;
                // What is graded at random is graded alike at all hops.
                let setup = self.setup.with(node.window.overrides.unwrap_or_default());
                let setup = Setup { hop, ..setup };
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

    /// Hosts behind several edges, wherever others may be.
    pub(crate) fn several(&self) -> &HashSet<[u8; 16]> {
        &self.doubts.several
    }

    /// Whether a host may be behind several edges.
    pub(crate) fn may_be_anywhere(&self, host: &[u8; 16]) -> bool {
        self.doubts.any || self.doubts.several.contains(host)
    }

    /// Whether packets of a flow that entered or left at one edge may have done so at another.
    pub(crate) fn may_come_elsewhere(&self, seen: &[Seen<'_>], at: &Seen<'_>) -> bool {
        let (key, side, node) = (&at.entry.key, at.sides, at.node());
        let host = if side == Entry::LEFT { dst(key) } else { src(key) };
        let there = |word: usize| if node / 64 == word { 1 << (node % 64) } else { 0 };
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
        let (key, node) = (&entered.entry.key, entered.node());
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
        // A transit node may stand behind all edges.
        let unproven = self.unproven.get(word).copied().unwrap_or(0);
        let unproven = if unproven == 0 { 0 } else { unproven & self.noted(side, seen, word) };
        seen.iter().filter(|of| of.node() / 64 == word).fold(unproven, |edges, of| {
            let (node, bit) = (&self.nodes[of.node()], 1 << (of.node() % 64));
            if node.role != Role::Edge {
                edges
            } else if self.has_come(side, of, seen) {
                edges | bit
            } else if of.is_exact_on(side) {
                edges & !bit
            } else {
                edges
            }
        })
    }

    /// Whether an edge that counted a flow may have had packets of it on a side, by that count.
    fn has_come(&self, side: u8, of: &Seen<'_>, seen: &[Seen<'_>]) -> bool {
        let sides = of.sides;
        let stays = || match of.from {
            KeptIn::Table => of.is_local || self.node(of).window.ends.is_none(),
            // A residual does not say where packets went.
            KeptIn::Residual | KeptIn::Both => {
                let noted = || self.noted(side, seen, of.node() / 64) >> (of.node() % 64) & 1 == 1;
                of.is_local || noted()
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
            let words = self.unproven.len();
            let noted = self.noted.get_or_init(|| Noted::of(&self.nodes, words));
            let of = Answers::of(noted, flows, |keys| &self.hashes(keys)[first..]);
            answers.insert(of).may_have(side, flow, word).unwrap_or(u64::MAX)
        })
    }

    /// The node of a count.
    pub(crate) fn node(&self, seen: &Seen<'_>) -> &NodeView<'a> {
        &self.nodes[seen.node()]
    }
}
