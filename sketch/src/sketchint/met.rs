//! What packets met on their way, as their stacks say it.

use super::paths::{MOST_HOPS, Path};
use crate::burst::BURST;

/// A latency, or a length of a queue, that a switch can't tell.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// What a packet met on its way.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// The switches that it came by.
    pub path: &'a Path,
    /// Its latency at each, in nanoseconds; `u32::MAX` where the switch can't tell.
    pub latencies: &'a [u32],
    /// How many waited in each one's queue, in the switch's own unit; likewise.
    pub queued: &'a [u32],
}

/// What the packets of a burst met: memory that is filled anew for each.
#[derive(Clone, Debug)]
pub struct MetBurst {
    paths: [Path; BURST],
    latencies: [[u32; MOST_HOPS]; BURST],
    queued: [[u32; MOST_HOPS]; BURST],
    /// A bit for each packet that came with INT.
    which: u32,
}

impl Default for MetBurst {
    fn default() -> Self {
        let unknown = [[UNKNOWN; MOST_HOPS]; BURST];
        let paths = [Path::default(); BURST];
        Self { paths, latencies: unknown, queued: unknown, which: 0 }
    }
}

impl MetBurst {
    /// No packets with INT.
    #[inline]
    pub fn clear(&mut self) {
        self.which = 0;
    }

    /// Notes what packet number `at` met: node, latency and queue of each hop, the source's first.
    /// Beyond [`MOST_HOPS`] its path is partial.
    ///
    /// # Panics
    /// When there are not as many packets in a burst.
    #[inline(always)]
    pub fn set(
        &mut self,
        at: usize,
        hops: impl IntoIterator<Item = (u32, u32, u32)>,
        is_partial: bool,
    ) {
        let (latencies, lengths) = (&mut self.latencies[at], &mut self.queued[at]);
        self.paths[at].set(hops, is_partial, |hop, latency_ns, queued| {
            (latencies[hop], lengths[hop]) = (latency_ns, queued);
        });
        self.which |= 1 << at;
    }

    /// What packet number `at` met; `None` where it came without INT.
    #[inline(always)]
    pub(super) fn of(&self, at: usize) -> Option<Met<'_>> {
        if self.which >> at & 1 == 0 {
            return None;
        }
        let path = &self.paths[at];
        let hops = path.nodes().len();
        let (latencies, queued) = (&self.latencies[at][..hops], &self.queued[at][..hops]);
        Some(Met { path, latencies, queued })
    }
}
