//! Figures 20 and 21: what monitoring costs in time and bandwidth.

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};

use super::Context;
use super::attention::phases;
use crate::scenario::play;

/// The paper's bound of the response, in milliseconds.
const PAPERS_RESPONSE_MS: f64 = 30.0;

/// The bandwidth of the paper's four edges at epochs of 50 ms, in Mbit/s.
const PAPERS_MBITS: f64 = 317.0;

/// The workloads, and the numbers of the figures that are over flows and over victims.
const WORKLOADS: [(&str, [&str; 2]); 4] = [
    ("dctcp", ["07", "08"]),
    ("cache", ["14", "15"]),
    ("vl2", ["16", "17"]),
    ("hadoop", ["18", "19"]),
];

pub(super) fn figures() -> Vec<Figure<Context>> {
    vec![
        Figure {
            name: "chamelemon-20-response",
            title: "ChameleMon, figure 20: time to respond to a network's state",
            claim: "From the last sketch collected to the reconfiguration sent, always within 30 ms, on \
                    two CPU cores.",
            measure: response,
        },
        Figure {
            name: "chamelemon-21-bandwidth",
            title: "ChameleMon, figure 21: bandwidth of collection",
            claim: "317 Mbit/s from four edges at epochs of 50 ms, and in proportion at other lengths.",
            measure: bandwidth,
        },
    ]
}

fn response(context: &Context) -> Result<Drawn> {
    let over = [
        ("(a) over flows", "thousand flows", 10.0, "flows"),
        ("(b) over victims", "percent victims", 2.5, "victims"),
    ];
    let mut charts = Vec::new();
    // Of epochs in which attention stands, as in the paper, and of those in which it is to move.
    let (mut standing, mut moving) = (Vec::new(), Vec::new());
    for (at, (title, x, step, kind)) in over.into_iter().enumerate() {
        let mut chart = Chart::new(title, Axis::linear(x), Axis::linear("response in ms"));
        for (workload, numbers) in WORKLOADS {
            let name = format!("figure-{}-{kind}-{workload}", numbers[at]);
            let played = context.played(&name)?;
            let (scenario, played) = &*played;
            let phases = phases(scenario, played).into_iter().enumerate();
            let points = phases.map(|(at, phase)| {
                let (stood, moved): (Vec<_>, Vec<_>) =
                    phase.iter().partition(|epoch| epoch.reasons.is_empty() && epoch.decoded);
                let of = |epoch: &&crate::scenario::EpochSummary| epoch.response_ms;
                let stood: Vec<f64> = stood.into_iter().map(of).collect();
                moving.extend(moved.into_iter().map(of));
                standing.extend(&stood);
                ((at + 1) as f64 * step, quantile(stood, 0.5))
            });
            let points: Vec<(f64, f64)> = points.filter(|point| point.1.is_finite()).collect();
            chart = chart.with(Series::ours(workload.to_uppercase(), points));
        }
        let last = 10.0 * step;
        let bound = vec![(step, PAPERS_RESPONSE_MS), (last, PAPERS_RESPONSE_MS)];
        charts.push(chart.with(Series::new("the paper's bound", bound)));
    }
    let [stood, moved] = [standing, moving].map(|times| {
        let at = |share| quantile(times.clone(), share);
        let (half, most) = (at(0.5), at(0.99));
        format!("median {half:.1} ms, 99th percentile {most:.1} ms over {} epochs", times.len())
    });
    Ok(Drawn::new(charts)
        .measured(format!(
            "Decoding and planning, on one core. Where attention stands, as at the paper's points and drawn \
             here: {stood}. Where it is to move or something did not decode: {moved}."
        ))
        .because(
            "The paper's points are stable configurations. Where an epoch's encoders fail, the plan is worked \
             out from the whole distribution of flow sizes, which takes longer than decoding; a report is as \
             late, and the plan takes effect an epoch later.",
        ))
}

/// What a share of the values lies below; no number without values.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len().saturating_sub(1) as f64 * share) as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

fn bandwidth(context: &Context) -> Result<Drawn> {
    let base = context.scenario("figure-07-flows-dctcp")?;
    let mut points = Vec::new();
    for length_ms in [10, 20, 50, 100, 200, 500] {
        let mut scenario = base.clone();
        scenario.epochs = 30;
        // The flows that are there at 50 ms, or as many more or fewer as fit into the time.
        let flows = 1000 * length_ms as i64;
        let all = toml::Table::from_iter([("flows".to_owned(), toml::Value::from(flows))]);
        scenario.traffic.values_mut().for_each(|kind| kind.extend(all.clone()));
        scenario.change.clear();
        scenario.expect.clear();
        scenario.epoch.length_ms = length_ms;
        let played = play(&scenario, |_, _| Ok(()))?;
        let last = played.epochs.last().and_then(|epoch| epoch.frame_bytes).unwrap_or(0);
        points.push((length_ms as f64, last as f64 * 8.0 / (length_ms as f64 * 1e3)));
    }
    let at_50 = points.iter().find(|(length, _)| *length == 50.0).map_or(0.0, |point| point.1);
    let lengths = points.iter().map(|(length, _)| *length);
    let papers = lengths.map(|length| (length, PAPERS_MBITS * 50.0 / length)).collect();
    let chart = Chart::new("", Axis::log("epoch in ms"), Axis::log("Mbit/s from four edges"))
        .with(Series::ours("frames", points))
        .with(Series::new("the paper", papers));
    Ok(Drawn::new(vec![chart])
        .measured(format!(
            "{at_50:.0} Mbit/s at epochs of 50 ms and 50,000 flows in each (1,000 a millisecond)."
        ))
        .because(format!(
            "{:.0} % less than the paper's {PAPERS_MBITS} at 50 ms: sketches are sent without buckets and \
             byte columns that are zero, and packed. The longer an epoch, the more flows it has and the \
             fuller its sketches are; the paper's registers are as long whatever they hold.",
            (1.0 - at_50 / PAPERS_MBITS) * 100.0
        )))
}
