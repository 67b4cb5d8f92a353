//! Figures 7-9 and 14-19: where attention goes as the network changes.

use anyhow::Result;
use calumma_controller::report::NetworkState;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};

use super::Context;
use crate::scenario::{EpochSummary, Played, Scenario, play};

/// Epochs that the paper's network takes after each of its eight changes (figure 9).
const PAPERS_SHIFTS: [u64; 8] = [1, 2, 3, 2, 2, 1, 1, 1];

/// Bucket arrays of an encoder in the layout that the paper's figures have.
const ARRAYS: f64 = 3.0;

/// Buckets of the upstream flow encoder in all arrays.
const UPSTREAM: f64 = 4096.0 * ARRAYS;

pub(super) fn figures() -> Vec<Figure<Context>> {
    vec![
        Figure {
            name: "chamelemon-07-flows-dctcp",
            title: "ChameleMon, figure 7: attention and number of flows (DCTCP)",
            claim: "Healthy up to 70,000 flows, ill from 80,000 on; T_h = T_l = 1 up to 20,000. The \
                    flows decoded always exceed a load of 65 % of the 12,288 buckets unless all are \
                    recorded.",
            measure: |context| over_flows(context, "figure-07-flows-dctcp", (70.0, Some(65.0))),
        },
        Figure {
            name: "chamelemon-08-victims-dctcp",
            title: "ChameleMon, figure 8: attention and ratio of victim flows (DCTCP)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on; T_h stays as it is \
                    in the ill state. The flows decoded always exceed a load of 65 %.",
            measure: |context| over_victims(context, "figure-08-victims-dctcp", (12.5, Some(65.0))),
        },
        Figure {
            name: "chamelemon-09-epochs-dctcp",
            title: "ChameleMon, figure 9: attention over 45 epochs with eight changes (DCTCP)",
            claim: "Attention shifts within 1, 2, 3, 2, 2, 1, 1 and 1 epochs after the changes: at \
                    most three.",
            measure: over_epochs,
        },
        Figure {
            name: "chamelemon-14-flows-cache",
            title: "ChameleMon, figure 14: attention and number of flows (CACHE)",
            claim: "Healthy up to 70,000 flows, ill from 80,000 on with T_h = 3 and T_l = 2; the load is \
                    low there, since lower thresholds would be too many flows.",
            measure: |context| over_flows(context, "figure-14-flows-cache", (70.0, None)),
        },
        Figure {
            name: "chamelemon-15-victims-cache",
            title: "ChameleMon, figure 15: attention and ratio of victim flows (CACHE)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on with T_h = T_l = 2.",
            measure: |context| over_victims(context, "figure-15-victims-cache", (12.5, None)),
        },
        Figure {
            name: "chamelemon-16-flows-vl2",
            title: "ChameleMon, figure 16: attention and number of flows (VL2)",
            claim: "Healthy up to 60,000 flows and ill after that; T_h = T_l = 1 up to 20,000; the \
                    load factor stays above 51 %.",
            measure: |context| over_flows(context, "figure-16-flows-vl2", (60.0, Some(51.0))),
        },
        Figure {
            name: "chamelemon-17-victims-vl2",
            title: "ChameleMon, figure 17: attention and ratio of victim flows (VL2)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on; the load factor \
                    stays above 53 %.",
            measure: |context| over_victims(context, "figure-17-victims-vl2", (12.5, Some(53.0))),
        },
        Figure {
            name: "chamelemon-18-flows-hadoop",
            title: "ChameleMon, figure 18: attention and number of flows (HADOOP)",
            claim: "Healthy up to 60,000 flows and ill after that; T_h = T_l = 1 up to 20,000; the load \
                    factor stays above 47 %.",
            measure: |context| over_flows(context, "figure-18-flows-hadoop", (60.0, Some(47.0))),
        },
        Figure {
            name: "chamelemon-19-victims-hadoop",
            title: "ChameleMon, figure 19: attention and ratio of victim flows (HADOOP)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on; the load factor \
                    stays above 48 %.",
            measure: |context| {
                over_victims(context, "figure-19-victims-hadoop", (12.5, Some(48.0)))
            },
        },
    ]
}

/// The epochs of every phase of a scenario.
pub(super) fn phases<'a>(scenario: &Scenario, played: &'a Played) -> Vec<Vec<&'a EpochSummary>> {
    let changes = || scenario.change.iter().map(|change| change.at);
    let ends = changes().chain([scenario.epochs]);
    [0].into_iter()
        .chain(changes())
        .zip(ends)
        .map(|(from, to)| {
            played.epochs.iter().filter(|epoch| (from..to).contains(&epoch.epoch)).collect()
        })
        .collect()
}

