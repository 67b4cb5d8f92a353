//! Figure 6 of the SketchINT paper: speed on a CPU.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::thread;

use anyhow::Result;
use calumma_baselines::{ConservativeUpdate, CountMin, Elastic, Insert, Query};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{FlowKey, Insertion};

use super::Setup;
use super::sketchint::Tower;
use crate::cases::mpps;
use crate::measure::{Case, in_turns};
use crate::workload;

/// Insertion and query on one core, insertion on several.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-06",
    title: "SketchINT, figure 6: speed of TowerSketch on a CPU",
    claim: "In 2 MB, one core inserts 22.6 Mpps into TowerCM, 27.1 into CM, 21.7 into CU; Elastic is \
            the fastest. On several cores, 30 threads insert 274 Mpps into one lock-free sketch, 1.96 \
            times what they do with locks, and lose little accuracy.",
    measure,
};

const BYTES: usize = 2_000_000;

fn measure(setup: &Setup) -> Result<Drawn> {
    let packets =
        workload::zipf(setup.choose(170_000, 10_000), setup.choose(2_300_000, 100_000), 1.0, 1);
    let mut cases = Vec::new();
    cases.extend(both("TowerCM", Tower::new(BYTES, 1, Insertion::Cm), &packets));
    cases.extend(both("TowerCU", Tower::new(BYTES, 1, Insertion::Cu), &packets));
    cases.extend(both("CM", CountMin::new(BYTES, 1), &packets));
    cases.extend(both("CU", ConservativeUpdate::new(BYTES, 1), &packets));
    cases.extend(both("Elastic", Elastic::new(BYTES, 1), &packets));
    let most = thread::available_parallelism().map_or(1, usize::from);
    let packets = &packets;
    cases.extend((1..=most).map(|threads| {
        let mut replicas: Vec<_> =
            (0..threads).map(|_| Tower::new(BYTES, 1, Insertion::Cm)).collect();
        Case::new(&format!("{threads} threads"), "Mpps", move || together(&mut replicas, packets))
    }));
    let figures = in_turns(cases, setup.choose(7, 1));

    let bars = |title, suffix: &str| {
        let these: Vec<_> =
            figures.iter().filter_map(|f| Some((f.name.strip_suffix(suffix)?, f.median))).collect();
        let names = these.iter().map(|bar| bar.0.to_owned()).collect();
        let values = these.iter().enumerate().map(|(at, bar)| (at as f64, bar.1)).collect();
        Chart::bars(title, names, Axis::linear("Mpps")).with(Series::ours("median", values))
    };
    let charts = vec![
        bars("(a) insertion, one core", " insert"),
        bars("(b) query, one core", " query"),
        bars("(c) insertion into TowerCM, several cores", " threads"),
    ];
    let sentences = figures.iter().map(|figure| {
        format!(
            "{}: {:.1} Mpps ({:.1} to {:.1})",
            figure.name, figure.median, figure.min, figure.max
        )
    });
    Ok(sentences
        .fold(Drawn::new(charts), Drawn::measured)
        .because("Three rows in CM and CU, where the paper has five, and five arrays in TowerSketch; \
                  all hash once and derive the indexes, where the paper hashes once for each.")
        .because("Every thread has a sketch of its own, as every lcore of the edge switch has, and they \
                  are added up afterwards: counters are equal to those of one sketch, so that there is \
                  no accuracy to lose and no figure 6(d). Time is that of each thread on the CPU."))
}

/// Inserting all packets, and querying each.
fn both<'a, S: Insert + Query + 'a>(
    name: &str,
    sketch: S,
    packets: &'a [FlowKey],
) -> [Case<'a>; 2] {
    // The queries are of what the insertions filled.
    let sketch = Rc::new(RefCell::new(sketch));
    let queried = Rc::clone(&sketch);
    [
        Case::new(&format!("{name} insert"), "Mpps", move || {
            let sketch = &mut *sketch.borrow_mut();
            mpps(packets.len(), || sketch.insert_all(packets))
        }),
        Case::new(&format!("{name} query"), "Mpps", move || {
            let sketch = &*queried.borrow();
            let query = |key| {
                black_box(sketch.query(key));
            };
            mpps(packets.len(), || packets.iter().for_each(query))
        }),
    ]
}

/// All threads' packets by the time of the slowest.
fn together(replicas: &mut [Tower], packets: &[FlowKey]) -> f64 {
    let speeds: Vec<f64> = thread::scope(|scope| {
        let insert = |replica: &mut Tower| mpps(packets.len(), || replica.insert_all(packets));
        let running: Vec<_> =
            replicas.iter_mut().map(|replica| scope.spawn(move || insert(replica))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread that counts")).collect()
    });
    speeds.iter().copied().fold(f64::INFINITY, f64::min) * speeds.len() as f64
}
