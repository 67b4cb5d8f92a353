//! Decoding with hints: flows that are probably in a sketch, since another epoch or another switch
//! saw them.
//!
//! Plain decoding stops where no bucket holds a single flow. If the flows that hash into a bucket
//! are known but for their packets, these are the solution of linear equations ([`linear`]), and
//! one equation at least is over to check it with. A hinted flow that is not there comes out with
//! no packets, so stale hints do little harm; a flow that no hint names leaves its buckets unsolved
//! until it has been peeled. Both ways of decoding take turns until neither gets further.
//!
//! What hints say is never believed: a solution must fit the bucket, and the sketch must come out
//! empty in the end.

use std::collections::VecDeque;

use super::bucket::Lanes;
use super::decoded::Decoded;
use super::linear;
use super::sketch::FermatSketch;
use super::{Arithmetic, MAX_ARRAYS};
use crate::hash::HashFamily;
use crate::key::Key;

/// Turns of peeling and solving: endless sketches just below their limit take ever more.
const TURNS: usize = 200;

impl<K: Key> FermatSketch<K> {
    /// Decodes with the help of `hints`, in any order, some of them possibly wrong or twice: the
    /// flowsets of the last epoch, the heavy hitters of another edge, keys that a switch has seen.
    ///
    /// Where plain [`decode`](Self::decode) completes, that is what comes out; hints cost nothing
    /// then. Otherwise peeling goes on by hints, and more flows come out of the same buckets. With
    /// n flows in 3 x 4096 buckets, sketches decode up to about these loads n / 3m:
    ///
    /// | flows that are hinted | hints that are stale | load |
    /// |---|---|---|
    /// | none | | 0.80 |
    /// | half | none | 1.0 |
    /// | 80 % | 20 % | 1.6 |
    /// | 90 % | 30 % | 1.9 (2.5 in wrapping arithmetic) |
    /// | all | none | 2.7 (3.9 in wrapping arithmetic) |
    ///
    /// A sketch that does not come out empty gives what plain decoding gives, unless it sums
    /// fingerprints: without them, neighbouring keys could be mistaken for a sum of hinted ones.
    ///
    /// 200 to 350 ns a flow.
    pub fn decode_with_hints(self, family: &HashFamily, hints: &[K]) -> Decoded<K> {
        let plain = self.clone().decode(family);
        if plain.is_complete() || hints.is_empty() {
            return plain;
        }
        let certain = self.shape().fingerprint && self.shape().arithmetic.carries_fingerprint();
        let decoded = Solving::new(self, family, hints).run(&plain);
        if decoded.is_complete() || certain { decoded } else { plain }
    }
}

/// A flow that may be in the sketch.
struct Hint<K: Key> {
    key: K,
    /// What one packet adds.
    unit: K::Bucket,
    /// Its bucket in each array.
    at: [u32; MAX_ARRAYS],
}

struct Solving<'a, K: Key> {
    sketch: FermatSketch<K>,
    family: &'a HashFamily,
    hints: Vec<Hint<K>>,
    /// Where the hints of each bucket begin in `in_bucket`.
    starts: Vec<u32>,
    /// Numbers of hints, bucket after bucket.
    in_bucket: Vec<u32>,
    /// Hints of each bucket whose packets have not been found, be it none.
    open: Vec<u32>,
    /// Buckets that changed, or whose open hints did, since they were looked at.
    waiting: VecDeque<u32>,
    is_waiting: Vec<bool>,
    flows: Vec<(K, i64)>,
}

impl<'a, K: Key> Solving<'a, K> {
    fn new(sketch: FermatSketch<K>, family: &'a HashFamily, hints: &[K]) -> Self {
        let total = sketch.shape().total_buckets();
        let arrays = sketch.shape().arrays;
        let hints: Vec<Hint<K>> = hints.iter().map(|key| Hint::new(&sketch, family, key)).collect();
        let mut starts = vec![0; total + 1];
        for at in hints.iter().flat_map(|hint| &hint.at[..arrays]) {
            starts[*at as usize + 1] += 1;
        }
        for at in 0..total {
            starts[at + 1] += starts[at];
        }
        Self {
            in_bucket: vec![0; arrays * hints.len()],
            open: vec![0; total],
            waiting: (0..total as u32).collect(),
            is_waiting: vec![true; total],
            flows: Vec::new(),
            sketch,
            family,
            hints,
            starts,
        }
    }

    fn run(mut self, plain: &Decoded<K>) -> Decoded<K> {
        self.list_hints();
        self.take_out(plain.flows());
        for _ in 0..TURNS {
            let before = self.flows.len();
            while let Some(at) = self.waiting.pop_front() {
                self.is_waiting[at as usize] = false;
                self.solve(at as usize);
            }
            if self.flows.len() == before {
                break;
            }
            let peeled = self.sketch.clone().decode(self.family);
            self.take_out(peeled.flows());
        }
        let remaining = self.sketch.buckets().iter().filter(|bucket| !bucket.is_zero()).count();
        Decoded::new(self.flows, true, remaining, false)
    }

