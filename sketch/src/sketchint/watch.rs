//! What is remarkable about single packets, for who reports these at once.
//!
//! Recording is compiled once with and once without: where nobody asks, nothing is looked at.

use crate::burst::BURST;

/// Receives what is remarkable about packets as they are recorded, each by its number in the burst.
pub trait Watch {
    /// Whether it takes note of anything.
    const NOTES: bool;

    /// A flow of more packets is a heavy hitter.
    fn heavy_packets(&self) -> u32;

    /// A packet's latency at a node, in nanoseconds, is inflated.
    fn inflated(&mut self, packet: usize, node: u32, latency_ns: u32);

    /// A packet is the first of its flow on a whole path, and others have come by another.
    fn new_path(&mut self, packet: usize);

    /// A packet is one of a heavy hitter, whose key has this number among those that are kept.
    fn heavy(&mut self, packet: usize, key: usize);
}

/// Nobody.
impl Watch for () {
    const NOTES: bool = false;

    #[inline(always)]
    fn heavy_packets(&self) -> u32 {
        u32::MAX
    }

    #[inline(always)]
    fn inflated(&mut self, _packet: usize, _node: u32, _latency_ns: u32) {}

    #[inline(always)]
    fn new_path(&mut self, _packet: usize) {}

    #[inline(always)]
    fn heavy(&mut self, _packet: usize, _key: usize) {}
}

/// Notes of a burst, and which heavy hitters there are notes of already.
#[derive(Clone, Debug)]
pub struct Notes {
    heavy_packets: u32,
    /// A bit for each packet, here and below.
    inflated: u32,
    /// Where each one's longest inflated latency was, and how long.
    at_nodes: [(u32, u32); BURST],
    new_paths: u32,
    heavy: u32,
    /// A bit for each key that is kept.
    known: Box<[u64]>,
}

impl Notes {
    /// No notes, of a sink that keeps so many keys. Flows of more than `heavy_packets` packets are
    /// heavy hitters.
    pub fn new(heavy_packets: u32, keys: u16) -> Self {
        let known = vec![0; usize::from(keys).div_ceil(64)].into_boxed_slice();
        let at_nodes = [(0, 0); BURST];
        Self { heavy_packets, inflated: 0, at_nodes, new_paths: 0, heavy: 0, known }
    }

    /// Forgets the burst.
    #[inline]
    pub fn begin(&mut self) {
        (self.inflated, self.new_paths, self.heavy) = (0, 0, 0);
    }

    /// Forgets the window.
    pub fn clear(&mut self) {
        self.begin();
        self.known.fill(0);
    }

    /// Node and latency, in nanoseconds, where a packet's latency is inflated; of several the
    /// longest.
    #[inline]
    pub fn inflation(&self, packet: usize) -> Option<(u32, u32)> {
        (self.inflated >> packet & 1 == 1).then(|| self.at_nodes[packet])
    }

    /// Whether a packet is the first of its flow on a path, and others have come by another.
    #[inline]
    pub fn has_new_path(&self, packet: usize) -> bool {
        self.new_paths >> packet & 1 == 1
    }

    /// Whether with this packet its flow is a heavy hitter.
    #[inline]
    pub fn becomes_heavy(&self, packet: usize) -> bool {
        self.heavy >> packet & 1 == 1
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.known)
    }
}

impl Watch for Notes {
    const NOTES: bool = true;

    #[inline]
    fn heavy_packets(&self) -> u32 {
        self.heavy_packets
    }

    fn inflated(&mut self, packet: usize, node: u32, latency_ns: u32) {
        let Some(of) = self.at_nodes.get_mut(packet) else { return };
        if self.inflated >> packet & 1 == 0 || latency_ns > of.1 {
            *of = (node, latency_ns);
        }
        self.inflated |= 1 << packet;
    }

    fn new_path(&mut self, packet: usize) {
        self.new_paths |= 1 << packet;
    }

    fn heavy(&mut self, packet: usize, key: usize) {
        let Some(known) = self.known.get_mut(key / 64) else { return };
        if *known >> (key % 64) & 1 == 0 {
            *known |= 1 << (key % 64);
            self.heavy |= 1 << packet;
        }
    }
}

/// An inflated latency, and nothing else: node and nanoseconds.
impl Watch for Option<(u32, u32)> {
    const NOTES: bool = true;

    #[inline]
    fn heavy_packets(&self) -> u32 {
        u32::MAX
    }

    fn inflated(&mut self, _packet: usize, node: u32, latency_ns: u32) {
        *self = Some((node, latency_ns));
    }

    fn new_path(&mut self, _packet: usize) {}

    fn heavy(&mut self, _packet: usize, _key: usize) {}
}
