//! What INT stacks say of the ports that packets go by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use calumma_plane::int::UNKNOWN;
use calumma_plane::int::around::{Going, NO_PORT};

/// What is said of the ports that packets go by, by position among the switch's ports. Its clones
/// share it.
#[derive(Clone, Debug, Default)]
pub struct Exits(Arc<[Exit]>);

#[derive(Debug)]
struct Exit {
    /// The port's number in DPDK.
    number: u16,
    /// The share of its link's speed that is used, in 1/10,000.
    utilisation: AtomicU32,
}

impl Exits {
    /// Of ports with these numbers in DPDK, of whose links nothing is known yet.
    pub fn new(numbers: impl Iterator<Item = u16>) -> Self {
        let exit = |number| Exit { number, utilisation: AtomicU32::new(UNKNOWN) };
        Self(numbers.map(exit).collect())
    }

    /// Says which share of the speed of a port's link is used, in 1/10,000; `None` where that is
    /// not known.
    pub fn set_utilisation(&self, at: usize, share: Option<u32>) {
        if let Some(exit) = self.0.get(at) {
            let share = share.map_or(UNKNOWN, |share| share.min(UNKNOWN - 1));
            exit.utilisation.store(share, Ordering::Relaxed);
        }
    }

    /// What is said of packets that go by a port.
    pub fn of(&self, at: usize) -> Going {
        match self.0.get(at) {
            Some(exit) => Going::by(exit.number, exit.utilisation.load(Ordering::Relaxed)),
            None => Going::by(NO_PORT, UNKNOWN),
        }
    }
}