    /// Lists the hints of every bucket, those that are there twice once.
    fn list_hints(&mut self) {
        let arrays = self.arrays();
        for number in 0..self.hints.len() {
            let Hint { key, at, .. } = self.hints[number];
            if self.open_hints(at[0] as usize).any(|other| self.hints[other].key == key) {
                continue;
            }
            for at in &at[..arrays] {
                let at = *at as usize;
                self.in_bucket[(self.starts[at] + self.open[at]) as usize] = number as u32;
                self.open[at] += 1;
            }
        }
    }

    fn arrays(&self) -> usize {
        self.sketch.shape().arrays
    }

    fn arithmetic(&self) -> Arithmetic {
        self.sketch.shape().arithmetic
    }

    /// The open hints of a bucket: the first in its list.
    fn open_hints(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let start = self.starts[at] as usize;
        self.in_bucket[start..start + self.open[at] as usize].iter().map(|&hint| hint as usize)
    }

    /// Takes flows out that were peeled, and settles those among them that are hinted.
    fn take_out(&mut self, flows: &[(K, i64)]) {
        for &(key, packets) in flows {
            let flow = Hint::new(&self.sketch, self.family, &key);
            let mut rest = packets;
            while rest != 0 {
                let some = rest.clamp(-i64::from(i32::MAX), i64::from(i32::MAX));
                self.subtract(&flow.unit, flow.at, some as i32);
                rest -= some;
            }
            self.flows.push((key, packets));
            let hint =
                self.open_hints(flow.at[0] as usize).find(|&hint| self.hints[hint].key == key);
            if let Some(hint) = hint {
                self.settle(hint);
            }
        }
    }

    /// Finds the packets of the open hints of a bucket, if these and no other flows are in it.
    fn solve(&mut self, at: usize) {
        let open = self.open[at] as usize;
        let bucket = self.sketch.buckets()[at];
        if bucket.is_zero() {
            // None of them is there.
            for hint in self.open_hints(at).collect::<Vec<_>>() {
                self.settle(hint);
            }
            return;
        }
        if open == 0 || open >= K::words(self.arithmetic()) {
            return;
        }
        let mut hints = [0; linear::MOST_FLOWS];
        let mut units = [K::Bucket::default(); linear::MOST_FLOWS];
        for ((number, unit), hint) in hints.iter_mut().zip(&mut units).zip(self.open_hints(at)) {
            (*number, *unit) = (hint, self.hints[hint].unit);
        }
        let Some(packets) = K::solve(self.arithmetic(), &bucket, &units[..open]) else {
            return;
        };
        for (&hint, packets) in hints[..open].iter().zip(packets) {
            if packets != 0 {
                let Hint { key, unit, at, .. } = self.hints[hint];
                self.subtract(&unit, at, packets);
                self.flows.push((key, packets.into()));
            }
            self.settle(hint);
        }
    }

    fn subtract(&mut self, unit: &K::Bucket, at: [u32; MAX_ARRAYS], packets: i32) {
        let arithmetic = self.arithmetic();
        let taken = K::multiply(arithmetic, unit, packets);
        for &at in &at[..self.arrays()] {
            let bucket = &mut self.sketch.buckets_mut()[at as usize];
            *bucket = K::subtract(arithmetic, bucket, &taken);
            self.look_again(at);
        }
    }

    /// Strikes a hint off the lists of its buckets.
    fn settle(&mut self, hint: usize) {
        let at = self.hints[hint].at;
        for &at in &at[..self.arrays()] {
            let start = self.starts[at as usize] as usize;
            let open = &mut self.open[at as usize];
            let list = &mut self.in_bucket[start..start + *open as usize];
            if let Some(place) = list.iter().position(|&listed| listed as usize == hint) {
                list.swap(place, *open as usize - 1);
                *open -= 1;
            }
            self.look_again(at);
        }
    }

    fn look_again(&mut self, at: u32) {
        if !std::mem::replace(&mut self.is_waiting[at as usize], true) {
            self.waiting.push_back(at);
        }
    }
}

impl<K: Key> Hint<K> {
    fn new(sketch: &FermatSketch<K>, family: &HashFamily, key: &K) -> Self {
        let hashes = family.hash(key);
        let fingerprint = sketch.fingerprint(&hashes);
        let mut at = [0; MAX_ARRAYS];
        for (array, at) in at[..sketch.shape().arrays].iter_mut().enumerate() {
            *at = sketch.at(array, &sketch.whole(), &hashes) as u32;
        }
        let unit = key.unit(sketch.shape().arithmetic, fingerprint);
        Self { key: *key, unit, at }
    }
}
