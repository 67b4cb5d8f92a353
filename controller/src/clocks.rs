//! How far the edges' clocks are from the controller's, and from each other's.
//!
//! The controller sends each edge its time and gets three more back: when the edge received that,
//! when it answered, and when the answer came. As in NTP, half of what the two ways differ is the
//! offset, and it is wrong by at most half of the time both ways took together. Most exchanges wait
//! somewhere, so the one that waited least counts, unless it is so old that clocks may have drifted
//! further since than it was exact.
//!
//! Pure; time is passed in. Setting clocks right is chrony's or ptp4l's business.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Exchanges that are remembered of an edge.
const REMEMBERED: usize = 32;

/// How fast two clocks that nobody disciplines may drift apart: nanoseconds a second.
const DRIFT_NS_PER_S: u64 = 50_000;

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

/// The latest exchanges with one edge.
#[derive(Clone, Debug, Default)]
pub struct ClockFilter {
    /// What each exchange showed, and when.
    samples: VecDeque<(u64, ClockEstimate)>,
}

impl ClockFilter {
    /// Takes an exchange in. One that can't have happened, by either clock alone, is ignored: one
    /// of them was set in between.
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
        if self.samples.len() == REMEMBERED {
            self.samples.pop_front();
        }
        let error_ns = delay_ns.div_ceil(2);
        self.samples.push_back((returned_ns, ClockEstimate { offset_ns, error_ns, delay_ns }));
    }

    /// Forgets all exchanges: another switch may answer next.
    pub fn clear(&mut self) {
        self.samples.clear();
    }

    /// The best that is known at `now_ns`; none before the first exchange.
    pub fn estimate(&self, now_ns: u64) -> Option<ClockEstimate> {
        let aged = self.samples.iter().map(|&(at_ns, sample)| {
            let age_us = now_ns.saturating_sub(at_ns) / 1000;
            let drift_ns = age_us.saturating_mul(DRIFT_NS_PER_S) / 1_000_000;
            ClockEstimate { error_ns: sample.error_ns.saturating_add(drift_ns), ..sample }
        });
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
