//! The count-min sketch (Cormode and Muthukrishnan, 2005) and conservative update (Estan and
//! Varghese, 2002): three rows of 32-bit counters.

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::sizes::{Counters, entropy_of, linear_counting, sizes_behind};
use crate::{Cardinality, Entropy, Insert, Memory, Query, Sizes, WORD};

/// Rows, as recommended.
const ROWS: usize = 3;

#[derive(Clone, Debug)]
struct Rows {
    hash: Hash,
    width: usize,
    counters: Vec<u32>,
}

impl Rows {
    fn new(bytes: usize, seed: u64) -> Self {
        let width = (bytes / WORD / ROWS).max(1);
        Self { hash: Hash::new(seed), width, counters: vec![0; width * ROWS] }
    }

    #[inline]
    fn places(&self, key: &FlowKey) -> [usize; ROWS] {
        let hashed = self.hash.of(key);
        std::array::from_fn(|row| row * self.width + hashed.index(row as u64, self.width))
    }

    #[inline]
    fn smallest(&self, places: &[usize; ROWS]) -> u32 {
        places.iter().fold(u32::MAX, |least, &at| least.min(self.counters[at]))
    }

    /// Number of flows by the first row.
    fn cardinality(&self) -> f64 {
        let row = &self.counters[..self.width];
        linear_counting(row.iter().filter(|&&counter| counter == 0).count() as f64, self.width)
    }
}

/// Counts in every row; the smallest counter of a flow is nearest to its size.
#[derive(Clone, Debug)]
pub struct CountMin(Rows);

/// Counts in the smallest counters of a flow only.
#[derive(Clone, Debug)]
pub struct ConservativeUpdate(Rows);

impl CountMin {
    /// An empty sketch that fills at most `memory`; it keeps no keys.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        Self(Rows::new(memory.into().bytes, seed))
    }
}

impl ConservativeUpdate {
    /// An empty sketch that fills at most `memory`; it keeps no keys.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        Self(Rows::new(memory.into().bytes, seed))
    }
}

impl Insert for CountMin {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        for at in self.0.places(key) {
            self.0.counters[at] = self.0.counters[at].saturating_add(1);
        }
    }

    fn bytes(&self) -> usize {
        self.0.counters.len() * WORD
    }
}

impl Insert for ConservativeUpdate {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let places = self.0.places(key);
        let raised = self.0.smallest(&places).saturating_add(1);
        for at in places {
            self.0.counters[at] = self.0.counters[at].max(raised);
        }
    }

    fn bytes(&self) -> usize {
        self.0.counters.len() * WORD
    }
}

impl Query for CountMin {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        self.0.smallest(&self.0.places(key))
    }
}

impl Query for ConservativeUpdate {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        self.0.smallest(&self.0.places(key))
    }
}

impl Cardinality for CountMin {
    fn cardinality(&self) -> f64 {
        self.0.cardinality()
    }
}

impl Cardinality for ConservativeUpdate {
    fn cardinality(&self) -> f64 {
        self.0.cardinality()
    }
}

impl Sizes for CountMin {
    /// From the first row, whose counters are sums; those of conservative update are none.
    fn sizes(&self) -> Vec<(u64, f64)> {
        let values = self.0.counters[..self.0.width].to_vec();
        sizes_behind(&[Counters { leaves: 1, values }], self.0.width)
    }
}

impl Entropy for CountMin {
    fn entropy(&self) -> f64 {
        entropy_of(&self.sizes())
    }
}
