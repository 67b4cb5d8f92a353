//! FlowRadar's encoded flowset (Li and others, NSDI 2016) as a residual: Algorithm 1 of the CFS
//! paper.
//!
//! The flow's first packet puts its key into a cell of each array, every packet adds to the counts
//! there. A Bloom filter says which packet is the first. Where it is wrong, a flow's packets are
//! counted in cells that don't have its key: they can't be decoded unless the flow is known from
//! elsewhere, and the residual does not come out empty. Numbers of flows have a sign here, so that
//! a flow which is taken out of a residual that never had it comes out again.
//!
//! Cells alone don't prove what was decoded: flows that agree in all their cells can have each
//! other's packets, as where one of them is known from a switch that saw more of it. So beside the
//! cells there are sums over all packets and bytes, each times a word of its flow's hashes, which
//! come out zero with the counts that were put in, and with others by chance only: 64 bits.

use super::held::Held;
use super::{ARRAYS, Alone, Amount, Counts, Mismatch, Residual, Shape, places, whole};
use crate::hash::{HashFamily, Hashes};
use crate::key::Key;
use crate::memory::filled;
use crate::part::Part;
use crate::simd::Isa;

/// What flows have in common that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cell<K> {
    /// Exclusive or of the keys of its flows.
    pub keys: K,
    /// Their packets.
    pub packets: i64,
    /// Bytes of these.
    pub bytes: i64,
    /// How many they are.
    pub flows: i32,
}

/// Sums over all flows, modulo 2^64, of what was counted of each times a word of its hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// That of packets.
    pub packets: u64,
    /// That of bytes.
    pub bytes: u64,
}

impl Checks {
    #[inline(always)]
    fn add(&mut self, hashes: &Hashes, amount: Amount) {
        let word = hashes.check_word();
        self.packets = self.packets.wrapping_add(word.wrapping_mul(amount.packets as u64));
        self.bytes = self.bytes.wrapping_add(word.wrapping_mul(amount.bytes as u64));
    }
}

impl<K: Key> Cell<K> {
    #[inline(always)]
    fn add(&mut self, keys: &K, amount: Amount) {
        if amount.flows & 1 == 1 {
            self.keys = xor(&self.keys, keys);
        }
        self.flows = self.flows.wrapping_add(amount.flows);
        self.packets = self.packets.wrapping_add(amount.packets);
        self.bytes = self.bytes.wrapping_add(amount.bytes);
    }

    fn combine(&mut self, other: &Self, sign: impl Fn(Amount) -> Amount) {
        let Self { keys, packets, bytes, flows } = *other;
        let keys = xor(&self.keys, &keys);
        self.add(&keys, sign(Amount { flows, packets, bytes }));
        self.keys = keys;
    }
}

#[inline(always)]
fn xor<K: Key>(a: &K, b: &K) -> K {
    K::from_word_fn(|at| a.word(at) ^ b.word(at), a.protocol() ^ b.protocol())
}

/// Three arrays of cells, and the filter of flows that are in them. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRadar<K: Key> {
    cells: Box<[Cell<K>]>,
    held: Held,
    part: Part,
    checks: Checks,
    /// Packets put in and taken out.
    packets: u64,
}

impl<K: Key> FlowRadar<K> {
    /// Bytes of a cell.
    pub const CELL_BYTES: usize = size_of::<Cell<K>>();

    /// An empty one. It takes all its memory now.
    ///
    /// # Panics
    /// When it has no buckets, or more than 2^28 an array.
    pub fn new(shape: Shape) -> Self {
        let part = whole(shape);
        let cells = filled(ARRAYS * shape.buckets, Cell::default());
        Self {
            cells,
            held: Held::new(shape.filter_bits),
            part,
            checks: Checks::default(),
            packets: 0,
        }
    }

    /// Its cells, array after array.
    pub fn cells(&self) -> &[Cell<K>] {
        &self.cells
    }

    /// Its sums over all flows.
    pub fn checks(&self) -> Checks {
        self.checks
    }

