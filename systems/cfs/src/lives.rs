//! The times to live with which a flow's packets came, one after the other.

use calumma_sketch::WideKey;

use crate::frames::{Entry, Suspect};
use crate::turns::Turns;

/// The times to live with which a flow's packets came. 0, with which no router sends, stands for
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// The highest.
    pub ttl: u8,
    /// Those that came after a higher one, as [`Entry::differences`] from the highest.
    pub differences: u64,
}

impl Lives {
    /// Adds a packet's.
    #[inline(always)]
    pub fn add(&mut self, ttl: u8) {
        if ttl < self.ttl {
            self.differences |= Entry::difference(self.ttl, ttl);
        } else if ttl > self.ttl {
            // A packet with the one that was the highest came before, not after.
            self.raise(ttl);
        }
    }

    /// Counts differences from a higher one.
    fn raise(&mut self, ttl: u8) {
        let by = u32::from(ttl - self.ttl);
        let (known, beyond) = (self.differences & !1, self.differences & 1);
        let moved = known.checked_shl(by).unwrap_or(0);
        let is_all = moved.checked_shr(by).unwrap_or(0) == known;
        self.differences = moved | beyond | u64::from(!is_all);
        self.ttl = ttl;
    }

    /// Adds those of other packets of a flow that is suspected.
    pub fn join(&mut self, mut other: Self) {
        let lower = self.ttl.min(other.ttl);
        self.raise(self.ttl.max(other.ttl));
        other.raise(self.ttl);
        self.differences |= other.differences;
        self.add(lower);
    }

    /// Whether three of them are so far apart that a loop may have done it: by the same number of
    /// hops, at least [`Suspect::LEAST_LENGTH`]. Others between them don't matter: packets of a
    /// flow that goes round may have come while another flow had its cell.
    #[inline(always)]
    pub fn are_suspect(&self) -> bool {
        let length = (self.differences & !1).trailing_zeros();
        length >= Suspect::LEAST_LENGTH.into()
            && self.differences.checked_shr(2 * length).unwrap_or(0) & 1 == 1
    }

    /// Whether they are those of a loop for certain.
    pub fn are_certain(&self) -> bool {
        Turns::of(self.ttl, self.differences).is_some_and(|turns| turns.are_certain())
    }

    /// What is sent of a flow that has them.
    pub fn of(self, key: WideKey) -> Suspect {
        let Self { ttl, differences } = self;
        Suspect { key, ttl, differences }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Differences are those from the highest, of all that came after a higher one.
        #[test]
        fn lives_are_what_came_after_a_higher_one(ttls in prop::collection::vec(1_u8.., 1..20)) {
            let mut lives = Lives { ttl: ttls[0], differences: 0 };
            ttls[1..].iter().for_each(|&ttl| lives.add(ttl));
            let highest = ttls.iter().copied().max().unwrap();
            let after = |at: &usize| ttls[..*at].iter().any(|&ttl| ttl > ttls[*at]);
            let later = (0..ttls.len()).filter(after).map(|at| ttls[at]);
            let differences = later.fold(0, |all, ttl| all | Entry::difference(highest, ttl));
            prop_assert_eq!(lives, Lives { ttl: highest, differences });
        }
    }
}
