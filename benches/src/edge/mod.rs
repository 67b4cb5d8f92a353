//! What a switch carries on one core: `calumma-edge` beside DPDK's own forwarder, on the same link,
//! fed by the same generator.
//!
//! ```text
//!  calumma-testbed generate ---- memif ---- [switch] ---- net_null
//! ```
//!
//! The generator has one CPU and the switch the other. net_null takes packets at the cost of
//! freeing them, so that no third program needs a CPU; receiving over memif, which copies, is most
//! of what plain forwarding costs. The generator floods the link, and what the link takes is what
//! the switch carries: a full ring is tried again and nothing is dropped on the way.

mod drawn;
mod lcore;
mod link;
mod ovs;
mod stages;

pub use drawn::draw;
pub use lcore::{eal, forwarding};
pub use link::{Link, Measuring, SWITCH_CPU, Switch};
pub use ovs::Ovs;
pub use stages::stages;

use std::time::Duration;

use anyhow::{Context, Result};

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

    /// Its name: the switch, the length of packets and, where it is another than that of the table
    /// of lengths, the mix.
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
            let exports = matches!(switch, Switch::Ovs(Ovs { export: Some(_), .. }));
            // An export costs by the packet, whatever its length.
            if exports && !["64", "1518"].contains(&size) {
                continue;
            }
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
                for switch in [
                    Switch::EdgeOff,
                    Switch::EDGE_ALL,
                    Switch::Testpmd("macswap"),
                    Switch::Ovs(Ovs::PREFIX),
                ] {
                    trials.push(Trial::new(switch, "64", flows, popularity));
                }
            }
        }
    }
    trials
}

/// Runs all trials in turn, `rounds` times, each for `duration`; `progress` is called with the
/// name of each.
/// The figures of switches that this machine lacks have no value.
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
            if trial.switch.missing().is_some() {
                continue;
            }
            progress(&trial.name());
            let carry = |search| {
                link.carry(trial, duration, search)
                    .with_context(|| format!("trial {}", trial.name()))
            };
            let carried = carry(false)?;
            readings[at].push(carried.mpps);
            if trial.search {
                edge.push(carried.totals);
                searched[at].push(carry(true)?.mpps);
            }
        }
    }
    let compared = ratios(trials, &readings);
    let mut figures = Vec::new();
    for ((trial, readings), searched) in trials.iter().zip(readings).zip(searched) {
        let name = format!("{}.mpps", trial.name());
        figures.push(match readings.is_empty() {
            true => Figure::missing(name, "Mpps"),
            false => Figure::of(name, "Mpps", readings),
        });
        if !searched.is_empty() {
            let name = format!("{}.without_loss.mpps", trial.name());
            figures.push(Figure::of(name, "Mpps", searched));
        }
    }
    figures.extend(link::of_the_edge(&edge));
    figures.extend(compared);
    Ok(figures)
}

