//! For how long an epoch waits to be taken until receive queues are empty.

use calumma_epoch::EpochClock;

/// The longest in nanoseconds, where epochs have time for it.
const MOST_NS: u64 = 2_000_000;

/// The longest in nanoseconds: half of the time until the next epoch is armed at most. By then the
/// packets must have been received that came in time.
pub(super) fn most_drain_ns(clock: &EpochClock) -> u64 {
    MOST_NS.min(clock.idle_ns() / 2)
}
