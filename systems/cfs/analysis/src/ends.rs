//! Where hosts are: flows that left nowhere and where they were to leave, and hosts behind several
//! edges.
//!
//! Where every edge has a count of each flow that it saw, a flow that entered at one and has no
//! count at any other lost all packets on its way. That it was to leave at all is known where its
//! destination is a host behind an edge: addresses of switches and of groups are not.
//!
//! Who translates addresses lets flows vanish, too, and puts others in their place. So nothing is
//! said in a window in which any flow left that had not entered, or more of it. Errors that routers
//! send by ICMP are such flows, and translations of nothing but ICMP.

use std::collections::{HashMap, HashSet};

use calumma_cfs::frames::Entry;
use calumma_wire::Role;

use crate::coverage::{Homes, dst};
use crate::report::KeptIn;
use crate::seen::{SINGLE, Seen};
use crate::view::{NodeView, View};

/// Windows for which an address is known.
const KEPT: u64 = 64;

/// Addresses that are known at most.
const MOST: usize = 1 << 20;

const ICMP: [u8; 2] = [1, 58];

/// Where hosts are, from the last windows.
#[derive(Debug, Default)]
pub(crate) struct Hosts(HashMap<[u8; 16], Host>);

#[derive(Clone, Copy, Debug)]
struct Host {
    /// The only edge that it is behind, by its position among all nodes.
    edge: Option<usize>,
    /// The last window in which it was behind it.
    window: u64,
    /// The last window in which it was behind another one than before, or behind several.
    moved: Option<u64>,
}

/// Where nothing of a flow came although packets of it were on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InVain {
    /// The edge behind which its destination was seen last, by its position in [`View::nodes`].
    pub(crate) edge: usize,
    /// Whether the destination cannot be behind another one.
    pub(crate) is_there: bool,
}

/// What all edges of a window together say.
#[derive(Debug)]
pub(crate) struct Ends<'h> {
    hosts: &'h Hosts,
    /// Protocols of which a flow may have left as another one; `None` where it may of any.
    translated: Option<HashSet<u8>>,
}

impl Hosts {
    /// Takes in who sent and received in a window. Gives the hosts of that window which were behind
    /// several edges in one of the last ones.
    pub(crate) fn learn(
        &mut self,
        view: &View<'_>,
        homes: &Homes,
        window: u64,
    ) -> HashSet<[u8; 16]> {
        let is_recent = |of: u64| (of..=of + KEPT).contains(&window);
        self.0.retain(|_, host| is_recent(host.window));
        let mut several = HashSet::new();
        for (address, node) in homes {
            let edge = node.map(|node| view.nodes[node].place);
            let known = self.0.get(address);
            let has_moved = edge.is_none() || known.is_some_and(|host| host.edge != edge);
            let before = known.and_then(|host| host.moved).filter(|of| is_recent(*of));
            let moved = if has_moved { Some(window) } else { before };
            if moved.is_some() {
                several.insert(*address);
            }
            if known.is_some() || self.0.len() < MOST {
                self.0.insert(*address, Host { edge, window, moved });
            }
        }
        several
    }

    /// What all edges of a window together say.
    pub(crate) fn ends(&self, view: &View<'_>) -> Ends<'_> {
        Ends { hosts: self, translated: translated(view) }
    }
}

/// Protocols of which flows left that had not entered; `None` where that is not known.
fn translated(view: &View<'_>) -> Option<HashSet<u8>> {
    let mut edges = view.nodes.iter().filter(|node| node.role == Role::Edge);
    let keys = edges.next()?.window.keys;
    // A switch that measures IPv4 alone knows nothing of others.
    if !view.has_all_flows() || edges.any(|edge| edge.window.keys != keys) {
        return None;
    }
    let mut protocols = HashSet::new();
    for (flow, seen) in view.flows() {
        let (mut entered, mut left) = (0_u64, 0_u64);
        for Seen { sides, packets, .. } in seen {
            if *sides == Entry::ENTERED {
                entered = entered.saturating_add(*packets);
            }
            if sides & Entry::LEFT != 0 {
                left = left.saturating_add(*packets);
            }
        }
        if left > entered {
            let protocol = flow.protocol();
            if !ICMP.contains(&protocol) {
                return None;
            }
            protocols.insert(protocol);
        }
    }
    Some(protocols)
}

impl Ends<'_> {
    /// Whether a flow that left nowhere can be known to have lost all packets.
    pub(crate) fn are_known(&self) -> bool {
        self.translated.is_some()
    }

    /// Whether nothing can be where flows did not go on that is not known: every node has counted
    /// each flow, edges in their tables all that entered there, and their routes did not change.
    pub(crate) fn show_all(&self, view: &View<'_>) -> bool {
        let shows = |node: &NodeView<'_>| {
            let is_edge = node.role == Role::Edge;
            let in_table = node.has_room_for_all() && !node.window.routes_changed;
            node.has_all() && (!is_edge || in_table)
        };
        let has_all_that_entered = |seen: &Seen<'_>| {
            let has_entered = seen.sides & Entry::ENTERED != 0;
            !has_entered || view.node(seen).role != Role::Edge || seen.is_exact_on(Entry::ENTERED)
        };
        self.are_known()
            && view.nodes.iter().all(shows)
            && view.flows().all(|(_, seen)| seen.iter().all(has_all_that_entered))
    }

    /// Where nothing of a flow came although packets of it were on their way to a host; `None`
    /// where that is not known. `entered` is its count where it entered.
    pub(crate) fn reached_in_vain(
        &self,
        view: &View<'_>,
        seen: &[Seen<'_>],
        entered: &Seen<'_>,
    ) -> Option<InVain> {
        let key = &entered.entry.key;
        let has_gone = entered.sides == Entry::ENTERED
            && entered.from == KeptIn::Table
            && entered.entry.rank.class() != SINGLE
            && !view.may_stay(seen, entered)
            && !view.node(entered).window.routes_changed;
        let is_whole = self.translated.as_ref().is_some_and(|of| !of.contains(&key.protocol()));
        let has_left = seen.iter().any(|seen| seen.sides & Entry::LEFT != 0);
        if !has_gone || !is_whole || has_left {
            return None;
        }
        let host = self.hosts.0.get(dst(key))?;
        let home = host.edge?;
        let edge = view.nodes.iter().position(|node| node.place == home)?;
        // Silent hosts move unseen: nothing shows behind which edge one is now.
        let is_there = !view.may_move() && host.moved.is_none();
        (edge != entered.node()).then_some(InVain { edge, is_there })
    }
}
