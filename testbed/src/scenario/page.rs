//! A page with pictures of a scenario that was played: what was reported beside what happened.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Result;
use calumma_controller::report::NetworkState;
use calumma_figures::{Axis, Chart, Drawn, Section, Series, Words, add};
use calumma_sketch::WideKey;

use super::{EpochSummary, Held, Played, Scenario, Usage};
use crate::accuracy::Accuracy;
use crate::simulate::Outcome;

/// The mean accuracy of an epoch's edges, where the report is whole and all flows are known.
pub(super) fn accuracy(outcome: &Outcome, heavy: u64) -> Option<Accuracy> {
    let Outcome { report, truth, .. } = outcome;
    if !report.complete || truth.entered.is_some() {
        return None;
    }
    let mut flows: Vec<HashMap<WideKey, u64>> = vec![HashMap::new(); report.edges.len()];
    for flow in truth.flows.iter().filter(|flow| flow.packets > 0) {
        let of_edge = flows.get_mut(flow.edge as usize)?;
        *of_edge.entry(flow.key).or_default() += u64::from(flow.packets);
    }
    let edges = report.edges.iter().zip(&flows);
    let all: Vec<Accuracy> =
        edges.filter_map(|(edge, flows)| Accuracy::of(edge, flows, heavy)).collect();
    Accuracy::mean(&all)
}

