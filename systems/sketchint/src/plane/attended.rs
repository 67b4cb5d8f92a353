//! What an lcore goes by in a window: how far INT is on, and which flows carry stacks whatever the
//! share.

use calumma_plane::FlowSet;
use calumma_plane::flow_set::SharedSets;
use calumma_sketch::{HashFamily, KeyKind};

use crate::frames::{Plan, Step};

/// What an lcore goes by in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LcorePlan {
    pub(super) step: Step,
    /// A flow that counts as one of these by chance carries stacks as well: nothing is wrong then.
    attended: FlowSet,
}

impl LcorePlan {
    /// That of a plan, with flows hashed as this deployment does, for lcores to have.
    pub(super) fn of(plan: &Plan, family: &HashFamily, shared: &SharedSets) -> Self {
        let attended = shared.share(FlowSet::of(&plan.attended, family));
        Self { step: plan.step, attended }
    }

    /// Whether no flow of the kind carries stacks before others.
    #[inline]
    pub(super) fn attends_none(&self, kind: KeyKind) -> bool {
        self.attended.is_empty(kind)
    }

    /// Whether a flow of this word, of a key of this kind, carries stacks whatever the share.
    #[inline]
    pub(super) fn attends(&self, kind: KeyKind, word: u64) -> bool {
        self.attended.has(kind, word)
    }
}
