//! What packets met on their way, as their stacks say it.

use super::paths::MOST_HOPS;

/// A latency, or a length of a queue, that a switch can't tell.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// What a packet met on its way.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// The switches that it came by, the source first; zeros behind them.
    pub(super) places: &'a [u32; MOST_HOPS],
    /// Its latency at each, in nanoseconds; `u32::MAX` where the switch can't tell. Behind the last
    /// hop anything.
    pub(super) column: &'a [u32; MOST_HOPS],
    /// How many waited in each one's queue, in the switch's own unit; likewise. `None` where no
    /// switch can tell.
    pub(super) queued: Option<&'a [u32; MOST_HOPS]>,
    /// How many switches these are.
    pub(super) hops: u8,
    /// Whether it may have come by others.
    pub(super) is_partial: bool,
}

impl<'a> Met<'a> {
    /// A packet that came by so many switches, [`MOST_HOPS`] at most, of these numbers, the source
    /// first. `nodes` has zeros behind them. Where a switch can't tell its latency, or how many
    /// waited in its queue, that is `u32::MAX`; what stands behind the last one does not matter. A
    /// packet that may have come by other switches as well has a partial path.
    #[inline(always)]
    pub fn new(
        (nodes, hops): (&'a [u32; MOST_HOPS], usize),
        (latencies, queued): (&'a [u32; MOST_HOPS], Option<&'a [u32; MOST_HOPS]>),
        is_partial: bool,
    ) -> Self {
        let hops = hops.min(MOST_HOPS) as u8;
        Self { places: nodes, column: latencies, queued, hops, is_partial }
    }

    /// How many switches it came by.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.hops).min(MOST_HOPS)
    }

    /// The switches that it came by.
    #[inline(always)]
    pub(super) fn nodes(&self) -> &'a [u32] {
        &self.places[..self.len()]
    }

    /// Its latency at each.
    #[inline(always)]
    pub(super) fn latencies(&self) -> &'a [u32] {
        &self.column[..self.len()]
    }
}
