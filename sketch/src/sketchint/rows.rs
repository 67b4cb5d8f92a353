//! Rows: a flow's packets on one path, with what they met at each hop.
//!
//! A flow's word chooses a set of [`WAYS`] rows. A flow and path that finds its set full gives the
//! set a vote; with so many votes that it outweighs the smallest row, it takes that row's place
//! (after Elastic Sketch; Yang and others, SIGCOMM 2018). What a row held then, and packets without
//! a row, are their user's to keep elsewhere. A flow is *whole* as long as none of its packets were
//! anywhere but in rows: a set that never was full has only whole flows.

use crate::burst::ones;
use crate::simd::Isa;

/// Rows of a set.
pub const WAYS: usize = 8;

/// Most rows of a flow: paths that are distinguished.
pub(super) const MOST_OF_A_FLOW: usize = 4;

/// Votes for each packet of the smallest row that outweigh it.
const OUTWEIGH: u64 = 8;

/// Cells in a cache line.
const LINE_OF_CELLS: usize = 64 / size_of::<Cell>();

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
    #[inline(always)]
    pub(super) fn add(&mut self, ns: u32) {
        self.sum_ns += u64::from(ns);
        self.max_ns = self.max_ns.max(ns);
        self.known = self.known.saturating_add(1);
    }

    /// Adds what another one has.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.known = self.known.saturating_add(other.known);
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head<K> {
    pub(super) key: K,
    /// The flow's word.
    pub(super) word: u64,
    pub(super) packets: u32,
    /// The path's number, 0 for packets without INT.
    pub(super) path: u16,
    pub(super) is_whole: bool,
    /// Whether its flow's key is kept as that of a large flow.
    pub(super) is_kept: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Set {
    votes: u64,
    /// No row has fewer packets, as long as none is free: rows only grow.
    least: u32,
    /// Whether packets of its flows were refused, or a row has left.
    spilled: bool,
}

/// Rows of a flow in a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matches {
    first: usize,
    ways: u32,
}

impl Matches {
    /// How many there are.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.ways.count_ones() as usize
    }

    /// Their places.
    #[inline(always)]
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        ones(self.ways).map(move |way| self.first + way)
    }

    /// The place of the first.
    #[inline(always)]
    pub(super) fn first(self) -> Option<usize> {
        (self.ways != 0).then(|| self.first + self.ways.trailing_zeros() as usize)
    }
}

/// A table of rows. It takes its memory once.
#[derive(Clone, Debug)]
pub struct Rows<K> {
    hops: usize,
    /// For each set bits of the flows' words that are there; 0 where a row is free.
    tags: Box<[[u16; WAYS]]>,
    heads: Box<[Head<K>]>,
    /// For each row its hops' cells and that of the sink itself.
    cells: Box<[Cell]>,
    sets: Box<[Set]>,
    refused: u64,
    evicted: u64,
}

impl<K: Copy + Default + PartialEq> Rows<K> {
    /// An empty table of `sets` sets, a power of two, of rows of up to `hops` hops.
    pub fn new(sets: usize, hops: usize) -> Self {
        let sets = sets.next_power_of_two();
        let rows = sets * WAYS;
        Self {
            hops,
            tags: vec![[0; WAYS]; sets].into_boxed_slice(),
            heads: vec![Head::default(); rows].into_boxed_slice(),
            cells: vec![Cell::default(); rows * (hops + 1)].into_boxed_slice(),
            sets: vec![Set::default(); sets].into_boxed_slice(),
            refused: 0,
            evicted: 0,
        }
    }

    /// By bits that no index of a pair tower is made of, so that the flows which find one set full
    /// are no neighbours there.
    #[inline(always)]
    fn set(&self, word: u64) -> usize {
        (word >> 16) as usize & (self.sets.len() - 1)
    }

    #[inline(always)]
    fn tag(word: u64) -> u16 {
        (word >> 48) as u16 | 1
    }

    /// A bit for each row of a set that has the tag, the first row's lowest. All rows at once: a
    /// lane of the difference is zero where its lower bits and its highest one are.
    #[inline(always)]
    fn tagged(tags: [u16; WAYS], tag: u16) -> u32 {
        const LOW: u64 = 0x7FFF_7FFF_7FFF_7FFF;
        let half = |tags: &[u16; WAYS / 2]| {
            let lanes = tags.iter().rev().fold(0, |lanes, &tag| lanes << 16 | u64::from(tag));
            let differ = lanes ^ (u64::from(tag) * 0x0001_0001_0001_0001);
            let equal = !((differ & LOW).wrapping_add(LOW) | differ | LOW);
            // The lanes' highest bits, side by side.
            (equal.wrapping_mul(0x0000_2000_4000_8001) >> 60) as u32
        };
        let (low, high) = tags.split_at(WAYS / 2);
        let [low, high] = [low, high].map(|tags| tags.first_chunk().map_or(0, half));
        low | high << (WAYS / 2)
    }

    /// The rows of a flow: a bit for each of its set.
    #[inline(always)]
    pub(super) fn of_flow(&self, word: u64, key: &K) -> Matches {
        let set = self.set(word);
        let tagged = Self::tagged(self.tags[set], Self::tag(word));
        let heads = &self.heads[set * WAYS..(set + 1) * WAYS];
        let equal = ones(tagged).filter(|&way| heads[way].key == *key);
        Matches { first: set * WAYS, ways: equal.fold(0, |ways, way| ways | 1 << way) }
    }

