//! How far the edges' clocks are from the controller's, and from each other's.
//!
//! The controller sends each edge its time and gets three more back: when the edge received that,
//! when it answered, and when the answer came. As in NTP, half of what the two ways differ is the
//! offset, and it is wrong by at most half of the time both ways took together. Most exchanges wait
//! somewhere, so the one that waited least counts, unless it is so old that clocks may have drifted
//! further since than it was exact.
//!
//! Exchanges that can't both be right show that the clock was set in between: those from before
//! count no more, and epochs are not trusted until what was measured before is over.
//!
//! Pure; time is passed in, by a clock that is never set. Setting clocks right is chrony's or
//! ptp4l's business.

mod faults;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use calumma_analysis::ClockOffset;
use calumma_epoch::RESTART_NS;

pub use self::faults::Faults;

/// Exchanges that are remembered of an edge.
const REMEMBERED: usize = 32;

/// How fast two clocks that nobody disciplines may drift apart: nanoseconds a second.
const DRIFT_NS_PER_S: u64 = 50_000;

/// How fast they may where one of them is being set right little by little.
const SLEW_NS_PER_S: u64 = 1_000_000;

/// A node that has been connected for this long, and whose clock was not compared within it, may
/// show any time.
const COMPARED_NS: u64 = RESTART_NS;

/// How long a clock that was set spoils epochs: what was measured by its old time is reported
/// within that, and what is measured by the new one is not.
const SPOILS_NS: u64 = RESTART_NS;

/// One exchange of times, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The probe was sent, by the controller's clock.
    pub sent_ns: u64,
    /// The edge received it, by its own clock.
    pub received_ns: u64,
    /// The edge answered, by its own clock.
    pub answered_ns: u64,
    /// The answer was received, by the controller's clock.
    pub returned_ns: u64,
}

/// What is known of an edge's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockEstimate {
    /// The edge's time less the controller's, in nanoseconds.
    pub offset_ns: i64,
    /// Most that `offset_ns` is wrong.
    pub error_ns: u64,
    /// Time that the exchange was on its way, both ways together.
    pub delay_ns: u64,
}

impl ClockEstimate {
    /// What it says later, where clocks have drifted since.
    fn aged(self, age_ns: u64, drift_ns_per_s: u64) -> Self {
        let drift_ns = (age_ns / 1000).saturating_mul(drift_ns_per_s) / 1_000_000;
        Self { error_ns: self.error_ns.saturating_add(drift_ns), ..self }
    }

    /// By how much the clock was certainly set between this estimate and a later one; 0 where both
    /// may be right.
    fn contradicts(&self, later: &Self) -> u64 {
        let apart_ns = later.offset_ns.abs_diff(self.offset_ns);
        apart_ns.saturating_sub(self.error_ns.saturating_add(later.error_ns))
    }
}

/// A clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockStep {
    /// When that showed.
    at_ns: u64,
    /// By how much, about.
    by_ns: i64,
    /// By how much at least.
    certain_ns: u64,
}

/// What there is to say of a node's clock when an epoch is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// The best that is known of it; none before the first exchange.
    pub estimate: Option<ClockEstimate>,
    /// By how much it was set a moment ago, where that is certain to be more than another number:
    /// both in nanoseconds.
    pub set_by_ns: Option<(i64, u64)>,
    /// Since when it was not compared, where that is long ago, in nanoseconds.
    pub unknown_for_ns: Option<u64>,
}

/// What there is to say of a node when an epoch of it is judged, as far as frames don't say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// What is wrong with its clock or the paths to it.
    pub problem: Option<String>,
    /// How far its clock was from the controller's in all of the epoch.
    pub offset: Option<ClockOffset>,
    /// What kind of switch it is; `None` where it has not connected.
    pub kind: Option<&'static str>,
    /// Whether it measured when it first connected.
    pub measured_before: bool,
    /// Whether it was [gone] before the epoch was over.
    pub is_gone: bool,
}

/// Whether a node was gone before a time was over: its own end closed the connection at
/// `closed_ns`, as the end of its program does, and it is away still or was not back before the
/// time began. It passes nothing on then that it held, once packets may be taken for others'.
pub fn gone(closed_ns: u64, is_away: bool, time_ns: &Range<u64>) -> bool {
    closed_ns <= time_ns.end && (is_away || closed_ns >= time_ns.start)
}

