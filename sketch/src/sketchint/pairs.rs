//! Pair towers: latency and packets of a flow at a switch (section V-B of the paper).
//!
//! Both counters of a bucket are keyed by S||f. (The authors' program keys the packets by the flow
//! alone, which is wrong as soon as a flow's path changes.)

use serde::{Deserialize, Serialize};

use super::met::Met;
use super::pair_words;
use super::paths::MOST_HOPS;
use crate::part::Part;
use crate::simd::Isa;

/// One array of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PairLevel {
    /// Bits of a latency counter, 1 to 32.
    pub latency_bits: u8,
    /// Bits of a counter of packets, 1 to 32.
    pub packet_bits: u8,
    /// Buckets, 1 to 2^26.
    pub buckets: u32,
}

impl PairLevel {
    const fn most(bits: u8) -> u32 {
        u32::MAX >> (32 - bits as u32)
    }

    /// Bytes of the array as its counters' widths have it.
    pub const fn bytes(&self) -> usize {
        (self.buckets as usize * (self.latency_bits as usize + self.packet_bits as usize))
            .div_ceil(8)
    }
}

/// What pair towers say of a flow at a switch: never less than the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sum of its latencies is at most so many units; `None` where all counters are full.
    pub latency: Option<u32>,
    /// It had at most so many packets there; `None` likewise.
    pub packets: Option<u32>,
}

/// What pair towers had of a flow at the hops of a packet before it: all bits set where all
/// counters are full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<const MOST: usize> {
    /// The sum of its latencies, in units.
    pub(super) latency: [u32; MOST],
    /// Its packets; 0 behind the last hop.
    pub(super) packets: [u32; MOST],
}

impl<const MOST: usize> Before<MOST> {
    /// What full counters say of so many hops.
    #[inline(always)]
    fn unknown(hops: usize) -> Self {
        let mut before = Self { latency: [u32::MAX; MOST], packets: [0; MOST] };
        for hop in 0..MOST {
            before.packets[hop] = if hop < hops { u32::MAX } else { 0 };
        }
        before
    }

    /// Lowers it at a hop to what a bucket has there, whose counters are full at `most`.
    #[inline(always)]
    fn lower(&mut self, hop: usize, [sum, packets]: [u32; 2], most: [u32; 2]) {
        let sum = if sum == most[0] { u32::MAX } else { sum };
        let packets = if packets == most[1] { u32::MAX } else { packets };
        self.latency[hop] = self.latency[hop].min(sum);
        self.packets[hop] = self.packets[hop].min(packets);
    }

    /// What they had at one.
    #[inline(always)]
    pub(super) fn pair(&self, hop: usize) -> Pair {
        let known = |counter| Some(counter).filter(|&it| it != u32::MAX);
        Pair { latency: known(self.latency[hop]), packets: known(self.packets[hop]) }
    }
}

/// A bucket to which a packet is added, whose counters are full at `most`.
#[inline(always)]
fn raised([sum, packets]: [u32; 2], latency: u32, most: [u32; 2]) -> [u32; 2] {
    [sum.saturating_add(latency).min(most[0]), packets.saturating_add(1).min(most[1])]
}

/// Arrays of buckets. A counter at its maximum is full and stands for infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    levels: [Level; Self::LEVELS],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    shape: PairLevel,
    part: Part,
    buckets: Buckets,
}

/// Latency and packets in each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Buckets {
    /// Of 32 bits together, the latency in the lowest ones.
    Narrow(Box<[u32]>),
    Wide(Box<[[u32; 2]]>),
}

impl Level {
    fn new(shape: PairLevel) -> Self {
        let number = shape.buckets as usize;
        let buckets = match u32::from(shape.latency_bits) + u32::from(shape.packet_bits) {
            ..=32 => Buckets::Narrow(vec![0; number].into_boxed_slice()),
            _ => Buckets::Wide(vec![[0; 2]; number].into_boxed_slice()),
        };
        Self { shape, part: Part::new(0, shape.buckets), buckets }
    }

    /// The largest counters.
    #[inline(always)]
    fn most(&self) -> [u32; 2] {
        let PairLevel { latency_bits, packet_bits, .. } = self.shape;
        [PairLevel::most(latency_bits), PairLevel::most(packet_bits)]
    }

