//! What a switch has counted since it began to measure, whatever kind of switch it is.

use calumma_sketch::either;

use crate::frames::{Totals, Window};

/// Sums over all windows that are finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    totals: Totals,
    /// Packets that were put into residuals.
    residual: u64,
    looped: u64,
    inexact: u64,
    /// Flows without an entry that may have been in a loop.
    guard: u64,
    guard_missed: u64,
}

impl Sums {
    /// Adds what was kept in a window.
    pub fn add(&mut self, window: &Window) {
        let (sum, more) = (&mut self.totals, &window.totals);
        sum.packets += more.packets;
        sum.refused_packets += more.refused_packets;
        sum.evicted_packets += more.evicted_packets;
        sum.admitted += more.admitted;
        sum.evicted += more.evicted;
        sum.refused += more.refused;
        sum.filtered += more.filtered;
        sum.crowded += more.crowded;
        sum.unmarked += more.unmarked;
        sum.claimed_in += more.claimed_in;
        sum.claimed_out += more.claimed_out;
        if let Some(uncounted) = &window.uncounted {
            self.residual += either!(&uncounted.flows, residual => residual.packets());
        }
        if let Some(suspects) = &window.suspects {
            self.guard += suspects.flows.len() as u64;
            self.guard_missed += suspects.missed;
        }
        for entry in &window.entries {
            self.looped += entry.looped;
            self.inexact += u64::from(!entry.exact);
        }
    }

    /// Leaves out so many of a window's packets without a mark, which another one has as well.
    pub fn leave_out_unmarked(&mut self, packets: u64) {
        self.totals.unmarked = self.totals.unmarked.saturating_sub(packets);
    }

    /// The sums by the names of the switch's totals: packets, but for flows `admitted`, `evicted`,
    /// `refused`, `inexact` and `guard`.
    pub fn named(&self) -> [(&'static str, u64); 17] {
        let Self { totals, residual, looped, inexact, guard, guard_missed } = *self;
        let out = totals.refused_packets + totals.evicted_packets;
        [
            ("cfs.recorded", totals.packets),
            ("cfs.counted", totals.packets - out),
            ("cfs.refused_packets", totals.refused_packets),
            ("cfs.evicted_packets", totals.evicted_packets),
            ("cfs.residual", residual),
            ("cfs.admitted", totals.admitted),
            ("cfs.evicted", totals.evicted),
            ("cfs.refused", totals.refused),
            ("cfs.filter_hits", totals.filtered),
            ("cfs.crowded", totals.crowded),
            ("cfs.unmarked", totals.unmarked),
            ("cfs.claimed_in", totals.claimed_in),
            ("cfs.claimed_out", totals.claimed_out),
            ("cfs.looped", looped),
            ("cfs.inexact", inexact),
            ("cfs.guard", guard),
            ("cfs.guard_missed", guard_missed),
        ]
    }
}