/// The latest exchanges with one edge.
#[derive(Clone, Debug, Default)]
pub struct ClockFilter {
    /// What each exchange showed, and when.
    samples: VecDeque<(u64, ClockEstimate)>,
    step: Option<ClockStep>,
    /// When it last showed that the clock had not run evenly until then: it was set, or is being
    /// set right little by little.
    uneven_ns: Option<u64>,
}

impl ClockFilter {
    /// Takes an exchange in. One that can't have happened, by either clock alone, is ignored: one
    /// of them was set in between. Where it contradicts earlier ones, those are forgotten.
    pub fn take(&mut self, exchange: Exchange) {
        let Exchange { sent_ns, received_ns, answered_ns, returned_ns } = exchange;
        let (Some(there), Some(held)) =
            (returned_ns.checked_sub(sent_ns), answered_ns.checked_sub(received_ns))
        else {
            return;
        };
        let Some(delay_ns) = there.checked_sub(held) else { return };
        let way_out = i128::from(received_ns) - i128::from(sent_ns);
        let way_back = i128::from(answered_ns) - i128::from(returned_ns);
        let Ok(offset_ns) = i64::try_from((way_out + way_back) / 2) else { return };
        let error_ns = delay_ns.div_ceil(2);
        let sample = ClockEstimate { offset_ns, error_ns, delay_ns };
        self.compare(sample, returned_ns);
        if self.samples.len() == REMEMBERED {
            self.samples.pop_front();
        }
        self.samples.push_back((returned_ns, sample));
    }

    /// Holds a new sample against the earlier ones.
    fn compare(&mut self, sample: ClockEstimate, at_ns: u64) {
        let apart = |drift_ns_per_s| {
            let of_one = move |&(then_ns, older): &(u64, ClockEstimate)| {
                let age_ns = at_ns.saturating_sub(then_ns);
                let certain_ns = older.aged(age_ns, drift_ns_per_s).contradicts(&sample);
                (certain_ns, sample.offset_ns.saturating_sub(older.offset_ns))
            };
            self.samples.iter().map(of_one).max_by_key(|&(certain_ns, _)| certain_ns)
        };
        if let Some((certain_ns, by_ns)) = apart(SLEW_NS_PER_S)
            && certain_ns > 0
        {
            self.step = Some(ClockStep { at_ns, by_ns, certain_ns });
        }
        if apart(DRIFT_NS_PER_S).is_some_and(|(certain_ns, _)| certain_ns > 0) {
            self.samples.clear();
            self.uneven_ns = Some(at_ns);
        }
    }

    /// What there is to say at `now_ns`; the node has been connected since `connected_ns`, if it
    /// is. What was known of one that has gone is known as long as epochs that it measured may
    /// wait.
    pub fn state(&self, now_ns: u64, connected_ns: Option<u64>) -> ClockState {
        // The node may have read its clock as soon as the probe was sent.
        let compared_ns =
            self.samples.back().map(|(at_ns, last)| at_ns.saturating_sub(last.delay_ns));
        let known_ns = connected_ns.map(|since_ns| since_ns.max(compared_ns.unwrap_or(0)));
        let unknown_for_ns = known_ns.map(|known_ns| now_ns.saturating_sub(known_ns));
        let step = self.step.filter(|step| now_ns.saturating_sub(step.at_ns) < SPOILS_NS);
        let is_known = connected_ns.is_some()
            || compared_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < SPOILS_NS);
        ClockState {
            estimate: self.estimate(now_ns).filter(|_| is_known),
            set_by_ns: step.map(|step| (step.by_ns, step.certain_ns)),
            unknown_for_ns: unknown_for_ns.filter(|&for_ns| for_ns > COMPARED_NS),
        }
    }

    /// What is known at `now_ns` of all of the time since `since_ns`; `None` before the first
    /// exchange, and where the clock did not run evenly for so long.
    pub fn offset_since(&self, since_ns: u64, now_ns: u64) -> Option<ClockOffset> {
        if self.uneven_ns.is_some_and(|uneven_ns| uneven_ns >= since_ns) {
            return None;
        }
        let aged = self.samples.iter().map(|&(at_ns, sample)| {
            let apart_ns = now_ns.saturating_sub(at_ns).max(at_ns.abs_diff(since_ns));
            sample.aged(apart_ns, DRIFT_NS_PER_S)
        });
        let best = aged.min_by_key(|estimate| estimate.error_ns)?;
        Some(ClockOffset { offset_ns: best.offset_ns, error_ns: best.error_ns })
    }

    /// The best that is known at `now_ns`; none before the first exchange.
    pub fn estimate(&self, now_ns: u64) -> Option<ClockEstimate> {
        let aged = self
            .samples
            .iter()
            .map(|&(at_ns, sample)| sample.aged(now_ns.saturating_sub(at_ns), DRIFT_NS_PER_S));
        aged.min_by_key(|estimate| estimate.error_ns)
    }
}

