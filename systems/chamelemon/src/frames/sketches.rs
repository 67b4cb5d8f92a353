//! Sketches on the wire, in [columns](calumma_wire::columns).
//!
//! Of a TowerSketch, the counters of each array. Of a FermatSketch, a bitmap of the buckets that
//! are not zero (least significant bit first) and then, of those, each fragment and at last the
//! count.
//!
//! The HH encoder may come as what it holds instead: its flows, ascending by key, which take half
//! the bytes of its buckets at the usual load. The buckets left of it are then sent alone.

use calumma_sketch::fermat::Lanes;
use calumma_sketch::{
    AnyKey, Encoders, FermatSketch, Key, KeyKind, Part, Shape, TowerSketch, WideKey,
};

use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u32};
use calumma_wire::columns::{most_column_bytes, put_column, put_words, read_column, read_words};

use super::side::{Upstream, Upstreams};
use crate::Layout;

/// Most columns of a flow's key and packets: those of a wide key.
const FLOW_COLUMNS: usize = WideKey::LEN + 4;

/// Most bytes that the upstream encoder of this layout takes in a frame. Flows take fewer than the
/// buckets that they come out of.
pub(super) fn most_fermat_bytes(layout: &Layout) -> usize {
    let (buckets, columns) = (layout.upstream_shape().total_buckets(), layout.bucket_words() * 4);
    let bitmap = most_column_bytes(buckets.div_ceil(8));
    5 + FLOW_COLUMNS + bitmap + columns * most_column_bytes(buckets)
}

/// Most bytes that the classifier of this layout takes in a frame.
pub(super) fn most_tower_bytes(layout: &Layout) -> usize {
    layout.classifier.iter().map(|level| 3 + most_column_bytes(level.bytes())).sum()
}

/// Appends the buckets before `end` of each array.
pub(super) fn put_buckets<K: Key>(out: &mut Vec<u8>, sketch: &FermatSketch<K>, end: usize) {
    let arrays = sketch.buckets().chunks_exact(sketch.shape().buckets);
    let span = arrays.flat_map(|array| &array[..end]);
    let mut bitmap = vec![0; (sketch.shape().arrays * end).div_ceil(8)];
    let mut present = Vec::new();
    for (at, bucket) in span.enumerate() {
        if !bucket.is_zero() {
            bitmap[at / 8] |= 1 << (at % 8);
            present.push(bucket);
        }
    }
    put_column(out, &bitmap);
    if present.is_empty() {
        return;
    }
    for fragment in 0..sketch.bucket_words() - 1 {
        put_words(out, 4, present.iter().map(|bucket| bucket.lanes()[fragment]));
    }
    put_words(out, 4, present.iter().map(|bucket| bucket.count() as u32));
}

/// Reads the buckets before `end` of each array of a sketch of `shape`.
fn buckets<K: Key>(
    field: &'static str,
    shape: Shape,
    end: usize,
    body: &mut Body,
) -> Result<FermatSketch<K>, DecodeError> {
    let start = body.offset();
    let span = shape.arrays * end;
    let mut bitmap = vec![0; span.div_ceil(8)];
    read_column(body, field, &mut bitmap)?;
    if !span.is_multiple_of(8) && bitmap.last().is_some_and(|last| last >> (span % 8) != 0) {
        let why = format_args!("the bitmap names buckets beyond the last one, {span}");
        return Err(body.wrong(start, field, why));
    }
    let present: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let empty = FermatSketch::new(shape);
    if present == 0 {
        return Ok(empty);
    }
    let words = empty.bucket_words();
    let columns: Vec<Vec<u32>> =
        (0..words).map(|_| read_words(body, field, 4, present)).collect::<Result<_, _>>()?;
    let mut all = vec![0; shape.total_buckets() * words];
    let set = (0..span).filter(|at| bitmap[at / 8] >> (at % 8) & 1 == 1);
    for (read, at) in set.enumerate() {
        let bucket = at / end * shape.buckets + at % end;
        for (word, column) in all[bucket * words..][..words].iter_mut().zip(&columns) {
            *word = column[read];
        }
    }
    FermatSketch::from_words(shape, all).map_err(|error| body.wrong(start, field, error))
}

/// Appends an upstream encoder. `hh` is its HH part and `flows`, where given, is all that this part
/// holds.
pub(super) fn put_upstream<K: Key>(
    out: &mut Vec<u8>,
    sketch: &FermatSketch<K>,
    hh: &Part,
    flows: Option<&[(K, i64)]>,
) {
    put_u8(out, flows.is_some().into());
    let Some(flows) = flows else { return put_buckets(out, sketch, sketch.shape().buckets) };
    put_flows(out, flows);
    put_buckets(out, sketch, hh.offset() as usize);
}

/// Reads an upstream encoder, and the flows of its HH part where these were sent.
fn upstream<K: Key>(shape: Shape, hh: &Part, body: &mut Body) -> Result<Upstream<K>, DecodeError> {
    const FIELD: &str = "upstream encoder";
    if !body.flag("form of the HH encoder")? {
        let encoder = buckets(FIELD, shape, shape.buckets, body)?;
        return Ok(Upstream { encoder, hh_flows: None });
    }
    let flows = flows("HH flowset", shape.arrays * hh.len() as usize, body)?;
    let encoder = buckets(FIELD, shape, hh.offset() as usize, body)?;
    Ok(Upstream { encoder, hh_flows: Some(flows) })
}

