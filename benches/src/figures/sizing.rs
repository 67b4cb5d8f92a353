//! Decoding success against load for three to five arrays, and the size that a wanted probability
//! takes, beside the size that `Shape::buckets_for` asks for.

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{Arithmetic, Shape};

use super::Setup;
use super::decode_success::decodes;
use super::trials::{failures, least, often};
use crate::workload;

/// Success against load, and buckets a flow against flows.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "decode-sizing",
    title: "How large a FermatSketch must be: load, arrays, arithmetic",
    claim: "Theorem 3.1 of the ChameleMon paper: for many flows, hardly any sketch decodes below c_d \
            buckets a flow and nearly all do above; c_3 = 1.23, c_4 = 1.30, c_5 = 1.43.",
    measure,
};

const ARRAYS: [usize; 3] = [3, 4, 5];

const KINDS: [(&str, Arithmetic, bool); 3] = [
    ("prime, fingerprint", Arithmetic::Prime, true),
    ("prime, no fingerprint", Arithmetic::Prime, false),
    ("wrapping", Arithmetic::Wrapping, false),
];

/// The failures that are asked for: 99.9 % decode.
const FAILURE: f64 = 1e-3;

fn measure(setup: &Setup) -> Result<Drawn> {
    let against_load = ARRAYS.map(|arrays| success(setup, arrays));
    let sized = ARRAYS.map(|arrays| sizes(setup, arrays));
    let (charts, sentences): (Vec<_>, Vec<_>) = sized.into_iter().unzip();
    let drawn = Drawn::new(against_load.into_iter().chain(charts).collect());
    Ok(sentences
        .into_iter()
        .flatten()
        .fold(drawn, Drawn::measured)
        .because(
            "Few flows need more buckets each than the theorem says, since two flows that share all \
             their buckets never decode, and that happens in small sketches: four or five arrays \
             make up for it.",
        )
        .because(
            "The least size is that of so many trials and within 2 %; that of buckets_for comes from \
             theory and a fit, and is what the controller relies on. A bucket is 20 bytes in prime \
             arithmetic and 32 in wrapping.",
        ))
}

/// How often sketches of so many arrays decode, against flows a bucket.
fn success(setup: &Setup, arrays: usize) -> Chart {
    let (flows, trials) = setup.choose((2_000, 500), (200, 20));
    let keys = workload::keys(flows, 1);
    let loads: &[f64] = setup.choose(
        &[0.6, 0.62, 0.64, 0.66, 0.68, 0.7, 0.72, 0.74, 0.76, 0.78, 0.8, 0.82, 0.84],
        &[0.5, 0.9],
    );
    let chart = Chart::new(
        format!("{arrays} arrays, {flows} flows"),
        Axis::linear("flows a bucket"),
        Axis::linear("decoded completely (%)"),
    );
    KINDS.into_iter().fold(chart, |chart, (name, arithmetic, fingerprint)| {
        let shape = Shape { arrays, arithmetic, fingerprint, ..Shape::default() };
        let share = |&load: &f64| {
            let buckets = (flows as f64 / load / arrays as f64).round() as usize;
            let shape = shape.with_buckets(buckets);
            let failed = failures(trials, trials, |seed| decodes(shape, &keys, seed));
            (load, 100.0 * (trials - failed) as f64 / trials as f64)
        };
        chart.with(Series::ours(name, loads.iter().map(share).collect()))
    })
}

/// Buckets a flow with which 99.9 % decode, measured and asked for, and what there is to say of
/// each number of flows.
fn sizes(setup: &Setup, arrays: usize) -> (Chart, Vec<String>) {
    let trials = setup.choose(1_000, 20);
    let allowed = (trials as f64 * FAILURE) as usize;
    let flows: &[usize] = setup.choose(&[100, 300, 1_000, 3_000, 10_000][..], &[50, 200]);
    let keys = workload::keys(flows[flows.len() - 1], 1);
    let mut chart = Chart::new(
        format!("{arrays} arrays: size for 99.9 %"),
        Axis::log("flows"),
        Axis::linear("buckets a flow"),
    );
    let asked: Vec<usize> = flows
        .iter()
        .map(|&flows| {
            let shape = Shape { arrays, ..Shape::default() };
            shape.buckets_for(flows, FAILURE).expect("a size within reach")
        })
        .collect();
    let a_flow = |sizes: &[usize]| -> Vec<(f64, f64)> {
        let each = flows.iter().zip(sizes);
        each.map(|(&flows, &size)| (flows as f64, (size * arrays) as f64 / flows as f64)).collect()
    };
    chart = chart.with(Series::new("buckets_for", a_flow(&asked)));
    let mut sentences: Vec<String> = flows
        .iter()
        .zip(&asked)
        .map(|(flows, size)| {
            format!("{flows} flows: buckets_for asks for {arrays} x {size} buckets")
        })
        .collect();
    for (name, arithmetic, fingerprint) in KINDS {
        let shape = Shape { arrays, arithmetic, fingerprint, ..Shape::default() };
        let mut measured = Vec::new();
        for ((&flows, &asked), sentence) in flows.iter().zip(&asked).zip(&mut sentences) {
            let keys = &keys[..flows];
            let decodes = |buckets, seed| decodes(shape.with_buckets(buckets), keys, seed);
            let enough = |buckets| often(trials, allowed, |seed| decodes(buckets, seed));
            let found = least(asked, 1, enough);
            let failed = failures(trials, trials, |seed| decodes(asked, seed));
            let bytes = (found * arrays * 4 * arithmetic.words()) as f64 / flows as f64;
            sentence.push_str(&format!(
                "; {name}: {failed} of {trials} fail at that size, {allowed} at {arrays} x {found}, \
                 {bytes:.1} bytes a flow"
            ));
            measured.push(found);
        }
        chart = chart.with(Series::ours(name, a_flow(&measured)));
    }
    (chart, sentences)
}
