//! From time to epochs and back.

use serde::{Deserialize, Serialize};

use crate::step::RESTART_NS;

/// The bit that packets of an epoch carry: 0 for even epochs, 1 for odd ones.
#[inline]
pub fn timestamp_bit(epoch: u64) -> usize {
    (epoch & 1) as usize
}

/// How long a switch waits at the edges of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guards {
    /// Most that the clocks of two switches differ, in nanoseconds.
    pub clock_ns: u64,
    /// Longest that a packet travels from its ingress to its egress edge, in nanoseconds.
    pub flight_ns: u64,
}

impl Default for Guards {
    /// One millisecond for NTP's error and ten for packets in flight (Appendix B).
    fn default() -> Self {
        Self { clock_ns: 1_000_000, flight_ns: 10_000_000 }
    }
}

/// Epochs of equal length, numbered from the Unix epoch: every switch with a synchronised clock
/// numbers them alike, and a restart changes no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochClock {
    length_ns: u64,
    guards: Guards,
}

/// Epochs that no schedule fits into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// Shorter than any switch can rotate.
    #[error("epochs of {0} ns: must last at least 1 ms and at most one hour")]
    Length(u64),
    /// Guards that leave no time between taking a group and arming it anew.
    #[error(
        "flight guard {flight_ns} ns + twice clock guard {clock_ns} ns must be less than the epoch \
         of {length_ns} ns: lengthen the epoch or lower the guards"
    )]
    Guards {
        /// The guard for packets in flight.
        flight_ns: u64,
        /// The guard for clock error.
        clock_ns: u64,
        /// Length of an epoch.
        length_ns: u64,
    },
}

impl EpochClock {
    /// A clock for epochs of `length_ns` nanoseconds.
    ///
    /// # Errors
    /// When the length is out of bounds or the guards don't fit into it.
    pub fn new(length_ns: u64, guards: Guards) -> Result<Self, ClockError> {
        if !(1_000_000..=3_600_000_000_000).contains(&length_ns) {
            return Err(ClockError::Length(length_ns));
        }
        let Guards { clock_ns, flight_ns } = guards;
        if flight_ns.saturating_add(clock_ns.saturating_mul(2)) >= length_ns {
            return Err(ClockError::Guards { flight_ns, clock_ns, length_ns });
        }
        Ok(Self { length_ns, guards })
    }

    /// Length of an epoch in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// The guards.
    pub fn guards(&self) -> Guards {
        self.guards
    }

    /// The epoch that `unix_ns` falls into.
    pub fn epoch_at(&self, unix_ns: u64) -> u64 {
        unix_ns / self.length_ns
    }

    /// The first epoch that is measured by a clock that was set to `now_ns`
    /// ([`RESTART_NS`](crate::RESTART_NS)).
    pub fn first_after_step(&self, now_ns: u64) -> u64 {
        self.epoch_at(now_ns.saturating_add(RESTART_NS)) + 2
    }

    /// When `epoch` starts, in nanoseconds since the Unix epoch.
    pub fn start_of(&self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.length_ns)
    }

    /// When the configuration of `epoch` is frozen.
    pub fn arm_time(&self, epoch: u64) -> u64 {
        self.start_of(epoch).saturating_sub(self.guards.clock_ns)
    }

    /// When the egress group of `epoch` is finished.
    pub fn take_time(&self, epoch: u64) -> u64 {
        self.start_of(epoch + 1)
            .saturating_add(self.guards.clock_ns)
            .saturating_add(self.guards.flight_ns)
    }

    /// From the taking of an epoch to the arming of the second one after it, in nanoseconds.
    pub fn idle_ns(&self) -> u64 {
        let Guards { clock_ns, flight_ns } = self.guards;
        self.length_ns - flight_ns - 2 * clock_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_an_epoch_follow_its_guards() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        assert_eq!(clock.epoch_at(149_999_999), 2);
        assert_eq!(clock.epoch_at(150_000_000), 3);
        assert_eq!(clock.arm_time(3), 149_000_000);
        assert_eq!(clock.take_time(3), 211_000_000);
        assert!(clock.take_time(3) < clock.arm_time(5));
    }

    #[test]
    fn guards_that_fill_the_epoch_are_refused() {
        let guards = Guards { clock_ns: 5_000_000, flight_ns: 40_000_000 };
        let error = EpochClock::new(50_000_000, guards).unwrap_err();
        assert!(error.to_string().contains("lengthen the epoch or lower the guards"));
        assert!(EpochClock::new(51_000_000, guards).is_ok());
        assert_eq!(EpochClock::new(10, guards), Err(ClockError::Length(10)));
    }
}
