//! Configuration that takes effect at an epoch.

use std::collections::VecDeque;

/// A configuration for an epoch whose configuration is already frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late for epoch {wanted}: the earliest epoch that can still be changed is {earliest}")]
pub struct TooLate {
    /// The epoch that was to change.
    pub wanted: u64,
    /// The first epoch that still can.
    pub earliest: u64,
}

/// What holds now and what will hold from later epochs on.
///
/// A change for an epoch replaces a pending one for the same epoch and all that was planned for
/// later ones: the newest decision knows most.
#[derive(Clone, Debug)]
pub struct Timeline<C> {
    /// In ascending order of epochs; the first one holds for all epochs before the second.
    changes: VecDeque<(u64, C)>,
    earliest: u64,
}

impl<C: Clone> Timeline<C> {
    /// A timeline on which `config` holds until something else does.
    pub fn new(config: C) -> Self {
        Self { changes: VecDeque::from([(0, config)]), earliest: 0 }
    }

    /// Lets `config` hold from `epoch` on.
    ///
    /// # Errors
    /// When that epoch is frozen.
    pub fn change(&mut self, epoch: u64, config: C) -> Result<(), TooLate> {
        if epoch < self.earliest {
            return Err(TooLate { wanted: epoch, earliest: self.earliest });
        }
        self.changes.retain(|&(from, _)| from < epoch);
        self.changes.push_back((epoch, config));
        Ok(())
    }

    /// What holds in `epoch`. Meaningful for the last frozen epoch and those after it.
    pub fn at(&self, epoch: u64) -> &C {
        let holding = self.changes.iter().rev().find(|&&(from, _)| from <= epoch);
        &holding.unwrap_or(&self.changes[0]).1
    }

    /// Freezes `epoch` and all before it, and gives what holds in it.
    pub fn freeze(&mut self, epoch: u64) -> C {
        self.earliest = self.earliest.max(epoch + 1);
        while self.changes.len() > 1 && self.changes[1].0 <= epoch {
            self.changes.pop_front();
        }
        self.at(epoch).clone()
    }

    /// The first epoch that can still be changed.
    pub fn earliest(&self) -> u64 {
        self.earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_takes_effect_at_its_epoch_and_not_before() {
        let mut timeline = Timeline::new("paper");
        assert_eq!(timeline.freeze(7), "paper");
        timeline.change(10, "ill").unwrap();
        assert_eq!(timeline.freeze(9), "paper");
        assert_eq!(
            timeline.change(9, "late"),
            Err(TooLate { wanted: 9, earliest: 10 }),
            "epoch 9 has been armed with the old configuration"
        );
        assert_eq!(timeline.freeze(10), "ill");
        assert_eq!(timeline.freeze(11), "ill");
    }

    #[test]
    fn a_newer_decision_replaces_those_for_the_same_and_later_epochs() {
        let mut timeline = Timeline::new(0);
        timeline.change(5, 5).unwrap();
        timeline.change(8, 8).unwrap();
        timeline.change(5, 55).unwrap();
        assert_eq!([4, 5, 8, 9].map(|epoch| *timeline.at(epoch)), [0, 55, 55, 55]);
    }

    proptest! {
        #[test]
        fn a_frozen_epoch_keeps_what_it_was_frozen_with(
            changes in prop::collection::vec((0u64..20, 0u32..100), 0..40),
        ) {
            let mut timeline = Timeline::new(u32::MAX);
            let mut frozen = Vec::new();
            for (step, (ahead, config)) in changes.into_iter().enumerate() {
                let epoch = step as u64;
                frozen.push(timeline.freeze(epoch));
                prop_assert_eq!(timeline.at(epoch), frozen.last().unwrap());
                let wanted = (epoch + ahead).saturating_sub(5);
                prop_assert_eq!(timeline.change(wanted, config).is_ok(), wanted > epoch);
                prop_assert_eq!(timeline.at(epoch), frozen.last().unwrap());
            }
        }
    }
}
