//! CM and CU insertion into the classifier, side by side. A software edge may choose (`insertion`
//! of the layout): only the hierarchy bits leave the switch.

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{FlowKey, HashFamily, Insertion, Level, TowerSketch};

use super::Setup;
use super::trials::family;
use crate::workload;

/// Relative error of flow sizes against memory.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "classifier-insertion",
    title: "The classifier alone: CM against CU insertion",
    claim: "The SketchINT paper has CU insertion at several times lower error than CM. The goal of \
            this project: an average relative error of 0.0099 where CM has 0.054, in 500 KB.",
    measure,
};

/// Widths of the arrays, which fill the same memory each. The widest holds any flow.
const WIDTHS: [(&str, &[u32]); 3] = [
    ("8+16+32 bits", &[8, 16, 32]),
    ("4+8+16+32 bits", &[4, 8, 16, 32]),
    ("2+4+8+32 bits", &[2, 4, 8, 32]),
];

fn measure(setup: &Setup) -> Result<Drawn> {
    let (flows, packets) = setup.choose((63_000, 2_300_000), (5_000, 50_000));
    let kilobytes: &[usize] = setup.choose(&[200, 300, 400, 500, 600][..], &[20, 40]);
    let family = family(1);
    let packets = workload::zipf(flows, packets, 1.1, 1);
    let mut truth = std::collections::HashMap::new();
    packets.iter().for_each(|key| *truth.entry(*key).or_insert(0_u32) += 1);
    // The average, and what the worst flow alone adds to it: a mouse that meets elephants in every
    // array can be more than all others together.
    let error = |sketch: &TowerSketch| {
        let relative = |(key, &size): (&FlowKey, &u32)| {
            let told = f64::from(sketch.query(&family.hash(key)));
            (told - f64::from(size)) / f64::from(size) / truth.len() as f64
        };
        let shares = || truth.iter().map(relative);
        (shares().sum::<f64>(), shares().fold(0.0, f64::max))
    };
    let mut chart =
        Chart::new("flow sizes", Axis::linear("memory (KB)"), Axis::log("average relative error"));
    let mut sentences = Vec::new();
    for (name, widths) in WIDTHS {
        let (mut cm, mut cu) = (Vec::new(), Vec::new());
        let mut results = Vec::new();
        for &size in kilobytes {
            let both = filled(&family, &levels(widths, size * 1000), &packets);
            let [(plain, worst), (conservative, worst_cu)] = both.each_ref().map(error);
            results.push(format!(
                "{size} KB CM {plain:.4}, CU {conservative:.4} ({:.1} times less; {worst:.4} and \
                 {worst_cu:.4} by the worst flow alone)",
                plain / conservative
            ));
            cm.push((size as f64, plain));
            cu.push((size as f64, conservative));
        }
        sentences.push(format!("{name}: {}", results.join("; ")));
        chart = chart.with(Series::new(format!("CM, {name}"), cm));
        chart = chart.with(Series::ours(format!("CU, {name}"), cu));
    }
    Ok(sentences.into_iter().fold(Drawn::new(vec![chart]), Drawn::measured).because(format!(
        "{} packets of {} flows, Zipf(1.1); the size is the least counter, as the switch has it, with \
         nothing taken from the HH encoder. A controller that knows that counters are sums estimates \
         better from CM insertion (chamelemon-11), and replicas filled by CU insertion, once merged, are less exact than one sketch.",
        packets.len(),
        truth.len()
    )))
}

/// Arrays of these widths that fill `bytes`, the same memory each.
fn levels(widths: &[u32], bytes: usize) -> Vec<Level> {
    let bits = (bytes * 8 / widths.len()) as u32;
    widths.iter().map(|&width| Level::new(width, bits / width)).collect()
}

/// The same packets by CM and by CU insertion.
fn filled(family: &HashFamily, levels: &[Level], packets: &[FlowKey]) -> [TowerSketch; 2] {
    let mut plain = TowerSketch::new(levels).expect("rising widths");
    let mut conservative = plain.clone().with_insertion(Insertion::Cu);
    for key in packets {
        let hashes = family.hash(key);
        plain.insert(&hashes);
        conservative.insert(&hashes);
    }
    [plain, conservative]
}
