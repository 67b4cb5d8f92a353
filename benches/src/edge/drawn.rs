//! The figures of the switches as drawings: by the packets' length, and by the flows.

use std::path::Path;

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure as Drawing, Series, produce};

use super::{FLOWS, Switch, Trial, ZIPF, trials};
use crate::measure::Figure;

/// Writes NAME.svg and NAME.csv for each drawing into `out`.
///
/// # Errors
/// When nothing was measured that could be drawn, or a file can't be written.
pub fn draw(figures: &[Figure], out: &Path) -> Result<()> {
    let drawings = [
        Drawing {
            name: "edge-lengths",
            title: "What a switch carries on one core, by the packets' length",
            claim: "Goal: 14.88 Mpps of 64-byte packets, and 0.75 of testpmd's macswap.",
            measure: |figures: &&[Figure]| {
                Ok(chart(
                    figures,
                    &|trial| trial.flows == FLOWS && trial.popularity == ZIPF,
                    &|t| t.size.to_owned(),
                ))
            },
        },
        Drawing {
            name: "edge-flows",
            title: "What a switch carries on one core, by the flows (64 bytes)",
            claim: "The more flows, the less of the sketches stays in the CPU's caches.",
            measure: |figures: &&[Figure]| {
                Ok(chart(figures, &|trial| trial.size == "64", &|trial| {
                    let drawn = trial.popularity.split(':').next().unwrap_or_default();
                    format!("{} {drawn}", super::count(trial.flows))
                }))
            },
        },
    ];
    produce(&drawings, &figures, "", out)
}

/// Bars of the medians, with a line from the lowest reading to the highest, of those trials that
/// `which` names, grouped by what `group` says.
fn chart(
    figures: &[Figure],
    which: &dyn Fn(&Trial) -> bool,
    group: &dyn Fn(&Trial) -> String,
) -> Drawn {
    let measured: Vec<(Trial, &Figure)> = trials(false)
        .into_iter()
        .filter(|trial| trial.hops == 0 && which(trial))
        .filter_map(|trial| {
            let name = format!("{}.mpps", trial.name());
            let of_trial = |figure: &&Figure| figure.name == name && !figure.is_missing();
            let figure = figures.iter().find(of_trial)?;
            Some((trial, figure))
        })
        .collect();
    let mut groups: Vec<String> = Vec::new();
    for (trial, _) in &measured {
        let group = group(trial);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let mut chart = Chart::bars("", groups.clone(), Axis::linear("Mpps"));
    for switch in Switch::ALL {
        let (points, spread): (Vec<_>, Vec<_>) = measured
            .iter()
            .filter(|(trial, _)| trial.switch == switch)
            .filter_map(|(trial, mpps)| {
                let at = groups.iter().position(|other| *other == group(trial))?;
                Some(((at as f64, mpps.median), (mpps.min, mpps.max)))
            })
            .unzip();
        if !points.is_empty() {
            let ours = switch == Switch::EDGE_ALL;
            let series = if ours { Series::ours } else { Series::new };
            chart = chart.with(series(switch.name(), points).with_spread(spread));
        }
    }
    Drawn::new(vec![chart]).measured(format!("{} of the switches' trials", measured.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_drawn_under_the_switches_names() {
        let figure = |name: &str, mpps| Figure::of(name.to_owned(), "Mpps", vec![mpps]);
        let figures = [
            figure("edge.all.64B.mpps", 16.0),
            figure("testpmd.macswap.64B.mpps", 19.0),
            figure("edge.all.imix.mpps", 6.0),
            figure("edge.all.64B.1Mflows.uniform.mpps", 9.0),
            Figure::missing("ovs.port.64B.mpps".to_owned(), "Mpps"),
        ];
        let out = std::env::temp_dir().join(format!("calumma-drawn-{}", std::process::id()));
        draw(&figures, &out).unwrap();
        let lengths = std::fs::read_to_string(out.join("edge-lengths.svg")).unwrap();
        assert!(lengths.contains("edge.all") && lengths.contains("testpmd.macswap"));
        assert!(!lengths.contains("ovs.port"));
        let flows = std::fs::read_to_string(out.join("edge-flows.csv")).unwrap();
        assert!(flows.contains("16") && flows.contains('9') && !flows.contains(",6"), "{flows}");
        std::fs::remove_dir_all(out).unwrap();
    }
}
