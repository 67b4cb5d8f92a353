//! Trials, each with keys and hash functions of its own, and the search for what they need.

use std::sync::OnceLock;
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
    let failures = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    on_all_cores(|| {
        while failures.load(Ordering::Relaxed) <= most {
            let trial = next.fetch_add(1, Ordering::Relaxed);
            if trial >= trials {
                break;
            }
            if !succeeds(trial as u64) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    failures.into_inner()
}

/// What comes of trials 0 to `trials`, in their order. Each core takes the next trial when it has
/// finished one.
pub(super) fn all<T: Send + Sync>(trials: usize, trial: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let results: Vec<OnceLock<T>> = (0..trials).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    on_all_cores(|| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(at) else { break };
            result.get_or_init(|| trial(at as u64));
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn on_all_cores(work: impl Fn() + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work))));
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
    fn results_come_in_the_order_of_the_trials() {
        assert_eq!(all(100, |seed| seed * seed), (0..100).map(|n| n * n).collect::<Vec<u64>>());
    }

    #[test]
    fn trials_are_allowed_so_many_failures() {
        let one_in_ten = |seed: u64| !seed.is_multiple_of(10);
        assert_eq!(failures(100, 100, one_in_ten), 10);
        assert!(often(100, 10, one_in_ten) && !often(100, 9, one_in_ten));
    }
}
