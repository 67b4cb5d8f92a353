//! Figure 5 of the SketchINT paper: local tasks by TowerSketch alone, beside CM, CU and Elastic.

use anyhow::Result;
use calumma_baselines::{
    Cardinality, ConservativeUpdate, CountMin, Elastic, Insert, Query, Tracked,
};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::BURST;
use calumma_sketch::{
    FlowKey, HashFamily, HashKey, Hashes, Insertion, Level, TowerSketch, estimate,
};

use super::Setup;
use super::answers::{Answers, Errors};
use super::epochs::Pair;
use super::tasks::{both, statistics};
use crate::workload;

/// Eight metrics against memory.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-05",
    title: "SketchINT, figure 5: local tasks by TowerSketch",
    claim: "At 900 KB TowerCM has at least 1.9 times lower AAE and 6.8 times lower ARE than CM, CU and \
            Elastic, TowerCU 28 and 29 times. At 300 KB TowerCU's heavy-hitter F1 is 0.9997, ARE 3e-4; \
            heavy-change F1 0.998, where CM, CU and Elastic have 0.96, 0.98 and 0.99. At 900 KB: \
            cardinality RE 6.02e-4 (CM 1.7e-3, CU 2e-3, Elastic 6.62e-4), WMRE 0.09 (CM 0.38, CU \
            0.35), entropy RE 2.42e-4.",
    measure,
};

/// Widths of the counter arrays, which fill the same memory each.
pub(super) const WIDTHS: [u32; 5] = [2, 4, 8, 16, 32];

/// Arrays of `bytes` in all.
pub(super) fn levels(bytes: usize) -> [Level; 5] {
    even_levels(bytes, WIDTHS)
}

/// The same of these widths, which fill the same memory each.
pub(super) fn even_levels<const N: usize>(bytes: usize, widths: [u32; N]) -> [Level; N] {
    widths.map(|bits| Level::new(bits, (bytes * 8 / N) as u32 / bits))
}

/// Keys that the table beside a sketch holds.
const TABLE: usize = 1024;

/// A sketch without keys of its own, and the table of those that it found large.
struct WithTable<S> {
    sketch: S,
    threshold: u32,
    table: std::collections::HashSet<FlowKey>,
}

impl<S> WithTable<S> {
    fn new(sketch: S, threshold: u32) -> Self {
        Self { sketch, threshold, table: std::collections::HashSet::with_capacity(TABLE) }
    }
}

impl<S: Insert + Query> Insert for WithTable<S> {
    fn insert(&mut self, key: &FlowKey) {
        self.sketch.insert(key);
        if self.sketch.query(key) > self.threshold && self.table.len() < TABLE {
            self.table.insert(*key);
        }
    }

    fn bytes(&self) -> usize {
        self.sketch.bytes()
    }
}

impl<S: Query> Query for WithTable<S> {
    fn query(&self, key: &FlowKey) -> u32 {
        self.sketch.query(key)
    }
}

impl<S: Query> Tracked for WithTable<S> {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.table.iter().map(|key| (*key, self.sketch.query(key))).collect()
    }
}

/// Our TowerSketch as the peers' traits see it.
pub(super) struct Tower {
    family: HashFamily,
    sketch: TowerSketch,
}

impl Tower {
    pub(super) fn new(bytes: usize, seed: u64, insertion: Insertion) -> Self {
        Self::of(&levels(bytes), seed, insertion)
    }

    pub(super) fn of(levels: &[Level], seed: u64, insertion: Insertion) -> Self {
        let family = HashFamily::new(&HashKey::from_bytes([seed as u8; 32]));
        let sketch = TowerSketch::new(levels).expect("valid arrays");
        Self { family, sketch: sketch.with_insertion(insertion) }
    }
}

impl Insert for Tower {
    fn insert(&mut self, key: &FlowKey) {
        self.insert_all(std::slice::from_ref(key));
    }

