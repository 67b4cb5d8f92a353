//! Runs of buckets or counters, and how a hash word finds one in them.

use std::cmp::min;
use std::ops::Range;

use crate::burst::{Column, select};

/// A run of buckets in every array of an encoder, and the way a hash word finds one of them.
///
/// The index is `(word AND mask) mod len`, the mask being 2^k - 1 with 4 len < 2^k <= 8 len, so
/// that a Tofino's range-match table does the modulo in at most eight steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    offset: u32,
    len: u32,
    mask: u32,
}

impl Part {
    /// The part of `len` buckets (at most 2^28) that begins at bucket `offset` of each array.
    pub const fn new(offset: u32, len: u32) -> Self {
        let mask = if len == 0 { 0 } else { (1 << (31 - (8 * len).leading_zeros())) - 1 };
        Self { offset, len, mask }
    }

    /// First bucket of the part in each array.
    #[inline]
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// Buckets of the part in each array.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether the part has no bucket.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a hash word is ANDed with before the modulo.
    #[inline]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Bucket of the array, counted from its start, that `word` falls on. About two nanoseconds;
    /// no division: the masked word is below 8 len, so three conditional subtractions do.
    #[inline(always)]
    pub fn bucket(&self, word: u32) -> u32 {
        let at = word & self.mask;
        let at = min(at, at.wrapping_sub(4 * self.len));
        let at = min(at, at.wrapping_sub(2 * self.len));
        let at = min(at, at.wrapping_sub(self.len));
        self.offset + at
    }

    /// Where evenly spread words fall: buckets, counted from the array's start, that equally many
    /// masked words fall on, and how many more or fewer than on average (1.0). One run of buckets
    /// where the length divides the range of masked words, else two, of which the first has up to
    /// a quarter more.
    pub(crate) fn strata(&self) -> impl Iterator<Item = (Range<u32>, f64)> {
        let Self { offset, len, mask } = *self;
        let words = f64::from(mask) + 1.0;
        let (each, longer) = ((mask + 1) / len.max(1), (mask + 1) % len.max(1));
        let hits = move |words_each: u32| f64::from(words_each) * f64::from(len) / words;
        let strata = [
            (offset..offset + longer, hits(each + 1)),
            (offset + longer..offset + len, hits(each)),
        ];
        strata.into_iter().filter(|(buckets, _)| !buckets.is_empty())
    }

    /// For each packet of a burst the one of `parts` that its class chooses.
    #[inline(always)]
    pub fn columns(parts: &[Self; 4], classes: &Column) -> PartColumns {
        let column = |field: fn(&Self) -> u32| {
            let [zero, one, two, three] = parts;
            let entries = [field(zero), field(one), field(two), field(three)];
            Column::from_fn(|packet| select(&entries, classes.0[packet]))
        };
        PartColumns {
            offsets: column(|part| part.offset),
            lens: column(|part| part.len),
            masks: column(|part| part.mask),
        }
    }
}

/// A part for each packet of a burst.
pub struct PartColumns {
    offsets: Column,
    lens: Column,
    masks: Column,
}

impl PartColumns {
    /// The part of one packet.
    #[inline(always)]
    pub fn of(&self, packet: usize) -> Part {
        Part {
            offset: self.offsets.0[packet],
            len: self.lens.0[packet],
            mask: self.masks.0[packet],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_is_the_masked_word_modulo_the_length(
            offset in 0u32..1000, len in 1u32..=1 << 28, word: u32,
        ) {
            let part = Part::new(offset, len);
            let range = u64::from(part.mask()) + 1;
            prop_assert!(range > 4 * u64::from(len) && range <= 8 * u64::from(len));
            prop_assert_eq!(part.bucket(word), offset + (word & part.mask()) % len);
        }

        #[test]
        fn strata_say_how_many_words_fall_on_each_bucket(offset in 0u32..9, len in 1u32..500) {
            let part = Part::new(offset, len);
            let mut words = vec![0; (offset + len) as usize];
            (0..=part.mask()).for_each(|word| words[part.bucket(word) as usize] += 1);
            let mean = f64::from(part.mask() + 1) / f64::from(len);
            let mut next = offset;
            for (buckets, hits) in part.strata() {
                prop_assert_eq!(buckets.start, next);
                next = buckets.end;
                for bucket in buckets {
                    let words = f64::from(words[bucket as usize]);
                    prop_assert!((hits * mean - words).abs() < 1e-9);
                }
            }
            prop_assert_eq!(next, offset + len);
        }
    }
}
