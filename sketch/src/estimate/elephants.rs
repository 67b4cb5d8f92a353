//! Sizes of the large flows behind an array of wide counters.
//!
//! A wide counter holds at most a few large flows and a sum of small ones. How many small ones
//! there are of each size is known from a narrower array, so that their sum has a known
//! distribution Q, and what is left is to find sizes s with rates mu_s that make the values seen
//! likely, the probability of a value v being Q(v) + sum_s mu_s Q(v - s): expectation maximisation
//! over candidate sizes close below the values seen. Two large flows in one counter count as
//! one.

use std::ops::Range;

use super::mrac::compound_poisson;
use crate::simd::{Engine, Isa, Work};
use crate::tower::Stratum;

/// The sum of the small flows in a counter is followed up to this many packets.
const LONGEST_SUM: usize = 8192;

/// Work allowed, in products of a candidate's rate and a probability.
const WORK: usize = 2 << 20;

/// Iterations where the work allows them.
const ITERATIONS: usize = 8;

/// Flows by size from `lowest` on, ascending, behind the counters of a `stratum` that its share of
/// `small` flows (their number by size) hit as well. Counters that overflowed tell
/// nothing. The result holds many sizes near each counter value seen, with fractions of flows.
pub(super) fn large_flows(stratum: &Stratum, lowest: u64, small: &[f64]) -> Vec<(u64, f64)> {
    Engine::detect().run(Search { stratum, lowest, small })
}

/// [`large_flows`], compiled for vectors.
struct Search<'a> {
    stratum: &'a Stratum,
    lowest: u64,
    small: &'a [f64],
}

impl Work for Search<'_> {
    type Output = Vec<(u64, f64)>;

    #[inline(always)]
    fn work(self, _isa: impl Isa) -> Vec<(u64, f64)> {
        search(self.stratum, self.lowest, self.small)
    }
}

#[inline(always)]
fn search(stratum: &Stratum, lowest: u64, small: &[f64]) -> Vec<(u64, f64)> {
    let Stratum { counters: w, chance, ref histogram, .. } = *stratum;
    let seen: Vec<(u64, f64)> = histogram
        .iter()
        .filter(|&&(value, _)| u64::from(value) >= lowest && value != u32::MAX)
        .map(|&(value, holding)| (u64::from(value), f64::from(holding)))
        .collect();
    let sums = Sums::new(small, chance, WORK / (4 * seen.len()).max(1));
    let (sizes, windows) = candidates(&seen, lowest, &sums);

    let overflowed = histogram.last().filter(|last| last.0 == u32::MAX).map_or(0, |last| last.1);
    let share_unseen = f64::from(overflowed) / w;
    let mut rates = vec![1.0 / w; sizes.len()];
    let mut shares = vec![0.0; sizes.len()];
    let work: usize = windows.iter().map(|window| 2 * window.len()).sum();
    for _ in 0..ITERATIONS.min(WORK / work.max(1)).max(1) {
        shares.fill(0.0);
        for (window, &(value, holding)) in windows.iter().zip(&seen) {
            // The window ends with the largest candidate, and that leaves the smallest sum.
            let beside = &sums.backwards[sums.backwards.len() - window.len()..];
            let explained = sums.probability(value) + dot(&rates[window.clone()], beside);
            if explained <= 0.0 {
                continue;
            }
            let weight = holding / explained / w;
            for (share, sum) in shares[window.clone()].iter_mut().zip(beside) {
                *share += weight * sum;
            }
        }
        for (rate, share) in rates.iter_mut().zip(&shares) {
            *rate *= share + share_unseen;
        }
    }
    sizes.into_iter().zip(rates.into_iter().map(|rate| rate * w)).collect()
}

/// Probabilities of the sums that small flows make in a counter.
struct Sums {
    /// The smallest sum kept.
    smallest: u64,
    /// Probabilities, the largest sum first.
    backwards: Vec<f64>,
}

impl Sums {
    /// The sums of small flows in a counter that each falls on by `chance`, without the unlikely
    /// ones on either side, at most `room` of them.
    #[inline(always)]
    fn new(small: &[f64], chance: f64, room: usize) -> Self {
        let rates: Vec<f64> = small.iter().map(|flows| flows * chance).collect();
        let moment = |power| {
            rates.iter().enumerate().map(|(size, rate)| (size as f64).powi(power) * rate).sum()
        };
        let (mean, variance): (f64, f64) = (moment(1), moment(2));
        let mut all = vec![0.0; ((mean + 8.0 * variance.sqrt()) as usize + 1).min(LONGEST_SUM)];
        compound_poisson(&rates, &mut all);
        let total: f64 = all.iter().sum();
        all.iter_mut().for_each(|sum| *sum /= total);

        let kept = likely(&all, room.max(1));
        let backwards = all[kept.clone()].iter().rev().copied().collect();
        Self { smallest: kept.start as u64, backwards }
    }

    fn largest(&self) -> u64 {
        self.smallest + self.backwards.len() as u64 - 1
    }

    fn probability(&self, sum: u64) -> f64 {
        if (self.smallest..=self.largest()).contains(&sum) {
            self.backwards[(self.largest() - sum) as usize]
        } else {
            0.0
        }
    }
}

/// The likely part of a distribution: all but tails of 10^-7, or the `room` values that are left
/// when the less likely end is cut again and again.
fn likely(all: &[f64], room: usize) -> Range<usize> {
    let mut kept = 0..all.len();
    let mut dropped = 0.0;
    while kept.len() > 1 {
        let (first, last) = (all[kept.start], all[kept.end - 1]);
        dropped += first.min(last);
        if dropped > 1e-7 && kept.len() <= room {
            break;
        }
        if first < last {
            kept.start += 1;
        } else {
            kept.end -= 1;
        }
    }
    kept
}

/// Candidate sizes, ascending, and for every value seen the run of them that leaves a likely sum.
fn candidates(seen: &[(u64, f64)], lowest: u64, sums: &Sums) -> (Vec<u64>, Vec<Range<usize>>) {
    let mut sizes: Vec<u64> = Vec::new();
    let mut windows = Vec::with_capacity(seen.len());
    for &(value, _) in seen {
        let from = lowest.max(value.saturating_sub(sums.largest()));
        let to = value.saturating_sub(sums.smallest);
        let next = sizes.last().map_or(from, |&last| from.max(last + 1));
        sizes.extend(next..=to);
        let len = (to + 1).saturating_sub(from) as usize;
        windows.push(sizes.len() - len..sizes.len());
    }
    (sizes, windows)
}

/// Sixteen sums side by side, so that the loop is bound by multiplications and not by their
/// latency.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a16, a_rest), (b16, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0.0; 16];
    for (a, b) in a16.iter().zip(b16) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
