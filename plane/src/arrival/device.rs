//! What a device's stamps say where its clock is not the switch's: one that counts ticks, or
//! nanoseconds from some other instant.
//!
//! The clock is learnt from stamps and from between when and when polls found their packets; no
//! driver has to be asked. A poll that has just found a packet bounds its stamp from above, and
//! with it every later one, by how fast the clock runs at most. So packets that waited in a full
//! queue, of which polls alone say little, have bounds about as narrow as on an idle one.

use super::{Arrival, DEVICE_AHEAD_NS};

/// By how much the rates of the two clocks, beside each other, differ at most between any two
/// moments. Crystals stay within some parts of a million; what sets a system's clock right makes it
/// run faster or slower by up to so much (`adjtimex(2)`).
const WANDER: f64 = 500e-6;

/// How long a stretch the rate is learnt from at least: of the mistake by which a stamp may be
/// early, half a part in a thousand is left.
const LEAST_NS: u64 = 4_000_000_000;

/// A stretch within that which must give the same rate: else the clock was set meanwhile.
const PROBE_NS: u64 = 1_000_000_000;

/// And how often it is learnt anew.
const SPAN_NS: u64 = 32_000_000_000;

/// A packet's stamp, and when it was given.
#[derive(Clone, Copy, Debug)]
struct Sample {
    stamp: u64,
    given: Arrival,
}

/// Nanoseconds of a tick, at least and at most.
#[derive(Clone, Copy, Debug)]
struct Rate {
    least: f64,
    most: f64,
}

impl Rate {
    /// That of a clock that gave these stamps at least `apart_ns` apart.
    fn between(first: Sample, last: Sample, apart_ns: u64) -> Option<Self> {
        // Up to one tick more or less has passed than the stamps, which are whole, differ by.
        let ticks = last.stamp.checked_sub(first.stamp).filter(|&ticks| ticks > 1)? as f64;
        let least = last.given.earliest_ns.checked_sub(first.given.latest_ns)?;
        let most = last.given.latest_ns.saturating_sub(first.given.earliest_ns);
        (least >= apart_ns).then_some(Self {
            least: least as f64 / (ticks + 1.0) * (1.0 - WANDER),
            most: most as f64 / (ticks - 1.0) * (1.0 + WANDER),
        })
    }

    /// Whether both can be true.
    fn meets(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

/// Bounds that a stamp has by what is known of earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    rate: Rate,
    /// The stamp whose earliest time bounds others the best, with that time.
    from: (u64, u64),
    /// Likewise the one whose latest time does.
    to: (u64, u64),
}

impl Reading {
    /// When a stamp was given.
    #[inline]
    pub(super) fn of(&self, stamp: u64) -> Arrival {
        let Rate { least, most } = self.rate;
        // Rounded down where the stamp is later, up where it is earlier.
        let ns = |(of, ns): (u64, u64), ahead: f64, behind: f64| match stamp.checked_sub(of) {
            Some(ticks) => ns.saturating_add((ticks as f64 * ahead) as u64),
            None => ns.saturating_sub(((of - stamp) as f64 * behind) as u64 + 1),
        };
        let tick_ns = most as u64 + 1;
        Arrival {
            earliest_ns: ns(self.from, least, most).saturating_sub(tick_ns),
            latest_ns: ns(self.to, most, least).saturating_add(tick_ns + 1),
        }
    }
}

/// The clock of a device, as far as packets of one receive queue have shown it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceClock(Option<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Between two stamps and the next ones the rate is learnt: the first, and one to go on from.
    samples: [Sample; 2],
    reading: Option<Reading>,
}

impl DeviceClock {
    /// Notes the stamp of a packet that polls found within `polled`, and gives what all stamps are
    /// to be read by, once that is known. A stamp that contradicts what was known begins anew.
    #[inline]
    pub(super) fn note(&mut self, stamp: u64, polled: Arrival) -> Option<Reading> {
        let earliest_ns = polled.earliest_ns.saturating_sub(DEVICE_AHEAD_NS);
        let sample = Sample { stamp, given: Arrival { earliest_ns, ..polled } };
        let begin = Known { samples: [sample; 2], reading: None };
        let known = self.0.get_or_insert(begin);
        if !known.note(sample) {
            *known = begin;
        }
        known.reading
    }
}

