//! Figure 11 of the ChameleMon paper: six accumulation tasks from 200 to 600 KB, beside the peers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use calumma_baselines::{
    Cardinality, CocoSketch, ConservativeUpdate, CountHeap, CountMin, Elastic, Entropy, FcmTopK,
    HashPipe, Insert, Mrac, Sizes, UnivMon,
};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::estimate::Accumulation;
use calumma_sketch::fermat::Decoded;
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Level, Shape, TowerSketch};

use super::Setup;
use super::answers::{Answers, Errors};
use super::epochs::{Pair, capture};
use crate::workload;

const CLAIM: &str = "Tower + Fermat is at least comparable in all six tasks. At 200 KB: heavy-hitter \
    F1 99.8 % where Elastic and FCM are below 99 %; ARE of flow sizes 4.51, 3.19, 2.09 and 1.59 times \
    smaller than that of CM, CU, Elastic and FCM. At 400 KB: heavy-change F1 99.6 %, all others below \
    99.0 %. At 600 KB: WMRE 0.039 (Elastic 1.09, FCM 1.42 times as much), entropy RE 0.003 (UnivMon \
    3.3 times), cardinality RE 0.0016 (UnivMon 13.1, Elastic 10.1, FCM 4.57 times).";

/// On workloads of the paper's size.
pub(super) const ZIPF: Figure<Setup> = Figure {
    name: "chamelemon-11-zipf",
    title: "ChameleMon, figure 11: accuracy of six tasks, Zipf traffic",
    claim: CLAIM,
    measure: |setup| {
        let (flows, packets) = setup.choose((63_000, 2_300_000), (20_000, 300_000));
        let pairs: Vec<_> = (0..setup.choose(8, 1))
            .map(|seed| Pair::new(workload::zipf_epochs(flows, packets, 1.1, seed)))
            .collect();
        let sizes = setup.choose(&[200, 300, 400, 500, 600][..], &[100][..]);
        Ok(draw(&pairs, sizes).because(format!(
            "{} pairs of epochs of {packets} packets drawn by Zipf(1.1) from {flows} flows, in place \
             of CAIDA's traces, which may not be passed on. Keys are 5-tuples of 13 bytes, not \
             addresses of 4: entries of heavy parts and heaps cost twice as much and FermatSketch's \
             buckets 20 bytes instead of 8, which the smallest sizes feel most.",
            pairs.len()
        ))
        .because(OF_US))
    },
};

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
    Ok(draw(&[pair], sizes).because(format!(
        "The first half of the capture, {packets} packets of {flows} flows; changes are those to the \
         second half. With fewer flows than the paper has, memory is less in proportion."
    ))
    .because(
        "With 0.02 % of so few packets, a heavy hitter has less than ten: there are more of them than \
         the HH encoder can hold in the smallest sizes, while HashPipe has an entry of 17 bytes for \
         three of its buckets of 20."
    )
    .because(OF_US))
}

/// What is said where a capture is not there.
fn missing(file: &Path) -> String {
    let text = format!(
        "Skipped: there is no {}. Name the directory of the captures with --data or CALUMMA_DATA.",
        file.display()
    );
    eprintln!("{text}");
    text
}

/// How ours is set up.
const OF_US: &str = "Tower + Fermat has counters of 4, 8 and 16 bits, and T_h where the controller's \
    attention would settle, 0.7 flows a bucket, instead of 250; beside it stands the paper's 8 and 16 \
    bits. Flow sizes are those that Bayes' rule makes of all of a flow's counters, not the least.";

