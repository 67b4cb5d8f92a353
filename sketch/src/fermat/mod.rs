//! FermatSketch: exact flow keys and packet counts in memory proportional to the flows recorded
//! (section 3.1 of the ChameleMon paper).
//!
//! d arrays of m buckets; every bucket sums the key fragments of its packets beside their number.
//! Sketches of the same [`Shape`] add and subtract, so that what entered the network minus what
//! left it is a sketch of the losses alone. A bucket that holds a single flow gives its key away by
//! one division, and taking that flow out makes other buckets pure: [`FermatSketch::decode`]. Where
//! flows are known from elsewhere, [`FermatSketch::decode_with_hints`] goes on where that stops.

mod alone;
mod arithmetic;
mod bucket;
mod decode;
mod decoded;
mod hinted;
mod indistinct;
mod linear;
mod prime;
mod sizing;
mod sketch;
mod summed;
mod wide;
mod wrapping;

pub use arithmetic::Arithmetic;
pub use bucket::{Bucket, Lanes, WideBucket};
pub use decoded::Decoded;
pub use indistinct::Indistinct;
pub use prime::P;
pub use sketch::{FermatSketch, Shape, ShapeMismatch, WordsError};

pub(crate) use summed::Summed;

/// Most bucket arrays that the hash family has words for.
pub const MAX_ARRAYS: usize = 5;
