//! The counter arrays together: insert, query, merge.

use serde::{Deserialize, Serialize};

use super::level::{Counters, Level, LevelError, MOST_LEVELS, OVERFLOW, validate};
use crate::burst::{BURST, Column};
use crate::hash::{HashColumns, Hashes};

/// Counters of one array that flows fall on equally often.
pub(crate) struct Stratum {
    /// How many.
    pub(crate) counters: f64,
    /// The chance of each that a flow falls on it.
    pub(crate) chance: f64,
    /// Their distinct values, ascending, and how many hold each.
    pub(crate) histogram: Vec<(u32, u32)>,
}

/// Which of a flow's counters a packet raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Insertion {
    /// All of them (CM): counters are sums, from which the controller learns the most, and replicas
    /// add up to what one sketch would have counted. What a Tofino's pipeline can do.
    #[default]
    Cm,
    /// Only the smallest (CU, conservative update): sizes are several times more exact, but no
    /// sums. They give neither a flow size distribution nor entropy; a counter is zero where no
    /// flow fell on it, as with CM, so cardinality is estimated as well. Sums of replicas are still
    /// upper bounds of sizes, but less exact ones than those of one sketch.
    Cu,
}

/// Arrays of counters of rising width. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TowerSketch {
    pub(super) levels: Vec<Counters>,
    insertion: Insertion,
}

impl TowerSketch {
    /// An empty sketch of these arrays, narrowest first, for CM insertion.
    ///
    /// # Errors
    /// When the arrays make no TowerSketch.
    pub fn new(levels: &[Level]) -> Result<Self, LevelError> {
        validate(levels, MOST_LEVELS)?;
        let levels = levels.iter().copied().map(Counters::new).collect();
        Ok(Self { levels, insertion: Insertion::Cm })
    }

    /// The sketch, to be filled by `insertion`, or known to have been.
    #[must_use]
    pub fn with_insertion(self, insertion: Insertion) -> Self {
        Self { insertion, ..self }
    }

    /// How packets are counted.
    pub fn insertion(&self) -> Insertion {
        self.insertion
    }

