//! When an alert starts and when it ends: a pure state machine, one for each thing watched.
//!
//! It takes several bad readings in a row to start and several good ones to end, so that a value at
//! its limit, or one epoch of noise, alarms nobody. What is not known changes nothing.

use calumma_analysis::alert::Reading;

/// How patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Bad epochs in a row that start an alert, at least 1.
    pub raise_after: u32,
    /// Good epochs in a row that end it, at least 1.
    pub clear_after: u32,
    /// Nanoseconds between updates while it lasts.
    pub update_ns: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The alert starts.
    Start,
    /// It still lasts.
    Update,
    /// It is over.
    End,
}

/// An alert that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// The epoch that started it.
    pub since_epoch: u64,
    /// That epoch's start in nanoseconds since the Unix epoch.
    pub since_ns: u64,
    /// Time of the last word about it.
    said_ns: u64,
}

/// The state of one alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hysteresis {
    lasting: Option<Lasting>,
    /// Readings in a row that speak for a change.
    run: u32,
}

impl Hysteresis {
    /// The alert, where it lasts.
    pub fn lasting(&self) -> Option<Lasting> {
        self.lasting
    }

    /// Takes the reading of `epoch`, which began at `at_ns`. At an end, gives the alert that ended.
    pub fn step(
        &mut self,
        reading: Reading,
        epoch: u64,
        at_ns: u64,
        patience: &Patience,
    ) -> Option<(Transition, Lasting)> {
        let Some(lasting) = &mut self.lasting else {
            match reading {
                Reading::Proven => self.run = patience.raise_after.max(1),
                Reading::Bad => self.run += 1,
                Reading::Between | Reading::Good => self.run = 0,
                Reading::Unknown => {}
            }
            if self.run < patience.raise_after.max(1) {
                return None;
            }
            self.run = 0;
            let lasting = Lasting { since_epoch: epoch, since_ns: at_ns, said_ns: at_ns };
            self.lasting = Some(lasting);
            return Some((Transition::Start, lasting));
        };
        match reading {
            Reading::Good => self.run += 1,
            Reading::Between | Reading::Bad | Reading::Proven => self.run = 0,
            Reading::Unknown => {}
        }
        let lasted = *lasting;
        if self.run >= patience.clear_after.max(1) {
            *self = Self::default();
            return Some((Transition::End, lasted));
        }
        if at_ns.saturating_sub(lasting.said_ns) < patience.update_ns {
            return None;
        }
        lasting.said_ns = at_ns;
        Some((Transition::Update, *lasting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH_NS: u64 = 50_000_000;

    fn readings() -> impl Strategy<Value = Vec<Reading>> {
        use Reading::{Bad, Between, Good, Unknown};
        let reading = prop_oneof![Just(Bad), Just(Between), Just(Good), Just(Unknown)];
        // Runs, so that alerts do start and end.
        prop::collection::vec((reading, 1usize..8), 1..40).prop_map(|runs| {
            runs.into_iter().flat_map(|(reading, times)| vec![reading; times]).collect()
        })
    }

    fn patience() -> impl Strategy<Value = Patience> {
        (1u32..5, 1u32..5, 1u64..20).prop_map(|(raise_after, clear_after, epochs)| Patience {
            raise_after,
            clear_after,
            update_ns: epochs * EPOCH_NS,
        })
    }

    #[test]
    fn what_one_epoch_proves_starts_an_alert_at_once_and_keeps_it() {
        use Reading::{Bad, Good, Proven, Unknown};
        let patience = Patience { raise_after: 3, clear_after: 2, update_ns: u64::MAX };
        let said = transitions(&[Unknown, Bad, Proven, Good, Proven, Good, Good], &patience);
        assert_eq!(said, [(2, Transition::Start), (6, Transition::End)]);
    }

    /// What an alert says over epochs that read so, by epoch.
    fn transitions(readings: &[Reading], patience: &Patience) -> Vec<(usize, Transition)> {
        let mut alert = Hysteresis::default();
        let step = |(epoch, reading): (usize, &Reading)| {
            let at = epoch as u64 * EPOCH_NS;
            Some((epoch, alert.step(*reading, epoch as u64, at, patience)?.0))
        };
        readings.iter().enumerate().filter_map(step).collect()
    }

    /// Readings in a row, up to and with `epoch`, that are `wanted`; unknown ones are passed over.
    fn in_a_row(readings: &[Reading], epoch: usize, wanted: Reading) -> usize {
        let known = readings[..=epoch].iter().rev().filter(|reading| **reading != Reading::Unknown);
        known.take_while(|reading| **reading == wanted).count()
    }

    proptest! {
        #[test]
        fn starts_and_ends_alternate_and_each_has_its_cause(
            readings in readings(), patience in patience(),
        ) {
            let mut lasts = false;
            let mut said = 0;
            for (epoch, transition) in transitions(&readings, &patience) {
                let row = |wanted| in_a_row(&readings, epoch, wanted);
                match transition {
                    Transition::Start => {
                        prop_assert!(!lasts);
                        prop_assert!(row(Reading::Bad) >= patience.raise_after as usize);
                        lasts = true;
                    }
                    Transition::Update => {
                        prop_assert!(lasts);
                        prop_assert!((epoch - said) as u64 * EPOCH_NS >= patience.update_ns);
                    }
                    Transition::End => {
                        prop_assert!(lasts);
                        prop_assert!(row(Reading::Good) >= patience.clear_after as usize);
                        lasts = false;
                    }
                }
                said = epoch;
            }
        }

        #[test]
        fn an_alert_that_is_due_starts_in_the_very_epoch(
            quiet in 0usize..10, patience in patience(),
        ) {
            let bad = patience.raise_after as usize;
            let readings = [vec![Reading::Good; quiet], vec![Reading::Bad; bad]].concat();
            prop_assert_eq!(transitions(&readings, &patience), [(quiet + bad - 1, Transition::Start)]);
        }

        #[test]
        fn what_is_not_known_neither_starts_nor_ends_anything(
            readings in readings(), patience in patience(),
        ) {
            let patience = Patience { update_ns: u64::MAX, ..patience };
            let known: Vec<_> =
                readings.iter().copied().filter(|reading| *reading != Reading::Unknown).collect();
            let words = |steps: Vec<(usize, Transition)>| -> Vec<Transition> {
                steps.into_iter().map(|(_, transition)| transition).collect()
            };
            prop_assert_eq!(words(transitions(&readings, &patience)), words(transitions(&known, &patience)));
        }
    }
}
