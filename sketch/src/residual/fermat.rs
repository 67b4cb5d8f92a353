//! The residual whose buckets sum key fragments times packets: a [`FermatSketch`] with bytes.

use std::cmp::Ordering;

use super::held::Held;
use super::{ARRAYS, Alone, Amount, Counts, Mismatch, Residual, Shape, places, whole};
use crate::fermat::{self, FermatSketch, WordsError};
use crate::hash::{HashFamily, Hashes};
use crate::key::Key;
use crate::memory::{Arena, Array, lines_of};
use crate::part::Part;
use crate::simd::Isa;
use crate::table::Refused;

/// Prime arithmetic with fingerprint; three arrays.
///
/// No packet of a flow is the first one, so its filter may be wrong: it only says later what to
/// take out. What a switch saw less of a flow than another is left and decodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fermat<K: Key> {
    sketch: FermatSketch<K>,
    /// Bytes of every bucket; negative where more were taken out than put in.
    bytes: Array<i64>,
    held: Held,
    part: Part,
    /// Packets put in and taken out. Buckets count modulo 2^32.
    packets: u64,
}

/// What is in a [`Fermat`] residual.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a, K: Key> {
    /// Key fragments times packets, and packets.
    pub sums: &'a FermatSketch<K>,
    /// Bytes of every bucket, array after array.
    pub bytes: &'a [i64],
    /// Packets put in and taken out.
    pub packets: u64,
}

fn sums(shape: Shape) -> fermat::Shape {
    fermat::Shape { arrays: ARRAYS, ..fermat::Shape::default() }.with_buckets(shape.buckets)
}

impl<K: Key> Fermat<K> {
    /// Bytes of the three buckets of a flow.
    pub const BUCKET_BYTES: usize = size_of::<K::Bucket>() + size_of::<i64>();

    /// An empty one with a filter of its own. It takes all its memory now.
    ///
    /// # Panics
    /// When it has no buckets, or more than 2^28 an array.
    pub fn new(shape: Shape) -> Self {
        Self::with(&mut Arena::new(Self::lines(shape.buckets)), shape, Held::new(shape.filter_bits))
    }

    /// An empty one of so many buckets an array that has no filter: what was put in is for tables
    /// to know ([`known_by`](Self::known_by)), and may be anything until then. It takes all its
    /// memory now.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn without_filter(buckets: usize) -> Self {
        Self::without_filter_in(&mut Arena::new(Self::lines(buckets)), buckets)
    }

    /// Cache lines of so many buckets an array.
    pub fn lines(buckets: usize) -> usize {
        let shape = Shape { buckets, filter_bits: 0 };
        FermatSketch::<K>::lines_for(sums(shape)) + lines_of::<i64>(ARRAYS * buckets)
    }

    /// As [`without_filter`](Self::without_filter), in memory of an arena. Touches none of it.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn without_filter_in(arena: &mut Arena, buckets: usize) -> Self {
        Self::with(arena, Shape { buckets, filter_bits: 0 }, Held::Tables(Vec::new()))
    }

    fn with(arena: &mut Arena, shape: Shape, held: Held) -> Self {
        let part = whole(shape);
        let sketch = FermatSketch::new_in(arena, sums(shape));
        let bytes = arena.zeros(ARRAYS * shape.buckets);
        Self { sketch, bytes, held, part, packets: 0 }
    }

    /// Words of a bucket in its [contents](Self::contents): sums of fragments, and its packets.
    pub fn words_of_a_bucket() -> usize {
        fermat::Shape::default().arithmetic.bucket_words(K::KIND)
    }

    /// Its contents in an order that does not depend on the machine, as
    /// [`from_contents`](Self::from_contents) takes them, without its filter.
    pub fn contents(&self) -> Contents<'_, K> {
        Contents { sums: &self.sketch, bytes: &self.bytes, packets: self.packets }
    }

    /// The residual of so many buckets an array with these contents, without a filter.
    ///
    /// # Errors
    /// Where `words` or `bytes` are too few or too many, or no sums of fragments.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn from_contents(
        buckets: usize,
        words: impl IntoIterator<Item = u32>,
        bytes: &[i64],
        packets: u64,
    ) -> Result<Self, WordsError> {
        let shape = Shape { buckets, filter_bits: 0 };
        let part = whole(shape);
        match bytes.len().cmp(&(ARRAYS * buckets)) {
            Ordering::Less => return Err(WordsError::TooFew { buckets: bytes.len() }),
            Ordering::Equal => {}
            Ordering::Greater => return Err(WordsError::TooMany),
        }
        let sketch = FermatSketch::from_words(sums(shape), words)?;
        let mut sums = Array::zeros(bytes.len());
        sums.copy_from_slice(bytes);
        Ok(Self { sketch, bytes: sums, held: Held::Tables(Vec::new()), part, packets })
    }

    /// The same, where flows that were put in are those that these tables refused or evicted. A
    /// filter of its own goes.
    #[must_use]
    pub fn known_by(self, tables: Vec<Refused>) -> Self {
        Self { held: Held::Tables(tables), ..self }
    }

    fn combine(
        &mut self,
        other: &Self,
        sketch: impl Fn(&mut FermatSketch<K>) -> Result<(), fermat::ShapeMismatch>,
        bytes: impl Fn(i64, i64) -> i64,
    ) -> Result<(), Mismatch> {
        let mismatch = Mismatch { left: self.shape(), right: other.shape() };
        if mismatch.left != mismatch.right {
            return Err(mismatch);
        }
        sketch(&mut self.sketch).map_err(|_| mismatch)?;
        for (sum, &other) in self.bytes.iter_mut().zip(&*other.bytes) {
            *sum = bytes(*sum, other);
        }
        self.held.merge(&other.held);
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }
}