    /// The words of its filter.
    pub fn filter(&self) -> Vec<u32> {
        self.held.words()
    }

    /// The residual of so many packets with these contents, whose cells are those of all arrays,
    /// one after the other; `None` where they are not as many in each, or the filter has no whole
    /// number of blocks.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn from_contents(
        cells: Vec<Cell<K>>,
        filter: &[u32],
        checks: Checks,
        packets: u64,
    ) -> Option<Self> {
        if !cells.len().is_multiple_of(ARRAYS) {
            return None;
        }
        let part = whole(Shape { buckets: cells.len() / ARRAYS, filter_bits: 0 });
        let held = Held::from_words(filter)?;
        Some(Self { cells: cells.into_boxed_slice(), held, part, checks, packets })
    }

    fn combine(&mut self, other: &Self, sign: fn(Amount) -> Amount) -> Result<(), Mismatch> {
        let mismatch = Mismatch { left: self.shape(), right: other.shape() };
        if mismatch.left != mismatch.right {
            return Err(mismatch);
        }
        for (cell, other) in self.cells.iter_mut().zip(&other.cells) {
            cell.combine(other, sign);
        }
        let Checks { packets, bytes } = other.checks;
        let of_other = Amount { flows: 0, packets: packets as i64, bytes: bytes as i64 };
        let of_other = sign(of_other);
        self.checks.packets = self.checks.packets.wrapping_add(of_other.packets as u64);
        self.checks.bytes = self.checks.bytes.wrapping_add(of_other.bytes as u64);
        self.held.merge(&other.held);
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }
}

impl<K: Key> Residual<K> for FlowRadar<K> {
    fn shape(&self) -> Shape {
        Shape { buckets: self.cells.len() / ARRAYS, filter_bits: 8 * self.held.bytes() }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.cells) + size_of::<Checks>() + self.held.bytes()
    }

    fn packets(&self) -> u64 {
        self.packets
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, hashes: &Hashes, counts: Counts) {
        let flows = i32::from(!self.held.insert(hashes));
        self.packets = self.packets.saturating_add(counts.packets);
        let amount = Amount { flows, ..Amount::of(counts) };
        self.checks.add(hashes, amount);
        for at in places(&self.part, hashes) {
            self.cells[at as usize].add(key, amount);
        }
    }

    #[inline(always)]
    fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        self.held.prefetch(isa, hashes);
        for at in places(&self.part, hashes) {
            isa.prefetch(&self.cells, at as usize);
        }
    }

    fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, |amount| amount)
    }

    fn subtract(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, Amount::negated)
    }

    fn clear(&mut self) {
        self.cells.fill(Cell::default());
        self.held.clear();
        (self.checks, self.packets) = (Checks::default(), 0);
    }

    #[inline(always)]
    fn may_hold(&self, hashes: &Hashes) -> bool {
        self.held.contains(hashes)
    }

    fn is_sound(&self) -> bool {
        self.packets <= i64::MAX as u64
    }

    fn add(&mut self, key: &K, hashes: &Hashes, amount: Amount) -> Option<[u32; ARRAYS]> {
        let places = places(&self.part, hashes);
        self.checks.add(hashes, amount);
        for at in places {
            self.cells[at as usize].add(key, amount);
        }
        Some(places)
    }

    fn alone(&self, family: &HashFamily, at: u32) -> Option<Alone<K>> {
        let Cell { keys, packets, bytes, flows } = self.cells[at as usize];
        if flows.unsigned_abs() != 1 {
            return None;
        }
        let hashes = family.hash(&keys);
        let belongs = places(&self.part, &hashes).contains(&at) && self.held.contains(&hashes);
        belongs.then_some(Alone { key: keys, hashes, amount: Amount { flows, packets, bytes } })
    }

    fn remaining(&self) -> usize {
        let unproven = usize::from(self.checks != Checks::default());
        self.cells.iter().filter(|&cell| *cell != Cell::default()).count() + unproven
    }
}