/// The time that messages take to each edge and back; one edge's changes without a look at the
/// others.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    of_edge: HashMap<usize, u64>,
    /// The same as (nanoseconds, edge).
    ordered: BTreeSet<(u64, usize)>,
}

impl Delays {
    /// Sets the delay of the edge at a position; `None` forgets it.
    pub fn set(&mut self, edge: usize, delay_ns: Option<u64>) {
        let before = match delay_ns {
            Some(delay_ns) => self.of_edge.insert(edge, delay_ns),
            None => self.of_edge.remove(&edge),
        };
        if let Some(before) = before {
            self.ordered.remove(&(before, edge));
        }
        self.ordered.extend(delay_ns.map(|delay_ns| (delay_ns, edge)));
    }

    /// The longest of all; `None` where none is known.
    pub fn longest_ns(&self) -> Option<u64> {
        self.ordered.last().map(|&(delay_ns, _)| delay_ns)
    }
}

/// An edge whose clock is too far from another edge's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Position of the other edge.
    pub from: usize,
    /// This edge's time less the other's, in nanoseconds.
    pub by_ns: i64,
}

/// Which edges' clocks certainly differ by more than `guard_ns` from another's. Of two that do, the
/// one that is further from the controller's clock counts as the wrong one; the others are then
/// judged without it.
pub fn deviations(clocks: &[Option<ClockEstimate>], guard_ns: u64) -> Vec<Option<Deviation>> {
    let mut deviations = vec![None; clocks.len()];
    let mut known: Vec<(usize, ClockEstimate)> = clocks
        .iter()
        .enumerate()
        .filter_map(|(at, clock)| clock.map(|clock| (at, clock)))
        .collect();
    loop {
        let slowest = known.iter().min_by_key(|(_, clock)| clock.offset_ns);
        let fastest = known.iter().max_by_key(|(_, clock)| clock.offset_ns);
        let (Some(&slowest), Some(&fastest)) = (slowest, fastest) else { return deviations };
        let apart_ns = fastest.1.offset_ns.abs_diff(slowest.1.offset_ns);
        let doubt_ns = fastest.1.error_ns.saturating_add(slowest.1.error_ns);
        if apart_ns <= guard_ns.saturating_add(doubt_ns) {
            return deviations;
        }
        let far = |(_, clock): &(usize, ClockEstimate)| clock.offset_ns.unsigned_abs();
        let (wrong, other) =
            if far(&fastest) > far(&slowest) { (fastest, slowest) } else { (slowest, fastest) };
        let by_ns = wrong.1.offset_ns.saturating_sub(other.1.offset_ns);
        deviations[wrong.0] = Some(Deviation { from: other.0, by_ns });
        known.retain(|&(at, _)| at != wrong.0);
    }
}