    /// Where a flow's packet is likely counted, for a prefetch; `None` where the flow has no row.
    #[inline(always)]
    pub(super) fn likely(&self, word: u64) -> Option<usize> {
        let set = self.set(word);
        let tagged = Self::tagged(self.tags[set], Self::tag(word));
        (tagged != 0).then(|| set * WAYS + tagged.trailing_zeros() as usize)
    }

    /// Asks for the lines of a row.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, row: usize) {
        isa.prefetch(&self.heads, row);
        let width = self.hops + 1;
        isa.prefetch(&self.cells, row * width);
        isa.prefetch(&self.cells, row * width + width.min(LINE_OF_CELLS));
    }

    /// The row for a packet of a flow and path, in which it is counted; `None` where it finds none.
    /// `of_flow` are the flow's [rows](Self::of_flow). A row that has to leave is shown to
    /// `leaves`.
    #[inline(always)]
    pub(super) fn count(
        &mut self,
        (word, key): (u64, &K),
        of_flow: Matches,
        path: u16,
        leaves: impl FnOnce(&Head<K>, &[Cell]),
    ) -> Option<usize> {
        match of_flow.iter().find(|&row| self.heads[row].path == path) {
            Some(row) if self.heads[row].packets < u32::MAX => {
                self.heads[row].packets += 1;
                Some(row)
            }
            Some(_) => {
                self.refuse(word, key);
                None
            }
            None => self.admit((word, key), path, of_flow, leaves),
        }
    }

    #[inline(never)]
    fn admit(
        &mut self,
        (word, key): (u64, &K),
        path: u16,
        of_flow: Matches,
        leaves: impl FnOnce(&Head<K>, &[Cell]),
    ) -> Option<usize> {
        let set = self.set(word);
        let first = set * WAYS;
        let free = Self::tagged(self.tags[set], 0);
        let is_whole = !self.sets[set].spilled;
        if of_flow.len() >= MOST_OF_A_FLOW {
            self.refuse_of(set, of_flow);
            return None;
        }
        let row = match free {
            0 => {
                let of = &mut self.sets[set];
                of.votes += 1;
                if of.votes <= OUTWEIGH * u64::from(of.least) {
                    self.refuse_of(set, of_flow);
                    return None;
                }
                let packets = |row: &usize| self.heads[*row].packets;
                let smallest = (first..first + WAYS).min_by_key(packets)?;
                self.sets[set].least = self.heads[smallest].packets;
                if self.sets[set].votes <= OUTWEIGH * u64::from(self.sets[set].least) {
                    self.refuse_of(set, of_flow);
                    return None;
                }
                self.leave(set, smallest, leaves);
                smallest
            }
            free => first + free.trailing_zeros() as usize,
        };
        let is_whole = is_whole && free != 0;
        if !is_whole {
            self.break_up(of_flow);
        }
        self.tags[set][row - first] = Self::tag(word);
        self.heads[row] = Head { key: *key, word, packets: 1, path, is_whole, is_kept: false };
        Some(row)
    }

    /// Lets a row leave.
    fn leave(&mut self, set: usize, row: usize, leaves: impl FnOnce(&Head<K>, &[Cell])) {
        let head = self.heads[row];
        leaves(&head, self.cells(row));
        self.cells_mut(row).fill(Cell::default());
        self.tags[set][row % WAYS] = 0;
        self.evicted += 1;
        self.sets[set] = Set { votes: 0, least: 0, spilled: true };
        self.break_up(self.of_flow(head.word, &head.key));
    }

    /// Notes that packets of a flow are kept elsewhere.
    #[inline]
    pub(super) fn refuse(&mut self, word: u64, key: &K) {
        self.refuse_of(self.set(word), self.of_flow(word, key));
    }

    #[inline]
    fn refuse_of(&mut self, set: usize, of_flow: Matches) {
        self.refused += 1;
        self.sets[set].spilled = true;
        self.break_up(of_flow);
    }

    #[inline]
    fn break_up(&mut self, of_flow: Matches) {
        of_flow.iter().for_each(|row| self.heads[row].is_whole = false);
    }

    /// Whether packets of a flow may be kept elsewhere, where it has no rows.
    pub(super) fn may_have_refused(&self, word: u64) -> bool {
        self.sets[self.set(word)].spilled
    }

    /// What the row in this place is about.
    #[inline]
    pub(super) fn head(&self, row: usize) -> &Head<K> {
        &self.heads[row]
    }

    #[inline(always)]
    pub(super) fn head_mut(&mut self, row: usize) -> &mut Head<K> {
        &mut self.heads[row]
    }

    /// Its hops, and behind them the sink itself.
    #[inline]
    pub(super) fn cells(&self, row: usize) -> &[Cell] {
        let width = self.hops + 1;
        &self.cells[row * width..(row + 1) * width]
    }

    #[inline]
    pub(super) fn cells_mut(&mut self, row: usize) -> &mut [Cell] {
        let width = self.hops + 1;
        &mut self.cells[row * width..(row + 1) * width]
    }

    /// All rows that are taken, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Head<K>)> {
        let taken = self.tags.as_flattened().iter().zip(&self.heads).enumerate();
        taken.filter(|(_, (tag, _))| **tag != 0).map(|(row, (_, head))| (row, head))
    }

    /// Packets that found no row.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Rows that had to leave.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.tags)
            + size_of_val(&*self.heads)
            + size_of_val(&*self.cells)
            + size_of_val(&*self.sets)
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.tags.fill([0; WAYS]);
        self.cells.fill(Cell::default());
        self.sets.fill(Set::default());
        (self.refused, self.evicted) = (0, 0);
    }
}
