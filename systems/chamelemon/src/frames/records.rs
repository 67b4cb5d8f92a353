//! What version 2 of the bodies adds: packets by hierarchy, and packets that no sketch holds.
//!
//! Behind the sketches of a side comes, where any of it was recorded, a byte that says what: bit 0
//! the [`Balance`], bit 1 packets that found no bucket, bit 2 packets without a mark, bit 3 the
//! number of the key that it was hashed by, bit 4 how many lcores measured it. A side that ends
//! with its sketches is one of version 1. The body of a seal is empty, or [`Late`].

use calumma_plane::{Hierarchy, MOST_STRAYS, Stray, Strays};
use calumma_sketch::{AnyKey, Key, KeyKind, Keyed, WideKey};
use calumma_wire::body::{Body, put_u8, put_u32, put_u64};
use calumma_wire::columns::{most_column_bytes, put_words, read_words};
use calumma_wire::{DecodeError, Problem};

use super::sketches::{keys, put_keys};
use crate::Balance;

const BALANCE: u8 = 1;
const STRAYS: u8 = 1 << 1;
const UNMARKED: u8 = 1 << 2;
const KEY: u8 = 1 << 3;
const LCORES: u8 = 1 << 4;

/// Most packets of one kind that a side or a seal may say, as many as the controller takes of a
/// side at all. Sums over edges can't overflow then.
const MOST_PACKETS: u64 = 1 << 48;

/// Bits of the hierarchy in its column of strays.
const MOST_HIERARCHY: u32 = 3;

/// Most bytes that a side's records take.
pub(super) fn most_bytes() -> usize {
    1 + 5 * 8 + 4 + 2 * (12 + (WideKey::LEN + 6) * most_column_bytes(MOST_STRAYS))
}

/// What a side adds to its sketches. What was not recorded is not known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Records<K> {
    pub(super) balance: Option<Balance>,
    pub(super) strays: Option<Strays<K>>,
    pub(super) unmarked: Option<Strays<K>>,
    /// [`calumma_sketch::HashKey::id`].
    pub(super) key: Option<u64>,
    /// As [`Ingress::lcores`](super::Ingress::lcores).
    pub(super) lcores: Option<u32>,
}

impl<K> Records<K> {
    pub(super) const NONE: Self =
        Self { balance: None, strays: None, unmarked: None, key: None, lcores: None };
}

/// Packets that came when the epoch of their timestamp bit was over, and the next one with that bit
/// had not begun; and those whose marks say that they are older by so many epochs than the one that
/// is sealed, whenever they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late<K> {
    /// Those of hierarchy 0, which no sketch would have held.
    pub unencoded: u64,
    /// The others, by flow.
    pub strays: Strays<K>,
}

/// [`Late`] packets of any kind of key.
#[derive(Debug)]
pub enum AnyLate {}

impl Keyed for AnyLate {
    type Of<K: Key> = Late<K>;
}

impl<K: Key> Late<K> {
    /// The body of a seal.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.unencoded);
        put_strays(&mut out, &self.strays);
        out
    }

    fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            unencoded: packets("late packets of hierarchy 0", body)?,
            strays: strays("late packets", body)?,
        })
    }
}

/// The late packets of a seal, by keys of a kind; `None` where its body is empty, as that of a
/// switch that only counts them.
///
/// # Errors
/// The first byte that can't be read, and why.
pub fn decode_late(keys: KeyKind, bytes: &[u8]) -> Result<Option<AnyKey<AnyLate>>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut body = Body::new("a seal", bytes, 0);
    let late = match keys {
        KeyKind::Ipv4 => AnyKey::Ipv4(Late::decode(&mut body)?),
        KeyKind::Dual => AnyKey::Dual(Late::decode(&mut body)?),
    };
    body.end()?;
    Ok(Some(late))
}

/// Reads a number of packets.
fn packets(field: &'static str, body: &mut Body) -> Result<u64, DecodeError> {
    let offset = body.offset();
    let packets = body.u64(field)?;
    if packets > MOST_PACKETS {
        return Err(body.wrong(offset, field, format_args!("{packets} packets in an epoch")));
    }
    Ok(packets)
}

/// Appends what a side adds to its sketches.
pub(super) fn put_records<K: Key>(out: &mut Vec<u8>, records: &Records<K>) {
    let Records { balance, strays, unmarked, key, lcores } = records;
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let flags = flag(balance.is_some(), BALANCE)
        | flag(strays.is_some(), STRAYS)
        | flag(unmarked.is_some(), UNMARKED)
        | flag(key.is_some(), KEY)
        | flag(lcores.is_some(), LCORES);
    if flags == 0 {
        return;
    }
    put_u8(out, flags);
    let balance = balance.iter().flat_map(Balance::counts);
    balance.for_each(|packets| put_u64(out, packets));
    strays.iter().chain(unmarked).for_each(|strays| put_strays(out, strays));
    key.iter().for_each(|&key| put_u64(out, key));
    lcores.iter().for_each(|&lcores| put_u32(out, lcores));
}

