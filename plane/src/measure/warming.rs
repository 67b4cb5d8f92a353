//! The armed groups' memory on its way to the lcore, between two bursts each time.
//!
//! Another CPU has cleared it: the first bursts after the flip would wait for every line and page
//! of it. This says only when which line is fetched; [records](crate::Record::make_ready) fetch
//! them.

use std::ops::Range;

/// Most cache lines of each group that are fetched between two bursts: about a microsecond's worth.
const MOST_LINES: usize = 64;

/// The lines of two groups, one for each side, that are still to be fetched before the flip.
#[derive(Debug)]
pub(super) struct Warming {
    /// Cache lines of the longer group.
    lines: usize,
    /// Those that are still to be fetched: the first ones. Last comes the classifier, which every
    /// packet needs, and which is small enough to stay near.
    left: usize,
    since_ns: u64,
    until_ns: u64,
}

impl Warming {
    /// Of groups of so many cache lines at most that have been armed, and are flipped to at
    /// `flip_ns`. All have been fetched just before.
    pub(super) fn new(lines: usize, now_ns: u64, flip_ns: u64) -> Self {
        let lead_ns = flip_ns.saturating_sub(now_ns);
        Self { lines, left: lines, since_ns: now_ns, until_ns: flip_ns - lead_ns / 32 }
    }

    /// The lines whose turn it is, the last first: evenly over the time there is.
    pub(super) fn due(&mut self, now_ns: u64) -> impl Iterator<Item = usize> + use<> {
        let (ahead_ns, all_ns) =
            (self.until_ns.saturating_sub(now_ns), self.until_ns.saturating_sub(self.since_ns));
        let may_wait = (self.lines as u64 * ahead_ns).checked_div(all_ns).unwrap_or(0) as usize;
        let before = self.left;
        self.left = may_wait.min(before).max(before.saturating_sub(MOST_LINES));
        let due: Range<usize> = self.left..before;
        due.rev()
    }

    /// Whether all have been fetched.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_turn_once_and_before_the_flip() {
        let mut warming = Warming::new(8_000, 1_000_000, 2_000_000);
        let mut fetched = Vec::new();
        let mut now_ns = 1_000_000;
        while !warming.is_done() {
            now_ns += 2_000;
            let due: Vec<usize> = warming.due(now_ns).collect();
            assert!((15..=18).contains(&due.len()) || warming.is_done(), "{} at once", due.len());
            fetched.extend(due);
        }
        assert!((1_960_000..2_000_000).contains(&now_ns), "{now_ns}");
        assert!(fetched.into_iter().eq((0..8_000).rev()));
    }

    #[test]
    fn an_lcore_that_was_away_is_not_held_up_for_long() {
        let mut warming = Warming::new(8_000, 1_000_000, 2_000_000);
        assert_eq!(warming.due(3_000_000).count(), MOST_LINES);
        // No time at all, as with no guard for clocks that differ.
        let mut warming = Warming::new(100, 5, 5);
        assert_eq!((warming.due(5).count(), warming.due(5).count()), (MOST_LINES, 36));
        assert!(warming.is_done() && warming.due(6).next().is_none());
    }
}
