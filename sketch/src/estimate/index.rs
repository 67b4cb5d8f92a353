//! Where in a list each key is.

use std::hash::BuildHasher;
use std::marker::PhantomData;

use foldhash::quality::RandomState;

use crate::key::Key;

/// Finds keys in a list that it does not hold itself: four bytes a place, twice as many places as
/// keys or more, and the next free one where keys fall on the same.
#[derive(Debug)]
pub(super) struct Index<K> {
    /// A key's number in the list and one more; 0 where there is none. A power of two.
    places: Vec<u32>,
    random: RandomState,
    keys: PhantomData<fn(&K)>,
}

impl<K: Key> Index<K> {
    /// Of fewer than 2^32 entries; of a key that is there twice, the last is found.
    pub(super) fn new<T>(list: &[(K, T)]) -> Self {
        let places = vec![0; (2 * list.len()).next_power_of_two().max(2)];
        let mut index = Self { places, random: RandomState::default(), keys: PhantomData };
        for (at, (key, _)) in list.iter().enumerate() {
            let place = index.place(list, key);
            index.places[place] = at as u32 + 1;
        }
        index
    }

    /// Where `key` is in the list that the index is of.
    pub(super) fn get<T>(&self, list: &[(K, T)], key: &K) -> Option<usize> {
        (self.places[self.place(list, key)] as usize).checked_sub(1)
    }

    /// The place that `key` has, or the free one that it would get.
    fn place<T>(&self, list: &[(K, T)], key: &K) -> usize {
        let last = self.places.len() - 1;
        let mut place = self.random.hash_one(key) as usize & last;
        loop {
            match self.places[place] {
                0 => return place,
                at if list[at as usize - 1].0 == *key => return place,
                _ => place = (place + 1) & last,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::FlowKey;

    proptest! {
        #[test]
        fn every_key_is_found_where_it_stands_last(
            list in prop::collection::vec(0_u32..99, 0..150), others in 99_u32..200,
        ) {
            let key = |of: u32| FlowKey::from_words(of, of << 7, 1, 6);
            let list: Vec<_> = list.into_iter().map(|of| (key(of), ())).collect();
            let index = Index::new(&list);
            let last: HashMap<_, _> = list.iter().enumerate().map(|(at, of)| (of.0, at)).collect();
            for key in (0..others).map(key) {
                prop_assert_eq!(index.get(&list, &key), last.get(&key).copied());
            }
        }
    }
}
