//! What rows' packets met at each hop, hop beside hop.

use super::inflation::SEEN;
use super::met::Met;
use crate::simd::{Above, Isa};

/// What packets of a row met at one hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The sum of their latencies, in nanoseconds.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u32,
    /// Packets whose latency is known.
    pub known: u32,
}

impl Cell {
    /// Adds what another one has.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.known = self.known.saturating_add(other.known);
    }

    /// What it was before a packet was added to it.
    #[inline(always)]
    pub(super) fn before(self, ns: u32) -> (u64, u64) {
        (self.sum_ns.wrapping_sub(ns.into()), u64::from(self.known).saturating_sub(1))
    }
}

/// Words of a cell.
const WORDS: usize = size_of::<Cell>() / size_of::<u32>();

/// Cells of rows, as many of each row. For each row first the sums stand side by side, each as two
/// words, the lower one first; then the longest latencies; then the numbers of packets. So one
/// instruction has several hops.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// Cells of a row.
    width: usize,
    words: Box<[u32]>,
}

impl Cells {
    /// Empty cells of so many rows.
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self { width, words: vec![0; rows * width * WORDS].into_boxed_slice() }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[u32] {
        &self.words[row * self.width * WORDS..(row + 1) * self.width * WORDS]
    }

    #[inline(always)]
    fn row_mut(&mut self, row: usize) -> &mut [u32] {
        &mut self.words[row * self.width * WORDS..(row + 1) * self.width * WORDS]
    }

    /// Asks for the lines of a row.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, row: usize) {
        let (first, words) = (row * self.width * WORDS, self.width * WORDS);
        isa.prefetch(&self.words, first);
        isa.prefetch(&self.words, first + (64 / size_of::<u32>()).min(words - 1));
        isa.prefetch(&self.words, first + words - 1);
    }

    /// A cell of a row.
    #[inline(always)]
    pub(super) fn get(&self, row: usize, at: usize) -> Cell {
        let (row, width) = (self.row(row), self.width);
        let sum_ns = u64::from(row[2 * at + 1]) << 32 | u64::from(row[2 * at]);
        Cell { sum_ns, max_ns: row[2 * width + at], known: row[3 * width + at] }
    }

    #[inline(always)]
    fn set(&mut self, row: usize, at: usize, cell: Cell) {
        let width = self.width;
        let row = self.row_mut(row);
        (row[2 * at], row[2 * at + 1]) = (cell.sum_ns as u32, (cell.sum_ns >> 32) as u32);
        (row[2 * width + at], row[3 * width + at]) = (cell.max_ns, cell.known);
    }

    /// All cells of a row.
    pub(super) fn of(&self, row: usize) -> impl ExactSizeIterator<Item = Cell> + '_ {
        (0..self.width).map(move |at| self.get(row, at))
    }

    /// The last cell of a row.
    #[inline(always)]
    pub(super) fn last(&self, row: usize) -> Cell {
        self.get(row, self.width - 1)
    }

    /// Adds a latency to a cell.
    #[inline(always)]
    pub(super) fn add(&mut self, row: usize, at: usize, ns: u32) {
        let mut cell = self.get(row, at);
        cell.merge(&Cell { sum_ns: ns.into(), max_ns: ns, known: 1 });
        self.set(row, at, cell);
    }

    /// The same to the last cell of a row.
    #[inline(always)]
    pub(super) fn add_to_last(&mut self, row: usize, ns: u32) {
        self.add(row, self.width - 1, ns);
    }

    /// Adds a packet's latencies to the cells of its hops, but for those that are not known. Gives
    /// whether one may be above so many times the mean of those before it, or, of a flow that is
    /// not whole, has too few before it. No cell has as many packets as it may count.
    #[inline(always)]
    pub(super) fn add_all(
        &mut self,
        isa: impl Isa,
        row: usize,
        met: &Met<'_>,
        (times, is_whole): (u32, bool),
    ) -> bool {
        let above = Above { times: times.into(), seen: SEEN, few: !is_whole };
        isa.add_latencies(self.row_mut(row), (met.column, met.len()), above)
    }

    /// Empties the cells of a row.
    pub(super) fn empty(&mut self, row: usize) {
        self.row_mut(row).fill(0);
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Empties all.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }
}
