//! A table of as many flows as there is room for, with a value of each: as an lcore fills it, and
//! as a frame has it.
//!
//! The table takes its memory once. What comes of flows that find no place in it is added up in one
//! value, so that nothing is missing from the sum, and whoever reads it knows by how much more each
//! flow may have had.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::AddAssign;

use calumma_sketch::{FlowKey, Key, WideKey};
use calumma_wire::body::Body;
use calumma_wire::{DecodeError, Fields};
use foldhash::fast::RandomState;

use crate::counting::{CountPackets, Tally};
use crate::system::{AnyRecord, Record};

/// What a [`FlowTable`] has of a flow. Values add up, and the default one adds nothing.
pub trait Value: Copy + Default + AddAssign + Debug + Send + 'static {}

impl<V: Copy + Default + AddAssign + Debug + Send + 'static> Value for V {}

/// Values by flow, of the first flows that come.
#[derive(Clone, Debug)]
pub struct FlowTable<K, V> {
    flows: HashMap<K, V, RandomState>,
    most: usize,
    others: V,
}

impl<K: Key, V: Value> FlowTable<K, V> {
    /// An empty table with room for `most` flows.
    pub fn new(most: usize) -> Self {
        let flows = HashMap::with_capacity_and_hasher(most, RandomState::default());
        Self { flows, most, others: V::default() }
    }

    /// Adds to the value of a flow; where the table is full and does not have it, to that of all
    /// others.
    #[inline]
    pub fn add(&mut self, key: &K, value: V) {
        let full = self.flows.len() == self.most;
        match self.flows.get_mut(key) {
            Some(of_flow) => *of_flow += value,
            None if full => self.others += value,
            None => {
                self.flows.insert(*key, value);
            }
        }
    }

    /// What is in it.
    pub fn list(&self) -> FlowList<V> {
        let wide = |(key, value): (&K, &V)| {
            let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
            Some((WideKey::new(src, dst, sport, dport, key.protocol())?, *value))
        };
        let mut flows: Vec<_> = self.flows.iter().filter_map(wide).collect();
        flows.sort_unstable_by_key(|&(key, _)| key);
        FlowList { flows, others: self.others }
    }
}

impl<K: Key, V: Value> Record for FlowTable<K, V> {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, other: &Self) {
        other.flows.iter().for_each(|(key, value)| self.add(key, *value));
        self.others += other.others;
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.others = V::default();
    }
}

impl<K: Key, V: Value + Tally> CountPackets<K> for FlowTable<K, V> {
    #[inline]
    fn count(&mut self, key: &K, packets: u64) {
        self.add(key, V::of(packets, 0));
    }

    fn refuse(&mut self, key: &K, packets: u64) {
        self.add(key, V::of(0, packets));
    }
}

/// What a [`FlowTable`] had. Its bytes are the value of others, then each flow's key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowList<V> {
    /// Each flow's value, by rising keys where it is of a table.
    pub flows: Vec<(WideKey, V)>,
    /// That of flows that found no place in the table.
    pub others: V,
}

impl<V: Value> FlowList<V> {
    /// What is in a record that is a table of such values, by keys of either kind; `None` of
    /// another record.
    pub fn of(record: &dyn AnyRecord) -> Option<Self> {
        let narrow = record.get::<FlowTable<FlowKey, V>>().map(|record| record.group.list());
        narrow.or_else(|| Some(record.get::<FlowTable<WideKey, V>>()?.group.list()))
    }

    /// All values, that of others among them.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.flows.iter().map(|(_, value)| *value).chain([self.others])
    }
}

