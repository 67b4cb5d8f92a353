//! Two groups that take turns, one for each value of the timestamp bit or, where several epochs are
//! recorded together, for each parity of the window.

use crate::clock::timestamp_bit;

/// The groups of a switch, or of one lcore of it, moving through [`crate::Event`]s.
///
/// `I` is what records packets entering the network, `E` what records packets by the timestamp bit
/// they carry. What is recorded together is a *window* of one or more epochs, numbered by its first
/// epoch divided by its length and named by its first epoch. Every packet is recorded in the window
/// of the epoch that its bit says: in the middle of a window both bits are that window's, and
/// around a boundary one for each of two.
///
/// Groups come in empty when a window's first epoch is armed and go out full when its last one is
/// over; in between they are owned here and by nobody else. Where no group was there to arm a
/// window with, or its beginning was missed, it is not measured, and that is visible:
/// [`ingress`](Self::ingress) and [`by_bit`](Self::by_bit) give none.
#[derive(Debug)]
pub struct Rotation<I, E> {
    /// Epochs of a window.
    window: u64,
    /// The epoch that runs.
    epoch: u64,
    /// That of the window under way, and its first epoch.
    ingress: Option<(u64, I)>,
    /// That of the next window, from its arming until its flip.
    armed: Option<(u64, I)>,
    /// By the parity of the window, with its first epoch.
    open: [Option<(u64, E)>; 2],
    /// By timestamp bit.
    bits: [Bit; 2],
    /// Late packets of epochs that are over, by the parity of their window, with its first epoch.
    late: [(u64, u64); 2],
    /// The first epoch that is sealed here: others seal those before.
    seals_from: u64,
}

/// What a value of the timestamp bit stands for.
#[derive(Debug)]
struct Bit {
    /// The epoch that has used it last.
    epoch: u64,
    /// Where packets that carry it are recorded; `None` where that epoch is over, or not measured:
    /// they are late, or foreign.
    place: Option<usize>,
    /// Packets that have carried it while it was so.
    late: u64,
}

/// What is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished<G> {
    /// The epoch it measured, or the first one of the window.
    pub epoch: u64,
    /// Its sketches.
    pub group: G,
}

impl<I, E> Rotation<I, E> {
    /// No group yet; `epoch` is the one that runs, and a window has `window` epochs.
    ///
    /// # Panics
    /// When a window has no epochs.
    pub fn new(epoch: u64, window: u64) -> Self {
        assert!(window > 0, "a window of at least one epoch");
        let mut bits =
            [epoch, epoch.saturating_sub(1)].map(|epoch| Bit { epoch, place: None, late: 0 });
        if timestamp_bit(epoch) == 1 {
            bits.reverse();
        }
        let (open, late) = ([None, None], [(0, 0); 2]);
        Self { window, epoch, ingress: None, armed: None, open, bits, late, seals_from: 0 }
    }

    /// Has it seal no epoch before `epoch`: others see to those.
    #[must_use]
    pub fn sealing_from(self, epoch: u64) -> Self {
        Self { seals_from: epoch, ..self }
    }

    /// Epochs of a window.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The epoch that packets entering the network are stamped with.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The group that records packets entering the network now, none where the window is not
    /// measured.
    #[inline]
    pub fn ingress(&mut self) -> Option<&mut I> {
        self.ingress.as_mut().map(|(_, group)| group)
    }

    /// The groups of the next window, for packets that enter and for those recorded by their bits,
    /// from its arming until its flip.
    #[inline]
    pub fn armed(&mut self) -> Option<(&mut I, &mut E)> {
        let (first, ingress) = self.armed.as_mut()?;
        let place = parity(*first, self.window);
        self.open[place].as_mut().map(|(_, group)| (ingress, group))
    }

    /// The group that records packets that carry timestamp bit `bit`, none where no epoch with that
    /// bit is open; say so with [`late`](Self::late).
    #[inline]
    pub fn by_bit(&mut self, bit: usize) -> Option<&mut E> {
        let place = self.bits[bit & 1].place?;
        self.open[place & 1].as_mut().map(|(_, group)| group)
    }

    /// The groups that record packets by either timestamp bit, each once: one in the middle of a
    /// window, and two around a boundary.
    pub fn by_either_bit(&mut self) -> impl Iterator<Item = &mut E> {
        let places = self.bits.each_ref().map(|bit| bit.place);
        let open = self.open.iter_mut().enumerate();
        let open = open.filter(move |(place, _)| places.contains(&Some(*place)));
        open.filter_map(|(_, open)| open.as_mut().map(|(_, group)| group))
    }

