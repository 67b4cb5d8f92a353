//! The host's clocks: the system's, which may be set, and one beside it that never is.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use calumma_epoch::StepWatch;

/// Longest that reading both clocks may take for them to be compared, in nanoseconds.
const AT_ONCE_NS: u64 = 50_000;

/// What [`steady_ns`] counts from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Nanoseconds by a clock that goes at the rate of the system's and is never set.
pub fn steady_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// The system's clock, watched for being set. Generic over where both are read.
#[derive(Debug)]
pub struct WatchedClock<U = fn() -> u64, S = fn() -> u64> {
    unix_ns: U,
    steady_ns: S,
    steps: StepWatch,
}

impl WatchedClock {
    /// The system's clock.
    pub fn of_system() -> Self {
        Self::new(unix_ns, steady_ns)
    }
}

impl<U: FnMut() -> u64, S: FnMut() -> u64> WatchedClock<U, S> {
    /// A clock that shows `unix_ns`, beside one that is never set.
    pub fn new(unix_ns: U, steady_ns: S) -> Self {
        Self { unix_ns, steady_ns, steps: StepWatch::default() }
    }

    /// The time, in nanoseconds since the Unix epoch, and by how many the clock was set since it
    /// was read last. Where the thread was off its CPU between readings, the next call shows that.
    pub fn read(&mut self) -> (u64, i64) {
        let before_ns = (self.steady_ns)();
        let now_ns = (self.unix_ns)();
        let took_ns = (self.steady_ns)().saturating_sub(before_ns);
        if took_ns > AT_ONCE_NS {
            return (now_ns, 0);
        }
        (now_ns, self.steps.read(now_ns, before_ns + took_ns / 2))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_clock_that_is_set_shows_once_and_not_while_readings_are_apart() {
        let (steady, ahead, took) = (Cell::new(0), Cell::new(1_000_000_000), Cell::new(10));
        let tick = || {
            steady.set(steady.get() + took.get());
            steady.get()
        };
        let mut clock = WatchedClock::new(|| steady.get() + ahead.get(), tick);
        assert_eq!(clock.read(), (1_000_000_010, 0));
        ahead.set(400_000_000);
        took.set(60_000);
        assert_eq!(clock.read().1, 0);
        took.set(10);
        let by_ns = clock.read().1;
        assert!((by_ns + 600_000_000).abs() < 100, "{by_ns}");
        assert_eq!(clock.read().1, 0);
    }
}