    /// Widths and numbers of counters.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Level> + '_ {
        self.levels.iter().map(Counters::level)
    }

    /// Counts one packet and gives the flow's size so far, `u32::MAX` where all its counters have
    /// overflowed. Touches one cache line an array; beside hashing about 40 cycles by CM insertion
    /// in the default layout, more than recording a whole burst takes.
    #[inline]
    pub fn insert(&mut self, hashes: &Hashes) -> u32 {
        match self.insertion {
            Insertion::Cm => {
                let mut size = OVERFLOW;
                for (level, counters) in self.levels.iter_mut().enumerate() {
                    let at = counters.index(hashes.classifier_word(level));
                    size = size.min(counters.add(at, 1));
                }
                size
            }
            Insertion::Cu => {
                let size = self.query(hashes).saturating_add(1);
                self.raise(hashes, size)
            }
        }
    }

    /// Raises the flow's counters to `size`, those that are lower, and gives its size then.
    #[inline]
    pub(super) fn raise(&mut self, hashes: &Hashes, size: u32) -> u32 {
        let mut told = OVERFLOW;
        for (level, counters) in self.levels.iter_mut().enumerate() {
            let at = counters.index(hashes.classifier_word(level));
            told = told.min(counters.raise(at, size));
        }
        told
    }

    /// Cache lines of the counters.
    pub fn lines(&self) -> usize {
        self.levels.iter().map(Counters::lines).sum()
    }

    /// Readies cache line number `line` of the counters for being written to soon. Where there are
    /// fewer, gives by how many.
    #[inline]
    pub fn make_ready(&mut self, line: usize) -> Option<usize> {
        self.levels.iter_mut().try_fold(line, |line, counters| counters.make_ready(line))
    }

    /// Counts `packets` packets of one flow, as so many calls of [`insert`](Self::insert) would.
    #[inline]
    pub fn insert_run(&mut self, hashes: &Hashes, packets: u32) {
        match self.insertion {
            Insertion::Cm => {
                for (level, counters) in self.levels.iter_mut().enumerate() {
                    let at = counters.index(hashes.classifier_word(level));
                    counters.add(at, packets);
                }
            }
            Insertion::Cu => {
                let mut climb = self.climb(hashes);
                let size = climb.after(packets);
                self.raise(hashes, size);
            }
        }
    }

    /// Which of the next packets of a flow would be the first for which [`insert`](Self::insert)
    /// gives at least `size`: 1 for the very next one.
    #[inline]
    pub fn packets_to_reach(&self, hashes: &Hashes, size: u32) -> u32 {
        match self.insertion {
            Insertion::Cm => self
                .levels
                .iter()
                .enumerate()
                .map(|(level, counters)| {
                    let counted = counters.get(counters.index(hashes.classifier_word(level)));
                    size.min(counters.level().max()).saturating_sub(counted)
                })
                .fold(1, u32::max),
            Insertion::Cu => self.climb(hashes).packets_to(size),
        }
    }

    fn climb(&self, hashes: &Hashes) -> Climb {
        let mut counters = [(OVERFLOW, OVERFLOW); MOST_LEVELS];
        for (level, (counter, array)) in counters.iter_mut().zip(&self.levels).enumerate() {
            let at = array.index(hashes.classifier_word(level));
            *counter = (array.get(at), array.level().max());
        }
        Climb { counters }
    }

    /// Counts the first `packets` of a burst, as [`insert`](Self::insert) does one after another,
    /// and gives each one's flow size. For CM insertion (`CM`) it goes through one array after
    /// another, so that the cache lines of a whole burst are under way at once. For CU
    /// insertion a packet's counters are to be compared before the next one may be counted:
    /// about 60 cycles a packet.
    ///
    /// What the sketch's insertion is, the caller must say: code for both in one place would slow
    /// CM insertion down by a tenth.
    #[inline(always)]
    pub fn insert_burst<const CM: bool>(&mut self, packets: usize, hashes: &HashColumns) -> Column {
        let mut sizes = Column([OVERFLOW; BURST]);
        if CM {
            for (level, counters) in self.levels.iter_mut().enumerate() {
                let words = hashes.classifier_words(level);
                counters.count_burst(packets, &words, &mut sizes);
            }
        } else {
            for (packet, size) in sizes.0[..packets].iter_mut().enumerate() {
                *size = self.insert(&hashes.of(packet));
            }
        }
        sizes
    }

    /// The flow's size: at least the truth, `u32::MAX` where all its counters have overflowed.
    #[inline]
    pub fn query(&self, hashes: &Hashes) -> u32 {
        self.levels
            .iter()
            .enumerate()
            .map(|(level, counters)| counters.get(counters.index(hashes.classifier_word(level))))
            .fold(OVERFLOW, u32::min)
    }

    /// The flow's counter in array `level`: which one, and its value (`u32::MAX` where overflowed).
    pub(crate) fn counter(&self, level: usize, hashes: &Hashes) -> (usize, u32) {
        let counters = &self.levels[level];
        let at = counters.index(hashes.classifier_word(level));
        (at, counters.get(at))
    }

    /// Values of the counters of array `level`, `u32::MAX` where overflowed.
    ///
    /// # Panics
    /// When there is no such array.
    pub fn counters(&self, level: usize) -> impl ExactSizeIterator<Item = u32> + '_ {
        let counters = &self.levels[level];
        (0..counters.level().counters as usize).map(move |at| counters.get(at))
    }

    /// How many counters of array `level` are zero.
    pub(crate) fn zeros(&self, level: usize) -> usize {
        self.levels[level].zeros()
    }

    /// Whether any counter of array `level` has overflowed.
    pub(crate) fn any_overflowed(&self, level: usize) -> bool {
        self.levels[level].any_overflowed()
    }

    /// The distinct values of the counters of array `level`, ascending, each with the number of
    /// counters that hold it; `u32::MAX` is overflow.
    ///
    /// # Panics
    /// When there is no such array.
    pub fn histogram(&self, level: usize) -> Vec<(u32, u32)> {
        let counters = &self.levels[level];
        counters.histogram(0..counters.level().counters)
    }

    /// The same apart for counters that flows fall on equally often: an array has one such stratum
    /// or two.
    pub(crate) fn strata(&self, level: usize) -> impl Iterator<Item = Stratum> + '_ {
        let counters = &self.levels[level];
        counters.strata().map(|(among, hits)| Stratum {
            counters: f64::from(among.end - among.start),
            chance: hits / f64::from(counters.level().counters),
            histogram: counters.histogram(among),
        })
    }

    /// Of each stratum of array `level` the number of counters, and the chance of each that a flow
    /// falls on it.
    pub(crate) fn chances(&self, level: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        let counters = &self.levels[level];
        let all = f64::from(counters.level().counters);
        counters.strata().map(move |(among, hits)| (f64::from(among.end - among.start), hits / all))
    }

    /// Adds what another sketch counted, each counter up to its maximum.
    ///
    /// # Panics
    /// When the sketches have other arrays or insertion; those of one deployment never have.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.insertion, other.insertion, "sketches of the same layout");
        assert!(self.levels().eq(other.levels()), "sketches of the same layout");
        for (mine, theirs) in self.levels.iter_mut().zip(&other.levels) {
            mine.merge(theirs);
        }
    }

    /// Empties all counters.
    pub fn clear(&mut self) {
        self.levels.iter_mut().for_each(Counters::clear);
    }

    /// Bytes of all counters.
    pub fn bytes(&self) -> usize {
        self.levels().map(|level| level.bytes()).sum()
    }

    /// Appends the counters, array after array, little-endian; widths below a byte lie packed, the
    /// first counter in the low bits.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.levels.iter().for_each(|counters| counters.write_to(out));
    }

    /// The sketch from the bytes that [`write_to`](Self::write_to) gave, as if filled by CM
    /// insertion.
    ///
    /// # Errors
    /// When the arrays make no TowerSketch or the bytes are not as many as they need.
    pub fn from_bytes(levels: &[Level], bytes: &[u8]) -> Result<Self, CountersError> {
        let mut sketch = Self::new(levels)?;
        if bytes.len() != sketch.bytes() {
            return Err(CountersError::Length { wanted: sketch.bytes(), got: bytes.len() });
        }
        let mut rest = bytes;
        for counters in &mut sketch.levels {
            let (these, others) = rest.split_at(counters.level().bytes());
            counters.read_from(these);
            rest = others;
        }
        Ok(sketch)
    }
}