    fn insert_all(&mut self, packets: &[FlowKey]) {
        let mut hashes = [Hashes::default(); BURST];
        for burst in packets.chunks(BURST) {
            let hashes = &mut hashes[..burst.len()];
            self.family.hash_burst(burst, hashes);
            for hashes in hashes {
                self.sketch.insert(hashes);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.sketch.bytes()
    }
}

impl Query for Tower {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        self.sketch.query(&self.family.hash(key))
    }
}

type Contender = (&'static str, fn(&Pair, usize, u64) -> Answers);

const CONTENDERS: [Contender; 5] = [
    ("TowerCM", |pair, bytes, seed| {
        let table = || WithTable::new(Tower::new(bytes, seed, Insertion::Cm), pair.change);
        let [first, second] = both(table, pair);
        let distribution = estimate::size_distribution(&first.sketch.sketch, []);
        Answers {
            entropy: Some(estimate::entropy(&distribution)),
            cardinality: Some(estimate::cardinality(&first.sketch.sketch).value),
            distribution: Some(distribution),
            ..Answers::default()
        }
        .with_sizes(pair, &first)
        .with_tracked(pair, &first, &second)
    }),
    ("TowerCU", |pair, bytes, seed| {
        let table = || WithTable::new(Tower::new(bytes, seed, Insertion::Cu), pair.change);
        let [first, second] = both(table, pair);
        Answers {
            cardinality: Some(estimate::cardinality(&first.sketch.sketch).value),
            ..Answers::default()
        }
        .with_sizes(pair, &first)
        .with_tracked(pair, &first, &second)
    }),
    ("CM", |pair, bytes, seed| {
        let [first, second] =
            both(|| WithTable::new(CountMin::new(bytes, seed), pair.change), pair);
        statistics(&first.sketch).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
    ("CU", |pair, bytes, seed| {
        let [first, second] =
            both(|| WithTable::new(ConservativeUpdate::new(bytes, seed), pair.change), pair);
        let cardinality = Some(first.sketch.cardinality());
        Answers { cardinality, ..Answers::default() }
            .with_sizes(pair, &first)
            .with_tracked(pair, &first, &second)
    }),
    ("Elastic", |pair, bytes, seed| {
        let [first, second] = both(|| Elastic::new(bytes, seed), pair);
        statistics(&first).with_sizes(pair, &first).with_tracked(pair, &first, &second)
    }),
];

type Panel = (&'static str, fn() -> Axis, fn(&Errors) -> Option<f64>);

const PANELS: [Panel; 8] = [
    ("(a) flow sizes", || Axis::log("AAE"), |errors| errors.sizes_aae),
    ("(b) flow sizes", || Axis::log("ARE"), |errors| errors.sizes_are),
    ("(c) heavy hitters", || Axis::linear("F1 score"), |errors| errors.hitters_f1),
    ("(d) heavy hitters", || Axis::log("ARE"), |errors| errors.hitters_are),
    ("(e) heavy changes", || Axis::linear("F1 score"), |errors| errors.changes_f1),
    ("(f) entropy", || Axis::log("RE"), |errors| errors.entropy_re),
    ("(g) cardinality", || Axis::log("RE"), |errors| errors.cardinality_re),
    ("(h) flow size distribution", || Axis::log("WMRE"), |errors| errors.wmre),
];

fn measure(setup: &Setup) -> Result<Drawn> {
    let (flows, packets) = setup.choose((170_000, 2_300_000), (20_000, 200_000));
    let pairs: Vec<_> = (0..setup.choose(3, 1))
        .map(|seed| {
            Pair::new(workload::zipf_epochs(workload::keys(flows, seed), packets, 1.0, seed))
        })
        .collect();
    let kilobytes: &[usize] = setup.choose(&[300, 450, 600, 750, 900], &[100]);
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
    for (title, axis, metric) in PANELS {
        let mut chart = Chart::new(title, Axis::linear("memory (KB)"), axis());
        let label = axis().label().to_owned();
        let mut ends = Vec::new();
        for (&(name, _), by_size) in CONTENDERS.iter().zip(&measured) {
            let points = kilobytes.iter().zip(by_size).filter_map(|(&size, errors)| {
                let values: Option<Vec<f64>> = errors.iter().map(metric).collect();
                let values = values?;
                Some((size as f64, values.iter().sum::<f64>() / values.len() as f64))
            });
            let points: Vec<_> = points.collect();
            if let (Some(first), Some(last)) = (points.first(), points.last()) {
                ends.push(format!("{name} {:.2e} and {:.2e}", first.1, last.1));
                let series = if name.starts_with("Tower") { Series::ours } else { Series::new };
                chart = chart.with(series((*name).to_owned(), points));
            }
        }
        let sizes = (kilobytes[0], kilobytes[kilobytes.len() - 1]);
        sentences.push(format!(
            "{title}, {label} at {} and {} KB: {}",
            sizes.0,
            sizes.1,
            ends.join(", ")
        ));
        charts.push(chart);
    }
    Ok(sentences
        .into_iter()
        .fold(Drawn::new(charts), Drawn::measured)
        .because(format!(
            "{packets} packets drawn by Zipf(1.0) from {flows} flows, keys of 13 bytes; means over {} \
             pairs of epochs where the paper has 100 runs on CAIDA's traces.",
            pairs.len()
        ))
        .because(
            "Distribution and entropy come from sums, which counters of CU insertion are not: there is \
             no curve of TowerCU and of CU in (f) and (h).",
        ))
}
