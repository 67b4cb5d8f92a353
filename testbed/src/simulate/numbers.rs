//! Sets of a flow's packets.

use std::ops::Range;

use calumma_plane::Run;

/// Packets that a flow sent in an epoch, by their numbers, counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers(
    /// Ascending, apart from each other, none empty.
    Vec<Range<u32>>,
);

impl Numbers {
    /// As many packets as `range` has.
    pub(super) fn within(range: Range<u32>) -> Self {
        Self(if range.is_empty() { Vec::new() } else { vec![range] })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// How many of them are not before packet `number`.
    pub(super) fn count_from(&self, number: u32) -> u32 {
        self.0.iter().map(|range| range.end - range.start.max(number).min(range.end)).sum()
    }

    /// Whether packet `number` is one of them.
    pub(super) fn contains(&self, number: u32) -> bool {
        let after = self.0.partition_point(|range| range.end <= number);
        self.0.get(after).is_some_and(|range| range.contains(&number))
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().cloned().flatten()
    }

    /// The first of them; 0 where there are none.
    pub(super) fn first(&self) -> u32 {
        self.0.first().map_or(0, |range| range.start)
    }

    /// Those that are `taken`, and the others.
    pub(super) fn split(&self, mut taken: impl FnMut(u32) -> bool) -> [Self; 2] {
        let mut both = [Self::default(), Self::default()];
        for number in self.iter() {
            both[usize::from(!taken(number))].push(number);
        }
        both
    }

    /// Those that are taken, and the others. `taken` gives the taken ones of a range in order.
    pub(super) fn part<I: Iterator<Item = u32>>(
        &self,
        taken: impl Fn(Range<u32>) -> I,
    ) -> [Self; 2] {
        let [mut these, mut others] = [Self::default(), Self::default()];
        for range in &self.0 {
            let mut begin = range.start;
            for number in taken(range.clone()) {
                these.push(number);
                others.0.extend((begin < number).then_some(begin..number));
                begin = number + 1;
            }
            others.0.extend((begin < range.end).then_some(begin..range.end));
        }
        [these, others]
    }

    /// Adds a packet that is after all others.
    fn push(&mut self, number: u32) {
        match self.0.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => self.0.push(number..number + 1),
        }
    }

    /// These packets by hierarchy, where all packets from `first` on are those of `run`.
    pub(super) fn of_run(&self, run: &Run, first: u32) -> Run {
        let mut begin = first;
        Run::new(run.counts().map(|packets| {
            let end = begin + packets;
            let within = self.count_from(begin) - self.count_from(end);
            begin = end;
            within
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn numbers_are_the_set_that_is_left_after_each_loss(
            losses in prop::collection::vec(prop::collection::btree_set(0u32..40, 0..40), 0..4),
            counts in prop::array::uniform4(0u32..12),
        ) {
            let run = Run::new(counts);
            let packets = run.packets();
            let mut left = Numbers::within(5..5 + packets);
            let mut expected: BTreeSet<u32> = left.iter().collect();
            for loss in losses {
                let [taken, others] = left.split(|number| loss.contains(&number));
                let parted = left.part(|range| loss.range(range).copied());
                prop_assert_eq!(&parted, &[taken.clone(), others.clone()]);
                prop_assert!(taken.iter().eq(expected.intersection(&loss).copied()));
                left = others;
                expected.retain(|number| !loss.contains(number));
                prop_assert!(left.iter().eq(expected.iter().copied()));
                prop_assert_eq!(left.count() as usize, expected.len());
                prop_assert!((0..60).all(|at| left.contains(at) == expected.contains(&at)));
                prop_assert_eq!(left.is_empty(), expected.is_empty());
            }
            prop_assert_eq!(left.count_from(9) as usize, expected.range(9..).count());
            // Of the run's packets, the first ones have the lowest hierarchy.
            let hierarchies: Vec<usize> =
                (0..4).flat_map(|at| vec![at; counts[at] as usize]).collect();
            let mut by_hierarchy = [0; 4];
            for number in &expected {
                by_hierarchy[hierarchies[*number as usize - 5]] += 1;
            }
            prop_assert_eq!(left.of_run(&run, 5), Run::new(by_hierarchy));
        }
    }
}
