//! Runs: packets of one flow back to back. What a simulation sends where it can't afford every
//! packet.

use crate::mark::Hierarchy;

/// Packets of one flow, back to back, by the hierarchy that each carries.
///
/// A flow only rises in the hierarchy, so the packets of the lower ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Run([u32; 4]);

impl Run {
    /// The run with so many packets of each hierarchy, the lowest first.
    pub fn new(by_hierarchy: [u32; 4]) -> Self {
        Self(by_hierarchy)
    }

    /// Packets of each hierarchy, the lowest first.
    pub fn counts(&self) -> [u32; 4] {
        self.0
    }

    /// Packets that no group recorded, or that sampling leaves out.
    pub fn unencoded(packets: u32) -> Self {
        Self([packets, 0, 0, 0])
    }

    /// One packet that carries `hierarchy`.
    pub fn single(hierarchy: Hierarchy) -> Self {
        [hierarchy].into_iter().collect()
    }

    /// Packets of all hierarchies.
    pub fn packets(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Packets that carry `hierarchy`.
    pub fn of(&self, hierarchy: Hierarchy) -> u32 {
        self.0[usize::from(hierarchy.bits())]
    }

    /// Packets that carry each hierarchy, lowest first.
    pub fn by_hierarchy(&self) -> impl Iterator<Item = (Hierarchy, u32)> {
        (0..4).map(Hierarchy::from_bits).zip(self.0)
    }

    /// The run that is left when of its first n packets `lost(n)` vanish; `lost` must not fall.
    #[must_use]
    pub fn without(&self, lost: impl Fn(u32) -> u32) -> Self {
        let mut left = *self;
        let mut before = 0;
        for packets in &mut left.0 {
            let after = before + *packets;
            *packets -= (lost(after) - lost(before)).min(*packets);
            before = after;
        }
        left
    }
}

impl FromIterator<Hierarchy> for Run {
    /// The run of packets that carry these.
    fn from_iter<I: IntoIterator<Item = Hierarchy>>(hierarchies: I) -> Self {
        let mut run = Self::default();
        for hierarchy in hierarchies {
            run.0[usize::from(hierarchy.bits())] += 1;
        }
        run
    }
}

/// A run on its way through the network, with the marks that its packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkedRun {
    /// Timestamp bit of the epoch that the packets entered in.
    pub bit: usize,
    /// The packets, by hierarchy.
    pub run: Run,
}
