//! The clocks of switches, which never quite agree.

use super::BEGIN_NS;
use crate::workload::Draw;

/// A switch's clock against true time: it shows `offset` more, and that grows by `drift`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SwitchClock {
    /// By how much it was ahead at `since_ns`, in nanoseconds.
    pub offset_ns: f64,
    /// By how much it goes fast: nanoseconds a nanosecond.
    pub drift: f64,
    /// True time at which `offset_ns` was so.
    pub since_ns: u64,
}

impl SwitchClock {
    /// The clocks of `edges` switches, each at most `offset_us` microseconds and `drift_ppm`
    /// millionths off.
    pub fn draw(seed: u64, edges: usize, offset_us: f64, drift_ppm: f64) -> Vec<Self> {
        let within = |draw: Draw, bound: f64| (2.0 * draw.share() - 1.0) * bound;
        (0..edges as u64)
            .map(|edge| {
                let draw = Draw::new(seed).of(u64::MAX).of(edge);
                Self {
                    offset_ns: within(draw.of(0), offset_us * 1e3),
                    drift: within(draw.of(1), drift_ppm * 1e-6),
                    since_ns: BEGIN_NS,
                }
            })
            .collect()
    }

    /// What the clock shows at true time `true_ns`.
    pub fn at(&self, true_ns: u64) -> u64 {
        true_ns.saturating_add_signed(self.ahead(true_ns).round() as i64)
    }

    /// By how much it is ahead at true time `true_ns`.
    pub(super) fn ahead(&self, true_ns: u64) -> f64 {
        self.offset_ns + true_ns.saturating_sub(self.since_ns) as f64 * self.drift
    }

    /// The first true time, not before `from_ns`, at which it shows at least `shown_ns`.
    pub fn when(&self, shown_ns: u64, from_ns: u64) -> u64 {
        // Good to a few nanoseconds at once; the rest step by step.
        let ahead = self.ahead(shown_ns) / (1.0 + self.drift);
        let guess = shown_ns.saturating_add_signed(-ahead.round() as i64);
        let mut time = guess.max(from_ns);
        while self.at(time) < shown_ns {
            time += 1;
        }
        while time > from_ns && self.at(time - 1) >= shown_ns {
            time -= 1;
        }
        time
    }

    /// The same clock with another offset or drift from `now_ns` on.
    #[must_use]
    pub fn changed(&self, now_ns: u64, offset_ns: Option<f64>, drift: Option<f64>) -> Self {
        Self {
            offset_ns: offset_ns.unwrap_or(self.ahead(now_ns)),
            drift: drift.unwrap_or(self.drift),
            since_ns: now_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_found_at_the_very_nanosecond_it_is_shown(
            offset_ns in -5e6..5e6,
            drift in -1e-3..1e-3,
            later in 0u64..100_000_000_000,
        ) {
            let since_ns = 1_700_000_000_000_000_000;
            let clock = SwitchClock { offset_ns, drift, since_ns };
            let shown = since_ns + 10_000_000 + later;
            let time = clock.when(shown, since_ns);
            prop_assert!(clock.at(time) >= shown);
            prop_assert!(clock.at(time - 1) < shown);
        }
    }

    #[test]
    fn a_clock_goes_on_from_where_it_was_when_its_drift_changes() {
        let clock = SwitchClock { offset_ns: 500.0, drift: 1e-6, since_ns: 1_000_000_000 };
        let later = clock.changed(2_000_000_000, None, Some(0.0));
        assert_eq!(later.at(2_000_000_000), 2_000_001_500);
        assert_eq!(later.at(9_000_000_000), 9_000_001_500);
        assert_eq!(later.changed(3_000_000_000, Some(0.0), None).at(4), 4);
    }
}
