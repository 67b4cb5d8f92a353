//! A live fabric for many minutes: applications and made-up traffic over links that lose and double
//! packets, every report held against the kernel's log of them; where asked for, while its programs
//! are killed and stand still.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::scenario::Scenario;
use crate::scenario::command::{Order, play_all};
use crate::workload::Draw;

/// Epochs a minute.
const EPOCHS: u64 = 60 * 20;

/// Epochs from one trouble to the next, and within how many of them reports are to be whole again:
/// a switch that starts takes a second of them until it forwards.
const APART: u64 = 80;
const AGAIN: u64 = 60;

/// What is done; `TOPOLOGY` and `EPOCHS` are put in. Every report that claims to be certain must be
/// so in any scenario; these expectations only see to it that most do.
const SCENARIO: &str = r#"
title = "A live fabric under way: links lose and double packets"
epochs = EPOCHS
topology = "TOPOLOGY"
detail = "packets"
spread = 0.8
links = { loss = 0.01, duplicate = 0.002 }

[traffic.services]
flows = 120
sizes = "constant:5"
tcp = 0.5
churn = 0.05

[traffic.victims]
flows = 20
sizes = "constant:20"
victims = 0.5

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

[[expect]]
says = "reports claim to be whole, and name losses"
epochs = [0, EPOCHS]
share = 0.8
decoded = true
"#;

/// Soaks a fabric of `topology` for so many minutes. `testbed` is the calumma-testbed program;
/// reports and truth go to a folder in `out`. Gives whether every report was right and most were
/// whole.
///
/// # Errors
/// When there is no such topology, or something breaks down.
pub fn run(topology: &str, minutes: u64, out: Option<PathBuf>, testbed: PathBuf) -> Result<bool> {
    play(scenario(topology, minutes * EPOCHS)?, out, testbed)
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
    let text = SCENARIO.replace("TOPOLOGY", topology).replace("EPOCHS", &epochs.to_string());
    Scenario::parse(&text, Path::new("."))
}

/// The same while edges and the controller are killed or stand still, so many times, which of them
/// and for how long being drawn from `seed`. The controller keeps an archive.
///
/// # Errors
/// When there is no such topology.
pub fn with_troubles(topology: &str, troubles: u64, seed: u64) -> Result<Scenario> {
    let epochs = (troubles + 1) * APART;
    let names = scenario(topology, epochs)?.topology()?.edges().to_vec();
    let mut text = SCENARIO.replace("share = 0.8", "share = 0.2");
    for number in 0..troubles {
        let drawn = Draw::new(seed).of(number);
        let one_of = |which: u64, of: u64| drawn.of(which).below(of);
        let edge = &names[one_of(0, names.len() as u64) as usize];
        let (at, again) = ((number + 1) * APART, (number + 1) * APART + AGAIN);
        let trouble = match one_of(1, 5) {
            0 | 1 => format!("kill = [\"{edge}\"]"),
            2 => "kill = [\"controller\"]".to_owned(),
            // As long as the rings of its ports last.
            3 => format!("freeze = [{{ switch = \"{edge}\", ms = {} }}]", 20 + one_of(2, 100)),
            _ => {
                format!("freeze = [{{ switch = \"controller\", ms = {} }}]", 100 + one_of(2, 1900))
            }
        };
        write!(
            text,
            "\n[[change]]\nat = {at}\n{trouble}\n\n[[expect]]\nsays = '{trouble}: reports are whole \
             again'\nepochs = [{again}, {}]\nshare = 0.5\ndecoded = true\n",
            at + APART
        )?;
    }
    let text = text.replace("TOPOLOGY", topology).replace("EPOCHS", &epochs.to_string());
    Scenario::parse(&format!("archive = true\n{text}"), Path::new("."))
}

#[cfg(test)]
mod tests {
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
        let through = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/geant2012.toml");
        let problem = scenario(through, 400).unwrap_err();
        assert!(format!("{problem:#}").contains("packets pass through edges"), "{problem:#}");
    }
}
