//! How keys are summed in buckets: the one seam between the two kinds of key.
//!
//! What is the same for both is written once over [`Summed`]; IPv4 keys sum as [`prime`] or
//! [`wrapping`] say, wide ones as [`wide`](super::wide) says.

use super::bucket::{Bucket, COUNT, Lanes};
use super::linear::{self, Flows};
use super::{Arithmetic, prime, wrapping};
use crate::burst::{Column, InBursts, Rows, ones};
use crate::hash::Hashes;
use crate::key::FlowKey;
use crate::simd::Isa;

/// Keys that are summed in buckets. Where a method has a parameter `PRIME`, it tells the arithmetic
/// when the code is compiled; else it comes as a value.
pub trait Summed: InBursts {
    /// A bucket, and what one packet adds to it.
    type Bucket: Lanes;

    /// Keys that dividing a burst of buckets gives.
    type Quotients: Copy;

    /// Words of a bucket on the wire, the count last.
    fn words(arithmetic: Arithmetic) -> usize;

    /// The fingerprint that is summed along with the key.
    fn fingerprint(hashes: &Hashes) -> u32;

    /// What a packet adds to a bucket; `fingerprint` is 0 where none is summed.
    fn unit(&self, arithmetic: Arithmetic, fingerprint: u32) -> Self::Bucket;

    /// `a + b`.
    fn add(arithmetic: Arithmetic, a: &Self::Bucket, b: &Self::Bucket) -> Self::Bucket;

    /// `a - b`.
    fn subtract(arithmetic: Arithmetic, a: &Self::Bucket, b: &Self::Bucket) -> Self::Bucket;

    /// What `packets` packets add.
    fn multiply(arithmetic: Arithmetic, unit: &Self::Bucket, packets: i32) -> Self::Bucket;

    /// Adds each packet of a burst whose bit is set in `encoded` to its buckets, one for each
    /// column of `at`.
    fn encode<const PRIME: bool>(
        isa: impl Isa,
        keys: &Self::Burst,
        fingerprint: impl Fn(usize) -> u32,
        encoded: u32,
        at: &[Column],
        buckets: &mut [Self::Bucket],
    );

    /// Divides up to [`crate::burst::BURST`] buckets by their counts.
    fn divide<const PRIME: bool>(isa: impl Isa, buckets: &[Self::Bucket]) -> Divided<Self>;

    /// One of the keys that dividing gave.
    fn key_of(quotients: &Self::Quotients, at: usize) -> Self;

    /// The packets of each of the flows whose units are given; see [`linear::solve`].
    fn solve(
        arithmetic: Arithmetic,
        bucket: &Self::Bucket,
        units: &[Self::Bucket],
    ) -> Option<Flows>;
}

/// What dividing a burst of buckets by their counts gives.
pub struct Divided<K: Summed> {
    pub(super) keys: K::Quotients,
    /// The fingerprints summed along with them, 0 where none are.
    pub(super) fingerprints: Column,
    /// A set bit for each bucket that may hold a single flow. What comes out of others is
    /// arbitrary.
    pub(super) plausible: u32,
}

impl Summed for FlowKey {
    type Bucket = Bucket;
    /// The padded keys, as little-endian words.
    type Quotients = Rows;

    fn words(arithmetic: Arithmetic) -> usize {
        arithmetic.words()
    }

    #[inline(always)]
    fn fingerprint(hashes: &Hashes) -> u32 {
        hashes.fingerprint()
    }

    #[inline(always)]
    fn unit(&self, arithmetic: Arithmetic, fingerprint: u32) -> Bucket {
        match arithmetic {
            Arithmetic::Prime => prime::unit(self, fingerprint),
            Arithmetic::Wrapping => wrapping::unit(self),
        }
    }

    #[inline(always)]
    fn add(arithmetic: Arithmetic, a: &Bucket, b: &Bucket) -> Bucket {
        match arithmetic {
            Arithmetic::Prime => Bucket(prime::add(&a.0, &b.0)),
            Arithmetic::Wrapping => wrapping::add(a, b),
        }
    }

    #[inline(always)]
    fn subtract(arithmetic: Arithmetic, a: &Bucket, b: &Bucket) -> Bucket {
        match arithmetic {
            Arithmetic::Prime => Bucket(prime::subtract(&a.0, &b.0)),
            Arithmetic::Wrapping => wrapping::subtract(a, b),
        }
    }

    #[inline(always)]
    fn multiply(arithmetic: Arithmetic, unit: &Bucket, packets: i32) -> Bucket {
        match arithmetic {
            Arithmetic::Prime => {
                let mut product = Bucket::default();
                let fragments = &mut product.0[..prime::FRAGMENTS];
                prime::multiply(fragments, &unit.0, packets);
                product.0[COUNT] = packets as u32;
                product
            }
            Arithmetic::Wrapping => wrapping::multiply(unit, packets),
        }
    }

    #[inline(always)]
    fn encode<const PRIME: bool>(
        isa: impl Isa,
        keys: &Self::Burst,
        fingerprint: impl Fn(usize) -> u32,
        encoded: u32,
        at: &[Column],
        buckets: &mut [Bucket],
    ) {
        if PRIME {
            let units = prime::units(isa, keys, fingerprint);
            for packet in ones(encoded) {
                let [a, b, c, d] = units.0[packet];
                let unit = Bucket([a, b, c, d, 0, 0, 0, 1]);
                let limit = prime::limit_of(&unit.0);
                for at in at {
                    prime::add_unit(isa, &mut buckets[at.0[packet] as usize], &unit, &limit);
                }
            }
        } else {
            let units = wrapping::units(isa, keys);
            for packet in ones(encoded) {
                let ([a, b, c, d], [e, f, g, h]) = (units[0].0[packet], units[1].0[packet]);
                let unit = Bucket([a, b, c, d, e, f, g, h]);
                for at in at {
                    let bucket = &mut buckets[at.0[packet] as usize];
                    *bucket = wrapping::add(bucket, &unit);
                }
            }
        }
    }

    #[inline(always)]
    fn divide<const PRIME: bool>(isa: impl Isa, buckets: &[Bucket]) -> Divided<Self> {
        if PRIME { prime::divide(isa, buckets) } else { wrapping::divide(isa, buckets) }
    }

    #[inline(always)]
    fn key_of(quotients: &Rows, at: usize) -> Self {
        Self::from_padded_words(quotients.0[at])
    }

    fn solve(arithmetic: Arithmetic, bucket: &Bucket, units: &[Bucket]) -> Option<Flows> {
        linear::solve::<Self, 8>(arithmetic, bucket, units)
    }
}
