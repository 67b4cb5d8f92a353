//! By which ports packets of a burst leave, and what is on the other side.

use calumma_sketch::BURST;
use calumma_sketch::burst::ones;

use super::config::PassTo;
use super::decide::Verdict;
use crate::config::Role;

/// Packets that leave by some port; in each set bit i stands for the burst's i-th.
#[derive(Debug, Default)]
pub struct Routed {
    /// Those to the fabric.
    pub to_fabric: u32,
    /// Those to hosts.
    pub to_host: u32,
    /// The port that each leaves by, by position.
    pub ports: [u16; BURST],
}

impl Routed {
    /// Those of a burst that pass by their verdicts, of which `of` has a bit for each.
    pub(super) fn passed(verdicts: &[Verdict], of: u32) -> Self {
        let mut passed = Self::default();
        for (at, verdict) in ones(of).filter_map(|at| Some((at, verdicts.get(at)?))) {
            if let Verdict::Pass(PassTo { port, role }) = *verdict {
                passed.push(at, port, role);
            }
        }
        passed
    }

    /// A bit for each of them.
    #[inline]
    pub(super) fn all(&self) -> u32 {
        self.to_fabric | self.to_host
    }

    /// Adds one that leaves by a port of this role.
    #[inline(always)]
    pub(super) fn push(&mut self, at: usize, port: u16, role: Role) {
        self.ports[at] = port;
        let to_host = u32::from(role == Role::Host);
        self.to_host |= to_host << at;
        self.to_fabric |= (to_host ^ 1) << at;
    }
}
