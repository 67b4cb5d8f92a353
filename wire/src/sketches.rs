//! Sketches on the wire, in [columns](crate::columns).
//!
//! Of a TowerSketch, the counters of each array. Of a FermatSketch, a bitmap of the buckets that are
//! not zero (least significant bit first) and then, of those, each fragment and at last the count.
//!
//! The HH encoder may come as what it holds instead: its flows, ascending by key, which take half
//! the bytes of its buckets at the usual load. The buckets left of it are then sent alone.

use calumma_sketch::{FermatSketch, FlowKey, Layout, Part, Shape, TowerSketch};

use crate::body::{Body, put_u8, put_u32};
use crate::columns::{most_column_bytes, put_column, put_words, read_column, read_words};
use crate::error::DecodeError;

/// Columns of a flow's key and packets.
const FLOW_COLUMNS: usize = 17;

/// Most bytes that an encoder of this shape takes in a frame. Flows take fewer than the buckets that
/// they come out of.
pub(crate) fn most_fermat_bytes(shape: &Shape) -> usize {
    let (buckets, columns) = (shape.total_buckets(), shape.arithmetic.words() * 4);
    let bitmap = most_column_bytes(buckets.div_ceil(8));
    5 + FLOW_COLUMNS + bitmap + columns * most_column_bytes(buckets)
}

/// Most bytes that the classifier of this layout takes in a frame.
pub(crate) fn most_tower_bytes(layout: &Layout) -> usize {
    layout.classifier.iter().map(|level| 3 + most_column_bytes(level.bytes())).sum()
}

/// Appends the buckets before `end` of each array.
pub(crate) fn put_buckets(out: &mut Vec<u8>, sketch: &FermatSketch, end: usize) {
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
    for fragment in 0..sketch.shape().arithmetic.words() - 1 {
        put_words(out, 4, present.iter().map(|bucket| bucket.0[fragment]));
    }
    put_words(out, 4, present.iter().map(|bucket| bucket.count() as u32));
}

/// Reads the buckets before `end` of each array of a sketch of `shape`.
pub(crate) fn buckets(
    field: &'static str,
    shape: Shape,
    end: usize,
    body: &mut Body,
) -> Result<FermatSketch, DecodeError> {
    let start = body.offset();
    let span = shape.arrays * end;
    let mut bitmap = vec![0; span.div_ceil(8)];
    read_column(body, field, &mut bitmap)?;
    if !span.is_multiple_of(8) && bitmap.last().is_some_and(|last| last >> (span % 8) != 0) {
        let why = format_args!("the bitmap names buckets beyond the last one, {span}");
        return Err(body.wrong(start, field, why));
    }
    let present: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    if present == 0 {
        return Ok(FermatSketch::new(shape));
    }
    let words = shape.arithmetic.words();
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
pub(crate) fn put_upstream(
    out: &mut Vec<u8>,
    sketch: &FermatSketch,
    hh: &Part,
    flows: Option<&[(FlowKey, i64)]>,
) {
    put_u8(out, flows.is_some().into());
    let Some(flows) = flows else { return put_buckets(out, sketch, sketch.shape().buckets) };
    put_flows(out, flows);
    put_buckets(out, sketch, hh.offset() as usize);
}

/// Reads an upstream encoder, and the flows of its HH part where these were sent.
#[expect(clippy::type_complexity, reason = "flows as decoding gives them")]
pub(crate) fn upstream(
    shape: Shape,
    hh: &Part,
    body: &mut Body,
) -> Result<(FermatSketch, Option<Vec<(FlowKey, i64)>>), DecodeError> {
    const FIELD: &str = "upstream encoder";
    if !body.flag("form of the HH encoder")? {
        return Ok((buckets(FIELD, shape, shape.buckets, body)?, None));
    }
    let flows = flows("HH flowset", shape.arrays * hh.len() as usize, body)?;
    Ok((buckets(FIELD, shape, hh.offset() as usize, body)?, Some(flows)))
}

fn put_flows(out: &mut Vec<u8>, flows: &[(FlowKey, i64)]) {
    let mut flows = flows.to_vec();
    flows.sort_unstable();
    put_u32(out, flows.len() as u32);
    if flows.is_empty() {
        return;
    }
    // In this order, sources differ little from one flow to the next.
    let before = std::iter::once(0).chain(flows.iter().map(|(key, _)| key.src_word()));
    let steps: Vec<u32> =
        flows.iter().zip(before).map(|((key, _), before)| key.src_word() - before).collect();
    put_words(out, 4, steps.iter().copied());
    put_words(out, 4, flows.iter().map(|(key, _)| key.dst_word()));
    put_words(out, 4, flows.iter().map(|(key, _)| key.ports_word()));
    put_words(out, 1, flows.iter().map(|(key, _)| key.protocol().into()));
    put_words(out, 4, flows.iter().map(|&(_, packets)| packets as u32));
}

fn flows(
    field: &'static str,
    most: usize,
    body: &mut Body,
) -> Result<Vec<(FlowKey, i64)>, DecodeError> {
    let start = body.offset();
    let number = body.u32(field)? as usize;
    if number > most {
        let why = format_args!("{number} flows, but at most {most} come out of the HH encoder");
        return Err(body.wrong(start, field, why));
    }
    if number == 0 {
        return Ok(Vec::new());
    }
    let steps = read_words(body, field, 4, number)?;
    let destinations = read_words(body, field, 4, number)?;
    let ports = read_words(body, field, 4, number)?;
    let protocols = read_words(body, field, 1, number)?;
    let packets = read_words(body, field, 4, number)?;
    let mut flows: Vec<(FlowKey, i64)> = Vec::with_capacity(number);
    let mut source = 0_u32;
    for at in 0..number {
        source = source.wrapping_add(steps[at]);
        let key = FlowKey::from_words(source, destinations[at], ports[at], protocols[at] as u8);
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

pub(crate) fn put_tower(out: &mut Vec<u8>, tower: &TowerSketch) {
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

pub(crate) fn tower(
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
    TowerSketch::from_bytes(&layout.classifier, &counters)
        .map_err(|error| body.wrong(start, field, error))
}
