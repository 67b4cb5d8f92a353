//! Where an lcore's time goes: cycles by stage, and how long its bursts take, those at an event
//! apart from all others.
//!
//! One reading of the time stamp counter a burst, about a cycle a packet, and two more where the
//! stages of a burst are told apart: in one of `EVERY`. Fixed in size: recording allocates nothing.

use hdrhistogram::Histogram;

use crate::measure::Moment;

/// Of so many bursts the stages of one are timed; the others' time is divided as its is.
const EVERY: u32 = 16;

/// Longest burst that is told apart, in nanoseconds; longer ones count as this long.
const LONGEST_NS: u64 = 1_000_000_000;

/// Significant digits of a burst's time.
const DIGITS: u8 = 2;

/// What an lcore does with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Rounds of polling in which all queues are empty.
    Idle,
    /// Receiving a burst, and what else is done before: an epoch's events, polling empty queues.
    Receive,
    /// Parsing, recording and marking it.
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
    /// Cycles of the bursts since the last that was timed by stage.
    undivided: u64,
    /// Bursts until the next of those.
    until_sample: u32,
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
            undivided: 0,
            until_sample: 0,
            bursts: Moment::ALL.map(|_| histogram()),
            ns_a_cycle: 1e9 / hz.max(1) as f64,
        }
    }

    /// Adds cycles of idling.
    #[inline]
    pub fn idle(&mut self, cycles: u64) {
        self.cycles[Stage::Idle as usize] += cycles;
    }

    /// Whether the next burst's stages are to be timed: see [`stages`](Self::stages). To be asked
    /// once a burst.
    #[inline]
    pub fn samples(&mut self) -> bool {
        let now = self.until_sample == 0;
        self.until_sample = if now { EVERY } else { self.until_sample } - 1;
        now
    }

    /// What the stages of the last burst took, in cycles: its time and that of the bursts since the
    /// last call is divided among the stages as this one's.
    #[inline]
    pub fn stages(&mut self, receive: u64, work: u64, transmit: u64) {
        let all = std::mem::take(&mut self.undivided);
        let took = (receive + work + transmit).max(1);
        let share = |cycles| (u128::from(all) * u128::from(cycles) / u128::from(took)) as u64;
        let (received, transmitted) = (share(receive), share(transmit));
        self.cycles[Stage::Receive as usize] += received;
        self.cycles[Stage::Work as usize] += all - received - transmitted;
        self.cycles[Stage::Transmit as usize] += transmitted;
    }

    /// A burst was done within so many cycles, from before the epoch's events were looked at to
    /// after its last packet was sent.
    #[inline]
    pub fn burst(&mut self, cycles: u64, moment: Moment) {
        self.undivided = self.undivided.saturating_add(cycles);
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
        self.undivided = 0;
        self.until_sample = 0;
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
        for _ in 0..999 {
            profile.burst(2_000, Moment::Ordinary);
        }
        profile.burst(2_000_000, Moment::Ordinary);
        profile.burst(6_000, Moment::Flip);
        profile.burst(u64::MAX, Moment::Flip);
        let mut both = Profile::new(2_000_000_000);
        both.add(&profile);
        let named: std::collections::HashMap<_, _> = both.named().into_iter().collect();
        assert_eq!(named["burst.number"], 1000);
        assert!((990..1010).contains(&named["burst.p50_ns"]));
        assert!((990_000..1_010_000).contains(&named["burst.max_ns"]));
        assert_eq!(named["burst_at_flip.number"], 2);
        assert!(named["burst_at_flip.max_ns"] >= LONGEST_NS);
    }

    #[test]
    fn the_time_of_all_bursts_is_divided_as_that_of_those_looked_at() {
        let mut profile = Profile::new(2_000_000_000);
        // The first of a profile is one of them.
        assert!(profile.clone().samples());
        let mut looked_at = 0;
        for _ in 0..=10 * EVERY {
            let sampled = profile.samples();
            profile.burst(if sampled { 40 } else { 60 }, Moment::Ordinary);
            if sampled {
                looked_at += 1;
                profile.stages(10, 25, 5);
            }
        }
        assert_eq!(looked_at, 11);
        profile.idle(500);
        let mut both = Profile::new(2_000_000_000);
        both.add(&profile);
        both.add(&profile);
        let busy = u64::from(2 * (40 + 10 * (40 + 60 * (EVERY - 1))));
        let stages = Stage::ALL.map(|stage| both.cycles(stage));
        assert_eq!(stages.iter().sum::<u64>(), 1000 + busy);
        assert_eq!(stages[Stage::Idle as usize], 1000);
        assert!(stages[Stage::Receive as usize].abs_diff(busy / 4) < 30, "{stages:?}");
        assert!(stages[Stage::Transmit as usize].abs_diff(busy / 8) < 30, "{stages:?}");
        both.clear();
        assert!(Stage::ALL.into_iter().all(|stage| both.cycles(stage) == 0));
    }
}
