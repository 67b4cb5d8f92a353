//! LossRadar (Li and others, CoNEXT 2016): every packet, identified within its flow by its
//! number, goes into three cells of an invertible Bloom filter; what two filters differ by was
//! lost.

use std::collections::BTreeMap;

use calumma_sketch::FlowKey;

use crate::flow_radar::key_of;
use crate::hash::{Hash, Hashed};
use crate::{Memory, WORD};

/// Cells of a packet.
const CELLS: usize = 3;

/// Bytes of a packet's number in its flow.
const NUMBER: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// Exclusive or of the packets, each its flow's key with the packet's number in the padding.
    packets: u128,
    count: i32,
}

/// An invertible Bloom filter of packets.
#[derive(Clone, Debug)]
pub struct LossRadar {
    hash: Hash,
    /// Bytes of a cell on a switch.
    cell: usize,
    cells: Vec<Cell>,
}

impl LossRadar {
    /// An empty sketch that fills at most `memory`. Upstream and downstream must be alike.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let cell = key + NUMBER + WORD;
        let width = (bytes / CELLS / cell).max(1);
        Self { hash: Hash::new(seed), cell, cells: vec![Cell::default(); width * CELLS] }
    }

    /// Memory that the sketch fills on a switch, in bytes.
    pub fn bytes(&self) -> usize {
        self.cells.len() * self.cell
    }

    /// Records the packet of `key` that is number `number` of its flow.
    #[inline]
    pub fn insert(&mut self, key: &FlowKey, number: u16) {
        let packet = packet(key, number);
        for at in self.places(self.hash_of(packet)) {
            self.cells[at].packets ^= packet;
            self.cells[at].count += 1;
        }
    }

    /// Takes out what another sketch of the same size and seed has recorded.
    ///
    /// # Panics
    /// When the sizes differ.
    pub fn subtract(&mut self, other: &Self) {
        assert_eq!(self.cells.len(), other.cells.len(), "sketches of the same size");
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.packets ^= theirs.packets;
            mine.count -= theirs.count;
        }
    }

    /// The flows of all packets recorded and how many each has, ascending by key; `None` where not
    /// all can be decoded.
    pub fn decode(mut self) -> Option<Vec<(FlowKey, u32)>> {
        let mut flows: BTreeMap<FlowKey, u32> = BTreeMap::new();
        let mut pure: Vec<usize> =
            (0..self.cells.len()).filter(|&at| self.cells[at].count == 1).collect();
        while let Some(at) = pure.pop() {
            let Cell { packets, count: 1 } = self.cells[at] else { continue };
            let places = self.places(self.hash_of(packets));
            if !places.contains(&at) {
                return None;
            }
            *flows.entry(key_of(packets & !NUMBER_MASK)?).or_default() += 1;
            for at in places {
                let cell = &mut self.cells[at];
                cell.packets ^= packets;
                cell.count -= 1;
                if cell.count == 1 {
                    pure.push(at);
                }
            }
        }
        let empty = self.cells.iter().all(|cell| *cell == Cell::default());
        empty.then(|| flows.into_iter().collect())
    }

    #[inline]
    fn hash_of(&self, packet: u128) -> Hashed {
        self.hash.of_words(packet)
    }

    #[inline]
    fn places(&self, hashed: Hashed) -> [usize; CELLS] {
        let width = self.cells.len() / CELLS;
        std::array::from_fn(|cell| cell * width + hashed.index(cell as u64, width))
    }
}

/// Where a packet's number lies: the two bytes after the key.
const NUMBER_MASK: u128 = {
    let mut bytes = [0; 16];
    (bytes[FlowKey::LEN], bytes[FlowKey::LEN + 1]) = (0xFF, 0xFF);
    u128::from_ne_bytes(bytes)
};

#[inline]
fn packet(key: &FlowKey, number: u16) -> u128 {
    let mut bytes = *key.padded();
    [bytes[FlowKey::LEN], bytes[FlowKey::LEN + 1]] = number.to_be_bytes();
    u128::from_ne_bytes(bytes)
}
