//! From all edges' sketches of one epoch to its report (section 4.2 of the ChameleMon paper).
//!
//! No I/O, no clock, no threads: a replay of a capture uses an [`Analyser`] just as the live
//! controller does. It goes in two steps, since attention is planned between them: a [`Decoder`]
//! takes flows out of the encoders as soon as the sides of an epoch are in, and the [`Analyser`]
//! answers the rest once the epoch is over. Whether an epoch can be trusted is decided in
//! `soundness`, and, where an earlier one spoils it, in `parity_conflicts`; the delta encoders are
//! decoded in `loss`, `explain` and `translation` have what their flows mean, `amendments` what
//! they show of earlier epochs, `evidence` of other flows; the six accumulation tasks in `edge`.

mod amendments;
mod balance;
mod decode;
mod edge;
mod entered;
mod evidence;
mod explain;
mod ingress;
mod input;
mod load;
mod loss;
mod parity_conflicts;
mod soundness;
mod strays;
mod suspicion;
mod tasks;
mod translation;
mod unprobed;

pub use decode::{DecodedEpoch, Decoder};
pub use edge::{EdgeSizes, FlowSize};
pub use ingress::DecodedIngress;
pub use input::{EdgeInput, EpochInput};
pub use suspicion::Suspicion;
pub use tasks::Tasks;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use calumma_analysis::HashKeys;
use calumma_chamelemon::Layout;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;

use self::amendments::Amendments;
use self::entered::Entered;
use self::evidence::{Evidence, Shown};
use self::explain::{Doubts, Explained};
use self::parity_conflicts::ParityConflicts;
use self::strays::EpochStrays;
use crate::report::{EpochReport, Flow};

/// Analyses one epoch after the other.
#[derive(Debug)]
pub struct Analyser {
    decoder: Decoder,
    tasks: Tasks,
    /// What is remembered of each edge from the epoch before.
    previous: HashMap<String, Arc<EdgeSizes>>,
    conflicts: ParityConflicts,
    amendments: Amendments,
    evidence: Evidence,
    /// What no sketch held of the two epochs before, and which those are.
    strays: VecDeque<(u64, EpochStrays)>,
}

impl Analyser {
    /// An analyser for a deployment of `layout`, whose hashes are drawn from `hash_key`.
    pub fn new(layout: Layout, hash_key: &HashKey, clock: EpochClock, tasks: Tasks) -> Self {
        Self::with(Decoder::new(layout, HashKeys::new(*hash_key), clock), tasks)
    }

    /// The same with a decoder for the deployment.
    pub fn with(decoder: Decoder, tasks: Tasks) -> Self {
        Self {
            decoder,
            tasks,
            previous: HashMap::new(),
            conflicts: ParityConflicts::default(),
            amendments: Amendments::default(),
            evidence: Evidence::default(),
            strays: VecDeque::new(),
        }
    }

    /// What decodes the epochs' encoders.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Lets other thresholds hold from the next epoch on.
    pub fn set_tasks(&mut self, tasks: Tasks) {
        self.tasks = tasks;
    }

    /// Flow sizes at each edge in the last epoch that was analysed, by the edge's name.
    pub fn sizes(&self) -> &HashMap<String, Arc<EdgeSizes>> {
        &self.previous
    }

    /// The report on an epoch, in one step: for replays. Epochs must come in order for heavy
    /// changes to be seen.
    pub fn analyse(&mut self, input: EpochInput) -> EpochReport {
        let decoded = self.decoder.decode(input);
        self.report(decoded)
    }

    /// The report on an epoch that has been decoded and is over. Epochs must come in order for
    /// heavy changes to be seen.
    pub fn report(&mut self, decoded: DecodedEpoch) -> EpochReport {
        let (mut report, sizes) = self.losses(&decoded);
        for edge in &mut report.edges {
            let Some(sizes) = sizes.get(&edge.edge) else { continue };
            let previous = self.previous.get(&edge.edge);
            let previous = previous.filter(|previous| previous.epoch() + 1 == report.epoch);
            let previous = previous.map(Arc::as_ref);
            edge::answer(edge, sizes, previous, &self.tasks);
        }
        self.previous = sizes;
        report
    }

