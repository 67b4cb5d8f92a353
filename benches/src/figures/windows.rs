//! What cooperating switches count where hop numbers are off, flows go on from window to window,
//! or grades stay the same.

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_testbed::coverage::{Algorithm, Entries, Network, Trial};

use super::Setup;
use super::coverage::{FAT_TREE, GEANT, Place, named, play_flows, wrong};

/// Figures that the CFS paper lacks.
pub(super) const FIGURES: [Figure<Setup>; 3] = [
    Figure {
        name: "cfs-hops",
        title: "Hop numbers: right, off by up to three, and none",
        claim: "Beyond the paper, whose hosts all send with the same time to live or have it rewritten where \
                they enter. The goal of this project: with claims and 1.25 entries a flow, without any \
                hop number, still 0.995 of the flows in the fat-tree and 0.979 in GEANT.",
        measure: |setup| by_hops(setup),
    },
    Figure {
        name: "cfs-reseed",
        title: "Flows that go on, counted in one window or another",
        claim: "The CFS paper's hash never changes, so a flow that no switch keeps in one window is kept \
                in none. Graded anew in each window, all flows that go on are to be counted sooner or \
                later.",
        measure: |setup| by_windows(setup),
    },
    Figure {
        name: "cfs-churn",
        title: "Flows that come and go, beside ranges made from the window before",
        claim: "The CFS paper: its switches need to know neither flows nor ways, where cSamp needs a \
                traffic matrix. The goal of this project: coverage that no churn takes from, where cSamp's \
                ranges are made from the flows of the window before.",
        measure: |setup| by_churn(setup),
    },
];

const SHARE: &str = "share of the flows counted";

/// Flows of a window where each has so much room.
fn flows(network: &Network, entries: u32, room: f64) -> u32 {
    (network.switches() as f64 * f64::from(entries) / room) as u32
}

/// Plays the trial of each point of a line. Gives the line, which has a name and may be the
/// project's, and the same in words.
fn line(
    network: &Network,
    place: &Place,
    named: (String, bool),
    points: &[(f64, Trial)],
) -> (Series, String) {
    let trials: Vec<Trial> = points.iter().map(|(_, trial)| trial.clone()).collect();
    let outcomes: Vec<_> = play_flows(network, &trials).into_iter().map(|(it, _)| it).collect();
    let drawn = points.iter().zip(&outcomes).map(|((x, _), it)| (*x, it.coverage));
    let drawn: Vec<(f64, f64)> = drawn.collect();
    let each = drawn.iter().map(|(x, share)| format!("{share:.4} at {x}"));
    let each: Vec<String> = each.collect();
    let (name, is_ours) = named;
    let wrong = wrong(&outcomes);
    let sentence = format!("{}, {name}: {}, {wrong} counts wrong", place.name, each.join(", "));
    let series = if is_ours { Series::ours } else { Series::new };
    (series(name, drawn), sentence)
}

/// With right hop numbers, with such as come of routers before the first switch, and without any.
fn by_hops(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(1_000, 256);
    let room: &[f64] = setup.choose(&[0.5, 0.75, 1.0, 1.1, 1.25, 1.5, 2.0], &[1.25]);
    let (mut charts, mut sentences) = (Vec::new(), Vec::new());
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let x = Axis::linear("entries of all switches a flow");
        let mut chart = Chart::new(place.name, x, Axis::linear(SHARE));
        for (algorithm, routers_before, hops) in [
            (Algorithm::Claim, 0, "right"),
            (Algorithm::Claim, 3, "off by up to three"),
            (Algorithm::ClaimRandom, 0, "none"),
            (Algorithm::Fold, 0, "right"),
            (Algorithm::Fold, 3, "off by up to three"),
            (Algorithm::Random, 0, "none"),
        ] {
            let trial = |&room: &f64| {
                let flows = flows(&network, entries, room);
                let trial = Trial::new(algorithm, flows, Entries::Even(entries), 1);
                (room, Trial { routers_before, ..trial })
            };
            let points: Vec<_> = room.iter().map(trial).collect();
            let (name, is_ours) = named(algorithm);
            let named = (format!("{name}; hop numbers {hops}"), is_ours);
            let (series, sentence) = line(&network, &place, named, &points);
            chart = chart.with(series);
            sentences.push(sentence);
        }
        charts.push(chart);
    }
    let drawn = Drawn::new(charts).because(
        "A flow's hop numbers are off where routers that are no nodes take one off its time to live \
         before its first switch: from none to three, drawn for each flow. All flows are new in each \
         window; claims are those of the eighth.",
    );
    Ok(sentences.into_iter().fold(drawn, Drawn::measured))
}

