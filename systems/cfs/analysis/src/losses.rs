//! Where flows lost packets: between two nodes that counted all of a flow, and where nothing went
//! on any more.
//!
//! Both count a packet in the window that it was stamped with, so what one has and the other lacks
//! is lost, and not on its way. Of a flow that left nowhere no edge has counted any that left
//! ([`crate::ends`]): it was lost before its destination, and which edge is before that is known
//! only of hosts that do not move.

use std::collections::{BTreeMap, BTreeSet};

use calumma_analysis::Flow;
use calumma_cfs::frames::Entry;
use calumma_topology::Place;

use crate::addresses::Ranked;
use crate::ends::{Ends, InVain};
use crate::flows::{in_order, is_all_of_the_flow};
use crate::report::{BlackHole, DESTINATION, KeptIn, Loss};
use crate::seen::Seen;
use crate::view::{NodeView, View};

/// Packets of flows that were lost altogether, that make a black hole: else they may be a few that
/// a bad link took.
const LEAST_PACKETS: u64 = 10;

/// What was lost in a window.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) losses: Vec<Loss>,
    /// Flows of which nothing came on: by the node that had them last, and by the edge behind which
    /// their destinations were seen last.
    vanished: BTreeMap<(usize, usize), Vanished>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Vanished {
    flows: u64,
    packets: u64,
    /// Whether some destinations may be behind another edge now.
    may_be_elsewhere: bool,
}

impl Vanished {
    fn add(&mut self, other: Self) {
        self.flows += other.flows;
        self.packets = self.packets.saturating_add(other.packets);
        self.may_be_elsewhere |= other.may_be_elsewhere;
    }
}

impl Losses {
    /// Adds those of a flow.
    pub(crate) fn add(
        &mut self,
        view: &View<'_>,
        ends: &Ends<'_>,
        flow: &Ranked,
        seen: &[Seen<'_>],
    ) {
        let is_same = |pair: &[Seen<'_>]| pair[0].packets == pair[1].packets;
        // No node has more than another, and nobody knows of others where nothing left.
        if !ends.are_known() && seen.windows(2).all(is_same) {
            return;
        }
        let flow = || Flow::from(&view.key(flow));
        let all_of_it = |at: &Seen<'_>| is_all_of_the_flow(view, seen, at);
        let counts: Vec<Seen<'_>> = in_order(seen.to_vec()).into_iter().filter(all_of_it).collect();
        let falls = |pair: &[Seen<'_>]| pair[0].packets >= pair[1].packets;
        // Where more came out of a segment than went in, copies hide what was lost elsewhere.
        if !counts.windows(2).all(|pair| falls(pair) && is_way(view, pair)) {
            return;
        }
        let lost = |pair: &[Seen<'_>]| pair[0].packets - pair[1].packets;
        // What seems to be lost may have gone to a host of the edge where it entered.
        let has_entered = |at: &&Seen<'_>| at.sides == Entry::ENTERED;
        if counts.windows(2).any(|pair| lost(pair) > 0)
            && counts.first().filter(has_entered).is_some_and(|at| view.may_stay(seen, at))
        {
            return;
        }
        for pair in counts.windows(2) {
            let lost = lost(pair);
            if lost > 0 {
                let place = place(view.node(&pair[0]), Some(view.node(&pair[1])));
                self.losses.push(Loss { flow: flow(), place, lost, seen_behind: None });
            }
        }
        let (Some(first), Some(last)) = (counts.first(), counts.last()) else { return };
        if let Some(InVain { edge, is_there }) = ends.reached_in_vain(view, seen, first) {
            let lost = last.packets;
            let of_edge = &view.nodes[edge];
            let place = place(view.node(last), is_there.then_some(of_edge));
            let seen_behind = Some(of_edge.name.to_owned());
            self.losses.push(Loss { flow: flow(), place, lost, seen_behind });
            let of_flow = Vanished { flows: 1, packets: lost, may_be_elsewhere: !is_there };
            self.vanished.entry((last.node(), edge)).or_default().add(of_flow);
        }
    }

    /// Nodes that have a count of every flow that they saw, and edges to which nothing came of any
    /// flow that they saw.
    pub(crate) fn black_holes(&self, view: &View<'_>) -> Vec<BlackHole> {
        let mut holes = self.vanished.clone();
        holes.retain(|&(node, _), _| view.nodes[node].has_all());
        // Nodes of which something came on to any edge.
        let mut alive = BTreeSet::new();
        if !holes.is_empty() {
            for (_, seen) in view.flows() {
                for left in seen.iter().filter(|seen| seen.sides & Entry::LEFT != 0) {
                    let others = seen.iter().filter(|other| other.node() != left.node());
                    others.for_each(|other| {
                        holes.remove(&(other.node(), left.node()));
                        alive.insert(other.node());
                    });
                }
            }
        }
        let mut found: Vec<BlackHole> = Vec::new();
        let holes: Vec<_> = holes.into_iter().collect();
        for of_node in holes.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
            let &[((node, _), _), ..] = of_node else { continue };
            let from = &view.nodes[node];
            if of_node.len() > 1 && !alive.contains(&node) {
                let mut all = Vanished::default();
                of_node.iter().for_each(|(_, of)| all.add(*of));
                let Vanished { flows, packets, .. } = all;
                let place = place(from, None);
                found.push(BlackHole { place, seen_behind: None, flows, packets });
                continue;
            }
            for &((_, edge), Vanished { flows, packets, may_be_elsewhere }) in of_node {
                let edge = &view.nodes[edge];
                let place = place(from, (!may_be_elsewhere).then_some(edge));
                let seen_behind = Some(edge.name.to_owned());
                found.push(BlackHole { place, seen_behind, flows, packets });
            }
        }
        found.retain(|hole| hole.packets >= LEAST_PACKETS);
        found
    }
}

/// Whether the first of two counts is nearer to the flow's source.
fn is_way(view: &View<'_>, pair: &[Seen<'_>]) -> bool {
    let [from, to] = [pair[0], pair[1]];
    let (enters, leaves) = (from.sides == Entry::ENTERED, to.sides == Entry::LEFT);
    if pair.iter().any(|seen| seen.from == KeptIn::Residual) {
        // Without times to live, ends are known for what they are.
        return enters || leaves;
    }
    // Where ports or marks say the hop, edges may be bumps in the wire, which take nothing off.
    let is_bump = enters && view.setup.hop.is_said() && from.ttl == to.ttl;
    from.ttl > to.ttl || enters && leaves || is_bump
}

fn point(node: &NodeView<'_>) -> String {
    format!("{}:in", node.name)
}

/// From where one node received packets to where another one did, or to where their way ends.
fn place(from: &NodeView<'_>, to: Option<&NodeView<'_>>) -> Place {
    Place { from: point(from), to: to.map_or_else(|| DESTINATION.to_owned(), point) }
}
