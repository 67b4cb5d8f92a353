//! Figure 11 of the ChameleMon paper: six accumulation tasks from 200 to 600 KB, beside the peers.

use std::path::Path;

use anyhow::Result;
use calumma_baselines::{
    Cardinality, CocoSketch, ConservativeUpdate, CountHeap, CountMin, Elastic, Entropy, FcmTopK,
    HashPipe, Insert, Memory, Mrac, Sizes, TowerFermat, UnivMon,
};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::FlowKey;

use super::answers::{Answers, Errors};
use super::epochs::{Pair, capture};
use super::tower_fermat::{Parts, answers};
use super::{Setup, trials};
use crate::workload;

const CLAIM: &str = "Tower + Fermat is at least comparable in all six tasks. At 200 KB: heavy-hitter \
    F1 99.8 % where Elastic and FCM are below 99 %; ARE of flow sizes 4.51, 3.19, 2.09 and 1.59 times \
    smaller than that of CM, CU, Elastic and FCM. At 400 KB: heavy-change F1 99.6 %, all others below \
    99.0 %. At 600 KB: WMRE 0.039 (Elastic 1.09, FCM 1.42 times as much), entropy RE 0.003 (UnivMon \
    3.3 times), cardinality RE 0.0016 (UnivMon 13.1, Elastic 10.1, FCM 4.57 times).";

/// On workloads of the paper's size, by 5-tuples.
pub(super) const ZIPF: Figure<Setup> = Figure {
    name: "chamelemon-11-zipf-tuples",
    title: "ChameleMon, figure 11: accuracy of six tasks, Zipf traffic, keys of 13 bytes",
    claim: CLAIM,
    measure: |setup| {
        let drawn = on_zipf(setup, |bytes| bytes.into(), workload::keys).because(
            "Keys are 5-tuples of 13 bytes, not addresses of 4: entries of heavy parts and heaps cost \
             twice as much and FermatSketch's buckets 20 bytes instead of 8, which the smallest sizes \
             feel most.",
        );
        Ok(drawn.because(
            "In 200 KB, HashPipe has room for 12,000 flows and counts nearly all heavy ones exactly, \
             but can do nothing else. Ours learns a flow's first T_h packets (about 80 there) from \
             counters that it shares, to a packet or so, and that puts a flow now and then on the \
             wrong side of the threshold.",
        ))
    },
};

/// On workloads of the paper's size, by source address, as in the paper.
pub(super) const ADDRESSES: Figure<Setup> = Figure {
    name: "chamelemon-11-zipf-addresses",
    title: "ChameleMon, figure 11: accuracy of six tasks, Zipf traffic, keys of 4 bytes",
    claim: CLAIM,
    measure: |setup| {
        Ok(on_zipf(setup, Memory::for_addresses, workload::addresses).because(
            "Keys are source addresses of 4 bytes, as in the paper, and every peer is held to what its \
             published program gives (benches/baselines/tests/published.rs). Ours has a FermatSketch \
             of 8-byte buckets without fingerprints; the library itself has none for such keys. \
             \"Tower+Fermat, published\" is the paper's own: 2500 buckets, T_h of 250, the smaller \
             counter for a flow's size.",
        ))
    },
};

fn on_zipf(
    setup: &Setup,
    memory: fn(usize) -> Memory,
    keys: fn(usize, u64) -> Vec<FlowKey>,
) -> Drawn {
    let (flows, packets) = setup.choose((63_000, 2_300_000), (20_000, 300_000));
    let seeds = setup.choose(16, 2);
    let sizes = setup.choose(&[200, 300, 400, 500, 600][..], &[100][..]);
    let pair = |seed| Pair::new(workload::zipf_epochs(keys(flows, seed), packets, 1.1, seed));
    draw(&measured(seeds, sizes, memory, pair), sizes)
        .because(format!(
            "{seeds} pairs of epochs of {packets} packets drawn by Zipf(1.1) from {flows} flows, in \
             place of CAIDA's traces, which may not be passed on. A KB has 1024 bytes, as in the \
             published programs."
        ))
        .because(OF_US)
}

