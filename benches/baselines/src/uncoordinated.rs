//! Flow sampling without coordination, as cSamp (Sekar and others, NSDI 2008) is measured beside:
//! every switch counts each flow with the same probability, by a hash of its own, so that what it
//! counts fits its memory on average. Two switches choose one flow as often as chance has it.

use std::collections::HashMap;

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::{Insert, Memory, Tracked, WORD};

/// Exact counts of flows that were drawn.
#[derive(Clone, Debug)]
pub struct Uncoordinated {
    hash: Hash,
    /// Flows whose hash is below it are counted.
    limit: u64,
    capacity: usize,
    /// Bytes of an entry.
    entry: usize,
    flows: HashMap<FlowKey, u32>,
}

impl Uncoordinated {
    /// An empty sample that fills at most `memory`, for a switch that about `expected` flows pass.
    /// Switches have different seeds.
    pub fn new(memory: impl Into<Memory>, expected: usize, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let entry = key + WORD;
        let capacity = (bytes / entry).max(1);
        let share = capacity as f64 / expected.max(1) as f64;
        let limit = if share >= 1.0 { u64::MAX } else { (share * 2_f64.powi(64)) as u64 };
        let flows = HashMap::with_capacity(capacity);
        Self { hash: Hash::new(seed), limit, capacity, entry, flows }
    }
}

impl Insert for Uncoordinated {
    /// A flow that is drawn while there is no room has none later, since no entry ever goes.
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        if let Some(packets) = self.flows.get_mut(key) {
            *packets += 1;
        } else if self.flows.len() < self.capacity && self.hash.of(key).whole() <= self.limit {
            self.flows.insert(*key, 1);
        }
    }

    fn bytes(&self) -> usize {
        self.capacity * self.entry
    }
}

impl Tracked for Uncoordinated {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.flows.iter().map(|(&key, &packets)| (key, packets)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_counts_its_share_and_two_as_many_together_as_chance_has_it() {
        // Two switches with room for half of 20,000 flows: one of four is counted by neither.
        let mut switches = [1, 2].map(|seed| Uncoordinated::new(10_000 * 17, 20_000, seed));
        for switch in &mut switches {
            for number in 0..20_000 {
                let key = FlowKey::from_words(number, 1, 2, 6);
                (0..3).for_each(|_| switch.insert(&key));
            }
        }
        let counted = switches.each_ref().map(Tracked::tracked);
        for flows in &counted {
            assert!((9_700..=10_000).contains(&flows.len()), "{}", flows.len());
            assert!(flows.iter().all(|flow| flow.1 == 3));
        }
        let all: std::collections::HashSet<FlowKey> =
            counted.iter().flatten().map(|flow| flow.0).collect();
        assert!((all.len() as f64 / 20_000.0 - 0.75).abs() < 0.01, "{}", all.len());
        assert_eq!(switches[0].bytes(), 170_000);
    }

    #[test]
    fn a_switch_with_room_for_all_counts_all() {
        let mut switch = Uncoordinated::new(3 * 17, 3, 5);
        (0..4).for_each(|it| switch.insert(&FlowKey::from_words(it, 0, 0, 6)));
        let mut counted = switch.tracked();
        counted.sort_unstable();
        let flow = |it| (FlowKey::from_words(it, 0, 0, 6), 1);
        assert_eq!(counted, [flow(0), flow(1), flow(2)], "and no more than there is room for");
    }
}
