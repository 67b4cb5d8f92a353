//! Lists of keys and numbers, column by column.

use calumma_sketch::{FlowKey, KeyKind, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::Body;
use calumma_wire::columns::{put_column, read_column};

/// Where the bytes of such keys, in their order, stand in those of a wide key.
fn key_bytes(keys: KeyKind) -> impl Iterator<Item = usize> {
    // IPv4 addresses are mapped: the last four bytes of each are theirs.
    (0..WideKey::LEN).filter(move |at| match keys {
        KeyKind::Ipv4 => matches!(at, 12..16 | 28..),
        KeyKind::Dual => true,
    })
}

/// Appends keys.
pub(super) fn put_keys<'a>(
    out: &mut Vec<u8>,
    keys: KeyKind,
    list: impl Iterator<Item = &'a WideKey> + Clone,
) {
    for at in key_bytes(keys) {
        let column: Vec<u8> = list.clone().map(|key| key.as_bytes()[at]).collect();
        put_column(out, &column);
    }
}

/// Reads so many keys.
pub(super) fn read_keys(
    body: &mut Body<'_>,
    keys: KeyKind,
    number: usize,
) -> Result<Vec<WideKey>, DecodeError> {
    const FIELD: &str = "keys";
    enough(body, FIELD, key_bytes(keys).count())?;
    let mut bytes = vec![[0; WideKey::LEN]; number];
    if keys == KeyKind::Ipv4 {
        let mapped = WideKey::from(FlowKey::ZERO);
        bytes.iter_mut().for_each(|key| key.copy_from_slice(mapped.as_bytes()));
    }
    let mut column = vec![0; number];
    for at in key_bytes(keys) {
        read_column(body, FIELD, &mut column)?;
        bytes.iter_mut().zip(&column).for_each(|(key, &byte)| key[at] = byte);
    }
    Ok(bytes.into_iter().map(WideKey::from_bytes).collect())
}

/// Appends the `width` low bytes of numbers.
pub(super) fn put_numbers(
    out: &mut Vec<u8>,
    width: usize,
    numbers: impl Iterator<Item = u64> + Clone,
) {
    for byte in 0..width {
        let column: Vec<u8> = numbers.clone().map(|number| (number >> (8 * byte)) as u8).collect();
        put_column(out, &column);
    }
}

/// Reads so many numbers of which the `width` low bytes were sent.
pub(super) fn read_numbers(
    body: &mut Body<'_>,
    field: &'static str,
    width: usize,
    number: usize,
) -> Result<Vec<u64>, DecodeError> {
    enough(body, field, width)?;
    let (mut numbers, mut column) = (vec![0; number], vec![0; number]);
    for byte in 0..width {
        read_column(body, field, &mut column)?;
        for (number, &part) in numbers.iter_mut().zip(&column) {
            *number |= u64::from(part) << (8 * byte);
        }
    }
    Ok(numbers)
}

/// Columns of zeros take a byte however long they are: nothing large is made for a body that does
/// not have all of them.
fn enough(body: &Body<'_>, field: &'static str, columns: usize) -> Result<(), DecodeError> {
    match body.left() < columns {
        true => Err(body.wrong(body.offset(), field, format_args!("{columns} columns follow"))),
        false => Ok(()),
    }
}
