//! What became of the marks that probes carried from one edge to another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calumma_wire::ProbeSeen;

/// Marks that are tried.
pub(super) const MARKS: u8 = 8;

/// After how long a mark that was tried to a destination counts no more, in nanoseconds: all are
/// tried each minute.
const FORGET_NS: u64 = 150_000_000_000;

/// Most marks that are remembered, of 256 destinations; an edge has a few of another. Beyond that
/// the one that was tried longest ago makes room.
const MOST: usize = 256 * MARKS as usize;

/// A mark, and where it was tried to.
type Of = (IpAddr, u8);

/// The marks that were tried lately. Nothing here takes longer the more there are, since an edge
/// may say of any number that they have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// What each arrived as last, and when that probe was sent.
    arrived: BTreeMap<Of, (u8, u64)>,
    /// All of them, the one whose probe was sent first at the front.
    by_age: BTreeSet<(u64, Of)>,
    /// To how many destinations each mark was tried.
    tried: [usize; MARKS as usize],
    /// Those that arrived as another.
    changed: BTreeSet<Of>,
}

impl Marks {
    /// A probe has arrived.
    pub(super) fn take(&mut self, probe: &ProbeSeen) {
        if probe.mark >= MARKS {
            return;
        }
        while let Some(&(at_ns, of)) = self.by_age.first()
            && probe.sent_ns.saturating_sub(at_ns) >= FORGET_NS
        {
            self.forget(of);
        }
        let of = (probe.destination, probe.mark);
        if self.arrived.get(&of).is_some_and(|(_, at_ns)| *at_ns > probe.sent_ns) {
            return;
        }
        self.forget(of);
        if self.arrived.len() == MOST
            && let Some(&(_, oldest)) = self.by_age.first()
        {
            self.forget(oldest);
        }
        self.arrived.insert(of, (probe.arrived, probe.sent_ns));
        self.by_age.insert((probe.sent_ns, of));
        self.tried[usize::from(probe.mark)] += 1;
        if probe.arrived != probe.mark {
            self.changed.insert(of);
        }
    }

    fn forget(&mut self, of: Of) {
        if let Some((_, at_ns)) = self.arrived.remove(&of) {
            self.by_age.remove(&(at_ns, of));
            self.tried[usize::from(of.1)] -= 1;
            self.changed.remove(&of);
        }
    }

    /// How many of the eight have been tried.
    pub(super) fn tried(&self) -> u8 {
        self.tried.iter().filter(|&&destinations| destinations > 0).count() as u8
    }

    /// Those that did not come through: what was sent, and what arrived.
    pub(super) fn changed(&self) -> impl Iterator<Item = (u8, u8)> {
        self.changed.iter().filter_map(|of| Some((of.1, self.arrived.get(of)?.0)))
    }
}
