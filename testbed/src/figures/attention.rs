//! Figures 7-9 and 14-19: where attention goes as the network changes.

use anyhow::Result;
use calumma_controller::report::NetworkState;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};

use super::Context;
use crate::scenario::{EpochSummary, Played, Scenario, play};

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
            measure: |context| over_flows(context, "figure-07-flows-dctcp", 70.0),
        },
        Figure {
            name: "chamelemon-08-victims-dctcp",
            title: "ChameleMon, figure 8: attention and ratio of victim flows (DCTCP)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on; T_h stays as it is \
                    in the ill state. The flows decoded always exceed a load of 65 %.",
            measure: |context| over_victims(context, "figure-08-victims-dctcp", 12.5),
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
            measure: |context| over_flows(context, "figure-14-flows-cache", 70.0),
        },
        Figure {
            name: "chamelemon-15-victims-cache",
            title: "ChameleMon, figure 15: attention and ratio of victim flows (CACHE)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on with T_h = T_l = 2.",
            measure: |context| over_victims(context, "figure-15-victims-cache", 12.5),
        },
        Figure {
            name: "chamelemon-16-flows-vl2",
            title: "ChameleMon, figure 16: attention and number of flows (VL2)",
            claim: "Healthy up to 60,000 flows and ill after that; T_h = T_l = 1 up to 20,000; the \
                    load factor stays above 51 %.",
            measure: |context| over_flows(context, "figure-16-flows-vl2", 60.0),
        },
        Figure {
            name: "chamelemon-17-victims-vl2",
            title: "ChameleMon, figure 17: attention and ratio of victim flows (VL2)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on.",
            measure: |context| over_victims(context, "figure-17-victims-vl2", 12.5),
        },
        Figure {
            name: "chamelemon-18-flows-hadoop",
            title: "ChameleMon, figure 18: attention and number of flows (HADOOP)",
            claim: "Healthy up to 60,000 flows and ill after that; T_h = T_l = 1 up to 20,000.",
            measure: |context| over_flows(context, "figure-18-flows-hadoop", 60.0),
        },
        Figure {
            name: "chamelemon-19-victims-hadoop",
            title: "ChameleMon, figure 19: attention and ratio of victim flows (HADOOP)",
            claim: "50,000 flows: healthy up to 12.5 % victims, ill from 15 % on; the load factor \
                    stays above 48 %.",
            measure: |context| over_victims(context, "figure-19-victims-hadoop", 12.5),
        },
    ]
}

/// Plays the scenario called `name`.
pub(super) fn played(context: &Context, name: &str) -> Result<(Scenario, Played)> {
    let scenario = Scenario::load(&context.scenarios.join(name).with_extension("toml"))?;
    let played = play(&scenario, |_, _| Ok(()))?;
    Ok((scenario, played))
}

/// The last epoch of every phase of a scenario.
pub(super) fn phases<'a>(scenario: &Scenario, played: &'a Played) -> Vec<&'a EpochSummary> {
    let changes = scenario.change.iter().map(|change| change.at);
    let lasts = changes.chain([scenario.epochs]).map(|end| end - 1);
    lasts.filter_map(|last| played.epochs.iter().find(|epoch| epoch.epoch == last)).collect()
}

/// Flows decoded from the fullest HH encoder, from the delta HL and from the delta LL encoder.
fn decoded_flows(epoch: &EpochSummary) -> [f64; 3] {
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
    vec![
        Chart::new(
            "(a) memory of the upstream encoder",
            Axis::linear(x),
            Axis::linear("buckets an array"),
        )
        .with(Series::ours("HH encoder", of(&|epoch| epoch.config.hh_buckets.into())))
        .with(Series::ours("HL encoder", of(&|epoch| epoch.config.hl_buckets.into())))
        .with(Series::ours("LL encoder", of(&|epoch| epoch.config.ll_buckets.into()))),
        Chart::new("(b) flows decoded", Axis::linear(x), Axis::linear("flows"))
            .with(Series::ours("HH encoder", of(&|epoch| decoded_flows(epoch)[0])))
            .with(Series::ours("HL encoder", of(&|epoch| decoded_flows(epoch)[1])))
            .with(Series::ours("LL encoder", of(&|epoch| decoded_flows(epoch)[2]))),
        Chart::new("(c) thresholds", Axis::linear(x), Axis::log("packets"))
            .with(Series::ours("T_h", of(&|epoch| epoch.config.t_h.into())))
            .with(Series::ours("T_l", of(&|epoch| epoch.config.t_l.into()))),
        Chart::new(
            "(d) sampling, and packets whose loss is named",
            Axis::linear(x),
            Axis::linear("share"),
        )
        .with(Series::ours("sample rate", of(&|epoch| epoch.config.sample_rate)))
        .with(Series::ours(
            "lost packets named",
            of(&|epoch| epoch.reported_lost as f64 / epoch.lost.max(1) as f64),
        )),
    ]
}