/// What is wrong with each node's clock, in words, where `guard_ns` is the clock guard; `name`
/// gives the name of the node at a position.
pub fn wrong<'a>(
    clocks: &[ClockState],
    guard_ns: u64,
    name: impl Fn(usize) -> &'a str,
) -> Vec<Option<String>> {
    let estimates: Vec<_> = clocks.iter().map(|clock| clock.estimate).collect();
    let way = |by_ns: i64, back, ahead| if by_ns < 0 { back } else { ahead };
    let ms = |ns: u64| ns as f64 / 1e6;
    let deviating = |Deviation { from, by_ns }: Deviation| {
        format!(
            "its clock is {:.2} ms {} {}'s, more than the clock guard of {} ms: see `chronyc \
             tracking` on both, or raise clock_guard_us",
            ms(by_ns.unsigned_abs()),
            way(by_ns, "behind", "ahead of"),
            name(from),
            ms(guard_ns),
        )
    };
    let was_set = |(by_ns, certain_ns): (i64, u64)| {
        (certain_ns > guard_ns).then(|| {
            let by_ms = ms(by_ns.unsigned_abs());
            format!("its clock was set {} by {by_ms:.1} ms", way(by_ns, "back", "ahead"))
        })
    };
    let all = deviations(&estimates, guard_ns).into_iter().zip(clocks);
    all.map(|(deviation, clock)| {
        let was_set = || clock.set_by_ns.and_then(was_set);
        deviation.map(deviating).or_else(was_set)
    })
    .collect()
}

