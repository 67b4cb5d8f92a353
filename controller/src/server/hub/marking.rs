//! How the connected edges mark packets and read them: all alike.

use std::collections::BTreeSet;

use calumma_wire::Marking;

/// The marking of the edges that are connected.
#[derive(Debug, Default)]
pub(super) struct Marked {
    marking: Marking,
    /// Positions of the edges that are connected.
    edges: BTreeSet<usize>,
}

impl Marked {
    /// Why the node at `position` can't be let in: an edge marks packets otherwise, or reads them
    /// otherwise, and everything between the two would seem lost. `name_of` gives an edge's name.
    pub(super) fn mismatch<'a>(
        &self,
        position: usize,
        marking: &Marking,
        name_of: impl Fn(usize) -> &'a str,
    ) -> Option<String> {
        let other = self.edges.iter().copied().find(|&other| other != position)?;
        let (Marking { carrier, tunnels }, name) = (marking, name_of(other));
        let theirs = &self.marking.carrier;
        if theirs != carrier {
            return Some(format!(
                "its packets carry their mark by {carrier:?}, those of {name} by {theirs:?}: give all \
                 edges the same [carrier] and programs of one release; a Tofino knows \"tos\" only"
            ));
        }
        let theirs = &self.marking.tunnels;
        (theirs != tunnels).then(|| {
            format!(
                "it measures packets in tunnels by their {tunnels} header, {name} by the {theirs} one: \
                 give all edges the same [measure] tunnels"
            )
        })
    }

    /// Notes that an edge is connected whose marking mismatches no other's.
    pub(super) fn insert(&mut self, position: usize, marking: Marking) {
        self.marking = marking;
        self.edges.insert(position);
    }

    /// Notes that an edge is gone.
    pub(super) fn remove(&mut self, position: usize) {
        self.edges.remove(&position);
    }
}
