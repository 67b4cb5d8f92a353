//! Rows: a flow's packets on one path, with what they met at each hop.
//!
//! A flow's word chooses a set of [`WAYS`] rows. A flow and path that finds its set full gives the
//! set a vote; with so many votes that it outweighs the smallest row, it takes that row's place
//! (after Elastic Sketch; Yang and others, SIGCOMM 2018). A flow with a [claim](Claims) needs no
//! votes against small flows without one, and is not outvoted as one of them would be. What a row
//! held that had to leave, and packets without a row, are their user's to keep elsewhere. A flow is
//! *whole* as long as none of its packets were anywhere but in rows: a set that never was full has
//! only whole flows.

use std::sync::Arc;

use super::cells::{Cell, Cells};
use super::claims::Claims;
use super::detail::Detail;
use super::quarters::Quarters;
use super::tags::{Sets, Tags, tag};
use crate::burst::ones;
use crate::simd::{Isa, Scalar};

/// Rows of a set.
pub const WAYS: usize = 8;

/// Most rows of a flow: paths that are distinguished.
pub(super) const MOST_OF_A_FLOW: usize = 4;

/// Votes for each packet of the smallest row that outweigh it.
const OUTWEIGH: u64 = 8;

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
    /// No row counts for fewer packets, as long as none is free and no claim is taken back: rows
    /// only grow.
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
    /// No rows.
    pub(super) const NONE: Self = Self { first: 0, ways: 0 };

    /// How many there are.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.ways.count_ones() as usize
    }

    /// Whether there is one beside the row in this place of the set.
    #[inline(always)]
    pub(super) fn has_other(self, row: usize) -> bool {
        self.ways & !1_u32.wrapping_shl(row.wrapping_sub(self.first) as u32) != 0
    }

    /// Their places.
    #[inline(always)]
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        ones(self.ways).map(move |way| self.first + way)
    }

    /// The place of the only one.
    #[inline(always)]
    pub(super) fn only(self) -> Option<usize> {
        (self.ways & self.ways.wrapping_sub(1) == 0).then_some(())?;
        self.first()
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
    /// Whether rows have a cell of the sink itself.
    has_own: bool,
    /// For each set bits of the flows' words that are there; 0 where a row is free.
    tags: Box<[Tags]>,
    heads: Box<[Head<K>]>,
    /// For each row its hops' cells, and behind them that of the sink itself.
    cells: Cells,
    sets: Box<[Set]>,
    /// How a word chooses one.
    by: Sets,
    detail: Detail,
    /// Who has claims, and how many packets a row of theirs counts for at least.
    claims: Option<(Arc<Claims>, u32)>,
    refused: u64,
    evicted: u64,
    /// How often a row has come or gone.
    changes: u64,
}

impl<K: Copy + Default + PartialEq> Rows<K> {
    /// An empty table of `sets` sets of rows of up to `hops` hops, and where `has_own` the sink
    /// itself.
    pub fn new(sets: usize, hops: usize, has_own: bool) -> Self {
        let sets = sets.max(1);
        let rows = sets * WAYS;
        let width = hops + usize::from(has_own);
        Self {
            hops,
            has_own,
            tags: vec![Tags::NONE; sets].into_boxed_slice(),
            heads: vec![Head::default(); rows].into_boxed_slice(),
            cells: Cells::new(rows, width),
            sets: vec![Set::default(); sets].into_boxed_slice(),
            by: Sets::new(sets),
            detail: Detail::none(),
            claims: None,
            refused: 0,
            evicted: 0,
            changes: 0,
        }
    }

    /// The same, with memory for the latencies of so many rows, by size: see [`Quarters`]. As long
    /// as there is room each row has some from its first packet on; later, rows that grow take that
    /// of small ones.
    #[must_use]
    pub fn with_quantiles(self, of: u16) -> Self {
        let detail = Detail::new(of, self.heads.len(), self.hops + 1);
        Self { detail, ..self }
    }

    /// The same, with these claims: a flow with one takes the row of one without that has fewer
    /// than `packets` packets, and its own counts for as many.
    #[must_use]
    pub fn with_claims(self, claims: Arc<Claims>, packets: u32) -> Self {
        Self { claims: Some((claims, packets)), ..self }
    }

    #[inline(always)]
    fn set(&self, word: u64) -> usize {
        self.by.of(word)
    }

    /// The rows of a flow.
    #[inline(always)]
    pub(super) fn of_flow(&self, isa: impl Isa, word: u64, key: &K) -> Matches {
        self.of_key(self.tagged(isa, word), key)
    }

    /// The rows of a flow, and of others that look alike.
    #[inline(always)]
    pub(super) fn tagged(&self, isa: impl Isa, word: u64) -> Matches {
        let set = self.set(word);
        Matches { first: set * WAYS, ways: self.tags[set].equal(isa, tag(word)) }
    }

    /// Those of rows that look alike which are a flow's.
    #[inline(always)]
    pub(super) fn of_key(&self, alike: Matches, key: &K) -> Matches {
        let Matches { first, mut ways } = alike;
        for way in ones(alike.ways) {
            if self.heads[first + way].key != *key {
                ways &= !(1 << way);
            }
        }
        Matches { first, ways }
    }

