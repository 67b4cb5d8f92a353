//! The entries of a table, column by column: small numbers take few bytes.
//!
//! ```text
//! number (4)
//! keys: a column for each of their bytes, 13 or 37, in the order of docs/contract.md
//! packets, bytes, grades, classes, times to live, bitmaps of differences, looped packets,
//! first packets, times from first to last packets, sides (8 more: local), whether exact:
//! 8 8 4 1 1 8 8 4 4 1 1 columns, the least significant byte first
//! ```

use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, KeyKind, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32};
use calumma_wire::columns::{put_column, read_column};

use super::window::class_is_wrong;

/// What a table counted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The flow; an IPv4 one mapped.
    pub key: WideKey,
    /// Its packets, at least one.
    pub packets: u64,
    /// Their bytes: the total length of IPv4, of IPv6 40 and the payload length, as received.
    pub bytes: u64,
    /// By which it was chosen: that of its first packet.
    pub rank: Rank,
    /// Time to live, or hop limit, of its first packet, as received.
    pub ttl: u8,
    /// Which other times to live its packets came with. Bit d, 1 to 63, is set where one had d less
    /// than the first packet, bit 0 where one had more, or less by more than 63.
    pub differences: u64,
    /// Packets that came with another time to live than the first one.
    pub looped: u64,
    /// When its first packet came, in microseconds since the window began.
    pub first_us: u32,
    /// When its last packet came.
    pub last_us: u32,
    /// On which sides the switch saw it: [`ENTERED`](Self::ENTERED), [`PASSED`](Self::PASSED),
    /// [`LEFT`](Self::LEFT), or several of them.
    pub sides: u8,
    /// Whether some that entered went to a host of the same switch; where edges don't say that
    /// ([`Setup::ends`](super::Setup::ends)), it is not set.
    pub local: bool,
    /// Whether the table had it since its first packet of the window: else it had at least what was
    /// counted.
    pub exact: bool,
}

impl Entry {
    /// Packets came from hosts. Those that go to a host of the same switch did nothing else.
    pub const ENTERED: u8 = 1;

    /// Packets passed from fabric to fabric.
    pub const PASSED: u8 = 2;

    /// Packets came from the fabric, for hosts.
    pub const LEFT: u8 = 4;

    /// All of them.
    const SIDES: u8 = Self::ENTERED | Self::PASSED | Self::LEFT;

    /// What stands beside the sides of an entry that is [`local`](Self::local).
    const LOCAL: u8 = 8;

    /// An entry of a flow of which nothing is known yet, to be filled in.
    pub fn new(key: WideKey) -> Self {
        Self {
            key,
            packets: 0,
            bytes: 0,
            rank: Rank::default(),
            ttl: 0,
            differences: 0,
            looped: 0,
            first_us: 0,
            last_us: 0,
            sides: 0,
            local: false,
            exact: false,
        }
    }

    /// The bit of [`differences`](Self::differences) for a packet with another time to live than
    /// the first one.
    #[inline(always)]
    pub fn difference(first: u8, other: u8) -> u64 {
        match first.checked_sub(other) {
            Some(less @ 1..=63) => 1 << less,
            _ => 1,
        }
    }

    /// The smallest and the largest time to live of the packets that it counted. `None` where one
    /// had more than the first, or less by more than 63: which of these is not known.
    pub fn ttls(&self) -> Option<[u8; 2]> {
        if self.differences & 1 != 0 {
            return None;
        }
        let most_less = self.differences.checked_ilog2().unwrap_or(0) as u8;
        Some([self.ttl.checked_sub(most_less)?, self.ttl])
    }

    fn sides_sent(&self) -> u8 {
        self.sides | if self.local { Self::LOCAL } else { 0 }
    }