    /// The same without the accumulation tasks, which take most of the time: for a controller that
    /// is behind.
    pub fn report_losses_only(&mut self, decoded: DecodedEpoch) -> EpochReport {
        let (report, sizes) = self.losses(&decoded);
        self.previous = sizes;
        EpochReport { losses_only: true, ..report }
    }

    /// The report as far as decoding gives it, and the flow sizes at each edge.
    fn losses(&mut self, decoded: &DecodedEpoch) -> (EpochReport, HashMap<String, Arc<EdgeSizes>>) {
        let mut verdict = soundness::judge(&decoded.input);
        verdict.causes.extend(self.conflicts.of(&decoded.input));
        let sizes = decoded.sizes();
        let epoch = decoded.epoch();
        let of_edges: BTreeMap<_, _> =
            sizes.iter().map(|(edge, sizes)| (edge.clone(), sizes.clone())).collect();
        let entered = Entered::new(decoded.family(), &of_edges);
        let family = self.decoder.keys().at(epoch.saturating_sub(1)).family.clone();
        let before = self.previous.iter().filter(|(_, sizes)| sizes.epoch() + 1 == epoch);
        let before = before.map(|(edge, sizes)| (edge.clone(), sizes.clone())).collect();
        let before = Entered::new(&family, &before);
        let is_stranger = |flow: &Flow| {
            let was_none = before.edges().next().is_none() || before.of(flow).is_stranger();
            was_none && entered.of(flow).is_stranger()
        };
        let strays = EpochStrays::of(&decoded.input, is_stranger);
        self.strays.retain(|&(past, _)| past < epoch && past + 2 >= epoch);
        let of_past = |by: u64| {
            let found = self.strays.iter().find(|(past, _)| past + by == epoch);
            found.map(|(_, strays)| strays)
        };
        let doubts = Doubts { now: &strays, before: of_past(1), with_its_bit: of_past(2) };
        let mut explained = Explained::default();
        let is_sound = verdict.is_sound();
        if is_sound {
            explained = decoded.explained(&entered, &doubts);
            verdict.causes.extend(decoded.contradiction());
            verdict.causes.extend(unprobed::causes(&explained.loss, &decoded.input, &entered));
            if explained.is_hidden {
                verdict.causes.extend(doubts.causes().cloned());
            }
        }
        let (is_bounded, excess) = (explained.is_bounded, explained.excess());
        let not_entered = mem::take(&mut explained.not_entered);
        let mut report = decoded.outline(verdict, explained);
        if report.complete && is_bounded {
            report.causes.extend(doubts.causes().cloned());
        }
        let dated = self.decoder.is_dated();
        let shown = amendments::Shown {
            excess: &excess,
            not_entered: &not_entered,
            strays: &strays,
            dated,
            entered: &entered,
            before: &before,
        };
        let misplaced = self.amendments.complete(&mut report, &shown);
        self.evidence.forget(epoch);
        if is_sound && !dated {
            let shown = Shown {
                epoch,
                strays: &strays,
                misplaced: &misplaced,
                surplus: &report.surplus,
                entered: &entered,
                before: &before,
            };
            if self.evidence.add(&shown) {
                let is_in_doubt = |flow: &Flow| self.evidence.concerns(flow, &entered, false);
                self.amendments.doubt(&mut report, is_in_doubt, &Evidence::words(epoch));
            }
            self.evidence.set_aside(&mut report, &entered);
        }
        self.amendments.remember(&mut report, excess, &entered);
        report.strays = strays.reports.clone();
        self.strays.push_back((epoch, strays));
        (report, sizes)
    }
}
