//! Where flows lost packets: between two nodes that counted all of a flow.
//!
//! Both count a packet in the window that it was stamped with, so what one has and the other lacks
//! is lost, and not on its way.

use calumma_analysis::Flow;
use calumma_cfs::frames::Entry;
use calumma_sketch::WideKey;
use calumma_topology::Place;

use crate::flows::{in_order, is_all_of_the_flow};
use crate::report::{From, Loss};
use crate::view::{Seen, View};

/// Appends the losses of a flow.
pub(crate) fn find(view: &View<'_>, key: &WideKey, seen: &[Seen<'_>], losses: &mut Vec<Loss>) {
    let all_of_it = |at: &Seen<'_>| is_all_of_the_flow(view, seen, at);
    let counts: Vec<Seen<'_>> = in_order(seen.to_vec()).into_iter().filter(all_of_it).collect();
    let falls = |pair: &[Seen<'_>]| pair[0].entry.packets >= pair[1].entry.packets;
    let is_way = |pair: &[Seen<'_>]| {
        let [from, to] = [pair[0].entry, pair[1].entry];
        let (enters, leaves) = (from.sides == Entry::ENTERED, to.sides == Entry::LEFT);
        if pair.iter().any(|seen| seen.from == From::Residual) {
            // Without times to live, ends are known for what they are.
            return enters || leaves;
        }
        from.ttl > to.ttl || enters && leaves
    };
    // Where more came out of a segment than went in, copies hide what was lost elsewhere.
    if !counts.windows(2).all(|pair| falls(pair) && is_way(pair)) {
        return;
    }
    for pair in counts.windows(2) {
        let lost = pair[0].entry.packets - pair[1].entry.packets;
        if lost > 0 {
            let point = |seen: &Seen<'_>| format!("{}:in", view.node(seen).name);
            let place = Place { from: point(&pair[0]), to: point(&pair[1]) };
            losses.push(Loss { flow: Flow::from(key), place, lost });
        }
    }
}
