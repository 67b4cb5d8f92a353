//! What the tables of `p4src/edge.p4` hold: the deployment's secret tables, and for each epoch the
//! thresholds, the sampling and the way from hash words to buckets.
//!
//! The tables of an epoch are keyed by its timestamp bit: entries for the next epoch never touch
//! the one that is measured.

use calumma_sketch::attention::sample_seed;
use calumma_sketch::{Attention, HashFamily, Layout, Part};

use crate::program::WORD_BITS;

/// Largest values of the classifier's counters; they stand for infinity.
const INFINITE_8: u32 = 0xFF;
const INFINITE_16: u32 = 0xFFFF;

/// How one field of an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// Equal.
    Exact(u32),
    /// Between the two, both included.
    Range(u32, u32),
}

/// One entry of one table, by the names of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableEntry {
    /// Full name of the table.
    pub table: String,
    /// Key fields and how they match.
    pub keys: Vec<(&'static str, Match)>,
    /// Name of the action.
    pub action: &'static str,
    /// Action data.
    pub args: Vec<(&'static str, u32)>,
}

/// The secret tables of the deployment: 1024 entries, filled once.
pub fn secrets(family: &HashFamily) -> Vec<TableEntry> {
    let word = |lane: u32| lane & (u32::MAX >> (32 - WORD_BITS));
    let mut out = Vec::new();
    for (position, table) in family.tables().iter().enumerate() {
        for (value, lanes) in (0..).zip(table) {
            out.push(TableEntry {
                table: format!("Ingress.flow_hash.byte{position}.secret"),
                keys: vec![("byte", Match::Exact(value))],
                action: "set",
                args: vec![
                    ("w0", word(lanes[0])),
                    ("w1", word(lanes[1])),
                    ("w2", word(lanes[2])),
                    ("w3_low", word(lanes[3])),
                    ("w3_high", lanes[3] >> 16),
                ],
            });
        }
    }
    out
}

/// All entries of an epoch under `attention`, for both gresses.
pub fn epoch(layout: &Layout, attention: &Attention, epoch: u64) -> Vec<TableEntry> {
    let bit = (epoch & 1) as u32;
    let partition = &attention.partition;
    let [ll, hl, hh] = [partition.ll_part(), partition.hl_part(), partition.hh_part()];
    let mut out = vec![sampling(epoch)];
    out.extend(thresholds(attention, [ll, hl, hh], bit));
    out.extend(masks([ll, hl, hl], bit));
    out.extend(ranges("Ingress.upstream", [ll, hl, hh], bit, layout.upstream_buckets));
    out.extend(ranges("Egress.downstream", [ll, hl, hl], bit, layout.downstream_buckets));
    out
}

/// The epoch's seed.
fn sampling(epoch: u64) -> TableEntry {
    TableEntry {
        table: "Ingress.flow_hash.sampling".to_owned(),
        keys: vec![("timestamp", Match::Exact((epoch & 1) as u32))],
        action: "sample",
        args: vec![("epoch_seed", u32::from(sample_seed(epoch)))],
    }
}

/// A rectangle of the values of both counters, first and last.
type Sizes = [(u32, u32); 2];

/// The values of the two counters that give a size from `low` to below `high` (at least 1), as
/// rectangles that don't overlap. `None` is infinity.
fn sizes(low: u32, high: Option<u32>) -> Vec<Sizes> {
    // A counter at its maximum is infinite: it is at least of any size.
    let from = |size: u32, infinite: u32| (size.min(infinite), infinite);
    let (low8, low16) = (from(low, INFINITE_8), from(low, INFINITE_16));
    let Some(high) = high else { return vec![[low8, low16]] };
    let (high8, high16) = (from(high, INFINITE_8), from(high, INFINITE_16));
    // All that is at least `low`, without what is at least `high`.
    let narrow = [(low8.0, high8.0 - 1), low16];
    let wide = [high8, (low16.0, high16.0 - 1)];
    let some = |sizes: &Sizes| sizes.iter().all(|(first, last)| first <= last);
    [narrow, wide].into_iter().filter(some).collect()
}

/// From counters and sample hash to the hierarchy and its part: what `parts` has for hierarchies 1,
/// 2 and 3.
fn thresholds(attention: &Attention, parts: [Part; 3], bit: u32) -> Vec<TableEntry> {
    let Attention { t_h, t_l, sample_rate, .. } = *attention;
    let sampled = (0, sample_rate.threshold() - 1);
    let any = (0, 0xFFFF);
    let mut out = Vec::new();
    for (hierarchy, part, sizes, sample) in [
        (1, parts[0], sizes(0, Some(t_l)), sampled),
        (2, parts[1], sizes(t_l, Some(t_h)), any),
        (3, parts[2], sizes(t_h, None), any),
    ] {
        let (action, mask) = if part.is_empty() {
            ("unencoded", None)
        } else {
            ("encoded", Some(("mask", part.mask())))
        };
        for [count8, count16] in sizes {
            out.push(TableEntry {
                table: "Ingress.classify.thresholds".to_owned(),
                keys: vec![
                    ("timestamp", Match::Exact(bit)),
                    ("count8", Match::Range(count8.0, count8.1)),
                    ("count16", Match::Range(count16.0, count16.1)),
                    ("hashes.sample", Match::Range(sample.0, sample.1)),
                ],
                action,
                args: [("hierarchy", hierarchy)].into_iter().chain(mask).collect(),
            });
        }
    }
    out
}

/// Which masks an encoder's marks have at egress.
fn masks(parts: [Part; 3], bit: u32) -> Vec<TableEntry> {
    let entry = |(hierarchy, part): (u32, &Part)| TableEntry {
        table: "Egress.masks.masks".to_owned(),
        keys: vec![("mark", Match::Exact(bit << 2 | hierarchy))],
        action: "encoded",
        args: vec![("mask", part.mask())],
    };
    (1..).zip(&parts).filter(|(_, part)| !part.is_empty()).map(entry).collect()
}

/// Ranges of an encoder whose parts belong to hierarchies 1, 2 and 3.
fn ranges(encoder: &str, parts: [Part; 3], bit: u32, buckets: u32) -> Vec<TableEntry> {
    let mut out = Vec::new();
    for (hierarchy, part) in (1..).zip(parts) {
        if part.is_empty() {
            continue;
        }
        for (low, high, by) in steps(&part, bit * buckets) {
            for array in 0..3 {
                out.push(TableEntry {
                    table: format!("{encoder}.modulo{array}.ranges"),
                    keys: vec![
                        ("mark", Match::Exact(bit << 2 | hierarchy)),
                        ("word", Match::Range(low, high)),
                    ],
                    action: "move",
                    args: vec![("by", by)],
                });
            }
        }
    }
    out
}

/// Ranges of masked words, and what added to such a word (modulo 2^16) gives its bucket in a group
/// that begins at `group`.
fn steps(part: &Part, group: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    let (len, mask, first) = (part.len(), part.mask(), group + part.offset());
    (0..8).map(move |step| step * len).take_while(move |low| *low <= mask).map(move |low| {
        let by = first.wrapping_sub(low) & (u32::MAX >> (32 - WORD_BITS));
        (low, mask.min(low + len - 1), by)
    })
}

#[cfg(test)]
mod tests {
    use calumma_sketch::{Partition, SampleRate};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_ranges_lead_every_word_to_its_bucket(
            offset in 0u32..4096, len in 1u32..=8192, group in 0u32..8192, words: [u32; 16],
        ) {
            let part = Part::new(offset, len);
            let steps: Vec<_> = steps(&part, group).collect();
            prop_assert!(steps.len() <= 8);
            for word in words {
                let masked = word & part.mask();
                let mut hits = steps.iter().filter(|(low, high, _)| (*low..=*high).contains(&masked));
                let (_, _, by) = hits.next().unwrap();
                prop_assert!(hits.next().is_none());
                let index = u32::from((masked as u16).wrapping_add(*by as u16));
                prop_assert_eq!(index, group + part.bucket(word));
            }
        }
    }

    proptest! {
        #[test]
        fn every_pair_of_counters_has_the_hierarchy_of_its_minimum(
            t_l in prop_oneof![1u32..10, 240u32..260, 65_500u32..65_600],
            more in prop_oneof![0u32..10, 0u32..70_000],
            count8 in prop_oneof![0u32..10, 240u32..=255],
            count16 in prop_oneof![0u32..300, 65_400u32..=65_535],
            sample in any::<u16>(),
        ) {
            let attention = Attention {
                t_h: t_l + more,
                t_l,
                sample_rate: SampleRate::new(0.5).unwrap(),
                partition: Partition { hh: 1, hl: 1, ll: 1 },
            };
            let parts = [Part::new(0, 1), Part::new(1, 1), Part::new(2, 1)];
            let entries = thresholds(&attention, parts, 0);
            prop_assert!(entries.len() <= 5);
            let found: Vec<u32> = entries
                .iter()
                .filter(|entry| {
                    let values = [0, count8, count16, u32::from(sample)];
                    entry.keys.iter().zip(values).all(|((_, key), value)| match key {
                        Match::Exact(wanted) => *wanted == value,
                        Match::Range(low, high) => (*low..=*high).contains(&value),
                    })
                })
                .map(|entry| entry.args[0].1)
                .collect();
            let infinite = |count, infinite| if count == infinite { u32::MAX } else { count };
            let size = infinite(count8, 0xFF).min(infinite(count16, 0xFFFF));
            let wanted = match size {
                _ if size >= attention.t_h => vec![3],
                _ if size >= t_l => vec![2],
                _ if u32::from(sample) < attention.sample_rate.threshold() => vec![1],
                _ => vec![],
            };
            prop_assert_eq!(found, wanted);
        }
    }
}
