//! Claims: one bit that says that a switch before this one has the flow for certain.
//!
//! Grades alone leave some flows to nobody while others are chosen twice. So a switch that knows
//! beforehand that it will have a flow says so in the flow's packets, and those behind it take that
//! flow last. What it knows is a limit from its past windows. The bit depends on the flow and the
//! window only, not on whether the table took a packet: it is the same on all packets of a flow,
//! the ranks at the switches behind stay the same as well, and so counts stay exact.

use crate::table::Rank;

/// Classes of [`Rank`], the best first.
mod class {
    pub(super) const PINNED: u8 = 0;
    pub(super) const SINGLE: u8 = 1;
    pub(super) const UNCLAIMED: u8 = 2;
    pub(super) const CLAIMED: u8 = 3;
}

/// Where a flow stands beside its grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The operator wants it counted everywhere.
    Pinned,
    /// This is the only switch on its way (section III-E).
    Single,
    /// It has others on its way.
    Shared,
}

/// Whether this is the rank of a flow whose packets came claimed, pinned ones and those of no other
/// switch aside: a switch before has it in its table, or in what it keeps beside.
#[inline(always)]
pub fn is_claimed(rank: Rank) -> bool {
    rank.class() == class::CLAIMED
}

/// A flow's rank, and the claim bit that its packets go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The rank.
    pub rank: Rank,
    /// Whether a switch has the flow for certain.
    pub is_claimed: bool,
}

/// A switch's claims of a window: shared flows whose grade is below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// At most 2^32, which all grades are below.
    limit: u64,
}

impl Default for Claims {
    /// Those of a switch without a window before.
    fn default() -> Self {
        Self::ALL
    }
}

impl Claims {
    /// All flows are claimed.
    pub const ALL: Self = Self { limit: 1 << 32 };

    /// No flow is claimed.
    pub const NONE: Self = Self { limit: 0 };

    /// The grade from which on flows are not claimed, in parts of 2^32; `None` where all are.
    pub fn limit(&self) -> Option<u32> {
        u32::try_from(self.limit).ok()
    }

    /// The rank of a flow of this grade whose packets come with this claim bit.
    #[inline(always)]
    pub fn rank(&self, chosen: Chosen, is_claimed: bool, grade: u32) -> Ranked {
        let claims = is_claimed || u64::from(grade) < self.limit;
        let (class, grade) = match chosen {
            Chosen::Pinned => (class::PINNED, 0),
            Chosen::Single => (class::SINGLE, grade),
            Chosen::Shared if is_claimed => (class::CLAIMED, grade),
            Chosen::Shared => (class::UNCLAIMED, grade),
        };
        Ranked { rank: Rank::new(class, grade), is_claimed: claims }
    }

    /// The same for a packet whose flow had a packet of this rank before, and which is of the same
    /// grade; `None` where its rank is another one.
    #[inline(always)]
    pub fn rank_again(&self, chosen: Chosen, is_claimed: bool, before: Rank) -> Option<Ranked> {
        let ranked = self.rank(chosen, is_claimed, before.grade());
        // A pinned flow's rank does not have its grade.
        (ranked.rank == before && chosen != Chosen::Pinned).then_some(ranked)
    }

    /// The claims of the next window. `worst` is the largest rank in the table at the end of this
    /// one, `None` where the table was not full.
    ///
    /// A full table without a claimed flow had all flows up to that grade. A twentieth less, and
    /// half of what the limit was, are a margin for windows that differ.
    #[must_use]
    pub fn next(&self, worst: Option<Rank>) -> Self {
        let Some(worst) = worst.filter(|worst| worst.class() < class::CLAIMED) else {
            return Self::ALL;
        };
        if worst.class() < class::UNCLAIMED {
            return Self::NONE;
        }
        let sure = u64::from(worst.grade()) * 19 / 20;
        let last = if self.limit > u64::from(u32::MAX) { sure } else { self.limit };
        Self { limit: u64::midpoint(sure, last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unclaimed(grade: u32) -> Rank {
        Claims::NONE.rank(Chosen::Shared, false, grade).rank
    }

    #[test]
    fn pinned_single_unclaimed_and_claimed_flows_come_in_that_order() {
        let claims = Claims::NONE;
        let rank = |chosen, claimed, grade| claims.rank(chosen, claimed, grade).rank;
        let rising = [
            rank(Chosen::Pinned, true, u32::MAX),
            rank(Chosen::Single, false, 3),
            rank(Chosen::Single, false, u32::MAX),
            rank(Chosen::Shared, false, 0),
            rank(Chosen::Shared, false, u32::MAX),
            rank(Chosen::Shared, true, 0),
        ];
        assert!(rising.is_sorted_by(|a, b| a < b), "{rising:?}");
    }

    #[test]
    fn a_rank_tells_the_claim_of_packets_that_come_alike() {
        let claims = Claims { limit: 100 };
        for (chosen, is_claimed, grade) in [
            (Chosen::Single, false, 99),
            (Chosen::Shared, false, 99),
            (Chosen::Shared, false, 100),
            (Chosen::Shared, true, 100),
        ] {
            let ranked = claims.rank(chosen, is_claimed, grade);
            assert_eq!(claims.rank_again(chosen, is_claimed, ranked.rank), Some(ranked));
            let otherwise = claims.rank_again(chosen, !is_claimed, ranked.rank);
            assert_eq!(otherwise.is_some(), chosen == Chosen::Single, "{chosen:?}");
        }
        let pinned = claims.rank(Chosen::Pinned, false, 7).rank;
        assert_eq!(claims.rank_again(Chosen::Pinned, false, pinned), None);
        assert_eq!(claims.rank_again(Chosen::Shared, false, pinned), None);
    }

    #[test]
    fn a_switch_claims_what_a_full_table_would_have_had() {
        let first = Claims::default();
        assert!(first.rank(Chosen::Shared, false, u32::MAX).is_claimed);
        let claims = first.next(Some(unclaimed(2_000)));
        assert_eq!(claims.limit(), Some(1_900));
        assert!(claims.rank(Chosen::Shared, false, 1_899).is_claimed);
        assert!(!claims.rank(Chosen::Shared, false, 1_900).is_claimed);
        // A bit that came set stays set.
        assert!(claims.rank(Chosen::Shared, true, 1_900).is_claimed);
        assert_eq!(claims.next(Some(unclaimed(1_000))).limit(), Some(1_425));
    }

    #[test]
    fn a_table_with_room_for_claimed_flows_claims_all_and_one_of_single_flows_none() {
        let claims = Claims::ALL.next(Some(unclaimed(2_000)));
        let worst_claimed = claims.rank(Chosen::Shared, true, 7).rank;
        assert_eq!(claims.next(Some(worst_claimed)), Claims::ALL);
        assert_eq!(claims.next(None).limit(), None);
        let worst_single = claims.rank(Chosen::Single, false, 7).rank;
        assert_eq!(claims.next(Some(worst_single)), Claims::NONE);
        assert_eq!(Claims::NONE.next(Some(unclaimed(2_000))).limit(), Some(950));
    }
}
