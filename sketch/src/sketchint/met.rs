//! What packets met on their way, as their stacks say it.

use super::paths::MOST_HOPS;

/// A latency, or a length of a queue, that a switch can't tell.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// What a packet met on its way.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// The switches that it came by, the source first; zeros behind them.
    pub(super) places: &'a [u32; MOST_HOPS],
    /// Its latency at each, in nanoseconds; `u32::MAX` where the switch can't tell.
    pub(super) latencies: &'a [u32],
    /// How many waited in each one's queue, in the switch's own unit; likewise.
    pub(super) queued: &'a [u32],
    /// Whether it may have come by others.
    pub(super) is_partial: bool,
}

impl<'a> Met<'a> {
    /// A packet that came by as many switches as `latencies` has, of these numbers, the source
    /// first. `nodes` has zeros behind them. Where a switch can't tell its latency, or how many
    /// waited in its queue, that is `u32::MAX`. A packet that may have come by other switches as
    /// well has a partial path.
    #[inline(always)]
    pub fn new(
        nodes: &'a [u32; MOST_HOPS],
        (latencies, queued): (&'a [u32], &'a [u32]),
        is_partial: bool,
    ) -> Self {
        Self { places: nodes, latencies, queued, is_partial }
    }

    /// The switches that it came by.
    #[inline(always)]
    pub(super) fn nodes(&self) -> &'a [u32] {
        &self.places[..self.latencies.len().min(MOST_HOPS)]
    }
}
