//! Claims: flows of which the last window had many packets.
//!
//! How much a flow has changed is only known if its packets are counted in both windows. One that
//! falls off would find no row in the second, as others have more packets by then: so it may take
//! one for what it had in the first.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rows::WAYS;
use super::tags::{OF_A_WORD, Sets, WORDS, tag};
use crate::simd::lanes;

/// Tags of flows that have a claim to a [row](super::Rows), for all lcores of a sink. One writes
/// while others look: nothing but who gets a row depends on it.
#[derive(Debug)]
pub struct Claims {
    /// Tags of [`WAYS`] flows each; 0 is none.
    buckets: Box<[[AtomicU64; WORDS]]>,
    /// How a word chooses one.
    by: Sets,
}

impl Claims {
    /// No claims yet, with room for those to all rows of so many lcores, `sets` sets on each.
    pub fn new(sets: usize, lcores: usize) -> Self {
        let buckets = sets.max(1) * lcores.max(1);
        let by = Sets::new(buckets);
        Self { buckets: (0..buckets).map(|_| Default::default()).collect(), by }
    }

    /// Whether a flow has one. Another flow's may be taken for it, one time in 4,000 at most.
    #[inline]
    pub fn has(&self, word: u64) -> bool {
        let bucket = &self.buckets[self.by.of(word)];
        bucket.iter().any(|of| lanes(of.load(Ordering::Relaxed), tag(word)) != 0)
    }

    /// Gives claims to these flows, each with its word and its packets, and takes all others back.
    /// Where there are too many, the larger ones have them. Takes memory.
    pub fn renew(&self, flows: impl IntoIterator<Item = (u64, u64)>) {
        let mut all: Vec<(usize, u64, u16)> = flows
            .into_iter()
            .map(|(word, packets)| (self.by.of(word), packets, tag(word)))
            .collect();
        all.sort_unstable_by_key(|&(bucket, packets, _)| (bucket, std::cmp::Reverse(packets)));
        let mut all = all.chunk_by(|one, other| one.0 == other.0).peekable();
        for (at, bucket) in self.buckets.iter().enumerate() {
            let of = all.next_if(|of| of[0].0 == at).unwrap_or_default();
            let mut tags = of.iter().map(|of| u64::from(of.2));
            for word in bucket {
                let lanes = tags.by_ref().take(OF_A_WORD);
                word.store(lanes.fold(0, |word, tag| word << 16 | tag), Ordering::Relaxed);
            }
        }
    }

    /// Bytes of memory of the claims to so many sets of rows.
    pub(super) const fn bytes(sets: usize) -> usize {
        sets * WAYS * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mixed;

    #[test]
    fn the_largest_flows_have_claims_until_others_get_them() {
        let claims = Claims::new(4, 3);
        assert_eq!(claims.buckets.len(), 12);
        let words = |from: u64| (from..from + 60).map(mixed);
        let sets = claims.by;
        let of_bucket = |word: u64| move |other: &u64| sets.of(*other) == sets.of(word);
        for from in [0, 1000] {
            claims.renew(words(from).zip(1..));
            for (word, packets) in words(from).zip(1..) {
                let larger = words(from).skip(packets).filter(of_bucket(word)).count();
                assert_eq!(claims.has(word), larger < WAYS, "{packets}");
            }
        }
        assert!(words(0).all(|word| !claims.has(word)));
        claims.renew([]);
        assert!(words(1000).all(|word| !claims.has(word)));
    }
}