/// Writes the page to `folder`. `accuracies` are the epochs' mean accuracies, where there are any.
pub(super) fn write(
    folder: &Path,
    scenario: &Scenario,
    played: &Played,
    accuracies: &[(u64, Accuracy)],
) -> Result<()> {
    let heading = scenario.title.clone();
    let lead = format!(
        "{} on {} epochs of {} ms, from seed {}. What was reported stands beside what happened.",
        scenario.topology, scenario.epochs, scenario.epoch.length_ms, played.seed
    );
    let words = Words { heading: &heading, lead: &lead, claims: "Expected" };
    let over = |value: &dyn Fn(&EpochSummary) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = played.epochs.iter();
        points.filter_map(|epoch| Some((epoch.epoch as f64, value(epoch)?))).collect()
    };
    let epoch = || Axis::linear("epoch");
    let changes: Vec<String> = scenario
        .change
        .iter()
        .map(|change| format!("From epoch {}: {}.", change.at, change.says))
        .collect();

    let network = Drawn::new(vec![
        Chart::new("(a) flows", epoch(), Axis::linear("flows"))
            .with(Series::new("entered", over(&|e| Some(e.flows as f64))))
            .with(Series::new("victims", over(&|e| Some(e.victims as f64)))),
        Chart::new("(b) packets", epoch(), Axis::linear("packets"))
            .with(Series::new("packets", over(&|e| Some(e.packets as f64)))),
    ]);
    let network = changes.iter().fold(network, Drawn::measured);

    let losses = Drawn::new(vec![
        Chart::new("(a) packets lost", epoch(), Axis::linear("packets"))
            .with(Series::new("in truth", over(&|e| Some(e.lost as f64))))
            .with(Series::ours("reported", over(&|e| Some(e.reported_lost as f64)))),
        Chart::new("(b) victim flows", epoch(), Axis::linear("flows"))
            .with(Series::new("in truth", over(&|e| Some(e.victims as f64))))
            .with(Series::ours("reported", over(&|e| Some(e.reported_victims as f64)))),
        Chart::new("(c) packets doubled, flows too large", epoch(), Axis::linear("number"))
            .with(Series::new("doubled", over(&|e| Some(e.doubled as f64))))
            .with(Series::ours("too large", over(&|e| Some(e.surpluses as f64)))),
        Chart::new("(d) what reports claim", epoch(), Axis::linear("1: they do"))
            .with(Series::ours("complete", over(&|e| Some(f64::from(u8::from(e.complete))))))
            .with(Series::ours("decoded", over(&|e| Some(f64::from(u8::from(e.decoded)))))),
    ]);
    let complete = played.epochs.iter().filter(|epoch| epoch.complete).count();
    let decoded = played.epochs.iter().filter(|epoch| epoch.decoded).count();
    let losses = losses.measured(format!(
        "{} epochs reported, {complete} complete, {decoded} of them decoded; {} say what is not so.",
        played.epochs.len(),
        played.contradictions().count()
    ));

    let ill = |e: &EpochSummary| Some(f64::from(u8::from(e.state == NetworkState::Ill)));
    let attention = Drawn::new(vec![
        Chart::new("(a) load of encoders", epoch(), Axis::linear("flows over buckets"))
            .with(Series::ours("HH encoder", over(&|e| e.hh_load)))
            .with(Series::ours("HL encoder", over(&|e| e.hl_load)))
            .with(Series::ours("LL encoder", over(&|e| e.ll_load))),
        Chart::new("(b) memory", epoch(), Axis::linear("buckets an array"))
            .with(Series::ours("HH encoder", over(&|e| Some(e.config.hh_buckets.into()))))
            .with(Series::ours("HL encoder", over(&|e| Some(e.config.hl_buckets.into()))))
            .with(Series::ours("LL encoder", over(&|e| Some(e.config.ll_buckets.into())))),
        Chart::new("(c) thresholds", epoch(), Axis::log("packets"))
            .with(Series::ours("T_h", over(&|e| Some(e.config.t_h.into()))))
            .with(Series::ours("T_l", over(&|e| Some(e.config.t_l.into())))),
        Chart::new("(d) state and sampling", epoch(), Axis::linear("share; 1: ill"))
            .with(Series::ours("ill", over(&ill)))
            .with(Series::ours("sample rate", over(&|e| Some(e.config.sample_rate)))),
    ]);
    let moved = played.epochs.iter().filter(|epoch| !epoch.reasons.is_empty()).count();
    let attention = attention.measured(format!("Attention was moved after {moved} epochs."));

    let cost = Drawn::new(vec![
        Chart::new("(a) from the last side to the plan", epoch(), Axis::linear("ms"))
            .with(Series::ours("response", over(&|e| Some(e.response_ms)))),
        Chart::new("(b) frames of all edges", epoch(), Axis::linear("kB"))
            .with(Series::ours("frames", over(&|e| Some(e.frame_bytes? as f64 / 1e3)))),
    ])
    .measured("Times are this machine's, and the one thing that differs from run to run.");

    for (name, title, claim, drawn) in [
        (
            "1-verdicts",
            "Verdicts",
            "Every expectation holds, and no report is wrong.",
            verdicts(played),
        ),
        ("2-network", "The network", "What the scenario says.", network),
        ("3-losses", "Losses", "All that is claimed to be certain is so.", losses),
        ("4-attention", "Attention", "It follows the network.", attention),
        ("5-accuracy", "Accuracy of the tasks", "Errors are small.", errors(accuracies)),
        ("6-cost", "Time and bandwidth", "A plan within 30 ms.", cost),
        (
            "7-programs",
            "Programs",
            "None holds more and more memory or descriptors.",
            programs(played),
        ),
        ("8-counters", "Counters", "Every packet is accounted for.", counters(played)),
    ] {
        add(&words, &Section { name, title, claim, drawn: &drawn }, folder)?;
    }
    Ok(())
}

fn verdicts(played: &Played) -> Drawn {
    let mut drawn = Drawn::default();
    for verdict in &played.verdicts {
        let holds = if verdict.holds { "Holds" } else { "FAILS" };
        let first = verdict
            .first_failure
            .map_or(String::new(), |(epoch, what)| format!("; first not in epoch {epoch}: {what}"));
        drawn = drawn.measured(format!(
            "{holds}: {}. In {} of {} epochs{first}.",
            verdict.says, verdict.epochs, verdict.of
        ));
    }
    for (epoch, wrong) in played.contradictions() {
        drawn = drawn.measured(format!("WRONG: the report on epoch {epoch}: {wrong}."));
    }
    drawn
}

