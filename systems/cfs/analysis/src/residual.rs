//! Flows that tables have no entry of: the residuals of all nodes of a window, decoded together.
//!
//! What any table holds, or any residual gives away, is taken out of the residuals that may have it
//! ([`network`]). A residual that comes out empty was accounted for to the last packet and byte:
//! its node has counted every flow that it saw, and what entries and residual have of a flow adds
//! up to all of it. Of one that does not come out empty nothing is said.
//!
//! An edge keeps apart what entered from what left. Of a flow that is known from elsewhere its
//! residual's filter says that it is there, and where its hosts are says in which part. That is a
//! guess, which costs room where it is wrong and no count: what is taken out of the wrong part is
//! left there as a difference, and decodes. A FlowRadar's filters say themselves in which part a
//! flow may be, and are wrong about few.

use std::collections::HashMap;
use std::net::IpAddr;

use calumma_analysis::Collected;
use calumma_cfs::frames::{Entry, Residual, Window};
use calumma_sketch::residual::{ARRAYS, AnyResidual, Counts, Residual as _, network};
use calumma_sketch::{FlowKey, HashFamily, Key, KeyKind, WideKey};
use calumma_wire::Role;

use crate::report::KeptIn;
use crate::view::{Delivered, window_of};

/// What came of a node's residual.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// Every flow that the node saw, by rising keys, with all that it counted; `None` where the
    /// residual did not decode.
    pub(crate) counts: Option<Vec<(Entry, KeptIn)>>,
    /// Flows in the residual.
    pub(crate) flows: u64,
    /// Its buckets.
    pub(crate) buckets: u64,
}

/// Decodes the residuals of a window, of each node in the order of `collected`; `None` where it
/// sent none.
pub(crate) fn decode(
    family: &HashFamily,
    collected: &Collected<Delivered>,
) -> Vec<Option<Decoded>> {
    let nodes: Vec<Sent<'_>> = collected
        .nodes
        .iter()
        .map(|of| Sent { is_edge: of.node.role == Role::Edge, window: window_of(of) })
        .collect();
    let mut decoded: Vec<Option<Decoded>> = nodes.iter().map(|_| None).collect();
    let of = |kind| nodes.iter().any(|node| node.residual_kind() == Some(kind));
    if of(KeyKind::Ipv4) {
        decode_kind::<FlowKey>(family, &nodes, &mut decoded);
    }
    if of(KeyKind::Dual) {
        decode_kind::<WideKey>(family, &nodes, &mut decoded);
    }
    decoded
}

/// What a node has sent.
#[derive(Clone, Copy, Debug)]
struct Sent<'a> {
    is_edge: bool,
    window: Option<&'a Window>,
}

impl<'a> Sent<'a> {
    fn residual_kind(&self) -> Option<KeyKind> {
        Some(self.window?.uncounted.as_ref()?.flows.kind())
    }

    /// Its residual, if it is one of such keys.
    fn residual<K: Key>(&self) -> Option<&'a Residual<K>> {
        self.window?.uncounted.as_ref()?.flows.get::<K>()
    }

    fn entries(&self) -> &'a [Entry] {
        self.window.map_or(&[], |window| &window.entries)
    }
}

/// The place of a node's residual in the network's list: of what entered, or of the rest.
fn place(node: usize, entered: bool) -> usize {
    2 * node + usize::from(!entered)
}

fn decode_kind<K: Key>(family: &HashFamily, nodes: &[Sent<'_>], decoded: &mut [Option<Decoded>]) {
    let mut residuals = Vec::with_capacity(2 * nodes.len());
    let mut known = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let refused = node.window.and_then(|window| window.uncounted.as_ref());
        let refused = refused.map_or(&[][..], |uncounted| &uncounted.refused);
        let part = |part: &AnyResidual<K>| match part.clone() {
            AnyResidual::Fermat(part) => AnyResidual::Fermat(part.known_by(refused.to_vec())),
            part @ AnyResidual::FlowRadar(_) => part,
        };
        let of = node.residual::<K>();
        residuals.push(of.and_then(|of| of.entered.as_ref()).map(part));
        residuals.push(of.map(|of| part(&of.rest)));
        known.extend(node.entries().iter().filter_map(|entry| {
            let counts = Counts { packets: entry.packets, bytes: entry.bytes };
            Some((place(at, entry.sides == Entry::ENTERED), as_key(&entry.key)?, counts))
        }));
    }
    let homes = Homes::of(nodes);
    let mut parts = network::decode(family, residuals, &known, |key, places| {
        homes.places(key, nodes, places);
    })
    .into_iter();
    for (node, decoded) in nodes.iter().zip(decoded) {
        let (entered, rest) = (parts.next().flatten(), parts.next().flatten());
        let (Some(residual), Some(rest)) = (node.residual::<K>(), rest) else { continue };
        let arrays = [residual.entered.as_ref(), Some(&residual.rest)];
        let buckets =
            arrays.into_iter().flatten().map(|part| (ARRAYS * part.shape().buckets) as u64);
        let is_complete = rest.is_complete && entered.as_ref().is_none_or(|it| it.is_complete);
        let counts = is_complete.then(|| {
            let entered = entered.map_or(Vec::new(), |of| of.flows);
            uncounted(node.is_edge, residual, entered, rest.flows)
        });
        let flows = counts.as_ref().map_or(0, |flows| flows.len() as u64);
        let counts = counts.map(|flows| joined(node.entries(), flows));
        *decoded = Some(Decoded { counts, flows, buckets: buckets.sum() });
    }
}

