//! Decoding: peeling pure buckets until nothing is left (Algorithm 2 of the ChameleMon paper).
//!
//! A bucket passes for pure when the key it divides into hashes back to it and carries its own
//! fingerprint. A false positive takes a wrong flow out, which later comes out again with a
//! negative count and cancels. Buckets are looked at first in, first out: a wrong flow that falls
//! into an otherwise empty bucket is put back from there at once, and goes to and fro until the
//! flows it was mistaken for come out elsewhere, to which a stack would never get. Hostile contents
//! could keep up such an exchange for ever, so the number of extractions is bounded.
//!
//! Buckets are looked at a burst at a time: all are divided, those that pass wait until they fill
//! another burst, then their keys are hashed and the cache lines of their buckets asked for, and
//! then the flows are taken out. A bucket that changes between being looked at and its turn is
//! looked at again. One sweep goes through all buckets; between its bursts, those that changed
//! behind it are looked at while they are still in the cache, but only a few bursts of them, so
//! that no exchange holds up the sweep.

use std::collections::VecDeque;

use super::bucket::Lanes;
use super::decoded::Decoded;
use super::sketch::FermatSketch;
use super::{Arithmetic, MAX_ARRAYS, indistinct};
use crate::burst::{BURST, Column, ones};
use crate::hash::HashFamily;
use crate::key::Key;
use crate::memory::prefer_huge_pages;
use crate::simd::{Isa, Work};

/// Extractions allowed for each bucket. A decodable sketch needs fewer than one.
const EXTRACTIONS_PER_BUCKET: usize = 4;

/// Bursts of changed buckets that are looked at for each burst of the sweep, if there are as many.
const CHANGED_PER_SWEPT: usize = 4;

pub(super) fn decode<K: Key>(sketch: FermatSketch<K>, family: &HashFamily) -> Decoded<K> {
    use Arithmetic::{Prime, Wrapping};
    // The usual number of arrays gets code of its own.
    match (sketch.shape().arithmetic, sketch.shape().arrays) {
        (Prime, 3) => peel::<K, true, 3>(sketch, family),
        (Wrapping, 3) => peel::<K, false, 3>(sketch, family),
        (Prime, _) => peel::<K, true, 0>(sketch, family),
        (Wrapping, _) => peel::<K, false, 0>(sketch, family),
    }
}

/// Peels in prime or wrapping arithmetic, and `ARRAYS` arrays or, where 0, as many as there are.
fn peel<K: Key, const PRIME: bool, const ARRAYS: usize>(
    sketch: FermatSketch<K>,
    family: &HashFamily,
) -> Decoded<K> {
    family.engine().run(Peel::<K, PRIME, ARRAYS>(sketch, family))
}

struct Peel<'a, K: Key, const PRIME: bool, const ARRAYS: usize>(FermatSketch<K>, &'a HashFamily);

impl<K: Key, const PRIME: bool, const ARRAYS: usize> Work for Peel<'_, K, PRIME, ARRAYS> {
    type Output = Decoded<K>;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Decoded<K> {
        Peeling::<_, K, PRIME, ARRAYS>::new(self.0, self.1, isa).run()
    }
}

/// Flows that may be alone in a bucket.
struct Candidates<K: Key> {
    len: usize,
    keys: [K; BURST],
    fingerprints: Column,
    /// The bucket of each, and what it held.
    at: Column,
    taken: [K::Bucket; BURST],
}

impl<K: Key> Candidates<K> {
    #[inline(always)]
    fn none() -> Self {
        Self {
            len: 0,
            keys: [K::default(); BURST],
            fingerprints: Column::ZERO,
            at: Column::ZERO,
            taken: [K::Bucket::default(); BURST],
        }
    }
}

