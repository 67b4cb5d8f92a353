//! How a flow's word chooses a set of rows, and what tells flows of a set apart.

use super::rows::WAYS;
use crate::simd::Isa;

/// Tags in a word.
pub(super) const OF_A_WORD: usize = 4;

/// Words of a set.
pub(super) const WORDS: usize = WAYS / OF_A_WORD;

/// What tells most flows of a set apart, never 0.
#[inline(always)]
pub(super) fn tag(word: u64) -> u16 {
    (word >> 48) as u16 | 1
}

/// So many sets, and how a flow's word chooses one of them: by bits 16 and up, which no index of a
/// pair tower is made of alone, so that the flows which find one set full are no neighbours there.
/// Of sets that are no power of two none has more than one word in sixteen more than another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sets {
    number: u32,
    /// Leaves the lowest of the bits that choose at the top of 32.
    shift: u32,
}

impl Sets {
    /// At least one, and at most 2^24.
    pub(super) const fn new(number: usize) -> Self {
        let number = if number == 0 { 1 } else { number as u32 };
        let bits = number.next_power_of_two().ilog2();
        let bits = match number.is_power_of_two() {
            true => bits,
            false if bits < 12 => 16,
            false => bits + 4,
        };
        Self { number, shift: 32 - bits }
    }

    /// The one that is a flow's.
    #[inline(always)]
    pub(super) fn of(&self, word: u64) -> usize {
        let bits = ((word >> 16) << self.shift) as u32;
        ((u64::from(bits) * u64::from(self.number)) >> 32) as usize
    }
}

/// The tags of a set's rows; 0 where one is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags([u64; WORDS]);

impl Tags {
    /// Of a set without rows.
    pub(super) const NONE: Self = Self([0; WORDS]);

    /// A bit for each row that has the tag, the first row's lowest. All rows at once.
    #[inline(always)]
    pub(super) fn equal(&self, isa: impl Isa, tag: u16) -> u32 {
        isa.equal_lanes(self.0, tag)
    }

    /// Sets the tag of a row.
    pub(super) fn set(&mut self, row: usize, tag: u16) {
        let (word, shift) = (row / OF_A_WORD, 16 * (row % OF_A_WORD));
        self.0[word] = self.0[word] & !(0xFFFF << shift) | u64::from(tag) << shift;
    }

    /// The rows' tags.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|word| (0..OF_A_WORD).map(move |at| (word >> (16 * at)) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Scalar;

    #[test]
    fn tags_are_found_where_they_were_set() {
        let some = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF];
        for first in some {
            let mut tags = Tags::NONE;
            let of_row = |row: usize| if row < 2 { first } else { some[row % some.len()] };
            (0..WAYS).for_each(|row| tags.set(row, 0xFFFF ^ of_row(row)));
            (0..WAYS).for_each(|row| tags.set(row, of_row(row)));
            assert!(tags.iter().eq((0..WAYS).map(of_row)));
            for tag in some {
                let bits = (0..WAYS).filter(|&row| of_row(row) == tag).map(|row| 1 << row);
                assert_eq!(tags.equal(Scalar, tag), bits.sum::<u32>(), "{tag:x} among {tags:x?}");
            }
        }
    }

    #[test]
    fn words_are_spread_over_all_sets() {
        for number in [1_usize, 2, 3, 600, 1024, 4095, 5000, 1 << 18] {
            let sets = Sets::new(number);
            let mut words = vec![0_u32; number];
            for word in 0..1 << 22 {
                words[sets.of(word << 16)] += 1;
                if number.is_power_of_two() {
                    assert_eq!(sets.of(word << 16), word as usize % number);
                }
            }
            let (least, most) = (words.iter().min().unwrap(), words.iter().max().unwrap());
            assert!(most * 16 <= least * 17, "{least} to {most} of {number}");
        }
    }
}
