//! The paths that packets came by, each with a number.

use super::bounded::Bounded;
use super::met::Met;
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
        usize::from(self.len) == met.latencies.len()
            && self.is_partial == met.is_partial
            && self.nodes == *met.places
    }

    fn hash(&self) -> u64 {
        let first = u64::from(self.len) << 1 | u64::from(self.is_partial);
        self.nodes().iter().fold(mixed(first), |hash, &node| mixed(hash ^ u64::from(node)))
    }
}

/// Paths that are found without their hash.
const RECENT: usize = 256;

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
    let products = met.places.iter().zip(ODD).map(|(node, odd)| node.wrapping_mul(odd));
    let sum = products.fold(u32::from(met.is_partial), u32::wrapping_add);
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

/// The paths of a window, with the packets that came by each.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    table: Bounded<Path>,
    packets: Vec<u64>,
    ways: Vec<Ways>,
    /// The number of a path by its few bits, the last one that came: the others need no hash.
    recent: Box<[u16; RECENT]>,
}

impl Paths {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            table: Bounded::new(capacity),
            packets: Vec::with_capacity(capacity),
            ways: Vec::with_capacity(capacity),
            recent: Box::new([0; RECENT]),
        }
    }

    /// Counts a packet of the path that it came by and gives the path's number, from 1 on; `None`
    /// where there is no room for another path. Of a new path `find` says what there is to find
    /// out.
    #[inline(always)]
    pub(super) fn count(&mut self, met: &Met<'_>, find: impl FnOnce(&Path) -> Ways) -> Option<u16> {
        let bits = few_bits(met);
        let recent = usize::from(self.recent[bits]);
        let at = match self.table.get(recent) {
            Some(path) if path.is_of(met) => recent,
            _ => self.place(met, bits, find)?,
        };
        *self.packets.get_mut(at)? += 1;
        u16::try_from(at + 1).ok()
    }

    #[inline(never)]
    fn place(
        &mut self,
        met: &Met<'_>,
        bits: usize,
        find: impl FnOnce(&Path) -> Ways,
    ) -> Option<usize> {
        let path = Path::new(met.nodes().iter().copied(), met.is_partial);
        let at = self.table.place(path.hash(), &path)?;
        if at == self.packets.len() {
            self.packets.push(0);
            self.ways.push(find(&path));
        }
        self.recent[bits] = at as u16;
        Some(at)
    }

    /// The path with this number.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Path> {
        self.table.get(usize::from(number).checked_sub(1)?)
    }

    /// What was found out of the path with this number.
    #[inline(always)]
    pub(super) fn ways(&self, number: u16) -> Option<&Ways> {
        self.ways.get(usize::from(number).checked_sub(1)?)
    }

    /// All paths with their packets, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.table.iter().zip(self.packets.iter().copied())
    }

    /// Packets whose path found no room.
    pub(super) fn refused(&self) -> u64 {
        self.table.refused()
    }

    pub(super) fn bytes(&self) -> usize {
        let of_path = size_of::<u64>() + size_of::<Ways>();
        self.table.bytes() + self.packets.capacity() * of_path + size_of_val(&*self.recent)
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.packets.clear();
        self.ways.clear();
    }
}