struct Peeling<'a, I, K: Key, const PRIME: bool, const ARRAYS: usize> {
    sketch: FermatSketch<K>,
    family: &'a HashFamily,
    isa: I,
    /// One bit for each bucket that waits to be looked at.
    waiting: Vec<u64>,
    /// Those of them that changed since they were looked at last, the first to change in front.
    changed: VecDeque<u32>,
    flows: Vec<(K, i64)>,
    /// Extractions left.
    budget: usize,
    /// Whether a flow was taken out of an empty bucket. Each extraction empties the bucket it
    /// starts from, so nothing comes out twice before that.
    repeated: bool,
}

impl<'a, I: Isa, K: Key, const PRIME: bool, const ARRAYS: usize> Peeling<'a, I, K, PRIME, ARRAYS> {
    #[inline(always)]
    fn new(sketch: FermatSketch<K>, family: &'a HashFamily, isa: I) -> Self {
        let total = sketch.shape().total_buckets();
        let mut flows = Vec::with_capacity(total);
        prefer_huge_pages(flows.spare_capacity_mut());
        Self {
            family,
            isa,
            waiting: vec![u64::MAX; total.div_ceil(64)],
            changed: VecDeque::new(),
            flows,
            budget: EXTRACTIONS_PER_BUCKET * total,
            repeated: false,
            sketch,
        }
    }

    #[inline(always)]
    fn arithmetic(&self) -> Arithmetic {
        if PRIME { Arithmetic::Prime } else { Arithmetic::Wrapping }
    }

    #[inline(always)]
    fn arrays(&self) -> usize {
        if ARRAYS == 0 { self.sketch.shape().arrays } else { ARRAYS }
    }

    #[inline(always)]
    fn run(mut self) -> Decoded<K> {
        // Candidates that wait for a burst to be filled, and those that did not fit any more.
        let mut candidates = [Candidates::none(), Candidates::none()];
        let mut front = 0;
        let total = self.sketch.shape().total_buckets() as u32;
        let mut sweep = 0..total;
        let mut exhausted = false;
        for turn in 0.. {
            let mut burst = [0; BURST];
            let burst = if turn % (1 + CHANGED_PER_SWEPT) == 0 || self.changed.len() < BURST {
                fill(&mut burst, &mut sweep)
            } else {
                &[]
            };
            let mut changed = [0; BURST];
            let burst = if burst.is_empty() {
                let ready = self.changed.len().min(BURST);
                fill(&mut changed, self.changed.drain(..ready))
            } else {
                burst
            };
            let [first, second] = &mut candidates;
            let (full, rest) = if front == 0 { (first, second) } else { (second, first) };
            self.look(burst, full, rest);
            if full.len == 0 && burst.is_empty() {
                break;
            }
            // A burst that is not full itself will not be followed by one that is.
            if full.len == BURST || burst.len() < BURST {
                exhausted = !self.extract_candidates(full);
                full.len = 0;
                front = 1 - front;
            }
            if exhausted {
                break;
            }
        }
        let remaining = self.sketch.buckets().iter().filter(|bucket| !bucket.is_zero()).count();
        let sets = if remaining == 0 || exhausted {
            None
        } else {
            indistinct::sets::<K, PRIME>(self.isa, &self.sketch, self.family, &self.flows)
        };
        let decoded = Decoded::new(self.flows, self.repeated, remaining, exhausted);
        decoded.beside(sets.unwrap_or_default())
    }

    /// Looks at up to [`BURST`] buckets and adds to the candidates what may be alone in one.
    #[inline(always)]
    fn look(&mut self, burst: &[u32], full: &mut Candidates<K>, rest: &mut Candidates<K>) {
        let mut taken = [K::Bucket::default(); BURST];
        for (taken, &at) in taken.iter_mut().zip(burst) {
            *taken = self.sketch.buckets()[at as usize];
            self.waiting[at as usize / 64] &= !(1 << (at % 64));
        }
        let taken = &taken[..burst.len()];
        let divided = K::divide::<PRIME>(self.isa, taken);
        for found in ones(divided.plausible) {
            let to = if full.len < BURST { &mut *full } else { &mut *rest };
            to.keys[to.len] = K::key_of(&divided.keys, found);
            to.fingerprints.0[to.len] = divided.fingerprints.0[found];
            to.at.0[to.len] = burst[found];
            to.taken[to.len] = taken[found];
            to.len += 1;
        }
    }

