//! The arrays of buckets: insert, encode, add, subtract, divide into parts.

use super::bucket::Lanes;
use super::{Arithmetic, Decoded, MAX_ARRAYS, decode};
use crate::burst::{BURST, Column, ones, select};
use crate::hash::{HashColumns, HashFamily, Hashes};
use crate::key::{FlowKey, Key};
use crate::memory::{Arena, Array, lines, lines_of, make_ready};
use crate::part::Part;
use crate::simd::{Engine, Isa, Work};

/// What two sketches must have in common to be added or subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How bucket words are summed.
    pub arithmetic: Arithmetic,
    /// Whether a fingerprint is summed along with the key (prime arithmetic only).
    pub fingerprint: bool,
    /// Bucket arrays (d), 2 to [`MAX_ARRAYS`].
    pub arrays: usize,
    /// Buckets an array (m).
    pub buckets: usize,
}

impl Default for Shape {
    /// Three arrays of 4096 buckets, prime arithmetic, with fingerprint.
    fn default() -> Self {
        Self { arithmetic: Arithmetic::Prime, fingerprint: true, arrays: 3, buckets: 4096 }
    }
}

impl Shape {
    /// The same with another number of buckets an array.
    pub fn with_buckets(self, buckets: usize) -> Self {
        Self { buckets, ..self }
    }

    /// All buckets of all arrays.
    pub fn total_buckets(&self) -> usize {
        self.arrays * self.buckets
    }
}

/// Two sketches that can't be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sketches of different shapes can't be combined: {left:?} and {right:?}")]
pub struct ShapeMismatch {
    /// Shape of the sketch that was to change.
    pub left: Shape,
    /// Shape of the other one.
    pub right: Shape,
}

/// d arrays of m buckets. See the [module](super) for what it is good for.
#[derive(Debug, PartialEq, Eq)]
pub struct FermatSketch<K: Key = FlowKey> {
    shape: Shape,
    /// Array after array.
    buckets: Array<K::Bucket>,
}

impl<K: Key> Clone for FermatSketch<K> {
    fn clone(&self) -> Self {
        Self { shape: self.shape, buckets: self.buckets.clone() }
    }

    /// Copies at the speed of memory, into the memory that is there where it suffices.
    fn clone_from(&mut self, source: &Self) {
        self.shape = source.shape;
        self.buckets.clone_from(&source.buckets);
    }
}

impl<K: Key> FermatSketch<K> {
    /// An empty sketch.
    ///
    /// # Panics
    /// When the shape has fewer than two arrays, more than [`MAX_ARRAYS`], no buckets, or an
    /// arithmetic that does not sum keys of this kind; layouts are checked before sketches
    /// are made from it.
    pub fn new(shape: Shape) -> Self {
        Self::new_in(&mut Arena::new(Self::lines_for(shape)), shape)
    }

    /// Cache lines of the buckets of a sketch.
    pub fn lines_for(shape: Shape) -> usize {
        lines_of::<K::Bucket>(shape.total_buckets())
    }

