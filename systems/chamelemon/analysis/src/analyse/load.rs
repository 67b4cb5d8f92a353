//! Load factors: how full an encoder was.

use calumma_sketch::fermat::Lanes;
use calumma_sketch::{FermatSketch, Key};

/// An encoder's load as far as its empty buckets show; read before decoding, which empties them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    buckets: usize,
    /// Empty buckets of all arrays.
    empty: usize,
    arrays: usize,
}

impl Load {
    pub(super) fn of<K: Key>(sketch: &FermatSketch<K>) -> Self {
        let empty = sketch.buckets().iter().filter(|bucket| bucket.is_zero()).count();
        let shape = sketch.shape();
        Self { buckets: shape.total_buckets(), empty, arrays: shape.arrays }
    }

    /// The load factor where all flows are known.
    pub(super) fn exact(&self, flows: usize) -> f64 {
        flows as f64 / self.buckets as f64
    }

    /// The load factor by linear counting over the arrays. Good to a few percent up to a load of
    /// about two; beyond that it says "at least".
    pub(super) fn estimated(&self) -> f64 {
        let empty = self.empty.max(1) as f64 / self.buckets as f64;
        -empty.ln() / self.arrays as f64
    }
}