    /// What is wrong with it: the field, and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let Self { packets, differences, looped, first_us, last_us, sides, local, .. } = *self;
        if packets == 0 {
            return Err(("packets", "0".to_owned()));
        }
        if looped >= packets {
            return Err(("looped packets", format!("{looped} of {packets}")));
        }
        if (looped == 0) != (differences == 0) || u64::from(differences.count_ones()) > looped {
            let why = format!("{differences:#x} of {looped} looped packets");
            return Err(("differences", why));
        }
        let is_nowhere = sides == 0 || sides & !Self::SIDES != 0;
        if is_nowhere || local && sides & Self::ENTERED == 0 {
            return Err(("sides", format!("{:#x}", self.sides_sent())));
        }
        if last_us < first_us {
            return Err(("last packets", "beyond 2^32 microseconds".to_owned()));
        }
        Ok(())
    }
}

/// Columns of numbers of up to eight bytes.
struct Field {
    name: &'static str,
    width: usize,
    get: fn(&Entry) -> u64,
    set: fn(&mut Entry, u64),
}

static FIELDS: [Field; 11] = [
    Field { name: "packets", width: 8, get: |it| it.packets, set: |it, to| it.packets = to },
    Field { name: "bytes", width: 8, get: |it| it.bytes, set: |it, to| it.bytes = to },
    Field {
        name: "grades",
        width: 4,
        get: |it| it.rank.grade().into(),
        set: |it, to| it.rank = Rank::new(0, to as u32),
    },
    Field {
        name: "classes",
        width: 1,
        get: |it| it.rank.class().into(),
        set: |it, to| it.rank = Rank::new(to as u8, it.rank.grade()),
    },
    Field {
        name: "times to live",
        width: 1,
        get: |it| it.ttl.into(),
        set: |it, to| it.ttl = to as u8,
    },
    Field {
        name: "differences",
        width: 8,
        get: |it| it.differences,
        set: |it, to| it.differences = to,
    },
    Field { name: "looped packets", width: 8, get: |it| it.looped, set: |it, to| it.looped = to },
    Field {
        name: "first packets",
        width: 4,
        get: |it| it.first_us.into(),
        set: |it, to| it.first_us = to as u32,
    },
    Field {
        name: "last packets",
        width: 4,
        get: |it| it.last_us.wrapping_sub(it.first_us).into(),
        set: |it, to| it.last_us = it.first_us.wrapping_add(to as u32),
    },
    Field {
        name: "sides",
        width: 1,
        get: |it| it.sides_sent().into(),
        set: |it, to| {
            it.sides = to as u8 & !Entry::LOCAL;
            it.local = to as u8 & Entry::LOCAL != 0;
        },
    },
    Field { name: "exact", width: 1, get: |it| it.exact.into(), set: |it, to| it.exact = to == 1 },
];

/// Values of the fields that not every byte is one of.
const CLASSES: usize = 3;
const EXACT: usize = 10;

/// Bytes of a key.
pub(super) fn key_len(keys: KeyKind) -> usize {
    match keys {
        KeyKind::Ipv4 => FlowKey::LEN,
        KeyKind::Dual => WideKey::LEN,
    }
}

/// Where the bytes of such keys, in their order, stand in those of a wide key.
fn key_bytes(keys: KeyKind) -> impl Iterator<Item = usize> + Clone {
    const MAPPED: usize = 12;
    let is_sent = move |&at: &usize| match keys {
        KeyKind::Ipv4 => !(0..MAPPED).contains(&at) && !(16..16 + MAPPED).contains(&at),
        KeyKind::Dual => true,
    };
    (0..WideKey::LEN).filter(is_sent)
}

pub(super) fn put(out: &mut Vec<u8>, keys: KeyKind, entries: &[Entry]) {
    put_u32(out, entries.len() as u32);
    put_keys(out, keys, entries.iter().map(|entry| &entry.key));
    let mut column = Vec::with_capacity(entries.len());
    for Field { width, get, .. } in &FIELDS {
        for byte in 0..*width {
            column.clear();
            column.extend(entries.iter().map(|entry| (get(entry) >> (8 * byte)) as u8));
            put_column(out, &column);
        }
    }
}

