//! Loops and changes of path, from the times to live with which a flow's packets came to a node.
//!
//! A packet in a loop of `length` hops comes by each of its nodes again with so much less time to
//! live, until it has none. So differences from the first packet are all multiples of the length,
//! from the first on.

use calumma_analysis::Flow;
use calumma_cfs::frames::Entry;
use calumma_sketch::WideKey;

use crate::flows::in_order;
use crate::report::{KeptIn, Loop, PathChange};
use crate::view::{Seen, View};

/// Times to live that make a loop.
const LEAST: u32 = 3;

/// A flow's turns at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    length: u8,
    /// Times to live, the first included.
    number: u32,
    /// Whether they go on for as long as packets live, or as differences show.
    to_the_end: bool,
}

/// Appends what the times to live of a flow show.
pub(crate) fn find(
    view: &View<'_>,
    key: &WideKey,
    seen: &[Seen<'_>],
    (loops, changes): (&mut Vec<Loop>, &mut Vec<PathChange>),
) {
    if seen.iter().all(|seen| seen.entry.differences == 0) {
        return;
    }
    let flow = Flow::from(key);
    let mut by_length: Vec<(u8, Vec<(Seen<'_>, Turns)>)> = Vec::new();
    // Where a residual has packets as well, nobody knows with which times to live they came.
    let seen = seen.iter().copied().filter(|seen| seen.from == KeptIn::Table);
    for at in in_order(seen.collect()) {
        if let Some(turns) = turns(at.entry) {
            match by_length.iter_mut().find(|(length, _)| *length == turns.length) {
                Some((_, nodes)) => nodes.push((at, turns)),
                None => by_length.push((turns.length, vec![(at, turns)])),
            }
        } else if at.entry.differences != 0 {
            changes.push(path_change(view, flow, &at));
        }
    }
    for (length, mut nodes) in by_length {
        nodes.sort_by_key(|(at, _)| u8::MAX - at.entry.ttl);
        let (first, turns) = nodes[0];
        let entry = first.entry;
        loops.push(Loop {
            flow,
            nodes: nodes.iter().map(|(at, _)| view.node(at).name.to_owned()).collect(),
            length,
            ttls: (0..turns.number).map(|turn| entry.ttl - turn as u8 * length).collect(),
            packets: entry.packets - entry.looped,
            certain: nodes.iter().any(|(_, turns)| turns.to_the_end),
        });
    }
}

/// The turns that an entry shows, if it shows a loop.
fn turns(entry: &Entry) -> Option<Turns> {
    let differences = entry.differences;
    if differences & 1 != 0 && differences.count_ones() == 1 {
        return None;
    }
    let length = (differences & !1).trailing_zeros() as u8;
    // Packets live on for so many hops; beyond 63 all are one bit.
    let most = u32::from(entry.ttl.saturating_sub(1).min(63) / length);
    let seen = (1..=most).take_while(|turn| differences >> (turn * u32::from(length)) & 1 == 1);
    let seen = seen.count() as u32;
    let multiples = (1..=seen).fold(0_u64, |bits, turn| bits | 1 << (turn * u32::from(length)));
    let number = seen + 1;
    if number < LEAST || differences & !1 != multiples {
        return None;
    }
    // The one bit for all others is set where packets came again with more than 63 less.
    let lives_longer = u32::from(entry.ttl.saturating_sub(1) / length) > most;
    let to_the_end = seen == most && (differences & 1 != 0) == lives_longer;
    Some(Turns { length, number, to_the_end })
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
    use calumma_sketch::table::Rank;

    use super::*;

    /// An entry of packets that came with these times to live, in this order.
    fn entry(ttls: impl IntoIterator<Item = u8>) -> Entry {
        let ttls: Vec<u8> = ttls.into_iter().collect();
        let others = || ttls.iter().filter(|&&ttl| ttl != ttls[0]);
        Entry {
            key: WideKey::default(),
            packets: ttls.len() as u64,
            bytes: 0,
            rank: Rank::default(),
            ttl: ttls[0],
            differences: others().fold(0, |bits, &ttl| bits | Entry::difference(ttls[0], ttl)),
            looped: others().count() as u64,
            first_us: 0,
            last_us: 0,
            sides: Entry::PASSED,
            exact: true,
        }
    }

    fn of(ttls: impl IntoIterator<Item = u8>) -> Option<(u8, u32, bool)> {
        turns(&entry(ttls)).map(|turns| (turns.length, turns.number, turns.to_the_end))
    }

    #[test]
    fn packets_that_go_round_until_they_die_are_in_a_loop_for_certain() {
        for length in 2..=7 {
            for first in [30, 62, 64, 65, 126, 250] {
                let all = (1..=first).rev().step_by(length.into());
                let (found, _, certain) = of(all).unwrap_or_else(|| panic!("{first} {length}"));
                assert_eq!((found, certain), (length, true), "{first} {length}");
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
        // Two hosts behind one address, each with its own system.
        assert_eq!(of([127, 63, 127, 63]), None);
    }
}