fn over_flows(context: &Context, name: &str, papers_last: f64) -> Result<Drawn> {
    sweep(context, name, ("thousand flows", 10.0), papers_last)
}

fn over_victims(context: &Context, name: &str, papers_last: f64) -> Result<Drawn> {
    sweep(context, name, ("victims in percent", 2.5), papers_last)
}

/// A figure whose points are the phases of a scenario, `step` apart; the paper's network is healthy
/// up to `papers_last`.
fn sweep(context: &Context, name: &str, (x, step): (&str, f64), papers_last: f64) -> Result<Drawn> {
    let (scenario, played) = played(context, name)?;
    let points = points_of(&scenario, &played, step);
    let ill = first_ill(&points);
    let recorded = points.iter().take_while(|(_, epoch)| epoch.config.t_h == 1).last();
    let loads: Vec<f64> = points
        .iter()
        .filter(|(_, epoch)| epoch.config.t_h > 1)
        .map(|(_, epoch)| decoded_flows(epoch).iter().sum::<f64>() / UPSTREAM)
        .collect();
    let lowest = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = loads.iter().copied().fold(0.0, f64::max);
    let decoded = points.iter().filter(|(_, epoch)| epoch.decoded).count();
    let state = |ill: Option<f64>| match ill {
        Some(at) => format!("ill from {at} {x} on"),
        None => "healthy throughout".to_owned(),
    };
    let other = other_reading(&scenario)?;
    let other_ill = first_ill(&points_of(&scenario, &other, step));
    let mut drawn = Drawn::new(charts(&points, x)).measured(format!(
        "With victim flows that lose a packet in every epoch at least, {}; read the other way, that they lose \
         at their rates alone, so that one of few packets often loses none, {}.",
        state(ill),
        state(other_ill)
    ));
    if let Some((at, _)) = recorded {
        drawn = drawn.measured(format!("T_h = 1, all flows recorded, up to {at} {x}."));
    }
    if !loads.is_empty() {
        drawn = drawn.measured(format!(
            "Beyond that the flows decoded are {:.0} to {:.0} % of the upstream encoder's buckets.",
            lowest * 100.0,
            highest * 100.0
        ));
    }
    drawn = drawn.measured(format!(
        "{decoded} of {} points decode completely; no report of {} epochs says what is not so.",
        points.len(),
        played.epochs.len() - played.contradictions().count()
    ));
    let last_healthy = ill.map_or(f64::INFINITY, |at| at - step);
    if last_healthy != papers_last
        && let Some((at, epoch)) =
            points.iter().find(|(at, _)| *at >= papers_last.min(last_healthy))
    {
        drawn = drawn.because(format!(
            "The paper's network is healthy up to {papers_last} {x}; ours is {}. The paper does not say how a \
             victim flow of three packets loses 1 to 20 % of them; here each loses one at least. At {at} {x}, {} \
             flows lose a packet, and the HL encoder's {} buckets hold 6,451 at the load of 70 % that is aimed \
             at.",
            state(ill),
            epoch.victims,
            (3072.0 * ARRAYS) as u32
        ));
    }
    Ok(drawn)
}

/// The phases of a played scenario, `step` apart.
fn points_of<'a>(
    scenario: &Scenario,
    played: &'a Played,
    step: f64,
) -> Vec<(f64, &'a EpochSummary)> {
    let numbered = phases(scenario, played).into_iter().enumerate();
    numbered.map(|(at, epoch)| ((at + 1) as f64 * step, epoch)).collect()
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
    let (scenario, played) = played(context, "figure-09-epochs-dctcp")?;
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

    let ends = scenario.change.iter().skip(1).map(|change| change.at).chain([scenario.epochs]);
    let shifts: Vec<u64> = scenario
        .change
        .iter()
        .zip(ends)
        .map(|(change, end)| {
            // Epochs up to the last that did not decode.
            let phase = played.epochs.iter().filter(|e| (change.at..end).contains(&e.epoch));
            let failed = phase.filter(|epoch| !epoch.decoded).map(|epoch| epoch.epoch + 1);
            failed.max().map_or(0, |after| after - change.at)
        })
        .collect();
    let list = shifts.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let most = shifts.iter().max().copied().unwrap_or(0);
    Ok(Drawn::new(all)
        .measured(format!("Epochs after each change until all decodes again: {list}; at most {most}."))
        .because(
            "The paper's eight settings are only drawn, so the numbers of flows and victims are ours. \
             A plan takes effect three epochs after the one it was made from: an epoch is taken 11 ms \
             after its end, the next but one is armed a lead of 21 ms ahead, and all switches must \
             have heard of it.",
        ))
}
