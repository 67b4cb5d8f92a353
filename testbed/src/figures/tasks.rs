//! How accurate every accumulation task is, epoch by epoch, against exact counts of real traffic;
//! in the metrics of the ChameleMon paper's appendix C.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::Tasks;
use calumma_controller::report::EpochReport;
use calumma_edge::parse::{Parsed, parse};
use calumma_epoch::{EpochClock, Guards};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{HashKey, WideKey};

use super::Context;
use crate::accuracy::{Accuracy, f1};
use crate::capture::Capture;
use crate::replay::{Lose, Replay, Setup};

/// Flows above so many packets are heavy hitters, and heavy changes from half of it on: as in the
/// paper, about 0.02 and 0.01 % of the packets of a second.
const HEAVY: u64 = 40;

/// Packets that make a flow a heavy-hitter candidate: the paper's choice, the threshold of heavy
/// changes.
const T_H: u32 = 20;

pub(super) fn figures() -> Vec<Figure<Context>> {
    vec![
        Figure {
            name: "tasks-over-time-mixed",
            title: "Accuracy of every task over time: mixed captures, epochs of 50 ms",
            claim: "ChameleMon, appendix C, on CAIDA's traces with 600 KB: F1 of heavy hitters 99.8 %, \
                    of heavy changes 99.6 % (400 KB); WMRE 0.039, RE of entropy 0.003, of cardinality \
                    0.0016.",
            measure: |context| accuracy(context, "mixed-captures.pcap", 50_000_000),
        },
        Figure {
            name: "tasks-over-time-backbone",
            title: "Accuracy of every task over time: a backbone link, epochs of 10 ms",
            claim: "As for the mixed captures.",
            measure: |context| accuracy(context, "backbone-65k.pcap", 10_000_000),
        },
    ]
}

/// One epoch's errors.
struct Errors {
    epoch: f64,
    tasks: Accuracy,
    changes_f1: Option<f64>,
    size_are: f64,
}

fn accuracy(context: &Context, capture: &str, length_ns: u64) -> Result<Drawn> {
    let path = context.captures.join(capture);
    if !path.exists() {
        return Ok(Drawn::new(vec![Chart::new("", Axis::linear("epoch"), Axis::linear("error"))])
            .measured(format!("Not measured: {} is not here.", path.display())));
    }
    let errors = measure(&path, length_ns)?;
    let of = |value: &dyn Fn(&Errors) -> Option<f64>| -> Vec<(f64, f64)> {
        errors.iter().filter_map(|errors| Some((errors.epoch, value(errors)?))).collect()
    };
    let epoch = || Axis::linear("epoch");
    let f1 = Chart::new("(a) F1 score", epoch(), Axis::linear("F1"))
        .with(Series::ours("heavy hitters", of(&|e| Some(e.tasks.hitters_f1))))
        .with(Series::ours("heavy changes", of(&|e| e.changes_f1)));
    let relative = Chart::new("(b) relative error", epoch(), Axis::linear("error"))
        .with(Series::ours("flow size (ARE)", of(&|e| Some(e.size_are))))
        .with(Series::ours("distribution (WMRE)", of(&|e| Some(e.tasks.distribution_wmre))))
        .with(Series::ours("entropy (RE)", of(&|e| Some(e.tasks.entropy_re))))
        .with(Series::ours("cardinality (RE)", of(&|e| Some(e.tasks.cardinality_re))));
    let mean = |points: Vec<(f64, f64)>| {
        points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64
    };
    Ok(Drawn::new(vec![f1, relative]).measured(format!(
        "Mean of {} epochs, at T_h = {T_H} in the paper's default layout: F1 of heavy hitters {:.4}, of heavy \
         changes {:.4}; ARE of flow sizes {:.4}; WMRE of the distribution {:.4}; RE of entropy {:.5}, of \
         cardinality {:.5}.",
        errors.len(),
        mean(of(&|e| Some(e.tasks.hitters_f1))),
        mean(of(&|e| e.changes_f1)),
        mean(of(&|e| Some(e.size_are))),
        mean(of(&|e| Some(e.tasks.distribution_wmre))),
        mean(of(&|e| Some(e.tasks.entropy_re))),
        mean(of(&|e| Some(e.tasks.cardinality_re))),
    )))
}

