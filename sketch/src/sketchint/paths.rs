//! The paths that packets came by, each with a number.

use super::bounded::Bounded;
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
            match path.nodes.get_mut(usize::from(path.len)) {
                Some(place) => {
                    *place = node;
                    path.len += 1;
                }
                None => path.is_partial = true,
            }
        }
        path
    }

    /// Its nodes.
    #[inline]
    pub fn nodes(&self) -> &[u32] {
        &self.nodes[..usize::from(self.len).min(MOST_HOPS)]
    }

    fn hash(&self) -> u64 {
        let first = u64::from(self.len) << 1 | u64::from(self.is_partial);
        self.nodes().iter().fold(mixed(first), |hash, &node| mixed(hash ^ u64::from(node)))
    }
}

/// The paths of a window, with the packets that came by each.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    table: Bounded<Path>,
    packets: Vec<u64>,
    /// The path that came last: packets in a row often have the same.
    last: usize,
}

impl Paths {
    pub(super) fn new(capacity: usize) -> Self {
        Self { table: Bounded::new(capacity), packets: Vec::with_capacity(capacity), last: 0 }
    }

    /// Counts a packet of a path and gives the path's number, from 1 on; `None` where there is no
    /// room for another path.
    #[inline]
    pub(super) fn count(&mut self, path: &Path) -> Option<u16> {
        if self.table.get(self.last) != Some(path) {
            self.last = self.table.place(path.hash(), path)?;
        }
        if self.last == self.packets.len() {
            self.packets.push(0);
        }
        *self.packets.get_mut(self.last)? += 1;
        u16::try_from(self.last + 1).ok()
    }

    /// The path with this number.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Path> {
        self.table.get(usize::from(number).checked_sub(1)?)
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
        self.table.bytes() + self.packets.capacity() * size_of::<u64>()
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.packets.clear();
        self.last = 0;
    }
}
