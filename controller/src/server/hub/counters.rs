//! The totals that nodes count, as they say them beside the sides of epochs.

use std::collections::HashMap;

use calumma_wire::{Side, SideKind, SystemId};

use super::{Hub, lock};
use crate::collect::MOST_SILENT;

/// Counters that are remembered of a node: names come from the network, so there is a bound.
const MOST_COUNTERS: usize = 4 * calumma_wire::MAX_COUNTERS;

/// Of each side of a system the last epoch of which totals were counted, and by which connection
/// they came.
pub(super) type Counted = HashMap<(SystemId, SideKind), (u64, u64)>;

impl Hub {
    /// Takes a node's totals out of a side that came by a connection. They are of the whole node,
    /// and only those that changed, so they count whatever becomes of the side, in the order in
    /// which they come. A side that is sent again by a new connection has older ones: the first new
    /// side has them all.
    pub(in crate::server) fn count(&self, node: usize, connection: u64, side: &mut Side) {
        let counters = std::mem::take(&mut side.counters);
        if counters.is_empty() {
            return;
        }
        let mut state = lock(&self.nodes[node].state);
        let last = state.counted.get(&(side.system, side.side));
        // One that is further back than nodes hold is new: the node's clock was set.
        let is_again = last.is_some_and(|&(last, of)| {
            of != connection && (last.saturating_sub(MOST_SILENT)..=last).contains(&side.epoch)
        });
        if is_again {
            return;
        }
        state.counted.insert((side.system, side.side), (side.epoch, connection));
        let totals = &mut state.status.counters;
        for (name, value) in counters {
            if totals.len() < MOST_COUNTERS || totals.contains_key(&name) {
                totals.insert(name, value);
            }
        }
    }
}
