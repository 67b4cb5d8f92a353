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
    /// Latency and packets.
    buckets: Box<[[u32; 2]]>,
}

impl Pairs {
    /// Arrays that a tower may have.
    pub const LEVELS: usize = 3;

    /// Empty towers.
    pub fn new(levels: [PairLevel; Self::LEVELS]) -> Self {
        let level = |shape: PairLevel| Level {
            shape,
            part: Part::new(0, shape.buckets),
            buckets: vec![[0; 2]; shape.buckets as usize].into_boxed_slice(),
        };
        Self { levels: levels.map(level) }
    }

    /// The arrays.
    pub fn levels(&self) -> impl Iterator<Item = PairLevel> + '_ {
        self.levels.iter().map(|level| level.shape)
    }

    /// Latency and packets in each bucket of an array.
    pub fn buckets(&self, level: usize) -> &[[u32; 2]] {
        self.levels.get(level).map_or(&[], |level| &level.buckets)
    }

    /// Sets the buckets of an array.
    ///
    /// # Errors
    /// The first bucket with a counter beyond its width, and which: 0 latency, 1 packets. Where
    /// there are not as many buckets, their number.
    pub fn set_buckets(&mut self, at: usize, buckets: &[[u32; 2]]) -> Result<(), (usize, usize)> {
        let Some(level) = self.levels.get_mut(at) else { return Err((0, 0)) };
        if buckets.len() != level.buckets.len() {
            return Err((buckets.len(), 0));
        }
        let most = [level.shape.latency_bits, level.shape.packet_bits].map(PairLevel::most);
        let beyond = buckets.iter().enumerate().find_map(|(at, bucket)| {
            Some((at, bucket.iter().zip(most).position(|(&counter, most)| counter > most)?))
        });
        if let Some(beyond) = beyond {
            return Err(beyond);
        }
        level.buckets.copy_from_slice(buckets);
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

    /// Asks for the lines of buckets.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, places: [u32; Self::LEVELS]) {
        for (level, at) in self.levels.iter().zip(places) {
            isa.prefetch(&level.buckets, at as usize);
        }
    }

    /// Adds packets to buckets, as [`insert`](Self::insert) does.
    #[inline(always)]
    pub(super) fn insert_at(&mut self, places: [u32; Self::LEVELS], latency: u32, packets: u32) {
        for (Level { shape, buckets, .. }, at) in self.levels.iter_mut().zip(places) {
            let [sum, number] = &mut buckets[at as usize];
            *sum = sum.saturating_add(latency).min(PairLevel::most(shape.latency_bits));
            *number = number.saturating_add(packets).min(PairLevel::most(shape.packet_bits));
        }
    }

    /// What is known of a flow at a switch.
    pub fn query(&self, flow: u64, node: u32) -> Pair {
        let of = |(level, at): (&Level, u32)| {
            let [sum, number] = level.buckets[at as usize];
            let read = |counter, bits| Some(counter).filter(|&it| it < PairLevel::most(bits));
            (read(sum, level.shape.latency_bits), read(number, level.shape.packet_bits))
        };
        let places = self.places(flow, node);
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
            let most = [mine.shape.latency_bits, mine.shape.packet_bits].map(PairLevel::most);
            for (mine, theirs) in mine.buckets.iter_mut().zip(&theirs.buckets) {
                for ((mine, theirs), most) in mine.iter_mut().zip(theirs).zip(most) {
                    *mine = mine.saturating_add(*theirs).min(most);
                }
            }
        }
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.buckets.iter().all(|&[_, packets]| packets == 0))
    }

    /// Bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.levels.iter().map(|level| size_of_val(&*level.buckets)).sum()
    }

    /// Bytes as the counters' widths have it.
    pub fn bytes(&self) -> usize {
        self.levels().map(|level| level.bytes()).sum()
    }

    /// Empties all.
    pub fn clear(&mut self) {
        self.levels.iter_mut().for_each(|level| level.buckets.fill([0; 2]));
    }
}
