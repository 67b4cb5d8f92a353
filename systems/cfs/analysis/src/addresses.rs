//! The addresses of a window's flows, each with its rank among all of them.
//!
//! Flows are put in order, and those of an address together, by numbers in place of 16 bytes each.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use calumma_sketch::{FlowKey, WideKey};

use crate::coverage::{dst, src};

/// Addresses in their order.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Vec<[u8; 16]>);

/// A flow's key by the ranks of its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked {
    /// The ranks of its source and its destination.
    pub(crate) ends: [u32; 2],
    /// Its ports and its protocol.
    rest: u64,
}

/// Keys in their order, equal ones in that in which they came.
///
/// Of each a number: the ranks of its source and its destination, the rest of the key, and which
/// one it was, each in as many bits as the largest needs. Keys have at most two addresses each, so
/// there is room for 2^28 of them.
#[derive(Debug)]
pub(crate) struct Order {
    places: Vec<u128>,
    /// Bits of a rank, and of which key it is.
    rank: u32,
    which: u32,
}

/// Ports and protocol.
const REST: u32 = 40;

fn rest(key: &WideKey) -> u64 {
    // What fills up the key behind these is zeros.
    key.padded()[32..].first_chunk().map_or(0, |rest| u64::from_be_bytes(*rest) >> (64 - REST))
}

/// Bits of numbers below this one.
fn bits(numbers: usize) -> u32 {
    numbers.next_power_of_two().ilog2()
}

fn low(place: u128, bits: u32) -> u128 {
    place & ((1 << bits) - 1)
}

/// Whether both have the same above so many bits.
fn same(one: u128, other: u128, bits: u32) -> bool {
    (one ^ other) >> bits == 0
}

/// Puts places in the order of their ranks, which are below `ranks`, and leaves those of one rank
/// in the order in which they are.
fn put_in_order(
    places: &[u128],
    into: &mut [u128],
    (ranks, rank_of): (usize, impl Fn(u128) -> usize),
) {
    let mut begins = vec![0_usize; ranks];
    places.iter().for_each(|place| begins[rank_of(*place)] += 1);
    let mut all = 0;
    for begin in &mut begins {
        (*begin, all) = (all, all + *begin);
    }
    for &place in places {
        let begin = &mut begins[rank_of(place)];
        into[*begin] = place;
        *begin += 1;
    }
}

impl Order {
    fn of(ranks: &[u32], keys: &[([u32; 2], u64)]) -> Self {
        let (rank, which) = (bits(ranks.len()), bits(keys.len()));
        let place = |(([src, dst], rest), at): (&([u32; 2], u64), u128)| {
            let src = u64::from(ranks[*src as usize]);
            let dst = u64::from(ranks[*dst as usize]);
            u128::from(src << rank | dst) << (REST + which) | u128::from(*rest) << which | at
        };
        let mut places: Vec<u128> = keys.iter().zip(0..).map(place).collect();
        let mut others = vec![0; places.len()];
        for below in [REST + which, REST + which + rank] {
            let rank_of = |place: u128| low(place >> below, rank) as usize;
            put_in_order(&places, &mut others, (ranks.len(), rank_of));
            std::mem::swap(&mut places, &mut others);
        }
        let of_one_pair = places.chunk_by_mut(|one, other| same(*one, *other, REST + which));
        of_one_pair.for_each(<[u128]>::sort_unstable);
        Self { places, rank, which }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Each key, and which ones it was.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (Ranked, impl Iterator<Item = usize>)> {
        let Self { ref places, rank, which } = *self;
        let of_one = places.chunk_by(move |one, other| same(*one, *other, which));
        of_one.map(move |of_one| {
            let (dst, rest) = (of_one[0] >> (which + REST), low(of_one[0] >> which, REST) as u64);
            let ends = [dst >> rank, low(dst, rank)].map(|rank| rank as u32);
            (Ranked { ends, rest }, of_one.iter().map(move |place| low(*place, which) as usize))
        })
    }
}

/// Keys that are to be put in order.
#[derive(Default)]
pub(crate) struct Keys {
    met: Met,
    /// The numbers of their addresses, and the rest of each.
    numbered: Vec<([u32; 2], u64)>,
}

impl Keys {
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Self { met: Met::default(), numbered: Vec::with_capacity(keys) }
    }

    pub(crate) fn extend<'k>(&mut self, keys: impl Iterator<Item = &'k WideKey>) {
        let Self { met, numbered } = self;
        numbered.extend(keys.map(|key| {
            let ends = [met.number(0, src(key)), met.number(1, dst(key))];
            (ends, rest(key))
        }));
    }

    /// Their addresses, and their order.
    pub(crate) fn in_order(self) -> (Addresses, Order) {
        let Self { met, numbered } = self;
        let mut order: Vec<u32> = (0..met.all.len() as u32).collect();
        order.sort_unstable_by_key(|&number| met.all[number as usize]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(&order).for_each(|(rank, &number)| ranks[number as usize] = rank);
        let all = order.into_iter().map(|number| met.all[number as usize]).collect();
        (Addresses(all), Order::of(&ranks, &numbered))
    }
}

impl Addresses {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn key(&self, of: &Ranked) -> WideKey {
        let (src, dst) = (self.ip(of.ends[0]), self.ip(of.ends[1]));
        let (sport, dport) = ((of.rest >> 24) as u16, (of.rest >> 8) as u16);
        WideKey::v6(src, dst, sport, dport, of.rest as u8)
    }

    /// The same as a key of IPv4, where it is one.
    #[inline]
    pub(crate) fn ipv4_key(&self, of: &Ranked) -> Option<FlowKey> {
        let src = self.ip(of.ends[0]).to_ipv4_mapped()?;
        let dst = self.ip(of.ends[1]).to_ipv4_mapped()?;
        let ports = (of.rest >> 8) as u32;
        Some(FlowKey::from_words(src.to_bits(), dst.to_bits(), ports, of.rest as u8))
    }

    #[inline]
    fn ip(&self, rank: u32) -> Ipv6Addr {
        (*self.get(rank)).into()
    }

    /// The address of this rank.
    #[inline]
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
        fn keys_are_put_in_order_and_ends_are_their_addresses(
            keys in prop::collection::vec(key(), 0..40),
        ) {
            let mut all = Keys::default();
            all.extend(keys.iter());
            let (addresses, order) = all.in_order();
            prop_assert!(addresses.iter().is_sorted_by(|one, other| one < other));
            let mut wanted: Vec<usize> = (0..keys.len()).collect();
            wanted.sort_by_key(|&at| keys[at]);
            let mut found = Vec::new();
            let mut last = None;
            for (ranked, of_one) in order.flows() {
                let of_one: Vec<usize> = of_one.collect();
                let key = keys[of_one[0]];
                prop_assert_eq!(addresses.key(&ranked), key);
                let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
                let of_ipv4 = FlowKey::new(src, dst, sport, dport, key.protocol());
                prop_assert_eq!(addresses.ipv4_key(&ranked), of_ipv4);
                prop_assert!(last.replace(key) < Some(key), "each once");
                prop_assert!(of_one.iter().all(|&at| keys[at] == key));
                let ends = ranked.ends.map(|rank| Ipv6Addr::from(*addresses.get(rank)));
                prop_assert_eq!(ends, [key.src(), key.dst()]);
                found.extend(of_one);
            }
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(order.len(), keys.len());
        }
    }
}