/// What programs held, a line for each.
fn programs(played: &Played) -> Drawn {
    if played.usage.is_empty() {
        return Drawn::default().measured("None ran: the network was simulated.");
    }
    let mut by_name: BTreeMap<&str, Vec<&Usage>> = BTreeMap::new();
    played.usage.iter().for_each(|of| by_name.entry(&of.program).or_default().push(of));
    let chart = |title: &str, label: &str, value: fn(&Held) -> f64| {
        let chart = Chart::new(title, Axis::linear("minutes"), Axis::linear(label));
        by_name.iter().fold(chart, |chart, (name, processes)| {
            let held = processes.iter().flat_map(|of| &of.held);
            let points = held.map(|held| (held.seconds / 60.0, value(held))).collect();
            chart.with(Series::ours(*name, points))
        })
    };
    let charts = vec![
        chart("(a) memory", "MiB", |held| held.memory_kib as f64 / 1024.0),
        chart("(b) descriptors", "open", |held| held.descriptors as f64),
    ];
    let mut drawn = Drawn::new(charts);
    for (name, processes) in &by_name {
        let held = || processes.iter().flat_map(|of| &of.held);
        let memory = held().map(|held| held.memory_kib).max().unwrap_or_default();
        let descriptors = held().map(|held| held.descriptors).max().unwrap_or_default();
        let most = format!("{name}: at most {memory} KiB and {descriptors} descriptors");
        let longest = processes.iter().max_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        let judged = longest.and_then(|of| Some((of.seconds() / 60.0, of.quarters()?)));
        let judged = judged.map_or("none ran long enough to be judged".to_owned(), |judged| {
            let (minutes, [[memory, descriptors], [later_memory, later_descriptors]]) = judged;
            format!(
                "in {minutes:.0} minutes from {memory:.0} KiB and {descriptors:.0} in the second \
                 quarter to {later_memory:.0} KiB and {later_descriptors:.0} in the last"
            )
        });
        let of = processes.len();
        drawn = drawn.measured(format!("{most}, in {of} processes; {judged}."));
    }
    if let Some(troubles) = played.troubled() {
        drawn = drawn.measured(format!("Killed and stopped: {troubles}."));
    }
    played.growths().fold(drawn, |drawn, growth| drawn.measured(format!("GROWS: {growth}.")))
}

/// What was counted, and what of it is not accounted for.
fn counters(played: &Played) -> Drawn {
    let mut drawn = Drawn::default();
    if let Some(stacks) = &played.stacks {
        drawn = drawn.measured(format!("INT: {}.", stacks.in_words()));
    }
    if played.doubts.is_empty() {
        let all = "Hosts', routers' and switches' counters agree with the log of what was lost.";
        return drawn.measured(all);
    }
    let doubts = played.doubts.iter();
    doubts.fold(drawn, |drawn, doubt| drawn.measured(format!("Beside it: {doubt}.")))
}

fn errors(accuracies: &[(u64, Accuracy)]) -> Drawn {
    if accuracies.is_empty() {
        return Drawn::default().measured("Not known: the flows of a live fabric are its own.");
    }
    let over = |value: fn(&Accuracy) -> f64| -> Vec<(f64, f64)> {
        accuracies.iter().map(|(epoch, accuracy)| (*epoch as f64, value(accuracy))).collect()
    };
    let epoch = || Axis::linear("epoch");
    Drawn::new(vec![
        Chart::new("(a) F1 score", epoch(), Axis::linear("F1"))
            .with(Series::ours("heavy hitters", over(|one| one.hitters_f1))),
        Chart::new("(b) relative errors", epoch(), Axis::linear("error"))
            .with(Series::ours("distribution (WMRE)", over(|one| one.distribution_wmre)))
            .with(Series::ours("entropy (RE)", over(|one| one.entropy_re)))
            .with(Series::ours("cardinality (RE)", over(|one| one.cardinality_re))),
    ])
    .measured("Means over all edges, of epochs that are complete.")
}