    #[inline(always)]
    fn get(&self, at: usize) -> [u32; 2] {
        match &self.buckets {
            Buckets::Narrow(buckets) => {
                let both = buckets[at];
                let bits = self.shape.latency_bits;
                [both & PairLevel::most(bits), both >> bits]
            }
            Buckets::Wide(buckets) => buckets[at],
        }
    }

    /// Sets counters that are within their widths.
    #[inline(always)]
    fn set(&mut self, at: usize, bucket: [u32; 2]) {
        match &mut self.buckets {
            Buckets::Narrow(buckets) => {
                buckets[at] = bucket[0] | bucket[1] << self.shape.latency_bits;
            }
            Buckets::Wide(buckets) => buckets[at] = bucket,
        }
    }

    #[inline(always)]
    fn add(&mut self, at: usize, more: [u32; 2]) {
        let (sums, most) = (self.get(at), self.most());
        let more = |of: usize| sums[of].saturating_add(more[of]).min(most[of]);
        self.set(at, [more(0), more(1)]);
    }

    /// Counts a packet in one bucket after the other, and lowers `before` to what was there.
    #[inline(always)]
    fn count_all<const MOST: usize>(
        &mut self,
        places: &[u32],
        latencies: &[u32; MOST],
        before: &mut Before<MOST>,
    ) {
        let most = self.most();
        let hops = places.iter().zip(latencies).enumerate();
        match &mut self.buckets {
            Buckets::Narrow(buckets) => {
                let bits = self.shape.latency_bits;
                for (hop, (&at, &latency)) in hops {
                    let bucket = &mut buckets[at as usize];
                    let sums = [*bucket & most[0], *bucket >> bits];
                    before.lower(hop, sums, most);
                    let sums = raised(sums, latency, most);
                    *bucket = sums[0] | sums[1] << bits;
                }
            }
            Buckets::Wide(buckets) => {
                for (hop, (&at, &latency)) in hops {
                    let bucket = &mut buckets[at as usize];
                    before.lower(hop, *bucket, most);
                    *bucket = raised(*bucket, latency, most);
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        (0..self.shape.buckets as usize).map(|at| self.get(at))
    }
}

impl Pairs {
    /// Arrays that a tower may have.
    pub const LEVELS: usize = 3;

    /// Empty towers.
    pub fn new(levels: [PairLevel; Self::LEVELS]) -> Self {
        Self { levels: levels.map(Level::new) }
    }

    /// The arrays.
    pub fn levels(&self) -> impl Iterator<Item = PairLevel> + '_ {
        self.levels.iter().map(|level| level.shape)
    }

    /// Latency and packets in each bucket of an array.
    pub fn buckets(&self, level: usize) -> Vec<[u32; 2]> {
        self.levels.get(level).map_or_else(Vec::new, |level| level.all().collect())
    }

    /// Sets the buckets of an array.
    ///
    /// # Errors
    /// The first bucket with a counter beyond its width, and which: 0 latency, 1 packets. Where
    /// there are not as many buckets, their number.
    pub fn set_buckets(&mut self, at: usize, buckets: &[[u32; 2]]) -> Result<(), (usize, usize)> {
        let Some(level) = self.levels.get_mut(at) else { return Err((0, 0)) };
        if buckets.len() != level.shape.buckets as usize {
            return Err((buckets.len(), 0));
        }
        let most = level.most();
        let beyond = buckets.iter().enumerate().find_map(|(at, bucket)| {
            Some((at, bucket.iter().zip(most).position(|(&counter, most)| counter > most)?))
        });
        if let Some(beyond) = beyond {
            return Err(beyond);
        }
        buckets.iter().enumerate().for_each(|(at, &bucket)| level.set(at, bucket));
        Ok(())
    }

    /// Adds packets of a flow at a switch, and their latencies in units.
    #[inline]
    pub fn insert(&mut self, flow: u64, node: u32, latency: u32, packets: u32) {
        self.insert_at(self.places(flow, node), latency, packets);
    }

    /// Its buckets, one of each array.
    #[inline(always)]
    pub(super) fn places(&self, flow: u64, node: u32) -> [u32; Self::LEVELS] {
        let (words, mut places) = (pair_words(flow, node), [0; Self::LEVELS]);
        for level in 0..Self::LEVELS {
            places[level] = self.levels[level].part.bucket(words[level]);
        }
        places
    }

    /// Its buckets at several switches, of each array.
    #[inline(always)]
    pub(super) fn all_places<const MOST: usize>(
        &self,
        flow: u64,
        nodes: &[u32; MOST],
    ) -> [[u32; MOST]; Self::LEVELS] {
        let mut places = [[0; MOST]; Self::LEVELS];
        for level in 0..Self::LEVELS {
            let part = self.levels[level].part;
            for hop in 0..MOST {
                places[level][hop] = part.bucket(pair_words(flow, nodes[hop])[level]);
            }
        }
        places
    }

    /// Asks for the lines of a flow's buckets at the switches that a packet came by.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, flow: u64, met: &Met<'_>) {
        let places = self.all_places(flow, met.places);
        for (level, places) in self.levels.iter().zip(&places) {
            for &at in &places[..met.len()] {
                match &level.buckets {
                    Buckets::Narrow(buckets) => isa.prefetch(buckets, at as usize),
                    Buckets::Wide(buckets) => isa.prefetch(buckets, at as usize),
                }
            }
        }
    }

    /// Adds a packet to the buckets of its first `hops` hops, one after the other, with latencies
    /// in units. Gives what was there before.
    #[inline(always)]
    pub(super) fn insert_all<const MOST: usize>(
        &mut self,
        places: [[u32; MOST]; Self::LEVELS],
        latencies: &[u32; MOST],
        hops: usize,
    ) -> Before<MOST> {
        let mut before = Before::unknown(hops);
        for (level, places) in self.levels.iter_mut().zip(&places) {
            level.count_all(&places[..hops.min(MOST)], latencies, &mut before);
        }
        before
    }

    /// What is known of a flow at the switches that a packet came by.
    #[inline(always)]
    pub(super) fn query_all(&self, flow: u64, met: &Met<'_>) -> Before<MOST_HOPS> {
        let (places, mut before) = (self.all_places(flow, met.places), Before::unknown(met.len()));
        for (level, places) in self.levels.iter().zip(&places) {
            let most = level.most();
            for (hop, &at) in places[..met.len()].iter().enumerate() {
                before.lower(hop, level.get(at as usize), most);
            }
        }
        before
    }

    /// Adds packets to buckets, as [`insert`](Self::insert) does.
    #[inline(always)]
    pub(super) fn insert_at(&mut self, places: [u32; Self::LEVELS], latency: u32, packets: u32) {
        for (level, at) in self.levels.iter_mut().zip(places) {
            level.add(at as usize, [latency, packets]);
        }
    }

    /// What is known of a flow at a switch.
    pub fn query(&self, flow: u64, node: u32) -> Pair {
        self.query_at(self.places(flow, node))
    }

    /// The same by its buckets.
    #[inline(always)]
    pub(super) fn query_at(&self, places: [u32; Self::LEVELS]) -> Pair {
        let of = |(level, at): (&Level, u32)| {
            let ([sum, number], most) = (level.get(at as usize), level.most());
            let read = |counter, most| Some(counter).filter(|&it| it < most);
            (read(sum, most[0]), read(number, most[1]))
        };
        let all = || self.levels.iter().zip(places).map(of);
        Pair {
            latency: all().filter_map(|read| read.0).min(),
            packets: all().filter_map(|read| read.1).min(),
        }
    }

    /// Adds what others counted, of the same arrays.
    ///
    /// # Panics
    /// When they have other arrays.
    pub fn merge(&mut self, other: &Self) {
        assert!(self.levels().eq(other.levels()), "towers of the same layout");
        for (mine, theirs) in self.levels.iter_mut().zip(&other.levels) {
            theirs.all().enumerate().for_each(|(at, bucket)| mine.add(at, bucket));
        }
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.all().all(|[_, packets]| packets == 0))
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        let of = |level: &Level| match &level.buckets {
            Buckets::Narrow(buckets) => size_of_val(&**buckets),
            Buckets::Wide(buckets) => size_of_val(&**buckets),
        };
        self.levels.iter().map(of).sum()
    }

    /// Bytes as the counters' widths have it.
    pub fn bytes(&self) -> usize {
        self.levels().map(|level| level.bytes()).sum()
    }

    /// Empties all.
    pub fn clear(&mut self) {
        self.levels.iter_mut().for_each(|level| match &mut level.buckets {
            Buckets::Narrow(buckets) => buckets.fill(0),
            Buckets::Wide(buckets) => buckets.fill([0; 2]),
        });
    }
}