    /// An empty sketch in memory of an arena. Touches none of it.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn new_in(arena: &mut Arena, shape: Shape) -> Self {
        assert!((2..=MAX_ARRAYS).contains(&shape.arrays), "2 to {MAX_ARRAYS} arrays: {shape:?}");
        assert!(shape.buckets > 0, "at least one bucket an array: {shape:?}");
        assert!(shape.arithmetic.sums(K::KIND), "wide keys are summed modulo the prime: {shape:?}");
        Self { shape, buckets: arena.zeros(shape.total_buckets()) }
    }

    /// Cache lines of the buckets.
    pub fn lines(&self) -> usize {
        lines(&self.buckets)
    }

    /// Readies cache line number `line` of the buckets for being written to soon. Where there are
    /// fewer, gives by how many.
    #[inline]
    pub fn make_ready(&mut self, line: usize) -> Option<usize> {
        make_ready(&mut self.buckets, line)
    }

    /// Arithmetic, arrays and buckets.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The part that is the whole sketch.
    pub fn whole(&self) -> Part {
        Part::new(0, self.shape.buckets as u32)
    }

    /// The buckets, array after array.
    pub fn buckets(&self) -> &[K::Bucket] {
        &self.buckets
    }

    /// Adds `packets` packets of `key` (removes them where negative), the sketch being undivided. A
    /// bucket can tell up to 2^31 - 1 packets apart from their opposite.
    pub fn insert(&mut self, family: &HashFamily, key: &K, packets: i32) {
        self.insert_into(&self.whole(), key, &family.hash(key), packets);
    }

    /// Adds `packets` packets of `key` to the buckets of `part`.
    #[inline(always)]
    pub fn insert_into(&mut self, part: &Part, key: &K, hashes: &Hashes, packets: i32) {
        let arithmetic = self.shape.arithmetic;
        let unit = key.unit(arithmetic, self.fingerprint(hashes));
        let added = K::multiply(arithmetic, &unit, packets);
        for array in 0..self.shape.arrays {
            let at = self.at(array, part, hashes);
            self.buckets[at] = K::add(arithmetic, &self.buckets[at], &added);
        }
    }

    /// Arrays in which the bucket of a key with these hashes is empty, the sketch being undivided.
    pub fn empty_arrays(&self, hashes: &Hashes) -> usize {
        let whole = self.whole();
        let is_empty = |&array: &usize| self.buckets[self.at(array, &whole, hashes)].is_zero();
        (0..self.shape.arrays).filter(is_empty).count()
    }

    /// Adds one packet of `key` to the buckets of `part`: the work per packet of a flow encoder.
    /// Touches one cache line an array. Bursts are cheaper, about 10 cycles a packet beside
    /// hashing.
    #[inline]
    pub fn encode(&mut self, part: &Part, key: &K, hashes: &Hashes) {
        let arithmetic = self.shape.arithmetic;
        let unit = key.unit(arithmetic, self.fingerprint(hashes));
        for array in 0..self.shape.arrays {
            let at = self.at(array, part, hashes);
            self.buckets[at] = K::add(arithmetic, &self.buckets[at], &unit);
        }
    }

    /// Adds one packet for each key of a burst, as [`encode`](Self::encode) does, to the buckets of
    /// the part that its class (the two bits of its hierarchy) has among `parts`. Those whose part
    /// has no buckets are left out, and the number of them that are not of class 0 is given. First
    /// all units and indexes are made and all cache lines asked for, then all buckets changed.
    ///
    /// # Panics
    /// When a part reaches beyond the sketch.
    #[inline(always)]
    pub fn encode_burst(
        &mut self,
        isa: impl Isa,
        parts: &[Part; 4],
        keys: &K::Burst,
        hashes: &HashColumns,
        classes: &Column,
    ) -> u32 {
        let number = K::number(keys);
        let packets = if number < BURST { (1 << number) - 1 } else { u32::MAX };
        let lengths = parts.map(|part| part.len());
        let lengths = Column::from_fn(|packet| select(&lengths, classes.0[packet]));
        let encoded = isa.nonzero(&lengths) & packets;
        let (shape, buckets) = (self.shape, &mut *self.buckets);
        let encode = Encode { buckets, shape, parts, keys, hashes, classes, encoded };
        // The usual number of arrays gets code of its own.
        match (shape.arithmetic, shape.arrays) {
            (Arithmetic::Prime, 3) => isa.run(EncodeAs::<K, true, 3>(encode)),
            (Arithmetic::Wrapping, 3) => isa.run(EncodeAs::<K, false, 3>(encode)),
            (Arithmetic::Prime, _) => isa.run(EncodeAs::<K, true, 0>(encode)),
            (Arithmetic::Wrapping, _) => isa.run(EncodeAs::<K, false, 0>(encode)),
        }
        (isa.nonzero(classes) & packets & !encoded).count_ones()
    }

    #[inline(always)]
    pub(super) fn fingerprint(&self, hashes: &Hashes) -> u32 {
        if self.shape.fingerprint && self.shape.arithmetic.carries_fingerprint() {
            K::fingerprint(hashes)
        } else {
            0
        }
    }

    #[inline(always)]
    pub(super) fn at(&self, array: usize, part: &Part, hashes: &Hashes) -> usize {
        array * self.shape.buckets + part.bucket(hashes.array_word(array)) as usize
    }

    /// Adds `other` bucket by bucket.
    ///
    /// # Errors
    /// When the shapes differ; nothing is changed then.
    pub fn add(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.combine(other, |arithmetic, a, b| K::add(arithmetic, a, b))
    }

    /// Subtracts `other` bucket by bucket.
    ///
    /// # Errors
    /// When the shapes differ; nothing is changed then.
    pub fn subtract(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.combine(other, |arithmetic, a, b| K::subtract(arithmetic, a, b))
    }

    #[inline]
    fn combine(
        &mut self,
        other: &Self,
        op: impl Fn(Arithmetic, &K::Bucket, &K::Bucket) -> K::Bucket,
    ) -> Result<(), ShapeMismatch> {
        if self.shape != other.shape {
            return Err(ShapeMismatch { left: self.shape, right: other.shape });
        }
        Engine::detect().run(Combine(self, other, op));
        Ok(())
    }

    /// Empties the sketch.
    pub fn clear(&mut self) {
        self.buckets.fill(K::Bucket::default());
    }

    /// The buckets of `part` as a sketch of their own.
    ///
    /// # Panics
    /// When the part reaches beyond the sketch or is empty.
    pub fn part(&self, part: &Part) -> Self {
        let (offset, len) = (part.offset() as usize, part.len() as usize);
        let mut divided = Self::new(self.shape.with_buckets(len));
        for (to, from) in
            divided.buckets.chunks_exact_mut(len).zip(self.buckets.chunks_exact(self.shape.buckets))
        {
            to.copy_from_slice(&from[offset..offset + len]);
        }
        divided
    }

    /// Packets recorded, as the first array counts them; negative where more were subtracted.
    pub fn packets(&self) -> i64 {
        self.buckets[..self.shape.buckets].iter().map(|bucket| i64::from(bucket.count())).sum()
    }

    /// The flows recorded and their packets. Always ends; see [`Decoded`] for what it means when
    /// not everything came out. At load factor 0.7 some 30 nanoseconds a flow for 1,000 flows and
    /// 60 for a million, with AVX-512: a flow touches one cache line an array.
    pub fn decode(self, family: &HashFamily) -> Decoded<K> {
        decode::decode(self, family)
    }

    /// The words of every bucket in wire order: array after array, each bucket's fragments, then
    /// its count. Yields `total_buckets * bucket_words()` words.
    pub fn words(&self) -> impl Iterator<Item = u32> + '_ {
        let fragments = self.bucket_words() - 1;
        self.buckets.iter().flat_map(move |bucket| {
            let count = bucket.count() as u32;
            bucket.lanes()[..fragments].iter().copied().chain([count])
        })
    }

    /// Words of a bucket on the wire: its fragments and its count.
    pub fn bucket_words(&self) -> usize {
        K::words(self.shape.arithmetic)
    }

    /// The sketch from words in wire order.
    ///
    /// # Errors
    /// The position of the first bucket that is no sum of this arithmetic, or the number of buckets
    /// that the words do fill where there are too few or too many.
    pub fn from_words(
        shape: Shape,
        words: impl IntoIterator<Item = u32>,
    ) -> Result<Self, WordsError> {
        let mut sketch = Self::new(shape);
        let fragments = sketch.bucket_words() - 1;
        let mut words = words.into_iter();
        for (at, bucket) in sketch.buckets.iter_mut().enumerate() {
            let missing = WordsError::TooFew { buckets: at };
            for word in &mut bucket.lanes_mut()[..fragments] {
                *word = words.next().ok_or(missing)?;
            }
            if !shape.arithmetic.in_range(&bucket.lanes()[..fragments]) {
                return Err(WordsError::OutOfRange { bucket: at });
            }
            if let Some(count) = bucket.lanes_mut().last_mut() {
                *count = words.next().ok_or(missing)?;
            }
        }
        match words.next() {
            None => Ok(sketch),
            Some(_) => Err(WordsError::TooMany),
        }
    }

    pub(super) fn buckets_mut(&mut self) -> &mut [K::Bucket] {
        &mut self.buckets
    }
}

