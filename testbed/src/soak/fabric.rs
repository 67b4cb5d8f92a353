//! A live fabric for many minutes: applications and made-up traffic over links that lose and double
//! packets, every report held against the kernel's log of them; where asked for, while its programs
//! are killed and stand still.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::scenario::Scenario;
use crate::scenario::command::{Order, play_all};
use crate::topology::{LinkQuality, Topology};
use crate::workload::Draw;

/// What is done; the words in capitals are put in. Every report that claims to be certain must be
/// so in any scenario; these expectations only see to it that most do.
const SCENARIO: &str = r#"
title = "A live fabric under way: links lose and double packets"
epochs = EPOCHS
topology = "TOPOLOGY"
detail = "packets"
spread = 0.8
links = { loss = 0.01, duplicate = 0.002 }
SECTIONS
[traffic.services]
flows = 120
sizes = "constant:5"
tcp = 0.5
churn = 0.05

[traffic.victims]
flows = 20
sizes = "constant:20"
victims = 0.5

[[expect]]
says = "reports claim to be whole, and name losses"
epochs = [0, EPOCHS]
share = SHARE
decoded = true
"#;

/// How fast a fabric is soaked.
struct Pace {
    /// Length of an epoch in milliseconds.
    epoch_ms: u64,
    /// Epochs from one trouble to the next.
    apart: u64,
    /// Within how many of them reports are to be whole again.
    again: u64,
    /// What else is in the scenario.
    sections: &'static str,
}

/// Of software switches. One that starts takes a second until it forwards.
const SOFTWARE: Pace = Pace {
    epoch_ms: 50,
    apart: 80,
    again: 60,
    sections: r#"
[[application]]
kind = "tcp"
from = "e1"
to = "e2"
mbit = 8

[[application]]
kind = "udp"
from = "e2"
to = "e1"
mbit = 4

[[application]]
kind = "short"
from = "e1"
to = "e2"
connections = 5

[[application]]
kind = "http"
from = "e2"
to = "e1"
requests = 10
"#,
};

/// Where a switch is a modelled Tofino, which has to hand out its registers within an epoch, and to
/// clear them: a pass through the model for each element. A control plane that starts has its
/// switch ready after a second, and measures from the next epoch but one on.
const MODELLED: Pace = Pace {
    epoch_ms: 500,
    apart: 12,
    again: 7,
    sections: r#"
grace_ms = 2000

[epoch]
length_ms = 500
clock_guard_us = 10000
flight_guard_us = 150000

[layout]
upstream_buckets = 256
downstream_buckets = 192
classifier = [{ bits = 8, counters = 1024 }, { bits = 16, counters = 512 }]

[attention]
hl_buckets = 64

[tasks]
heavy_hitter = 100

[[application]]
kind = "tcp"
from = "e1"
to = "e2"
mbit = 2

[[application]]
kind = "short"
from = "e2"
to = "e1"
connections = 5
"#,
};

impl Pace {
    /// That of a topology.
    fn of(topology: &Topology) -> &'static Self {
        let modelled = (0..topology.switches()).any(|at| topology.is_tofino(at));
        if modelled { &MODELLED } else { &SOFTWARE }
    }

    /// The text of a scenario of so many epochs, a share of which is to be whole.
    fn text(&self, topology: &str, epochs: u64, share: f64) -> String {
        SCENARIO
            .replace("SECTIONS", self.sections)
            .replace("TOPOLOGY", topology)
            .replace("EPOCHS", &epochs.to_string())
            .replace("SHARE", &share.to_string())
    }
}

fn load(topology: &str) -> Result<Topology> {
    Topology::load(topology, Path::new("."), LinkQuality::default())
}

/// Soaks a fabric of `topology` for so many minutes. `testbed` is the calumma-testbed program;
/// reports and truth go to a folder in `out`. Gives whether every report was right and most were
/// whole.
///
/// # Errors
/// When there is no such topology, or something breaks down.
pub fn run(topology: &str, minutes: u64, out: Option<PathBuf>, testbed: PathBuf) -> Result<bool> {
    let epochs = minutes * 60_000 / Pace::of(&load(topology)?).epoch_ms;
    play(scenario(topology, epochs)?, out, testbed)
}