/// Flows that are counted in at least one of the first windows.
fn by_windows(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(500, 256);
    let last: u32 = setup.choose(10, 3);
    let room: &[f64] = setup.choose(&[0.5, 1.0], &[0.5]);
    let (mut charts, mut sentences) = (Vec::new(), Vec::new());
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        for &room in room {
            let title = format!("{}, {room} entries a flow", place.name);
            let y = Axis::linear("share of the flows counted so far");
            let mut chart = Chart::new(title.clone(), Axis::linear("windows"), y);
            for (algorithm, reseed) in
                [(Algorithm::Claim, true), (Algorithm::Fold, true), (Algorithm::Fold, false)]
            {
                let flows = flows(&network, entries, room);
                let trial = Trial::new(algorithm, flows, Entries::Even(entries), 1);
                let trial = |windows| Trial { windows, churn: 0.0, reseed, ..trial.clone() };
                let trials: Vec<Trial> = (1..=last).map(trial).collect();
                let mut so_far = vec![false; flows as usize];
                let share = |(window, (_, counted)): (u32, &(_, Vec<bool>))| {
                    so_far.iter_mut().zip(counted).for_each(|(so_far, now)| *so_far |= *now);
                    let counted = so_far.iter().filter(|&&counted| counted).count();
                    (f64::from(window), counted as f64 / f64::from(flows))
                };
                let played = play_flows(&network, &trials);
                let points: Vec<(f64, f64)> = (1..).zip(&played).map(share).collect();
                let grades = if reseed { "anew in each window" } else { "alike in all" };
                let name = format!("{}, graded {grades}", named(algorithm).0);
                let each: Vec<String> = points.iter().map(|(_, y)| format!("{y:.4}")).collect();
                let wrong = wrong(played.iter().map(|(outcome, _)| outcome));
                let each = each.join(", ");
                sentences.push(format!("{title}, {name}: {each}, {wrong} counts wrong"));
                let series = if reseed { Series::ours } else { Series::new };
                chart = chart.with(series(name, points));
            }
            charts.push(chart);
        }
    }
    let drawn = Drawn::new(charts).because(
        "The same flows go on through all windows, one packet a flow and window. A flow counts from the \
         first window on in which any switch counts it exactly.",
    );
    Ok(sentences.into_iter().fold(drawn, Drawn::measured))
}

/// Some of the flows are new in each window.
fn by_churn(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(1_000, 256);
    let churn: &[f64] = setup.choose(&[0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5], &[0.0, 0.5]);
    let (mut charts, mut sentences) = (Vec::new(), Vec::new());
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let x = Axis::linear("share of the flows that are new in a window");
        let mut chart = Chart::new(place.name, x, Axis::linear(SHARE));
        for algorithm in [Algorithm::Claim, Algorithm::Fold, Algorithm::Csamp] {
            let flows = flows(&network, entries, 1.0);
            let trial = Trial::new(algorithm, flows, Entries::Even(entries), 1);
            let trial = |&churn: &f64| (churn, Trial { churn, ..trial.clone() });
            let points: Vec<_> = churn.iter().map(trial).collect();
            let (name, is_ours) = named(algorithm);
            let named = (name.to_owned(), is_ours);
            let (series, sentence) = line(&network, &place, named, &points);
            chart = chart.with(series);
            sentences.push(sentence);
        }
        charts.push(chart);
    }
    let drawn = Drawn::new(charts).because(
        "As many entries as flows. Flows that end are replaced by others between hosts drawn anew; the \
         others keep their ways. cSamp's ranges are made from the flows and ways of the whole window \
         before, which a controller would have to collect.",
    );
    Ok(sentences.into_iter().fold(drawn, Drawn::measured))
}
