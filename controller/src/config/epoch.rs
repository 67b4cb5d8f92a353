//! How long epochs are, and the guards around their ends.

use calumma_epoch::{ClockError, EpochClock, Guards};
use serde::Deserialize;

/// Length of epochs and guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EpochSection {
    /// Length of an epoch in milliseconds.
    pub length_ms: u64,
    /// Most that the clocks of two switches differ, in microseconds. Where absent: 1000, or a
    /// twentieth of a shorter epoch.
    pub clock_guard_us: Option<u64>,
    /// Longest that a packet travels through the network, in microseconds. Where absent: 10,000,
    /// or a quarter of a shorter epoch.
    pub flight_guard_us: Option<u64>,
}

impl Default for EpochSection {
    fn default() -> Self {
        Self { length_ms: 50, clock_guard_us: None, flight_guard_us: None }
    }
}

impl EpochSection {
    /// The epochs.
    ///
    /// # Errors
    /// When length and guards don't fit.
    pub fn clock(&self) -> Result<EpochClock, ClockError> {
        let Self { length_ms, clock_guard_us, flight_guard_us } = *self;
        let length_ns = length_ms.saturating_mul(1_000_000);
        let guard = |guard_us: Option<u64>, default_ns: u64, parts| {
            guard_us.map_or(default_ns.min(length_ns / parts), |us| us.saturating_mul(1000))
        };
        let usual = Guards::default();
        let guards = Guards {
            clock_ns: guard(clock_guard_us, usual.clock_ns, 20),
            flight_ns: guard(flight_guard_us, usual.flight_ns, 4),
        };
        EpochClock::new(length_ns, guards)
    }
}