/// Flows in the fullest HH encoder, in the delta HL and in the delta LL encoder: decoded or, where
/// that failed, as many as their empty buckets tell.
fn recorded_flows(epoch: &EpochSummary) -> [f64; 3] {
    let config = &epoch.config;
    let flows = |load: Option<f64>, buckets: u32| {
        (load.unwrap_or(0.0) * f64::from(buckets) * ARRAYS).round()
    };
    [
        flows(epoch.hh_load, config.hh_buckets),
        flows(epoch.hl_load, config.hl_buckets),
        flows(epoch.ll_load, config.ll_buckets),
    ]
}

/// The charts of figures 7 to 9 and 14 to 19 over `x`.
fn charts(epochs: &[(f64, &EpochSummary)], x: &str) -> Vec<Chart> {
    let of = |value: &dyn Fn(&EpochSummary) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|(x, epoch)| (*x, value(epoch))).collect()
    };
    // A logarithmic axis of less than two decades has hardly a label.
    let most = epochs.iter().map(|(_, epoch)| epoch.config.t_h).max().unwrap_or(1);
    let packets = if most < 100 { Axis::linear("packets") } else { Axis::log("packets") };
    vec![
        Chart::new(
            "(a) memory of the upstream encoder",
            Axis::linear(x),
            Axis::linear("buckets an array"),
        )
        .with(Series::new("HH encoder", of(&|epoch| epoch.config.hh_buckets.into())))
        .with(Series::new("HL encoder", of(&|epoch| epoch.config.hl_buckets.into())))
        .with(Series::new("LL encoder", of(&|epoch| epoch.config.ll_buckets.into()))),
        Chart::new("(b) flows in each encoder", Axis::linear(x), Axis::linear("flows"))
            .with(Series::new("HH encoder", of(&|epoch| recorded_flows(epoch)[0])))
            .with(Series::new("HL encoder", of(&|epoch| recorded_flows(epoch)[1])))
            .with(Series::new("LL encoder", of(&|epoch| recorded_flows(epoch)[2]))),
        Chart::new("(c) thresholds", Axis::linear(x), packets)
            .with(Series::new("T_h", of(&|epoch| epoch.config.t_h.into())))
            .with(Series::new("T_l", of(&|epoch| epoch.config.t_l.into()))),
        Chart::new(
            "(d) sampling, and packets whose loss is named",
            Axis::linear(x),
            Axis::linear("share"),
        )
        .with(Series::new("sample rate", of(&|epoch| epoch.config.sample_rate)))
        .with(Series::new(
            "lost packets named",
            of(&|epoch| epoch.reported_lost as f64 / epoch.lost.max(1) as f64),
        )),
    ]
}

/// What the paper says of a sweep: the last point at which its network is healthy, and the load
/// factor in percent that it stays above.
type Papers = (f64, Option<f64>);

fn over_flows(context: &Context, name: &str, papers: Papers) -> Result<Drawn> {
    sweep(context, name, ("thousand flows", 10.0), papers)
}

fn over_victims(context: &Context, name: &str, papers: Papers) -> Result<Drawn> {
    sweep(context, name, ("percent victims", 2.5), papers)
}

/// A figure whose points are the last epochs of the phases of a scenario, `step` apart.
fn sweep(
    context: &Context,
    name: &str,
    (x, step): (&str, f64),
    (papers_healthy, papers_load): Papers,
) -> Result<Drawn> {
    let played = context.played(name)?;
    let (scenario, played) = &*played;
    let points = points_of(scenario, played, step);
    let ill = first_ill(&points);
    let recorded = points.iter().take_while(|(_, epoch)| epoch.config.t_h == 1).last();
    let loads: Vec<(f64, f64)> = points
        .iter()
        .filter(|(_, epoch)| epoch.config.t_h > 1)
        .map(|(at, epoch)| (*at, recorded_flows(epoch).iter().sum::<f64>() / UPSTREAM * 100.0))
        .collect();
    let decoded = points.iter().filter(|(_, epoch)| epoch.decoded).count();
    let state = |ill: Option<f64>| match ill {
        Some(at) => format!("ill from {at} {x} on"),
        None => "healthy throughout".to_owned(),
    };
    let other = other_reading(scenario)?;
    let other_ill = first_ill(&points_of(scenario, &other, step));
    let mut drawn = Drawn::new(charts(&points, x)).measured(format!(
        "With victim flows that lose a packet in every epoch at least, {}; read the other way, that they lose \
         at their rates alone, so that one of few packets often loses none, {}.",
        state(ill),
        state(other_ill)
    ));
    if let Some((at, _)) = recorded {
        drawn = drawn.measured(format!("T_h = 1, all flows recorded, up to {at} {x}."));
    }
    let lowest = loads.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let highest = loads.iter().map(|(_, load)| *load).fold(0.0, f64::max);
    if let Some((at, lowest)) = lowest {
        drawn = drawn.measured(format!(
            "Where not all are, the flows decoded are {lowest:.0} (at {at} {x}) to {highest:.0} % of the \
             upstream encoder's buckets.",
        ));
    }
    drawn = drawn.measured(format!(
        "{decoded} of {} points decode completely; {} of {} epochs' reports say what is not so.",
        points.len(),
        played.contradictions().count(),
        played.epochs.len()
    ));
    let last_healthy = ill.map_or(f64::INFINITY, |at| at - step);
    if last_healthy != papers_healthy
        && let Some((at, epoch)) =
            points.iter().find(|(at, _)| *at >= papers_healthy.min(last_healthy))
    {
        drawn = drawn.because(format!(
            "The paper's network is healthy up to {papers_healthy} {x}, ours is {}. The paper aims at a load of \
             70 %, 6,451 victim flows in the HL encoder's {} buckets; here a network is healthy as long as \
             these decode but for 4 times in 1,000, up to 7,359. And the paper does not say how a victim flow of \
             three packets loses 1 to 20 % of them; here each loses one at least. At {at} {x}, {} flows lose a \
             packet.",
            state(ill),
            (3072.0 * ARRAYS) as u32,
            epoch.victims,
        ));
    }
    if let (Some(papers), Some((at, lowest))) = (papers_load, lowest)
        && lowest.round() < papers
    {
        drawn = drawn.because(format!(
            "The load is {:.0} points below the paper's {papers} % at {at} {x}: thresholds are whole numbers, \
             and one less would overfill an encoder; the sizes of the paper's flows are only drawn.",
            papers - lowest
        ));
    }
    Ok(drawn)
}

