//! Flows without an entry whose packets may have gone round in a loop.
//!
//! ```text
//! how often one found no place (8)  number (4)
//! keys: a column for each of their bytes
//! highest times to live, bitmaps of differences: 1 8 columns, the least significant byte first
//! ```

use calumma_sketch::{KeyKind, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32, put_u64};
use calumma_wire::columns::{put_column, read_column};

use super::entries::{key_len, put_keys, read_keys};

/// A flow without an entry that came with at least three times to live at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The flow; an IPv4 one mapped.
    pub key: WideKey,
    /// The highest time to live, or hop limit, as received.
    pub ttl: u8,
    /// Others that came after a higher one: bit d, 1 to 63, is set where one was d less than the
    /// highest, bit 0 where one was less by more than 63. Of a flow that had an entry for a while
    /// they are from its first packet on, as [`Entry::differences`](super::Entry::differences).
    pub differences: u64,
}

impl Suspect {
    /// Hops of the shortest loop: two switches send packets to each other.
    pub const LEAST_LENGTH: u8 = 2;

    /// Columns of a suspect, those of its key left out.
    const COLUMNS: usize = 9;
}

/// What a switch saw of flows without an entry that may be in loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    /// By rising keys.
    pub flows: Vec<Suspect>,
    /// How often such a flow found no place to be remembered in: loops may be missing then.
    pub missed: u64,
}

impl Suspects {
    /// Flows that a switch can send.
    pub const MOST: u32 = 1 << 16;
}

pub(super) fn put(out: &mut Vec<u8>, keys: KeyKind, suspects: &Suspects) {
    put_u64(out, suspects.missed);
    put_flows(out, keys, &suspects.flows);
}

pub(super) fn put_flows(out: &mut Vec<u8>, keys: KeyKind, flows: &[Suspect]) {
    put_u32(out, flows.len() as u32);
    put_keys(out, keys, flows.iter().map(|flow| &flow.key));
    let mut column: Vec<u8> = flows.iter().map(|flow| flow.ttl).collect();
    put_column(out, &column);
    for byte in 0..8 {
        column.clear();
        column.extend(flows.iter().map(|flow| (flow.differences >> (8 * byte)) as u8));
        put_column(out, &column);
    }
}

pub(super) fn read(body: &mut Body<'_>, keys: KeyKind) -> Result<Suspects, DecodeError> {
    let missed = body.u64("suspects without a place")?;
    Ok(Suspects { flows: read_flows(body, keys)?, missed })
}

pub(super) fn read_flows(body: &mut Body<'_>, keys: KeyKind) -> Result<Vec<Suspect>, DecodeError> {
    let offset = body.offset();
    let number = body.u32("number of suspects")?;
    if number > Suspects::MOST {
        let why = format_args!("{number}: must be at most {}", Suspects::MOST);
        return Err(body.wrong(offset, "number of suspects", why));
    }
    let columns = key_len(keys) + Suspect::COLUMNS;
    if body.left() < columns {
        let why = format_args!("{columns} columns follow");
        return Err(body.wrong(offset, "number of suspects", why));
    }
    let mut column = vec![0; number as usize];
    let keys = read_keys(body, keys, &mut column, "suspects")?;
    let suspect = |key| Suspect { key, ttl: 0, differences: 0 };
    let mut flows: Vec<Suspect> = keys.into_iter().map(suspect).collect();
    read_column(body, "times to live of suspects", &mut column)?;
    flows.iter_mut().zip(&column).for_each(|(flow, &ttl)| flow.ttl = ttl);
    for byte in 0..8 {
        read_column(body, "differences of suspects", &mut column)?;
        for (flow, &part) in flows.iter_mut().zip(&column) {
            flow.differences |= u64::from(part) << (8 * byte);
        }
    }
    if let Some(at) = flows.iter().position(|flow| flow.differences == 0) {
        let why = format_args!("suspect {at}, {}: none", flows[at].key);
        return Err(body.wrong(offset, "differences of suspects", why));
    }
    Ok(flows)
}
