//! Which flows a table does not have and must not take any more: a blocked Bloom filter.
//!
//! A flow sets one bit in each of the eight words of a block, so a look-up reads half a cache
//! line. What is in the filter is found; of what is not in it, at most one in a hundred is
//! mistaken for being in it where the filter has [`BITS_OF_A_FLOW`] bits for each flow.

use crate::memory::filled;
use crate::simd::Isa;

/// Bits a flow of a filter that is wrong about at most one flow in a hundred.
pub const BITS_OF_A_FLOW: usize = 12;

/// Words of a block.
pub(crate) const WORDS: usize = 8;

/// Odd multipliers, one for each word of a block, whose products' upper five bits name the bit.
const SALTS: [u32; WORDS] = [
    0x47B6_137B,
    0x4497_4D91,
    0x8824_AD5B,
    0xA2B7_289D,
    0x7054_95C7,
    0x2DF1_424B,
    0x9EFC_4947,
    0x5C6B_FB31,
];

#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
struct Block([u32; WORDS]);

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    blocks: Box<[Block]>,
    /// Blocks that are in use; at least one.
    used: u32,
}

/// Where a flow is noted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// Its upper bits say in which block.
    pub(crate) block: u32,
    /// Says which bits of the block.
    pub(crate) bits: u32,
}

impl Noted {
    /// The block that says it, of so many.
    #[inline(always)]
    pub(crate) fn block(self, blocks: u32) -> usize {
        ((u64::from(self.block) * u64::from(blocks)) >> 32) as usize
    }
}

/// Which bit of this word of its block a flow sets.
#[inline(always)]
pub(crate) fn place(word: usize, noted: Noted) -> usize {
    (noted.bits.wrapping_mul(SALTS[word]) >> 27) as usize
}

impl Filter {
    /// An empty filter of at most `bits` bits, all of them in use.
    pub(crate) fn new(bits: usize) -> Self {
        let blocks = bits.div_ceil(32 * WORDS).clamp(1, 1 << 28);
        Self { blocks: filled(blocks, Block([0; WORDS])), used: blocks as u32 }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    /// Forgets all flows, and makes the filter as large as twice the `noted` flows need, which is
    /// how many it found to be new, but `least` at least. One that was nearly full becomes as large
    /// as it can be: it mistook new flows for others, so nobody knows how many there were.
    pub(crate) fn begin(&mut self, noted: usize, least: usize) {
        self.clear();
        let blocks = |flows: usize| flows.saturating_mul(BITS_OF_A_FLOW).div_ceil(32 * WORDS);
        let was_roomy = blocks(noted) <= self.used as usize / 4 * 3;
        let wanted = blocks(noted.saturating_mul(2).max(least));
        let most = self.blocks.len();
        self.used = if was_roomy { wanted.clamp(1, most) } else { most } as u32;
    }

    /// Forgets all flows.
    pub(crate) fn clear(&mut self) {
        self.blocks[..self.used as usize].fill(Block([0; WORDS]));
    }

    /// Blocks that are in use.
    pub(crate) fn used(&self) -> usize {
        self.used as usize
    }

    /// The words of a block that is in use.
    pub(crate) fn block_words(&self, at: usize) -> &[u32; WORDS] {
        &self.blocks[at].0
    }

    /// A copy of the blocks that are in use.
    pub(crate) fn compact(&self) -> Self {
        let blocks = self.blocks[..self.used as usize].to_vec().into_boxed_slice();
        Self { blocks, used: self.used }
    }

    /// The words of the blocks that are in use, block after block.
    pub(crate) fn words(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.blocks[..self.used as usize].iter().flat_map(|Block(words)| words.iter().copied())
    }

    /// A filter with these words, all of it in use; `None` where they are no whole number of
    /// blocks, none at all, or more than a filter can have.
    pub(crate) fn from_words(words: &[u32]) -> Option<Self> {
        let (blocks, rest) = words.as_chunks::<WORDS>();
        if blocks.is_empty() || !rest.is_empty() || blocks.len() > 1 << 28 {
            return None;
        }
        let blocks: Box<[Block]> = blocks.iter().map(|words| Block(*words)).collect();
        let used = blocks.len() as u32;
        Some(Self { blocks, used })
    }

    /// Adds the flows of another filter as large, of which as much is in use.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (Block(words), Block(others)) in self.blocks.iter_mut().zip(&other.blocks) {
            words.iter_mut().zip(others).for_each(|(word, other)| *word |= other);
        }
    }

    #[inline(always)]
    fn block(&self, noted: Noted) -> usize {
        noted.block(self.used)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, isa: impl Isa, noted: Noted) {
        isa.prefetch(&self.blocks, self.block(noted));
    }

    /// Notes the flow, and says whether it seemed to be there already.
    #[inline(always)]
    pub(crate) fn insert(&mut self, noted: Noted) -> bool {
        let at = self.block(noted);
        let Block(words) = &mut self.blocks[at];
        let mut missing = 0;
        for (word, salt) in words.iter_mut().zip(SALTS) {
            let bit = 1 << (noted.bits.wrapping_mul(salt) >> 27);
            missing |= !*word & bit;
            *word |= bit;
        }
        missing == 0
    }

    /// Whether the flow seems to be there.
    #[inline(always)]
    pub(crate) fn contains(&self, noted: Noted) -> bool {
        let Block(words) = &self.blocks[self.block(noted)];
        let mut missing = 0;
        for (word, salt) in words.iter().zip(SALTS) {
            missing |= !word & 1 << (noted.bits.wrapping_mul(salt) >> 27);
        }
        missing == 0
    }

    /// The same for who asks about flows most of which are not there: of those one word or two are
    /// read.
    #[inline]
    pub(crate) fn has(&self, noted: Noted) -> bool {
        let Block(words) = &self.blocks[self.block(noted)];
        let mut bits = words.iter().zip(SALTS);
        bits.all(|(word, salt)| word >> (noted.bits.wrapping_mul(salt) >> 27) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn flows(seed: u64, number: usize) -> Vec<Noted> {
        let mut rng = StdRng::seed_from_u64(seed);
        (0..number).map(|_| Noted { block: rng.random(), bits: rng.random() }).collect()
    }

    #[test]
    fn what_is_noted_is_found_and_little_else() {
        const FLOWS: usize = 20_000;
        let mut filter = Filter::new(1 << 22);
        filter.begin(FLOWS / 2, 0);
        for flow in flows(1, FLOWS) {
            filter.insert(flow);
            assert!(filter.contains(flow) && filter.insert(flow));
        }
        assert!(flows(1, FLOWS).into_iter().all(|flow| filter.has(flow)));
        assert!(flows(2, FLOWS).iter().all(|&flow| filter.has(flow) == filter.contains(flow)));
        let wrong = flows(2, 100_000).into_iter().filter(|&flow| filter.contains(flow)).count();
        assert!(wrong <= 1_000, "{wrong} of 100,000 flows that are not there");
        // It would be right about all of them if it were as large as it can be: it is not.
        assert!(wrong > 100, "{wrong} of 100,000 flows that are not there");
        filter.begin(FLOWS, 0);
        assert!(flows(1, FLOWS).into_iter().all(|flow| !filter.contains(flow)));
        assert!(filter.bytes() >= 1 << 19);
    }
}
