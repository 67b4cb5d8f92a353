//! Packets by hierarchy: what is balanced between where packets enter and where they leave.

use std::ops::AddAssign;

use calumma_plane::{Hierarchy, Run};
use calumma_sketch::BURST;
use calumma_sketch::burst::Column;

/// Packets recorded on one side of an epoch, by the hierarchy that they carry.
///
/// Between all ingress and all egress sides of an epoch they must balance, whichever packets were
/// lost: no hierarchy can leave the network more often than it entered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Balance([u64; 4]);

impl Balance {
    /// So many packets of each hierarchy, the lowest first.
    pub fn new(by_hierarchy: [u64; 4]) -> Self {
        Self(by_hierarchy)
    }

    /// Packets of each hierarchy, the lowest first.
    pub fn counts(&self) -> [u64; 4] {
        self.0
    }

    /// Packets of one hierarchy.
    pub fn of(&self, hierarchy: Hierarchy) -> u64 {
        self.0[usize::from(hierarchy.bits())]
    }

    /// Counts one packet.
    #[inline]
    pub(super) fn count(&mut self, hierarchy: Hierarchy) {
        self.0[usize::from(hierarchy.bits())] += 1;
    }

    /// Counts a run.
    #[inline]
    pub(super) fn count_run(&mut self, run: &Run) {
        for (sum, packets) in self.0.iter_mut().zip(run.counts()) {
            *sum += u64::from(packets);
        }
    }

    /// Counts the first `packets` packets of a burst, whose hierarchies are `classes`, in a few
    /// vector instructions.
    #[inline(always)]
    pub(super) fn count_burst(&mut self, classes: &Column, packets: usize) {
        // A byte for each hierarchy.
        const { assert!(BURST < 256) };
        let mut sums = 0_u32;
        for (at, &class) in classes.0.iter().enumerate() {
            sums += if at < packets { 1_u32.wrapping_shl(8 * class) } else { 0 };
        }
        for (sum, packets) in self.0.iter_mut().zip(sums.to_le_bytes()) {
            *sum += u64::from(packets);
        }
    }

    /// Packets of all hierarchies.
    pub fn packets(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl AddAssign for Balance {
    fn add_assign(&mut self, other: Self) {
        for (sum, packets) in self.0.iter_mut().zip(other.0) {
            *sum += packets;
        }
    }
}