/// On the backbone trace.
pub(super) const BACKBONE: Figure<Setup> = Figure {
    name: "chamelemon-11-backbone",
    title: "ChameleMon, figure 11 on real traffic: a backbone link",
    claim: CLAIM,
    measure: |setup| {
        let sizes = setup.choose(&[50, 75, 100, 125, 150][..], &[50][..]);
        on_capture(setup, "backbone-65k.pcap", sizes)
    },
};

/// On the mixed captures.
pub(super) const MIXED: Figure<Setup> = Figure {
    name: "chamelemon-11-mixed",
    title: "ChameleMon, figure 11 on real traffic: captures of many protocols",
    claim: CLAIM,
    measure: |setup| {
        let sizes = setup.choose(&[50, 75, 100, 125, 150][..], &[50][..]);
        on_capture(setup, "mixed-captures.pcap", sizes)
    },
};

fn on_capture(setup: &Setup, name: &str, sizes: &[usize]) -> Result<Drawn> {
    let file = setup.data.join(name);
    let Some(mut keys) = capture(&file)? else {
        return Ok(Drawn::new(Vec::new()).measured(missing(&file)));
    };
    let second = keys.split_off(keys.len() / 2);
    let pair = Pair::new([keys, second]);
    let (packets, flows) = (pair.first.packets.len(), pair.first.flows.len());
    let seeds = setup.choose(16, 2);
    Ok(draw(&measured(seeds, sizes, |bytes| bytes.into(), |_| pair.clone()), sizes).because(format!(
        "The first half of the capture, {packets} packets of {flows} flows, {seeds} times with hash \
         functions of their own; changes are those to the second half. With fewer flows than the \
         paper has, memory is less in proportion."
    ))
    .because(
        "With 0.02 % of so few packets, a heavy hitter has less than ten: there are more of them than \
         the HH encoder can hold in the smallest sizes, while HashPipe has an entry of 17 bytes for \
         three of its buckets of 20."
    )
    .because(OF_US))
}

/// The text in place of a figure whose capture is missing.
fn missing(file: &Path) -> String {
    let text = format!(
        "Skipped: there is no {}. Name the directory of the captures with --data or CALUMMA_DATA.",
        file.display()
    );
    eprintln!("{text}");
    text
}

/// How ours is set up.
const OF_US: &str = "Tower + Fermat is Layout::within of the library, counters of 4, 8 and 16 bits, and \
    T_h where the controller's attention would settle, 0.7 flows a bucket, instead of 250; beside it \
    stands the paper's 8 and 16 bits. Flow sizes are those that Bayes' rule makes of all of a flow's \
    counters, not the least; the distribution is the most likely one behind all arrays, not that of one \
    array for each size; entropy knows the number of packets.";