/// The flows of a residual of which these are in its parts, by rising keys: what was counted of
/// them, and on which sides they may have come.
fn uncounted<K: Key>(
    is_edge: bool,
    residual: &Residual<K>,
    entered: Vec<(K, Counts)>,
    rest: Vec<(K, Counts)>,
) -> Vec<Entry> {
    const ANY: u8 = Entry::ENTERED | Entry::PASSED | Entry::LEFT;
    let is_apart = residual.entered.is_some();
    let sides_of_rest = match (is_edge, is_apart) {
        _ if residual.mixed > 0 => ANY,
        (true, true) if residual.passed > 0 => Entry::PASSED | Entry::LEFT,
        (true, true) => Entry::LEFT,
        (false, false) => Entry::PASSED,
        // What belongs to another role.
        _ => ANY,
    };
    let of_entered = entered.into_iter().map(|(key, counts)| (key, counts, Entry::ENTERED));
    let of_rest = rest.into_iter().map(|(key, counts)| (key, counts, sides_of_rest));
    let wide = |(key, counts, sides): (K, Counts, u8)| Some(entry(as_key(&key)?, counts, sides));
    let mut flows: Vec<Entry> = of_entered.chain(of_rest).filter_map(wide).collect();
    flows.sort_by_key(|flow| flow.key);
    flows.dedup_by(|other, flow| {
        let is_same = other.key == flow.key;
        if is_same {
            flow.packets += other.packets;
            flow.bytes = flow.bytes.saturating_add(other.bytes);
            flow.sides = ANY;
        }
        is_same
    });
    flows
}

/// A flow that is in a residual: nothing is known of its times to live.
fn entry(key: WideKey, Counts { packets, bytes }: Counts, sides: u8) -> Entry {
    Entry { packets, bytes, sides, exact: true, ..Entry::new(key) }
}

/// All flows of a node whose residual has these: with that, counts of entries are complete.
fn joined(entries: &[Entry], uncounted: Vec<Entry>) -> Vec<(Entry, KeptIn)> {
    let mut all = Vec::with_capacity(entries.len() + uncounted.len());
    let (mut entries, mut uncounted) =
        (entries.iter().peekable(), uncounted.into_iter().peekable());
    loop {
        let (of_table, of_residual) =
            (entries.peek().map(|it| it.key), uncounted.peek().map(|it| it.key));
        let is_of = |key: Option<WideKey>, other: Option<WideKey>| {
            key.is_some_and(|key| other.is_none_or(|other| key <= other))
        };
        let entry = entries.next_if(|_| is_of(of_table, of_residual));
        let more = uncounted.next_if(|_| is_of(of_residual, of_table));
        all.push(match (entry, more) {
            (None, None) => return all,
            (Some(entry), None) => {
                // Lcores that saw it come with unlike times to live first don't know with which
                // ones the others of its packets came.
                let from = if entry.exact { KeptIn::Table } else { KeptIn::Both };
                (Entry { exact: true, ..*entry }, from)
            }
            (None, Some(flow)) => (flow, KeptIn::Residual),
            (Some(entry), Some(more)) => {
                // Packets are bounded where they come in; bytes may be whatever a node sends.
                let packets = entry.packets + more.packets;
                let bytes = entry.bytes.saturating_add(more.bytes);
                let sides = entry.sides | more.sides;
                (Entry { packets, bytes, sides, exact: true, ..*entry }, KeptIn::Both)
            }
        });
    }
}

/// The edges behind which addresses are, as far as entries show it. Who is behind several has that
/// of one of them.
struct Homes(HashMap<IpAddr, usize>);

impl Homes {
    fn of(nodes: &[Sent<'_>]) -> Self {
        let mut homes = HashMap::new();
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.is_edge) {
            for entry in node.entries() {
                let (src, dst) = entry.key.addresses();
                if entry.sides & Entry::ENTERED != 0 {
                    homes.insert(src, at);
                }
                if entry.sides & Entry::LEFT != 0 {
                    homes.insert(dst, at);
                }
            }
        }
        Self(homes)
    }

    /// Where packets of a flow can have been put, if nodes' filters say so. Of an edge about which
    /// nothing is known neither part: there the flow has to come out by itself.
    fn places<K: Key>(&self, key: &K, nodes: &[Sent<'_>], places: &mut Vec<usize>) {
        let (src, dst) = key.addresses();
        let (src, dst) = (self.0.get(&src).copied(), self.0.get(&dst).copied());
        for (at, node) in nodes.iter().enumerate() {
            let is_home = |home: Option<usize>| home == Some(at);
            let has_entered = match (src, dst) {
                _ if !node.is_edge => false,
                // What goes to a host of the same edge enters and does not leave.
                _ if is_home(src) => true,
                (Some(_), _) => false,
                (None, Some(_)) if !is_home(dst) => true,
                (None, Some(_)) => false,
                (None, None) => continue,
            };
            places.push(place(at, has_entered));
        }
    }
}

/// A flow's key as one of another kind.
fn as_key<K: Key, Other: Key>(key: &K) -> Option<Other> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    Other::new(src, dst, sport, dport, key.protocol())
}
