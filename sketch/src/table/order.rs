//! The order of flows, by which a table chooses.

use crate::hash::Hashes;

/// How well a flow suits a table; smaller is better. A class of 0 to 3 comes first, a grade second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rank(u64);

impl Rank {
    /// The rank of a flow of this class, at most 3, and this grade.
    #[inline(always)]
    pub const fn new(class: u8, grade: u32) -> Self {
        Self(((class & 3) as u64) << 32 | grade as u64)
    }

    /// The class.
    #[inline]
    pub const fn class(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// The grade within the class.
    #[inline]
    pub const fn grade(self) -> u32 {
        self.0 as u32
    }
}

/// Bits of a hash word that decide between flows of equal rank.
const TIE: u32 = 29;

/// A rank, and behind it a hash of the flow, so that flows of equal rank are in an order as well:
/// 63 bits. A number above them stands for a place without a flow, and says which is the next such
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Order(pub(crate) u64);

impl Order {
    /// Not less than that of any flow.
    pub const LAST: Self = Self(u64::MAX >> 1);

    /// That of a flow of this rank whose hashes have these words.
    #[inline(always)]
    pub fn new(rank: Rank, words: &Words) -> Self {
        Self(rank.0 << TIE | u64::from(words.tie >> (32 - TIE)))
    }

    /// No flow.
    #[inline(always)]
    pub(crate) fn free(next: u32) -> Self {
        Self(!Self::LAST.0 | u64::from(next))
    }

    /// Whether it is that of a flow.
    #[inline(always)]
    pub(crate) fn is_taken(self) -> bool {
        self <= Self::LAST
    }

    /// What [`free`](Self::free) was given.
    #[inline(always)]
    pub(crate) fn next(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn rank(self) -> Rank {
        Rank(self.0 >> TIE)
    }

    /// What decides between flows of equal rank, the most significant bit on top.
    #[inline(always)]
    pub(crate) fn tie(self) -> u32 {
        (self.0 as u32) << (32 - TIE)
    }
}

/// The words of a flow's hashes by which a table finds it.
///
/// Lane 3 is none of them: a rank that is cut from it says nothing about where the flow lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Says which bucket the flow belongs to.
    pub home: u32,
    /// Tells flows of a bucket apart, most of the time. Its lower 16 bits count.
    pub tag: u32,
    /// Decides between flows of equal rank, and where the filter notes the flow.
    pub tie: u32,
}

impl Words {
    /// Cut from the first three lanes.
    #[inline(always)]
    pub fn of(hashes: &Hashes) -> Self {
        let [home, tag, tie] = [0, 1, 2].map(|lane| hashes.array_word(lane));
        Self { home, tag: tag >> 16, tie }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_comes_before_grade_and_grade_before_the_hash() {
        let words = |tie| Words { home: 0, tag: 0, tie };
        let order = |class, grade, tie| Order::new(Rank::new(class, grade), &words(tie));
        let rising = [
            order(0, 0, 0),
            order(0, 0, 8),
            order(0, 7, 0),
            order(1, 0, u32::MAX),
            order(1, 1, 0),
            order(2, u32::MAX, 9),
            order(3, u32::MAX, u32::MAX),
        ];
        assert!(rising.is_sorted_by(|a, b| a < b), "{rising:?}");
        assert_eq!(rising[6], Order::LAST);
        assert!(rising[6].is_taken() && !Order::free(7).is_taken());
        assert_eq!(Order::free(7).next(), 7);
        let rank = order(2, u32::MAX, 9).rank();
        assert_eq!((rank.class(), rank.grade()), (2, u32::MAX));
        assert_eq!(order(1, 5, 0xABCD_EF01).tie(), 0xABCD_EF00);
    }
}
