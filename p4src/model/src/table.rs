//! The entries of a table and the search among them.
//!
//! Exact keys of few bits index an array, others a hash map; longest prefixes are one map for
//! each length; ternary and range keys are searched in the order of their priority, among those
//! entries whose exact fields agree.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::exec::Count;
use crate::ir::{FieldMatch, MatchKind, Table};
use crate::types::{mask, prefix_mask};

/// Exact keys of at most so many bits index an array.
const DIRECT_BITS: u16 = 12;

/// One entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) keys: Vec<FieldMatch>,
    /// Lower wins; only among ternary and range keys.
    pub(crate) priority: u32,
    pub(crate) action: u32,
    pub(crate) args: Vec<u128>,
    pub(crate) count: Count,
}

/// Entries and default action of one table.
#[derive(Debug, Clone)]
pub(crate) struct TableState {
    /// Vacant places are kept for the next entry.
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// Entries by what they match, for the control plane.
    by_match: HashMap<(Vec<FieldMatch>, u32), u32>,
    search: Search,
    pub(crate) default_action: u32,
    pub(crate) default_args: Vec<u128>,
}

/// A fast hash for short keys; packets of a test can't attack it.
#[derive(Default, Clone)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).rotate_left(23).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<Mix>>;

#[derive(Debug, Clone)]
enum Search {
    /// No key: nothing is found.
    Never,
    /// Index is the key; an entry's number plus one.
    Direct {
        widths: Vec<u16>,
        slots: Vec<u32>,
    },
    Exact(Map<Box<[u128]>>),
    /// The same for a single field.
    Single(Map<u128>),
    Prefix {
        field: usize,
        width: u16,
        lengths: Vec<(u16, Map<Box<[u128]>>)>,
    },
    /// By priority, within those entries whose exact fields agree.
    Ordered {
        exact: Vec<Part>,
        bounded: Vec<usize>,
        groups: Groups,
    },
}

/// An exact field of an ordered table: position and bits.
#[derive(Debug, Clone, Copy)]
struct Part {
    field: usize,
    width: u16,
}

/// Entries by their exact fields.
#[derive(Debug, Clone)]
enum Groups {
    /// Index is the fields' bits.
    Direct(Vec<Lines>),
    Mapped(HashMap<Box<[u128]>, Lines, BuildHasherDefault<Mix>>),
}

/// Entries in the order of their priority; `bounds` holds those of each bounded field in turn.
#[derive(Debug, Clone, Default)]
struct Lines {
    order: Vec<(u32, u32)>,
    bounds: Vec<Bounds>,
}

/// `low <= key & mask <= high`
#[derive(Debug, Clone, Copy)]
struct Bounds {
    mask: u128,
    low: u128,
    high: u128,
}

impl Lines {
    fn find(&self, bounded: &[usize], key: &[u128]) -> Option<u32> {
        let mut lines = self.bounds.chunks_exact(bounded.len());
        let found = lines.position(|line| {
            line.iter().zip(bounded).all(|(bounds, &field)| {
                let value = key[field] & bounds.mask;
                bounds.low <= value && value <= bounds.high
            })
        });
        found.map(|at| self.order[at].1)
    }

    fn insert(&mut self, priority: u32, entry: u32, fields: impl Iterator<Item = Bounds>) {
        let at = self.order.partition_point(|(other, _)| *other <= priority);
        let fields: Vec<Bounds> = fields.collect();
        let first = at * fields.len();
        self.order.insert(at, (priority, entry));
        self.bounds.splice(first..first, fields);
    }

    fn remove(&mut self, entry: u32, fields: usize) {
        if let Some(at) = self.order.iter().position(|(_, other)| *other == entry) {
            self.order.remove(at);
            self.bounds.drain(at * fields..(at + 1) * fields);
        }
    }
}

impl TableState {
    pub(crate) fn new(table: &Table) -> TableState {
        let mut state = TableState {
            entries: Vec::new(),
            vacant: Vec::new(),
            by_match: HashMap::new(),
            search: Search::of(table),
            default_action: table.default_action,
            default_args: table.default_args.clone(),
        };
        for (priority, entry) in (0..).zip(&table.entries) {
            let priority = if table.is_ordered() { priority } else { 0 };
            let key = (entry.keys.clone(), priority);
            if !state.by_match.contains_key(&key) {
                state.insert(Entry {
                    keys: entry.keys.clone(),
                    priority,
                    action: entry.action,
                    args: entry.args.clone(),
                    count: Count::default(),
                });
            }
        }
        state
    }