/// What the readings say of one another, for each length of packets: by rounds, since a guest that
/// is slowed for a while slows a round's switches alike.
fn ratios(trials: &[Trial], readings: &[Vec<f64>]) -> Vec<Figure> {
    let mut ratios = Vec::new();
    for (ours, all) in trials.iter().zip(readings) {
        if ours.switch != Switch::EDGE_ALL {
            continue;
        }
        let readings_of = |switch: Switch| {
            let peer = Trial { switch, search: false, ..ours.clone() };
            let at = trials.iter().position(|trial| *trial == peer)?;
            Some(&readings[at]).filter(|readings| !readings.is_empty())
        };
        let beside = |switch: Switch, of: &dyn Fn(f64, f64) -> f64| {
            let peer = readings_of(switch)?;
            Some(all.iter().zip(peer).map(|(&all, &peer)| of(all, peer)).collect())
        };
        for peer in ["macswap", "io", "rxonly"] {
            if let Some(rounds) = beside(Switch::Testpmd(peer), &|all, peer| all / peer) {
                let name = format!("{}.over_testpmd_{peer}", ours.name());
                ratios.push(Figure::of(name, "ratio", rounds));
            }
        }
        let over = |ours: Switch, peer: Switch| -> Option<Vec<f64>> {
            let (ours, peer) = (readings_of(ours)?, readings_of(peer)?);
            Some(ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect())
        };
        for (measuring, peer) in [(Switch::EDGE_ALL, Ovs::PORT), (Switch::EdgeRouted, Ovs::PREFIX)]
        {
            if let Some(rounds) = over(measuring, Switch::Ovs(peer)) {
                let name = ours.name().replacen(&Switch::EDGE_ALL.name(), &measuring.name(), 1);
                let peer = peer.name().replace('.', "_");
                ratios.push(Figure::of(format!("{name}.over_{peer}"), "ratio", rounds));
            }
        }
        for measuring in [Measuring::Cfs, Measuring::AllAndCfs].map(Switch::Edge) {
            if let Some(rounds) = over(measuring, Switch::Testpmd("macswap")) {
                let name = ours.name().replacen(&Switch::EDGE_ALL.name(), &measuring.name(), 1);
                ratios.push(Figure::of(format!("{name}.over_testpmd_macswap"), "ratio", rounds));
            }
        }
        // A round's two switches may differ by how the link fared, which is slow from its start to
        // its end or not.
        if let Some(macswap) = readings_of(Switch::Testpmd("macswap")) {
            let highest = |readings: &[f64]| readings.iter().copied().fold(0.0, f64::max);
            let name = format!("{}.highest_over_testpmd_macswap", ours.name());
            let ratio = highest(all) / highest(macswap);
            ratios.push(Figure::of(name, "ratio", vec![ratio]));
        }
        if let Some(rounds) = beside(Switch::EdgeOff, &|all, off| 1e3 / all - 1e3 / off) {
            let name = ours.name().replacen(&Switch::EDGE_ALL.name(), "edge.measurement", 1);
            ratios.push(Figure::of(format!("{name}.ns"), "ns/packet", rounds));
        }
        if let Some(rounds) = beside(Switch::EdgeRouted, &|all, routed| 1e3 / routed - 1e3 / all) {
            let name = ours.name().replacen(&Switch::EDGE_ALL.name(), "edge.forwarding", 1);
            ratios.push(Figure::of(format!("{name}.ns"), "ns/packet", rounds));
        }
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
    fn switches_are_compared_with_what_they_did_in_the_same_round() {
        let of = |switch| Trial::new(switch, "128", FLOWS, ZIPF);
        let trials = [
            of(Switch::EDGE_ALL),
            of(Switch::EdgeOff),
            of(Switch::Testpmd("macswap")),
            of(Switch::EdgeRouted),
            of(Switch::Ovs(Ovs::PREFIX)),
            of(Switch::Ovs(Ovs::PORT)),
        ];
        // The machine is half as fast in the second round, and the third is slow for one switch
        // only.
        let readings = [
            vec![20.0, 10.0, 20.0],
            vec![40.0, 20.0, 40.0],
            vec![25.0, 12.5, 10.0],
            vec![10.0, 5.0, 6.25],
            vec![5.0, 2.5, 2.5],
            Vec::new(),
        ];
        let ratios = ratios(&trials, &readings);
        let of = |name: &str| ratios.iter().find(|figure| figure.name == name).unwrap();
        let ratio = of("edge.all.128B.over_testpmd_macswap");
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.8, 0.8, 2.0));
        let highest = of("edge.all.128B.highest_over_testpmd_macswap");
        assert!((highest.median - 20.0 / 25.0).abs() < 1e-9, "{highest:?}");
        let added = of("edge.measurement.128B.ns");
        assert!((added.median - 25.0).abs() < 1e-9 && (added.max - 50.0).abs() < 1e-9);
        let added = of("edge.forwarding.128B.ns");
        assert!((added.median - 100.0).abs() < 1e-9 && (added.min - 50.0).abs() < 1e-9);
        let routed = of("edge.routed.128B.over_ovs_prefix");
        assert_eq!((routed.min, routed.max), (2.0, 2.5));
        // One was not measured, one could not be.
        let absent = |name: &str| ratios.iter().all(|figure| !figure.name.contains(name));
        assert!(absent("rxonly") && absent("ovs_port"));
    }
}
