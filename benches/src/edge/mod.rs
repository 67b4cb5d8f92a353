//! What a switch carries on one core: `calumma-edge` beside DPDK's own forwarder, on the same link, fed by the same
//! generator.
//!
//! ```text
//!  calumma-testbed generate ---- memif ---- [switch] ---- net_null
//! ```
//!
//! The generator has one CPU and the switch the other. net_null takes packets at the cost of freeing them, so that no third
//! program needs a CPU; receiving over memif, which copies, is most of what plain forwarding costs. The generator floods the
//! link, and what the link takes is what the switch carries: a full ring is tried again and nothing is dropped on the way.

mod drawn;
mod link;
mod stages;

pub use drawn::draw;
pub use link::{Link, Switch};
pub use stages::stages;

use std::time::Duration;

use anyhow::Result;

use crate::measure::Figure;

/// A switch, and the packets it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The switch.
    pub switch: Switch,
    /// Length of packets as the generator takes it: a number of bytes, or imix.
    pub size: &'static str,
    /// Number of flows.
    pub flows: usize,
    /// How flows are drawn as the generator takes it.
    pub popularity: &'static str,
    /// Whether the highest rate without loss is searched for, too.
    pub search: bool,
}

/// The mix of the figures that the others are compared with.
const FLOWS: usize = 100_000;
const ZIPF: &str = "zipf:1.1";

impl Trial {
    fn new(switch: Switch, size: &'static str, flows: usize, popularity: &'static str) -> Self {
        Self { switch, size, flows, popularity, search: false }
    }

    /// Its name: the switch, the length of packets and, where it is another than that of the table of lengths, the mix.
    pub fn name(&self) -> String {
        let size = if self.size == "imix" { "imix".to_owned() } else { format!("{}B", self.size) };
        let mut name = format!("{}.{size}", self.switch.name());
        if self.flows != FLOWS || self.popularity != ZIPF {
            let drawn = self.popularity.split(':').next().unwrap_or_default();
            name += &format!(".{}.{drawn}", count(self.flows));
        }
        name
    }
}

fn count(flows: usize) -> String {
    match flows {
        1 => "1flow".to_owned(),
        1_000_000.. => format!("{}Mflows", flows / 1_000_000),
        1_000.. => format!("{}kflows", flows / 1_000),
        _ => format!("{flows}flows"),
    }
}

/// All trials, or only those with packets of 64 bytes and the usual mix.
pub fn trials(quick: bool) -> Vec<Trial> {
    let sizes: &[&str] =
        if quick { &["64"] } else { &["64", "128", "256", "512", "1024", "1518", "imix"] };
    let mut trials = Vec::new();
    for &size in sizes {
        for switch in Switch::ALL {
            let search = size == "64" && switch == Switch::EDGE_ALL;
            trials.push(Trial { search, ..Trial::new(switch, size, FLOWS, ZIPF) });
        }
    }
    if !quick {
        for flows in [1, 1_000, FLOWS, 1_000_000] {
            for popularity in ["uniform", ZIPF] {
                // One flow is drawn one way only, and the usual mix has been there.
                if popularity == ZIPF && [1, FLOWS].contains(&flows) {
                    continue;
                }
                for switch in [Switch::EdgeOff, Switch::EDGE_ALL, Switch::Testpmd("macswap")] {
                    trials.push(Trial::new(switch, "64", flows, popularity));
                }
            }
        }
    }
    trials
}

/// Runs all trials in turn, `rounds` times, each for `seconds`; `progress` is told which is on.
///
/// # Errors
/// When a program can't be started or ends early.
pub fn run(
    link: &Link,
    trials: &[Trial],
    rounds: usize,
    duration: Duration,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Figure>> {
    let mut readings = vec![Vec::new(); trials.len()];
    let mut searched = vec![Vec::new(); trials.len()];
    let mut edge = Vec::new();
    for _ in 0..rounds {
        for (at, trial) in trials.iter().enumerate() {
            progress(&trial.name());
            let carried = link.carry(trial, duration, false)?;
            readings[at].push(carried.mpps);
            if trial.search {
                edge.push(carried.totals);
                searched[at].push(link.carry(trial, duration, true)?.mpps);
            }
        }
    }
    let mut figures = Vec::new();
    for ((trial, readings), searched) in trials.iter().zip(readings).zip(searched) {
        figures.push(Figure::of(format!("{}.mpps", trial.name()), "Mpps", readings));
        if !searched.is_empty() {
            let name = format!("{}.without_loss.mpps", trial.name());
            figures.push(Figure::of(name, "Mpps", searched));
        }
    }
    figures.extend(link::of_the_edge(&edge));
    figures.extend(ratios(&figures));
    Ok(figures)
}

/// What the figures say of one another.
fn ratios(figures: &[Figure]) -> Vec<Figure> {
    let median =
        |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.median);
    let of_64 = |switch: Switch| median(&format!("{}.64B.mpps", switch.name()));
    let all = of_64(Switch::EDGE_ALL);
    let mut ratios = Vec::new();
    for (name, peer) in [("macswap", "macswap"), ("io", "io"), ("rxonly", "rxonly")] {
        if let (Some(all), Some(peer)) = (all, of_64(Switch::Testpmd(peer))) {
            let name = format!("edge.all.64B.over_testpmd_{name}");
            ratios.push(Figure::of(name, "ratio", vec![all / peer]));
        }
    }
    if let (Some(all), Some(off)) = (all, of_64(Switch::EdgeOff)) {
        let ns = 1e3 / all - 1e3 / off;
        ratios.push(Figure::of("edge.measurement.64B.ns".to_owned(), "ns/packet", vec![ns]));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_name_of_its_own_and_those_others_compare_have_theirs() {
        let names: Vec<_> = trials(false).iter().map(Trial::name).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for name in ["edge.all.64B", "edge.off.64B", "testpmd.macswap.64B", "testpmd.rxonly.64B"] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
        assert!(distinct.contains(&"edge.all.64B.1Mflows.uniform".to_owned()));
    }

    #[test]
    fn measurement_costs_what_all_takes_longer_than_nothing() {
        let figure = |name: &str, mpps| Figure::of(name.to_owned(), "Mpps", vec![mpps]);
        let ratios = ratios(&[
            figure("edge.all.64B.mpps", 20.0),
            figure("edge.off.64B.mpps", 40.0),
            figure("testpmd.macswap.64B.mpps", 25.0),
        ]);
        let of = |name: &str| ratios.iter().find(|figure| figure.name == name).unwrap().median;
        assert!((of("edge.measurement.64B.ns") - 25.0).abs() < 1e-9);
        assert!((of("edge.all.64B.over_testpmd_macswap") - 0.8).abs() < 1e-9);
    }
}
