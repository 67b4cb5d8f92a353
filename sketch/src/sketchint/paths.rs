//! The paths that packets came by, each with a number.

use super::bounded::Bounded;
use super::met::Met;
use super::nodes::Sums;
use crate::hash::mixed;

/// Most hops of a path.
pub const MOST_HOPS: usize = 16;

/// Most paths of a window.
pub const MOST_PATHS: usize = u16::MAX as usize;

/// The switches that a stack names, from the source on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path {
    nodes: [u32; MOST_HOPS],
    len: u8,
    /// Whether there may have been more: a switch could not push.
    pub is_partial: bool,
}

impl Path {
    /// The path of these nodes, the first [`MOST_HOPS`] of them; more make it partial.
    #[inline]
    pub fn new(nodes: impl IntoIterator<Item = u32>, is_partial: bool) -> Self {
        let mut path = Self { is_partial, ..Self::default() };
        for node in nodes {
            let Some(place) = path.nodes.get_mut(usize::from(path.len)) else {
                path.is_partial = true;
                break;
            };
            *place = node;
            path.len += 1;
        }
        path
    }

    /// Its nodes.
    #[inline]
    pub fn nodes(&self) -> &[u32] {
        &self.nodes[..usize::from(self.len).min(MOST_HOPS)]
    }

    /// Whether a packet came by it.
    #[inline(always)]
    fn is_of(&self, met: &Met<'_>) -> bool {
        self.len == met.hops && self.is_partial == met.is_partial && self.nodes == *met.places
    }

    fn hash(&self) -> u64 {
        let first = u64::from(self.len) << 1 | u64::from(self.is_partial);
        self.nodes().iter().fold(mixed(first), |hash, &node| mixed(hash ^ u64::from(node)))
    }
}

/// Paths that are found without their hash, at most.
const RECENT: usize = 2048;

/// A few bits of a path, of which those of other paths are likely others: all nodes at once, where
/// [`Path::hash`] goes from one to the next.
#[inline(always)]
fn few_bits(met: &Met<'_>) -> usize {
    const ODD: [u32; MOST_HOPS] = {
        let mut odd = [0x9E37_79B9_u32; MOST_HOPS];
        let mut at = 1;
        while at < MOST_HOPS {
            odd[at] = odd[at - 1].wrapping_mul(5);
            at += 1;
        }
        odd
    };
    let mut sum = u32::from(met.is_partial);
    for at in 0..MOST_HOPS {
        sum = sum.wrapping_add(met.places[at].wrapping_mul(ODD[at]));
    }
    (sum.wrapping_mul(ODD[0]) >> (32 - RECENT.ilog2())) as usize
}

/// What is found out once of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// The number of each of its switches; all bits set of one that is not distinguished.
    pub(super) nodes: [u16; MOST_HOPS],
    /// Switches that are not.
    pub(super) unknown: u8,
    /// Whether no switch is on it twice, nor the sink itself.
    pub(super) is_plain: bool,
}

/// What is kept of a path.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct OfPath {
    /// Latencies at its switches.
    pub(super) sums: Sums,
    /// Its packets.
    pub(super) packets: u64,
    pub(super) ways: Ways,
}

/// The paths of a window, with what is kept of each.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    table: Bounded<Path>,
    of: Vec<OfPath>,
    /// By few bits of a path its number, of the last one that came: the others need no hash.
    recent: Box<[u16; RECENT]>,
}

impl Paths {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            table: Bounded::new(capacity),
            of: Vec::with_capacity(capacity),
            recent: Box::new([0; RECENT]),
        }
    }

    /// The number of the last path that came with the same few bits, 0 where none has.
    #[inline(always)]
    pub(super) fn recent(&self, met: &Met<'_>) -> u16 {
        self.recent[few_bits(met) % RECENT]
    }

    /// The number of the path that a packet came by, from 1 on, which is likely `likely`; `None`
    /// where there is no room for another path. Of a new path `find` says what there is to find
    /// out.
    #[inline(always)]
    pub(super) fn number(
        &mut self,
        met: &Met<'_>,
        likely: u16,
        find: impl FnOnce(&Path) -> Ways,
    ) -> Option<u16> {
        match self.get(likely) {
            Some(path) if path.is_of(met) => Some(likely),
            _ => self.place(met, find),
        }
    }

    #[inline(never)]
    fn place(&mut self, met: &Met<'_>, find: impl FnOnce(&Path) -> Ways) -> Option<u16> {
        let recent = self.recent(met);
        if self.get(recent).is_some_and(|path| path.is_of(met)) {
            return Some(recent);
        }
        let path = Path::new(met.nodes().iter().copied(), met.is_partial);
        let at = self.table.place(path.hash(), &path)?;
        if at == self.of.len() {
            self.of.push(OfPath { sums: Sums::NONE, packets: 0, ways: find(&path) });
        }
        let number = u16::try_from(at + 1).ok()?;
        self.recent[few_bits(met) % RECENT] = number;
        Some(number)
    }

    /// The path with this number.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Path> {
        self.table.get(usize::from(number).checked_sub(1)?)
    }

    /// What is kept of the path with this number.
    #[inline(always)]
    pub(super) fn of_mut(&mut self, number: u16) -> Option<&mut OfPath> {
        self.of.get_mut(usize::from(number).checked_sub(1)?)
    }

    /// What was found out of the path with this number.
    #[inline(always)]
    pub(super) fn ways(&self, number: u16) -> Option<&Ways> {
        self.of.get(usize::from(number).checked_sub(1)?).map(|of| &of.ways)
    }

    /// All paths with what is kept of each, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &OfPath)> {
        self.table.iter().zip(&self.of)
    }

    /// Packets whose path found no room.
    pub(super) fn refused(&self) -> u64 {
        self.table.refused()
    }

    pub(super) fn bytes(&self) -> usize {
        let of_path = size_of::<OfPath>();
        self.table.bytes() + self.of.capacity() * of_path + size_of_val(&*self.recent)
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.of.clear();
        self.recent.fill(0);
    }
}