/// The packets of a burst whose bit is set in `encoded`, to be added.
struct Encode<'a, K: Key> {
    buckets: &'a mut [K::Bucket],
    shape: Shape,
    parts: &'a [Part; 4],
    keys: &'a K::Burst,
    hashes: &'a HashColumns,
    classes: &'a Column,
    encoded: u32,
}

/// The same in prime or wrapping arithmetic, to `ARRAYS` arrays or, where 0, as many as there are.
struct EncodeAs<'a, K: Key, const PRIME: bool, const ARRAYS: usize>(Encode<'a, K>);

impl<K: Key, const PRIME: bool, const ARRAYS: usize> Work for EncodeAs<'_, K, PRIME, ARRAYS> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let Encode { buckets, shape, parts, keys, hashes, classes, encoded } = self.0;
        let arrays = if ARRAYS == 0 { shape.arrays } else { ARRAYS };
        let part = Part::columns(parts, classes);
        let mut at = [Column::ZERO; MAX_ARRAYS];
        for array in 0..arrays {
            let words = hashes.array_words(array);
            let start = (array * shape.buckets) as u32;
            at[array] = Column::from_fn(|packet| start + part.of(packet).bucket(words.0[packet]));
        }
        for packet in ones(encoded) {
            for at in &at[..arrays] {
                isa.prefetch(buckets, at.0[packet] as usize);
            }
        }
        let fingerprinted = shape.fingerprint;
        let fingerprint = |packet: usize| {
            if fingerprinted { K::fingerprint(&hashes.of(packet)) } else { 0 }
        };
        K::encode::<PRIME>(isa, keys, fingerprint, encoded, &at[..arrays], buckets);
    }
}

struct Combine<'a, K: Key, F>(&'a mut FermatSketch<K>, &'a FermatSketch<K>, F);

impl<K: Key, F> Work for Combine<'_, K, F>
where
    F: Fn(Arithmetic, &K::Bucket, &K::Bucket) -> K::Bucket,
{
    type Output = ();

    #[inline(always)]
    fn work(self, _: impl Isa) {
        let Self(sketch, other, op) = self;
        let pairs = sketch.buckets.iter_mut().zip(&*other.buckets);
        match sketch.shape.arithmetic {
            Arithmetic::Prime => pairs.for_each(|(a, b)| *a = op(Arithmetic::Prime, a, b)),
            Arithmetic::Wrapping => pairs.for_each(|(a, b)| *a = op(Arithmetic::Wrapping, a, b)),
        }
    }
}

/// Words that are no sketch of the wanted shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// The words end early.
    #[error("the words end after {buckets} buckets")]
    TooFew {
        /// Buckets that were filled.
        buckets: usize,
    },
    /// Words are left over.
    #[error("there are more words than the shape has buckets for")]
    TooMany,
    /// A fragment sum that is not below the prime.
    #[error("bucket {bucket} holds a sum that is not below the prime")]
    OutOfRange {
        /// The bucket, counted over all arrays.
        bucket: usize,
    },
}