    /// Notes packets that carried `bit` when no epoch with that bit was open.
    #[inline]
    pub fn late(&mut self, bit: usize, packets: u64) {
        let bit = &mut self.bits[bit & 1];
        if bit.place.is_none() {
            bit.late += packets;
        }
    }

    /// Notes packets that carried `bit` and further bits of an older epoch's number: they are not
    /// of the epoch with that bit that is or was open last, and count as late for it, since of
    /// their own nothing is to be sent any more.
    #[inline]
    pub fn outdated(&mut self, bit: usize, packets: u64) {
        self.bits[bit & 1].late += packets;
    }

    /// Whether a window begins with `epoch`.
    pub fn is_first(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(self.window)
    }

    /// Whether packets of the next epoch with the timestamp bit of `epoch` are recorded in another
    /// window.
    pub fn shares_bit_with_next_window(&self, epoch: u64) -> bool {
        self.first(epoch + 2) != self.first(epoch)
    }

    /// The first epoch of the window of `epoch`.
    fn first(&self, epoch: u64) -> u64 {
        epoch - epoch % self.window
    }

    /// Arms `epoch`. Where a window begins with it, it is armed with empty groups, or with none;
    /// else `groups` are dropped. Gives the window that is sealed by this, as the epoch before with
    /// this timestamp bit was its last one, and how many of its packets came too late.
    ///
    /// That epoch should have been taken; if it was not, and its window's group is in the way, that
    /// is given back unfinished as the second value.
    pub fn arm(
        &mut self,
        epoch: u64,
        groups: Option<(I, E)>,
    ) -> (Option<(u64, u64)>, Option<Finished<E>>) {
        let (first, place) = (self.first(epoch), parity(epoch, self.window));
        let mut unfinished = None;
        if self.is_first(epoch) {
            let (ingress, group) = groups.unzip();
            self.armed = ingress.map(|group| (epoch, group));
            let before =
                std::mem::replace(&mut self.open[place], group.map(|group| (epoch, group)));
            unfinished = before.map(|(epoch, group)| Finished { epoch, group });
        }
        let measured = self.open[place].as_ref().is_some_and(|(of, _)| *of == first);
        (self.use_bit(epoch, measured.then_some(place)), unfinished)
    }

    /// Closes the timestamp bit of `epoch`, which is not measured. Gives the window that is sealed
    /// by this: see [`arm`](Self::arm).
    pub fn close(&mut self, epoch: u64) -> Option<(u64, u64)> {
        if self.is_first(epoch) {
            self.armed = None;
        }
        self.use_bit(epoch, None)
    }

    /// Lets `epoch` have its timestamp bit.
    fn use_bit(&mut self, epoch: u64, place: Option<usize>) -> Option<(u64, u64)> {
        let bit = &mut self.bits[timestamp_bit(epoch)];
        let before = std::mem::replace(bit, Bit { epoch, place, late: 0 });
        if before.place.is_some() {
            return None;
        }
        let window = self.first(before.epoch);
        let late = &mut self.late[parity(window, self.window)];
        if late.0 != window {
            *late = (window, 0);
        }
        late.1 += before.late;
        let is_over = window + self.window == before.epoch + 1;
        (is_over && before.epoch >= self.seals_from).then_some(*late)
    }

    /// Flips to `epoch`: packets are stamped with its bit from here on. Where a window begins with
    /// it, gives the ingress group of the one before.
    pub fn flip(&mut self, epoch: u64) -> Option<Finished<I>> {
        self.epoch = epoch;
        if !self.is_first(epoch) {
            return None;
        }
        let armed = self.armed.take().filter(|(armed, _)| *armed == epoch);
        let before = std::mem::replace(&mut self.ingress, armed);
        before.map(|(epoch, group)| Finished { epoch, group })
    }

    /// The group that has recorded packets by the bit of `epoch`, as long as its window is open.
    pub fn recorded(&mut self, epoch: u64) -> Option<&mut E> {
        let first = self.first(epoch);
        let open = self.open[parity(epoch, self.window)].as_mut();
        open.filter(|(of, _)| *of == first).map(|(_, group)| group)
    }

