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

mod carriers;
mod drawn;
mod lcore;
mod link;
mod ovs;
mod ratios;
mod sketching;
mod stacks;
mod stages;

pub use carriers::carriers;
pub use drawn::draw;
pub use lcore::{eal, forwarding};
pub use link::{Link, Measuring, SWITCH_CPU, Switch};
pub use ovs::Ovs;
pub use stacks::stacks;
pub use stages::stages;

use std::collections::BTreeMap;
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
    /// Hops of the INT stack that each packet comes with, on top of its length.
    pub hops: u8,
    /// Whether the highest rate without loss is searched for, too.
    pub search: bool,
}

/// The mix of the figures that the others are compared with.
const FLOWS: usize = 100_000;
const ZIPF: &str = "zipf:1.1";

impl Trial {
    fn new(switch: Switch, size: &'static str, flows: usize, popularity: &'static str) -> Self {
        let hops = if let Switch::Sketching(which) = switch { which.hops() } else { 0 };
        Self { switch, size, flows, popularity, hops, search: false }
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
        // What a switch with INT is given, its name says.
        if self.hops > 0 && !matches!(self.switch, Switch::Sketching(_)) {
            name += &format!(".h{}", self.hops);
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

impl Trial {
    /// Whether it is asked for by a text: that is in its name, or it is the name of a system that
    /// the trial is compared with.
    pub fn is_asked_for(&self, text: &str) -> bool {
        let is_peer = |switches: &[Switch]| {
            let plain = self.hops == 0 && self.size == "64" && self.is_usual();
            plain && switches.contains(&self.switch)
        };
        let (macswap, routed) = (Switch::Testpmd("macswap"), Switch::EdgeRouted);
        let is_beside = match text {
            "sketchint" => {
                let strips = matches!(self.switch, Switch::Unstripped(_)) || self.hops > 0;
                strips || is_peer(&[macswap, routed, Switch::EdgeOff, Switch::EDGE_ALL])
            }
            "cfs" => is_peer(&[macswap, routed, Switch::EdgeRoutedOff, Switch::EDGE_ALL]),
            _ => false,
        };
        is_beside || self.name().contains(text)
    }

    /// Whether it has the flows that most trials have.
    fn is_usual(&self) -> bool {
        self.flows == FLOWS && self.popularity == ZIPF
    }
}

/// All trials, or only those with packets of 64 bytes and the usual mix.
pub fn trials(quick: bool) -> Vec<Trial> {
    let sizes: &[&str] =
        if quick { &["64"] } else { &["64", "128", "256", "512", "1024", "1518", "imix"] };
    let mut trials = Vec::new();
    for &size in sizes {
        for switch in Switch::ALL {
            // What INT costs does not depend on the payload.
            let sketching = matches!(switch, Switch::Sketching(_) | Switch::Unstripped(_));
            if sketching && size != "64" {
                continue;
            }
            let exports = matches!(switch, Switch::Ovs(Ovs { export: Some(_), .. }));
            let between = matches!(switch, Switch::EdgeRoutedOff | Switch::CfsTransit);
            // An export, and a table, cost by the packet, whatever its length.
            if (exports || between) && !["64", "1518"].contains(&size) {
                continue;
            }
            let search = size == "64" && switch == Switch::EDGE_ALL;
            trials.push(Trial { search, ..Trial::new(switch, size, FLOWS, ZIPF) });
        }
    }
    let macswap = Trial::new(Switch::Testpmd("macswap"), "64", FLOWS, ZIPF);
    trials.push(Trial { hops: sketching::HOPS_TO_SINK, ..macswap });
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
    let mut edges: BTreeMap<String, Vec<BTreeMap<String, u64>>> = BTreeMap::new();
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
            if trial.search || matches!(trial.switch, Switch::Sketching(_)) {
                edges.entry(trial.name()).or_default().push(carried.totals);
            }
            if trial.search {
                searched[at].push(carry(true)?.mpps);
            }
        }
    }
    let compared = ratios::of(trials, &readings);
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
    for (name, runs) in &edges {
        figures.extend(link::of_the_edge(name, runs));
    }
    figures.extend(compared);
    Ok(figures)
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
}
