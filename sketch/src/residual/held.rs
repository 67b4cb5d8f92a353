//! Which flows were put into a residual.

use crate::hash::Hashes;
use crate::simd::Isa;
use crate::table::{Filter, Noted, Refused};

/// Who knows which flows were put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The residual itself: a blocked Bloom filter.
    Own(Filter),
    /// The tables whose flows without an entry were put in, by what they sent. Where there are
    /// none, nobody knows, and every flow may have been.
    Tables(Vec<Refused>),
}

/// Cut from words that neither buckets nor grades are cut from alone: a table refuses flows by
/// their grades.
#[inline(always)]
fn noted(hashes: &Hashes) -> Noted {
    let bits = hashes.array_word(2) ^ hashes.array_word(1).rotate_left(13);
    Noted { block: hashes.array_word(4), bits }
}

impl Held {
    /// A filter of the residual's own, of one block at least.
    pub(super) fn new(bits: usize) -> Self {
        Self::Own(Filter::new(bits))
    }

    /// A filter of the residual's own with these words; `None` where they are no whole number of
    /// blocks, or none.
    pub(super) fn from_words(words: &[u32]) -> Option<Self> {
        Filter::from_words(words).map(Self::Own)
    }

    /// The words of the residual's own filter.
    pub(super) fn words(&self) -> Vec<u32> {
        match self {
            Self::Own(filter) => filter.words().collect(),
            Self::Tables(_) => Vec::new(),
        }
    }

    /// Notes a flow, and whether it seemed to be there already, where that is for the residual to
    /// know.
    #[inline(always)]
    pub(super) fn insert(&mut self, hashes: &Hashes) -> bool {
        match self {
            Self::Own(filter) => filter.insert(noted(hashes)),
            Self::Tables(_) => false,
        }
    }

    #[inline(always)]
    pub(super) fn contains(&self, hashes: &Hashes) -> bool {
        match self {
            Self::Own(filter) => filter.contains(noted(hashes)),
            Self::Tables(tables) => {
                tables.is_empty() || tables.iter().any(|table| table.contains(hashes))
            }
        }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        if let Self::Own(filter) = self {
            filter.prefetch(isa, noted(hashes));
        }
    }

    /// Adds the flows of another residual of the same shape.
    pub(super) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Own(filter), Self::Own(other)) => filter.merge(other),
            (Self::Tables(tables), Self::Tables(others)) => tables.extend_from_slice(others),
            // Their shapes differ.
            _ => {}
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Own(filter) => filter.clear(),
            Self::Tables(tables) => tables.clear(),
        }
    }

    /// Bytes of the residual's own filter.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Own(filter) => filter.bytes(),
            Self::Tables(_) => 0,
        }
    }
}
