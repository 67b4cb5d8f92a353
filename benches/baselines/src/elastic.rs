//! Elastic (Yang and others, SIGCOMM 2018), hardware version: a heavy part of four stages, and one
//! row of 8-bit counters for what finds no place there.

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::heavy_part::{Heavy, HeavyPart};
use crate::sizes::{Counters, entropy_of, linear_counting, sizes_behind, with_flows};
use crate::{Cardinality, Entropy, Insert, Memory, Query, Sizes, Tracked};

/// A heavy part and a light part.
#[derive(Clone, Debug)]
pub struct Elastic {
    heavy: HeavyPart,
    hash: Hash,
    light: Vec<u8>,
}

impl Elastic {
    /// An empty sketch that fills at most `memory`.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let memory = memory.into();
        let heavy = HeavyPart::new(memory, seed);
        let light = vec![0; memory.bytes.saturating_sub(heavy.bytes()).max(1)];
        Self { heavy, hash: Hash::new(seed), light }
    }

    #[inline]
    fn light(&self, key: &FlowKey) -> u32 {
        self.light[self.hash.of(key).index(0, self.light.len())].into()
    }

    /// The flow's packets in both parts.
    #[inline]
    fn whole(&self, heavy: &Heavy) -> u32 {
        let light = if heavy.beyond { self.light(&heavy.key) } else { 0 };
        heavy.packets.saturating_add(light)
    }
}

impl Insert for Elastic {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        if let Some((key, packets)) = self.heavy.insert(key) {
            let at = self.hash.of(&key).index(0, self.light.len());
            self.light[at] = self.light[at].saturating_add(packets.min(255) as u8);
        }
    }

    fn bytes(&self) -> usize {
        self.heavy.bytes() + self.light.len()
    }
}

impl Query for Elastic {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        let heavy = self.heavy.query(key);
        self.whole(&heavy)
    }
}

impl Tracked for Elastic {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.heavy.flows().iter().map(|heavy| (heavy.key, self.whole(heavy))).collect()
    }
}

impl Cardinality for Elastic {
    fn cardinality(&self) -> f64 {
        let only_heavy = self.heavy.flows().iter().filter(|heavy| !heavy.beyond).count();
        let empty = self.light.iter().filter(|&&counter| counter == 0).count();
        only_heavy as f64 + linear_counting(empty as f64, self.light.len())
    }
}

impl Sizes for Elastic {
    fn sizes(&self) -> Vec<(u64, f64)> {
        let values = self.light.iter().map(|&counter| counter.into()).collect();
        let light = sizes_behind(&[Counters { leaves: 1, values }], self.light.len());
        with_flows(light, self.tracked().into_iter().map(|flow| flow.1))
    }
}

impl Entropy for Elastic {
    fn entropy(&self) -> f64 {
        entropy_of(&self.sizes())
    }
}
