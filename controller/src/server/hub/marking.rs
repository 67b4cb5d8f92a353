//! How the connected edges mark packets and read them: all alike.
//!
//! Edges that mark otherwise than those that are connected are refused. But that one came first is
//! no reason why it should be right: every edge has a vote, what it connected with last, and where
//! more edges want one marking than have the one in force, that one is in force from then on, and
//! those of the other are disconnected.

use std::collections::{BTreeMap, BTreeSet};

use calumma_wire::Marking;

/// How long an edge that was refused has its vote, and how long a marking that was voted for is in
/// force without an edge. Refused edges come again every five seconds.
const VOTE_NS: u64 = 60_000_000_000;

/// The marking of the edges that are connected.
#[derive(Debug, Default)]
pub(super) struct Marked {
    marking: Marking,
    /// Until when the marking is in force, though no edge be connected.
    until_ns: u64,
    /// Positions of the edges that are connected.
    edges: BTreeSet<usize>,
    /// What edges that were refused wanted, and when.
    votes: BTreeMap<usize, (Marking, u64)>,
}

/// Why an edge can't be let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// In words.
    pub(super) problem: String,
    /// Positions of edges that are to be disconnected, as most edges mark otherwise than these.
    pub(super) outvoted: Vec<usize>,
}

impl Marked {
    /// Why the node at `position`, an edge where it votes, can't be let in: it marks packets
    /// otherwise, or reads them otherwise, and everything between the two would seem lost.
    /// `name_of` gives an edge's name.
    pub(super) fn mismatch<'a>(
        &mut self,
        (position, votes): (usize, bool),
        marking: &Marking,
        now_ns: u64,
        name_of: impl Fn(usize) -> &'a str,
    ) -> Option<Mismatch> {
        let in_force = self.in_force(position, now_ns)?;
        if in_force == marking {
            return None;
        }
        self.votes.retain(|_, (_, at_ns)| now_ns < at_ns.saturating_add(VOTE_NS));
        if votes {
            self.votes.insert(position, (marking.clone(), now_ns));
        }
        let theirs = self.another(position).map_or("the other edges", name_of);
        let problem = differs(marking, &self.marking, theirs)?;
        let of = |wanted: &Marking| self.votes.values().filter(|(of, _)| of == wanted).count();
        // An edge has one vote, whether it is connected or not.
        let connected = self.edges.iter().filter(|edge| !self.votes.contains_key(edge)).count();
        if of(marking) <= connected + of(&self.marking) {
            return Some(Mismatch { problem, outvoted: Vec::new() });
        }
        for edge in &self.edges {
            self.votes.insert(*edge, (self.marking.clone(), now_ns));
        }
        let outvoted = std::mem::take(&mut self.edges).into_iter().collect();
        (self.marking, self.until_ns) = (marking.clone(), now_ns.saturating_add(VOTE_NS));
        let problem =
            format!("{problem}; as most edges mark as it does, it may come again at once");
        Some(Mismatch { problem, outvoted })
    }

    /// How edges mark packets while the one at `position` is not there; `None` where that is open.
    pub(super) fn in_force(&self, position: usize, now_ns: u64) -> Option<&Marking> {
        let is_so = self.another(position).is_some() || now_ns < self.until_ns;
        is_so.then_some(&self.marking)
    }

    /// An edge that is connected and not at this position.
    fn another(&self, position: usize) -> Option<usize> {
        self.edges.iter().copied().find(|&other| other != position)
    }

    /// Puts another carrier in force, and nobody is connected that marks by it yet.
    pub(super) fn put_in_force(&mut self, carrier: &str, now_ns: u64) {
        carrier.clone_into(&mut self.marking.carrier);
        self.until_ns = now_ns.saturating_add(VOTE_NS);
        self.edges.clear();
        self.votes.clear();
    }

    /// Notes that an edge is connected whose marking mismatches no other's.
    pub(super) fn insert(&mut self, position: usize, marking: Marking) {
        self.marking = marking;
        self.votes.remove(&position);
        self.edges.insert(position);
    }

    /// Notes that an edge is gone.
    pub(super) fn remove(&mut self, position: usize) {
        self.edges.remove(&position);
    }
}

/// In what a marking differs from that of others, in words.
fn differs(marking: &Marking, other: &Marking, others: &str) -> Option<String> {
    let Marking { carrier, tunnels, .. } = marking;
    let theirs = &other.carrier;
    if theirs != carrier {
        return Some(format!(
            "its packets carry their mark by {carrier:?}, those of {others} by {theirs:?}: give all \
             edges the same [carrier], or none, and programs of one release; a Tofino knows \"tos\" and \
             \"ip-id\" only"
        ));
    }
    let theirs = &other.tunnels;
    (theirs != tunnels).then(|| {
        format!(
            "it measures packets in tunnels by their {tunnels} header, {others} by the {theirs} one: \
             give all edges the same [measure] tunnels"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(carrier: &str) -> Marking {
        Marking { carrier: carrier.to_owned(), ..Marking::default() }
    }

    /// Who is let in, or whom it costs the connection.
    fn connect(marked: &mut Marked, position: usize, carrier: &str, now_s: u64) -> Vec<usize> {
        let mismatch =
            marked.mismatch((position, true), &by(carrier), now_s * 1_000_000_000, |_| "another");
        match mismatch {
            None => {
                marked.insert(position, by(carrier));
                vec![position]
            }
            Some(mismatch) => mismatch.outvoted,
        }
    }

    #[test]
    fn one_that_is_first_and_wrong_gives_way_to_two_that_agree() {
        let mut marked = Marked::default();
        assert_eq!(connect(&mut marked, 0, "shim", 0), [0]);
        assert!(connect(&mut marked, 1, "tos", 1).is_empty());
        assert!(connect(&mut marked, 1, "tos", 6).is_empty(), "one vote, however often");
        assert_eq!(connect(&mut marked, 2, "tos", 7), [0]);
        assert!(connect(&mut marked, 0, "shim", 8).is_empty(), "though nobody is connected");
        assert_eq!(connect(&mut marked, 1, "tos", 11), [1]);
        assert_eq!(connect(&mut marked, 2, "tos", 12), [2]);
        assert!(connect(&mut marked, 0, "shim", 13).is_empty());
    }

    #[test]
    fn one_that_is_wrong_and_comes_again_and_again_puts_nobody_out() {
        let mut marked = Marked::default();
        assert_eq!(connect(&mut marked, 0, "tos", 0), [0]);
        for now_s in 1..200 {
            assert!(connect(&mut marked, 1, "shim", now_s).is_empty());
        }
        // Votes of long ago don't count.
        assert!(connect(&mut marked, 2, "shim", 300).is_empty());
    }

    #[test]
    fn edges_that_all_change_are_let_in_again() {
        let mut marked = Marked::default();
        assert_eq!(connect(&mut marked, 0, "tos", 0), [0]);
        marked.remove(0);
        assert_eq!(connect(&mut marked, 0, "shim", 1), [0]);
    }
}
