//! HashPipe (Sivaraman and others, SOSR 2017): six stages; a new flow always enters the first, and
//! what it drives out goes on until it meets a smaller one.

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};
use crate::{Insert, Memory, Query, Tracked, WORD};

/// Stages.
const STAGES: usize = 6;

/// Stages of flows and their counts; 0 where there is none.
#[derive(Clone, Debug)]
pub struct HashPipe {
    hash: Hash,
    width: usize,
    /// Bytes of a slot on a switch.
    entry: usize,
    slots: Vec<(FlowKey, u32)>,
}

impl HashPipe {
    /// An empty sketch that fills at most `memory`.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let entry = key + WORD;
        let width = (bytes / STAGES / entry).max(1);
        let slots = vec![(FlowKey::default(), 0); width * STAGES];
        Self { hash: Hash::new(seed), width, entry, slots }
    }

    #[inline]
    fn place(&self, hashed: Hashed, stage: usize) -> usize {
        stage * self.width + hashed.index(stage as u64, self.width)
    }
}

impl Insert for HashPipe {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let mut carried = (*key, 1);
        let mut hashed = self.hash.of(key);
        for stage in 0..STAGES {
            let at = self.place(hashed, stage);
            let slot = &mut self.slots[at];
            if slot.1 == 0 {
                *slot = carried;
                return;
            }
            if slot.0 == carried.0 {
                slot.1 = slot.1.saturating_add(carried.1);
                return;
            }
            if stage == 0 || slot.1 < carried.1 {
                std::mem::swap(slot, &mut carried);
                hashed = self.hash.of(&carried.0);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.slots.len() * self.entry
    }
}

impl Query for HashPipe {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        let hashed = self.hash.of(key);
        let of = |stage| {
            let slot = self.slots[self.place(hashed, stage)];
            if slot.0 == *key { slot.1 } else { 0 }
        };
        (0..STAGES).map(of).sum()
    }
}

impl Tracked for HashPipe {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        let mut flows: Vec<_> = self.slots.iter().copied().filter(|slot| slot.1 > 0).collect();
        flows.sort_unstable_by_key(|flow| flow.0);
        flows.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        flows
    }
}
