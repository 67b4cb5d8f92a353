//! Wide keys in prime arithmetic: ten 31-bit fragments, summed modulo the same prime as those of
//! IPv4 keys.
//!
//! | fragment | bits |
//! |---|---|
//! | 0 to 8 | low 31 bits of the key's 32-bit words: source, destination, ports |
//! | 9 | top bits of fragments 0 to 8 (bits 30-22), protocol (21-14), fingerprint (13-0) |
//!
//! A bucket fills a cache line by itself, so its lanes, not the packets of a burst, lie side by
//! side in vectors.

use super::Arithmetic;
use super::bucket::{Lanes, WIDE_COUNT, WideBucket};
use super::linear::{self, Flows};
use super::prime::{self, LOW_31};
use super::summed::{Divided, Summed};
use crate::burst::{BURST, Column, WideKeys, ones};
use crate::hash::Hashes;
use crate::key::WideKey;
use crate::simd::Isa;

/// Fragments of a key.
const FRAGMENTS: usize = 10;

/// The fragment that holds what does not fit the others.
const LAST: usize = FRAGMENTS - 1;

#[inline(always)]
fn fragments(key: &WideKey, fingerprint: u32) -> WideBucket {
    let mut lanes = [0; 16];
    let mut rest = u32::from(key.protocol()) << 14 | fingerprint;
    for (at, word) in key.words().into_iter().enumerate() {
        lanes[at] = word & LOW_31;
        rest |= word >> 31 << (30 - at);
    }
    lanes[LAST] = rest;
    lanes[WIDE_COUNT] = 1;
    WideBucket(lanes)
}

/// The key and fingerprint that `fragments` say.
#[inline(always)]
fn key(fragments: &[u32; 16]) -> (WideKey, u32) {
    let rest = fragments[LAST];
    let mut words = [0; LAST];
    for (at, word) in words.iter_mut().enumerate() {
        *word = fragments[at] | rest >> (30 - at) << 31;
    }
    (WideKey::from_words(words, (rest >> 14) as u8), rest & 0x3FFF)
}

/// Adds `unit` to `bucket`; `limit` as in [`prime::add_unit`].
#[inline(always)]
fn add_unit(isa: impl Isa, bucket: &mut WideBucket, unit: &WideBucket, limit: &[u32; 16]) {
    let excess = const { prime::excess::<16>() };
    let halves = bucket.0.as_chunks_mut::<8>().0.iter_mut().zip(unit.0.as_chunks().0);
    let bounds = limit.as_chunks().0.iter().zip(excess.as_chunks().0);
    for ((bucket, unit), (limit, excess)) in halves.zip(bounds) {
        *bucket = isa.add_limited(*bucket, *unit, *limit, *excess);
    }
}

/// Always in prime arithmetic; a layout or shape with any other is refused before it comes to this.
impl Summed for WideKey {
    type Bucket = WideBucket;
    type Quotients = [Self; BURST];

    fn words(_: Arithmetic) -> usize {
        FRAGMENTS + 1
    }

    #[inline(always)]
    fn fingerprint(hashes: &Hashes) -> u32 {
        hashes.wide_fingerprint()
    }

    #[inline(always)]
    fn unit(&self, _: Arithmetic, fingerprint: u32) -> WideBucket {
        fragments(self, fingerprint)
    }

    #[inline(always)]
    fn add(_: Arithmetic, a: &WideBucket, b: &WideBucket) -> WideBucket {
        WideBucket(prime::add(&a.0, &b.0))
    }

    #[inline(always)]
    fn subtract(_: Arithmetic, a: &WideBucket, b: &WideBucket) -> WideBucket {
        WideBucket(prime::subtract(&a.0, &b.0))
    }

    #[inline(always)]
    fn multiply(_: Arithmetic, unit: &WideBucket, packets: i32) -> WideBucket {
        let mut product = WideBucket::default();
        prime::multiply(&mut product.0[..FRAGMENTS], &unit.0, packets);
        product.0[WIDE_COUNT] = packets as u32;
        product
    }

    #[inline(always)]
    fn encode<const PRIME: bool>(
        isa: impl Isa,
        keys: &WideKeys,
        fingerprint: impl Fn(usize) -> u32,
        encoded: u32,
        at: &[Column],
        buckets: &mut [WideBucket],
    ) {
        for packet in ones(encoded) {
            let unit = fragments(&keys.keys[packet], fingerprint(packet));
            let limit = prime::limit_of(&unit.0);
            for at in at {
                add_unit(isa, &mut buckets[at.0[packet] as usize], &unit, &limit);
            }
        }
    }

    /// Implausible are counts of zero and fragments longer than 31 bits.
    #[inline(always)]
    fn divide<const PRIME: bool>(_: impl Isa, buckets: &[WideBucket]) -> Divided<Self> {
        let mut divided = Divided::<Self> {
            keys: [Self::default(); BURST],
            fingerprints: Column::ZERO,
            plausible: 0,
        };
        for (at, bucket) in buckets.iter().enumerate() {
            // No inverse is zero but that of a count of zero.
            let inverse = prime::inverse(bucket.count());
            let mut quotients = [0; 16];
            let mut any = 0;
            for lane in 0..FRAGMENTS {
                quotients[lane] = prime::mul_mod(bucket.0[lane], inverse);
                any |= quotients[lane];
            }
            (divided.keys[at], divided.fingerprints.0[at]) = key(&quotients);
            divided.plausible |= u32::from(any <= LOW_31 && inverse != 0) << at;
        }
        divided
    }

    #[inline(always)]
    fn key_of(quotients: &Self::Quotients, at: usize) -> Self {
        quotients[at]
    }

    fn solve(arithmetic: Arithmetic, bucket: &WideBucket, units: &[WideBucket]) -> Option<Flows> {
        linear::solve::<Self, 11>(arithmetic, bucket, units)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::Scalar;

    proptest! {
        #[test]
        fn dividing_gives_back_what_was_multiplied(
            words: [u32; 9], protocol: u8, fingerprint in 0u32..1 << 14, packets: i32,
        ) {
            prop_assume!(packets != 0);
            let key = WideKey::from_words(words, protocol);
            let unit = key.unit(Arithmetic::Prime, fingerprint);
            let bucket = WideKey::multiply(Arithmetic::Prime, &unit, packets);
            let divided = WideKey::divide::<true>(Scalar, &[WideBucket::default(), bucket]);
            prop_assert_eq!(divided.plausible, 0b10);
            prop_assert_eq!(divided.keys[1], key);
            prop_assert_eq!(divided.fingerprints.0[1], fingerprint);
        }
    }
}
