//! Flows that carry stacks whatever the share, as an lcore looks them up.

use std::sync::{Arc, Mutex, PoisonError};

use calumma_sketch::sketchint::flow_word;
use calumma_sketch::{FlowKey, HashFamily, Key, KeyKind, WideKey};

use crate::frames::{Plan, Step};

/// Words of flows in a table with as much room again, so that a look-up ends soon. A flow that has
/// another's word by chance carries stacks as well: nothing is wrong then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FlowTable(Box<[u64]>);

impl FlowTable {
    fn of(words: impl ExactSizeIterator<Item = u64>) -> Self {
        if words.len() == 0 {
            return Self::default();
        }
        let mut table = vec![0; (2 * words.len()).next_power_of_two()].into_boxed_slice();
        for word in words {
            let mut place = word as usize & (table.len() - 1);
            while table[place] != 0 && table[place] != word {
                place = (place + 1) & (table.len() - 1);
            }
            // Where a word is 0, its flow is drawn as others are.
            table[place] = word;
        }
        Self(table)
    }

    #[inline]
    fn has(&self, word: u64) -> bool {
        let Some(last) = self.0.len().checked_sub(1) else { return false };
        let mut place = word as usize & last;
        loop {
            match self.0[place] {
                0 => return false,
                there if there == word => return true,
                _ => place = (place + 1) & last,
            }
        }
    }
}

/// What an lcore goes by in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LcorePlan {
    pub(super) step: Step,
    /// For keys of either kind.
    attended: Arc<[FlowTable; 2]>,
}

impl LcorePlan {
    /// That of a plan, with flows hashed as this deployment does.
    pub(super) fn of(plan: &Plan, family: &HashFamily) -> Self {
        let wide = plan.attended.iter().map(|key| flow_word(&family.hash(key)));
        let narrow = |key: &WideKey| {
            let ((src, dst), (sport, dport)) = (key.addresses(), Key::ports(key));
            FlowKey::new(src, dst, sport, dport, Key::protocol(key))
        };
        let narrow: Vec<FlowKey> = plan.attended.iter().filter_map(narrow).collect();
        let narrow = narrow.iter().map(|key| flow_word(&family.hash(key)));
        Self { step: plan.step, attended: Arc::new([FlowTable::of(narrow), FlowTable::of(wide)]) }
    }

    /// Whether no flow of the kind carries stacks before others.
    #[inline]
    pub(super) fn attends_none(&self, kind: KeyKind) -> bool {
        self.attended[usize::from(kind == KeyKind::Dual)].0.is_empty()
    }

    /// Whether a flow of this word, of a key of this kind, carries stacks whatever the share.
    #[inline]
    pub(super) fn attends(&self, kind: KeyKind, word: u64) -> bool {
        self.attended[usize::from(kind == KeyKind::Dual)].has(word)
    }
}

/// The control thread's own share in all plans that lcores may have, so that an lcore is never the
/// last to let a table go: it frees no memory.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Vec<LcorePlan>>);

impl Shared {
    /// Shares a plan that is about to be given to lcores, and frees those that none has any more.
    pub(super) fn share(&self, plan: LcorePlan) -> LcorePlan {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|plan| Arc::strong_count(&plan.attended) > 1);
        plans.push(plan.clone());
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_freed_by_who_shares_it_and_only_when_no_lcore_has_it() {
        let shared = Shared::default();
        let held = shared.share(LcorePlan::default());
        let table = Arc::downgrade(&held.attended);
        drop(shared.share(LcorePlan::default()));
        assert_eq!(table.strong_count(), 2);
        drop(held);
        assert_eq!(table.strong_count(), 1, "the last one is not the lcore's");
        drop(shared.share(LcorePlan::default()));
        assert_eq!(table.strong_count(), 0);
        assert_eq!(shared.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn all_words_are_found_and_no_others() {
        let word = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7 | 5;
        let words = FlowTable::of((1..=1024).map(word).collect::<Vec<_>>().into_iter());
        assert_eq!(words.0.len(), 2048);
        assert!((1..=1024).all(|number| words.has(word(number))));
        assert!((1025..20_000).all(|number| !words.has(word(number))));
        assert!(!FlowTable::default().has(0));
    }
}