/// The last epoch of each phase of a played scenario, `step` apart.
fn points_of<'a>(
    scenario: &Scenario,
    played: &'a Played,
    step: f64,
) -> Vec<(f64, &'a EpochSummary)> {
    let numbered = phases(scenario, played).into_iter().enumerate();
    numbered.filter_map(|(at, phase)| Some(((at + 1) as f64 * step, *phase.last()?))).collect()
}

/// The first point at which the network is ill.
fn first_ill(points: &[(f64, &EpochSummary)]) -> Option<f64> {
    points.iter().find(|(_, epoch)| epoch.state == NetworkState::Ill).map(|(at, _)| *at)
}

/// The scenario with victim flows that lose packets at their rates alone.
fn other_reading(scenario: &Scenario) -> Result<Played> {
    let mut scenario = scenario.clone();
    for kind in scenario.traffic.values_mut() {
        kind.insert("at_least_one".to_owned(), false.into());
    }
    play(&scenario, |_, _| Ok(()))
}

fn over_epochs(context: &Context) -> Result<Drawn> {
    let played = context.played("figure-09-epochs-dctcp")?;
    let (scenario, played) = &*played;
    let points: Vec<(f64, &EpochSummary)> =
        played.epochs.iter().map(|epoch| (epoch.epoch as f64, epoch)).collect();
    let of = |value: fn(&EpochSummary) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|(x, epoch)| (*x, value(epoch))).collect()
    };
    let network =
        Chart::new("(0) the network", Axis::linear("epoch"), Axis::linear("thousand flows"))
            .with(Series::new("flows", of(|epoch| epoch.flows as f64 / 1e3)))
            .with(Series::new("victim flows", of(|epoch| epoch.victims as f64 / 1e3)));
    let mut all = vec![network];
    all.extend(charts(&points, "epoch"));

    let shifts: Vec<u64> = phases(scenario, played)
        .iter()
        .skip(1)
        .map(|phase| {
            // Epochs up to the last that did not decode.
            let failed = phase.iter().rposition(|epoch| !epoch.decoded);
            failed.map_or(0, |last| last as u64 + 1)
        })
        .collect();
    let numbered = |shifts: &[u64]| {
        shifts.iter().enumerate().map(|(at, epochs)| (at as f64, *epochs as f64)).collect()
    };
    let changes = scenario.change.iter().map(|change| change.at.to_string()).collect();
    all.push(
        Chart::bars(
            "(e) epochs until all decodes, by the epoch of the change",
            changes,
            Axis::linear("epochs"),
        )
        .with(Series::ours("here", numbered(&shifts)))
        .with(Series::new("the paper", numbered(&PAPERS_SHIFTS))),
    );
    let list = shifts.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let most = shifts.iter().max().copied().unwrap_or(0);
    Ok(Drawn::new(all)
        .measured(format!(
            "Epochs after each change until all decodes again: {list}; at most {most}. {} epochs' reports say \
             what is not so.",
            played.contradictions().count()
        ))
        .because(
            "The paper's eight settings are only drawn, so the numbers of flows and victims are ours, and so \
             are the epochs: ours are those whose sketches did not decode completely, the first after a \
             change among them. An epoch's last sketch is there 11 ms after its end, the answer takes 10 ms, \
             and switches hear of a change 21 ms before the epoch that it is for: with epochs of 50 ms that \
             is the next but one. Where the network gets better, what decoded before decodes at once.",
        ))
}
