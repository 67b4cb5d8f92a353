//! Decoding: peeling pure buckets until nothing is left (Algorithm 2 of the ChameleMon paper).
//!
//! A bucket passes for pure when the key it divides into hashes back to it and carries its own
//! fingerprint. A false positive takes a wrong flow out, which later comes out again with a negative
//! count and cancels. Buckets are looked at first in, first out: a wrong flow that falls into an
//! otherwise empty bucket is put back from there at once, and goes to and fro until the flows it
//! was mistaken for come out elsewhere, to which a stack would never get. Hostile contents could
//! keep up such an exchange for ever, so the number of extractions is bounded.
//!
//! Buckets are looked at in rounds, and within a round in batches: all of a batch are divided, then
//! all keys are hashed and the cache lines of their buckets asked for, then the flows are taken
//! out. A bucket that changes between being looked at and its turn is left to the next round.

use super::bucket::Bucket;
use super::decoded::Decoded;
use super::sketch::FermatSketch;
use super::{Arithmetic, MAX_ARRAYS};
use crate::hash::HashFamily;
use crate::key::FlowKey;
use crate::layout::Part;
use crate::simd::{Isa, Work};

/// Extractions allowed for each bucket. A decodable sketch needs fewer than one.
const EXTRACTIONS_PER_BUCKET: usize = 4;

/// Buckets looked at together.
const BATCH: usize = 16;

/// How many buckets ahead cache lines are asked for.
const AHEAD: usize = 2 * BATCH;

pub(super) fn decode(sketch: FermatSketch, family: &HashFamily) -> Decoded {
    use Arithmetic::{Prime, Wrapping};
    // The usual number of arrays gets code of its own.
    match (sketch.shape().arithmetic, sketch.shape().arrays) {
        (Prime, 3) => peel::<true, 3>(sketch, family),
        (Wrapping, 3) => peel::<false, 3>(sketch, family),
        (Prime, _) => peel::<true, 0>(sketch, family),
        (Wrapping, _) => peel::<false, 0>(sketch, family),
    }
}

/// Peels in prime or wrapping arithmetic, and `ARRAYS` arrays or, where 0, as many as there are.
fn peel<const PRIME: bool, const ARRAYS: usize>(
    sketch: FermatSketch,
    family: &HashFamily,
) -> Decoded {
    family.engine().run(Peel::<PRIME, ARRAYS>(sketch, family))
}

struct Peel<'a, const PRIME: bool, const ARRAYS: usize>(FermatSketch, &'a HashFamily);

impl<const PRIME: bool, const ARRAYS: usize> Work for Peel<'_, PRIME, ARRAYS> {
    type Output = Decoded;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Decoded {
        Peeling::<_, PRIME, ARRAYS>::new(self.0, self.1, isa).run()
    }
}

/// A flow found alone in a bucket.
#[derive(Clone, Copy, Default)]
struct Pure {
    key: FlowKey,
    fingerprint: u32,
    /// The bucket, and what it held.
    at: usize,
    taken: Bucket,
    /// Its bucket in each array.
    buckets: [usize; MAX_ARRAYS],
}

struct Peeling<'a, I, const PRIME: bool, const ARRAYS: usize> {
    sketch: FermatSketch,
    whole: Part,
    family: &'a HashFamily,
    isa: I,
    /// One bit for each bucket that waits to be looked at.
    waiting: Vec<u64>,
    /// Those of them that changed since they were looked at last.
    next: Vec<u32>,
    flows: Vec<(FlowKey, i64)>,
    /// Extractions left.
    budget: usize,
    /// Whether a flow was taken out of an empty bucket. Each extraction empties the bucket it
    /// starts from, so nothing comes out twice before that.
    repeated: bool,
}