/// Something that can be asked the tasks: its name, and its answers in as many bytes.
type Contender = (&'static str, fn(&Pair, usize, u64) -> Answers);

/// Ours.
const OURS: &str = "Tower+Fermat";

/// Ours with the paper's classifier.
const AS_IN_PAPER: &str = "Tower+Fermat, 8+16 bits";

const CONTENDERS: [Contender; 11] = [
    (OURS, |pair, bytes, seed| tower_and_fermat(&BEST, pair, bytes, seed)),
    (AS_IN_PAPER, |pair, bytes, seed| tower_and_fermat(&OF_THE_PAPER, pair, bytes, seed)),
    ("CM", |pair, bytes, seed| {
        let first = filled(CountMin::new(bytes, seed), &pair.first.packets);
        Answers::default().with_sizes(pair, &first)
    }),
    ("CU", |pair, bytes, seed| {
        let first = filled(ConservativeUpdate::new(bytes, seed), &pair.first.packets);
        Answers::default().with_sizes(pair, &first)
    }),
    ("CountHeap", |pair, bytes, seed| {
        let [first, second] = both(|| CountHeap::new(bytes, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("UnivMon", |pair, bytes, seed| {
        let [first, second] = both(|| UnivMon::new(bytes, seed), pair);
        Answers {
            entropy: Some(first.entropy()),
            cardinality: Some(first.cardinality()),
            ..Answers::default()
        }
        .with_tracked(pair, &first, &second)
    }),
    ("Elastic", |pair, bytes, seed| {
        let [first, second] = both(|| Elastic::new(bytes, seed), pair);
        statistics(&first).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
    ("FCM", |pair, bytes, seed| {
        let [first, second] = both(|| FcmTopK::new(bytes, seed), pair);
        statistics(&first).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
    ("HashPipe", |pair, bytes, seed| {
        let [first, second] = both(|| HashPipe::new(bytes, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("Coco", |pair, bytes, seed| {
        let [first, second] = both(|| CocoSketch::new(bytes, seed), pair);
        Answers::default().with_tracked(pair, &first, &second)
    }),
    ("MRAC", |pair, bytes, seed| statistics(&filled(Mrac::new(bytes, seed), &pair.first.packets))),
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

/// How an amount of memory is divided between classifier and HH encoder.
struct Division {
    /// The encoder's share.
    encoder: f64,
    /// Widths of the classifier's counters in bits, and each array's share of its memory.
    arrays: &'static [(u32, f64)],
}

/// The paper's classifier, and as much for the encoder as 2500 buckets of 5-tuples are of 200 KB.
const OF_THE_PAPER: Division =
    Division { encoder: 0.25, arrays: &[(8, 2.0 / 3.0), (16, 1.0 / 3.0)] };

/// What answers best of some divisions that were tried: small counters tell the many small flows
/// apart, and the encoder takes over before the wide ones would matter.
const BEST: Division = Division { encoder: 0.3, arrays: &[(4, 0.4), (8, 0.4), (16, 0.2)] };

/// The load at which the controller keeps the HH encoder, in flows a bucket.
const LOAD: f64 = 0.7;

/// What both epochs' classifier and HH encoder answer.
fn tower_and_fermat(division: &Division, pair: &Pair, bytes: usize, seed: u64) -> Answers {
    let family = HashFamily::new(&HashKey::from_bytes([seed as u8; 32]));
    let shape = Shape::default();
    let bucket = 4 * shape.arithmetic.words();
    let encoder = (bytes as f64 * division.encoder) as usize;
    let shape = shape.with_buckets(encoder / bucket / shape.arrays);
    let counters = (bytes - shape.total_buckets() * bucket) as f64;
    let level = |&(bits, share): &(u32, f64)| {
        Level::new(bits, (counters * share * 8.0 / f64::from(bits)) as u32)
    };
    let levels: Vec<Level> = division.arrays.iter().map(level).collect();
    let record = |packets| Recorded::new(&family, &levels, shape, packets);
    let (first, second) = (record(&pair.first.packets), record(&pair.second.packets));
    let (first, second) = (first.told(&family), second.told(&family));
    let size = |key: &FlowKey| (*key, first.size_of(key).estimate.value);
    let hitters = first.heavy_hitters(pair.hitter.into()).into_iter();
    let changes = second.heavy_changes(&first, pair.change.into()).into_iter();
    Answers {
        sizes: Some(pair.first.flows.keys().map(size).collect()),
        hitters: Some(hitters.map(|(key, size)| (key, size as f64)).collect()),
        changes: Some(changes.map(|change| change.0).collect()),
        distribution: Some(first.distribution().to_vec()),
        entropy: Some(first.entropy()),
        cardinality: Some(first.cardinality().value),
    }
}

/// An epoch as classifier and HH encoder have it.
struct Recorded {
    tower: TowerSketch,
    t_h: u32,
    hh: Decoded,
}

impl Recorded {
    /// Records the packets under the threshold at which the controller settles.
    fn new(family: &HashFamily, levels: &[Level], shape: Shape, packets: &[FlowKey]) -> Self {
        let empty = TowerSketch::new(levels).expect("a valid classifier");
        let widest = levels.iter().map(Level::max).max().unwrap_or(1);
        let t_h = threshold(family, empty.clone(), shape, packets).min(widest - 1);
        let (mut tower, mut hh) = (empty, FermatSketch::new(shape));
        let whole = hh.whole();
        for key in packets {
            let hashes = family.hash(key);
            if tower.insert(&hashes) >= t_h {
                hh.encode(&whole, key, &hashes);
            }
        }
        Self { tower, t_h, hh: hh.decode(family) }
    }

    fn told<'a>(&'a self, family: &'a HashFamily) -> Accumulation<'a> {
        Accumulation::new(family, &self.tower, self.t_h, &self.hh)
    }
}

/// T_h as the controller's attention ends up with it on traffic that goes on alike: the lowest under
/// which no more flows are heavy-hitter candidates than the encoder should hold.
fn threshold(
    family: &HashFamily,
    mut tower: TowerSketch,
    shape: Shape,
    packets: &[FlowKey],
) -> u32 {
    let mut reached: HashMap<FlowKey, u32> = HashMap::new();
    for key in packets {
        // The last packet of a flow has the largest value: counters only grow.
        reached.insert(*key, tower.insert(&family.hash(key)));
    }
    let mut reached: Vec<u32> = reached.into_values().collect();
    reached.sort_unstable_by_key(|&size| Reverse(size));
    let room = (shape.total_buckets() as f64 * LOAD) as usize;
    reached.get(room).map_or(1, |size| size.saturating_add(1))
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

fn draw(pairs: &[Pair], kilobytes: &[usize]) -> Drawn {
    let measured: Vec<Vec<Vec<Errors>>> = CONTENDERS
        .iter()
        .map(|(_, answer)| {
            let at = |&size: &usize| {
                let errors = |(seed, pair)| answer(pair, size * 1000, seed as u64).errors(pair);
                pairs.iter().enumerate().map(errors).collect()
            };
            kilobytes.iter().map(at).collect()
        })
        .collect();
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for (title, axis, metric, more_is_better) in PANELS {
        // One list of (size, error) for each contender that does the task.
        let curves: Vec<(&str, Vec<(f64, f64)>)> = CONTENDERS
            .iter()
            .zip(&measured)
            .map(|((name, _), by_size)| {
                let points = kilobytes.iter().zip(by_size).filter_map(|(&size, errors)| {
                    let told: Option<Vec<f64>> = errors.iter().map(metric).collect();
                    let told = told?;
                    Some((size as f64, told.iter().sum::<f64>() / told.len() as f64))
                });
                (*name, points.collect())
            })
            .filter(|(_, points): &(_, Vec<_>)| !points.is_empty())
            .collect();
        sentences.push(rank(title, &curves, more_is_better));
        let mut chart = Chart::new(title, Axis::linear("memory (KB)"), axis());
        for (name, points) in curves {
            let series = if name.starts_with(OURS) { Series::ours } else { Series::new };
            chart = chart.with(series(name, points));
        }
        charts.push(chart);
    }
    sentences.into_iter().fold(Drawn::new(charts), Drawn::measured)
}

/// Says at each size how far we are, and who of the others comes nearest or is ahead.
fn rank(title: &str, curves: &[(&str, Vec<(f64, f64)>)], more_is_better: bool) -> String {
    let better = |a: f64, b: f64| if more_is_better { a > b } else { a < b };
    let Some((_, ours)) = curves.iter().find(|curve| curve.0 == OURS) else {
        return format!("{title}: not measured");
    };
    let at_sizes = ours.iter().enumerate().map(|(at, &(size, own))| {
        let others = curves.iter().filter(|curve| !curve.0.starts_with(OURS));
        let best = others
            .map(|(name, points)| (*name, points[at].1))
            .reduce(|a, b| if better(b.1, a.1) { b } else { a });
        match best {
            Some((name, value)) => {
                let mark = if better(value, own) { "BEHIND" } else { "ahead of" };
                format!("{size} KB {own:.4} {mark} {name} {value:.4}")
            }
            None => format!("{size} KB {own:.4}"),
        }
    });
    format!("{title}: {}", at_sizes.collect::<Vec<_>>().join("; "))
}