impl Known {
    /// Gives whether the sample fits what was known.
    fn note(&mut self, sample: Sample) -> bool {
        let Sample { stamp, given } = sample;
        if let Some(reading) = &mut self.reading {
            let read = reading.of(stamp);
            if read.latest_ns < given.earliest_ns || given.latest_ns < read.earliest_ns {
                return false;
            }
            if given.earliest_ns > read.earliest_ns {
                reading.from = (stamp, given.earliest_ns);
            }
            if given.latest_ns < read.latest_ns {
                reading.to = (stamp, given.latest_ns);
            }
        }
        // Of a queue that was not empty for a while, the sample says little about the rate.
        if given.width_ns() > 2 * DEVICE_AHEAD_NS {
            return true;
        }
        let [first, second] = self.samples;
        if let Some(rate) = Rate::between(first, sample, LEAST_NS) {
            match &mut self.reading {
                Some(reading) => reading.rate = rate,
                None if first.stamp != second.stamp
                    && Rate::between(second, sample, PROBE_NS)
                        .is_some_and(|probe| probe.meets(rate)) =>
                {
                    let (from, to) = ((stamp, given.earliest_ns), (stamp, given.latest_ns));
                    self.reading = Some(Reading { rate, from, to });
                }
                None => self.samples = [second, sample],
            }
        }
        let [first, second] = self.samples;
        let since_second_ns = given.latest_ns.saturating_sub(second.given.latest_ns);
        if self.reading.is_none() && first.stamp == second.stamp && since_second_ns > PROBE_NS {
            self.samples[1] = sample;
        } else if since_second_ns > SPAN_NS {
            self.samples = [second, sample];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock that runs a little faster and slower in turns.
    #[derive(Clone, Copy, Debug)]
    struct Clock {
        hz: f64,
        first: u64,
        wander: f64,
    }

    const START_NS: u64 = 1_700_000_000_000_000_000;

    impl Clock {
        fn stamp(&self, ns: u64) -> u64 {
            let seconds = (ns - START_NS) as f64 / 1e9;
            // Its rate is between one and 1 + wander times hz.
            let ran = seconds + self.wander * (seconds + (seconds * 3.0).sin() / 3.0) / 2.0;
            self.first + (ran * self.hz) as u64
        }
    }

    /// Packets after these pauses, each found to have arrived between so long before and so long
    /// after it did. Gives the widths of readings, and checks them.
    fn play(clock: Clock, steps: &[(u64, u64, u64)]) -> Vec<u64> {
        let (mut device, mut now_ns, mut widths) = (DeviceClock::default(), START_NS, Vec::new());
        for &(pause_ns, early_ns, late_ns) in steps {
            now_ns += pause_ns;
            let polled = Arrival { earliest_ns: now_ns - early_ns, latest_ns: now_ns + late_ns };
            let stamp = clock.stamp(now_ns);
            if let Some(reading) = device.note(stamp, polled) {
                let read = reading.of(stamp);
                assert!(
                    (read.earliest_ns..=read.latest_ns).contains(&now_ns),
                    "{clock:?}: {read:?} of {now_ns}"
                );
                // One that was stamped a little before.
                let before_ns = now_ns - pause_ns / 2;
                let read = reading.of(clock.stamp(before_ns));
                assert!((read.earliest_ns..=read.latest_ns).contains(&before_ns));
                widths.push(read.width_ns());
            }
        }
        widths
    }

    proptest! {
        /// Whatever its rate, where it began, and how it wanders: no bound is wrong.
        #[test]
        fn a_stamp_was_given_within_its_bounds(
            hz in prop_oneof![1e6..2e6, 1e8..1e9, Just(1e9), 2e9..5e9],
            first in prop_oneof![Just(0), 0..u64::MAX / 4],
            wander in 0.0..450e-6,
            steps in prop::collection::vec(
                (1_000_000u64..200_000_000, 0u64..3_000_000, 0u64..200_000), 1..2000,
            ),
        ) {
            play(Clock { hz, first, wander }, &steps);
        }
    }

    #[test]
    fn a_full_queues_packets_have_narrow_bounds() {
        let clock = Clock { hz: 156.25e6, first: 9, wander: 20e-6 };
        let idle = (1_000_000, 1_000, 1_000);
        let mut steps = vec![idle; 10_000];
        // Nothing left the queue empty for ten milliseconds, and packets waited for one of them.
        steps.extend([(1_000_000, 10_000_000, 1_000_000); 10]);
        let widths = play(clock, &steps);
        assert!(widths.len() > 5_000, "{}", widths.len());
        let widest = widths[widths.len() - 10..].iter().max().unwrap();
        assert!(*widest < 1_100_000, "{widest}");
    }

    #[test]
    fn a_clock_that_is_set_or_is_none_begins_anew() {
        let mut device = DeviceClock::default();
        let mut note = |stamp: u64, at: u64| {
            let ns = START_NS + at * 10_000_000;
            device.note(stamp, Arrival { earliest_ns: ns - 1_000, latest_ns: ns }).is_some()
        };
        let steady = |at: u64| at * 1_000_000;
        let known: Vec<bool> = (0..1_000).map(|at| note(steady(at), at)).collect();
        assert!(!known[400] && known[401..].iter().all(|&known| known), "after four seconds");
        assert!(!note(7, 1_000) && !note(steady(1_001), 1_001), "set back and forth");
        // The stamp in between spoils the first four seconds.
        let again: Vec<bool> = (1_002..1_600).map(|at| note(steady(at), at)).collect();
        assert!(
            again[..450].iter().all(|&known| !known) && again[550..].iter().all(|&known| known)
        );
        // It counts packets, not time.
        assert!(!note(steady(1_599) + 1, 1_600));
    }
}
