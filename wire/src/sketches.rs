//! Sketches on the wire: a bitmap of the chunks that are not zero, least significant bit first, and
//! then those chunks.
//!
//! A chunk is a bucket (its fragments and its count, 32-bit words) of a FermatSketch, or eight
//! bytes of a TowerSketch's counters. A writer may also send chunks that are zero.

use calumma_sketch::{FermatSketch, Layout, Shape, TowerSketch, fermat};

use crate::body::Body;
use crate::error::DecodeError;

/// Bytes of counters that are sent or left out together.
const COUNTER_CHUNK: usize = 8;

/// Most bytes that an encoder of this shape takes in a frame.
pub(crate) fn most_fermat_bytes(shape: &Shape) -> usize {
    shape.total_buckets().div_ceil(8) + shape.total_buckets() * shape.arithmetic.words() * 4
}

/// Most bytes that the classifier of this layout takes in a frame.
pub(crate) fn most_tower_bytes(layout: &Layout) -> usize {
    let bytes: usize = layout.classifier.iter().map(|level| level.bytes()).sum();
    bytes.div_ceil(COUNTER_CHUNK).div_ceil(8) + bytes
}

pub(crate) fn put_fermat(out: &mut Vec<u8>, sketch: &FermatSketch) {
    let buckets = sketch.buckets();
    let fragments = sketch.shape().arithmetic.words() - 1;
    let bitmap = out.len();
    out.resize(bitmap + buckets.len().div_ceil(8), 0);
    for (at, bucket) in buckets.iter().enumerate() {
        if bucket.is_zero() {
            continue;
        }
        out[bitmap + at / 8] |= 1 << (at % 8);
        for word in &bucket.0[..fragments] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&bucket.count().to_le_bytes());
    }
}

pub(crate) fn fermat(
    field: &'static str,
    shape: Shape,
    body: &mut Body,
) -> Result<FermatSketch, DecodeError> {
    let chunks = Chunks::read(field, shape.total_buckets(), body)?;
    let words = shape.arithmetic.words();
    let start = body.offset();
    let bytes = body.bytes(field, chunks.present() * words * 4)?;
    let mut rest = bytes.as_chunks::<4>().0.iter();
    let all = (0..shape.total_buckets()).flat_map(|at| {
        let mut bucket = [0; 8];
        if chunks.has(at) {
            for (word, bytes) in bucket[..words].iter_mut().zip(&mut rest) {
                *word = u32::from_le_bytes(*bytes);
            }
        }
        bucket.into_iter().take(words)
    });
    FermatSketch::from_words(shape, all).map_err(|error| {
        let before = match error {
            fermat::WordsError::OutOfRange { bucket } => chunks.present_before(bucket),
            fermat::WordsError::TooFew { .. } | fermat::WordsError::TooMany => 0,
        };
        body.wrong(start + before * words * 4, field, error)
    })
}

pub(crate) fn put_tower(out: &mut Vec<u8>, tower: &TowerSketch) {
    let chunks = tower.bytes().div_ceil(COUNTER_CHUNK);
    let bitmap = out.len();
    let counters = bitmap + chunks.div_ceil(8);
    out.resize(counters, 0);
    tower.write_to(out);
    // Those that are not zero move together, over those that are.
    let mut end = counters;
    for chunk in 0..chunks {
        let from = counters + chunk * COUNTER_CHUNK;
        let to = (from + COUNTER_CHUNK).min(out.len());
        if out[from..to].iter().any(|&byte| byte != 0) {
            out[bitmap + chunk / 8] |= 1 << (chunk % 8);
            out.copy_within(from..to, end);
            end += to - from;
        }
    }
    out.truncate(end);
}

pub(crate) fn tower(
    field: &'static str,
    layout: &Layout,
    body: &mut Body,
) -> Result<TowerSketch, DecodeError> {
    let total: usize = layout.classifier.iter().map(|level| level.bytes()).sum();
    let chunks = Chunks::read(field, total.div_ceil(COUNTER_CHUNK), body)?;
    let start = body.offset();
    let mut counters = vec![0; total];
    for (at, to) in counters.chunks_mut(COUNTER_CHUNK).enumerate() {
        if chunks.has(at) {
            to.copy_from_slice(body.bytes(field, to.len())?);
        }
    }
    TowerSketch::from_bytes(&layout.classifier, &counters)
        .map_err(|error| body.wrong(start, field, error))
}

/// Which chunks are there.
struct Chunks<'a> {
    bitmap: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn read(field: &'static str, total: usize, body: &mut Body<'a>) -> Result<Self, DecodeError> {
        let bitmap = body.bytes(field, total.div_ceil(8))?;
        if !total.is_multiple_of(8) && bitmap.last().is_some_and(|last| last >> (total % 8) != 0) {
            let why = format_args!("the bitmap names chunks beyond the last one, {total}");
            return Err(body.wrong(body.offset() - 1, field, why));
        }
        Ok(Self { bitmap })
    }

    fn has(&self, at: usize) -> bool {
        self.bitmap[at / 8] >> (at % 8) & 1 == 1
    }

    fn present(&self) -> usize {
        self.bitmap.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    fn present_before(&self, at: usize) -> usize {
        (0..at).filter(|&before| self.has(before)).count()
    }
}
