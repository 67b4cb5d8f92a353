//! Two groups that take turns, one for each value of the timestamp bit.

use crate::clock::timestamp_bit;

/// The groups of a switch, or of one lcore of it, moving through [`crate::Event`]s.
///
/// `I` is what records packets entering the network, `E` what records those leaving it. Groups come
/// in empty when an epoch is armed and go out full when it is over; in between they are owned here
/// and by nobody else. Where no group was there to arm an epoch with, it is not measured, and that
/// is visible: [`ingress`](Self::ingress) and [`egress`](Self::egress) give none.
#[derive(Debug)]
pub struct Rotation<I, E> {
    epoch: u64,
    ingress: Option<I>,
    armed: Option<(u64, I)>,
    egress: [Slot<E>; 2],
}

/// The egress group of one value of the timestamp bit.
#[derive(Debug)]
enum Slot<E> {
    /// Packets with this bit belong to this epoch.
    Open { epoch: u64, group: E },
    /// The epoch is over, or not measured: packets with its bit are late, or foreign.
    Closed { epoch: u64, late: u64 },
}

/// What is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished<G> {
    /// The epoch it measured.
    pub epoch: u64,
    /// Its sketches.
    pub group: G,
}

impl<I, E> Rotation<I, E> {
    /// No group yet; `epoch` is the one that runs.
    pub fn new(epoch: u64) -> Self {
        let mut egress =
            [epoch, epoch.saturating_sub(1)].map(|epoch| Slot::Closed { epoch, late: 0 });
        if timestamp_bit(epoch) == 1 {
            egress.reverse();
        }
        Self { epoch, ingress: None, armed: None, egress }
    }

    /// The epoch that packets entering the network are stamped with.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The group that records packets entering the network now, none where the epoch is not
    /// measured.
    #[inline]
    pub fn ingress(&mut self) -> Option<&mut I> {
        self.ingress.as_mut()
    }

    /// The groups of the next epoch, for packets that enter and for those that leave, from its
    /// arming until its flip.
    #[inline]
    pub fn armed(&mut self) -> Option<(&mut I, &mut E)> {
        let (epoch, ingress) = self.armed.as_mut()?;
        match &mut self.egress[timestamp_bit(*epoch)] {
            Slot::Open { group, .. } => Some((ingress, group)),
            Slot::Closed { .. } => None,
        }
    }

    /// The group that records packets leaving the network with timestamp bit `bit`, none where no
    /// epoch with that bit is open; say so with [`late`](Self::late).
    #[inline]
    pub fn egress(&mut self, bit: usize) -> Option<&mut E> {
        match &mut self.egress[bit & 1] {
            Slot::Open { group, .. } => Some(group),
            Slot::Closed { .. } => None,
        }
    }

    /// Notes packets that carried `bit` when no epoch with that bit was open.
    #[inline]
    pub fn late(&mut self, bit: usize, packets: u64) {
        if let Slot::Closed { late, .. } = &mut self.egress[bit & 1] {
            *late += packets;
        }
    }

    /// Arms `epoch` with empty groups, or with none. Gives the epoch that used this timestamp bit
    /// before, and how many of its packets came after it was taken.
    ///
    /// The slot should have been taken; if it was not, its group is lost to the epoch before, so it
    /// is given back unfinished as the second value.
    pub fn arm(
        &mut self,
        epoch: u64,
        groups: Option<(I, E)>,
    ) -> (Option<(u64, u64)>, Option<Finished<E>>) {
        let (ingress, group) = groups.unzip();
        self.armed = ingress.map(|group| (epoch, group));
        let slot = match group {
            Some(group) => Slot::Open { epoch, group },
            None => Slot::Closed { epoch, late: 0 },
        };
        match std::mem::replace(&mut self.egress[timestamp_bit(epoch)], slot) {
            Slot::Closed { epoch, late } => (Some((epoch, late)), None),
            Slot::Open { epoch, group } => (None, Some(Finished { epoch, group })),
        }
    }

    /// Flips to `epoch`: packets are stamped with its bit from here on. Gives the ingress group of
    /// the epoch before.
    pub fn flip(&mut self, epoch: u64) -> Option<Finished<I>> {
        let armed = self.armed.take().filter(|(armed, _)| *armed == epoch);
        let before = std::mem::replace(&mut self.ingress, armed.map(|(_, group)| group));
        let finished = before.map(|group| Finished { epoch: self.epoch, group });
        self.epoch = epoch;
        finished
    }

    /// Finishes the egress group of `epoch`, if that epoch is open.
    pub fn take(&mut self, epoch: u64) -> Option<Finished<E>> {
        let slot = &mut self.egress[timestamp_bit(epoch)];
        match slot {
            Slot::Open { epoch: open, .. } if *open == epoch => {
                match std::mem::replace(slot, Slot::Closed { epoch, late: 0 }) {
                    Slot::Open { group, .. } => Some(Finished { epoch, group }),
                    Slot::Closed { .. } => None,
                }
            }
            _ => None,
        }
    }

    /// Forgets the packets of an epoch that is not measured: it is being taken in time, so they
    /// were not late.
    pub fn none_late(&mut self, epoch: u64) {
        match &mut self.egress[timestamp_bit(epoch)] {
            Slot::Closed { epoch: closed, late } if *closed == epoch => *late = 0,
            Slot::Open { .. } | Slot::Closed { .. } => {}
        }
    }
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
        let mut rotation = Rotation::<Count, Count>::new(4);
        rotation.arm(5, None);
        assert_eq!(rotation.flip(5), None);
        assert!(rotation.ingress().is_none() && rotation.egress(1).is_none());
        rotation.late(1, 2);
        assert_eq!(rotation.take(5), None);
        rotation.none_late(5);
        rotation.late(1, 3);
        let (closed, unfinished) = rotation.arm(7, Some((Count(0), Count(0))));
        assert_eq!((closed, unfinished), (Some((5, 3)), None));
    }

    /// What comes before the first epochs are armed has the bits of the two before them, and may be
    /// theirs.
    #[test]
    fn packets_too_early_for_the_first_two_epochs_are_told_of_the_two_before() {
        for first in [10, 11] {
            let mut rotation = Rotation::<Count, Count>::new(first - 1);
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

    proptest! {
        /// Whatever the clocks' error and the packets' flight within the guards: every packet is
        /// recorded in one epoch at its ingress edge and in the same one at its egress edge.
        #[test]
        fn no_packet_is_counted_in_two_epochs_or_none(
            mut packets in prop::collection::vec((0u64..1_000_000_000, 0u64..10_000_000), 1..300),
            ahead in 0u64..1_000_000,
        ) {
            let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
            let first = 20;
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
                [Rotation::<Count, Count>::new(first - 1), Rotation::new(first - 1)];
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
                    let group = rotations[1].egress(bits[n]);
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
            }
        }
    }
}
