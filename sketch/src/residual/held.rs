//! Which flows were put into a residual: a blocked Bloom filter.

use super::Shape;
use crate::hash::Hashes;
use crate::simd::Isa;
use crate::table::{Filter, Noted};

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Held(Filter);

/// Cut from words that neither buckets nor grades are cut from alone: a table refuses flows by
/// their grades.
#[inline(always)]
fn noted(hashes: &Hashes) -> Noted {
    let bits = hashes.array_word(2) ^ hashes.array_word(1).rotate_left(13);
    Noted { block: hashes.array_word(4), bits }
}

impl Held {
    pub(super) fn new(shape: Shape) -> Self {
        Self(Filter::new(shape.filter_bits))
    }

    /// Notes a flow, and whether it seemed to be there already.
    #[inline(always)]
    pub(super) fn insert(&mut self, hashes: &Hashes) -> bool {
        self.0.insert(noted(hashes))
    }

    #[inline(always)]
    pub(super) fn contains(&self, hashes: &Hashes) -> bool {
        self.0.contains(noted(hashes))
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        self.0.prefetch(isa, noted(hashes));
    }

    /// Adds the flows of another filter of the same size.
    pub(super) fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
