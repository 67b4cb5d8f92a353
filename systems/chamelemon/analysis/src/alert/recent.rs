//! Which of the last epochs are incomplete, and why.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use calumma_analysis::Flow;
use calumma_analysis::alert::{Reading, Spoiler};

use super::FLOWS_NAMED;
use crate::report::{Cause, CauseKind, EpochReport, StrayKind, StrayReport};

/// Epochs that are looked back on.
const EPOCHS: usize = 100;

/// Causes that an alert names.
const CAUSES_NAMED: usize = 3;

/// Causes that are one: those of a kind at an edge. Their words differ in numbers.
type Spoils = (Option<String>, CauseKind);

/// The last epochs.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Of each, what spoils it; nothing where it is complete.
    epochs: VecDeque<Option<BTreeSet<Spoils>>>,
    /// In how many of them it does, and as what it was seen last.
    spoilers: BTreeMap<Spoils, Spoiler>,
}

impl Recent {
    /// Takes the next epoch's report.
    pub(super) fn take(&mut self, report: &EpochReport) {
        if self.epochs.len() == EPOCHS {
            let gone = self.epochs.pop_front().flatten().unwrap_or_default();
            for spoils in &gone {
                if let Some(spoiler) = self.spoilers.get_mut(spoils) {
                    spoiler.epochs -= 1;
                }
            }
            self.spoilers.retain(|_, spoiler| spoiler.epochs > 0);
        }
        if report.complete {
            self.epochs.push_back(None);
            return;
        }
        let mut spoils = BTreeSet::new();
        for cause in &report.causes {
            let of = (cause.edge.clone(), cause.kind);
            let before = self.spoilers.get(&of).map_or(0, |spoiler| spoiler.epochs);
            if spoils.insert(of.clone()) {
                let spoiler = Spoiler {
                    edge: cause.edge.clone(),
                    reason: cause.reason.clone(),
                    epochs: before + 1,
                    flows: flows_of(cause, &report.strays),
                };
                self.spoilers.insert(of, spoiler);
            }
        }
        self.epochs.push_back(Some(spoils));
    }

    /// How many of them are incomplete.
    fn incomplete(&self) -> usize {
        self.epochs.iter().filter(|spoils| spoils.is_some()).count()
    }

    /// The share of them that is incomplete, as if those before the first had been complete.
    pub(super) fn share(&self) -> f64 {
        self.incomplete() as f64 / EPOCHS as f64
    }

    /// How that stands to the limit.
    pub(super) fn reading(&self, limit: f64) -> Reading {
        match self.share() {
            share if share > limit => Reading::Bad,
            share if share > limit / 2.0 => Reading::Between,
            _ => Reading::Good,
        }
    }

    /// What spoils most of them, that which spoils most first.
    pub(super) fn spoilers(&self) -> Vec<Spoiler> {
        let mut spoilers: Vec<&Spoiler> = self.spoilers.values().collect();
        spoilers.sort_by_key(|spoiler| Reverse(spoiler.epochs));
        spoilers.into_iter().take(CAUSES_NAMED).cloned().collect()
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        let (incomplete, all) = (self.incomplete(), self.epochs.len());
        let words = format!("{incomplete} of the last {all} epochs are incomplete");
        let Some(Spoiler { reason, epochs, flows, .. }) = self.spoilers().into_iter().next() else {
            return words;
        };
        let flows: Vec<_> = flows.iter().map(Flow::to_string).collect();
        let flows = match flows.is_empty() {
            true => String::new(),
            false => format!(" (flows: {})", flows.join(", ")),
        };
        format!("{words}, {epochs} of them by this most frequent cause: {reason}{flows}")
    }
}

/// The flows that have most of the packets concerned, as far as they are known.
fn flows_of(cause: &Cause, strays: &[StrayReport]) -> Vec<Flow> {
    let is_of = |what| match cause.kind {
        CauseKind::Late => what == StrayKind::Late,
        CauseKind::Mark => what != StrayKind::Late,
        _ => false,
    };
    let strays = strays.iter().filter(|of| cause.edge.as_ref() == Some(&of.edge) && is_of(of.what));
    let strays = strays.flat_map(|of| &of.flows).map(|of| of.flow);
    let flows: Vec<Flow> = match cause.flows.is_empty() {
        true => strays.collect(),
        false => cause.flows.clone(),
    };
    flows.into_iter().take(FLOWS_NAMED).collect()
}
