//! What packets that carry INT say of those that don't, where only a share of all carries it.
//!
//! Sources draw packets at random, whatever flow they are of and whatever becomes of them. Of a
//! flow whose packets at its sink are known, those with INT are so a random sample without
//! replacement, and how many of the sample came by a switch follows the hypergeometric
//! distribution. Its tails give bounds that hold however few packets were drawn (Clopper and
//! Pearson, Biometrika 1934). A switch that no packet of the sample came by is not reported, so
//! that bounds from below are given that one did at least.
//!
//! Some packets were drawn and carry nothing all the same, or lost their stack before they came to
//! their sink, and others could not be drawn: what they are is no chance. Nobody knows of which
//! flow they were, so every flow may have had all of them.

use calumma_sketchint::frames::Entered;

use crate::report::Estimated;
use crate::view::SinkView;

/// How often the bounds hold at least, over all draws.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Most packets of a flow: of more, logarithms of their factorials lose digits that bounds need.
const MOST: u64 = 1 << 36;

/// Packets of a window that entered all sources and are no matter of chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Drawn ones that could carry nothing, or whose stack came to no sink.
    pub(crate) unfit: u64,
    /// Those that entered while nothing was drawn.
    pub(crate) idle: u64,
}

impl Beside {
    /// By what sources did, and the stacks that came. What lacks was lost or was taken out of its
    /// packet on the way, and nobody knows which of both.
    pub(crate) fn of(entered: &Entered, sinks: &[SinkView]) -> Self {
        let came = sinks.iter().map(SinkView::with_stacks).fold(0, u64::saturating_add);
        let missing = entered.inserted.saturating_sub(came);
        Self { unfit: entered.unfit().saturating_add(missing), idle: entered.idle }
    }
}

/// How many packets of a flow came by a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The flow's packets at its sink, but for those whose way is known without INT.
    pub(crate) all: u64,
    /// Those of them that came with INT.
    pub(crate) drawn: u64,
    /// Those of these that say that they came by the switch.
    pub(crate) hits: u64,
    /// And those that don't say it, though they may have.
    pub(crate) unsure: u64,
}

impl Sample {
    /// What is estimated; `None` where the sample has no packet, or all of them, or where there are
    /// more than [`MOST`].
    pub(crate) fn estimate(&self, beside: Beside) -> Option<Estimated> {
        let Self { all, drawn, hits, unsure } = *self;
        let rest = all.checked_sub(drawn).filter(|&rest| rest > 0 && drawn > 0)?;
        if all > MOST {
            return None;
        }
        let idle = beside.idle.min(rest);
        let unfit = beside.unfit.min(rest - idle);
        let (population, sample) = (all - idle, drawn + unfit);
        let low = least(population, sample, hits, true);
        let misses = drawn.saturating_sub(hits + unsure);
        let high = population - least(population, sample, misses, false) + idle;
        let packets = all as f64 * hits as f64 / drawn as f64;
        let is_fair = idle + unfit + unsure == 0;
        Some(Estimated {
            packets: packets.clamp(low as f64, high as f64),
            standard_error: is_fair.then(|| standard_error(all, drawn, hits)),
            at_least: low,
            at_most: high,
            confidence: CONFIDENCE,
        })
    }
}

/// The standard error of `all` times the share of hits in a sample without replacement. As if one
/// packet more were a hit and one a miss (Laplace), since a sample all of one kind is no proof that
/// the others are.
fn standard_error(all: u64, drawn: u64, hits: u64) -> f64 {
    let (all, drawn, hits) = (all as f64, drawn as f64, hits as f64);
    let share = (hits + 1.0) / (drawn + 2.0);
    all * (share * (1.0 - share) / drawn * (all - drawn) / (all - 1.0)).sqrt()
}

/// The fewest of `all` packets that can be of a kind, so that a sample of `drawn` has `hits` of
/// them or more not too rarely: in half of what the confidence leaves. `are_seen` where samples
/// without any are not reported.
fn least(all: u64, drawn: u64, hits: u64, are_seen: bool) -> u64 {
    let (mut from, mut to) = (hits, all - (drawn - hits));
    while from < to {
        let middle = from + (to - from) / 2;
        if reaches((all, middle), drawn, hits, are_seen) { to = middle } else { from = middle + 1 }
    }
    from
}

/// Whether a sample of `drawn` out of `all`, of which `kind` are of a kind, has `hits` of these or
/// more in more than half of what the confidence leaves: of all samples, or of those that have any.
fn reaches((all, kind): (u64, u64), drawn: u64, hits: u64, are_seen: bool) -> bool {
    // Up to the mean, that is nearly half of all cases at least.
    if u128::from(hits) * u128::from(all) <= u128::from(drawn) * u128::from(kind) {
        return true;
    }
    let others = all - kind;
    let chosen = |of: u64, number: u64| {
        log_factorial(of) - log_factorial(number) - log_factorial(of - number)
    };
    let most = drawn.min(kind);
    if hits > most || drawn - hits > others {
        return hits <= most;
    }
    let log = chosen(kind, hits) + chosen(others, drawn - hits) - chosen(all, drawn);
    let mut enough = TAIL;
    if are_seen && drawn <= others {
        enough *= -(chosen(others, drawn) - chosen(all, drawn)).exp_m1();
    }
    let (mut term, mut sum) = (log.exp(), 0.0);
    for more in hits..=most {
        sum += term;
        if sum > enough || term <= sum * 1e-12 {
            break;
        }
        let ways = (kind - more) as f64 * (drawn - more) as f64;
        let back = (more + 1) as f64 * (others + more + 1 - drawn) as f64;
        term *= ways / back;
    }
    sum > enough
}