/// Something that can be asked the tasks: its name, and its answers in as much memory.
type Contender = (&'static str, fn(&Pair, Memory, u64) -> Answers);

/// Ours.
const OURS: &str = "Tower+Fermat";

/// Ours with the paper's classifier.
const AS_IN_PAPER: &str = "Tower+Fermat, 8+16 bits";

/// What was published with the paper, for keys of four bytes.
const PUBLISHED: Contender = ("Tower+Fermat, published", |pair, memory, seed| {
    let [first, second] = both(|| TowerFermat::new(memory.bytes, seed), pair);
    let [first, second] = [first, second].map(TowerFermat::decode);
    Answers {
        distribution: Some(first.sizes()),
        cardinality: Some(first.cardinality()),
        ..Answers::default()
    }
    .with_sizes(pair, &first)
    .with_tracked(pair, &first, &second)
});

const CONTENDERS: [Contender; 11] = [
    (OURS, |pair, memory, seed| answers(&Parts::within(memory), pair, seed)),
    (AS_IN_PAPER, |pair, memory, seed| answers(&Parts::of_the_paper(memory), pair, seed)),
    ("CM", |pair, memory, seed| {
        let first = filled(CountMin::new(memory, seed), &pair.first.packets);
        Answers::default().with_sizes(pair, &first)
    }),
    ("CU", |pair, memory, seed| {
        let first = filled(ConservativeUpdate::new(memory, seed), &pair.first.packets);
        Answers::default().with_sizes(pair, &first)
    }),
    ("CountHeap", |pair, memory, seed| {
        let [first, second] = both(|| CountHeap::new(memory, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("UnivMon", |pair, memory, seed| {
        let [first, second] = both(|| UnivMon::new(memory, seed), pair);
        Answers {
            entropy: Some(first.entropy()),
            cardinality: Some(first.cardinality()),
            ..Answers::default()
        }
        .with_tracked(pair, &first, &second)
    }),
    ("Elastic", |pair, memory, seed| {
        let [first, second] = both(|| Elastic::new(memory, seed), pair);
        statistics(&first).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
    ("FCM", |pair, memory, seed| {
        let [first, second] = both(|| FcmTopK::new(memory, seed), pair);
        statistics(&first).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
    ("HashPipe", |pair, memory, seed| {
        let [first, second] = both(|| HashPipe::new(memory, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("Coco", |pair, memory, seed| {
        let [first, second] = both(|| CocoSketch::new(memory, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("MRAC", |pair, memory, seed| {
        statistics(&filled(Mrac::new(memory, seed), &pair.first.packets))
    }),
];

pub(super) fn filled<S: Insert>(mut sketch: S, packets: &[FlowKey]) -> S {
    sketch.insert_all(packets);
    sketch
}

pub(super) fn both<S: Insert>(empty: impl Fn() -> S, pair: &Pair) -> [S; 2] {
    [filled(empty(), &pair.first.packets), filled(empty(), &pair.second.packets)]
}

pub(super) fn statistics(sketch: &(impl Sizes + Entropy + Cardinality)) -> Answers {
    Answers {
        distribution: Some(sketch.sizes()),
        entropy: Some(sketch.entropy()),
        cardinality: Some(sketch.cardinality()),
        ..Answers::default()
    }
}

/// A panel: its title, axis, which error, and whether more is better.
type Panel = (&'static str, fn() -> Axis, fn(&Errors) -> Option<f64>, bool);

const PANELS: [Panel; 6] = [
    ("(a) heavy hitters", || Axis::linear("F1 score"), |errors| errors.hitters_f1, true),
    ("(b) flow sizes", || Axis::log("ARE"), |errors| errors.sizes_are, false),
    ("(c) heavy changes", || Axis::linear("F1 score"), |errors| errors.changes_f1, true),
    ("(d) flow size distribution", || Axis::log("WMRE"), |errors| errors.wmre, false),
    ("(e) entropy", || Axis::log("RE"), |errors| errors.entropy_re, false),
    ("(f) cardinality", || Axis::log("RE"), |errors| errors.cardinality_re, false),
];

/// Errors by seed, size and contender.
type Measured = Vec<Vec<Vec<Errors>>>;

/// Asks all contenders, in each size, about a pair of epochs for each seed; on all cores.
fn measured(
    seeds: usize,
    kilobytes: &[usize],
    memory: fn(usize) -> Memory,
    pair: impl Fn(u64) -> Pair + Sync,
) -> Measured {
    trials::all(seeds, |seed| {
        let pair = pair(seed);
        let answers = |&size: &usize| {
            let memory = memory(size * 1024);
            let published = (memory.key == 4).then_some(&PUBLISHED);
            let errors = |(_, answer): &Contender| answer(&pair, memory, seed).errors(&pair);
            CONTENDERS.iter().chain(published).map(errors).collect()
        };
        kilobytes.iter().map(answers).collect()
    })
}

fn draw(measured: &Measured, kilobytes: &[usize]) -> Drawn {
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for (title, axis, metric, more_is_better) in PANELS {
        // For each contender that does the task, and each size, what came of every seed.
        let values = |contender: usize, size: usize| -> Option<Vec<f64>> {
            measured.iter().map(|seed| metric(seed[size].get(contender)?)).collect()
        };
        let names = CONTENDERS.iter().chain([&PUBLISHED]).map(|contender| contender.0);
        let curves: Vec<(&str, Vec<Vec<f64>>)> = names
            .enumerate()
            .filter_map(|(contender, name)| {
                let sizes = (0..kilobytes.len()).map(|size| values(contender, size));
                Some((name, sizes.collect::<Option<_>>()?))
            })
            .collect();
        sentences.push(rank(title, kilobytes, &curves, more_is_better));
        let mut chart = Chart::new(title, Axis::linear("memory (KB)"), axis());
        for (name, sizes) in curves {
            let summed: Vec<(f64, f64)> = sizes.iter().map(|values| mean(values)).collect();
            let points = kilobytes.iter().zip(&summed).map(|(&kb, mean)| (kb as f64, mean.0));
            let series = if is_ours(name) { Series::ours } else { Series::new };
            let errors = summed.iter().map(|mean| mean.1).collect();
            chart = chart.with(series(name, points.collect()).with_errors(errors));
        }
        charts.push(chart);
    }
    sentences.into_iter().fold(Drawn::new(charts), Drawn::measured)
}

/// Whether a contender is of this project; the published program is the paper's.
fn is_ours(name: &str) -> bool {
    [OURS, AS_IN_PAPER].contains(&name)
}

/// Mean and its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (square / (number - 1.0).max(1.0) / number).sqrt())
}

/// Says at each size how far we are, and who of the others comes nearest or is ahead. Both are
/// level where the difference, seed by seed, is less than two of its standard errors.
fn rank(
    title: &str,
    kilobytes: &[usize],
    curves: &[(&str, Vec<Vec<f64>>)],
    more_is_better: bool,
) -> String {
    let Some((_, ours)) = curves.iter().find(|curve| curve.0 == OURS) else {
        return format!("{title}: not measured");
    };
    let sign = if more_is_better { 1.0 } else { -1.0 };
    let at_sizes = kilobytes.iter().enumerate().map(|(at, size)| {
        let (own, error) = mean(&ours[at]);
        let own = format!("{size} KB {own:.5} ± {error:.5}");
        let others = curves.iter().filter(|curve| !is_ours(curve.0));
        let best = others
            .map(|(name, sizes)| (*name, &sizes[at]))
            .max_by(|a, b| (sign * mean(a.1).0).total_cmp(&(sign * mean(b.1).0)));
        let Some((name, values)) = best else { return own };
        let ahead: Vec<f64> =
            ours[at].iter().zip(values).map(|(own, other)| sign * (own - other)).collect();
        let mark = match mean(&ahead) {
            (ahead, error) if ahead.abs() <= 2.0 * error || ahead == 0.0 => "level with",
            (ahead, _) if ahead > 0.0 => "ahead of",
            _ => "BEHIND",
        };
        let (value, error) = mean(values);
        format!("{own} {mark} {name} {value:.5} ± {error:.5}")
    });
    format!("{title}: {}", at_sizes.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_within_the_noise_is_none() {
        let curves = |other: [f64; 4]| {
            let ours = vec![vec![0.9, 0.92, 0.91, 0.9]];
            [(OURS, ours), ("peer", vec![other.to_vec()])]
        };
        let ranked = |other, more| rank("t", &[200], &curves(other), more);
        assert!(ranked([0.91, 0.91, 0.9, 0.92], true).contains("level with peer"));
        assert!(ranked([0.8, 0.82, 0.82, 0.8], true).contains("ahead of peer"));
        assert!(ranked([0.8, 0.82, 0.82, 0.8], false).contains("BEHIND peer"));
        let curves = [OURS, AS_IN_PAPER, PUBLISHED.0].into_iter().zip([0.8, 0.95, 0.9]);
        let curves = curves.map(|(name, value)| (name, vec![vec![value; 4]]));
        let behind = rank("t", &[200], &curves.collect::<Vec<_>>(), true);
        assert!(behind.contains(&format!("BEHIND {}", PUBLISHED.0)), "{behind}");
    }
}
