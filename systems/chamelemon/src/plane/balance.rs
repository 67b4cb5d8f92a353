//! Packets by hierarchy: what is balanced between where packets enter and where they leave.

use std::ops::AddAssign;

use calumma_plane::Hierarchy;

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
