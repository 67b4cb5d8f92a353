//! When packets arrived, as well as a switch can tell.

mod device;

use self::device::{DeviceClock, Reading};

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

    /// Whether a packet that polls found within these bounds may have been stamped at `ns`. Where
    /// no poll says since when it can have been there, any stamp might be of another clock.
    fn may_be(self, ns: u64) -> bool {
        let bounded = self.earliest_ns != 0;
        bounded && (self.earliest_ns.saturating_sub(DEVICE_AHEAD_NS)..=self.latest_ns).contains(&ns)
    }

    /// The middle between its bounds, and by how much that may be wrong; `None` where nothing is
    /// known of when it began to wait.
    #[inline]
    pub fn middle_ns(self) -> Option<(u64, u64)> {
        let width_ns = self.width_ns();
        let middle_ns = self.earliest_ns + width_ns / 2;
        (self.earliest_ns != 0).then_some((middle_ns, width_ns.div_ceil(2)))
    }

    /// How far its bounds are apart.
    pub fn width_ns(self) -> u64 {
        self.latest_ns.saturating_sub(self.earliest_ns)
    }
}

/// When the packets of a burst arrived: between when and when polls found them, and what their
/// device's stamps say.
#[derive(Clone, Copy, Debug)]
pub struct BurstArrival {
    polled: Arrival,
    reading: Option<Reading>,
}

impl From<Arrival> for BurstArrival {
    fn from(polled: Arrival) -> Self {
        Self { polled, reading: None }
    }
}

impl BurstArrival {
    /// When the packet arrived that has this stamp, or none. A stamp counts as it is if it is about
    /// where the polls have found the packet. Any other is of another clock, or another unit, which
    /// gives bounds once it is known.
    #[inline]
    pub fn of(&self, stamp: Option<u64>) -> Arrival {
        self.stamped(stamp).unwrap_or(self.polled)
    }

    /// When the packet arrived by its stamp; `None` where that does not count, and polls alone say
    /// when it arrived.
    #[inline]
    pub fn stamped(&self, stamp: Option<u64>) -> Option<Arrival> {
        let Self { polled, reading } = *self;
        let stamp = stamp?;
        if polled.may_be(stamp) {
            return Some(Arrival::at(stamp));
        }
        let read = reading?.of(stamp);
        let latest_ns = read.latest_ns.min(polled.latest_ns);
        // Stamped before polls could find it, it arrived before they say.
        let earliest_ns = read.earliest_ns.max(polled.earliest_ns.min(latest_ns));
        (polled.may_be(latest_ns) && earliest_ns <= latest_ns)
            .then_some(Arrival { earliest_ns, latest_ns })
    }

    /// Between when and when polls found its packets.
    #[inline]
    pub fn polled(&self) -> Arrival {
        self.polled
    }
}

/// The polls of a receive queue, by which arrivals are told: what a poll finds was not there yet
/// when an earlier one left the queue empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Polls {
    /// Before the last poll that left the queue empty; 0 where none has.
    emptied_ns: u64,
    device: DeviceClock,
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

    /// The arrivals of the packets that a poll found within `polled`, of which the last one has
    /// this stamp, or none.
    #[inline]
    pub fn stamped(&mut self, polled: Arrival, last: Option<u64>) -> BurstArrival {
        let ticks = last.filter(|&stamp| !polled.may_be(stamp));
        BurstArrival { polled, reading: ticks.and_then(|stamp| self.device.note(stamp, polled)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_counts_where_the_packet_was_found() {
        let polled = Arrival { earliest_ns: 5_000_000, latest_ns: 5_002_000 };
        let found = Polls::default().stamped(polled, None);
        for ns in [4_000_000, 4_999_000, 5_000_000, 5_002_000] {
            assert_eq!(found.of(Some(ns)), Arrival::at(ns));
            assert_eq!(found.stamped(Some(ns)), Some(Arrival::at(ns)));
        }
        // Of a clock that is behind, of one that is ahead, in microseconds, none.
        for stamp in [Some(3_999_999), Some(5_002_001), Some(5_001), None] {
            assert_eq!((found.of(stamp), found.stamped(stamp)), (polled, None));
        }
        assert_eq!((polled.width_ns(), Arrival::at(7).width_ns()), (2_000, 0));
    }

    #[test]
    fn ticks_give_packets_that_waited_narrower_bounds_than_polls() {
        let mut polls = Polls::default();
        let tick = |ns: u64| (ns - 900_000_000) / 8;
        let found = |polls: &mut Polls, ns: u64, waited_ns: u64, busy_ns: u64| {
            let over_ns = ns + waited_ns;
            let polled = Arrival { earliest_ns: over_ns - busy_ns, latest_ns: over_ns };
            (polled, polls.stamped(polled, Some(tick(ns))).of(Some(tick(ns))))
        };
        let mut at_ns = 1_000_000_000;
        for _ in 0..600 {
            at_ns += 10_000_000;
            let (polled, arrival) = found(&mut polls, at_ns, 500, 2_000);
            assert!(arrival.earliest_ns <= at_ns && at_ns <= arrival.latest_ns, "{arrival:?}");
            assert!(arrival.width_ns() <= polled.width_ns());
        }
        at_ns += 1_000_000;
        let (polled, arrival) = found(&mut polls, at_ns, 5_000_000, 20_000_000);
        assert!(arrival.earliest_ns <= at_ns && at_ns <= arrival.latest_ns, "{arrival:?}");
        assert_eq!(polled.width_ns(), 20_000_000);
        assert!(arrival.width_ns() < 1_010_000, "{arrival:?}");
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
