//! What the tables of `p4src/edge.p4` hold for each epoch: the thresholds, the sampling and the way
//! from hash words to buckets.
//!
//! The tables of an epoch are keyed by its timestamp bit: entries for the next epoch never touch
//! the one that is measured.

use calumma_chamelemon::{Attention, Layout};
use calumma_sketch::Part;
use calumma_sketch::hash::sample_seed;

use crate::hashes::WORD_BITS;
use crate::tables::{Match, TableEntry};

/// Largest values of the classifier's counters; they stand for infinity.
const INFINITE_8: u32 = 0xFF;
const INFINITE_16: u32 = 0xFFFF;

const SAMPLING: &str = "Ingress.flow_hash.sampling";
const NARROW: &str = "Ingress.classify.narrow";
const WIDE: &str = "Ingress.classify.wide";
const CLASSES: &str = "Ingress.classify.classes";
const UPSTREAM: &str = "Ingress.upstream";
const DOWNSTREAM: &str = "Egress.downstream";

/// The table that lets packets be recorded at egress: without entries of an epoch none is.
pub const MASKS: &str = "Egress.masks.masks";

/// Full names of the tables that [`epoch`] fills.
pub fn epoch_tables() -> Vec<String> {
    let fixed = [SAMPLING, NARROW, WIDE, CLASSES, MASKS].map(str::to_owned);
    let ranges = [UPSTREAM, DOWNSTREAM]
        .into_iter()
        .flat_map(|encoder| (0..3).map(move |array| format!("{encoder}.modulo{array}.ranges")));
    fixed.into_iter().chain(ranges).collect()
}

/// All entries of an epoch under `attention`, for both gresses.
pub fn epoch(layout: &Layout, attention: &Attention, epoch: u64) -> Vec<TableEntry> {
    let bit = (epoch & 1) as u32;
    let partition = &attention.partition;
    let [ll, hl, hh] = [partition.ll_part(), partition.hl_part(), partition.hh_part()];
    let mut out = vec![sampling(attention, epoch)];
    out.extend(levels(attention, bit));
    out.extend(classes([ll, hl, hh], bit));
    out.extend(masks([ll, hl, hl], bit));
    out.extend(ranges(UPSTREAM, [ll, hl, hh], bit, layout.upstream_buckets));
    out.extend(ranges(DOWNSTREAM, [ll, hl, hl], bit, layout.downstream_buckets));
    out
}

/// The epoch's seed, and the highest sample hash that is sampled.
fn sampling(attention: &Attention, epoch: u64) -> TableEntry {
    TableEntry {
        table: SAMPLING.to_owned(),
        keys: vec![("timestamp", Match::Exact((epoch & 1) as u32))],
        action: "sample",
        args: vec![
            ("epoch_seed", u32::from(sample_seed(epoch))),
            ("highest_sampled", attention.sample_rate.threshold() - 1),
        ],
    }
}

/// From each counter to its level: 1 from T_l on, 2 from T_h on. A counter at its maximum is
/// infinite, and at least of any size.
fn levels(attention: &Attention, bit: u32) -> Vec<TableEntry> {
    let mut out = Vec::new();
    for (table, counter, action, infinite) in
        [(NARROW, "count8", "narrow_from", INFINITE_8), (WIDE, "count16", "wide_from", INFINITE_16)]
    {
        let [t_l, t_h] = [attention.t_l.min(infinite), attention.t_h.min(infinite)];
        for (level, low, high) in [(1, t_l, t_h - 1), (2, t_h, infinite)] {
            if low <= high {
                out.push(TableEntry {
                    table: table.to_owned(),
                    keys: vec![
                        ("timestamp", Match::Exact(bit)),
                        (counter, Match::Range(low, high)),
                    ],
                    action,
                    args: vec![("level", level)],
                });
            }
        }
    }
    out
}

/// From the levels of both counters and from sampling to the hierarchy and its part: what `parts`
/// has for hierarchies 1, 2 and 3.
fn classes(parts: [Part; 3], bit: u32) -> Vec<TableEntry> {
    let mut out = Vec::new();
    let levels = (0..3u32).flat_map(|narrow| (0..3).map(move |wide| (narrow, wide)));
    for (narrow, wide, sampled) in levels.flat_map(|(n, w)| [(n, w, 0), (n, w, 1)]) {
        let hierarchy = match (narrow.min(wide), sampled) {
            (0, sampled) => sampled,
            (level, _) => level + 1,
        };
        let Some(part) = hierarchy.checked_sub(1).map(|part| &parts[part as usize]) else {
            continue;
        };
        let (action, mask) = if part.is_empty() {
            ("unencoded", None)
        } else {
            ("encoded", Some(("mask", part.mask())))
        };
        out.push(TableEntry {
            table: CLASSES.to_owned(),
            keys: vec![
                ("timestamp", Match::Exact(bit)),
                ("narrow_level", Match::Exact(narrow)),
                ("wide_level", Match::Exact(wide)),
                ("hashes.sampled", Match::Exact(sampled)),
            ],
            action,
            args: [("hierarchy", hierarchy)].into_iter().chain(mask).collect(),
        });
    }
    out
}

/// Which masks an encoder's marks have at egress.
fn masks(parts: [Part; 3], bit: u32) -> Vec<TableEntry> {
    let entry = |(hierarchy, part): (u32, &Part)| TableEntry {
        table: MASKS.to_owned(),
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
    use calumma_chamelemon::{Partition, SampleRate};
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
            let entries = [levels(&attention, 0), classes(parts, 0)].concat();
            // What a table's only entry for these values gives first; 0 without one.
            let found = |table: &str, values: &[u32]| {
                let hits: Vec<u32> = entries
                    .iter()
                    .filter(|entry| entry.table.ends_with(table))
                    .filter(|entry| {
                        entry.keys.iter().zip(values).all(|((_, key), value)| match key {
                            Match::Exact(wanted) => wanted == value,
                            Match::Range(low, high) => (low..=high).contains(&value),
                            Match::Ternary(wanted, mask) => wanted & mask == value & mask,
                        })
                    })
                    .map(|entry| entry.args[0].1)
                    .collect();
                assert!(hits.len() <= 1, "{table} has overlapping entries");
                hits.first().copied().unwrap_or(0)
            };
            let narrow = found(".narrow", &[0, count8]);
            let wide = found(".wide", &[0, count16]);
            let sampled = u32::from(sample) < attention.sample_rate.threshold();
            let hierarchy = found(".classes", &[0, narrow, wide, u32::from(sampled)]);
            let infinite = |count, infinite| if count == infinite { u32::MAX } else { count };
            let size = infinite(count8, 0xFF).min(infinite(count16, 0xFFFF));
            let wanted = match size {
                _ if size >= attention.t_h => 3,
                _ if size >= t_l => 2,
                _ => u32::from(sampled),
            };
            prop_assert_eq!(hierarchy, wanted);
        }
    }
}
