//! Loops and changes of path, from the times to live with which a flow's packets came to a node.
//!
//! A packet in a loop of `length` hops comes by each of its nodes again with so much less time to
//! live, until it has none. So differences from the first packet are all multiples of the length,
//! from the first on.

use std::collections::BTreeMap;

use calumma_analysis::Flow;
use calumma_cfs::frames::Suspect;
use calumma_sketch::WideKey;

use crate::flows::in_order;
use crate::report::{KeptIn, Loop, PathChange};
use crate::view::{Seen, View};

/// Times to live that make a loop.
const LEAST: u32 = 3;

/// Times to live that make one for certain: chance makes so many equal steps down to the end in no
/// host's packets, whatever times to live it draws.
const CERTAIN: u32 = 6;

/// A flow's turns at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    /// The first time to live.
    ttl: u8,
    length: u8,
    /// Times to live, the first included.
    number: u32,
    /// Whether they go on for as long as packets live, or as differences show.
    to_the_end: bool,
}

impl Turns {
    fn are_certain(&self) -> bool {
        self.to_the_end && self.number >= CERTAIN
    }
}

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

/// Appends what the times to live of a flow show, of which nodes have an entry or a suspicion.
pub(crate) fn find(
    view: &View<'_>,
    key: &WideKey,
    (seen, suspected): (&[Seen<'_>], &[(usize, &Suspect)]),
    (loops, changes): (&mut Vec<Loop>, &mut Vec<PathChange>),
) {
    if suspected.is_empty() && seen.iter().all(|seen| seen.entry.differences == 0) {
        return;
    }
    let flow = Flow::from(key);
    let mut all: Vec<At> = Vec::new();
    // Where a residual has packets as well, nobody knows with which times to live they came.
    let seen = seen.iter().copied().filter(|seen| seen.from == KeptIn::Table);
    for at in in_order(seen.collect()) {
        let entry = at.entry;
        if let Some(turns) = turns(entry.ttl, entry.differences) {
            all.push((at.node, turns, Some(entry.packets - entry.looped)));
        } else if entry.differences != 0 {
            changes.push(path_change(view, flow, &at));
        }
    }
    for &(node, suspect) in suspected {
        let has_turns = all.iter().any(|(of, ..)| *of == node);
        let turns = turns(suspect.ttl, suspect.differences).filter(Turns::are_certain);
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
            ttls: (0..first.number).map(|turn| first.ttl - turn as u8 * first.length).collect(),
            packets,
            certain: nodes.iter().any(|(_, turns, _)| turns.are_certain()),
        });
    }
}

/// The turns that a flow's times to live show, if they show a loop: the first of them, and
/// differences from it as those of [`Entry::differences`].
fn turns(ttl: u8, differences: u64) -> Option<Turns> {
    if differences & 1 != 0 && differences.count_ones() == 1 {
        return None;
    }
    let length = (differences & !1).trailing_zeros() as u8;
    // No packet comes again with one less: it would have met no other router.
    if !(Suspect::LEAST_LENGTH..64).contains(&length) {
        return None;
    }
    // Packets live on for so many hops; beyond 63 all are one bit.
    let most = u32::from(ttl.saturating_sub(1).min(63) / length);
    let seen = (1..=most).take_while(|turn| differences >> (turn * u32::from(length)) & 1 == 1);
    let seen = seen.count() as u32;
    let multiples = (1..=seen).fold(0_u64, |bits, turn| bits | 1 << (turn * u32::from(length)));
    let number = seen + 1;
    if number < LEAST || differences & !1 != multiples {
        return None;
    }
    // The one bit for all others is set where packets came again with more than 63 less.
    let lives_longer = u32::from(ttl.saturating_sub(1) / length) > most;
    let to_the_end = seen == most && (differences & 1 != 0) == lives_longer;
    Some(Turns { ttl, length, number, to_the_end })
}

fn path_change(view: &View<'_>, flow: Flow, at: &Seen<'_>) -> PathChange {
    let entry = at.entry;
    PathChange {
        flow,
        node: view.node(at).name.to_owned(),
        ttl: entry.ttl,
        shorter_by: (1..64).filter(|less| entry.differences >> less & 1 == 1).collect(),
        others: entry.differences & 1 == 1,
        packets: entry.looped,
    }
}

#[cfg(test)]
mod tests {
    use calumma_cfs::frames::Entry;

    use super::*;

    /// What is made of packets that came with these times to live, in this order.
    fn of(ttls: impl IntoIterator<Item = u8>) -> Option<(u8, u32, bool)> {
        let ttls: Vec<u8> = ttls.into_iter().collect();
        let others = ttls.iter().filter(|&&ttl| ttl != ttls[0]);
        let differences = others.fold(0, |bits, &ttl| bits | Entry::difference(ttls[0], ttl));
        let turns = turns(ttls[0], differences);
        turns.map(|turns| (turns.length, turns.number, turns.are_certain()))
    }

    #[test]
    fn packets_that_go_round_until_they_die_are_in_a_loop_for_certain() {
        for length in 2..=7 {
            for first in [30, 62, 64, 65, 126, 250] {
                let all = (1..=first).rev().step_by(length.into());
                let (found, number, certain) =
                    of(all).unwrap_or_else(|| panic!("{first} {length}"));
                // Only of a long loop and packets that begin with little is it uncertain.
                let is_enough = number >= CERTAIN;
                assert_eq!((found, certain), (length, is_enough), "{first} {length}");
                assert!(is_enough || first == 30 && length > 5, "{first} {length}");
            }
        }
        // One that is repaired in the middle may have been a host.
        assert_eq!(of([63, 61, 59]), Some((2, 3, false)));
    }

    #[test]
    fn a_change_of_path_is_no_loop() {
        assert_eq!(of([63, 61, 61]), None);
        assert_eq!(of([63, 62, 60]), None);
        assert_eq!(of([61, 63]), None);
        // A traceroute that keeps its ports.
        assert_eq!(of(1..30), None);
        assert_eq!(of((1..30).rev()), None);
        // Two hosts behind one address, each with its own system.
        assert_eq!(of([127, 63, 127, 63]), None);
    }
}
