//! A live fabric for many minutes: applications and made-up traffic over links that lose and double
//! packets, every report held against the kernel's log of them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::scenario::Scenario;
use crate::scenario::command::{Order, play_all};

/// Epochs a minute.
const EPOCHS: u64 = 60 * 20;

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
    let scenario = scenario(topology, minutes * EPOCHS)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_is_a_scenario_of_its_topology_and_as_long_as_it_is_told() {
        let soak = scenario("leaf-spine:4x2", 400).unwrap();
        assert_eq!((soak.epochs, soak.application.len()), (400, 4));
        assert_eq!(soak.topology().unwrap().edges().len(), 4);
        assert!(scenario("ring:3", 400).is_err());
        let through = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/geant2012.toml");
        let problem = scenario(through, 400).unwrap_err();
        assert!(format!("{problem:#}").contains("packets pass through edges"), "{problem:#}");
    }
}
