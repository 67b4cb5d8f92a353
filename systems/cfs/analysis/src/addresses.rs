//! The addresses of a window's flows, each with its rank among all of them.
//!
//! Flows are put in order, and those of an address together, by numbers in place of 16 bytes each.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use calumma_sketch::{FlowKey, WideKey};
use foldhash::fast::RandomState;

use crate::coverage::{dst, src};

/// Addresses in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Vec<[u8; 16]>);

/// A flow's key by the ranks of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    /// The ranks of its source and its destination.
    pub(crate) ends: [u32; 2],
    /// Its ports and its protocol.
    rest: u64,
}

/// Keys in their order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) keys: Vec<Ranked>,
    /// Where of each key those end that were it.
    pub(crate) ends: Vec<u32>,
    /// Which ones each key was, in that order in which they came.
    pub(crate) which: Vec<u32>,
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
    let mut begins = vec![0_u32; ranks];
    places.iter().for_each(|place| begins[rank_of(*place)] += 1);
    begin_each(&mut begins);
    for &place in places {
        let begin = &mut begins[rank_of(place)];
        into[*begin as usize] = place;
        *begin += 1;
    }
}

/// Where each begins of which there are so many, one behind the other.
fn begin_each(numbers: &mut [u32]) {
    let mut all = 0;
    for number in numbers {
        (*number, all) = (all, all + *number);
    }
}

impl Order {
    fn of(ranks: &[u32], keys: &[([u32; 2], u64)]) -> Self {
        let pairs = ranks.len().saturating_mul(ranks.len());
        if pairs <= 2 * keys.len() && bits(keys.len()) <= u64::BITS - REST {
            Self::by_pairs(ranks, keys)
        } else {
            Self::by_ranks(ranks, keys)
        }
    }

    fn with_capacity(keys: usize) -> Self {
        let (ends, which) = (Vec::with_capacity(keys), Vec::with_capacity(keys));
        Self { keys: Vec::with_capacity(keys), ends, which }
    }

    /// Appends one that is this key, or one that comes after it.
    fn push(&mut self, key: Ranked, which: u32) {
        self.which.push(which);
        let end = self.which.len() as u32;
        match self.ends.last_mut() {
            Some(last) if self.keys.last() == Some(&key) => *last = end,
            _ => {
                self.keys.push(key);
                self.ends.push(end);
            }
        }
    }

    /// Where there are not many more pairs of addresses than keys: those of a pair are put beside
    /// each other, each as a number of 64 bits: the rest of the key, and which one it was.
    fn by_pairs(ranks: &[u32], keys: &[([u32; 2], u64)]) -> Self {
        let pair = |[src, dst]: [u32; 2]| {
            ranks[src as usize] as usize * ranks.len() + ranks[dst as usize] as usize
        };
        let mut ends = vec![0_u32; ranks.len() * ranks.len()];
        keys.iter().for_each(|(of, _)| ends[pair(*of)] += 1);
        begin_each(&mut ends);
        let mut places = vec![0; keys.len()];
        for (&(of, rest), which) in keys.iter().zip(0_u64..) {
            let end = &mut ends[pair(of)];
            places[*end as usize] = rest << (u64::BITS - REST) | which;
            *end += 1;
        }
        let (mut order, mut begin) = (Self::with_capacity(keys.len()), 0);
        for (pair, end) in ends.into_iter().enumerate() {
            let of_one = &mut places[begin..end as usize];
            begin = end as usize;
            of_one.sort_unstable();
            let ends = [pair / ranks.len(), pair % ranks.len()].map(|rank| rank as u32);
            for &place in &*of_one {
                let rest = place >> (u64::BITS - REST);
                order.push(Ranked { ends, rest }, low(place.into(), u64::BITS - REST) as u32);
            }
        }
        order
    }

    /// Of each a number: the ranks of its source and its destination, the rest of the key, and
    /// which one it was, each in as many bits as the largest needs. Keys have at most two addresses
    /// each, so there is room for 2^28 of them.
    fn by_ranks(ranks: &[u32], keys: &[([u32; 2], u64)]) -> Self {
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
        let mut order = Self::with_capacity(keys.len());
        for place in places {
            let (dst, rest) = (place >> (which + REST), low(place >> which, REST) as u64);
            let ends = [dst >> rank, low(dst, rank)].map(|rank| rank as u32);
            order.push(Ranked { ends, rest }, low(place, which) as u32);
        }
        order
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

    #[inline]
    pub(crate) fn push(&mut self, key: &WideKey) {
        let Self { met, numbered } = self;
        let ends = [met.number(0, src(key)), met.number(1, dst(key))];
        numbered.push((ends, rest(key)));
    }

    /// Their addresses, and their order.
    pub(crate) fn in_order(self) -> (Addresses, Order) {
        let (addresses, ranks) = self.met.in_order();
        (addresses, Order::of(&ranks, &self.numbered))
    }
}

impl Ranked {
    /// The number of its protocol.
    pub(crate) fn protocol(&self) -> u8 {
        self.rest as u8
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
    numbers: HashMap<u128, u32, RandomState>,
    /// The numbers of the last source and the last destination: flows of one address often follow
    /// each other.
    last: [Option<u32>; 2],
}

impl Met {
    /// The addresses in their order, and the rank of each by its number.
    fn in_order(&self) -> (Addresses, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_unstable_by_key(|&number| self.all[number as usize]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(&order).for_each(|(rank, &number)| ranks[number as usize] = rank);
        let all = order.into_iter().map(|number| self.all[number as usize]).collect();
        (Addresses(all), ranks)
    }

    fn number(&mut self, end: usize, address: &[u8; 16]) -> u32 {
        if let Some(last) = self.last[end].filter(|&last| self.all[last as usize] == *address) {
            return last;
        }
        let number = *self.numbers.entry(u128::from_ne_bytes(*address)).or_insert_with(|| {
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
            keys.iter().for_each(|key| all.push(key));
            let (addresses, order) = all.in_order();
            prop_assert!(addresses.iter().is_sorted_by(|one, other| one < other));
            let mut wanted: Vec<usize> = (0..keys.len()).collect();
            wanted.sort_by_key(|&at| keys[at]);
            let mut found = Vec::new();
            let mut last = None;
            let mut begin = 0;
            for (ranked, &end) in order.keys.iter().zip(&order.ends) {
                let of_one: Vec<usize> =
                    order.which[begin..end as usize].iter().map(|&at| at as usize).collect();
                begin = end as usize;
                let key = keys[of_one[0]];
                prop_assert_eq!(addresses.key(ranked), key);
                prop_assert_eq!(ranked.protocol(), key.protocol());
                let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
                let of_ipv4 = FlowKey::new(src, dst, sport, dport, key.protocol());
                prop_assert_eq!(addresses.ipv4_key(ranked), of_ipv4);
                prop_assert!(last.replace(key) < Some(key), "each once");
                prop_assert!(of_one.iter().all(|&at| keys[at] == key));
                let ends = ranked.ends.map(|rank| Ipv6Addr::from(*addresses.get(rank)));
                prop_assert_eq!(ends, [key.src(), key.dst()]);
                found.extend(of_one);
            }
            prop_assert_eq!(found, wanted);
            let mut all = Keys::default();
            keys.iter().for_each(|key| all.push(key));
            let (_, ranks) = all.met.in_order();
            let both = [Order::by_pairs, Order::by_ranks].map(|by| by(&ranks, &all.numbered));
            prop_assert_eq!(&both, &[order, both[0].clone()]);
        }
    }
}