    /// Asks for the lines of a row.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, row: usize) {
        isa.prefetch(&self.heads, row);
        self.cells.prefetch(isa, row);
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
        leaves: impl FnOnce(&Head<K>, &Cells, usize),
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
        leaves: impl FnOnce(&Head<K>, &Cells, usize),
    ) -> Option<usize> {
        let set = self.set(word);
        let first = set * WAYS;
        let free = self.tags[set].equal(Scalar, 0);
        let is_whole = !self.sets[set].spilled;
        if of_flow.len() >= MOST_OF_A_FLOW {
            self.refuse_of(set, of_flow);
            return None;
        }
        let row = match free {
            0 => {
                let Some(row) = self.claimed(set, word).or_else(|| self.outvoted(set)) else {
                    self.refuse_of(set, of_flow);
                    return None;
                };
                self.leave(set, row, leaves);
                row
            }
            free => first + free.trailing_zeros() as usize,
        };
        let is_whole = is_whole && free != 0;
        if !is_whole {
            self.break_up(of_flow);
        }
        self.changes += 1;
        self.tags[set].set(row - first, tag(word));
        self.heads[row] = Head { key: *key, word, packets: 1, path, is_whole, is_kept: false };
        Some(row)
    }

    /// The row of a full set that a flow may take by its claim; `None` where it has none, or where
    /// all that have none are large.
    fn claimed(&self, set: usize, word: u64) -> Option<usize> {
        let (claims, packets) = self.claims.as_ref().filter(|(claims, _)| claims.has(word))?;
        let others = (set * WAYS..(set + 1) * WAYS).zip(&self.heads[set * WAYS..]);
        let others = others.filter(|(_, head)| !claims.has(head.word));
        let (row, least) = others.min_by_key(|(_, head)| head.packets)?;
        (least.packets < *packets).then_some(row)
    }

    /// Gives a full set a vote; the row that has to leave for that.
    fn outvoted(&mut self, set: usize) -> Option<usize> {
        let of = &mut self.sets[set];
        of.votes += 1;
        if of.votes <= OUTWEIGH * u64::from(of.least) {
            return None;
        }
        let counts_for = |row: usize| {
            let head = &self.heads[row];
            let claim = self.claims.as_ref().filter(|(claims, _)| claims.has(head.word));
            head.packets.max(claim.map_or(0, |(_, packets)| *packets))
        };
        let rows = (set * WAYS..(set + 1) * WAYS).map(|row| (counts_for(row), row));
        let (least, row) = rows.min()?;
        self.sets[set].least = least;
        (self.sets[set].votes > OUTWEIGH * u64::from(least)).then_some(row)
    }

    /// Lets a row leave.
    fn leave(&mut self, set: usize, row: usize, leaves: impl FnOnce(&Head<K>, &Cells, usize)) {
        let head = self.heads[row];
        leaves(&head, &self.cells, row);
        self.cells.empty(row);
        self.detail.release(row);
        self.tags[set].set(row % WAYS, 0);
        self.evicted += 1;
        self.sets[set] = Set { votes: 0, least: 0, spilled: true };
        self.break_up(self.of_flow(Scalar, head.word, &head.key));
    }

    /// A number that is another one once [rows of a flow](Self::of_flow) may be others.
    #[inline(always)]
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that packets of a flow are kept elsewhere.
    #[inline]
    pub(super) fn refuse(&mut self, word: u64, key: &K) {
        self.refuse_of(self.set(word), self.of_flow(Scalar, word, key));
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

    /// What packets of rows met: each at its hops, and behind them at the sink itself where rows
    /// have that.
    #[inline(always)]
    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    #[inline(always)]
    pub(super) fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    /// What a row's packets met at the sink itself.
    pub(super) fn own(&self, row: usize) -> Cell {
        if self.has_own { self.cells.last(row) } else { Cell::default() }
    }

    /// Its hops' latencies by size, and behind them the sink's own, to count one of its packets;
    /// `None` where the row has no room for that.
    #[inline(always)]
    pub(super) fn quarters_mut(&mut self, row: usize) -> Option<&mut [Quarters]> {
        let Self { detail, heads, .. } = self;
        detail.of_mut(row, heads[row].packets, |row| heads[row].packets)
    }

    /// Whether any row has its latencies counted by size.
    #[inline]
    pub(super) fn counts_by_size(&self) -> bool {
        self.detail.bytes() > 0
    }

    /// What was counted so; nothing where it had no room.
    pub(super) fn quarters(&self, row: usize) -> &[Quarters] {
        self.detail.of(row)
    }

    /// All rows that are taken, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Head<K>)> {
        let taken = self.tags.iter().flat_map(|tags| tags.iter()).zip(&self.heads).enumerate();
        taken.filter(|(_, (tag, _))| *tag != 0).map(|(row, (_, head))| (row, head))
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
            + self.cells.bytes()
            + size_of_val(&*self.sets)
            + self.detail.bytes()
            + self.claims.as_ref().map_or(0, |_| Claims::bytes(self.sets.len()))
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.tags.fill(Tags::NONE);
        self.cells.clear();
        self.sets.fill(Set::default());
        self.detail.clear();
        (self.refused, self.evicted) = (0, 0);
    }
}
