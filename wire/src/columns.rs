//! Columns: numbers of one kind, cut into their bytes, each byte's column packed by itself.
//!
//! The bytes of a sketch differ in how much they say: the high bytes of counters are zero, their
//! low bytes small, sums of key fragments as good as random. So the least significant bytes of all
//! numbers form one column, the next bytes another, and each column is sent in the form that is
//! least: nothing where all are zero, else compressed by Zstandard (RFC 8878), or as it is.
//!
//! ```text
//!  0                     all bytes are zero
//!  1  bytes              as they are; how many, the reader knows
//!  2  length (4)  frame  a Zstandard frame of `length` bytes that holds exactly as many bytes
//! ```

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

use crate::body::{Body, put_u8, put_u32};
use crate::error::DecodeError;

const ZEROS: u8 = 0;
const PLAIN: u8 = 1;
const ZSTD: u8 = 2;

/// The fastest level that knows entropy coding, which is what columns profit from.
const LEVEL: i32 = 1;

/// Columns shorter than this are not worth a Zstandard frame.
const WORTHWHILE: usize = 64;

thread_local! {
    // Contexts take longer to make than a column to pack.
    static PACKER: RefCell<io::Result<Compressor<'static>>> = RefCell::new(Compressor::new(LEVEL));
    static UNPACKER: RefCell<io::Result<Decompressor<'static>>> = RefCell::new(Decompressor::new());
}

/// Most bytes that a column of `length` bytes takes.
pub fn most_column_bytes(length: usize) -> usize {
    1 + length
}

/// Appends a column.
pub fn put_column(out: &mut Vec<u8>, column: &[u8]) {
    if column.iter().all(|&byte| byte == 0) {
        return put_u8(out, ZEROS);
    }
    if column.len() >= WORTHWHILE {
        let start = out.len();
        put_u8(out, ZSTD);
        put_u32(out, 0);
        let packed = PACKER.with_borrow_mut(|packer| pack(packer, column, out));
        if let Some(length) = packed.filter(|length| length + 4 < column.len()) {
            out[start + 1..start + 5].copy_from_slice(&(length as u32).to_le_bytes());
            return;
        }
        out.truncate(start);
    }
    put_u8(out, PLAIN);
    out.extend_from_slice(column);
}

/// Appends the Zstandard frame of a column, and gives its length.
fn pack(
    packer: &mut io::Result<Compressor<'static>>,
    column: &[u8],
    out: &mut Vec<u8>,
) -> Option<usize> {
    let start = out.len();
    out.resize(start + zstd::zstd_safe::compress_bound(column.len()), 0);
    let length = packer.as_mut().ok()?.compress_to_buffer(column, &mut out[start..]).ok()?;
    out.truncate(start + length);
    Some(length)
}

/// Reads a column into `column`, of whose length it must be.
///
/// # Errors
/// Where the bytes are no such column.
pub fn read_column(
    body: &mut Body,
    field: &'static str,
    column: &mut [u8],
) -> Result<(), DecodeError> {
    let start = body.offset();
    match body.u8(field)? {
        ZEROS => column.fill(0),
        PLAIN => column.copy_from_slice(body.bytes(field, column.len())?),
        ZSTD => {
            let length = body.u32(field)? as usize;
            let packed = body.bytes(field, length)?;
            let unpacked = UNPACKER.with_borrow_mut(|unpacker| match unpacker {
                Ok(unpacker) => unpacker.decompress_to_buffer(packed, column),
                Err(error) => Err(io::Error::other(error.to_string())),
            });
            match unpacked {
                Ok(length) if length == column.len() => {}
                Ok(length) => {
                    let why = format_args!("{length} bytes instead of {}", column.len());
                    return Err(body.wrong(start, field, why));
                }
                Err(error) => return Err(body.wrong(start, field, error)),
            }
        }
        other => {
            let why = format_args!("a column of kind {other}, which there is none of");
            return Err(body.wrong(start, field, why));
        }
    }
    Ok(())
}

/// Appends the `width` low bytes of every word, column by column.
pub fn put_words(
    out: &mut Vec<u8>,
    width: usize,
    words: impl ExactSizeIterator<Item = u32> + Clone,
) {
    let mut column = Vec::with_capacity(words.len());
    for byte in 0..width {
        column.clear();
        column.extend(words.clone().map(|word| (word >> (8 * byte)) as u8));
        put_column(out, &column);
    }
}

/// Reads `number` words of which the `width` low bytes were sent.
///
/// # Errors
/// Where the bytes are no such columns.
pub fn read_words(
    body: &mut Body,
    field: &'static str,
    width: usize,
    number: usize,
) -> Result<Vec<u32>, DecodeError> {
    let mut words = vec![0; number];
    let mut column = vec![0; number];
    for byte in 0..width {
        read_column(body, field, &mut column)?;
        for (word, &part) in words.iter_mut().zip(&column) {
            *word |= u32::from(part) << (8 * byte);
        }
    }
    Ok(words)
}
