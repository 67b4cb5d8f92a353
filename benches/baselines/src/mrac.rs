//! MRAC (Kumar and others, SIGMETRICS 2004): one array of counters, and the most likely flow sizes
//! behind it by expectation maximisation.

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::sizes::{Counters, entropy_of, linear_counting, sizes_behind};
use crate::{Cardinality, Entropy, Insert, Memory, Sizes, WORD};

/// An array of 32-bit counters.
#[derive(Clone, Debug)]
pub struct Mrac {
    hash: Hash,
    counters: Vec<u32>,
}

impl Mrac {
    /// An empty sketch that fills at most `memory`; it keeps no keys.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let counters = vec![0; (memory.into().bytes / WORD).max(1)];
        Self { hash: Hash::new(seed), counters }
    }
}

impl Insert for Mrac {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let at = self.hash.of(key).index(0, self.counters.len());
        self.counters[at] = self.counters[at].saturating_add(1);
    }

    fn bytes(&self) -> usize {
        self.counters.len() * WORD
    }
}

impl Cardinality for Mrac {
    fn cardinality(&self) -> f64 {
        let empty = self.counters.iter().filter(|&&counter| counter == 0).count();
        linear_counting(empty as f64, self.counters.len())
    }
}

impl Sizes for Mrac {
    fn sizes(&self) -> Vec<(u64, f64)> {
        let counters = Counters { leaves: 1, values: self.counters.clone() };
        sizes_behind(&[counters], self.counters.len())
    }
}

impl Entropy for Mrac {
    fn entropy(&self) -> f64 {
        entropy_of(&self.sizes())
    }
}
