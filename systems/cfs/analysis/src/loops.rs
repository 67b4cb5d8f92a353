//! Loops and changes of path, from the times to live with which a flow's packets came to a node.

use std::collections::BTreeMap;

use calumma_analysis::Flow;
use calumma_cfs::Turns;
use calumma_cfs::frames::{Notice, Suspect};
use calumma_sketch::WideKey;

use crate::flows::in_order;
use crate::report::{KeptIn, Loop, PathChange};
use crate::seen::Seen;
use crate::view::{NodeView, View};

/// Turns of a flow at the node with this position, and packets that it received, each once, where
/// that is known.
type At = (usize, Turns, Option<u64>);

/// Flows without an entry that nodes suspect, each with the positions of these nodes.
pub(crate) fn suspects<'a>(view: &View<'a>) -> BTreeMap<&'a WideKey, Vec<(usize, &'a Suspect)>> {
    let mut by_flow: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, node) in view.nodes.iter().enumerate() {
        for suspect in node.window.suspects.iter().flat_map(|of| &of.flows) {
            by_flow.entry(&suspect.key).or_default().push((at, suspect));
        }
    }
    by_flow
}

/// Whether every node watched each flow that it saw. Of one that came to several lcores with unlike
/// times to live first, tables do not have all that it came with; a Tofino's guard has.
pub(crate) fn are_watched(view: &View<'_>) -> bool {
    let is_hidden = |seen: &Seen<'_>| {
        let guards = view.setup.guard && view.node(seen).has_rows;
        seen.differs && seen.looped().is_none() && !guards
    };
    view.nodes.iter().all(NodeView::has_watched)
        && !view.flows().any(|(_, seen)| seen.iter().any(is_hidden))
}

/// Appends what the times to live of a flow show, of which nodes have an entry or a suspicion.
pub(crate) fn find(
    view: &View<'_>,
    key: &WideKey,
    (seen, suspected): (&[Seen<'_>], &[(usize, &Suspect)]),
    (loops, changes): (&mut Vec<Loop>, &mut Vec<PathChange>),
) {
    if suspected.is_empty() && seen.iter().all(|seen| !seen.differs) {
        return;
    }
    let flow = Flow::from(key);
    let mut all: Vec<At> = Vec::new();
    // Where a residual has packets as well, nobody knows with which times to live they came.
    let seen = seen.iter().copied().filter(|seen| seen.from == KeptIn::Table);
    for at in in_order(seen.collect()) {
        let entry = at.entry;
        if let Some(turns) = Turns::of(entry.ttl, entry.differences) {
            all.push((at.node(), turns, at.looped().map(|looped| at.packets - looped)));
        } else if entry.differences != 0 {
            changes.push(path_change(view, flow, &at));
        }
    }
    for &(node, suspect) in suspected {
        let has_turns = all.iter().any(|(of, ..)| *of == node);
        let turns = Turns::of(suspect.ttl, suspect.differences).filter(Turns::are_certain);
        all.extend(turns.filter(|_| !has_turns).map(|turns| (node, turns, None)));
    }
    // A node with many times to live came first to see the packets.
    all.sort_by_key(|(_, turns, _)| (turns.length, u8::MAX - turns.ttl));
    for nodes in all.chunk_by(|(_, one, _), (_, other, _)| one.length == other.length) {
        let [(_, first, packets), ..] = *nodes else { continue };
        loops.push(Loop {
            flow,
            nodes: nodes.iter().map(|(at, ..)| view.nodes[*at].name.to_owned()).collect(),
            length: first.length,
            ttls: first.ttls(),
            packets,
            certain: nodes.iter().any(|(_, turns, _)| turns.are_certain()),
        });
    }
}

/// What a node has reported before a window is over.
pub(crate) fn noticed(node: &str, notice: &Notice) -> Vec<Loop> {
    let of = |suspect: &Suspect| {
        let turns = Turns::of(suspect.ttl, suspect.differences)?;
        Some(Loop {
            flow: Flow::from(&suspect.key),
            nodes: vec![node.to_owned()],
            length: turns.length,
            ttls: turns.ttls(),
            packets: None,
            certain: turns.are_certain(),
        })
    };
    notice.flows.iter().filter_map(of).collect()
}

fn path_change(view: &View<'_>, flow: Flow, at: &Seen<'_>) -> PathChange {
    let entry = at.entry;
    PathChange {
        flow,
        node: view.node(at).name.to_owned(),
        ttl: entry.ttl,
        shorter_by: (1..64).filter(|less| entry.differences >> less & 1 == 1).collect(),
        others: entry.differences & 1 == 1,
        packets: at.looped(),
    }
}