/// A flow's counters (value and maximum by array) as CU insertion raises them.
struct Climb {
    counters: [(u32, u32); MOST_LEVELS],
}

impl Climb {
    fn size(&self) -> u32 {
        self.counters.iter().fold(OVERFLOW, |size, counter| size.min(counter.0))
    }

    /// How many packets raise the size one by one, until the narrowest counter still in use
    /// overflows and the size is what the next one holds.
    fn even(&self) -> u32 {
        let in_use = self.counters.iter().filter(|counter| counter.0 != OVERFLOW);
        in_use.map(|counter| counter.1).min().map_or(u32::MAX, |max| max - self.size())
    }

    fn raise(&mut self, size: u32) {
        for (value, max) in &mut self.counters {
            *value = if size >= *max { OVERFLOW } else { size.max(*value) };
        }
    }

    /// What all counters lower than that have been raised to after `packets` packets.
    fn after(&mut self, mut packets: u32) -> u32 {
        while packets > self.even() {
            packets -= self.even();
            self.raise(self.size() + self.even());
        }
        self.size().saturating_add(packets)
    }

    /// The first packet that makes the size at least `size`.
    fn packets_to(mut self, size: u32) -> u32 {
        let mut packets = 0;
        while self.size() < size {
            let step = self.even().min(size - self.size());
            packets += step;
            self.raise(self.size() + step);
        }
        packets.max(1)
    }
}

