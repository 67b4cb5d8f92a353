//! What a table of exact counts could not take: flows by the million in memory for few of them, to
//! be decoded by who knows what the tables of a network hold.
//!
//! A table that is full refuses flows and evicts others. Their packets go to a *residual* beside it
//! (section III-G of the paper on cooperative flow selection, CFS), a sketch of far more flows than
//! it could be decoded for by itself. But other switches have most of them in their tables. With
//! these taken out, what no table holds is left, and decodes: [`network`].
//!
//! There are two of them behind one trait, [`Residual`]:
//!
//! - [`FlowRadar`], which the paper takes: cells of keys, flows, packets and bytes. Whether a flow
//!   is new must be known at its first packet; its filter says so, and is wrong about few.
//! - [`Fermat`]: key fragments, each times its flow's packets, so that no packet is the first one,
//!   and a flow that lost packets on its way still decodes, at every switch by what it saw there.
//!
//! Each has a filter of the flows that were put in. It is wrong about few, and that costs room and
//! no count: what is taken out of a residual that never had it stands there with a minus, and
//! decodes as well. Only what a [`FlowRadar`] can't tell apart makes it say that it is not decoded.
//!
//! ```
//! use calumma_sketch::residual::{Counts, Fermat, Residual as _, Shape, network};
//! use calumma_sketch::{FlowKey, HashFamily, HashKey};
//!
//! let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
//! let flow = |number| FlowKey::from_words(number, 9, 7, 17);
//! let mut residual = Fermat::new(Shape { buckets: 16, filter_bits: 1 << 12 });
//! let counts = Counts { packets: 3, bytes: 1500 };
//! for number in 0..100 {
//!     residual.insert(&flow(number), &family.hash(&flow(number)), counts);
//! }
//! // Another switch has 90 of them in its table.
//! let known: Vec<_> = (0..90).map(|number| (1, flow(number), counts)).collect();
//! let residuals = vec![Some(residual), None];
//! let nodes = network::decode(&family, residuals, &known, |_, nodes| nodes.push(0));
//! let here = nodes[0].as_ref().unwrap();
//! assert!(here.is_complete && here.flows.len() == 100);
//! ```

mod any;
mod fermat;
mod flow_radar;
mod held;
pub mod network;
#[cfg(test)]
mod tests;

pub use self::any::{AnyResidual, Kind};
pub use self::fermat::{Contents, Fermat};
pub use self::flow_radar::{Cell, Checks, FlowRadar};

use crate::burst::ones;
use crate::hash::{HashColumns, HashFamily, Hashes};
use crate::key::Key;
use crate::part::Part;
use crate::simd::Isa;

/// Buckets of a flow, one in each of so many arrays.
pub const ARRAYS: usize = 3;

/// How large a residual is. Those that are merged or subtracted must agree in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Buckets an array, 1 to 2^28.
    pub buckets: usize,
    /// Bits of the filter, brought to a whole number of blocks of 256. With 16 bits for each flow
    /// that is put in, one other flow in about 900 is mistaken for one of these; with 12, one in
    /// 150. A residual that is made with 0 has one block all the same; a shape has 0 where the
    /// residual has no filter of its own ([`Fermat::without_filter`]).
    pub filter_bits: usize,
}

/// Two residuals that can't be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("residuals of different shapes can't be combined: {left:?} and {right:?}")]
pub struct Mismatch {
    /// Shape of the residual that was to change.
    pub left: Shape,
    /// Shape of the other one.
    pub right: Shape,
}

/// What was counted of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a flow adds to its buckets, or what is left of it there: a difference, so with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How often the flow was put in. [`Fermat`] does without.
    pub flows: i32,
    /// Packets.
    pub packets: i64,
    /// Bytes.
    pub bytes: i64,
}

impl Amount {
    /// That of a flow of so many packets and bytes.
    pub fn of(counts: Counts) -> Self {
        Self { flows: 1, packets: counts.packets as i64, bytes: counts.bytes as i64 }
    }