/// Reads what a side adds to its sketches, of what its kind may add.
fn records<K: Key>(may_add: u8, body: &mut Body) -> Result<Records<K>, DecodeError> {
    if body.left() == 0 {
        return Ok(Records::NONE);
    }
    let offset = body.offset();
    let flags = body.u8("records")?;
    if flags == 0 {
        return Err(body.error_at(offset, Problem::LeftOver(body.left() + 1)));
    }
    if flags & !may_add != 0 {
        let why = format_args!("{flags:#04x} says what such a side does not have");
        return Err(body.wrong(offset, "records", why));
    }
    let mut balance = None;
    if flags & BALANCE != 0 {
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = packets("packets by hierarchy", body)?;
        }
        balance = Some(Balance::new(counts));
    }
    let mut listed = |flag: u8, field| -> Result<_, DecodeError> {
        if flags & flag == 0 { Ok(None) } else { strays(field, body).map(Some) }
    };
    let strays = listed(STRAYS, "packets without buckets")?;
    let unmarked = listed(UNMARKED, "packets without a mark")?;
    let key = if flags & KEY == 0 { None } else { Some(body.u64("number of the key")?) };
    let lcores = if flags & LCORES == 0 { None } else { Some(body.u32("number of lcores")?) };
    Ok(Records { balance, strays, unmarked, key, lcores })
}

/// Reads what an ingress side adds.
pub(super) fn of_ingress(body: &mut Body) -> Result<Records<WideKey>, DecodeError> {
    // It has no strays, whatever their keys.
    records(BALANCE | KEY | LCORES, body)
}

/// Reads what an egress side adds.
pub(super) fn of_egress<K: Key>(body: &mut Body) -> Result<Records<K>, DecodeError> {
    records(BALANCE | STRAYS | UNMARKED | KEY, body)
}

fn put_strays<K: Key>(out: &mut Vec<u8>, strays: &Strays<K>) {
    let mut strays = strays.clone();
    strays.cut();
    let Strays { entries, beyond } = strays;
    put_u32(out, entries.len() as u32);
    put_u64(out, beyond);
    if entries.is_empty() {
        return;
    }
    let of = |field: fn(&Stray<K>) -> u32| entries.iter().map(field);
    put_keys(out, &entries.iter().map(|stray| stray.key).collect::<Vec<_>>());
    put_words(out, 1, of(|stray| stray.hierarchy.bits().into()));
    put_words(out, 1, of(|stray| stray.epochs_back.into()));
    put_words(out, 4, of(|stray| stray.packets));
}

fn strays<K: Key>(field: &'static str, body: &mut Body) -> Result<Strays<K>, DecodeError> {
    let start = body.offset();
    let number = body.u32(field)? as usize;
    let beyond = packets(field, body)?;
    if number > MOST_STRAYS {
        let why = format_args!("{number} entries, at most {MOST_STRAYS} are sent");
        return Err(body.wrong(start, field, why));
    }
    if number == 0 {
        return Ok(Strays { entries: Vec::new(), beyond });
    }
    let keys = keys(field, number, body)?;
    let mut column = |width| read_words(body, field, width, number);
    let (hierarchies, ages, packets) = (column(1)?, column(1)?, column(4)?);
    let mut entries: Vec<Stray<K>> = Vec::with_capacity(number);
    for (at, key) in keys.into_iter().enumerate() {
        if hierarchies[at] > MOST_HIERARCHY {
            let why = format_args!("entry {at} has hierarchy {}: 0 to 3", hierarchies[at]);
            return Err(body.wrong(start, field, why));
        }
        let hierarchy = Hierarchy::from_bits(hierarchies[at] as u8);
        let (epochs_back, packets) = (ages[at] as u8, packets[at]);
        let place = |stray: &Stray<K>| (stray.key, stray.hierarchy, stray.epochs_back);
        let stray = Stray { key, hierarchy, epochs_back, packets };
        if entries.last().is_some_and(|before| place(before) >= place(&stray)) {
            let why = format_args!("entry {at} is not beyond the one before it");
            return Err(body.wrong(start, field, why));
        }
        if packets == 0 {
            return Err(body.wrong(start, field, format_args!("entry {at} has no packets")));
        }
        entries.push(stray);
    }
    Ok(Strays { entries, beyond })
}
