//! The Count sketch with a heap of large flows (Charikar, Chen and Farach-Colton, 2002).

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};
use crate::top::Top;
use crate::{Insert, Memory, Query, Tracked, WORD};

/// Rows; an odd number, so that a median is one of them.
const ROWS: usize = 3;

/// Entries of the heap.
const HEAP: usize = 4096;

/// Rows of counters that packets raise or lower by their flow's sign, so that other flows cancel
/// out on average.
#[derive(Clone, Debug)]
pub(crate) struct CountSketch<const ROWS: usize> {
    width: usize,
    counters: Vec<i32>,
}

impl<const ROWS: usize> CountSketch<ROWS> {
    pub(crate) fn new(bytes: usize) -> Self {
        let width = (bytes / WORD / ROWS).max(1);
        Self { width, counters: vec![0; width * ROWS] }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.counters.len() * WORD
    }

    /// Counts a packet and gives its flow's size so far.
    #[inline]
    pub(crate) fn insert(&mut self, hashed: Hashed) -> u32 {
        let rows: [i32; ROWS] = std::array::from_fn(|row| {
            let (at, sign) = self.place(hashed, row);
            self.counters[at] = self.counters[at].saturating_add(sign);
            self.counters[at].saturating_mul(sign)
        });
        median(rows)
    }

    #[inline]
    pub(crate) fn query(&self, hashed: Hashed) -> u32 {
        median::<ROWS>(std::array::from_fn(|row| {
            let (at, sign) = self.place(hashed, row);
            self.counters[at].saturating_mul(sign)
        }))
    }

    /// A flow's counter in a row, and its sign there.
    #[inline]
    fn place(&self, hashed: Hashed, row: usize) -> (usize, i32) {
        let at = row * self.width + hashed.index(row as u64, self.width);
        (at, 1 - 2 * (hashed.word(row as u64) & 1) as i32)
    }
}

/// The middle of an odd number, and not below zero.
#[inline]
fn median<const ROWS: usize>(mut rows: [i32; ROWS]) -> u32 {
    rows.sort_unstable();
    rows[ROWS / 2].max(0) as u32
}

/// A Count sketch and the flows that were largest by its word.
#[derive(Clone, Debug)]
pub struct CountHeap {
    hash: Hash,
    sketch: CountSketch<ROWS>,
    top: Top,
}

impl CountHeap {
    /// An empty sketch that fills at most `memory`, heap included.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let top = Top::new(HEAP, key);
        let sketch = CountSketch::new(bytes.saturating_sub(top.bytes()));
        Self { hash: Hash::new(seed), sketch, top }
    }
}

impl Insert for CountHeap {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        let hashed = self.hash.of(key);
        let size = self.sketch.insert(hashed);
        self.top.offer(key, hashed, size);
    }

    fn bytes(&self) -> usize {
        self.sketch.bytes() + self.top.bytes()
    }
}

impl Query for CountHeap {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        self.sketch.query(self.hash.of(key))
    }
}

impl Tracked for CountHeap {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.top.entries()
    }
}