    /// Takes the flows out that a burst of candidates holds. Gives false where more came out than
    /// may.
    #[inline(always)]
    fn extract_candidates(&mut self, candidates: &Candidates<K>) -> bool {
        let (pure, buckets) = self.verify(candidates);
        for flow in ones(pure) {
            if self.sketch.buckets()[candidates.at.0[flow] as usize] == candidates.taken[flow] {
                if self.budget == 0 {
                    return false;
                }
                self.budget -= 1;
                self.extract(candidates, &buckets, flow);
            }
        }
        true
    }

    /// Rehashing and fingerprint verification (section 3.1 and Appendix A.4): a set bit for each
    /// flow that belongs where it was found, and the bucket of every candidate in each array.
    #[inline(always)]
    fn verify(&self, candidates: &Candidates<K>) -> (u32, [Column; MAX_ARRAYS]) {
        let keys = K::first_of(self.isa, &candidates.keys, candidates.len);
        let hashes = self.family.hash_keys::<K>(self.isa, &keys);
        let shape = self.sketch.shape();
        let whole = self.sketch.whole();
        let mut buckets = [Column::ZERO; MAX_ARRAYS];
        let mut belongs = Column::ZERO;
        for array in 0..self.arrays() {
            let words = hashes.array_words(array);
            let start = (array * shape.buckets) as u32;
            let at = Column::from_fn(|flow| start + whole.bucket(words.0[flow]));
            belongs = Column::from_fn(|flow| {
                belongs.0[flow] | u32::from(at.0[flow] == candidates.at.0[flow])
            });
            buckets[array] = at;
        }
        if PRIME {
            let fingerprinted = shape.fingerprint;
            belongs = Column::from_fn(|flow| {
                let own = if fingerprinted { K::fingerprint(&hashes.of(flow)) } else { 0 };
                if own == candidates.fingerprints.0[flow] { belongs.0[flow] } else { 0 }
            });
        }
        let all = if candidates.len < BURST { (1 << candidates.len) - 1 } else { u32::MAX };
        let pure = self.isa.nonzero(&belongs) & all;
        for flow in ones(pure) {
            for at in &buckets[..self.arrays()] {
                self.isa.prefetch(self.sketch.buckets(), at.0[flow] as usize);
            }
        }
        (pure, buckets)
    }

    /// Takes a flow out of all its buckets; those that are not empty then are looked at again.
    #[inline(always)]
    fn extract(&mut self, candidates: &Candidates<K>, buckets: &[Column; MAX_ARRAYS], flow: usize) {
        let arithmetic = self.arithmetic();
        let taken = &candidates.taken[flow];
        for at in &buckets[..self.arrays()] {
            let at = at.0[flow];
            let bucket = &mut self.sketch.buckets_mut()[at as usize];
            self.repeated |= bucket.is_zero();
            *bucket = K::subtract(arithmetic, bucket, taken);
            let (waiting, bit) = (&mut self.waiting[at as usize / 64], 1 << (at % 64));
            if bucket.count() != 0 && *waiting & bit == 0 {
                *waiting |= bit;
                self.changed.push_back(at);
            }
        }
        self.flows.push((candidates.keys[flow], i64::from(taken.count())));
    }
}

/// Fills `burst` from the front, and gives what was filled.
#[inline(always)]
fn fill(burst: &mut [u32; BURST], from: impl Iterator<Item = u32>) -> &[u32] {
    let mut len = 0;
    for (to, at) in burst.iter_mut().zip(from) {
        *to = at;
        len += 1;
    }
    &burst[..len]
}