/// Bytes that are no TowerSketch of the wanted arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersError {
    /// Arrays that make no TowerSketch.
    #[error(transparent)]
    Levels(#[from] LevelError),
    /// A wrong number of bytes.
    #[error("the counters need {wanted} bytes, got {got}")]
    Length {
        /// Bytes that the arrays need.
        wanted: usize,
        /// Bytes that were given.
        got: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, HashFamily, HashKey};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn flow(n: u32) -> FlowKey {
        FlowKey::from_words(0x0A00_0000 + n, 0x0A01_0001, 0x1000_0050, 6)
    }

    fn family() -> HashFamily {
        HashFamily::new(&HashKey::from_bytes([1; 32]))
    }

    #[test]
    fn a_full_counter_stands_for_infinity_and_the_wider_one_answers() {
        let family = family();
        let mut tower = TowerSketch::new(&[Level::new(8, 64), Level::new(16, 32)]).unwrap();
        let hashes = family.hash(&flow(1));
        for packet in 1..70_000_u32 {
            let size = tower.insert(&hashes);
            assert_eq!(size, if packet < 65_535 { packet } else { OVERFLOW });
        }
        assert_eq!(tower.counters(0).filter(|&value| value == OVERFLOW).count(), 1);
        assert_eq!(tower.query(&hashes), OVERFLOW);
        tower.clear();
        assert_eq!(tower.query(&hashes), 0);
    }

    #[test]
    fn arrays_that_make_no_tower_are_refused() {
        assert_eq!(TowerSketch::new(&[]), Err(LevelError::Number { number: 0, most: MOST_LEVELS }));
        assert_eq!(TowerSketch::new(&[Level::new(7, 64)]), Err(LevelError::Bits(7)));
        assert_eq!(
            TowerSketch::new(&[Level::new(16, 64), Level::new(8, 64)]),
            Err(LevelError::Order { wide: 16, narrow: 8 })
        );
        let levels = [Level::new(8, 64)];
        assert!(TowerSketch::from_bytes(&levels, &[0; 63]).is_err());
    }

    proptest! {
        #[test]
        fn estimates_never_lie_below_the_truth(
            packets in prop::collection::vec(0u32..200, 0..2000),
            narrow in prop::sample::select(vec![2u32, 4, 8]),
            insertion in prop::sample::select(vec![Insertion::Cm, Insertion::Cu]),
        ) {
            let family = family();
            let levels = [Level::new(narrow, 300), Level::new(16, 100)];
            let mut tower = TowerSketch::new(&levels).unwrap().with_insertion(insertion);
            let mut truth = HashMap::new();
            for &n in &packets {
                let hashes = family.hash(&flow(n));
                let size = tower.insert(&hashes);
                let sent = truth.entry(n).or_insert(0_u32);
                *sent += 1;
                prop_assert!(size >= *sent);
            }
            for (n, sent) in truth {
                prop_assert!(tower.query(&family.hash(&flow(n))) >= sent);
            }
        }

        #[test]
        fn the_same_counters_are_zero_by_either_insertion(
            packets in prop::collection::vec(0u32..200, 0..2000),
        ) {
            let family = family();
            let cm = TowerSketch::new(&[Level::new(2, 300), Level::new(8, 100)]).unwrap();
            let mut towers = [cm.clone(), cm.with_insertion(Insertion::Cu)];
            for &n in &packets {
                let hashes = family.hash(&flow(n));
                let [cm, cu] = towers.each_mut().map(|tower| tower.insert(&hashes));
                prop_assert!(cu <= cm);
            }
            for level in 0..2 {
                let [cm, cu] = towers.each_ref().map(|tower| tower.counters(level));
                prop_assert!(cm.zip(cu).all(|(cm, cu)| (cm == 0) == (cu == 0) && cu <= cm));
            }
        }

        #[test]
        fn merged_replicas_count_what_one_would_have(
            packets in prop::collection::vec((0u32..50, any::<bool>()), 0..3000),
        ) {
            let family = family();
            let levels = [Level::new(4, 30), Level::new(8, 20), Level::new(32, 10)];
            let mut one = TowerSketch::new(&levels).unwrap();
            let mut replicas = [one.clone(), one.clone()];
            for (n, first) in packets {
                let hashes = family.hash(&flow(n));
                one.insert(&hashes);
                replicas[usize::from(first)].insert(&hashes);
            }
            let [mut merged, other] = replicas;
            merged.merge(&other);
            prop_assert_eq!(&merged, &one);

            let mut bytes = Vec::new();
            merged.write_to(&mut bytes);
            prop_assert_eq!(TowerSketch::from_bytes(&levels, &bytes).unwrap(), one);
        }
    }
}
