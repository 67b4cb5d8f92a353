//! Filters of one size side by side, for who asks many of them about the same flows.

use super::filter::{WORDS, place};
use super::refused::{Refused, Spot};

/// Bits of a word of a filter.
const BITS: usize = u32::BITS as usize;

/// At most 64 filters of one size. For each of a filter's bits there is a word with that bit of
/// every filter: where a flow is noted, eight reads say at once which of them seem to have it.
#[derive(Clone, Debug)]
pub struct Sliced(Box<[[[u64; BITS]; WORDS]]>);

impl Sliced {
    /// Filters that stand side by side at most.
    pub const MOST: usize = u64::BITS as usize;

    /// These filters; `None` where there are none or too many, or not all are as large.
    pub fn of(filters: &[&Refused]) -> Option<Self> {
        let (first, others) = filters.split_first()?;
        let blocks = first.size();
        if filters.len() > Self::MOST || others.iter().any(|filter| filter.size() != blocks) {
            return None;
        }
        let mut sliced = vec![[[0; BITS]; WORDS]; blocks].into_boxed_slice();
        for (at, block) in sliced.iter_mut().enumerate() {
            for (word, bits) in block.iter_mut().enumerate() {
                for (half, filters) in filters.chunks(BITS).enumerate() {
                    let mut rows = [0; BITS];
                    rows.iter_mut().zip(filters).for_each(|(row, of)| *row = of.block(at)[word]);
                    let columns = transposed(rows).map(u64::from);
                    let both = bits.iter_mut().zip(columns);
                    both.for_each(|(bits, column)| *bits |= column << (BITS * half));
                }
            }
        }
        Some(Self(sliced))
    }

    /// Which filters seem to have the flow that is noted there: a bit for each, that of the first
    /// one the least significant.
    #[inline]
    pub fn having(&self, spot: Spot) -> u64 {
        let noted = spot.noted();
        let block = &self.0[noted.block(self.0.len() as u32)];
        let words = block.iter().enumerate();
        words.fold(u64::MAX, |having, (word, bits)| having & bits[place(word, noted)])
    }
}

/// Columns of bits for rows of bits, the least significant first.
fn transposed(mut rows: [u32; BITS]) -> [u32; BITS] {
    // Squares off the diagonal change places, then those in each of the squares.
    let (mut side, mut mask) = (BITS / 2, u32::MAX >> (BITS / 2));
    while side > 0 {
        for at in (0..BITS).filter(|at| at & side == 0) {
            let differ = (rows[at] >> side ^ rows[at + side]) & mask;
            rows[at] ^= differ << side;
            rows[at + side] ^= differ;
        }
        side /= 2;
        mask ^= mask << side;
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::{HashFamily, HashKey};
    use crate::key::FlowKey;

    fn filter(family: &HashFamily, blocks: usize, flows: &[u32]) -> Refused {
        let words = vec![0; blocks * Refused::LEAST_WORDS];
        let mut filter = Refused::from_words(&words).unwrap();
        for &flow in flows {
            filter.insert(&family.hash(&FlowKey::from_words(flow, 0, 0, 17)));
        }
        filter
    }

    proptest! {
        #[test]
        fn filters_side_by_side_say_what_each_of_them_says(
            blocks in 1_usize..6,
            noted in prop::collection::vec(prop::collection::vec(0_u32..200, 0..100), 1..=64),
        ) {
            let family = HashFamily::new(&HashKey::from_bytes([9; 32]));
            let filters: Vec<_> =
                noted.iter().map(|flows| filter(&family, blocks, flows)).collect();
            let sliced = Sliced::of(&filters.iter().collect::<Vec<_>>()).unwrap();
            for flow in 0..400 {
                let spot = Spot::of(&family.hash(&FlowKey::from_words(flow, 0, 0, 17)));
                let having = sliced.having(spot);
                let each = filters.iter().zip(0..);
                let each = each.fold(0, |all, (of, bit)| all | u64::from(of.has(spot)) << bit);
                prop_assert_eq!(having, each);
            }
        }
    }

    #[test]
    fn only_filters_of_one_size_stand_side_by_side() {
        let family = HashFamily::new(&HashKey::from_bytes([9; 32]));
        let [one, other] = [3, 4].map(|blocks| filter(&family, blocks, &[1]));
        assert!(Sliced::of(&[&one, &other]).is_none() && Sliced::of(&[]).is_none());
        assert!(Sliced::of(&[&one; Sliced::MOST]).is_some());
        assert!(Sliced::of(&[&one; Sliced::MOST + 1]).is_none());
    }
}
