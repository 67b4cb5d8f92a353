//! Counting flows as programs on DPDK do: by its hash table (`rte_hash`), and an array of counts.

use std::sync::atomic::{AtomicU32, Ordering};

use calumma_sketch::{BURST, FlowKey};
use dpdk::{Eal, HashTable, Result, Words, prefetch};

/// Bytes of each packet.
const BYTES: u64 = 64;

/// Bytes of a key: keys are padded, since the library compares 16 bytes faster than 13.
const KEY: usize = 16;

/// Counts packets and bytes of the flows that come first, as many as there is room for.
///
/// Keys are looked up a burst at a time, and the place that the library gives for one is where its
/// counts are. A key that is not found is put in, until the library refuses one for the first time.
#[derive(Debug)]
pub struct RteHash {
    table: HashTable<KEY>,
    /// Packets and bytes, place by place.
    counts: Words,
    /// Flows that are counted, which is the next one's place.
    flows: usize,
    most: usize,
    is_full: bool,
}

impl RteHash {
    /// An empty one with room for so many flows, if the library's table takes them all.
    ///
    /// # Errors
    /// When the EAL has not as much memory.
    pub fn new(eal: &Eal, flows: u32) -> Result<Self> {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        let name = format!("flows{}", TABLES.fetch_add(1, Ordering::Relaxed));
        let most = flows as usize;
        let (table, counts) = (HashTable::new(eal, &name, flows)?, Words::new(eal, 2 * most)?);
        Ok(Self { table, counts, flows: 0, most, is_full: false })
    }

    /// Counts packets of these flows, at most [`BURST`].
    ///
    /// # Panics
    /// When there are more.
    #[inline]
    pub fn record_burst(&mut self, keys: &[FlowKey]) {
        const NONE: &[u8; KEY] = &[0; KEY];
        let mut padded = [NONE; BURST];
        let padded = &mut padded[..keys.len()];
        padded.iter_mut().zip(keys).for_each(|(padded, key)| *padded = key.padded());
        let mut places = [0; BURST];
        let found = self.table.lookup_burst(padded, &mut places);
        let is_found = |packet: usize| found >> packet & 1 == 1;
        for (packet, &place) in places[..keys.len()].iter().enumerate() {
            if is_found(packet) {
                prefetch(&self.counts[2 * place]);
            }
        }
        let before = self.flows;
        for (packet, key) in padded.iter().enumerate() {
            let place = if is_found(packet) {
                places[packet]
            } else if let Some(place) = self.place_of_new(key, before) {
                place
            } else {
                continue;
            };
            self.counts[2 * place] += 1;
            self.counts[2 * place + 1] += BYTES;
        }
    }

    /// The place of a flow that the table did not have while it had only `before` flows.
    #[inline]
    fn place_of_new(&mut self, key: &[u8; KEY], before: usize) -> Option<usize> {
        if self.flows > before
            && let Some(place) = self.table.lookup(key)
        {
            return Some(place);
        }
        if self.is_full {
            return None;
        }
        self.is_full = self.flows == self.most || self.table.insert(key, self.flows).is_err();
        if self.is_full {
            return None;
        }
        self.flows += 1;
        Some(self.flows - 1)
    }

    /// Packets and bytes of a flow that is counted.
    pub fn get(&self, key: &FlowKey) -> Option<[u64; 2]> {
        let place = self.table.lookup(key.padded())?;
        Some([self.counts[2 * place], self.counts[2 * place + 1]])
    }

    /// Flows that are counted.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.table.clear();
        self.counts.fill(0);
        (self.flows, self.is_full) = (0, false);
    }
}
