//! Which flows a table refused or evicted in a window, for who has the window and not the table.

use super::bounded::noted;
use super::filter::{Filter, Noted, WORDS};
use super::index::tag;
use super::order::{Order, Rank, Words};
use crate::hash::Hashes;

/// Where filters note a flow, however large each of them is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spot(Noted);

impl Spot {
    /// That of the flow with these hashes, whatever its rank.
    #[inline]
    pub fn of(hashes: &Hashes) -> Self {
        let words = Words::of(hashes);
        Self(noted(tag(words.tag), Order::new(Rank::default(), &words)))
    }

    /// Flows in this order are near each other in every filter.
    #[inline]
    pub fn order(self) -> u32 {
        self.0.block
    }

    pub(super) fn noted(self) -> Noted {
        self.0
    }
}

/// The filter of a table's flows without an entry. What it knows is found; of other flows it is
/// wrong about few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(Filter);

impl Refused {
    /// Words of the smallest one; others have a multiple of it.
    pub const LEAST_WORDS: usize = WORDS;

    pub(super) fn of(filter: &Filter) -> Self {
        Self(filter.compact())
    }

    /// Its words, as [`from_words`](Self::from_words) takes them.
    pub fn words(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.0.words()
    }

    /// One with these words; `None` where no filter has as many.
    pub fn from_words(words: &[u32]) -> Option<Self> {
        Filter::from_words(words).map(Self)
    }

    /// Its size: how often it has the words of the smallest one.
    pub fn size(&self) -> usize {
        self.0.used()
    }

    pub(super) fn block(&self, at: usize) -> &[u32; WORDS] {
        self.0.block_words(at)
    }

    /// Notes the flow with these hashes.
    pub fn insert(&mut self, hashes: &Hashes) {
        self.0.insert(Spot::of(hashes).0);
    }

    /// Whether the flow with these hashes seems to be there.
    pub fn contains(&self, hashes: &Hashes) -> bool {
        self.has(Spot::of(hashes))
    }

    /// The same of the flow that filters note there.
    #[inline]
    pub fn has(&self, spot: Spot) -> bool {
        self.0.has(spot.0)
    }
}