/// Puts a column for each byte of the keys.
pub(super) fn put_keys<'a>(
    out: &mut Vec<u8>,
    keys: KeyKind,
    of: impl Iterator<Item = &'a WideKey> + Clone,
) {
    let mut column = Vec::new();
    for at in key_bytes(keys) {
        column.clear();
        column.extend(of.clone().map(|key| key.as_bytes()[at]));
        put_column(out, &column);
    }
}

pub(super) fn read(
    body: &mut Body<'_>,
    keys: KeyKind,
    most: u32,
) -> Result<Vec<Entry>, DecodeError> {
    let offset = body.offset();
    let number = body.u32("number of entries")?;
    if number > most {
        let why = format_args!("{number}, and the table has {most}");
        return Err(body.wrong(offset, "number of entries", why));
    }
    // Columns of zeros take a byte however long they are: nothing large is made for a body that
    // does not have all of them.
    let columns = key_len(keys) + FIELDS.iter().map(|field| field.width).sum::<usize>();
    if body.left() < columns {
        return Err(body.wrong(
            offset,
            "number of entries",
            format_args!("{columns} columns follow"),
        ));
    }
    let number = number as usize;
    let mut column = vec![0; number];
    let keys = read_keys(body, keys, &mut column, "entries")?;
    let mut entries: Vec<Entry> = keys.into_iter().map(Entry::new).collect();
    let mut values = vec![0; number];
    for (of_field, Field { name, width, set, .. }) in FIELDS.iter().enumerate() {
        let offset = body.offset();
        values.fill(0);
        for byte in 0..*width {
            read_column(body, name, &mut column)?;
            for (value, &part) in values.iter_mut().zip(&column) {
                *value |= u64::from(part) << (8 * byte);
            }
        }
        for (at, (entry, &value)) in entries.iter_mut().zip(&values).enumerate() {
            let why = match (of_field, value) {
                (CLASSES, 4..) => class_is_wrong(value as u8),
                (EXACT, 2..) => format!("{value} is neither 0 nor 1"),
                _ => {
                    set(entry, value);
                    continue;
                }
            };
            return Err(body.wrong(offset, name, format_args!("entry {at}: {why}")));
        }
    }
    for (at, entry) in entries.iter().enumerate() {
        entry.check().map_err(|(field, why)| {
            body.wrong(offset, field, format_args!("entry {at}, {}: {why}", entry.key))
        })?;
    }
    Ok(entries)
}

/// As many keys as the column is long, each larger than the one before.
pub(super) fn read_keys(
    body: &mut Body<'_>,
    keys: KeyKind,
    column: &mut [u8],
    what: &'static str,
) -> Result<Vec<WideKey>, DecodeError> {
    let offset = body.offset();
    let mut bytes = vec![[0; WideKey::LEN]; column.len()];
    if keys == KeyKind::Ipv4 {
        let mapped = WideKey::from(FlowKey::ZERO);
        bytes.iter_mut().for_each(|key| key.copy_from_slice(mapped.as_bytes()));
    }
    for at in key_bytes(keys) {
        read_column(body, "keys", column)?;
        bytes.iter_mut().zip(&*column).for_each(|(key, &byte)| key[at] = byte);
    }
    if let Some(at) = bytes.windows(2).position(|pair| pair[0] >= pair[1]) {
        let (one, next) = (WideKey::from_bytes(bytes[at]), WideKey::from_bytes(bytes[at + 1]));
        let how = if one == next { "are the same flow" } else { "are not in order" };
        let why = format_args!("{what} {at} and {}, {one} and {next}, {how}", at + 1);
        return Err(body.wrong(offset, "keys", why));
    }
    Ok(bytes.into_iter().map(WideKey::from_bytes).collect())
}
