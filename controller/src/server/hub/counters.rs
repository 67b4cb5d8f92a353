//! The totals that nodes count, as they say them beside the sides of epochs.

use std::collections::BTreeMap;

use calumma_wire::Side;

use super::{Hub, lock};
use crate::metrics::GAUGES;

/// Counters that are remembered of a node: names come from the network, so there is a bound.
const MOST_COUNTERS: usize = 4 * calumma_wire::MAX_COUNTERS;

/// Totals by name.
pub(super) type Totals = BTreeMap<String, u64>;

impl Hub {
    /// Takes a node's totals out of a side. They are of the whole node, and only those that
    /// changed, so they count whatever becomes of the side, in the order in which they come. A
    /// side that is sent again by a new connection has older ones: a total is never less than it
    /// was on the connections before, since a node that goes on where it was counts upwards only.
    pub(in crate::server) fn count(&self, node: usize, side: &mut Side) {
        let counters = std::mem::take(&mut side.counters);
        let mut state = lock(&self.nodes[node].state);
        let state = &mut *state;
        for (name, value) in counters {
            let before = match GAUGES.contains(&name.as_str()) {
                true => None,
                false => state.totals_before.get(&name).copied(),
            };
            put(&mut state.status.counters, name, value.max(before.unwrap_or(0)));
        }
    }
}

/// Moves a connection's totals to those of the connections before.
pub(super) fn set_aside(totals: &mut Totals, before: &mut Totals) {
    for (name, total) in std::mem::take(totals) {
        put(before, name, total);
    }
}

fn put(totals: &mut Totals, name: String, value: u64) {
    if totals.len() < MOST_COUNTERS || totals.contains_key(&name) {
        totals.insert(name, value);
    }
}