impl<K: Key> Residual<K> for Fermat<K> {
    fn shape(&self) -> Shape {
        Shape { buckets: self.sketch.shape().buckets, filter_bits: 8 * self.held.bytes() }
    }

    fn bytes(&self) -> usize {
        size_of_val(self.sketch.buckets()) + size_of_val(&*self.bytes) + self.held.bytes()
    }

    fn packets(&self) -> u64 {
        self.packets
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, hashes: &Hashes, counts: Counts) {
        self.held.insert(hashes);
        self.packets = self.packets.saturating_add(counts.packets);
        // A count that wraps makes the residual unsound.
        self.sketch.insert_into(&self.part, key, hashes, counts.packets as i32);
        for at in places(&self.part, hashes) {
            let sum = &mut self.bytes[at as usize];
            *sum = sum.wrapping_add(counts.bytes as i64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        self.held.prefetch(isa, hashes);
        for at in places(&self.part, hashes) {
            isa.prefetch(self.sketch.buckets(), at as usize);
            isa.prefetch(&self.bytes, at as usize);
        }
    }

    fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, |sketch| sketch.add(&other.sketch), i64::wrapping_add)
    }

    fn subtract(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, |sketch| sketch.subtract(&other.sketch), i64::wrapping_sub)
    }

    fn clear(&mut self) {
        self.sketch.clear();
        self.bytes.fill(0);
        self.held.clear();
        self.packets = 0;
    }

    #[inline(always)]
    fn may_hold(&self, hashes: &Hashes) -> bool {
        self.held.contains(hashes)
    }

    fn is_sound(&self) -> bool {
        self.packets <= i32::MAX as u64
    }

    fn add(&mut self, key: &K, hashes: &Hashes, amount: Amount) -> Option<[u32; ARRAYS]> {
        let packets = i32::try_from(amount.packets).ok()?;
        self.sketch.insert_into(&self.part, key, hashes, packets);
        let places = places(&self.part, hashes);
        for at in places {
            let sum = &mut self.bytes[at as usize];
            *sum = sum.wrapping_add(amount.bytes);
        }
        Some(places)
    }

    fn alone(&self, family: &HashFamily, at: u32) -> Option<Alone<K>> {
        let (key, hashes, packets) = self.sketch.alone(family, at as usize)?;
        let amount = Amount { flows: 0, packets: packets.into(), bytes: self.bytes[at as usize] };
        self.held.contains(&hashes).then_some(Alone { key, hashes, amount })
    }

    fn remaining(&self) -> usize {
        use crate::fermat::Lanes;
        let buckets = self.sketch.buckets().iter().zip(&*self.bytes);
        buckets.filter(|(bucket, bytes)| !bucket.is_zero() || **bytes != 0).count()
    }
}
