//! The system's time, read from the time stamp counter: a few nanoseconds instead of the tens that
//! a call of the system's clock takes.

use calumma_epoch::StepWatch;

/// Readings that a new clock tries at most to find one that fits: see [`TscClock::anchor`].
const MAX_TRIES: u32 = 1000;

/// The system's time, extrapolated by the time stamp counter.
///
/// Anchored to the system's clock anew every millisecond, so that its corrections are followed;
/// runs backwards only where it is [made to](Self::follow). Generic over where it reads the counter
/// (ticks) and the system's clocks (nanoseconds since the Unix epoch, and those of a clock that is
/// never set), so that tests can step each.
#[derive(Debug)]
pub struct TscClock<T, S> {
    ticks: T,
    system_ns: S,
    steps: StepWatch,
    anchor_tsc: u64,
    anchor_ns: u64,
    next_anchor_tsc: u64,
    /// The next anchor, or the middle of the time until then where it is still to come.
    due_tsc: u64,
    ticks_per_ms: u64,
    /// Nanoseconds a tick, times 2^32.
    scale: u128,
    last_ns: u64,
    /// Readings in a row that did not fit.
    misfits: u64,
}

/// The system's clocks, read between two readings of the counter.
#[derive(Clone, Copy)]
struct Reading {
    before: u64,
    now_ns: u64,
    steady_ns: u64,
    after: u64,
}

