//! One tower that several cores fill (section VI-C of the SketchINT paper): each word of its
//! counters behind a lock, or none, so that a packet may be lost to another one at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use calumma_sketch::FlowKey;

use crate::hash::Hash;

/// Bits of the counters, by array.
const WIDTHS: [u32; 5] = [2, 4, 8, 16, 32];

/// A word that several cores change.
pub trait Guarded: Sync {
    /// The word 0.
    fn zero() -> Self;

    /// Changes it, and gives what it is then.
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32;
}

/// With a lock: no change is lost.
impl Guarded for Mutex<u32> {
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline]
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        let mut word = self.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *word = by(*word);
        *word
    }
}

/// Without one: what another core writes between reading and writing is lost.
impl Guarded for AtomicU32 {
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline]
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        let word = by(self.load(Ordering::Relaxed));
        self.store(word, Ordering::Relaxed);
        word
    }
}

/// Five arrays of counters of 2 to 32 bits, all of as many words.
#[derive(Debug)]
pub struct SharedTower<W> {
    hash: Hash,
    arrays: [Box<[W]>; WIDTHS.len()],
}

impl<W: Guarded> SharedTower<W> {
    /// An empty tower of so many words an array.
    pub fn new(words: usize, seed: u64) -> Self {
        let array = || (0..words.max(1)).map(|_| W::zero()).collect();
        Self { hash: Hash::new(seed), arrays: [(); WIDTHS.len()].map(|()| array()) }
    }

    /// Counts a packet; gives the flow's packets so far, `u32::MAX` where nobody knows.
    #[inline]
    pub fn insert(&self, key: &FlowKey) -> u32 {
        self.each(key, |counter, most| counter + u32::from(counter < most))
    }

    /// A flow's packets; `u32::MAX` where nobody knows.
    pub fn query(&self, key: &FlowKey) -> u32 {
        self.each(key, |counter, _| counter)
    }

    #[inline]
    fn each(&self, key: &FlowKey, change: impl Fn(u32, u32) -> u32) -> u32 {
        let hashed = self.hash.of(key);
        let mut least = u32::MAX;
        for (number, (array, bits)) in (0..).zip(self.arrays.iter().zip(WIDTHS)) {
            let bit = hashed.index(number, array.len() * (32 / bits) as usize) * bits as usize;
            let (most, shift) = (u32::MAX >> (32 - bits), bit % 32);
            let word = array[bit / 32].change(|word| {
                let counter = word >> shift & most;
                word & !(most << shift) | change(counter, most) << shift
            });
            let counter = word >> shift & most;
            least = least.min(if counter == most { u32::MAX } else { counter });
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> FlowKey {
        FlowKey::from_words(number, 1, 2, 6)
    }

    #[test]
    fn one_core_counts_alike_with_locks_and_without() {
        let (locked, loose) =
            (SharedTower::<Mutex<u32>>::new(64, 7), SharedTower::<AtomicU32>::new(64, 7));
        for packet in 0..50_000_u32 {
            let flow = flow(packet % 300 % (packet % 11 + 1));
            assert_eq!(locked.insert(&flow), loose.insert(&flow));
        }
        assert!((0..300).all(|number| locked.query(&flow(number)) == loose.query(&flow(number))));
        assert!(locked.query(&flow(0)) >= 4_545);
    }

    #[test]
    fn with_locks_no_packet_is_lost() {
        let tower = SharedTower::<Mutex<u32>>::new(1024, 7);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..30_000).map(|_| tower.insert(&flow(1))).max());
            }
        });
        assert_eq!(tower.query(&flow(1)), 60_000);
    }
}