impl<V: Fields> FlowList<V> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let len = V::BYTES + self.flows.len() * (WideKey::LEN + V::BYTES);
        let mut out = Vec::with_capacity(len);
        self.others.put(&mut out);
        for (key, value) in &self.flows {
            out.extend_from_slice(key.as_bytes());
            value.put(&mut out);
        }
        out
    }

    /// The list that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new(V::BODY, bytes, 0);
        let others = V::read(&mut body)?;
        let mut flows = Vec::with_capacity(body.left() / (WideKey::LEN + V::BYTES));
        while body.left() > 0 {
            flows.push((WideKey::from_bytes(body.array("flow")?), V::read(&mut body)?));
        }
        Ok(Self { flows, others })
    }
}

#[cfg(test)]
mod tests {
    use calumma_wire::fields;
    use proptest::prelude::*;

    use super::*;
    use crate::system::Recorded;

    fields! {
        /// Two numbers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Pair of "pairs by flow" {
            /// One.
            pub one: u64 as "one",
            /// The other.
            pub other: u8 as "the other",
        }
    }

    fn key(number: u32) -> FlowKey {
        FlowKey::from_words(number, !number, number << 16, 17)
    }

    fn table(most: usize, flows: &[(u32, u64)]) -> FlowTable<FlowKey, u64> {
        let mut table = FlowTable::new(most);
        flows.iter().for_each(|&(number, value)| table.add(&key(number), value));
        table
    }

    #[test]
    fn what_finds_no_place_is_counted_with_others() {
        let mut full = table(2, &[(1, 10), (2, 20), (3, 3), (1, 1), (4, 4)]);
        let flows = [(1, 11), (2, 20)].map(|(number, value)| (WideKey::from(key(number)), value));
        assert_eq!(full.list(), FlowList { flows: flows.to_vec(), others: 7 });
        full.clear();
        assert_eq!(full.list(), FlowList::default());
        full.add(&key(3), 5);
        assert_eq!(full.list().flows, [(key(3).into(), 5)]);
    }

    #[test]
    fn a_record_is_read_by_keys_of_either_kind_and_no_other_values() {
        let narrow = Recorded::new(table(2, &[(1, 10)]));
        let mut wide = FlowTable::<WideKey, u64>::new(2);
        wide.add(&key(1).into(), 10);
        let wide = Recorded::new(wide);
        let records: [&dyn AnyRecord; 2] = [&narrow, &wide];
        for record in records {
            assert_eq!(FlowList::of(record), Some(narrow.group.list()));
            assert_eq!(FlowList::<u32>::of(record), None);
        }
    }

    proptest! {
        /// No lcore's order of flows changes what they have together.
        #[test]
        fn nothing_is_missing_from_the_sum_of_two_tables(
            flows in prop::collection::vec((0_u32..12, 1_u64..100), 0..40),
            at in 0_usize..40,
            most in 1_usize..16,
        ) {
            let (one, other) = flows.split_at(at.min(flows.len()));
            let (mut sum, other) = (table(most, one), table(most, other));
            sum.merge(&other);
            let list = sum.list();
            prop_assert!(list.flows.len() <= most);
            let all = flows.iter().map(|&(_, value)| value).sum::<u64>();
            prop_assert_eq!(list.values().sum::<u64>(), all);
            prop_assert!(list.flows.is_sorted());
            if most >= 12 {
                prop_assert_eq!(list, table(most, &flows).list());
            }
        }

        #[test]
        fn a_list_comes_back_as_it_was_sent(
            flows in prop::collection::vec((any::<[u8; WideKey::LEN]>(), any::<(u64, u8)>()), 0..9),
            others: (u64, u8),
            cut in 1_usize..40,
        ) {
            let pair = |(one, other)| Pair { one, other };
            let flows = flows.into_iter().map(|(key, of)| (WideKey::from_bytes(key), pair(of)));
            let list = FlowList { flows: flows.collect(), others: pair(others) };
            let bytes = list.encode();
            prop_assert_eq!(FlowList::decode(&bytes), Ok(list));
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            let problem = FlowList::<Pair>::decode(shorter).unwrap_err();
            prop_assert!(problem.to_string().contains("of pairs by flow"), "{}", problem);
        }
    }
}
