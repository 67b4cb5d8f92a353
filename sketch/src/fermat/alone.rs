//! The flow in one bucket, for decoders that go from bucket to bucket as they like.

use super::Arithmetic;
use super::bucket::Lanes;
use super::sketch::FermatSketch;
use crate::hash::{HashFamily, Hashes};
use crate::key::Key;
use crate::simd::{Isa, Work};

impl<K: Key> FermatSketch<K> {
    /// The flow that bucket `at`, counted over all arrays, seems to hold alone, its hashes and its
    /// packets: its key belongs there and carries its own fingerprint. The sketch is undivided.
    pub fn alone(&self, family: &HashFamily, at: usize) -> Option<(K, Hashes, i32)> {
        let bucket = self.buckets().get(at).filter(|bucket| bucket.count() != 0)?;
        let (key, carried) = family.engine().run(Divide::<K>(self, *bucket))?;
        let hashes = family.hash(&key);
        let array = at / self.shape().buckets;
        let belongs = self.at(array, &self.whole(), &hashes) == at;
        let is_it = belongs && self.fingerprint(&hashes) == carried;
        is_it.then(|| (key, hashes, bucket.count()))
    }
}

/// The key and fingerprint of an average packet of a bucket.
struct Divide<'a, K: Key>(&'a FermatSketch<K>, K::Bucket);

impl<K: Key> Work for Divide<'_, K> {
    type Output = Option<(K, u32)>;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Option<(K, u32)> {
        let buckets = &[self.1];
        let divided = match self.0.shape().arithmetic {
            Arithmetic::Prime => K::divide::<true>(isa, buckets),
            Arithmetic::Wrapping => K::divide::<false>(isa, buckets),
        };
        let is_plausible = divided.plausible & 1 == 1;
        is_plausible.then(|| (K::key_of(&divided.keys, 0), divided.fingerprints.0[0]))
    }
}
