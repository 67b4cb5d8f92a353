//! Tower + Fermat as the ChameleMon paper evaluates it (appendix C): an 8-bit and a 16-bit array of
//! counters, and a FermatSketch for the packets of flows that both say have 250 already. For keys
//! of four bytes, a 32-bit identifier and a 32-bit count a bucket. [`Fermat`] stands alone as well.

use std::collections::{HashMap, VecDeque};

use calumma_sketch::FlowKey;

use crate::hash::Hash;
use crate::sizes::{Counters, linear_counting, sizes_behind};
use crate::{Cardinality, Insert, Query, Sizes, Tracked, WORD};

/// The largest prime below 2^32, modulo which identifiers are summed.
const P: u64 = 0xFFFF_FFFB;

/// Arrays of buckets.
const ARRAYS: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// Sum of the identifiers of all packets, modulo the prime.
    identifiers: u64,
    packets: u32,
}

/// A FermatSketch of source addresses. Other fields of a key must be zero.
#[derive(Clone, Debug)]
pub struct Fermat {
    hash: Hash,
    width: usize,
    buckets: Vec<Bucket>,
}

impl Fermat {
    /// Bytes of a bucket on a switch.
    pub const BUCKET: usize = 2 * WORD;

    /// An empty sketch of at most `buckets` buckets in all.
    pub fn new(buckets: usize, seed: u64) -> Self {
        let width = (buckets / ARRAYS).max(1);
        Self { hash: Hash::new(seed), width, buckets: vec![Bucket::default(); width * ARRAYS] }
    }

    /// Memory that the sketch fills on a switch, in bytes.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * Self::BUCKET
    }

    /// Buckets in all arrays.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Counts one packet of `key`.
    #[inline]
    pub fn insert(&mut self, key: &FlowKey) {
        for at in self.places(key) {
            let bucket = &mut self.buckets[at];
            bucket.identifiers = (bucket.identifiers + u64::from(key.src_word())) % P;
            bucket.packets = bucket.packets.wrapping_add(1);
        }
    }

    /// The flows and their packets, and whether these are all that was recorded.
    pub fn decode(mut self) -> (HashMap<FlowKey, i64>, bool) {
        let mut flows: HashMap<FlowKey, i64> = HashMap::new();
        // In the order in which they changed: a bucket that passes for pure by chance is put right
        // when its flows are found elsewhere, if these are not taken back before. The bound is for
        // what never ends.
        let mut open: VecDeque<usize> = (0..self.buckets.len()).collect();
        let mut left = 16 * self.buckets.len();
        while let Some(at) = open.pop_front() {
            if left == 0 {
                break;
            }
            let Bucket { identifiers, packets } = self.buckets[at];
            let Some(key) = key_of(identifiers, packets) else { continue };
            let places = self.places(&key);
            if !places.contains(&at) {
                continue;
            }
            left -= 1;
            // Where more was taken out than was in, the count is below zero.
            *flows.entry(key).or_default() += i64::from(packets as i32);
            for place in places {
                let bucket = &mut self.buckets[place];
                bucket.identifiers = (bucket.identifiers + P - identifiers) % P;
                bucket.packets = bucket.packets.wrapping_sub(packets);
                open.push_back(place);
            }
        }
        flows.retain(|_, packets| *packets != 0);
        (flows, self.buckets.iter().all(|bucket| *bucket == Bucket::default()))
    }

    #[inline]
    fn places(&self, key: &FlowKey) -> [usize; ARRAYS] {
        let hashed = self.hash.of(key);
        std::array::from_fn(|array| array * self.width + hashed.index(array as u64, self.width))
    }
}

/// The key of a bucket that holds one flow: by Fermat's little theorem, its identifiers times the
/// inverse of its packets. `None` for no packets.
fn key_of(identifiers: u64, packets: u32) -> Option<FlowKey> {
    let packets = i64::from(packets as i32).rem_euclid(P as i64) as u64;
    let key = identifiers * power(packets, P - 2) % P;
    (packets != 0).then(|| FlowKey::from_words(key as u32, 0, 0, 0))
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % P;
        }
        base = base * base % P;
        exponent >>= 1;
    }
    result
}

/// Buckets of the encoder.
const BUCKETS: usize = 2500;

/// Packets of a flow that the encoder does not see.
const T_H: u32 = 250;

/// The published combination. Decoded once, when made into [`DecodedTower`].
#[derive(Clone, Debug)]
pub struct TowerFermat {
    hash: Hash,
    narrow: Vec<u8>,
    wide: Vec<u16>,
    fermat: Fermat,
}

