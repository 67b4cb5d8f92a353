//! What the tables of `p4src/edge.p4` hold: the deployment's secret tables, and for each epoch the
//! thresholds, the sampling and the way from hash words to buckets.
//!
//! The tables of an epoch are keyed by its timestamp bit: entries for the next epoch never touch
//! the one that is measured.

use calumma_sketch::attention::sample_seed;
use calumma_sketch::{Attention, HashFamily, Layout, Part};

use crate::program::WORD_BITS;

/// Largest size that the classifier tells; it stands for infinity.
const INFINITE: u32 = 0xFFFF;

const SAMPLING: &str = "Ingress.classify.sampling";
const THRESHOLDS: &str = "Ingress.classify.thresholds";
const UPSTREAM: &str = "Ingress.upstream";
const DOWNSTREAM: &str = "Egress.downstream";

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
                table: secret_table(position),
                keys: vec![("byte", Match::Exact(value))],
                action: "set",
                args: vec![
                    ("w0", word(lanes[0])),
                    ("w1", word(lanes[1])),
                    ("w2", word(lanes[2])),
                    ("w3", lanes[3]),
                ],
            });
        }
    }
    out
}

/// The secret table of a byte of the first CRC, 0 the lowest.
pub fn secret_table(byte: usize) -> String {
    format!("Ingress.flow_hash.byte{byte}.secret")
}

/// Full names of the tables that [`epoch`] fills.
pub fn epoch_tables() -> Vec<String> {
    let mut out = vec![SAMPLING.to_owned(), THRESHOLDS.to_owned()];
    for encoder in [UPSTREAM, DOWNSTREAM] {
        out.push(format!("{encoder}.part.masks"));
        out.extend((0..3).map(|array| format!("{encoder}.part.modulo{array}.ranges")));
    }
    out
}

/// All entries of an epoch under `attention`, for both gresses.
pub fn epoch(layout: &Layout, attention: &Attention, epoch: u64) -> Vec<TableEntry> {
    let bit = (epoch & 1) as u32;
    let partition = &attention.partition;
    let [ll, hl, hh] = [partition.ll_part(), partition.hl_part(), partition.hh_part()];
    let mut out = vec![sampling(attention, epoch)];
    out.extend(thresholds(attention, bit));
    out.extend(parts(UPSTREAM, [ll, hl, hh], bit, layout.upstream_buckets));
    out.extend(parts(DOWNSTREAM, [ll, hl, hl], bit, layout.downstream_buckets));
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

/// The sizes from T_l and from T_h on.
fn thresholds(attention: &Attention, bit: u32) -> Vec<TableEntry> {
    let heavy_hitter = attention.t_h.min(INFINITE);
    let ranges = [(2, attention.t_l, heavy_hitter - 1), (3, heavy_hitter, INFINITE)];
    let entry = |(hierarchy, low, high): (u32, u32, u32)| TableEntry {
        table: THRESHOLDS.to_owned(),
        keys: vec![("timestamp", Match::Exact(bit)), ("size", Match::Range(low, high))],
        action: "candidate",
        args: vec![("value", hierarchy)],
    };
    ranges.into_iter().filter(|(_, low, high)| low <= high).map(entry).collect()
}

/// Masks and ranges of an encoder whose parts belong to hierarchies 1, 2 and 3.
fn parts(encoder: &str, parts: [Part; 3], bit: u32, buckets: u32) -> Vec<TableEntry> {
    let mut out = Vec::new();
    for (hierarchy, part) in (1..).zip(parts) {
        if part.is_empty() {
            continue;
        }
        let place = [("timestamp", Match::Exact(bit)), ("hierarchy", Match::Exact(hierarchy))];
        out.push(TableEntry {
            table: format!("{encoder}.part.masks"),
            keys: place.to_vec(),
            action: "keep",
            args: vec![("mask", part.mask())],
        });
        for (low, high, by) in steps(&part, bit * buckets) {
            for array in 0..3 {
                let mut keys = place.to_vec();
                keys.push(("word", Match::Range(low, high)));
                out.push(TableEntry {
                    table: format!("{encoder}.part.modulo{array}.ranges"),
                    keys,
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

    #[test]
    fn thresholds_meet_without_gap_and_stop_at_infinity() {
        let ranges = |t_l, t_h| {
            let attention = Attention {
                t_h,
                t_l,
                sample_rate: SampleRate::ALL,
                partition: Partition { hh: 1, hl: 1, ll: 0 },
            };
            let size = |entry: &TableEntry| entry.keys[1].1;
            thresholds(&attention, 0).iter().map(size).collect::<Vec<_>>()
        };
        assert_eq!(ranges(1, 1), [Match::Range(1, INFINITE)]);
        assert_eq!(ranges(2, 10), [Match::Range(2, 9), Match::Range(10, INFINITE)]);
        assert_eq!(
            ranges(2, 100_000),
            [Match::Range(2, INFINITE - 1), Match::Range(INFINITE, INFINITE)]
        );
        assert_eq!(ranges(100_000, 100_000), [Match::Range(INFINITE, INFINITE)]);
    }
}
