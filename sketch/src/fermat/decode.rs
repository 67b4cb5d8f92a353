//! Decoding: peeling pure buckets until nothing is left (Algorithm 2 of the ChameleMon paper).
//!
//! A bucket passes for pure when the key it divides into hashes back to it and carries its own
//! fingerprint. A false positive takes a wrong flow out, which later comes out again with a negative
//! count and cancels. Buckets are looked at first in, first out: a wrong flow that falls into an
//! otherwise empty bucket is put back from there at once, and goes to and fro until the flows it
//! was mistaken for come out elsewhere, to which a stack would never get. Hostile contents could
//! keep up such an exchange for ever, so the number of extractions is bounded.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::sketch::FermatSketch;
use crate::hash::{HashFamily, Hashes};
use crate::key::FlowKey;

/// What came out of a sketch.
///
/// Only a complete decode accounts for every packet. From a partial one, the flows are those that
/// could be peeled: each passed verification, but their counts may lack packets that remain in
/// impure buckets, or count some twice.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Decoded {
    flowset: HashMap<FlowKey, i64>,
    remaining_buckets: usize,
    exhausted: bool,
}

impl Decoded {
    /// Whether the flowset accounts for all that the sketch recorded: every bucket came out empty,
    /// in fragments as well as counts.
    pub fn is_complete(&self) -> bool {
        self.remaining_buckets == 0 && !self.exhausted
    }

    /// Buckets, over all arrays, that could not be emptied.
    pub fn remaining_buckets(&self) -> usize {
        self.remaining_buckets
    }

    /// The flows and their packets. A negative number means that more packets of the flow were
    /// subtracted than added.
    pub fn flowset(&self) -> &HashMap<FlowKey, i64> {
        &self.flowset
    }

    /// The flows and their packets, for keeps.
    pub fn into_flowset(self) -> HashMap<FlowKey, i64> {
        self.flowset
    }

    /// Packets of one flow; `None` where it was not decoded.
    pub fn packets_of(&self, key: &FlowKey) -> Option<i64> {
        self.flowset.get(key).copied()
    }
}

/// Extractions allowed for each bucket. A decodable sketch needs fewer than one.
const EXTRACTIONS_PER_BUCKET: usize = 4;

pub(super) fn decode(mut sketch: FermatSketch, family: &HashFamily) -> Decoded {
    let shape = sketch.shape();
    let mut decoded = Decoded::default();
    let mut budget = EXTRACTIONS_PER_BUCKET * shape.total_buckets();
    let mut queue: VecDeque<usize> = (0..shape.total_buckets()).collect();
    queue.retain(|&at| sketch.buckets()[at].count() != 0);
    while let Some(at) = queue.pop_front() {
        let Some(pure) = verify(&sketch, family, at) else { continue };
        if budget == 0 {
            decoded.exhausted = true;
            break;
        }
        budget -= 1;
        extract(&mut sketch, at, &pure, &mut queue);
        let packets = i64::from(pure.packets);
        match decoded.flowset.entry(pure.key) {
            Entry::Vacant(entry) => {
                entry.insert(packets);
            }
            Entry::Occupied(mut entry) => {
                *entry.get_mut() += packets;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
    decoded.remaining_buckets = sketch.buckets().iter().filter(|bucket| !bucket.is_zero()).count();
    decoded
}

/// A flow found alone in a bucket.
struct Pure {
    key: FlowKey,
    packets: i32,
    hashes: Hashes,
}

/// Rehashing and fingerprint verification (section 3.1 and Appendix A.4).
#[inline]
fn verify(sketch: &FermatSketch, family: &HashFamily, at: usize) -> Option<Pure> {
    let bucket = &sketch.buckets()[at];
    let (key, fingerprint) = sketch.shape().arithmetic.divide(bucket)?;
    let hashes = family.hash(&key);
    let belongs = sketch.at(at / sketch.shape().buckets, &sketch.whole(), &hashes) == at
        && sketch.fingerprint(&hashes) == fingerprint;
    belongs.then_some(Pure { key, packets: bucket.count(), hashes })
}

/// Takes a flow out of all its buckets and queues those that are not empty then.
#[inline]
fn extract(sketch: &mut FermatSketch, at: usize, pure: &Pure, queue: &mut VecDeque<usize>) {
    let arithmetic = sketch.shape().arithmetic;
    let taken = sketch.buckets()[at];
    for array in 0..sketch.shape().arrays {
        let other = sketch.at(array, &sketch.whole(), &pure.hashes);
        let bucket = &mut sketch.buckets_mut()[other];
        *bucket = arithmetic.subtract(bucket, &taken);
        if bucket.count() != 0 {
            queue.push_back(other);
        }
    }
}
