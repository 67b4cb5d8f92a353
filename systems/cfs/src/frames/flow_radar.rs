//! One part of a residual that is a FlowRadar.
//!
//! ```text
//! packets (8)  checks of packets (8) and of bytes (8)
//! columns over the cells of all arrays: each word of the keys (4), their protocols (1), flows (4),
//!     packets (8) and bytes (8), the low words of all of them before the high ones
//! columns of the words (4) of the filter
//! ```
//!
//! How many cells and words there are the setup says.

use calumma_sketch::Key;
use calumma_sketch::residual::{ARRAYS, Cell, Checks, FlowRadar, Residual as _, Shape};
use calumma_sketch::table::Refused;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u64};
use calumma_wire::columns::{put_words, read_words};

use super::filters::BLOCK_BITS;

pub(super) fn put<K: Key>(out: &mut Vec<u8>, part: &FlowRadar<K>) {
    let (cells, Checks { packets, bytes }) = (part.cells(), part.checks());
    [part.packets(), packets, bytes].into_iter().for_each(|sum| put_u64(out, sum));
    for at in 0..K::WORDS {
        put_words(out, 4, cells.iter().map(|cell| cell.keys.word(at)));
    }
    put_words(out, 1, cells.iter().map(|cell| cell.keys.protocol().into()));
    put_words(out, 4, cells.iter().map(|cell| cell.flows as u32));
    for of in [|cell: &Cell<K>| cell.packets, |cell: &Cell<K>| cell.bytes] {
        put_words(out, 4, cells.iter().map(|cell| of(cell) as u32));
        put_words(out, 4, cells.iter().map(|cell| (of(cell) >> 32) as u32));
    }
    put_words(out, 4, part.filter().into_iter());
}

pub(super) fn read<K: Key>(body: &mut Body<'_>, shape: Shape) -> Result<FlowRadar<K>, DecodeError> {
    let start = body.offset();
    let packets = body.u64("packets of the residual")?;
    let checks =
        Checks { packets: body.u64("check of packets")?, bytes: body.u64("check of bytes")? };
    let columns = 4 * K::WORDS + 1 + 4 + 8 + 8 + 4;
    if body.left() < columns {
        let why = format_args!("{columns} columns follow");
        return Err(body.wrong(start, "residual", why));
    }
    let number = ARRAYS * shape.buckets;
    let words = (0..K::WORDS).map(|_| read_words(body, "keys of the residual", 4, number));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let protocols = read_words(body, "protocols of the residual", 1, number)?;
    let flows = read_words(body, "flows of the residual", 4, number)?;
    let mut sums = |field| {
        let low = read_words(body, field, 4, number)?;
        let high = read_words(body, field, 4, number)?;
        let both = low.into_iter().zip(high);
        Ok(both.map(|(low, high)| i64::from(low) | (i64::from(high as i32) << 32)).collect())
    };
    let of_packets: Vec<i64> = sums("packets of the residual")?;
    let bytes: Vec<i64> = sums("bytes of the residual")?;
    let cell = |at: usize| Cell {
        keys: K::from_word_fn(|word| words[word][at], protocols[at] as u8),
        packets: of_packets[at],
        bytes: bytes[at],
        flows: flows[at] as i32,
    };
    let cells: Vec<Cell<K>> = (0..number).map(cell).collect();
    // Every packet is in a cell of each array.
    for (at, array) in cells.chunks(shape.buckets).enumerate() {
        let counted = array.iter().fold(0, |sum: i64, cell| sum.wrapping_add(cell.packets));
        if packets as i64 != counted {
            let why = format_args!("{packets}, but the cells of array {at} have {counted}");
            return Err(body.wrong(start, "packets of the residual", why));
        }
    }
    let offset = body.offset();
    let blocks = (shape.filter_bits as u32).div_ceil(BLOCK_BITS).max(1);
    let filter =
        read_words(body, "filter of the residual", 4, blocks as usize * Refused::LEAST_WORDS)?;
    let part = FlowRadar::from_contents(cells, &filter, checks, packets);
    part.ok_or_else(|| body.wrong(offset, "filter of the residual", "no whole blocks"))
}
