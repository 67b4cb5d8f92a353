//! The system's time, read from the time stamp counter: a few nanoseconds instead of the tens that
//! a call of the system's clock takes.

/// Readings that a new clock tries at most to find one that fits: see [`TscClock::anchor`].
const MAX_TRIES: u32 = 1000;

/// The system's time, extrapolated by the time stamp counter.
///
/// Anchored to the system's clock anew every millisecond, so that its corrections are followed;
/// never runs backwards. Generic over where it reads the counter (ticks) and the system's clock
/// (nanoseconds since the Unix epoch), so that tests can step either.
#[derive(Debug)]
pub struct TscClock<T, S> {
    ticks: T,
    system_ns: S,
    anchor_tsc: u64,
    anchor_ns: u64,
    next_anchor_tsc: u64,
    /// The next anchor, or the middle of the time until then where it is still to come.
    due_tsc: u64,
    ticks_per_ms: u64,
    /// Nanoseconds a tick, times 2^32.
    scale: u128,
    last_ns: u64,
}

/// The system's clock, read between two readings of the counter.
#[derive(Clone, Copy)]
struct Reading {
    before: u64,
    now_ns: u64,
    after: u64,
}

impl Reading {
    fn ticks(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

impl<T: FnMut() -> u64, S: FnMut() -> u64> TscClock<T, S> {
    /// A clock over a counter of `hz` ticks a second. Where no reading of both fits within
    /// `MAX_TRIES`, it takes the one that took the shortest.
    pub fn new(hz: u64, ticks: T, system_ns: S) -> Self {
        let hz = hz.max(1);
        let mut clock = Self {
            ticks,
            system_ns,
            anchor_tsc: 0,
            anchor_ns: 0,
            next_anchor_tsc: 0,
            due_tsc: 0,
            ticks_per_ms: hz / 1000,
            scale: (1_000_000_000_u128 << 32) / u128::from(hz),
            last_ns: 0,
        };
        let mut best = clock.read();
        for _ in 1..MAX_TRIES {
            if clock.fits(best) {
                break;
            }
            let next = clock.read();
            if next.ticks() < best.ticks() {
                best = next;
            }
        }
        clock.anchor_at(best);
        clock
    }

    /// Reads both clocks. Where the lcore was off its CPU between the readings they don't belong
    /// together, and the old anchor holds a little longer.
    #[cold]
    pub fn anchor(&mut self) {
        let reading = self.read();
        if self.fits(reading) {
            self.anchor_at(reading);
        }
    }

    fn read(&mut self) -> Reading {
        let before = (self.ticks)();
        let now_ns = (self.system_ns)();
        Reading { before, now_ns, after: (self.ticks)() }
    }

    fn fits(&self, reading: Reading) -> bool {
        reading.ticks() < self.ticks_per_ms / 100
    }

    fn anchor_at(&mut self, reading: Reading) {
        self.anchor_tsc = reading.before + reading.ticks() / 2;
        self.anchor_ns = reading.now_ns;
        self.next_anchor_tsc = reading.after + self.ticks_per_ms;
        self.due_tsc = reading.after + self.ticks_per_ms / 2;
    }

    /// Whether the last anchor is a millisecond old, or half of one for the first time.
    #[inline]
    pub fn is_due(&self, tsc: u64) -> bool {
        tsc >= self.due_tsc
    }

    /// Of what is due: whether it was half a millisecond, at which nothing is to be done.
    #[inline]
    pub fn was_halfway(&mut self) -> bool {
        let halfway = self.due_tsc < self.next_anchor_tsc;
        self.due_tsc = self.next_anchor_tsc;
        halfway
    }

    /// The time at which the counter read `tsc`, a moment ago, in nanoseconds since the Unix epoch.
    #[inline]
    pub fn unix_ns(&mut self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.anchor_tsc);
        let now_ns = self.anchor_ns + ((u128::from(ticks) * self.scale) >> 32) as u64;
        self.last_ns = self.last_ns.max(now_ns);
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const HZ: u64 = 2_000_000_000;
    const START_NS: u64 = 1_000_000_000_000;

    /// Counter and system clock of a machine whose readings each take `step` ticks.
    struct Machine {
        tsc: Cell<u64>,
        ahead_ns: Cell<u64>,
        step: Cell<u64>,
        readings: Cell<u32>,
    }

    impl Machine {
        fn new(step: u64) -> Self {
            let (tsc, ahead_ns) = (Cell::new(1000), Cell::new(START_NS));
            Self { tsc, ahead_ns, step: Cell::new(step), readings: Cell::new(0) }
        }

        fn clock(&self) -> TscClock<impl FnMut() -> u64, impl FnMut() -> u64> {
            let ticks = || {
                self.tsc.set(self.tsc.get() + self.step.get());
                self.tsc.get()
            };
            let system_ns = || {
                self.readings.set(self.readings.get() + 1);
                self.ahead_ns.get() + self.tsc.get() / 2
            };
            TscClock::new(HZ, ticks, system_ns)
        }
    }

    #[test]
    fn clock_follows_the_system_and_never_runs_backwards() {
        let machine = Machine::new(20);
        let mut clock = machine.clock();
        assert_eq!(machine.readings.get(), 1);
        let at = |tsc: u64| START_NS + tsc / 2;
        for tsc in [1_500, 500_000, 1_000_000] {
            assert!(clock.unix_ns(tsc).abs_diff(at(tsc)) < 20, "{tsc}");
        }
        // Stepped ahead: noticed at the next anchor. Stepped back: time stands still.
        machine.tsc.set(2_100_000);
        machine.ahead_ns.set(START_NS + 5_000);
        clock.anchor();
        let ahead = clock.unix_ns(2_200_000);
        assert!(ahead.abs_diff(at(2_200_000) + 5_000) < 20);
        machine.tsc.set(4_300_000);
        machine.ahead_ns.set(START_NS - 5_000_000);
        clock.anchor();
        assert_eq!(clock.unix_ns(4_300_100), ahead);
    }

    #[test]
    fn clock_is_due_halfway_and_after_a_millisecond() {
        let machine = Machine::new(0);
        let mut clock = machine.clock();
        assert!(!clock.is_due(1_000 + 999_999));
        assert!(clock.is_due(1_000 + 1_000_000) && clock.was_halfway());
        assert!(!clock.is_due(1_000 + 1_999_999));
        assert!(clock.is_due(1_000 + 2_000_000) && !clock.was_halfway());
    }

    #[test]
    fn clock_starts_where_no_reading_fits() {
        let machine = Machine::new(1_000_000);
        let mut clock = machine.clock();
        assert_eq!(machine.readings.get(), MAX_TRIES);
        let (tsc, anchored) = (machine.tsc.get(), clock.anchor_ns);
        assert!(clock.unix_ns(tsc).abs_diff(START_NS + tsc / 2) < 1_000_000);
        // An anchor that does not fit is left out, until one does.
        clock.anchor();
        assert_eq!(clock.anchor_ns, anchored);
        machine.step.set(10);
        clock.anchor();
        assert!(clock.anchor_ns > anchored);
    }
}
