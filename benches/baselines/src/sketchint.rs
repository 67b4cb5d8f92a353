//! What a host keeps by the SketchINT paper (section V): a tower over all packets with a table of
//! heavy hitters; for each switch that a packet came by, latency and packets of the flow there,
//! with a table of inflated latencies; and a tower with a table of large flows' paths.
//!
//! Where the paper hashes for every array anew, one hash of a key serves all arrays here.

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};

/// Most switches of a path that a table keeps.
const MOST_HOPS: usize = 8;

/// Entries of each table.
const ENTRIES: usize = 1024;

/// Bits of the counters over all packets, by array.
const LOCAL: [u32; 5] = [2, 4, 8, 16, 32];

/// The same by switch.
const GLOBAL: [u32; 3] = [8, 16, 32];

/// Above how many packets a flow is a heavy hitter, at the host and at a switch, and above how many
/// times the mean a latency is inflated.
const HEAVY: u32 = 500;
const HEAVY_AT_SWITCH: u32 = 1500;
const INFLATION: u64 = 5;

/// An array of packed counters.
#[derive(Clone, Debug)]
struct Counters {
    bits: u32,
    len: usize,
    words: Vec<u32>,
}

impl Counters {
    fn new(bits: u32, bytes: usize) -> Self {
        let words = (bytes / 4).max(1);
        Self { bits, len: words * (32 / bits) as usize, words: vec![0; words] }
    }

    /// Counts a packet; gives the counter, `u32::MAX` where it is full.
    #[inline]
    fn add(&mut self, at: usize) -> u32 {
        let (most, bit) = (u32::MAX >> (32 - self.bits), at * self.bits as usize);
        let (word, shift) = (&mut self.words[bit / 32], bit % 32);
        let before = *word >> shift & most;
        if before == most {
            return u32::MAX;
        }
        *word += 1 << shift;
        if before + 1 == most { u32::MAX } else { before + 1 }
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        let (most, bit) = (u32::MAX >> (32 - self.bits), at * self.bits as usize);
        let counter = self.words[bit / 32] >> (bit % 32) & most;
        if counter == most { u32::MAX } else { counter }
    }
}

/// Arrays of counters of rising width, each of as many bytes; a packet counts in all of them.
#[derive(Clone, Debug)]
struct Tower(Vec<Counters>);

impl Tower {
    fn new(widths: &[u32], bytes: usize) -> Self {
        Self(widths.iter().map(|&bits| Counters::new(bits, bytes / widths.len())).collect())
    }

    #[inline]
    fn insert(&mut self, hashed: Hashed) -> u32 {
        let arrays = (0..).zip(&mut self.0);
        arrays.fold(u32::MAX, |least, (number, array)| {
            least.min(array.add(hashed.index(number, array.len)))
        })
    }

    fn query(&self, hashed: Hashed) -> u32 {
        let arrays = (0..).zip(&self.0);
        arrays
            .map(|(number, array)| array.get(hashed.index(number, array.len)))
            .fold(u32::MAX, u32::min)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|array| array.words.len() * 4).sum()
    }
}

/// Sum of latencies and number of packets, by flow and switch, in arrays of which each has half as
/// many buckets as the one before.
#[derive(Clone, Debug)]
struct Latencies([Vec<[u32; 2]>; GLOBAL.len()]);

impl Latencies {
    fn new(bytes: usize) -> Self {
        let narrowest = bytes / 8 * 4 / 7;
        Self(std::array::from_fn(|array| vec![[0; 2]; (narrowest >> array).max(1)]))
    }

    /// Adds a packet; gives the least sum and the least number of packets.
    #[inline]
    fn insert(&mut self, hashed: Hashed, latency: u32) -> [u32; 2] {
        let mut least = [u32::MAX; 2];
        for (number, (array, bits)) in (0..).zip(self.0.iter_mut().zip(GLOBAL)) {
            let at = hashed.index(number, array.len());
            let [sum, packets] = &mut array[at];
            *sum = sum.saturating_add(latency);
            *packets = packets.saturating_add(1).min(u32::MAX >> (32 - bits));
            let full = *packets == u32::MAX >> (32 - bits);
            least = [least[0].min(*sum), if full { least[1] } else { least[1].min(*packets) }];
        }
        least
    }

    fn query(&self, hashed: Hashed) -> [u32; 2] {
        let mut least = [u32::MAX; 2];
        for (number, (array, bits)) in (0..).zip(self.0.iter().zip(GLOBAL)) {
            let [sum, packets] = array[hashed.index(number, array.len())];
            let full = packets == u32::MAX >> (32 - bits);
            least = [least[0].min(sum), if full { least[1] } else { least[1].min(packets) }];
        }
        least
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|array| array.len() * 8).sum()
    }
}

/// Things that were put in once, as many as there is room for.
#[derive(Clone, Debug)]
struct Table<T> {
    places: Vec<Option<T>>,
    len: usize,
}

impl<T: Copy> Table<T> {
    fn new() -> Self {
        Self { places: vec![None; 2 * ENTRIES], len: 0 }
    }

