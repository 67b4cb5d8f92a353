//! One array of equally wide counters.

use crate::memory::{lines, make_ready};
use std::cmp::min;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::burst::Column;
use crate::part::Part;

/// Most counter arrays of a flow classifier.
pub const MAX_LEVELS: usize = 4;

/// Most counter arrays of any TowerSketch: those that the hash family has words for, and one for
/// each width.
pub const MOST_LEVELS: usize = 5;

/// What an overflowed counter reads as.
pub const OVERFLOW: u32 = u32::MAX;

/// Width and number of an array's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Bits of a counter: 2, 4, 8, 16 or 32.
    pub bits: u32,
    /// Counters of the array, at most 2^28.
    pub counters: u32,
}

impl Level {
    /// An array of `counters` counters of `bits` bits.
    pub const fn new(bits: u32, counters: u32) -> Self {
        Self { bits, counters }
    }

    /// The value at which a counter of this width has overflowed.
    pub const fn max(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// Bytes that hold the array.
    pub const fn bytes(&self) -> usize {
        (self.counters as usize * self.bits as usize).div_ceil(8)
    }
}

/// Counter arrays that make no TowerSketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// None, or more than there may be.
    #[error("{number} counter arrays: must be 1 to {most}")]
    Number {
        /// How many there are.
        number: usize,
        /// How many there may be.
        most: usize,
    },
    /// A width that counters don't come in.
    #[error("counters of {0} bits: must be 2, 4, 8, 16 or 32")]
    Bits(u32),
    /// A number of counters that no index reaches.
    #[error("{0} counters: must be 1 to 2^28")]
    Counters(u32),
    /// Widths that don't rise.
    #[error("counters of {narrow} bits after ones of {wide}: widths must rise")]
    Order {
        /// Width of the earlier array.
        wide: u32,
        /// Width of the one after it.
        narrow: u32,
    },
}

/// Checks that a flow classifier can be built of these arrays.
///
/// # Errors
/// The first array that doesn't fit, and why.
pub fn validate_levels(levels: &[Level]) -> Result<(), LevelError> {
    validate(levels, MAX_LEVELS)
}

/// The same of a TowerSketch of up to `most` arrays.
pub(super) fn validate(levels: &[Level], most: usize) -> Result<(), LevelError> {
    if levels.is_empty() || levels.len() > most {
        return Err(LevelError::Number { number: levels.len(), most });
    }
    for level in levels {
        if !matches!(level.bits, 2 | 4 | 8 | 16 | 32) {
            return Err(LevelError::Bits(level.bits));
        }
        if !(1..=1 << 28).contains(&level.counters) {
            return Err(LevelError::Counters(level.counters));
        }
    }
    for pair in levels.windows(2) {
        if pair[0].bits >= pair[1].bits {
            return Err(LevelError::Order { wide: pair[0].bits, narrow: pair[1].bits });
        }
    }
    Ok(())
}

/// Counters packed into bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    level: Level,
    /// Every counter; the index function of an encoder's part serves here as well.
    part: Part,
    cells: Cells,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cells {
    /// Counters of 2 or 4 bits, the first in the low bits of its byte.
    Packed(Vec<u8>),
    Bits8(Vec<u8>),
    Bits16(Vec<u16>),
    Bits32(Vec<u32>),
}

/// Values below this, which most counters hold, are tallied in a table, others by sorting.
const TABLED: usize = 256;

/// How often each value occurs.
struct Tally {
    /// Two tables in turns: counts of equal values in a row would wait for each other.
    tables: [[u32; TABLED]; 2],
    larger: Vec<u32>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { tables: [[0; TABLED]; 2], larger: Vec::new() }
    }
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, values: impl Iterator<Item = u32>) {
        let Self { tables: [even, odd], larger } = self;
        let (mut table, mut other) = (even, odd);
        for value in values {
            match table.get_mut(value as usize) {
                Some(cell) => *cell += 1,
                None => larger.push(value),
            }
            std::mem::swap(&mut table, &mut other);
        }
    }

    /// The values that occurred, ascending, each with its number.
    fn into_histogram(mut self) -> Vec<(u32, u32)> {
        self.larger.sort_unstable();
        let [even, odd] = self.tables;
        let tabled = (0..).zip(even.iter().zip(&odd).map(|(even, odd)| even + odd));
        let larger = self.larger.chunk_by(u32::eq).map(|run| (run[0], run.len() as u32));
        tabled.filter(|&(_, number)| number > 0).chain(larger).collect()
    }
}

