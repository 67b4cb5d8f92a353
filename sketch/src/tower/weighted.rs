//! Insertions of any weight: packets, bytes, nanoseconds.

use serde::{Deserialize, Serialize};

use super::level::OVERFLOW;
use super::sketch::{Insertion, TowerSketch};
use crate::hash::Hashes;

/// Which of a flow's counters an insertion raises (SketchINT, section IV-B). By all three an
/// estimate never lies below the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// All of them: counters are sums.
    #[default]
    Cm,
    /// Only the smallest of those that have not overflowed.
    Cu,
    /// Those that don't exceed the smallest of the arrays before, the narrowest array first: what a
    /// pipeline can do, which visits each array once and in order.
    Acu,
}

impl Rule {
    /// Its name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cm => "cm",
            Self::Cu => "cu",
            Self::Acu => "acu",
        }
    }

    /// What readers of the counters may take them for.
    pub fn insertion(self) -> Insertion {
        match self {
            Self::Cm => Insertion::Cm,
            Self::Cu | Self::Acu => Insertion::Cu,
        }
    }
}

impl TowerSketch {
    /// Adds `weight` to a flow by `rule`, and gives its sum so far, `u32::MAX` where all its
    /// counters have overflowed. The caller sees to it that the sketch is known as filled by
    /// [`Rule::insertion`].
    #[inline]
    pub fn insert_weight(&mut self, hashes: &Hashes, weight: u32, rule: Rule) -> u32 {
        match rule {
            Rule::Cm => self.levels.iter_mut().enumerate().fold(OVERFLOW, |sum, (level, array)| {
                let at = array.index(hashes.classifier_word(level));
                sum.min(array.add(at, weight))
            }),
            Rule::Cu => {
                let sum = self.query(hashes).saturating_add(weight);
                self.raise(hashes, sum)
            }
            Rule::Acu => {
                // Every counter of the flow is at least its sum before. One above the smallest of
                // the earlier ones need only be raised to what that becomes.
                let (mut smallest, mut sum) = (OVERFLOW, OVERFLOW);
                for (level, array) in self.levels.iter_mut().enumerate() {
                    let at = array.index(hashes.classifier_word(level));
                    let before = array.get(at);
                    smallest = smallest.min(before);
                    sum = sum.min(array.raise(at, smallest.saturating_add(weight)));
                }
                sum
            }
        }
    }
}
