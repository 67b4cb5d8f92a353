//! FlowRadar (Li and others, NSDI 2016): a Bloom filter finds new flows, which are encoded once
//! into three cells each; all packets are counted there. Losses are the differences of two decodes.

use std::collections::HashMap;

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};
use crate::{Insert, Memory, WORD};

/// Hash functions of the flow filter, and its share of the memory.
const FILTER_HASHES: u64 = 10;
const FILTER_SHARE: f64 = 0.1;

/// Cells of a flow.
const CELLS: usize = 3;

/// The words of a hash from this on index cells.
const CELL_WORD: u64 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// Exclusive or of the keys of the cell's flows.
    keys: u128,
    flows: u32,
    packets: u32,
}

/// A flow filter and a counting table.
#[derive(Clone, Debug)]
pub struct FlowRadar {
    hash: Hash,
    filter: Vec<u64>,
    filter_bits: usize,
    /// Bytes of a cell on a switch.
    cell: usize,
    cells: Vec<Cell>,
}

impl FlowRadar {
    /// An empty sketch that fills at most `memory`. Upstream and downstream must be alike.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let Memory { bytes, key } = memory.into();
        let cell = key + 2 * WORD;
        let filter_bits = ((bytes as f64 * FILTER_SHARE * 8.0) as usize).max(64);
        let cells = (bytes - bytes.min(filter_bits / 8)) / cell / CELLS;
        Self {
            hash: Hash::new(seed),
            filter: vec![0; filter_bits.div_ceil(64)],
            filter_bits,
            cell,
            cells: vec![Cell::default(); cells.max(1) * CELLS],
        }
    }

    /// Counts `packets` packets of `key`.
    #[inline]
    pub fn insert_many(&mut self, key: &FlowKey, packets: u32) {
        let hashed = self.hash.of(key);
        let new = self.is_new(hashed);
        for at in self.places(hashed) {
            let cell = &mut self.cells[at];
            if new {
                cell.keys ^= u128::from_ne_bytes(*key.padded());
                cell.flows += 1;
            }
            cell.packets = cell.packets.wrapping_add(packets);
        }
    }

    /// All flows and their packets, ascending by key; `None` where not all can be decoded.
    pub fn decode(mut self) -> Option<Vec<(FlowKey, u32)>> {
        let mut flows = Vec::new();
        let mut pure: Vec<usize> =
            (0..self.cells.len()).filter(|&at| self.cells[at].flows == 1).collect();
        while let Some(at) = pure.pop() {
            let Cell { keys, flows: 1, packets } = self.cells[at] else { continue };
            let key = key_of(keys)?;
            let places = self.places(self.hash.of(&key));
            if !places.contains(&at) {
                return None;
            }
            flows.push((key, packets));
            for at in places {
                let cell = &mut self.cells[at];
                cell.keys ^= keys;
                cell.flows = cell.flows.checked_sub(1)?;
                cell.packets = cell.packets.wrapping_sub(packets);
                if cell.flows == 1 {
                    pure.push(at);
                }
            }
        }
        flows.sort_unstable();
        self.cells.iter().all(|cell| *cell == Cell::default()).then_some(flows)
    }

    /// Decodes all nodes of a network together, as the CFS paper has it (section II-A.2): a flow
    /// that comes out of one is taken out of all others whose filters know it, with the packets
    /// that it had there. For each node all its flows and their packets, ascending by key; `None`
    /// where not all can be decoded, as where a flow lost packets on the way or a filter was wrong.
    pub fn decode_network(mut nodes: Vec<Self>) -> Vec<Option<Vec<(FlowKey, u32)>>> {
        let mut decoded: Vec<HashMap<FlowKey, u32>> = vec![HashMap::new(); nodes.len()];
        let pure = |(at, node): (usize, &Self)| {
            let cells = node.cells.iter().enumerate().filter(|(_, cell)| cell.flows == 1);
            cells.map(|(cell, _)| (at, cell)).collect::<Vec<_>>()
        };
        let mut waiting: Vec<(usize, usize)> = nodes.iter().enumerate().flat_map(pure).collect();
        while let Some((at, cell)) = waiting.pop() {
            let Cell { keys, flows: 1, packets } = nodes[at].cells[cell] else { continue };
            let Some(key) = key_of(keys) else { continue };
            if !nodes[at].places(nodes[at].hash.of(&key)).contains(&cell) {
                continue;
            }
            for (other, node) in nodes.iter_mut().enumerate() {
                let knows = other == at || node.knows(node.hash.of(&key));
                if !knows || decoded[other].contains_key(&key) {
                    continue;
                }
                decoded[other].insert(key, packets);
                for place in node.places(node.hash.of(&key)) {
                    let cell = &mut node.cells[place];
                    cell.keys ^= keys;
                    cell.flows = cell.flows.wrapping_sub(1);
                    cell.packets = cell.packets.wrapping_sub(packets);
                    if cell.flows == 1 {
                        waiting.push((other, place));
                    }
                }
            }
        }
        let all = |(node, flows): (Self, HashMap<FlowKey, u32>)| {
            let mut flows: Vec<_> = flows.into_iter().collect();
            flows.sort_unstable();
            node.cells.iter().all(|cell| *cell == Cell::default()).then_some(flows)
        };
        nodes.into_iter().zip(decoded).map(all).collect()
    }

    /// The flows that lost packets between two sketches of the same size and seed, with their
    /// losses, ascending by key; `None` where one of them can't be decoded.
    pub fn lost(upstream: Self, downstream: Self) -> Option<Vec<(FlowKey, u32)>> {
        let (sent, received) = (upstream.decode()?, downstream.decode()?);
        let mut received = received.into_iter().peekable();
        let mut lost = Vec::new();
        for (key, packets) in sent {
            let arrived = received.next_if(|flow| flow.0 == key).map_or(0, |flow| flow.1);
            if arrived != packets {
                lost.push((key, packets.wrapping_sub(arrived)));
            }
        }
        Some(lost)
    }

    /// Whether the flow was seen, as far as the filter knows.
    fn knows(&self, hashed: Hashed) -> bool {
        let mut bits = (0..FILTER_HASHES).map(|number| hashed.index(number, self.filter_bits));
        bits.all(|bit| self.filter[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Whether the flow was not seen before; marks it as seen.
    #[inline]
    fn is_new(&mut self, hashed: Hashed) -> bool {
        let mut seen = true;
        for number in 0..FILTER_HASHES {
            let bit = hashed.index(number, self.filter_bits);
            seen &= self.filter[bit / 64] >> (bit % 64) & 1 == 1;
            self.filter[bit / 64] |= 1 << (bit % 64);
        }
        !seen
    }

    #[inline]
    fn places(&self, hashed: Hashed) -> [usize; CELLS] {
        let width = self.cells.len() / CELLS;
        std::array::from_fn(|cell| cell * width + hashed.index(CELL_WORD + cell as u64, width))
    }
}

/// The key of 16 bytes as they lie in memory; `None` where the padding is none.
pub(crate) fn key_of(bytes: u128) -> Option<FlowKey> {
    let bytes = bytes.to_ne_bytes();
    let (key, padding) = bytes.split_first_chunk::<{ FlowKey::LEN }>()?;
    (padding == [0; 3]).then(|| FlowKey::from_bytes(*key))
}

impl Insert for FlowRadar {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        self.insert_many(key, 1);
    }

    fn bytes(&self) -> usize {
        self.filter_bits / 8 + self.cells.len() * self.cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> FlowKey {
        FlowKey::from_words(number, 1, 2, 6)
    }

    #[test]
    fn what_one_node_decodes_makes_room_at_the_others() {
        // Room for some 50 flows in the first node; the second, much larger, has most of them.
        let node = |bytes, flows: std::ops::Range<u32>| {
            let mut node = FlowRadar::new(bytes, 3);
            flows.for_each(|it| node.insert_many(&flow(it), it + 1));
            node
        };
        let nodes = || [node(2_000, 0..120), node(20_000, 0..100)];
        let [alone, large] = nodes();
        assert_eq!(alone.decode(), None);
        let expected = |flows: std::ops::Range<u32>| {
            let mut flows: Vec<_> = flows.map(|it| (flow(it), it + 1)).collect();
            flows.sort_unstable();
            Some(flows)
        };
        assert_eq!(large.decode(), expected(0..100));
        let both = FlowRadar::decode_network(nodes().into());
        assert_eq!(both, [expected(0..120), expected(0..100)]);
    }

    #[test]
    fn a_node_that_saw_less_of_a_flow_does_not_come_out() {
        let mut nodes = [FlowRadar::new(4_000, 3), FlowRadar::new(4_000, 3)];
        for (packets, node) in [5, 4].into_iter().zip(&mut nodes) {
            (0..10).for_each(|it| node.insert_many(&flow(it), 7));
            node.insert_many(&flow(10), packets);
        }
        let decoded = FlowRadar::decode_network(nodes.into());
        assert_eq!(decoded.iter().filter(|node| node.is_some()).count(), 1);
    }
}