impl Counters {
    pub(super) fn new(level: Level) -> Self {
        let counters = level.counters as usize;
        let cells = match level.bits {
            8 => Cells::Bits8(vec![0; counters]),
            16 => Cells::Bits16(vec![0; counters]),
            32 => Cells::Bits32(vec![0; counters]),
            _ => Cells::Packed(vec![0; level.bytes()]),
        };
        Self { level, part: Part::new(0, level.counters), cells }
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// The counter that `word` falls on.
    #[inline]
    pub(super) fn index(&self, word: u32) -> usize {
        self.part.bucket(word) as usize
    }

    /// Value of counter `at`, [`OVERFLOW`] at its maximum.
    #[inline]
    pub(super) fn get(&self, at: usize) -> u32 {
        let raw = self.raw(at);
        if raw == self.level.max() { OVERFLOW } else { raw }
    }

    #[inline]
    fn raw(&self, at: usize) -> u32 {
        match &self.cells {
            Cells::Bits8(cells) => u32::from(cells[at]),
            Cells::Bits16(cells) => u32::from(cells[at]),
            Cells::Bits32(cells) => cells[at],
            Cells::Packed(cells) => {
                let bit = at * self.level.bits as usize;
                u32::from(cells[bit / 8] >> (bit % 8)) & self.level.max()
            }
        }
    }

    #[inline]
    fn set_raw(&mut self, at: usize, value: u32) {
        let max = self.level.max();
        match &mut self.cells {
            Cells::Bits8(cells) => cells[at] = value as u8,
            Cells::Bits16(cells) => cells[at] = value as u16,
            Cells::Bits32(cells) => cells[at] = value,
            Cells::Packed(cells) => {
                let bit = at * self.level.bits as usize;
                let cell = &mut cells[bit / 8];
                *cell = *cell & !((max as u8) << (bit % 8)) | (value as u8) << (bit % 8);
            }
        }
    }

    /// Adds `packets` to counter `at` up to its maximum, and gives its new value.
    #[inline]
    pub(super) fn add(&mut self, at: usize, packets: u32) -> u32 {
        let max = self.level.max();
        let sum = self.raw(at).saturating_add(packets).min(max);
        self.set_raw(at, sum);
        if sum == max { OVERFLOW } else { sum }
    }

    /// Counts one packet for each of the first `packets` of `words` in order, and lowers its entry
    /// in `sizes` to the counter's new value where that is less. So few instructions a packet
    /// that the CPU has the counters of a whole burst under way at once: asking for them first
    /// costs more than it brings.
    #[inline(always)]
    pub(super) fn count_burst(&mut self, packets: usize, words: &Column, sizes: &mut Column) {
        let at = Column::from_fn(|packet| self.part.bucket(words.0[packet]));
        let at = &at.0[..packets];
        let mut sums = Column::ZERO;
        // As slices: where a vector's memory lies would be looked up again after every counter
        // written.
        match &mut self.cells {
            Cells::Bits8(cells) => {
                let cells = cells.as_mut_slice();
                for (&at, sum) in at.iter().zip(&mut sums.0) {
                    let cell = &mut cells[at as usize];
                    *cell = cell.saturating_add(1);
                    *sum = u32::from(*cell);
                }
            }
            Cells::Bits16(cells) => {
                let cells = cells.as_mut_slice();
                for (&at, sum) in at.iter().zip(&mut sums.0) {
                    let cell = &mut cells[at as usize];
                    *cell = cell.saturating_add(1);
                    *sum = u32::from(*cell);
                }
            }
            Cells::Bits32(cells) => {
                let cells = cells.as_mut_slice();
                for (&at, sum) in at.iter().zip(&mut sums.0) {
                    let cell = &mut cells[at as usize];
                    *cell = cell.saturating_add(1);
                    *sum = *cell;
                }
            }
            Cells::Packed(cells) => {
                let (cells, bits) = (cells.as_mut_slice(), self.level.bits);
                let (of_a_byte, max) = ((8 / bits).ilog2(), self.level.max());
                for (&at, sum) in at.iter().zip(&mut sums.0) {
                    let cell = &mut cells[(at >> of_a_byte) as usize];
                    let shift = at * bits % 8;
                    let before = u32::from(*cell) >> shift & max;
                    let counts = u32::from(before < max);
                    *cell += (counts << shift) as u8;
                    *sum = before + counts;
                }
            }
        }
        let max = self.level.max();
        *sizes = Column::from_fn(|packet| {
            let sum = sums.0[packet];
            min(sizes.0[packet], if sum == max { OVERFLOW } else { sum })
        });
    }

    /// Raises counter `at` to `value` or its maximum where it is lower, and gives its new value.
    #[inline]
    pub(super) fn raise(&mut self, at: usize, value: u32) -> u32 {
        let max = self.level.max();
        let raised = self.raw(at).max(value.min(max));
        self.set_raw(at, raised);
        if raised == max { OVERFLOW } else { raised }
    }

    /// Counters that flows fall on equally often, and how often beside the average.
    pub(super) fn strata(&self) -> impl Iterator<Item = (Range<u32>, f64)> {
        self.part.strata()
    }

    /// Distinct values of the counters `among`, ascending, and how many of them hold each.
    pub(super) fn histogram(&self, among: Range<u32>) -> Vec<(u32, u32)> {
        let among = among.start as usize..among.end as usize;
        let mut tally = Tally::default();
        match &self.cells {
            Cells::Bits8(cells) => tally.add(cells[among].iter().map(|&cell| cell.into())),
            Cells::Bits16(cells) => tally.add(cells[among].iter().map(|&cell| cell.into())),
            Cells::Bits32(cells) => tally.add(cells[among].iter().copied()),
            Cells::Packed(_) => tally.add(among.map(|at| self.raw(at))),
        }
        let mut histogram = tally.into_histogram();
        if let Some(last) = histogram.last_mut().filter(|last| last.0 == self.level.max()) {
            last.0 = OVERFLOW;
        }
        histogram
    }

    /// How many counters are zero.
    pub(super) fn zeros(&self) -> usize {
        self.holding(0)
    }

    /// Whether any counter has overflowed.
    pub(super) fn any_overflowed(&self) -> bool {
        self.holding(self.level.max()) > 0
    }

    /// How many counters hold `value`.
    fn holding(&self, value: u32) -> usize {
        match &self.cells {
            Cells::Bits8(cells) => cells.iter().filter(|&&cell| u32::from(cell) == value).count(),
            Cells::Bits16(cells) => cells.iter().filter(|&&cell| u32::from(cell) == value).count(),
            Cells::Bits32(cells) => cells.iter().filter(|&&cell| cell == value).count(),
            Cells::Packed(_) => {
                let counters = 0..self.level.counters as usize;
                counters.filter(|&at| self.raw(at) == value).count()
            }
        }
    }

    /// Adds the counters of an array of the same level, each up to its maximum.
    pub(super) fn merge(&mut self, other: &Self) {
        match (&mut self.cells, &other.cells) {
            (Cells::Bits8(mine), Cells::Bits8(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(a, &b)| *a = a.saturating_add(b));
            }
            (Cells::Bits16(mine), Cells::Bits16(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(a, &b)| *a = a.saturating_add(b));
            }
            (Cells::Bits32(mine), Cells::Bits32(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(a, &b)| *a = a.saturating_add(b));
            }
            _ => {
                for at in 0..self.level.counters as usize {
                    self.add(at, other.raw(at));
                }
            }
        }
    }

    /// Cache lines of the counters.
    pub(super) fn lines(&self) -> usize {
        match &self.cells {
            Cells::Packed(cells) | Cells::Bits8(cells) => lines(cells),
            Cells::Bits16(cells) => lines(cells),
            Cells::Bits32(cells) => lines(cells),
        }
    }

    /// See [`make_ready`].
    #[inline]
    pub(super) fn make_ready(&mut self, line: usize) -> Option<usize> {
        match &mut self.cells {
            Cells::Packed(cells) | Cells::Bits8(cells) => make_ready(cells, line),
            Cells::Bits16(cells) => make_ready(cells, line),
            Cells::Bits32(cells) => make_ready(cells, line),
        }
    }

    pub(super) fn clear(&mut self) {
        match &mut self.cells {
            Cells::Packed(cells) | Cells::Bits8(cells) => cells.fill(0),
            Cells::Bits16(cells) => cells.fill(0),
            Cells::Bits32(cells) => cells.fill(0),
        }
    }

    /// The counters' bytes, little-endian.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        match &self.cells {
            Cells::Packed(cells) | Cells::Bits8(cells) => out.extend_from_slice(cells),
            Cells::Bits16(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()));
            }
            Cells::Bits32(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()));
            }
        }
    }

    /// Fills the counters from exactly as many bytes as [`Level::bytes`] says.
    pub(super) fn read_from(&mut self, bytes: &[u8]) {
        match &mut self.cells {
            Cells::Packed(cells) | Cells::Bits8(cells) => cells.copy_from_slice(bytes),
            Cells::Bits16(cells) => {
                for (cell, bytes) in cells.iter_mut().zip(bytes.as_chunks().0) {
                    *cell = u16::from_le_bytes(*bytes);
                }
            }
            Cells::Bits32(cells) => {
                for (cell, bytes) in cells.iter_mut().zip(bytes.as_chunks().0) {
                    *cell = u32::from_le_bytes(*bytes);
                }
            }
        }
    }
}