/// Beyond either bound.
const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// The natural logarithm of n!, by Stirling's series where that is exact to the last digits.
fn log_factorial(number: u64) -> f64 {
    if number < 32 {
        return (2..=number).map(|factor| (factor as f64).ln()).sum();
    }
    let n = number as f64;
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: u64, drawn: u64, hits: u64) -> Estimated {
        let sample = Sample { all, drawn, hits, unsure: 0 };
        sample.estimate(Beside::default()).unwrap()
    }

    /// How many of all samples have so many hits, by counting them.
    fn samples(all: u64, kind: u64, drawn: u64, hits: u64) -> u128 {
        let choose = |of: u64, number: u64| -> u128 {
            (0..u128::from(number)).fold(1, |ways, at| ways * (u128::from(of) - at) / (at + 1))
        };
        if hits > kind || drawn - hits > all - kind {
            return 0;
        }
        choose(kind, hits) * choose(all - kind, drawn - hits)
    }

    #[test]
    fn bounds_hold_as_often_as_they_promise_over_all_samples() {
        for (all, drawn) in [(2, 1), (12, 5), (30, 3), (30, 29), (40, 17), (60, 20)] {
            let bounds: Vec<Estimated> = (0..=drawn).map(|hits| of(all, drawn, hits)).collect();
            for kind in 0..=all {
                let (mut holds, mut total) = (0, 0);
                for hits in 1..=drawn {
                    let samples = samples(all, kind, drawn, hits);
                    let bounds = &bounds[hits as usize];
                    assert!(
                        samples == 0 || (hits..=all - (drawn - hits)).contains(&bounds.at_least)
                    );
                    total += samples;
                    holds += if (bounds.at_least..=bounds.at_most).contains(&kind) {
                        samples
                    } else {
                        0
                    };
                }
                let often = holds as f64 / total as f64;
                assert!(
                    total == 0 || often >= CONFIDENCE,
                    "{kind} of {all}, {drawn} drawn: {often}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_chance_widens_the_bounds() {
        let sample = Sample { all: 1000, drawn: 100, hits: 50, unsure: 0 };
        let fair = sample.estimate(Beside::default()).unwrap();
        assert_eq!(fair.packets, 500.0);
        assert!(fair.at_least > 390 && fair.at_most < 610, "{fair:?}");
        assert!((40.0..60.0).contains(&fair.standard_error.unwrap()));
        for beside in [Beside { unfit: 10, idle: 0 }, Beside { unfit: 0, idle: 10 }] {
            let wider = sample.estimate(beside).unwrap();
            assert!(wider.at_least < fair.at_least && wider.at_most > fair.at_most, "{wider:?}");
            assert_eq!((wider.packets, wider.standard_error), (500.0, None));
        }
        let unsure = Sample { unsure: 20, ..sample }.estimate(Beside::default()).unwrap();
        assert!(unsure.at_least == fair.at_least && unsure.at_most > fair.at_most);
        // Where none may be chance, nothing but what packets say is known.
        for beside in [Beside { unfit: 5000, idle: 0 }, Beside { unfit: 0, idle: 5000 }] {
            let all = sample.estimate(beside).unwrap();
            assert_eq!((all.at_least, all.at_most), (50, 950));
        }
        assert_eq!(Sample { drawn: 0, hits: 0, ..sample }.estimate(Beside::default()), None);
        assert_eq!(Sample { drawn: 1000, ..sample }.estimate(Beside::default()), None);
    }

    #[test]
    fn large_flows_have_narrow_bounds() {
        let large = of(10_000_000, 156_250, 50_000);
        assert!((large.packets - 3.2e6).abs() < 1.0);
        let error = large.standard_error.unwrap();
        let distance = (large.at_most - large.at_least) as f64 / (2.0 * 1.96 * error);
        assert!((0.98..1.02).contains(&distance), "{large:?}");
        let single = of(10_000_000, 156_250, 156_250);
        assert!(single.at_most == 10_000_000 && single.at_least > 9_999_000, "{single:?}");
    }

    #[test]
    fn flows_of_more_packets_than_can_be_have_an_answer_soon() {
        let most = of(MOST, MOST / 2, MOST / 4);
        let error = most.standard_error.unwrap();
        let distance = (most.at_most - most.at_least) as f64 / (2.0 * 1.96 * error);
        assert!((0.98..1.02).contains(&distance), "{most:?}");
        for all in [MOST + 1, u64::MAX] {
            let sample = Sample { all, drawn: all / 2, hits: all / 4, unsure: 0 };
            assert_eq!(sample.estimate(Beside::default()), None);
        }
    }
}