impl Reading {
    fn ticks(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

impl<T: FnMut() -> u64, S: FnMut() -> (u64, u64)> TscClock<T, S> {
    /// A clock over a counter of `hz` ticks a second. Where no reading of both fits within
    /// `MAX_TRIES`, it takes the one that took the shortest.
    pub fn new(hz: u64, ticks: T, system_ns: S) -> Self {
        let hz = hz.max(1);
        let mut clock = Self {
            ticks,
            system_ns,
            steps: StepWatch::default(),
            anchor_tsc: 0,
            anchor_ns: 0,
            next_anchor_tsc: 0,
            due_tsc: 0,
            ticks_per_ms: hz / 1000,
            scale: (1_000_000_000_u128 << 32) / u128::from(hz),
            last_ns: 0,
            misfits: 0,
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

    /// Reads the clocks. Where the lcore was off its CPU between the readings they don't belong
    /// together, and the old anchor holds a little longer.
    ///
    /// Gives by how many nanoseconds the system's clock was set since the last anchor, or, negative
    /// and where that is more, by how many it is behind what this one has shown.
    #[cold]
    pub fn anchor(&mut self) -> i64 {
        let reading = self.read();
        if !self.fits(reading) {
            self.misfits += 1;
            return 0;
        }
        self.misfits = 0;
        let set_by_ns = self.anchor_at(reading);
        let ahead_ns = self.last_ns.saturating_sub(reading.now_ns);
        if set_by_ns.unsigned_abs() < ahead_ns {
            0i64.saturating_sub_unsigned(ahead_ns)
        } else {
            set_by_ns
        }
    }

    /// What the system's clock showed at the last anchor.
    pub fn anchored_ns(&self) -> u64 {
        self.anchor_ns
    }

    /// Follows the system's clock where that was set back.
    #[cold]
    pub fn follow(&mut self) {
        self.last_ns = 0;
    }

    fn read(&mut self) -> Reading {
        let before = (self.ticks)();
        let (now_ns, steady_ns) = (self.system_ns)();
        Reading { before, now_ns, steady_ns, after: (self.ticks)() }
    }

    /// Whether all was read at once: within 10 us, and longer after many that took too long, as a
    /// machine on which all do still has clocks that are set.
    fn fits(&self, reading: Reading) -> bool {
        reading.ticks() < (self.ticks_per_ms / 100).saturating_mul(1 + self.misfits)
    }

    fn anchor_at(&mut self, reading: Reading) -> i64 {
        self.anchor_tsc = reading.before + reading.ticks() / 2;
        self.anchor_ns = reading.now_ns;
        self.next_anchor_tsc = reading.after + self.ticks_per_ms;
        self.due_tsc = reading.after + self.ticks_per_ms / 2;
        self.steps.read(reading.now_ns, reading.steady_ns)
    }

    /// Whether the last anchor is a millisecond old, or half of one for the first time.
    #[inline]
    pub fn is_due(&self, tsc: u64) -> bool {
        tsc >= self.due_tsc
    }

    /// Of what is due at `tsc`: whether it is half a millisecond, at which nothing is to be done.
    #[inline]
    pub fn is_halfway(&mut self, tsc: u64) -> bool {
        self.due_tsc = self.next_anchor_tsc;
        tsc < self.next_anchor_tsc
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

    use proptest::prelude::*;

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

        fn clock(&self) -> TscClock<impl FnMut() -> u64, impl FnMut() -> (u64, u64)> {
            let ticks = || {
                self.tsc.set(self.tsc.get() + self.step.get());
                self.tsc.get()
            };
            let system_ns = || {
                self.readings.set(self.readings.get() + 1);
                let steady_ns = self.tsc.get() / 2;
                (self.ahead_ns.get() + steady_ns, steady_ns)
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
        assert_eq!(clock.anchor(), 5_000);
        let ahead = clock.unix_ns(2_200_000);
        assert!(ahead.abs_diff(at(2_200_000) + 5_000) < 20);
        machine.tsc.set(4_300_000);
        machine.ahead_ns.set(START_NS - 5_000_000);
        assert_eq!(clock.anchor(), -5_005_000);
        assert_eq!(clock.unix_ns(4_300_100), ahead);
        // What is left of that.
        machine.tsc.set(6_400_000);
        assert!((clock.anchor() + 2_900_000).abs() < 100_000);
        clock.follow();
        assert!(clock.unix_ns(6_400_100).abs_diff(at(6_400_100) - 5_000_000) < 20);
    }

    proptest! {
        /// Whatever the lcore does in between, all that the clock was set by is seen, and nothing
        /// else.
        #[test]
        fn steps_of_the_clock_are_seen_at_the_next_anchor(
            turns in prop::collection::vec(
                (1_000_000u64..6_000_000_000, prop::option::of(-5_000_000_000i64..5_000_000_000)),
                1..20,
            ),
        ) {
            let machine = Machine::new(20);
            machine.ahead_ns.set(1000 * START_NS);
            let mut clock = machine.clock();
            for (ticks, step_ns) in turns {
                machine.tsc.set(machine.tsc.get() + ticks);
                let step_ns = step_ns.unwrap_or(0);
                machine.ahead_ns.set(machine.ahead_ns.get().saturating_add_signed(step_ns));
                prop_assert_eq!(clock.anchor(), step_ns);
                clock.follow();
                let tsc = machine.tsc.get();
                let shown_ns = machine.ahead_ns.get() + tsc / 2;
                prop_assert!(clock.unix_ns(tsc).abs_diff(shown_ns) < 20);
            }
        }
    }

    #[test]
    fn clock_is_due_halfway_and_after_a_millisecond() {
        let machine = Machine::new(0);
        let mut clock = machine.clock();
        assert!(!clock.is_due(1_000 + 999_999));
        assert!(clock.is_due(1_000 + 1_000_000) && clock.is_halfway(1_000 + 1_000_000));
        assert!(!clock.is_due(1_000 + 1_999_999));
        assert!(clock.is_due(1_000 + 2_000_000) && !clock.is_halfway(1_000 + 2_000_000));
        // Of one that nobody has asked for long, the anchor is too old.
        clock.anchor();
        assert!(clock.is_due(1 << 40) && !clock.is_halfway(1 << 40));
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

    #[test]
    fn slow_readings_are_better_than_none() {
        let machine = Machine::new(1_000_000);
        let mut clock = machine.clock();
        machine.ahead_ns.set(START_NS + 1_000_000_000);
        let shown: Vec<i64> = (0..60).map(|_| clock.anchor()).filter(|&by_ns| by_ns != 0).collect();
        assert_eq!(shown, [1_000_000_000]);
    }
}
