//! Which flows are claimed in which window.

use calumma_sketch::grade::Claims;
use calumma_sketch::table::Rank;

/// Windows that are asked for: one that is over, that under way, and the next two.
const KEPT: usize = 4;

/// The claims of windows. Those of a window stay what they are once its first entries were made, so
/// that the bit of a flow is the same on all its packets.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    /// From which windows on, and which, the last ones behind.
    from: Vec<(u64, Claims)>,
    /// The last window that entries were made for.
    last_used: u64,
}

impl Claimed {
    /// Those claims in all windows.
    pub(super) fn new(first: Claims) -> Self {
        Self { from: vec![(0, first)], last_used: 0 }
    }

    /// The claims of a window.
    pub(super) fn of(&self, window: u64) -> Claims {
        let before = self.from.iter().rev().find(|(from, _)| *from <= window);
        before.or(self.from.first()).map_or(Claims::NONE, |(_, claims)| *claims)
    }

    /// The claims of a window that entries are made for now.
    pub(super) fn used(&mut self, window: u64) -> Claims {
        self.last_used = self.last_used.max(window);
        self.of(window)
    }

    /// Takes in the limit of a window that is over: claims follow from it for the window after the
    /// next, since the next one runs, or where there are entries for that one already, for the
    /// first one behind it that has none.
    pub(super) fn learn(&mut self, window: u64, limit: Option<Rank>) {
        let first = (window + 2).max(self.last_used + 1);
        let last = self.from.last().map_or(Claims::NONE, |(_, claims)| *claims);
        self.from.retain(|(from, _)| *from < first);
        self.from.push((first, last.next(limit)));
        let over = self.from.len().saturating_sub(KEPT);
        self.from.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose worst flow has that grade.
    fn full(grade: u32) -> Option<Rank> {
        Some(Rank::new(2, grade))
    }

    #[test]
    fn a_window_teaches_the_one_after_the_next() {
        let mut claimed = Claimed::new(Claims::ALL);
        claimed.used(5);
        claimed.used(6);
        claimed.learn(5, full(1 << 30));
        let learned = Claims::ALL.next(full(1 << 30));
        assert_ne!(learned, Claims::ALL);
        assert_eq!([5, 6].map(|window| claimed.of(window)), [Claims::ALL; 2]);
        assert_eq!([7, 8].map(|window| claimed.used(window)), [learned; 2]);
    }

    /// Else its packets would be claimed by two limits.
    #[test]
    fn what_is_learned_late_changes_no_window_that_has_entries() {
        let mut claimed = Claimed::new(Claims::ALL);
        claimed.used(7);
        claimed.learn(5, full(1 << 30));
        claimed.learn(6, full(1 << 29));
        assert_eq!(claimed.of(7), Claims::ALL);
        let both = Claims::ALL.next(full(1 << 30)).next(full(1 << 29));
        assert_eq!(claimed.used(8), both);
        for window in 7..100 {
            claimed.used(window + 2);
            claimed.learn(window, full(1 << 28));
            assert!(claimed.from.len() <= KEPT);
        }
    }
}
