//! Trials, each with keys and hash functions of its own, and the search for what they need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use calumma_sketch::{HashFamily, HashKey};

/// The hash functions of a trial.
pub(super) fn family(seed: u64) -> HashFamily {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    HashFamily::new(&HashKey::from_bytes(key))
}

/// The least number with which it succeeds, within 2 % or `step`.
pub(super) fn least(guess: usize, step: usize, succeeds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (guess / 2, guess);
    while !succeeds(high) {
        (low, high) = (high, high + high / 2);
    }
    while low > 0 && succeeds(low) {
        (low, high) = (low / 2, low);
    }
    while high - low > (high / 50).max(step) {
        let middle = low.midpoint(high);
        if succeeds(middle) { high = middle } else { low = middle }
    }
    high
}

/// Whether at most `allowed` trials fail; ends at the first failure too many.
pub(super) fn often(trials: usize, allowed: usize, succeeds: impl Fn(u64) -> bool + Sync) -> bool {
    failures(trials, allowed, succeeds) <= allowed
}

/// How many trials fail; stops counting soon after `most`.
pub(super) fn failures(trials: usize, most: usize, succeeds: impl Fn(u64) -> bool + Sync) -> usize {
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while failures.load(Ordering::Relaxed) <= most {
            let trial = next.fetch_add(1, Ordering::Relaxed);
            if trial >= trials {
                break;
            }
            if !succeeds(trial as u64) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    failures.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_close_above_the_least_that_succeeds() {
        for wanted in [10, 333, 5_000] {
            let found = least(400, 1, |number| number >= wanted);
            assert!(found >= wanted && found <= wanted + wanted / 50 + 1, "{found} for {wanted}");
        }
    }

    #[test]
    fn trials_are_allowed_so_many_failures() {
        let one_in_ten = |seed: u64| !seed.is_multiple_of(10);
        assert_eq!(failures(100, 100, one_in_ten), 10);
        assert!(often(100, 10, one_in_ten) && !often(100, 9, one_in_ten));
    }
}
