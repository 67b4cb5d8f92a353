//! Flows that share a bucket in every array: nothing tells them apart.
//!
//! Peeling never gets at them. What it leaves then is one bucket in each array, all with the same
//! contents. The other flows are exact nevertheless: whatever is wrong about them must add up to
//! zero in all buckets but these. So flows that are wrong lie in these buckets in every array (and
//! no flow that was peeled does, which is looked at), or make up for each other in at least one
//! array, which takes three of them that share a bucket and whose keys are in the right proportion:
//! what a complete decode rests on as well.
//!
//! Where in doubt there is no set, and the decode is partial. Several sets of the same contents can
//! not be told apart. Contents that divide into a key may be those of one flow that was not
//! recorded by these hash functions, say at a switch with another secret; one in sixteen true sets
//! looks so, of wide keys one in a thousand.

use super::bucket::Lanes;
use super::sketch::FermatSketch;
use crate::burst::BURST;
use crate::hash::HashFamily;
use crate::key::Key;
use crate::simd::Isa;

/// Two flows or more that share a bucket in every array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indistinct {
    /// Packets of all of them together; of a difference of sketches the net of what was added and
    /// subtracted, which may be negative or zero.
    pub packets: i64,
}

/// Sets looked for at most.
const MOST: usize = 64;

/// The sets that all buckets left are of, where peeling has given `flows`; `None` where there is
/// more to them, or no bucket left.
#[cold]
pub(super) fn sets<K: Key, const PRIME: bool>(
    isa: impl Isa,
    sketch: &FermatSketch<K>,
    family: &HashFamily,
    flows: &[(K, i64)],
) -> Option<Vec<Indistinct>> {
    let contents = contents(sketch)?;
    let plausible = contents.chunks(BURST).any(|contents| {
        let divided = K::divide::<PRIME>(isa, contents);
        (0..contents.len()).any(|at| divided.plausible >> at & 1 == 1)
    });
    let (arrays, whole) = (sketch.shape().arrays, sketch.whole());
    let within = |(key, _): &(K, i64)| {
        let hashes = family.hash_with(isa, key);
        (0..arrays).all(|array| !sketch.buckets()[sketch.at(array, &whole, &hashes)].is_zero())
    };
    if plausible || flows.iter().any(within) {
        return None;
    }
    Some(contents.iter().map(|bucket| Indistinct { packets: bucket.count().into() }).collect())
}

/// What the buckets left hold, where it is the same in each array and nothing is there twice.
fn contents<K: Key>(sketch: &FermatSketch<K>) -> Option<Vec<K::Bucket>> {
    let mut arrays = sketch.buckets().chunks(sketch.shape().buckets).map(|array| {
        let left = array.iter().filter(|bucket| !bucket.is_zero());
        left.copied().take(MOST + 1).collect::<Vec<_>>()
    });
    let first = arrays.next()?;
    let once = |of: &K::Bucket| first.iter().filter(|other| *other == of).count() == 1;
    let known = !first.is_empty() && first.len() <= MOST && first.iter().all(once);
    // As many buckets as contents, each of which is found.
    let same = |other: Vec<K::Bucket>| {
        other.len() == first.len() && first.iter().all(|bucket| other.contains(bucket))
    };
    (known && arrays.all(same)).then_some(first)
}
