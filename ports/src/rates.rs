//! How often an address asks: within a rate that it can save up for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What one request takes of an address's time: a thousand a second.
const EACH: Duration = Duration::from_millis(1);

/// How much time it can save up: two thousand requests at once.
const SAVED: Duration = Duration::from_secs(2);

/// Addresses that are remembered at most.
const MOST: usize = 4096;

/// Of each address that has asked lately, until when its time is taken.
#[derive(Debug)]
pub(crate) struct Rates<A> {
    taken: Mutex<HashMap<A, Instant>>,
    refused: AtomicU64,
}

impl<A> Default for Rates<A> {
    fn default() -> Self {
        Self { taken: Mutex::default(), refused: AtomicU64::new(0) }
    }
}

impl<A: Eq + Hash> Rates<A> {
    /// Whether an address may ask at `now`.
    pub(crate) fn allows(&self, address: A, now: Instant) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= MOST {
            taken.retain(|_, until| *until > now);
        }
        if taken.len() >= MOST {
            // Whoever has so many addresses gains no more by that than one more burst of each.
            taken.clear();
        }
        let until = taken.entry(address).or_insert(now);
        let next = (*until).max(now) + EACH;
        let allowed = next - now <= SAVED;
        if allowed {
            *until = next;
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }

    /// How many requests were not allowed.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_too_often_is_refused_until_time_has_passed_and_others_are_not() {
        let (rates, now) = (Rates::default(), Instant::now());
        let allowed = |address: u32, millisecond| {
            rates.allows(address, now + Duration::from_millis(millisecond))
        };
        assert_eq!((0..10_000).filter(|_| allowed(1, 0)).count(), 2000);
        assert!(allowed(2, 0));
        assert_eq!((0..10_000).filter(|_| allowed(1, 30)).count(), 30);
        assert_eq!((0..10_000).filter(|_| allowed(1, 60_000)).count(), 2000);
        assert_eq!(rates.refused(), 8000 + 9970 + 8000);
    }

    #[test]
    fn any_number_of_addresses_takes_bounded_memory() {
        let (rates, now) = (Rates::default(), Instant::now());
        assert!((0..10 * MOST).all(|address| rates.allows(address, now)));
        assert!(rates.taken.lock().unwrap().len() <= MOST);
    }
}
