//! From the words of a column's registers to entries.

use std::collections::{BTreeMap, BTreeSet};

use calumma_cfs::frames::{Entry, Setup};
use calumma_sketch::table::Rank;
use calumma_sketch::{FlowKey, HashFamily, Hashes, WideKey};

/// Registers of a column, in the order of a place's words: the first three have two each, which are
/// read one after the other, and so are the last two.
pub(crate) const REGISTERS: [&str; 5] =
    ["ends.words", "ports.words", "counts.sums", "standing.words", "sixteenths.sums"];

/// Words of a place.
pub(crate) const WORDS: usize = 8;

/// Places that share a doubt in one group, and bits of the filter.
pub(crate) const DOUBTS: u32 = 1 << 12;
pub(crate) const FILTER: u32 = 1 << 15;

/// That a place has a flow, in two of its words; in the second, what lies between the last bits of
/// the source address and the note.
const TAKEN: u32 = 1 << 31;
const BETWEEN: u32 = 0x3F_0000;

/// Classes that the program has, as it has them: complemented.
const CLASSES: u8 = 3;

/// What a standing says of the first packet's side, by the numbers in
/// `p4src/include/cfs/types.p4`.
const SIDES: [u8; 3] = [Entry::PASSED, Entry::ENTERED, Entry::LEFT];

/// That packets came on another side than the first one, among what makes counts doubtful.
const STRAYED: u32 = 2;

/// The class of flows that are pinned, and that of flows from a host to a host of the same switch.
const PINNED: u8 = 0;
const SINGLE: u8 = 1;

/// Of more packets, sixteenths don't tell how many bytes went over.
const MOST_PACKETS: u32 = 1 << 28;

/// How flows of a window are hashed and graded.
pub(crate) struct Graded<'a> {
    pub(crate) family: &'a HashFamily,
    pub(crate) setup: &'a Setup,
    pub(crate) seed: u32,
    pub(crate) row_bits: u32,
    pub(crate) is_edge: bool,
    /// Those that come before all others.
    pub(crate) pinned: &'a BTreeSet<FlowKey>,
}

/// An entry, and whether its flow is doubted.
type Found = (Entry, bool);

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

    /// What columns of these words hold, the first one first; `doubts` has a word of kinds for each
    /// of the places that flows share.
    ///
    /// # Errors
    /// Words that no place has, in words.
    pub(crate) fn held(&self, columns: &[Vec<u32>], doubts: &[u32]) -> Result<Held, String> {
        let mut held = Held { fits: true, ..Held::default() };
        // By row: places that are taken, and the worst rank there.
        let mut rows = vec![(0, Rank::default()); 1 << self.row_bits];
        for column in columns {
            for (row, place) in (0..).zip(column.chunks(WORDS)) {
                let Some((entry, doubted)) = self.entry(row, place, doubts)? else { continue };
                if let Some((taken, worst)) = rows.get_mut(row as usize) {
                    *taken += 1;
                    *worst = entry.rank.max(*worst);
                }
                held.packets += entry.packets;
                held.fits &= entry.packets < u32::MAX.into();
                let Some(before) = held.entries.get_mut(&entry.key) else {
                    if entry.packets > 0 {
                        held.entries.insert(entry.key, entry);
                    }
                    continue;
                };
                if !doubted {
                    return Err(format!("{} has two entries and is not doubted", entry.key));
                }
                before.packets += entry.packets;
                before.bytes += entry.bytes;
                before.sides |= entry.sides;
            }
        }
        let full = rows.into_iter().filter(|(taken, _)| *taken == columns.len());
        held.worst = full.map(|(_, worst)| worst).collect();
        Ok(held)
    }

    /// Whether flows of a class may be on a side: only edges have hosts, which claim nothing.
    fn may_be(&self, class: u8, side: u8) -> bool {
        match side {
            Entry::PASSED => class != SINGLE,
            Entry::ENTERED => self.is_edge && class < CLASSES,
            _ => self.is_edge && class != SINGLE,
        }
    }

    /// The entry in a place of a row, if it has one, and whether its flow is doubted.
    fn entry(&self, row: u32, place: &[u32], doubts: &[u32]) -> Result<Option<Found>, String> {
        let &[tag, dst, noted, ports, packets, bytes, standing, sixteenths] = place else {
            return Err(format!("a place of {} words", place.len()));
        };
        if place.iter().all(|word| *word == 0) {
            return Ok(None);
        }
        let (note, ttl, side) = (noted & 0xFFFF, standing as u8, standing >> 8 & 3);
        let class = CLASSES.saturating_sub((standing >> 28) as u8);
        let src = tag << 9 | noted >> 22 & 0x1FF;
        let key = FlowKey::from_words(src, dst, ports, (tag >> 23) as u8);
        let hashes = self.hash(key);
        let grade = self.setup.grade_of(self.family, &hashes, (self.seed, 0), ttl);
        let there =
            u32::from(CLASSES - class) << 28 | (!grade >> 14) << 10 | side << 8 | u32::from(ttl);
        let sides = SIDES.get(side as usize).copied().filter(|sides| self.may_be(class, *sides));
        let row_of = (hashes.array_word(0) & 0xFFFF) >> (16 - self.row_bits);
        let is_place = tag & noted & TAKEN != 0
            && noted & BETWEEN == 0
            && (class == PINNED) == self.pinned.contains(&key)
            && (standing, row, note % FILTER) == (there, row_of, hashes.array_word(2) % FILTER);
        let doubts = doubts.get((note % DOUBTS) as usize).copied().unwrap_or(0);
        let doubted = doubts != 0;
        // One that raced another of its flow may have made an entry, and be counted in that one's.
        let is_counted = packets > 0 || doubted;
        let Some(mut sides) = sides.filter(|_| is_place && is_counted) else {
            return Err(format!(
                "row {row} has {key} with standing {standing:#x}, note {note:#x} and {packets} packets"
            ));
        };
        if doubts & STRAYED != 0 {
            // It was there on two at least, and nobody knows which.
            sides = SIDES.iter().fold(0, |all, side| all | side);
        }
        let whole = bytes_of(packets, bytes, sixteenths);
        let entry = Entry {
            packets: packets.into(),
            // At least: of each packet the whole sixteenths.
            bytes: whole.unwrap_or(u64::from(sixteenths) * 16),
            rank: Rank::new(class, if class == PINNED { 0 } else { grade }),
            ttl,
            sides,
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