    /// Puts a thing in, unless one that is the `same` is there.
    #[inline]
    fn insert(&mut self, hashed: Hashed, thing: T, same: impl Fn(&T) -> bool) {
        let mut at = hashed.whole() as usize % self.places.len();
        while let Some(there) = &self.places[at] {
            if same(there) {
                return;
            }
            at = (at + 1) % self.places.len();
        }
        if self.len < ENTRIES {
            self.places[at] = Some(thing);
            self.len += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

/// The sketches and tables of a host.
#[derive(Clone, Debug)]
pub struct SketchIntHost {
    hash: Hash,
    local: Tower,
    hitters: Table<FlowKey>,
    latencies: Latencies,
    inflated: Table<(FlowKey, u32)>,
    global: Tower,
    paths: Table<(FlowKey, [u32; MOST_HOPS])>,
}

impl SketchIntHost {
    /// Empty sketches of so many bytes together, a tenth of them for each of the two towers of
    /// packets. The tables come on top.
    pub fn new(bytes: usize, seed: u64) -> Self {
        Self {
            hash: Hash::new(seed),
            local: Tower::new(&LOCAL, bytes / 10),
            hitters: Table::new(),
            latencies: Latencies::new(bytes / 10 * 8),
            inflated: Table::new(),
            global: Tower::new(&GLOBAL, bytes / 10),
            paths: Table::new(),
        }
    }

    /// Bytes of the sketches.
    pub fn bytes(&self) -> usize {
        self.local.bytes() + self.latencies.bytes() + self.global.bytes()
    }

    #[inline]
    fn at_switch(&self, flow: Hashed, node: u32) -> Hashed {
        self.hash.of_words(u128::from(node) << 64 | u128::from(flow.whole()))
    }

    /// Counts a packet that came by these switches, with these latencies there in units of the
    /// user's.
    #[inline]
    pub fn insert(&mut self, key: &FlowKey, nodes: &[u32], latencies: &[u32]) {
        let flow = self.hash.of(key);
        if self.local.insert(flow) > HEAVY {
            self.hitters.insert(flow, *key, |there| there == key);
        }
        for (&node, &latency) in nodes.iter().zip(latencies) {
            let pair = self.at_switch(flow, node);
            let [sum, packets] = self.latencies.insert(pair, latency);
            if u64::from(latency) * u64::from(packets) > INFLATION * u64::from(sum) {
                self.inflated.insert(pair, (*key, node), |there| *there == (*key, node));
            }
        }
        if self.global.insert(flow) > HEAVY_AT_SWITCH {
            let mut path = [0; MOST_HOPS];
            path.iter_mut().zip(nodes).for_each(|(place, &node)| *place = node);
            self.paths.insert(flow, (*key, path), |(there, _)| there == key);
        }
    }

    /// Packets of a flow, never fewer than there were; `u32::MAX` where nobody knows.
    pub fn packets(&self, key: &FlowKey) -> u32 {
        self.local.query(self.hash.of(key))
    }

    /// The sum of a flow's latencies at a switch and its packets there, neither below the truth.
    pub fn latency(&self, key: &FlowKey, node: u32) -> [u32; 2] {
        self.latencies.query(self.at_switch(self.hash.of(key), node))
    }

    /// Flows with many packets.
    pub fn hitters(&self) -> impl Iterator<Item = &FlowKey> {
        self.hitters.iter()
    }

    /// Flows with many packets at the switches of their path, and how many flows have inflated
    /// latencies at a switch.
    pub fn large(&self) -> (impl Iterator<Item = &FlowKey>, usize) {
        (self.paths.iter().map(|(key, _)| key), self.inflated.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn nothing_is_below_the_truth_and_with_room_all_is_right() {
        for (bytes, has_room) in [(4 << 20, true), (4_000, false)] {
            let mut host = SketchIntHost::new(bytes, 7);
            assert!(host.bytes() <= bytes);
            let mut truth: HashMap<(u32, u32), [u32; 2]> = HashMap::new();
            let mut inflated = HashSet::new();
            let key = |flow: u32| FlowKey::from_words(0x0A00_0000 + flow, 1, 2, 6);
            for packet in 0..20_000_u32 {
                // Flow 0 has half of the packets.
                let flow = if packet % 2 == 0 { 0 } else { packet % 97 };
                let nodes = [1 + flow % 3, 9];
                // One packet in a thousand waits long.
                let latencies = [10 + packet % 7, if packet % 1000 == 999 { 900 } else { 20 }];
                host.insert(&key(flow), &nodes, &latencies);
                for (node, latency) in nodes.into_iter().zip(latencies) {
                    let [sum, packets] = truth.entry((flow, node)).or_default();
                    (*sum, *packets) = (*sum + latency, *packets + 1);
                    if latency * *packets > 5 * *sum {
                        inflated.insert((flow, node));
                    }
                }
            }
            let mut wrong = 0;
            for (&(flow, node), &[sum, packets]) in &truth {
                let [at_most, of] = host.latency(&key(flow), node);
                assert!(at_most >= sum && of >= packets && host.packets(&key(flow)) >= packets);
                wrong += u32::from([at_most, of] != [sum, packets]);
            }
            assert_eq!(wrong == 0, has_room, "{wrong}");
            if has_room {
                assert_eq!(host.hitters().copied().collect::<Vec<_>>(), [key(0)]);
                let (large, found) = host.large();
                assert!(large.eq(&[key(0)]) && inflated.len() > 5);
                assert_eq!(found, inflated.len());
            }
        }
    }
}
