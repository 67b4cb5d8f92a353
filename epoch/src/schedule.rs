//! What a switch must do next, and when.

use crate::clock::EpochClock;

/// A step of the rotation. See the [crate](crate) for the order in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Freeze the configuration of this epoch and put its groups in place.
    Arm(u64),
    /// Begin to stamp and record packets under this epoch.
    Flip(u64),
    /// Finish the egress group of this epoch.
    Take(u64),
}

/// An event and the time it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// What is to be done.
    pub event: Event,
    /// When, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
}

/// The endless sequence of events, in the order of their times.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    clock: EpochClock,
    /// How much earlier than the clock says epochs are armed.
    ahead_ns: u64,
    next: Event,
    next_at_ns: u64,
}

impl Schedule {
    /// The schedule whose first event is the arming of `epoch`.
    pub fn starting_with(clock: EpochClock, epoch: u64) -> Self {
        Self::arming_ahead(clock, epoch, 0)
    }

    /// As [`starting_with`](Self::starting_with), for a switch that needs up to `ahead_ns`
    /// nanoseconds to arm an epoch: each is due so much earlier, at most by half the time from the
    /// last taking to the clock's arming.
    pub fn arming_ahead(clock: EpochClock, epoch: u64, ahead_ns: u64) -> Self {
        let ahead_ns = ahead_ns.min(clock.idle_ns() / 2);
        let next_at_ns = clock.arm_time(epoch).saturating_sub(ahead_ns);
        Self { clock, ahead_ns, next: Event::Arm(epoch), next_at_ns }
    }

    /// The clock that the schedule follows.
    pub fn clock(&self) -> &EpochClock {
        &self.clock
    }

    /// When the next event is due: one comparison a burst is all a packet pays for rotation.
    #[inline]
    pub fn next_at_ns(&self) -> u64 {
        self.next_at_ns
    }

    /// The next event, whether due or not.
    pub fn next(&self) -> Event {
        self.next
    }

    /// The next event if it is due at `now_ns`; the schedule moves on past it.
    pub fn due(&mut self, now_ns: u64) -> Option<Due> {
        if now_ns < self.next_at_ns {
            return None;
        }
        let due = Due { event: self.next, at_ns: self.next_at_ns };
        self.next = match self.next {
            Event::Arm(epoch) => Event::Flip(epoch),
            Event::Flip(epoch) => Event::Take(epoch.saturating_sub(1)),
            Event::Take(epoch) => Event::Arm(epoch + 2),
        };
        self.next_at_ns = match self.next {
            Event::Arm(epoch) => self.clock.arm_time(epoch).saturating_sub(self.ahead_ns),
            Event::Flip(epoch) => self.clock.start_of(epoch),
            Event::Take(epoch) => self.clock.take_time(epoch),
        };
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Guards;
    use proptest::prelude::*;

    #[test]
    fn an_epoch_is_armed_flipped_to_and_its_predecessor_taken() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut schedule = Schedule::starting_with(clock, 10);
        assert_eq!(schedule.due(498_999_999), None);
        let mut events = Vec::new();
        while let Some(due) = schedule.due(600_000_000) {
            events.push((due.event, due.at_ns / 1_000_000));
        }
        assert_eq!(
            events,
            [
                (Event::Arm(10), 499),
                (Event::Flip(10), 500),
                (Event::Take(9), 511),
                (Event::Arm(11), 549),
                (Event::Flip(11), 550),
                (Event::Take(10), 561),
                (Event::Arm(12), 599),
                (Event::Flip(12), 600),
            ]
        );
        assert_eq!(schedule.next(), Event::Take(11));
    }

    #[test]
    fn who_needs_time_to_arm_begins_earlier_but_after_the_last_taking() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        for (ahead_ns, armed_ms) in [(5_000_000, [494, 544]), (1 << 40, [480, 530])] {
            let mut schedule = Schedule::arming_ahead(clock, 10, ahead_ns);
            let mut armed = Vec::new();
            while let Some(due) = schedule.due(549_000_000) {
                armed.extend(matches!(due.event, Event::Arm(_)).then_some(due.at_ns / 1_000_000));
            }
            assert_eq!(armed, armed_ms);
        }
    }

    proptest! {
        #[test]
        fn times_never_run_backwards(
            length in 1_000_000u64..1_000_000_000,
            clock_share in 0.0..0.4f64,
            flight_share in 0.0..0.9f64,
            start in 1u64..1 << 33,
        ) {
            let clock_ns = (length as f64 * clock_share) as u64;
            let flight_ns = ((length - 2 * clock_ns) as f64 * flight_share) as u64;
            let guards = Guards { clock_ns, flight_ns };
            let clock = EpochClock::new(length, guards).unwrap();
            let mut schedule = Schedule::starting_with(clock, start);
            let mut last = 0;
            for _ in 0..20 {
                prop_assert!(schedule.next_at_ns() >= last);
                last = schedule.due(u64::MAX).unwrap().at_ns;
            }
        }
    }
}
