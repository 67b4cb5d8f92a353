//! Filters of flows, one of each lcore.
//!
//! ```text
//! number (2), each: its blocks (4), and a column for each byte of its words (4)
//! ```

use calumma_sketch::table::Refused;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u16, put_u32};
use calumma_wire::columns::{put_words, read_words};

/// The most lcores that have a filter each.
const MOST: u16 = 1024;

/// Bits of a block.
pub(super) const BLOCK_BITS: u32 = 32 * Refused::LEAST_WORDS as u32;

pub(super) fn put(out: &mut Vec<u8>, filters: &[Refused]) {
    put_u16(out, filters.len() as u16);
    for filter in filters {
        let words: Vec<u32> = filter.words().collect();
        put_u32(out, (words.len() / Refused::LEAST_WORDS) as u32);
        put_words(out, 4, words.iter().copied());
    }
}

/// Those of lcores that share so many bits, of which each has a block at least.
pub(super) fn read(body: &mut Body<'_>, bits: u32) -> Result<Vec<Refused>, DecodeError> {
    let offset = body.offset();
    let number = body.u16("number of filters")?;
    if !(1..=MOST).contains(&number) {
        let why = format_args!("{number}: must be 1 to {MOST}");
        return Err(body.wrong(offset, "number of filters", why));
    }
    let mut left = bits.div_ceil(BLOCK_BITS) + u32::from(number);
    let mut filters = Vec::with_capacity(number.into());
    for _ in 0..number {
        let offset = body.offset();
        let blocks = body.u32("blocks of a filter")?;
        let rest = left.checked_sub(blocks).filter(|_| blocks > 0);
        let Some(rest) = rest else {
            let why = format_args!("{blocks}: must be 1 to {left}");
            return Err(body.wrong(offset, "blocks of a filter", why));
        };
        left = rest;
        let words = blocks as usize * Refused::LEAST_WORDS;
        let words = read_words(body, "filter", 4, words)?;
        let filter = Refused::from_words(&words);
        filters.push(filter.ok_or_else(|| body.wrong(offset, "filter", "no whole blocks"))?);
    }
    Ok(filters)
}
