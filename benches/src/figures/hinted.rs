//! Hinted decoding: how much more a sketch holds when most of its flows are known from elsewhere,
//! and what it costs.

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Shape};

use super::Setup;
use super::trials::{family, often};
use crate::measure::Watch;
use crate::workload::{self, losses};

/// Load and time against the share of flows that hints name.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "hinted-decoding",
    title: "Hinted decoding: load and cost against what is known already",
    claim: "No paper has it. The goals of this project: 1.0 flows a bucket with half of the flows \
            hinted, 1.4 with 80 % hinted and 20 % of the hints stale, 1.9 with 90 % and 30 % stale, 2.1 \
            with all, each at no more than 1 us a flow.",
    measure,
};

/// Shares of the flows that hints name, in percent, and of hints that name no flow there.
const KNOWN: [usize; 6] = [0, 25, 50, 80, 90, 100];
const STALE: [usize; 3] = [0, 20, 30];

/// What hints say of the flows in a sketch.
#[derive(Clone, Copy)]
struct Hinting {
    /// Flows that are hinted, in percent.
    known: usize,
    /// Hints that are stale, in percent.
    stale: usize,
}

fn measure(setup: &Setup) -> Result<Drawn> {
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    // All flows of the largest load, and three stale hints for every seven of them.
    let largest = Shape::default().with_buckets(setup.choose(4096, 128)).total_buckets();
    let keys = workload::keys(largest * HIGHEST / 100 * 10 / 7 + 1, 1);
    for (title, arithmetic) in
        [("prime arithmetic", Arithmetic::Prime), ("wrapping arithmetic", Arithmetic::Wrapping)]
    {
        let known = "flows that are hinted (%)";
        let shape = Shape { arithmetic, ..Shape::default() }.with_buckets(setup.choose(4096, 128));
        let mut loads = Chart::new(
            format!("{title}: load that decodes"),
            Axis::linear(known),
            Axis::linear("flows a bucket"),
        );
        let mut costs = Chart::new(
            format!("{title}: decoding at that load"),
            Axis::linear(known),
            Axis::linear("ns a flow"),
        );
        for stale in STALE {
            let at = |known| {
                let hinting = Hinting { known, stale };
                let load = most(setup, shape, &keys, hinting);
                (known, load, cost(setup, shape, &keys, hinting, load))
            };
            let points: Vec<(usize, usize, f64)> =
                setup.choose(&KNOWN[..], &[0, 100]).iter().map(|&known| at(known)).collect();
            let name = format!("{stale} % of the hints stale");
            let drawn = |pick: fn(&(usize, usize, f64)) -> f64| {
                points.iter().map(|point| (point.0 as f64, pick(point))).collect()
            };
            loads = loads.with(Series::ours(&name, drawn(|point| point.1 as f64 / 100.0)));
            costs = costs.with(Series::ours(&name, drawn(|point| point.2)));
            let results = points.iter().map(|(known, load, nanos)| {
                format!(
                    "{known} % hinted {:.2} flows a bucket, {nanos:.0} ns a flow",
                    *load as f64 / 100.0
                )
            });
            sentences.push(format!("{title}, {name}: {}", results.collect::<Vec<_>>().join("; ")));
        }
        charts.extend([loads, costs]);
    }
    Ok(sentences.into_iter().fold(Drawn::new(charts), Drawn::measured).because(format!(
        "3 x {} buckets; the load is the largest, within 0.02, at which 29 of 30 trials with hash \
             functions of their own decode completely. Time is the middle one of several \
             decodes at nine tenths of it; plain decoding, which is tried first, is part of it.",
        setup.choose(4096, 128)
    )))
}

/// A sketch under hash functions drawn from a seed, and its hints.
struct Trial {
    family: HashFamily,
    sketch: FermatSketch,
    hints: Vec<FlowKey>,
    flows: usize,
}

impl Trial {
    /// `load` is in hundredths of a flow a bucket.
    fn new(shape: Shape, keys: &[FlowKey], hinting: Hinting, load: usize, seed: u64) -> Self {
        let flows = shape.total_buckets() * load / 100;
        let known = flows * hinting.known / 100;
        // Of all hints, this share names flows that are not there.
        let gone = known * hinting.stale / (100 - hinting.stale);
        let hints = [&keys[..known], &keys[flows..flows + gone]].concat();
        let family = family(seed);
        let mut sketch = FermatSketch::new(shape);
        for (flow, key) in keys[..flows].iter().enumerate() {
            sketch.insert(&family, key, losses(flow));
        }
        Self { family, sketch, hints, flows }
    }

    /// Nanoseconds a flow if all came out.
    fn decode(self) -> Option<f64> {
        let Self { family, sketch, hints, flows } = self;
        let watch = Watch::start();
        let decoded = sketch.decode_with_hints(&family, &hints);
        let nanos = watch.nanos();
        (decoded.is_complete() && decoded.flows().len() == flows).then(|| nanos / flows as f64)
    }
}

/// The largest load that is tried, in hundredths of a flow a bucket.
const HIGHEST: usize = 500;

/// The largest load, in hundredths of a flow a bucket, at which 29 of 30 trials decode.
fn most(setup: &Setup, shape: Shape, keys: &[FlowKey], hinting: Hinting) -> usize {
    let trials = setup.choose(30, 10);
    let decodes = |load| {
        let trial = |seed| Trial::new(shape, keys, hinting, load, seed).decode().is_some();
        often(trials, trials / 30, trial)
    };
    let (mut low, mut high) = (20_usize, HIGHEST);
    while high - low > 2 {
        let middle = low.midpoint(high);
        if decodes(middle) { low = middle } else { high = middle }
    }
    low
}

/// The middle one of several decodes close below the largest load, in nanoseconds a flow.
fn cost(setup: &Setup, shape: Shape, keys: &[FlowKey], hinting: Hinting, load: usize) -> f64 {
    let decodes = 0..setup.choose(9, 3);
    let mut nanos: Vec<f64> = decodes
        .filter_map(|seed| Trial::new(shape, keys, hinting, load * 9 / 10, seed).decode())
        .collect();
    nanos.sort_unstable_by(f64::total_cmp);
    nanos.get(nanos.len() / 2).copied().unwrap_or(f64::NAN)
}