    /// The sum; what is beyond 63 bits wraps, as it does in buckets.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            flows: self.flows.wrapping_add(other.flows),
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// The opposite.
    #[must_use]
    pub fn negated(self) -> Self {
        Self {
            flows: self.flows.wrapping_neg(),
            packets: self.packets.wrapping_neg(),
            bytes: self.bytes.wrapping_neg(),
        }
    }
}

/// A flow that is alone in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone<K> {
    /// The flow.
    pub key: K,
    /// Its hashes.
    pub hashes: Hashes,
    /// What the bucket has of it.
    pub amount: Amount,
}

/// A sketch of the flows that a table has no entry for.
pub trait Residual<K: Key>: Sized {
    /// How large it is.
    fn shape(&self) -> Shape;

    /// Bytes of memory that it takes, with its filter.
    fn bytes(&self) -> usize;

    /// Packets put in and taken out; `u64::MAX` for more.
    fn packets(&self) -> u64;

    /// Adds packets of a flow. Four cache lines, [`Fermat`] seven.
    fn insert(&mut self, key: &K, hashes: &Hashes, counts: Counts);

    /// Asks for the cache lines of a flow.
    fn prefetch(&self, isa: impl Isa, hashes: &Hashes);

    /// Adds one packet each of the flows of a burst whose bit is set in `chosen`; `bytes` are the
    /// packets' lengths. First all lines are asked for, then all are changed.
    #[inline(always)]
    fn insert_burst(
        &mut self,
        isa: impl Isa,
        keys: &[K],
        hashes: &HashColumns,
        bytes: &[u32],
        chosen: u32,
    ) {
        let there = keys.len().min(bytes.len());
        let chosen = if there < 32 { chosen & ((1 << there) - 1) } else { chosen };
        for packet in ones(chosen) {
            self.prefetch(isa, &hashes.of(packet));
        }
        for packet in ones(chosen) {
            let counts = Counts { packets: 1, bytes: bytes[packet].into() };
            self.insert(&keys[packet], &hashes.of(packet), counts);
        }
    }

    /// Adds what `other` holds. A flow that both hold is one flow in a [`Fermat`] residual; in a
    /// [`FlowRadar`] it is there twice, and comes out if it is known from elsewhere.
    ///
    /// # Errors
    /// When the shapes differ; nothing is changed then.
    fn merge(&mut self, other: &Self) -> Result<(), Mismatch>;

    /// Takes out what `other` holds. Flows of either stay in the filter.
    ///
    /// # Errors
    /// When the shapes differ; nothing is changed then.
    fn subtract(&mut self, other: &Self) -> Result<(), Mismatch>;

    /// Forgets all flows.
    fn clear(&mut self);

    /// Whether the flow may have been put in; of flows that were, this is always so.
    fn may_hold(&self, hashes: &Hashes) -> bool;

    /// Whether no count can have wrapped around: what was put in and taken out is few enough.
    fn is_sound(&self) -> bool;

    /// Adds `amount` to the flow's buckets, not to the filter, and gives these buckets by their
    /// numbers over all arrays. `None`, and nothing changes, where it is more than a bucket can
    /// tell.
    fn add(&mut self, key: &K, hashes: &Hashes, amount: Amount) -> Option<[u32; ARRAYS]>;

    /// The flow that bucket `at`, counted over all arrays, seems to hold alone.
    fn alone(&self, family: &HashFamily, at: u32) -> Option<Alone<K>>;

    /// Buckets, over all arrays, that are not empty; one more where what was taken out is not
    /// proven to be what was put in.
    fn remaining(&self) -> usize;
}

/// A flow's buckets, counted over all arrays.
#[inline(always)]
fn places(part: &Part, hashes: &Hashes) -> [u32; ARRAYS] {
    std::array::from_fn(|array| array as u32 * part.len() + part.bucket(hashes.array_word(array)))
}

/// The part that is a whole array.
fn whole(shape: Shape) -> Part {
    let fits = (1..=1 << 28).contains(&shape.buckets);
    assert!(fits, "1 to 2^28 buckets an array: {shape:?}");
    Part::new(0, shape.buckets as u32)
}