impl<'a, I: Isa, const PRIME: bool, const ARRAYS: usize> Peeling<'a, I, PRIME, ARRAYS> {
    #[inline(always)]
    fn new(sketch: FermatSketch, family: &'a HashFamily, isa: I) -> Self {
        let total = sketch.shape().total_buckets();
        Self {
            whole: sketch.whole(),
            family,
            isa,
            waiting: vec![u64::MAX; total.div_ceil(64)],
            next: Vec::with_capacity(total),
            flows: Vec::with_capacity(total),
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
    fn run(mut self) -> Decoded {
        let total = self.sketch.shape().total_buckets();
        let mut exhausted = false;
        // The first round goes through all buckets, in order.
        for start in (0..total).step_by(BATCH) {
            exhausted |= !self.look(start..total.min(start + BATCH));
        }
        let mut round = Vec::with_capacity(self.next.len());
        while !self.next.is_empty() && !exhausted {
            round.clear();
            std::mem::swap(&mut round, &mut self.next);
            for start in (0..round.len()).step_by(BATCH) {
                let batch = &round[start..round.len().min(start + BATCH)];
                for &at in round.iter().skip(start + AHEAD).take(BATCH) {
                    self.isa.prefetch(self.sketch.buckets(), at as usize);
                }
                exhausted |= !self.look(batch.iter().map(|&at| at as usize));
            }
        }
        let remaining = self.sketch.buckets().iter().filter(|bucket| !bucket.is_zero()).count();
        Decoded::new(self.flows, self.repeated, remaining, exhausted)
    }

    /// Looks at up to [`BATCH`] buckets and takes out the flows that are alone in one. Gives false
    /// where more came out than may.
    #[inline(always)]
    fn look(&mut self, batch: impl Iterator<Item = usize>) -> bool {
        let mut pure = [Pure::default(); BATCH];
        let mut found = 0;
        let arithmetic = self.arithmetic();
        for at in batch {
            self.waiting[at / 64] &= !(1 << (at % 64));
            let taken = self.sketch.buckets()[at];
            if let Some((key, fingerprint)) = arithmetic.divide(&taken) {
                pure[found] = Pure { key, fingerprint, at, taken, buckets: [0; MAX_ARRAYS] };
                found += 1;
            }
        }
        let mut verified = 0;
        for candidate in 0..found {
            let mut flow = pure[candidate];
            let belongs = self.verify(&mut flow);
            pure[verified] = flow;
            verified += usize::from(belongs);
        }
        for flow in &pure[..verified] {
            if self.sketch.buckets()[flow.at] == flow.taken {
                if self.budget == 0 {
                    return false;
                }
                self.budget -= 1;
                self.extract(flow);
            }
        }
        true
    }

    /// Rehashing and fingerprint verification (section 3.1 and Appendix A.4).
    #[inline(always)]
    fn verify(&self, flow: &mut Pure) -> bool {
        let hashes = self.family.hash_with(self.isa, &flow.key);
        let mut belongs = false;
        for array in 0..self.arrays() {
            let at = self.sketch.at(array, &self.whole, &hashes);
            self.isa.prefetch(self.sketch.buckets(), at);
            flow.buckets[array] = at;
            belongs |= at == flow.at;
        }
        belongs & (self.sketch.fingerprint(&hashes) == flow.fingerprint)
    }

    /// Takes a flow out of all its buckets; those that are not empty then are looked at again.
    #[inline(always)]
    fn extract(&mut self, flow: &Pure) {
        let arithmetic = self.arithmetic();
        for &at in &flow.buckets[..self.arrays()] {
            let bucket = &mut self.sketch.buckets_mut()[at];
            self.repeated |= bucket.is_zero();
            *bucket = arithmetic.subtract(bucket, &flow.taken);
            let (waiting, bit) = (&mut self.waiting[at / 64], 1 << (at % 64));
            if bucket.count() != 0 && *waiting & bit == 0 {
                *waiting |= bit;
                self.next.push(at as u32);
            }
        }
        self.flows.push((flow.key, i64::from(flow.taken.count())));
    }
}
