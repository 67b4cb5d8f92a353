//! Sets of flows that a controller names, as lcores look them up and as plans carry them.

use std::sync::{Arc, Mutex, PoisonError};

use calumma_sketch::sketchint::flow_word;
use calumma_sketch::{FlowKey, HashFamily, Key, KeyKind, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u16};

/// Words of flows in a table with as much room again, so that a look-up ends soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FlowTable(Box<[u64]>);

impl FlowTable {
    fn of(words: impl ExactSizeIterator<Item = u64>) -> Self {
        if words.len() == 0 {
            return Self::default();
        }
        let mut table = vec![0; (2 * words.len()).next_power_of_two()].into_boxed_slice();
        for word in words {
            let mut place = word as usize & (table.len() - 1);
            while table[place] != 0 && table[place] != word {
                place = (place + 1) & (table.len() - 1);
            }
            // A flow whose word is 0 is in no set.
            table[place] = word;
        }
        Self(table)
    }

    #[inline]
    fn has(&self, word: u64) -> bool {
        let Some(last) = self.0.len().checked_sub(1) else { return false };
        let mut place = word as usize & last;
        loop {
            match self.0[place] {
                0 => return false,
                there if there == word => return true,
                _ => place = (place + 1) & last,
            }
        }
    }
}

/// A set of flows, for keys of either kind. A flow that has another's
/// [word](calumma_sketch::sketchint::flow_word) by chance, one in 2^64 for each flow of the set,
/// counts as one of the set, at every switch that hashes alike.
///
/// Clones share the tables; an empty set takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSet(Option<Arc<[FlowTable; 2]>>);

impl FlowSet {
    /// The set of these flows, as `family` hashes them. An IPv4 flow is found by keys of both
    /// kinds.
    pub fn of(flows: &[WideKey], family: &HashFamily) -> Self {
        if flows.is_empty() {
            return Self::default();
        }
        let wide = flows.iter().map(|key| flow_word(&family.hash(key)));
        let narrow = |key: &WideKey| {
            let ((src, dst), (sport, dport)) = (key.addresses(), Key::ports(key));
            FlowKey::new(src, dst, sport, dport, Key::protocol(key))
        };
        let narrow: Vec<FlowKey> = flows.iter().filter_map(narrow).collect();
        let narrow = narrow.iter().map(|key| flow_word(&family.hash(key)));
        Self(Some(Arc::new([FlowTable::of(narrow), FlowTable::of(wide)])))
    }

    /// Whether it has no flow with a key of this kind.
    #[inline]
    pub fn is_empty(&self, kind: KeyKind) -> bool {
        self.table(kind).is_none_or(|table| table.0.is_empty())
    }

    /// Whether it has the flow of this word, of a key of this kind.
    #[inline]
    pub fn has(&self, kind: KeyKind, word: u64) -> bool {
        self.table(kind).is_some_and(|table| table.has(word))
    }

    #[inline]
    fn table(&self, kind: KeyKind) -> Option<&FlowTable> {
        self.0.as_deref().map(|tables| &tables[usize::from(kind == KeyKind::Dual)])
    }
}

/// The control thread's own share in all sets that lcores may have, so that an lcore never drops
/// the last one: it frees no memory.
#[derive(Debug, Default)]
pub struct SharedSets(Mutex<Vec<FlowSet>>);

impl SharedSets {
    /// Shares a set that is about to go to lcores, and frees those that none has any more.
    pub fn share(&self, set: FlowSet) -> FlowSet {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|set| set.0.as_ref().is_some_and(|tables| Arc::strong_count(tables) > 1));
        sets.push(set.clone());
        set
    }
}

/// Puts flows, which must stand in the order of their keys, into a plan: their number (2), and 37
/// bytes each.
pub fn put_flows(out: &mut Vec<u8>, flows: &[WideKey]) {
    put_u16(out, flows.len() as u16);
    flows.iter().for_each(|key| out.extend_from_slice(key.as_bytes()));
}

/// Reads what [`put_flows`] wrote, at most `most` flows.
///
/// # Errors
/// The first byte that can't be read, and why: also more flows, and such that are not in order.
pub fn read_flows(
    body: &mut Body<'_>,
    field: &'static str,
    most: usize,
) -> Result<Arc<[WideKey]>, DecodeError> {
    let offset = body.offset();
    let number = usize::from(body.u16(field)?);
    if number > most {
        return Err(body.wrong(offset, field, format_args!("{number}: there may be {most}")));
    }
    let offset = body.offset();
    let keys = body.bytes(field, number * WideKey::LEN)?.as_chunks::<{ WideKey::LEN }>().0;
    let flows: Arc<[WideKey]> = keys.iter().copied().map(WideKey::from_bytes).collect();
    if !flows.is_sorted_by(|one, other| one < other) {
        return Err(body.wrong(offset, field, "not in order"));
    }
    Ok(flows)
}

#[cfg(test)]
mod tests {
    use calumma_sketch::HashKey;

    use super::*;

    fn set() -> FlowSet {
        let key = WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 7, 80, 6);
        FlowSet::of(&[key], &HashFamily::new(&HashKey::from_bytes([3; 32])))
    }

    #[test]
    fn a_table_is_freed_by_who_shares_it_and_only_when_no_lcore_has_it() {
        let shared = SharedSets::default();
        let held = shared.share(set());
        let table = Arc::downgrade(held.0.as_ref().unwrap());
        drop(shared.share(FlowSet::default()));
        assert_eq!(table.strong_count(), 2);
        drop(held);
        assert_eq!(table.strong_count(), 1, "the last one is not the lcore's");
        drop(shared.share(FlowSet::default()));
        assert_eq!(table.strong_count(), 0);
        assert_eq!(shared.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn flows_are_found_by_keys_of_both_kinds() {
        let family = HashFamily::new(&HashKey::from_bytes([3; 32]));
        let narrow = FlowKey::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 7, 80, 6).unwrap();
        let set = set();
        assert!(set.has(KeyKind::Ipv4, flow_word(&family.hash(&narrow))));
        assert!(set.has(KeyKind::Dual, flow_word(&family.hash(&WideKey::from(narrow)))));
        assert!(!set.has(KeyKind::Dual, flow_word(&family.hash(&narrow))));
        assert!(!set.is_empty(KeyKind::Ipv4) && FlowSet::default().is_empty(KeyKind::Ipv4));
    }

    #[test]
    fn all_words_are_found_and_no_others() {
        let word = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7 | 5;
        let words = FlowTable::of((1..=1024).map(word).collect::<Vec<_>>().into_iter());
        assert_eq!(words.0.len(), 2048);
        assert!((1..=1024).all(|number| words.has(word(number))));
        assert!((1025..20_000).all(|number| !words.has(word(number))));
        assert!(!FlowTable::default().has(0));
    }
}