    /// Ends the recording by the bit of `epoch`. Where it is the last epoch of an open window,
    /// gives the window's group.
    pub fn take(&mut self, epoch: u64) -> Option<Finished<E>> {
        let bit = &mut self.bits[timestamp_bit(epoch)];
        if bit.epoch == epoch {
            bit.place = None;
        }
        if !self.is_first(epoch + 1) {
            return None;
        }
        let first = self.first(epoch);
        let taken = self.open[parity(epoch, self.window)].take_if(|(of, _)| *of == first);
        taken.map(|(epoch, group)| Finished { epoch, group })
    }

    /// Forgets the packets of an epoch that is not measured, and may not have been armed: it is
    /// being taken in time, so they were not late. Gives whether there was nothing to keep them
    /// for.
    pub fn none_late(&mut self, epoch: u64) -> bool {
        let bit = &mut self.bits[timestamp_bit(epoch)];
        let forgets = bit.epoch <= epoch && bit.place.is_none();
        if forgets {
            (bit.epoch, bit.late) = (epoch, 0);
        }
        forgets
    }
}

/// The parity of the window, of `window` epochs, that `epoch` is in.
#[inline]
fn parity(epoch: u64, window: u64) -> usize {
    usize::from(!(epoch / window).is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{EpochClock, Guards};
    use crate::schedule::{Event, Schedule};
    use proptest::prelude::*;

    /// Two switches with counters for sketches, and packets that fly between them.
    #[derive(Default, Clone, Debug, PartialEq)]
    struct Count(u64);

    #[test]
    fn an_epoch_without_groups_is_not_measured_and_what_comes_after_its_taking_is_late() {
        let mut rotation = Rotation::<Count, Count>::new(4, 1);
        rotation.arm(5, None);
        assert_eq!(rotation.flip(5), None);
        assert!(rotation.ingress().is_none() && rotation.by_bit(1).is_none());
        rotation.late(1, 2);
        assert_eq!(rotation.take(5), None);
        rotation.none_late(5);
        rotation.late(1, 3);
        let (closed, unfinished) = rotation.arm(7, Some((Count(0), Count(0))));
        assert_eq!((closed, unfinished), (Some((5, 3)), None));
    }

    /// A session that begins within a window measures from the next one on, and what comes late in
    /// a window is counted once it is sealed, whichever of its epochs it was late for.
    #[test]
    fn windows_are_measured_whole_and_sealed_once() {
        let mut rotation = Rotation::<Count, Count>::new(4, 3);
        let mut step = |epoch: u64| {
            let groups = rotation.is_first(epoch).then_some((Count(0), Count(0)));
            let (sealed, unfinished) = rotation.arm(epoch, groups);
            assert!(unfinished.is_none());
            let entered = rotation.flip(epoch).map(|of| of.epoch);
            // Just after the flip packets of the epoch before may still come.
            let taken = rotation.take(epoch - 1);
            if taken.is_none() && rotation.recorded(epoch - 1).is_none() {
                rotation.none_late(epoch - 1);
            }
            rotation.late(timestamp_bit(epoch - 1), 1);
            (sealed, entered, taken.map(|of| of.epoch), rotation.ingress().is_some())
        };
        assert_eq!(step(5), (None, None, None, false));
        assert_eq!(step(6), (None, None, None, true));
        // The window of 3 to 5 was not measured, yet what came after its taking is late.
        assert_eq!(step(7), (Some((3, 2)), None, None, true));
        assert_eq!(step(8), (None, None, None, true));
        assert_eq!(step(9), (None, Some(6), Some(6), true));
        assert_eq!(step(10), (Some((6, 3)), None, None, true));
    }

    /// What comes before the first epochs are armed has the bits of the two before them, and may be
    /// theirs.
    #[test]
    fn packets_too_early_for_the_first_two_epochs_are_told_of_the_two_before() {
        for first in [10, 11] {
            let mut rotation = Rotation::<Count, Count>::new(first - 1, 1);
            let groups = || Some((Count(0), Count(0)));
            rotation.late(timestamp_bit(first), 1);
            rotation.late(timestamp_bit(first + 1), 7);
            assert_eq!(rotation.arm(first, groups()).0, Some((first - 2, 1)));
            rotation.flip(first);
            rotation.none_late(first - 1);
            rotation.late(timestamp_bit(first + 1), 2);
            assert_eq!(rotation.arm(first + 1, groups()).0, Some((first - 1, 2)));
        }
    }

    /// Of two that follow each other each epoch, or window, is sealed by one, that which others may
    /// still have seen to when it ended.
    #[test]
    fn what_others_seal_is_not_sealed_again() {
        for (window, end) in [(1, 24), (3, 24), (3, 25)] {
            let mut before = Rotation::<Count, Count>::new(17, window);
            let mut after = Rotation::<Count, Count>::new(end - 1, window).sealing_from(end);
            let mut sealed = Vec::new();
            for epoch in 18..40 {
                let groups = || Some((Count(0), Count(0)));
                if epoch < end {
                    sealed.extend(before.arm(epoch, groups()).0);
                } else {
                    sealed.extend(before.close(epoch).filter(|_| epoch <= end + 1));
                    sealed.extend(after.arm(epoch, groups()).0);
                }
                for of in [&mut before, &mut after] {
                    of.flip(epoch);
                    of.take(epoch - 1);
                    of.none_late(epoch - 1);
                }
            }
            let sealed: Vec<u64> = sealed.into_iter().map(|(epoch, _)| epoch).collect();
            let all: Vec<u64> = (sealed[0]..39 - window).step_by(window as usize).collect();
            assert_eq!(sealed, all, "windows of {window}, up to {end}");
        }
    }

    proptest! {
        /// Whatever the clocks' error and the packets' flight within the guards: every packet is
        /// recorded in one window at its ingress edge and in the same one at its egress edge.
        #[test]
        fn no_packet_is_counted_in_two_epochs_or_none(
            mut packets in prop::collection::vec((0u64..1_000_000_000, 0u64..10_000_000), 1..300),
            ahead in 0u64..1_000_000,
            window in 1u64..5,
        ) {
            let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
            // A window begins with it, whatever its length.
            let first = 24;
            let offset = clock.start_of(first);
            // True time, whether the packet arrives (or is sent), its number.
            let mut steps: Vec<(u64, bool, usize)> = Vec::new();
            packets.sort();
            for (n, (sent, flight)) in packets.iter().enumerate() {
                steps.push((offset + sent, false, n));
                steps.push((offset + sent + flight, true, n));
            }
            steps.sort();

            let mut bits = vec![0; packets.len()];
            let mut rotations =
                [Rotation::<Count, Count>::new(first - 1, window), Rotation::new(first - 1, window)];
            let mut schedules = [Schedule::starting_with(clock, first); 2];
            let mut entered = std::collections::BTreeMap::new();
            let mut left = std::collections::BTreeMap::new();
            let end = offset + 2_000_000_000;
            for (time, arrives, n) in steps.into_iter().chain([(end, false, usize::MAX)]) {
                // The first switch's clock runs ahead of the second's.
                for (switch, now) in [(0, time + ahead), (1, time)] {
                    while let Some(due) = schedules[switch].due(now) {
                        let rotation = &mut rotations[switch];
                        match due.event {
                            Event::Arm(epoch) => {
                                let (closed, unfinished) =
                                    rotation.arm(epoch, Some((Count(0), Count(0))));
                                prop_assert!(unfinished.is_none());
                                prop_assert_eq!(closed.map_or(0, |(_, late)| late), 0);
                            }
                            Event::Flip(epoch) => {
                                if let Some(done) = rotation.flip(epoch) && switch == 0 {
                                    entered.insert(done.epoch, done.group.0);
                                }
                            }
                            Event::Take(epoch) => {
                                if let Some(done) = rotation.take(epoch) && switch == 1 {
                                    left.insert(done.epoch, done.group.0);
                                }
                            }
                        }
                    }
                }
                if n == usize::MAX {
                    break;
                }
                if arrives {
                    let group = rotations[1].by_bit(bits[n]);
                    prop_assert!(group.is_some(), "an open epoch for every packet in time");
                    group.unwrap().0 += 1;
                } else {
                    bits[n] = timestamp_bit(rotations[0].epoch());
                    rotations[0].ingress().unwrap().0 += 1;
                }
            }
            prop_assert_eq!(entered.values().sum::<u64>(), packets.len() as u64);
            for (epoch, packets) in entered.into_iter().filter(|&(_, packets)| packets > 0) {
                prop_assert_eq!(left.get(&epoch), Some(&packets), "epoch {}", epoch);
                prop_assert!(epoch.is_multiple_of(window));
            }
        }
    }
}
