//! Rows: a flow's packets on one path, with what they met at each hop.
//!
//! A flow's word chooses a set of [`WAYS`] rows. A flow and path that finds its set full gives the
//! set a vote; with so many votes that it outweighs the smallest row, it takes that row's place
//! (after Elastic Sketch; Yang and others, SIGCOMM 2018). What a row held then, and packets without
//! a row, are their user's to keep elsewhere. A flow is *whole* as long as none of its packets were
//! anywhere but in rows: a set that never was full has only whole flows.

/// Rows of a set.
pub const WAYS: usize = 8;

/// Most rows of a flow: paths that are distinguished.
pub(super) const MOST_OF_A_FLOW: usize = 4;

/// Votes for each packet of the smallest row that outweigh it.
const OUTWEIGH: u64 = 8;

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
}

#[derive(Clone, Copy, Debug, Default)]
struct Set {
    votes: u64,
    /// Whether packets of its flows were refused, or a row has left.
    spilled: bool,
}

/// A table of rows. It takes its memory once.
#[derive(Clone, Debug)]
pub struct Rows<K> {
    hops: usize,
    /// Bits of the flows' words that are there; 0 where a row is free.
    tags: Box<[u16]>,
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
            tags: vec![0; rows].into_boxed_slice(),
            heads: vec![Head::default(); rows].into_boxed_slice(),
            cells: vec![Cell::default(); rows * (hops + 1)].into_boxed_slice(),
            sets: vec![Set::default(); sets].into_boxed_slice(),
            refused: 0,
            evicted: 0,
        }
    }

    #[inline(always)]
    fn set(&self, word: u64) -> usize {
        word as usize & (self.sets.len() - 1)
    }

    #[inline(always)]
    fn tag(word: u64) -> u16 {
        (word >> 48) as u16 | 1
    }

    /// The rows of a flow, by their places.
    #[inline]
    pub(super) fn of_flow(&self, word: u64, key: K) -> impl Iterator<Item = usize> + '_ {
        let (first, tag) = (self.set(word) * WAYS, Self::tag(word));
        (first..first + WAYS)
            .filter(move |&row| self.tags[row] == tag && self.heads[row].key == key)
    }

    /// The row for a packet of a flow and path, in which it is counted; `None` where it finds none.
    /// A row that has to leave is shown to `leaves`.
    #[inline]
    pub(super) fn count(
        &mut self,
        word: u64,
        key: &K,
        path: u16,
        leaves: impl FnOnce(&Head<K>, &[Cell]),
    ) -> Option<usize> {
        let mut siblings = 0;
        let mut found = None;
        for row in self.of_flow(word, *key) {
            if self.heads[row].path == path {
                found = Some(row);
                break;
            }
            siblings += 1;
        }
        if let Some(row) = found {
            if self.heads[row].packets == u32::MAX {
                self.refuse(word, key);
                return None;
            }
            self.heads[row].packets += 1;
            return Some(row);
        }
        self.admit(word, key, path, siblings, leaves)
    }

    fn admit(
        &mut self,
        word: u64,
        key: &K,
        path: u16,
        siblings: usize,
        leaves: impl FnOnce(&Head<K>, &[Cell]),
    ) -> Option<usize> {
        let set = self.set(word);
        let first = set * WAYS;
        let free = (first..first + WAYS).find(|&row| self.tags[row] == 0);
        let is_whole = !self.sets[set].spilled;
        if siblings >= MOST_OF_A_FLOW {
            self.refuse(word, key);
            return None;
        }
        let row = match free {
            Some(row) => row,
            None => {
                self.sets[set].votes += 1;
                let smallest = (first..first + WAYS).min_by_key(|&row| self.heads[row].packets)?;
                let packets = u64::from(self.heads[smallest].packets);
                if self.sets[set].votes <= OUTWEIGH * packets {
                    self.refuse(word, key);
                    return None;
                }
                self.leave(set, smallest, leaves);
                smallest
            }
        };
        let is_whole = is_whole && free.is_some();
        if !is_whole {
            self.break_up(word, key);
        }
        self.tags[row] = Self::tag(word);
        self.heads[row] = Head { key: *key, word, packets: 1, path, is_whole };
        Some(row)
    }

    /// Lets a row leave.
    fn leave(&mut self, set: usize, row: usize, leaves: impl FnOnce(&Head<K>, &[Cell])) {
        let head = self.heads[row];
        leaves(&head, self.cells(row));
        self.cells_mut(row).fill(Cell::default());
        self.tags[row] = 0;
        self.evicted += 1;
        self.sets[set] = Set { votes: 0, spilled: true };
        for other in set * WAYS..(set + 1) * WAYS {
            if self.tags[other] != 0 && self.heads[other].key == head.key {
                self.heads[other].is_whole = false;
            }
        }
    }

    /// Notes that packets of a flow are kept elsewhere.
    pub(super) fn refuse(&mut self, word: u64, key: &K) {
        self.refused += 1;
        let set = self.set(word);
        self.sets[set].spilled = true;
        self.break_up(word, key);
    }

    fn break_up(&mut self, word: u64, key: &K) {
        let (first, tag) = (self.set(word) * WAYS, Self::tag(word));
        for row in first..first + WAYS {
            if self.tags[row] == tag && self.heads[row].key == *key {
                self.heads[row].is_whole = false;
            }
        }
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
        let taken = self.tags.iter().zip(&self.heads).enumerate();
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
        self.tags.fill(0);
        self.cells.fill(Cell::default());
        self.sets.fill(Set::default());
        (self.refused, self.evicted) = (0, 0);
    }
}