/// Reads an upstream encoder of the layout's keys.
pub(super) fn any_upstream(
    layout: &Layout,
    hh: &Part,
    body: &mut Body,
) -> Result<AnyKey<Upstreams>, DecodeError> {
    let shape = layout.upstream_shape();
    Ok(match layout.keys {
        KeyKind::Ipv4 => AnyKey::Ipv4(upstream(shape, hh, body)?),
        KeyKind::Dual => AnyKey::Dual(upstream(shape, hh, body)?),
    })
}

/// Reads a downstream encoder of the layout's keys.
pub(super) fn any_downstream(
    layout: &Layout,
    body: &mut Body,
) -> Result<AnyKey<Encoders>, DecodeError> {
    const FIELD: &str = "downstream encoder";
    let shape = layout.downstream_shape();
    Ok(match layout.keys {
        KeyKind::Ipv4 => AnyKey::Ipv4(buckets(FIELD, shape, shape.buckets, body)?),
        KeyKind::Dual => AnyKey::Dual(buckets(FIELD, shape, shape.buckets, body)?),
    })
}

fn put_flows<K: Key>(out: &mut Vec<u8>, flows: &[(K, i64)]) {
    let mut flows = flows.to_vec();
    flows.sort_unstable();
    put_u32(out, flows.len() as u32);
    if flows.is_empty() {
        return;
    }
    put_keys(out, &flows.iter().map(|&(key, _)| key).collect::<Vec<_>>());
    put_words(out, 4, flows.iter().map(|&(_, packets)| packets as u32));
}

/// Appends keys, which ascend: first words differ little from one to the next.
pub(super) fn put_keys<K: Key>(out: &mut Vec<u8>, keys: &[K]) {
    let before = std::iter::once(0).chain(keys.iter().map(|key| key.word(0)));
    let steps: Vec<u32> =
        keys.iter().zip(before).map(|(key, before)| key.word(0).wrapping_sub(before)).collect();
    put_words(out, 4, steps.iter().copied());
    for word in 1..K::WORDS {
        put_words(out, 4, keys.iter().map(|key| key.word(word)));
    }
    put_words(out, 1, keys.iter().map(|key| key.protocol().into()));
}

/// Reads so many keys. Whether they ascend is not checked.
pub(super) fn keys<K: Key>(
    field: &'static str,
    number: usize,
    body: &mut Body,
) -> Result<Vec<K>, DecodeError> {
    let words: Vec<Vec<u32>> =
        (0..K::WORDS).map(|_| read_words(body, field, 4, number)).collect::<Result<_, _>>()?;
    let protocols = read_words(body, field, 1, number)?;
    let mut first = 0_u32;
    let key = |at: usize| {
        first = first.wrapping_add(words[0][at]);
        let word = |word: usize| if word == 0 { first } else { words[word][at] };
        K::from_word_fn(word, protocols[at] as u8)
    };
    Ok((0..number).map(key).collect())
}

fn flows<K: Key>(
    field: &'static str,
    most: usize,
    body: &mut Body,
) -> Result<Vec<(K, i64)>, DecodeError> {
    let start = body.offset();
    let number = body.u32(field)? as usize;
    if number > most {
        let why = format_args!("{number} flows, but at most {most} come out of the HH encoder");
        return Err(body.wrong(start, field, why));
    }
    if number == 0 {
        return Ok(Vec::new());
    }
    let keys = keys(field, number, body)?;
    let packets = read_words(body, field, 4, number)?;
    let mut flows: Vec<(K, i64)> = Vec::with_capacity(number);
    for (at, key) in keys.into_iter().enumerate() {
        if flows.last().is_some_and(|(before, _)| *before >= key) {
            let why = format_args!("flow {at} is not beyond the one before it");
            return Err(body.wrong(start, field, why));
        }
        if !(1..=i32::MAX as u32).contains(&packets[at]) {
            let why = format_args!("flow {at} has {} packets: 1 to {}", packets[at], i32::MAX);
            return Err(body.wrong(start, field, why));
        }
        flows.push((key, packets[at].into()));
    }
    Ok(flows)
}

/// Columns that the counters of an array of `bits` bits are cut into.
fn counter_columns(bits: u32) -> usize {
    (bits as usize / 8).max(1)
}

pub(super) fn put_tower(out: &mut Vec<u8>, tower: &TowerSketch) {
    let mut counters = Vec::with_capacity(tower.bytes());
    tower.write_to(&mut counters);
    let mut rest = counters.as_slice();
    let mut column = Vec::new();
    for level in tower.levels() {
        let (array, others) = rest.split_at(level.bytes());
        let columns = counter_columns(level.bits);
        for byte in 0..columns {
            column.clear();
            column.extend(array.iter().skip(byte).step_by(columns));
            put_column(out, &column);
        }
        rest = others;
    }
}

pub(super) fn tower(
    field: &'static str,
    layout: &Layout,
    body: &mut Body,
) -> Result<TowerSketch, DecodeError> {
    let start = body.offset();
    let total: usize = layout.classifier.iter().map(|level| level.bytes()).sum();
    let mut counters = vec![0; total];
    let mut rest = counters.as_mut_slice();
    for level in &layout.classifier {
        let (array, others) = rest.split_at_mut(level.bytes());
        let columns = counter_columns(level.bits);
        if columns == 1 {
            read_column(body, field, array)?;
        } else {
            let mut column = vec![0; array.len() / columns];
            for byte in 0..columns {
                read_column(body, field, &mut column)?;
                for (to, &from) in array.iter_mut().skip(byte).step_by(columns).zip(&column) {
                    *to = from;
                }
            }
        }
        rest = others;
    }
    let classifier = TowerSketch::from_bytes(&layout.classifier, &counters)
        .map_err(|error| body.wrong(start, field, error))?;
    Ok(classifier.with_insertion(layout.insertion))
}