/// The same with so many [troubles](with_troubles).
///
/// # Errors
/// As [`run`].
pub fn run_with_troubles(
    topology: &str,
    (troubles, seed): (u64, u64),
    out: Option<PathBuf>,
    testbed: PathBuf,
) -> Result<bool> {
    play(with_troubles(topology, troubles, seed)?, out, testbed)
}

fn play(scenario: Scenario, out: Option<PathBuf>, testbed: PathBuf) -> Result<bool> {
    let order = Order { files: Vec::new(), seeds: 1, out, epoch_ms: None, live: Some(testbed) };
    play_all(&[("soak".to_owned(), scenario)], &order)
}

/// The soak of a topology for so many epochs.
///
/// # Errors
/// When there is no such topology.
pub fn scenario(topology: &str, epochs: u64) -> Result<Scenario> {
    let text = Pace::of(&load(topology)?).text(topology, epochs, 0.8);
    Scenario::parse(&text, Path::new("."))
}

/// The same while edges, of Tofinos the control planes, and the controller are killed or stand
/// still, so many times, which of them and for how long being drawn from `seed`. The controller
/// keeps an archive.
///
/// # Errors
/// When there is no such topology.
pub fn with_troubles(topology: &str, troubles: u64, seed: u64) -> Result<Scenario> {
    let network = load(topology)?;
    let pace = Pace::of(&network);
    let mut text = pace.text(topology, (troubles + 1) * pace.apart, 0.2);
    for number in 0..troubles {
        let drawn = Draw::new(seed).of(number);
        let one_of = |which: u64, of: u64| drawn.of(which).below(of);
        let edge = one_of(0, network.edges().len() as u64) as usize;
        let name = &network.edges()[edge];
        let killed = |name: &str| (format!("kill = [\"{name}\"]"), format!("{name} is killed"));
        let stopped = |name: &str, ms: u64| {
            let says = format!("{name} stands still for {ms} ms");
            (format!("freeze = [{{ switch = \"{name}\", ms = {ms} }}]"), says)
        };
        let (trouble, says) = match one_of(1, 5) {
            0 | 1 => killed(name),
            2 => killed("controller"),
            // Packets don't wait for a Tofino's control plane: it may miss whole epochs.
            3 if network.is_tofino(edge) => stopped(name, 100 + one_of(2, 1400)),
            // As long as the rings of its ports last.
            3 => stopped(name, 20 + one_of(2, 100)),
            _ => stopped("controller", 100 + one_of(2, 1900)),
        };
        let at = (number + 1) * pace.apart;
        let (again, next) = (at + pace.again, at + pace.apart);
        write!(
            text,
            "\n[[change]]\nat = {at}\nsays = \"{says}\"\n{trouble}\n\n[[expect]]\n\
             says = \"{says}: reports are whole again\"\nepochs = [{again}, {next}]\n\
             share = 0.5\ndecoded = true\n"
        )?;
    }
    Scenario::parse(&format!("archive = true\n{text}"), Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_soak_is_a_scenario_of_its_topology_and_as_long_as_it_is_told() {
        let soak = scenario("leaf-spine:4x2", 400).unwrap();
        assert_eq!((soak.epochs, soak.application.len()), (400, 4));
        assert_eq!(soak.topology().unwrap().edges().len(), 4);
        assert!(scenario("ring:3", 400).is_err());
        let troubled = with_troubles("leaf-spine:4x2", 300, 1).unwrap();
        assert_eq!((troubled.change.len(), troubled.expect.len()), (300, 301));
        assert!(troubled.archive && troubled.topology().is_ok());
        let modelled = with_troubles("leaf-spine:2x1 e2=tofino", 300, 1).unwrap();
        assert_eq!((modelled.epoch.length_ms, modelled.application.len()), (500, 2));
        let (topology, mut times) = (modelled.topology().unwrap(), BTreeMap::new());
        for trouble in modelled.change.iter().flat_map(|change| change.troubles(&topology)) {
            *times.entry(trouble).or_insert(0) += 1;
        }
        let programs = ["calumma-controller", "calumma-edge", "calumma-switchd"];
        for trouble in
            programs.map(|of| [format!("{of} killed"), format!("{of} stopped")]).as_flattened()
        {
            assert!(times[trouble] > 20, "{times:?}");
        }
        assert_eq!(times.values().sum::<u64>(), 300);
        let through = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/geant2012.toml");
        let problem = scenario(through, 400).unwrap_err();
        assert!(format!("{problem:#}").contains("packets pass through edges"), "{problem:#}");
    }
}
