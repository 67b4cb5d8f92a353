//! When packets arrived, as well as a switch can tell.

/// By how much a device may stamp a packet before a poll could find it: interrupts are held back
/// and descriptors written in groups, though not for as long.
const DEVICE_AHEAD_NS: u64 = 1_000_000;

/// Between when and when a packet arrived, in nanoseconds since the Unix epoch by the switch's
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Not before this.
    pub earliest_ns: u64,
    /// Not after this.
    pub latest_ns: u64,
}

impl Arrival {
    /// Exactly then.
    pub const fn at(ns: u64) -> Self {
        Self { earliest_ns: ns, latest_ns: ns }
    }

    /// How far its bounds are apart.
    pub fn width_ns(self) -> u64 {
        self.latest_ns.saturating_sub(self.earliest_ns)
    }

    /// The same for a packet that its device has stamped. A stamp counts if it is about where the
    /// polls have found the packet: others are of another clock, or another unit.
    #[inline]
    #[must_use]
    pub fn stamped(self, stamp_ns: Option<u64>) -> Self {
        let from = self.earliest_ns.saturating_sub(DEVICE_AHEAD_NS);
        match stamp_ns {
            Some(ns) if (from..=self.latest_ns).contains(&ns) => Self::at(ns),
            _ => self,
        }
    }
}

/// The polls of a receive queue, by which arrivals are told: what a poll finds was not there yet
/// when an earlier one left the queue empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Polls {
    /// Before the last poll that left the queue empty; 0 where none has.
    emptied_ns: u64,
}

impl Polls {
    /// A poll began at `began_ns` or later and was over by `over_ns`, and left the queue empty or
    /// not. Gives when the packets arrived that it found.
    #[inline]
    pub fn polled(&mut self, began_ns: u64, over_ns: u64, emptied: bool) -> Arrival {
        let arrival = Arrival { earliest_ns: self.emptied_ns, latest_ns: over_ns };
        if emptied {
            self.emptied_ns = began_ns;
        }
        arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_counts_where_the_packet_was_found() {
        let found = Arrival { earliest_ns: 5_000_000, latest_ns: 5_002_000 };
        for ns in [4_000_000, 4_999_000, 5_000_000, 5_002_000] {
            assert_eq!(found.stamped(Some(ns)), Arrival::at(ns));
        }
        // Of a clock that is behind, of one that is ahead, in microseconds, none.
        for stamp in [Some(3_999_999), Some(5_002_001), Some(5_001), None] {
            assert_eq!(found.stamped(stamp), found);
        }
        assert_eq!((found.width_ns(), Arrival::at(7).width_ns()), (2_000, 0));
    }

    proptest! {
        /// Packets arrive at any time, polls take at most some, and take their time: every packet
        /// arrived within its bounds.
        #[test]
        fn every_packet_arrived_within_its_bounds(
            mut arrivals in prop::collection::vec(0u64..100_000, 0..200),
            polls in prop::collection::vec((1u64..2_000, 0u64..1_000), 1..200),
            most in 1usize..20,
        ) {
            arrivals.sort_unstable();
            let mut waiting = arrivals.into_iter().peekable();
            let (mut queue, mut now_ns) = (Polls::default(), 0);
            for (pause_ns, length_ns) in polls {
                let began_ns = now_ns + pause_ns;
                // The driver looks at some moment in between.
                let looked_ns = began_ns + length_ns / 3;
                now_ns = began_ns + length_ns;
                let mut found = Vec::new();
                while found.len() < most
                    && let Some(at_ns) = waiting.next_if(|at_ns| *at_ns <= looked_ns)
                {
                    found.push(at_ns);
                }
                let arrival = queue.polled(began_ns, now_ns, found.len() < most);
                for at_ns in found {
                    prop_assert!((arrival.earliest_ns..=arrival.latest_ns).contains(&at_ns));
                }
            }
        }
    }
}