    pub(crate) fn len(&self) -> usize {
        self.by_match.len()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    pub(crate) fn find(&self, keys: &[FieldMatch], priority: u32) -> Option<u32> {
        self.by_match.get(&(keys.to_vec(), priority)).copied()
    }

    /// The entry with that number, which came from [`TableState::lookup`] or
    /// [`TableState::find`].
    #[inline]
    pub(crate) fn entry(&self, index: u32) -> &Entry {
        match &self.entries[index as usize] {
            Some(entry) => entry,
            None => unreachable!("a removed entry is in no index"),
        }
    }

    /// The same, to be changed.
    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        match &mut self.entries[index as usize] {
            Some(entry) => entry,
            None => unreachable!("a removed entry is in no index"),
        }
    }

    /// Adds an entry; none with the same match and priority may be there.
    pub(crate) fn insert(&mut self, entry: Entry) {
        let index = self.vacant.pop().unwrap_or(self.entries.len() as u32);
        self.by_match.insert((entry.keys.clone(), entry.priority), index);
        self.search.insert(&entry.keys, entry.priority, index);
        match self.entries.get_mut(index as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
    }

    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(entry) = self.entries[index as usize].take() {
            self.search.remove(&entry.keys, index);
            self.by_match.remove(&(entry.keys, entry.priority));
            self.vacant.push(index);
        }
    }

    /// The entry that matches the key, by the rules of the table's match kinds. The key may be
    /// changed on the way.
    #[inline]
    pub(crate) fn lookup(&self, key: &mut [u128]) -> Option<u32> {
        match &self.search {
            Search::Never => None,
            Search::Direct { widths, slots } => slots[direct(widths, key)].checked_sub(1),
            Search::Single(map) => map.get(&key[0]).copied(),
            Search::Exact(map) => map.get(&*key).copied(),
            // Each prefix is shorter than the one before, so the key may lose its bits for good.
            Search::Prefix { field, width, lengths } => lengths.iter().find_map(|(length, map)| {
                key[*field] &= prefix_mask(*width, *length);
                map.get(&*key).copied()
            }),
            Search::Ordered { exact, bounded, groups } => match groups {
                Groups::Direct(groups) => {
                    let index = exact
                        .iter()
                        .fold(0, |index, part| index << part.width | key[part.field] as usize);
                    groups[index].find(bounded, key)
                }
                Groups::Mapped(groups) => {
                    let at: Box<[u128]> = exact.iter().map(|part| key[part.field]).collect();
                    groups.get(&at)?.find(bounded, key)
                }
            },
        }
    }
}

impl Table {
    /// Entries have priorities.
    pub(crate) fn is_ordered(&self) -> bool {
        self.keys.iter().any(|key| matches!(key.kind, MatchKind::Ternary | MatchKind::Range))
    }
}

fn direct(widths: &[u16], key: &[u128]) -> usize {
    widths.iter().zip(key).fold(0, |index, (width, value)| index << width | *value as usize)
}

/// The values of exact fields.
fn values(keys: &[FieldMatch]) -> Box<[u128]> {
    keys.iter()
        .map(|key| match *key {
            FieldMatch::Exact(value)
            | FieldMatch::Ternary { value, .. }
            | FieldMatch::Lpm { value, .. } => value,
            FieldMatch::Range { low, .. } => low,
        })
        .collect()
}

fn prefix_length(keys: &[FieldMatch], field: usize) -> u16 {
    match keys[field] {
        FieldMatch::Lpm { length, .. } => length,
        _ => 0,
    }
}

fn bounds(key: &FieldMatch) -> Bounds {
    match *key {
        FieldMatch::Exact(value) => Bounds { mask: u128::MAX, low: value, high: value },
        FieldMatch::Ternary { value, mask } => Bounds { mask, low: value, high: value },
        FieldMatch::Range { low, high } => Bounds { mask: u128::MAX, low, high },
        // No table has prefixes beside ternary fields.
        FieldMatch::Lpm { value, .. } => Bounds { mask: u128::MAX, low: value, high: value },
    }
}

