//! From the words of a column's registers to entries.

use std::collections::BTreeMap;

use calumma_cfs::frames::{Entry, Setup};
use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, HashFamily, Hashes, WideKey};

/// Registers of a column, in the order of a place's words.
pub(crate) const WORDS: [&str; 8] = [
    "standing.words",
    "src.words",
    "dst.words",
    "ports.words",
    "rest.words",
    "packets.words",
    "bytes.words",
    "sixteenths.words",
];

/// Places that share a doubt in one group, and bits of the filter.
pub(crate) const DOUBTS: u32 = 1 << 12;
pub(crate) const FILTER: u32 = 1 << 15;

/// With the protocol above it and the note below, a place that has a flow.
const TAKEN: u32 = 1 << 16;

/// Classes that the program has, as it has them: complemented.
const CLASSES: u8 = 3;

/// Of more packets, sixteenths don't tell how many bytes went over.
const MOST_PACKETS: u32 = 1 << 28;

/// How flows of a window are hashed and graded.
pub(crate) struct Graded<'a> {
    pub(crate) family: &'a HashFamily,
    pub(crate) setup: &'a Setup,
    pub(crate) seed: u32,
    pub(crate) row_bits: u32,
}

/// What the columns hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Entries by flow. One flow has two where packets of different times to live raced: then
    /// neither is exact, and they are put together.
    pub(crate) entries: BTreeMap<WideKey, Entry>,
    /// Packets of all of them.
    pub(crate) packets: u64,
    /// Whether no sum has come to its end.
    pub(crate) fits: bool,
    /// The worst rank of each row that is full.
    pub(crate) worst: Vec<Rank>,
}

impl Graded<'_> {
    /// The hashes of a flow, as all switches of the network have them.
    pub(crate) fn hash(&self, key: FlowKey) -> Hashes {
        self.family.hash(&WideKey::from(key))
    }

    /// What columns of these words hold, the first one first; `doubts` has a word for each bit.
    ///
    /// # Errors
    /// Words that no place has, in words.
    pub(crate) fn held(&self, columns: &[Vec<u32>], doubts: &[u32]) -> Result<Held, String> {
        let mut held = Held { fits: true, ..Held::default() };
        for (number, column) in columns.iter().enumerate() {
            for (row, place) in (0..).zip(column.chunks(WORDS.len())) {
                let Some((entry, doubted)) = self.entry(row, place, doubts)? else { continue };
                held.packets += entry.packets;
                held.fits &= entry.packets < u32::MAX.into();
                if number + 1 == columns.len() {
                    held.worst.push(entry.rank);
                }
                let Some(before) = held.entries.get_mut(&entry.key) else {
                    held.entries.insert(entry.key, entry);
                    continue;
                };
                if !doubted {
                    return Err(format!("{} has two entries and is not doubted", entry.key));
                }
                before.packets += entry.packets;
                before.bytes += entry.bytes;
            }
        }
        Ok(held)
    }

    /// The entry in a place of a row, if it has one, and whether its flow is doubted.
    fn entry(
        &self,
        row: u32,
        place: &[u32],
        doubts: &[u32],
    ) -> Result<Option<(Entry, bool)>, String> {
        let &[standing, src, dst, ports, rest, packets, bytes, sixteenths] = place else {
            return Err(format!("a place of {} words", place.len()));
        };
        if place.iter().all(|word| *word == 0) {
            return Ok(None);
        }
        let (note, ttl) = (rest & 0xFFFF, standing as u8);
        let class = CLASSES.saturating_sub((standing >> 29) as u8);
        let key = FlowKey::from_words(src, dst, ports, (rest >> 24) as u8);
        let hashes = self.hash(key);
        let grade = self.setup.grade_of(self.family, &hashes, (self.seed, 0), ttl);
        let there = (u32::from(CLASSES - class) << 29) | ((!grade >> 11) << 8) | u32::from(ttl);
        let row_of = (hashes.array_word(0) & 0xFFFF) >> (16 - self.row_bits);
        let is_place = rest & 0xFF_0000 == TAKEN
            && (standing, row, note % FILTER) == (there, row_of, hashes.array_word(2) % FILTER);
        if !is_place || packets == 0 {
            return Err(format!(
                "row {row} has {key} with standing {standing:#x}, note {note:#x} and {packets} packets"
            ));
        }
        let doubted = doubts.get((note % DOUBTS) as usize).is_some_and(|bit| *bit != 0);
        let whole = bytes_of(packets, bytes, sixteenths);
        let entry = Entry {
            packets: packets.into(),
            // At least: of each packet the whole sixteenths.
            bytes: whole.unwrap_or(u64::from(sixteenths) * 16),
            rank: Rank::new(class, grade),
            ttl,
            sides: Entry::PASSED,
            exact: !doubted && packets < u32::MAX && whole.is_some(),
            ..Entry::new(key.into())
        };
        Ok(Some((entry, doubted)))
    }
}

/// The bytes of so many packets, from what they are modulo 2^32 and the sum of each packet's whole
/// sixteenths; `None` where they could be several numbers, or no number could be it.
fn bytes_of(packets: u32, bytes: u32, sixteenths: u32) -> Option<u64> {
    if packets >= MOST_PACKETS || sixteenths == u32::MAX {
        return None;
    }
    let least = u64::from(sixteenths) * 16;
    // The only number from there on that has these lower bits.
    let over = u64::from(bytes.wrapping_sub(least as u32));
    (over <= 15 * u64::from(packets)).then_some(least + over)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_beyond_a_word_are_known(lens in prop::collection::vec(20_u16.., 1..50), times in 1_u32..5_000_000) {
            let sum = |of: fn(u16) -> u64| lens.iter().map(|len| of(*len)).sum::<u64>() * u64::from(times);
            let bytes = sum(u64::from);
            let sixteenths = u32::try_from(sum(|len| u64::from(len / 16))).unwrap_or(u32::MAX);
            let packets = lens.len() as u32 * times;
            let known = bytes_of(packets, bytes as u32, sixteenths);
            if packets < MOST_PACKETS && sixteenths < u32::MAX {
                prop_assert_eq!(known, Some(bytes));
            } else {
                prop_assert_eq!(known, None);
            }
        }
    }

    #[test]
    fn sums_that_contradict_each_other_are_no_bytes() {
        assert_eq!(bytes_of(1, 100, 6), Some(100));
        assert_eq!(bytes_of(1, 95, 6), None);
        assert_eq!(bytes_of(1, 112, 6), None);
    }
}
