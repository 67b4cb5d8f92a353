//! What the marks of a burst's packets say of the epochs that these are of.

use super::Flows;
use crate::mark::Hierarchy;
use crate::worker::masks::positions;
use calumma_sketch::Key;

impl<K: Key> Flows<K> {
    /// Tells packets of the two newest epochs, the last of which is `newest`, from older ones, as
    /// far as their marks say.
    #[inline(always)]
    pub(crate) fn date(&mut self, newest: u64) {
        self.newest = newest;
        if self.dated == 0 {
            return;
        }
        let wanted = [0, 1].map(|bit| latest(newest, bit) >> 1);
        let differs = |column: u32, at: u32| {
            let column_of = |bit: usize| 0_u32.wrapping_sub((wanted[bit] >> at) as u32 & 1);
            column ^ (self.bits & column_of(1) | !self.bits & column_of(0))
        };
        let [low, high] = self.epoch_bits;
        self.stale = self.dated & self.marked & (differs(low, 0) | differs(high, 1));
        self.marked &= !self.stale;
    }

    /// The packets whose marks say that they are older than the newest epoch with their timestamp
    /// bit: their numbers, and by how many epochs, 2, 4 or 6. A packet that is older by eight more
    /// looks the same, and one of the epoch to come, whose edge has a fast clock, like 6.
    #[inline]
    pub fn stale(&self) -> impl Iterator<Item = (usize, u8)> {
        let of_bit = |bit, which: u32| if self.wants(bit) { which } else { 0 };
        let wanted = of_bit(0, !self.bits) | of_bit(1, self.bits);
        positions(self.stale & wanted).map(|at| {
            let [low, high] = self.epoch_bits.map(|column| u64::from(column >> at & 1));
            let wanted = latest(self.newest, (self.bits >> at & 1) as usize) >> 1;
            (at, (wanted.wrapping_sub(high << 1 | low) & 0b11) as u8 * 2)
        })
    }

    /// A bit for each packet that came when `since` was the newest epoch, and whose mark has come
    /// to mean another epoch than it did then.
    pub(crate) fn outdated(&self, since: u64) -> u32 {
        let is_outdated = |&at: &usize| {
            let bit = (self.bits >> at & 1) as usize;
            if self.dated >> at & 1 == 0 {
                return latest(since, bit) != latest(self.newest.max(since), bit);
            }
            let [low, high] = self.epoch_bits.map(|column| u64::from(column >> at & 1));
            let said = high << 2 | low << 1 | bit as u64;
            let latest = |newest: u64| newest.wrapping_sub(newest.wrapping_sub(said) & 7);
            // It may be of the epoch that was to come, from an edge with a fast clock.
            let since = since.saturating_add(1);
            latest(since) != latest(self.newest.max(since))
        };
        let of = positions(self.marked | self.stale).filter(is_outdated);
        of.fold(0, |all, number| all | 1 << self.places()[number].0)
    }

    /// Whether marks have bits of the epoch's number above the timestamp bit: all of a carrier do,
    /// or none.
    #[inline]
    pub fn are_dated(&self) -> bool {
        self.dated != 0
    }

    /// The newest epoch that packets may carry.
    #[inline]
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// What packet number `at` of these says, which carries no mark: hierarchy, and by how many
    /// epochs, 0 to 7, its epoch is before the [newest](Self::newest), or by eight more or any
    /// multiple. `None` where it says nothing. Nothing proves it: a stranger's packet says what it
    /// likes.
    pub fn unproven(&self, at: usize) -> Option<(Hierarchy, u8)> {
        let is_said = self.dated & self.without_mark();
        (is_said >> at & 1 == 1).then(|| {
            let [low, high] = self.epoch_bits.map(|column| column >> at & 1);
            let epoch = high << 2 | low << 1 | self.bits >> at & 1;
            (self.hierarchies[at], (self.newest as u8).wrapping_sub(epoch as u8) & 7)
        })
    }
}

/// The newest epoch with this timestamp bit.
#[inline(always)]
fn latest(newest: u64, bit: usize) -> u64 {
    newest.wrapping_sub((newest ^ bit as u64) & 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::{Mark, Seen};
    use calumma_sketch::FlowKey;

    /// Eight epochs are distinguished, and none of these packets counts as marked.
    #[test]
    fn what_packets_without_a_mark_say_is_how_old_they_are() {
        for newest in 96..104 {
            let (mut flows, mut seen) = (Flows::<FlowKey>::new(), Seen::default());
            for at in 0..10 {
                flows.push(FlowKey::from_words(at as u32, 0, 0, 17), at, 14);
                let mark = Mark::of_epoch(newest - at as u64, Hierarchy::HlCandidate);
                match at {
                    8 => seen.note(at, Some(mark), None),
                    9 => seen.note(at, None, None),
                    _ => seen.note(at, None, Some(mark)),
                }
            }
            flows.set_seen(&seen);
            flows.date(newest);
            let said: Vec<_> = (0..10).map(|at| flows.unproven(at)).collect();
            let wanted = (0..8).map(|back| Some((Hierarchy::HlCandidate, back)));
            assert_eq!(said, wanted.chain([None, None]).collect::<Vec<_>>());
            assert_eq!(flows.each_unmarked().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 9]);
            assert_eq!(flows.stale().count(), 0);
            let mut given = Vec::new();
            flows.by_bit(|of| given.extend_from_slice(of.keys));
            assert_eq!(given, [flows.keys()[8]]);
        }
    }

    /// A bit tells two epochs apart, and two more of their number eight.
    #[test]
    fn a_mark_means_its_epoch_until_another_has_its_bits() {
        let outdated = |dated: bool, newest: u64| {
            let (mut flows, mut seen) = (Flows::<FlowKey>::new(), Seen::default());
            // Of the epoch before 100, of that itself, and of the next one.
            for (at, epoch) in (99..=101).enumerate() {
                flows.push(FlowKey::from_words(epoch as u32, 0, 0, 17), at, 14);
                let mark = Mark::of_epoch(epoch, Hierarchy::HlCandidate);
                let plain = Mark::plain((epoch & 1) as usize, Hierarchy::HlCandidate);
                seen.note(at, Some(if dated { mark } else { plain }), None);
            }
            flows.set_seen(&seen);
            flows.date(newest);
            flows.outdated(100)
        };
        assert_eq!([100, 101, 102, 110].map(|newest| outdated(false, newest)), [0, 0b101, 7, 7]);
        let newest = [100, 101, 106, 107, 108, 109];
        assert_eq!(newest.map(|newest| outdated(true, newest)), [0, 0, 0, 1, 0b11, 7]);
        assert_eq!(outdated(true, 200), 7);
    }
}
