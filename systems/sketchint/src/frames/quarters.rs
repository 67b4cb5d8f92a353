//! Latencies of flows by size: a part of [`Window`](super::Window), which has the bytes.

use calumma_sketch::WideKey;
use calumma_sketch::sketchint::{FlowRow, Quarters};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32};

use super::columns::{put_numbers, read_numbers};
use super::layout::Layout;
use super::window::{in_order, number};

/// Whether a row has any.
pub(super) fn are_there(row: &FlowRow<WideKey>) -> bool {
    !row.quarters.is_empty()
}

pub(super) fn put_quarters(out: &mut Vec<u8>, rows: &[FlowRow<WideKey>]) {
    let with = || (0_u64..).zip(rows).filter(|(_, row)| are_there(row));
    put_u32(out, with().count() as u32);
    put_numbers(out, 4, with().map(|(at, _)| at));
    let counts: Vec<u64> = with()
        .flat_map(|(_, row)| row.quarters.iter().flat_map(|of| of.bins().map(u64::from)))
        .collect();
    put_numbers(out, 4, counts.into_iter());
}

pub(super) fn read_quarters(
    body: &mut Body<'_>,
    layout: &Layout,
    rows: &mut [FlowRow<WideKey>],
) -> Result<(), DecodeError> {
    const FIELD: &str = "latencies by size";
    let offset = body.offset();
    let number = number(body, FIELD, layout.most_quantiles().min(rows.len()))?;
    let at_rows = body.offset();
    let of_rows = read_numbers(body, FIELD, 4, number)?;
    if let Some(row) = of_rows.iter().find(|&&row| row >= rows.len() as u64) {
        let why = format_args!("there are {} rows and no {row}", rows.len());
        return Err(body.wrong(at_rows, FIELD, why));
    }
    in_order(body, FIELD, &of_rows)?;
    let places: usize = of_rows.iter().map(|&row| rows[row as usize].hops.len() + 1).sum();
    let counts = read_numbers(body, FIELD, 4, places * Quarters::BINS)?;
    let (each, _) = counts.as_chunks::<{ Quarters::BINS }>();
    let mut each = each.iter().map(|bins| Quarters::from_bins(bins.map(|count| count as u32)));
    for row in of_rows {
        let row = &mut rows[row as usize];
        row.quarters = each.by_ref().take(row.hops.len() + 1).collect();
        let cells = || row.hops.iter().chain([&row.own]).zip(&row.quarters);
        let is_wrong = cells().any(|(cell, of)| {
            let beyond = of.longest().is_some_and(|ns| ns > cell.max_ns);
            beyond || of.count() > cell.known.into()
        });
        if is_wrong || cells().all(|(_, of)| *of == Quarters::EMPTY) {
            let why = format_args!("{}: other latencies than its row has", row.key);
            return Err(body.wrong(offset, FIELD, why));
        }
    }
    Ok(())
}
