//! Where an lcore's time goes: cycles by stage, and how long its bursts take, those at an event
//! apart from all others.
//!
//! Four readings of the time stamp counter a burst, under three cycles a packet. Fixed in size: recording
//! allocates nothing.

use hdrhistogram::Histogram;

use crate::measure::Moment;

/// Longest burst that is told apart, in nanoseconds; longer ones count as this long.
const LONGEST_NS: u64 = 1_000_000_000;

/// Significant digits of a burst's time.
const DIGITS: u8 = 2;

/// What an lcore does with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Polling queues that are empty, and everything between bursts.
    Idle,
    /// Receiving a burst.
    Receive,
    /// Parsing, recording and marking it, and what an epoch's events ask for.
    Work,
    /// Sending it.
    Transmit,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Receive, Self::Work, Self::Transmit];

    /// As it is called among figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Receive => "receive",
            Self::Work => "work",
            Self::Transmit => "transmit",
        }
    }
}

/// Where an lcore's time went.
#[derive(Clone, Debug)]
pub struct Profile {
    cycles: [u64; Stage::ALL.len()],
    /// Nanoseconds of the bursts at each kind of moment.
    bursts: [Histogram<u64>; Moment::ALL.len()],
    ns_a_cycle: f64,
}

impl Profile {
    /// Nothing yet, on a machine whose time stamp counter runs at `hz`.
    ///
    /// # Panics
    /// Never: the bounds of the histograms are constants that hold.
    pub fn new(hz: u64) -> Self {
        let histogram = || Histogram::new_with_max(LONGEST_NS, DIGITS).expect("valid bounds");
        Self {
            cycles: [0; Stage::ALL.len()],
            bursts: Moment::ALL.map(|_| histogram()),
            ns_a_cycle: 1e9 / hz.max(1) as f64,
        }
    }

    /// Adds cycles to a stage.
    #[inline]
    pub fn spend(&mut self, stage: Stage, cycles: u64) {
        self.cycles[stage as usize] += cycles;
    }

    /// A burst was done within so many cycles, from before the epoch's events were looked at to after
    /// its last packet was sent.
    #[inline]
    pub fn burst(&mut self, cycles: u64, moment: Moment) {
        let ns = (cycles as f64 * self.ns_a_cycle) as u64;
        self.bursts[moment as usize].saturating_record(ns);
    }

    /// Adds another lcore's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.cycles.iter_mut().zip(other.cycles) {
            *mine += theirs;
        }
        for (mine, theirs) in self.bursts.iter_mut().zip(&other.bursts) {
            // Both have the same bounds, so nothing is refused.
            let _ = mine.add(theirs);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.cycles.fill(0);
        self.bursts.iter_mut().for_each(Histogram::reset);
    }

    /// Cycles that were spent in a stage.
    pub fn cycles(&self, stage: Stage) -> u64 {
        self.cycles[stage as usize]
    }

    /// Every figure with its name: cycles by stage, and quantiles of the bursts' times.
    pub fn named(&self) -> Vec<(String, u64)> {
        let cycles = Stage::ALL
            .into_iter()
            .map(|stage| (format!("cycles.{}", stage.name()), self.cycles[stage as usize]));
        let bursts = Moment::ALL.map(Moment::bursts).into_iter().zip(&self.bursts);
        let bursts = bursts.flat_map(|(name, times)| {
            [
                (format!("{name}.number"), times.len()),
                (format!("{name}.p50_ns"), times.value_at_quantile(0.5)),
                (format!("{name}.p99_ns"), times.value_at_quantile(0.99)),
                (format!("{name}.p999_ns"), times.value_at_quantile(0.999)),
                (format!("{name}.max_ns"), times.max()),
            ]
        });
        cycles.chain(bursts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_found_under_its_name() {
        let mut profile = Profile::new(2_000_000_000);
        profile.spend(Stage::Work, 70);
        profile.spend(Stage::Work, 30);
        for _ in 0..999 {
            profile.burst(2_000, Moment::Ordinary);
        }
        profile.burst(2_000_000, Moment::Ordinary);
        profile.burst(6_000, Moment::Flip);
        profile.burst(u64::MAX, Moment::Flip);
        let mut both = Profile::new(2_000_000_000);
        both.add(&profile);
        let named: std::collections::HashMap<_, _> = both.named().into_iter().collect();
        assert_eq!(named["cycles.work"], 100);
        assert_eq!(named["burst.number"], 1000);
        assert!((990..1010).contains(&named["burst.p50_ns"]));
        assert!((990_000..1_010_000).contains(&named["burst.max_ns"]));
        assert_eq!(named["burst_at_flip.number"], 2);
        assert!(named["burst_at_flip.max_ns"] >= LONGEST_NS);
    }
}