/// What is wrong with each node's clock, as [`wrong`] says it, and which clocks have
/// not been compared of late.
pub fn problems<'a>(
    clocks: &[ClockState],
    guard_ns: u64,
    name: impl Fn(usize) -> &'a str,
) -> Vec<Option<String>> {
    let unknown = |for_ns: u64| {
        let for_s = for_ns as f64 / 1e9;
        format!("its clock was not compared for {for_s:.1} s: it answers no probes")
    };
    let all = wrong(clocks, guard_ns, name).into_iter().zip(clocks);
    all.map(|(wrong, clock)| wrong.or_else(|| clock.unknown_for_ns.map(unknown))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 1_700_000_000_000_000_000;

    /// An exchange at `at_ns` with an edge whose clock is `offset_ns` ahead.
    fn exchange(at_ns: u64, offset_ns: i64, out_ns: u64, held_ns: u64, back_ns: u64) -> Exchange {
        let theirs = |ns: u64| ns.checked_add_signed(offset_ns).unwrap();
        Exchange {
            sent_ns: at_ns,
            received_ns: theirs(at_ns + out_ns),
            answered_ns: theirs(at_ns + out_ns + held_ns),
            returned_ns: at_ns + out_ns + held_ns + back_ns,
        }
    }

    fn clock(offset_us: i64) -> Option<ClockEstimate> {
        Some(ClockEstimate { offset_ns: offset_us * 1000, error_ns: 50_000, delay_ns: 100_000 })
    }

    #[test]
    fn a_node_that_closed_its_connection_is_gone_until_it_is_back() {
        let of = |closed_ns, is_away| {
            [0..10, 10..20, 20..30].map(|time| gone(closed_ns, is_away, &time))
        };
        assert_eq!(of(15, true), [false, true, true]);
        assert_eq!(of(15, false), [false, true, false]);
    }

    #[test]
    fn the_exchange_that_waited_least_counts_until_it_is_old() {
        let mut filter = ClockFilter::default();
        assert_eq!(filter.estimate(START), None);
        filter.take(exchange(START, 300_000, 40_000, 500, 60_000));
        filter.take(exchange(START + 1_000_000, 300_000, 900_000, 0, 50_000));
        let best = filter.estimate(START + 2_000_000).unwrap();
        assert_eq!((best.offset_ns, best.delay_ns), (290_000, 100_000));

        // An hour later the clock has drifted; a worse exchange of now knows more.
        let hour = 3_600_000_000_000;
        filter.take(exchange(START + hour, 900_000, 200_000, 0, 200_000));
        assert_eq!(filter.estimate(START + hour + 400_000).unwrap().offset_ns, 900_000);
    }

    #[test]
    fn a_clock_that_was_set_shows_with_the_next_exchange() {
        for by_ns in [-40_000_000, 3_000_000, 5_000_000_000] {
            let mut filter = ClockFilter::default();
            let second = 1_000_000_000;
            filter.take(exchange(START, 0, 20_000, 0, 30_000));
            assert_eq!(filter.state(START + second, Some(0)).unknown_for_ns, None);
            // The path has become slow, and the old exchange knows the clock better than this one.
            filter.take(exchange(START + second, by_ns, 200_000, 0, 300_000));
            let state = filter.state(START + second + 1_000_000, Some(0));
            let estimate = state.estimate.unwrap();
            assert!(estimate.offset_ns.abs_diff(by_ns) <= estimate.error_ns, "{estimate:?}");
            let (about_ns, certain_ns) = state.set_by_ns.unwrap();
            assert!(about_ns.abs_diff(by_ns) < 100_000 && certain_ns > 1_600_000, "{certain_ns}");
            let found = problems(&[state, state], 1_000_000, |_| "e2");
            assert!(found[0].as_ref().unwrap().contains("its clock was set"), "{found:?}");
            let later = filter.state(START + 4 * second, Some(0));
            assert_eq!((later.set_by_ns, later.unknown_for_ns), (None, Some(3_000_000_000)));
            assert_eq!(filter.state(START + 4 * second, None).unknown_for_ns, None);
        }
    }

    #[test]
    fn a_clock_that_is_set_right_little_by_little_was_not_set() {
        let mut filter = ClockFilter::default();
        let mut offset_ns = 40_000_000;
        for step in 0..400 {
            let now_ns = START + step * 250_000_000;
            filter.take(exchange(now_ns, offset_ns, 20_000, 0, 30_000));
            let state = filter.state(now_ns, Some(START));
            assert_eq!((state.set_by_ns, state.unknown_for_ns), (None, None), "{step}");
            let estimate = state.estimate.unwrap();
            assert!(estimate.offset_ns.abs_diff(offset_ns) < 200_000, "{step}");
            // 500 ppm, as the kernel does it.
            offset_ns -= 125_000;
        }
    }

    #[test]
    fn a_node_that_answers_no_probes_may_show_any_time() {
        let filter = ClockFilter::default();
        assert_eq!(filter.state(START + 900_000_000, Some(START)).unknown_for_ns, None);
        let state = filter.state(START + 1_500_000_000, Some(START));
        let found = problems(&[state, ClockState::default()], 1_000_000, |_| "e2");
        assert_eq!(
            found[0].as_deref(),
            Some("its clock was not compared for 1.5 s: it answers no probes")
        );
        assert_eq!(found[1], None);
    }

    #[test]
    fn times_that_run_backwards_are_ignored() {
        let mut filter = ClockFilter::default();
        let sound = exchange(START, 0, 1000, 1000, 1000);
        filter.take(Exchange { returned_ns: sound.sent_ns - 1, ..sound });
        filter.take(Exchange { answered_ns: sound.received_ns - 1, ..sound });
        filter.take(Exchange { answered_ns: sound.received_ns + 5000, ..sound });
        filter.take(Exchange { received_ns: 0, answered_ns: u64::MAX, ..sound });
        assert_eq!(filter.estimate(START), None);
    }

    #[test]
    fn an_edge_beyond_the_guard_is_found_and_the_others_are_judged_without_it() {
        let guard_ns = 1_000_000;
        assert_eq!(deviations(&[clock(400), None, clock(-500)], guard_ns), [None; 3]);
        let found = deviations(&[clock(400), clock(-300), clock(2500)], guard_ns);
        assert_eq!(found, [None, None, Some(Deviation { from: 1, by_ns: 2_800_000 })]);
        // All alike, though far from the controller: epochs are the edges' own.
        assert_eq!(deviations(&[clock(9000), clock(9100)], guard_ns), [None; 2]);
        let vague = ClockEstimate { error_ns: 3_000_000, ..clock(2500).unwrap() };
        assert_eq!(deviations(&[clock(0), Some(vague)], guard_ns), [None; 2], "not certain");
    }

    #[test]
    fn the_longest_delay_follows_each_edge() {
        let mut delays = Delays::default();
        assert_eq!(delays.longest_ns(), None);
        delays.set(0, Some(5));
        delays.set(1, Some(9));
        delays.set(2, Some(9));
        delays.set(1, Some(3));
        assert_eq!(delays.longest_ns(), Some(9));
        delays.set(2, None);
        assert_eq!(delays.longest_ns(), Some(5));
        delays.set(0, Some(2));
        assert_eq!(delays.longest_ns(), Some(3));
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(
            offset_ns in -10_000_000_000i64..10_000_000_000,
            ways in prop::collection::vec((0u64..50_000_000, 0u64..5_000_000, 0u64..50_000_000), 1..60),
        ) {
            let mut filter = ClockFilter::default();
            let mut now_ns = START;
            for (out_ns, held_ns, back_ns) in ways {
                filter.take(exchange(now_ns, offset_ns, out_ns, held_ns, back_ns));
                now_ns += 250_000_000;
                let estimate = filter.estimate(now_ns).unwrap();
                prop_assert!(estimate.offset_ns.abs_diff(offset_ns) <= estimate.error_ns);
            }
        }

        /// With the exchange after a step the estimate is as right as that one can tell, and a
        /// large step is always noticed.
        /// Of a clock that drifts as fast as clocks may.
        #[test]
        fn the_true_offset_of_a_while_is_within_its_error(
            offset_ns in -10_000_000_000i64..10_000_000_000,
            (drifts_back, since_ms) in (any::<bool>(), 0..9_000_u64),
            exchanges in prop::collection::vec((0..3_000_000u64, 0..3_000_000u64, 1..400u64), 1..40),
        ) {
            let mut filter = ClockFilter::default();
            let shown = |now_ns: u64| {
                let drift_ns = ((now_ns - START) / 20_000) as i64;
                offset_ns + if drifts_back { -drift_ns } else { drift_ns }
            };
            let mut now_ns = START;
            for (out_ns, back_ns, wait_ms) in exchanges {
                let theirs = |ns: u64| ns.checked_add_signed(shown(ns)).unwrap();
                filter.take(Exchange {
                    sent_ns: now_ns,
                    received_ns: theirs(now_ns + out_ns),
                    answered_ns: theirs(now_ns + out_ns),
                    returned_ns: now_ns + out_ns + back_ns,
                });
                now_ns += out_ns + back_ns + wait_ms * 1_000_000;
            }
            let since_ns = now_ns.saturating_sub(since_ms * 1_000_000).max(START);
            let known = filter.offset_since(since_ns, now_ns).unwrap();
            for at_ns in [since_ns, since_ns.midpoint(now_ns), now_ns] {
                let wrong_ns = known.offset_ns.abs_diff(shown(at_ns));
                // What it drifts while an exchange is under way.
                prop_assert!(wrong_ns <= known.error_ns + 400, "{wrong_ns} {known:?}");
            }
        }

        #[test]
        fn the_true_offset_is_within_the_errors_of_a_clock_that_is_set(
            turns in prop::collection::vec(
                (0u64..5_000_000, 0u64..5_000_000, prop::option::of(-5_000_000_000i64..5_000_000_000)),
                1..60,
            ),
        ) {
            let mut filter = ClockFilter::default();
            let (mut now_ns, mut offset_ns) = (START, 0);
            for (turn, (out_ns, back_ns, step_ns)) in turns.into_iter().enumerate() {
                offset_ns += step_ns.unwrap_or(0);
                filter.take(exchange(now_ns, offset_ns, out_ns, 0, back_ns));
                let state = filter.state(now_ns + out_ns + back_ns, Some(START));
                let estimate = state.estimate.unwrap();
                let newest_ns = (out_ns + back_ns).div_ceil(2);
                let wrong_ns = estimate.offset_ns.abs_diff(offset_ns);
                prop_assert!(wrong_ns <= estimate.error_ns + 2 * newest_ns, "{wrong_ns}");
                if turn > 0 && step_ns.is_some_and(|step_ns| step_ns.abs() > 20_000_000) {
                    prop_assert!(state.set_by_ns.is_some_and(|(_, certain)| certain > 1_000_000));
                }
                now_ns += 250_000_000;
            }
        }

        #[test]
        fn what_is_left_after_the_deviations_agrees(
            offsets in prop::collection::vec(prop::option::of(-5000i64..5000), 0..12),
        ) {
            let clocks: Vec<_> = offsets.iter().map(|us| us.and_then(clock)).collect();
            let found = deviations(&clocks, 1_000_000);
            let left: Vec<i64> = clocks.iter().zip(&found)
                .filter(|(_, deviation)| deviation.is_none())
                .filter_map(|(clock, _)| clock.map(|clock| clock.offset_ns)).collect();
            if let (Some(min), Some(max)) = (left.iter().min(), left.iter().max()) {
                prop_assert!(max - min <= 1_100_000);
            }
        }
    }
}
