//! Which latencies are inflated: above so many hundredths of the mean of the flow's packets before
//! it at the switch, of which there must be enough.
//!
//! The mean is that of a row where the flow's packets were all counted in rows. Of other flows it
//! is an estimate: that of a row that has had enough of them, and else of the row and the pair
//! towers together, which other flows share.

use super::bounded::Bounded;
use super::met::UNKNOWN;
use super::pairs::{Before, Pair, Pairs};
use super::sink::Inflated;
use crate::hash::mixed;
use crate::key::Key;

/// Packets that a flow must have had at a switch before one is called inflated.
pub(super) const SEEN: u32 = 8;

/// By what a latency is inflated.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// The sink's own number, where it is a switch.
    pub(super) own: Option<u32>,
    /// Hundredths of the mean.
    pub(super) percent: u32,
    /// When the packet came, in microseconds since the window began.
    pub(super) at_us: u32,
    /// What packets without a row met.
    pub(super) pairs: &'a Pairs,
    /// The unit of their latencies, in nanoseconds.
    pub(super) unit_ns: u32,
}

impl Limits<'_> {
    /// Whether a latency of a flow at a switch is inflated, by sum and number of those that its
    /// rows had before, and where these are not all that there were, by an estimate.
    #[inline(always)]
    pub(super) fn are_exceeded(
        &self,
        latency: u32,
        (sum, seen): (u64, u64),
        (word, node, is_whole): (u64, u32, bool),
    ) -> bool {
        if seen < SEEN.into() {
            return !is_whole && self.are_exceeded_by_all(latency, (sum, seen), (word, node));
        }
        is_above(latency, (sum, seen), self.percent)
    }

    #[inline(never)]
    fn are_exceeded_by_all(
        &self,
        latency: u32,
        before: (u64, u64),
        (word, node): (u64, u32),
    ) -> bool {
        self.are_exceeded_with(latency, before, self.pairs.query(word, node))
    }

    /// The same, where `pair` is what pair towers have of a flow that is not whole.
    #[inline(always)]
    pub(super) fn are_exceeded_with(
        &self,
        latency: u32,
        (sum, seen): (u64, u64),
        pair: Pair,
    ) -> bool {
        if seen >= SEEN.into() {
            return is_above(latency, (sum, seen), self.percent);
        }
        of_pair(pair, self.unit_ns).is_some_and(|(more, others)| {
            is_above(latency, (sum.saturating_add(more), seen + others), self.percent)
        })
    }
}

/// Sum and number of latencies by pair towers; `None` where they are full.
#[inline(always)]
fn of_pair(pair: Pair, unit_ns: u32) -> Option<(u64, u64)> {
    let (latency, packets) = pair.latency.zip(pair.packets)?;
    Some((u64::from(latency) * u64::from(unit_ns), packets.into()))
}

/// Whether a latency is inflated by what pair towers alone have of those before it.
#[inline(always)]
pub(super) fn is_above_pair(latency: u32, pair: Pair, unit_ns: u32, percent: u32) -> bool {
    of_pair(pair, unit_ns).is_some_and(|before| is_above(latency, before, percent))
}

/// Whether one of a packet's latencies may be inflated by what pair towers had before, of hops that
/// they have nothing of: none is without that being said.
#[inline(always)]
pub(super) fn may_be_above_pairs<const MOST: usize>(
    latencies: &[u32; MOST],
    before: &Before<MOST>,
    (unit_ns, percent): (u32, u32),
) -> bool {
    let times = u64::from(unit_ns).wrapping_mul(u64::from(percent / 100));
    let mut may_be = 0;
    for hop in 0..MOST {
        let (sum, seen) = (before.latency[hop], before.packets[hop]);
        // Neither side is larger than it is in truth, and the left one is what it is.
        let is_above =
            u64::from(latencies[hop]) * u64::from(seen) > u64::from(sum).wrapping_mul(times);
        may_be |= u32::from(is_above && seen >= SEEN && latencies[hop] != UNKNOWN);
    }
    may_be != 0
}

/// Whether a latency is above so many hundredths of the mean of those seen, if these are enough.
#[inline(always)]
fn is_above(latency: u32, (sum, seen): (u64, u64), percent: u32) -> bool {
    if seen < SEEN.into() {
        return false;
    }
    // Nearly all are below a whole number of means.
    let means = u64::from(percent / 100);
    let total = u64::from(latency).checked_mul(seen);
    if total.is_some_and(|total| total <= sum.saturating_mul(means)) {
        return false;
    }
    // latency > percent / 100 * sum / seen.
    let beyond = u128::from(latency) * u128::from(seen) * 100;
    beyond > u128::from(percent) * u128::from(sum)
}

/// Counts an inflated latency. Where not `may_fill`, it is none of the last half of those that
/// there is room for, so that estimates leave some to what is certain.
#[cold]
#[inline(never)]
pub(super) fn note<K: Key>(
    (inflated, of_inflated): (&mut Bounded<(K, u32)>, &mut [Inflated]),
    may_fill: bool,
    (word, key): (u64, &K),
    (node, latency): (u32, u32),
    at_us: u32,
) {
    let most = if may_fill { inflated.capacity() } else { inflated.capacity() / 2 };
    let at = inflated.place_within(most, word ^ mixed(node.into()), &(*key, node));
    if let Some(of) = at.and_then(|at| of_inflated.get_mut(at)) {
        of.count = of.count.saturating_add(1);
        of.max_ns = of.max_ns.max(latency);
        of.last_us = of.last_us.max(at_us);
    }
}
