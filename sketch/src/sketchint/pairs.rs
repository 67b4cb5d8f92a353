//! Pair towers: latency and packets of a flow at a switch (section V-B of the paper).
//!
//! Both counters of a bucket are keyed by S||f. (The authors' program keys the packets by the flow
//! alone, which is wrong as soon as a flow's path changes.)

use serde::{Deserialize, Serialize};

use super::pair_words;
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
    fn most(&self) -> [u32; 2] {
        [self.shape.latency_bits, self.shape.packet_bits].map(PairLevel::most)
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
        self.set(at, [0, 1].map(|of| sums[of].saturating_add(more[of]).min(most[of])));
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
        let words = pair_words(flow, node);
        std::array::from_fn(|at| self.levels[at].part.bucket(words[at]))
    }

    /// Its buckets at each of these switches, whose lines are asked for.
    #[inline(always)]
    pub(super) fn prefetch(
        &self,
        isa: impl Isa,
        flow: u64,
        nodes: &[u32],
        places: &mut [[u32; Self::LEVELS]],
    ) {
        for (&node, places) in nodes.iter().zip(places) {
            *places = self.places(flow, node);
            for (level, &at) in self.levels.iter().zip(&*places) {
                match &level.buckets {
                    Buckets::Narrow(buckets) => isa.prefetch(buckets, at as usize),
                    Buckets::Wide(buckets) => isa.prefetch(buckets, at as usize),
                }
            }
        }
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