impl TowerFermat {
    /// An empty sketch that fills at most `bytes`, with keys of four bytes.
    pub fn new(bytes: usize, seed: u64) -> Self {
        let fermat = Fermat::new(BUCKETS, !seed);
        let array = bytes.saturating_sub(fermat.bytes()).max(4) / 2;
        Self { hash: Hash::new(seed), narrow: vec![0; array], wide: vec![0; array / 2], fermat }
    }

    #[inline]
    fn places(&self, key: &FlowKey) -> (usize, usize) {
        let hashed = self.hash.of(key);
        (hashed.index(0, self.narrow.len()), hashed.index(1, self.wide.len()))
    }

    /// What can be asked, after the encoder is decoded.
    pub fn decode(self) -> DecodedTower {
        let (heavy, complete) = self.fermat.clone().decode();
        DecodedTower { heavy, complete, tower: self }
    }
}

impl Insert for TowerFermat {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let (narrow, wide) = self.places(key);
        let (narrow, wide) = (&mut self.narrow[narrow], &mut self.wide[wide]);
        let seen = u32::from(*narrow).min(u32::from(*wide));
        *narrow = narrow.saturating_add(1);
        *wide = wide.saturating_add(1);
        if seen >= T_H {
            self.fermat.insert(key);
        }
    }

    fn bytes(&self) -> usize {
        self.narrow.len() + 2 * self.wide.len() + self.fermat.bytes()
    }
}

/// A [`TowerFermat`] whose encoder is decoded.
#[derive(Clone, Debug)]
pub struct DecodedTower {
    tower: TowerFermat,
    heavy: HashMap<FlowKey, i64>,
    complete: bool,
}

impl DecodedTower {
    /// Whether all flows of the encoder are known.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

impl Query for DecodedTower {
    fn query(&self, key: &FlowKey) -> u32 {
        if let Some(&packets) = self.heavy.get(key) {
            return T_H + packets.max(0) as u32;
        }
        let (narrow, wide) = self.tower.places(key);
        match (self.tower.narrow[narrow], u32::from(self.tower.wide[wide])) {
            (u8::MAX, wide) => wide,
            (narrow, wide) => wide.min(narrow.into()),
        }
    }
}

impl Tracked for DecodedTower {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.heavy.keys().map(|key| (*key, self.query(key))).collect()
    }
}

impl Cardinality for DecodedTower {
    fn cardinality(&self) -> f64 {
        let empty = self.tower.wide.iter().filter(|&&counter| counter == 0).count();
        linear_counting(empty as f64, self.tower.wide.len())
    }
}

impl Sizes for DecodedTower {
    /// From the wide counters; flows beyond their range are those of the encoder.
    fn sizes(&self) -> Vec<(u64, f64)> {
        let values: Vec<u32> = self.tower.wide.iter().map(|&counter| counter.into()).collect();
        let mut sizes = sizes_behind(&[Counters { leaves: 1, values }], self.tower.wide.len());
        let largest = u64::from(u16::MAX);
        let beyond: Vec<u64> = self.tracked().iter().map(|flow| flow.1.into()).collect();
        let beyond = beyond.into_iter().filter(|&size| size > largest);
        let count = beyond.clone().count() as f64;
        sizes.retain_mut(|(size, flows)| {
            *flows -= if *size == largest { count } else { 0.0 };
            *flows > 0.0
        });
        sizes.extend(beyond.map(|size| (size, 1.0)));
        sizes.sort_unstable_by_key(|flows| flows.0);
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fermat_decodes_addresses_exactly() {
        let mut sketch = Fermat::new(2500, 3);
        let key = |flow: u32| FlowKey::from_words(flow.wrapping_mul(0x9E37_79B1), 0, 0, 0);
        for flow in 1..1_700_u32 {
            (0..flow % 40 + 1).for_each(|_| sketch.insert(&key(flow)));
        }
        let (flows, complete) = sketch.decode();
        assert!(complete);
        assert_eq!(flows.len(), 1_699);
        assert!((1..1_700).all(|flow| flows[&key(flow)] == i64::from(flow % 40 + 1)));
    }

    #[test]
    fn fermat_reports_that_it_holds_too_many_flows() {
        let mut sketch = Fermat::new(300, 3);
        (1..600).for_each(|flow| sketch.insert(&FlowKey::from_words(flow, 0, 0, 0)));
        assert!(!sketch.decode().1);
    }
}
