//! The addresses of a window's flows, each with its rank among all of them.
//!
//! Flows are put in order, and those of an address together, by numbers in place of 16 bytes each.

use std::collections::HashMap;

use calumma_sketch::WideKey;

use crate::coverage::{dst, src};

/// Addresses in their order.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Vec<[u8; 16]>);

/// A flow's place in the order of keys, and the ranks of its source and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u128);

impl Place {
    fn of(key: &WideKey, [src, dst]: [u32; 2]) -> Self {
        let rest = key.as_bytes()[32..].iter().fold(0, |rest, &byte| rest << 8 | u128::from(byte));
        Self(u128::from(src) << 72 | u128::from(dst) << 40 | rest)
    }

    pub(crate) fn ends(self) -> [u32; 2] {
        [(self.0 >> 72) as u32, (self.0 >> 40) as u32]
    }
}

impl Addresses {
    /// Those of all these keys, with the place of each.
    pub(crate) fn of<'k>(
        keys: impl ExactSizeIterator<Item = &'k WideKey> + Clone,
    ) -> (Self, Vec<Place>) {
        let mut met = Met::default();
        let mut ends = Vec::with_capacity(keys.len());
        ends.extend(keys.clone().map(|key| [met.number(0, src(key)), met.number(1, dst(key))]));
        let mut order: Vec<u32> = (0..met.all.len() as u32).collect();
        order.sort_unstable_by_key(|&number| met.all[number as usize]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(&order).for_each(|(rank, &number)| ranks[number as usize] = rank);
        let rank = |number: u32| ranks[number as usize];
        let places = keys.zip(ends).map(|(key, ends)| Place::of(key, ends.map(rank)));
        let places = places.collect();
        (Self(order.into_iter().map(|number| met.all[number as usize]).collect()), places)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The address of this rank.
    pub(crate) fn get(&self, rank: u32) -> &[u8; 16] {
        &self.0[rank as usize]
    }
}

/// Addresses in the order in which they were met.
#[derive(Default)]
struct Met {
    all: Vec<[u8; 16]>,
    numbers: HashMap<[u8; 16], u32>,
    /// The numbers of the last source and the last destination: flows of one address often follow
    /// each other.
    last: [Option<u32>; 2],
}

impl Met {
    fn number(&mut self, end: usize, address: &[u8; 16]) -> u32 {
        if let Some(last) = self.last[end].filter(|&last| self.all[last as usize] == *address) {
            return last;
        }
        let number = *self.numbers.entry(*address).or_insert_with(|| {
            self.all.push(*address);
            self.all.len() as u32 - 1
        });
        self.last[end] = Some(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use calumma_sketch::Key;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = WideKey> {
        // Few, so that keys share addresses and ports.
        let address = (0_u128..4, prop::bool::ANY).prop_map(|(host, is_v4)| {
            Ipv6Addr::from(if is_v4 { 0xFFFF_0A00_0000 + host } else { 0xFE80 << 112 | host })
        });
        (address.clone(), address, 0_u16..3, 0_u16..3, 6_u8..8).prop_map(
            |(src, dst, sport, dport, protocol)| WideKey::v6(src, dst, sport, dport, protocol),
        )
    }

    proptest! {
        #[test]
        fn places_are_in_the_order_of_keys_and_ends_are_their_addresses(
            keys in prop::collection::vec(key(), 1..40),
        ) {
            let (addresses, places) = Addresses::of(keys.iter());
            prop_assert!(addresses.iter().is_sorted_by(|one, other| one < other));
            for (key, place) in keys.iter().zip(&places) {
                let ends = place.ends().map(|rank| IpAddr::from(*addresses.get(rank)));
                prop_assert_eq!(ends[0].to_canonical(), key.addresses().0.to_canonical());
                prop_assert_eq!(ends[1].to_canonical(), key.addresses().1.to_canonical());
                for (other, there) in keys.iter().zip(&places) {
                    prop_assert_eq!(key.cmp(other), place.cmp(there));
                }
            }
        }
    }
}