impl Search {
    fn of(table: &Table) -> Search {
        let widths: Vec<u16> = table.keys.iter().map(|key| key.width).collect();
        if widths.is_empty() {
            return Search::Never;
        }
        if table.is_ordered() {
            let is_exact = |field: &usize| table.keys[*field].kind == MatchKind::Exact;
            let (exact, bounded): (Vec<usize>, Vec<usize>) =
                (0..widths.len()).partition(|field| is_exact(field));
            let exact: Vec<Part> =
                exact.into_iter().map(|field| Part { field, width: widths[field] }).collect();
            let total: u16 = exact.iter().map(|part| part.width).sum();
            let groups = if total <= DIRECT_BITS {
                Groups::Direct(vec![Lines::default(); 1 << total])
            } else {
                Groups::Mapped(HashMap::default())
            };
            return Search::Ordered { exact, bounded, groups };
        }
        if let Some(field) = table.keys.iter().position(|key| key.kind == MatchKind::Lpm) {
            return Search::Prefix { field, width: widths[field], lengths: Vec::new() };
        }
        let total: u16 = widths.iter().sum();
        if total <= DIRECT_BITS {
            return Search::Direct { widths, slots: vec![0; 1 << total] };
        }
        if widths.len() == 1 {
            Search::Single(Map::default())
        } else {
            Search::Exact(Map::default())
        }
    }

    fn insert(&mut self, keys: &[FieldMatch], priority: u32, entry: u32) {
        match self {
            Search::Never => {}
            Search::Direct { widths, slots } => slots[direct(widths, &values(keys))] = entry + 1,
            Search::Single(map) => {
                map.insert(values(keys)[0], entry);
            }
            Search::Exact(map) => {
                map.insert(values(keys), entry);
            }
            Search::Prefix { field, lengths, .. } => {
                let length = prefix_length(keys, *field);
                let at = lengths.partition_point(|(other, _)| *other > length);
                if lengths.get(at).is_none_or(|(other, _)| *other != length) {
                    lengths.insert(at, (length, Map::default()));
                }
                lengths[at].1.insert(values(keys), entry);
            }
            Search::Ordered { exact, bounded, groups } => {
                let fields = bounded.iter().map(|&field| bounds(&keys[field]));
                groups.of(exact, keys).insert(priority, entry, fields);
            }
        }
    }

    fn remove(&mut self, keys: &[FieldMatch], entry: u32) {
        match self {
            Search::Never => {}
            Search::Direct { widths, slots } => slots[direct(widths, &values(keys))] = 0,
            Search::Single(map) => {
                map.remove(&values(keys)[0]);
            }
            Search::Exact(map) => {
                map.remove(&values(keys));
            }
            Search::Prefix { field, lengths, .. } => {
                let length = prefix_length(keys, *field);
                if let Some((_, map)) = lengths.iter_mut().find(|(other, _)| *other == length) {
                    map.remove(&values(keys));
                }
                lengths.retain(|(_, map)| !map.is_empty());
            }
            Search::Ordered { exact, bounded, groups } => {
                groups.of(exact, keys).remove(entry, bounded.len());
            }
        }
    }
}

impl Groups {
    /// The entries with these exact fields.
    fn of(&mut self, exact: &[Part], keys: &[FieldMatch]) -> &mut Lines {
        let all = values(keys);
        match self {
            Groups::Direct(groups) => {
                let index = exact
                    .iter()
                    .fold(0, |index, part| index << part.width | all[part.field] as usize);
                &mut groups[index]
            }
            Groups::Mapped(groups) => {
                let key = exact.iter().map(|part| all[part.field]).collect();
                groups.entry(key).or_default()
            }
        }
    }
}

/// True if the match fits a field of `width` bits in the form that tables hold: values without
/// bits outside the mask or prefix.
pub(crate) fn check_field(field: &FieldMatch, kind: MatchKind, width: u16) -> Result<(), String> {
    let all = mask(width);
    let fits = |value: u128| {
        if value > all { Err(format!("{value:#x} does not fit in {width} bits")) } else { Ok(()) }
    };
    match (*field, kind) {
        (FieldMatch::Exact(value), MatchKind::Exact) => fits(value),
        (FieldMatch::Ternary { value, mask }, MatchKind::Ternary) => {
            fits(mask)?;
            fits(value)
        }
        (FieldMatch::Lpm { value, length }, MatchKind::Lpm) => {
            if length > width {
                return Err(format!("a prefix of {length} bits in a field of {width}"));
            }
            fits(value)
        }
        (FieldMatch::Range { low, high }, MatchKind::Range) => {
            if low > high {
                return Err(format!("the range {low}..{high} is empty"));
            }
            fits(high)
        }
        (_, kind) => Err(format!("this field is matched {kind:?}")),
    }
}

/// The match with the bits that do not count cleared.
pub(crate) fn normalize(field: FieldMatch, width: u16) -> FieldMatch {
    match field {
        FieldMatch::Ternary { value, mask } => FieldMatch::Ternary { value: value & mask, mask },
        FieldMatch::Lpm { value, length } => {
            FieldMatch::Lpm { value: value & prefix_mask(width, length), length }
        }
        other => other,
    }
}