fn measure(path: &Path, length_ns: u64) -> Result<Vec<Errors>> {
    let layout = Layout::default();
    let guards = Guards { clock_ns: 1_000_000, flight_ns: 2_000_000 };
    let setup = Setup {
        attention: Attention { t_h: T_H, ..Attention::healthy(&layout, 512) },
        layout,
        hash_key: HashKey::from_bytes([11; 32]),
        clock: EpochClock::new(length_ns, guards)?,
        tasks: Tasks { heavy_hitter: HEAVY, heavy_change: HEAVY / 2 },
    };
    let clock = setup.clock;
    let mut replay = Replay::new(setup, Lose::Nothing);
    let mut capture = Capture::open(path).with_context(|| path.display().to_string())?;
    let mut truth: BTreeMap<u64, HashMap<WideKey, u64>> = BTreeMap::new();
    let mut errors = Vec::new();
    let mut now_ns = 0;
    let mut take = |replay: &Replay, reports: Vec<EpochReport>, truth: &BTreeMap<_, _>| {
        // Sizes are those of the last epoch reported.
        if let Some(report) = reports.last() {
            let sizes = |flow: &WideKey| replay.size_of(flow);
            let nothing = HashMap::new();
            let now = truth.get(&report.epoch).unwrap_or(&nothing);
            let before = truth.get(&(report.epoch - 1));
            errors.extend(compare(report, now, before, sizes));
        }
    };
    while let Some(record) = capture.next_record()? {
        let wire_len = record.original_len as usize;
        now_ns = record.timestamp_ns.max(now_ns);
        let reports = replay.packet(record.timestamp_ns, wire_len, record.bytes)?;
        take(&replay, reports, &truth);
        if let Parsed::Flow { key, .. } = parse(record.bytes, wire_len) {
            let epoch = clock.epoch_at(now_ns);
            *truth.entry(epoch).or_default().entry(key.into()).or_default() += 1;
        }
    }
    let reports = replay.finish()?;
    for report in reports {
        take(&replay, vec![report], &truth);
    }
    let first = errors.first().map_or(0.0, |errors: &Errors| errors.epoch);
    errors.iter_mut().for_each(|errors| errors.epoch -= first);
    Ok(errors)
}

fn compare(
    report: &EpochReport,
    truth: &HashMap<WideKey, u64>,
    before: Option<&HashMap<WideKey, u64>>,
    size_of: impl Fn(&WideKey) -> Option<u64>,
) -> Option<Errors> {
    let edge = report.edges.first()?;
    let tasks = Accuracy::of(edge, truth, HEAVY)?;
    let changes_f1 = before.filter(|_| edge.heavy_changes_since.is_some()).map(|before| {
        let size = |of: &HashMap<WideKey, u64>, flow| of.get(flow).copied().unwrap_or(0);
        let flows: HashSet<&WideKey> = truth.keys().chain(before.keys()).collect();
        let changed = flows
            .into_iter()
            .filter(|flow| size(truth, flow).abs_diff(size(before, flow)) > HEAVY / 2)
            .copied()
            .collect();
        let changes = &edge.heavy_changes;
        f1(&changed, &changes.iter().filter_map(|change| change.flow.key()).collect())
    });
    let sizes = truth
        .iter()
        .filter_map(|(flow, &size)| Some(size_of(flow)?.abs_diff(size) as f64 / size as f64));
    Some(Errors {
        epoch: report.epoch as f64,
        changes_f1,
        size_are: sizes.sum::<f64>() / truth.len() as f64,
        tasks,
    })
}
